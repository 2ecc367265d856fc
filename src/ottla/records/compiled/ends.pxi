# Where a segment ends: its file, its indexes and its numbers, as far as a run of batches changes them. Storage's own
# classes are made of these, so that what is appended is noted without a step of the interpreter.

cdef enum:
    OFFSET_DELTA_MAX = 0x7FFFFFFF
    # Index entries that wait until somebody looks, or until there are so many.
    WAITING_MAX = 64
    # Pieces of one write; more of them are written by the file itself.
    PIECES_MAX = 64

cdef int64_t LOOK_FIRST = INT64_MIN


cdef class FileEnd:
    """See `ottla.storage.ends.PlainFileEnd`."""

    cdef public int _descriptor
    cdef public int64_t _size

    def __cinit__(self):
        # None is open yet, and 0 is one.
        self._descriptor = -1

    cdef bint take(self, Run run) except -1:
        """Write a run at the end; false, and nothing has happened, where `append` is to do it, or to say why not."""
        cdef iovec[PIECES_MAX] pieces
        cdef Py_buffer buffer
        cdef Py_ssize_t i, written
        cdef int count
        cdef bytes joined = None
        run.hold(&buffer)
        try:
            run.require_places()
            if run.is_small():
                joined = run.join(<const uint8_t*>buffer.buf)
                pieces[0].iov_base, pieces[0].iov_len = <void*>PyBytes_AS_STRING(joined), PyBytes_GET_SIZE(joined)
                count = 1
            elif buffer.readonly or run._count > PIECES_MAX:
                return False
            else:
                run.put_prefixes(<uint8_t*>buffer.buf)
                count = <int>run._count
                for i in range(count):
                    pieces[i].iov_base = <uint8_t*>buffer.buf + run._spans[i].at
                    pieces[i].iov_len = run._spans[i].size
            with nogil:
                written = writev(self._descriptor, pieces, count)
        finally:
            PyBuffer_Release(&buffer)
        if written <= 0:
            return False
        if written != run.size:
            (<object>self).append_rest(run.parts(), written=written)
        else:
            self._size += written
        return True


cdef struct IndexEntry:
    uint32_t relative_offset
    uint32_t position
    # The time index has an entry for it too.
    bint is_timed
    int64_t timed_ms
    uint32_t timed_offset


cdef class IndexEnd:
    """See `ottla.storage.ends.PlainIndexEnd`."""

    cdef public int64_t base_offset, interval_bytes, indexed_at
    cdef public int64_t max_timestamp_ms, max_timestamp_offset, timed_ms
    cdef public Py_ssize_t count
    cdef readonly Py_ssize_t waiting
    cdef IndexEntry* _entries

    def __dealloc__(self):
        PyMem_Free(self._entries)

    cdef int take(self, Run run) except -1:
        cdef Py_ssize_t i
        cdef Span* span
        cdef IndexEntry* entry
        self.max_timestamp_ms, self.max_timestamp_offset = run.max_timestamp_ms, run.max_timestamp_offset
        if not run._entries:
            return 0
        if self._entries is NULL:
            self._entries = <IndexEntry*>PyMem_Malloc(WAITING_MAX * sizeof(IndexEntry))
            if self._entries is NULL:
                raise MemoryError
        for i in range(run._count):
            span = run._spans + i
            if not span.is_indexed:
                continue
            if self.waiting == WAITING_MAX:
                (<object>self).enter_waiting()
            entry = self._entries + self.waiting
            entry.relative_offset, entry.position = span.relative_offset, span.position
            entry.is_timed, entry.timed_ms, entry.timed_offset = span.is_timed, span.timed_ms, span.timed_offset
            self.waiting += 1
            self.count += 1
            if span.is_timed:
                self.timed_ms = span.timed_ms
        self.indexed_at = run.indexed_at
        return 0

    def take_waiting(self):
        cdef bytes offsets = PyBytes_FromStringAndSize(NULL, self.waiting * sizeof(uint32_t))
        cdef bytes positions = PyBytes_FromStringAndSize(NULL, self.waiting * sizeof(uint32_t))
        cdef uint32_t* o = <uint32_t*>PyBytes_AS_STRING(offsets)
        cdef uint32_t* p = <uint32_t*>PyBytes_AS_STRING(positions)
        cdef list times = []
        cdef Py_ssize_t i
        for i in range(self.waiting):
            o[i], p[i] = self._entries[i].relative_offset, self._entries[i].position
            if self._entries[i].is_timed:
                times.append((self._entries[i].timed_ms, self._entries[i].timed_offset))
        self.waiting = 0
        return offsets, positions, times


cdef class SegmentEnd:
    """See `ottla.storage.ends.PlainSegmentEnd`."""

    cdef public int64_t base_offset, end_offset, size
    cdef public int64_t max_timestamp_ms, max_timestamp_offset
    cdef public int64_t last_batch_offset, last_batch_position
    cdef public int64_t look_from_ms, index_entries_max
    cdef public object _file, _indexes

    def place(
        self,
        Run run not None,
        *,
        int32_t leader_epoch,
        int64_t oldest_ms,
        int64_t newest_ms,
        int64_t batch_bytes_max,
        int64_t bytes_max,
    ):
        cdef IndexEnd indexes = self._indexes
        cdef Place to
        if indexes is None or self.look_from_ms == LOOK_FIRST:
            return False
        to = Place(
            self.end_offset, leader_epoch, oldest_ms, newest_ms, batch_bytes_max, self.base_offset, self.size,
            indexes.indexed_at, indexes.interval_bytes, indexes.max_timestamp_ms, indexes.max_timestamp_offset,
            indexes.timed_ms,
        )
        return (
            run.take_places(&to)
            and run.size <= bytes_max - self.size
            and run.newest_ms < self.look_from_ms
            and run.end_offset - self.base_offset <= OFFSET_DELTA_MAX
            and indexes.count + run._count <= self.index_entries_max
        )

    def write(self, Run run not None):
        cdef object file = self._file
        cdef IndexEnd indexes = self._indexes
        if indexes is None:
            raise AssertionError("only a segment that was opened for writing grows")
        if run._count == 0:
            raise ValueError("no batch was added")
        run.require_places()
        if file is None:
            file = (<object>self).file
        if not isinstance(file, FileEnd) or not (<FileEnd>file).take(run):
            file.append(run.parts())
        indexes.take(run)
        self.max_timestamp_ms, self.max_timestamp_offset = indexes.max_timestamp_ms, indexes.max_timestamp_offset
        if indexes.count >= self.index_entries_max:
            self.look_from_ms = LOOK_FIRST
        self.last_batch_offset = run._spans[run._count - 1].offset
        self.last_batch_position = run._last_at
        self.size += run.size
        self.end_offset = run.end_offset
