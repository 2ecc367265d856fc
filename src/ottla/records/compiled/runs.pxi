# Plain batches that follow each other in a log: each is looked at once, and given its place.

cdef enum:
    BATCH_HEADER_BYTES = 61
    BATCH_OVERHEAD_BYTES = 12
    BATCH_PREFIX_BYTES = 16
    BATCH_MAGIC = 2
    LENGTH_AT = 8
    MAGIC_AT = 16
    CRC_AT = 17
    ATTRIBUTES_AT = 21
    LAST_DELTA_AT = 23
    MAX_TIMESTAMP_AT = 35
    PRODUCER_ID_AT = 43
    RECORD_COUNT_AT = 57
    PLAIN_ATTRIBUTES = 0x03
    JOINED_BYTES_MAX = 4 << 10
    DECOMPRESSED_BYTES_MAX = 256 << 20


cdef inline uint32_t load_big32(const uint8_t* p) noexcept nogil:
    return <uint32_t>p[0] << 24 | <uint32_t>p[1] << 16 | <uint32_t>p[2] << 8 | p[3]


cdef inline uint64_t load_big64(const uint8_t* p) noexcept nogil:
    return <uint64_t>load_big32(p) << 32 | load_big32(p + 4)


cdef inline void store_big32(uint8_t* p, uint32_t value) noexcept nogil:
    p[0] = value >> 24
    p[1] = value >> 16 & 0xFF
    p[2] = value >> 8 & 0xFF
    p[3] = value & 0xFF


cdef inline void store_big64(uint8_t* p, int64_t value) noexcept nogil:
    store_big32(p, <uint32_t>(<uint64_t>value >> 32))
    store_big32(p + 4, <uint32_t><uint64_t>value)


cdef inline void put_prefix(uint8_t* p, int64_t offset, int64_t size, int32_t leader_epoch) noexcept nogil:
    store_big64(p, offset)
    store_big32(p + LENGTH_AT, <uint32_t>(size - BATCH_OVERHEAD_BYTES))
    store_big32(p + LENGTH_AT + 4, <uint32_t>leader_epoch)


cdef struct Facts:
    int64_t size
    int64_t records
    int64_t newest_ms
    uint32_t crc
    bint has_producer


cdef bint take_facts(
    const uint8_t* p, int64_t size, int64_t batch_bytes_max, Facts* facts
) noexcept nogil:
    """What a batch says of itself; false unless it is a plain one."""
    cdef uint32_t attributes
    cdef int32_t last_delta
    cdef int64_t room
    facts.size = size
    if size < BATCH_HEADER_BYTES or size > batch_bytes_max:
        return False
    if <int32_t>load_big32(p + LENGTH_AT) != size - BATCH_OVERHEAD_BYTES or p[MAGIC_AT] != BATCH_MAGIC:
        return False
    attributes = <uint32_t>p[ATTRIBUTES_AT] << 8 | p[ATTRIBUTES_AT + 1]
    last_delta = <int32_t>load_big32(p + LAST_DELTA_AT)
    facts.records = <int32_t>load_big32(p + RECORD_COUNT_AT)
    if attributes & ~<uint32_t>PLAIN_ATTRIBUTES or last_delta < 0 or facts.records != <int64_t>last_delta + 1:
        return False
    room = DECOMPRESSED_BYTES_MAX if attributes else size - BATCH_HEADER_BYTES
    if facts.records * RECORD_BYTES_MIN > room:
        return False
    facts.newest_ms = <int64_t>load_big64(p + MAX_TIMESTAMP_AT)
    facts.crc = load_big32(p + CRC_AT)
    facts.has_producer = <int64_t>load_big64(p + PRODUCER_ID_AT) >= 0
    return True


cdef struct Span:
    Py_ssize_t at
    Py_ssize_t size
    int64_t offset
    # Of the offset index: the batch's last offset from the segment's first one on, if it has an entry, and its place.
    bint is_indexed
    uint32_t relative_offset
    uint32_t position
    # Of the time index, if that has an entry too.
    bint is_timed
    int64_t timed_ms
    uint32_t timed_offset


# Where batches are to stand, and what they may be: see `PlainRun.place`.
cdef struct Place:
    int64_t first_offset
    int32_t leader_epoch
    int64_t oldest_ms
    int64_t newest_ms
    int64_t batch_bytes_max
    int64_t base_offset
    int64_t position
    int64_t indexed_at
    int64_t interval_bytes
    int64_t max_timestamp_ms
    int64_t max_timestamp_offset
    int64_t timed_ms


cdef enum:
    SPANS_FEW = 8


cdef void* grown(void* room, const void* few, size_t size) except NULL:
    """Twice as much room as this, which is full; the first one, for a few, is inside its object."""
    cdef void* more = PyMem_Malloc(2 * size)
    if more is NULL:
        raise MemoryError
    memcpy(more, room, size)
    if room != few:
        PyMem_Free(room)
    return more


@cython.final
@cython.no_gc
@cython.freelist(16)
cdef class Run:
    """See `ottla.records.plain.PlainRun`."""

    cdef object _data
    cdef Span* _spans
    cdef Span[SPANS_FEW] _few
    cdef Py_ssize_t _count, _placed, _room, _entries
    cdef int32_t _leader_epoch
    cdef int64_t _last_at
    cdef readonly int64_t size, end_offset, newest_ms
    cdef readonly int64_t max_timestamp_ms, max_timestamp_offset, indexed_at
    cdef readonly bint has_producer
    cdef public int64_t log_start_offset

    def __cinit__(self, object data):
        self._data = data
        self._spans = self._few
        self._room = SPANS_FEW

    def __dealloc__(self):
        if self._spans != self._few:
            PyMem_Free(self._spans)

    def __len__(self):
        return self._count

    cdef int take(self, Py_ssize_t at, Py_ssize_t size) except -1:
        if self._count == self._room:
            self._spans = <Span*>grown(self._spans, self._few, self._room * sizeof(Span))
            self._room *= 2
        self._spans[self._count].at = at
        self._spans[self._count].size = size
        self._spans[self._count].offset = -1
        self._count += 1
        return 0

    def add(self, Py_ssize_t at, Py_ssize_t size):
        if at < 0 or size < 0:
            raise ValueError("nothing stands before the beginning")
        self.take(at, size)

    @property
    def batches(self):
        cdef Py_ssize_t i
        return [self._data[self._spans[i].at : self._spans[i].at + self._spans[i].size] for i in range(self._count)]

    @property
    def offsets(self):
        cdef Py_ssize_t i
        return [self._spans[i].offset for i in range(self._count)]

    @property
    def times(self):
        cdef Py_ssize_t i
        return tuple([
            (self._spans[i].timed_ms, self._spans[i].timed_offset)
            for i in range(self._placed)
            if self._spans[i].is_indexed and self._spans[i].is_timed
        ])

    @property
    def tail(self):
        if not self._count:
            raise IndexError("no batch was added")
        self.require_places()
        return self._spans[self._count - 1].offset, self._last_at

    cdef int require_places(self) except -1:
        """What was worked out for the batches, and how much room it takes, holds for all that were added."""
        if self._placed != self._count:
            raise ValueError("a batch has no place yet")
        return 0

    cdef int hold(self, Py_buffer* buffer) except -1:
        """The bytes, which all spans lie in."""
        cdef Py_ssize_t i
        PyObject_GetBuffer(self._data, buffer, PyBUF_SIMPLE)
        for i in range(self._count):
            if self._spans[i].at > buffer.len or self._spans[i].size > buffer.len - self._spans[i].at:
                PyBuffer_Release(buffer)
                raise ValueError("a batch ends behind what came")
        return 0

    def place(
        self,
        *,
        int64_t first_offset,
        int32_t leader_epoch,
        int64_t oldest_ms,
        int64_t newest_ms,
        int64_t batch_bytes_max,
        int64_t base_offset,
        int64_t position,
        int64_t indexed_at,
        int64_t interval_bytes,
        int64_t max_timestamp_ms,
        int64_t max_timestamp_offset,
        int64_t timed_ms,
    ):
        cdef Place at = Place(
            first_offset, leader_epoch, oldest_ms, newest_ms, batch_bytes_max, base_offset, position, indexed_at,
            interval_bytes, max_timestamp_ms, max_timestamp_offset, timed_ms,
        )
        return self.take_places(&at)

    cdef bint take_places(self, Place* to) except -1:
        """See `PlainRun.place`. What `to` says of indexes and timestamps moves on with the batches."""
        cdef Facts facts
        cdef Py_buffer buffer
        cdef Py_ssize_t i
        cdef const uint8_t* p
        cdef int64_t at = to.position, offset = to.first_offset, last_offset
        cdef Span* span
        cdef object covered
        self.newest_ms, self.has_producer = -1, False
        self._placed = self._entries = 0
        self.hold(&buffer)
        try:
            for i in range(self._count):
                span = self._spans + i
                p = <const uint8_t*>buffer.buf + span.at
                if not take_facts(p, span.size, to.batch_bytes_max, &facts):
                    return False
                if facts.newest_ms < to.oldest_ms or facts.newest_ms > to.newest_ms:
                    return False
                covered = PyMemoryView_FromMemory(<char*>p + ATTRIBUTES_AT, span.size - ATTRIBUTES_AT, PyBUF_READ)
                if <uint32_t>crc32c(covered) != facts.crc:
                    return False
                span.offset = offset
                self._last_at = at
                last_offset = offset + facts.records - 1
                self.has_producer |= facts.has_producer
                if facts.newest_ms > self.newest_ms:
                    self.newest_ms = facts.newest_ms
                if facts.newest_ms > to.max_timestamp_ms:
                    to.max_timestamp_ms, to.max_timestamp_offset = facts.newest_ms, last_offset
                span.is_indexed = at - to.indexed_at > to.interval_bytes
                if span.is_indexed:
                    to.indexed_at = at
                    span.relative_offset = <uint32_t>(last_offset - to.base_offset)
                    span.position = <uint32_t>at
                    self._entries += 1
                    span.is_timed = to.max_timestamp_ms > to.timed_ms
                    if span.is_timed:
                        span.timed_ms = to.timed_ms = to.max_timestamp_ms
                        span.timed_offset = <uint32_t>(to.max_timestamp_offset - to.base_offset)
                offset += facts.records
                at += span.size
        finally:
            PyBuffer_Release(&buffer)
        self._leader_epoch, self._placed = to.leader_epoch, self._count
        self.size, self.end_offset, self.indexed_at = at - to.position, offset, to.indexed_at
        self.max_timestamp_ms, self.max_timestamp_offset = to.max_timestamp_ms, to.max_timestamp_offset
        return True

    def entries(self):
        self.require_places()
        cdef bytes offsets = PyBytes_FromStringAndSize(NULL, self._entries * sizeof(uint32_t))
        cdef bytes positions = PyBytes_FromStringAndSize(NULL, self._entries * sizeof(uint32_t))
        cdef uint32_t* o = <uint32_t*>PyBytes_AS_STRING(offsets)
        cdef uint32_t* p = <uint32_t*>PyBytes_AS_STRING(positions)
        cdef Py_ssize_t i, at = 0
        for i in range(self._count):
            if self._spans[i].is_indexed:
                o[at] = self._spans[i].relative_offset
                p[at] = self._spans[i].position
                at += 1
        return offsets, positions

    cdef bint is_small(self) noexcept:
        """Whether it is cheaper to copy them together than to write each from where it is."""
        return self.size <= JOINED_BYTES_MAX * self._count

    cdef void put_prefixes(self, uint8_t* source) noexcept:
        """Where the batches can be written to: what stands before a checksum is the broker's."""
        cdef Py_ssize_t i
        for i in range(self._count):
            put_prefix(source + self._spans[i].at, self._spans[i].offset, self._spans[i].size, self._leader_epoch)

    cdef bytes join(self, const uint8_t* source):
        """One piece of memory with all of them."""
        cdef bytes joined = PyBytes_FromStringAndSize(NULL, self.size)
        cdef uint8_t* p = <uint8_t*>PyBytes_AS_STRING(joined)
        cdef Py_ssize_t i
        for i in range(self._count):
            memcpy(p, source + self._spans[i].at, self._spans[i].size)
            put_prefix(p, self._spans[i].offset, self._spans[i].size, self._leader_epoch)
            p += self._spans[i].size
        return joined

    def parts(self):
        cdef uint8_t[BATCH_PREFIX_BYTES] prefix
        cdef Py_buffer buffer
        cdef list parts = []
        cdef Py_ssize_t i
        cdef Span* span
        self.hold(&buffer)
        try:
            self.require_places()
            if self.is_small():
                return [self.join(<const uint8_t*>buffer.buf)]
            if not buffer.readonly:
                self.put_prefixes(<uint8_t*>buffer.buf)
            for i in range(self._count):
                span = self._spans + i
                if buffer.readonly:
                    put_prefix(prefix, span.offset, span.size, self._leader_epoch)
                    parts.append(PyBytes_FromStringAndSize(<char*>prefix, BATCH_PREFIX_BYTES))
                    parts.append(self._data[span.at + BATCH_PREFIX_BYTES : span.at + span.size])
                else:
                    parts.append(self._data[span.at : span.at + span.size])
        finally:
            PyBuffer_Release(&buffer)
        return parts
