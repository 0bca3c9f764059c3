# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True
"""Plain messages released in C: what `release_plain._release` does.

A stored property block is read from its end, where the room's fields and what the store adds stand in a fixed order.
Each position is compared with the ends of the block before anything is read there.
"""

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from libc.string cimport memchr, memcmp, memcpy

from broker.runtime.accelerator_parts cimport ACCELERATOR_SOURCE, PUT_FIELDS, Held, get32, get64, hold, let_go, new_put, u8

from broker.log.put import Put

cdef extern from "string.h":
    void* memmem(const void*, size_t, const void*, size_t) noexcept

SOURCE = ACCELERATOR_SOURCE.decode()

cdef object _put_class = Put
cdef enum:
    HEADER_BYTES = 88
    FIELDS_MAX = 8
    DIGITS_MAX = 18
    CRC_BYTES = 20
    BATCH_BYTES = 27
assert PUT_FIELDS == len(Put._fields)


cdef struct Field:
    # A name with its 0x01; how many digits its value has at most, 0: any text; where a value stands.
    const u8* name
    Py_ssize_t name_bytes
    Py_ssize_t digits
    const u8* value
    Py_ssize_t value_bytes


cdef const u8* _before(Field* field, const u8* begin, const u8* end) noexcept:
    """Read a property that ends at `end`, which is not before `begin`; where it begins, NULL when another one is there."""
    cdef const u8* at
    cdef const u8* stop
    if end == begin or (end - 1)[0] != 2:
        return NULL
    stop = end - 1
    at = stop
    if field.digits:
        while at > begin and 48 <= (at - 1)[0] <= 57:
            at -= 1
        if stop - at > field.digits:
            return NULL
    else:
        while at > begin and (at - 1)[0] != 1 and (at - 1)[0] != 2:
            at -= 1
    if at == stop or at - begin < field.name_bytes or memcmp(at - field.name_bytes, field.name, field.name_bytes):
        return NULL
    field.value = at
    field.value_bytes = stop - at
    return at - field.name_bytes


cdef inline bint _digits(const u8* at, Py_ssize_t count) noexcept:
    cdef Py_ssize_t place
    for place in range(count):
        if not 48 <= at[place] <= 57:
            return False
    return True


cdef const u8* _without_own(const u8* begin, const u8* end) noexcept:
    """Where the store's own properties begin, which close a block; NULL when it does not end in them."""
    if end - begin < CRC_BYTES or (end - 1)[0] != 2 or memcmp(end - CRC_BYTES, b"__CRC32#\x01", 9):
        return NULL
    if not _digits(end - 11, 10):
        return NULL
    end -= CRC_BYTES
    if (
        end - begin >= BATCH_BYTES
        and (end - 1)[0] == 2
        and memcmp(end - BATCH_BYTES, b"__PYDDMQ_BATCH\x01", 15) == 0
        and _digits(end - 12, 5)
        and (end - 7)[0] == 47
        and _digits(end - 6, 5)
    ):
        end -= BATCH_BYTES
    return end


cdef long long _number(Field* field) noexcept:
    cdef long long value = 0
    cdef Py_ssize_t place
    for place in range(field.value_bytes):
        value = value * 10 + (field.value[place] - 48)
    return value


cdef bytes _value(const u8* head, Py_ssize_t size, const char* later, Py_ssize_t later_bytes, bytes known):
    """Value of a property in a block that ends in 0x02, the last of equal ones, b"" when there is none.

    `known` itself where it is the same.

    `later` is the separator before it, the name and the separator behind it.
    """
    cdef const u8* at = NULL
    cdef const u8* found
    cdef Py_ssize_t length
    if size >= later_bytes - 1 and memcmp(head, later + 1, later_bytes - 1) == 0:
        at = head + later_bytes - 1
    found = <const u8*>memmem(head, size, later, later_bytes)
    while found != NULL:
        at = found + later_bytes
        found = <const u8*>memmem(at, head + size - at, later, later_bytes)
    if at == NULL:
        return b""
    length = <const u8*>memchr(at, 2, head + size - at) - at
    if PyBytes_GET_SIZE(known) == length and memcmp(PyBytes_AS_STRING(known), at, length) == 0:
        return known
    return PyBytes_FromStringAndSize(<const char*>at, length)


cdef bint _any(tuple names, const u8* head, Py_ssize_t size):
    """Whether a block holds any of these bytes."""
    cdef bytes name
    for name in names:
        if memmem(head, size, PyBytes_AS_STRING(name), PyBytes_GET_SIZE(name)) != NULL:
            return True
    return False


def release(list located not None, list places not None, list dues, bytes room not None, tuple names not None, facts, find,
            list puts not None, list origins not None, list others not None):
    """As `release_plain._release`."""
    cdef Field fields[FIELDS_MAX]
    cdef Field own_key
    cdef tuple each
    cdef int count = 0, number, topic_at = facts.topic_at, queue_at = facts.queue_at
    cdef bytes name
    for each in facts.fields:
        if count == FIELDS_MAX or each[1] > DIGITS_MAX:
            raise ValueError("more fields, or more digits in one, than are provided for")
        name = each[0]
        fields[count].name = <const u8*>PyBytes_AS_STRING(name)
        fields[count].name_bytes = PyBytes_GET_SIZE(name)
        fields[count].digits = each[1]
        count += 1
    if not 0 < topic_at < count or not 0 < queue_at < count or not 1 <= fields[queue_at].digits <= 9:
        raise ValueError("no field for the topic or the queue")
    own_key.name = <const u8*>b"UNIQ_KEY\x01"
    own_key.name_bytes = 9
    own_key.digits = 0

    cdef Held held
    cdef Py_ssize_t place, body_at, body_end, block_at, end, size, length
    cdef const u8* data
    cdef const u8* head
    cdef const u8* stop
    cdef const u8* at
    cdef const u8* record
    cdef object view, topic = None, put, physical, body
    cdef bytes real = b"", tags = b"", key, host = b"", properties
    cdef list queues
    cdef tuple origin = None
    cdef Py_ssize_t queues_count = 0
    cdef long long queue_id, born_ms = 0
    cdef bint keyed, same
    cdef dict topics = {}
    held.obj = NULL
    try:
        for place in range(len(located)):
            view, body_at, body_end, block_at, end = located[place]
            hold(&held, view)
            others.append(place)
            if not HEADER_BYTES <= body_at <= body_end <= block_at <= end <= held.len:
                continue
            data = <const u8*>held.buf
            head = data + block_at
            length = PyBytes_GET_SIZE(room)
            if end - body_end < length or memcmp(data + body_end, PyBytes_AS_STRING(room), length):
                continue
            stop = _without_own(head, data + end)
            if stop == NULL:
                continue
            at = _before(&own_key, head, stop)
            keyed = at != NULL
            if keyed:
                stop = at
            for number in range(count - 1, -1, -1):
                stop = _before(&fields[number], head, stop)
                if stop == NULL:
                    break
            if stop == NULL or (dues is not None and _number(fields) != <long long>dues[place]):
                continue
            size = stop - head
            if size and (head[0] == 2 or (stop - 1)[0] != 2):
                continue
            if size and _any(names, head, size):
                continue
            if keyed and memmem(head, size, own_key.name, own_key.name_bytes) != NULL:
                continue
            length = fields[topic_at].value_bytes
            at = fields[topic_at].value
            if topic is None or PyBytes_GET_SIZE(real) != length or memcmp(PyBytes_AS_STRING(real), at, length):
                real = PyBytes_FromStringAndSize(<const char*>at, length)
                if real not in topics:
                    topics[real] = find(real)
                topic = topics[real]
                if topic is None:
                    continue
                queues = topic.queues
                queues_count = len(queues)
            queue_id = _number(&fields[queue_at])
            if queue_id >= queues_count:
                continue
            if keyed:
                properties = PyBytes_FromStringAndSize(NULL, size + own_key.name_bytes + own_key.value_bytes + 1)
                memcpy(PyBytes_AS_STRING(properties), head, size)
                memcpy(PyBytes_AS_STRING(properties) + size, own_key.value - own_key.name_bytes,
                       own_key.name_bytes + own_key.value_bytes + 1)
                key = PyBytes_FromStringAndSize(<const char*>own_key.value, own_key.value_bytes)
            else:
                properties = PyBytes_FromStringAndSize(<const char*>head, size)
                key = _value(head, size, b"\x02UNIQ_KEY\x01", 10, b"")
            tags = _value(head, size, b"\x02TAGS\x01", 6, tags)
            record = data + body_at - HEADER_BYTES
            physical = places[place][0]
            body = view[body_at:body_end]
            put = new_put(
                _put_class, topic, queue_id, body, properties, tags, key, physical if physical else -1,
                <int>get32(record + 72), <int>get32(record + 36), <int>get32(record + 16),
            )
            same = origin is not None and memcmp(PyBytes_AS_STRING(host), record + 48, 8) == 0
            if not same or born_ms != <long long>get64(record + 40):
                if not same:
                    host = PyBytes_FromStringAndSize(<const char*>(record + 48), 8)
                born_ms = <long long>get64(record + 40)
                origin = (born_ms, host)
            puts.append(put)
            origins.append(origin)
            others.pop()
    finally:
        let_go(&held)
