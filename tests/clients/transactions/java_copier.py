"""Kafka's TransactionalMessageCopier: how it is started, and what its lines mean.

It reads as a member of a group, copies by transactions version 2, aborts one of three on purpose, and ends when it has
copied all that it was given. It tells of its progress in JSON, and of what ended it in words.
"""

from __future__ import annotations

import json
import time

from tests.clients.groups.churn_members import Event, Life
from tests.clients.transactions.copy_copier import ANSWER_SECONDS_MAX, Errand
from tests.peers.tools import Tools

MAIN = "org.apache.kafka.tools.TransactionalMessageCopier"
CLIENT = "java"
FENCED = "ProducerFencedException"


def arguments(errand: Errand) -> list[str]:
    return [
        *("--broker-list", errand.address),
        *("--input-topic", errand.source, "--input-partition", "0", "--output-topic", errand.target),
        *("--consumer-group", errand.group, "--group-mode", "--use-group-metadata"),
        *("--transactional-id", errand.transactional_id, "--enable-random-aborts"),
        *("--transaction-size", str(errand.transaction_records_max)),
        *("--transaction-timeout", str(ANSWER_SECONDS_MAX * 1000)),
    ]


def command(tools: Tools, errand: Errand) -> list[str]:
    return tools.command(MAIN, *arguments(errand))


def understand(line: bytes, life: Life) -> Event | None:
    """What one line means, after all that it has said before."""
    now_ns = time.monotonic_ns()
    if not (line.startswith(b"{") and line.endswith(b"}\n")):
        text = line.decode(errors="replace").strip()
        return Event(now_ns, "fenced" if FENCED in text else "words", None, {"what": text}) if text else None
    told = json.loads(line)
    if told["stage"] == "ShutdownComplete":
        return Event(now_ns, "left", None, {})
    if told["stage"] == "RebalanceComplete":
        return Event(now_ns, "started", None, {})
    before = next((event.facts["total"] for event in reversed(life.events) if "total" in event.facts), 0)
    total = told["totalProcessed"]
    return Event(now_ns, "committed", None, {"total": total}) if total > before else None
