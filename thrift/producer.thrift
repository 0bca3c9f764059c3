/*
 * What producers say to the producer port (default 9613): framed transport, TCompactProtocol or TBinaryProtocol.
 *
 * Method names, field numbers, types and requiredness are DDMQ's, so that its clients work unchanged. A field without
 * a word before its type has Thrift's default requiredness. Fields from 101 on are additions of pyddmq; peers that do
 * not know them skip them. docs/protocol.md explains each rule.
 */

/* Names of message properties with a meaning of their own. */
const string PRESSURE_TRAFFIC_KEY = "isPressureTraffic"
const string PRESSURE_TRAFFIC_ENABLE = "true"
const string PRESSURE_TRAFFIC_DISABLE = "false"
const string TRACE_ID = "traceId"
const string SPAN_ID = "spanId"
const string CARRERA_HEADERS = "carrera_headers"

/* What a uniqKey that was sent before is answered with; absent of one that is new. */
const i32 REPEAT_FIRST_RECEIPT = 1
const i32 REPEAT_OLDER = 2
const i32 REPEAT_GAP = 3

/* A message to be stored. */
struct Message {
  1: string topic,
  2: string key,
  /* Text body of old clients; counts only when there is no `body`. */
  3: string value,
  /* Chooses the queue when it is not 0 and partitionId is -1. */
  4: i64 hashId = 0,
  /* Several tags are joined by two vertical bars. */
  5: string tags,
  /* From 0 on: this queue; -1: by hashId, else by key, else in turn; below: at random. */
  6: i32 partitionId = -1,
  7: optional binary body,
  /* The client library and its version, for people. */
  8: optional string version,
  9: optional map<string, string> properties,
  /* A RocketMQ delay level, 1 and up. */
  101: optional i32 delayLevel,
  /* Not to be delivered before this wall-clock time, milliseconds since the Unix epoch; 0 and the past: at once. */
  102: optional i64 deliverAtMs,
  /* Not to be delivered before this many milliseconds have passed since it arrived; 0: at once. */
  103: optional i64 delayMs,
  /* The message's id, made by its producer, so that it may be sent again: docs/deduplication.md. */
  104: optional string uniqKey,
}

/* Where a message was stored. */
struct Receipt {
  1: string msgId,
  2: string qid,
  3: i64 offset,
  /* Names a timer for a later change of mind. */
  4: optional string handle,
}

struct Result {
  /* 0: stored. The others are listed in docs/protocol.md. */
  1: i32 code,
  2: string msg,
  /* Filled in by client libraries. */
  3: optional string key,
  /* Of a single message that was stored: its id, queue and offset. */
  101: optional string msgId,
  102: optional string qid,
  103: optional i64 offset,
  /* Names a timer for a later change of mind. */
  104: optional string handle,
  /* One per message of a batch, in its order, when they were asked for. */
  105: optional list<Receipt> receipts,
  /* Of a message with a uniqKey: see REPEAT_FIRST_RECEIPT. */
  106: optional i32 repeat,
  /* Of a client that is above a rate, or at a limit: when to send again, milliseconds from now. */
  107: optional i32 retryAfterMs,
}

/* One partition of a batch that several tasks send, before its first row, or the end: docs/deduplication.md#writes. */
struct Write {
  /* Of the write and of the producer that numbers the rows: 20 digits each, as a uniqKey begins. */
  1: string name,
  2: string producer,
  /* Later batches of a write have higher numbers. */
  3: i64 batch,
  /* 32 hex digits, others for each run of the batch. */
  4: string run,
  /* From 0 on; at the end, how many partitions have rows. */
  5: i32 partition,
  6: i64 rows,
  /* 32 hex digits. */
  7: string digest,
  8: bool ends,
  /* A topic of the rows: who may send to it may declare. */
  9: string topic,
}

/* A message for later, or the withdrawal of one. */
struct DelayMessage {
  1: string topic,
  /* Names the message to be withdrawn. */
  2: optional string uniqDelayMsgId,
  3: optional binary body,
  4: string tags,
  /* 1 add, 2 cancel. */
  5: i32 action,
  /* When, in seconds since the Unix epoch. */
  6: optional i64 timestamp,
  /* 2 once, 3 loop, 4 loop with growing gaps. */
  7: optional i32 dmsgtype,
  /* Seconds between deliveries (3), or the base of the growth (4). */
  8: optional i64 interval,
  /* No delivery after this, in seconds since the Unix epoch. */
  9: optional i64 expire,
  /* Number of deliveries of a loop. */
  10: optional i64 times,
  11: optional string uuid,
  13: optional string version,
  14: optional map<string, string> properties,
  /* As Message.uniqKey; of an add. */
  102: optional string uniqKey,
}

/* What became of a cancel, in DelayResult.cancelOutcome. */
const i32 CANCEL_DONE = 1
const i32 CANCEL_TOO_LATE = 2
const i32 CANCEL_UNKNOWN = 3

struct DelayResult {
  1: i32 code,
  2: string msg,
  3: string uniqDelayMsgId,
  /* Of a cancel that was answered with code 0: whether it ended something. */
  101: optional i32 cancelOutcome,
  /* As Result.repeat. */
  106: optional i32 repeat,
  /* As Result.retryAfterMs. */
  107: optional i32 retryAfterMs,
}

/* When and how often; used by client libraries, never sent. */
struct DelayMeta {
  1: i64 timestamp,
  2: optional i32 dmsgtype,
  3: optional i64 interval,
  4: optional i64 expire,
  5: optional i64 times,
  7: optional map<string, string> properties,
}

/* An HTTP call to be made; no method takes it. */
struct RestMessage {
  1: byte type = 1,
  2: byte mode = 1,
  3: string url,
  4: map<string, string> params,
  5: map<string, string> headers,
  6: i64 timestamp,
  7: i64 expire,
  8: i64 timeout,
  9: i32 retryCnt = 3,
}

service ProducerService {
  /* `timeout` in milliseconds. */
  Result sendSync(1: Message message, 2: i64 timeout),
  /* All are stored or none is. `receipts` asks for Result.receipts. `declaration` counts without messages alone. */
  Result sendBatchSync(1: list<Message> messages, 101: bool receipts, 102: Write declaration),
  Result sendAsync(1: Message message),
  /* `timeout` in milliseconds. */
  DelayResult sendDelaySync(1: DelayMessage delayMessage, 2: i64 timeout),
}

/* The answer to a half message. */
struct HalfResult {
  /* 0: stored. The others are those of Result, listed in docs/protocol.md. */
  1: i32 code,
  2: string msg,
  /* The message's key, as it was sent. */
  3: optional string key,
  /* The id that the message has before and after it is committed. */
  4: optional string transactionId,
  /* Names the half in endTransaction. */
  5: optional string handle,
  /* Its place among the halves. */
  101: optional i64 offset,
  /* As Result.repeat. */
  106: optional i32 repeat,
  /* As Result.retryAfterMs. */
  107: optional i32 retryAfterMs,
}

/* What became of a transaction. */
struct EndTransaction {
  /* The group that the half was sent with. */
  1: string producerGroup,
  2: string handle,
  /* 0 not known yet, 8 commit, 12 rollback. */
  3: i32 state,
  /* Whether it answers a check. */
  4: bool fromCheck,
  /* For people: why. */
  5: optional string remark,
}

struct CheckRequest {
  1: string producerGroup,
  /* Absent or not positive: the node's own bound; otherwise the smaller of both. */
  10: optional i32 maxBatchSize,
  /* Milliseconds to wait for a check. */
  11: optional i32 maxLingerTime,
  /* Answers to earlier checks; they take effect before anything else is done. */
  20: optional list<EndTransaction> answers,
}

/* The question what became of a transaction. */
struct TransactionCheck {
  1: string handle,
  2: string transactionId,
  /* Which check of this half it is, from 1 on. */
  3: i32 checkTimes,
  /* The whole message, with the topic and, as partitionId, the queue that it is meant for. */
  4: Message message,
  /* When the half arrived, milliseconds since the Unix epoch. */
  5: i64 bornTimestamp,
}

service TransactionProducerService extends ProducerService {
  /* Stores a message that nobody sees until its transaction is committed. `timeout` in milliseconds. */
  HalfResult sendHalfSync(1: Message message, 2: string producerGroup, 3: i64 timeout),
  /* Answered when the decision is durable; the same decision may be told again. */
  Result endTransaction(1: EndTransaction decision),
  /* Halves of a producer group that ask for a decision; empty when there is none in time. */
  list<TransactionCheck> fetchChecks(1: CheckRequest request),
}

/* Who a connection is, once it has proved it. */
struct Principal {
  1: string name,
  /* From when on it has to prove it anew, milliseconds since the epoch; absent: never. */
  2: optional i64 expiresMs,
}

exception AccessDenied {
  /* A code of PullException. */
  1: i32 code,
  2: string message,
}

/* The same on both ports (docs/security.md). */
service AuthenticatedProducerService extends TransactionProducerService {
  /* The first call of a connection, over TLS or the loopback. After AccessDenied the connection is closed. */
  Principal authenticate(1: string token) throws (1: AccessDenied error),
}
