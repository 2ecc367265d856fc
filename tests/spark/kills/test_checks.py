"""What the checks of the kill test would say of a copy that is not right."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from tests.clients.transactions.kill_producer import pause
from tests.spark.kills.driver_process import DriverProcess
from tests.spark.kills.follower import Seen, key_of, value_of

ANSWER_SECONDS_MAX = 60
LOOK_SECONDS = 0.01
WITH_A_WORKER = """
import subprocess, sys
said_and_waits = "import time; print('up', flush=True); time.sleep(600)"
worker = subprocess.Popen([sys.executable, "-c", said_and_waits], process_group=0)
worker.wait()
"""


def _seen(*numbers: int) -> Seen:
    seen = Seen(partitions=2)
    for offset, number in enumerate(numbers):
        seen.add((key_of(1, number), value_of(1, number)), partition=1, offset=offset)
    return seen


def test_nothing_is_wrong_with_records_that_come_once_and_in_order() -> None:
    seen = _seen(0, 1, 2)

    assert seen.wrong == []
    assert seen.count == 3


@pytest.mark.parametrize("numbers", [(0, 0, 1), (0, 2), (1, 0), (0, 1, 0)], ids=["twice", "lost", "swapped", "again"])
def test_a_record_that_comes_twice_too_early_or_too_late_is_wrong(numbers: tuple[int, ...]) -> None:
    assert _seen(*numbers).wrong


def test_a_record_of_another_partition_is_wrong() -> None:
    seen = Seen(partitions=2)

    seen.add((key_of(0, 0), value_of(0, 0)), partition=1, offset=0)

    assert seen.wrong


def test_a_record_with_another_key_is_wrong() -> None:
    seen = Seen(partitions=1)

    seen.add((b"another", value_of(0, 0)), partition=0, offset=0)

    assert seen.wrong


@pytest.mark.slow
def test_a_worker_in_a_process_group_of_its_own_outlives_the_head_and_not_the_whole(tmp_path: Path) -> None:
    driver = DriverProcess([sys.executable, "-c", WITH_A_WORKER], log=tmp_path / "log", environment={}, cwd=tmp_path)
    for _ in range(int(ANSWER_SECONDS_MAX / LOOK_SECONDS)):
        if "up" in driver.said:
            break
        pause(LOOK_SECONDS)

    outlived = driver.kill_head()
    driver.kill()

    assert outlived == 1
    assert not driver.is_alive
    assert driver.kill_head() == 0
