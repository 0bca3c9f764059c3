import io.confluent.parallelconsumer.ParallelConsumerOptions;
import io.confluent.parallelconsumer.ParallelConsumerOptions.ProcessingOrder;
import io.confluent.parallelconsumer.ParallelStreamProcessor;
import java.util.Collection;
import java.util.List;
import java.util.Map;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.concurrent.atomic.AtomicLong;
import org.apache.kafka.clients.consumer.ConsumerRebalanceListener;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;

/**
 * Confluent's parallel consumer over one topic, in the order of keys and otherwise as it is by default (16 threads, commits
 * every 5 s beside its work). It looks at each record's key, value and headers, and is done with it.
 *
 * <p>Arguments: address, topic, group, partitions, and counts of records. Says "ready" on stdout when it has all partitions,
 * and "seen N" for each of these counts; ends when stdin does.
 */
public final class Parallel {
    private Parallel() {}

    public static void main(String[] arguments) throws Exception {
        String topic = arguments[1];
        int partitions = Integer.parseInt(arguments[3]);
        List<Long> counts = List.of(arguments).subList(4, arguments.length).stream().map(Long::valueOf).toList();
        KafkaConsumer<byte[], byte[]> consumer = new KafkaConsumer<>(
            Map.of(
                "bootstrap.servers", arguments[0],
                "group.id", arguments[2],
                "enable.auto.commit", "false",
                "auto.offset.reset", "earliest"),
            new ByteArrayDeserializer(),
            new ByteArrayDeserializer());
        ParallelStreamProcessor<byte[], byte[]> processor = ParallelStreamProcessor.createEosStreamProcessor(
            ParallelConsumerOptions.<byte[], byte[]>builder().ordering(ProcessingOrder.KEY).consumer(consumer).build());
        AtomicInteger given = new AtomicInteger();
        processor.subscribe(List.of(topic), new ConsumerRebalanceListener() {
            @Override
            public void onPartitionsAssigned(Collection<TopicPartition> now) {
                if (given.addAndGet(now.size()) == partitions) {
                    say("ready");
                }
            }

            @Override
            public void onPartitionsRevoked(Collection<TopicPartition> now) {
                given.addAndGet(-now.size());
            }
        });
        AtomicLong seen = new AtomicLong();
        AtomicLong bytes = new AtomicLong();
        processor.poll(context -> {
            ConsumerRecord<byte[], byte[]> each = context.getSingleConsumerRecord();
            bytes.addAndGet(each.key().length + each.value().length + each.headers().toArray().length);
            long now = seen.incrementAndGet();
            if (counts.contains(now)) {
                say("seen " + now);
            }
        });
        while (System.in.read() >= 0) {
            continue;
        }
        processor.close();
    }

    private static void say(String what) {
        System.out.println(what);
        System.out.flush();
    }
}
