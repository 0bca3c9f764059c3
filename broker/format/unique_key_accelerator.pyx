# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True
"""Unique keys of one millisecond in C."""

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE

from broker.runtime.accelerator_parts cimport ACCELERATOR_SOURCE, put_bytes, u8

SOURCE = ACCELERATOR_SOURCE.decode()

cdef const char* HEX = b"0123456789ABCDEF"


def numbered(bytes stem not None, unsigned int number, Py_ssize_t count):
    """Return a key for each of so many numbers from one on; see `unique_key._numbered`."""
    cdef Py_ssize_t place, size = PyBytes_GET_SIZE(stem)
    cdef list keys = []
    cdef bytes key
    cdef u8* to
    for place in range(count):
        key = PyBytes_FromStringAndSize(NULL, size + 4)
        to = put_bytes(<u8*>PyBytes_AS_STRING(key), stem)
        to[0] = HEX[number >> 12 & 15]
        to[1] = HEX[number >> 8 & 15]
        to[2] = HEX[number >> 4 & 15]
        to[3] = HEX[number & 15]
        keys.append(key)
        number += 1
    return keys
