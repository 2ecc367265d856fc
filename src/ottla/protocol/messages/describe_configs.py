"""DescribeConfigs (API 32): lists the configs of topics, brokers and groups."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, ClassVar

from ottla.protocol.api_keys import APIS, ApiKey
from ottla.protocol.schema import Bool, Int8, Int16, Int32, Message, Since, String
from ottla.protocol.versions import Versions


class DescribeConfigsResource(Message, frozen=True):
    """A resource, and which of its configs are wanted."""

    resource_type: Int8 = 0
    resource_name: String = ""
    configuration_keys: Sequence[String] | None = ()


class DescribeConfigsRequest(Message, frozen=True):
    """The resources, and which of their configs are wanted."""

    VERSIONS: ClassVar[Versions] = APIS[ApiKey.DESCRIBE_CONFIGS].versions

    resources: Sequence[DescribeConfigsResource] = ()
    include_synonyms: Bool = False
    include_documentation: Annotated[Bool, Since(3)] = False


class DescribeConfigsSynonym(Message, frozen=True):
    """Another place from which the config would take its value."""

    name: String = ""
    value: String | None = ""
    source: Int8 = 0


class DescribeConfigsResourceResult(Message, frozen=True):
    """One config and where its value comes from."""

    name: String = ""
    value: String | None = ""
    read_only: Bool = False
    config_source: Int8 = -1
    is_sensitive: Bool = False
    synonyms: Sequence[DescribeConfigsSynonym] = ()
    config_type: Annotated[Int8, Since(3, ignorable=True)] = 0
    documentation: Annotated[String | None, Since(3, ignorable=True)] = ""


class DescribeConfigsResult(Message, frozen=True):
    """The configs of one resource."""

    error_code: Int16 = 0
    error_message: String | None = ""
    resource_type: Int8 = 0
    resource_name: String = ""
    configs: Sequence[DescribeConfigsResourceResult] = ()


class DescribeConfigsResponse(Message, frozen=True):
    """The configs of each resource."""

    VERSIONS: ClassVar[Versions] = APIS[ApiKey.DESCRIBE_CONFIGS].versions

    throttle_time_ms: Int32 = 0
    results: Sequence[DescribeConfigsResult] = ()
