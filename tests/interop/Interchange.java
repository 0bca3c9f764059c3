import com.alibaba.fastjson2.JSON;
import com.alibaba.fastjson2.JSONArray;
import com.alibaba.fastjson2.JSONObject;
import java.io.BufferedReader;
import java.io.FileDescriptor;
import java.io.FileOutputStream;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.net.InetSocketAddress;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Base64;
import java.util.Collection;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.TreeMap;
import java.util.TreeSet;
import java.util.concurrent.Callable;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.LinkedBlockingQueue;
import java.util.concurrent.TimeUnit;
import org.apache.rocketmq.client.consumer.AckCallback;
import org.apache.rocketmq.client.consumer.AckResult;
import org.apache.rocketmq.client.consumer.DefaultMQPullConsumer;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.PopCallback;
import org.apache.rocketmq.client.consumer.PopResult;
import org.apache.rocketmq.client.consumer.PullResult;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.client.consumer.store.ReadOffsetType;
import org.apache.rocketmq.client.exception.MQBrokerException;
import org.apache.rocketmq.client.exception.MQClientException;
import org.apache.rocketmq.client.impl.MQClientAPIImpl;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.LocalTransactionState;
import org.apache.rocketmq.client.producer.SendResult;
import org.apache.rocketmq.client.producer.TransactionListener;
import org.apache.rocketmq.client.producer.TransactionMQProducer;
import org.apache.rocketmq.common.TopicConfig;
import org.apache.rocketmq.common.compression.CompressionType;
import org.apache.rocketmq.common.constant.ConsumeInitMode;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.common.message.MessageQueue;
import org.apache.rocketmq.remoting.protocol.header.AckMessageRequestHeader;
import org.apache.rocketmq.remoting.protocol.header.PopMessageRequestHeader;
import org.apache.rocketmq.tools.admin.DefaultMQAdminExt;

/**
 * RocketMQ's own clients, worked by JSON lines on stdin; every answer is one or more JSON lines and then "{}".
 *
 * <p>Requests have a "do": topic, type (a topic's message type), send (a list of messages for one queue; more than one
 * go as a batch), recall (a timed message), read (a whole topic), query (by key or id), commit, offset, half (a message
 * of a transaction), consume (as a member of a group), search (an offset by time), delete (a topic), pop (as POP
 * consumers do, with acknowledgements of some), reset (forget everything about brokers), end. The only argument is the
 * name server's address.
 */
public final class Interchange {
    private static final PrintStream OUT =
        new PrintStream(new FileOutputStream(FileDescriptor.out), false, StandardCharsets.UTF_8);

    private static final long ROUTE_NANOS_MAX = 60_000_000_000L;
    private static final long AWAITED_MS = 5000;
    private static final long ROUTE_ASKED_EACH_MS = 100;

    private final String namesrv;
    private final Map<String, Collection<MessageQueue>> publishQueues = new HashMap<>();
    private int instances;
    private String compression = "";
    private DefaultMQProducer producer;
    private DefaultMQPullConsumer consumer;
    private String consumerGroup = "";
    private final List<TransactionMQProducer> answering = new ArrayList<>();

    private Interchange(String namesrv) {
        this.namesrv = namesrv;
    }

    public static void main(String[] arguments) throws Exception {
        // Loggers say where they write on stdout.
        System.setOut(System.err);
        Interchange interchange = new Interchange(arguments[0]);
        BufferedReader lines = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = lines.readLine(); line != null; line = lines.readLine()) {
            JSONObject request = JSON.parseObject(line);
            if (request.getString("do").equals("end")) {
                break;
            }
            try {
                interchange.answer(request);
            } catch (Exception error) {
                print(Map.of("error", String.valueOf(error)));
            }
            print(Map.of());
            OUT.flush();
        }
        interchange.reset();
        System.exit(0);
    }

    private void answer(JSONObject request) throws Exception {
        switch (request.getString("do")) {
            case "topic" -> makeTopic(request);
            case "type" -> type(request);
            case "send" -> send(request);
            case "recall" -> recall(request);
            case "read" -> read(request);
            case "commit" -> commit(request);
            case "offset" -> offset(request);
            case "query" -> query(request);
            case "half" -> half(request);
            case "consume" -> consume(request);
            case "pop" -> pop(request);
            case "search" -> search(request);
            case "delete" -> delete(request);
            case "reset" -> reset();
            default -> throw new IllegalArgumentException(request.getString("do"));
        }
    }

    private void makeTopic(JSONObject request) throws Exception {
        DefaultMQAdminExt admin = new DefaultMQAdminExt();
        admin.setNamesrvAddr(namesrv);
        admin.setInstanceName("admin-" + instances++);
        admin.start();
        int queues = request.getIntValue("queues");
        TopicConfig topic = new TopicConfig(request.getString("topic"), queues, queues);
        if (request.containsKey("type")) {
            topic.setAttributes(Map.of("+message.type", request.getString("type")));
        }
        admin.createAndUpdateTopicConfig(request.getString("broker"), topic);
        admin.shutdown();
    }

    /** The message type of a topic as RocketMQ sees it, and the attributes that say it. */
    private void type(JSONObject request) throws Exception {
        DefaultMQAdminExt admin = new DefaultMQAdminExt();
        admin.setNamesrvAddr(namesrv);
        admin.setInstanceName("admin-" + instances++);
        admin.start();
        TopicConfig topic = admin.examineTopicConfig(request.getString("broker"), request.getString("topic"));
        print(Map.of("type", topic.getTopicMessageType().name(), "attributes", topic.getAttributes()));
        admin.shutdown();
    }

    private void send(JSONObject request) throws Exception {
        producer(request.getString("compress"));
        String topic = request.getString("topic");
        List<Message> messages = new ArrayList<>();
        for (Object each : request.getJSONArray("messages")) {
            JSONObject fields = (JSONObject) each;
            Message message = new Message(topic, Base64.getDecoder().decode(fields.getString("body")));
            if (!fields.getString("tags").isEmpty()) {
                message.setTags(fields.getString("tags"));
            }
            if (!fields.getString("key").isEmpty()) {
                message.setKeys(fields.getString("key"));
            }
            if (fields.containsKey("delayLevel")) {
                message.setDelayTimeLevel(fields.getIntValue("delayLevel"));
            }
            if (fields.containsKey("delaySeconds")) {
                message.setDelayTimeSec(fields.getLongValue("delaySeconds"));
            }
            if (fields.containsKey("delayMs")) {
                message.setDelayTimeMs(fields.getLongValue("delayMs"));
            }
            if (fields.containsKey("deliverMs")) {
                message.setDeliverTimeMs(fields.getLongValue("deliverMs"));
            }
            fields.getJSONObject("properties").forEach((name, value) -> message.putUserProperty(name, (String) value));
            messages.add(message);
        }
        MessageQueue queue = queue(topic, request.getIntValue("queue"));
        SendResult result = messages.size() == 1 ? producer.send(messages.get(0), queue) : producer.send(messages, queue);
        String handle = result.getRecallHandle();
        print(Map.of(
            "status", result.getSendStatus().name(), "id", result.getMsgId(), "offset", result.getQueueOffset(),
            "handle", handle == null ? "" : handle));
    }

    /** Recalls a timed message by the handle of its receipt. */
    private void recall(JSONObject request) throws Exception {
        producer(null);
        print(Map.of("id", producer.recallMessage(request.getString("topic"), request.getString("handle"))));
    }

    /**
     * A message of a transaction whose outcome is: unknown, commit or rollback; keep its producer for checks until the
     * reset, or not. It answers them with its outcome, but bodies that begin with "unsettled" with unknown.
     */
    private void half(JSONObject request) throws Exception {
        String unsettled = request.getString("unsettled");
        TransactionMQProducer sender = new TransactionMQProducer(request.getString("group"));
        sender.setNamesrvAddr(namesrv);
        sender.setInstanceName("transactions-" + instances++);
        LocalTransactionState outcome = switch (request.getString("outcome")) {
            case "commit" -> LocalTransactionState.COMMIT_MESSAGE;
            case "rollback" -> LocalTransactionState.ROLLBACK_MESSAGE;
            default -> LocalTransactionState.UNKNOW;
        };
        sender.setTransactionListener(new TransactionListener() {
            @Override
            public LocalTransactionState executeLocalTransaction(Message message, Object argument) {
                return outcome;
            }

            @Override
            public LocalTransactionState checkLocalTransaction(MessageExt message) {
                String body = new String(message.getBody(), StandardCharsets.UTF_8);
                return unsettled != null && body.startsWith(unsettled) ? LocalTransactionState.UNKNOW : outcome;
            }
        });
        sender.start();
        Message message = new Message(request.getString("topic"), request.getString("body").getBytes(StandardCharsets.UTF_8));
        SendResult result = asked(() -> sender.sendMessageInTransaction(message, null));
        print(Map.of("status", result.getSendStatus().name()));
        if (request.getBooleanValue("keep")) {
            answering.add(sender);
        } else {
            sender.shutdown();
        }
    }

    /** The producer, a new one where another compression is asked for: null for none, else LZ4, ZSTD or ZLIB. */
    private void producer(String compress) throws MQClientException {
        String wanted = compress == null ? "" : compress;
        if (producer != null && compression.equals(wanted)) {
            return;
        }
        if (producer != null) {
            producer.shutdown();
        }
        compression = wanted;
        producer = new DefaultMQProducer("interchange-producer");
        producer.setNamesrvAddr(namesrv);
        producer.setInstanceName("producer-" + instances++);
        // Unless told otherwise, bodies from 4 KiB on would be compressed by ZLIB.
        producer.setCompressMsgBodyOverHowmuch(compress == null ? Integer.MAX_VALUE : 1);
        if (compress != null) {
            producer.setCompressType(CompressionType.of(compress));
        }
        producer.setRetryTimesWhenSendFailed(0);
        producer.start();
        publishQueues.clear();
    }

    private MessageQueue queue(String topic, int id) throws Exception {
        if (!publishQueues.containsKey(topic)) {
            publishQueues.put(topic, asked(() -> producer.fetchPublishMessageQueues(topic)));
        }
        return chosen(publishQueues.get(topic), id);
    }

    private DefaultMQPullConsumer consumer(String group) throws MQClientException {
        if (consumer == null || !consumerGroup.equals(group)) {
            if (consumer != null) {
                consumer.shutdown();
            }
            consumer = new DefaultMQPullConsumer(group);
            consumer.setNamesrvAddr(namesrv);
            consumer.setInstanceName("consumer-" + instances++);
            consumer.start();
            consumerGroup = group;
        }
        return consumer;
    }

    private void read(JSONObject request) throws Exception {
        DefaultMQPullConsumer reader = consumer("interchange-reader");
        for (MessageQueue queue : queuesOf(reader, request.getString("topic"))) {
            await(reader, queue, request.getJSONObject("ends"));
            long offset = reader.minOffset(queue);
            long end = reader.maxOffset(queue);
            print(Map.of("queue", queue.getQueueId(), "minimum", offset, "maximum", end));
            while (offset < end) {
                PullResult result = reader.pull(queue, "*", offset, 32);
                if (result.getMsgFoundList() != null) {
                    result.getMsgFoundList().forEach(Interchange::printMessage);
                } else {
                    print(Map.of("queue", queue.getQueueId(), "at", offset, "found", result.getPullStatus().name()));
                }
                if (result.getNextBeginOffset() <= offset) {
                    throw new IllegalStateException(queue + " does not go on at " + offset + ": " + result);
                }
                offset = result.getNextBeginOffset();
            }
        }
    }

    /** After its start a broker goes on reading its log into the queues: waits for the end that the queue will have. */
    private static void await(DefaultMQPullConsumer reader, MessageQueue queue, JSONObject ends) throws Exception {
        long deadline = System.nanoTime() + ROUTE_NANOS_MAX;
        long end = ends == null ? 0 : ends.getLongValue(String.valueOf(queue.getQueueId()));
        while (reader.maxOffset(queue) < end && System.nanoTime() < deadline) {
            Thread.sleep(ROUTE_ASKED_EACH_MS);
        }
    }

    private static void printMessage(MessageExt message) {
        Map<String, Object> line = new TreeMap<>();
        line.put("queue", message.getQueueId());
        line.put("offset", message.getQueueOffset());
        line.put("physical", message.getCommitLogOffset());
        line.put("size", message.getStoreSize());
        line.put("topic", message.getTopic());
        line.put("born", message.getBornTimestamp());
        line.put("bornHost", text((InetSocketAddress) message.getBornHost()));
        line.put("stored", message.getStoreTimestamp());
        line.put("storeHost", text((InetSocketAddress) message.getStoreHost()));
        line.put("reconsumed", message.getReconsumeTimes());
        line.put("replaces", message.getPreparedTransactionOffset());
        line.put("key", message.getKeys() == null ? "" : message.getKeys());
        line.put("tags", message.getTags() == null ? "" : message.getTags());
        line.put("id", message.getMsgId());
        Map<String, String> properties = new TreeMap<>(message.getProperties());
        // The client adds these two when it pulls.
        properties.remove("MIN_OFFSET");
        properties.remove("MAX_OFFSET");
        line.put("properties", properties);
        line.put("body", Base64.getEncoder().encodeToString(message.getBody() == null ? new byte[0] : message.getBody()));
        print(line);
    }

    private static String text(InetSocketAddress host) {
        return host.getAddress().getHostAddress() + " " + host.getPort();
    }

    private void commit(JSONObject request) throws Exception {
        DefaultMQPullConsumer committer = consumer(request.getString("group"));
        MessageQueue queue = subscribed(committer, request);
        // The broker refuses it until the consumer's first heartbeat has made the group known.
        asked(() -> {
            committer.getDefaultMQPullConsumerImpl().getOffsetStore()
                .updateConsumeOffsetToBroker(queue, request.getLongValue("offset"), false);
            return null;
        });
    }

    private void offset(JSONObject request) throws Exception {
        DefaultMQPullConsumer asker = consumer(request.getString("group"));
        long offset = asker.getDefaultMQPullConsumerImpl().getOffsetStore()
            .readOffset(subscribed(asker, request), ReadOffsetType.READ_FROM_STORE);
        print(Map.of("offset", offset));
    }

    private void query(JSONObject request) throws Exception {
        DefaultMQPullConsumer asker = consumer("interchange-reader");
        String topic = request.getString("topic");
        queuesOf(asker, topic);
        if (request.containsKey("id")) {
            printMessage(asker.viewMessage(topic, request.getString("id")));
            return;
        }
        int limit = request.getIntValue("limit");
        asker.queryMessage(topic, request.getString("key"), limit, 0, Long.MAX_VALUE).getMessageList()
            .forEach(Interchange::printMessage);
    }

    /** Consumes until so many were delivered; "fails" has, by body, the delay levels of its failures one by one. */
    private void consume(JSONObject request) throws Exception {
        LinkedBlockingQueue<MessageExt> delivered = new LinkedBlockingQueue<>();
        JSONObject fails = request.getJSONObject("fails");
        DefaultMQPushConsumer member = new DefaultMQPushConsumer(request.getString("group"));
        member.setNamesrvAddr(namesrv);
        member.setInstanceName("member-" + instances++);
        member.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        member.setAwaitTerminationMillisWhenShutdown(AWAITED_MS);
        member.subscribe(request.getString("topic"), request.getString("tags"));
        member.registerMessageListener((MessageListenerConcurrently) (messages, context) -> {
            delivered.addAll(messages);
            JSONArray levels = fails.getJSONArray(new String(messages.get(0).getBody(), StandardCharsets.UTF_8));
            if (levels == null || levels.isEmpty()) {
                return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
            }
            context.setDelayLevelWhenNextConsume(((Number) levels.remove(0)).intValue());
            return ConsumeConcurrentlyStatus.RECONSUME_LATER;
        });
        asked(() -> {
            member.start();
            return null;
        });
        for (int count = request.getIntValue("deliveries"); count > 0; count--) {
            MessageExt message = delivered.poll(ROUTE_NANOS_MAX, TimeUnit.NANOSECONDS);
            if (message == null) {
                throw new IllegalStateException(count + " deliveries did not come");
            }
            printMessage(message);
        }
        member.shutdown();
    }

    /** The offset of the first message of a queue that was stored at a moment or after it. */
    private void search(JSONObject request) throws Exception {
        DefaultMQPullConsumer asker = consumer("interchange-reader");
        print(Map.of("offset", asker.searchOffset(subscribed(asker, request), request.getLongValue("at"))));
    }

    private void delete(JSONObject request) throws Exception {
        DefaultMQAdminExt admin = new DefaultMQAdminExt();
        admin.setNamesrvAddr(namesrv);
        admin.setInstanceName("admin-" + instances++);
        admin.start();
        try {
            admin.deleteTopicInBroker(Set.of(request.getString("broker")), request.getString("topic"));
        } finally {
            admin.shutdown();
        }
    }

    /** Pops until so many came, each invisible to others for so long; acknowledges those whose bodies "acks" lists. */
    private void pop(JSONObject request) throws Exception {
        DefaultMQPullConsumer member = consumer(request.getString("group"));
        queuesOf(member, request.getString("topic"));
        MQClientAPIImpl client =
            member.getDefaultMQPullConsumerImpl().getRebalanceImpl().getmQClientFactory().getMQClientAPIImpl();
        JSONArray acks = request.getJSONArray("acks");
        long deadline = System.nanoTime() + ROUTE_NANOS_MAX;
        for (int count = request.getIntValue("count"); count > 0 && System.nanoTime() < deadline;) {
            PopMessageRequestHeader header = new PopMessageRequestHeader();
            header.setConsumerGroup(request.getString("group"));
            header.setTopic(request.getString("topic"));
            header.setQueueId(-1);
            header.setMaxMsgNums(Math.min(32, count));
            header.setInvisibleTime(request.getLongValue("invisible"));
            header.setPollTime(0);
            header.setBornTime(System.currentTimeMillis());
            header.setInitMode(ConsumeInitMode.MIN);
            header.setExpType("TAG");
            header.setExp("*");
            header.setOrder(false);
            CompletableFuture<PopResult> answer = new CompletableFuture<>();
            client.popMessageAsync("", request.getString("broker"), header, 10_000, new PopCallback() {
                @Override
                public void onSuccess(PopResult result) {
                    answer.complete(result);
                }

                @Override
                public void onException(Throwable error) {
                    answer.completeExceptionally(error);
                }
            });
            List<MessageExt> found = answer.get(10, TimeUnit.SECONDS).getMsgFoundList();
            for (MessageExt message : found == null ? List.<MessageExt>of() : found) {
                count--;
                printMessage(message);
                if (acks != null && acks.contains(new String(message.getBody(), StandardCharsets.UTF_8))) {
                    ackPopped(client, request, message);
                }
            }
            if (found == null || found.isEmpty()) {
                Thread.sleep(ROUTE_ASKED_EACH_MS);
            }
        }
    }

    private static void ackPopped(MQClientAPIImpl client, JSONObject request, MessageExt message) throws Exception {
        AckMessageRequestHeader header = new AckMessageRequestHeader();
        header.setConsumerGroup(request.getString("group"));
        header.setTopic(message.getTopic());
        header.setQueueId(message.getQueueId());
        header.setOffset(message.getQueueOffset());
        header.setExtraInfo(message.getProperty("POP_CK"));
        CompletableFuture<AckResult> answer = new CompletableFuture<>();
        client.ackMessageAsync(request.getString("broker"), 10_000, new AckCallback() {
            @Override
            public void onSuccess(AckResult result) {
                answer.complete(result);
            }

            @Override
            public void onException(Throwable error) {
                answer.completeExceptionally(error);
            }
        }, header);
        answer.get(10, TimeUnit.SECONDS);
    }

    private static Collection<MessageQueue> queuesOf(DefaultMQPullConsumer consumer, String topic) throws Exception {
        return new TreeSet<>(asked(() -> {
            Collection<MessageQueue> found = consumer.fetchSubscribeMessageQueues(topic);
            if (found.isEmpty()) {
                // The name server knows the topic from an earlier broker.
                throw new MQClientException("no broker has " + topic + " yet", null);
            }
            return found;
        }));
    }

    /** A broker says that it is up before the name server knows its topics: asks until the answer is no error. */
    private static <T> T asked(Callable<T> question) throws Exception {
        long deadline = System.nanoTime() + ROUTE_NANOS_MAX;
        while (true) {
            try {
                return question.call();
            } catch (MQClientException | MQBrokerException error) {
                if (System.nanoTime() > deadline) {
                    throw error;
                }
                Thread.sleep(ROUTE_ASKED_EACH_MS);
            }
        }
    }

    private static MessageQueue chosen(Collection<MessageQueue> queues, int id) {
        for (MessageQueue queue : queues) {
            if (queue.getQueueId() == id) {
                return queue;
            }
        }
        throw new IllegalArgumentException("no queue " + id + " in " + queues);
    }

    private static MessageQueue subscribed(DefaultMQPullConsumer consumer, JSONObject request) throws Exception {
        return chosen(queuesOf(consumer, request.getString("topic")), request.getIntValue("queue"));
    }

    private static void print(Map<String, ?> line) {
        OUT.print(JSON.toJSONString(line));
        OUT.print('\n');
    }

    private void reset() {
        if (producer != null) {
            producer.shutdown();
            producer = null;
        }
        if (consumer != null) {
            consumer.shutdown();
            consumer = null;
        }
        answering.forEach(TransactionMQProducer::shutdown);
        answering.clear();
        publishQueues.clear();
    }
}
