# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True
"""What `upstream.job.JobFields` says, as an extension type, and the loops of `upstream.waiting.job_loops` over it.

Only of jobs, of which there is one per message, are the fields reached in C. Group queues and deliveries are Python
objects, asked by name: once in a loop, since messages of a topic's queues follow each other in any order, and to ask
takes longer than all else that is done for one.
"""

from cpython.dict cimport PyDict_DelItem, PyDict_GetItemWithError
from cpython.object cimport PyObject, PyTypeObject

from broker.runtime.accelerator_parts cimport ACCELERATOR_SOURCE

from upstream.state import JobState

SOURCE = ACCELERATOR_SOURCE.decode()

cdef object _ready_state = JobState.READY
cdef object _waiting_state = JobState.WAITING
cdef object _running_state = JobState.RUNNING
cdef object _buffered_state = JobState.BUFFERED
cdef object _out_state = JobState.OUT
cdef object _finished_state = JobState.FINISHED
cdef object _read_state = JobState.READ
cdef tuple _none_given = ()


cdef class JobFields:
    """As `upstream.job.JobFields`."""

    cdef public object subscription, group_queue, offset, physical, size, key, state, delivery, successor, history
    cdef public object record, made, _message, _outgoing, _data
    cdef public long step, deliveries

    # Beyond what it made: `__new__` leaves None and 0 everywhere.
    def __init__(self, subscription, group_queue, offset, physical, size, key):
        _begin(self, subscription, group_queue, offset, physical, size, key)


cdef inline void _begin(
    JobFields job, object subscription, object group_queue, object offset, object physical, object size, object key
):
    job.subscription = subscription
    job.group_queue = group_queue
    job.offset = offset
    job.physical = physical
    job.size = size
    job.key = key
    job.state = _read_state


def make(type kind not None, subscription, units, keys):
    """As `job_loops._make`."""
    cdef object unit, group_queue, physical, size, offset, held = None
    cdef dict live, asked = {}
    cdef tuple facts = None
    cdef PyObject* value
    cdef JobFields job
    cdef list jobs
    cdef Py_ssize_t at
    if len(units) != len(keys):
        raise ValueError("a key for each unit")
    if not issubclass(kind, JobFields):
        raise TypeError(f"{kind.__name__} is no kind of job")
    for unit in units:
        group_queue = (<tuple?>unit)[4]
        if group_queue is not held:
            held, value = group_queue, PyDict_GetItemWithError(asked, group_queue)
            if value == NULL:
                if group_queue.tracker.failures:
                    return None
                facts = asked[group_queue] = (group_queue.check_until, group_queue.live)
            else:
                facts = <tuple>value
        if (<tuple>unit)[3] < facts[0]:
            return None
    jobs, at = [], 0
    for unit in units:
        physical, size, _, offset, group_queue = <tuple>unit
        job = <JobFields>(<PyTypeObject*>kind).tp_new(kind, <PyObject*>_none_given, NULL)
        _begin(job, subscription, group_queue, offset, physical, size, keys[at])
        at += 1
        live = (<tuple>asked[group_queue])[1]
        live[offset] = job
        jobs.append(job)
    return jobs


def submit(dict tails, jobs, ready):
    """As `job_loops._submit`."""
    cdef Py_ssize_t unordered = 0, behind = 0
    cdef object each
    cdef JobFields job
    cdef PyObject* tail
    for each in jobs:
        job = <JobFields?>each
        if job.key is None:
            unordered += 1
        else:
            tail = PyDict_GetItemWithError(tails, job.key)
            if tail != NULL:
                (<JobFields?><object>tail).successor = job
            tails[job.key] = job
            if tail != NULL:
                job.state = _waiting_state
                behind += 1
                continue
        job.state = _ready_state
        ready(job)
    return unordered, behind


def admit(ready, Py_ssize_t room):
    """As `job_loops._admit`."""
    cdef list admitted = []
    cdef object next_ready = ready.popleft
    cdef JobFields job
    cdef Py_ssize_t left = len(ready)
    while len(admitted) < room and left:
        job = <JobFields?>ready[0]
        if job.state is not _ready_state or job.history is not None:
            break
        next_ready()
        left -= 1
        job.state = _running_state
        admitted.append(job)
    return admitted


def buffer(jobs, enlist):
    """As `job_loops._buffer`."""
    cdef object each, append
    cdef dict asked = {}
    cdef PyObject* value
    cdef JobFields job
    cdef long long size = 0
    for each in jobs:
        job = <JobFields?>each
        job.state = _buffered_state
        size += <long long>job.size
        value = PyDict_GetItemWithError(asked, job.group_queue)
        if value != NULL:
            (<object>value)(job)
            continue
        append = asked[job.group_queue] = job.group_queue.waiting.append
        append(job)
        if not job.group_queue.listed:
            enlist(job.group_queue)
    return size


def take(waiting, Py_ssize_t count, long long room):
    """As `job_loops._take`."""
    cdef list jobs = []
    cdef object next_job = waiting.popleft
    cdef JobFields job
    cdef Py_ssize_t left = len(waiting)
    cdef long long size
    while left and len(jobs) < count:
        job = <JobFields?>waiting[0]
        size = job.size
        if size > room and jobs:
            break
        room -= size
        next_job()
        left -= 1
        jobs.append(job)
    return jobs, room


def hand_out(jobs, delivery, long long certain_from):
    """As `job_loops._hand_out`."""
    cdef object each
    cdef JobFields job
    cdef bint perhaps = False, again = False
    for each in jobs:
        job = <JobFields?>each
        job.state = _out_state
        job.delivery = delivery
        job.deliveries += 1
        if job.deliveries > 1:
            perhaps = again = True
        elif <long long>job.offset < certain_from:
            perhaps = True
    return perhaps, again


cdef inline bint _is_number(dict deliveries, object offset, object number) except -1:
    """Whether a client says that what it answers is of the delivery of that number; what it does not name is of 0."""
    cdef PyObject* said = PyDict_GetItemWithError(deliveries, offset) if deliveries else NULL
    return number == 0 if said == NULL else <object>said == number


def finish(offsets, Py_ssize_t at, group_queue, holder, order, ready, tuple found, dict deliveries):
    """As `job_loops._finish`."""
    cdef list done = found[0]
    cdef list slow = found[1]
    cdef dict live = group_queue.live
    cdef dict unanswered = group_queue.unanswered
    cdef dict tails = None if order is None else order.tails
    cdef object offset, delivery, following, current = None, last = None
    cdef JobFields job, next_job
    cdef Py_ssize_t count = len(offsets), released = 0
    cdef PyObject* value
    while at < count:
        offset = offsets[at]
        value = PyDict_GetItemWithError(live, offset)
        job, delivery = None, None
        if value != NULL:
            job = <JobFields?><object>value
            if job.state is _out_state:
                delivery = job.delivery
        if (
            delivery is None
            # Of the delivery before it is known already.
            or (delivery is not current and delivery.holder is not holder)
            or (unanswered and offset in unanswered)
            or (deliveries is not None and not _is_number(deliveries, offset, delivery.number))
        ):
            slow.append(offset)
            at += 1
            continue
        if delivery is not current:
            if current is not None:
                break
            current = delivery
        last = job
        job.state = _finished_state
        PyDict_DelItem(live, offset)
        done.append(offset)
        at += 1
        if tails is None or job.key is None:
            continue
        # `OrderQueue.release`, where nobody waits or a job that does.
        if job.successor is None:
            PyDict_DelItem(tails, job.key)
            continue
        next_job = <JobFields?>job.successor
        if next_job.state is _waiting_state:
            next_job.state = _ready_state
            job.successor = None
            released += 1
            ready(next_job)
            continue
        following = order.release(job)
        if following is not None:
            ready(following)
    if released:
        order.waiting -= released
    return at, current, last


def places(jobs):
    """As `job_loops._places`."""
    cdef object each
    cdef JobFields job
    cdef list found = []
    cdef list offsets = []
    for each in jobs:
        job = <JobFields?>each
        found.append((job.physical, job.size))
        offsets.append(job.offset)
    return found, offsets
