# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True
"""Units of the timer log in C, many at once: what `broker.scheduled.timer.log_units` does."""

from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer

from broker.runtime.accelerator_parts cimport ACCELERATOR_SOURCE, fill, get32, get64, item, new_tuple, u8

from broker.scheduled.timer.pending.log import MAGIC_DELETE, MAGIC_END, MAGIC_ROLL, MAGIC_TIMER, UNIT_BYTES as _UNIT_BYTES, Taken, Unit

SOURCE = ACCELERATOR_SOURCE.decode()

cdef object _taken_class = Taken, _unit_class = Unit
cdef int _timer = MAGIC_TIMER, _roll = MAGIC_ROLL, _delete = MAGIC_DELETE, _magic_end = MAGIC_END
cdef enum:
    UNIT_BYTES = 52
    POSITION = 0
    UNIT = 1
    MAGIC = 1
    SLOT = 2
    PHYSICAL = 3
    SIZE = 4
    TOPIC = 5
    DUE = 6
    FIELDS = 7
assert UNIT_BYTES == _UNIT_BYTES
assert Taken._fields == ("position", "unit")
assert Unit._fields == ("previous", "magic", "slot_ms", "physical", "size", "topic_hash", "due_ms")


def read(list positions not None, Py_ssize_t at, view, long long base, long long last_at, set marked not None,
         list found not None):
    """As `taking._read_none`."""
    cdef Py_buffer buffer
    cdef const u8* data
    cdef Py_ssize_t count = len(positions)
    cdef long long place, physical
    cdef int magic, size
    cdef bint marks = len(marked) > 0
    cdef object unit, taken, position
    PyObject_GetBuffer(view, &buffer, PyBUF_SIMPLE)
    try:
        last_at = min(last_at, buffer.len - UNIT_BYTES)
        while at < count:
            position = positions[at]
            place = <long long>position - base
            if place < 0 or place > last_at:
                break
            data = <const u8*>buffer.buf + place
            magic = <int>get32(data + 12)
            physical = <long long>get64(data + 28)
            size = <int>get32(data + 36)
            if get32(data) != UNIT_BYTES or magic <= 0 or magic >= _magic_end or physical < 0 or size < 0:
                break
            if marks and position in marked:
                size = 0
            unit = new_tuple(_unit_class, FIELDS)
            fill(unit, 0, <long long>get64(data + 4))
            fill(unit, MAGIC, magic)
            fill(unit, SLOT, <long long>get64(data + 16) + <int>get32(data + 24))
            fill(unit, PHYSICAL, physical)
            fill(unit, SIZE, size)
            fill(unit, TOPIC, <int>get32(data + 40))
            fill(unit, DUE, <long long>get64(data + 44))
            taken = new_tuple(_taken_class, 2)
            fill(taken, POSITION, position)
            fill(taken, UNIT, unit)
            found.append(taken)
            at += 1
    finally:
        PyBuffer_Release(&buffer)
    return at


def fitting(list taken not None, long long bytes_max):
    """As `taking._fitting`."""
    cdef Py_ssize_t place, count = len(taken)
    for place in range(count):
        bytes_max -= <long long>item(item(taken[place], UNIT), SIZE)
        if bytes_max < 0:
            return max(1, place)
    return count


def usual(list taken not None, set superseded not None, dict cancels not None, set marked not None):
    """As `taking._usual`."""
    cdef list places = [], dues = [], others = []
    cdef Py_ssize_t place
    cdef bint plain = not superseded and not cancels and not marked
    cdef object unit
    for place in range(len(taken)):
        unit = item(taken[place], UNIT)
        if <long long>item(unit, SIZE) == 0 or <int>item(unit, MAGIC) != _timer or not (
            plain
            or not (
                item(unit, PHYSICAL) in superseded
                or item(unit, SLOT) in cancels
                or item(taken[place], POSITION) in marked
            )
        ):
            others.append(place)
        else:
            places.append((item(unit, PHYSICAL), item(unit, SIZE)))
            dues.append(item(unit, DUE))
    return places, dues, others


cdef inline long long _count(list runs, long long value, long long known, Py_ssize_t* count):
    """Count a value that follows others of the same; returns the one that goes on."""
    if count[0] and value != known:
        runs.append((known, count[0]))
        count[0] = 0
    count[0] += 1
    return value


def completed(list taken not None):
    """As `taking._completed`."""
    cdef list slots = [], topics = []
    cdef Py_ssize_t of_slot = 0, of_topic = 0, rolls = 0, place
    cdef long long slot = 0, topic = 0, due, first = 0
    cdef int magic
    cdef bint known = False
    cdef object unit
    for place in range(len(taken)):
        unit = item(taken[place], UNIT)
        magic = item(unit, MAGIC)
        if magic & _roll:
            rolls += 1
        else:
            due = item(unit, DUE)
            if not known or due < first:
                first = due
                known = True
        slot = _count(slots, item(unit, SLOT), slot, &of_slot)
        if not magic & _delete:
            topic = _count(topics, item(unit, TOPIC), topic, &of_topic)
    if of_slot:
        slots.append((slot, of_slot))
    if of_topic:
        topics.append((topic, of_topic))
    return first if known else None, rolls, slots, topics


def waiting(units, long long read_ms, dict found not None):
    """As `taking._waiting`."""
    cdef Py_buffer buffer
    cdef const u8* data
    cdef Py_ssize_t at
    cdef long long more = 0
    cdef int topic = 0, each
    PyObject_GetBuffer(units, &buffer, PyBUF_SIMPLE)
    try:
        for at in range(0, buffer.len - UNIT_BYTES + 1, UNIT_BYTES):
            data = <const u8*>buffer.buf + at
            # (No sum of times: a damaged one may be near the end of the numbers.)
            if (
                get32(data + 36) == 0
                or get32(data + 12) & <unsigned int>_delete
                or <long long>get64(data + 16) < read_ms - <int>get32(data + 24)
            ):
                continue
            each = <int>get32(data + 40)
            if each != topic and more:
                found[topic] = <long long>found.get(topic, 0) + more
                more = 0
            topic = each
            more += 1
        if more:
            found[topic] = <long long>found.get(topic, 0) + more
    finally:
        PyBuffer_Release(&buffer)
