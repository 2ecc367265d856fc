"""DescribeLogDirs, versions 1-5: how much room partitions take on disk.

There is one data directory. Sizes are those of the record batches; no partition is opened to be measured. The room
on the disk (version 4) is told as unknown (-1).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from ottla.broker.answers import Answers, code_of
from ottla.broker.caller import Caller
from ottla.broker.deadlines import TIMEOUT_MS_DEFAULT
from ottla.broker.pending import Pending
from ottla.broker.services import Services
from ottla.error_codes import ErrorCode
from ottla.errors import StorageFault
from ottla.metadata.image import Image
from ottla.protocol.messages.describe_log_dirs import (
    DescribableLogDirTopic,
    DescribeLogDirsPartition,
    DescribeLogDirsRequest,
    DescribeLogDirsResponse,
    DescribeLogDirsResult,
    DescribeLogDirsTopic,
)
from ottla.protocol.schema import Message
from ottla.storage.disk import Disk
from ottla.storage.layout import DataDirectory
from ottla.storage.segment import LOG_SUFFIX


def describe_log_dirs(
    request: DescribeLogDirsRequest, version: int, caller: Caller, services: Services
) -> Message | Pending | None:
    wanted = _wanted(request.topics, services.catalog.image)
    sizes = {key: partition.log.size for key, partition in services.partitions if key in wanted}
    job = MeasureJob(services.disk, services.directory, [key for key in wanted if key not in sizes])
    answers: Answers[DescribeLogDirsResponse] = Answers(
        1,
        deadlines=services.deadlines,
        timeout_ms=TIMEOUT_MS_DEFAULT,
        late=lambda place, error: _response(services.directory.path, {}, error.code),
        respond=lambda parts: parts[0],
    )

    def measured(fault: StorageFault | None) -> None:
        sizes.update(job.sizes)
        code = ErrorCode.NONE if fault is None else code_of(fault)
        answers.settle(0, _response(services.directory.path, sizes, code))

    services.syncs.submit(job, measured)
    return answers.response()


def _wanted(topics: Sequence[DescribableLogDirTopic] | None, image: Image) -> dict[tuple[str, int], None]:
    """The partitions that are meant, in order; those that are not there are left out, as in Kafka."""
    if topics is None:
        return {(name, index): None for name, topic in image.topics.items() for index in range(len(topic.partitions))}
    wanted: dict[tuple[str, int], None] = {}
    for asked in topics:
        known = image.topics.get(asked.topic)
        if known is not None:
            wanted |= {(asked.topic, n): None for n in asked.partitions if 0 <= n < len(known.partitions)}
    return wanted


@dataclass(slots=True)
class MeasureJob:
    """Adds up the segments of partitions that are not open; it only lists and asks for sizes."""

    disk: Disk
    directory: DataDirectory
    partitions: list[tuple[str, int]]
    sizes: dict[tuple[str, int], int] = field(default_factory=dict)

    def run(self) -> None:
        for key in self.partitions:
            path = self.directory.partition_path(*key)
            if self.disk.is_directory(path):
                names = [name for name in self.disk.names(path) if name.endswith(LOG_SUFFIX)]
                self.sizes[key] = sum(self.disk.size(f"{path}/{name}") or 0 for name in names)


def _response(path: str, sizes: dict[tuple[str, int], int], code: ErrorCode) -> DescribeLogDirsResponse:
    topics: dict[str, list[DescribeLogDirsPartition]] = {}
    for (topic, index), size in sorted(sizes.items()):
        topics.setdefault(topic, []).append(DescribeLogDirsPartition(partition_index=index, partition_size=size))
    told = [DescribeLogDirsTopic(name=name, partitions=partitions) for name, partitions in topics.items()]
    return DescribeLogDirsResponse(results=[DescribeLogDirsResult(error_code=code, log_dir=path, topics=told)])
