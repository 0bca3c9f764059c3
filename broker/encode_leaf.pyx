# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True
"""The records of usual messages in C: what `Encoder.measure` and `Encoder.encode` do.

Usual: no unique key, no earlier record and no flags of its own, tags that are text, an IPv4 host, nothing to refuse. The
others go the general way; whether all are usual is decided before anything is changed.
"""

from cpython.bytearray cimport PyByteArray_AS_STRING, PyByteArray_GET_SIZE, PyByteArray_Resize
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_CheckExact, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
from cpython.tuple cimport PyTuple_Check, PyTuple_GET_SIZE
from libc.string cimport memcpy

from broker.leaf_parts cimport LEAF_SOURCE, fill, item, new_tuple, put32, put64, put_bytes, u8, u32

from broker.java import tags_code
from broker.put import Position, Put
from broker.record import CRC_BYTES, CRC_PREFIX, HEADER_BYTES, MAGIC_V1
from broker.unique_key import KEY_BYTES as _KEY_BYTES

SOURCE = LEAF_SOURCE.decode()

cdef object _position_class = Position
cdef Py_ssize_t _crc_bytes = CRC_BYTES
cdef Py_ssize_t _header_bytes = HEADER_BYTES
cdef bytes _crc_prefix = CRC_PREFIX
cdef enum:
    PUT_FIELDS = 10
    MAGIC = 0xDAA320A7
    MIDDLE_BYTES = 48
    KEY_BYTES = 32
assert PUT_FIELDS == len(Put._fields)
assert <u32>MAGIC == MAGIC_V1 & 0xFFFFFFFF
assert KEY_BYTES == _KEY_BYTES
assert 40 + MIDDLE_BYTES == HEADER_BYTES


def measure(object puts, object take, object ends, Py_ssize_t own_bytes, Py_ssize_t overhead, Py_ssize_t body_max,
            Py_ssize_t block_max, Py_ssize_t record_max):
    """Return (tails, sizes, keys), or None when a put is not usual; see `encoder._measure_none`."""
    cdef Py_ssize_t count = len(puts), place, queue_id, queues = 0, block_bytes, size
    cdef object put, topic = None
    cdef bytes block, key, end = b"\x02", tail, prefix = None
    cdef list tails = [], sizes = [], keys
    cdef u8* to
    for place in range(count):
        put = puts[place]
        if not PyTuple_Check(put) or PyTuple_GET_SIZE(put) != PUT_FIELDS or item(put, 5):
            return None
        if item(put, 0) is not topic:
            topic = item(put, 0)
            queues = len(topic.queues)
            prefix = topic.prefix
        queue_id = item(put, 1)
        block = item(put, 3)
        size = len(item(put, 2))
        block_bytes = _block_bytes(block, own_bytes)
        if size > body_max or block_bytes > block_max or not 0 <= queue_id < queues:
            return None
        size += overhead + PyBytes_GET_SIZE(prefix) + 2 + block_bytes - _crc_bytes
        if size > record_max:
            return None
        sizes.append(size)
    keys = take(count)
    if len(keys) != count or (ends is not None and len(ends) != count):
        raise ValueError("not as many keys and ends as messages")
    topic = None
    for place in range(count):
        put = puts[place]
        if item(put, 0) is not topic:
            topic = item(put, 0)
            prefix = topic.prefix
        block = item(put, 3)
        key = keys[place]
        if ends is not None:
            end = ends[place]
        block_bytes = _block_bytes(block, own_bytes)
        size = PyBytes_GET_SIZE(prefix) + 2 + block_bytes - _crc_bytes
        if PyBytes_GET_SIZE(key) != KEY_BYTES or PyBytes_GET_SIZE(end) != own_bytes - _crc_bytes + 1:
            raise ValueError("a key or an end of another size than all have")
        tail = PyBytes_FromStringAndSize(NULL, size)
        to = put_bytes(<u8*>PyBytes_AS_STRING(tail), prefix)
        to[0] = <u8>(block_bytes >> 8)
        to[1] = <u8>block_bytes
        to = put_bytes(to + 2, block)
        to = put_bytes(to, b"UNIQ_KEY\x01")
        to = put_bytes(to, key)
        put_bytes(to, end)
        tails.append(tail)
    return tails, sizes, keys


cdef inline Py_ssize_t _block_bytes(bytes block, Py_ssize_t own_bytes):
    """Size of a property block once it has its unique key, and the broker's own properties of so many bytes."""
    return PyBytes_GET_SIZE(block) + 9 + KEY_BYTES + 1 + own_bytes


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


def encode(object puts, list tails not None, list sizes not None, list keys not None, list physicals not None,
           bytes middle not None, dict touched not None, object crc32, Py_ssize_t joined_max):
    """Return (buffers, positions), or None when a put is not usual; see `encoder._encode_none`."""
    cdef Py_ssize_t count = len(puts), place, size, body_bytes
    cdef long long physical, offset, code = 0
    cdef int queue_id, flag
    cdef u32 total
    cdef object put, topic, body, queue, tags = None, position, offset_object
    cdef list buffers = [], positions = []
    cdef bytes tail, record
    cdef bytearray units
    cdef Py_buffer view
    cdef u8* to
    cdef u8* start
    if PyBytes_GET_SIZE(middle) != MIDDLE_BYTES or not len(tails) == len(sizes) == len(keys) == len(physicals) == count:
        return None
    for place in range(count):
        put = puts[place]
        if not PyTuple_Check(put) or PyTuple_GET_SIZE(put) != PUT_FIELDS or item(put, 6) or item(put, 7) or item(put, 8):
            return None
        size = sizes[place]
        if size > joined_max or not PyBytes_CheckExact(item(put, 4)):
            return None
    for place in range(count):
        put = puts[place]
        topic = item(put, 0)
        queue_id = item(put, 1)
        body = item(put, 2)
        flag = item(put, 9)
        size = sizes[place]
        physical = physicals[place]
        tail = tails[place]
        queue = topic.queues[queue_id]
        offset_object = queue.next_offset
        offset = offset_object
        if item(put, 4) is not tags:
            tags = item(put, 4)
            code = _code(tags)
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
        to = put32(to, <u32>flag)
        to = put64(to, offset)
        to = put64(to, physical)
        to = put_bytes(to, middle)
        put32(to, <u32>body_bytes)
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
    return buffers, positions


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
