"""What a client raises under a name of its own: refusals that it recognises, and failures that are its own.

`errors_by_code` has a class for every other refusal.
"""

from __future__ import annotations

from ottla import errors
from ottla.client.values import RecordPosition, TopicPartition
from ottla.error_codes import ErrorCode
from ottla.errors import OttlaError, Refusal


class Answered(Refusal):
    """A refusal as a client sees it: it also says whether the same request may succeed later."""

    @property
    def retriable(self) -> bool:
        return self.code.retriable


class UnknownTopicOrPartition(Answered):
    """There is no such topic, or it has no such partition."""

    code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


class TopicNotFound(UnknownTopicOrPartition, errors.TopicNotFound):
    """No topic has this name."""


class PartitionNotFound(UnknownTopicOrPartition, errors.PartitionNotFound):
    """The topic is there, but has no partition of this number."""


class NetworkException(Answered):
    """The connection could not be made, or broke before the answer came."""

    code = ErrorCode.NETWORK_EXCEPTION


class Unreachable(NetworkException):
    """No connection could be made, so nothing was sent."""


class RequestTimedOut(Answered):
    """No answer came in time."""

    code = ErrorCode.REQUEST_TIMED_OUT


class NoBrokerReachable(Answered):
    """None of the addresses that are known answered."""

    code = ErrorCode.BROKER_NOT_AVAILABLE


class UnsupportedVersion(Answered):
    """The broker and this client share no version of an API."""

    code = ErrorCode.UNSUPPORTED_VERSION


class ProducerFenced(Answered, errors.ProducerFenced):
    """This producer's time with its transactional id is over: it cannot be used any more."""

    code = ErrorCode.PRODUCER_FENCED


class TransactionFailed(OttlaError):
    """An earlier failure has spoiled the transaction, or it was aborted or took too long: nothing of it counts."""


class CommitUncertain(OttlaError):
    """A commit was asked for and nobody could say what became of it: it may or may not stand."""


class DeliveryTimedOut(OttlaError):
    """A record was not acknowledged in time. It may have been written all the same."""


class PartlySent(OttlaError):
    """Some partitions took their share of a batch and others did not."""

    def __init__(
        self, positions: list[RecordPosition | None], errors_by_partition: dict[TopicPartition, Exception]
    ) -> None:
        reasons = "; ".join(f"{key.topic}-{key.partition}: {error}" for key, error in errors_by_partition.items())
        super().__init__(f"not all partitions took their records: {reasons}")
        self.positions = positions
        """In the order of the input; None for a record that was not acknowledged."""
        self.errors_by_partition = errors_by_partition


class BufferFull(OttlaError):
    """More bytes wait to be sent than the producer's buffer holds, and none left in time."""


class NoGroup(OttlaError):
    """A commit was asked of a consumer that has no group, though it was said to need one."""


class InvalidGroupName(Answered, ValueError):
    """A name that no group can have."""

    code = ErrorCode.INVALID_GROUP_ID


class CommitFailed(OttlaError):
    """The group has gone on without this member, so its positions were not stored: those records come again."""


class NoCommittedOffset(OttlaError):
    """A group has no position in a partition, and its consumer was told not to choose one."""


class ConcurrentUse(OttlaError):
    """A consumer was used by two threads or tasks at once."""


class ClientClosed(OttlaError):
    """The client, or the part of it that was used, has been closed."""


class InvalidSetting(OttlaError, ValueError):
    """A setting that cannot have this value, or not beside another one."""
