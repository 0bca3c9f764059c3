# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True
"""Records of the log looked at in C: where body and property block stand, and the message keys (`broker.format.locating`).

What is unusual or wrong is left to the general way, which says what it is. Each position is compared with the end of
its view before anything is read there.
"""

from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from libc.string cimport memchr, memcmp

from broker.runtime.accelerator_parts cimport ACCELERATOR_SOURCE, Held, get32, get64, hold, let_go, u8, u32, u64

from broker.format.record import sum_matches

SOURCE = ACCELERATOR_SOURCE.decode()

cdef enum:
    HEADER_BYTES = 88
    OVERHEAD_BYTES = 91
    SYS_UNUSUAL = 0xF1
    KEYS_FIRST = 75

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
            if block_at > end or (physical < cold_end and not sum_matches(view[start:end])):
                break
            found.append((view, start + HEADER_BYTES, body_end, block_at, end))
            at += 1
    finally:
        PyBuffer_Release(&buffer)
    return at


def keys(list located, bytes foreign):
    """As `locating._keys_none`."""
    cdef Held held
    cdef const u8* at
    cdef const u8* block_end
    cdef const u8* stop
    cdef const u8* key
    cdef const u8* key_end
    cdef const u8* name = <const u8*>PyBytes_AS_STRING(foreign)
    cdef Py_ssize_t name_bytes = PyBytes_GET_SIZE(foreign), block_at, end
    cdef object view
    cdef list found = []
    held.obj = NULL
    try:
        for view, _, _, block_at, end in located:
            hold(&held, view)
            if not 0 <= block_at <= end <= held.len:
                return None
            at = <const u8*>held.buf + block_at
            block_end = <const u8*>held.buf + end
            key = key_end = NULL
            while at < block_end:
                stop = <const u8*>memchr(at, 2, block_end - at)
                if stop == NULL:
                    stop = block_end
                if at[0] == KEYS_FIRST and stop - at >= 5 and memcmp(at, b"KEYS\x01", 5) == 0:
                    key, key_end = at + 5, stop
                elif at[0] == name[0] and stop - at >= name_bytes and memcmp(at, name, name_bytes) == 0:
                    return None
                at = stop + 1
            found.append(PyBytes_FromStringAndSize(<const char*>key, key_end - key) if key_end > key else None)
    finally:
        let_go(&held)
    return found
