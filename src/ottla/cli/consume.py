"""`ottla consume`: the records of a topic on standard output."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Protocol

import typer

from ottla.cli.connection import DEFAULT_BOOTSTRAP, Bootstrap, Isolation, connected
from ottla.cli.failures import MISUSED, CommandFailed, tell
from ottla.cli.moments import AtOffset, AtTime, End, Last, Moment, parse_moment
from ottla.cli.output import write_bytes
from ottla.cli.progress import Advance, progress
from ottla.cli.record_text import line_form, to_json
from ottla.clock import Clock, SystemClock

if TYPE_CHECKING:
    from ottla.client.blocking.admin import Admin
    from ottla.client.blocking.client import Client
    from ottla.client.blocking.consumer import Consumer
    from ottla.client.snapshots import Snapshot
    from ottla.client.values import Record

EXAMPLES = """\b
Examples:
  ottla consume greetings
  ottla consume orders --from end --follow
  ottla consume orders --from -10m --json | jq .value
  ottla consume orders --from 2026-01-31T12:00:00Z --partition 0 --max 100
  ottla consume orders --from -5 --output '{partition}:{offset}\\t{key}={value}\\n'
  ottla consume replies --follow --max 1 --timeout 10
  ottla consume orders --group billing --follow
  ottla consume orders --as-of 2026-01-31T12:00:00Z --json
  ottla consume orders --as-of '{"orders":{"0":700,"1":655}}'
"""

POLL_MS = 500
"""How long one poll waits, so that limits are looked at in between."""
POLL_RECORDS_MAX = 5_000
STALLED_MS = 30_000
"""How long a read up to the end waits for records that must be there."""


Show = Callable[["Record"], bytes]
Place = tuple[str, int]
"""A topic and one of its partitions."""


def consume(
    topic: Annotated[str, typer.Argument(metavar="TOPIC", help="The topic to read.", show_default=False)],
    start: Annotated[
        str,
        typer.Option(
            "--from",
            metavar="WHERE",
            help="beginning, end, an offset, -N for the last N of each partition, a time (ISO 8601, UTC unless it "
            "says otherwise, or milliseconds since 1970), or how long ago (-10m; ms, s, m, h, d, w). A number from "
            "10^12 on is a time; offset:N and time:N say which one is meant.",
        ),
    ] = "beginning",
    partition: Annotated[
        list[int] | None, typer.Option("--partition", min=0, help="Only this partition; repeatable.")
    ] = None,
    most: Annotated[int | None, typer.Option("--max", min=1, metavar="N", help="Stop after so many records.")] = None,
    group: Annotated[
        str | None,
        typer.Option(
            "--group",
            metavar="NAME",
            help="Read as a member of this group: share the partitions with its other members, go on where it "
            "committed, and commit what was printed. --from counts where it has committed nothing.",
        ),
    ] = None,
    as_of: Annotated[
        str | None,
        typer.Option(
            "--as-of",
            metavar="WHEN",
            help="Read the topic as it was: at a time, so long ago (both written as for --from), now, or up to given "
            'offsets ({"orders":{"0":700}}). Says on standard error how to read exactly the same again.',
        ),
    ] = None,
    follow: Annotated[
        bool, typer.Option("--follow", "-f", help="Wait for further records instead of stopping at the end.")
    ] = False,
    timeout: Annotated[
        float | None,
        typer.Option("--timeout", min=0, metavar="SECONDS", help="Stop when no record came for so long."),
    ] = None,
    as_json: Annotated[
        bool,
        typer.Option(
            "--json",
            help='A line of JSON per record; what is not UTF-8 is {"base64": "..."}, timestamps are milliseconds.',
        ),
    ] = False,
    output: Annotated[
        str | None,
        typer.Option(
            "--output",
            metavar="FORM",
            help="What to print of a record: {topic} {partition} {offset} {timestamp} {key} {value} {headers}, "
            r"with \n and \t.",
        ),
    ] = None,
    isolation: Annotated[
        Isolation, typer.Option("--isolation", help="Whether to wait for the end of transactions.")
    ] = Isolation.READ_UNCOMMITTED,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
) -> None:
    """Read records: the value of each, a line each, unless --json or --output says otherwise.

    Reads what is there when it starts, then ends with 0; --follow goes on. Order holds within a partition. When
    --timeout ends it before --max records came, it ends with 1. A member of a group reads what there is in the
    partitions that it is given.
    """
    clock = SystemClock()
    show = _show(output, as_json=as_json)
    moment = _moment(start, clock)
    if isinstance(moment, End) and not follow:
        raise CommandFailed("--from end without --follow reads nothing: add --follow", MISUSED)
    if group is not None:
        _check_group_options(moment, partition)
    if as_of is not None and (follow or group is not None):
        raise CommandFailed("--as-of reads what was there, to its end: leave out --follow and --group", MISUSED)
    limits = Limits(records_max=most, idle_ms_max=None if timeout is None else round(timeout * 1000))
    with connected(bootstrap) as client, client.admin() as admin:
        partitions = _partitions(admin, topic, partition)
        if as_of is not None:
            snapshot = _snapshot(client, partitions, as_of, isolation, all_of_it=partition is None)
            _read_snapshot(client, snapshot, moment, Printing(clock, limits, show))
            return
        ends = None if follow else _offsets(admin, partitions, isolation, latest=True)
        with _consumer(client, moment, isolation, group) as consumer:
            if group is not None:
                consumer.subscribe([topic])
                with progress(f"from {topic}", total=most) as advance:
                    GroupReading(consumer, Printing(clock, limits, show), advance).run(ends)
                return
            if follow and partition is None and not isinstance(moment, Last):
                # Also those that are added later.
                consumer.subscribe([topic])
            else:
                consumer.assign(partitions)
            if isinstance(moment, Last):
                _seek_to_last(consumer, admin, partitions, moment.count, isolation)
            total = most if ends is None else _total(consumer, ends, most)
            with progress(f"from {topic}", total=total) as advance:
                ConsumerReading(consumer, Printing(clock, limits, show), advance).run(ends)


@dataclass(frozen=True, slots=True)
class Limits:
    """When reading ends before its time."""

    records_max: int | None
    idle_ms_max: int | None


@dataclass(frozen=True, slots=True)
class Printing:
    """What is done with records, and when it ends."""

    clock: Clock
    limits: Limits
    show: Show


class Source(Protocol):
    """Where records come from: a consumer, or the reader of a snapshot."""

    def poll(self, timeout_ms: int = 0, *, records_max: int | None = None) -> list[Record]: ...

    def position(self, topic: str, partition: int) -> int: ...


class Reading:
    """One pass over partitions."""

    def __init__(self, source: Source, printing: Printing, advance: Advance) -> None:
        self._source = source
        self._clock = printing.clock
        self._limits = printing.limits
        self._show = printing.show
        self._advance = advance
        self._count = 0

    def run(self, ends: Mapping[Place, int] | None) -> None:
        """Print records up to these ends, or for ever; CommandFailed when fewer came than were wanted."""
        last_ms = self._clock.now_ms()
        left = None if ends is None else self._unread(ends)
        while left is None or left:
            records = self._source.poll(self._patience_ms(last_ms), records_max=self._room())
            if ends is not None and left is not None:
                # What was written after the start is not asked for.
                records = [one for one in records if one.offset < ends.get((one.topic, one.partition), 0)]
                left = self._unread(ends)
            if records:
                last_ms = self._clock.now_ms()
                self._print(records)
                if self._count == self._limits.records_max:
                    return
            elif (left is None or left) and self._waited_enough(last_ms, must_come=left is not None):
                return

    def _unread(self, ends: Mapping[Place, int]) -> dict[Place, int]:
        """Those that are not read up to their end."""
        return {where: end for where, end in ends.items() if self._source.position(*where) < end}

    def _print(self, records: Sequence[Record]) -> None:
        self._count += len(records)
        write_bytes(b"".join(map(self._show, records)))
        self._advance(len(records))

    def _room(self) -> int:
        most = self._limits.records_max
        return POLL_RECORDS_MAX if most is None else min(POLL_RECORDS_MAX, most - self._count)

    def _patience_ms(self, last_ms: int) -> int:
        most = self._limits.idle_ms_max
        return POLL_MS if most is None else max(0, min(POLL_MS, last_ms + most - self._clock.now_ms()))

    def _waited_enough(self, last_ms: int, *, must_come: bool) -> bool:
        """Whether nothing came for so long that reading ends; CommandFailed where that is a failure."""
        idle_ms = self._clock.now_ms() - last_ms
        most, wanted = self._limits.idle_ms_max, self._limits.records_max
        if most is None and must_come and idle_ms >= STALLED_MS:
            raise CommandFailed(
                f"no record came for {STALLED_MS // 1000} s, although there are more; look at the server"
            )
        if most is None or idle_ms < most:
            return False
        if wanted is not None:
            raise CommandFailed(f"only {self._count} of {wanted} records came before nothing did for {most / 1000:g} s")
        return True


class ConsumerReading(Reading):
    """Of partitions that a consumer was assigned, or of topics that it subscribed to."""

    def __init__(self, consumer: Consumer, printing: Printing, advance: Advance) -> None:
        super().__init__(consumer, printing, advance)
        self._consumer = consumer

    def _unread(self, ends: Mapping[Place, int]) -> dict[Place, int]:
        """The same; those that are finished are not fetched any more."""
        unread = super()._unread(ends)
        finished = [where for where in ends if where not in unread]
        if finished:
            self._consumer.pause(*finished)
        return unread


class GroupReading(ConsumerReading):
    """As a member of a group: of what it is given, and what is printed is committed."""

    def _unread(self, ends: Mapping[Place, int]) -> dict[Place, int]:
        given = set(self._consumer.assignment())
        if not given:
            # Not a member yet, or there is nothing for it so far.
            return dict(ends)
        return super()._unread({where: end for where, end in ends.items() if where in given})

    def _print(self, records: Sequence[Record]) -> None:
        super()._print(records)
        self._consumer.commit()


def _snapshot(
    client: Client, partitions: Sequence[Place], text: str, isolation: Isolation, *, all_of_it: bool
) -> Snapshot:
    """What is to be read; `all_of_it`: every partition that it names, else these."""
    from ottla.client.errors import InvalidSetting
    from ottla.client.snapshots import Snapshot, parse_as_of

    topic = partitions[0][0]
    try:
        moment = parse_as_of(text, isolation=isolation.value)
        if isinstance(moment, Snapshot):
            # As it was given: it may know of beginnings that there are not any more.
            return moment.of([topic]) if all_of_it else moment.only(partitions)
    except InvalidSetting as error:
        raise CommandFailed(f"--as-of: {error}", MISUSED) from error
    found = client.snapshot(topic, text, isolation=isolation.value)
    return found if all_of_it else found.only(partitions)


def _read_snapshot(client: Client, snapshot: Snapshot, moment: Moment, printing: Printing) -> None:
    starts = _snapshot_starts(client.admin(), snapshot, moment)
    with client.read_snapshot(snapshot, starts=starts, missing="ignore", records_max=POLL_RECORDS_MAX) as reader:
        tell(f"to read the same again: --as-of '{snapshot.to_json()}'")
        _tell_of_beginnings(snapshot, reader.snapshot)
        for lost in reader.lost:
            tell(str(lost))
        told = len(reader.lost)
        ends: dict[Place, int] = dict(snapshot.ends.items())
        with progress(f"from {snapshot.topics[0]}", total=_total(reader, ends, printing.limits.records_max)) as advance:
            Reading(reader, printing, advance).run(ends)
        for lost in reader.lost[told:]:
            tell(str(lost))


def _tell_of_beginnings(given: Snapshot, found: Snapshot) -> None:
    """Plain offsets do not tell where a partition began, so whether anything of it is gone cannot be known."""
    for where, end in sorted(given.ends.items()):
        beginning = found.starts[where]
        if where not in given.starts and 0 < beginning <= end:
            tell(f"{where.topic}-{where.partition} begins at offset {beginning} now: what was before is deleted")


def _snapshot_starts(admin: Admin, snapshot: Snapshot, moment: Moment) -> dict[Place, int]:
    """Where reading begins that is not to begin at the beginning."""
    ends = snapshot.ends
    if isinstance(moment, AtOffset):
        return dict.fromkeys(ends, moment.offset)
    if isinstance(moment, Last):
        return {where: max(0, end - moment.count) for where, end in ends.items()}
    if isinstance(moment, AtTime):
        found = admin.list_offsets(dict.fromkeys(ends, moment.timestamp_ms), isolation=snapshot.isolation)
        # Where no record is that young there is nothing to read.
        return {where: ends[where] if one is None else one.offset for where, one in found.items()}
    return {}


def _check_group_options(moment: Moment, partition: Sequence[int] | None) -> None:
    if partition:
        raise CommandFailed("--group and --partition: a group's members are given their partitions", MISUSED)
    if isinstance(moment, Last):
        raise CommandFailed("--group goes on where it committed: --from -N cannot be had with it", MISUSED)


def _show(output: str | None, *, as_json: bool) -> Show:
    if output is None:
        return _json_line if as_json else _value_line
    if as_json:
        raise CommandFailed("--json and --output both say what is printed: leave one of them out", MISUSED)
    try:
        return line_form(output)
    except ValueError as error:
        raise CommandFailed(f"--output: {error}", MISUSED) from error


def _json_line(record: Record) -> bytes:
    return to_json(record) + b"\n"


def _value_line(record: Record) -> bytes:
    return (record.value or b"") + b"\n"


def _moment(text: str, clock: Clock) -> Moment:
    try:
        return parse_moment(text, now_ms=clock.now_ms())
    except ValueError as error:
        raise CommandFailed(f"--from: {error}", MISUSED) from error


def _partitions(admin: Admin, topic: str, wanted: Sequence[int] | None) -> list[Place]:
    from ottla.client.errors import PartitionNotFound, TopicNotFound

    count = admin.partition_count(topic)
    if count is None:
        raise TopicNotFound(topic)
    for number in wanted or ():
        if number >= count:
            raise PartitionNotFound(topic, number)
    return [(topic, number) for number in (sorted(set(wanted)) if wanted else range(count))]


def _consumer(client: Client, moment: Moment, isolation: Isolation, group: str | None) -> Consumer:
    return client.consumer(
        group=group,
        start="end" if isinstance(moment, End) else "beginning",
        start_offset=moment.offset if isinstance(moment, AtOffset) else None,
        start_time_ms=moment.timestamp_ms if isinstance(moment, AtTime) else None,
        isolation=isolation.value,
        records_max=POLL_RECORDS_MAX,
    )


def _offsets(admin: Admin, partitions: Sequence[Place], isolation: Isolation, *, latest: bool) -> dict[Place, int]:
    from ottla.client.values import OffsetSpec

    spec = OffsetSpec.LATEST if latest else OffsetSpec.EARLIEST
    wanted: dict[Place, int] = dict.fromkeys(partitions, spec)
    found = admin.list_offsets(wanted, isolation=isolation.value)
    return {where: one.offset for where, one in found.items() if one is not None}


def _seek_to_last(
    consumer: Consumer, admin: Admin, partitions: Sequence[Place], count: int, isolation: Isolation
) -> None:
    starts = _offsets(admin, partitions, isolation, latest=False)
    for where, end in _offsets(admin, partitions, isolation, latest=True).items():
        consumer.seek(*where, offset=max(starts.get(where, 0), end - count))


def _total(source: Source, ends: Mapping[Place, int], most: int | None) -> int:
    there = sum(max(0, end - source.position(*where)) for where, end in ends.items())
    return there if most is None else min(there, most)
