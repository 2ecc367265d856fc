"""What Ottla answers to every request about transactions, line by line beside what Apache Kafka answers.

The files in `conversations` hold Kafka's answers, and Ottla's where it differs on purpose. That Kafka does give them
is shown in `test_beside_kafka`.
"""

from __future__ import annotations

import pytest

from ottla import connect
from tests.clients.server_process import ServerProcess
from tests.clients.transactions.conversation import Conversation, all_conversations, answers


@pytest.fixture(autouse=True, scope="session")
def _own_topics(ottla: ServerProcess) -> None:
    """Both of the broker's own topics are there, whichever conversation comes first.

    Made once for each server: tests that run side by side may leave this file and come back to it.
    """
    with connect(ottla.address) as client:
        client.admin().create_topic("committed")
        client.admin().alter_group_offsets("committed by", {("committed", 0): 0})


@pytest.mark.parametrize(
    "conversation",
    [pytest.param(each, id=f"{file}: {each.title}") for file, each in all_conversations()],
)
def test_ottla_answers_as_it_is_written_down(ottla: ServerProcess, conversation: Conversation) -> None:
    expected = [f"{line.command} -> {line.ottla}" for line in conversation.lines]
    assert [f"{line.command} -> {answer}" for line, answer in answers(ottla, conversation)] == expected


def test_every_difference_has_a_reason_and_every_reason_a_difference() -> None:
    lines = [line for _, conversation in all_conversations() for line in conversation.lines]
    assert len(lines) > 400
    assert [line for line in lines if (line.kafka != line.ottla) != bool(line.reason)] == []
