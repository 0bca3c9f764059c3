# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True
"""Messages of the sends, scanned in C: what `scan_compact_send` and `scan_binary_send` do, field by field.

A message that is unusual or wrong is given to the general way as a whole, from its first byte: that decides and says
what is wrong. So there is nothing here that refuses, and every length is compared with the bytes left before it is
used: positions never go beyond `end`.
"""

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from cpython.ref cimport Py_INCREF
from cpython.tuple cimport PyTuple_GET_ITEM, PyTuple_GET_SIZE, PyTuple_New, PyTuple_SET_ITEM
from libc.string cimport memcmp, memcpy

from broker.runtime.accelerator_parts cimport ACCELERATOR_SOURCE, Cursor, fill, new_tuple, take_size, take_varint, u8, u64, zigzag

from proxy.wire.limits import PROPERTIES_MAX
from proxy.wire.values import SendMessage

cdef extern from "Python.h":
    object PyUnicode_DecodeUTF8(const char*, Py_ssize_t, const char*)

SOURCE = ACCELERATOR_SOURCE.decode()

cdef object _message_class = SendMessage
cdef Py_ssize_t _properties_max = PROPERTIES_MAX
cdef enum:
    MESSAGE_FIELDS = 13
assert MESSAGE_FIELDS == len(SendMessage._fields)


cdef class _Latest:
    """Texts of the message before, taken again when the next one has the same: most of a batch has."""

    cdef bytes topic, tags, version
    cdef tuple names


cdef bint _is_text(const u8* data, Py_ssize_t size):
    """Whether bytes are UTF-8."""
    cdef Py_ssize_t place = 0
    cdef u64 eight
    while place + 8 <= size:
        memcpy(&eight, data + place, 8)
        if eight & 0x8080808080808080ULL:
            return _is_utf8(data, size)
        place += 8
    while place < size:
        if data[place] & 0x80:
            return _is_utf8(data, size)
        place += 1
    return True


cdef bint _is_utf8(const u8* data, Py_ssize_t size):
    try:
        PyUnicode_DecodeUTF8(<const char*>data, size, NULL)
    except UnicodeDecodeError:
        return False
    return True


cdef inline bytes _text(Cursor* at, Py_ssize_t size, bytes latest):
    """Take a text of a size that fits; None when it is no UTF-8."""
    cdef const u8* data = at.data + at.pos
    if latest is not None and PyBytes_GET_SIZE(latest) == size and not memcmp(PyBytes_AS_STRING(latest), data, size):
        at.pos += size
        return latest
    if not _is_text(data, size):
        return None
    at.pos += size
    return PyBytes_FromStringAndSize(<const char*>data, size)


cdef inline bytes _bytes(Cursor* at, Py_ssize_t size):
    """Take bytes of a size that fits, whatever they are."""
    at.pos += size
    return PyBytes_FromStringAndSize(<const char*>at.data + at.pos - size, size)


cdef tuple _pairs(Cursor* at, Py_ssize_t count, _Latest latest, bint binary):
    """Take so many pairs of texts; None when anything is wrong."""
    cdef tuple known = latest.names
    cdef tuple names = None
    cdef tuple values = PyTuple_New(count)
    cdef Py_ssize_t place, back, size
    cdef bytes name, value, old
    if known is None or PyTuple_GET_SIZE(known) != count:
        known = None
        names = PyTuple_New(count)
    for place in range(count):
        if not (_size_binary(at, &size) if binary else take_size(at, &size)):
            return None
        old = <bytes>PyTuple_GET_ITEM(known, place) if names is None else None
        name = _text(at, size, old)
        if name is None:
            return None
        if names is None and name is not old:
            names = PyTuple_New(count)
            for back in range(place):
                old = <bytes>PyTuple_GET_ITEM(known, back)
                Py_INCREF(old)
                PyTuple_SET_ITEM(names, back, old)
        if names is not None:
            Py_INCREF(name)
            PyTuple_SET_ITEM(names, place, name)
        if not (_size_binary(at, &size) if binary else take_size(at, &size)):
            return None
        value = _text(at, size, None)
        if value is None:
            return None
        Py_INCREF(value)
        PyTuple_SET_ITEM(values, place, value)
    if names is None:
        names = known
    else:
        latest.names = names
    return (names, values)


cdef inline bint _size_binary(Cursor* at, Py_ssize_t* size) noexcept:
    """Read a length of four bytes; False when it is wrong or reaches beyond the end."""
    cdef const u8* data
    cdef u64 value
    if at.end - at.pos < 4:
        return False
    data = at.data + at.pos
    value = <u64>data[0] << 24 | <u64>data[1] << 16 | <u64>data[2] << 8 | data[3]
    at.pos += 4
    if value > <u64>(at.end - at.pos):
        return False
    size[0] = <Py_ssize_t>value
    return True


cdef inline object _made(bytes topic, bytes key, bytes value, object hash_id, bytes tags, object partition_id,
                         object body, bytes version, object properties, object level, object due, object delay,
                         bytes unique_key):
    cdef object made = new_tuple(_message_class, MESSAGE_FIELDS)
    fill(made, 0, topic)
    fill(made, 1, key)
    fill(made, 2, value)
    fill(made, 3, hash_id)
    fill(made, 4, tags)
    fill(made, 5, partition_id)
    fill(made, 6, body)
    fill(made, 7, version)
    fill(made, 8, properties)
    fill(made, 9, level)
    fill(made, 10, due)
    fill(made, 11, delay)
    fill(made, 12, unique_key)
    return made


cdef object _compact(Cursor* at, object view, _Latest latest):
    """Scan one message; None when it is unusual or wrong."""
    cdef bytes topic = b"", key = None, value = None, tags = None, version = None, unique_key = None
    cdef object body = None, properties = None, level = None, due = None, delay = None
    cdef long long hash_id = 0, partition_id = -1, last = 0, field
    cdef u64 number
    cdef Py_ssize_t size
    cdef u8 head, kind
    while True:
        if at.pos >= at.end:
            return None
        head = at.data[at.pos]
        at.pos += 1
        if head > 15:
            last += head >> 4
        elif head == 0:
            break
        else:
            if not take_varint(at, 32, &number):
                return None
            field = zigzag(number)
            if field <= last:
                # Again, or out of order: the general way takes a step for it.
                return None
            last = field
        kind = head & 15
        if kind == 8:
            if not take_size(at, &size):
                return None
            if last == 7:
                body = view[at.pos:at.pos + size]
                at.pos += size
            elif last == 1:
                topic = latest.topic = _text(at, size, latest.topic)
                if topic is None:
                    return None
            elif last == 2:
                key = _text(at, size, None)
                if key is None:
                    return None
            elif last == 3:
                value = _bytes(at, size)
            elif last == 5:
                tags = latest.tags = _text(at, size, latest.tags)
                if tags is None:
                    return None
            elif last == 8:
                version = latest.version = _text(at, size, latest.version)
                if version is None:
                    return None
            elif last == 104:
                unique_key = _bytes(at, size)
            else:
                return None
        elif kind == 6:
            if not take_varint(at, 64, &number):
                return None
            if last == 4:
                hash_id = zigzag(number)
            elif last == 102:
                due = zigzag(number)
            elif last == 103:
                delay = zigzag(number)
            else:
                return None
        elif kind == 5:
            if not take_varint(at, 32, &number):
                return None
            if last == 6:
                partition_id = zigzag(number)
            elif last == 101:
                level = zigzag(number)
            else:
                return None
        elif kind == 11 and last == 9:
            if at.pos >= at.end:
                return None
            size = at.data[at.pos]
            at.pos += 1
            if size == 0:
                properties = None
                continue
            if size > 127 or size > _properties_max or at.pos >= at.end or at.data[at.pos] != 0x88:
                return None
            at.pos += 1
            properties = _pairs(at, size, latest, False)
            if properties is None:
                return None
        else:
            return None
    return _made(
        topic, key, value, hash_id, tags, partition_id, body, version, properties, level, due, delay, unique_key
    )


cdef object _binary(Cursor* at, object view, _Latest latest):
    """Scan one message of TBinaryProtocol; None when it is unusual or wrong."""
    cdef bytes topic = b"", key = None, value = None, tags = None, version = None, unique_key = None
    cdef object body = None, properties = None, level = None, due = None, delay = None
    cdef long long hash_id = 0, partition_id = -1
    cdef Py_ssize_t size
    cdef int field, last = 0
    cdef u8 kind
    while True:
        if at.pos >= at.end:
            return None
        kind = at.data[at.pos]
        if kind == 0:
            at.pos += 1
            break
        if at.end - at.pos < 7:
            # Header and the four bytes that every value here has at least.
            return None
        field = at.data[at.pos + 1] << 8 | at.data[at.pos + 2]
        if field <= last:
            return None
        last = field
        at.pos += 3
        if kind == 11:
            if not _size_binary(at, &size):
                return None
            if field == 7:
                body = view[at.pos:at.pos + size]
                at.pos += size
            elif field == 1:
                topic = latest.topic = _text(at, size, latest.topic)
                if topic is None:
                    return None
            elif field == 2:
                key = _text(at, size, None)
                if key is None:
                    return None
            elif field == 3:
                value = _bytes(at, size)
            elif field == 5:
                tags = latest.tags = _text(at, size, latest.tags)
                if tags is None:
                    return None
            elif field == 8:
                version = latest.version = _text(at, size, latest.version)
                if version is None:
                    return None
            elif field == 104:
                unique_key = _bytes(at, size)
            else:
                return None
        elif kind == 10:
            if at.end - at.pos < 8:
                return None
            if field == 4:
                hash_id = <long long>_number(at, 8)
            elif field == 102:
                due = <long long>_number(at, 8)
            elif field == 103:
                delay = <long long>_number(at, 8)
            else:
                return None
        elif kind == 8:
            if field == 6:
                partition_id = <int>_number(at, 4)
            elif field == 101:
                level = <int>_number(at, 4)
            else:
                return None
        elif kind == 13 and field == 9:
            if at.end - at.pos < 6 or at.data[at.pos] != 11 or at.data[at.pos + 1] != 11:
                return None
            at.pos += 2
            size = _number(at, 4)
            if not 0 < size <= _properties_max:
                return None
            properties = _pairs(at, size, latest, True)
            if properties is None:
                return None
        else:
            return None
    return _made(
        topic, key, value, hash_id, tags, partition_id, body, version, properties, level, due, delay, unique_key
    )


cdef inline u64 _number(Cursor* at, int count) noexcept:
    """Read so many bytes, which are there, as a big-endian number."""
    cdef u64 value = 0
    cdef int place
    for place in range(count):
        value = value << 8 | at.data[at.pos + place]
    at.pos += count
    return value


def compact_messages(bytes frame not None, memoryview view not None, Py_ssize_t pos, list messages not None,
                     Py_ssize_t count, object general):
    """Scan elements of a list of messages; see `scan_messages.one_by_one`."""
    return _messages(frame, view, pos, messages, count, general, False)


def binary_messages(bytes frame not None, memoryview view not None, Py_ssize_t pos, list messages not None,
                    Py_ssize_t count, object general):
    """Scan elements of a list of messages; see `scan_binary_send._by_layout`."""
    return _messages(frame, view, pos, messages, count, general, True)


cdef Py_ssize_t _messages(bytes frame, object view, Py_ssize_t pos, list messages, Py_ssize_t count, object general,
                          bint binary) except -1:
    cdef Cursor at
    cdef _Latest latest = _Latest()
    cdef object message
    cdef Py_ssize_t scanned = len(messages)
    at.data = <const u8*>PyBytes_AS_STRING(frame)
    at.end = PyBytes_GET_SIZE(frame)
    while scanned < count:
        if not 0 <= pos < at.end:
            raise IndexError("the frame ends where a message should begin")
        at.pos = pos
        message = _binary(&at, view, latest) if binary else _compact(&at, view, latest)
        if message is None:
            message, pos = general(frame, view, pos)
        else:
            pos = at.pos
        messages.append(message)
        scanned += 1
    return pos
