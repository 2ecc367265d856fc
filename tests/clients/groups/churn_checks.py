"""What must hold of the lives of a group's members, as functions of what they said. Nothing here runs anything."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from tests.clients.groups.churn_members import Event, Life
from tests.clients.groups.members import Place

Spot = tuple[str, int, int]
"""Topic, partition and offset."""


@dataclass(frozen=True, slots=True)
class Tenure:
    """From when to when one process had a partition, in its own view."""

    place: Place
    owner: str
    name: str
    start_ns: int
    end_ns: int


def double_owners_in_a_generation(lives: Iterable[Life]) -> list[str]:
    """Partitions that two members were given in the same generation."""
    owners: dict[tuple[int, Place], set[str]] = defaultdict(set)
    for life in lives:
        for event in life.events:
            generation = event.facts.get("generation", -1)
            if event.kind == "assigned" and generation >= 0:
                for place in event.held or ():
                    owners[generation, place].add(life.spec.owner)
    return [
        f"{place[0]}-{place[1]} in generation {generation}: {', '.join(sorted(names))}"
        for (generation, place), names in sorted(owners.items())
        if len(names) > 1
    ]


def overlapping_tenures(lives: Iterable[Life]) -> list[str]:
    """Partitions that two members had at the same time."""
    by_place: dict[Place, list[Tenure]] = defaultdict(list)
    for life in lives:
        for tenure in tenures(life):
            by_place[tenure.place].append(tenure)
    found = []
    for place, held in sorted(by_place.items()):
        held.sort(key=lambda tenure: tenure.start_ns)
        # Sorted by start, the one that lasts longest so far is the only one that the next can overlap unseen.
        longest = held[0]
        for tenure in held[1:]:
            if tenure.start_ns < longest.end_ns:
                both_ms = (min(longest.end_ns, tenure.end_ns) - tenure.start_ns) / 1e6
                found.append(f"{place[0]}-{place[1]}: {longest.name} and {tenure.name} for {both_ms:.1f} ms")
            longest = max(longest, tenure, key=lambda each: each.end_ns)
    return found


def tenures(life: Life) -> Iterator[Tenure]:
    """What a process had, and when.

    A tenure that was lost is left out: the member was shut out at a time that only the broker knows.
    """
    since: dict[Place, int] = {}
    last_ns = 0
    for event in life.events:
        last_ns = event.at_ns
        if event.held is None:
            continue
        for place in event.held - since.keys():
            since[place] = event.at_ns
        for place in since.keys() - event.held:
            start_ns = since.pop(place)
            if event.kind != "lost":
                yield Tenure(place, life.spec.owner, life.spec.name, start_ns, event.at_ns)
    # A killed member had them as long as it lived; what it said last is the last that is known.
    for place, start_ns in since.items():
        yield Tenure(place, life.spec.owner, life.spec.name, start_ns, last_ns)


def processed(lives: Iterable[Life]) -> Counter[tuple[Spot, str]]:
    """How often each record was processed, by its place and value."""
    return Counter(
        (_spot(event), event.facts["value"]) for life in lives for event in life.events if event.kind == "processed"
    )


def acknowledged_commits(lives: Iterable[Life]) -> dict[Place, int]:
    """The highest offset of each partition that a member was told is committed."""
    highest: dict[Place, int] = {}
    for life in lives:
        for event in life.events:
            if event.kind == "committed":
                for topic, partition, offset in event.facts["offsets"]:
                    highest[topic, partition] = max(offset, highest.get((topic, partition), -1))
    return highest


def went_backwards(acknowledged: dict[Place, int], committed: dict[Place, int]) -> list[str]:
    """Partitions where less is committed than a member was told."""
    return [
        f"{topic}-{partition}: {offset} was acknowledged, {committed.get((topic, partition))} is there"
        for (topic, partition), offset in sorted(acknowledged.items())
        if committed.get((topic, partition), -1) < offset
    ]


def counts(lives: Iterable[Life]) -> Counter[str]:
    """How often each kind of event was seen."""
    return sum((life.tally for life in lives), Counter())


def _spot(event: Event) -> Spot:
    topic, partition = event.facts["place"]
    return topic, partition, event.facts["offset"]
