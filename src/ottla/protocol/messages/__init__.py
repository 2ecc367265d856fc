"""The messages: one module per API, with its request, its response and the structs inside them.

Modules are imported when one of their messages is first asked for, so that a process that speaks ten APIs
does not pay for sixty.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from importlib import import_module
from types import MappingProxyType
from typing import cast

from ottla.protocol.api_keys import ApiKey
from ottla.protocol.schema import Message

MESSAGES: Mapping[ApiKey, tuple[str, str, str]] = MappingProxyType(
    {
        ApiKey.PRODUCE: ("produce", "ProduceRequest", "ProduceResponse"),
        ApiKey.FETCH: ("fetch", "FetchRequest", "FetchResponse"),
        ApiKey.LIST_OFFSETS: ("list_offsets", "ListOffsetsRequest", "ListOffsetsResponse"),
        ApiKey.METADATA: ("metadata", "MetadataRequest", "MetadataResponse"),
        ApiKey.OFFSET_COMMIT: ("offset_commit", "OffsetCommitRequest", "OffsetCommitResponse"),
        ApiKey.OFFSET_FETCH: ("offset_fetch", "OffsetFetchRequest", "OffsetFetchResponse"),
        ApiKey.FIND_COORDINATOR: ("find_coordinator", "FindCoordinatorRequest", "FindCoordinatorResponse"),
        ApiKey.JOIN_GROUP: ("join_group", "JoinGroupRequest", "JoinGroupResponse"),
        ApiKey.HEARTBEAT: ("heartbeat", "HeartbeatRequest", "HeartbeatResponse"),
        ApiKey.LEAVE_GROUP: ("leave_group", "LeaveGroupRequest", "LeaveGroupResponse"),
        ApiKey.SYNC_GROUP: ("sync_group", "SyncGroupRequest", "SyncGroupResponse"),
        ApiKey.DESCRIBE_GROUPS: ("describe_groups", "DescribeGroupsRequest", "DescribeGroupsResponse"),
        ApiKey.LIST_GROUPS: ("list_groups", "ListGroupsRequest", "ListGroupsResponse"),
        ApiKey.SASL_HANDSHAKE: ("sasl_handshake", "SaslHandshakeRequest", "SaslHandshakeResponse"),
        ApiKey.API_VERSIONS: ("api_versions", "ApiVersionsRequest", "ApiVersionsResponse"),
        ApiKey.CREATE_TOPICS: ("create_topics", "CreateTopicsRequest", "CreateTopicsResponse"),
        ApiKey.DELETE_TOPICS: ("delete_topics", "DeleteTopicsRequest", "DeleteTopicsResponse"),
        ApiKey.DELETE_RECORDS: ("delete_records", "DeleteRecordsRequest", "DeleteRecordsResponse"),
        ApiKey.INIT_PRODUCER_ID: ("init_producer_id", "InitProducerIdRequest", "InitProducerIdResponse"),
        ApiKey.OFFSET_FOR_LEADER_EPOCH: (
            "offset_for_leader_epoch",
            "OffsetForLeaderEpochRequest",
            "OffsetForLeaderEpochResponse",
        ),
        ApiKey.ADD_PARTITIONS_TO_TXN: (
            "add_partitions_to_txn",
            "AddPartitionsToTxnRequest",
            "AddPartitionsToTxnResponse",
        ),
        ApiKey.ADD_OFFSETS_TO_TXN: ("add_offsets_to_txn", "AddOffsetsToTxnRequest", "AddOffsetsToTxnResponse"),
        ApiKey.END_TXN: ("end_txn", "EndTxnRequest", "EndTxnResponse"),
        ApiKey.WRITE_TXN_MARKERS: ("write_txn_markers", "WriteTxnMarkersRequest", "WriteTxnMarkersResponse"),
        ApiKey.TXN_OFFSET_COMMIT: ("txn_offset_commit", "TxnOffsetCommitRequest", "TxnOffsetCommitResponse"),
        ApiKey.DESCRIBE_ACLS: ("describe_acls", "DescribeAclsRequest", "DescribeAclsResponse"),
        ApiKey.CREATE_ACLS: ("create_acls", "CreateAclsRequest", "CreateAclsResponse"),
        ApiKey.DELETE_ACLS: ("delete_acls", "DeleteAclsRequest", "DeleteAclsResponse"),
        ApiKey.DESCRIBE_CONFIGS: ("describe_configs", "DescribeConfigsRequest", "DescribeConfigsResponse"),
        ApiKey.ALTER_CONFIGS: ("alter_configs", "AlterConfigsRequest", "AlterConfigsResponse"),
        ApiKey.DESCRIBE_LOG_DIRS: ("describe_log_dirs", "DescribeLogDirsRequest", "DescribeLogDirsResponse"),
        ApiKey.SASL_AUTHENTICATE: ("sasl_authenticate", "SaslAuthenticateRequest", "SaslAuthenticateResponse"),
        ApiKey.CREATE_PARTITIONS: ("create_partitions", "CreatePartitionsRequest", "CreatePartitionsResponse"),
        ApiKey.CREATE_DELEGATION_TOKEN: (
            "create_delegation_token",
            "CreateDelegationTokenRequest",
            "CreateDelegationTokenResponse",
        ),
        ApiKey.RENEW_DELEGATION_TOKEN: (
            "renew_delegation_token",
            "RenewDelegationTokenRequest",
            "RenewDelegationTokenResponse",
        ),
        ApiKey.EXPIRE_DELEGATION_TOKEN: (
            "expire_delegation_token",
            "ExpireDelegationTokenRequest",
            "ExpireDelegationTokenResponse",
        ),
        ApiKey.DESCRIBE_DELEGATION_TOKEN: (
            "describe_delegation_token",
            "DescribeDelegationTokenRequest",
            "DescribeDelegationTokenResponse",
        ),
        ApiKey.DELETE_GROUPS: ("delete_groups", "DeleteGroupsRequest", "DeleteGroupsResponse"),
        ApiKey.ELECT_LEADERS: ("elect_leaders", "ElectLeadersRequest", "ElectLeadersResponse"),
        ApiKey.INCREMENTAL_ALTER_CONFIGS: (
            "incremental_alter_configs",
            "IncrementalAlterConfigsRequest",
            "IncrementalAlterConfigsResponse",
        ),
        ApiKey.ALTER_PARTITION_REASSIGNMENTS: (
            "alter_partition_reassignments",
            "AlterPartitionReassignmentsRequest",
            "AlterPartitionReassignmentsResponse",
        ),
        ApiKey.LIST_PARTITION_REASSIGNMENTS: (
            "list_partition_reassignments",
            "ListPartitionReassignmentsRequest",
            "ListPartitionReassignmentsResponse",
        ),
        ApiKey.OFFSET_DELETE: ("offset_delete", "OffsetDeleteRequest", "OffsetDeleteResponse"),
        ApiKey.DESCRIBE_CLIENT_QUOTAS: (
            "describe_client_quotas",
            "DescribeClientQuotasRequest",
            "DescribeClientQuotasResponse",
        ),
        ApiKey.ALTER_CLIENT_QUOTAS: ("alter_client_quotas", "AlterClientQuotasRequest", "AlterClientQuotasResponse"),
        ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS: (
            "describe_user_scram_credentials",
            "DescribeUserScramCredentialsRequest",
            "DescribeUserScramCredentialsResponse",
        ),
        ApiKey.ALTER_USER_SCRAM_CREDENTIALS: (
            "alter_user_scram_credentials",
            "AlterUserScramCredentialsRequest",
            "AlterUserScramCredentialsResponse",
        ),
        ApiKey.DESCRIBE_QUORUM: ("describe_quorum", "DescribeQuorumRequest", "DescribeQuorumResponse"),
        ApiKey.DESCRIBE_CLUSTER: ("describe_cluster", "DescribeClusterRequest", "DescribeClusterResponse"),
        ApiKey.DESCRIBE_PRODUCERS: ("describe_producers", "DescribeProducersRequest", "DescribeProducersResponse"),
        ApiKey.DESCRIBE_TRANSACTIONS: (
            "describe_transactions",
            "DescribeTransactionsRequest",
            "DescribeTransactionsResponse",
        ),
        ApiKey.LIST_TRANSACTIONS: ("list_transactions", "ListTransactionsRequest", "ListTransactionsResponse"),
        ApiKey.CONSUMER_GROUP_HEARTBEAT: (
            "consumer_group_heartbeat",
            "ConsumerGroupHeartbeatRequest",
            "ConsumerGroupHeartbeatResponse",
        ),
        ApiKey.CONSUMER_GROUP_DESCRIBE: (
            "consumer_group_describe",
            "ConsumerGroupDescribeRequest",
            "ConsumerGroupDescribeResponse",
        ),
        ApiKey.DESCRIBE_TOPIC_PARTITIONS: (
            "describe_topic_partitions",
            "DescribeTopicPartitionsRequest",
            "DescribeTopicPartitionsResponse",
        ),
        ApiKey.SHARE_GROUP_HEARTBEAT: (
            "share_group_heartbeat",
            "ShareGroupHeartbeatRequest",
            "ShareGroupHeartbeatResponse",
        ),
        ApiKey.SHARE_GROUP_DESCRIBE: (
            "share_group_describe",
            "ShareGroupDescribeRequest",
            "ShareGroupDescribeResponse",
        ),
        ApiKey.SHARE_FETCH: ("share_fetch", "ShareFetchRequest", "ShareFetchResponse"),
        ApiKey.SHARE_ACKNOWLEDGE: ("share_acknowledge", "ShareAcknowledgeRequest", "ShareAcknowledgeResponse"),
        ApiKey.DESCRIBE_SHARE_GROUP_OFFSETS: (
            "describe_share_group_offsets",
            "DescribeShareGroupOffsetsRequest",
            "DescribeShareGroupOffsetsResponse",
        ),
        ApiKey.ALTER_SHARE_GROUP_OFFSETS: (
            "alter_share_group_offsets",
            "AlterShareGroupOffsetsRequest",
            "AlterShareGroupOffsetsResponse",
        ),
        ApiKey.DELETE_SHARE_GROUP_OFFSETS: (
            "delete_share_group_offsets",
            "DeleteShareGroupOffsetsRequest",
            "DeleteShareGroupOffsetsResponse",
        ),
        ApiKey.COMMIT_TOGETHER: ("commit_together", "CommitTogetherRequest", "CommitTogetherResponse"),
        ApiKey.DESCRIBE_COMMIT: ("describe_commit", "DescribeCommitRequest", "DescribeCommitResponse"),
        ApiKey.KEEP_TRANSACTIONS: ("keep_transactions", "KeepTransactionsRequest", "KeepTransactionsResponse"),
    }
)
"""For each API: its module, its request class, its response class."""


@cache
def request_class(key: ApiKey) -> type[Message]:
    """The request of an API that stands in `MESSAGES`."""
    module, request, _ = MESSAGES[key]
    return cast(type[Message], getattr(import_module(f"{__name__}.{module}"), request))


@cache
def response_class(key: ApiKey) -> type[Message]:
    """The response of an API that stands in `MESSAGES`."""
    module, _, response = MESSAGES[key]
    return cast(type[Message], getattr(import_module(f"{__name__}.{module}"), response))
