"""Batches that are on their way while their transaction is ended: in it, or refused, and never behind its marker.

LATE_ROUNDS says how many transactions are tried (default 40).
"""

from __future__ import annotations

import os
from collections import Counter
from concurrent.futures import ThreadPoolExecutor

import pytest

from ottla.error_codes import ErrorCode
from tests.clients.server_process import ServerProcess
from tests.clients.transactions.conftest import MakePlace
from tests.clients.transactions.raw_log import COMMITTED, LATEST, UNCOMMITTED, fetch_all, list_offset
from tests.clients.transactions.raw_producer import TRANSACTION, Place, RawProducer, find_coordinator, until
from tests.report import Report
from tests.server.wire import Wire

ROUNDS = int(os.environ.get("LATE_ROUNDS", "40"))
SECTION = "batches while their transaction is ended"


class Rounds:
    """A producer that does not wait for its last batch, over two connections."""

    def __init__(self, wire: Wire, other: Wire, places: tuple[Place, Place], *, is_new: bool) -> None:
        self._wire = wire
        self._places = places
        self._is_new = is_new
        self._producer = RawProducer(wire, f"{places[0].topic}-id")
        self._late = RawProducer(other, self._producer.transactional_id)
        find_coordinator(wire, self._producer.transactional_id, TRANSACTION)
        self._producer.init_patiently()
        self.codes: Counter[str] = Counter()
        self.expected: dict[Place, list[tuple[bytes, str]]] = {place: [] for place in places}
        """What is in the log by the answers: each value, and how its transaction ended."""

    def run(self, number: int) -> None:
        """One transaction. Its second batch goes to a partition that is in it already, or to one that is not yet."""
        first, late = self._places[0], self._places[number % 2]
        commit = number % 3 != 0
        version = 12 if self._is_new else 11
        if not self._is_new:
            assert set(self._producer.add(self._places).values()) == {ErrorCode.NONE}
        value, later = b"%d" % number, b"%d late" % number
        assert self._producer.produce(self._producer.batch(first, [value]), version=version)[0] is ErrorCode.NONE
        batch = self._producer.batch(late, [later])
        with ThreadPoolExecutor(1) as pool:
            sent = pool.submit(self._late.produce, batch, version=version)
            self._end(commit=commit)
            code = sent.result()[0]
        self.codes[code.name] += 1
        ended = "COMMIT" if commit else "ABORT"
        self.expected[first].append((value, ended))
        if code is ErrorCode.NONE:
            self._producer.taken(batch)
            self.expected[late].append((later, ended))
        self._producer.settle()
        for place in self._places:
            ends = [list_offset(self._wire, place, LATEST, isolation=each)[1] for each in (COMMITTED, UNCOMMITTED)]
            assert ends[0] == ends[1], "nothing is left open behind the marker"

    def _end(self, *, commit: bool) -> None:
        """As clients do it: again, while the coordinator says that it is busy with the transaction."""

        def is_taken() -> bool:
            code = self._producer.end(commit=commit, version=5 if self._is_new else 4)
            assert code in (ErrorCode.NONE, ErrorCode.CONCURRENT_TRANSACTIONS)
            return code is ErrorCode.NONE

        until(is_taken)


def _told(wire: Wire, place: Place) -> list[tuple[bytes, str]]:
    """Every record of a log, and the marker that follows it."""
    found: list[tuple[bytes, str]] = []
    waiting: list[bytes] = []
    for entry in fetch_all(wire, place):
        if entry.values:
            waiting += [value or b"" for value in entry.values]
        else:
            found += [(value, entry.kind) for value in waiting]
            waiting = []
    assert not waiting
    return found


@pytest.mark.parametrize("is_new", [True, False], ids=["version 2", "version 1"])
def test_a_batch_that_races_the_end_is_in_the_transaction_or_nowhere(
    broker: ServerProcess, wire: Wire, make_place: MakePlace, report_lines: Report, is_new: bool
) -> None:
    first = make_place(partitions=2)
    places = (first, Place(first.topic, 1))
    with Wire(broker) as other:
        rounds = Rounds(wire, other, places, is_new=is_new)
        for number in range(ROUNDS):
            rounds.run(number)
    for place in places:
        assert _told(wire, place) == rounds.expected[place]
    report_lines.say(SECTION, f"{'version 2' if is_new else 'version 1'}: {dict(rounds.codes)}")
