"""What tools are told of producers and transactions, by raw requests; what differs between runs is left out."""

from __future__ import annotations

from typing import NamedTuple

from ottla.error_codes import ErrorCode
from ottla.protocol.api_keys import ApiKey
from ottla.protocol.messages.describe_producers import (
    DescribeProducersRequest,
    DescribeProducersResponse,
    TopicRequest,
)
from ottla.protocol.messages.describe_transactions import (
    DescribeTransactionsRequest,
    DescribeTransactionsResponse,
    TransactionState,
)
from ottla.protocol.messages.list_transactions import ListTransactionsRequest, ListTransactionsResponse
from tests.clients.transactions.raw_producer import Place, ask
from tests.server.wire import Wire


class Remembered(NamedTuple):
    """A producer as a partition remembers it."""

    producer_id: int
    epoch: int
    last_sequence: int
    open_since: int
    """The offset at which its open transaction begins, or -1."""


def producers(wire: Wire, place: Place) -> list[Remembered]:
    """Those that a partition remembers, by their ids."""
    request = DescribeProducersRequest([TopicRequest(place.topic, [place.partition])])
    (told,) = ask(wire, ApiKey.DESCRIBE_PRODUCERS, 0, request, DescribeProducersResponse).topics[0].partitions
    assert told.error_code == ErrorCode.NONE, ErrorCode(told.error_code)
    return sorted(
        Remembered(each.producer_id, each.producer_epoch, each.last_sequence, each.current_txn_start_offset)
        for each in told.active_producers
    )


def describe(wire: Wire, transactional_id: str) -> TransactionState:
    """What the coordinator says of an id."""
    request = DescribeTransactionsRequest([transactional_id])
    (told,) = ask(wire, ApiKey.DESCRIBE_TRANSACTIONS, 0, request, DescribeTransactionsResponse).transaction_states
    return told


def listed(wire: Wire, pattern: str, *states: str) -> list[tuple[str, str]]:
    """The ids that fit a pattern, and their states; only those in `states`, if there are any."""
    request = ListTransactionsRequest(state_filters=states, transactional_id_pattern=pattern)
    answer = ask(wire, ApiKey.LIST_TRANSACTIONS, 2, request, ListTransactionsResponse)
    assert answer.error_code == ErrorCode.NONE, ErrorCode(answer.error_code)
    return sorted((each.transactional_id, each.transaction_state) for each in answer.transaction_states)
