"""Stories of transactions, told in files: see `stage` for the language.

With OTTLA_REWRITE=1 the files are written anew with what comes out today; read the difference before you commit it.
Together they must tell of everything: each decision in each state, each way from one state to another, each error.
"""

from __future__ import annotations

import ast
import os
from pathlib import Path

import pytest

import ottla.errors
from ottla.coordinators import transactions
from tests.coordinators.transactions.stage import NOTHING, Seen, Stage

SCENARIOS = sorted(Path(__file__).with_name("scenarios").glob("*.txt"))
RULE = "----"

AT_REST = ("Empty", "CompleteCommit", "CompleteAbort", "CompleteAbort fenced", "CompleteAbort timed out")
BEING_ENDED = ("PrepareCommit", "PrepareAbort", "PrepareAbort fenced", "PrepareAbort timed out")
STATES = (*AT_REST, "Ongoing", *BEING_ENDED)
DECISIONS = (
    "init",
    "init held",
    "add",
    "verify",
    "ongoing",
    "end commit 1",
    "end abort 1",
    "end commit 2",
    "end abort 2",
    "completed",
    "abort",
    "describe",
    "together",
    "keep",
)
EVERY_DECISION = (
    {(state, decision) for state in (NOTHING, *STATES) for decision in DECISIONS}
    | {(state, decision) for state in STATES for decision in ("list", "load", "expire")}
    | {(state, "park") for state in BEING_ENDED}
    | {("Ongoing", "timeout")}
)
EVERY_MOVE = {
    (before, after)
    for before, afters in {
        NOTHING: ("Empty",),
        "Ongoing": ("Ongoing", *BEING_ENDED),
        "PrepareCommit": ("CompleteCommit",),
        "PrepareAbort": ("CompleteAbort",),
        "PrepareAbort fenced": ("CompleteAbort fenced",),
        "PrepareAbort timed out": ("CompleteAbort timed out",),
        **dict.fromkeys(AT_REST, ("Empty", "Ongoing", "PrepareAbort", NOTHING)),
    }.items()
    for after in afters
}
EVERY_REFUSAL = {
    (decision, code)
    for decision, codes in {
        "init": "INVALID_REQUEST INVALID_TRANSACTION_TIMEOUT PRODUCER_FENCED CONCURRENT_TRANSACTIONS",
        "add": "INVALID_REQUEST INVALID_PRODUCER_ID_MAPPING PRODUCER_FENCED CONCURRENT_TRANSACTIONS",
        "verify": "INVALID_PRODUCER_ID_MAPPING PRODUCER_FENCED CONCURRENT_TRANSACTIONS TRANSACTION_ABORTABLE",
        "ongoing": "INVALID_PRODUCER_ID_MAPPING PRODUCER_FENCED INVALID_TXN_STATE",
        "end": "INVALID_REQUEST INVALID_PRODUCER_ID_MAPPING PRODUCER_FENCED INVALID_TXN_STATE CONCURRENT_TRANSACTIONS",
        "abort": "TRANSACTIONAL_ID_NOT_FOUND INVALID_TXN_STATE CONCURRENT_TRANSACTIONS",
        "describe": "TRANSACTIONAL_ID_NOT_FOUND",
        "list": "INVALID_REGULAR_EXPRESSION",
        "together": "INVALID_REQUEST INVALID_PRODUCER_ID_MAPPING PRODUCER_FENCED CONCURRENT_TRANSACTIONS "
        "INVALID_TXN_STATE",
        "keep": "INVALID_REQUEST INVALID_PRODUCER_ID_MAPPING PRODUCER_FENCED INVALID_TXN_STATE",
    }.items()
    for code in codes.split()
}


def played(text: str, seen: Seen | None = None) -> str:
    """The same scenario, with what came out of it this time."""
    stage = Stage(seen)
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


@pytest.fixture(scope="module")
def seen() -> Seen:
    """All that happens in all scenarios."""
    everything = Seen()
    for path in SCENARIOS:
        played(path.read_text(encoding="utf-8"), everything)
    return everything


@pytest.mark.parametrize("path", SCENARIOS, ids=lambda path: path.stem)
def test_a_scenario_goes_as_it_is_told(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    again = played(text)
    if os.environ.get("OTTLA_REWRITE") == "1":
        path.write_text(again, encoding="utf-8")
    else:
        assert again == text


def test_every_decision_is_told_of_in_every_state(seen: Seen) -> None:
    assert EVERY_DECISION - seen.decisions == set(), "no scenario"


def test_ids_go_where_they_may_and_a_scenario_tells_of_each_way(seen: Seen) -> None:
    assert seen.moves == EVERY_MOVE


def test_every_error_is_told_of_and_there_is_no_other(seen: Seen) -> None:
    assert seen.refusals == EVERY_REFUSAL


def test_every_error_that_the_code_raises_is_told_of(seen: Seen) -> None:
    (folder,) = transactions.__path__
    raised = {
        node.func.id
        for path in Path(folder).glob("*.py")
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name)
    }
    codes = {
        found.code.name
        for name in raised
        if isinstance(found := getattr(ottla.errors, name, None), type) and issubclass(found, ottla.errors.Refusal)
    }

    assert len(codes) > 5
    assert codes <= {code for _, code in seen.refusals}


def test_a_scenario_that_goes_another_way_is_noticed() -> None:
    told = "init a\n----\nrefused a: NOT_COORDINATOR\n"

    assert played(told) != told
