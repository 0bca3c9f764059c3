# cython: language_level=3, boundscheck=False, wraparound=False
"""CRC-32 by the library that `broker.format.record` takes, without what its vector registers cost those who come after it."""

from broker.runtime.accelerator_parts cimport ACCELERATOR_SOURCE, leave_vectors

try:
    from isal.isal_zlib import crc32 as library_crc32
except ImportError:
    from zlib import crc32 as library_crc32

SOURCE = ACCELERATOR_SOURCE.decode()

cdef object _crc32 = library_crc32


def crc32(object data, object value=0, /):
    """Return the CRC-32 of bytes behind those with the CRC-32 `value`."""
    cdef object found = _crc32(data, value)
    leave_vectors()
    return found
