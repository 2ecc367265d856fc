"""Three tools that look at groups and reset them: kafka-python's admin, Kafka's ConsumerGroupCommand, and `ottla`.

Each tells the same thing in its own form; here all become one: where a group is in each partition, where the partition
ends, and how far apart these are.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import warnings
from collections.abc import Iterator
from contextlib import closing, contextmanager
from typing import Any, NamedTuple, Protocol

from tests.clients.server_process import ROOT, ServerProcess
from tests.peers.tools import Tools

with warnings.catch_warnings():
    # It reads its own message definitions in a way that newer Pythons advise against.
    warnings.simplefilter("ignore", DeprecationWarning)
    from kafka import KafkaAdminClient, TopicPartition
    from kafka.admin import OffsetSpec
    from kafka.structs import OffsetAndMetadata

GROUP_COMMAND = "org.apache.kafka.tools.consumer.group.ConsumerGroupCommand"
COMMAND_SECONDS_MAX = 60
NOTHING = "-"

Place = tuple[str, int]
"""A topic and the number of a partition."""


class Standing(NamedTuple):
    """How far a group is in a partition; committed and lag are None where it has not committed."""

    committed: int | None
    end: int
    lag: int | None


Standings = dict[Place, Standing]


class ResetRefused(Exception):
    """The tool did not do it, and says why."""


class Look(Protocol):
    """One of the tools."""

    def standings(self, *groups: str) -> dict[str, Standings]:
        """Each group's partitions: those that it has committed in, and those that a member has."""
        ...

    def reset(self, group: str, place: Place, offset: int) -> None:
        """Raises ResetRefused."""
        ...


class PythonLook:
    """kafka-python's admin client; tells only of partitions that the group has committed in."""

    def __init__(self, server: ServerProcess) -> None:
        self._server = server

    @contextmanager
    def admin(self) -> Iterator[Any]:
        with closing(KafkaAdminClient(bootstrap_servers=self._server.address)) as admin:
            yield admin

    def standings(self, *groups: str) -> dict[str, Standings]:
        with self.admin() as admin:
            found = admin.list_group_offsets(list(groups))
            places = {place for offsets in found.values() for place in offsets}
            ends = admin.list_partition_offsets(dict.fromkeys(places, OffsetSpec.LATEST)) if places else {}
        return {
            group: {
                (place.topic, place.partition): Standing(
                    committed.offset, ends[place].offset, ends[place].offset - committed.offset
                )
                for place, committed in found[group].items()
            }
            for group in groups
        }

    def reset(self, group: str, place: Place, offset: int) -> None:
        with self.admin() as admin:
            told = admin.reset_group_offsets(group, {TopicPartition(*place): offset})
        (answer,) = told.values()
        if answer["error"].errno:
            raise ResetRefused(answer["error"])

    def commit(self, group: str, offsets: dict[Place, int]) -> None:
        """Commit as an admin does, for a group without members."""
        values = {TopicPartition(*place): OffsetAndMetadata(offset, "", -1) for place, offset in offsets.items()}
        with self.admin() as admin:
            told = admin.alter_group_offsets(group, values)
        assert {error.errno for error in told.values()} == {0}, told


class JavaLook:
    """Kafka's ConsumerGroupCommand."""

    def __init__(self, tools: Tools, server: ServerProcess) -> None:
        self._tools = tools
        self._server = server

    def run(self, *arguments: str) -> str:
        return self._tools.run(GROUP_COMMAND, "--bootstrap-server", self._server.address, *arguments)

    def rows(self, *arguments: str) -> list[dict[str, str]]:
        """The lines of its tables, by their headings; a heading has no space in it, nor has what stands below."""
        found: list[dict[str, str]] = []
        headings: list[str] = []
        for line in self.run(*arguments).splitlines():
            cells = line.split()
            if cells[:1] in (["GROUP"], ["TOPIC"]):
                headings = cells
            elif headings and len(cells) == len(headings):
                found.append(dict(zip(headings, cells, strict=True)))
        return found

    def standings(self, *groups: str) -> dict[str, Standings]:
        found: dict[str, Standings] = {group: {} for group in groups}
        for row in self.rows("--describe", *(f"--group={group}" for group in groups)):
            found[row["GROUP"]][row["TOPIC"], int(row["PARTITION"])] = Standing(
                _number(row["CURRENT-OFFSET"]), int(row["LOG-END-OFFSET"]), _number(row["LAG"])
            )
        return found

    def reset(self, group: str, place: Place, offset: int) -> None:
        where = ("--topic", f"{place[0]}:{place[1]}", "--to-offset", str(offset))
        said = self.run("--reset-offsets", "--group", group, *where, "--execute")
        if "Error: " in said:
            raise ResetRefused(said)


class OttlaLook:
    """Ottla's own command line."""

    def __init__(self, server: ServerProcess) -> None:
        self._server = server

    def run(self, *arguments: str) -> Any:
        environment = {**os.environ, "PYTHONPATH": str(ROOT / "src")}
        done = subprocess.run(
            [sys.executable, "-m", "ottla", "groups", *arguments, "--json", "--bootstrap", self._server.address],
            env=environment,
            capture_output=True,
            text=True,
            timeout=COMMAND_SECONDS_MAX,
            check=False,
        )
        if done.returncode != 0:
            raise ResetRefused(done.stderr)
        return json.loads(done.stdout)

    def standings(self, *groups: str) -> dict[str, Standings]:
        return {
            one["name"]: {
                (part["topic"], part["partition"]): Standing(part["committed"], part["end"], part["lag"])
                for part in one["partitions"]
            }
            for one in self.run("describe", *groups)
        }

    def reset(self, group: str, place: Place, offset: int) -> None:
        self.run("reset", group, "--topic", f"{place[0]}:{place[1]}", "--to", str(offset))


def committed_only(standings: Standings) -> Standings:
    return {place: standing for place, standing in standings.items() if standing.committed is not None}


def _number(text: str) -> int | None:
    return None if text == NOTHING else int(text)
