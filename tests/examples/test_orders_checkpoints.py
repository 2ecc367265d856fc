"""How far queries have got, read from checkpoints as Spark lays them out."""

from __future__ import annotations

import json
from pathlib import Path

from examples.orders.checkpoints import committed


def _query(checkpoints: Path, name: str, batches: list[dict[str, dict[str, int]]], *, commits: int) -> None:
    for folder in ("offsets", "commits"):
        (checkpoints / name / folder).mkdir(parents=True)
    for number, offsets in enumerate(batches):
        text = "\n".join(("v1", json.dumps({"batchWatermarkMs": 0}), json.dumps(offsets)))
        (checkpoints / name / "offsets" / str(number)).write_text(text, encoding="utf-8")
    for number in range(commits):
        (checkpoints / name / "commits" / str(number)).write_text('v1\n{"nextBatchWatermarkMs":0}', encoding="utf-8")
        (checkpoints / name / "commits" / f".{number}.crc").write_bytes(b"")


def test_a_batch_counts_when_it_is_committed_and_not_when_it_is_planned(tmp_path: Path) -> None:
    _query(tmp_path, "revenue", [{"orders": {"0": 5, "1": 6}}, {"orders": {"0": 9, "1": 9}}], commits=1)

    assert committed(tmp_path, "orders") == {"revenue": {0: 5, 1: 6}}


def test_a_query_in_its_first_batch_has_done_nothing(tmp_path: Path) -> None:
    _query(tmp_path, "revenue", [{"orders": {"0": 5}}], commits=0)

    assert committed(tmp_path, "orders") == {"revenue": {}}


def test_of_several_sources_the_one_that_was_asked_for_is_found(tmp_path: Path) -> None:
    _query(tmp_path, "joined", [], commits=1)
    text = 'v1\n{}\n-\n{"others":{"0":1}}\n{"orders":{"0":7}}'
    (tmp_path / "joined" / "offsets" / "0").write_text(text, encoding="utf-8")

    assert committed(tmp_path, "orders") == {"joined": {0: 7}}


def test_a_query_that_reads_something_else_is_left_out(tmp_path: Path) -> None:
    _query(tmp_path, "other", [{"others": {"0": 5}}], commits=1)

    assert committed(tmp_path, "orders") == {}


def test_the_tenth_batch_comes_after_the_ninth(tmp_path: Path) -> None:
    _query(tmp_path, "revenue", [{"orders": {"0": number}} for number in range(12)], commits=12)

    assert committed(tmp_path, "orders") == {"revenue": {0: 11}}
