# Which partition each row of a column goes to: as Kafka's own clients hash keys, and in turns where there is none.

cdef enum:
    MURMUR2_SEED = 0x9747B28C
    MURMUR2_M = 0x5BD1E995
    ROUTED_RECORD_BYTES = 21


cdef inline uint32_t murmur2(const uint8_t* key, int64_t length) noexcept nogil:
    cdef uint32_t value = <uint32_t>MURMUR2_SEED ^ <uint32_t>length
    cdef uint32_t word
    cdef int64_t index
    for index in range(length >> 2):
        # By hand: the hash is defined on little-endian words, and a key need not be aligned.
        word = (
            key[4 * index] | (<uint32_t>key[4 * index + 1] << 8)
            | (<uint32_t>key[4 * index + 2] << 16) | (<uint32_t>key[4 * index + 3] << 24)
        )
        word *= <uint32_t>MURMUR2_M
        word ^= word >> 24
        word *= <uint32_t>MURMUR2_M
        value *= <uint32_t>MURMUR2_M
        value ^= word
    index = length & ~<int64_t>3
    if length & 3:
        if length & 3 == 3:
            value ^= <uint32_t>key[index + 2] << 16
        if length & 3 >= 2:
            value ^= <uint32_t>key[index + 1] << 8
        value ^= key[index]
        value *= <uint32_t>MURMUR2_M
    value ^= value >> 13
    value *= <uint32_t>MURMUR2_M
    return value ^ (value >> 15)


cdef struct Turn:
    const uint8_t* partitions
    int64_t count
    int64_t at
    int64_t bytes_sent
    int64_t bytes_max


cdef inline int32_t in_turn(Turn* turn, int64_t length) noexcept nogil:
    """The partition whose turn it is; the next one's begins when this one has had enough."""
    if turn.bytes_sent >= turn.bytes_max:
        turn.at = (turn.at + 1) % turn.count
        turn.bytes_sent = 0
    turn.bytes_sent += ROUTED_RECORD_BYTES + (length if length > 0 else 0)
    return load_int32(turn.partitions, turn.at)


cdef Status route(
    const Source* key, const Source* value, const Source* chosen, int64_t rows, int32_t count, Turn* turn,
    int32_t* routed, int32_t* counts, int64_t* row
) noexcept nogil:
    cdef const uint8_t* data = NULL
    cdef int32_t length = 0, partition
    cdef Status status
    while row[0] < rows:
        if not chosen.absent and is_set(chosen.valid, chosen.first + row[0]):
            partition = load_int32(chosen.data, chosen.first + row[0])
            if partition < 0 or partition >= count:
                return PARTITION
        else:
            status = column_field(key, row[0], &data, &length)
            if status != DONE:
                return status
            if length >= 0:
                partition = <int32_t>((murmur2(data, length) & 0x7FFFFFFF) % <uint32_t>count)
            else:
                status = column_field(value, row[0], &data, &length)
                if status != DONE:
                    return status
                partition = in_turn(turn, length)
        routed[row[0]] = partition
        counts[partition] += 1
        row[0] += 1
    return DONE


cdef void group(const int32_t* routed, int64_t rows, int32_t* starts, int32_t* order) noexcept nogil:
    """The rows of each partition in their order; `starts` moves to where each partition ends."""
    cdef int64_t row
    for row in range(rows):
        order[starts[routed[row]]] = <int32_t>row
        starts[routed[row]] += 1


def route_rows(
    int64_t rows, object key, object value, object chosen, int32_t partition_count, object spread,
    int64_t turn, int64_t turn_bytes, int64_t turn_bytes_max,
):
    """The rows by partition: (their numbers as 32-bit integers, [(partition, start, end)], turn, bytes of the turn).

    A row goes where `chosen` (a column of 32-bit integers, or None) says; if that is null, by its key's hash; without
    a key to the partition whose turn it is in `spread`, which ends at `turn_bytes_max`.
    """
    cdef SourceColumn keys = SourceColumn(key, max(rows, 0), "keys", 0)
    cdef SourceColumn values = SourceColumn(value, max(rows, 0), "values", 0)
    cdef SourceColumn partitions = SourceColumn(chosen, max(rows, 0), "partitions", 4)
    cdef Growing routed = Growing(), counts = Growing(), order = Growing(), ring = Growing()
    cdef int32_t* count_of
    cdef int32_t* starts
    cdef int32_t* ring_data
    cdef int32_t* routed_rows
    cdef int32_t* ordered_rows
    cdef int32_t partition
    cdef int64_t row = 0, total = 0, index
    cdef Turn turns
    cdef Status status
    cdef list found = []
    # Ours from here on, so that its length stays what it is.
    spread = tuple(spread)
    if rows < 0 or rows > <int64_t>INT32_MAX or partition_count <= 0:
        raise InvalidRecord(f"{rows} rows for {partition_count} partitions")
    if not spread or not 0 <= turn < len(spread):
        raise InvalidRecord(f"turn {turn} among {len(spread)} partitions")
    ring_data = <int32_t*>ring.room(4 * len(spread))
    for index in range(len(spread)):
        partition = spread[index]
        if not 0 <= partition < partition_count:
            raise InvalidRecord(f"partition {partition}, and there are {partition_count}")
        ring_data[index] = partition
    turns = Turn(<const uint8_t*>ring_data, len(spread), turn, turn_bytes, turn_bytes_max)
    routed_rows = <int32_t*>routed.room(4 * rows + 4)
    ordered_rows = <int32_t*>order.room(4 * rows + 4)
    # Two numbers for each partition: how many rows it gets, and where the next of them goes.
    count_of = <int32_t*>counts.room(8 * <int64_t>partition_count)
    starts = count_of + partition_count
    memset(count_of, 0, 4 * <size_t>partition_count)
    with nogil:
        status = route(
            &keys.source, &values.source, &partitions.source, rows, partition_count, &turns,
            routed_rows, count_of, &row,
        )
    if status == PARTITION:
        raise InvalidRecord(f"record {row}: there is no such partition; the topic has {partition_count}")
    if status != DONE:
        raise _column_fault(status, row, 0)
    for partition in range(partition_count):
        starts[partition] = <int32_t>total
        if count_of[partition]:
            found.append((partition, total, total + count_of[partition]))
            total += count_of[partition]
    with nogil:
        group(routed_rows, rows, starts, ordered_rows)
    return order.take(4 * rows), found, turns.at, turns.bytes_sent
