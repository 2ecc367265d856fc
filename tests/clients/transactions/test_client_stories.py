"""confluent-kafka, kafka-python and aiokafka, unmodified, in transactions: what they write, and what readers see.

Every story is told by every client that can (`clients.LACKING` says which cannot). RACE_ROUNDS says how often two
producers fight for an id (default 4).
"""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import count
from pathlib import Path

import pytest

from tests.clients.server_process import ServerProcess
from tests.clients.transactions import raw_log
from tests.clients.transactions.clients import (
    CODECS,
    LACKING,
    SECONDS_MAX,
    Ability,
    Member,
    TransactionalProducer,
    TransactionClient,
    Unstable,
    connect,
    shows,
    unshown,
)
from tests.clients.transactions.conftest import MakePlace
from tests.clients.transactions.open_producer import VALUE, leave_open
from tests.clients.transactions.raw_log import COMMITTED, LATEST, UNCOMMITTED
from tests.clients.transactions.raw_producer import Place, until
from tests.report import Report
from tests.server.wire import Wire

RACE_ROUNDS = int(os.environ.get("RACE_ROUNDS", "4"))
SHORT_TIMEOUT_MS = 1_000
"""confluent-kafka allows no shorter one."""

pytestmark = [
    pytest.mark.slow,
    # kafka-python reads its own message definitions in a way that newer Pythons advise against.
    pytest.mark.filterwarnings("ignore:read_text is deprecated:DeprecationWarning"),
    # kafka-python leaves the socket of a connection that it gives up, as it does when the machine stands still.
    pytest.mark.leaves_sockets,
    # confluent-kafka aborts when it is closed, which one that was fenced cannot do.
    pytest.mark.filterwarnings("ignore:Producer abort_transaction failed:RuntimeWarning"),
]
_numbers = count()


@pytest.fixture
def client(name: str, broker: ServerProcess) -> TransactionClient:
    return connect(name, broker.address)


@pytest.fixture
def new_id(name: str) -> Callable[[], str]:
    return lambda: f"{name}-{next(_numbers)}"


@pytest.fixture
def transactional_id(new_id: Callable[[], str]) -> str:
    return new_id()


def _values(client: TransactionClient, place: Place, *, committed: bool) -> list[bytes]:
    return [value for _, value in client.read(place, committed=committed)]


def _transaction(producer: TransactionalProducer, place: Place, *values: bytes, commit: bool = True) -> None:
    producer.begin()
    producer.send(place, *values)
    producer.flush()
    if commit:
        producer.commit()
    else:
        producer.abort()


def _written(wire: Wire, place: Place, end: int) -> None:
    """Wait until the log has come to an offset: answers to ends come before their markers."""
    until(lambda: raw_log.list_offset(wire, place, LATEST, isolation=UNCOMMITTED)[1] >= end)


def _settled(wire: Wire, place: Place, end: int) -> None:
    """Wait until everything up to an offset is stable."""
    until(lambda: raw_log.list_offset(wire, place, LATEST, isolation=COMMITTED)[1] >= end)


def test_every_ability_is_shown_and_every_lack_has_a_reason() -> None:
    assert unshown(sys.modules[__name__]) == set()
    assert all(LACKING.values())


@shows(Ability.COMMIT, Ability.SEVERAL_PARTITIONS, Ability.READ_COMMITTED)
def test_a_committed_transaction_is_seen_whole_in_every_topic_and_partition(
    client: TransactionClient, transactional_id: str, make_place: MakePlace, wire: Wire
) -> None:
    first, second = make_place(partitions=2), make_place(partitions=3)
    places = [Place(first.topic, 0), Place(first.topic, 1), Place(second.topic, 2)]
    values = [b"%d" % number for number in range(30)]
    with client.producer(transactional_id) as producer:
        producer.begin()
        for place in places:
            producer.send(place, *values)
        producer.commit()
    for place in places:
        _settled(wire, place, 31)
        assert client.read(place, committed=True) == list(enumerate(values))
        assert client.end_offset(place, committed=True) == 31, "the marker has an offset too"
    assert client.end_offset(second, committed=False) == 0


@shows(Ability.ABORT, Ability.READ_COMMITTED, Ability.READ_UNCOMMITTED)
def test_an_aborted_transaction_is_seen_only_by_who_reads_everything(
    client: TransactionClient, transactional_id: str, make_place: MakePlace, wire: Wire
) -> None:
    place = make_place()
    with client.producer(transactional_id) as producer:
        _transaction(producer, place, b"a", b"b", commit=False)
        _transaction(producer, place, b"c")
        _transaction(producer, place, b"d", commit=False)
    _settled(wire, place, 7)
    assert client.read(place, committed=True) == [(3, b"c")]
    assert client.read(place, committed=False) == [(0, b"a"), (1, b"b"), (3, b"c"), (5, b"d")]


@shows(Ability.EMPTY)
@pytest.mark.parametrize("commit", [True, False])
def test_a_transaction_in_which_nothing_was_written_leaves_nothing_behind(
    client: TransactionClient, transactional_id: str, make_place: MakePlace, wire: Wire, commit: bool
) -> None:
    place = make_place()
    with client.producer(transactional_id) as producer:
        for _ in range(2):
            producer.begin()
            producer.commit() if commit else producer.abort()
        _transaction(producer, place, b"x")
    _settled(wire, place, 2)
    assert client.read(place, committed=True) == [(0, b"x")]
    assert client.end_offset(place, committed=True) == 2


@shows(Ability.EVERY_CODEC)
def test_transactions_with_every_codec_are_kept_or_dropped_as_they_were_ended(
    client: TransactionClient, new_id: Callable[[], str], make_place: MakePlace, wire: Wire
) -> None:
    place, end = make_place(), 0
    kept = []
    for codec in CODECS:
        values = [b"%s %d " % (codec.encode(), number) + b"x" * 300 for number in range(20)]
        with client.producer(new_id(), codec=codec) as producer:
            _transaction(producer, place, *values)
            _transaction(producer, place, *values, commit=False)
        kept += values
        end += 42
    _settled(wire, place, end)
    assert _values(client, place, committed=True) == kept
    assert len(_values(client, place, committed=False)) == 2 * len(kept)


@shows(Ability.FENCE)
def test_an_older_producer_with_an_open_transaction_is_fenced_and_loses_it(
    client: TransactionClient, transactional_id: str, make_place: MakePlace, wire: Wire
) -> None:
    place = make_place()
    with client.producer(transactional_id) as older:
        older.begin()
        older.send(place, b"of the older")
        older.flush()
        with client.producer(transactional_id) as newer:
            # No time has to pass: beginning anew has ended what was open.
            _settled(wire, place, 2)
            with pytest.raises(Exception) as caught:  # noqa: PT011  (each client has a class of its own)
                older.commit()
            assert client.is_fenced(caught.value), caught.value
            _transaction(newer, place, b"of the newer")
            _settled(wire, place, 4)
    assert client.read(place, committed=True) == [(2, b"of the newer")]


@shows(Ability.FENCE)
def test_an_older_producer_that_was_idle_is_fenced_when_it_writes_and_changes_nothing(
    client: TransactionClient, transactional_id: str, make_place: MakePlace, wire: Wire
) -> None:
    place = make_place()
    with client.producer(transactional_id) as older, client.producer(transactional_id) as newer:
        newer.begin()
        newer.send(place, b"of the newer")
        newer.flush()
        with pytest.raises(Exception) as caught:  # noqa: PT011
            _transaction(older, place, b"of the older")
        assert client.is_fenced(caught.value), caught.value
        newer.commit()
        _settled(wire, place, 2)
    assert client.read(place, committed=False) == [(0, b"of the newer")]
    assert client.end_offset(place, committed=True) == 2


@shows(Ability.TIME_OUT)
def test_a_transaction_that_takes_too_long_is_aborted_and_its_late_commit_fails(
    client: TransactionClient, transactional_id: str, make_place: MakePlace, wire: Wire
) -> None:
    place = make_place()
    with client.producer(transactional_id, timeout_ms=SHORT_TIMEOUT_MS) as slow:
        slow.begin()
        slow.send(place, b"too slow")
        slow.flush()
        _settled(wire, place, 2)
        with pytest.raises(Exception) as caught:  # noqa: PT011
            slow.commit()
        assert not isinstance(caught.value, TimeoutError), caught.value
        with client.producer(transactional_id) as next_one:
            _transaction(next_one, place, b"in time")
            _settled(wire, place, 4)
    assert client.read(place, committed=True) == [(2, b"in time")]
    assert client.read(place, committed=False) == [(0, b"too slow"), (2, b"in time")]


@shows(Ability.RESUME)
def test_a_producer_takes_over_from_a_killed_one_whose_transaction_is_aborted_at_once(
    client: TransactionClient,
    transactional_id: str,
    make_place: MakePlace,
    wire: Wire,
    broker: ServerProcess,
    tmp_path: Path,
) -> None:
    place = make_place()
    leave_open(client.name, broker.address, transactional_id, place, tmp_path / "killed.log")
    assert client.end_offset(place, committed=True) == 0
    with client.producer(transactional_id) as successor:
        _settled(wire, place, 2)
        _transaction(successor, place, b"of the successor")
        _settled(wire, place, 4)
    assert client.read(place, committed=True) == [(2, b"of the successor")]
    assert client.read(place, committed=False) == [(0, VALUE), (2, b"of the successor")]


@shows(Ability.RACE)
def test_two_producers_that_fight_for_an_id_lose_whole_transactions_or_nothing(
    client: TransactionClient, transactional_id: str, make_place: MakePlace, wire: Wire, report_lines: Report
) -> None:
    first = make_place(partitions=2)
    second = Place(first.topic, 1)
    outcomes: dict[bytes, bool] = {}
    together = threading.Barrier(2)

    def contend(name: str) -> None:
        for number in range(RACE_ROUNDS):
            together.wait(SECONDS_MAX)
            try:
                with client.producer(transactional_id) as producer:
                    for part in range(3):
                        value = f"{name} {number} {part}".encode()
                        outcomes[value] = False
                        producer.begin()
                        producer.send(first, value)
                        producer.send(second, value)
                        # kafka-python would commit without the records of which it had been refused some.
                        producer.flush()
                        producer.commit()
                        outcomes[value] = True
            except Exception as error:
                if not client.is_fenced(error):
                    raise

    with ThreadPoolExecutor(2) as pool:
        for done in [pool.submit(contend, name) for name in ("left", "right")]:
            done.result()
    with client.producer(transactional_id) as last:
        last.begin()
        last.send(first, b"last")
        last.send(second, b"last")
        last.commit()
    committed = {value for value, is_committed in outcomes.items() if is_committed}
    for place in (first, second):
        _settled(wire, place, raw_log.list_offset(wire, place, LATEST, isolation=UNCOMMITTED)[1])
        seen = _values(client, place, committed=True)
        assert set(seen) == {*committed, b"last"}
        assert len(seen) == len(set(seen)), "none twice"
    report_lines.say(
        "two producers on one id", f"{client.name}: {len(outcomes)} transactions begun, {len(committed)} committed"
    )


@shows(Ability.OFFSETS)
def test_offsets_in_a_transaction_count_when_it_is_committed_and_not_when_it_is_aborted(
    client: TransactionClient, transactional_id: str, make_place: MakePlace, wire: Wire
) -> None:
    source, target = make_place(), make_place()
    group = f"group-of-{transactional_id}"
    with client.producer(transactional_id) as producer:
        producer.begin()
        producer.send(target, b"kept")
        producer.send_offsets(group, {source: 5})
        producer.commit()
        _settled(wire, target, 2)
        until(lambda: client.stored(group, source, stable=False) == 5)
        producer.begin()
        producer.send(target, b"dropped")
        producer.send_offsets(group, {source: 9})
        producer.flush()
        producer.abort()
        _settled(wire, target, 4)
    assert client.stored(group, source, stable=False) == 5
    assert client.read(target, committed=True) == [(0, b"kept")]


@shows(Ability.STABLE_OFFSETS)
def test_who_asks_for_stable_offsets_waits_until_the_transaction_has_ended(
    client: TransactionClient, transactional_id: str, make_place: MakePlace
) -> None:
    source = make_place()
    group = f"group-of-{transactional_id}"

    def is_stored(offset: int) -> bool:
        try:
            return client.stored(group, source, stable=True) == offset
        except Unstable:
            return False

    with client.producer(transactional_id) as producer:
        producer.begin()
        producer.send_offsets(group, {source: 5})
        producer.commit()
        until(lambda: is_stored(5))
        producer.begin()
        producer.send_offsets(group, {source: 9})
        with pytest.raises(Unstable):
            client.stored(group, source, stable=True)
        assert client.stored(group, source, stable=False) == 5
        producer.commit()
        until(lambda: is_stored(9))


@shows(Ability.READ_COMMITTED, Ability.READ_UNCOMMITTED, Ability.END_OFFSETS)
def test_an_open_transaction_holds_back_all_that_comes_after_it(
    client: TransactionClient, new_id: Callable[[], str], make_place: MakePlace, wire: Wire
) -> None:
    place = make_place()
    wire.produce(place.topic, [b"plain 0"])
    with (
        client.producer(new_id()) as late,
        client.producer(new_id()) as keeper,
        client.producer(new_id()) as dropper,
    ):
        late.begin()
        late.send(place, b"late 1")
        late.flush()
        _transaction(keeper, place, b"kept 2")
        _written(wire, place, 4)
        _transaction(dropper, place, b"dropped 4", commit=False)
        _written(wire, place, 6)
        wire.produce(place.topic, [b"plain 6"])
        late.send(place, b"late 7")
        late.flush()
        everything = [
            (0, b"plain 0"), (1, b"late 1"), (2, b"kept 2"), (4, b"dropped 4"), (6, b"plain 6"), (7, b"late 7"),
        ]  # fmt: skip
        assert client.end_offset(place, committed=False) == 8
        assert client.read(place, committed=False) == everything
        assert client.read(place, committed=True) == [(0, b"plain 0")]
        assert client.end_offset(place, committed=True) == 1
        late.commit()
        _settled(wire, place, 9)
    assert client.read(place, committed=True) == [each for each in everything if each != (4, b"dropped 4")]
    assert client.read(place, committed=True, start=3) == [(6, b"plain 6"), (7, b"late 7")]
    assert client.read(place, committed=False) == everything
    assert client.end_offset(place, committed=True) == client.end_offset(place, committed=False) == 9


@shows(Ability.READ_COMMITTED)
def test_transactions_that_overlap_in_a_partition_are_told_apart(
    client: TransactionClient, new_id: Callable[[], str], make_place: MakePlace, wire: Wire
) -> None:
    place = make_place()
    producers = [client.producer(new_id()) for _ in range(4)]
    kept = []
    for turn in range(3):
        for number, producer in enumerate(producers):
            producer.begin()
            producer.send(place, b"%d %d first" % (turn, number))
            producer.flush()
        for number, producer in enumerate(producers):
            producer.send(place, b"%d %d second" % (turn, number))
            producer.flush()
            if (turn + number) % 2:
                producer.abort()
                continue
            producer.commit()
            kept += [b"%d %d first" % (turn, number), b"%d %d second" % (turn, number)]
    for producer in producers:
        producer.close()
    _settled(wire, place, 3 * 4 * 3)
    seen = _values(client, place, committed=True)
    assert sorted(seen) == sorted(kept)
    assert len(_values(client, place, committed=False)) == 3 * 4 * 2


@shows(Ability.LAST_STABLE_OFFSET)
def test_a_reader_is_told_where_the_first_open_transaction_begins(
    client: TransactionClient, transactional_id: str, make_place: MakePlace, wire: Wire
) -> None:
    place = make_place()
    wire.produce(place.topic, [b"plain"] * 3)
    with client.producer(transactional_id) as producer:
        producer.begin()
        producer.send(place, b"open")
        producer.flush()
        assert client.last_stable_offset(place) == 3
        producer.abort()
        _settled(wire, place, 5)
    assert client.last_stable_offset(place) == 5


def _copied(member: Member, producer: TransactionalProducer, target: str, total: int) -> Iterator[tuple[Place, int]]:
    """Copy until so many records are copied; every third transaction is aborted and done again."""
    turns, copied = 0, 0
    while copied < total:
        records = member.poll()
        if not records:
            continue
        turns += 1
        starts: dict[Place, int] = {}
        ends: dict[Place, int] = {}
        producer.begin()
        for place, offset, value in records:
            starts.setdefault(place, offset)
            ends[place] = offset + 1
            producer.send(Place(target, place.partition), value)
        producer.send_offsets(member, ends)
        if turns % 3 == 1:
            producer.abort()
            member.rewind(starts)
        else:
            producer.commit()
            copied += len(records)
            yield from ends.items()


@shows(Ability.COPY)
def test_a_member_copies_what_is_committed_once_and_in_order(
    client: TransactionClient, new_id: Callable[[], str], make_place: MakePlace, wire: Wire
) -> None:
    source, target = make_place(partitions=2), make_place(partitions=2)
    places = [Place(source.topic, partition) for partition in range(2)]
    with client.producer(new_id()) as writer:
        for number in range(6):
            writer.begin()
            for place in places:
                writer.send(place, *(b"%d %d" % (number, part) for part in range(15)))
            writer.flush()
            writer.abort() if number % 3 == 2 else writer.commit()
    for place in places:
        _settled(wire, place, 6 * 16)
    expected = [b"%d %d" % (number, part) for number in (0, 1, 3, 4) for part in range(15)]
    group = new_id()
    member = client.member(group, source.topic)
    try:
        with client.producer(new_id()) as producer:
            stored = dict(_copied(member, producer, target.topic, 2 * len(expected)))
            assert member.poll() == []
    finally:
        member.close()
    for place in places:
        assert _values(client, Place(target.topic, place.partition), committed=True) == expected
        assert client.stored(group, place, stable=False) == stored[place]
