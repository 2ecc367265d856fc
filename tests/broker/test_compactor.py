"""Compaction in a process of its own: it answers, it can be ended, and it does not outlive its parent."""

from __future__ import annotations

import pickle
import threading
from pathlib import Path

import pytest

from ottla.broker.compactor import _LENGTH, ORPHANED, ChildCompactor, start_child
from ottla.clock import ManualClock
from ottla.errors import OttlaError
from ottla.records.builder import build_batch
from ottla.scheduler import ManualScheduler
from ottla.storage.compaction import CompactionResult
from ottla.storage.compaction_plan import CompactionPlan
from ottla.storage.disk import OsDisk
from ottla.storage.log import Log
from ottla.storage.log_config import LogConfig
from tests.storage.workbench import NOW_MS, installed

CONFIG = LogConfig(compact=True, delete=False, min_cleanable_dirty_ratio=0.0, segment_bytes=4 << 20)


def filled(directory: Path, *, batches: int) -> tuple[Log, CompactionPlan]:
    log = Log.open(OsDisk(), str(directory), config=CONFIG, clock=ManualClock(NOW_MS))
    for number in range(batches):
        records = [(b"%d" % (key % 50), b"%d/%d" % (number, key), NOW_MS, ()) for key in range(1_000)]
        log.append(build_batch(records), leader_epoch=0)
    log.roll()
    log.sync()
    planned = log.plan_compaction(high_watermark=log.end_offset)
    assert planned is not None
    return log, planned


def test_a_child_compacts_and_the_log_takes_its_work(tmp_path: Path) -> None:
    log, planned = filled(tmp_path / "t-0", batches=5)
    scheduler = ManualScheduler(ManualClock())
    answered = threading.Event()
    answers: list[CompactionResult | OttlaError] = []
    compactor = ChildCompactor(scheduler)
    original = scheduler.post

    def post(work: object) -> None:
        original(work)  # type: ignore[arg-type]
        answered.set()

    compactor._scheduler = type("Telling", (), {"post": staticmethod(post)})()
    compactor(log.directory, planned, answers.append)
    assert answered.wait(60)
    scheduler.run()
    (result,) = answers
    assert isinstance(result, CompactionResult)
    assert result.records_kept == 50
    assert installed(log, planned, result)
    log.close()


@pytest.mark.slow
def test_a_child_whose_parent_is_gone_ends_and_leaves_nothing_to_swap(tmp_path: Path) -> None:
    log, planned = filled(tmp_path / "t-0", batches=600)
    question = pickle.dumps((log.directory, planned))
    child = start_child()
    with child:
        assert child.stdin is not None
        child.stdin.write(_LENGTH.pack(len(question)) + question)
        child.stdin.flush()
        child.stdin.close()
        assert child.wait(30) == ORPHANED
    assert not [name for name in OsDisk().names(log.directory) if name.endswith(".seal.cleaned")]
    log.close()
