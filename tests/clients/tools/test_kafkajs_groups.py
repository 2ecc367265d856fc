"""kafkajs in groups: it joins, leaves, is killed, subscribes by pattern, alone and beside others.

It speaks the classic protocol only, has no static members, and calls its assignor by a name that no other client knows:
so it is refused where classic members of other clients are, and they where it is. In a group of the consumer protocol
the broker assigns, and there it stands beside others. CHURN_ROUNDS and CHURN_SEED as for the Python clients.
"""

from __future__ import annotations

import os
import random
import warnings
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from tests.clients.groups.churn_members import News
from tests.clients.groups.churn_topics import Topics
from tests.clients.groups.members import Spec
from tests.clients.kafkajs_peer import Kafkajs, install
from tests.clients.server_process import Make, ServerProcess, running
from tests.clients.tools.kafkajs_members import CLIENT, PROTOCOL_NAME, kafkajs_member
from tests.clients.tools.listened import ListenedMember
from tests.clients.tools.rounds import BROKER_SETTINGS, Begin, Rounds, examined, python_member
from tests.report import Report

with warnings.catch_warnings():
    # It reads its own message definitions in a way that newer Pythons advise against.
    warnings.simplefilter("ignore", DeprecationWarning)
    from kafka import KafkaConsumer
    from kafka.errors import InconsistentGroupProtocolError

ROUNDS = int(os.environ.get("CHURN_ROUNDS", "0")) or 3
SEED = int(os.environ.get("CHURN_SEED", "1"))
SECTION = "groups under churn"
SECONDS_MAX = 60
KINDS = {"kafkajs": (CLIENT,), "kafkajs-and-consumer": (CLIENT, "confluent-consumer")}

pytestmark = [
    pytest.mark.filterwarnings("ignore:read_text is deprecated:DeprecationWarning"),
    # kafka-python leaves the socket of a connection that it gives up, as it does when the machine stands still.
    pytest.mark.leaves_sockets,
]


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    with running(tmp_path_factory.mktemp("kafkajs"), BROKER_SETTINGS) as server:
        yield server


@pytest.fixture(scope="module")
def kafkajs(server: ServerProcess) -> Kafkajs:
    return install(server.address)


@pytest.mark.parametrize("kind", KINDS)
def test_a_group_under_churn_processes_everything_and_gives_no_partition_to_two(
    kind: str, make_server: Make, tmp_path: Path, report_lines: Report
) -> None:
    server = make_server(settings=BROKER_SETTINGS).start()
    kafkajs = install(server.address)
    topics = Topics(server.address)

    def begin_kafkajs(spec: Spec, news: News, directory: Path) -> ListenedMember:
        return kafkajs_member(spec, kafkajs, news, directory)

    clients: dict[str, Begin] = {name: begin_kafkajs if name == CLIENT else python_member for name in KINDS[kind]}
    with Rounds(
        kind,
        server.address,
        clients,
        topics=topics,
        directory=tmp_path / "members",
        chance=random.Random(f"{SEED} {kind}"),
        has_static=False,
    ) as churn:
        churn.run(ROUNDS)
    written, line = examined(churn, topics, server)
    report_lines.say(SECTION, f"{line} (seed {SEED})")
    assert written.generations["classic"] > 0
    assert (written.generations["consumer"] > 0) == (len(clients) > 1)


class Member:
    """One kafkajs consumer, while a block runs."""

    def __init__(self, kafkajs: Kafkajs, spec: Spec, directory: Path) -> None:
        self.news = News()
        self._member = kafkajs_member(spec, kafkajs, self.news, directory)

    def __enter__(self) -> ListenedMember:
        return self._member

    def __exit__(self, *_: object) -> None:
        self._member.end()

    def wait(self, kind: str, count: int) -> None:
        """Until it has said so much of this kind."""
        life = self._member.life
        self.news.wait_until(
            lambda: life.tally[kind] >= count, seconds=SECONDS_MAX, what=lambda: f"{kind}: {life.events[-5:]}"
        )


def test_it_reads_every_topic_that_fits_a_pattern(server: ServerProcess, kafkajs: Kafkajs, tmp_path: Path) -> None:
    topics = Topics(server.address)
    for name in ("js-pattern.a", "js-pattern.b", "js-other"):
        topics.make(name, partitions=2)
    topics.send(list(topics.partition_counts), 10)
    topics.finish()
    spec = Spec("js", CLIENT, server.address, "js-pattern", pattern="^js-pattern[.].*", session_ms=10_000)
    member = Member(kafkajs, spec, tmp_path)
    with member as one:
        member.wait("committed", 20)
    read = {event.facts["place"][0] for event in one.life.events if event.kind == "processed"}
    assert read == {"js-pattern.a", "js-pattern.b"}
    assert one.life.tally["processed"] == 20


def test_it_and_classic_members_with_other_assignors_refuse_each_other(
    server: ServerProcess, kafkajs: Kafkajs, tmp_path: Path
) -> None:
    topics = Topics(server.address)
    topics.make("js-mixed", partitions=2)
    spec = Spec("js", CLIENT, server.address, "js-mixed", ("js-mixed",), session_ms=10_000)
    member = Member(kafkajs, spec, tmp_path)
    with member as one:
        member.wait("assigned", 1)
        assert one.life.events[-1].facts["protocol"] == PROTOCOL_NAME
        python = KafkaConsumer("js-mixed", bootstrap_servers=server.address, group_id="js-mixed")
        with closing(python), pytest.raises(InconsistentGroupProtocolError):
            python.poll(SECONDS_MAX * 1000)
