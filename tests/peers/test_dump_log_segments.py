"""Kafka's own DumpLogSegments reads our files, before and after compaction, and finds nothing amiss.

Two runs of the tool serve all tests: one over every file, one that checks the indexes by themselves.
"""

from __future__ import annotations

import re
import shutil
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

import pytest

from ottla.records.batch import BatchHeader, TimestampType, restamp_append_time, walk
from ottla.records.builder import build_batch
from ottla.records.compression import Codec
from ottla.records.control import MarkerType
from ottla.records.reader import Headers, Record, read_batch
from ottla.storage import aborted_index, compaction, producer_snapshot
from ottla.storage.disk import OsDisk
from ottla.storage.log import Log
from ottla.storage.producer_state import ProducerEntry
from tests.peers.tools import Tools
from tests.storage.workbench import CODECS, NOW_MS, Workbench, installed, marker, sequenced

pytestmark = [pytest.mark.peers, pytest.mark.slow]

DUMP = "org.apache.kafka.tools.DumpLogSegments"
SUFFIXES = (".log", ".index", ".timeindex", ".txnindex", ".snapshot")
SETTINGS = {"segment_bytes": 1_500, "index_interval_bytes": 300, "compact": True, "min_cleanable_dirty_ratio": 0.0}


# --- what we write -----------------------------------------------------------------------------------


class Written(NamedTuple):
    """A record as it was handed to the log, with the offset that it got."""

    offset: int
    timestamp_ms: int
    key: bytes | None
    value: bytes | None
    headers: Headers


class _Writer:
    """Appends, and keeps what it appended."""

    def __init__(self, log: Log) -> None:
        self._log = log
        self.records: list[Written] = []

    def append(self, batch: bytes, *, leader_epoch: int) -> None:
        first = self._log.append(batch, leader_epoch=leader_epoch).first_offset
        for delta, record in enumerate(read_batch(batch)):
            self.records.append(Written(first + delta, *record[1:]))


def _write(log: Log) -> list[Written]:
    """Every codec, control batches, open and ended transactions, epochs, timestamps of both kinds."""
    writer = _Writer(log)
    for turn in range(4):
        for codec in CODECS:
            # A third of the keys is written once only, so that batches of every codec stay, with gaps in them.
            records = [
                (
                    b"key-%d" % n if n % 3 else b"once-%s-%d-%d" % (codec.name.encode(), turn, n),
                    b"%s-%d-%d" % (codec.name.encode(), turn, n),
                    NOW_MS + 100 * turn + n,
                    (),
                )
                for n in range(12)
            ]
            writer.append(bytes(build_batch(records, codec=codec)), leader_epoch=turn)
    odd = [(None, b"no-key", NOW_MS + 500, (("h", b"1"), ("g", None))), (b"gone", None, NOW_MS + 500, ())]
    writer.append(bytes(build_batch(odd)), leader_epoch=4)
    stamped = build_batch([(b"stamped", b"v", NOW_MS, ())] * 2, codec=Codec.ZSTD)
    restamp_append_time(stamped, timestamp_ms=NOW_MS + 600)
    writer.append(bytes(stamped), leader_epoch=4)
    for sequence in range(7):
        writer.append(sequenced(1, sequence), leader_epoch=4)
    writer.append(sequenced(2, 0, transactional=True), leader_epoch=5)
    writer.append(sequenced(3, 0, count=3, transactional=True), leader_epoch=5)
    writer.append(marker(3, MarkerType.ABORT, coordinator_epoch=8), leader_epoch=5)
    writer.append(sequenced(2, 1, transactional=True), leader_epoch=5)
    writer.append(marker(2, MarkerType.COMMIT, coordinator_epoch=8), leader_epoch=5)
    log.roll()
    writer.append(sequenced(3, 3, transactional=True), leader_epoch=5)
    writer.append(marker(3, MarkerType.ABORT, coordinator_epoch=9), leader_epoch=5)
    writer.append(sequenced(4, 0, count=2, transactional=True), leader_epoch=7)
    return writer.records


def _compact(log: Log) -> None:
    planned = log.plan_compaction(high_watermark=log.end_offset)
    assert planned is not None
    assert installed(log, planned, compaction.compact(OsDisk(), log.directory, planned))


# --- what the tool prints ----------------------------------------------------------------------------


@dataclass
class Dump:
    """What the tool printed about each file, and what it complained about at the end."""

    sections: dict[str, list[str]] = field(default_factory=dict)
    complaints: dict[str, list[str]] = field(default_factory=dict)
    """By their headline, such as `Non-consecutive offsets in <path>`."""

    def of(self, directory: Path, suffix: str) -> dict[Path, list[str]]:
        """The sections of one directory's files of a kind, in order."""
        paths = sorted(path for path in map(Path, self.sections) if path.parent == directory and path.suffix == suffix)
        return {path: self.sections[str(path)] for path in paths}


def _parse(output: str) -> Dump:
    dump = Dump()
    lines: list[str] = []
    for line in output.splitlines():
        if line.startswith("Dumping "):
            lines = dump.sections.setdefault(line.removeprefix("Dumping "), [])
        elif re.match(r"(Mismatches|Non-consecutive|Found) ", line):
            lines = dump.complaints.setdefault(line, [])
        else:
            lines.append(line)
    return dump


def _fields(line: str) -> dict[str, str]:
    """`name: value` pairs; the tool puts a blank between all of them, and our values have none."""
    return dict(re.findall(r"(\w+): (\S*)", line))


@dataclass(frozen=True)
class Exhibits:
    """Closed logs that the tool has looked at."""

    before: Path
    after: Path
    """The same log, compacted."""
    damaged: Path
    """One segment of it, whose index does not fit."""
    written: Sequence[Written]
    dump: Dump
    index_check: Dump


@pytest.fixture(scope="module")
def exhibits(tmp_path_factory: pytest.TempPathFactory, java: Path, kafka_jars: Path) -> Exhibits:
    root = tmp_path_factory.mktemp("dump")
    before, after, damaged = root / "before-0", root / "after-0", root / "damaged-0"
    bench = Workbench(OsDisk(), str(after))
    log = bench.open(**SETTINGS)
    written = _write(log)
    log.close()
    shutil.copytree(after, before)
    log = bench.open(**SETTINGS)
    _compact(log)
    log.close()
    damaged.mkdir()
    for name in ("00000000000000000000.log", "00000000000000000000.index"):
        shutil.copy(before / name, damaged)
    index = bytearray((damaged / name).read_bytes())
    index[3] ^= 1
    (damaged / name).write_bytes(index)
    tools = Tools(java, kafka_jars)
    files = [str(path) for path in sorted(root.rglob("*")) if path.suffix in SUFFIXES]
    dump = _parse(tools.run(DUMP, "--deep-iteration", "--print-data-log", "--files", ",".join(files)))
    indexes = [path for path in files if path.endswith("index") and "damaged" not in path and "txn" not in path]
    index_check = _parse(tools.run(DUMP, "--index-sanity-check", "--files", ",".join(indexes)))
    return Exhibits(before, after, damaged, written, dump, index_check)


@pytest.fixture(params=["before", "after"])
def directory(request: pytest.FixtureRequest, exhibits: Exhibits) -> Path:
    """The log before and after its compaction."""
    found: Path = getattr(exhibits, request.param)
    return found


def _headers(path: Path) -> list[tuple[int, BatchHeader]]:
    return list(walk(path.read_bytes()))


def _records(path: Path) -> list[Record]:
    data = path.read_bytes()
    return [record for position, _ in walk(data) for record in read_batch(data[position:])]


# --- the tests ---------------------------------------------------------------------------------------


def test_the_log_that_is_dumped_has_several_segments_and_every_codec(exhibits: Exhibits) -> None:
    for directory in (exhibits.before, exhibits.after):
        paths = list(exhibits.dump.of(directory, ".log"))
        assert len(paths) >= 3
        assert {header.codec for path in paths for _, header in _headers(path)} == set(CODECS)
    assert len(_all_records(exhibits.after)) < len(_all_records(exhibits.before)) // 2


def _all_records(directory: Path) -> list[Record]:
    return [record for path in sorted(directory.glob("*.log")) for record in _records(path)]


def test_the_tool_notices_an_index_that_does_not_fit(exhibits: Exhibits) -> None:
    index = exhibits.damaged / "00000000000000000000.index"
    assert [headline for headline in exhibits.dump.complaints if str(index) in headline] == [f"Mismatches in :{index}"]


def test_the_tool_finds_no_mismatch_and_no_gap_but_those_of_compaction(exhibits: Exhibits, directory: Path) -> None:
    expected = {}
    for path in exhibits.dump.of(directory, ".log"):
        # The tool expects every file to begin at offset 0, Kafka's own too.
        offsets = [-1, *(record.offset for record in _records(path))]
        gaps = [f"  {earlier} is followed by {later}" for earlier, later in pairwise(offsets) if later != earlier + 1]
        if gaps:
            expected[f"Non-consecutive offsets in {path}"] = gaps
    found = {headline: lines for headline, lines in exhibits.dump.complaints.items() if str(directory) in headline}
    assert found == expected


def test_before_compaction_the_only_gap_is_the_one_before_a_file(exhibits: Exhibits) -> None:
    found = [lines for headline, lines in exhibits.dump.complaints.items() if str(exhibits.before) in headline]
    bases = sorted(int(path.stem) for path in exhibits.dump.of(exhibits.before, ".log"))
    assert sorted(found) == sorted([f"  -1 is followed by {base}"] for base in bases[1:])


def test_every_batch_is_printed_as_it_stands_in_the_file(exhibits: Exhibits, directory: Path) -> None:
    for path, lines in exhibits.dump.of(directory, ".log").items():
        printed = [_fields(line) for line in lines if line.startswith("baseOffset")]
        assert [_batch_of(fields) for fields in printed] == [_expected_batch(*found) for found in _headers(path)]


def _batch_of(fields: dict[str, str]) -> dict[str, str]:
    return {name: value for name, value in fields.items() if name != "lastSequence"}


def _expected_batch(position: int, header: BatchHeader) -> dict[str, str]:
    horizon = header.delete_horizon_ms
    time = "LogAppendTime" if header.timestamp_type is TimestampType.LOG_APPEND_TIME else "CreateTime"
    expected = {
        "baseOffset": header.base_offset,
        "lastOffset": header.last_offset,
        "count": header.record_count,
        "baseSequence": header.base_sequence,
        "producerId": header.producer_id,
        "producerEpoch": header.producer_epoch,
        "partitionLeaderEpoch": header.leader_epoch,
        "isTransactional": str(header.is_transactional).lower(),
        "isControl": str(header.is_control).lower(),
        "deleteHorizonMs": "OptionalLong.empty" if horizon is None else f"OptionalLong[{horizon}]",
        "position": position,
        time: header.max_timestamp,
        "size": header.size,
        "magic": 2,
        "compresscodec": Codec(header.codec).name.lower(),
        "crc": header.crc,
        "isvalid": "true",
    }
    return {name: str(value) for name, value in expected.items()}


def test_every_record_is_printed_as_it_was_written(exhibits: Exhibits) -> None:
    printed = _printed_records(exhibits.dump, exhibits.before)
    assert printed == [_expected_record(record) for record in exhibits.written]


def test_after_compaction_the_records_that_are_left_are_printed_as_they_were_written(exhibits: Exhibits) -> None:
    printed = _printed_records(exhibits.dump, exhibits.after)
    left = {record.offset for record in _all_records(exhibits.after)}
    stamped = [_expected_record(record) for record in exhibits.written if record.offset in left]
    assert printed == stamped


def _printed_records(dump: Dump, directory: Path) -> list[dict[str, str]]:
    lines = [line for section in dump.of(directory, ".log").values() for line in section if line.startswith("| ")]
    return [_record_of(_fields(line)) for line in lines]


def _record_of(fields: dict[str, str]) -> dict[str, str]:
    fields["time"] = fields.pop("CreateTime", "") or fields.pop("LogAppendTime", "")
    kept = ("offset", "time", "keySize", "valueSize", "headerKeys", "key", "payload", "endTxnMarker")
    return {name: fields[name] for name in kept if name in fields}


def _expected_record(record: Written) -> dict[str, str]:
    expected = {
        "offset": str(record.offset),
        "time": str(record.timestamp_ms),
        "keySize": str(-1 if record.key is None else len(record.key)),
        "valueSize": str(-1 if record.value is None else len(record.value)),
        "headerKeys": f"[{','.join(name for name, _ in record.headers)}]",
    }
    if record.key is not None and record.key[:1] == b"\0":
        return {**expected, "endTxnMarker": MarkerType(record.key[3]).name}
    if record.key is not None:
        expected["key"] = record.key.decode()
    if record.value is not None:
        expected["payload"] = record.value.decode()
    return expected


def test_every_index_entry_points_to_a_batch_with_that_last_offset(exhibits: Exhibits, directory: Path) -> None:
    count = 0
    for path, lines in exhibits.dump.of(directory, ".index").items():
        batches = {(header.last_offset, position) for position, header in _headers(path.with_suffix(".log"))}
        entries = [_fields(line) for line in lines if line.startswith("offset")]
        assert {(int(entry["offset"]), int(entry["position"])) for entry in entries} <= batches
        count += len(entries)
    assert count >= 5


def test_the_last_time_index_entry_holds_the_greatest_timestamp(exhibits: Exhibits, directory: Path) -> None:
    for path, lines in exhibits.dump.of(directory, ".timeindex").items():
        headers = [header for _, header in _headers(path.with_suffix(".log")) if header.record_count]
        greatest = max((header.max_timestamp for header in headers), default=None)
        assert [_fields(line)["timestamp"] for line in lines[-1:]] == ([] if greatest is None else [str(greatest)])


def test_kafka_finds_our_indexes_sane(exhibits: Exhibits) -> None:
    verdicts = {path: lines for path, lines in exhibits.index_check.sections.items() if Path(path).stat().st_size}
    assert len(verdicts) >= 12
    assert [path for path, lines in verdicts.items() if lines != [f"{path} passed sanity check."]] == []


def test_the_aborted_transactions_are_printed_as_they_were_ended(exhibits: Exhibits) -> None:
    printed = [_fields(line) for lines in exhibits.dump.of(exhibits.before, ".txnindex").values() for line in lines]
    aborts = [record.offset for record in exhibits.written if record.key == b"\0\0\0\0"]
    assert [(entry["producerId"], int(entry["lastOffset"])) for entry in printed] == [
        ("3", offset) for offset in aborts
    ]
    # Producer 2's transaction began one record before producer 3's and was still open when that was aborted.
    assert printed[0]["lastStableOffset"] == str(int(printed[0]["firstOffset"]) - 1)
    assert printed[1]["lastStableOffset"] == str(aborts[1] + 1)


def test_the_aborted_transactions_are_in_kafkas_bytes(exhibits: Exhibits, directory: Path) -> None:
    for path, lines in exhibits.dump.of(directory, ".txnindex").items():
        printed = [tuple(int(value) for value in _fields(line).values()) for line in lines]
        assert printed == [(0, *entry) for entry in aborted_index.decode(path.read_bytes())]


def test_every_producer_snapshot_is_printed_in_spite_of_what_stands_behind_its_entries(
    exhibits: Exhibits, directory: Path
) -> None:
    sections = exhibits.dump.of(directory, ".snapshot")
    assert len(sections) >= 3
    for path, lines in sections.items():
        entries = producer_snapshot.decode(path.read_bytes())
        assert [_fields(line) for line in lines] == [_expected_producer(entry) for entry in entries]
    assert max(len(entry.batches) for entry in entries) == 5


def _expected_producer(entry: ProducerEntry) -> dict[str, str]:
    last = entry.batches[-1]
    first = entry.transaction_first_offset
    expected = {
        "producerId": entry.producer_id,
        "producerEpoch": entry.epoch,
        "coordinatorEpoch": entry.coordinator_epoch,
        "currentTxnFirstOffset": "OptionalLong.empty" if first < 0 else f"OptionalLong[{first}]",
        "lastTimestamp": entry.last_timestamp_ms,
        "firstSequence": last.first_sequence,
        "lastSequence": last.last_sequence,
        "lastOffset": last.last_offset,
        "offsetDelta": last.offset_delta,
        "timestamp": entry.last_timestamp_ms,
    }
    return {name: str(value) for name, value in expected.items()}
