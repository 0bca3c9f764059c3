import com.alibaba.fastjson2.JSON;
import com.alibaba.fastjson2.JSONObject;
import java.io.BufferedReader;
import java.io.FileDescriptor;
import java.io.FileOutputStream;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.time.Instant;
import java.util.Arrays;
import java.util.Collection;
import java.util.Map;
import java.util.concurrent.Callable;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.LinkedBlockingQueue;
import java.util.concurrent.Semaphore;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.concurrent.atomic.AtomicReference;
import java.util.concurrent.locks.LockSupport;
import java.util.function.LongSupplier;
import java.util.stream.LongStream;
import org.apache.rocketmq.client.consumer.DefaultMQPullConsumer;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.client.exception.MQBrokerException;
import org.apache.rocketmq.client.exception.MQClientException;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.SendCallback;
import org.apache.rocketmq.client.producer.SendResult;
import org.apache.rocketmq.client.producer.SendStatus;
import org.apache.rocketmq.common.TopicConfig;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageQueue;
import org.apache.rocketmq.remoting.exception.RemotingException;
import org.apache.rocketmq.remoting.protocol.ResponseCode;
import org.apache.rocketmq.tools.admin.DefaultMQAdminExt;

/**
 * The load of bench/timers.py by RocketMQ's own clients, worked by JSON lines on stdin; every answer is one or more JSON
 * lines and then "{}". Topics have one queue; bodies begin with two 64-bit values, a time and the message's number.
 *
 * <p>Requests have a "do": topic, timers (publish timers), publish (on an open schedule), pull (until so many came), await
 * (until a topic holds so many), told (what the broker says about itself), end. The only argument is the name server's address.
 */
public final class Load {
    private static final PrintStream OUT =
        new PrintStream(new FileOutputStream(FileDescriptor.out), false, StandardCharsets.UTF_8);

    private static final int BODY_BYTES = 1024;
    private static final int KEYS = 1000;
    private static final int BATCH = 32;
    private static final long SEND_MS_MAX = 30_000;
    private static final long QUIET_SECONDS_MAX = 120;
    private static final long ROUTE_NANOS_MAX = 60_000_000_000L;
    private static final long ASKED_EACH_MS = 20;

    private final String namesrv;
    private final String name = "load-" + ProcessHandle.current().pid() + "-";
    private int instances;
    private DefaultMQProducer producer;
    private DefaultMQPullConsumer asker;
    private DefaultMQAdminExt admin;

    private Load(String namesrv) {
        this.namesrv = namesrv;
    }

    public static void main(String[] arguments) throws Exception {
        // Loggers say where they write on stdout.
        System.setOut(System.err);
        Load load = new Load(arguments[0]);
        BufferedReader lines = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = lines.readLine(); line != null; line = lines.readLine()) {
            JSONObject request = JSON.parseObject(line);
            if (request.getString("do").equals("end")) {
                break;
            }
            try {
                print(load.answer(request));
            } catch (Exception error) {
                print(Map.of("error", String.valueOf(error)));
            }
            print(Map.of());
            OUT.flush();
        }
        System.exit(0);
    }

    private Map<String, ?> answer(JSONObject request) throws Exception {
        return switch (request.getString("do")) {
            case "topic" -> topic(request);
            case "timers" -> timers(request);
            case "publish" -> publish(request);
            case "pull" -> pull(request);
            case "await" -> await(request);
            case "told" -> told(request);
            default -> throw new IllegalArgumentException(request.getString("do"));
        };
    }

    private Map<String, ?> topic(JSONObject request) throws Exception {
        TopicConfig topic = new TopicConfig(request.getString("topic"), 1, 1);
        asked(() -> {
            admin().createAndUpdateTopicConfig(request.getString("broker"), topic);
            return null;
        });
        return Map.of("made", topic.getTopicName());
    }

    private Map<String, ?> told(JSONObject request) throws Exception {
        // A broker that just started has no statistics yet, and refuses.
        return Map.of("table", asked(() -> admin().fetchBrokerRuntimeStats(request.getString("broker")).getTable()));
    }

    private DefaultMQAdminExt admin() throws MQClientException {
        if (admin == null) {
            admin = new DefaultMQAdminExt();
            admin.setNamesrvAddr(namesrv);
            admin.setInstanceName(name + instances++);
            admin.start();
        }
        return admin;
    }

    /**
     * Publishes "count" timers, the first due at "begin" (ms since the epoch), each "spacing" ms after the one before, with
     * "outstanding" unanswered at a time; one that a busy broker refuses is sent again. Answers with the seconds it took.
     */
    private Map<String, ?> timers(JSONObject request) throws Exception {
        MessageQueue queue = queue(request.getString("topic"));
        int count = request.getIntValue("count");
        long begin = request.getLongValue("begin");
        double spacing = request.getDoubleValue("spacing");
        int outstanding = request.getIntValue("outstanding");
        Semaphore free = new Semaphore(outstanding);
        AtomicInteger again = new AtomicInteger();
        AtomicReference<Throwable> failure = new AtomicReference<>();
        long begun = System.nanoTime();
        for (int number = 0; number < count && failure.get() == null; number++) {
            long due = begin + (long) (number * spacing);
            Message message = message(request.getString("topic"), due * 1_000_000, number);
            message.setDeliverTimeMs(due);
            free.acquire();
            send(message, queue, free::release, again, failure);
        }
        free.acquire(outstanding);
        if (failure.get() != null) {
            throw new IllegalStateException(failure.get());
        }
        return Map.of("seconds", (System.nanoTime() - begun) / 1e9, "again", again.get());
    }

    /** Sends until the broker takes it; what it refuses since it is busy is sent again. Calls "done" at the end. */
    private void send(
        Message message, MessageQueue queue, Runnable done, AtomicInteger again, AtomicReference<Throwable> failure) {
        try {
            producer.send(message, queue, new SendCallback() {
                @Override
                public void onSuccess(SendResult result) {
                    if (result.getSendStatus() != SendStatus.SEND_OK) {
                        failure.set(new IllegalStateException(result.getSendStatus().name()));
                    }
                    done.run();
                }

                @Override
                public void onException(Throwable error) {
                    if (error instanceof MQBrokerException refusal && refusal.getResponseCode() == ResponseCode.SYSTEM_BUSY) {
                        again.incrementAndGet();
                        send(message, queue, done, again, failure);
                        return;
                    }
                    failure.set(error);
                    done.run();
                }
            }, SEND_MS_MAX);
        } catch (Exception error) {
            failure.set(error);
            done.run();
        }
    }

    /**
     * Publishes "count" messages, "rate" a second, whether or not earlier ones are answered; the first is due "lead" ns from
     * now. Bodies begin with when each is due, by the monotonic clock; answers with the ns from then to each receipt.
     */
    private Map<String, ?> publish(JSONObject request) throws Exception {
        String topic = request.getString("topic");
        MessageQueue queue = queue(topic);
        int count = request.getIntValue("count");
        long rate = request.getLongValue("rate");
        long begin = System.nanoTime() + request.getLongValue("lead");
        long[] taken = new long[count];
        CountDownLatch left = new CountDownLatch(count);
        AtomicInteger again = new AtomicInteger();
        AtomicReference<Throwable> failure = new AtomicReference<>();
        for (int number = 0; number < count; number++) {
            int place = number;
            long due = begin + number * 1_000_000_000L / rate;
            for (long wait = due - System.nanoTime(); wait > 0; wait = due - System.nanoTime()) {
                LockSupport.parkNanos(wait);
            }
            send(message(topic, due, number), queue, () -> {
                taken[place] = System.nanoTime() - due;
                left.countDown();
            }, again, failure);
        }
        left.await();
        if (failure.get() != null) {
            throw new IllegalStateException(failure.get());
        }
        return Map.of("taken", taken);
    }

    /**
     * Consumes until "count" messages came, as a member of "group" that long-polls. Says "ready" when it does, and answers with
     * the time in each body and the one at which the listener had it, both in ns of the "clock" (wall or monotonic), in turn. What
     * has an earlier time than the request's is left out: the first message, and the end of an earlier request's again.
     */
    private Map<String, ?> pull(JSONObject request) throws Exception {
        LongSupplier clock = request.getString("clock").equals("wall") ? Load::wallNanos : System::nanoTime;
        long asked = clock.getAsLong();
        MessageQueue queue = queue(request.getString("topic"));
        CountDownLatch flowing = new CountDownLatch(1);
        LinkedBlockingQueue<long[]> delivered = new LinkedBlockingQueue<>();
        DefaultMQPushConsumer member = new DefaultMQPushConsumer(request.getString("group"));
        member.setNamesrvAddr(namesrv);
        member.setInstanceName(name + instances++);
        member.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        member.setPullBatchSize(BATCH);
        member.setConsumeMessageBatchMaxSize(BATCH);
        member.setConsumeThreadMin(1);
        member.setConsumeThreadMax(1);
        member.subscribe(request.getString("topic"), "*");
        member.registerMessageListener((MessageListenerConcurrently) (messages, context) -> {
            long at = clock.getAsLong();
            flowing.countDown();
            delivered.add(messages.stream()
                .mapToLong(message -> ByteBuffer.wrap(message.getBody()).getLong())
                .filter(stamp -> stamp >= asked)
                .flatMap(stamp -> LongStream.of(stamp, at))
                .toArray());
            return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
        });
        member.start();
        // At times the first rebalance leads to nothing, and the next is 20 s later: it is ready when something comes.
        producer.send(message(request.getString("topic"), 0, 0), queue, SEND_MS_MAX);
        if (!flowing.await(QUIET_SECONDS_MAX, TimeUnit.SECONDS)) {
            throw new IllegalStateException("nothing comes to group " + request.getString("group"));
        }
        print(Map.of("ready", true));
        OUT.flush();
        long[] pairs = new long[2 * request.getIntValue("count")];
        int filled = 0;
        while (filled < pairs.length) {
            long[] found = delivered.poll(QUIET_SECONDS_MAX, TimeUnit.SECONDS);
            if (found == null || filled + found.length > pairs.length) {
                throw new IllegalStateException(filled / 2 + " of " + pairs.length / 2 + " messages came, or too many");
            }
            System.arraycopy(found, 0, pairs, filled, found.length);
            filled += found.length;
        }
        member.shutdown();
        return Map.of("pairs", pairs);
    }

    /** Asks until the topic holds "count" messages; answers with when it did, in ns of the monotonic clock. */
    private Map<String, ?> await(JSONObject request) throws Exception {
        if (asker == null) {
            asker = new DefaultMQPullConsumer("load-asker");
            asker.setNamesrvAddr(namesrv);
            asker.setInstanceName(name + instances++);
            asker.start();
        }
        MessageQueue queue = only(asked(() -> known(asker.fetchSubscribeMessageQueues(request.getString("topic")))));
        while (asker.maxOffset(queue) < request.getLongValue("count")) {
            Thread.sleep(ASKED_EACH_MS);
        }
        return Map.of("at", System.nanoTime());
    }

    private MessageQueue queue(String topic) throws Exception {
        if (producer == null) {
            producer = new DefaultMQProducer("load-producer");
            producer.setNamesrvAddr(namesrv);
            producer.setInstanceName(name + instances++);
            producer.setRetryTimesWhenSendAsyncFailed(0);
            producer.start();
        }
        return only(asked(() -> known(producer.fetchPublishMessageQueues(topic))));
    }

    private static MessageQueue only(Collection<MessageQueue> queues) {
        return queues.iterator().next();
    }

    private static Collection<MessageQueue> known(Collection<MessageQueue> queues) throws MQClientException {
        if (queues.isEmpty()) {
            throw new MQClientException("the name server does not know the topic yet", null);
        }
        return queues;
    }

    /** What a broker or the name server does not know yet, or is too busy for: asks until the answer is no error. */
    private static <T> T asked(Callable<T> question) throws Exception {
        long deadline = System.nanoTime() + ROUTE_NANOS_MAX;
        while (true) {
            try {
                return question.call();
            } catch (MQClientException | MQBrokerException | RemotingException error) {
                if (System.nanoTime() > deadline) {
                    throw error;
                }
                Thread.sleep(ASKED_EACH_MS);
            }
        }
    }

    private static Message message(String topic, long stamp, int number) {
        byte[] body = new byte[BODY_BYTES];
        Arrays.fill(body, (byte) 'x');
        ByteBuffer.wrap(body).putLong(stamp).putLong(number);
        Message message = new Message(topic, body);
        message.setKeys(String.format("key-%08d", number % KEYS));
        return message;
    }

    private static long wallNanos() {
        Instant now = Instant.now();
        return now.getEpochSecond() * 1_000_000_000L + now.getNano();
    }

    private static void print(Map<String, ?> line) {
        OUT.print(JSON.toJSONString(line));
        OUT.print('\n');
    }
}
