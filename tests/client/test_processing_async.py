"""Read, transform, write with the async client: every record once."""

from __future__ import annotations

import asyncio
import threading
from pathlib import Path
from typing import Any

import ottla
from ottla.client.client import AsyncClient
from ottla.client.processing import AsyncProcessor
from ottla.client.values import NewRecord

IDLE_MS = 60_000
"""A loop is stopped when all is done; on a busy machine nothing shorter says that nothing more will come."""
LOOK_SECONDS = 0.02


async def stop_when_done(client: AsyncClient, work: AsyncProcessor, *, partitions: int) -> None:
    """Stops the loop when the group has read and committed everything."""
    while sum(each.lag == 0 for each in (await client.admin().group_lag("g")).values()) < partitions:
        # Another task's turn; each question takes a hop to the broker's thread and back.
        await asyncio.to_thread(threading.Event().wait, LOOK_SECONDS)
    work.stop()


def test_the_async_loop_does_a_turn_that_took_too_long_again(tmp_path: Path) -> None:
    async def main() -> list[bytes | None]:
        async with ottla.open_async(tmp_path / "data") as client:
            admin = client.admin()
            await admin.create_topic("in", partitions=1)
            await admin.create_topic("out", partitions=1)
            async with client.producer() as producer:
                await producer.send_batch("in", [b"%d" % number for number in range(20)])
            chosen: Any = {"transactional_id": "copier", "producer": {"transaction_timeout_ms": 400}}
            turns = 0
            async with (
                client.process("in", group="g", idle_ms=IDLE_MS, **chosen) as work,
                asyncio.TaskGroup() as watching,
            ):
                watching.create_task(stop_when_done(client, work, partitions=1))
                async for records in work:
                    turns += 1
                    for record in records:
                        await work.send("out", record.value)
                    if turns == 1:
                        await work.producer.flush()
                        while (found := await admin.describe_transaction("copier")) and found.state != "CompleteAbort":
                            continue
            assert turns > 1
            async with client.consumer(isolation="read_committed") as consumer:
                await consumer.assign([("out", 0)])
                return [record.value async for record in consumer.records(idle_ms=300)]

    assert asyncio.run(main()) == [b"%d" % number for number in range(20)]


def test_the_async_loop_copies_too(tmp_path: Path) -> None:
    async def main() -> list[bytes | None]:
        async with ottla.open_async(tmp_path / "data") as client:
            admin = client.admin()
            await admin.create_topic("in", partitions=2)
            await admin.create_topic("out", partitions=1)
            async with client.producer() as producer:
                numbers = [NewRecord(b"%d" % number, partition=number % 2) for number in range(50)]
                await producer.send_batch("in", numbers)
            async with client.process("in", group="g", idle_ms=IDLE_MS, consumer={"records_max": 20}) as work:
                turns = 0
                async for records in work:
                    for record in records:
                        await work.send("out", record.value)
                    turns += 1
                    if turns == 1:
                        break
                async with asyncio.TaskGroup() as watching:
                    watching.create_task(stop_when_done(client, work, partitions=2))
                    async for records in work:
                        for record in records:
                            await work.send("out", record.value)
            async with client.consumer(isolation="read_committed") as consumer:
                await consumer.assign([("out", 0)])
                return [record.value async for record in consumer.records(idle_ms=300)]

    assert sorted(asyncio.run(main()), key=lambda value: int(value or b"")) == [b"%d" % number for number in range(50)]
