# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True
"""The records of usual messages in C: what `Encoder.measure` and `Encoder.encode` do.

Usual: a record that is put together in memory, IPv4 hosts, nothing to refuse. The others go the general way; whether all
are usual is decided before anything is changed.
"""

from cpython.bytearray cimport PyByteArray_AS_STRING, PyByteArray_GET_SIZE, PyByteArray_Resize
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_CheckExact, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
from cpython.long cimport PyLong_AsLongLong
from cpython.tuple cimport PyTuple_Check, PyTuple_GET_SIZE
from libc.string cimport memcpy

from broker.leaf_parts cimport LEAF_SOURCE, fill, item, new_tuple, put32, put64, put_bytes, u8, u32

from broker.java import tags_code
from broker.put import Position, Put
from broker.record import CRC_BYTES, CRC_PREFIX, HEADER_BYTES, MAGIC_V1
from broker.unique_key import KEY_BYTES as _KEY_BYTES

SOURCE = LEAF_SOURCE.decode()

cdef extern from "Python.h":
    bint PyLong_Check(object)
    long long PyLong_AsLongLongAndOverflow(object, int*) except? -1

cdef extern from "stdint.h":
    const long long I32_MIN "INT32_MIN", I32_MAX "INT32_MAX", I64_MIN "INT64_MIN", I64_MAX "INT64_MAX"

cdef object _position_class = Position
cdef Py_ssize_t _crc_bytes = CRC_BYTES
cdef Py_ssize_t _header_bytes = HEADER_BYTES
cdef bytes _crc_prefix = CRC_PREFIX
cdef enum:
    PUT_FIELDS = 10
    MAGIC = 0xDAA320A7
    KEY_BYTES = 32
    # Where fields of the header are, and the part from sysFlag to the prepared offset: `broker.record`.
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


def measure(object puts, object take, object ends, Py_ssize_t own_bytes, Py_ssize_t overhead, Py_ssize_t body_max,
            Py_ssize_t block_max, Py_ssize_t record_max):
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
        taken = take(count)
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


def encode(object puts, list tails not None, list sizes not None, list keys not None, list physicals not None,
           bytes middle not None, dict touched not None, object crc32, Py_ssize_t joined_max, object origins,
           long long store_ms):
    """Return (buffers, positions, flags), or None when a put is not usual; see `encoder._encode_none`."""
    cdef Py_ssize_t count = len(puts), place, size, body_bytes, queue_id
    cdef long long physical, offset, code = 0, number
    cdef int flags = 0
    cdef u32 total
    cdef object put, topic, body, queue, origin = None, tags = None, position, offset_object
    cdef list buffers = [], positions = []
    cdef bytes tail, record
    cdef bytearray units
    cdef Py_buffer view
    cdef u8* to
    cdef u8* start
    if PyBytes_GET_SIZE(middle) != MIDDLE_BYTES or not len(tails) == len(sizes) == len(keys) == len(physicals) == count:
        return None
    if origins is not None and len(origins) != count:
        return None
    for place in range(count):
        put = puts[place]
        if not PyTuple_Check(put) or PyTuple_GET_SIZE(put) != PUT_FIELDS:
            return None
        if origins is not None:
            origin = origins[place]
        size = sizes[place]
        if size > joined_max or not _is_usual(put, origin, store_ms):
            return None
    for place in range(count):
        put = puts[place]
        topic = item(put, 0)
        queue_id = item(put, 1)
        body = item(put, 2)
        size = sizes[place]
        physical = physicals[place]
        tail = tails[place]
        queue = topic.queues[queue_id]
        offset_object = queue.next_offset
        offset = offset_object
        if item(put, 4) is not tags:
            tags = item(put, 4)
            code = _code(tags) if PyBytes_CheckExact(tags) else store_ms + PyLong_AsLongLong(tags)
        total = crc32(body)
        PyObject_GetBuffer(body, &view, PyBUF_SIMPLE)
        body_bytes = view.len
        if size != _header_bytes + body_bytes + PyBytes_GET_SIZE(tail) + _crc_bytes:
            PyBuffer_Release(&view)
            raise ValueError("a record of another size than measured")
        record = PyBytes_FromStringAndSize(NULL, size - _crc_bytes)
        start = <u8*>PyBytes_AS_STRING(record)
        memcpy(start + _header_bytes, view.buf, body_bytes)
        PyBuffer_Release(&view)
        to = put32(start, <u32>size)
        to = put32(to, <u32>MAGIC)
        to = put32(to, total & 0x7FFFFFFF)
        to = put32(to, <u32>queue_id)
        to = put32(to, <u32>PyLong_AsLongLong(item(put, 9)))
        to = put64(to, offset)
        to = put64(to, physical)
        to = put_bytes(to, middle)
        put32(to, <u32>body_bytes)
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
        put_bytes(start + _header_bytes + body_bytes, tail)
        buffers.append(record)
        buffers.append(_closing(crc32(record)))
        units = queue.tail
        PyByteArray_Resize(units, PyByteArray_GET_SIZE(units) + 20)
        to = <u8*>PyByteArray_AS_STRING(units) + PyByteArray_GET_SIZE(units) - 20
        to = put64(to, physical)
        to = put32(to, <u32>size)
        put64(to, code)
        queue.next_offset = offset + 1
        touched[queue] = topic
        position = new_tuple(_position_class, 4)
        fill(position, 0, item(put, 1))
        fill(position, 1, offset_object)
        fill(position, 2, physicals[place])
        fill(position, 3, keys[place])
        positions.append(position)
    return buffers, positions, flags


cdef bytes _closing(u32 crc):
    """Return the sum's property, which closes a record."""
    cdef bytes made = PyBytes_FromStringAndSize(NULL, _crc_bytes)
    cdef u8* to = put_bytes(<u8*>PyBytes_AS_STRING(made), _crc_prefix)
    cdef int digit
    crc &= 0x7FFFFFFF
    for digit in range(10):
        to[digit] = <u8>(48 + crc % 10)
        crc //= 10
    to[10] = 2
    return made
