# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True
"""The checks of usual messages in C: what `MessageChecks.check` does for each.

Usual: a known topic without limit and type, no delay, a queue that needs no randomness, nothing to refuse. Anything
else stops here and goes the general way, which takes it up from the same state.
"""

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_CheckExact, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from cpython.dict cimport PyDict_GetItem
from cpython.object cimport PyObject
from cpython.tuple cimport PyTuple_Check, PyTuple_GET_SIZE

from broker.runtime.accelerator_parts cimport ACCELERATOR_SOURCE, PUT_FIELDS, item, new_put, put_bytes, u8, u64

from broker.log.put import Put
from proxy.services.message_rules import KEY_CHARS_MAX, PROPERTIES_BYTES_MAX, TAGS_CHARS_MAX

cdef extern from "Python.h":
    long long PyLong_AsLongLongAndOverflow(object, int*) except? -1

SOURCE = ACCELERATOR_SOURCE.decode()

cdef object _put_class = Put
assert PUT_FIELDS == len(Put._fields)
cdef object _zero = 0
cdef Py_ssize_t _key_max = KEY_CHARS_MAX
cdef Py_ssize_t _tags_max = TAGS_CHARS_MAX
cdef Py_ssize_t _block_max = PROPERTIES_BYTES_MAX


cdef inline bint _is_blank(const u8* data, Py_ssize_t size) noexcept:
    """Whether bytes are none, or white space as `bytes.isspace` has it."""
    cdef Py_ssize_t place
    for place in range(size):
        if not (data[place] == 32 or 9 <= data[place] <= 13):
            return False
    return True


cdef inline Py_ssize_t _separators(const u8* data, Py_ssize_t size) noexcept:
    cdef Py_ssize_t place, count = 0
    for place in range(size):
        count += data[place] == 1 or data[place] == 2
    return count


cdef inline u8* _pair(u8* to, bytes name, bytes value) noexcept:
    to = put_bytes(to, name)
    to[0] = 1
    to = put_bytes(to + 1, value)
    to[0] = 2
    return to + 1


cdef bytes _block(object key, object tags, object properties, dict good, bytes unique_key):
    """Make the property block; None when there is something to refuse, or names not seen before."""
    cdef Py_ssize_t size = 0, pairs = 0, place
    cdef tuple names = None, values = None
    cdef bytes each, block
    cdef u8* to
    if key is not None:
        if not PyBytes_CheckExact(key) or PyBytes_GET_SIZE(<bytes>key) > _key_max:
            return None
        if PyBytes_GET_SIZE(<bytes>key):
            size += 6 + PyBytes_GET_SIZE(<bytes>key)
            pairs += 1
    if tags is not None:
        if not PyBytes_CheckExact(tags) or PyBytes_GET_SIZE(<bytes>tags) > _tags_max:
            return None
        if PyBytes_GET_SIZE(<bytes>tags):
            size += 6 + PyBytes_GET_SIZE(<bytes>tags)
            pairs += 1
    if properties is not None:
        names, values = properties
        if PyTuple_GET_SIZE(names) != PyTuple_GET_SIZE(values) or PyDict_GetItem(good, names) == NULL:
            return None
        for place in range(PyTuple_GET_SIZE(names)):
            if not PyBytes_CheckExact(item(values, place)) or not PyBytes_CheckExact(item(names, place)):
                return None
            each = <bytes>item(values, place)
            if _is_blank(<const u8*>PyBytes_AS_STRING(each), PyBytes_GET_SIZE(each)):
                return None
            size += 2 + PyBytes_GET_SIZE(each) + PyBytes_GET_SIZE(<bytes>item(names, place))
            if size > _block_max:
                return None
        pairs += PyTuple_GET_SIZE(names)
    if size > _block_max:
        return None
    if unique_key is not None:
        size += 10 + PyBytes_GET_SIZE(unique_key)
        pairs += 1
    block = PyBytes_FromStringAndSize(NULL, size)
    to = <u8*>PyBytes_AS_STRING(block)
    if key is not None and PyBytes_GET_SIZE(<bytes>key):
        to = _pair(to, b"KEYS", <bytes>key)
    if tags is not None and PyBytes_GET_SIZE(<bytes>tags):
        to = _pair(to, b"TAGS", <bytes>tags)
    if names is not None:
        for place in range(PyTuple_GET_SIZE(names)):
            to = _pair(to, <bytes>item(names, place), <bytes>item(values, place))
    if unique_key is not None:
        to = _pair(to, b"UNIQ_KEY", unique_key)
    if _separators(<const u8*>PyBytes_AS_STRING(block), size) != 2 * pairs:
        return None
    return block


cdef inline Py_ssize_t _queue_of_hash(long long value, Py_ssize_t queues) noexcept:
    """`broker.format.java.queue_of_hash`; as unsigned numbers, so that the smallest has an absolute value, too."""
    return (<u64>value if value > 0 else 0 - <u64>value) % <u64>queues


cdef Py_ssize_t _queue_of_key(bytes key, Py_ssize_t queues, object key_hash) except -1:
    cdef const u8* data = <const u8*>PyBytes_AS_STRING(key)
    cdef unsigned int value = 0
    cdef Py_ssize_t place
    for place in range(PyBytes_GET_SIZE(key)):
        if data[place] & 0x80:
            return _queue_of_hash(key_hash(key), queues)
        value = value * 31 + data[place]
    return _queue_of_hash(<int>value, queues)


def check(object messages, list puts not None, list ports not None, dict known not None, Py_ssize_t body_max,
          dict good not None, object key_hash, bint keyed):
    """Check messages until one is unusual; returns its place. See `message_checks._check_none`."""
    cdef Py_ssize_t count = len(messages), place, queues = 0, queue_id, size
    cdef long long partition_id, hash_id
    cdef int over
    cdef object message
    cdef object port = None, found_port, topic = None, content, key, number
    cdef bytes block, tags, unique_key = None
    cdef PyObject* found
    for place in range(count):
        message = messages[place]
        if not PyTuple_Check(message) or PyTuple_GET_SIZE(message) != 13:
            return place
        if (item(message, 12) is not None) != keyed:
            return place
        if keyed:
            if not PyBytes_CheckExact(item(message, 12)):
                return place
            unique_key = <bytes>item(message, 12)
        found = PyDict_GetItem(known, item(message, 0))
        if found == NULL:
            return place
        if <object>found is not port:
            found_port = <object>found
            if found_port.guarded:
                return place
            port = found_port
            topic = port.topic
            queues = port.queue_count
            if queues <= 0:
                return place
        if item(message, 9) is not None or item(message, 10) is not None or item(message, 11) is not None:
            return place
        content = item(message, 6)
        if content is None:
            content = item(message, 2)
            if content is None:
                return place
        size = len(content)
        if not 0 < size <= body_max:
            return place
        partition_id = PyLong_AsLongLongAndOverflow(item(message, 5), &over)
        if over or partition_id < -1:
            return place
        hash_id = PyLong_AsLongLongAndOverflow(item(message, 3), &over)
        if over:
            return place
        key = item(message, 1)
        block = _block(key, item(message, 4), item(message, 8), good, unique_key)
        if block is None:
            return place
        if partition_id >= 0:
            queue_id = partition_id % queues
        elif hash_id:
            queue_id = _queue_of_hash(hash_id, queues)
        elif key is not None and PyBytes_GET_SIZE(<bytes>key):
            queue_id = _queue_of_key(<bytes>key, queues, key_hash)
        else:
            queue_id = (port.round + 1) % queues
            port.round = queue_id
        number = queue_id
        tags = <bytes>item(message, 4) if item(message, 4) is not None else b""
        puts.append(new_put(_put_class, topic, number, content, block, tags, b"" if unique_key is None else unique_key, _zero, _zero, _zero, _zero))
        ports.append(port)
    return count
