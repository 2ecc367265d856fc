"""Our classes, field by field, against the definitions that Kafka's own jars carry."""

from __future__ import annotations

import json
import re
import zipfile
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from ottla.protocol.api_keys import APIS, PRIVATE_KEY_MIN, ApiKey, is_private
from ottla.protocol.messages import MESSAGES, request_class, response_class
from ottla.protocol.messages.consumer_protocol import ConsumerProtocolAssignment, ConsumerProtocolSubscription
from ottla.protocol.schema import Field, Kind, Message, fields_of
from tests.peers.kafka import KAFKA_VERSION

UNSTABLE = {"InitProducerIdRequest": 6, "InitProducerIdResponse": 6}
"""Versions that Kafka defines but does not announce, and that we leave out."""

_API_MESSAGES = [each(key) for key in MESSAGES if not is_private(key) for each in (request_class, response_class)]
_ALL = [*_API_MESSAGES, ConsumerProtocolAssignment, ConsumerProtocolSubscription]
_EMPTY: dict[str, Any] = {"string": "", "bytes": b"", "bool": False, "float64": 0.0, "uuid": bytes(16)}


@cache
def _definitions(jars: Path) -> dict[str, Any]:
    """Every definition in Kafka's client jar, by name."""
    (jar,) = jars.glob(f"kafka-clients-{KAFKA_VERSION}.jar")
    found = {}
    with zipfile.ZipFile(jar) as archive:
        for name in archive.namelist():
            if re.fullmatch(r"common/message/\w+\.json", name):
                # The files have comments, always from the start of a line or after a space.
                text = re.sub(r"(^|\s)//.*$", "", archive.read(name).decode(), flags=re.MULTILINE)
                definition = json.loads(text)
                found[definition["name"]] = definition
    return found


def _range(text: str | None) -> tuple[int, float] | None:
    """`3+`, `3-5` and `3` as an inclusive range; `none` is none."""
    if text is None or text == "none":
        return None
    first, plus, last = re.fullmatch(r"(\d+)(\+?)(?:-(\d+))?", text).groups()  # type: ignore[union-attr]
    return int(first), float("inf") if plus else int(last or first)


def _is_in(text: str | None, version: int) -> bool:
    span = _range(text)
    return span is not None and span[0] <= version <= span[1]


def _snake(name: str) -> str:
    name = re.sub(r"([A-Z]+)([A-Z][a-z])", r"\1_\2", name)
    return re.sub(r"([a-z0-9])([A-Z])", r"\1_\2", name).lower()


def _default(theirs: dict[str, Any], ours: Field) -> Any:
    """Kafka's default as ours would be."""
    kind, given = theirs["type"], theirs.get("default")
    if given == "null":
        return None
    if kind.startswith("[]"):
        return ()
    if ours.struct is not None:
        return ours.struct()
    if kind == "records":
        # Kafka has no default for records; ours is null where that can be written, else empty.
        return None if ours.is_nullable else b""
    if given is None:
        return _EMPTY.get(kind, 0)
    if kind == "bool":
        return str(given).lower() == "true"
    return given if kind == "string" else int(str(given), 0)


def _differences(ours: type[Message], fields: list[Any], common: dict[str, Any], version: int) -> list[str]:
    """What one version of a struct has otherwise than Kafka."""
    wrong = []
    present = [each for each in fields if _is_in(each["versions"], version)]
    mine = [each for each in fields_of(ours) if each.is_in(version)]
    if [_snake(each["name"]) for each in present] != [each.name for each in mine]:
        return [f"{ours.__name__} v{version}: fields are {[each.name for each in mine]}"]
    for theirs, field in zip(present, mine, strict=True):
        element = theirs["type"].removeprefix("[]")
        facts = {
            "type": (element if element[0].islower() else "struct", field.kind.name.lower()),
            "is an array": (theirs["type"].startswith("[]"), field.is_array),
            "may be null": (_is_in(theirs.get("nullableVersions"), version), field.may_be_null(version)),
            "tag": (theirs.get("tag") if _is_in(theirs.get("taggedVersions"), version) else None, field.tag),
            "default": (_default(theirs, field), field.default),
        }
        wrong += [
            f"{ours.__name__}.{field.name} v{version}: {fact} is {our}, Kafka says {their}"
            for fact, (their, our) in facts.items()
            if their != our
        ]
        if field.kind is Kind.STRUCT and field.struct is not None:
            nested = theirs.get("fields") or common[element]
            wrong += _differences(field.struct, nested, common, version)
    return wrong


def _ignorable_differences(ours: type[Message], fields: list[Any], common: dict[str, Any], versions: Any) -> list[str]:
    """Fields that some version lacks and that only one side leaves out silently there."""
    wrong = []
    by_name = {_snake(each["name"]): each for each in fields}
    for field in fields_of(ours):
        theirs = by_name[field.name]
        reachable = [version for version in versions if field.is_in(version)]
        if len(reachable) < len(versions):
            ignorable = theirs.get("ignorable") in (True, "true")
            if ignorable != field.since.ignorable:
                wrong.append(f"{ours.__name__}.{field.name}: ignorable is {field.since.ignorable}")
        if field.struct is not None:
            nested = theirs.get("fields") or common[theirs["type"].removeprefix("[]")]
            wrong += _ignorable_differences(field.struct, nested, common, reachable)
    return wrong


@pytest.mark.peers
@pytest.mark.parametrize("message", _ALL, ids=lambda message: str(message.__name__))
def test_every_version_has_kafkas_fields(message: type[Message], kafka_jars: Path) -> None:
    definition = _definitions(kafka_jars)[message.__name__]
    common = {each["name"]: each["fields"] for each in definition.get("commonStructs", ())}
    for version in message.VERSIONS:
        assert not _differences(message, definition["fields"], common, version)


@pytest.mark.peers
@pytest.mark.parametrize("message", _ALL, ids=lambda message: str(message.__name__))
def test_a_field_is_left_out_silently_only_where_kafka_does_so(message: type[Message], kafka_jars: Path) -> None:
    definition = _definitions(kafka_jars)[message.__name__]
    common = {each["name"]: each["fields"] for each in definition.get("commonStructs", ())}
    assert not _ignorable_differences(message, definition["fields"], common, list(message.VERSIONS))


@pytest.mark.peers
@pytest.mark.parametrize("message", _ALL, ids=lambda message: str(message.__name__))
def test_the_versions_are_kafkas(message: type[Message], kafka_jars: Path) -> None:
    definition = _definitions(kafka_jars)[message.__name__]
    first, last = _range(definition["validVersions"])  # type: ignore[misc]
    flexible = _range(definition["flexibleVersions"])
    unstable = 1 if UNSTABLE.get(message.__name__) == last else 0
    assert (message.VERSIONS.first, message.VERSIONS.last) == (first, last - unstable)
    assert message.VERSIONS.flexible_since == (flexible[0] if flexible else None)


@pytest.mark.peers
@pytest.mark.parametrize("key", [key for key in APIS if not is_private(key)], ids=lambda key: key.name)
def test_the_table_of_apis_is_kafkas(key: ApiKey, kafka_jars: Path) -> None:
    matching = [each for each in _definitions(kafka_jars).values() if each.get("apiKey") == key]
    requests = [each for each in matching if each["type"] == "request"]
    assert [_snake(each["name"].removesuffix("Request")).upper() for each in requests] == [key.name]


@pytest.mark.peers
def test_kafka_has_no_api_of_the_numbers_that_are_our_own(kafka_jars: Path) -> None:
    numbers = {each["apiKey"] for each in _definitions(kafka_jars).values() if "apiKey" in each}
    assert numbers
    assert not [number for number in numbers if number >= PRIVATE_KEY_MIN]
