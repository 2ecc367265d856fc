# How a record is laid out: its numbers, its text, its fields, and what can be wrong with them.

cdef enum:
    RECORD_BYTES_MIN = 7
    RECORD_BODY_MIN = 6


cdef enum Status:
    DONE = 0
    NUMBER = 1
    RECORD_LENGTH = 2
    OFFSET_DELTA = 3
    FIELD_LENGTH = 4
    HEADER_COUNT = 5
    RECORD_END = 6
    TRAILING = 7
    TEXT = 8
    FULL = 9
    TOO_LARGE = 10
    COLUMN_RANGE = 11
    HEADER_KEY = 12
    SELECTION = 13
    PARTITION = 14


_READ_FAULTS = {
    NUMBER: "a number in a record does not fit, or the record ends in it",
    RECORD_LENGTH: "a record is shorter than possible, or reaches beyond the payload",
    OFFSET_DELTA: "an offset delta lies outside the batch",
    FIELD_LENGTH: "a key, value or header of impossible length",
    HEADER_COUNT: "an impossible number of headers",
    RECORD_END: "a record does not end where its length says",
    TRAILING: "bytes follow the last record",
}


cdef object _read_fault(Status status):
    if status == TEXT:
        return InvalidText("a header key is not UTF-8")
    if status == TOO_LARGE:
        return DecompressionTooLarge("a column would pass 2 GiB: read fewer batches at once")
    return InvalidBatch(_READ_FAULTS[status])


cdef class View:
    """A borrowed buffer of any kind, seen as bytes."""

    cdef Py_buffer buffer
    cdef bint held

    def __cinit__(self, object owner not None):
        PyObject_GetBuffer(owner, &self.buffer, PyBUF_SIMPLE)
        self.held = True

    def __dealloc__(self):
        if self.held:
            PyBuffer_Release(&self.buffer)

    cdef const uint8_t* data(self) noexcept:
        return <const uint8_t*>self.buffer.buf

    cdef int64_t length(self) noexcept:
        return self.buffer.len


cdef int _require_plausible(int64_t count, int64_t length, int64_t base_offset, int32_t last_offset_delta) except -1:
    """What `ottla.records.reader.unpack` has checked already, but our memory depends on it."""
    if count < 0 or count > length // RECORD_BYTES_MIN or base_offset > INT64_MAX - max(last_offset_delta, 0):
        raise InvalidBatch(f"{count} records from offset {base_offset} in {length} bytes")
    return 0


cdef inline Status take_uint(const uint8_t** at, const uint8_t* end, int bits, uint64_t* out) noexcept nogil:
    cdef const uint8_t* p = at[0]
    cdef uint64_t value = 0
    cdef uint64_t byte
    cdef int shift = 0
    while p < end and shift < bits:
        byte = p[0]
        p += 1
        # The last group of a number has room for fewer than seven bits.
        if shift + 7 > bits and (byte & 0x7F) >> (bits - shift):
            return NUMBER
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            at[0] = p
            out[0] = value
            return DONE
        shift += 7
    return NUMBER


cdef inline Status take_int32(const uint8_t** at, const uint8_t* end, int32_t* out) noexcept nogil:
    cdef uint64_t value = 0
    cdef const uint8_t* p = at[0]
    # Most numbers in a record take one byte, lengths often two.
    if p < end and p[0] < 0x80:
        value = p[0]
        at[0] = p + 1
    elif end - p >= 2 and p[1] < 0x80:
        value = (p[0] & 0x7F) | (<uint64_t>p[1] << 7)
        at[0] = p + 2
    elif take_uint(at, end, 32, &value) != DONE:
        return NUMBER
    out[0] = <int32_t>(<uint32_t>(value >> 1) ^ (0 - <uint32_t>(value & 1)))
    return DONE


cdef inline Status take_int64(const uint8_t** at, const uint8_t* end, int64_t* out) noexcept nogil:
    cdef uint64_t value = 0
    cdef const uint8_t* p = at[0]
    if p < end and p[0] < 0x80:
        value = p[0]
        at[0] = p + 1
    elif take_uint(at, end, 64, &value) != DONE:
        return NUMBER
    out[0] = <int64_t>((value >> 1) ^ (0 - (value & 1)))
    return DONE


cdef inline uint64_t zigzag(int64_t value) noexcept nogil:
    return (<uint64_t>value << 1) ^ (0 - (<uint64_t>value >> 63))


cdef inline int varint_size(int64_t value) noexcept nogil:
    cdef uint64_t left = zigzag(value)
    cdef int size = 1
    while left >= 0x80:
        left >>= 7
        size += 1
    return size


cdef inline uint8_t* put_int(uint8_t* p, int64_t value) noexcept nogil:
    cdef uint64_t left = zigzag(value)
    while left >= 0x80:
        p[0] = <uint8_t>(left & 0x7F) | 0x80
        p += 1
        left >>= 7
    p[0] = <uint8_t>left
    return p + 1


cdef inline uint8_t* put_field(uint8_t* p, const uint8_t* data, int64_t length) noexcept nogil:
    p = put_int(p, length)
    if length > 0:
        memcpy(p, data, length)
        p += length
    return p


cdef inline int64_t field_size(int64_t length) noexcept nogil:
    return varint_size(length) + (length if length > 0 else 0)


cdef bint is_utf8(const uint8_t* p, int64_t length) noexcept nogil:
    """UTF-8 as Unicode defines it: no surrogates, no overlong forms, nothing past U+10FFFF."""
    cdef const uint8_t* end = p + length
    cdef uint8_t lead, low, high
    cdef int more, index
    while p < end:
        lead = p[0]
        p += 1
        if lead < 0x80:
            continue
        low, high = 0x80, 0xBF
        if 0xC2 <= lead <= 0xDF:
            more = 1
        elif 0xE0 <= lead <= 0xEF:
            more = 2
            if lead == 0xE0:
                low = 0xA0
            elif lead == 0xED:
                high = 0x9F
        elif 0xF0 <= lead <= 0xF4:
            more = 3
            if lead == 0xF0:
                low = 0x90
            elif lead == 0xF4:
                high = 0x8F
        else:
            return False
        if end - p < more or not low <= p[0] <= high:
            return False
        for index in range(1, more):
            if p[index] & 0xC0 != 0x80:
                return False
        p += more
    return True


cdef struct Parsed:
    int64_t timestamp_delta
    int32_t offset_delta
    const uint8_t* key
    int32_t key_length
    const uint8_t* value
    int32_t value_length
    const uint8_t* headers
    const uint8_t* end


cdef inline Status take_field(
    const uint8_t** at, const uint8_t* end, const uint8_t** field, int32_t* length
) noexcept nogil:
    cdef int32_t claimed = 0
    if take_int32(at, end, &claimed) != DONE:
        return NUMBER
    if claimed < -1 or claimed > end - at[0]:
        return FIELD_LENGTH
    field[0] = at[0]
    length[0] = claimed
    if claimed > 0:
        at[0] += claimed
    return DONE


cdef inline Status parse_record(
    const uint8_t* p, const uint8_t* end, int32_t last_offset_delta, Parsed* out
) noexcept nogil:
    """Everything up to the headers; at least their count is there."""
    cdef int32_t length = 0
    cdef Status status
    if take_int32(&p, end, &length) != DONE:
        return NUMBER
    if length < RECORD_BODY_MIN or length > end - p:
        return RECORD_LENGTH
    out.end = p + length
    p += 1
    if take_int64(&p, out.end, &out.timestamp_delta) != DONE:
        return NUMBER
    if take_int32(&p, out.end, &out.offset_delta) != DONE:
        return NUMBER
    if out.offset_delta < 0 or out.offset_delta > last_offset_delta:
        return OFFSET_DELTA
    status = take_field(&p, out.end, &out.key, &out.key_length)
    if status != DONE:
        return status
    status = take_field(&p, out.end, &out.value, &out.value_length)
    if status != DONE:
        return status
    if p >= out.end:
        return RECORD_END
    out.headers = p
    return DONE


cdef inline Status take_header_count(const uint8_t** at, const uint8_t* end, int32_t* out) noexcept nogil:
    if take_int32(at, end, out) != DONE:
        return NUMBER
    # A header takes two bytes at least.
    if out[0] < 0 or out[0] > (end - at[0]) // 2:
        return HEADER_COUNT
    return DONE


cdef inline Status take_header_key(
    const uint8_t** at, const uint8_t* end, const uint8_t** key, int32_t* length
) noexcept nogil:
    cdef Status status = take_field(at, end, key, length)
    if status == DONE and length[0] < 0:
        return FIELD_LENGTH
    return status
