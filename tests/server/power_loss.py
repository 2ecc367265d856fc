"""One seeded life of a whole broker on a disk that loses its power, with clients that hold it to its word.

The seed decides what is asked, which sync ends when, where the power goes and what of the unsynced bytes stays.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from hashlib import blake2b
from random import Random

from ottla.error_codes import ErrorCode
from ottla.metadata.memory_store import MemoryStore
from ottla.protocol.messages.init_producer_id import InitProducerIdRequest
from ottla.records.batch import walk
from ottla.records.builder import build_batch
from ottla.records.reader import read_batch
from ottla.storage.memory_disk import Crash, MemoryDisk, Moment
from tests.broker.stage import Sent, Stage, creation, produce_request

PARTITIONS = 3
STEPS = 400
LIVES = 4
START_DEATHS_MAX = 2
UNACKNOWLEDGED_MAX = 5
PRODUCE_VERSION = 12

Place = tuple[str, int]


@dataclass
class Asked:
    """A produce request that has not been answered."""

    place: Place
    values: list[bytes]
    sent: Sent
    acks: int


@dataclass
class Lane:
    """What an idempotent producer sends to one partition."""

    producer_id: int
    place: Place
    next_sequence: int = 0
    unacknowledged: list[tuple[int, list[bytes]]] = field(default_factory=list)
    asked: list[Asked] = field(default_factory=list)


class Dying:
    """The disk's hook: counts down to the end of the power."""

    def __init__(self, random: Random) -> None:
        self._random = random
        self._left = 0

    def arm(self) -> None:
        self._left = self._random.choice((self._random.randint(1, 60), self._random.randint(1, 1_500)))

    def disarm(self) -> None:
        self._left = 0

    def __call__(self, operation: str, moment: Moment) -> None:
        if self._left:
            self._left -= 1
            if not self._left:
                raise Crash(f"{operation} {moment}")


class Life:
    """A broker, its clients, and what it has promised them."""

    def __init__(self, seed: int) -> None:
        self.random = Random(seed)
        self.disk = MemoryDisk(seed)
        self.dying = Dying(self.random)
        self.disk.on_operation = self.dying
        settings = {"log.segment.bytes": str(self.random.choice((600, 2_000, 20_000)))}
        store = MemoryStore(held=self.random.random() < 0.5)
        self.stage = Stage(settings=settings, disk=self.disk, store=store, held=True)
        self.promised: dict[Place, dict[int, bytes]] = {}
        """By topic and partition: acknowledged by acks=all, or seen by a reader."""
        self.written: dict[Place, dict[int, bytes]] = {}
        """Acknowledged by acks=1: only a loss of power may take it."""
        self.producer_ids: set[int] = set()
        self.lanes: list[Lane] = []
        self.asked: list[Asked] = []
        self.wanted: list[tuple[str, Sent]] = []
        self.numbers: Counter[str] = Counter()
        self.done: Counter[str] = Counter()

    def run(self) -> str:
        """Live through it; a digest of what is on the disk at the end."""
        for _ in range(4):
            self.ask_more()
            self.settle()
            self.take_answers()
        for _ in range(LIVES):
            self.dying.arm()
            try:
                for _ in range(STEPS):
                    self.step()
                self.done["lived"] += 1
            except Crash:
                self.done["died"] += 1
            self.begin_anew()
            self.check()
        return blake2b(repr(sorted(self.disk.files().items())).encode()).hexdigest()

    # --- what happens ----------------------------------------------------------------------------------

    def step(self) -> None:
        chosen = self.random.choices(
            (self.produce, self.produce_idempotent, self.work, self.end_job, self.sync_store, self.read, self.ask_more),
            (6, 6, 6, 8, 3, 2, 1),
        )[0]
        chosen()
        self.take_answers()

    def work(self) -> None:
        if self.random.random() < 0.2:
            self.stage.scheduler.advance(self.random.choice((1, 300, 2_000)))
        self.stage.scheduler.run()

    def end_job(self) -> None:
        waiting = self.stage.jobs.waiting
        if waiting:
            self.stage.jobs.finish(self.random.randrange(len(waiting)))

    def sync_store(self) -> None:
        self.stage.store.sync(self.random.randint(1, 3))

    def ask_more(self) -> None:
        """A topic or a producer more."""
        known = len({topic for topic, _ in self.promised})
        if not known or (known < 3 and self.random.random() < 0.3):
            name = f"topic{self.numbers['topic']}"
            self.numbers["topic"] += 1
            self.wanted.append((name, self.stage.send(creation(name, PARTITIONS))))
        elif len(self.producer_ids) < 6:
            self.wanted.append(("", self.stage.send(InitProducerIdRequest(transactional_id=None), 4)))

    def produce(self) -> None:
        if self.promised:
            place = self.random.choice(sorted(self.promised))
            values = self._values(f"plain-{place[0]}-{place[1]}")
            acks = self.random.choice((-1, -1, 1, 0))
            batch = build_batch([(None, value, self.stage.clock.now_ms(), ()) for value in values])
            sent = self.stage.send(produce_request(*place, bytes(batch), acks=acks), PRODUCE_VERSION)
            self.asked.append(Asked(place, values, sent, acks))

    def produce_idempotent(self) -> None:
        ready = [lane for lane in self.lanes if len(lane.unacknowledged) < UNACKNOWLEDGED_MAX]
        if ready:
            lane = self.random.choice(ready)
            values = self._values(f"{lane.producer_id}-{lane.place[0]}-{lane.place[1]}")
            sequence = lane.next_sequence
            lane.unacknowledged.append((sequence, values))
            lane.next_sequence += len(values)
            self._send(lane, sequence, values)

    def _send(self, lane: Lane, sequence: int, values: list[bytes]) -> None:
        batch = build_batch(
            [(None, value, self.stage.clock.now_ms(), ()) for value in values],
            producer_id=lane.producer_id,
            producer_epoch=0,
            base_sequence=sequence,
        )
        sent = self.stage.send(produce_request(*lane.place, bytes(batch)), PRODUCE_VERSION)
        lane.asked.append(Asked(lane.place, values, sent, -1))

    def _values(self, sender: str) -> list[bytes]:
        values = []
        for _ in range(self.random.randint(1, 3)):
            values.append(f"{sender} {self.numbers[sender]} ".encode() + self.random.randbytes(20).hex().encode())
            self.numbers[sender] += 1
        return values

    def read(self) -> None:
        """Whatever a reader has seen is a promise too."""
        if self.promised:
            place = self.random.choice(sorted(self.promised))
            self.promised[place].update(self.visible(place))

    def visible(self, place: Place) -> list[tuple[int, bytes]]:
        found: list[tuple[int, bytes]] = []
        while True:
            data = self.stage.fetch(*place, offset=len(found))
            assert data.error_code == ErrorCode.NONE, ErrorCode(data.error_code)
            records = bytes(data.records or b"")
            if not records:
                return found
            for position, _ in walk(records):
                found += [(record.offset, record.value or b"") for record in read_batch(records[position:])]
            assert [offset for offset, _ in found] == list(range(len(found))), "the offsets have no gaps"

    # --- answers ---------------------------------------------------------------------------------------

    def take_answers(self) -> None:
        for name, sent in [entry for entry in self.wanted if entry[1].is_answered]:
            self.wanted.remove((name, sent))
            if name:
                assert sent.response.topics[0].error_code == ErrorCode.NONE
                self._place(name)
            else:
                self._greet(sent.response.producer_id)
        for asked in [one for one in self.asked if one.sent.is_answered or one.acks == 0]:
            self.asked.remove(asked)
            if asked.acks != 0:
                self._acknowledge(asked)
        for lane in self.lanes:
            self._take_lane(lane)

    def _place(self, topic: str) -> None:
        for partition in range(PARTITIONS):
            self.promised[topic, partition] = {}
            self.written[topic, partition] = {}

    def _greet(self, producer_id: int) -> None:
        assert producer_id not in self.producer_ids, "two producers with one id"
        self.producer_ids.add(producer_id)
        places = sorted(self.promised)
        self.lanes += [Lane(producer_id, place) for place in self.random.sample(places, min(2, len(places)))]

    def _acknowledge(self, asked: Asked) -> bool:
        answer = asked.sent.response.responses[0].partition_responses[0]
        if answer.error_code == ErrorCode.REQUEST_TIMED_OUT:
            self.done["timed out"] += 1
            return False
        assert answer.error_code == ErrorCode.NONE, (ErrorCode(answer.error_code), answer.error_message)
        kept = self.promised if asked.acks == -1 else self.written
        kept[asked.place].update(enumerate(asked.values, answer.base_offset))
        self.done[f"acks={asked.acks}"] += 1
        return True

    def _take_lane(self, lane: Lane) -> None:
        """Answers come in order; one that timed out has everything from it on sent again."""
        while lane.asked and lane.asked[0].sent.is_answered:
            if self._acknowledge(lane.asked.pop(0)):
                lane.unacknowledged.pop(0)
                self.done["idempotent"] += 1
            else:
                self._send_again(lane)

    def _send_again(self, lane: Lane) -> None:
        lane.asked.clear()
        for sequence, values in lane.unacknowledged:
            self._send(lane, sequence, values)

    # --- the end, and after it ---------------------------------------------------------------------------

    def begin_anew(self) -> None:
        """The power or the process ends here, and perhaps again while the broker starts."""
        for attempt in range(START_DEATHS_MAX + 1):
            self._die()
            if attempt < START_DEATHS_MAX and self.random.random() < 0.3:
                self.dying.arm()
            try:
                self.stage.start()
            except Crash:
                self.done["died at the start"] += 1
                continue
            break
        self.dying.disarm()
        self.asked.clear()
        self.wanted.clear()

    def _die(self) -> None:
        self.dying.disarm()
        if self.random.random() < 0.75:
            self.disk.crash()
            for kept in self.written.values():
                kept.clear()
            self.done["power lost"] += 1
        else:
            self.disk.kill()
        self.stage.store = self.stage.store.crash(unanswered=self.random.randrange(3))

    def settle(self) -> None:
        """Let everything that is under way come to its end."""
        while True:
            self.stage.store.sync()
            self.stage.scheduler.run()
            if not self.stage.jobs.waiting:
                return
            self.stage.jobs.finish()

    def check(self) -> None:
        """Hold the broker to all that it has promised, before and after the idempotent producers try again."""
        self.settle()
        self._check_all()
        for lane in self.lanes:
            self._send_again(lane)
        self.settle()
        self.take_answers()
        assert not any(lane.unacknowledged for lane in self.lanes), "what is sent again is acknowledged in the end"
        self._check_all()

    def _check_all(self) -> None:
        for place, promised in self.promised.items():
            found = self.visible(place)
            values = dict(found)
            for kept in (promised, self.written[place]):
                lost = {offset: value for offset, value in kept.items() if values.get(offset) != value}
                assert not lost, f"{place}: promised and not there: {lost}"
            by_sender: dict[bytes, list[int]] = {}
            for _, value in found:
                sender, number, _ = value.split(b" ")
                by_sender.setdefault(sender, []).append(int(number))
            for sender, numbers in by_sender.items():
                assert numbers == sorted(set(numbers)), f"{sender!r}: in order, and none twice: {numbers}"
            promised.update(found)
