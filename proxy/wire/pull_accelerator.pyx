# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True
"""Pull in C: compact calls are scanned as `scan_pull.pull` does, and replies made as `pull_reply` does in both protocols.

What is unusual or wrong is given to the general way as a whole, which decides and says what is wrong; so nothing here
refuses. Usual are calls of known fields in ascending order, and replies whose messages all have property blocks in
this broker's own layout: ASCII, KEYS and TAGS first, then the user's properties, last UNIQ_KEY and what the broker
adds. Each position is compared with the end of its frame, view or block before anything is read there.
"""

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from cpython.object cimport PyObject
from libc.string cimport memchr, memcmp, memcpy

from broker.runtime.accelerator_parts cimport (
    ACCELERATOR_SOURCE, Cursor, Held, hold, let_go, put32, put64, put_bytes, take_size, take_varint, u8, u32, u64, zigzag,
)

from broker.format.properties import SYSTEM_PROPERTIES
from proxy.wire.limits import OFFSETS_MAX, REASON_BYTES_MAX, RESULTS_MAX
from proxy.wire.values import ConsumeResult, PullRequest

cdef extern from "Python.h":
    int _PyBytes_Resize(PyObject**, Py_ssize_t) except -1
    PyObject* PyBytes_New "PyBytes_FromStringAndSize"(const char*, Py_ssize_t) except NULL
    void Py_DECREF(PyObject*)
    object PyUnicode_DecodeUTF8(const char*, Py_ssize_t, const char*)

SOURCE = ACCELERATOR_SOURCE.decode()

cdef enum:
    PAIRS_MAX = 64
    HEAD_BYTES_MAX = 96

cdef frozenset _system_names = SYSTEM_PROPERTIES


cdef Py_ssize_t _offsets_max = OFFSETS_MAX
cdef Py_ssize_t _results_max = RESULTS_MAX
cdef Py_ssize_t _reason_bytes_max = REASON_BYTES_MAX
cdef object _new = tuple.__new__
cdef object _request_class = PullRequest
cdef object _result_class = ConsumeResult

cdef enum:
    STOP = 0
    I32 = 5
    I64 = 6
    BINARY = 8
    LIST = 9
    MAP = 11
    STRUCT = 12


cdef inline int _field(Cursor* at, int* last) noexcept:
    """Read the header of a field whose id is above `last`; its type, or -1 for any other."""
    cdef u8 head
    cdef u64 value
    cdef int field
    if at.pos >= at.end:
        return -1
    head = at.data[at.pos]
    at.pos += 1
    if head == STOP:
        return STOP
    if head > 15:
        last[0] += head >> 4
    else:
        if not take_varint(at, 32, &value) or value & 1 or value >> 1 <= <u64>last[0] or value > 0xFFFE:
            return -1
        last[0] = <int>(value >> 1)
    return head & 15 or -1


cdef object _signed(Cursor* at, int bits):
    """Read a signed number; None when it is wrong."""
    cdef u64 found
    if not take_varint(at, bits, &found):
        return None
    return zigzag(found)


cdef object _str(Cursor* at):
    """Read a text; None when it is wrong."""
    cdef Py_ssize_t size
    if not take_size(at, &size) or size > 1024:  # Longer than any name: the general way cuts it.
        return None
    try:
        text = PyUnicode_DecodeUTF8(<const char*>at.data + at.pos, size, NULL)
    except UnicodeDecodeError:
        return None
    at.pos += size
    return text


cdef list _offsets(Cursor* at, Py_ssize_t* left):
    """Read a list of offsets, at most `left` of them; None when it is wrong."""
    cdef u64 count
    cdef u8 head
    cdef Py_ssize_t index
    if at.pos >= at.end:
        return None
    head = at.data[at.pos]
    at.pos += 1
    count = head >> 4
    if count == 15 and not take_varint(at, 32, &count):
        return None
    if count > <u64>(at.end - at.pos) or count > <u64>left[0] or (count and head & 15 != I64):
        return None
    left[0] -= count
    cdef list offsets = []
    for index in range(<Py_ssize_t>count):
        offset = _signed(at, 64)
        if offset is None:
            return None
        offsets.append(offset)
    return offsets


cdef tuple _context(Cursor* at):
    """Scan a Context; None when it is unusual."""
    cdef int last = 0, kind
    group = topic = qid = None
    while True:
        kind = _field(at, &last)
        if kind == STOP:
            return group, topic, qid
        if kind != BINARY or last > 3:
            return None
        text = _str(at)
        if text is None:
            return None
        if last == 1:
            group = text
        elif last == 2:
            topic = text
        else:
            qid = text


cdef dict _by_offset(Cursor* at, Py_ssize_t* left, u8 types):
    """Read a map of offsets to numbers or to texts, at most `left` of them; None when it is unusual."""
    cdef u64 count
    cdef Py_ssize_t index, size
    cdef object offset, value
    if at.pos >= at.end:
        return None
    if not at.data[at.pos]:
        at.pos += 1
        return {}
    if (
        not take_varint(at, 32, &count)
        or not count
        or count > <u64>left[0]
        or at.pos >= at.end
        or at.data[at.pos] != types
        or count > <u64>(at.end - at.pos) >> 1
    ):
        return None
    at.pos += 1
    left[0] -= count
    cdef dict found = {}
    for index in range(<Py_ssize_t>count):
        offset = _signed(at, 64)
        if offset is None:
            return None
        if types == 0x66:
            value = _signed(at, 64)
            if value is None:
                return None
        else:
            if not take_size(at, &size):
                return None
            value = PyBytes_FromStringAndSize(<const char*>at.data + at.pos, min(size, _reason_bytes_max))
            at.pos += size
        found[offset] = value
    return found


cdef list _results(Cursor* at):
    """Scan a chain of results; None when it is unusual."""
    cdef list results = [None]
    cdef list outer = []
    cdef Py_ssize_t left = _offsets_max, numbers_left = _offsets_max, index = 0
    cdef int last = 0, kind
    cdef tuple context = (None, None, None)
    cdef list success = None, fail = None
    cdef dict deliveries = None, reasons = None
    while True:
        kind = _field(at, &last)
        if kind == LIST and last == 3:
            success = _offsets(at, &left)
            if success is None:
                return None
        elif kind == LIST and last == 4:
            fail = _offsets(at, &left)
            if fail is None:
                return None
        elif kind == STRUCT and last == 1:
            context = _context(at)
            if context is None:
                return None
        elif kind == MAP and last == 101:
            deliveries = _by_offset(at, &numbers_left, 0x66)
            if deliveries is None:
                return None
        elif kind == MAP and last == 102:
            reasons = _by_offset(at, &numbers_left, 0x68)
            if reasons is None:
                return None
        elif kind == STRUCT and last == 10:
            if len(results) == _results_max:
                return None
            outer.append((index, context, success, fail))
            index, last = len(results), 0
            results.append(None)
            context = (None, None, None)
            success = fail = None
        elif kind == STOP:
            group, topic, qid = context
            results[index] = _new(
                _result_class,
                (
                    group,
                    topic,
                    qid,
                    [] if success is None else success,
                    [] if fail is None else fail,
                    deliveries,
                    reasons,
                ),
            )
            if not outer:
                return results
            # What follows a nextResult has a higher id: no other field of that element can have stood before it.
            index, context, success, fail = outer.pop()
            deliveries = reasons = None
            last = 10
        else:
            return None


def scan(bytes frame, Py_ssize_t pos):
    """Scan the arguments of a compact pull; None when they are unusual or wrong."""
    cdef Cursor at
    cdef int last = 0, kind
    cdef list results = []
    group = topic = count_max = linger_ms = version = None
    at.data = <const u8*>PyBytes_AS_STRING(frame)
    at.pos = pos
    at.end = PyBytes_GET_SIZE(frame)
    if _field(&at, &last) != STRUCT or last != 1:
        return None
    last = 0
    while True:
        kind = _field(&at, &last)
        if kind == STOP:
            break
        if kind == BINARY and (last < 3 or last == 60):
            text = _str(&at)
            if text is None:
                return None
            if last == 1:
                group = text
            elif last == 2:
                topic = text
            else:
                version = text
        elif kind == I32 and (last == 10 or last == 11):
            number = _signed(&at, 32)
            if number is None:
                return None
            if last == 10:
                count_max = number
            else:
                linger_ms = number
        elif kind == STRUCT and last == 50:
            results = _results(&at)
            if results is None:
                return None
        else:
            return None
    last = 1
    if group is None or _field(&at, &last) != STOP:
        return None
    return _new(_request_class, (group, topic, count_max, linger_ms, results, version))


def scan_submit(bytes frame, Py_ssize_t pos):
    """Scan the arguments of a compact submit; None when they are unusual or wrong."""
    cdef Cursor at
    cdef int last = 0, kind
    cdef list results
    at.data = <const u8*>PyBytes_AS_STRING(frame)
    at.pos = pos
    at.end = PyBytes_GET_SIZE(frame)
    if _field(&at, &last) != STRUCT or last != 1:
        return None
    results = _results(&at)
    last = 1
    if results is None or _field(&at, &last) != STOP:
        return None
    return results


cdef struct Text:
    const u8* data
    Py_ssize_t size


cdef struct Times:
    bint given
    u64 stored
    u64 born


cdef struct Parts:
    Text key
    Text tags
    Py_ssize_t pairs
    Text names[PAIRS_MAX]
    Text values[PAIRS_MAX]


cdef inline u8* _varint(u8* to, u64 value) noexcept:
    while value > 127:
        to[0] = <u8>(value & 127 | 128)
        to += 1
        value >>= 7
    to[0] = <u8>value
    return to + 1


cdef inline u8* _text(u8* to, Text* text) noexcept:
    to = _varint(to, text.size)
    memcpy(to, text.data, text.size)
    return to + text.size


cdef inline bint _begins(const u8* data, const u8* end, const char* prefix, Py_ssize_t size) noexcept:
    return end - data >= size and memcmp(data, prefix, size) == 0


cdef inline bint _is_ascii(const u8* data, Py_ssize_t size) noexcept:
    cdef u64 word, seen = 0
    cdef u8 rest = 0
    cdef Py_ssize_t at = 0
    while at + 8 <= size:
        memcpy(&word, data + at, 8)
        seen |= word
        at += 8
    while at < size:
        rest |= data[at]
        at += 1
    return not (seen & <u64>0x8080808080808080) and rest < 128


cdef bint _take_apart(const u8* block, Py_ssize_t size, Parts* parts) except -1:
    """Find the texts of a block; False when it is unusual."""
    cdef const u8* at = block
    cdef const u8* end = block + size
    cdef const u8* stop
    cdef const u8* split
    if size < 32 or (end - 1)[0] != 2 or not _is_ascii(block, size):
        return False
    parts.key.data = parts.tags.data = NULL
    parts.pairs = 0
    if _begins(at, end, b"KEYS\x01", 5):
        at += 5
        stop = <const u8*>memchr(at, 2, end - at)
        if stop == NULL or stop == at:
            return False
        parts.key.data, parts.key.size = at, stop - at
        at = stop + 1
    if _begins(at, end, b"TAGS\x01", 5):
        at += 5
        stop = <const u8*>memchr(at, 2, end - at)
        if stop == NULL or stop == at:
            return False
        parts.tags.data, parts.tags.size = at, stop - at
        at = stop + 1
    while not _begins(at, end, b"UNIQ_KEY\x01", 9):
        stop = <const u8*>memchr(at, 2, end - at)
        if stop == NULL:
            return False
        split = <const u8*>memchr(at, 1, stop - at)
        if split == NULL or split == at or split + 1 == stop or at[0] == 0x5F or parts.pairs == PAIRS_MAX:
            return False
        # Lower case begins none of the broker's own names.
        if not 0x61 <= at[0] <= 0x7A and PyBytes_FromStringAndSize(<const char*>at, split - at) in _system_names:
            return False
        parts.names[parts.pairs].data, parts.names[parts.pairs].size = at, split - at
        parts.values[parts.pairs].data, parts.values[parts.pairs].size = split + 1, stop - split - 1
        parts.pairs += 1
        at = stop + 1
    # UNIQ_KEY, perhaps a property of this broker's own, and the sum: nothing else may follow.
    stop = <const u8*>memchr(at, 2, end - at)
    at = stop + 1
    if _begins(at, end, b"__PYDDMQ_", 9):
        stop = <const u8*>memchr(at, 2, end - at)
        at = stop + 1
    if not _begins(at, end, b"__CRC32#\x01", 9):
        return False
    return <const u8*>memchr(at, 2, end - at) == end - 1


cdef inline u8* _binary_text(u8* to, const u8* data, Py_ssize_t size) noexcept:
    to = put32(to, <u32>size)
    memcpy(to, data, size)
    return to + size


cdef inline u8* _binary_head(u8* to, u8 kind, u8 field) noexcept:
    to[0] = kind
    to[1] = 0
    to[2] = field
    return to + 3


cdef inline u8* _binary_message(
    u8* to, Parts* parts, const u8* body, Py_ssize_t body_bytes, u64 offset, Times* times, bytes close
) noexcept:
    cdef Py_ssize_t pair
    if parts.key.data != NULL:
        to = _binary_text(_binary_head(to, 11, 1), parts.key.data, parts.key.size)
    to = _binary_text(_binary_head(to, 11, 2), body, body_bytes)
    if parts.tags.data != NULL:
        to = _binary_text(_binary_head(to, 11, 3), parts.tags.data, parts.tags.size)
    to = put64(_binary_head(to, 10, 4), offset)
    if parts.pairs:
        to = _binary_head(to, 13, 5)
        to[0] = to[1] = 11
        to = put32(to + 2, <u32>parts.pairs)
        for pair in range(parts.pairs):
            to = _binary_text(to, parts.names[pair].data, parts.names[pair].size)
            to = _binary_text(to, parts.values[pair].data, parts.values[pair].size)
    if times.given:
        to = put64(_binary_head(to, 10, 101), times.stored)
        to = put64(_binary_head(to, 10, 102), times.born)
    return put_bytes(to, close)


cdef inline u8* _message(
    u8* to, Parts* parts, const u8* body, Py_ssize_t body_bytes, u64 offset, Times* times, bytes close
) noexcept:
    cdef Py_ssize_t pair
    if parts.key.data == NULL:
        to[0] = 0x28
        to += 1
    else:
        to[0] = 0x18
        to = _text(to + 1, &parts.key)
        to[0] = 0x18
        to += 1
    to = _varint(to, body_bytes)
    memcpy(to, body, body_bytes)
    to += body_bytes
    if parts.tags.data == NULL:
        to[0] = 0x26
        to += 1
    else:
        to[0] = 0x18
        to = _text(to + 1, &parts.tags)
        to[0] = 0x16
        to += 1
    to = _varint(to, offset << 1)
    if parts.pairs:
        to[0] = 0x1B
        to = _varint(to + 1, parts.pairs)
        to[0] = 0x88
        to += 1
        for pair in range(parts.pairs):
            to = _text(to, &parts.names[pair])
            to = _text(to, &parts.values[pair])
    if times.given:
        # Field 101 by its number, as it is more than 15 above any before; 102 follows it.
        to[0], to[1], to[2] = 0x06, 0xCA, 0x01
        to = _varint(to + 3, times.stored << 1 ^ (0 - (times.stored >> 63)))
        to[0] = 0x16
        to = _varint(to + 1, times.born << 1 ^ (0 - (times.born >> 63)))
    return put_bytes(to, close)


cdef Py_ssize_t _room(list messages, Py_ssize_t close_bytes) except -1:
    """Bytes that the messages take at most."""
    cdef Py_ssize_t room = 0, body_at, body_end, block_at, end
    cdef object message, located
    for message in messages:
        _, located = <tuple?>message
        _, body_at, body_end, block_at, end = <tuple?>located
        if not 0 <= body_at <= body_end <= block_at <= end:
            return -2
        # A separator of the block becomes a length: of at most three bytes, or in binary of four, where a pair has two
        # separators and at least as many bytes. Numbers and heads of fields are the rest.
        room += body_end - body_at + 3 * (end - block_at) + HEAD_BYTES_MAX + close_bytes
    return room


def reply(bytes before, seqid, bytes after, list messages, bint binary, bytes close, list times):
    """Return the whole frame of a reply, or None when a message is unusual.

    Args:
        before: What stands before the sequence number; empty where there is none.
        seqid: The sequence number.
        after: What stands between it and the messages.
        messages: (offset, located) of each.
        binary: In which protocol.
        close: What ends each message.
        times: Of each message when it was stored and made, or nothing at all.
    """
    cdef Py_ssize_t room = _room(messages, PyBytes_GET_SIZE(close))
    cdef Py_ssize_t body_at, body_end, block_at, end, count = len(messages)
    cdef u64 offset
    cdef PyObject* frame
    cdef u8* start
    cdef u8* to
    cdef object view
    cdef Held held
    cdef Parts parts
    cdef bint usual = True
    cdef Times moments
    cdef u32 number = 0
    cdef long long stored, born
    cdef Py_ssize_t place = 0
    moments.given = len(times) > 0
    if room < 0 or (moments.given and len(times) != count):
        return None
    if PyBytes_GET_SIZE(before):
        number = <u32><int>seqid
    room += 4 + PyBytes_GET_SIZE(before) + PyBytes_GET_SIZE(after) + HEAD_BYTES_MAX
    frame = PyBytes_New(NULL, room)
    start = <u8*>PyBytes_AS_STRING(<object>frame)
    to = put_bytes(start + 4, before)
    if PyBytes_GET_SIZE(before):
        to = put32(to, number) if binary else _varint(to, number)
    to = put_bytes(to, after)
    if binary:
        to = put32(to, <u32>count)
    elif count < 15:
        to[0] = <u8>(count << 4 | 12)
        to += 1
    else:
        to[0] = 0xFC
        to = _varint(to + 1, count)
    held.obj = NULL
    try:
        for offset, (view, body_at, body_end, block_at, end) in messages:
            hold(&held, view)
            if (
                end > held.len
                or end - block_at > 0x7FFF
                or not _take_apart(<const u8*>held.buf + block_at, end - block_at, &parts)
            ):
                usual = False
                break
            if moments.given:
                stored, born = <tuple?>times[place]
                moments.stored, moments.born = <u64>stored, <u64>born
                place += 1
            if binary:
                to = _binary_message(to, &parts, <const u8*>held.buf + body_at, body_end - body_at, offset, &moments, close)
            else:
                to = _message(to, &parts, <const u8*>held.buf + body_at, body_end - body_at, offset, &moments, close)
    except:
        Py_DECREF(frame)
        raise
    finally:
        let_go(&held)
    if not usual:
        Py_DECREF(frame)
        return None
    to[0] = to[1] = 0
    to += 2
    put32(start, <u32>(to - start - 4))
    _PyBytes_Resize(&frame, to - start)
    made = <object>frame
    Py_DECREF(frame)
    return made
