"""What Kafka's own client sends, replayed to a real broker."""

from __future__ import annotations

from pathlib import Path

from bench.replay import HERE, replay


def test_a_broker_takes_what_is_replayed_and_its_time_is_counted(tmp_path: Path) -> None:
    # It looks itself whether the topic holds everything.
    spent = replay(HERE, tmp_path, gigabytes=0.05, pause_us=100)
    assert 0 < spent.kernel_seconds <= spent.seconds
