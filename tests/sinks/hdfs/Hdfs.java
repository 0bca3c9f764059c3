import java.io.File;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.hdfs.MiniDFSCluster;

/**
 * An HDFS of one name node and one data node, over its folder's earlier lives. Arguments: the folder, the name node's
 * ports for programs and for HTTP, and settings as name=value.
 */
public final class Hdfs {
    public static void main(String[] arguments) throws Exception {
        File folder = new File(arguments[0]);
        Configuration settings = new Configuration();
        for (int each = 3; each < arguments.length; each++) {
            String[] parts = arguments[each].split("=", 2);
            settings.set(parts[0], parts[1]);
        }
        boolean fresh = !new File(folder, "name-0-1").exists();
        MiniDFSCluster cluster = new MiniDFSCluster.Builder(settings, folder)
            .nameNodePort(Integer.parseInt(arguments[1]))
            .nameNodeHttpPort(Integer.parseInt(arguments[2]))
            .numDataNodes(1)
            .format(fresh)
            .build();
        // Who writes to a file whose writer was killed waits a minute by default.
        cluster.setLeasePeriod(3_000, 60_000);
        System.out.println("up");
        Thread.currentThread().join();
    }
}
