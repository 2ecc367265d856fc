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
    const uint8_t* p, int64_t size, int64_t batch_bytes_max, int64_t decompressed_bytes_max, Facts* facts
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
    room = decompressed_bytes_max if attributes else size - BATCH_HEADER_BYTES
    if facts.records * RECORD_BYTES_MIN > room:
        return False
    facts.newest_ms = <int64_t>load_big64(p + MAX_TIMESTAMP_AT)
    facts.crc = load_big32(p + CRC_AT)
    facts.has_producer = <int64_t>load_big64(p + PRODUCER_ID_AT) >= 0
    return True


cdef bytes join_run(list batches, list offsets, int64_t size, int32_t leader_epoch):
    """One piece of memory with all of them."""
    cdef bytes joined = PyBytes_FromStringAndSize(NULL, size)
    cdef uint8_t* p = <uint8_t*>PyBytes_AS_STRING(joined)
    cdef Py_buffer buffer
    cdef int64_t length, left = size
    cdef object batch, offset
    for batch, offset in zip(batches, offsets):
        PyObject_GetBuffer(batch, &buffer, PyBUF_SIMPLE)
        try:
            length = buffer.len
            if length < BATCH_PREFIX_BYTES or length > left:
                raise ValueError("a batch changed its size")
            memcpy(p, buffer.buf, length)
        finally:
            PyBuffer_Release(&buffer)
        put_prefix(p, offset, length, leader_epoch)
        p += length
        left -= length
    if left:
        raise ValueError("a batch changed its size")
    return joined


cdef list part_run(list batches, list offsets, int32_t leader_epoch):
    """Each where it is. What stands before the checksum is ours to write, where the memory allows it."""
    cdef uint8_t[BATCH_PREFIX_BYTES] prefix
    cdef Py_buffer buffer
    cdef list parts = []
    cdef object batch, offset
    for batch, offset in zip(batches, offsets):
        PyObject_GetBuffer(batch, &buffer, PyBUF_SIMPLE)
        try:
            if buffer.len < BATCH_PREFIX_BYTES:
                raise ValueError("a batch changed its size")
            if buffer.readonly:
                put_prefix(prefix, offset, buffer.len, leader_epoch)
                parts.append(PyBytes_FromStringAndSize(<char*>prefix, BATCH_PREFIX_BYTES))
                parts.append(batch[BATCH_PREFIX_BYTES:])
            else:
                put_prefix(<uint8_t*>buffer.buf, offset, buffer.len, leader_epoch)
                parts.append(batch)
        finally:
            PyBuffer_Release(&buffer)
    return parts


def plan_run(
    list batches not None,
    object checksum,
    int64_t first_offset,
    int32_t leader_epoch,
    int64_t oldest_ms,
    int64_t newest_ms,
    int64_t batch_bytes_max,
    int64_t decompressed_bytes_max,
    int64_t joined_bytes_max,
    int64_t base_offset,
    int64_t position,
    int64_t indexed_at,
    int64_t interval_bytes,
    int64_t max_timestamp_ms,
    int64_t max_timestamp_offset,
    int64_t timed_ms,
):
    """See `ottla.records.plain.plan_run_plain`."""
    cdef Facts facts
    cdef Py_buffer buffer
    cdef list offsets = [], entry_offsets = [], entry_positions = [], times = []
    cdef int64_t size = 0, offset = first_offset, latest_ms = -1, first_ms = -1, last_at = 0, last_offset
    cdef bint has_producer = False
    cdef object batch, covered
    for batch in batches:
        PyObject_GetBuffer(batch, &buffer, PyBUF_SIMPLE)
        try:
            if not take_facts(<const uint8_t*>buffer.buf, buffer.len, batch_bytes_max, decompressed_bytes_max, &facts):
                return None
            if facts.newest_ms < oldest_ms or facts.newest_ms > newest_ms:
                return None
            covered = PyMemoryView_FromMemory(<char*>buffer.buf + ATTRIBUTES_AT, buffer.len - ATTRIBUTES_AT, PyBUF_READ)
            if <uint32_t>checksum(covered) != facts.crc:
                return None
        finally:
            PyBuffer_Release(&buffer)
        if not offsets:
            first_ms = facts.newest_ms
        offsets.append(offset)
        last_at = position + size
        last_offset = offset + facts.records - 1
        has_producer |= facts.has_producer
        if facts.newest_ms > latest_ms:
            latest_ms = facts.newest_ms
        if facts.newest_ms > max_timestamp_ms:
            max_timestamp_ms, max_timestamp_offset = facts.newest_ms, last_offset
        if last_at - indexed_at > interval_bytes:
            indexed_at = last_at
            entry_offsets.append(last_offset - base_offset)
            entry_positions.append(last_at)
            if max_timestamp_ms > timed_ms:
                timed_ms = max_timestamp_ms
                times.append((timed_ms, max_timestamp_offset - base_offset))
        offset += facts.records
        size += facts.size
    if size <= joined_bytes_max * len(batches):
        parts = [join_run(batches, offsets, size, leader_epoch)]
    else:
        parts = part_run(batches, offsets, leader_epoch)
    return (
        parts, offsets, offset, size, latest_ms, has_producer,
        first_ms, last_at, max_timestamp_ms, max_timestamp_offset, indexed_at, entry_offsets, entry_positions, times,
    )
