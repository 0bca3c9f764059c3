import com.alibaba.fastjson2.JSON;
import java.io.BufferedReader;
import java.io.FileDescriptor;
import java.io.FileOutputStream;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.HexFormat;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import org.apache.thrift.TException;
import org.apache.thrift.protocol.TBinaryProtocol;
import org.apache.thrift.protocol.TCompactProtocol;
import org.apache.thrift.protocol.TField;
import org.apache.thrift.protocol.TList;
import org.apache.thrift.protocol.TMap;
import org.apache.thrift.protocol.TMessage;
import org.apache.thrift.protocol.TMessageType;
import org.apache.thrift.protocol.TProtocol;
import org.apache.thrift.protocol.TProtocolFactory;
import org.apache.thrift.protocol.TStruct;
import org.apache.thrift.protocol.TType;
import org.apache.thrift.transport.TFramedTransport;
import org.apache.thrift.transport.TMemoryBuffer;
import org.apache.thrift.transport.TMemoryInputTransport;
import org.apache.thrift.transport.TSocket;

/**
 * Calls and replies of DDMQ's services as libthrift 0.9.2 writes and reads them, the version that DDMQ is built with.
 *
 * <p>write: prints "case protocol hex" per frame. read: for each frame in hex on stdin prints what libthrift finds in
 * it, as JSON. live PRODUCER CONSUMER: a conversation with a running node, every answer as JSON.
 *
 * <p>Structs are written field by field in the order of their ids with the types that the interface definitions give
 * them, which is what generated code does.
 */
public final class Golden {
    private static final PrintStream OUT =
        new PrintStream(new FileOutputStream(FileDescriptor.out), false, StandardCharsets.UTF_8);
    private static final Map<String, TProtocolFactory> PROTOCOLS = new TreeMap<>(Map.of(
        "compact", new TCompactProtocol.Factory(), "binary", new TBinaryProtocol.Factory()));

    private Golden() {
    }

    public static void main(String[] arguments) throws Exception {
        // Loggers say where they write on stdout.
        System.setOut(System.err);
        switch (arguments[0]) {
            case "write" -> write();
            case "read" -> read();
            case "live" -> live(arguments[1], arguments[2]);
            default -> throw new IllegalArgumentException(arguments[0]);
        }
        OUT.flush();
        System.exit(0);
    }

    // Values and how they are written

    /** One field: id, type and value. */
    private record Field(int id, byte type, Object value) {
        void write(TProtocol to) throws TException {
            to.writeFieldBegin(new TField("", type, (short) id));
            writeValue(to, type, value);
            to.writeFieldEnd();
        }
    }

    /** A struct. */
    private record Struct(List<Field> fields) {
        void write(TProtocol to) throws TException {
            to.writeStructBegin(new TStruct(""));
            for (Field field : fields) {
                field.write(to);
            }
            to.writeFieldStop();
            to.writeStructEnd();
        }
    }

    /** A list of one element type. */
    private record Items(byte type, List<?> values) {
    }

    /** A map of strings to one type. */
    private record Pairs(byte type, Map<String, ?> values) {
    }

    private static void writeValue(TProtocol to, byte type, Object value) throws TException {
        switch (type) {
            case TType.BOOL -> to.writeBool((Boolean) value);
            case TType.BYTE -> to.writeByte(((Integer) value).byteValue());
            case TType.I16 -> to.writeI16(((Integer) value).shortValue());
            case TType.I32 -> to.writeI32((Integer) value);
            case TType.I64 -> to.writeI64((Long) value);
            case TType.DOUBLE -> to.writeDouble((Double) value);
            case TType.STRING -> {
                if (value instanceof byte[] bytes) {
                    to.writeBinary(ByteBuffer.wrap(bytes));
                } else {
                    to.writeString((String) value);
                }
            }
            case TType.STRUCT -> ((Struct) value).write(to);
            case TType.LIST -> {
                Items items = (Items) value;
                to.writeListBegin(new TList(items.type, items.values.size()));
                for (Object each : items.values) {
                    writeValue(to, items.type, each);
                }
                to.writeListEnd();
            }
            case TType.MAP -> {
                Pairs pairs = (Pairs) value;
                to.writeMapBegin(new TMap(TType.STRING, pairs.type, pairs.values.size()));
                for (Map.Entry<String, ?> each : pairs.values.entrySet()) {
                    to.writeString(each.getKey());
                    writeValue(to, pairs.type, each.getValue());
                }
                to.writeMapEnd();
            }
            default -> throw new IllegalArgumentException("type " + type);
        }
    }

    private static Struct struct(Field... fields) {
        return new Struct(List.of(fields));
    }

    private static Field text(int id, String value) {
        return new Field(id, TType.STRING, value);
    }

    private static Field binary(int id, byte... value) {
        return new Field(id, TType.STRING, value);
    }

    private static Field i32(int id, int value) {
        return new Field(id, TType.I32, value);
    }

    private static Field i64(int id, long value) {
        return new Field(id, TType.I64, value);
    }

    private static Field bool(int id, boolean value) {
        return new Field(id, TType.BOOL, value);
    }

    private static Field struct(int id, Struct value) {
        return new Field(id, TType.STRUCT, value);
    }

    private static Field offsets(int id, Long... values) {
        return new Field(id, TType.LIST, new Items(TType.I64, List.of(values)));
    }

    private static Field structs(int id, Struct... values) {
        return new Field(id, TType.LIST, new Items(TType.STRUCT, List.of(values)));
    }

    private static Field texts(int id, String... pairs) {
        return new Field(id, TType.MAP, new Pairs(TType.STRING, ordered((Object[]) pairs)));
    }

    private static Pairs counts(Object... pairs) {
        return new Pairs(TType.I64, ordered(pairs));
    }

    private static Pairs byTopic(Object... pairs) {
        return new Pairs(TType.MAP, ordered(pairs));
    }

    private static Field map(int id, Pairs value) {
        return new Field(id, TType.MAP, value);
    }

    private static Map<String, Object> ordered(Object... pairs) {
        Map<String, Object> found = new LinkedHashMap<>();
        for (int at = 0; at < pairs.length; at += 2) {
            found.put((String) pairs[at], pairs[at + 1]);
        }
        return found;
    }

    private static byte[] bytes(int... values) {
        byte[] found = new byte[values.length];
        for (int at = 0; at < values.length; at++) {
            found[at] = (byte) values[at];
        }
        return found;
    }

    // The golden frames

    private record Case(String name, String method, byte kind, int seqid, Struct value) {
        byte[] frame(TProtocolFactory protocol) throws TException {
            TMemoryBuffer buffer = new TMemoryBuffer(512);
            TFramedTransport framed = new TFramedTransport(buffer);
            TProtocol to = protocol.getProtocol(framed);
            to.writeMessageBegin(new TMessage(method, kind, seqid));
            value.write(to);
            to.writeMessageEnd();
            framed.flush();
            return java.util.Arrays.copyOf(buffer.getArray(), buffer.length());
        }
    }

    private static Case call(String name, String method, int seqid, Field... arguments) {
        return new Case(name, method, TMessageType.CALL, seqid, struct(arguments));
    }

    private static Case reply(String name, String method, int seqid, Field... results) {
        return new Case(name, method, TMessageType.REPLY, seqid, struct(results));
    }

    private static final String STRANGE = "\u00e4\u4e2d\ud83d\ude00\u0000\u200b";
    private static final byte[] BODY = bytes(0, 1, 2, 127, 128, 255);

    private static Struct context(String group, String topic, String qid) {
        return struct(text(1, group), text(2, topic), text(3, qid));
    }

    /** A field of every type under ids that no definition has, as a newer peer might send them. */
    private static Field[] unknown(Field... known) {
        List<Field> fields = new ArrayList<>(List.of(known));
        fields.add(bool(201, true));
        fields.add(bool(202, false));
        fields.add(new Field(203, TType.BYTE, -3));
        fields.add(new Field(204, TType.I16, -300));
        fields.add(i32(205, 1 << 30));
        fields.add(i64(206, Long.MIN_VALUE));
        fields.add(new Field(207, TType.DOUBLE, -0.5));
        fields.add(text(208, STRANGE));
        fields.add(struct(209, struct(text(1, "inner"), offsets(2, 1L, -1L))));
        fields.add(structs(210, struct(bool(1, false)), struct()));
        fields.add(map(1000, byTopic("t", counts("q", 1L))));
        return fields.toArray(new Field[0]);
    }

    private static List<Case> cases() {
        List<Case> all = new ArrayList<>();
        consumer(all);
        lowLevel(all);
        producer(all);
        delays(all);
        return all;
    }

    private static void consumer(List<Case> all) {
        Struct third = struct(struct(1, context("g", "t3", "c_b_2")), offsets(3), offsets(4));
        Struct second = struct(
            struct(1, context("g", "t2", "c_b_1")), offsets(3, 1L, 2L, 3L), offsets(4, 1L << 40), struct(10, third));
        Struct first = struct(
            struct(1, context("g", "t", "c_b_0")), offsets(3, 0L, 63L, 64L, 8191L, 8192L, Long.MAX_VALUE),
            offsets(4, 5L), struct(10, second));
        all.add(call("pull-least", "pull", 1, struct(1, struct(text(1, "g")))));
        all.add(call("pull-all", "pull", Integer.MAX_VALUE, struct(1, struct(
            text(1, "orders-billing"), text(2, "orders"), i32(10, 8), i32(11, 50), struct(50, first), text(60, "java")))));
        all.add(call("pull-unusual", "pull", 0, struct(1, struct(
            text(1, STRANGE), text(2, ""), i32(10, Integer.MIN_VALUE), i32(11, -1)))));
        all.add(call("pull-newer", "pull", 7, unknown(struct(1, struct(unknown(
            text(1, "g"), i32(10, 8), struct(50, struct(unknown(
                struct(1, struct(unknown(text(1, "g"), text(2, "t"), text(3, "q")))), offsets(3, 4L)))))))))); 
        all.add(reply("pulled-nothing", "pull", 2, struct(0, struct(struct(1, struct()), structs(2)))));
        all.add(reply("pulled", "pull", 3, struct(0, struct(
            struct(1, context("g", "t", "pyddmq_broker-0_3")),
            structs(2,
                struct(text(1, "key"), binary(2, BODY), text(3, "tag"), i64(4, 0L), texts(5, "color", "red", "b", STRANGE)),
                struct(binary(2), i64(4, 1L)),
                struct(text(1, STRANGE), binary(2, new byte[200]), i64(4, 1L << 50)))))));
        all.add(reply("pull-refused", "pull", 4, struct(1, struct(i32(1, 2), text(2, "no such group")))));
        all.add(new Case("unknown-method", "nothing", TMessageType.EXCEPTION, 5,
            struct(text(1, "Invalid method name: 'nothing'"), i32(2, 1))));
        all.add(call("submit", "submit", 6, struct(1, second)));
        all.add(call("submit-without-context", "submit", 7, struct(1, struct(offsets(3, 1L)))));
        all.add(reply("submitted", "submit", 8, bool(0, true)));
        all.add(reply("not-submitted", "submit", 9, bool(0, false)));
        all.add(reply("submit-refused", "submit", 10, struct(1, struct(i32(1, 7), text(2, "failed")))));
        all.add(call("stats", "getConsumeStats", 11, struct(1, struct(text(1, "g")))));
        all.add(call("stats-of-topic", "getConsumeStats", 12, struct(1, struct(text(1, "g"), text(2, "t"), text(3, "v")))));
        all.add(reply("stats-found", "getConsumeStats", 13, structs(0,
            struct(text(1, "g"), text(2, "t"), map(3, counts("q0", 5L, "q1", -1L)), map(4, counts("q0", 1L << 33, "q1", 0L))),
            struct(text(1, "g"), text(2, "u"), map(3, counts()), map(4, counts())))));
        all.add(reply("stats-none", "getConsumeStats", 14, structs(0)));
    }

    private static void lowLevel(List<Case> all) {
        all.add(call("fetch-least", "fetch", 15, struct(1, struct(text(1, "1@host#0"), text(2, "g"), text(3, "c")))));
        all.add(call("fetch-all", "fetch", 16, struct(1, struct(
            text(1, "1@host#0"), text(2, "g"), text(3, "c"), map(4, byTopic("t", counts("q", 3L, "r", 4L), "u", counts())),
            i32(10, 16), i32(11, 100), text(60, "java")))));
        all.add(reply("fetched", "fetch", 17, struct(0, struct(i32(1, 0), structs(10, struct(
            text(1, "t"), text(2, "q"), i64(3, 4L),
            structs(10, struct(text(1, "k"), binary(2, BODY), text(3, ""), i64(4, 3L)))))))));
        all.add(call("ack", "ack", 18, struct(1, struct(
            text(1, "1@host#0"), text(2, "g"), text(3, "c"), map(4, byTopic("t", counts("q", 4L)))))));
        all.add(reply("acked", "ack", 19, bool(0, true)));
    }

    private static void producer(List<Case> all) {
        Struct least = struct(text(1, "t"), i64(4, 0), i32(6, -1));
        Struct full = struct(
            text(1, "orders"), text(2, "customer-7"), text(3, "old"), i64(4, -7), text(5, "a||b"), i32(6, 3), binary(7, BODY),
            text(8, "java-1.0"), texts(9, "color", "red", "isPressureTraffic", "false"));
        Struct strange = struct(
            text(1, "t"), text(2, STRANGE), i64(4, Long.MIN_VALUE), text(5, ""), i32(6, -2), binary(7), texts(9));
        all.add(call("send-least", "sendSync", 20, struct(1, least), i64(2, 0)));
        all.add(call("send", "sendSync", 21, struct(1, full), i64(2, 50)));
        all.add(call("send-unusual", "sendSync", 22, struct(1, strange), i64(2, -1)));
        all.add(call("send-newer", "sendSync", 23, unknown(struct(1, struct(unknown(
            text(1, "t"), i64(4, 0), i32(6, -1), binary(7, BODY)))), i64(2, 50))));
        all.add(reply("sent", "sendSync", 24, struct(0, struct(i32(1, 0), text(2, "OK")))));
        all.add(reply("not-sent", "sendSync", 25, struct(0, struct(i32(1, 11), text(2, STRANGE), text(3, "customer-7")))));
        all.add(call("send-async", "sendAsync", 26, struct(1, full)));
        all.add(reply("sent-async", "sendAsync", 27, struct(0, struct(i32(1, 0)))));
        all.add(call("send-batch", "sendBatchSync", 28, structs(1, least, full, strange)));
        all.add(call("send-no-batch", "sendBatchSync", 29, structs(1)));
        all.add(reply("sent-batch", "sendBatchSync", 30, struct(0, struct(i32(1, 0), text(2, "OK")))));
    }

    private static void delays(List<Case> all) {
        all.add(call("delay-least", "sendDelaySync", 31, struct(1, struct(text(1, "t"), i32(5, 1))), i64(2, 100)));
        all.add(call("delay", "sendDelaySync", 32,
            struct(1, struct(
                text(1, "t"), text(2, "id"), binary(3, BODY), text(4, "tag"), i32(5, 2), i64(6, 1_800_000_000L), i32(7, 4),
                i64(8, 60), i64(9, 1_900_000_000L), i64(10, 3), text(11, "uuid"), text(13, "java"), texts(14, "a", "b"))),
            i64(2, 100)));
        all.add(reply("delayed", "sendDelaySync", 33, struct(0, struct(i32(1, 0), text(2, "OK"), text(3, "id")))));
        all.add(reply("not-delayed", "sendDelaySync", 34, struct(0, struct(i32(1, 18), text(2, "no"), text(3, "")))));
    }

    private static void write() throws TException {
        for (Case each : cases()) {
            for (Map.Entry<String, TProtocolFactory> protocol : PROTOCOLS.entrySet()) {
                OUT.println(each.name + " " + protocol.getKey() + " " + HexFormat.of().formatHex(each.frame(protocol.getValue())));
            }
        }
    }

    // Reading whatever a frame holds

    private static void read() throws Exception {
        BufferedReader lines = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = lines.readLine(); line != null; line = lines.readLine()) {
            byte[] frame = HexFormat.of().parseHex(line);
            TFramedTransport framed = new TFramedTransport(new TMemoryInputTransport(frame));
            TProtocolFactory protocol = PROTOCOLS.get(frame[4] == (byte) 0x82 ? "compact" : "binary");
            TProtocol from = protocol.getProtocol(framed);
            print(message(from));
        }
    }

    private static List<Object> message(TProtocol from) throws TException {
        TMessage head = from.readMessageBegin();
        Object value = value(from, TType.STRUCT);
        from.readMessageEnd();
        return List.of(head.name, head.type, head.seqid, value);
    }

    /** What stands there as [type, value]; fields by id, bytes and texts in hex. */
    private static Object value(TProtocol from, byte type) throws TException {
        switch (type) {
            case TType.BOOL:
                return List.of("bool", from.readBool());
            case TType.BYTE:
                return List.of("byte", from.readByte());
            case TType.I16:
                return List.of("i16", from.readI16());
            case TType.I32:
                return List.of("i32", from.readI32());
            case TType.I64:
                return List.of("i64", String.valueOf(from.readI64()));
            case TType.DOUBLE:
                return List.of("double", from.readDouble());
            case TType.STRING:
                ByteBuffer found = from.readBinary();
                byte[] copy = new byte[found.remaining()];
                found.get(copy);
                return List.of("string", HexFormat.of().formatHex(copy));
            case TType.STRUCT:
                Map<String, Object> fields = new TreeMap<>();
                from.readStructBegin();
                for (TField field = from.readFieldBegin(); field.type != TType.STOP; field = from.readFieldBegin()) {
                    fields.put(String.valueOf(field.id), value(from, field.type));
                    from.readFieldEnd();
                }
                from.readStructEnd();
                return List.of("struct", fields);
            case TType.LIST:
                List<Object> items = new ArrayList<>();
                TList list = from.readListBegin();
                for (int at = 0; at < list.size; at++) {
                    items.add(value(from, list.elemType));
                }
                from.readListEnd();
                return List.of("list", items);
            case TType.MAP:
                List<Object> pairs = new ArrayList<>();
                TMap map = from.readMapBegin();
                for (int at = 0; at < map.size; at++) {
                    pairs.add(List.of(value(from, map.keyType), value(from, map.valueType)));
                }
                from.readMapEnd();
                return List.of("map", pairs);
            default:
                throw new IllegalArgumentException("type " + type);
        }
    }

    private static void print(Object line) {
        OUT.println(JSON.toJSONString(line));
    }

    // A conversation

    private static void live(String producer, String consumer) throws Exception {
        for (Map.Entry<String, TProtocolFactory> protocol : PROTOCOLS.entrySet()) {
            Connection sends = new Connection(producer, protocol.getValue());
            Connection pulls = new Connection(consumer, protocol.getValue());
            String key = protocol.getKey();
            for (int number = 0; number < 3; number++) {
                sends.ask("sendSync", struct(1, struct(
                    text(1, "orders"), text(2, key), i64(4, 0), text(5, "tag"), i32(6, 0), binary(7, BODY),
                    texts(9, "number", String.valueOf(number)))), i64(2, 1000));
            }
            sends.ask("sendBatchSync", structs(1,
                struct(text(1, "orders"), text(2, key + STRANGE), i64(4, 0), i32(6, 0), binary(7, BODY)),
                struct(text(1, "orders"), i64(4, 0), i32(6, 0), text(3, "old"))));
            sends.ask("sendSync", struct(1, struct(text(1, "orders"), i64(4, 0), i32(6, 0), binary(7))), i64(2, 1000));
            sends.ask("sendSync", struct(1, struct(text(1, ""), i64(4, 0), i32(6, 0), binary(7, BODY))), i64(2, 1000));
            sends.ask("sendDelaySync", struct(1, struct(text(1, "orders"), binary(3, BODY), i32(5, 1))), i64(2, 1000));
            pulls.ask("pull", struct(1, struct(text(1, "billing"), text(2, "orders"), i32(10, 4), i32(11, 2000))));
            long from = protocol.getKey().equals("binary") ? 0 : 5;
            Struct result = struct(
                struct(1, context("billing", "orders", "pyddmq_broker-0_0")),
                offsets(3, from, from + 1, from + 2), offsets(4, from + 3));
            pulls.ask("pull", struct(1, struct(
                text(1, "billing"), i32(10, 8), i32(11, 2000), struct(50, result), text(60, "java"))));
            pulls.ask("submit", struct(1, struct(
                struct(1, context("billing", "orders", "pyddmq_broker-0_0")),
                offsets(3, from + 3, from + 4), offsets(4))));
            pulls.ask("getConsumeStats", struct(1, struct(text(1, "billing"), text(2, "orders"))));
            pulls.ask("pull", struct(1, struct(text(1, "nobody"))));
            pulls.ask("fetch", struct(1, struct(text(1, "1@host#0"), text(2, "billing"), text(3, "c"))));
            pulls.ask("fetch", struct(1, struct(text(1, "1@host#0"), text(2, "reports"), text(3, "pyddmq"), i32(10, 16))));
            pulls.ask("unheardOf", struct(1, struct(text(1, "billing"))));
            sends.close();
            pulls.close();
        }
    }

    /** A socket with framed transport, as DDMQ's clients have it. */
    private static final class Connection {
        private final TFramedTransport transport;
        private final TProtocol protocol;
        private int seqid;

        Connection(String address, TProtocolFactory factory) throws TException {
            String[] parts = address.split(":");
            transport = new TFramedTransport(new TSocket(parts[0], Integer.parseInt(parts[1]), 10_000));
            transport.open();
            protocol = factory.getProtocol(transport);
        }

        void ask(String method, Field... arguments) throws TException {
            seqid++;
            protocol.writeMessageBegin(new TMessage(method, TMessageType.CALL, seqid));
            struct(arguments).write(protocol);
            protocol.writeMessageEnd();
            transport.flush();
            print(message(protocol));
        }

        void close() {
            transport.close();
        }
    }
}
