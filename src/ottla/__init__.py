"""Ottla: a Kafka-compatible event-streaming platform in Python, with pipelines on Spark.

What stands here is loaded at first use: importing the package loads no broker, no event loop and no Arrow.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ottla.client.admin import AsyncAdmin as AsyncAdmin
    from ottla.client.blocking.admin import Admin as Admin
    from ottla.client.blocking.client import Client as Client
    from ottla.client.blocking.client import connect as connect
    from ottla.client.blocking.consumer import Consumer as Consumer
    from ottla.client.blocking.processing import Processor as Processor
    from ottla.client.blocking.producer import Producer as Producer
    from ottla.client.blocking.snapshots import SnapshotReader as SnapshotReader
    from ottla.client.client import AsyncClient as AsyncClient
    from ottla.client.client import connect_async as connect_async
    from ottla.client.consumer import AsyncConsumer as AsyncConsumer
    from ottla.client.errors import BufferFull as BufferFull
    from ottla.client.errors import ClientClosed as ClientClosed
    from ottla.client.errors import CommitFailed as CommitFailed
    from ottla.client.errors import CommitUncertain as CommitUncertain
    from ottla.client.errors import ConcurrentUse as ConcurrentUse
    from ottla.client.errors import DeliveryTimedOut as DeliveryTimedOut
    from ottla.client.errors import InvalidGroupName as InvalidGroupName
    from ottla.client.errors import InvalidSetting as InvalidSetting
    from ottla.client.errors import NetworkException as NetworkException
    from ottla.client.errors import NoBrokerReachable as NoBrokerReachable
    from ottla.client.errors import NoCommittedOffset as NoCommittedOffset
    from ottla.client.errors import NoGroup as NoGroup
    from ottla.client.errors import PartlySent as PartlySent
    from ottla.client.errors import ProducerFenced as ProducerFenced
    from ottla.client.errors import RequestTimedOut as RequestTimedOut
    from ottla.client.errors import TransactionFailed as TransactionFailed
    from ottla.client.errors import UnsupportedVersion as UnsupportedVersion
    from ottla.client.processing import AsyncProcessor as AsyncProcessor
    from ottla.client.producer import AsyncProducer as AsyncProducer
    from ottla.client.snapshot_reading import AsyncSnapshotReader as AsyncSnapshotReader
    from ottla.client.snapshots import Snapshot as Snapshot
    from ottla.client.snapshots import SnapshotUnreadable as SnapshotUnreadable
    from ottla.client.values import NO_OFFSET as NO_OFFSET
    from ottla.client.values import Committed as Committed
    from ottla.client.values import NewRecord as NewRecord
    from ottla.client.values import OffsetSpec as OffsetSpec
    from ottla.client.values import OpenTransaction as OpenTransaction
    from ottla.client.values import Record as Record
    from ottla.client.values import RecordPosition as RecordPosition
    from ottla.client.values import TopicPartition as TopicPartition
    from ottla.embedded import open as open  # noqa: A004 - as in `ottla.open`
    from ottla.embedded import open_async as open_async
    from ottla.error_codes import ErrorCode as ErrorCode
    from ottla.errors import InvalidConfig as InvalidConfig
    from ottla.errors import InvalidPartitionCount as InvalidPartitionCount
    from ottla.errors import InvalidRecord as InvalidRecord
    from ottla.errors import InvalidReplicationFactor as InvalidReplicationFactor
    from ottla.errors import InvalidTopicName as InvalidTopicName
    from ottla.errors import InvalidTransactionState as InvalidTransactionState
    from ottla.errors import OffsetOutOfRange as OffsetOutOfRange
    from ottla.errors import OttlaError as OttlaError
    from ottla.errors import PartitionNotFound as PartitionNotFound
    from ottla.errors import RecordTooLarge as RecordTooLarge
    from ottla.errors import Refusal as Refusal
    from ottla.errors import TopicExists as TopicExists
    from ottla.errors import TopicNotFound as TopicNotFound

__version__ = "0.1.0.dev0"

_HOMES = {
    "ottla.client.blocking.client": ("Client", "connect"),
    "ottla.client.blocking.producer": ("Producer",),
    "ottla.client.blocking.processing": ("Processor",),
    "ottla.client.blocking.consumer": ("Consumer",),
    "ottla.client.blocking.admin": ("Admin",),
    "ottla.client.blocking.snapshots": ("SnapshotReader",),
    "ottla.client.client": ("AsyncClient", "connect_async"),
    "ottla.client.producer": ("AsyncProducer",),
    "ottla.client.processing": ("AsyncProcessor",),
    "ottla.client.consumer": ("AsyncConsumer",),
    "ottla.client.admin": ("AsyncAdmin",),
    "ottla.client.snapshot_reading": ("AsyncSnapshotReader",),
    "ottla.client.snapshots": ("Snapshot", "SnapshotUnreadable"),
    "ottla.client.values": (
        "NO_OFFSET",
        "Committed",
        "NewRecord",
        "OffsetSpec",
        "OpenTransaction",
        "Record",
        "RecordPosition",
        "TopicPartition",
    ),
    "ottla.client.errors": (
        "BufferFull",
        "ClientClosed",
        "CommitFailed",
        "CommitUncertain",
        "ConcurrentUse",
        "DeliveryTimedOut",
        "InvalidGroupName",
        "InvalidSetting",
        "NetworkException",
        "NoBrokerReachable",
        "NoCommittedOffset",
        "NoGroup",
        "PartlySent",
        "ProducerFenced",
        "RequestTimedOut",
        "TransactionFailed",
        "UnsupportedVersion",
    ),
    "ottla.errors": (
        "InvalidConfig",
        "InvalidPartitionCount",
        "InvalidRecord",
        "InvalidReplicationFactor",
        "InvalidTopicName",
        "InvalidTransactionState",
        "OffsetOutOfRange",
        "OttlaError",
        "PartitionNotFound",
        "RecordTooLarge",
        "Refusal",
        "TopicExists",
        "TopicNotFound",
    ),
    "ottla.error_codes": ("ErrorCode",),
    "ottla.embedded": ("open", "open_async"),
}
"""Where each public name lives."""
_HOME_OF = {name: home for home, names in _HOMES.items() for name in names}

__all__ = ["__version__"]
__all__ += list(_HOME_OF)


def __getattr__(name: str) -> object:
    home = _HOME_OF.get(name)
    if home is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    found: object = getattr(import_module(home), name)
    # Kept, so that the next look-up does not come here.
    globals()[name] = found
    return found


def __dir__() -> list[str]:
    return sorted(__all__)
