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
  /* Not to be delivered before this wall-clock time, milliseconds since the Unix epoch. */
  102: optional i64 deliverAtMs,
  /* Not to be delivered before this many milliseconds have passed since it arrived. */
  103: optional i64 delayMs,
}

/* Where a message was stored. */
struct Receipt {
  1: string msgId,
  2: string qid,
  3: i64 offset,
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
  /* Names a delayed message for a later change of mind. */
  104: optional string handle,
  /* One per message of a batch, in its order, when they were asked for. */
  105: optional list<Receipt> receipts,
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
}

struct DelayResult {
  1: i32 code,
  2: string msg,
  3: string uniqDelayMsgId,
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
  /* All are stored or none is. `receipts` asks for Result.receipts. */
  Result sendBatchSync(1: list<Message> messages, 101: bool receipts),
  Result sendAsync(1: Message message),
  /* `timeout` in milliseconds. */
  DelayResult sendDelaySync(1: DelayMessage delayMessage, 2: i64 timeout),
}
