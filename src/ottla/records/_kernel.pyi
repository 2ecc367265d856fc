from collections.abc import Callable, Iterable, Sequence
from typing import Any

from ottla.records.batch import Buffer
from ottla.records.packing import Packed, RecordTuple
from ottla.records.plain import PlainRun
from ottla.server.several import PlainSpreadRequests
from ottla.storage.ends import PlainFileEnd, PlainIndexEnd, PlainSegmentEnd

def pack_records(records: Iterable[RecordTuple], bytes_max: int) -> Packed: ...
def pack_values(values: tuple[Any, ...], *, timestamp_ms: int, bytes_max: int) -> Packed | None: ...
def pack_columns(
    rows: int,
    bytes_max: int,
    key: tuple[int, Buffer | None, Buffer | None, Buffer | None] | None,
    value: tuple[int, Buffer | None, Buffer | None, Buffer | None] | None,
    timestamp: tuple[int, Buffer | None, None, Buffer | None] | None,
    default_timestamp: int,
    headers: tuple[Any, int, Any, Any] | None,
) -> Packed: ...
def route_rows(
    rows: int,
    key: tuple[int, Buffer | None, Buffer | None, Buffer | None] | None,
    value: tuple[int, Buffer | None, Buffer | None, Buffer | None] | None,
    chosen: tuple[int, Buffer | None, None, Buffer | None] | None,
    partition_count: int,
    spread: Sequence[int],
    turn: int,
    turn_bytes: int,
    turn_bytes_max: int,
) -> tuple[bytearray, list[tuple[int, int, int]], int, int]: ...
def read_records(
    payload: Buffer,
    count: int,
    last_offset_delta: int,
    base_offset: int,
    base_timestamp: int,
    append_time_ms: int | None,
    make: Callable[[tuple[Any, ...]], Any],
) -> list[Any]: ...
def read_spans(
    payload: Buffer, start: int, count: int, last_offset_delta: int, make: Callable[[tuple[Any, ...]], Any]
) -> list[Any]: ...

class PackedColumns:
    def __init__(
        self,
        rows: int,
        key: tuple[int, Buffer | None, Buffer | None, Buffer | None] | None,
        value: tuple[int, Buffer | None, Buffer | None, Buffer | None] | None,
        timestamp: tuple[int, Buffer | None, None, Buffer | None] | None,
        headers: tuple[Any, int, Any, Any] | None,
    ) -> None: ...
    def pack(
        self,
        selected: Buffer | None,
        start: int,
        end: int,
        cut_bytes: int,
        bytes_max: int,
        default_timestamp: int,
    ) -> tuple[Packed, int]: ...

class Columns:
    flags: int
    rows: int
    def __init__(self, flags: int, bytes_expected: int = 0) -> None: ...
    def add(
        self,
        payload: Buffer,
        *,
        count: int,
        last_offset_delta: int,
        base_offset: int,
        base_timestamp: int,
        append_time_ms: int | None,
        start_offset: int,
        end_offset: int,
    ) -> None: ...
    def take(self) -> tuple[Any, ...]: ...

class Run(PlainRun): ...
class SpreadRequests(PlainSpreadRequests): ...
class FileEnd(PlainFileEnd): ...
class IndexEnd(PlainIndexEnd): ...
class SegmentEnd(PlainSegmentEnd): ...

def cut_alike(
    data: bytes | memoryview, start: int, opening: bytes, head: bytes, size_max: int
) -> tuple[Run, list[bytes], int, bool]: ...
def cut_spread(
    data: bytes | memoryview, start: int, opening: bytes, head: bytes, size_max: int, count_max: int
) -> SpreadRequests: ...
def answer_alike(size: bytes, numbers: list[bytes], before: bytes, run: Run, after: bytes) -> bytes: ...
