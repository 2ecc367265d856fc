"""Kafka's VerifiableConsumer as a member of a group.

It tells in JSON what it was given, read and committed, each with milliseconds by the clock. So that a millisecond
never makes two members overlap, what it was given counts from the end of that millisecond, and what it gave back
until its beginning.
"""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

from tests.clients.groups.churn_members import Event, Life, News
from tests.clients.groups.members import Spec
from tests.clients.tools.listened import ListenedMember
from tests.peers.tools import Tools

MAIN = "org.apache.kafka.tools.VerifiableConsumer"
ASSIGNORS = {
    "java-range": "org.apache.kafka.clients.consumer.RangeAssignor",
    "java-cooperative": "org.apache.kafka.clients.consumer.CooperativeStickyAssignor",
}
CONSUMER_PROTOCOL = "java-consumer"
CLIENTS = frozenset({*ASSIGNORS, CONSUMER_PROTOCOL})

_MS = 1_000_000
_SINCE_BOOT_NS = time.monotonic_ns() - time.time_ns()
"""Other members tell the time since the machine was started."""


def java_member(spec: Spec, tools: Tools, news: News, directory: Path) -> ListenedMember:
    """Start one; its settings and its logs are in the directory."""
    directory.mkdir(parents=True, exist_ok=True)
    command = tools.command(MAIN, *_arguments(spec, directory / f"{spec.name}.properties"))
    return ListenedMember(spec, command, translated, news, directory)


def translated(told: dict[str, Any], life: Life) -> Event | None:
    """What one line of it means."""
    at_ns = told["timestamp"] * _MS + _SINCE_BOOT_NS
    places = frozenset((each["topic"], each["partition"]) for each in told.get("partitions", ()))
    match told["name"]:
        case "startup_complete":
            return Event(at_ns, "started", None, {})
        case "partitions_assigned":
            return Event(at_ns + _MS, "assigned", life.held | places, {})
        case "partitions_revoked":
            return Event(at_ns, "revoked", life.held - places, {})
        case "record_data":
            place = (told["topic"], told["partition"])
            return Event(at_ns, "processed", None, {"place": place, "offset": told["offset"], "value": told["value"]})
        case "offsets_committed" if told["success"]:
            offsets = [[each["topic"], each["partition"], each["offset"]] for each in told["offsets"]]
            return Event(at_ns, "committed", None, {"offsets": offsets})
        case "offsets_committed":
            return Event(at_ns, "trouble", None, {"what": told.get("error")})
        case "shutdown_complete":
            return Event(at_ns, "left", frozenset(), {})
    return None


def _arguments(spec: Spec, properties: Path) -> list[str]:
    (topic,) = spec.topics
    settings = {"client.id": spec.name, "metadata.max.age.ms": "1000"}
    arguments = ["--bootstrap-server", spec.address, "--topic", topic, "--group-id", spec.group, "--verbose"]
    if spec.instance is not None:
        arguments += ["--group-instance-id", spec.instance]
    if spec.client == CONSUMER_PROTOCOL:
        # Sessions and heartbeats are the broker's to say.
        arguments += ["--group-protocol", "consumer"]
    else:
        arguments += ["--assignment-strategy", ASSIGNORS[spec.client], "--session-timeout", str(spec.session_ms)]
        settings["heartbeat.interval.ms"] = str(spec.heartbeat_ms)
    properties.write_text("".join(f"{name}={value}\n" for name, value in settings.items()), encoding="utf-8")
    return [*arguments, "--command-config", str(properties)]
