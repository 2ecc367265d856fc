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
    NO_TIMESTAMP = -1


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
    cdef list numbers = []
    cdef Run run = Run(data)
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
            run.take(at, records_end - at)
            numbers.append(number)
            start = following
    finally:
        PyBuffer_Release(&buffer)
    return run, numbers, start, is_through


cdef inline uint8_t* put_count(uint8_t* p, uint32_t count) noexcept nogil:
    while count >= 0x80:
        p[0] = count & 0x7F | 0x80
        p += 1
        count >>= 7
    p[0] = count
    return p + 1


cdef struct Entry:
    int32_t index
    Py_ssize_t at
    Py_ssize_t size
    # Borrowed: `SpreadRequests._held` has all of them.
    void* run
    Py_ssize_t ordinal


cdef struct Asked:
    uint8_t[ID_END - ID_AT] number
    Py_ssize_t entries_end


cdef enum:
    ENTRIES_FEW = 32
    ASKED_FEW = 8


@cython.final
@cython.no_gc
@cython.freelist(4)
cdef class SpreadRequests:
    """See `ottla.server.several.PlainSpreadRequests`."""

    cdef readonly dict runs
    cdef list _held
    cdef readonly Py_ssize_t position
    cdef Entry* _entries
    cdef Entry[ENTRIES_FEW] _entries_few
    cdef Py_ssize_t _entries_count, _entries_room
    cdef Asked* _asked
    cdef Asked[ASKED_FEW] _asked_few
    cdef Py_ssize_t _count, _room

    def __cinit__(self):
        self.runs = {}
        self._held = []
        self._entries, self._entries_room = self._entries_few, ENTRIES_FEW
        self._asked, self._room = self._asked_few, ASKED_FEW

    def __dealloc__(self):
        if self._entries != self._entries_few:
            PyMem_Free(self._entries)
        if self._asked != self._asked_few:
            PyMem_Free(self._asked)

    def __len__(self):
        return self._count

    cdef int grow(self) except -1:
        """Have room for another entry, and another request."""
        if self._entries_count == self._entries_room:
            self._entries = <Entry*>grown(self._entries, self._entries_few, self._entries_room * sizeof(Entry))
            self._entries_room *= 2
        if self._count == self._room:
            self._asked = <Asked*>grown(self._asked, self._asked_few, self._room * sizeof(Asked))
            self._room *= 2
        return 0

    cdef bint parse(self, const uint8_t* p, Py_ssize_t at, Py_ssize_t end) except -1:
        """What a request that ends there has for each partition, from their count on; false unless it is plainly that."""
        cdef int64_t count, length
        cdef Entry* entry
        if at > end - 1 - ENTRY_BYTES_MIN - ENDING_BYTES:
            return False
        count = short_length(p, &at)
        if count <= 0:
            return False
        while count > 0:
            if at > end - ENTRY_BYTES_MIN:
                return False
            self.grow()
            entry = self._entries + self._entries_count
            entry.index = <int32_t>load_big32(p + at)
            at += INDEX_BYTES
            length = short_length(p, &at)
            if length < BATCH_HEADER_BYTES or length >= end - at or p[at + length]:
                return False
            entry.at, entry.size = at, length
            self._entries_count += 1
            at += length + 1
            count -= 1
        return at + ENDING_BYTES == end and not p[at] and not p[at + 1]

    cdef int cut(
        self, object data, Py_ssize_t start, const uint8_t* opening, bytes head, Py_ssize_t size_max, Py_ssize_t count_max
    ) except -1:
        cdef Py_buffer buffer
        cdef const uint8_t* p
        cdef Py_ssize_t at, first, i, head_bytes = PyBytes_GET_SIZE(head)
        cdef int64_t size
        cdef Run run
        cdef Entry* entry
        PyObject_GetBuffer(data, &buffer, PyBUF_SIMPLE)
        try:
            p = <const uint8_t*>buffer.buf
            while self._count < count_max:
                at = start + SIZE_BYTES
                if at > buffer.len:
                    break
                size = <int32_t>load_big32(p + start)
                if size < ID_END + head_bytes or size > size_max or size > buffer.len - at:
                    break
                if memcmp(p + at, opening, ID_AT):
                    break
                if memcmp(p + at + ID_END, PyBytes_AS_STRING(head), head_bytes):
                    break
                first = self._entries_count
                if not self.parse(p, at + ID_END + head_bytes, at + size):
                    self._entries_count = first
                    break
                for i in range(first, self._entries_count):
                    entry = self._entries + i
                    run = self.runs.get(entry.index)
                    if run is None:
                        run = self.runs[entry.index] = Run(data)
                        self._held.append(run)
                    entry.run = <void*>run
                    entry.ordinal = run._count
                    run.take(entry.at, entry.size)
                self.grow()
                memcpy(self._asked[self._count].number, p + at + ID_AT, ID_END - ID_AT)
                self._asked[self._count].entries_end = self._entries_count
                self._count += 1
                start = at + size
        finally:
            PyBuffer_Release(&buffer)
        self.position = start
        return 0

    @property
    def requests(self):
        cdef Py_ssize_t i, j = 0
        cdef list requests = [], order
        for i in range(self._count):
            order = []
            while j < self._asked[i].entries_end:
                order.append((self._entries[j].index, self._entries[j].ordinal))
                j += 1
            requests.append((PyBytes_FromStringAndSize(<char*>self._asked[i].number, ID_END - ID_AT), order))
        return requests

    @property
    def batch_count(self):
        return self._entries_count

    def answer(self, bytes before not None, bytes behind not None, bytes ending not None):
        cdef Py_ssize_t entry_bytes = TOLD_BYTES + PyBytes_GET_SIZE(behind)
        cdef Py_ssize_t rest_bytes = SIZE_BYTES + ID_END - ID_AT + PyBytes_GET_SIZE(before) + PyBytes_GET_SIZE(ending)
        cdef bytes answers
        cdef uint8_t* p
        cdef uint8_t* begin
        cdef Py_ssize_t i, j = 0
        cdef Run run
        cdef Entry* entry
        # Each count in its longest form; what is too much is cut off.
        answers = PyBytes_FromStringAndSize(
            NULL, self._count * (rest_bytes + COUNT_BYTES_MAX) + self._entries_count * entry_bytes
        )
        p = <uint8_t*>PyBytes_AS_STRING(answers)
        for i in range(self._count):
            begin = p
            memcpy(p + SIZE_BYTES, self._asked[i].number, ID_END - ID_AT)
            p = put_whole(p + SIZE_BYTES + ID_END - ID_AT, before)
            p = put_count(p, <uint32_t>(self._asked[i].entries_end - j) + 1)
            while j < self._asked[i].entries_end:
                entry = self._entries + j
                run = <Run>entry.run
                store_big32(p, <uint32_t>entry.index)
                p[INDEX_BYTES] = p[INDEX_BYTES + 1] = 0
                store_big64(p + INDEX_BYTES + ERROR_BYTES, run._spans[entry.ordinal].offset)
                store_big64(p + INDEX_BYTES + ERROR_BYTES + 8, NO_TIMESTAMP)
                store_big64(p + INDEX_BYTES + ERROR_BYTES + 16, run.log_start_offset)
                p = put_whole(p + TOLD_BYTES, behind)
                j += 1
            p = put_whole(p, ending)
            store_big32(begin, <uint32_t>(p - begin - SIZE_BYTES))
        return answers[: p - <uint8_t*>PyBytes_AS_STRING(answers)]


def cut_spread(
    object data, Py_ssize_t start, bytes opening not None, bytes head not None, Py_ssize_t size_max, Py_ssize_t count_max
):
    """See `ottla.server.several.cut_spread_plain`."""
    cdef SpreadRequests requests = SpreadRequests()
    if PyBytes_GET_SIZE(opening) != ID_AT or start < 0:
        raise ValueError("an opening has four bytes, and nothing starts before the beginning")
    requests.cut(data, start, <const uint8_t*>PyBytes_AS_STRING(opening), head, size_max, count_max)
    return requests


def answer_alike(
    bytes size not None,
    list numbers not None,
    bytes before not None,
    Run run not None,
    bytes after not None,
):
    """See `ottla.server.alike.answer_alike_plain`."""
    cdef Py_ssize_t count = len(numbers), each
    cdef bytes number, answers
    cdef Py_ssize_t i
    cdef uint8_t* p
    if run._count != count:
        raise ValueError("as many answers as requests")
    each = PyBytes_GET_SIZE(size) + (ID_END - ID_AT) + PyBytes_GET_SIZE(before) + OFFSETS_BYTES + PyBytes_GET_SIZE(after)
    answers = PyBytes_FromStringAndSize(NULL, count * each)
    p = <uint8_t*>PyBytes_AS_STRING(answers)
    for i in range(count):
        number = numbers[i]
        if number is None or PyBytes_GET_SIZE(number) != ID_END - ID_AT:
            raise ValueError("a request's number has four bytes")
        p = put_whole(p, size)
        p = put_whole(p, number)
        p = put_whole(p, before)
        store_big64(p, run._spans[i].offset)
        store_big64(p + 8, NO_TIMESTAMP)
        store_big64(p + 16, run.log_start_offset)
        p = put_whole(p + OFFSETS_BYTES, after)
    return answers
