"""What has configs, and how a change reaches the catalog: for AlterConfigs and IncrementalAlterConfigs alike."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from enum import IntEnum

from ottla.errors import InvalidRequest, OttlaError
from ottla.metadata.catalog import Catalog
from ottla.metadata.configs import Alteration


class ResourceType(IntEnum):
    """Kafka's numbers for what may have configs."""

    TOPIC = 2
    BROKER = 4
    BROKER_LOGGER = 8
    CLIENT_METRICS = 16
    GROUP = 32


Resource = tuple[int, str]
"""A type and a name."""
Wanted = Sequence[Alteration] | Mapping[str, str | None]
"""Single changes, or everything that is to be set."""


def repeated(resources: Iterable[Resource]) -> frozenset[Resource]:
    """Those that stand in a request more than once, so that it is not clear what is wanted."""
    return frozenset(resource for resource, count in Counter(resources).items() if count > 1)


def unsupported(resource_type: int) -> InvalidRequest:
    """The refusal of a kind of resource that has no configs here."""
    kind = ResourceType(resource_type).name if resource_type in set(ResourceType) else str(resource_type)
    return InvalidRequest(f"resources of type {kind} have no configs on this broker")


def alter(
    catalog: Catalog,
    resource: Resource,
    wanted: Wanted,
    done: Callable[[OttlaError | None], None],
    *,
    validate_only: bool,
) -> None:
    """Change the configs of a topic or a broker; raises InvalidRequest for anything else."""
    resource_type, name = resource
    if resource_type == ResourceType.TOPIC:
        catalog.alter_topic_configs(name, wanted, done, validate_only=validate_only)
    elif resource_type == ResourceType.BROKER:
        catalog.alter_broker_configs(name, wanted, done, validate_only=validate_only)
    else:
        raise unsupported(resource_type)
