"""The uniform assignor where members are subscribed to different topics: as even as the subscriptions allow.

Everybody keeps what they had, what is free goes to whoever has least, and then partitions are passed on for as long
as that makes the group more even. One may have to be passed through several members: `a` with four partitions and
`c` with two may share no topic, but each one with `b`. A search for the shortest such way moves the fewest.
"""

from __future__ import annotations

from bisect import insort
from collections import Counter
from collections.abc import Iterator
from heapq import heapify, heappop, heappush, heapreplace
from itertools import chain, islice

from ottla.coordinators.groups.assignors import Assignment, PartitionCounts, Wishes

STEPS_MAX = 100_000
"""Steps on the way to a more even assignment, about 20 ms; a group that needs more stays a little uneven."""

_EVEN = 1
"""Two members that differ by so many partitions differ no less after a move."""
_LOOKS_PER_PLACE = 8
"""Crowds that are looked at for one partition, on average, before it is worth to note who wants which topic."""
_SUBSCRIPTIONS_COUNTED_MAX = 50_000
"""Topics of all crowds that are counted to find those that few want: a few milliseconds."""
_SORTED_PER_STEP = 4
"""Sets are compared and sorted so many times as quickly as anything else is done."""

_Rank = tuple[int, int, int]
"""The load of a crowd's emptiest member, since when it has it, and the crowd's place: the smallest is served next."""


def assign_mixed(wishes: Wishes, partition_counts: PartitionCounts) -> dict[str, Assignment]:
    """See the module. Every member wants some topic that exists."""
    table = _Table(wishes, partition_counts)
    table.keep()
    table.place()
    table.level()
    return {
        member_id: {topic_id: frozenset(numbers) for topic_id, numbers in sorted(hand.items()) if numbers}
        for member_id, hand in table.hands.items()
    }


class _Table:
    """The members around a table, with the partitions in their hands and those that nobody holds."""

    def __init__(self, wishes: Wishes, partition_counts: PartitionCounts) -> None:
        self.wishes = wishes
        # In the order of ids throughout, so that one state of a group has one answer.
        self.members = sorted(wishes)
        self.hands: dict[str, dict[bytes, set[int]]] = {member_id: {} for member_id in self.members}
        self.loads = dict.fromkeys(self.members, 0)
        self.crowds: dict[frozenset[bytes], list[str]] = {}
        """Members that want the same topics: what one of them can take, each of them can."""
        for member_id in self.members:
            self.crowds.setdefault(wishes[member_id].topics, []).append(member_id)
        self.free = {topic_id: set(range(partition_counts[topic_id])) for topic_id in self._wanted(partition_counts)}

    def _wanted(self, partition_counts: PartitionCounts) -> list[bytes]:
        """The topics that anybody wants."""
        unwanted = set(partition_counts)
        for topics in self.crowds:
            # To take away what is wanted is soon done, where to gather it would go through every wish of everybody.
            unwanted -= unwanted & topics
        return sorted(partition_counts.keys() - unwanted)

    def _demand(self) -> Counter[bytes]:
        """How many crowds want each topic; where they want very many, of a part of the crowds."""
        subscriptions = sum(map(len, self.crowds))
        demand: Counter[bytes] = Counter()
        for topics in islice(self.crowds, None, None, 1 + subscriptions // _SUBSCRIPTIONS_COUNTED_MAX):
            demand.update(topics)
        return demand

    # --- keeping and placing ---------------------------------------------------------------------------

    def keep(self) -> None:
        """Everybody picks up what they had, where they still want it."""
        for member_id in self.members:
            topics, target, _ = self.wishes[member_id]
            hand = self.hands[member_id]
            for topic_id, numbers in target.items():
                if topic_id in topics:
                    there = self.free[topic_id]
                    mine = there & numbers
                    there -= mine
                    hand[topic_id] = mine
            self.loads[member_id] = sum(map(len, hand.values()))

    def place(self) -> None:
        """What nobody holds goes to those who have least; topics that few want come first, they have less choice."""
        topics = [topic_id for topic_id, numbers in self.free.items() if numbers]
        if not topics:
            return
        queue = _Queue(self.crowds, self.loads)
        for topic_id in sorted(topics, key=self._demand().__getitem__):
            numbers = self.free[topic_id]
            takers = queue.takers(topic_id, len(numbers))
            if len(numbers) == 1:
                (member_id,) = takers
                self._give(member_id, topic_id, numbers)
            else:
                for number, member_id in zip(sorted(numbers), takers, strict=True):
                    self._give(member_id, topic_id, {number})

    def _give(self, member_id: str, topic_id: bytes, numbers: set[int]) -> None:
        hand = self.hands[member_id]
        if topic_id in hand:
            hand[topic_id] |= numbers
        else:
            hand[topic_id] = numbers
        self.loads[member_id] += len(numbers)

    # --- levelling -------------------------------------------------------------------------------------

    def level(self) -> None:
        """Pass partitions on from those who have most, until no way leads to anybody with two fewer.

        Whom a search from the fullest member reaches without finding such a one is as even as can be with all the
        others that it reached, and cannot take part in any later move either. So each is settled once.
        """
        fullest = [(-load, member_id) for member_id, load in self.loads.items()]
        heapify(fullest)
        settled: set[str] = set()
        steps_left = STEPS_MAX
        while fullest and steps_left > 0:
            load, member_id = heappop(fullest)
            if member_id in settled or -load != self.loads[member_id]:
                continue  # Out of date: whoever's load changes is entered again.
            search = _Search(self, member_id, settled, steps_left)
            steps_left -= search.steps
            if not search.way:
                settled |= search.came_by.keys()
                continue
            if len(search.way) == 1:
                changed, steps = self._hand_out(member_id, search.way[0][0], search.takers, steps_left)
            else:
                changed, steps = self._pass_on(member_id, search.way)
            steps_left -= steps
            for each in (member_id, *changed):
                heappush(fullest, (-self.loads[each], each))

    def _hand_out(self, giver: str, topic_id: bytes, takers: list[str], steps_max: int) -> tuple[set[str], int]:
        """Partitions of one topic to those who have least, one by one, while that makes the group more even.

        Returns whose load has changed beside the giver's, and the steps that it took.
        """
        offer = _Offer(self, giver, topic_id)
        waiting = [(self.loads[taker], taker) for taker in takers]
        heapify(waiting)
        changed = set()
        steps = len(takers) + offer.steps
        while offer.hand and waiting[0][0] < self.loads[giver] - _EVEN and steps < steps_max:
            load, taker = waiting[0]
            heapreplace(waiting, (load + 1, taker))
            offer.give(taker)
            self.loads[giver] -= 1
            self.loads[taker] += 1
            changed.add(taker)
            steps += 2
        return changed, steps

    def _pass_on(self, giver: str, way: list[tuple[bytes, str]]) -> tuple[set[str], int]:
        """One partition from each member on the way to the next; returns as `_hand_out` does."""
        last = way[-1][1]
        self.loads[giver] -= 1
        self.loads[last] += 1
        steps = 0
        for topic_id, taker in way:
            offer = _Offer(self, giver, topic_id)
            offer.give(taker)
            steps += offer.steps
            giver = taker
        return {last}, steps


class _Queue:
    """The members in the order of their loads, by crowd, so that the next taker of any topic is soon found.

    Whoever has least comes first; of those who have as little, whoever has had it for longest.
    """

    def __init__(self, crowds: dict[frozenset[bytes], list[str]], loads: dict[str, int]) -> None:
        self._topics = list(crowds)
        self._arrivals = len(loads)
        """Counts who has come to a load."""
        places = {member_id: place for place, member_id in enumerate(loads)}
        self._heaps = [
            [(loads[member_id], places[member_id], member_id) for member_id in members] for members in crowds.values()
        ]
        for heap in self._heaps:
            heapify(heap)
        self._order = sorted(self._rank(place) for place in range(len(self._heaps)))
        self._looks_left = _LOOKS_PER_PLACE * len(self._heaps)
        self._wanting: dict[bytes, list[int]] | None = None
        """The places of the crowds that want each topic; None as long as a look at the first few tells."""

    def takers(self, topic_id: bytes, count: int) -> list[str]:
        """Those to whom so many partitions of the topic go, one each time."""
        found: list[str] = []
        while count > len(found) and self._wanting is None:
            found.append(self._found_from_below(topic_id))
        if self._wanting is not None:
            found += self._found_among(self._wanting[topic_id], count - len(found))
        return found

    def _found_from_below(self, topic_id: bytes) -> str:
        """Most topics are wanted by many, so one of the first crowds takes it."""
        for looks, (_, _, crowd) in enumerate(self._order):
            if topic_id in self._topics[crowd]:
                self._looks_left += _LOOKS_PER_PLACE - looks
                if self._looks_left < 0:
                    # Not here: those who have least want other topics. From now on, only those who want it are asked.
                    self._note_wanting()
                del self._order[looks]
                member_id = self._serve(crowd)
                insort(self._order, self._rank(crowd))
                return member_id
        raise AssertionError("a topic that nobody wants is not on the table")

    def _found_among(self, crowds: list[int], count: int) -> list[str]:
        ranks = [self._rank(crowd) for crowd in crowds]
        heapify(ranks)
        found = []
        for _ in range(count):
            crowd = ranks[0][2]
            found.append(self._serve(crowd))
            heapreplace(ranks, self._rank(crowd))
        return found

    def _note_wanting(self) -> None:
        wanting: dict[bytes, list[int]] = {}
        for crowd, topics in enumerate(self._topics):
            for topic_id in topics:
                wanting.setdefault(topic_id, []).append(crowd)
        self._wanting = wanting

    def _rank(self, crowd: int) -> _Rank:
        load, arrival, _ = self._heaps[crowd][0]
        return load, arrival, crowd

    def _serve(self, crowd: int) -> str:
        """The first of the crowd gets one more, and is the last of those who have as many."""
        heap = self._heaps[crowd]
        load, _, member_id = heap[0]
        heapreplace(heap, (load + 1, self._arrivals, member_id))
        self._arrivals += 1
        return member_id


class _Offer:
    """What a member has of one topic, in the order in which it is best given away.

    A partition that comes home is the best to give, then one that the giver did not have before.
    """

    def __init__(self, table: _Table, giver: str, topic_id: bytes) -> None:
        self._table = table
        self._topic_id = topic_id
        self.hand = table.hands[giver][topic_id]
        had = table.wishes[giver].target.get(topic_id, frozenset())
        self._rest = sorted(self.hand & had) + sorted(self.hand - had)
        """The best to give is the last; some may have gone home meanwhile."""
        self._homeward: dict[str, list[int]] = {}
        self.steps = 1 + len(self._rest) // _SORTED_PER_STEP

    def give(self, taker: str) -> None:
        """One partition goes to this member."""
        number = self._best_for(taker)
        self.hand.remove(number)
        self._table.hands[taker].setdefault(self._topic_id, set()).add(number)

    def _best_for(self, taker: str) -> int:
        homeward = self._homeward.get(taker)
        if homeward is None:
            had = self._table.wishes[taker].target.get(self._topic_id, frozenset())
            homeward = self._homeward[taker] = sorted(self.hand & had)
        for numbers in (homeward, self._rest):
            while numbers:
                number = numbers.pop()
                if number in self.hand:
                    return number
        raise AssertionError("there is something in the hand")


class _Search:
    """The shortest way from a member to one that has at least two partitions fewer."""

    def __init__(self, table: _Table, start: str, settled: set[str], steps_max: int) -> None:
        self.came_by: dict[str, tuple[bytes, str]] = {start: (b"", start)}
        """Whom the search has reached, by which topic and from whom."""
        self.way: list[tuple[bytes, str]] = []
        """The topics and takers on the way; empty where there is none, or the search had to be given up."""
        self.takers: list[str] = []
        """All whom the last step of the way could lead to."""
        self._crowds = list(table.crowds.items())
        """Those that no topic has led to yet."""
        self.steps = len(self._crowds)
        reached = [start]
        for giver in reached:
            for topic_id, members in self._ways_on(table.hands[giver]):
                takers = [taker for taker in members if taker not in settled and taker not in self.came_by]
                if not takers:
                    continue
                self.came_by.update(dict.fromkeys(takers, (topic_id, giver)))
                reached += takers
                emptiest = min(takers, key=table.loads.__getitem__)
                if table.loads[emptiest] < table.loads[start] - _EVEN:
                    self.takers = takers
                    self._trace(emptiest, start)
                    return
            if not self._crowds or self.steps > steps_max:
                return

    def _ways_on(self, hand: dict[bytes, set[int]]) -> Iterator[tuple[bytes, list[str]]]:
        """The topics in a hand that lead to crowds which were not reached yet, and the members of these."""
        topics = sorted((topic_id for topic_id, numbers in hand.items() if numbers), reverse=True)
        self.steps += len(hand)
        while topics and self._crowds:
            topic_id = topics.pop()
            members = [each for wanted, each in self._crowds if topic_id in wanted]
            self.steps += len(self._crowds)
            if members:
                self._crowds = [crowd for crowd in self._crowds if topic_id not in crowd[0]]
                self.steps += sum(map(len, members))
                yield topic_id, list(chain.from_iterable(members))
            else:
                # Often none of the others leads on either, and there may be thousands.
                topics = self._leading_on(set(topics))

    def _leading_on(self, topics: set[bytes]) -> list[bytes]:
        found: set[bytes] = set()
        for wanted, _ in self._crowds:
            found |= topics & wanted
            self.steps += 1 + min(len(topics), len(wanted)) // _SORTED_PER_STEP
        return sorted(found, reverse=True)

    def _trace(self, taker: str, start: str) -> None:
        while taker != start:
            topic_id, giver = self.came_by[taker]
            self.way.append((topic_id, taker))
            taker = giver
        self.way.reverse()
