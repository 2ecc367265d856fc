"""IncrementalAlterConfigs, versions 0-1: change single configs of topics and brokers.

A config is set, deleted (back to its default), or, where it is a list, appended to or subtracted from. Each
resource succeeds or fails as a whole and for itself. Log levels, groups and client metrics cannot be changed.
"""

from __future__ import annotations

from functools import partial

from ottla.broker.answers import Answers, code_of
from ottla.broker.caller import Caller
from ottla.broker.config_resources import alter, repeated
from ottla.broker.pending import Pending
from ottla.broker.services import Services
from ottla.errors import InvalidRequest, OttlaError, Refusal
from ottla.metadata.configs import Alteration, Operation
from ottla.protocol.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    AlterConfigsResourceResponse,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)
from ottla.protocol.schema import Message

TIMEOUT_MS = 30_000
"""The request has no timeout of its own."""


def incremental_alter_configs(
    request: IncrementalAlterConfigsRequest, version: int, caller: Caller, services: Services
) -> Message | Pending | None:
    asked = request.resources
    answers = Answers[AlterConfigsResourceResponse](
        len(asked),
        deadlines=services.deadlines,
        timeout_ms=TIMEOUT_MS,
        late=lambda place, error: _result(asked[place], error),
        respond=lambda results: IncrementalAlterConfigsResponse(responses=results),
    )

    def altered(place: int, error: OttlaError | None) -> None:
        answers.settle(place, _result(asked[place], error))

    twice = repeated((resource.resource_type, resource.resource_name) for resource in asked)
    for place, resource in enumerate(asked):
        key = (resource.resource_type, resource.resource_name)
        try:
            if key in twice:
                raise InvalidRequest("a resource stands more than once in the request; put all its changes together")
            wanted = [_alteration(config) for config in resource.configs]
            alter(services.catalog, key, wanted, partial(altered, place), validate_only=request.validate_only)
        except Refusal as error:
            altered(place, error)
    return answers.response()


def _alteration(config: AlterableConfig) -> Alteration:
    if config.config_operation not in set(Operation):
        raise InvalidRequest(f"{config.name}: there is no operation {config.config_operation}")
    return Alteration(config.name, Operation(config.config_operation), config.value)


def _result(resource: AlterConfigsResource, error: OttlaError | None) -> AlterConfigsResourceResponse:
    return AlterConfigsResourceResponse(
        error_code=0 if error is None else code_of(error),
        error_message=None if error is None else str(error),
        resource_type=resource.resource_type,
        resource_name=resource.resource_name,
    )
