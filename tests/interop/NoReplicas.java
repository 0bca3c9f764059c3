import org.apache.rocketmq.store.ha.DefaultHAService;

/**
 * A broker's replication without any: RocketMQ's own would listen on every interface of the machine, whatever address
 * the broker is bound to. Found by the broker as META-INF/service/org.apache.rocketmq.store.ha.HAService.
 */
public final class NoReplicas extends DefaultHAService {
    @Override
    public void start() {
        // Nobody is accepted.
    }

    @Override
    public void shutdown() {
        // Nothing was started.
    }
}
