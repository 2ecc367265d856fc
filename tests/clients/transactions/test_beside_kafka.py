"""Ottla beside Apache Kafka 4.3: what is answered, and what readers of both kinds are shown.

INTERLEAVINGS says how many random sequences of writes are compared (default 4).
"""

from __future__ import annotations

import os
from collections import Counter

import pytest

from tests.clients.server_process import ServerProcess
from tests.clients.transactions.conversation import all_conversations, answers
from tests.clients.transactions.interleaving import Play, steps
from tests.report import Report

SEEDS = int(os.environ.get("INTERLEAVINGS", "4"))

pytestmark = pytest.mark.peers


def test_kafka_answers_as_it_is_written_down(apache_kafka: ServerProcess, report_lines: Report) -> None:
    different, said = [], []
    for file, conversation in all_conversations():
        for line, answer in answers(apache_kafka, conversation):
            said.append(line)
            if answer != line.kafka:
                different.append(f"{file}: {conversation.title}: {line.command} -> {answer}, not {line.kafka}")
    otherwise = sum(bool(line.reason) for line in said)
    report_lines.say(
        "conversations about transactions",
        f"{len(said)} lines, {otherwise} of which Ottla answers otherwise than Kafka",
    )
    assert different == []


def test_readers_and_tools_are_shown_the_same_by_ottla_and_kafka(
    ottla: ServerProcess, apache_kafka: ServerProcess, report_lines: Report
) -> None:
    looks, done = 0, Counter[str]()
    for seed in range(1, SEEDS + 1):
        by_ottla = Play(ottla, f"woven-{seed}").run(seed)
        by_kafka = Play(apache_kafka, f"woven-{seed}").run(seed)
        for number, (ours, theirs) in enumerate(zip(by_ottla, by_kafka, strict=True)):
            assert ours == theirs, f"seed {seed}, after {[line for line in by_kafka[:number] if 'step' in line][-1]}"
        looks += len(by_kafka)
        done.update(step.verb for step in steps(seed))
    assert all(done[verb] for verb in ("write", "commit", "abort", "replace", "plain", "trim"))
    report_lines.say("what readers are shown, beside Kafka", f"{SEEDS} seeds, {looks} looks, all alike; {dict(done)}")
