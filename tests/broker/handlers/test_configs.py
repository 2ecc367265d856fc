"""DescribeConfigs, AlterConfigs and IncrementalAlterConfigs: what holds, where it comes from, and how it changes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from ottla.config import Kind
from ottla.error_codes import ErrorCode
from ottla.metadata.broker_configs import BROKER_CONFIGS
from ottla.metadata.configs import ConfigSource, Operation
from ottla.metadata.topic_configs import TOPIC_CONFIGS
from ottla.protocol.messages import alter_configs as alter
from ottla.protocol.messages import incremental_alter_configs as incremental
from ottla.protocol.messages.describe_configs import DescribeConfigsRequest, DescribeConfigsResource
from tests.broker.stage import Stage
from tests.storage.workbench import batch

TOPIC, BROKER, LOGGER, METRICS, GROUP = 2, 4, 8, 16, 32


def describe(stage: Stage, kind: int, name: str, *keys: str, **fields: Any) -> Any:
    resource = DescribeConfigsResource(resource_type=kind, resource_name=name, configuration_keys=keys or None)
    return stage.call(DescribeConfigsRequest(resources=[resource], **fields)).results[0]


def told(stage: Stage, kind: int, name: str, key: str) -> tuple[str | None, ConfigSource]:
    config = describe(stage, kind, name, key).configs[0]
    return config.value, ConfigSource(config.config_source)


def change(stage: Stage, kind: int, name: str, *changes: tuple[str, int, str | None], **fields: Any) -> Any:
    configs = [incremental.AlterableConfig(name=key, config_operation=how, value=value) for key, how, value in changes]
    resource = incremental.AlterConfigsResource(resource_type=kind, resource_name=name, configs=configs)
    return stage.call(incremental.IncrementalAlterConfigsRequest(resources=[resource], **fields)).responses[0]


def replace(stage: Stage, kind: int, name: str, configs: Mapping[str, str | None], **fields: Any) -> Any:
    wanted = [alter.AlterableConfig(name=key, value=value) for key, value in configs.items()]
    resource = alter.AlterConfigsResource(resource_type=kind, resource_name=name, configs=wanted)
    return stage.call(alter.AlterConfigsRequest(resources=[resource], **fields)).responses[0]


# --- describing ----------------------------------------------------------------------------------------


def test_a_topic_has_every_config_with_type_value_and_help(stage: Stage) -> None:
    stage.create("a", retention_ms="5000")
    configs = {config.name: config for config in describe(stage, TOPIC, "a", include_documentation=True).configs}
    assert configs.keys() == {setting.name for setting in TOPIC_CONFIGS}
    assert {name: Kind(config.config_type) for name, config in configs.items()} == {
        setting.name: setting.kind for setting in TOPIC_CONFIGS
    }
    assert all(config.documentation for config in configs.values())
    assert configs["retention.ms"].value == "5000"
    assert configs["cleanup.policy"].value == "delete"


def test_help_and_synonyms_are_told_only_to_those_who_ask(stage: Stage) -> None:
    stage.create("a")
    config = describe(stage, TOPIC, "a", "retention.ms").configs[0]
    assert (config.documentation, config.synonyms) == (None, ())


def test_synonyms_are_the_values_that_would_hold_next(stage: Stage) -> None:
    stage = Stage({"log.retention.ms": "4000"})
    stage.create("a", retention_ms="1000")
    change(stage, BROKER, "", ("log.retention.ms", Operation.SET, "3000"))
    change(stage, BROKER, "1", ("log.retention.ms", Operation.SET, "2000"))
    config = describe(stage, TOPIC, "a", "retention.ms", include_synonyms=True).configs[0]
    assert [(each.name, each.value, ConfigSource(each.source)) for each in config.synonyms] == [
        ("retention.ms", "1000", ConfigSource.DYNAMIC_TOPIC_CONFIG),
        ("log.retention.ms", "2000", ConfigSource.DYNAMIC_BROKER_CONFIG),
        ("log.retention.ms", "3000", ConfigSource.DYNAMIC_DEFAULT_BROKER_CONFIG),
        ("log.retention.ms", "4000", ConfigSource.STATIC_BROKER_CONFIG),
        ("log.retention.ms", "604800000", ConfigSource.DEFAULT_CONFIG),
    ]


def test_only_the_keys_that_were_named_are_told(stage: Stage) -> None:
    stage.create("a")
    found = describe(stage, TOPIC, "a", "retention.ms", "no.such.key", "segment.bytes").configs
    assert sorted(config.name for config in found) == ["retention.ms", "segment.bytes"]


def test_an_empty_list_of_keys_means_every_key(stage: Stage) -> None:
    stage.create("a")
    resource = DescribeConfigsResource(resource_type=TOPIC, resource_name="a", configuration_keys=())
    found = stage.call(DescribeConfigsRequest(resources=[resource])).results[0].configs
    assert len(found) == len(TOPIC_CONFIGS)


def test_this_broker_has_every_setting(stage: Stage) -> None:
    configs = {config.name: config for config in describe(stage, BROKER, "1").configs}
    assert configs.keys() == {setting.name for setting in BROKER_CONFIGS}
    assert (configs["node.id"].value, configs["node.id"].read_only) == ("1", True)
    assert not configs["log.retention.ms"].read_only


def test_the_empty_name_means_what_was_set_for_every_broker(stage: Stage) -> None:
    assert describe(stage, BROKER, "").configs == ()
    change(stage, BROKER, "", ("log.retention.ms", Operation.SET, "7000"))
    assert told(stage, BROKER, "", "log.retention.ms") == ("7000", ConfigSource.DYNAMIC_DEFAULT_BROKER_CONFIG)


def test_no_loggers_can_be_set_on_this_broker(stage: Stage) -> None:
    result = describe(stage, LOGGER, "1")
    assert (result.error_code, result.configs) == (ErrorCode.NONE, ())


@pytest.mark.parametrize(
    ("kind", "name", "code"),
    [
        (TOPIC, "missing", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        (BROKER, "2", ErrorCode.INVALID_REQUEST),
        (BROKER, "one", ErrorCode.INVALID_REQUEST),
        (LOGGER, "", ErrorCode.INVALID_REQUEST),
        (METRICS, "m", ErrorCode.INVALID_REQUEST),
        (GROUP, "g", ErrorCode.INVALID_REQUEST),
        (0, "x", ErrorCode.INVALID_REQUEST),
    ],
)
def test_what_cannot_be_described_is_an_error_with_a_reason(stage: Stage, kind: int, name: str, code: int) -> None:
    result = describe(stage, kind, name)
    assert (result.error_code, result.resource_type, result.resource_name) == (code, kind, name)
    assert result.error_message
    assert result.configs == ()


# --- single changes --------------------------------------------------------------------------------------


def test_a_config_is_set_and_deleted(stage: Stage) -> None:
    stage.create("a")
    assert change(stage, TOPIC, "a", ("retention.ms", Operation.SET, "9000")).error_code == ErrorCode.NONE
    assert told(stage, TOPIC, "a", "retention.ms") == ("9000", ConfigSource.DYNAMIC_TOPIC_CONFIG)
    assert change(stage, TOPIC, "a", ("retention.ms", Operation.DELETE, None)).error_code == ErrorCode.NONE
    assert told(stage, TOPIC, "a", "retention.ms") == ("604800000", ConfigSource.DEFAULT_CONFIG)


def test_a_list_is_appended_to_and_subtracted_from(stage: Stage) -> None:
    stage.create("a")
    change(stage, TOPIC, "a", ("cleanup.policy", Operation.APPEND, "compact"))
    assert told(stage, TOPIC, "a", "cleanup.policy")[0] == "delete,compact"
    change(stage, TOPIC, "a", ("cleanup.policy", Operation.SUBTRACT, "delete"))
    assert told(stage, TOPIC, "a", "cleanup.policy")[0] == "compact"


def test_other_configs_stay_as_they_are(stage: Stage) -> None:
    stage.create("a", retention_ms="1000", segment_bytes="2000")
    change(stage, TOPIC, "a", ("retention.ms", Operation.SET, "9000"))
    assert told(stage, TOPIC, "a", "segment.bytes")[0] == "2000"


def test_one_wrong_change_undoes_all_of_its_resource(stage: Stage) -> None:
    stage.create("a")
    result = change(
        stage, TOPIC, "a", ("retention.ms", Operation.SET, "9000"), ("segment.bytes", Operation.SET, "large")
    )
    assert result.error_code == ErrorCode.INVALID_CONFIG
    assert told(stage, TOPIC, "a", "retention.ms")[0] == "604800000"


def test_each_resource_succeeds_or_fails_for_itself(stage: Stage) -> None:
    stage.create("a")
    setting = [incremental.AlterableConfig(name="retention.ms", value="9000")]
    resources = [
        incremental.AlterConfigsResource(resource_type=TOPIC, resource_name=name, configs=setting)
        for name in ("missing", "a")
    ]
    responses = stage.call(incremental.IncrementalAlterConfigsRequest(resources=resources)).responses
    assert [each.error_code for each in responses] == [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.NONE]


def test_a_resource_that_stands_twice_is_left_alone(stage: Stage) -> None:
    stage.create("a")
    setting = [incremental.AlterableConfig(name="retention.ms", value="9000")]
    resource = incremental.AlterConfigsResource(resource_type=TOPIC, resource_name="a", configs=setting)
    responses = stage.call(incremental.IncrementalAlterConfigsRequest(resources=[resource, resource])).responses
    assert [each.error_code for each in responses] == [ErrorCode.INVALID_REQUEST] * 2
    assert told(stage, TOPIC, "a", "retention.ms")[0] == "604800000"


@pytest.mark.parametrize(
    ("key", "how", "value", "code"),
    [
        ("retention.mss", Operation.SET, "1", ErrorCode.INVALID_CONFIG),
        ("retention.ms", Operation.SET, "soon", ErrorCode.INVALID_CONFIG),
        ("retention.ms", Operation.SET, None, ErrorCode.INVALID_REQUEST),
        ("retention.ms", Operation.APPEND, "1", ErrorCode.INVALID_CONFIG),
        ("retention.ms", 4, "1", ErrorCode.INVALID_REQUEST),
        ("compression.type", Operation.SET, "gzip", ErrorCode.INVALID_CONFIG),
    ],
)
def test_a_change_that_cannot_be_made_is_refused(
    stage: Stage, key: str, how: int, value: str | None, code: ErrorCode
) -> None:
    stage.create("a")
    result = change(stage, TOPIC, "a", (key, how, value))
    assert result.error_code == code
    assert key in result.error_message


def test_validation_alone_changes_nothing(stage: Stage) -> None:
    stage.create("a")
    request = ("retention.ms", Operation.SET, "9000")
    assert change(stage, TOPIC, "a", request, validate_only=True).error_code == ErrorCode.NONE
    assert told(stage, TOPIC, "a", "retention.ms")[0] == "604800000"


@pytest.mark.parametrize("kind", [LOGGER, METRICS, GROUP, 0])
def test_resources_without_configs_cannot_be_changed(stage: Stage, kind: int) -> None:
    assert change(stage, kind, "1", ("a", Operation.SET, "b")).error_code == ErrorCode.INVALID_REQUEST
    assert replace(stage, kind, "1", {"a": "b"}).error_code == ErrorCode.INVALID_REQUEST


def test_a_setting_that_counts_at_a_start_only_cannot_be_changed(stage: Stage) -> None:
    result = change(stage, BROKER, "1", ("num.partitions", Operation.SET, "3"))
    assert result.error_code == ErrorCode.INVALID_CONFIG


def test_another_broker_cannot_be_changed(stage: Stage) -> None:
    assert change(stage, BROKER, "2", ("log.retention.ms", Operation.SET, "1")).error_code == ErrorCode.INVALID_REQUEST


# --- replacing -------------------------------------------------------------------------------------------


def test_what_a_replacement_does_not_name_goes_back_to_its_default(stage: Stage) -> None:
    stage.create("a", retention_ms="1000", segment_bytes="2000")
    assert replace(stage, TOPIC, "a", {"segment.bytes": "3000"}).error_code == ErrorCode.NONE
    assert told(stage, TOPIC, "a", "segment.bytes")[0] == "3000"
    assert told(stage, TOPIC, "a", "retention.ms") == ("604800000", ConfigSource.DEFAULT_CONFIG)


def test_a_replacement_with_a_wrong_value_changes_nothing(stage: Stage) -> None:
    stage.create("a", retention_ms="1000")
    assert replace(stage, TOPIC, "a", {"segment.bytes": "large"}).error_code == ErrorCode.INVALID_CONFIG
    assert told(stage, TOPIC, "a", "retention.ms")[0] == "1000"


def test_a_replacement_without_a_value_is_refused(stage: Stage) -> None:
    stage.create("a")
    assert replace(stage, TOPIC, "a", {"retention.ms": None}).error_code == ErrorCode.INVALID_CONFIG


def test_a_replacement_that_sets_one_config_twice_is_refused(stage: Stage) -> None:
    stage.create("a")
    twice = [alter.AlterableConfig(name="retention.ms", value=text) for text in ("1", "2")]
    resource = alter.AlterConfigsResource(resource_type=TOPIC, resource_name="a", configs=twice)
    result = stage.call(alter.AlterConfigsRequest(resources=[resource])).responses[0]
    assert result.error_code == ErrorCode.INVALID_REQUEST


def test_a_replacement_can_be_validated_alone(stage: Stage) -> None:
    stage.create("a", retention_ms="1000")
    assert replace(stage, TOPIC, "a", {}, validate_only=True).error_code == ErrorCode.NONE
    assert told(stage, TOPIC, "a", "retention.ms")[0] == "1000"


# --- taking effect ---------------------------------------------------------------------------------------


def test_a_changed_config_holds_at_once_for_a_partition_that_is_open(stage: Stage) -> None:
    stage.create("a")
    assert stage.produce("a", 0, batch(b"x" * 500)).error_code == ErrorCode.NONE
    change(stage, TOPIC, "a", ("max.message.bytes", Operation.SET, "100"))
    assert stage.produce("a", 0, batch(b"x" * 500)).error_code == ErrorCode.MESSAGE_TOO_LARGE


def test_a_brokers_default_holds_at_once_for_topics_without_their_own(stage: Stage) -> None:
    stage.create("plain")
    stage.create("own", max_message_bytes="100000")
    for topic in ("plain", "own"):
        stage.produce(topic)
    change(stage, BROKER, "", ("message.max.bytes", Operation.SET, "100"))
    assert stage.produce("plain", 0, batch(b"x" * 500)).error_code == ErrorCode.MESSAGE_TOO_LARGE
    assert stage.produce("own", 0, batch(b"x" * 500)).error_code == ErrorCode.NONE


def test_configs_are_still_there_after_a_power_loss(stage: Stage) -> None:
    stage.create("a")
    change(stage, TOPIC, "a", ("retention.ms", Operation.SET, "9000"))
    change(stage, BROKER, "1", ("log.segment.bytes", Operation.SET, "5000"))
    stage.crash()
    assert told(stage, TOPIC, "a", "retention.ms")[0] == "9000"
    assert told(stage, TOPIC, "a", "segment.bytes")[0] == "5000"
