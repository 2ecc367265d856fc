"""Clients that use one transactional id at once, and transactions that end while they time out: all or nothing.

RACE_TRANSACTIONS says how many transactions each of the three clients begins (default 30), RACE_SEED which.
"""

from __future__ import annotations

import os

from tests.clients.server_process import ServerProcess
from tests.clients.transactions.conftest import MakePlace
from tests.clients.transactions.race import Race
from tests.clients.transactions.raw_log import COMMITTED, LATEST, UNCOMMITTED, fetch, fetch_offset, list_offset
from tests.clients.transactions.raw_producer import Place, RawProducer
from tests.report import Report
from tests.server.wire import Wire

CLIENTS = 3
TRANSACTIONS = int(os.environ.get("RACE_TRANSACTIONS", "30"))
SEED = int(os.environ.get("RACE_SEED", "1"))
SECTION = "races for a transactional id"


def _committed(wire: Wire, place: Place) -> list[int]:
    """The numbers that readers of what is committed see, in order."""
    aborted: set[int] = set()
    seen: list[int] = []
    offset = 0
    while (view := fetch(wire, place, offset, isolation=COMMITTED)).entries:
        begun = sorted(view.aborted, key=lambda each: each[1])
        for entry in view.entries:
            while begun and begun[0][1] <= entry.last:
                aborted.add(begun.pop(0)[0])
            if entry.kind == "ABORT":
                aborted.discard(entry.producer_id)
            elif entry.kind == "transactional" and entry.producer_id not in aborted:
                seen += [int(value or b"") for value in entry.values]
        offset = view.entries[-1].last + 1
    return seen


def _run(server: ServerProcess, wire: Wire, make_place: MakePlace, *, is_mixed: bool) -> str:
    """Run a race and check everything that was promised; what came of it."""
    first, source = make_place(partitions=2), make_place()
    places = (first, Place(first.topic, 1))
    race = Race(server, first.topic, places, f"group-of-{first.topic}", source, is_mixed)
    race.run(clients=CLIENTS, transactions=TRANSACTIONS, seed=SEED)

    last = RawProducer(wire, race.transactional_id)
    last.init_patiently()
    ends = [list_offset(wire, place, LATEST, isolation=COMMITTED)[1] for place in places]
    assert ends == [list_offset(wire, place, LATEST, isolation=UNCOMMITTED)[1] for place in places]
    seen = [_committed(wire, place) for place in places]
    assert seen[0] == seen[1], "both partitions saw the same transactions in the same order"
    assert sorted(seen[0]) == sorted(race.committed), "what was acknowledged, once, and nothing else"
    stored = fetch_offset(wire, race.group, source, version=7, stable=True)[1]
    assert stored == seen[0][-1], "the group's offsets are those of the last one"
    return f"{len(race.begun)} begun (seed {SEED}), {len(race.committed)} committed; {dict(race.codes)}"


def test_every_transaction_of_a_race_is_seen_whole_if_its_commit_was_acknowledged_and_not_at_all_otherwise(
    broker: ServerProcess, wire: Wire, make_place: MakePlace, report_lines: Report
) -> None:
    report_lines.say(SECTION, f"{CLIENTS} clients, {_run(broker, wire, make_place, is_mixed=False)}")


def test_the_same_holds_for_clients_that_change_between_the_versions_of_transactions(
    ottla: ServerProcess, wire: Wire, make_place: MakePlace, report_lines: Report
) -> None:
    # In Kafka a batch of version 12 joins the transaction that EndTxn 4 has just ended; no client does this.
    report_lines.say(SECTION, f"{CLIENTS} clients, versions mixed, {_run(ottla, wire, make_place, is_mixed=True)}")
