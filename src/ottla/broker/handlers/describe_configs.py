"""DescribeConfigs, versions 1-4: every config of topics and brokers, and where its value comes from.

A broker is this one by its number, or all of them by the empty name: then only what was set for all at run time is
told. Types and help are told from version 3 on. No log levels can be set, so a broker's loggers are an empty list.
Groups and client metrics have no configs yet and are refused.
"""

from __future__ import annotations

from collections.abc import Sequence

from ottla.broker.caller import Caller
from ottla.broker.config_resources import ResourceType, unsupported
from ottla.broker.pending import Pending
from ottla.broker.services import Services
from ottla.errors import InvalidRequest, Refusal
from ottla.metadata.changes import EVERY_BROKER
from ottla.metadata.configs import Effective, describe_cluster, describe_topic
from ottla.protocol.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResourceResult,
    DescribeConfigsResponse,
    DescribeConfigsResult,
    DescribeConfigsSynonym,
)
from ottla.protocol.schema import Message


def describe_configs(
    request: DescribeConfigsRequest, version: int, caller: Caller, services: Services
) -> Message | Pending | None:
    return DescribeConfigsResponse(results=[_describe(resource, request, services) for resource in request.resources])


def _describe(
    resource: DescribeConfigsResource, request: DescribeConfigsRequest, services: Services
) -> DescribeConfigsResult:
    try:
        found = _configs_of(resource, services)
    except Refusal as error:
        return DescribeConfigsResult(
            error_code=error.code,
            error_message=str(error),
            resource_type=resource.resource_type,
            resource_name=resource.resource_name,
        )
    # As in Kafka, an empty list of names is no wish for nothing.
    wanted = set(resource.configuration_keys or ())
    return DescribeConfigsResult(
        error_message=None,
        resource_type=resource.resource_type,
        resource_name=resource.resource_name,
        configs=[_told(effective, request) for effective in found if not wanted or effective.setting.name in wanted],
    )


def _configs_of(resource: DescribeConfigsResource, services: Services) -> Sequence[Effective]:
    name, catalog = resource.resource_name, services.catalog
    match resource.resource_type:
        case ResourceType.TOPIC:
            catalog.image.topic(name)
            return describe_topic(catalog.image.configs_of_topic(name), catalog.broker_configs())
        case ResourceType.BROKER if name == EVERY_BROKER:
            return describe_cluster(catalog.image.configs_of_cluster())
        case ResourceType.BROKER:
            _require_own(name, services.node_id)
            return catalog.broker_configs().describe()
        case ResourceType.BROKER_LOGGER:
            _require_own(name, services.node_id)
            return ()
        case _:
            raise unsupported(resource.resource_type)


def _require_own(name: str, node_id: int) -> None:
    if name != str(node_id):
        raise InvalidRequest(f"this is broker {node_id}: ask broker {name!r} itself, or leave the name empty")


def _told(effective: Effective, request: DescribeConfigsRequest) -> DescribeConfigsResourceResult:
    synonyms = [
        DescribeConfigsSynonym(name=candidate.name, value=effective.text(candidate), source=candidate.source)
        for candidate in (effective.candidates if request.include_synonyms else ())
    ]
    return DescribeConfigsResourceResult(
        name=effective.setting.name,
        value=effective.text(),
        read_only=effective.read_only,
        config_source=effective.source,
        is_sensitive=effective.setting.sensitive,
        synonyms=synonyms,
        config_type=effective.setting.kind,
        documentation=effective.setting.help if request.include_documentation else None,
    )
