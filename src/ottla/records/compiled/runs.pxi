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
    object batch, int64_t batch_bytes_max, int64_t decompressed_bytes_max, Facts* facts
) except -1:
    """What a batch says of itself; false unless it is a plain one."""
    cdef Py_buffer buffer
    cdef const uint8_t* p
    cdef uint32_t attributes
    cdef int32_t last_delta
    cdef int64_t room
    PyObject_GetBuffer(batch, &buffer, PyBUF_SIMPLE)
    try:
        facts.size = buffer.len
        if facts.size < BATCH_HEADER_BYTES or facts.size > batch_bytes_max:
            return False
        p = <const uint8_t*>buffer.buf
        if <int32_t>load_big32(p + LENGTH_AT) != facts.size - BATCH_OVERHEAD_BYTES or p[MAGIC_AT] != BATCH_MAGIC:
            return False
        attributes = <uint32_t>p[ATTRIBUTES_AT] << 8 | p[ATTRIBUTES_AT + 1]
        last_delta = <int32_t>load_big32(p + LAST_DELTA_AT)
        facts.records = <int32_t>load_big32(p + RECORD_COUNT_AT)
        if attributes & ~<uint32_t>PLAIN_ATTRIBUTES or last_delta < 0 or facts.records != <int64_t>last_delta + 1:
            return False
        room = decompressed_bytes_max if attributes else facts.size - BATCH_HEADER_BYTES
        if facts.records * RECORD_BYTES_MIN > room:
            return False
        facts.newest_ms = <int64_t>load_big64(p + MAX_TIMESTAMP_AT)
        facts.crc = load_big32(p + CRC_AT)
        facts.has_producer = <int64_t>load_big64(p + PRODUCER_ID_AT) >= 0
    finally:
        PyBuffer_Release(&buffer)
    return True


cdef bytes join_run(list batches, list places, int64_t size, int32_t leader_epoch):
    """One piece of memory with all of them."""
    cdef bytes joined = PyBytes_FromStringAndSize(NULL, size)
    cdef uint8_t* p = <uint8_t*>PyBytes_AS_STRING(joined)
    cdef Py_buffer buffer
    cdef int64_t offset, length, left = size
    cdef object batch, place
    for batch, place in zip(batches, places):
        offset, length = place[0], place[3]
        PyObject_GetBuffer(batch, &buffer, PyBUF_SIMPLE)
        try:
            if buffer.len != length or length > left:
                raise ValueError("a batch changed its size")
            memcpy(p, buffer.buf, length)
        finally:
            PyBuffer_Release(&buffer)
        put_prefix(p, offset, length, leader_epoch)
        p += length
        left -= length
    return joined


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
):
    """See `ottla.records.plain.plan_run_plain`."""
    cdef Facts facts
    cdef uint8_t[BATCH_PREFIX_BYTES] prefix
    cdef list parts = [], places = []
    cdef int64_t size = 0, offset = first_offset, latest_ms = -1
    cdef bint has_producer = False
    cdef object batch
    for batch in batches:
        if not take_facts(batch, batch_bytes_max, decompressed_bytes_max, &facts):
            return None
        if facts.newest_ms < oldest_ms or facts.newest_ms > newest_ms:
            return None
        if <uint32_t>checksum(batch[ATTRIBUTES_AT:]) != facts.crc:
            return None
        has_producer |= facts.has_producer
        places.append((offset, offset + facts.records - 1, facts.newest_ms, facts.size))
        offset += facts.records
        size += facts.size
        if facts.newest_ms > latest_ms:
            latest_ms = facts.newest_ms
    if size <= joined_bytes_max * len(batches):
        parts.append(join_run(batches, places, size, leader_epoch))
        return parts, places, size, latest_ms, has_producer
    for batch, place in zip(batches, places):
        put_prefix(prefix, place[0], place[3], leader_epoch)
        parts.append(PyBytes_FromStringAndSize(<char*>prefix, BATCH_PREFIX_BYTES))
        parts.append(batch[BATCH_PREFIX_BYTES:])
    return parts, places, size, latest_ms, has_producer
