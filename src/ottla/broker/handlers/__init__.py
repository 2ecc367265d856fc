"""One file per API. The table below is all that a broker can do, and all that it announces."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any

from ottla.broker.caller import Caller
from ottla.broker.handlers.add_offsets_to_txn import add_offsets_to_txn
from ottla.broker.handlers.add_partitions_to_txn import add_partitions_to_txn
from ottla.broker.handlers.alter_configs import alter_configs
from ottla.broker.handlers.alter_partition_reassignments import alter_partition_reassignments
from ottla.broker.handlers.api_versions import api_versions
from ottla.broker.handlers.commit_together import commit_together
from ottla.broker.handlers.consumer_group_describe import consumer_group_describe
from ottla.broker.handlers.consumer_group_heartbeat import consumer_group_heartbeat
from ottla.broker.handlers.create_partitions import create_partitions
from ottla.broker.handlers.create_topics import create_topics
from ottla.broker.handlers.delete_groups import delete_groups
from ottla.broker.handlers.delete_records import delete_records
from ottla.broker.handlers.delete_topics import delete_topics
from ottla.broker.handlers.describe_cluster import describe_cluster
from ottla.broker.handlers.describe_commit import describe_commit
from ottla.broker.handlers.describe_configs import describe_configs
from ottla.broker.handlers.describe_groups import describe_groups
from ottla.broker.handlers.describe_log_dirs import describe_log_dirs
from ottla.broker.handlers.describe_producers import describe_producers
from ottla.broker.handlers.describe_quorum import describe_quorum
from ottla.broker.handlers.describe_topic_partitions import describe_topic_partitions
from ottla.broker.handlers.describe_transactions import describe_transactions
from ottla.broker.handlers.elect_leaders import elect_leaders
from ottla.broker.handlers.end_txn import end_txn
from ottla.broker.handlers.fetch import fetch
from ottla.broker.handlers.find_coordinator import find_coordinator
from ottla.broker.handlers.heartbeat import heartbeat
from ottla.broker.handlers.incremental_alter_configs import incremental_alter_configs
from ottla.broker.handlers.init_producer_id import init_producer_id
from ottla.broker.handlers.join_group import join_group
from ottla.broker.handlers.keep_transactions import keep_transactions
from ottla.broker.handlers.leave_group import leave_group
from ottla.broker.handlers.list_groups import list_groups
from ottla.broker.handlers.list_offsets import list_offsets
from ottla.broker.handlers.list_partition_reassignments import list_partition_reassignments
from ottla.broker.handlers.list_transactions import list_transactions
from ottla.broker.handlers.metadata import metadata
from ottla.broker.handlers.offset_commit import offset_commit
from ottla.broker.handlers.offset_delete import offset_delete
from ottla.broker.handlers.offset_fetch import offset_fetch
from ottla.broker.handlers.offset_for_leader_epoch import offset_for_leader_epoch
from ottla.broker.handlers.produce import produce
from ottla.broker.handlers.sync_group import sync_group
from ottla.broker.handlers.txn_offset_commit import txn_offset_commit
from ottla.broker.handlers.write_txn_markers import write_txn_markers
from ottla.broker.pending import Pending
from ottla.broker.services import Services
from ottla.protocol.api_keys import ApiKey
from ottla.protocol.schema import Message

Handler = Callable[[Any, int, Caller, Services], Message | Pending | None]
"""Takes a request of its API, the version, who asks, and the broker's parts.

Gives the response, the promise of one, or None where none is sent. A Refusal that it raises becomes a
response with that error, where the API has a place for one.
"""

HANDLERS: Mapping[ApiKey, Handler] = MappingProxyType(
    {
        ApiKey.PRODUCE: produce,
        ApiKey.FETCH: fetch,
        ApiKey.LIST_OFFSETS: list_offsets,
        ApiKey.METADATA: metadata,
        ApiKey.OFFSET_COMMIT: offset_commit,
        ApiKey.OFFSET_FETCH: offset_fetch,
        ApiKey.FIND_COORDINATOR: find_coordinator,
        ApiKey.JOIN_GROUP: join_group,
        ApiKey.HEARTBEAT: heartbeat,
        ApiKey.LEAVE_GROUP: leave_group,
        ApiKey.SYNC_GROUP: sync_group,
        ApiKey.DESCRIBE_GROUPS: describe_groups,
        ApiKey.LIST_GROUPS: list_groups,
        ApiKey.API_VERSIONS: api_versions,
        ApiKey.CREATE_TOPICS: create_topics,
        ApiKey.DELETE_TOPICS: delete_topics,
        ApiKey.DELETE_RECORDS: delete_records,
        ApiKey.INIT_PRODUCER_ID: init_producer_id,
        ApiKey.OFFSET_FOR_LEADER_EPOCH: offset_for_leader_epoch,
        ApiKey.ADD_PARTITIONS_TO_TXN: add_partitions_to_txn,
        ApiKey.ADD_OFFSETS_TO_TXN: add_offsets_to_txn,
        ApiKey.END_TXN: end_txn,
        ApiKey.WRITE_TXN_MARKERS: write_txn_markers,
        ApiKey.TXN_OFFSET_COMMIT: txn_offset_commit,
        ApiKey.DESCRIBE_CONFIGS: describe_configs,
        ApiKey.ALTER_CONFIGS: alter_configs,
        ApiKey.DESCRIBE_LOG_DIRS: describe_log_dirs,
        ApiKey.CREATE_PARTITIONS: create_partitions,
        ApiKey.DELETE_GROUPS: delete_groups,
        ApiKey.ELECT_LEADERS: elect_leaders,
        ApiKey.INCREMENTAL_ALTER_CONFIGS: incremental_alter_configs,
        ApiKey.ALTER_PARTITION_REASSIGNMENTS: alter_partition_reassignments,
        ApiKey.LIST_PARTITION_REASSIGNMENTS: list_partition_reassignments,
        ApiKey.OFFSET_DELETE: offset_delete,
        ApiKey.DESCRIBE_QUORUM: describe_quorum,
        ApiKey.DESCRIBE_CLUSTER: describe_cluster,
        ApiKey.DESCRIBE_PRODUCERS: describe_producers,
        ApiKey.DESCRIBE_TRANSACTIONS: describe_transactions,
        ApiKey.LIST_TRANSACTIONS: list_transactions,
        ApiKey.CONSUMER_GROUP_HEARTBEAT: consumer_group_heartbeat,
        ApiKey.CONSUMER_GROUP_DESCRIBE: consumer_group_describe,
        ApiKey.DESCRIBE_TOPIC_PARTITIONS: describe_topic_partitions,
        ApiKey.COMMIT_TOGETHER: commit_together,
        ApiKey.DESCRIBE_COMMIT: describe_commit,
        ApiKey.KEEP_TRANSACTIONS: keep_transactions,
    }
)
