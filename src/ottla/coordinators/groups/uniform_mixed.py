"""The uniform assignor where members are subscribed to different topics: as even as the subscriptions allow.

Everybody keeps what they had, what is free goes to whoever has least, and then partitions are passed on for as long
as that makes the group more even. One may have to be passed through several members: `a` with four partitions and
`c` with two may share no topic, but each one with `b`. A search for the shortest such way moves the fewest.
"""

from __future__ import annotations

from collections import Counter
from heapq import heapify, heappop, heappush, heapreplace

from ottla.coordinators.groups.assignors import Assignment, PartitionCounts, Wishes

STEPS_MAX = 100_000
"""Steps of the search for a more even assignment, about 20 ms; a group that needs more stays a little uneven."""

_EVEN = 1
"""Two members that differ by so many partitions differ no less after a move."""


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
        wanted = frozenset().union(*self.crowds)
        self.free = {topic_id: set(range(partition_counts[topic_id])) for topic_id in sorted(wanted)}

    # --- keeping and placing ---------------------------------------------------------------------------

    def keep(self) -> None:
        """Everybody picks up what they had, where they still want it."""
        for member_id in self.members:
            wish = self.wishes[member_id]
            for topic_id, numbers in wish.target.items():
                if topic_id in wish.topics:
                    mine = self.free[topic_id] & numbers
                    self.free[topic_id] -= mine
                    self.hands[member_id][topic_id] = mine
                    self.loads[member_id] += len(mine)

    def place(self) -> None:
        """What nobody holds goes to those who have least; topics that few want come first, they have less choice."""
        ranks: dict[int, dict[str, None]] = {}
        for member_id, load in self.loads.items():
            ranks.setdefault(load, {})[member_id] = None
        demand: Counter[bytes] = Counter()
        for topics in self.crowds:
            demand.update(topics)
        for topic_id in sorted(self.free, key=demand.__getitem__):
            for number in sorted(self.free[topic_id]):
                member_id = self._least_loaded(topic_id, ranks)
                load = self.loads[member_id]
                del ranks[load][member_id]
                if not ranks[load]:
                    del ranks[load]
                ranks.setdefault(load + 1, {})[member_id] = None
                self._give(member_id, topic_id, number)

    def _least_loaded(self, topic_id: bytes, ranks: dict[int, dict[str, None]]) -> str:
        """Of those who want the topic. A look from below: most topics are wanted by many, so it ends soon."""
        wishes = self.wishes
        for load in sorted(ranks):
            for member_id in ranks[load]:
                if topic_id in wishes[member_id].topics:
                    return member_id
        raise AssertionError("a topic that nobody wants is not on the table")

    def _give(self, member_id: str, topic_id: bytes, number: int) -> None:
        self.hands[member_id].setdefault(topic_id, set()).add(number)
        self.loads[member_id] += 1

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
            search = _Search(self, member_id, settled)
            steps_left -= search.steps
            if not search.way:
                settled |= search.came_by.keys()
                continue
            if len(search.way) == 1:
                changed = self._hand_out(member_id, search.way[0][0], search.takers)
            else:
                changed = self._pass_on(member_id, search.way)
            for each in (member_id, *changed):
                heappush(fullest, (-self.loads[each], each))

    def _hand_out(self, giver: str, topic_id: bytes, takers: list[str]) -> set[str]:
        """Partitions of one topic to those who have least, one by one, while that makes the group more even."""
        hand = self.hands[giver][topic_id]
        waiting = [(self.loads[taker], taker) for taker in takers]
        heapify(waiting)
        changed = set()
        while hand and waiting[0][0] < self.loads[giver] - _EVEN:
            load, taker = waiting[0]
            heapreplace(waiting, (load + 1, taker))
            self._pass_on(giver, [(topic_id, taker)])
            changed.add(taker)
        return changed

    def _pass_on(self, giver: str, way: list[tuple[bytes, str]]) -> set[str]:
        """One partition from each member on the way to the next; returns whose load has changed by it."""
        self.loads[giver] -= 1
        self.loads[way[-1][1]] += 1
        for topic_id, taker in way:
            hand = self.hands[giver][topic_id]
            number = self._least_missed(hand, topic_id, giver=giver, taker=taker)
            hand.remove(number)
            self.hands[taker].setdefault(topic_id, set()).add(number)
            giver = taker
        return {way[-1][1]}

    def _least_missed(self, hand: set[int], topic_id: bytes, *, giver: str, taker: str) -> int:
        """A partition that comes home is the best to give, then one that the giver did not have before."""
        homeward = hand & self.wishes[taker].target.get(topic_id, frozenset())
        if homeward:
            return max(homeward)
        return max(hand - self.wishes[giver].target.get(topic_id, frozenset()) or hand)


class _Search:
    """The shortest way from a member to one that has at least two partitions fewer."""

    def __init__(self, table: _Table, start: str, settled: set[str]) -> None:
        self.steps = 0
        self.came_by: dict[str, tuple[bytes, str]] = {start: (b"", start)}
        """Whom the search has reached, by which topic and from whom."""
        self.way: list[tuple[bytes, str]] = []
        """The topics and takers on the way; empty where there is none."""
        self.takers: list[str] = []
        """All whom the last step of the way could lead to."""
        seen_topics: set[bytes] = set()
        crowds = list(table.crowds.items())
        reached = [start]
        for giver in reached:
            topics = [topic_id for topic_id, numbers in table.hands[giver].items() if numbers]
            for topic_id in sorted(set(topics) - seen_topics):
                seen_topics.add(topic_id)
                self.steps += len(crowds)
                takers = [
                    taker
                    for topics_of_crowd, members in crowds
                    if topic_id in topics_of_crowd
                    for taker in members
                    if taker not in settled and taker not in self.came_by
                ]
                crowds = [crowd for crowd in crowds if topic_id not in crowd[0]]
                if not takers:
                    continue
                self.steps += len(takers)
                self.came_by.update(dict.fromkeys(takers, (topic_id, giver)))
                reached += takers
                emptiest = min(takers, key=table.loads.__getitem__)
                if table.loads[emptiest] < table.loads[start] - _EVEN:
                    self.takers = takers
                    self._trace(emptiest, start)
                    return
            if not crowds:
                return

    def _trace(self, taker: str, start: str) -> None:
        while taker != start:
            topic_id, giver = self.came_by[taker]
            self.way.append((topic_id, taker))
            taker = giver
        self.way.reverse()
