# cython: language_level=3
"""What compiled leaves share: big-endian numbers, tuples made in place, where they were compiled from."""

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_GET_SIZE
from cpython.ref cimport Py_INCREF
from cpython.tuple cimport PyTuple_GET_ITEM, PyTuple_SET_ITEM
from libc.string cimport memcpy

cdef extern from "Python.h":
    ctypedef struct PyTypeObject:
        object (*tp_alloc)(PyTypeObject*, Py_ssize_t)

cdef extern from *:
    """
    #ifndef LEAF_SOURCE
    #define LEAF_SOURCE ""
    #endif
    """
    # Fingerprint of the sources; every leaf has it as SOURCE (`broker.leaves`).
    const char* LEAF_SOURCE

ctypedef unsigned char u8
ctypedef unsigned int u32
ctypedef unsigned long long u64


cdef inline u8* put32(u8* to, u32 value) noexcept:
    """Write four bytes, big-endian; returns where they end."""
    to[0] = <u8>(value >> 24)
    to[1] = <u8>(value >> 16)
    to[2] = <u8>(value >> 8)
    to[3] = <u8>value
    return to + 4


cdef inline u8* put64(u8* to, u64 value) noexcept:
    """Write eight bytes, big-endian; returns where they end."""
    put32(to, <u32>(value >> 32))
    return put32(to + 4, <u32>value)


cdef inline u8* put_bytes(u8* to, bytes value) noexcept:
    """Write bytes; returns where they end."""
    memcpy(to, PyBytes_AS_STRING(value), PyBytes_GET_SIZE(value))
    return to + PyBytes_GET_SIZE(value)


cdef inline object item(object values, Py_ssize_t place):
    """Item of a tuple or named tuple that is known to have it."""
    return <object>PyTuple_GET_ITEM(values, place)


cdef inline object new_tuple(object kind, Py_ssize_t count):
    """Make a tuple of a named tuple's class; every place has to be `fill`ed before anything else happens."""
    return (<PyTypeObject*>kind).tp_alloc(<PyTypeObject*>kind, count)


cdef inline void fill(object values, Py_ssize_t place, object value) noexcept:
    """Set an item of a tuple that was just made."""
    Py_INCREF(value)
    PyTuple_SET_ITEM(values, place, value)
