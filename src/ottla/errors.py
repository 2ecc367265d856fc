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


class RefusedUnanswered(ProtocolError):
    """A request was refused that gets no answer; nothing but the end of the connection can say so."""


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
    """What a producer asks for does not fit the state that its transaction is in."""

    code = ErrorCode.INVALID_TXN_STATE


class TransactionCoordinatorFenced(Refusal):
    """A transaction marker from a coordinator that has since been replaced."""

    code = ErrorCode.TRANSACTION_COORDINATOR_FENCED


class RecordTooLarge(Refusal):
    """A batch above the size that the topic allows, or that a segment can hold."""

    code = ErrorCode.MESSAGE_TOO_LARGE


class InvalidTimestamp(Refusal):
    """A record's timestamp is further from the broker's clock than the topic allows."""

    code = ErrorCode.INVALID_TIMESTAMP


class PartitionOffline(Refusal):
    """The partition's disk failed; it comes back when its log could be reopened."""

    code = ErrorCode.KAFKA_STORAGE_ERROR


class NotLeader(Refusal):
    """This broker does not lead the partition, or not yet; the client asks for the metadata and tries again."""

    code = ErrorCode.NOT_LEADER_OR_FOLLOWER


class FencedLeaderEpoch(Refusal):
    """The client's idea of the leader is older than the leader itself."""

    code = ErrorCode.FENCED_LEADER_EPOCH


class UnknownLeaderEpoch(Refusal):
    """The client has heard of a leader epoch that this broker has not."""

    code = ErrorCode.UNKNOWN_LEADER_EPOCH


class FetchSessionIdNotFound(Refusal):
    """The broker has forgotten the fetch session; the client begins a new one by itself."""

    code = ErrorCode.FETCH_SESSION_ID_NOT_FOUND


class InvalidFetchSessionEpoch(Refusal):
    """A fetch came out of turn; the client begins a new session by itself."""

    code = ErrorCode.INVALID_FETCH_SESSION_EPOCH


class FetchSessionTopicIdError(Refusal):
    """A fetch session goes by topic names and its next fetch by ids, or the reverse; the client begins a new one."""

    code = ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR


class InvalidRequest(Refusal):
    """A request that contradicts itself."""

    code = ErrorCode.INVALID_REQUEST


class InvalidConfig(Refusal):
    """A setting of an unknown name, or with a value that it cannot have."""

    code = ErrorCode.INVALID_CONFIG


class TopicNotFound(Refusal):
    """No topic has this name."""

    code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION

    def __init__(self, topic: str) -> None:
        super().__init__(f"there is no topic {topic!r}; create it first, or list the topics to find its name")
        self.topic = topic


class UnknownTopicId(Refusal):
    """No topic has this id; one that was created again has another."""

    code = ErrorCode.UNKNOWN_TOPIC_ID

    def __init__(self, topic_id: object) -> None:
        super().__init__(f"there is no topic with the id {topic_id}; ask for the metadata again")


class PartitionNotFound(Refusal):
    """The topic is there, but has no partition of this number."""

    code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION

    def __init__(self, topic: str, partition: int) -> None:
        super().__init__(f"topic {topic!r} has no partition {partition}; ask for the metadata to see how many it has")
        self.topic = topic
        self.partition = partition


class TopicExists(Refusal):
    """A topic of this name is there already."""

    code = ErrorCode.TOPIC_ALREADY_EXISTS


class InvalidTopicName(Refusal):
    """A name that no topic may have, or one too much like another topic's."""

    code = ErrorCode.INVALID_TOPIC_EXCEPTION


class InvalidPartitionCount(Refusal):
    """A number of partitions that a topic cannot have, or cannot be brought to."""

    code = ErrorCode.INVALID_PARTITIONS


class InvalidReplicationFactor(Refusal):
    """More copies than there are brokers, or none."""

    code = ErrorCode.INVALID_REPLICATION_FACTOR


class InvalidReplicaAssignment(Refusal):
    """An assignment of partitions to brokers that cannot be."""

    code = ErrorCode.INVALID_REPLICA_ASSIGNMENT


class NoReassignment(Refusal):
    """There is no move of this partition to call off."""

    code = ErrorCode.NO_REASSIGNMENT_IN_PROGRESS


class PolicyViolation(Refusal):
    """Well formed, but against the topic's own policy."""

    code = ErrorCode.POLICY_VIOLATION


class UnsupportedVersion(Refusal):
    """Something that this version of the request cannot ask for."""

    code = ErrorCode.UNSUPPORTED_VERSION


class TopicDeletionDisabled(Refusal):
    """`delete.topic.enable` is false."""

    code = ErrorCode.TOPIC_DELETION_DISABLED


class MetadataConflict(Refusal):
    """Somebody else changed the same metadata first: look again and decide anew."""

    # The one code that makes every client ask for metadata again and retry.
    code = ErrorCode.NOT_CONTROLLER


class MetadataBusy(Refusal):
    """More changes of metadata wait than the limit allows: try again later."""

    code = ErrorCode.THROTTLING_QUOTA_EXCEEDED


class InvalidGroupId(Refusal):
    """A name that no group may have: empty, a dot, two dots, or one with a slash."""

    code = ErrorCode.INVALID_GROUP_ID


class GroupIdNotFound(Refusal):
    """There is no group of this id, or not of the kind that was asked for."""

    code = ErrorCode.GROUP_ID_NOT_FOUND


class NonEmptyGroup(Refusal):
    """The group still has members, so it stays."""

    code = ErrorCode.NON_EMPTY_GROUP


class GroupSubscribedToTopic(Refusal):
    """Members of the group read the topic, so its offsets stay."""

    code = ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC


class GroupMaxSizeReached(Refusal):
    """The group has as many members as it may have."""

    code = ErrorCode.GROUP_MAX_SIZE_REACHED


class InconsistentGroupProtocol(Refusal):
    """The member shares no assignment protocol, or not the kind of group, with the others."""

    code = ErrorCode.INCONSISTENT_GROUP_PROTOCOL


class InvalidSessionTimeout(Refusal):
    """A session timeout outside the broker's bounds."""

    code = ErrorCode.INVALID_SESSION_TIMEOUT


class UnknownMemberId(Refusal):
    """The group has no such member: it has to join anew."""

    code = ErrorCode.UNKNOWN_MEMBER_ID


class MemberIdRequired(Refusal):
    """The member has to join again, with the id that was made for it."""

    code = ErrorCode.MEMBER_ID_REQUIRED

    def __init__(self, member_id: str) -> None:
        super().__init__(f"join again as {member_id!r}")
        self.member_id = member_id


class FencedInstanceId(Refusal):
    """Another member has taken over this static instance id."""

    code = ErrorCode.FENCED_INSTANCE_ID


class UnreleasedInstanceId(Refusal):
    """The static instance id still belongs to another member, which has not left."""

    code = ErrorCode.UNRELEASED_INSTANCE_ID


class IllegalGeneration(Refusal):
    """The member speaks of another generation of its group."""

    code = ErrorCode.ILLEGAL_GENERATION


class RebalanceInProgress(Refusal):
    """The group is between two generations: the member has to join again."""

    code = ErrorCode.REBALANCE_IN_PROGRESS


class FencedMemberEpoch(Refusal):
    """The member's epoch is not one that the group can go on from: it has to give up everything and join anew."""

    code = ErrorCode.FENCED_MEMBER_EPOCH


class StaleMemberEpoch(Refusal):
    """The member's epoch has moved on; it tries again with the one that its heartbeat brings."""

    code = ErrorCode.STALE_MEMBER_EPOCH


class UnsupportedAssignor(Refusal):
    """The broker has no assignor of this name."""

    code = ErrorCode.UNSUPPORTED_ASSIGNOR


class InvalidRegularExpression(Refusal):
    """A subscription whose pattern RE2 cannot read."""

    code = ErrorCode.INVALID_REGULAR_EXPRESSION


class UnstableOffsetCommit(Refusal):
    """A transaction that is still open holds an offset that was asked for."""

    code = ErrorCode.UNSTABLE_OFFSET_COMMIT


class ProducerFenced(Refusal):
    """Another producer has taken over the transactional id, or the coordinator has ended the transaction itself."""

    code = ErrorCode.PRODUCER_FENCED


class InvalidProducerIdMapping(Refusal):
    """The transactional id is not known, or belongs to another producer id."""

    code = ErrorCode.INVALID_PRODUCER_ID_MAPPING


class InvalidTransactionTimeout(Refusal):
    """A transaction timeout that is not above 0, or longer than the broker allows."""

    code = ErrorCode.INVALID_TRANSACTION_TIMEOUT


class ConcurrentTransactions(Refusal):
    """The transaction before is still being brought to its end; clients try again."""

    code = ErrorCode.CONCURRENT_TRANSACTIONS


class TransactionAbortable(Refusal):
    """The transaction cannot be committed any more; the producer may abort it and go on."""

    code = ErrorCode.TRANSACTION_ABORTABLE


class TransactionalIdNotFound(Refusal):
    """Nothing is known of a transactional id."""

    code = ErrorCode.TRANSACTIONAL_ID_NOT_FOUND


class OperationNotAttempted(Refusal):
    """Left undone because another part of the same request was refused."""

    code = ErrorCode.OPERATION_NOT_ATTEMPTED


class OffsetMetadataTooLarge(Refusal):
    """The note that came with a committed offset is too long."""

    code = ErrorCode.OFFSET_METADATA_TOO_LARGE


class CoordinatorNotAvailable(Refusal):
    """Nobody can coordinate this at the moment; clients look for the coordinator again."""

    code = ErrorCode.COORDINATOR_NOT_AVAILABLE


class CoordinatorLoadInProgress(Refusal):
    """The coordinator is still reading its state back; clients try again."""

    code = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS


class NotCoordinator(Refusal):
    """Another broker coordinates this; clients look for it."""

    code = ErrorCode.NOT_COORDINATOR


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


class DamagedStore(StorageError):
    """The metadata store's file cannot be believed."""

    def __init__(self, path: str, reason: str) -> None:
        super().__init__(f"{path}: is damaged: {reason}")
        self.path = path


class UnsupportedStore(StorageError):
    """The metadata store was written by another version of Ottla."""

    def __init__(self, path: str, reason: str) -> None:
        super().__init__(f"{path}: {reason}")
        self.path = path


class StoreClosed(StorageError):
    """The metadata store was closed, or failed earlier and must be reopened."""
