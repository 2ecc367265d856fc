"""Topic and broker settings: which value holds, where it comes from, which changes are allowed."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from ottla.config import Scope, Setting, Settings
from ottla.errors import InvalidConfig, InvalidRequest
from ottla.metadata.broker_configs import BROKER_CONFIGS, parse_address
from ottla.metadata.configs import (
    Alteration,
    BrokerConfigs,
    ConfigSource,
    Operation,
    altered_broker,
    altered_topic,
    describe_cluster,
    describe_topic,
    log_config,
    new_topic_configs,
    replaced,
    topic_config,
    topic_effective,
    unusable,
)
from ottla.metadata.topic_configs import TOPIC_CONFIGS
from ottla.records.batch import TimestampType
from ottla.storage.log_config import LogConfig

STARTED_PLAIN = BrokerConfigs(Settings.resolve(BROKER_CONFIGS))


def _started(**flags: str) -> BrokerConfigs:
    return BrokerConfigs(
        Settings.resolve(BROKER_CONFIGS, flags={name.replace("_", "."): text for name, text in flags.items()})
    )


@pytest.mark.parametrize("setting", [*TOPIC_CONFIGS], ids=lambda setting: setting.name)
def test_a_topic_config_has_a_broker_setting_behind_it_with_the_same_type_and_default(setting: Setting) -> None:
    assert setting.default_from is not None
    behind = BROKER_CONFIGS[setting.default_from]

    assert (behind.kind, behind.default) == (setting.kind, setting.default)


@pytest.mark.parametrize("setting", [*TOPIC_CONFIGS, *BROKER_CONFIGS], ids=lambda setting: setting.name)
def test_a_default_is_a_value_that_the_setting_allows(setting: Setting) -> None:
    text = setting.format(setting.default)

    assert text is None or setting.parse(text) == setting.default


@pytest.mark.parametrize("setting", [*TOPIC_CONFIGS, *BROKER_CONFIGS], ids=lambda setting: setting.name)
def test_a_setting_is_explained_in_a_sentence(setting: Setting) -> None:
    assert setting.help.endswith(".")


def test_a_topic_without_settings_has_the_defaults_of_the_log() -> None:
    assert log_config({}, STARTED_PLAIN) == LogConfig()


def test_every_choice_about_a_log_can_be_made_by_a_topic() -> None:
    configs = {
        "segment.bytes": "1000",
        "segment.ms": "2000",
        "segment.jitter.ms": "3",
        "segment.index.bytes": "400",
        "index.interval.bytes": "5",
        "retention.ms": "6",
        "retention.bytes": "7",
        "cleanup.policy": "compact",
        "min.cleanable.dirty.ratio": "0.25",
        "min.compaction.lag.ms": "8",
        "max.compaction.lag.ms": "9",
        "delete.retention.ms": "10",
    }

    assert log_config(configs, _started(producer_id_expiration_ms="11")) == LogConfig(
        segment_bytes=1000,
        segment_ms=2000,
        segment_jitter_ms=3,
        segment_index_bytes=400,
        index_interval_bytes=5,
        retention_ms=6,
        retention_bytes=7,
        delete=False,
        compact=True,
        min_cleanable_dirty_ratio=0.25,
        min_compaction_lag_ms=8,
        max_compaction_lag_ms=9,
        delete_retention_ms=10,
        producer_id_expiration_ms=11,
    )


def test_what_partitions_act_on_comes_from_the_topic() -> None:
    configs = {"message.timestamp.type": "LogAppendTime", "ottla.acks.all": "os", "max.message.bytes": "77"}

    found = topic_config(configs, STARTED_PLAIN)

    assert (found.timestamp_type, found.acks_all, found.max_message_bytes) == (TimestampType.LOG_APPEND_TIME, "os", 77)


def test_a_jitter_beyond_the_age_of_a_segment_is_cut_to_it() -> None:
    assert log_config({"segment.ms": "5"}, _started(log_roll_jitter_ms="10")).segment_jitter_ms == 5


def test_a_topics_value_beats_a_brokers_which_beats_the_clusters_which_beats_what_it_was_started_with() -> None:
    name = "log.retention.ms"
    broker = BrokerConfigs(
        Settings.resolve(BROKER_CONFIGS, flags={"log.retention.hours": "1"}), cluster={name: "2"}, node={name: "3"}
    )

    found = topic_effective("retention.ms", {"retention.ms": "4"}, broker)

    assert [(candidate.name, candidate.value, candidate.source) for candidate in found.candidates] == [
        ("retention.ms", 4, ConfigSource.DYNAMIC_TOPIC_CONFIG),
        (name, 3, ConfigSource.DYNAMIC_BROKER_CONFIG),
        (name, 2, ConfigSource.DYNAMIC_DEFAULT_BROKER_CONFIG),
        (name, 3_600_000, ConfigSource.STATIC_BROKER_CONFIG),
        (name, 604_800_000, ConfigSource.DEFAULT_CONFIG),
    ]


def test_a_description_of_a_topic_holds_every_config_and_says_that_none_is_read_only() -> None:
    found = describe_topic({}, STARTED_PLAIN)

    assert [effective.setting.name for effective in found] == [setting.name for setting in TOPIC_CONFIGS]
    assert {(effective.source, effective.read_only) for effective in found} == {(ConfigSource.DEFAULT_CONFIG, False)}


def test_a_description_of_a_broker_says_what_only_a_start_can_change() -> None:
    found = {effective.setting.name: effective for effective in _started(num_partitions="3").describe()}

    partitions = found["num.partitions"]
    assert (partitions.text(), partitions.source, partitions.read_only) == (
        "3",
        ConfigSource.STATIC_BROKER_CONFIG,
        True,
    )
    assert not found["message.max.bytes"].read_only


def test_a_description_of_the_cluster_holds_only_what_was_set_for_it() -> None:
    (found,) = describe_cluster({"message.max.bytes": "5"})

    assert (found.setting.name, found.text(), found.source) == (
        "message.max.bytes",
        "5",
        ConfigSource.DYNAMIC_DEFAULT_BROKER_CONFIG,
    )


def test_a_stored_value_that_cannot_be_read_is_passed_over_and_named() -> None:
    stored = {"retention.ms": "soon", "future.thing": "1"}

    assert log_config(stored, STARTED_PLAIN) == LogConfig()
    assert [problem.split()[0] for problem in unusable(TOPIC_CONFIGS, stored)] == ["retention.ms=soon:", "future.thing"]


def test_a_stored_value_that_cannot_be_read_does_not_stop_an_alteration() -> None:
    stored = {"min.compaction.lag.ms": "soon", "max.compaction.lag.ms": "5"}

    assert altered_topic(stored, [_set("retention.ms", "1")], STARTED_PLAIN) == {**stored, "retention.ms": "1"}


def _set(name: str, text: str | None) -> Alteration:
    return Alteration(name, Operation.SET, text)


def test_settings_of_a_topic_are_set_and_deleted_one_by_one() -> None:
    current = {"retention.ms": "1", "segment.ms": "2"}

    changed = altered_topic(
        current, [_set("flush.ms", " 3 "), Alteration("segment.ms", Operation.DELETE)], STARTED_PLAIN
    )

    assert changed == {"retention.ms": "1", "flush.ms": "3"}
    assert current == {"retention.ms": "1", "segment.ms": "2"}


@pytest.mark.parametrize(
    ("current", "operation", "items", "after"),
    [
        ({}, Operation.APPEND, "compact", "delete,compact"),
        ({"cleanup.policy": "compact"}, Operation.APPEND, "compact,delete", "compact,delete"),
        ({"cleanup.policy": "compact,delete"}, Operation.SUBTRACT, "delete", "compact"),
        ({}, Operation.SUBTRACT, "delete", ""),
        ({}, Operation.SUBTRACT, "compact", "delete"),
    ],
)
def test_a_list_grows_and_shrinks_from_the_value_that_holds(
    current: dict[str, str], operation: Operation, items: str, after: str
) -> None:
    changed = altered_topic(current, [Alteration("cleanup.policy", operation, items)], STARTED_PLAIN)

    assert changed == {"cleanup.policy": after}


def test_an_empty_policy_neither_deletes_nor_compacts() -> None:
    found = log_config({"cleanup.policy": ""}, STARTED_PLAIN)

    assert (found.delete, found.compact) == (False, False)


@pytest.mark.parametrize(
    ("alteration", "error", "says"),
    [
        (_set("retenton.ms", "1"), InvalidConfig, r"did you mean retention\.ms"),
        (_set("retention.ms", "-2"), InvalidConfig, "at least -1"),
        (_set("compression.type", "lz4"), InvalidConfig, "producer"),
        (_set("preallocate", "true"), InvalidConfig, "only false"),
        (_set("retention.ms", None), InvalidRequest, "no value"),
        (Alteration("retention.ms", Operation.APPEND, "1"), InvalidConfig, "no list"),
        (Alteration("cleanup.policy", Operation.APPEND, "shred"), InvalidConfig, "compact, delete"),
    ],
)
def test_an_alteration_that_cannot_be_is_refused(alteration: Alteration, error: type[Exception], says: str) -> None:
    with pytest.raises(error, match=says):
        altered_topic({}, [alteration], STARTED_PLAIN)


def test_one_setting_twice_in_an_alteration_is_refused() -> None:
    with pytest.raises(InvalidRequest, match="more than once"):
        altered_topic({}, [_set("retention.ms", "1"), Alteration("retention.ms", Operation.DELETE)], STARTED_PLAIN)


@pytest.mark.parametrize(
    "check",
    [
        new_topic_configs,
        lambda configs: altered_topic({}, [_set(name, text) for name, text in configs.items()], STARTED_PLAIN),
    ],
)
def test_a_topic_cannot_want_compaction_later_than_at_the_latest(check: Callable[[dict[str, str]], object]) -> None:
    with pytest.raises(InvalidConfig, match="lower it"):
        check({"min.compaction.lag.ms": "6", "max.compaction.lag.ms": "5"})


def test_a_replacement_forgets_what_it_does_not_name() -> None:
    assert replaced(TOPIC_CONFIGS, {"flush.ms": "3"}, scope=None) == {"flush.ms": "3"}


def test_a_new_topic_with_a_setting_without_value_is_refused() -> None:
    with pytest.raises(InvalidConfig, match="leave it out"):
        new_topic_configs({"flush.ms": None})


def test_a_brokers_setting_is_altered_where_that_is_allowed() -> None:
    changed = altered_broker({}, [_set("message.max.bytes", "5")], STARTED_PLAIN, scope=Scope.CLUSTER_WIDE)

    assert changed == {"message.max.bytes": "5"}


@pytest.mark.parametrize(
    ("name", "says"),
    [("num.partitions", "at a start only"), ("log.retention.hours", r"set log\.retention\.ms"), ("nonsense", "is no")],
)
def test_a_brokers_setting_that_cannot_change_at_run_time_is_refused(name: str, says: str) -> None:
    with pytest.raises(InvalidConfig, match=says):
        altered_broker({}, [_set(name, "5")], STARTED_PLAIN, scope=Scope.PER_BROKER)


def test_a_setting_that_only_a_start_can_change_is_not_changed_by_what_is_stored() -> None:
    assert BrokerConfigs(STARTED_PLAIN.static, cluster={"num.partitions": "9"}).integer("num.partitions") == 1


@pytest.mark.parametrize(
    ("text", "host", "port"),
    [
        ("127.0.0.1:9092", "127.0.0.1", 9092),
        ("PLAINTEXT://broker.example:0", "broker.example", 0),
        ("[::1]:9", "::1", 9),
        (":9092", "", 9092),
    ],
)
def test_an_address_is_read_with_and_without_a_protocol(text: str, host: str, port: int) -> None:
    assert parse_address(text)[1:] == (host, port)


@pytest.mark.parametrize("text", ["9092", "host", "host:", "host:65536", "::1:9", "SSL://host:9", "a b:9", "h:-1"])
def test_what_is_no_address_is_refused_with_the_way_to_write_one(text: str) -> None:
    with pytest.raises(InvalidConfig, match=r"HOST:PORT|only PLAINTEXT"):
        parse_address(text)


def test_a_second_data_directory_is_refused() -> None:
    with pytest.raises(InvalidConfig, match="one data directory"):
        Settings.resolve(BROKER_CONFIGS, flags={"log.dirs": "/a,/b"})
