/*
 * What pull clients say to the consumer port (default 9713): framed transport, TCompactProtocol or TBinaryProtocol.
 *
 * Method names, field numbers, types and requiredness are DDMQ's, so that its clients work unchanged. A field without
 * a word before its type has Thrift's default requiredness. docs/protocol.md explains each rule.
 */

/* Names of message properties with a meaning of their own. */
const string PRESSURE_TRAFFIC_KEY = "isPressureTraffic"
const string PRESSURE_TRAFFIC_ENABLE = "true"
const string PRESSURE_TRAFFIC_DISABLE = "false"
const string TRACE_ID = "traceId"
const string SPAN_ID = "spanId"
const string CARRERA_HEADERS = "carrera_headers"

/* A delivered message. */
struct Message {
  /* The key it was sent with; absent when it had none. */
  1: string key,
  /* The body, byte for byte as it was sent, whatever the group's actions made of it. */
  2: binary value,
  /* The tags it was sent with; absent when it had none. */
  3: string tag,
  /* Position in its queue; with topic and qid it names the message in a ConsumeResult. */
  4: i64 offset,
  /* The sender's own properties; absent when there are none. */
  5: optional map<string, string> properties,
  /* Milliseconds since the epoch: when it was stored. In replies to fetches with FetchRequest.onlyNamed alone. */
  101: optional i64 storeTimestamp,
  /* Likewise: when its producer says that it was made. */
  102: optional i64 bornTimestamp,
  /*
   * Tells this delivery of the message from others; absent where it cannot have been delivered before. A client that
   * hands it back in ConsumeResult.deliveries is never misunderstood; one that ignores it loses nothing.
   */
  103: optional i64 delivery,
}

/* Where the messages of one reply come from. All three fields are absent in an empty reply. */
struct Context {
  1: string groupId,
  2: string topic,
  /* The queue, as an opaque text that a client hands back unchanged. */
  3: string qid,
}

/* What became of delivered messages of one (topic, qid). */
struct ConsumeResult {
  /* The context the messages came with. */
  1: Context context,
  /* Done with. */
  3: list<i64> successOffsets,
  /* Failed: delivered again after the next of the group's retry intervals. */
  4: list<i64> failOffsets,
  /* Results for a further (topic, qid). */
  10: optional ConsumeResult nextResult,
  /*
   * offset -> Message.delivery of what is answered, for those that had one; an empty map when none had. Present: an
   * offset that is not in here is of a delivery without a number. Absent: the client knows no numbers.
   */
  101: optional map<i64, i64> deliveries,
  /* offset -> why it failed, in a few words for people, for some or all of failOffsets. */
  102: optional map<i64, string> reasons,
}

struct PullRequest {
  1: required string groupId,
  /* Absent: any topic of the group. */
  2: optional string topic,
  /* Absent or not positive: the topic's own bound; otherwise the smaller of both. */
  10: optional i32 maxBatchSize,
  /* Milliseconds to wait for a message. */
  11: optional i32 maxLingerTime,
  /* Results of earlier deliveries; they take effect before anything is taken for this pull. */
  50: optional ConsumeResult result,
  /* The client library and its version, for people. */
  60: optional string version,
}

struct PullResponse {
  /* Of every message in the reply. */
  1: Context context,
  /* Empty when nothing came in time. */
  2: list<Message> messages,
}

exception PullException {
  1: i32 code,
  2: string message,
  /* Of a client that is above a limit: when to come again, milliseconds from now. */
  101: optional i32 retryAfterMs,
}

struct ConsumeStatsRequest {
  1: required string group,
  /* Absent: every topic of the group. */
  2: optional string topic,
  3: optional string version,
}

struct ConsumeStats {
  1: string group,
  2: string topic,
  /* qid -> committed offset: every message below it is finished. */
  3: map<string, i64> consumeOffsets,
  /* qid -> offset that the next message will get. */
  4: map<string, i64> produceOffsets,
  /* qid -> offset of the first message that is kept: what was below it is gone. */
  101: optional map<string, i64> startOffsets,
}

/* Low level: a client that keeps its own offsets (docs/low-level.md). */
struct FetchRequest {
  1: required string consumerId,
  2: required string groupId,
  3: required string cluster,
  /* topic -> qid -> the next offset wanted. */
  4: optional map<string, map<string, i64>> fetchOffset,
  10: optional i32 maxBatchSize,
  /* Milliseconds. */
  11: optional i32 maxLingerTime,
  60: optional string version,
  /*
   * True: exactly the queues of fetchOffset, whoever owns them; the caller becomes no fetcher and owns nothing, so that
   * many connections may read ranges side by side. Present, also when false: messages come with their times.
   */
  101: optional bool onlyNamed,
}

struct QidResponse {
  1: required string topic,
  2: required string qid,
  /* What to send as fetchOffset next time. */
  3: optional i64 nextRequestOffset,
  10: required list<Message> messages,
}

struct FetchResponse {
  /* Why nothing is served, a code of PullException; absent when the call is served. */
  1: optional i32 code,
  10: required list<QidResponse> results,
}

struct AckResult {
  1: required string consumerId,
  2: required string groupId,
  3: required string cluster,
  /* topic -> qid -> the next offset to consume: the last one processed, plus one. */
  4: required map<string, map<string, i64>> offsets,
}

service ConsumerService {
  PullResponse pull(1: PullRequest request) throws (1: PullException error),
  bool submit(1: ConsumeResult result) throws (1: PullException error),
  list<ConsumeStats> getConsumeStats(1: ConsumeStatsRequest request) throws (1: PullException error),
  FetchResponse fetch(1: FetchRequest request),
  bool ack(1: AckResult result),
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
service AuthenticatedConsumerService extends ConsumerService {
  /* The first call of a connection, over TLS or the loopback. After AccessDenied the connection is closed. */
  Principal authenticate(1: string token) throws (1: AccessDenied error),
}
