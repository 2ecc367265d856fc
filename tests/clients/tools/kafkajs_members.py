"""kafkajs as a member of a group: `group.js` says what the members of the churn tests say."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from tests.clients.groups.churn_members import Event, Life, News, parse
from tests.clients.groups.members import Spec
from tests.clients.kafkajs_peer import Kafkajs
from tests.clients.tools.listened import ListenedMember

CLIENT = "kafkajs"
PROTOCOL_NAME = "RoundRobinAssigner"
"""What it calls its assignor; no other client has one of that name."""


def kafkajs_member(spec: Spec, kafkajs: Kafkajs, news: News, directory: Path) -> ListenedMember:
    """Start one; its logs are in the directory."""
    directory.mkdir(parents=True, exist_ok=True)
    return ListenedMember(spec, kafkajs.command("group.js", spec.to_json()), translated, news, directory)


def translated(told: dict[str, Any], life: Life) -> Event | None:
    """What one line of it means."""
    return parse(json.dumps(told).encode())
