"""What `make run` can be told."""

from __future__ import annotations

from pathlib import Path

import pytest

from examples.orders.main import main, parsed


@pytest.fixture(autouse=True)
def _plain(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("RUN_SECONDS", "RUN_RATE", "RUN_KILL_BROKER"):
        monkeypatch.delenv(name, raising=False)


def test_without_a_word_it_goes_on_until_it_is_stopped() -> None:
    settings, directory = parsed([])

    assert (settings.seconds, settings.kill_broker, directory) == (None, False, None)


def test_the_environment_says_how_long_and_whether_the_broker_is_killed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RUN_SECONDS", "60")
    monkeypatch.setenv("RUN_KILL_BROKER", "1")
    settings, _ = parsed([])

    assert (settings.seconds, settings.kill_broker) == (60.0, True)


def test_an_option_beats_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RUN_SECONDS", "60")
    monkeypatch.setenv("RUN_RATE", "10")
    settings, _ = parsed(["--seconds", "5", "--rate", "60000"])

    assert (settings.seconds, settings.rate) == (5.0, 60_000)


def test_a_run_without_an_end_has_no_half_way(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RUN_KILL_BROKER", "1")

    with pytest.raises(SystemExit, match="2"):
        parsed([])


def test_a_directory_that_holds_something_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "orders.txt").write_text("mine", encoding="utf-8")

    with pytest.raises(SystemExit, match="is not empty"):
        main([str(tmp_path)])

    assert (tmp_path / "orders.txt").read_text(encoding="utf-8") == "mine"
