# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True
"""Messages of the sends, scanned in C: what `scan_send` does, field by field; and the replies of single sends.

A message that is unusual or wrong is given to the general way as a whole, from its first byte: that decides and says
what is wrong. So there is nothing here that refuses, and every length is compared with the bytes left before it is
used: positions never go beyond `end`.
"""

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from cpython.memoryview cimport PyMemoryView_FromObject
from cpython.ref cimport Py_INCREF
from cpython.tuple cimport PyTuple_Check, PyTuple_GET_ITEM, PyTuple_GET_SIZE, PyTuple_New, PyTuple_SET_ITEM
from libc.string cimport memcmp, memcpy

from broker.runtime.accelerator_parts cimport ACCELERATOR_SOURCE, Cursor, fill, item, new_tuple, put32, put64, put_bytes, take_size, take_varint, u8, u32, u64, zigzag

from proxy.wire.limits import PROPERTIES_MAX
from proxy.wire.values import SendMessage

cdef extern from "Python.h":
    object PyUnicode_DecodeUTF8(const char*, Py_ssize_t, const char*)
    const char* PyUnicode_AsUTF8AndSize(object, Py_ssize_t*) except NULL

SOURCE = ACCELERATOR_SOURCE.decode()

cdef object _message_class = SendMessage
cdef Py_ssize_t _properties_max = PROPERTIES_MAX
cdef enum:
    MESSAGE_FIELDS = 13
    # Types of fields, as in TCompactProtocol.
    STOP = 0
    I32 = 5
    I64 = 6
    TEXT = 8
    MAP = 11
    # Protocols, and the type of a message.
    COMPACT = 0x82
    BINARY = 0x80
    REPLY = 2
assert MESSAGE_FIELDS == len(SendMessage._fields)
# A Result up to the id of the message: code 0, the text "OK", and the header of field 101.
cdef bytes _COMPACT_BEGIN = b"\x0c\x00\x15\x00\x18\x02OK\x08\xca\x01"
cdef bytes _BINARY_BEGIN = b"\x0c\x00\x00\x08\x00\x01\x00\x00\x00\x00\x0b\x00\x02\x00\x00\x00\x02OK\x0b\x00\x65"


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


cdef inline u64 _number(Cursor* at, int count) noexcept:
    """Read so many bytes, which are there, as a big-endian number."""
    cdef u64 value = 0
    cdef int place
    for place in range(count):
        value = value << 8 | at.data[at.pos + place]
    at.pos += count
    return value


cdef inline int _header(Cursor* at, long long* last, bint binary) noexcept:
    """Read the header of a field; returns its type as TCompactProtocol has it, -1 when it is unusual or wrong.

    A field that is there again, or out of order, is unusual: the general way takes a step for it.
    """
    cdef long long field
    cdef u64 number
    cdef u8 head
    if at.pos >= at.end:
        return -1
    head = at.data[at.pos]
    if binary:
        if head == 0:
            at.pos += 1
            return STOP
        if at.end - at.pos < 7:
            # Header and the four bytes that every value here has at least.
            return -1
        field = at.data[at.pos + 1] << 8 | at.data[at.pos + 2]
        if field <= last[0]:
            return -1
        last[0] = field
        at.pos += 3
        return TEXT if head == 11 else I64 if head == 10 else I32 if head == 8 else MAP if head == 13 else -1
    at.pos += 1
    if head > 15:
        last[0] += head >> 4
    elif head:
        if not take_varint(at, 32, &number):
            return -1
        field = zigzag(number)
        if field <= last[0]:
            return -1
        last[0] = field
    return head & 15


cdef inline bint _take(Cursor* at, int bits, bint binary, long long* value) noexcept:
    """Read a signed number; False when it is wrong or not all there."""
    cdef u64 number
    if not binary:
        if not take_varint(at, bits, &number):
            return False
        value[0] = zigzag(number)
    elif at.end - at.pos < bits // 8:
        return False
    elif bits == 32:
        value[0] = <int>_number(at, 4)
    else:
        value[0] = <long long>_number(at, 8)
    return True


cdef inline Py_ssize_t _pairs_count(Cursor* at, bint binary) noexcept:
    """Read the header of a map of texts; -1 when it is unusual or wrong."""
    cdef Py_ssize_t count
    if binary:
        if at.end - at.pos < 6 or at.data[at.pos] != 11 or at.data[at.pos + 1] != 11:
            return -1
        at.pos += 2
        count = _number(at, 4)
        return count if 0 < count <= _properties_max else -1
    if at.pos >= at.end:
        return -1
    count = at.data[at.pos]
    at.pos += 1
    if count:
        if count > 127 or count > _properties_max or at.pos >= at.end or at.data[at.pos] != 0x88:
            return -1
        at.pos += 1
    return count


cdef inline object _message(Cursor* at, object view, _Latest latest, bint binary):
    """Scan one message; None when it is unusual or wrong."""
    cdef bytes topic = b"", key = None, value = None, tags = None, version = None, unique_key = None
    cdef object body = None, properties = None, level = None, due = None, delay = None
    cdef long long hash_id = 0, partition_id = -1, last = 0, number
    cdef Py_ssize_t size
    cdef int kind
    while True:
        kind = _header(at, &last, binary)
        if kind == TEXT:
            if not (_size_binary(at, &size) if binary else take_size(at, &size)):
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
        elif kind == I64:
            if not _take(at, 64, binary, &number):
                return None
            if last == 4:
                hash_id = number
            elif last == 102:
                due = number
            elif last == 103:
                delay = number
            else:
                return None
        elif kind == I32:
            if not _take(at, 32, binary, &number):
                return None
            if last == 6:
                partition_id = number
            elif last == 101:
                level = number
            else:
                return None
        elif kind == MAP and last == 9:
            size = _pairs_count(at, binary)
            if size < 0:
                return None
            properties = _pairs(at, size, latest, binary) if size else None
            if size and properties is None:
                return None
        elif kind == STOP:
            break
        else:
            return None
    return _made(
        topic, key, value, hash_id, tags, partition_id, body, version, properties, level, due, delay, unique_key
    )


def compact_messages(bytes frame not None, memoryview view not None, Py_ssize_t pos, list messages not None,
                     Py_ssize_t count, object general):
    """Scan elements of a list of messages; see `scan_send._one_by_one`."""
    return _messages(frame, view, pos, messages, count, general, False)


def binary_messages(bytes frame not None, memoryview view not None, Py_ssize_t pos, list messages not None,
                    Py_ssize_t count, object general):
    """Scan elements of a list of messages; see `scan_send._one_by_one`."""
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
        message = _message(&at, view, latest, True) if binary else _message(&at, view, latest, False)
        if message is None:
            message, pos = general(frame, view, pos)
        else:
            pos = at.pos
        messages.append(message)
        scanned += 1
    return pos


def sends(list calls not None):
    """Scan the arguments of sendSync and sendAsync; see `scan_send._sends_none`."""
    cdef Cursor at
    cdef _Latest latest = _Latest()
    cdef object call, message, timeout, view
    cdef list found = []
    cdef bytes frame
    cdef bint binary
    cdef long long number
    for call in calls:
        found.append(None)
        if not PyTuple_Check(call) or PyTuple_GET_SIZE(call) != 5:
            continue
        frame = <bytes?>item(call, 4)
        binary = item(call, 0) != COMPACT
        at.data = <const u8*>PyBytes_AS_STRING(frame)
        at.end = PyBytes_GET_SIZE(frame)
        at.pos = item(call, 3)
        if not _opens(&at, 12, 1, binary):
            continue
        view = PyMemoryView_FromObject(frame)
        message = _message(&at, view, latest, True) if binary else _message(&at, view, latest, False)
        if message is None:
            continue
        timeout = None
        if _opens(&at, 10 if binary else I64, 2 if binary else 1, binary):
            if not _take(&at, 64, binary, &number):
                continue
            timeout = number
        if at.pos < at.end and at.data[at.pos] == STOP:
            found[len(found) - 1] = (message, timeout)
    return found


cdef inline bint _opens(Cursor* at, int kind, int field, bint binary) noexcept:
    """Take the header of a field if it is this one: in TCompactProtocol the type of a field so many ids on."""
    cdef const u8* data = at.data + at.pos
    cdef Py_ssize_t size = 3 if binary else 1
    if at.pos < 0 or at.end - at.pos < size:
        return False
    if binary:
        if data[0] != kind or data[1] or data[2] != field:
            return False
    elif data[0] != (field << 4 | kind):
        return False
    at.pos += size
    return True


def stored_replies(list calls not None, object positions, bytes qid_prefix not None):
    """Encode the replies of single sends; see `replies._stored_replies`."""
    cdef Py_ssize_t place, name_size, size, key_size, digits
    cdef list replies = []
    cdef object call, position
    cdef const char* name
    cdef bytes key, made
    cdef u8[20] number
    cdef u8* to
    cdef u8* start
    cdef long long queue_id, offset
    cdef u32 seqid
    if len(calls) != len(positions):
        raise ValueError("not as many positions as calls")
    for place in range(len(calls)):
        call, position = calls[place], positions[place]
        if not PyTuple_Check(call) or PyTuple_GET_SIZE(call) != 5:
            raise TypeError("no call")
        if not PyTuple_Check(position) or PyTuple_GET_SIZE(position) != 4:
            raise TypeError("no position")
        name = PyUnicode_AsUTF8AndSize(item(call, 1), &name_size)
        seqid = <u32><long long>item(call, 2)
        queue_id, offset, key = item(position, 0), item(position, 1), <bytes?>item(position, 3)
        if queue_id < 0:
            raise ValueError("no queue")
        digits = 0
        while True:
            number[digits] = 48 + queue_id % 10
            digits += 1
            queue_id //= 10
            if not queue_id:
                break
        key_size = PyBytes_GET_SIZE(key)
        size = PyBytes_GET_SIZE(qid_prefix) + digits
        made = PyBytes_FromStringAndSize(NULL, name_size + key_size + size + 96)
        start = to = <u8*>PyBytes_AS_STRING(made)
        to += 4
        if item(call, 0) == COMPACT:
            to[0], to[1] = COMPACT, 1 | REPLY << 5
            to = _varint(to + 2, seqid)
            to = _varint(to, name_size)
            memcpy(to, name, name_size)
            to = put_bytes(to + name_size, _COMPACT_BEGIN)
            to = put_bytes(_varint(to, key_size), key)
            to[0] = 0x18
            to = put_bytes(_varint(to + 1, size), qid_prefix)
        else:
            to[0], to[1], to[2], to[3] = BINARY, 1, 0, REPLY
            to = put32(to + 4, <u32>name_size)
            memcpy(to, name, name_size)
            to = put32(to + name_size, seqid)
            to = put_bytes(to, _BINARY_BEGIN)
            to = put_bytes(put32(to, <u32>key_size), key)
            to[0], to[1], to[2] = 11, 0, 102
            to = put_bytes(put32(to + 3, <u32>size), qid_prefix)
        while digits:
            digits -= 1
            to[0] = number[digits]
            to += 1
        if item(call, 0) == COMPACT:
            to[0] = 0x16
            to = _varint(to + 1, <u64>(offset << 1) ^ <u64>(offset >> 63))
        else:
            to[0], to[1], to[2] = 10, 0, 103
            to = put64(to + 3, <u64>offset)
        to[0], to[1] = 0, 0
        size = to + 2 - start
        put32(start, <u32>(size - 4))
        replies.append(PyBytes_FromStringAndSize(<const char*>start, size))
    return replies


cdef inline u8* _varint(u8* to, u64 value) noexcept:
    while value > 127:
        to[0] = <u8>(value & 127 | 128)
        to += 1
        value >>= 7
    to[0] = <u8>value
    return to + 1
