"""Which value of a setting holds, where it comes from, and which changes are allowed. Pure.

A topic's value is its own, or the broker's. A broker's is the one set at run time for that broker, the one set
for the whole cluster, the one it was started with, or the default. Settings set at run time are kept as text;
one that a later version of Ottla cannot read is passed over here, and `unusable` names it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import IntEnum
from typing import NamedTuple

from ottla.config import Resolved, Scope, Setting, Settings, Source, Table, Value
from ottla.errors import InvalidConfig, InvalidRequest
from ottla.metadata.broker_configs import BROKER_CONFIGS
from ottla.metadata.topic_configs import COMPACT, DELETE, LOG_APPEND_TIME, TOPIC_CONFIGS
from ottla.records.batch import TimestampType
from ottla.storage.log_config import LogConfig

NO_CONFIGS: Mapping[str, str] = {}


class ConfigSource(IntEnum):
    """Where a value comes from; the numbers are those of DescribeConfigs."""

    DYNAMIC_TOPIC_CONFIG = 1
    DYNAMIC_BROKER_CONFIG = 2
    DYNAMIC_DEFAULT_BROKER_CONFIG = 3
    STATIC_BROKER_CONFIG = 4
    DEFAULT_CONFIG = 5


class Operation(IntEnum):
    """What IncrementalAlterConfigs may do to a setting."""

    SET = 0
    DELETE = 1
    APPEND = 2
    SUBTRACT = 3


class Alteration(NamedTuple):
    """One change of one setting."""

    name: str
    operation: Operation
    value: str | None = None


class Candidate(NamedTuple):
    """A value that a setting has, or would have if a stronger one were not there."""

    name: str
    value: Value
    source: ConfigSource


@dataclass(frozen=True, slots=True)
class Effective:
    """The value that holds, and the weaker ones behind it; what DescribeConfigs tells about one setting."""

    setting: Setting
    candidates: tuple[Candidate, ...]
    """The one that holds comes first."""
    read_only: bool

    @property
    def value(self) -> Value:
        return self.candidates[0].value

    @property
    def source(self) -> ConfigSource:
        return self.candidates[0].source

    def text(self, candidate: Candidate | None = None) -> str | None:
        """The value as a client may see it; None where there is none or it is secret."""
        return None if self.setting.sensitive else self.setting.format((candidate or self.candidates[0]).value)


@dataclass(frozen=True, slots=True)
class BrokerConfigs:
    """The settings of one broker: those it was started with, and those set at run time."""

    static: Settings
    cluster: Mapping[str, str] = field(default_factory=dict)
    """Set at run time for every broker."""
    node: Mapping[str, str] = field(default_factory=dict)
    """Set at run time for this one."""
    _values: dict[str, Value] = field(default_factory=dict, init=False, repr=False, compare=False)
    """What has been asked for before: some are asked for with every request."""

    def effective(self, name: str) -> Effective:
        """Everything about one setting."""
        setting = BROKER_CONFIGS[name]
        return Effective(setting, tuple(self._candidates(setting)), setting.scope is Scope.READ_ONLY)

    def value(self, name: str) -> Value:
        """The value that holds."""
        if name not in self._values:
            self._values[name] = next(self._candidates(BROKER_CONFIGS[name])).value
        return self._values[name]

    def integer(self, name: str) -> int:
        value = self.value(name)
        assert isinstance(value, int), name
        return value

    def boolean(self, name: str) -> bool:
        value = self.value(name)
        assert isinstance(value, bool), name
        return value

    def describe(self) -> list[Effective]:
        """Every setting of the broker."""
        return [self.effective(setting.name) for setting in BROKER_CONFIGS]

    def _candidates(self, setting: Setting) -> Iterator[Candidate]:
        if setting.scope is not Scope.READ_ONLY:
            for texts, source in (
                (self.node, ConfigSource.DYNAMIC_BROKER_CONFIG),
                (self.cluster, ConfigSource.DYNAMIC_DEFAULT_BROKER_CONFIG),
            ):
                text = texts.get(setting.name)
                if text is not None and _usable(setting, text):
                    yield Candidate(setting.name, setting.parse(text), source)
        resolved: Resolved = self.static[setting.name]
        if resolved.source is not Source.DEFAULT:
            yield Candidate(setting.name, resolved.value, ConfigSource.STATIC_BROKER_CONFIG)
        yield Candidate(setting.name, setting.default, ConfigSource.DEFAULT_CONFIG)


@dataclass(frozen=True, slots=True)
class TopicConfig:
    """What a topic's settings come to, for those who act on them."""

    log: LogConfig
    max_message_bytes: int
    timestamp_type: TimestampType
    timestamp_before_max_ms: int
    timestamp_after_max_ms: int
    flush_messages: int
    flush_ms: int
    file_delete_delay_ms: int
    min_insync_replicas: int
    acks_all: str
    """`disk` or `os`: what acks=all waits for."""


def describe_topic(configs: Mapping[str, str], broker: BrokerConfigs) -> list[Effective]:
    """Every setting of a topic."""
    return [topic_effective(setting.name, configs, broker) for setting in TOPIC_CONFIGS]


def topic_effective(name: str, configs: Mapping[str, str], broker: BrokerConfigs) -> Effective:
    """Everything about one setting of a topic."""
    setting = TOPIC_CONFIGS[name]
    assert setting.default_from is not None
    candidates = broker.effective(setting.default_from).candidates
    text = configs.get(name)
    if text is not None and _usable(setting, text):
        own = Candidate(name, setting.parse(text), ConfigSource.DYNAMIC_TOPIC_CONFIG)
        candidates = (own, *candidates)
    return Effective(setting, candidates, read_only=False)


def describe_cluster(configs: Mapping[str, str]) -> list[Effective]:
    """The settings that were set at run time for every broker; all that can be said of no broker in particular."""
    found = []
    for name, text in sorted(configs.items()):
        setting = BROKER_CONFIGS.get(name)
        if setting is not None and _usable(setting, text):
            candidate = Candidate(name, setting.parse(text), ConfigSource.DYNAMIC_DEFAULT_BROKER_CONFIG)
            found.append(Effective(setting, (candidate,), read_only=False))
    return found


def topic_config(configs: Mapping[str, str], broker: BrokerConfigs) -> TopicConfig:
    """What the settings of a topic come to."""
    values = _Values(configs, broker)
    return TopicConfig(
        log=_log_config(values),
        max_message_bytes=values.integer("max.message.bytes"),
        timestamp_type=(
            TimestampType.LOG_APPEND_TIME
            if values.value("message.timestamp.type") == LOG_APPEND_TIME
            else TimestampType.CREATE_TIME
        ),
        timestamp_before_max_ms=values.integer("message.timestamp.before.max.ms"),
        timestamp_after_max_ms=values.integer("message.timestamp.after.max.ms"),
        flush_messages=values.integer("flush.messages"),
        flush_ms=values.integer("flush.ms"),
        file_delete_delay_ms=values.integer("file.delete.delay.ms"),
        min_insync_replicas=values.integer("min.insync.replicas"),
        acks_all=str(values.value("ottla.acks.all")),
    )


def log_config(configs: Mapping[str, str], broker: BrokerConfigs) -> LogConfig:
    """What the settings of a topic mean for its logs."""
    return _log_config(_Values(configs, broker))


def new_topic_configs(wanted: Mapping[str, str | None]) -> dict[str, str]:
    """The settings of a topic that is being created, checked."""
    return replaced(TOPIC_CONFIGS, wanted, scope=None)


def altered_topic(
    current: Mapping[str, str], alterations: Sequence[Alteration], broker: BrokerConfigs
) -> dict[str, str]:
    """A topic's own settings after IncrementalAlterConfigs."""

    def holds(name: str) -> Value:
        return topic_effective(name, current, broker).value

    changed = dict(current)
    for setting, alteration in _each_once(TOPIC_CONFIGS, alterations):
        _alter(changed, setting, alteration, holds(setting.name))
    _check_lags(changed)
    return changed


def altered_broker(
    current: Mapping[str, str], alterations: Sequence[Alteration], broker: BrokerConfigs, *, scope: Scope
) -> dict[str, str]:
    """The settings of one broker (PER_BROKER) or of all (CLUSTER_WIDE) after IncrementalAlterConfigs."""
    changed = dict(current)
    for setting, alteration in _each_once(BROKER_CONFIGS, alterations):
        _check_scope(setting, scope)
        _alter(changed, setting, alteration, broker.value(setting.name))
    return changed


def replaced(table: Table, wanted: Mapping[str, str | None], *, scope: Scope | None) -> dict[str, str]:
    """Settings after AlterConfigs: what is not named goes back to its default. `scope` is None for a topic."""
    changed: dict[str, str] = {}
    for name, text in wanted.items():
        setting = _own_row(table, name)
        if scope is not None:
            _check_scope(setting, scope)
        if text is None:
            raise InvalidConfig(f"{name} has no value; leave it out to get its default")
        changed[name] = setting.canonical(text)
    _check_lags(changed)
    return changed


def unusable(table: Table, configs: Mapping[str, str]) -> list[str]:
    """What is wrong with settings that were stored; such a setting does not count."""
    problems = []
    for name, text in configs.items():
        try:
            table.find(name).parse(text)
        except InvalidConfig as error:
            problems.append(str(error))
    return problems


class _Values:
    """The values of a topic by name, without the chain behind them; asked for at every start of every topic."""

    def __init__(self, configs: Mapping[str, str], broker: BrokerConfigs) -> None:
        self._configs = configs
        self.broker = broker

    def value(self, name: str) -> Value:
        setting = TOPIC_CONFIGS[name]
        text = self._configs.get(name)
        if text is not None and _usable(setting, text):
            return setting.parse(text)
        assert setting.default_from is not None
        return self.broker.value(setting.default_from)

    def integer(self, name: str) -> int:
        value = self.value(name)
        assert isinstance(value, int), name
        return value


def _log_config(values: _Values) -> LogConfig:
    policy = values.value("cleanup.policy")
    ratio = values.value("min.cleanable.dirty.ratio")
    assert isinstance(policy, tuple)
    assert isinstance(ratio, float)
    segment_ms = values.integer("segment.ms")
    return LogConfig(
        segment_bytes=values.integer("segment.bytes"),
        segment_ms=segment_ms,
        # The two may come from different places, so that nobody could check them against each other.
        segment_jitter_ms=min(values.integer("segment.jitter.ms"), segment_ms),
        segment_index_bytes=values.integer("segment.index.bytes"),
        index_interval_bytes=values.integer("index.interval.bytes"),
        retention_ms=values.integer("retention.ms"),
        retention_bytes=values.integer("retention.bytes"),
        delete=DELETE in policy,
        compact=COMPACT in policy,
        min_cleanable_dirty_ratio=ratio,
        min_compaction_lag_ms=values.integer("min.compaction.lag.ms"),
        max_compaction_lag_ms=values.integer("max.compaction.lag.ms"),
        delete_retention_ms=values.integer("delete.retention.ms"),
        producer_id_expiration_ms=values.broker.integer("producer.id.expiration.ms"),
    )


def _usable(setting: Setting, text: str) -> bool:
    try:
        setting.parse(text)
    except InvalidConfig:
        return False
    return True


def _own_row(table: Table, name: str) -> Setting:
    setting = table.find(name)
    if setting.name != name:
        raise InvalidConfig(f"{name} cannot be changed while the broker runs; set {setting.name} instead")
    return setting


def _check_scope(setting: Setting, scope: Scope) -> None:
    if setting.scope is Scope.READ_ONLY:
        raise InvalidConfig(f"{setting.name} takes effect at a start only: set it in file, environment or flags")
    if scope is Scope.CLUSTER_WIDE and setting.scope is Scope.PER_BROKER:
        raise InvalidConfig(f"{setting.name} is set for one broker at a time: name the broker")


def _each_once(table: Table, alterations: Sequence[Alteration]) -> Iterator[tuple[Setting, Alteration]]:
    names = [alteration.name for alteration in alterations]
    if len(set(names)) < len(names):
        twice = next(name for name in names if names.count(name) > 1)
        raise InvalidRequest(f"{twice} stands there more than once; each setting may be changed once in a request")
    for alteration in alterations:
        yield _own_row(table, alteration.name), alteration


def _alter(configs: dict[str, str], setting: Setting, alteration: Alteration, holds: Value) -> None:
    name, operation, text = alteration
    if operation is Operation.DELETE:
        configs.pop(name, None)
        return
    if text is None:
        raise InvalidRequest(f"{name} has no value; to go back to its default, delete it")
    if operation is Operation.SET:
        configs[name] = setting.canonical(text)
        return
    if not isinstance(setting.default, tuple):
        raise InvalidConfig(f"{name} is no list: it can be set or deleted, but not appended to or subtracted from")
    items = [item.strip() for item in text.split(",") if item.strip()]
    have = list(holds) if isinstance(holds, tuple) else []
    if operation is Operation.APPEND:
        changed = have + [item for item in items if item not in have]
    else:
        changed = [item for item in have if item not in items]
    configs[name] = setting.canonical(changed)


def _check_lags(configs: Mapping[str, str]) -> None:
    """Only where a topic sets both: a default that changes later must not turn a topic invalid."""
    low, high = (_own_integer(configs, name) for name in ("min.compaction.lag.ms", "max.compaction.lag.ms"))
    if low is not None and high is not None and low > high:
        raise InvalidConfig(f"min.compaction.lag.ms={low} is more than max.compaction.lag.ms={high}: lower it")


def _own_integer(configs: Mapping[str, str], name: str) -> int | None:
    text = configs.get(name)
    if text is None or not _usable(TOPIC_CONFIGS[name], text):
        return None
    value = TOPIC_CONFIGS[name].parse(text)
    assert isinstance(value, int)
    return value
