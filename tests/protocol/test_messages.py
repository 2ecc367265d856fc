"""The table of messages: complete, consistent with the table of APIs, and lazy."""

from __future__ import annotations

import io
import subprocess
import sys
from typing import Any

import pytest
from kio.schema.request_header.v1.header import RequestHeader as KioRequestHeaderV1
from kio.schema.request_header.v2.header import RequestHeader as KioRequestHeaderV2
from kio.serial import entity_writer

from ottla.protocol.api_keys import APIS, ApiKey
from ottla.protocol.headers import (
    RequestHeader,
    read_request_header,
    request_header,
    request_header_version,
    response_header_version,
)
from ottla.protocol.messages import MESSAGES, request_class, response_class


def test_every_api_of_the_first_three_tiers_has_messages_and_no_other() -> None:
    assert set(MESSAGES) == {key for key, api in APIS.items() if api.tier <= 2}


@pytest.mark.parametrize("key", MESSAGES, ids=lambda key: key.name)
def test_request_and_response_have_the_versions_of_their_api(key: ApiKey) -> None:
    assert request_class(key).VERSIONS is APIS[key].versions
    assert response_class(key).VERSIONS is APIS[key].versions


def test_produce_is_announced_from_0_but_begins_at_3() -> None:
    assert APIS[ApiKey.PRODUCE].announced_first == 0
    assert APIS[ApiKey.PRODUCE].versions.first == 3


def test_no_message_is_imported_before_it_is_asked_for() -> None:
    program = (
        "import sys; import ottla.protocol.connection; "
        "print([name for name in sys.modules if name.startswith('ottla.protocol.messages.')])"
    )
    environment = {"PYTHONPATH": ":".join(sys.path)}
    run = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, env=environment)
    assert run.stdout.strip() == "[]"


@pytest.mark.parametrize("client_id", [None, "", "größe", "c" * 300])
@pytest.mark.parametrize(("key", "version"), [(ApiKey.PRODUCE, 8), (ApiKey.PRODUCE, 9), (ApiKey.API_VERSIONS, 4)])
def test_request_headers_are_kios(key: ApiKey, version: int, client_id: str | None) -> None:
    header = RequestHeader(key, version, 2**31 - 1, client_id)
    encoded = request_header(header)
    kio = KioRequestHeaderV2 if request_header_version(key, version) == 2 else KioRequestHeaderV1
    assert encoded == _written_by_kio(kio, header)
    assert read_request_header(encoded) == (header, len(encoded))


def test_the_header_of_responses_is_flexible_with_the_message_except_for_api_versions() -> None:
    assert response_header_version(ApiKey.FETCH, 11) == 0
    assert response_header_version(ApiKey.FETCH, 12) == 1
    assert response_header_version(ApiKey.API_VERSIONS, 4) == 0


def _written_by_kio(kio: type[KioRequestHeaderV1] | type[KioRequestHeaderV2], header: RequestHeader) -> bytes:
    entity: Any = kio
    buffer = io.BytesIO()
    entity_writer(entity)(
        buffer,
        entity(
            request_api_key=int(header.api_key),
            request_api_version=header.api_version,
            correlation_id=header.correlation_id,
            client_id=header.client_id,
        ),
    )
    return buffer.getvalue()
