"""The golden data directory: what earlier versions of Ottla wrote opens, and what is written now is the same.

A test that fails here says that the format has changed. If that was meant, `tests/storage/golden/make.py` says
what to do.
"""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

import ottla.storage
from ottla.clock import ManualClock
from ottla.errors import InvalidTopicLayout
from ottla.records.compression import Codec
from ottla.storage.checkpoint import encode_number
from ottla.storage.disk import OsDisk
from ottla.storage.layout import DataDirectory, encode_format
from ottla.storage.log import Log
from ottla.storage.recovery import FORMAT_FILE
from tests.storage.golden.make import CONFIGS, GOLDEN, NOW_MS, TOPIC_IDS, describe, make

GOLDEN_BYTES_MAX = 60_000


def _files(directory: Path) -> dict[str, bytes]:
    return {str(path.relative_to(directory)): path.read_bytes() for path in directory.rglob("*") if path.is_file()}


def _open(directory: Path, topic: str) -> Log:
    return Log.open(OsDisk(), str(directory / f"{topic}-0"), config=CONFIGS[topic], clock=ManualClock(NOW_MS))


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """A copy of the golden data directory."""
    return Path(shutil.copytree(GOLDEN / "data", tmp_path / "data"))


def test_the_golden_directory_holds_the_records_that_were_written(data: Path) -> None:
    assert list(describe(data)) == (GOLDEN / "records.txt").read_text(encoding="utf-8").splitlines()


def test_writing_the_golden_directory_again_gives_the_same_bytes(tmp_path: Path) -> None:
    make(tmp_path / "again")
    made, golden = _files(tmp_path / "again"), _files(GOLDEN / "data")
    assert sorted(made) == sorted(golden)
    assert [name for name in golden if made[name] != golden[name]] == []


def test_opening_a_golden_log_that_was_closed_changes_no_file(data: Path) -> None:
    before = _files(data)
    for topic in ("journal", "table"):
        log = _open(data, topic)
        assert (log.recovery.clean, log.recovery.scanned_bytes, log.recovery.damage) == (True, 0, [])
        log.close()
    assert _files(data) == before


def test_the_golden_log_that_was_interrupted_loses_half_a_batch_and_no_more(data: Path) -> None:
    log = _open(data, "interrupted")
    assert (log.recovery.clean, log.recovery.cut_bytes, log.end_offset) == (False, 50, 7)
    assert log.recovery.damage == []


def test_the_golden_directory_names_its_partitions_and_their_topic_ids(data: Path) -> None:
    directory = DataDirectory.open(OsDisk(), str(data))
    found = {partition.topic: metadata.topic_id for partition, metadata in directory.partitions().items()}
    directory.close()
    assert found == TOPIC_IDS


def test_every_codec_and_every_kind_of_file_stands_in_the_golden_directory() -> None:
    suffixes = {Path(name).suffix for name in _files(GOLDEN / "data")}
    assert suffixes >= {".log", ".index", ".timeindex", ".txnindex", ".snapshot", ".seal", ".metadata", ".format"}
    text = (GOLDEN / "records.txt").read_text(encoding="utf-8")
    assert [codec for codec in Codec if f" {codec.name.lower()}\n" not in text] == []


def test_the_seal_that_the_format_page_shows_stands_in_the_golden_directory() -> None:
    page = (Path(ottla.storage.__file__).parent / "FORMAT.md").read_text(encoding="utf-8")
    seals = [data.decode() for name, data in _files(GOLDEN / "data").items() if name.endswith(".seal")]
    assert [seal for seal in seals if f"```\n{seal}```" in page] != []


def test_the_golden_directory_stays_small() -> None:
    files = {name: data for name, data in _files(GOLDEN).items() if "__pycache__" not in name}
    assert sum(map(len, files.values())) < GOLDEN_BYTES_MAX


@pytest.mark.parametrize(("version", "advice"), [(0, "open it with the Ottla that wrote it"), (2, "upgrade Ottla")])
def test_a_log_of_another_format_version_is_refused_with_what_to_do(data: Path, version: int, advice: str) -> None:
    path = data / "journal-0" / FORMAT_FILE
    path.write_bytes(encode_number(FORMAT_FILE, version))
    before = _files(data)
    with pytest.raises(InvalidTopicLayout, match=f"log format {version}, this Ottla reads 1.*{advice}") as refusal:
        _open(data, "journal")
    assert str(path) in str(refusal.value)
    assert _files(data) == before


@pytest.mark.parametrize(
    ("version", "advice"), [(0, "run the version of Ottla that wrote it"), (2, "at least as new as the one")]
)
def test_a_data_directory_of_another_format_version_is_refused(data: Path, version: int, advice: str) -> None:
    (data / "ottla.format").write_bytes(encode_format(version))
    before = _files(data)
    with pytest.raises(InvalidTopicLayout, match=f"format {version}, this Ottla reads format 1.*{advice}"):
        DataDirectory.open(OsDisk(), str(data))
    assert _files(data) == before
