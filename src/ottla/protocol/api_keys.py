"""The APIs of the protocol: their numbers, the versions we aim for, and how soon they come.

The one table of versions for messages and headers. What a broker announces to its clients is another
matter: that follows from the handlers it has.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import IntEnum
from types import MappingProxyType

from ottla.protocol.versions import Versions


class ApiKey(IntEnum):
    """The number of each API: Kafka's, and beyond them those of Ottla's own."""

    PRODUCE = 0
    FETCH = 1
    LIST_OFFSETS = 2
    METADATA = 3
    OFFSET_COMMIT = 8
    OFFSET_FETCH = 9
    FIND_COORDINATOR = 10
    JOIN_GROUP = 11
    HEARTBEAT = 12
    LEAVE_GROUP = 13
    SYNC_GROUP = 14
    DESCRIBE_GROUPS = 15
    LIST_GROUPS = 16
    SASL_HANDSHAKE = 17
    API_VERSIONS = 18
    CREATE_TOPICS = 19
    DELETE_TOPICS = 20
    DELETE_RECORDS = 21
    INIT_PRODUCER_ID = 22
    OFFSET_FOR_LEADER_EPOCH = 23
    ADD_PARTITIONS_TO_TXN = 24
    ADD_OFFSETS_TO_TXN = 25
    END_TXN = 26
    WRITE_TXN_MARKERS = 27
    TXN_OFFSET_COMMIT = 28
    DESCRIBE_ACLS = 29
    CREATE_ACLS = 30
    DELETE_ACLS = 31
    DESCRIBE_CONFIGS = 32
    ALTER_CONFIGS = 33
    ALTER_REPLICA_LOG_DIRS = 34
    DESCRIBE_LOG_DIRS = 35
    SASL_AUTHENTICATE = 36
    CREATE_PARTITIONS = 37
    CREATE_DELEGATION_TOKEN = 38
    RENEW_DELEGATION_TOKEN = 39
    EXPIRE_DELEGATION_TOKEN = 40
    DESCRIBE_DELEGATION_TOKEN = 41
    DELETE_GROUPS = 42
    ELECT_LEADERS = 43
    INCREMENTAL_ALTER_CONFIGS = 44
    ALTER_PARTITION_REASSIGNMENTS = 45
    LIST_PARTITION_REASSIGNMENTS = 46
    OFFSET_DELETE = 47
    DESCRIBE_CLIENT_QUOTAS = 48
    ALTER_CLIENT_QUOTAS = 49
    DESCRIBE_USER_SCRAM_CREDENTIALS = 50
    ALTER_USER_SCRAM_CREDENTIALS = 51
    DESCRIBE_QUORUM = 55
    UPDATE_FEATURES = 57
    DESCRIBE_CLUSTER = 60
    DESCRIBE_PRODUCERS = 61
    UNREGISTER_BROKER = 64
    DESCRIBE_TRANSACTIONS = 65
    LIST_TRANSACTIONS = 66
    CONSUMER_GROUP_HEARTBEAT = 68
    CONSUMER_GROUP_DESCRIBE = 69
    GET_TELEMETRY_SUBSCRIPTIONS = 71
    PUSH_TELEMETRY = 72
    LIST_CONFIG_RESOURCES = 74
    DESCRIBE_TOPIC_PARTITIONS = 75
    SHARE_GROUP_HEARTBEAT = 76
    SHARE_GROUP_DESCRIBE = 77
    SHARE_FETCH = 78
    SHARE_ACKNOWLEDGE = 79
    ADD_RAFT_VOTER = 80
    REMOVE_RAFT_VOTER = 81
    STREAMS_GROUP_HEARTBEAT = 88
    STREAMS_GROUP_DESCRIBE = 89
    DESCRIBE_SHARE_GROUP_OFFSETS = 90
    ALTER_SHARE_GROUP_OFFSETS = 91
    DELETE_SHARE_GROUP_OFFSETS = 92

    # Ottla's own, far from the numbers that Kafka gives out: see `is_private`.
    COMMIT_TOGETHER = 10_000
    DESCRIBE_COMMIT = 10_001
    KEEP_TRANSACTIONS = 10_002


PRIVATE_KEY_MIN = 10_000
PRIVATE_APIS_TAG = 10_000
"""A client that puts this tag into its ApiVersions request (version 3 or later) is told of the private APIs too."""


def is_private(key: ApiKey) -> bool:
    """Whether only clients that ask for Ottla's own APIs are told of this one."""
    return key >= PRIVATE_KEY_MIN


@dataclass(frozen=True, slots=True)
class Api:
    """What is the same for an API's request and response."""

    key: ApiKey
    versions: Versions
    tier: int
    """0 comes first, 3 last and perhaps never; tier 3 has no message classes yet."""
    announced_first: int | None = None
    """The oldest version to announce, if that is older than the oldest one we have."""

    @property
    def first_announced(self) -> int:
        return self.versions.first if self.announced_first is None else self.announced_first


_TABLE = (
    # Kafka announces Produce from 0 although it serves it from 3: older librdkafka would not compress otherwise.
    Api(ApiKey.PRODUCE, Versions(3, 13, flexible_since=9), tier=0, announced_first=0),
    Api(ApiKey.FETCH, Versions(4, 18, flexible_since=12), tier=0),
    Api(ApiKey.LIST_OFFSETS, Versions(1, 11, flexible_since=6), tier=0),
    Api(ApiKey.METADATA, Versions(0, 13, flexible_since=9), tier=0),
    Api(ApiKey.OFFSET_COMMIT, Versions(2, 10, flexible_since=8), tier=0),
    Api(ApiKey.OFFSET_FETCH, Versions(1, 10, flexible_since=6), tier=0),
    Api(ApiKey.FIND_COORDINATOR, Versions(0, 6, flexible_since=3), tier=0),
    Api(ApiKey.JOIN_GROUP, Versions(0, 9, flexible_since=6), tier=0),
    Api(ApiKey.HEARTBEAT, Versions(0, 4, flexible_since=4), tier=0),
    Api(ApiKey.LEAVE_GROUP, Versions(0, 5, flexible_since=4), tier=0),
    Api(ApiKey.SYNC_GROUP, Versions(0, 5, flexible_since=4), tier=0),
    Api(ApiKey.DESCRIBE_GROUPS, Versions(0, 6, flexible_since=5), tier=0),
    Api(ApiKey.LIST_GROUPS, Versions(0, 5, flexible_since=3), tier=0),
    Api(ApiKey.SASL_HANDSHAKE, Versions(0, 1), tier=1),
    Api(ApiKey.API_VERSIONS, Versions(0, 4, flexible_since=3), tier=0),
    Api(ApiKey.CREATE_TOPICS, Versions(2, 7, flexible_since=5), tier=0),
    Api(ApiKey.DELETE_TOPICS, Versions(1, 6, flexible_since=4), tier=0),
    Api(ApiKey.DELETE_RECORDS, Versions(0, 2, flexible_since=2), tier=1),
    Api(ApiKey.INIT_PRODUCER_ID, Versions(0, 5, flexible_since=2), tier=0),
    Api(ApiKey.OFFSET_FOR_LEADER_EPOCH, Versions(2, 4, flexible_since=4), tier=1),
    Api(ApiKey.ADD_PARTITIONS_TO_TXN, Versions(0, 5, flexible_since=3), tier=1),
    Api(ApiKey.ADD_OFFSETS_TO_TXN, Versions(0, 4, flexible_since=3), tier=1),
    Api(ApiKey.END_TXN, Versions(0, 5, flexible_since=3), tier=1),
    Api(ApiKey.WRITE_TXN_MARKERS, Versions(1, 2, flexible_since=1), tier=1),
    Api(ApiKey.TXN_OFFSET_COMMIT, Versions(0, 5, flexible_since=3), tier=1),
    Api(ApiKey.DESCRIBE_ACLS, Versions(1, 3, flexible_since=2), tier=2),
    Api(ApiKey.CREATE_ACLS, Versions(1, 3, flexible_since=2), tier=2),
    Api(ApiKey.DELETE_ACLS, Versions(1, 3, flexible_since=2), tier=2),
    Api(ApiKey.DESCRIBE_CONFIGS, Versions(1, 4, flexible_since=4), tier=0),
    Api(ApiKey.ALTER_CONFIGS, Versions(0, 2, flexible_since=2), tier=1),
    Api(ApiKey.ALTER_REPLICA_LOG_DIRS, Versions(1, 2, flexible_since=2), tier=3),
    Api(ApiKey.DESCRIBE_LOG_DIRS, Versions(1, 5, flexible_since=2), tier=1),
    Api(ApiKey.SASL_AUTHENTICATE, Versions(0, 2, flexible_since=2), tier=1),
    Api(ApiKey.CREATE_PARTITIONS, Versions(0, 3, flexible_since=2), tier=1),
    Api(ApiKey.CREATE_DELEGATION_TOKEN, Versions(1, 3, flexible_since=2), tier=2),
    Api(ApiKey.RENEW_DELEGATION_TOKEN, Versions(1, 2, flexible_since=2), tier=2),
    Api(ApiKey.EXPIRE_DELEGATION_TOKEN, Versions(1, 2, flexible_since=2), tier=2),
    Api(ApiKey.DESCRIBE_DELEGATION_TOKEN, Versions(1, 3, flexible_since=2), tier=2),
    Api(ApiKey.DELETE_GROUPS, Versions(0, 2, flexible_since=2), tier=1),
    Api(ApiKey.ELECT_LEADERS, Versions(0, 2, flexible_since=2), tier=2),
    Api(ApiKey.INCREMENTAL_ALTER_CONFIGS, Versions(0, 1, flexible_since=1), tier=1),
    Api(ApiKey.ALTER_PARTITION_REASSIGNMENTS, Versions(0, 1, flexible_since=0), tier=2),
    Api(ApiKey.LIST_PARTITION_REASSIGNMENTS, Versions(0, 0, flexible_since=0), tier=1),
    Api(ApiKey.OFFSET_DELETE, Versions(0, 0), tier=1),
    Api(ApiKey.DESCRIBE_CLIENT_QUOTAS, Versions(0, 1, flexible_since=1), tier=2),
    Api(ApiKey.ALTER_CLIENT_QUOTAS, Versions(0, 1, flexible_since=1), tier=2),
    Api(ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS, Versions(0, 0, flexible_since=0), tier=2),
    Api(ApiKey.ALTER_USER_SCRAM_CREDENTIALS, Versions(0, 0, flexible_since=0), tier=2),
    Api(ApiKey.DESCRIBE_QUORUM, Versions(0, 2, flexible_since=0), tier=2),
    Api(ApiKey.UPDATE_FEATURES, Versions(0, 2, flexible_since=0), tier=3),
    Api(ApiKey.DESCRIBE_CLUSTER, Versions(0, 2, flexible_since=0), tier=0),
    Api(ApiKey.DESCRIBE_PRODUCERS, Versions(0, 0, flexible_since=0), tier=2),
    Api(ApiKey.UNREGISTER_BROKER, Versions(0, 0, flexible_since=0), tier=3),
    Api(ApiKey.DESCRIBE_TRANSACTIONS, Versions(0, 0, flexible_since=0), tier=2),
    Api(ApiKey.LIST_TRANSACTIONS, Versions(0, 2, flexible_since=0), tier=2),
    Api(ApiKey.CONSUMER_GROUP_HEARTBEAT, Versions(0, 1, flexible_since=0), tier=2),
    Api(ApiKey.CONSUMER_GROUP_DESCRIBE, Versions(0, 1, flexible_since=0), tier=2),
    Api(ApiKey.LIST_CONFIG_RESOURCES, Versions(0, 1, flexible_since=0), tier=3),
    Api(ApiKey.DESCRIBE_TOPIC_PARTITIONS, Versions(0, 0, flexible_since=0), tier=1),
    Api(ApiKey.SHARE_GROUP_HEARTBEAT, Versions(1, 1, flexible_since=0), tier=2),
    Api(ApiKey.SHARE_GROUP_DESCRIBE, Versions(1, 1, flexible_since=0), tier=2),
    Api(ApiKey.SHARE_FETCH, Versions(1, 2, flexible_since=0), tier=2),
    Api(ApiKey.SHARE_ACKNOWLEDGE, Versions(1, 2, flexible_since=0), tier=2),
    Api(ApiKey.ADD_RAFT_VOTER, Versions(0, 1, flexible_since=0), tier=3),
    Api(ApiKey.REMOVE_RAFT_VOTER, Versions(0, 0, flexible_since=0), tier=3),
    Api(ApiKey.STREAMS_GROUP_HEARTBEAT, Versions(0, 0, flexible_since=0), tier=3),
    Api(ApiKey.STREAMS_GROUP_DESCRIBE, Versions(0, 0, flexible_since=0), tier=3),
    Api(ApiKey.DESCRIBE_SHARE_GROUP_OFFSETS, Versions(0, 1, flexible_since=0), tier=2),
    Api(ApiKey.ALTER_SHARE_GROUP_OFFSETS, Versions(0, 0, flexible_since=0), tier=2),
    Api(ApiKey.DELETE_SHARE_GROUP_OFFSETS, Versions(0, 0, flexible_since=0), tier=2),
    Api(ApiKey.COMMIT_TOGETHER, Versions(0, 0, flexible_since=0), tier=2),
    Api(ApiKey.DESCRIBE_COMMIT, Versions(0, 0, flexible_since=0), tier=2),
    Api(ApiKey.KEEP_TRANSACTIONS, Versions(0, 0, flexible_since=0), tier=2),
)

APIS: Mapping[ApiKey, Api] = MappingProxyType({api.key: api for api in _TABLE})
"""Every API that has a place in our plans, by its number."""
