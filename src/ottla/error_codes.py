"""Every error code of the protocol: what Kafka calls it, whether a retry may help, and what it means.

The one table of codes. Nothing here raises; `ottla.errors` holds the exceptions that carry a code.
"""

from __future__ import annotations

from enum import IntEnum
from typing import Self

_RETRIABLE = True
_FINAL = False


class ErrorCode(IntEnum):
    """Kafka's error codes (as of 4.3): a number on the wire, a flag and a sentence for people."""

    retriable: bool
    """Whether the same request, sent again later, may succeed; clients decide by this flag."""
    sentence: str

    # The defaults are for looking a code up by its number, `ErrorCode(3)`; each row of the table gives all three.
    def __new__(cls, code: int, retriable: bool = _FINAL, sentence: str = "") -> Self:
        member = int.__new__(cls, code)
        member._value_ = code
        member.retriable = retriable
        member.sentence = sentence
        return member

    UNKNOWN_SERVER_ERROR = -1, _FINAL, "Something went wrong in the broker that no other code describes."
    NONE = 0, _FINAL, "It worked."
    OFFSET_OUT_OF_RANGE = 1, _FINAL, "The offset lies before the start or beyond the end of the partition's log."
    CORRUPT_MESSAGE = 2, _RETRIABLE, "The bytes of a record batch do not fit their checksum, or break the format."
    UNKNOWN_TOPIC_OR_PARTITION = 3, _RETRIABLE, "This broker knows no such topic or partition."
    INVALID_FETCH_SIZE = 4, _FINAL, "The fetch size that was asked for is not possible."
    LEADER_NOT_AVAILABLE = 5, _RETRIABLE, "The partition has no leader at the moment."
    NOT_LEADER_OR_FOLLOWER = 6, _RETRIABLE, "This broker is neither leader nor a suitable follower of the partition."
    REQUEST_TIMED_OUT = 7, _RETRIABLE, "The work was not finished within the time that the request allowed."
    BROKER_NOT_AVAILABLE = 8, _FINAL, "The broker that is needed is not available."
    REPLICA_NOT_AVAILABLE = 9, _RETRIABLE, "The replica that was asked for is not available here."
    MESSAGE_TOO_LARGE = 10, _FINAL, "A record batch is larger than the topic or the broker allows."
    STALE_CONTROLLER_EPOCH = 11, _FINAL, "The request comes from a controller that has been replaced."
    OFFSET_METADATA_TOO_LARGE = 12, _FINAL, "The note that came with a committed offset is too long."
    NETWORK_EXCEPTION = 13, _RETRIABLE, "The connection broke before an answer came."
    COORDINATOR_LOAD_IN_PROGRESS = (
        14,
        _RETRIABLE,
        "The coordinator is still reading its state back and cannot answer yet.",
    )
    COORDINATOR_NOT_AVAILABLE = 15, _RETRIABLE, "There is no coordinator for this group or transaction at the moment."
    NOT_COORDINATOR = 16, _RETRIABLE, "Another broker coordinates this group or transaction."
    INVALID_TOPIC_EXCEPTION = 17, _FINAL, "The topic's name is not allowed, or the topic may not be used this way."
    RECORD_LIST_TOO_LARGE = 18, _FINAL, "The batches of one request are larger than a segment can hold."
    NOT_ENOUGH_REPLICAS = 19, _RETRIABLE, "Too few replicas are in sync, so nothing was written."
    NOT_ENOUGH_REPLICAS_AFTER_APPEND = 20, _RETRIABLE, "The batch was written, but too few replicas in sync have it."
    INVALID_REQUIRED_ACKS = 21, _FINAL, "The number of acknowledgements asked for is not -1, 0 or 1."
    ILLEGAL_GENERATION = 22, _FINAL, "The member speaks of another generation of the group."
    INCONSISTENT_GROUP_PROTOCOL = 23, _FINAL, "The member shares no assignment protocol with the rest of the group."
    INVALID_GROUP_ID = 24, _FINAL, "The group's id is empty or not allowed."
    UNKNOWN_MEMBER_ID = 25, _FINAL, "The group does not know this member."
    INVALID_SESSION_TIMEOUT = 26, _FINAL, "The session timeout is outside the range that the broker allows."
    REBALANCE_IN_PROGRESS = 27, _FINAL, "The group is rebalancing, and the member has to join again."
    INVALID_COMMIT_OFFSET_SIZE = 28, _FINAL, "The offsets to commit take more room than a batch may have."
    TOPIC_AUTHORIZATION_FAILED = 29, _FINAL, "The caller may not do this with the topic."
    GROUP_AUTHORIZATION_FAILED = 30, _FINAL, "The caller may not do this with the group."
    CLUSTER_AUTHORIZATION_FAILED = 31, _FINAL, "The caller may not do this with the cluster."
    INVALID_TIMESTAMP = 32, _FINAL, "A record's timestamp is too far from the broker's time."
    UNSUPPORTED_SASL_MECHANISM = 33, _FINAL, "The broker does not offer this SASL mechanism."
    ILLEGAL_SASL_STATE = 34, _FINAL, "This request does not belong at this point of the SASL exchange."
    UNSUPPORTED_VERSION = 35, _FINAL, "The broker does not serve this version of the API."
    TOPIC_ALREADY_EXISTS = 36, _FINAL, "A topic of this name is already there."
    INVALID_PARTITIONS = 37, _FINAL, "The number of partitions is not possible."
    INVALID_REPLICATION_FACTOR = 38, _FINAL, "The replication factor is not possible with the brokers there are."
    INVALID_REPLICA_ASSIGNMENT = 39, _FINAL, "The assignment of replicas to brokers is not possible."
    INVALID_CONFIG = 40, _FINAL, "A config has an unknown name or an impossible value."
    NOT_CONTROLLER = 41, _RETRIABLE, "Another node is the controller."
    INVALID_REQUEST = 42, _FINAL, "The request contradicts itself or lacks something that it needs."
    UNSUPPORTED_FOR_MESSAGE_FORMAT = 43, _FINAL, "The batch has a format that is not stored here."
    POLICY_VIOLATION = 44, _FINAL, "The request is well formed, but a policy of this cluster forbids it."
    OUT_OF_ORDER_SEQUENCE_NUMBER = 45, _FINAL, "The batch does not follow the last one of this producer."
    DUPLICATE_SEQUENCE_NUMBER = 46, _FINAL, "The batch repeats a sequence number that is already in the log."
    INVALID_PRODUCER_EPOCH = 47, _FINAL, "The producer uses an epoch older than the newest one."
    INVALID_TXN_STATE = 48, _FINAL, "The transaction is not in a state that allows this."
    INVALID_PRODUCER_ID_MAPPING = 49, _FINAL, "This producer id does not belong to this transactional id."
    INVALID_TRANSACTION_TIMEOUT = 50, _FINAL, "The transaction timeout is longer than the broker allows."
    CONCURRENT_TRANSACTIONS = 51, _RETRIABLE, "An earlier operation on the same transaction is not finished yet."
    TRANSACTION_COORDINATOR_FENCED = 52, _FINAL, "A newer coordinator has taken over the transaction."
    TRANSACTIONAL_ID_AUTHORIZATION_FAILED = 53, _FINAL, "The caller may not use this transactional id."
    SECURITY_DISABLED = 54, _FINAL, "The broker runs without the security feature that the request is about."
    OPERATION_NOT_ATTEMPTED = 55, _FINAL, "This part of the request was not tried because another part failed."
    KAFKA_STORAGE_ERROR = 56, _RETRIABLE, "The disk under a partition failed."
    LOG_DIR_NOT_FOUND = 57, _FINAL, "The broker has no such log directory."
    SASL_AUTHENTICATION_FAILED = 58, _FINAL, "The credentials are wrong."
    UNKNOWN_PRODUCER_ID = 59, _FINAL, "The partition remembers nothing of this producer."
    REASSIGNMENT_IN_PROGRESS = 60, _FINAL, "The partition is being moved already."
    DELEGATION_TOKEN_AUTH_DISABLED = 61, _FINAL, "Delegation tokens are not enabled."
    DELEGATION_TOKEN_NOT_FOUND = 62, _FINAL, "There is no such delegation token."
    DELEGATION_TOKEN_OWNER_MISMATCH = 63, _FINAL, "The caller neither owns nor may renew this delegation token."
    DELEGATION_TOKEN_REQUEST_NOT_ALLOWED = (
        64,
        _FINAL,
        "Delegation tokens cannot be asked for over this kind of connection.",
    )
    DELEGATION_TOKEN_AUTHORIZATION_FAILED = 65, _FINAL, "The caller may not do this with delegation tokens."
    DELEGATION_TOKEN_EXPIRED = 66, _FINAL, "The delegation token has run out."
    INVALID_PRINCIPAL_TYPE = 67, _FINAL, "This kind of principal cannot be used here."
    NON_EMPTY_GROUP = 68, _FINAL, "The group still has members."
    GROUP_ID_NOT_FOUND = 69, _FINAL, "There is no such group."
    FETCH_SESSION_ID_NOT_FOUND = 70, _RETRIABLE, "The broker no longer keeps this fetch session."
    INVALID_FETCH_SESSION_EPOCH = 71, _RETRIABLE, "The fetch session is at another epoch."
    LISTENER_NOT_FOUND = 72, _RETRIABLE, "The leader has no listener of the name on which the request came."
    TOPIC_DELETION_DISABLED = 73, _FINAL, "Deleting topics is switched off."
    FENCED_LEADER_EPOCH = 74, _RETRIABLE, "The leader epoch in the request is older than the partition's."
    UNKNOWN_LEADER_EPOCH = 75, _RETRIABLE, "The leader epoch in the request is newer than the partition's."
    UNSUPPORTED_COMPRESSION_TYPE = 76, _FINAL, "This compression codec cannot be used with this version of the request."
    STALE_BROKER_EPOCH = 77, _FINAL, "The request comes from an earlier run of a broker that has registered again."
    OFFSET_NOT_AVAILABLE = 78, _RETRIABLE, "The new leader does not know yet up to where the log is committed."
    MEMBER_ID_REQUIRED = 79, _FINAL, "The member has to join again with the id that this answer carries."
    PREFERRED_LEADER_NOT_AVAILABLE = 80, _RETRIABLE, "The replica that should lead is not available."
    GROUP_MAX_SIZE_REACHED = 81, _FINAL, "The group has as many members as it may have."
    FENCED_INSTANCE_ID = 82, _FINAL, "Another member has taken this static instance id."
    ELIGIBLE_LEADERS_NOT_AVAILABLE = 83, _RETRIABLE, "No replica that may lead is available."
    ELECTION_NOT_NEEDED = 84, _RETRIABLE, "The partition already has the leader that the election would choose."
    NO_REASSIGNMENT_IN_PROGRESS = 85, _FINAL, "The partition is not being moved."
    GROUP_SUBSCRIBED_TO_TOPIC = 86, _FINAL, "The group is subscribed to the topic, so its offsets stay."
    INVALID_RECORD = 87, _FINAL, "A record breaks a rule of its topic and was refused."
    UNSTABLE_OFFSET_COMMIT = 88, _RETRIABLE, "Open transactions still hold offsets that the answer would need."
    THROTTLING_QUOTA_EXCEEDED = 89, _RETRIABLE, "The caller has used up its quota and should wait before the next try."
    PRODUCER_FENCED = 90, _FINAL, "A newer producer with the same transactional id has taken over."
    RESOURCE_NOT_FOUND = 91, _FINAL, "What the request is about does not exist."
    DUPLICATE_RESOURCE = 92, _FINAL, "The request names the same thing twice, or it exists already."
    UNACCEPTABLE_CREDENTIAL = 93, _FINAL, "The credential breaks the rules for credentials."
    INCONSISTENT_VOTER_SET = 94, _FINAL, "Voters disagree about who may vote."
    INVALID_UPDATE_VERSION = 95, _FINAL, "The version to set for a feature is not possible."
    FEATURE_UPDATE_FAILED = 96, _FINAL, "A feature could not be changed to the version asked for."
    PRINCIPAL_DESERIALIZATION_FAILURE = 97, _FINAL, "The principal inside a forwarded request could not be read."
    SNAPSHOT_NOT_FOUND = 98, _FINAL, "There is no such snapshot."
    POSITION_OUT_OF_RANGE = 99, _FINAL, "The position lies outside the snapshot."
    UNKNOWN_TOPIC_ID = 100, _RETRIABLE, "This broker knows no topic with this id."
    DUPLICATE_BROKER_REGISTRATION = 101, _FINAL, "Another broker is registered under this id."
    BROKER_ID_NOT_REGISTERED = 102, _FINAL, "No broker is registered under this id."
    INCONSISTENT_TOPIC_ID = 103, _RETRIABLE, "The log holds another topic id than the request."
    INCONSISTENT_CLUSTER_ID = 104, _FINAL, "The request is meant for another cluster."
    TRANSACTIONAL_ID_NOT_FOUND = 105, _FINAL, "There is no such transactional id."
    FETCH_SESSION_TOPIC_ID_ERROR = 106, _RETRIABLE, "The fetch session mixes topics with and without an id."
    INELIGIBLE_REPLICA = 107, _FINAL, "The replica may not join those in sync."
    NEW_LEADER_ELECTED = 108, _FINAL, "The change made another replica the leader."
    OFFSET_MOVED_TO_TIERED_STORAGE = 109, _FINAL, "The offset is no longer on local disk, only in the object store."
    FENCED_MEMBER_EPOCH = 110, _FINAL, "The member's epoch is behind the group's, and it has to join again."
    UNRELEASED_INSTANCE_ID = 111, _FINAL, "The static instance id is still held by another member."
    UNSUPPORTED_ASSIGNOR = 112, _FINAL, "The group does not offer the assignor that the member asked for."
    STALE_MEMBER_EPOCH = 113, _FINAL, "The member's epoch is older than the one it was given."
    MISMATCHED_ENDPOINT_TYPE = 114, _FINAL, "The request went to a broker where a controller was meant, or the reverse."
    UNSUPPORTED_ENDPOINT_TYPE = 115, _FINAL, "This kind of endpoint cannot be asked for here."
    UNKNOWN_CONTROLLER_ID = 116, _FINAL, "There is no controller with this id."
    UNKNOWN_SUBSCRIPTION_ID = 117, _FINAL, "The broker does not know this telemetry subscription."
    TELEMETRY_TOO_LARGE = 118, _FINAL, "The telemetry is larger than the broker takes."
    INVALID_REGISTRATION = 119, _FINAL, "The registration of the broker is not possible."
    TRANSACTION_ABORTABLE = 120, _FINAL, "The transaction cannot go on, but it can be aborted and begun anew."
    INVALID_RECORD_STATE = 121, _FINAL, "The record is not in a state that allows this acknowledgement."
    SHARE_SESSION_NOT_FOUND = 122, _RETRIABLE, "The broker no longer keeps this share session."
    INVALID_SHARE_SESSION_EPOCH = 123, _RETRIABLE, "The share session is at another epoch."
    FENCED_STATE_EPOCH = 124, _FINAL, "The state epoch of the share partition is older than the stored one."
    INVALID_VOTER_KEY = 125, _FINAL, "The voter's key does not fit the one that the receiver has."
    DUPLICATE_VOTER = 126, _FINAL, "The voter is already one of the voters."
    VOTER_NOT_FOUND = 127, _FINAL, "The voter is not one of the voters."
    INVALID_REGULAR_EXPRESSION = 128, _FINAL, "The regular expression cannot be read."
    REBOOTSTRAP_REQUIRED = 129, _FINAL, "The client has to start over from its bootstrap addresses."
    STREAMS_INVALID_TOPOLOGY = 130, _FINAL, "The streams topology contradicts itself."
    STREAMS_INVALID_TOPOLOGY_EPOCH = 131, _FINAL, "The streams topology has another epoch than the group's."
    STREAMS_TOPOLOGY_FENCED = 132, _FINAL, "The member's streams topology is older than the group's."
    SHARE_SESSION_LIMIT_REACHED = 133, _RETRIABLE, "The broker keeps as many share sessions as it may keep."
