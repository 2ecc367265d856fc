# Records to the bytes inside a batch: from Python tuples, and from columns in Arrow's layout.

cdef enum:
    HEADER_ROOM = 61
    FIRST_GUESS_BYTES_MAX = 1048576


cdef tuple _NOTHING = ()


cdef inline int64_t record_body_size(
    int64_t timestamp_delta, int64_t index, int64_t key_length, int64_t value_length, int64_t headers_size
) noexcept nogil:
    return (
        1 + varint_size(timestamp_delta) + varint_size(index)
        + field_size(key_length) + field_size(value_length) + headers_size
    )


cdef inline uint8_t* put_record_start(
    uint8_t* p, int64_t body_size, int64_t timestamp_delta, int64_t index,
    const uint8_t* key, int64_t key_length, const uint8_t* value, int64_t value_length,
) noexcept nogil:
    """Everything but the headers."""
    p = put_int(p, body_size)
    p[0] = 0
    p = put_int(p + 1, timestamp_delta)
    p = put_int(p, index)
    p = put_field(p, key, key_length)
    return put_field(p, value, value_length)


cdef object _beyond(int64_t index, int64_t bytes_max):
    return InvalidRecord(f"record {index}: the batch would grow beyond {bytes_max} bytes of records")


cdef int64_t _length(object field, int64_t index, str name) except -2:
    """Of a key or a value; -1 for None."""
    if field is None:
        return -1
    if not PyBytes_Check(field):
        raise InvalidRecord(f"record {index}: {name} is {type(field).__name__}, not bytes or None")
    return PyBytes_GET_SIZE(field)


cdef inline const uint8_t* _data(object field) noexcept:
    if field is None:
        return NULL
    return <const uint8_t*>PyBytes_AS_STRING(field)


cdef tuple _tuple_of(object values, Py_ssize_t size, int64_t index, str what):
    """`values` as a tuple of `size` (any, when negative), which nobody can change under us."""
    cdef tuple out
    try:
        out = values if type(values) is tuple else tuple(values)
    except TypeError as e:
        raise InvalidRecord(f"record {index}: {what}") from e
    if size >= 0 and len(out) != size:
        raise InvalidRecord(f"record {index}: {what}")
    return out


cdef tuple _header_pairs(object headers, int64_t index, int64_t* size):
    """The headers as a tuple of checked tuples, and the bytes they will take with their count."""
    cdef tuple pair
    cdef Py_ssize_t key_length = 0
    cdef list pairs = []
    cdef tuple given = _tuple_of(headers, -1, index, "the headers are not a sequence")
    cdef int64_t total = varint_size(len(given))
    for entry in given:
        pair = _tuple_of(entry, 2, index, "a header is not a key and a value")
        if not PyUnicode_Check(pair[0]):
            raise InvalidRecord(f"record {index}: a header's key is {type(pair[0]).__name__}, not str")
        try:
            PyUnicode_AsUTF8AndSize(pair[0], &key_length)
        except UnicodeEncodeError as e:
            raise InvalidRecord(f"record {index}: a header's key is not Unicode text") from e
        total += field_size(key_length) + field_size(_length(pair[1], index, "a header's value"))
        pairs.append(pair)
    size[0] = total
    return tuple(pairs)


cdef uint8_t* _put_header_pairs(uint8_t* p, tuple pairs) except NULL:
    cdef Py_ssize_t key_length = 0
    cdef const char* key
    cdef tuple pair
    p = put_int(p, len(pairs))
    for pair in pairs:
        # The text was encoded, and its bytes kept by the string, when the size was counted.
        key = PyUnicode_AsUTF8AndSize(pair[0], &key_length)
        p = put_field(p, <const uint8_t*>key, key_length)
        p = put_field(p, _data(pair[1]), -1 if pair[1] is None else PyBytes_GET_SIZE(pair[1]))
    return p


def pack_records(object records, int64_t bytes_max):
    """See `ottla.records.packing.pack_records`."""
    cdef tuple record, pairs
    cdef int64_t base_timestamp = 0, max_timestamp = 0, delta = 0, key_length, value_length, body_size, headers_size
    cdef int64_t index, used = HEADER_ROOM, size
    cdef long long timestamp_ms
    cdef int overflow = 0
    cdef uint8_t* p
    cdef Growing out = Growing()
    cdef tuple rows
    bytes_max = min(bytes_max, <int64_t>INT32_MAX)
    try:
        rows = tuple(records)
    except TypeError as e:
        raise InvalidRecord("the records are not a sequence") from e
    for index in range(len(rows)):
        record = _tuple_of(rows[index], 4, index, "not a key, value, timestamp and headers")
        key_length = _length(record[0], index, "the key")
        value_length = _length(record[1], index, "the value")
        if not PyLong_Check(record[2]):
            raise InvalidRecord(f"record {index}: the timestamp is {type(record[2]).__name__}, not int")
        timestamp_ms = PyLong_AsLongLongAndOverflow(record[2], &overflow)
        if overflow:
            raise InvalidRecord(f"record {index}: the timestamp does not fit 64 bits")
        if index == 0:
            base_timestamp = max_timestamp = timestamp_ms
        elif timestamp_ms > max_timestamp:
            max_timestamp = timestamp_ms
        # Unsigned, so that it wraps as Java's difference does.
        delta = <int64_t>(<uint64_t>timestamp_ms - <uint64_t>base_timestamp)
        if record[3] is _NOTHING or (type(record[3]) is list and len(<list>record[3]) == 0):
            pairs, headers_size = (), 1
        else:
            pairs = _header_pairs(record[3], index, &headers_size)
        body_size = record_body_size(delta, index, key_length, value_length, headers_size)
        size = varint_size(body_size) + body_size
        if used - HEADER_ROOM + size > bytes_max:
            raise _beyond(index, bytes_max)
        if index == 0:
            # Most batches hold records of one size; a first guess saves most of the growing.
            out.room(used + min((size + 8) * <int64_t>len(rows), <int64_t>FIRST_GUESS_BYTES_MAX))
        p = out.room(used + size) + used
        p = put_record_start(
            p, body_size, delta, index, _data(record[0]), key_length, _data(record[1]), value_length
        )
        _put_header_pairs(p, pairs)
        used += size
    if not rows:
        raise InvalidRecord("a batch needs at least one record")
    memset(out.room(used), 0, HEADER_ROOM)
    return out.take(used), len(rows), base_timestamp, max_timestamp


def pack_values(tuple values, *, long long timestamp_ms, int64_t bytes_max):
    """See `ottla.records.packing.pack_values`."""
    cdef int64_t index, size, body_size, total = HEADER_ROOM, count = len(values)
    cdef object value
    cdef uint8_t* p
    cdef Growing out = Growing()
    bytes_max = min(bytes_max, <int64_t>INT32_MAX)
    for index in range(count):
        value = values[index]
        if type(value) is not bytes:
            return None
        body_size = record_body_size(0, index, -1, PyBytes_GET_SIZE(value), 1)
        total += varint_size(body_size) + body_size
        if total - HEADER_ROOM > bytes_max:
            raise _beyond(index, bytes_max)
    if count == 0:
        return None
    p = out.room(total)
    memset(p, 0, HEADER_ROOM)
    p += HEADER_ROOM
    for index in range(count):
        value = values[index]
        size = PyBytes_GET_SIZE(value)
        body_size = record_body_size(0, index, -1, size, 1)
        p = put_record_start(p, body_size, 0, index, NULL, -1, <const uint8_t*>PyBytes_AS_STRING(value), size)
        # No headers.
        p[0] = 0
        p += 1
    return out.take(total), count, timestamp_ms, timestamp_ms


cdef struct Source:
    bint absent
    int64_t first
    const uint8_t* valid
    const uint8_t* offsets
    const uint8_t* data
    int64_t data_length


cdef inline bint is_set(const uint8_t* bits, int64_t index) noexcept nogil:
    return bits == NULL or (bits[index >> 3] >> (index & 7)) & 1


cdef inline int32_t load_int32(const uint8_t* base, int64_t index) noexcept nogil:
    """Slices of a buffer need not be aligned."""
    cdef int32_t out
    memcpy(&out, base + 4 * index, 4)
    return out


cdef Status column_field(const Source* source, int64_t row, const uint8_t** data, int32_t* length) noexcept nogil:
    cdef int32_t start, end
    data[0] = NULL
    length[0] = -1
    if source.absent or not is_set(source.valid, source.first + row):
        return DONE
    start = load_int32(source.offsets, source.first + row)
    end = load_int32(source.offsets, source.first + row + 1)
    if start < 0 or end < start or end > source.data_length:
        return COLUMN_RANGE
    data[0] = source.data + start
    length[0] = end - start
    return DONE


cdef class SourceColumn:
    """A column that was handed to us, its buffers held and measured."""

    cdef View valid, offsets, data
    cdef Source source

    def __cinit__(self, object column, int64_t rows, str name, int width):
        """`column`: None, or (first row, validity, offsets, data). A `width` of 0: values lie between offsets; else there are none."""
        cdef int64_t last
        self.source = Source(True, 0, NULL, NULL, NULL, 0)
        if column is None or rows == 0:
            return
        first, valid, offsets, data = column
        self.source.absent = False
        self.source.first = first
        if self.source.first < 0 or self.source.first > <int64_t>INT32_MAX or rows > <int64_t>INT32_MAX:
            raise InvalidRecord(f"the column of {name} has an impossible length")
        last = self.source.first + rows
        if valid is not None:
            self.valid = View(valid)
            self.source.valid = self.valid.data()
            if self.valid.length() < (last + 7) // 8:
                raise InvalidRecord(f"the column of {name} has too short a validity bitmap")
        if (offsets is None) == (width == 0):
            raise InvalidRecord(f"the column of {name} has {'no' if width == 0 else 'no use for'} offsets")
        if offsets is not None:
            self.offsets = View(offsets)
            self.source.offsets = self.offsets.data()
            if self.offsets.length() < 4 * (last + 1):
                raise InvalidRecord(f"the column of {name} has too few offsets")
        self.data = View(data if data is not None else b"")
        self.source.data = self.data.data()
        self.source.data_length = self.data.length()
        if self.source.data_length < width * last:
            raise InvalidRecord(f"the column of {name} has too few values")


cdef struct ColumnsIn:
    const Source* key
    const Source* value
    const Source* timestamp
    const Source* lists
    const Source* header_key
    const Source* header_value
    int64_t header_rows
    const uint8_t* selected
    int64_t rows_there
    int64_t default_timestamp
    int64_t base_timestamp
    int64_t max_timestamp
    int64_t bytes_max
    int64_t cut_bytes


cdef Status count_headers(const ColumnsIn* given, int32_t start, int32_t end, int64_t* size) noexcept nogil:
    cdef const uint8_t* data = NULL
    cdef int32_t length = 0
    cdef int64_t row, total = varint_size(end - start)
    cdef Status status
    for row in range(start, end):
        status = column_field(given.header_key, row, &data, &length)
        if status != DONE:
            return status
        if length < 0:
            return HEADER_KEY
        if not is_utf8(data, length):
            return TEXT
        total += field_size(length)
        status = column_field(given.header_value, row, &data, &length)
        if status != DONE:
            return status
        total += field_size(length)
    size[0] = total
    return DONE


cdef Status put_column_headers(
    const ColumnsIn* given, int32_t start, int32_t end, uint8_t* p, const uint8_t* limit
) noexcept nogil:
    """Counted before, but the columns may be somebody's to change: nothing is written past `limit`."""
    cdef const uint8_t* key = NULL
    cdef const uint8_t* value = NULL
    cdef int32_t key_length = 0, value_length = 0
    cdef int64_t row
    p = put_int(p, end - start)
    for row in range(start, end):
        if column_field(given.header_key, row, &key, &key_length) != DONE or key_length < 0:
            return COLUMN_RANGE
        if column_field(given.header_value, row, &value, &value_length) != DONE:
            return COLUMN_RANGE
        if limit - p < field_size(key_length) + field_size(value_length):
            return COLUMN_RANGE
        p = put_field(put_field(p, key, key_length), value, value_length)
    return DONE if p == limit else COLUMN_RANGE


cdef inline Status selected_row(const ColumnsIn* given, int64_t at, int64_t* row) noexcept nogil:
    """Which row of the columns comes at this place; never one that they do not have."""
    row[0] = at
    if given.selected != NULL:
        row[0] = load_int32(given.selected, at)
        if row[0] < 0 or row[0] >= given.rows_there:
            return SELECTION
    return DONE


cdef Status put_rows(
    ColumnsIn* given, int64_t first, int64_t end, int64_t* at, uint8_t* out, int64_t* used, int64_t capacity,
    int64_t* needed
) noexcept nogil:
    """Write the records at these places until they end, one is wrong, the batch has enough, or one finds no room
    (FULL: grow, call again)."""
    cdef const uint8_t* key = NULL
    cdef const uint8_t* value = NULL
    cdef int32_t key_length = 0, value_length = 0, header_start = 0, header_end = 0
    cdef int64_t timestamp_ms, delta, body_size, size, headers_size = 1, row = 0, cell
    cdef uint8_t* p
    cdef Status status
    while at[0] < end:
        status = selected_row(given, at[0], &row)
        if status == DONE:
            status = column_field(given.key, row, &key, &key_length)
        if status == DONE:
            status = column_field(given.value, row, &value, &value_length)
        if status != DONE:
            return status
        timestamp_ms = given.default_timestamp
        cell = given.timestamp.first + row
        if not given.timestamp.absent and is_set(given.timestamp.valid, cell):
            memcpy(&timestamp_ms, given.timestamp.data + 8 * cell, 8)
        header_start = header_end = 0
        cell = given.lists.first + row
        if not given.lists.absent and is_set(given.lists.valid, cell):
            header_start = load_int32(given.lists.offsets, cell)
            header_end = load_int32(given.lists.offsets, cell + 1)
            if header_start < 0 or header_end < header_start or header_end > given.header_rows:
                return COLUMN_RANGE
        status = count_headers(given, header_start, header_end, &headers_size)
        if status != DONE:
            return status
        if at[0] == first:
            given.base_timestamp = given.max_timestamp = timestamp_ms
        delta = <int64_t>(<uint64_t>timestamp_ms - <uint64_t>given.base_timestamp)
        body_size = record_body_size(delta, at[0] - first, key_length, value_length, headers_size)
        size = varint_size(body_size) + body_size
        if at[0] > first and given.cut_bytes > 0 and used[0] + size > given.cut_bytes:
            return DONE
        if used[0] - HEADER_ROOM + size > given.bytes_max:
            return TOO_LARGE
        if size > capacity - used[0]:
            needed[0] = size
            return FULL
        if timestamp_ms > given.max_timestamp:
            given.max_timestamp = timestamp_ms
        p = put_record_start(out + used[0], body_size, delta, at[0] - first, key, key_length, value, value_length)
        status = put_column_headers(given, header_start, header_end, p, out + used[0] + size)
        if status != DONE:
            return status
        used[0] += size
        at[0] += 1
    return DONE


cdef object _column_fault(Status status, int64_t row, int64_t bytes_max):
    if status == TOO_LARGE:
        return _beyond(row, bytes_max)
    if status == TEXT:
        return InvalidRecord(f"record {row}: a header's key is not Unicode text")
    if status == HEADER_KEY:
        return InvalidRecord(f"record {row}: a header without a key")
    if status == SELECTION:
        return InvalidRecord(f"place {row}: a row that the columns do not have")
    return InvalidRecord(f"record {row}: a column's offsets do not fit its data")


cdef class PackedColumns:
    """The columns that records are made of, held and measured once for any number of batches.

    Key and value: None, or (first row, validity or None, offsets, data). Timestamp: None, or (first row,
    validity or None, None, data). Headers: None, or (list column, header rows, key column, value column),
    the list column without data.
    """

    cdef SourceColumn keys, values, timestamps, lists, header_keys, header_values
    cdef int64_t rows, header_rows

    def __init__(self, int64_t rows, object key, object value, object timestamp, object headers):
        self.rows = max(rows, 0)
        self.keys = SourceColumn(key, self.rows, "keys", 0)
        self.values = SourceColumn(value, self.rows, "values", 0)
        self.timestamps = SourceColumn(timestamp, self.rows, "timestamps", 8)
        self.header_rows = 0
        lists = header_keys = header_values = None
        if headers is not None:
            lists, self.header_rows, header_keys, header_values = headers
        self.lists = SourceColumn(lists, self.rows, "headers", 0)
        self.header_keys = SourceColumn(header_keys, self.header_rows, "header keys", 0)
        self.header_values = SourceColumn(header_values, self.header_rows, "header values", 0)

    def pack(
        self, object selected, int64_t start, int64_t end, int64_t cut_bytes, int64_t bytes_max,
        int64_t default_timestamp,
    ):
        """The records at the places `start` to `end`, as many as fit, as one packed batch; and the place after them.

        `selected` holds the row at each place as 32-bit numbers; None: the rows as they are. `cut_bytes` is what a batch
        may take with its header, unless its first record alone takes more; 0: any number. Past `bytes_max` it is an error.
        """
        cdef View view = None
        cdef Growing out = Growing()
        cdef int64_t at = start, used = HEADER_ROOM, needed = 0, capacity, places = self.rows, guess
        cdef uint8_t* data
        cdef Status status
        cdef ColumnsIn given = ColumnsIn(
            &self.keys.source, &self.values.source, &self.timestamps.source, &self.lists.source,
            &self.header_keys.source, &self.header_values.source, self.header_rows, NULL, self.rows,
            default_timestamp, 0, 0, min(bytes_max, <int64_t>INT32_MAX), cut_bytes,
        )
        if selected is not None:
            view = View(selected)
            given.selected = view.data()
            places = view.length() // 4
        if start < 0 or end > places:
            raise InvalidRecord(f"places {start} to {end}, and there are {places}")
        if start >= end:
            raise InvalidRecord("a batch needs at least one record")
        guess = self.guess_bytes(end - start, cut_bytes)
        while True:
            data = out.room(used + needed + guess)
            capacity = out.capacity
            with nogil:
                status = put_rows(&given, start, end, &at, data, &used, capacity, &needed)
            if status == DONE:
                memset(data, 0, HEADER_ROOM)
                return (out.take(used), at - start, given.base_timestamp, given.max_timestamp), at
            if status != FULL:
                raise _column_fault(status, at, given.bytes_max)

    cdef int64_t guess_bytes(self, int64_t count, int64_t cut_bytes):
        """Room for so many records of the usual size."""
        cdef int64_t each = 24 + (self.keys.source.data_length + self.values.source.data_length) // max(self.rows, 1)
        cdef int64_t most = cut_bytes if 0 < cut_bytes < FIRST_GUESS_BYTES_MAX else <int64_t>FIRST_GUESS_BYTES_MAX
        return most if each >= most // count else each * count


def pack_columns(
    int64_t rows,
    int64_t bytes_max,
    object key,
    object value,
    object timestamp,
    int64_t default_timestamp,
    object headers,
):
    """All rows of Arrow-shaped columns as packed records, like `pack_records`; see `PackedColumns`."""
    return PackedColumns(rows, key, value, timestamp, headers).pack(None, 0, rows, 0, bytes_max, default_timestamp)[0]
