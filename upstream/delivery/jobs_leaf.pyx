# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True
"""The loops of `upstream.delivery.job_loops` in C, over the slots of jobs and lanes where they stand in memory.

The places of the slots are asked from the classes at import: a class that has changed its slots is an ImportError,
and the Python runs. A slot is read as an owned reference, so no job goes while it is looked at.
"""

from cpython.dict cimport PyDict_DelItem, PyDict_GetItemWithError
from cpython.object cimport PyObject
from cpython.ref cimport Py_INCREF, Py_XDECREF

from broker.runtime.leaf_parts cimport LEAF_SOURCE

from upstream.job import UpstreamJob
from upstream.job import Delivery, Lane
from upstream.state import State
from upstream.progress.tracker import OffsetTracker

cdef extern from *:
    """
    #include <structmember.h>
    static Py_ssize_t slot_place(PyObject *kind, const char *name) {
        PyObject *found = PyObject_GetAttrString(kind, name);
        Py_ssize_t place = -1;
        if (found == NULL) {
            PyErr_Clear();
        } else {
            if (Py_TYPE(found) == &PyMemberDescr_Type
                && ((PyMemberDescrObject *)found)->d_member->type == T_OBJECT_EX) {
                place = ((PyMemberDescrObject *)found)->d_member->offset;
            }
            Py_DECREF(found);
        }
        return place;
    }
    #define SLOT_AT(of, place) (*(PyObject **)((char *)(of) + (place)))
    """
    Py_ssize_t slot_place(object kind, const char* name) except? -2
    PyObject* SLOT_AT(PyObject* of, Py_ssize_t place)

cdef extern from *:
    """
    static void put_slot(PyObject *of, Py_ssize_t place, PyObject *value) {
        PyObject *old = SLOT_AT(of, place);
        Py_INCREF(value);
        SLOT_AT(of, place) = value;
        Py_XDECREF(old);
    }
    """
    void put_slot(PyObject* of, Py_ssize_t place, PyObject* value)

cdef extern from "Python.h":
    ctypedef struct PyTypeObject:
        object (*tp_alloc)(PyTypeObject*, Py_ssize_t)
    bint PyObject_TypeCheck(object, PyTypeObject*)

SOURCE = LEAF_SOURCE.decode()


cdef Py_ssize_t _place(kind, bytes name) except -1:
    cdef Py_ssize_t place = slot_place(kind, name)
    if place < 0:
        raise ImportError(f"{kind.__name__}.{name.decode()} is no slot")
    return place


cdef tuple _filled = (
    "subscription", "lane", "offset", "physical", "size", "key", "state", "step", "deliveries", "delivery",
    "successor", "history", "record", "_message", "_data",
)
if sorted(_filled) != sorted(UpstreamJob.__slots__) or UpstreamJob.__base__ is not object:
    raise ImportError("jobs have other slots than this was written for")

cdef object _ready_state = State.READY
cdef object _waiting_state = State.WAITING
cdef object _running_state = State.RUNNING
cdef object _buffered_state = State.BUFFERED
cdef object _out_state = State.OUT
cdef object _finished_state = State.FINISHED
cdef object _read_state = State.READ
cdef object _zero = 0

cdef object _job_class = UpstreamJob
cdef object _lane_class = Lane
cdef object _delivery_class = Delivery
cdef object _tracker_class = OffsetTracker

cdef Py_ssize_t _subscription = _place(UpstreamJob, b"subscription")
cdef Py_ssize_t _lane = _place(UpstreamJob, b"lane")
cdef Py_ssize_t _offset = _place(UpstreamJob, b"offset")
cdef Py_ssize_t _physical = _place(UpstreamJob, b"physical")
cdef Py_ssize_t _size = _place(UpstreamJob, b"size")
cdef Py_ssize_t _key = _place(UpstreamJob, b"key")
cdef Py_ssize_t _state = _place(UpstreamJob, b"state")
cdef Py_ssize_t _step = _place(UpstreamJob, b"step")
cdef Py_ssize_t _deliveries = _place(UpstreamJob, b"deliveries")
cdef Py_ssize_t _delivery = _place(UpstreamJob, b"delivery")
cdef Py_ssize_t _successor = _place(UpstreamJob, b"successor")
cdef Py_ssize_t _history = _place(UpstreamJob, b"history")
cdef Py_ssize_t _record = _place(UpstreamJob, b"record")
cdef Py_ssize_t _message = _place(UpstreamJob, b"_message")
cdef Py_ssize_t _data = _place(UpstreamJob, b"_data")

cdef Py_ssize_t _lane_live = _place(Lane, b"live")
cdef Py_ssize_t _lane_waiting = _place(Lane, b"waiting")
cdef Py_ssize_t _lane_listed = _place(Lane, b"listed")
cdef Py_ssize_t _lane_tracker = _place(Lane, b"tracker")
cdef Py_ssize_t _lane_unanswered = _place(Lane, b"unanswered")
cdef Py_ssize_t _lane_check_until = _place(Lane, b"check_until")
cdef Py_ssize_t _tracker_failures = _place(OffsetTracker, b"failures")
cdef Py_ssize_t _delivery_holder = _place(Delivery, b"holder")
cdef Py_ssize_t _delivery_number = _place(Delivery, b"number")


cdef inline object _get(object of, Py_ssize_t place):
    cdef PyObject* value = SLOT_AT(<PyObject*>of, place)
    if value == NULL:
        raise AttributeError("a slot that was never set")
    return <object>value


cdef inline void _put(object of, Py_ssize_t place, object value) noexcept:
    put_slot(<PyObject*>of, place, <PyObject*>value)


cdef inline object _checked(object of, object kind):
    """The object, which has the slots of its class; others are refused before anything is read there."""
    if not PyObject_TypeCheck(of, <PyTypeObject*>kind):
        raise TypeError(f"{kind.__name__} expected, not {type(of).__name__}")
    return of


def placed(units, long long start, lane):
    """As `job_loops._placed`."""
    cdef list found = []
    cdef object physical, size, code
    for physical, size, code in units:
        found.append((physical, size, code, start, lane))
        start += 1
    return found


def make(subscription, units, keys):
    """As `job_loops._make`."""
    cdef object unit, key, lane, tracker, job, physical, size, offset, live
    cdef list jobs
    cdef Py_ssize_t at
    if len(units) != len(keys):
        raise ValueError("a key for each unit")
    for unit in units:
        lane = _checked((<tuple?>unit)[4], _lane_class)
        tracker = _checked(_get(lane, _lane_tracker), _tracker_class)
        if _get(tracker, _tracker_failures) or (<tuple>unit)[3] < _get(lane, _lane_check_until):
            return None
    jobs = []
    at = 0
    for unit in units:
        physical, size, _, offset, lane = <tuple>unit
        key = keys[at]
        at += 1
        job = (<PyTypeObject*>_job_class).tp_alloc(<PyTypeObject*>_job_class, 0)
        _put(job, _subscription, subscription)
        _put(job, _lane, lane)
        _put(job, _offset, offset)
        _put(job, _physical, physical)
        _put(job, _size, size)
        _put(job, _key, key)
        _put(job, _state, _read_state)
        _put(job, _step, _zero)
        _put(job, _deliveries, _zero)
        _put(job, _delivery, None)
        _put(job, _successor, None)
        _put(job, _history, None)
        _put(job, _record, None)
        _put(job, _message, None)
        _put(job, _data, None)
        live = _get(lane, _lane_live)
        (<dict?>live)[offset] = job
        jobs.append(job)
    return jobs


def submit(dict tails, jobs, ready):
    """As `job_loops._submit`."""
    cdef Py_ssize_t unordered = 0, behind = 0
    cdef object job, key, tail
    cdef PyObject* found
    for job in jobs:
        _checked(job, _job_class)
        key = _get(job, _key)
        if key is None:
            unordered += 1
        else:
            found = PyDict_GetItemWithError(tails, key)
            tail = None if found == NULL else <object>found
            tails[key] = job
            if tail is not None:
                _put(_checked(tail, _job_class), _successor, job)
                _put(job, _state, _waiting_state)
                behind += 1
                continue
        _put(job, _state, _ready_state)
        ready(job)
    return unordered, behind


def admit(ready, Py_ssize_t room):
    """As `job_loops._admit`."""
    cdef list admitted = []
    cdef object job, next_ready = ready.popleft
    cdef Py_ssize_t left = len(ready)
    while len(admitted) < room and left:
        job = _checked(ready[0], _job_class)
        if _get(job, _state) is not _ready_state or _get(job, _history) is not None:
            break
        next_ready()
        left -= 1
        _put(job, _state, _running_state)
        admitted.append(job)
    return admitted


def buffer(jobs, enlist):
    """As `job_loops._buffer`."""
    cdef object job, lane
    cdef object held = None, append = None
    cdef long long size = 0
    for job in jobs:
        _put(_checked(job, _job_class), _state, _buffered_state)
        lane = _get(job, _lane)
        if lane is not held:
            held = _checked(lane, _lane_class)
            append = _get(lane, _lane_waiting).append
        append(job)
        size += <long long>_get(job, _size)
        if _get(lane, _lane_listed) is not True:
            enlist(lane)
    return size


def take(waiting, Py_ssize_t count, long long room):
    """As `job_loops._take`."""
    cdef list jobs = []
    cdef object job, next_job = waiting.popleft
    cdef Py_ssize_t left = len(waiting)
    cdef long long size
    while left and len(jobs) < count:
        job = _checked(waiting[0], _job_class)
        size = _get(job, _size)
        if size > room and jobs:
            break
        room -= size
        next_job()
        left -= 1
        jobs.append(job)
    return jobs, room


def hand_out(jobs, delivery, long long certain_from):
    """As `job_loops._hand_out`."""
    cdef object job
    cdef long count
    cdef bint again = False
    for job in jobs:
        _put(_checked(job, _job_class), _state, _out_state)
        _put(job, _delivery, delivery)
        count = <long>_get(job, _deliveries) + 1
        _put(job, _deliveries, count)
        if count > 1 or <long long>_get(job, _offset) < certain_from:
            again = True
    return again


cdef inline bint _is_number(dict deliveries, object offset, object number) except -1:
    """Whether a client says that what it answers is of the delivery of that number; what it does not name is of 0."""
    cdef PyObject* said = PyDict_GetItemWithError(deliveries, offset) if deliveries else NULL
    return number == 0 if said == NULL else <object>said == number


def settle(offsets, Py_ssize_t at, lane, holder, order, ready, tuple found, dict deliveries):
    """As `job_loops._settle`."""
    cdef list done = found[0]
    cdef list slow = found[1]
    cdef dict live = _get(_checked(lane, _lane_class), _lane_live)
    cdef dict unanswered = _get(lane, _lane_unanswered)
    cdef dict tails = None if order is None else order.tails
    cdef object offset, job, delivery, key, following, current = None, last = None
    cdef Py_ssize_t count = len(offsets)
    cdef PyObject* value
    while at < count:
        offset = offsets[at]
        value = PyDict_GetItemWithError(live, offset)
        delivery = None
        if value != NULL:
            job = _checked(<object>value, _job_class)
            if _get(job, _state) is _out_state:
                delivery = _get(job, _delivery)
        if (
            delivery is None
            or _get(_checked(delivery, _delivery_class), _delivery_holder) is not holder
            or (unanswered and offset in unanswered)
            or (deliveries is not None and not _is_number(deliveries, offset, _get(delivery, _delivery_number)))
        ):
            slow.append(offset)
            at += 1
            continue
        if delivery is not current:
            if current is not None:
                break
            current = delivery
        last = job
        _put(job, _state, _finished_state)
        PyDict_DelItem(live, offset)
        done.append(offset)
        at += 1
        if tails is not None:
            key = _get(job, _key)
            if key is not None:
                if _get(job, _successor) is None:
                    # `OrderQueue.release` where nobody waits.
                    PyDict_DelItem(tails, key)
                else:
                    following = order.release(job)
                    if following is not None:
                        ready(following)
    return at, current, last


def places(jobs):
    """As `job_loops._places`."""
    cdef object job
    cdef list found = []
    cdef list offsets = []
    for job in jobs:
        _checked(job, _job_class)
        found.append((_get(job, _physical), _get(job, _size)))
        offsets.append(_get(job, _offset))
    return found, offsets
