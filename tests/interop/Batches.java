import java.io.BufferedReader;
import java.io.FileDescriptor;
import java.io.FileOutputStream;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.util.HexFormat;
import java.util.List;
import java.util.TreeMap;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageBatch;
import org.apache.rocketmq.common.message.MessageDecoder;

/**
 * Batches as RocketMQ's client encodes them.
 *
 * <p>write: prints "case hex" per batch, or "case refused" where the client makes none of these messages. read: for
 * each batch in hex on stdin prints its members as RocketMQ decodes them: flag, body and sorted properties in hex.
 */
public final class Batches {
    private static final HexFormat HEX = HexFormat.of();
    private static final PrintStream OUT =
        new PrintStream(new FileOutputStream(FileDescriptor.out), false, StandardCharsets.UTF_8);

    private Batches() {
    }

    public static void main(String[] arguments) throws Exception {
        // Loggers say where they write on stdout.
        System.setOut(System.err);
        switch (arguments[0]) {
            case "write" -> write();
            case "read" -> read();
            default -> throw new IllegalArgumentException(arguments[0]);
        }
        OUT.flush();
        System.exit(0);
    }

    private static Message message(String topic, String body, String key, int flag) {
        Message message = new Message(topic, null, null, flag, body.getBytes(StandardCharsets.UTF_8), true);
        message.getProperties().remove("WAIT");
        // The client's own keys are never twice the same.
        message.getProperties().put("UNIQ_KEY", key);
        return message;
    }

    private static Message named(Message message, String tags, String keys, String name, String value) {
        message.setTags(tags);
        message.setKeys(keys);
        message.putUserProperty(name, value);
        return message;
    }

    private static Message waiting(Message message, boolean wait) {
        message.setWaitStoreMsgOK(wait);
        return message;
    }

    private static Message delayed(Message message, int level) {
        message.setDelayTimeLevel(level);
        return message;
    }

    private static void write() {
        line("one", message("orders", "a", "K1", 0));
        line("two", message("orders", "first", "K1", 7), message("orders", "second", "K2", -1));
        line("named", named(message("orders", "\u00e4\u4e2d\ud83d\ude00", "K1", 0), "TagA", "key-1 key-2", "color", "r\u00f6t"),
            message("orders", "x", "K2", Integer.MIN_VALUE));
        line("empty-tags", named(message("orders", "a", "K1", 0), "", "k", "b", "c"));
        line("not-waiting", waiting(message("orders", "a", "K1", 0), false), waiting(message("orders", "b", "K2", 0), false));
        line("waiting-and-silent", waiting(message("orders", "a", "K1", 0), true), message("orders", "b", "K2", 0));
        line("level-zero", delayed(message("orders", "a", "K1", 0), 0));
        line("waits-differ", waiting(message("orders", "a", "K1", 0), false), message("orders", "b", "K2", 0));
        line("topics-differ", message("orders", "a", "K1", 0), message("other", "b", "K2", 0));
        line("delayed", message("orders", "a", "K1", 0), delayed(message("orders", "b", "K2", 0), 3));
        line("retry-topic", message("%RETRY%group", "a", "K1", 0));
        line("empty");
    }

    private static void line(String name, Message... messages) {
        String found;
        try {
            found = HEX.formatHex(MessageBatch.generateFromList(List.of(messages)).encode());
        } catch (UnsupportedOperationException | AssertionError error) {
            found = "refused";
        }
        OUT.println(name + " " + found);
    }

    private static void read() throws Exception {
        BufferedReader lines = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = lines.readLine(); line != null; line = lines.readLine()) {
            StringBuilder found = new StringBuilder();
            for (Message each : MessageDecoder.decodeMessages(ByteBuffer.wrap(HEX.parseHex(line)))) {
                String properties = new TreeMap<>(each.getProperties()).toString();
                found.append(each.getFlag()).append(' ').append(HEX.formatHex(each.getBody())).append(' ');
                found.append(HEX.formatHex(properties.getBytes(StandardCharsets.UTF_8))).append(' ');
            }
            OUT.println(found.toString().strip());
        }
    }
}
