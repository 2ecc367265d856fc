"""One exception class per error code of the protocol, so that callers catch what they mean.

The classes follow from the table of codes. Where `ottla.errors` has a named class for a code, the class
here is a kind of it. Says nothing about when to retry beyond the code's own flag.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from ottla import errors
from ottla.client.errors import (
    Answered,
    InvalidGroupName,
    NetworkException,
    NoBrokerReachable,
    ProducerFenced,
    RequestTimedOut,
    UnknownTopicOrPartition,
    UnsupportedVersion,
)
from ottla.error_codes import ErrorCode
from ottla.errors import Refusal

_OWN: Mapping[ErrorCode, type[Answered]] = {
    kind.code: kind
    for kind in (
        InvalidGroupName,
        NetworkException,
        NoBrokerReachable,
        ProducerFenced,
        RequestTimedOut,
        UnknownTopicOrPartition,
        UnsupportedVersion,
    )
}
"""Classes that the client itself raises too."""


_NAMED: Mapping[ErrorCode, type[Refusal]] = {
    ErrorCode.OFFSET_OUT_OF_RANGE: errors.OffsetOutOfRange,
    ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER: errors.OutOfOrderSequence,
    ErrorCode.INVALID_PRODUCER_EPOCH: errors.InvalidProducerEpoch,
    ErrorCode.INVALID_TXN_STATE: errors.InvalidTransactionState,
    ErrorCode.INVALID_PRODUCER_ID_MAPPING: errors.InvalidProducerIdMapping,
    ErrorCode.INVALID_TRANSACTION_TIMEOUT: errors.InvalidTransactionTimeout,
    ErrorCode.CONCURRENT_TRANSACTIONS: errors.ConcurrentTransactions,
    ErrorCode.TRANSACTION_ABORTABLE: errors.TransactionAbortable,
    ErrorCode.TRANSACTIONAL_ID_NOT_FOUND: errors.TransactionalIdNotFound,
    ErrorCode.TRANSACTION_COORDINATOR_FENCED: errors.TransactionCoordinatorFenced,
    ErrorCode.MESSAGE_TOO_LARGE: errors.RecordTooLarge,
    ErrorCode.INVALID_TIMESTAMP: errors.InvalidTimestamp,
    ErrorCode.INVALID_RECORD: errors.InvalidRecord,
    ErrorCode.CORRUPT_MESSAGE: errors.CorruptBatch,
    ErrorCode.UNSUPPORTED_COMPRESSION_TYPE: errors.UnsupportedCompression,
    ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT: errors.UnsupportedBatch,
    ErrorCode.KAFKA_STORAGE_ERROR: errors.PartitionOffline,
    ErrorCode.FENCED_LEADER_EPOCH: errors.FencedLeaderEpoch,
    ErrorCode.UNKNOWN_LEADER_EPOCH: errors.UnknownLeaderEpoch,
    ErrorCode.FETCH_SESSION_ID_NOT_FOUND: errors.FetchSessionIdNotFound,
    ErrorCode.INVALID_FETCH_SESSION_EPOCH: errors.InvalidFetchSessionEpoch,
    ErrorCode.INVALID_REQUEST: errors.InvalidRequest,
    ErrorCode.INVALID_CONFIG: errors.InvalidConfig,
    ErrorCode.TOPIC_ALREADY_EXISTS: errors.TopicExists,
    ErrorCode.INVALID_TOPIC_EXCEPTION: errors.InvalidTopicName,
    ErrorCode.INVALID_PARTITIONS: errors.InvalidPartitionCount,
    ErrorCode.INVALID_REPLICATION_FACTOR: errors.InvalidReplicationFactor,
    ErrorCode.INVALID_REPLICA_ASSIGNMENT: errors.InvalidReplicaAssignment,
    ErrorCode.TOPIC_DELETION_DISABLED: errors.TopicDeletionDisabled,
}
"""Classes that are better known by their own name; those whose constructors ask for more are not here."""


def class_name(code: ErrorCode) -> str:
    """`LEADER_NOT_AVAILABLE` as a class would be called: `LeaderNotAvailable`."""
    return "".join(word.capitalize() for word in code.name.split("_"))


def _make(code: ErrorCode) -> type[Answered]:
    if code in _OWN:
        return _OWN[code]
    named = _NAMED.get(code)
    parents: tuple[type[Refusal], ...] = (Answered,) if named is None else (Answered, named)
    return type(class_name(code), parents, {"code": code, "__doc__": code.sentence, "__module__": __name__})


ERRORS: Mapping[ErrorCode, type[Answered]] = MappingProxyType(
    {code: _make(code) for code in ErrorCode if code is not ErrorCode.NONE}
)
"""The class of every code that says that something went wrong."""

_BY_NAME = {class_name(code): kind for code, kind in ERRORS.items()}


def error_class(code: ErrorCode) -> type[Answered]:
    """The class of errors that carry this code."""
    return ERRORS[code]


def code_of(number: int) -> ErrorCode:
    """A number from the wire as a code; one that we do not know is an unknown error."""
    try:
        return ErrorCode(number)
    except ValueError:
        return ErrorCode.UNKNOWN_SERVER_ERROR


def error_for(code: int, *, about: str, message: str | None = None) -> Answered:
    """The error that a broker's answer stands for; `about` names the topic, partition or whatever was asked for."""
    try:
        known = ErrorCode(code)
    except ValueError:
        return ERRORS[ErrorCode.UNKNOWN_SERVER_ERROR](f"{about}: error code {code}, which this client does not know")
    return ERRORS[known](f"{about}: {message or known.sentence} ({known.name})")


def is_retriable(error: Exception) -> bool:
    """Whether the same request may succeed later."""
    return isinstance(error, Refusal) and error.code.retriable


def __getattr__(name: str) -> type[Answered]:
    try:
        return _BY_NAME[name]
    except KeyError:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}") from None
