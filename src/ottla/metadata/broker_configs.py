"""Every setting of a broker, with Kafka's names and defaults where Kafka has it.

Names of our own begin with `ottla.`. The settings that stand in for a topic's take type, limits and default
from the topic's row, so that the two cannot drift apart. What is not in the table is refused.
"""

from __future__ import annotations

import re
from dataclasses import replace
from typing import NamedTuple

from ottla.config import INT_MAX, Kind, Scope, Setting, Synonym, Table, Value
from ottla.errors import InvalidConfig
from ottla.metadata.group_configs import GROUP_SETTINGS
from ottla.metadata.topic_configs import TOPIC_CONFIGS
from ottla.metadata.transaction_configs import TRANSACTION_SETTINGS

PLAINTEXT = "PLAINTEXT"
PORT_MAX = 65_535
MINUTE_MS = 60_000
HOUR_MS = 60 * MINUTE_MS

_LISTENER = re.compile(r"(?:([A-Za-z_]+)://)?(?:\[([0-9A-Fa-f:.]+)\]|([^\[\]:/\s]*)):([0-9]{1,5})")


class Address(NamedTuple):
    """Where a broker listens, or says that it listens. An empty host is every interface."""

    protocol: str
    host: str
    port: int

    def __str__(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{self.protocol}://{host}:{self.port}"


def parse_address(text: str) -> Address:
    """Read `host:port`, `[v6 host]:port` or Kafka's `PLAINTEXT://host:port`; InvalidConfig for all else."""
    found = _LISTENER.fullmatch(text.strip())
    if found is None or int(found[4]) > PORT_MAX:
        raise InvalidConfig(f"{text!r} is no address; write HOST:PORT or {PLAINTEXT}://HOST:PORT")
    protocol = (found[1] or PLAINTEXT).upper()
    if protocol != PLAINTEXT:
        raise InvalidConfig(f"{text!r}: only {PLAINTEXT} listeners are possible")
    return Address(protocol, found[2] or found[3] or "", int(found[4]))


def _addresses(value: Value) -> str | None:
    try:
        for text in value if isinstance(value, tuple) else ():
            parse_address(text)
    except InvalidConfig as error:
        return str(error)
    return None


def _listeners(value: Value) -> str | None:
    return _addresses(value) if value else "at least one address is needed"


def _one_directory(value: Value) -> str | None:
    if not value:
        return "a directory is needed"
    return "one broker has one data directory; run a second broker for the second disk" if "," in str(value) else None


def _cluster_id(value: Value) -> str | None:
    fits = value is None or re.fullmatch(r"[A-Za-z0-9_-]{0,64}", str(value)) is not None
    return None if fits else "letters, digits, - and _ only, at most 64"


def _for_topics(topic_config: str, *, synonyms: tuple[Synonym, ...] = (), scope: Scope = Scope.CLUSTER_WIDE) -> Setting:
    """The broker's row behind a topic's."""
    setting = TOPIC_CONFIGS[topic_config]
    assert setting.default_from is not None
    return replace(
        setting,
        name=setting.default_from,
        default_from=None,
        scope=scope,
        synonyms=synonyms,
        help=f"Default of the topic config {topic_config}. {setting.help}",
    )


_PLACE = (
    Setting(
        name="node.id",
        kind=Kind.INT,
        default=1,
        at_least=0,
        synonyms=(Synonym("broker.id"),),
        help="The broker's number, its own in the cluster and the same at every start.",
    ),
    Setting(
        name="ottla.cluster.id",
        kind=Kind.STRING,
        default=None,
        check=_cluster_id,
        help="The cluster's id, for a new data directory; one is made up where none is given, and stays.",
    ),
    Setting(
        name="log.dir",
        kind=Kind.STRING,
        default="ottla-data",
        check=_one_directory,
        synonyms=(Synonym("log.dirs"),),
        help="The data directory.",
    ),
    Setting(
        name="listeners",
        kind=Kind.LIST,
        default=("PLAINTEXT://127.0.0.1:9092",),
        check=_listeners,
        help="Where clients connect: HOST:PORT, more than one with commas; port 0 takes a free one. Loopback unless "
        "told otherwise.",
    ),
    Setting(
        name="advertised.listeners",
        kind=Kind.LIST,
        default=None,
        check=_addresses,
        help="The address that clients are told; without it each is told the one that it connected to.",
    ),
)

_TOPICS = (
    Setting(
        name="auto.create.topics.enable",
        kind=Kind.BOOLEAN,
        default=True,
        help="Whether a topic that does not exist is created when a client asks for it.",
    ),
    Setting(
        name="num.partitions",
        kind=Kind.INT,
        default=1,
        at_least=1,
        help="How many partitions a topic gets when its creator does not say.",
    ),
    Setting(
        name="default.replication.factor",
        kind=Kind.INT,
        default=1,
        at_least=1,
        at_most=2**15 - 1,
        help="How many copies a topic gets when its creator does not say; more than there are brokers is refused.",
    ),
    Setting(
        name="delete.topic.enable",
        kind=Kind.BOOLEAN,
        default=True,
        help="Whether topics can be deleted.",
    ),
)

_TOPIC_DEFAULTS = (
    _for_topics("cleanup.policy"),
    _for_topics("compression.type"),
    _for_topics("delete.retention.ms"),
    _for_topics("file.delete.delay.ms"),
    _for_topics("flush.messages"),
    _for_topics("flush.ms"),
    _for_topics("index.interval.bytes"),
    _for_topics("max.compaction.lag.ms"),
    _for_topics("max.message.bytes"),
    _for_topics("message.timestamp.after.max.ms"),
    _for_topics("message.timestamp.before.max.ms"),
    _for_topics("message.timestamp.type"),
    _for_topics("min.cleanable.dirty.ratio"),
    _for_topics("min.compaction.lag.ms"),
    _for_topics("min.insync.replicas"),
    _for_topics("ottla.acks.all"),
    _for_topics("preallocate"),
    _for_topics("retention.bytes"),
    _for_topics(
        "retention.ms",
        synonyms=(Synonym("log.retention.minutes", MINUTE_MS), Synonym("log.retention.hours", HOUR_MS)),
    ),
    _for_topics("segment.bytes"),
    _for_topics("segment.index.bytes"),
    _for_topics("segment.jitter.ms", synonyms=(Synonym("log.roll.jitter.hours", HOUR_MS),)),
    _for_topics("segment.ms", synonyms=(Synonym("log.roll.hours", HOUR_MS),)),
    _for_topics("unclean.leader.election.enable"),
)

_UPKEEP = (
    Setting(
        name="log.retention.check.interval.ms",
        kind=Kind.LONG,
        default=5 * MINUTE_MS,
        at_least=1,
        help="How often retention looks for segments to delete.",
    ),
    Setting(
        name="log.cleaner.enable",
        kind=Kind.BOOLEAN,
        default=True,
        help="Whether topics with cleanup.policy=compact are compacted.",
    ),
    Setting(
        name="log.cleaner.backoff.ms",
        kind=Kind.LONG,
        default=15_000,
        at_least=0,
        scope=Scope.CLUSTER_WIDE,
        help="How long compaction rests when it found nothing to do.",
    ),
    Setting(
        name="producer.id.expiration.ms",
        kind=Kind.INT,
        default=24 * HOUR_MS,
        at_least=1,
        scope=Scope.CLUSTER_WIDE,
        help="After how long without a write a partition forgets an idempotent producer.",
    ),
)

_LIMITS = (
    Setting(
        name="socket.request.max.bytes",
        kind=Kind.INT,
        default=100 << 20,
        at_least=1,
        help="The largest request that is read; a connection that sends a larger one is closed.",
    ),
    Setting(
        name="max.connections",
        kind=Kind.INT,
        default=INT_MAX,
        at_least=0,
        scope=Scope.CLUSTER_WIDE,
        help="How many connections may be open at once; further ones wait unaccepted or are closed.",
    ),
    Setting(
        name="connections.max.idle.ms",
        kind=Kind.LONG,
        default=10 * MINUTE_MS,
        help="After how long without a request a connection is closed; negative is never.",
    ),
    Setting(
        name="fetch.max.bytes",
        kind=Kind.INT,
        default=55 << 20,
        at_least=1024,
        help="The most bytes of records in one answer to a fetch, whatever the client asks for.",
    ),
    Setting(
        name="max.incremental.fetch.session.cache.slots",
        kind=Kind.INT,
        default=1_000,
        at_least=0,
        help="How many fetch sessions are remembered.",
    ),
    Setting(
        name="ottla.sync.threads",
        kind=Kind.INT,
        default=32,
        at_least=1,
        at_most=1_024,
        help="How many threads wait for the disk at most.",
    ),
    Setting(
        name="ottla.unsynced.bytes.per.partition",
        kind=Kind.LONG,
        default=8 << 20,
        at_least=1,
        help="Above how many unsynced bytes a partition is synced even without acks=all.",
    ),
    Setting(
        name="ottla.unsynced.bytes.max",
        kind=Kind.LONG,
        default=64 << 20,
        at_least=1,
        help="Above how many unsynced bytes in all partitions bulk connections are no longer read.",
    ),
    Setting(
        name="ottla.inflight.bytes.per.connection",
        kind=Kind.LONG,
        default=8 << 20,
        at_least=1,
        help="Above how many unanswered bytes one connection is no longer read.",
    ),
    Setting(
        name="ottla.inflight.bytes.max",
        kind=Kind.LONG,
        default=256 << 20,
        at_least=1,
        help="Above how many unanswered bytes of all connections together none is read.",
    ),
)

BROKER_CONFIGS = Table(
    "broker setting",
    (*_PLACE, *_TOPICS, *_TOPIC_DEFAULTS, *_UPKEEP, *_LIMITS, *GROUP_SETTINGS, *TRANSACTION_SETTINGS),
)
