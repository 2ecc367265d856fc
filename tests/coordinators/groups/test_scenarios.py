"""Stories of groups, told in files: see `stage` for the language.

With OTTLA_REWRITE=1 the files are written anew with what comes out today; read the difference before you commit it.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.coordinators.groups.plays import PLAYS
from tests.coordinators.groups.stage import Stage

SCENARIOS = sorted(Path(__file__).with_name("scenarios").glob("*.txt"))
RULE = "----"


def played(text: str) -> str:
    """The same scenario, with what came out of it this time."""
    stage = Stage(PLAYS)
    told: list[str] = []
    for block in text.strip("\n").split("\n\n"):
        lines = block.splitlines()
        commands = lines[: lines.index(RULE)] if RULE in lines else lines
        spoken = [line for line in commands if line and not line.startswith("#")]
        if RULE not in lines:
            assert not spoken, f"{spoken[0]!r} has no {RULE} behind it"
            told.append(block)
        else:
            told.append("\n".join([*commands, RULE, *stage.run(spoken)]))
    return "\n\n".join(told) + "\n"


@pytest.mark.parametrize("path", SCENARIOS, ids=lambda path: path.stem)
def test_a_scenario_goes_as_it_is_told(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    again = played(text)
    if os.environ.get("OTTLA_REWRITE") == "1":
        path.write_text(again, encoding="utf-8")
    else:
        assert again == text


def test_there_are_scenarios_to_play() -> None:
    assert len(SCENARIOS) > 10


def test_a_scenario_that_goes_another_way_is_noticed() -> None:
    assert played("join a\n----\nrefused a: NOT_COORDINATOR\n") != "join a\n----\nrefused a: NOT_COORDINATOR\n"
