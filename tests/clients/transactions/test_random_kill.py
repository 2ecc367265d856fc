"""`kill -9` of the server at random moments around the answer to a commit that many partitions have to hear of.

Two producers commit at once, confluent-kafka's (version 1) and one by hand (version 2), each over all partitions of one
topic; the latter also stores an offset of a group. The server is killed within milliseconds before or after the answer,
and sometimes again while it makes good what the first kill has left. Afterwards every partition shows every commit that
was acknowledged or decided, no partition shows one that was not, the group has the offset of the last one, and an abort
of the same transactional id changes nothing of it. RANDOM_KILL_ROUNDS says how often (default 4); more if no kill has
fallen between a decision and its last marker.
"""

from __future__ import annotations

import os
import random
import select
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass, field

from confluent_kafka import KafkaException, Producer
from confluent_kafka.admin import AdminClient, NewTopic

from ottla.coordinators.transactions.records import TransactionStatus
from ottla.error_codes import ErrorCode
from tests.clients.groups.churn_topics import Topics
from tests.clients.groups.members import Place
from tests.clients.server_process import Make, ServerProcess
from tests.clients.transactions import kill_files, kill_reader
from tests.clients.transactions.kill_producer import KillProducer, pause
from tests.report import Report

ROUNDS = int(os.environ.get("RANDOM_KILL_ROUNDS", "4"))
ROUNDS_FACTOR_MAX = 5
"""How many times as many rounds there may be, until a kill has fallen where it is to fall."""
SEED = int(os.environ.get("RANDOM_KILL_SEED", "1"))
PARTITIONS = 50
SETTINGS = {
    "auto.create.topics.enable": "false",
    "offsets.topic.num.partitions": "2",
    "transaction.state.log.num.partitions": "2",
}
BEFORE_SECONDS_MAX = 0.012
AFTER_SECONDS_MAX = 0.004
AGAIN_OF_ALL = 0.5
"""How often the server is killed a second time, before it is up."""
MARKER_BYTES = 78
FIRST_SEGMENT = "00000000000000000000.log"
ANSWER_SECONDS_MAX = 60
SECTION = "kill -9 around commits"
TOPIC = "orders"
GROUP = "billing"
GROUP_PARTITION = 7
NEVER = 1_000_000
"""An offset that is stored by transactions only that are aborted."""
RAW, CONFLUENT = "raw", "confluent"
COMMITTED = frozenset({TransactionStatus.PREPARE_COMMIT, TransactionStatus.COMPLETE_COMMIT})


@dataclass
class Story:
    """What each producer must have in every partition, and how often something happened."""

    expected: dict[str, list[bytes]] = field(default_factory=lambda: {RAW: [], CONFLUENT: []})
    counts: Counter[str] = field(default_factory=Counter)

    @property
    def offsets(self) -> dict[Place, int]:
        """What the group must have stored: the number of the last commit by hand that counts."""
        last = self.expected[RAW][-1:]
        return {(TOPIC, GROUP_PARTITION): int(last[0].split()[-1])} if last else {}


class Committing:
    """A commit by confluent-kafka on a thread of its own: it lasts until the server is back, if it was not answered."""

    def __init__(self, producer: Producer) -> None:
        self.is_acknowledged = False
        self.failure: KafkaException | None = None
        self.has_answer = threading.Event()
        self._producer = producer
        self._thread = threading.Thread(target=self._commit, daemon=True)
        self._thread.start()

    def join(self) -> None:
        self._thread.join(ANSWER_SECONDS_MAX)
        assert not self._thread.is_alive(), "the commit neither worked nor failed"

    def _commit(self) -> None:
        try:
            self._producer.commit_transaction(ANSWER_SECONDS_MAX)
        except KafkaException as error:
            self.failure = error
        else:
            self.is_acknowledged = True
        self.has_answer.set()


def _confluent(server: ServerProcess) -> Producer:
    producer = Producer(
        {
            "bootstrap.servers": server.address,
            "transactional.id": CONFLUENT,
            "transaction.timeout.ms": 60_000,
            "linger.ms": 0,
            "reconnect.backoff.ms": 10,
            "reconnect.backoff.max.ms": 50,
            "retry.backoff.ms": 10,
            "retry.backoff.max.ms": 50,
            "log_level": 0,
        }
    )
    producer.init_transactions(ANSWER_SECONDS_MAX)
    return producer


def _record(name: str, what: str) -> bytes:
    return f"{name} {what}".encode()


def _send_confluent(producer: Producer, what: str) -> None:
    producer.begin_transaction()
    for number in range(PARTITIONS):
        producer.produce(TOPIC, _record(CONFLUENT, what), partition=number)
    assert producer.flush(ANSWER_SECONDS_MAX) == 0


def _send_raw(producer: KillProducer, what: str, *, offset: int) -> None:
    producer.send(TOPIC, {number: [_record(RAW, what)] for number in range(PARTITIONS)})
    producer.send_offset(GROUP, TOPIC, partition=GROUP_PARTITION, offset=offset)


def _kill_and_look(server: ServerProcess, story: Story, kind: str) -> None:
    """Kill, and note what was hit."""
    server.kill()
    hit = kill_files.Hit.of(server.data)
    story.counts[f"{kind}: kills"] += 1
    story.counts[f"{kind}: decisions without their end"] += len(hit.missing_markers)
    story.counts[f"{kind}: decisions without all markers"] += hit.unmarked_count
    story.counts[f"{kind}: markers missing"] += sum(hit.missing_markers.values())
    story.counts[f"{kind}: open transactions"] += len(hit.open_ids)


def _kill_while_it_recovers(server: ServerProcess, story: Story, chance: random.Random) -> None:
    """Start, and kill again when some of the missing markers have been written, at the latest when it is up."""
    missing = sum(kill_files.Hit.of(server.data).missing_markers.values())
    logs = [path / FIRST_SEGMENT for path in kill_files.partitions(server.data, TOPIC).values()]
    before = sum(path.stat().st_size for path in logs)
    awaited_bytes = chance.randrange(1, max(missing, 2)) * MARKER_BYTES
    server.launch()
    assert server.process.stdout is not None
    deadline = time.monotonic() + ANSWER_SECONDS_MAX
    while sum(path.stat().st_size for path in logs) - before < awaited_bytes and server.is_alive:
        is_up, _, _ = select.select([server.process.stdout], [], [], 0)
        assert time.monotonic() < deadline
        if is_up:
            break
    _kill_and_look(server, story, "while it recovers")


def _heard(producer: KillProducer) -> bool:
    """Whether the answer has come, perhaps with the last bytes before the end."""
    try:
        code = producer.hear_end()
    except ConnectionError:
        return False
    assert code is ErrorCode.NONE, code.name
    return True


def _round(server: ServerProcess, raw: KillProducer, confluent: Producer, story: Story, chance: random.Random) -> None:
    number = story.counts["rounds"]
    what = f"commit {number}"
    _send_raw(raw, what, offset=number)
    _send_confluent(confluent, what)
    # Who is waited for: nobody, or one of the two.
    awaited = chance.choice((None, RAW, CONFLUENT))
    commit = Committing(confluent)
    raw.ask_end(is_commit=True)
    is_heard = awaited == RAW and _heard(raw)
    if awaited == CONFLUENT:
        assert commit.has_answer.wait(ANSWER_SECONDS_MAX)
    # Most kills come early: a decision takes less time than its markers.
    pause(chance.random() ** 2 * (BEFORE_SECONDS_MAX if awaited is None else AFTER_SECONDS_MAX))
    _kill_and_look(server, story, "around the answer")
    is_heard = is_heard or _heard(raw)
    raw.close()
    was_answered = commit.has_answer.is_set()
    standings = kill_files.standings(server.data)
    if chance.random() < AGAIN_OF_ALL:
        _kill_while_it_recovers(server, story, chance)
    server.start()

    commit.join()
    assert commit.is_acknowledged, commit.failure
    story.expected[CONFLUENT].append(_record(CONFLUENT, what))
    status = TransactionStatus(standings[RAW].transaction_status)
    if is_heard:
        assert status in COMMITTED, f"the commit was acknowledged, and what stands written is {status.name}"
    if status in COMMITTED:
        story.expected[RAW].append(_record(RAW, what))
    elif chance.random() < 0.5:
        raw.end(is_commit=True)
        story.expected[RAW].append(_record(RAW, what))
        story.counts["commits asked for again"] += 1
    if not is_heard:
        # A new incarnation takes over, as after a crash of the client.
        raw.init()
    story.counts["raw: commits acknowledged before the kill"] += is_heard
    story.counts["confluent: commits acknowledged before the kill"] += was_answered


def _abort_and_check(server: ServerProcess, raw: KillProducer, confluent: Producer, story: Story) -> None:
    """An abort of the same ids covers nothing of what was committed."""
    what = f"abort {story.counts['rounds']}"
    _send_raw(raw, what, offset=NEVER)
    raw.end(is_commit=False)
    _send_confluent(confluent, what)
    confluent.abort_transaction(ANSWER_SECONDS_MAX)
    records = sum(map(len, story.expected.values())) * PARTITIONS
    found = kill_reader.committed(server, TOPIC, partitions=PARTITIONS, at_least=records)
    for name, expected in story.expected.items():
        prefix = name.encode()
        ours = {number: [each for each in values if each.startswith(prefix)] for number, values in found.items()}
        wrong = {number: values for number, values in ours.items() if values != expected}
        assert not wrong, f"{name}: expected {expected}, found {wrong}"
    assert Topics(server.address).committed(GROUP) == story.offsets


@contextmanager
def _server(make_server: Make) -> Iterator[ServerProcess]:
    server = make_server(settings=SETTINGS).start()
    admin = AdminClient({"bootstrap.servers": server.address, "log_level": 0})
    admin.create_topics([NewTopic(TOPIC, PARTITIONS, 1)])[TOPIC].result(ANSWER_SECONDS_MAX)
    yield server


def test_a_commit_is_seen_everywhere_or_nowhere_when_the_server_is_killed_around_its_answer(
    make_server: Make, report_lines: Report
) -> None:
    chance = random.Random(SEED)
    story = Story()
    decided = "around the answer: decisions without all markers"
    with _server(make_server) as server, closing(KillProducer(server, RAW)) as raw:
        raw.init()
        confluent = _confluent(server)
        while story.counts["rounds"] < ROUNDS or (
            story.counts[decided] == 0 and story.counts["rounds"] < ROUNDS * ROUNDS_FACTOR_MAX
        ):
            _round(server, raw, confluent, story, chance)
            _abort_and_check(server, raw, confluent, story)
            story.counts["rounds"] += 1
    report_lines.count(SECTION, story.counts)
    assert story.counts[decided] > 0, f"no kill fell between a decision and its last marker: {story.counts}"
