# Records to columns in Arrow's layout: offsets and data for bytes, one bit per row for "not null".

cdef enum:
    WANT_OFFSET = 1
    WANT_TIMESTAMP = 2
    WANT_TIMESTAMP_TYPE = 4
    WANT_KEY = 8
    WANT_VALUE = 16
    WANT_HEADERS = 32
    GROWTH_BYTES_MIN = 1024


cdef class Growing:
    """A byte array that we fill through a pointer; nobody else holds it until `take`."""

    cdef bytearray _bytes
    cdef Py_ssize_t capacity

    def __cinit__(self):
        self._bytes = bytearray()
        self.capacity = 0

    cdef uint8_t* room(self, Py_ssize_t needed) except NULL:
        """Where the bytes are, at least `needed` of them."""
        if needed > self.capacity:
            needed = max(needed, 2 * self.capacity, <Py_ssize_t>GROWTH_BYTES_MIN)
            PyByteArray_Resize(self._bytes, needed)
            self.capacity = needed
        return <uint8_t*>PyByteArray_AS_STRING(self._bytes)

    cdef bytearray take(self, Py_ssize_t used):
        cdef bytearray taken = self._bytes
        PyByteArray_Resize(taken, used)
        self._bytes = bytearray()
        self.capacity = 0
        return taken


cdef struct BytesColumn:
    int32_t* offsets
    uint8_t* valid
    uint8_t* data
    int64_t rows
    int64_t rows_max
    int64_t used
    int64_t data_max
    int64_t nulls


cdef inline bint has_room(const BytesColumn* column, int64_t rows, int64_t length) noexcept nogil:
    return column.rows_max - column.rows >= rows and column.data_max - column.used >= length


cdef inline void put_bytes(BytesColumn* column, const uint8_t* data, int32_t length) noexcept nogil:
    cdef int64_t row = column.rows
    if row & 7 == 0:
        column.valid[row >> 3] = 0
    if length < 0:
        column.nulls += 1
    else:
        column.valid[row >> 3] |= <uint8_t>(1 << (row & 7))
        if length > 0:
            memcpy(column.data + column.used, data, length)
            column.used += length
    column.rows = row + 1
    column.offsets[row + 1] = <int32_t>column.used


cdef class BytesBuilder:
    """The three buffers of one column of bytes."""

    cdef Growing offsets, valid, data
    cdef BytesColumn column

    def __cinit__(self):
        self.offsets, self.valid, self.data = Growing(), Growing(), Growing()
        self.column = BytesColumn(NULL, NULL, NULL, 0, 0, 0, 0, 0)

    cdef int reserve(self, int64_t rows, int64_t length) except -1:
        """Room for so many more rows and bytes, and the pointers to it."""
        cdef BytesColumn* column = &self.column
        column.offsets = <int32_t*>self.offsets.room(4 * (column.rows + rows + 1))
        column.valid = self.valid.room((column.rows + rows) // 8 + 1)
        column.data = self.data.room(column.used + length + 1)
        column.rows_max = min(self.offsets.capacity // 4 - 1, 8 * self.valid.capacity)
        column.data_max = self.data.capacity
        column.offsets[0] = 0
        return 0

    cdef tuple take(self):
        """Validity (None when nothing is null), offsets, data."""
        cdef BytesColumn* column = &self.column
        self.reserve(0, 0)
        return (
            self.valid.take((column.rows + 7) // 8) if column.nulls else None,
            self.offsets.take(4 * (column.rows + 1)),
            self.data.take(column.used),
        )


cdef struct Wanted:
    int flags
    int64_t start_offset
    int64_t end_offset
    int64_t base_offset
    uint64_t base_timestamp
    int64_t append_time
    bint is_append_time
    int32_t last_offset_delta


cdef struct Target:
    int64_t row
    int64_t row_max
    int64_t* offset
    int64_t* timestamp
    int32_t* timestamp_type
    int32_t* header_ends
    BytesColumn* key
    BytesColumn* value
    BytesColumn* header_key
    BytesColumn* header_value


cdef Status put_headers(const uint8_t* p, const uint8_t* end, Target* to, bint selected) noexcept nogil:
    cdef int32_t count = 0, key_length = 0, value_length = 0
    cdef const uint8_t* key = NULL
    cdef const uint8_t* value = NULL
    cdef Status status = take_header_count(&p, end, &count)
    while status == DONE and count > 0:
        count -= 1
        status = take_header_key(&p, end, &key, &key_length)
        if status == DONE:
            status = take_field(&p, end, &value, &value_length)
        if status == DONE and selected:
            put_bytes(to.header_key, key, key_length)
            put_bytes(to.header_value, value, value_length)
    if status == DONE and p != end:
        return RECORD_END
    return status


cdef inline bint target_has_room(const Target* to, int flags, const Parsed* record) noexcept nogil:
    """Whether this record fits; a header takes two bytes at least, so their number is bounded as well."""
    cdef int64_t headers_length = record.end - record.headers
    if to.row >= to.row_max:
        return False
    if flags & WANT_KEY and not has_room(to.key, 1, record.key_length):
        return False
    if flags & WANT_VALUE and not has_room(to.value, 1, record.value_length):
        return False
    if flags & WANT_HEADERS:
        if not has_room(to.header_key, headers_length // 2, headers_length):
            return False
        if not has_room(to.header_value, headers_length // 2, headers_length):
            return False
    return True


cdef inline bint would_pass_limit(const Target* to, int flags, const Parsed* record) noexcept nogil:
    """Whether a column's data would no longer fit Arrow's 32-bit offsets."""
    cdef int64_t limit = INT32_MAX
    cdef int64_t headers_length = record.end - record.headers
    if flags & WANT_KEY and to.key.used + record.key_length > limit:
        return True
    if flags & WANT_VALUE and to.value.used + record.value_length > limit:
        return True
    return flags & WANT_HEADERS and (
        to.header_key.used + headers_length > limit
        or to.header_value.used + headers_length > limit
        or to.header_key.rows + headers_length > limit
    )


cdef Status put_records(
    const uint8_t** at, const uint8_t* end, int64_t* left, const Wanted* wanted, Target* to
) noexcept nogil:
    """Decode until the payload ends, something is wrong, or a record finds no room (FULL: grow, call again)."""
    cdef Parsed record
    cdef Status status
    cdef int64_t offset
    cdef bint selected
    cdef int flags = wanted.flags
    while left[0] > 0:
        status = parse_record(at[0], end, wanted.last_offset_delta, &record)
        if status != DONE:
            return status
        offset = wanted.base_offset + record.offset_delta
        selected = wanted.start_offset <= offset < wanted.end_offset
        if selected:
            if would_pass_limit(to, flags, &record):
                return TOO_LARGE
            if not target_has_room(to, flags, &record):
                return FULL
            if flags & WANT_OFFSET:
                to.offset[to.row] = offset
            if flags & WANT_TIMESTAMP:
                to.timestamp[to.row] = wanted.append_time if wanted.is_append_time else (
                    <int64_t>(wanted.base_timestamp + <uint64_t>record.timestamp_delta)
                )
            if flags & WANT_TIMESTAMP_TYPE:
                to.timestamp_type[to.row] = wanted.is_append_time
            if flags & WANT_KEY:
                put_bytes(to.key, record.key, record.key_length)
            if flags & WANT_VALUE:
                put_bytes(to.value, record.value, record.value_length)
        if flags & WANT_HEADERS:
            status = put_headers(record.headers, record.end, to, selected)
            if status != DONE:
                return status
        if selected:
            to.row += 1
            if flags & WANT_HEADERS:
                to.header_ends[to.row] = <int32_t>to.header_key.rows
        at[0] = record.end
        left[0] -= 1
    return DONE if at[0] == end else TRAILING


cdef Status check_text(const BytesColumn* column, int64_t first_row) noexcept nogil:
    cdef int64_t row
    for row in range(first_row, column.rows):
        if not is_utf8(column.data + column.offsets[row], column.offsets[row + 1] - column.offsets[row]):
            return TEXT
    return DONE


cdef class Columns:
    """Collects the records of many batches as columns; `flags` says which (see `ottla.records.numpy_columns`)."""

    cdef readonly int flags
    cdef Growing _offset, _timestamp, _timestamp_type, _header_ends
    cdef BytesBuilder _key, _value, _header_key, _header_value
    cdef Target _target
    cdef bint _usable
    cdef int64_t _bytes_expected

    def __cinit__(self, int flags, int64_t bytes_expected=0):
        self.flags = flags
        self._usable = True
        # A hint from the caller, who has so many bytes in memory already: values rarely need to grow then.
        self._bytes_expected = min(max(bytes_expected, 0), <int64_t>INT32_MAX)
        self._offset, self._timestamp, self._timestamp_type = Growing(), Growing(), Growing()
        self._header_ends = Growing()
        self._key, self._value = BytesBuilder(), BytesBuilder()
        self._header_key, self._header_value = BytesBuilder(), BytesBuilder()
        self._target = Target(
            0, 0, NULL, NULL, NULL, NULL,
            &self._key.column, &self._value.column, &self._header_key.column, &self._header_value.column,
        )

    @property
    def rows(self):
        """Records collected so far."""
        return self._target.row

    cdef int _reserve(self, int64_t rows, int64_t key, int64_t value, int64_t headers) except -1:
        cdef Target* to = &self._target
        cdef int64_t wanted_rows = to.row + rows
        if self.flags & WANT_OFFSET:
            to.offset = <int64_t*>self._offset.room(8 * wanted_rows)
        if self.flags & WANT_TIMESTAMP:
            to.timestamp = <int64_t*>self._timestamp.room(8 * wanted_rows)
        if self.flags & WANT_TIMESTAMP_TYPE:
            to.timestamp_type = <int32_t*>self._timestamp_type.room(4 * wanted_rows)
        if self.flags & WANT_KEY:
            self._key.reserve(rows, key)
        if self.flags & WANT_VALUE:
            self._value.reserve(rows, value)
        if self.flags & WANT_HEADERS:
            to.header_ends = <int32_t*>self._header_ends.room(4 * (wanted_rows + 1))
            to.header_ends[0] = 0
            self._header_key.reserve(headers // 2, headers)
            self._header_value.reserve(headers // 2, headers)
        to.row_max = wanted_rows
        return 0

    def add(
        self,
        object payload,
        *,
        int64_t count,
        int32_t last_offset_delta,
        int64_t base_offset,
        int64_t base_timestamp,
        object append_time_ms,
        int64_t start_offset,
        int64_t end_offset,
    ):
        """Append the records of one unpacked payload whose offset lies in start_offset..end_offset.

        After an exception the columns are not to be used any more.
        """
        cdef Target* to = &self._target
        cdef View view = View(payload)
        cdef const uint8_t* p = view.data()
        cdef const uint8_t* end = p + view.length()
        cdef int64_t first_header = self._header_key.column.rows
        cdef Status status = FULL
        cdef Parsed record
        cdef Wanted wanted
        wanted.flags = self.flags
        wanted.start_offset = start_offset
        wanted.end_offset = end_offset
        wanted.base_offset = base_offset
        wanted.base_timestamp = <uint64_t>base_timestamp
        wanted.is_append_time = append_time_ms is not None
        wanted.append_time = append_time_ms if append_time_ms is not None else 0
        wanted.last_offset_delta = last_offset_delta
        _require_plausible(count, view.length(), base_offset, last_offset_delta)
        if not self._usable:
            raise ValueError("these columns were taken, failed, or are being added to by another thread")
        self._usable = False
        self._reserve(count, 0, max(view.length(), self._bytes_expected - to.value.used), 0)
        while True:
            with nogil:
                status = put_records(&p, end, &count, &wanted, to)
            if status != FULL:
                break
            if parse_record(p, end, last_offset_delta, &record) != DONE:
                raise _read_fault(RECORD_END)
            self._reserve(count, record.end - p, record.end - p, record.end - p)
        if status == DONE and self.flags & WANT_HEADERS:
            with nogil:
                status = check_text(to.header_key, first_header)
        if status != DONE:
            raise _read_fault(status)
        self._usable = True

    def take(self):
        """Row count, offset, timestamp, timestamp type, key, value, header ends, header key, header value.

        Columns that were not asked for are None. The builder is spent afterwards.
        """
        cdef int64_t rows = self._target.row
        if not self._usable:
            raise ValueError("these columns were taken, failed, or are being added to by another thread")
        self._usable = False
        self._reserve(0, 0, 0, 0)
        return (
            rows,
            self._offset.take(8 * rows) if self.flags & WANT_OFFSET else None,
            self._timestamp.take(8 * rows) if self.flags & WANT_TIMESTAMP else None,
            self._timestamp_type.take(4 * rows) if self.flags & WANT_TIMESTAMP_TYPE else None,
            self._key.take() if self.flags & WANT_KEY else None,
            self._value.take() if self.flags & WANT_VALUE else None,
            self._header_ends.take(4 * (rows + 1)) if self.flags & WANT_HEADERS else None,
            self._header_key.take() if self.flags & WANT_HEADERS else None,
            self._header_value.take() if self.flags & WANT_HEADERS else None,
        )
