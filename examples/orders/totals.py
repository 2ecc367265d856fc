"""Whether what came out is what went in: every order once, in the table or among the bad, and in one window or late.

`differences` is pure; `find` reads the topics and the table. Neither asks the pipeline what it thinks it has done.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec
import numpy as np

import ottla
from examples.orders.events import QUARTERS_PER_UNIT, Tally

BAD_TOPIC = "orders.bad"
LATE_TOPIC = "orders.late"
REVENUE_TOPIC = "revenue"
NAMED_MAX = 5
"""So many orders are named of those that are wrong."""
SILENT_POLLS_MAX = 60
POLL_MS = 500


class Window(msgspec.Struct, frozen=True):
    """A minute, as the topic has it."""

    minute: str
    orders: int
    revenue: float | None = None


@dataclass(frozen=True, slots=True)
class Found:
    """What is in the topics and in the table."""

    table_ids: np.ndarray[Any, np.dtype[np.int64]]
    """The numbers of the orders in the table, in any order."""
    bad_ids: Sequence[int]
    late_ids: Sequence[int]
    windows: Sequence[Window]
    """The last that was said of each minute."""
    unpriced: int = 0
    """Rows of the table that found no product."""

    @property
    def in_windows(self) -> int:
        """Orders in all windows."""
        return sum(window.orders for window in self.windows)


def differences(generated: Tally, found: Found) -> list[str]:
    """What is wrong, one sentence each; empty when all is well."""
    wrong = []
    rows = len(found.table_ids)

    def equal(what: str, left: float, right: float) -> None:
        if left != right:
            wrong.append(f"{what}: {_number(left)} is not {_number(right)} (difference {_number(left - right)})")

    equal("generated = rows in the table + bad records", generated.orders, rows + len(found.bad_ids))
    equal("orders in windows + late records = clean records", found.in_windows + len(found.late_ids), generated.clean)
    equal("bad records = those that were sent as such", len(found.bad_ids), generated.bad)
    equal("late records = those that were sent as such", len(found.late_ids), generated.late)
    revenue = sum(window.revenue or 0.0 for window in found.windows)
    equal(
        "revenue of all windows = worth of the orders on time", revenue, generated.quarters_on_time / QUARTERS_PER_UNIT
    )
    equal("rows of the table without a price = 0", found.unpriced, 0)
    wrong += _uncommon(generated.orders, found)
    return wrong


def _uncommon(orders: int, found: Found) -> Iterator[str]:
    """Orders that are not exactly once in the table or among the bad; late ones twice, or not in the table."""
    bad_ids = np.asarray(found.bad_ids, dtype=np.int64)
    late_ids = np.asarray(found.late_ids, dtype=np.int64)
    everywhere = np.concatenate([found.table_ids, bad_ids])
    strange = everywhere[(everywhere < 0) | (everywhere >= orders)]
    yield from _named("never sent", strange)
    times = np.bincount(everywhere[(everywhere >= 0) & (everywhere < orders)], minlength=orders)
    yield from _named("lost", np.flatnonzero(times == 0))
    yield from _named("more than once in the table or among the bad ones", np.flatnonzero(times > 1))
    values, counts = np.unique(late_ids, return_counts=True)
    yield from _named("more than once among the late ones", values[counts > 1])
    yield from _named("late and not in the table", np.setdiff1d(late_ids, found.table_ids))


def _named(what: str, ids: np.ndarray[Any, np.dtype[np.int64]]) -> Iterator[str]:
    if len(ids):
        some = ", ".join(str(number) for number in ids[:NAMED_MAX]) + (", ..." if len(ids) > NAMED_MAX else "")
        yield f"{len(ids):,} orders are {what}: {some}"


def _number(value: float) -> str:
    return f"{value:,}" if isinstance(value, int) else f"{value:,.2f}"


def find(client: ottla.Client, *, table: Any) -> Found:
    """Read everything; `table` is an Arrow table with the columns order_id and amount."""
    latest: dict[bytes | None, Window] = {}
    for record in committed(client, REVENUE_TOPIC):
        latest[record.key] = msgspec.json.decode(record.value or b"", type=Window)
    return Found(
        table_ids=table.column("order_id").to_numpy(),
        bad_ids=[int(record.key or b"-1") for record in committed(client, BAD_TOPIC)],
        late_ids=[_order_id(record.value) for record in committed(client, LATE_TOPIC)],
        windows=list(latest.values()),
        unpriced=table.column("amount").null_count,
    )


def _order_id(value: bytes | None) -> int:
    """Of a row that a step sent away: what it was made of is gone, so the number stands in the row itself."""
    return msgspec.json.decode(value or b"", type=_Numbered).order_id


class _Numbered(msgspec.Struct):
    order_id: int


def committed(client: ottla.Client, topic: str) -> Iterator[ottla.Record]:
    """The records of a topic up to its end, without those of transactions that were not committed."""
    partitions = [(topic, partition) for partition in range(client.admin().partition_count(topic) or 0)]
    found = client.admin().list_offsets(dict.fromkeys(partitions, ottla.OffsetSpec.LATEST), isolation="read_committed")
    ends = {partition: end.offset for partition, end in found.items() if end is not None}
    with client.consumer(isolation="read_committed", records_max=5_000) as consumer:
        consumer.assign(partitions)
        silent = 0
        while any(consumer.position(*partition) < end for partition, end in ends.items()):
            records = consumer.poll(POLL_MS)
            silent = 0 if records else silent + 1
            if silent > SILENT_POLLS_MAX:
                raise ottla.OttlaError(f"topic {topic}: nothing came, and its end has not been reached")
            yield from records
