# Records to Python values, for readers and for compaction.

cdef inline object _bytes_or_none(const uint8_t* data, int32_t length):
    if length < 0:
        return None
    return PyBytes_FromStringAndSize(<const char*>data, length)


cdef tuple _headers(const uint8_t* p, const uint8_t* end):
    cdef int32_t count = 0, key_length = 0, value_length = 0
    cdef const uint8_t* key = NULL
    cdef const uint8_t* value = NULL
    cdef Status status = take_header_count(&p, end, &count)
    cdef list pairs = []
    while status == DONE and len(pairs) < count:
        status = take_header_key(&p, end, &key, &key_length)
        if status == DONE:
            status = take_field(&p, end, &value, &value_length)
        if status == DONE:
            try:
                text = PyUnicode_DecodeUTF8(<const char*>key, key_length, NULL)
            except UnicodeDecodeError as e:
                raise InvalidText(f"a header key is not UTF-8: {e.reason}") from e
            pairs.append((text, _bytes_or_none(value, value_length)))
    if status == DONE and p != end:
        status = RECORD_END
    if status != DONE:
        raise _read_fault(status)
    return tuple(pairs)


def read_records(
    object payload,
    int64_t count,
    int32_t last_offset_delta,
    int64_t base_offset,
    int64_t base_timestamp,
    object append_time_ms,
    object make,
):
    """A list of what `make` gives for (offset, timestamp, key, value, headers) of each record."""
    cdef View view = View(payload)
    cdef const uint8_t* p = view.data()
    cdef const uint8_t* end = p + view.length()
    cdef Parsed record
    cdef Status status
    cdef int64_t index
    cdef list out = []
    _require_plausible(count, view.length(), base_offset, last_offset_delta)
    for index in range(count):
        status = parse_record(p, end, last_offset_delta, &record)
        if status != DONE:
            raise _read_fault(status)
        if append_time_ms is None:
            # Unsigned, so that it wraps as Java's sum does.
            timestamp_ms = <int64_t>(<uint64_t>base_timestamp + <uint64_t>record.timestamp_delta)
        else:
            timestamp_ms = append_time_ms
        headers = () if record.end - record.headers == 1 and record.headers[0] == 0 else (
            _headers(record.headers, record.end)
        )
        out.append(make((
            base_offset + record.offset_delta,
            timestamp_ms,
            _bytes_or_none(record.key, record.key_length),
            _bytes_or_none(record.value, record.value_length),
            headers,
        )))
        p = record.end
    if p != end:
        raise _read_fault(TRAILING)
    return out


def read_spans(object payload, int64_t start, int64_t count, int32_t last_offset_delta, object make):
    """A list of what `make` gives for (offset delta, timestamp delta, key, value is null, start, end).

    At most `count` records from byte `start` on, which is where the last one of an earlier call ended.
    """
    cdef View view = View(payload)
    cdef const uint8_t* first = view.data()
    cdef const uint8_t* p
    cdef const uint8_t* end = first + view.length()
    cdef Parsed record
    cdef Status status
    cdef int64_t index
    cdef list out = []
    if start < 0 or start > view.length():
        raise InvalidBatch(f"byte {start} lies outside the payload")
    p = first + start
    for index in range(count):
        status = parse_record(p, end, last_offset_delta, &record)
        if status != DONE:
            raise _read_fault(status)
        out.append(make((
            record.offset_delta,
            record.timestamp_delta,
            _bytes_or_none(record.key, record.key_length),
            record.value_length < 0,
            p - first,
            record.end - first,
        )))
        p = record.end
    return out
