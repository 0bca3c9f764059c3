# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True
"""Index entries in C: what `RowMaker.of_fed` and the inner part of `IndexFile.put` do."""

from cpython.array cimport array
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from libc.string cimport memchr, memcmp

from broker.runtime.accelerator_parts cimport ACCELERATOR_SOURCE, put32, put64, u8, u32

SOURCE = ACCELERATOR_SOURCE.decode()

cdef enum:
    ENTRY_BYTES = 20
    PAGE_SLOTS = 16_384
    SECONDS_MAX = 0x7FFFFFFF


cdef inline bint _is_name(const u8* at, const u8* end, const char* name, Py_ssize_t size) noexcept:
    return end - at >= size and not memcmp(at, name, size)


cdef const u8* _value(const u8* block, const u8* end, const char* later, Py_ssize_t size) noexcept:
    """Where the value of a property begins, NULL when there is none.

    The last one counts: as `broker.index.keys` looks. `later` is the separator before it, the name and the separator
    behind it.
    """
    cdef const u8* at = block
    cdef const u8* found = NULL
    if _is_name(block, end, later + 1, size - 1):
        found = block + size - 1
    while True:
        at = <const u8*>memchr(at, 2, end - at)
        if at == NULL:
            return found
        if _is_name(at, end, later, size):
            found = at + size
        at += 1


cdef const u8* _first_value(const u8* block, const u8* end, const char* later, Py_ssize_t size) noexcept:
    """The same of the first one, which is there."""
    cdef const u8* at = block
    if _is_name(block, end, later + 1, size - 1):
        return block + size - 1
    while True:
        at = <const u8*>memchr(at, 2, end - at)
        if at == NULL or _is_name(at, end, later, size):
            return NULL if at == NULL else at + size
        at += 1


cdef inline const u8* _end(const u8* at, const u8* end) noexcept:
    cdef const u8* found = <const u8*>memchr(at, 2, end - at)
    return end if found == NULL else found


cdef class _Rows:
    cdef list hashes, physicals, stamps
    cdef object hasher
    cdef bytes topic
    cdef u32 stem
    cdef object physical, stamp

    cdef int take_topic(self, const u8* data, Py_ssize_t size) except -1:
        """Have the hash of what stands before the keys of a topic."""
        cdef u32 value = 0
        cdef Py_ssize_t place
        if self.topic is not None and PyBytes_GET_SIZE(self.topic) == size:
            if not memcmp(PyBytes_AS_STRING(self.topic), data, size):
                return 0
        self.topic = PyBytes_FromStringAndSize(<const char*>data, size)
        self.stem = <u32>(self.hasher.stem(self.topic) & 0xFFFFFFFF)
        return 0

    cdef int add(self, const u8* data, Py_ssize_t size) except -1:
        """Add the entry of a key."""
        cdef u32 value = self.stem
        cdef Py_ssize_t place
        for place in range(size):
            if data[place] & 0x80:
                self.hashes.append(self.hasher.hash(self.topic, PyBytes_FromStringAndSize(<const char*>data, size)))
                break
            value = value * 31 + data[place]
        else:
            if value & 0x80000000U:
                value = (0 - value) & 0x7FFFFFFF
            self.hashes.append(value)
        self.physicals.append(self.physical)
        self.stamps.append(self.stamp)
        return 0


def fed_rows(list tails not None, list physicals not None, list stamps not None, object hasher):
    """Return hashes, offsets and stamps of the entries of what the encoder made; see `rows._fed_rows`."""
    cdef _Rows rows = _Rows()
    cdef Py_ssize_t place, count = len(tails), size
    cdef bytes tail
    cdef const u8* at
    cdef const u8* end
    cdef const u8* block
    cdef const u8* found
    cdef const u8* stop
    cdef const u8* word
    if len(physicals) != count or len(stamps) != count:
        raise ValueError("columns of different lengths")
    rows.hashes, rows.physicals, rows.stamps = [], [], []
    rows.hasher = hasher
    for place in range(count):
        tail = tails[place]
        at = <const u8*>PyBytes_AS_STRING(tail)
        end = at + PyBytes_GET_SIZE(tail)
        if end - at < 3 or end - at < 3 + at[0]:
            raise ValueError("a tail that ends within its topic")
        rows.take_topic(at + 1, at[0])
        rows.physical, rows.stamp = physicals[place], stamps[place]
        block = at + 3 + at[0]
        found = _value(block, end, b"\x02UNIQ_KEY\x01", 10)
        if found != NULL:
            stop = _end(found, end)
            if stop > found:
                rows.add(found, stop - found)
            word = _first_value(block, end, b"\x02UNIQ_KEY\x01", 10)
            if word != found and word != NULL:
                size = _end(word, end) - word
                if size and (size != stop - found or memcmp(word, found, size)):
                    rows.add(word, size)
        found = _value(block, end, b"\x02KEYS\x01", 6)
        if found == NULL:
            continue
        stop = _end(found, end)
        while found < stop:
            word = <const u8*>memchr(found, 32, stop - found)
            if word == NULL:
                word = stop
            if word > found:
                rows.add(found, word - found)
            found = word + 1
    return rows.hashes, rows.physicals, rows.stamps


def enter(list hashes not None, list physicals not None, list stamps not None, array slots not None, object first,
          object begin, set dirty):
    """Put entries into slots and return their bytes and how many slots they are the first of; see `file.enter`."""
    cdef Py_ssize_t place, count = len(hashes), slot, slots_total = len(slots)
    cdef long long seconds, begin_ms = begin
    cdef int number = first, before, used = 0
    cdef long long key_hash
    cdef int* table = slots.data.as_ints
    cdef bytes made = PyBytes_FromStringAndSize(NULL, count * ENTRY_BYTES)
    cdef u8* to = <u8*>PyBytes_AS_STRING(made)
    if slots.ob_descr.typecode != c'i' or not slots_total or len(physicals) != count or len(stamps) != count:
        raise ValueError("slots of another kind, or columns of different lengths")
    for place in range(count):
        key_hash = hashes[place]
        if key_hash < 0:
            raise ValueError("a hash below 0")
        slot = key_hash % slots_total
        before = table[slot]
        table[slot] = number
        number += 1
        used += before == 0
        if dirty is not None:
            dirty.add(slot // PAGE_SLOTS)
        seconds = <long long>stamps[place] - begin_ms
        seconds = 0 if seconds < 0 else seconds // 1000
        to = put32(to, <u32>key_hash)
        to = put64(to, <long long>physicals[place])
        to = put32(to, <u32>(SECONDS_MAX if seconds > SECONDS_MAX else seconds))
        to = put32(to, <u32>before)
    return made, used
