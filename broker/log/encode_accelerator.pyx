# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True
"""The records of usual messages in C: what `Encoder.measure` and `Encoder.encode` do.

Usual: a record that is put together in memory, IPv4 hosts, nothing to refuse. The others go the general way; whether all
are usual is decided before anything is changed.
"""

from cpython.bytearray cimport PyByteArray_AS_STRING, PyByteArray_GET_SIZE, PyByteArray_Resize
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_CheckExact, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_FillInfo, PyBuffer_Release, PyObject_GetBuffer
from cpython.long cimport PyLong_AsLongLong
from cpython.tuple cimport PyTuple_Check, PyTuple_GET_SIZE
from libc.string cimport memcpy

from broker.runtime.accelerator_parts cimport ACCELERATOR_SOURCE, fill, item, leave_vectors, new_tuple, put32, put64, put_bytes, u8, u32

from broker.format.java import tags_code
from broker.log.put import LogPosition, Put
from broker.format.record import CRC_BYTES, CRC_PREFIX, HEADER_BYTES, MAGIC_V1
from broker.format.unique_key import KEY_BYTES as _KEY_BYTES

SOURCE = ACCELERATOR_SOURCE.decode()

cdef extern from "Python.h":
    bint PyLong_Check(object)
    long long PyLong_AsLongLongAndOverflow(object, int*) except? -1

cdef extern from "stdint.h":
    const long long I32_MIN "INT32_MIN", I32_MAX "INT32_MAX", I64_MIN "INT64_MIN", I64_MAX "INT64_MAX"

cdef object _position_class = LogPosition
cdef Py_ssize_t _crc_bytes = CRC_BYTES
cdef Py_ssize_t _header_bytes = HEADER_BYTES
cdef bytes _crc_prefix = CRC_PREFIX
cdef enum:
    PUT_FIELDS = 10
    MAGIC = 0xDAA320A7
    KEY_BYTES = 32
    # Where fields of the header are, and the part from sysFlag to the prepared offset: `broker.format.record`.
    SYS_FLAG_AT = 36
    BORN_AT = 40
    HOST_AT = 48
    HOST_BYTES = 8
    RECONSUME_AT = 72
    PREPARED_AT = 76
    MIDDLE_BYTES = 48
assert PUT_FIELDS == len(Put._fields)
assert <u32>MAGIC == MAGIC_V1 & 0xFFFFFFFF
assert KEY_BYTES == _KEY_BYTES
assert SYS_FLAG_AT + MIDDLE_BYTES + 4 == HEADER_BYTES


def measure(object puts, object take, object store_ms, object ends, Py_ssize_t own_bytes, Py_ssize_t overhead,
            Py_ssize_t body_max, Py_ssize_t block_max, Py_ssize_t record_max):
    """Return (tails, sizes, keys), or None when a put is not usual; see `encoder._measure_none`."""
    cdef Py_ssize_t count = len(puts), place, queues = 0, block_bytes, size, given = 0
    cdef object put, topic = None
    cdef bytes block, key, end = b"\x02", tail, prefix = None
    cdef list tails = [], sizes = [], keys, taken = None
    cdef u8* to
    for place in range(count):
        put = puts[place]
        if not PyTuple_Check(put) or PyTuple_GET_SIZE(put) != PUT_FIELDS:
            return None
        if not PyBytes_CheckExact(item(put, 3)) or not PyBytes_CheckExact(item(put, 5)):
            return None
        if item(put, 0) is not topic:
            topic = item(put, 0)
            queues = len(topic.queues)
            prefix = topic.prefix
            if not prefix:
                return None
        if not _number(item(put, 1), 0, queues - 1):
            return None
        size = len(item(put, 2))
        given += PyBytes_GET_SIZE(item(put, 5)) > 0
        block_bytes = _block_bytes(item(put, 3), item(put, 5)) + 1 + own_bytes
        if size > body_max or block_bytes > block_max:
            return None
        size += overhead + PyBytes_GET_SIZE(prefix) + 2 + block_bytes - _crc_bytes
        if size > record_max:
            return None
        sizes.append(size)
    # A record that takes the place of another one keeps its key: none is made when all do.
    if given < count:
        taken = take(count, store_ms)
    if (taken is not None and len(taken) != count) or (ends is not None and len(ends) != count):
        raise ValueError("not as many keys and ends as messages")
    keys = [] if given else taken
    topic = None
    for place in range(count):
        put = puts[place]
        if item(put, 0) is not topic:
            topic = item(put, 0)
            prefix = topic.prefix
        block = item(put, 3)
        key = item(put, 5)
        if ends is not None:
            end = ends[place]
        block_bytes = _block_bytes(block, key) + 1 + own_bytes
        tail = PyBytes_FromStringAndSize(NULL, PyBytes_GET_SIZE(prefix) + 2 + block_bytes - _crc_bytes)
        to = put_bytes(<u8*>PyBytes_AS_STRING(tail), prefix)
        to[0] = <u8>(block_bytes >> 8)
        to[1] = <u8>block_bytes
        if PyBytes_GET_SIZE(end) != own_bytes - _crc_bytes + 1:
            raise ValueError("an end of another size than all have")
        if PyBytes_GET_SIZE(key):
            memcpy(to + 2, PyBytes_AS_STRING(block), _block_bytes(block, key))
            to += 2 + _block_bytes(block, key)
        else:
            key = taken[place]
            if PyBytes_GET_SIZE(key) != KEY_BYTES:
                raise ValueError("a key of another size than all have")
            to = put_bytes(to + 2, block)
            to = put_bytes(to, b"UNIQ_KEY\x01")
            to = put_bytes(to, key)
        put_bytes(to, end)
        tails.append(tail)
        if given:
            keys.append(key)
    return tails, sizes, keys


cdef inline Py_ssize_t _block_bytes(bytes block, bytes key):
    """Size of a property block with its unique key, before the separator: one that is given is in it already."""
    cdef Py_ssize_t size = PyBytes_GET_SIZE(block)
    if not PyBytes_GET_SIZE(key):
        return size + 9 + KEY_BYTES
    return size - (size and PyBytes_AS_STRING(block)[size - 1] == 2)


cdef inline bint _number(object value, long long least, long long most) except -1:
    """Whether it is a whole number within bounds."""
    cdef int beyond = 0
    cdef long long number
    if not PyLong_Check(value):
        return False
    number = PyLong_AsLongLongAndOverflow(value, &beyond)
    return not beyond and least <= number <= most


cdef object _code(bytes tags):
    """Return the tags code: Java's hash of the text."""
    cdef const u8* data = <const u8*>PyBytes_AS_STRING(tags)
    cdef Py_ssize_t place
    cdef u32 value = 0
    for place in range(PyBytes_GET_SIZE(tags)):
        if data[place] & 0x80:
            return tags_code(tags)
        value = value * 31 + data[place]
    return <int>value


cdef bint _is_usual(object put, object origin, long long store_ms) except -1:
    """Whether the header of a message can be made: its numbers fit, and its host is one of IPv4."""
    cdef object tags = item(put, 4)
    if not PyBytes_CheckExact(tags) and not _number(tags, I64_MIN - min(store_ms, 0), I64_MAX - max(store_ms, 0)):
        return False
    if origin is not None and not (
        PyTuple_Check(origin)
        and PyTuple_GET_SIZE(origin) == 2
        and _number(item(origin, 0), I64_MIN, I64_MAX)
        and PyBytes_CheckExact(item(origin, 1))
        and PyBytes_GET_SIZE(item(origin, 1)) == HOST_BYTES
    ):
        return False
    return (
        _number(item(put, 6), I64_MIN, I64_MAX)
        and _number(item(put, 7), I32_MIN, I32_MAX)
        and _number(item(put, 8), I32_MIN, I32_MAX)
        and _number(item(put, 9), I32_MIN, I32_MAX)
    )


cdef class _Span:
    """A stretch of bytes in the making, lent to what sums it."""
    cdef bytes owner
    cdef u8* start
    cdef Py_ssize_t size

    def __getbuffer__(self, Py_buffer* view, int flags):
        PyBuffer_FillInfo(view, self, self.start, self.size, 1, flags)

    cdef u32 sum(self, object crc32, u8* start, Py_ssize_t size) except? 0:
        cdef u32 found
        self.start, self.size = start, size
        found = crc32(self)
        leave_vectors()
        return found


cdef Py_ssize_t _joined_bytes(list sizes, list physicals):
    """Size of all records where they stand one behind the other, so that they can be made in one piece; else -1."""
    cdef Py_ssize_t place, total = 0
    cdef long long physical = physicals[0]
    for place in range(len(sizes)):
        if <long long>physicals[place] != physical + total:
            return -1
        total += <Py_ssize_t>sizes[place]
    return total


def encode(object puts, list tails not None, list sizes not None, list keys not None, list physicals not None,
           bytes middle not None, dict touched not None, object crc32, Py_ssize_t record_max, object origins,
           long long store_ms):
    """Return (buffers, positions, flags), or None when a put is not usual; see `encoder._encode_none`."""
    cdef Py_ssize_t count = len(puts), place, size, body_bytes, queue_id, last_id = -1, joined
    cdef long long physical, offset = 0, code = 0, number
    cdef int flags = 0
    cdef object put, topic, last_topic = None, queue = None, origin = None, tags = None, position
    cdef list buffers = [], positions = []
    cdef bytes tail, made = None
    cdef bytearray units = None
    cdef _Span span = _Span()
    cdef u8* to
    cdef u8* start = NULL
    if PyBytes_GET_SIZE(middle) != MIDDLE_BYTES or not len(tails) == len(sizes) == len(keys) == len(physicals) == count:
        return None
    if not count or (origins is not None and len(origins) != count):
        return None
    for place in range(count):
        put = puts[place]
        if not PyTuple_Check(put) or PyTuple_GET_SIZE(put) != PUT_FIELDS:
            return None
        if origins is not None:
            origin = origins[place]
        size = sizes[place]
        if size > record_max or not _is_usual(put, origin, store_ms):
            return None
        tail = tails[place]
        if size != _header_bytes + len(item(put, 2)) + PyBytes_GET_SIZE(tail) + _crc_bytes:
            return None
    joined = _joined_bytes(sizes, physicals)
    if joined >= 0:
        made = PyBytes_FromStringAndSize(NULL, joined)
        start = <u8*>PyBytes_AS_STRING(made)
        buffers.append(made)
    for place in range(count):
        put = puts[place]
        topic = item(put, 0)
        queue_id = item(put, 1)
        size = sizes[place]
        physical = physicals[place]
        tail = tails[place]
        body_bytes = size - _header_bytes - PyBytes_GET_SIZE(tail) - _crc_bytes
        if joined < 0:
            made = PyBytes_FromStringAndSize(NULL, size)
            start = <u8*>PyBytes_AS_STRING(made)
            buffers.append(made)
        span.owner = made
        if topic is not last_topic or queue_id != last_id:
            if queue is not None:
                queue.next_offset = offset
            last_topic, last_id = topic, queue_id
            queue = topic.queues[queue_id]
            offset = queue.next_offset
            units = queue.tail
            touched[queue] = topic
        if item(put, 4) is not tags:
            tags = item(put, 4)
            code = _code(tags) if PyBytes_CheckExact(tags) else store_ms + PyLong_AsLongLong(tags)
        _copy(start + _header_bytes, item(put, 2), body_bytes)
        to = put32(start, <u32>size)
        to = put32(to, <u32>MAGIC)
        to = put32(to, span.sum(crc32, start + _header_bytes, body_bytes) & 0x7FFFFFFF)
        to = put32(to, <u32>queue_id)
        to = put32(to, <u32>PyLong_AsLongLong(item(put, 9)))
        to = put64(to, offset)
        to = put64(to, physical)
        to = put_bytes(to, middle)
        to = put32(to, <u32>body_bytes)
        number = PyLong_AsLongLong(item(put, 8))
        if number:
            put32(start + SYS_FLAG_AT, <u32>number)
            flags |= <int>number
        if origins is not None:
            origin = origins[place]
            put64(start + BORN_AT, PyLong_AsLongLong(item(origin, 0)))
            put_bytes(start + HOST_AT, item(origin, 1))
        number = PyLong_AsLongLong(item(put, 7))
        if number:
            put32(start + RECONSUME_AT, <u32>number)
        number = PyLong_AsLongLong(item(put, 6))
        if number:
            put64(start + PREPARED_AT, number)
        to = put_bytes(to + body_bytes, tail)
        _close(to, span.sum(crc32, start, to - start))
        start += size
        PyByteArray_Resize(units, PyByteArray_GET_SIZE(units) + 20)
        to = <u8*>PyByteArray_AS_STRING(units) + PyByteArray_GET_SIZE(units) - 20
        to = put64(to, physical)
        to = put32(to, <u32>size)
        put64(to, code)
        position = new_tuple(_position_class, 4)
        fill(position, 0, item(put, 1))
        fill(position, 1, offset)
        fill(position, 2, physicals[place])
        fill(position, 3, keys[place])
        positions.append(position)
        offset += 1
    queue.next_offset = offset
    return buffers, positions, flags


cdef int _copy(u8* to, object body, Py_ssize_t size) except -1:
    """Copy a body of that size."""
    cdef Py_buffer view
    PyObject_GetBuffer(body, &view, PyBUF_SIMPLE)
    try:
        if view.len != size:
            raise ValueError("a body of another size than measured")
        memcpy(to, view.buf, size)
    finally:
        PyBuffer_Release(&view)
    return 0


cdef void _close(u8* to, u32 crc) noexcept:
    """Write the sum's property, which closes a record."""
    cdef int digit
    to = put_bytes(to, _crc_prefix)
    crc &= 0x7FFFFFFF
    for digit in range(10):
        to[digit] = <u8>(48 + crc % 10)
        crc //= 10
    to[10] = 2
