"""Every error that Ottla raises on purpose.

Four kinds, four ways: a `Refusal` carries an `ErrorCode` and becomes a response; bad bytes
(`ProtocolError`, `BatchError`) close one connection or refuse one batch; a `StorageError` takes one
partition offline; a bug is an assertion and has no class here.
"""

from __future__ import annotations

from ottla.error_codes import ErrorCode


class OttlaError(Exception):
    """The root: catch this to catch whatever Ottla raises on purpose."""


class Refusal(OttlaError):
    """A request that was understood and turned down; `code` says why, in Kafka's words."""

    code: ErrorCode = ErrorCode.UNKNOWN_SERVER_ERROR


class ProtocolError(OttlaError):
    """Bytes that are not a message of the protocol."""


class BatchError(Refusal):
    """Bytes that are not a record batch we accept."""

    code = ErrorCode.CORRUPT_MESSAGE


class TruncatedBatch(BatchError):
    """The bytes end before the batch does."""


class CorruptBatch(BatchError):
    """The checksum of the batch does not fit its bytes."""


class InvalidBatch(BatchError):
    """A length, count or field of the batch, or of a record in it, is impossible."""


class InvalidText(InvalidBatch):
    """A header key in a record is not UTF-8."""


class UnsupportedBatch(BatchError):
    """A batch of a format (magic) that Ottla does not store."""

    code = ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT


class UnsupportedCompression(BatchError):
    """A compression codec that does not exist, or whose library is missing."""

    code = ErrorCode.UNSUPPORTED_COMPRESSION_TYPE


class DecompressionTooLarge(BatchError):
    """A batch that would unpack to more than the bound allows."""

    code = ErrorCode.MESSAGE_TOO_LARGE


class InvalidRecord(Refusal):
    """A record handed to us for writing that no batch can hold."""

    code = ErrorCode.INVALID_RECORD


class OffsetOutOfRange(Refusal):
    """An offset below the log start or beyond the log end."""

    code = ErrorCode.OFFSET_OUT_OF_RANGE


class OutOfOrderSequence(Refusal):
    """An idempotent producer's batch does not follow its last one."""

    code = ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER


class InvalidProducerEpoch(Refusal):
    """A producer, or a transaction marker, of an older epoch than the log has seen."""

    code = ErrorCode.INVALID_PRODUCER_EPOCH


class InvalidTransactionState(Refusal):
    """A plain batch from a producer whose transaction is open in this partition."""

    code = ErrorCode.INVALID_TXN_STATE


class TransactionCoordinatorFenced(Refusal):
    """A transaction marker from a coordinator that has since been replaced."""

    code = ErrorCode.TRANSACTION_COORDINATOR_FENCED


class RecordTooLarge(Refusal):
    """A batch above the size that the topic allows, or that a segment can hold."""

    code = ErrorCode.MESSAGE_TOO_LARGE


class StorageError(OttlaError):
    """Something about files; the message names the path and what to do."""


class StorageFault(StorageError):
    """The disk failed under us. The partition goes offline; reopening it recovers what is there."""

    def __init__(self, path: str, doing: str, cause: BaseException | None = None) -> None:
        super().__init__(f"{path}: {doing} failed: {cause}" if cause else f"{path}: {doing}")
        self.path = path


class DiskFull(StorageFault):
    """No space left: nothing of the refused write was kept."""


class LogClosed(StorageError):
    """The log was closed, or failed earlier and must be reopened."""


class InvalidTopicLayout(StorageError):
    """A data directory, or a partition in it, whose files are not laid out as Ottla writes them."""

    def __init__(self, path: str, reason: str) -> None:
        super().__init__(f"{path}: {reason}")
        self.path = path


class DataDirectoryLocked(StorageError):
    """Another process has this data directory open."""
