import org.apache.hadoop.hbase.HBaseConfiguration;
import org.apache.hadoop.hbase.master.HMaster;
import org.apache.hadoop.hbase.thrift.ThriftServer;

/** A standalone HBase and its Thrift server, framed, in one process; the argument is the server's port. */
public final class Hbase {
    public static void main(String[] arguments) throws Exception {
        Thread master = new Thread(() -> HMaster.main(new String[] {"start"}));
        master.setDaemon(true);
        master.start();
        new ThriftServer(HBaseConfiguration.create())
            .run(new String[] {"-p", arguments[0], "-b", "127.0.0.1", "-f", "--infoport", "-1", "start"});
    }
}
