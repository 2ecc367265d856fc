"""AlterConfigs, versions 0-2: replace all configs of topics and brokers.

What a request does not name goes back to its default. Each resource succeeds or fails for itself. Log levels,
groups and client metrics cannot be changed.
"""

from __future__ import annotations

from functools import partial

from ottla.broker.answers import Answers, code_of
from ottla.broker.caller import Caller
from ottla.broker.config_resources import alter, repeated
from ottla.broker.pending import Pending
from ottla.broker.services import Services
from ottla.errors import InvalidRequest, OttlaError, Refusal
from ottla.protocol.messages.alter_configs import (
    AlterConfigsRequest,
    AlterConfigsResource,
    AlterConfigsResourceResponse,
    AlterConfigsResponse,
)
from ottla.protocol.schema import Message

TIMEOUT_MS = 30_000
"""The request has no timeout of its own."""


def alter_configs(
    request: AlterConfigsRequest, version: int, caller: Caller, services: Services
) -> Message | Pending | None:
    asked = request.resources
    answers = Answers[AlterConfigsResourceResponse](
        len(asked),
        deadlines=services.deadlines,
        timeout_ms=TIMEOUT_MS,
        late=lambda place, error: _result(asked[place], error),
        respond=lambda results: AlterConfigsResponse(responses=results),
    )

    def altered(place: int, error: OttlaError | None) -> None:
        answers.settle(place, _result(asked[place], error))

    twice = repeated((resource.resource_type, resource.resource_name) for resource in asked)
    for place, resource in enumerate(asked):
        key = (resource.resource_type, resource.resource_name)
        wanted = {config.name: config.value for config in resource.configs}
        try:
            if key in twice or len(wanted) < len(resource.configs):
                raise InvalidRequest("a resource, or a config of it, stands more than once in the request")
            alter(services.catalog, key, wanted, partial(altered, place), validate_only=request.validate_only)
        except Refusal as error:
            altered(place, error)
    return answers.response()


def _result(resource: AlterConfigsResource, error: OttlaError | None) -> AlterConfigsResourceResponse:
    return AlterConfigsResourceResponse(
        error_code=0 if error is None else code_of(error),
        error_message=None if error is None else str(error),
        resource_type=resource.resource_type,
        resource_name=resource.resource_name,
    )
