"""ApiVersions (API 18): tells which versions of which APIs the broker serves."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, ClassVar

from ottla.protocol.api_keys import APIS, ApiKey
from ottla.protocol.schema import Bool, Int16, Int32, Int64, Message, Since, String
from ottla.protocol.versions import Versions


class ApiVersionsRequest(Message, frozen=True):
    """The client's own name and version, for the broker's records."""

    VERSIONS: ClassVar[Versions] = APIS[ApiKey.API_VERSIONS].versions

    client_software_name: Annotated[String, Since(3, ignorable=True)] = ""
    client_software_version: Annotated[String, Since(3, ignorable=True)] = ""


class ApiVersion(Message, frozen=True):
    """The versions of one API."""

    api_key: Int16 = 0
    min_version: Int16 = 0
    max_version: Int16 = 0


class SupportedFeatureKey(Message, frozen=True):
    """The levels of a feature that this broker could run at."""

    name: String = ""
    min_version: Int16 = 0
    max_version: Int16 = 0


class FinalizedFeatureKey(Message, frozen=True):
    """The level of a feature that the cluster runs at."""

    name: String = ""
    max_version_level: Int16 = 0
    min_version_level: Int16 = 0


class ApiVersionsResponse(Message, frozen=True):
    """The version range of each API, and the features of the cluster."""

    VERSIONS: ClassVar[Versions] = APIS[ApiKey.API_VERSIONS].versions

    error_code: Int16 = 0
    api_keys: Sequence[ApiVersion] = ()
    throttle_time_ms: Annotated[Int32, Since(1, ignorable=True)] = 0
    supported_features: Annotated[Sequence[SupportedFeatureKey], Since(3, tag=0, ignorable=True)] = ()
    finalized_features_epoch: Annotated[Int64, Since(3, tag=1, ignorable=True)] = -1
    finalized_features: Annotated[Sequence[FinalizedFeatureKey], Since(3, tag=2, ignorable=True)] = ()
    zk_migration_ready: Annotated[Bool, Since(3, tag=3, ignorable=True)] = False
