# Produce requests that are alike but for their records: cut out of what came, and answered alike. Wherever three bytes
# of a length are looked at, at least a batch's header stands behind them.

cdef enum:
    SIZE_BYTES = 4
    LENGTH_BYTES = 4
    VERSION_AT = 3
    ID_AT = 4
    ID_END = 8
    FLEXIBLE_VERSION_MIN = 9
    TAGS_BYTES = 3
    OFFSETS_BYTES = 24
    INDEX_BYTES = 4
    ENDING_BYTES = 2
    # A length of one byte, and one byte for no tagged fields.
    ENTRY_BYTES_MIN = INDEX_BYTES + 1 + BATCH_HEADER_BYTES + 1
    ERROR_BYTES = 2
    TOLD_BYTES = INDEX_BYTES + ERROR_BYTES + OFFSETS_BYTES
    COUNT_BYTES_MAX = 5


cdef inline uint8_t* put_whole(uint8_t* p, bytes data) noexcept:
    memcpy(p, PyBytes_AS_STRING(data), PyBytes_GET_SIZE(data))
    return p + PyBytes_GET_SIZE(data)


cdef inline int64_t short_length(const uint8_t* p, Py_ssize_t* at) noexcept nogil:
    """What up to three bytes of seven bits say, less one; -1 if there are more of them."""
    cdef int64_t length = p[at[0]]
    at[0] += 1
    if length >= 0x80:
        length = length & 0x7F | <int64_t>p[at[0]] << 7
        at[0] += 1
        if length >= 0x4000:
            if p[at[0]] >= 0x80:
                return -1
            length = length & 0x3FFF | <int64_t>p[at[0]] << 14
            at[0] += 1
    return length - 1


def cut_alike(object data, Py_ssize_t start, bytes opening not None, bytes head not None, Py_ssize_t size_max):
    """See `ottla.server.alike.cut_alike_plain`."""
    cdef Py_buffer buffer
    cdef const uint8_t* p
    cdef Py_ssize_t end, at, following, records_end
    cdef Py_ssize_t head_bytes = PyBytes_GET_SIZE(head)
    cdef int64_t size, length
    cdef bint is_through = False, is_flexible
    cdef list batches = [], numbers = []
    if PyBytes_GET_SIZE(opening) != ID_AT or start < 0:
        raise ValueError("an opening has four bytes, and nothing starts before the beginning")
    is_flexible = opening[VERSION_AT] >= FLEXIBLE_VERSION_MIN
    PyObject_GetBuffer(data, &buffer, PyBUF_SIMPLE)
    try:
        p, end = <const uint8_t*>buffer.buf, buffer.len
        while True:
            at = start + SIZE_BYTES
            if at > end:
                is_through = True
                break
            size = <int32_t>load_big32(p + start)
            if size < ID_END + head_bytes + BATCH_HEADER_BYTES or size > size_max:
                break
            if size > end - at:
                is_through = True
                break
            following = at + size
            if memcmp(p + at, PyBytes_AS_STRING(opening), ID_AT):
                break
            if memcmp(p + at + ID_END, PyBytes_AS_STRING(head), head_bytes):
                break
            number = PyBytes_FromStringAndSize(<const char*>p + at + ID_AT, ID_END - ID_AT)
            at += ID_END + head_bytes
            if is_flexible:
                length = short_length(p, &at)
                records_end = following - TAGS_BYTES
                if p[records_end] | p[records_end + 1] | p[records_end + 2]:
                    break
            else:
                length = <int32_t>load_big32(p + at)
                at += LENGTH_BYTES
                records_end = following
            if length != records_end - at:
                break
            batches.append(data[at:records_end])
            numbers.append(number)
            start = following
    finally:
        PyBuffer_Release(&buffer)
    return batches, numbers, start, is_through


cdef list cut_entries(object data, const uint8_t* p, Py_ssize_t at, Py_ssize_t end):
    """What a request that ends there has for each partition, from their count on; None unless it is plainly that."""
    cdef int64_t count, length
    cdef int32_t index
    cdef list entries = []
    if at > end - 1 - ENTRY_BYTES_MIN - ENDING_BYTES:
        return None
    count = short_length(p, &at)
    while count > 0:
        if at > end - ENTRY_BYTES_MIN:
            return None
        index = <int32_t>load_big32(p + at)
        at += INDEX_BYTES
        length = short_length(p, &at)
        if length < BATCH_HEADER_BYTES or length >= end - at or p[at + length]:
            return None
        entries.append((index, data[at : at + length]))
        at += length + 1
        count -= 1
    if at + ENDING_BYTES != end or p[at] or p[at + 1]:
        return None
    return entries


def cut_spread(
    object data, Py_ssize_t start, bytes opening not None, bytes head not None, Py_ssize_t size_max, Py_ssize_t count_max
):
    """See `ottla.server.several.cut_spread_plain`."""
    cdef Py_buffer buffer
    cdef const uint8_t* p
    cdef Py_ssize_t at, head_bytes = PyBytes_GET_SIZE(head)
    cdef int64_t size
    cdef list requests = [], entries, batches, order
    cdef dict together = {}
    cdef object index, records
    if PyBytes_GET_SIZE(opening) != ID_AT or start < 0:
        raise ValueError("an opening has four bytes, and nothing starts before the beginning")
    PyObject_GetBuffer(data, &buffer, PyBUF_SIMPLE)
    try:
        p = <const uint8_t*>buffer.buf
        while len(requests) < count_max:
            at = start + SIZE_BYTES
            if at > buffer.len:
                break
            size = <int32_t>load_big32(p + start)
            if size < ID_END + head_bytes or size > size_max or size > buffer.len - at:
                break
            if memcmp(p + at, PyBytes_AS_STRING(opening), ID_AT):
                break
            if memcmp(p + at + ID_END, PyBytes_AS_STRING(head), head_bytes):
                break
            entries = cut_entries(data, p, at + ID_END + head_bytes, at + size)
            if not entries:
                break
            order = []
            for index, records in entries:
                batches = together.get(index)
                if batches is None:
                    batches = together[index] = []
                order.append((index, len(batches)))
                batches.append(records)
            requests.append((PyBytes_FromStringAndSize(<const char*>p + at + ID_AT, ID_END - ID_AT), order))
            start = at + size
    finally:
        PyBuffer_Release(&buffer)
    return requests, together, start


cdef inline uint8_t* put_count(uint8_t* p, uint32_t count) noexcept nogil:
    while count >= 0x80:
        p[0] = count & 0x7F | 0x80
        p += 1
        count >>= 7
    p[0] = count
    return p + 1


def answer_spread(
    list requests not None,
    dict told not None,
    bytes before not None,
    bytes behind not None,
    bytes ending not None,
    int64_t append_time_ms,
):
    """See `ottla.server.several.answer_spread_plain`."""
    cdef Py_ssize_t entry_bytes = TOLD_BYTES + PyBytes_GET_SIZE(behind)
    cdef Py_ssize_t rest_bytes = ID_END - ID_AT + PyBytes_GET_SIZE(before) + PyBytes_GET_SIZE(ending)
    cdef Py_ssize_t count, size = 0
    cdef uint8_t[COUNT_BYTES_MAX] counted
    cdef bytes number, answers
    cdef list order, offsets
    cdef object index, ordinal, start_offset
    cdef uint8_t* p
    cdef uint8_t* begin
    for number, order in requests:
        count = len(order)
        if number is None or PyBytes_GET_SIZE(number) != ID_END - ID_AT or count >= INT32_MAX:
            raise ValueError("a request's number has four bytes")
        size += SIZE_BYTES + rest_bytes + (put_count(counted, <uint32_t>count + 1) - counted) + count * entry_bytes
    answers = PyBytes_FromStringAndSize(NULL, size)
    p = <uint8_t*>PyBytes_AS_STRING(answers)
    for number, order in requests:
        begin = p
        p = put_whole(p + SIZE_BYTES, number)
        p = put_whole(p, before)
        p = put_count(p, <uint32_t>len(order) + 1)
        for index, ordinal in order:
            offsets, start_offset = told[index]
            store_big32(p, <uint32_t><int32_t>index)
            p[INDEX_BYTES] = p[INDEX_BYTES + 1] = 0
            store_big64(p + INDEX_BYTES + ERROR_BYTES, offsets[ordinal])
            store_big64(p + INDEX_BYTES + ERROR_BYTES + 8, append_time_ms)
            store_big64(p + INDEX_BYTES + ERROR_BYTES + 16, start_offset)
            p = put_whole(p + TOLD_BYTES, behind)
        p = put_whole(p, ending)
        store_big32(begin, <uint32_t>(p - begin - SIZE_BYTES))
    return answers


def answer_alike(
    bytes size not None,
    list numbers not None,
    bytes before not None,
    list offsets not None,
    int64_t append_time_ms,
    int64_t log_start_offset,
    bytes after not None,
):
    """See `ottla.server.alike.answer_alike_plain`."""
    cdef Py_ssize_t count = len(numbers), each
    cdef object offset
    cdef bytes number, answers
    cdef uint8_t* p
    if len(offsets) != count:
        raise ValueError("as many answers as requests")
    each = PyBytes_GET_SIZE(size) + (ID_END - ID_AT) + PyBytes_GET_SIZE(before) + OFFSETS_BYTES + PyBytes_GET_SIZE(after)
    answers = PyBytes_FromStringAndSize(NULL, count * each)
    p = <uint8_t*>PyBytes_AS_STRING(answers)
    for number, offset in zip(numbers, offsets):
        if number is None or PyBytes_GET_SIZE(number) != ID_END - ID_AT:
            raise ValueError("a request's number has four bytes")
        p = put_whole(p, size)
        p = put_whole(p, number)
        p = put_whole(p, before)
        store_big64(p, offset)
        store_big64(p + 8, append_time_ms)
        store_big64(p + 16, log_start_offset)
        p = put_whole(p + OFFSETS_BYTES, after)
    return answers
