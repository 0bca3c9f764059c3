# cython: language_level=3
"""What compiled accelerators share: numbers, views held, tuples made in place, where they were compiled from."""

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_GET_SIZE
from cpython.object cimport PyObject
from cpython.ref cimport Py_INCREF
from cpython.tuple cimport PyTuple_GET_ITEM, PyTuple_SET_ITEM
from libc.string cimport memcpy

cdef extern from "Python.h":
    ctypedef struct PyTypeObject:
        object (*tp_alloc)(PyTypeObject*, Py_ssize_t)
    # Cython's own declaration would count references of `obj`, which is NULL while nothing is held.
    ctypedef struct Held "Py_buffer":
        void* buf
        PyObject* obj
        Py_ssize_t len
    int get_buffer "PyObject_GetBuffer"(object, Held*, int) except -1
    void let_go "PyBuffer_Release"(Held*) noexcept
    int BUFFER_SIMPLE "PyBUF_SIMPLE"

cdef extern from *:
    """
    #ifndef ACCELERATOR_SOURCE
    #define ACCELERATOR_SOURCE ""
    #endif
    """
    # Fingerprint of the sources; every accelerator has it as SOURCE (`broker.runtime.accelerators`).
    const char* ACCELERATOR_SOURCE

cdef extern from *:
    """
    #if defined(__x86_64__) && defined(__GNUC__)
    #include <immintrin.h>
    __attribute__((target("avx"), noinline)) static void accelerator_zero_upper(void) { _mm256_zeroupper(); }
    #define ACCELERATOR_LEAVE_VECTORS() do { if (__builtin_cpu_supports("avx")) accelerator_zero_upper(); } while (0)
    #else
    #define ACCELERATOR_LEAVE_VECTORS() ((void)0)
    #endif
    """
    # After a sum of ISA-L's: it leaves the upper halves of the vector registers in use, for which the next instruction
    # that knows only the lower ones, and the next sum, wait 80 ns each.
    void leave_vectors "ACCELERATOR_LEAVE_VECTORS"() noexcept

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


cdef inline u32 get32(const u8* at) noexcept:
    """Read four bytes, big-endian."""
    return <u32>at[0] << 24 | <u32>at[1] << 16 | <u32>at[2] << 8 | at[3]


cdef inline u64 get64(const u8* at) noexcept:
    """Read eight bytes, big-endian."""
    return <u64>get32(at) << 32 | get32(at + 4)


cdef struct Cursor:
    # Where a frame is read, and where it ends; positions never go beyond that.
    const u8* data
    Py_ssize_t pos
    Py_ssize_t end


cdef inline bint take_varint(Cursor* at, int bits, u64* value) noexcept:
    """Read an unsigned number of at most so many bits; False when it is wrong or not all there."""
    cdef u64 found = 0
    cdef int shift = 0
    cdef u8 byte
    while at.pos < at.end:
        byte = at.data[at.pos]
        at.pos += 1
        if shift + 7 > bits and (byte & 127) >> (bits - shift):
            return False
        found |= <u64>(byte & 127) << shift
        if byte < 128:
            value[0] = found
            return True
        shift += 7
        if shift >= bits:
            return False
    return False


cdef inline bint take_size(Cursor* at, Py_ssize_t* size) noexcept:
    """Read the length of what follows; False when it is wrong or reaches beyond the end."""
    cdef u64 value
    if not take_varint(at, 32, &value) or value > <u64>(at.end - at.pos):
        return False
    size[0] = <Py_ssize_t>value
    return True


cdef inline long long zigzag(u64 value) noexcept:
    """Signed number that a varint stands for."""
    return <long long>(value >> 1) ^ -<long long>(value & 1)


cdef inline int hold(Held* held, object view) except -1:
    """Take the buffer of a view in the place of the one held, unless it is that: records of one view come in a row.

    `obj` is NULL at first, and what is held at the end is `let_go`.
    """
    if held.obj != <PyObject*>view:
        let_go(held)
        get_buffer(view, held, BUFFER_SIMPLE)
    return 0


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


cdef enum:
    PUT_FIELDS = 10


cdef inline object new_put(object kind, object topic, object queue_id, object body, object properties, object tags,
                           object unique_key, object prepared, object times, object sys_flag, object flag):
    """Make a `broker.log.put.Put`, whose class is given, of its fields in their order."""
    cdef object put = new_tuple(kind, PUT_FIELDS)
    fill(put, 0, topic)
    fill(put, 1, queue_id)
    fill(put, 2, body)
    fill(put, 3, properties)
    fill(put, 4, tags)
    fill(put, 5, unique_key)
    fill(put, 6, prepared)
    fill(put, 7, times)
    fill(put, 8, sys_flag)
    fill(put, 9, flag)
    return put
