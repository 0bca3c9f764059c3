# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True
"""Records of the log looked at in C: where body and property block stand, and the message keys (`broker.format.locating`).

What is unusual or wrong is left to the general way, which says what it is. Each position is compared with the end of
its view before anything is read there.
"""

from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from libc.string cimport memchr, memcmp

from broker.runtime.accelerator_parts cimport ACCELERATOR_SOURCE, Held, get32, get64, hold, let_go, u8, u32, u64

from broker.format.record import own_sum_matches

cdef extern from "string.h":
    void* memmem(const void*, size_t, const void*, size_t) noexcept

SOURCE = ACCELERATOR_SOURCE.decode()

cdef enum:
    HEADER_BYTES = 88
    OVERHEAD_BYTES = 91
    SYS_UNUSUAL = 0xF1

cdef u32 _magic = 0xDAA320A7


def locate(list places, Py_ssize_t at, view, long long base, long long visible_end, long long cold_end, list found):
    """As `locating._locate_none`."""
    cdef Py_buffer buffer
    cdef const u8* data
    cdef const u8* record
    cdef Py_ssize_t count = len(places), length, start, body_bytes, body_end, block_at, end
    cdef long long physical, size
    cdef tuple place
    PyObject_GetBuffer(view, &buffer, PyBUF_SIMPLE)
    try:
        data = <const u8*>buffer.buf
        length = buffer.len
        while at < count:
            place = places[at]
            physical, size = place[0], place[1]
            start = physical - base
            if start < 0 or size < OVERHEAD_BYTES or size > length or start > length - size:
                break
            record = data + start
            body_bytes = <int>get32(record + 84)
            if (
                get32(record) != <u64>size
                or get32(record + 4) != _magic
                or get64(record + 28) != <u64>physical
                or get32(record + 36) & SYS_UNUSUAL
                or body_bytes < 0
                or body_bytes > size - OVERHEAD_BYTES
                or physical > visible_end - size
            ):
                break
            body_end = start + HEADER_BYTES + body_bytes
            block_at = body_end + 3 + data[body_end]
            end = start + size
            if block_at > end or (physical < cold_end and not own_sum_matches(view, start, end)):
                break
            found.append((view, start + HEADER_BYTES, body_end, block_at, end))
            at += 1
    finally:
        PyBuffer_Release(&buffer)
    return at


def keys(list located, bytes foreign):
    """As `locating._keys_none`."""
    cdef Held held
    cdef const u8* block
    cdef const u8* key
    cdef const u8* stop
    cdef Py_ssize_t block_at, end, size
    cdef object view
    cdef list found = []
    held.obj = NULL
    try:
        for view, _, _, block_at, end in located:
            hold(&held, view)
            if not 0 <= block_at <= end <= held.len:
                return None
            block = <const u8*>held.buf + block_at
            size = end - block_at
            if memmem(block, size, PyBytes_AS_STRING(foreign), PyBytes_GET_SIZE(foreign)) != NULL:
                return None
            if size >= 5 and memcmp(block, b"KEYS\x01", 5) == 0:
                key = block + 5
            else:
                key = <const u8*>memmem(block, size, b"\x02KEYS\x01", 6)
                if key == NULL:
                    found.append(None)
                    continue
                key += 6
            stop = <const u8*>memchr(key, 2, block + size - key)
            if stop == NULL or memmem(stop, block + size - stop, b"\x02KEYS\x01", 6) != NULL:
                return None
            found.append(PyBytes_FromStringAndSize(<const char*>key, stop - key) if stop > key else None)
    finally:
        let_go(&held)
    return found
