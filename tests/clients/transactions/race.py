"""Many clients that use one transactional id at once, each as fast as it can, and what became of their transactions.

Some take longer than their timeout allows. Nothing is tried again but beginning anew. What was promised is noted by the
answers that came; whether it was kept is the tests' business.
"""

from __future__ import annotations

import random
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field

from ottla.error_codes import ErrorCode
from tests.clients.server_process import ServerProcess
from tests.clients.transactions.raw_producer import GROUP, TRANSACTION, Place, RawProducer, find_coordinator
from tests.server.wire import Wire

TIMEOUTS_MS = (1, 3, 10, 60_000, 60_000, 60_000)
IN_A_ROW_MAX = 4
PAUSE_REQUESTS_MAX = 400
EXPECTED = frozenset(
    {
        ErrorCode.NONE,
        ErrorCode.PRODUCER_FENCED,
        ErrorCode.INVALID_PRODUCER_EPOCH,
        ErrorCode.INVALID_TXN_STATE,
        ErrorCode.TRANSACTION_ABORTABLE,
        ErrorCode.CONCURRENT_TRANSACTIONS,
        ErrorCode.NOT_ENOUGH_REPLICAS,
    }
)
"""What somebody may be told who comes too late."""


@dataclass(slots=True)
class Race:
    """The promises that were made, over all clients."""

    server: ServerProcess
    transactional_id: str
    places: tuple[Place, ...]
    group: str
    source: Place
    is_mixed: bool = False
    """Whether a client changes the version of its transactions from one to the next."""
    committed: set[int] = field(default_factory=set)
    begun: set[int] = field(default_factory=set)
    codes: Counter[str] = field(default_factory=Counter)

    def run(self, *, clients: int, transactions: int, seed: int) -> None:
        """Let them loose, and wait until each has begun so many transactions."""
        with ThreadPoolExecutor(clients) as pool:
            runs = [pool.submit(self._client, number, transactions, seed) for number in range(clients)]
            for each in runs:
                each.result()

    def _client(self, client: int, transactions: int, seed: int) -> None:
        chance = random.Random(f"{seed} {client}")
        with Wire(self.server) as wire:
            find_coordinator(wire, self.transactional_id, TRANSACTION)
            find_coordinator(wire, self.group, GROUP)
            producer = RawProducer(wire, self.transactional_id)
            left, is_new = 0, False
            for turn in range(transactions):
                if not left:
                    # Whoever has lost lets the others get on for a while, or none would ever come to an end.
                    for _ in range(chance.randrange(PAUSE_REQUESTS_MAX)):
                        producer.state()
                    producer.init_patiently(timeout_ms=chance.choice(TIMEOUTS_MS))
                    left = chance.randint(1, IN_A_ROW_MAX)
                    is_new = chance.random() < 0.5
                elif self.is_mixed:
                    is_new = not is_new
                number = client * transactions + turn
                self.begun.add(number)
                code = self._transaction(producer, number, is_new=is_new, commit=chance.random() < 0.7)
                assert code in EXPECTED, code
                self.codes[code.name] += 1
                left = left - 1 if code is ErrorCode.NONE else 0

    def _transaction(self, producer: RawProducer, number: int, *, is_new: bool, commit: bool) -> ErrorCode:
        """One transaction, up to the first refusal; its code."""
        if not is_new:
            (code,) = set(producer.add(self.places).values())
            if code is not ErrorCode.NONE:
                return code
        for place in self.places:
            code, _ = producer.produce(producer.batch(place, [b"%d" % number]), version=12 if is_new else 11)
            if code is not ErrorCode.NONE:
                return code
        if not is_new and (code := producer.add_offsets(self.group)) is not ErrorCode.NONE:
            return code
        stored = producer.commit_offsets(self.group, {self.source: number}, version=5 if is_new else 3)
        if stored[self.source] is not ErrorCode.NONE:
            return stored[self.source]
        code = producer.end(commit=commit, version=5 if is_new else 4)
        if code is ErrorCode.NONE and commit:
            self.committed.add(number)
        return code
