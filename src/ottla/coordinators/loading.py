"""Reading a coordinator's state back from its partition, in pieces that do not hold up the owner's thread.

What cannot be read is passed over with a warning: a record of an unknown type, one whose bytes are no record, a
batch whose checksum does not fit, the rest of a segment whose batches no longer follow each other. A damaged piece
costs what it held; it never keeps the rest from being served.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from itertools import islice

from ottla.coordinators.outcome import CoordinatorRecord
from ottla.errors import BatchError, InvalidBatch, OttlaError, StorageFault
from ottla.protocol.schema import Message
from ottla.records.batch import walk
from ottla.records.reader import Record, read_batch
from ottla.storage.log import Log

PIECE_BYTES = 64 << 10
"""How much is read in one go."""
PIECE_RECORDS = 100
"""How many records are replayed in one go, about: a few milliseconds' work. One batch may have tens of thousands."""
WARNINGS_MAX = 10
"""How much damage is told of piece by piece; the rest is only counted."""

Decode = Callable[[bytes, bytes | None], CoordinatorRecord | None]
Replay = Callable[[Message, Message | None], None]

_logger = logging.getLogger(__name__)


class Loading:
    """One reading of one partition, from its start to its end."""

    __slots__ = (
        "_decode",
        "_log",
        "_offset",
        "_replay",
        "_rest",
        "_rest_end_offset",
        "_stride",
        "passed_over",
        "records",
    )

    def __init__(self, log: Log, decode: Decode, replay: Replay) -> None:
        self._log = log
        self._decode = decode
        self._replay = replay
        self._offset = log.log_start_offset
        self._stride = 1
        """How many offsets the next piece of damage is taken to have."""
        self._rest: Iterator[Record] | None = None
        """What is left of a large batch."""
        self._rest_end_offset = 0
        self.records = 0
        """How many have been replayed."""
        self.passed_over = 0
        """How much could not be read."""

    def step(self) -> bool:
        """Read the next piece; true when there is none left. Raises a StorageError when the disk does not answer."""
        log = self._log
        if self._rest is not None:
            self._take_rest(self._rest)
        elif self._offset < log.end_offset:
            try:
                self._take(log.read(offset=self._offset, bytes_max=PIECE_BYTES))
            except BatchError as damage:
                self._skip(str(damage))
            except StorageFault as fault:
                if isinstance(fault.__cause__, OSError):
                    raise
                # The disk has answered; what it answered is no batch.
                self._skip(str(fault))
        if self._offset < log.end_offset:
            return False
        if self.passed_over > WARNINGS_MAX:
            _logger.warning("%s: %d damaged pieces in all were passed over", log.directory, self.passed_over)
        return True

    def _take(self, data: bytes) -> None:
        """Replay the whole batches in `data`, up to a large one or so many. Raises a BatchError where there is none."""
        start_offset, end_offset = self._offset, self._log.end_offset
        taken = 0
        for position, header in walk(data):
            if header.next_offset > end_offset:
                raise InvalidBatch(f"a batch ends at offset {header.last_offset}, the log before {end_offset}")
            if header.next_offset <= self._offset:
                continue
            # The broker's own marks of transactions carry no state of groups.
            if not header.is_control:
                try:
                    records = read_batch(memoryview(data)[position : position + header.size])
                except BatchError as error:
                    self._complain(f"the batch at offset {header.base_offset} is damaged: {error}")
                else:
                    if len(records) > PIECE_RECORDS:
                        self._rest, self._rest_end_offset = iter(records), header.next_offset
                        return
                    for record in records:
                        self._take_record(record)
                    taken += len(records)
            self._offset = header.next_offset
            self._stride = 1
            if taken >= PIECE_RECORDS:
                return
        if self._offset == start_offset:
            raise InvalidBatch("no batch is found there")

    def _take_rest(self, rest: Iterator[Record]) -> None:
        taken = 0
        for record in islice(rest, PIECE_RECORDS):
            self._take_record(record)
            taken += 1
        if taken < PIECE_RECORDS:
            self._rest = None
            self._offset = self._rest_end_offset
            self._stride = 1

    def _take_record(self, record: Record) -> None:
        if record.key is None:
            self._complain(f"the record at offset {record.offset} has no key")
            return
        try:
            decoded = self._decode(bytes(record.key), None if record.value is None else bytes(record.value))
        except OttlaError as error:
            self._complain(f"the record at offset {record.offset} cannot be read: {error}")
            return
        if decoded is None:
            return
        try:
            self._replay(decoded.key, decoded.value)
        except Exception:
            # It was readable and still makes no sense. One such record must not take all groups of a shard away.
            _logger.exception("%s: offset %d", self._log.directory, record.offset)
            self._complain(f"the record at offset {record.offset} cannot be replayed")
            return
        self.records += 1

    def _skip(self, reason: str) -> None:
        """Look for the end of the damage, further on each time: the index finds batches that others no longer lead to.

        So about as much is given up as was damaged, and at most the rest of the segment.
        """
        following = [segment.base_offset for segment in self._log.segments if segment.base_offset > self._offset]
        end = min([self._offset + self._stride, self._log.end_offset, *following])
        self._complain(f"offsets {self._offset} to {end - 1} cannot be read: {reason}")
        self._offset = end
        self._stride *= 2

    def _complain(self, what: str) -> None:
        self.passed_over += 1
        if self.passed_over <= WARNINGS_MAX:
            _logger.warning("%s: %s; it is passed over", self._log.directory, what)
