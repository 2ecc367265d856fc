"""A table of Parquet files with a log of commits: what one batch, one compaction, one clearing up does to it.

Decides; `writing` carries the steps out, and `RowWork` handles rows. Knows nothing of Spark.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, Generic

from ottla.clock import Clock
from ottla.pipelines.tables import compaction, merging, schemas
from ottla.pipelines.tables.commit_log import COMMITS, CommitLog
from ottla.pipelines.tables.commits import HOME, Commit, DataFile, State, deletable
from ottla.pipelines.tables.contract import FrameIn, Progress, RowWork, Shape, TableSettings
from ottla.pipelines.tables.errors import NoTable, TableError, TableRefused, WriterReplaced
from ottla.pipelines.tables.files import TableFiles
from ottla.pipelines.tables.partitions import partition_column, partition_problems
from ottla.pipelines.tables.writing import ATTEMPTS_MAX, CHANGES, FILES, STAGING, Attempt, Workplace, still_fits

GRACE_MS = 3_600_000
"""How long a file that was removed stays for those who have opened an older version."""
ABANDONED_MS = 86_400_000
"""After a day what an attempt has left is nobody's work any more."""
EXPIRED_BYTES_MAX = 8 * 1024**3
TIDY_EVERY = 8
"""After so many versions a writer looks whether there are small files to put together, or old ones to delete."""

log = logging.getLogger("ottla.pipelines.tables")


@dataclass(frozen=True, slots=True)
class Vacuumed:
    """What was deleted."""

    files: int
    bytes: int
    commits: int


class LoggedTable(Generic[FrameIn]):
    """One table, for one process that writes to it."""

    def __init__(
        self,
        settings: TableSettings,
        files: TableFiles,
        rows: RowWork[FrameIn],
        clock: Clock,
        *,
        unique: Callable[[], str],
        grace_ms: int = GRACE_MS,
        merged_always_bytes: int = merging.MERGED_ALWAYS_BYTES,
    ) -> None:
        self._settings = settings
        self._files = files
        self._rows = rows
        self._clock = clock
        self._unique = unique
        self._grace_ms = grace_ms
        self._merged_always_bytes = merged_always_bytes
        self._log = CommitLog(files)
        self._place = Workplace(files, self._log, clock, unique=unique)
        self._time = compaction.TimeShare(began_ms=clock.now_ms())
        if (settings.deleted or settings.order) and not settings.keys:
            raise TableRefused(
                settings.path, "deleted and order are for tables with keys; give keys, or leave them out"
            )

    @property
    def state(self) -> State:
        """The table as it is now."""
        return self._log.refresh()

    # --- batches --------------------------------------------------------------------------------------

    def write_batch(self, frame: FrameIn, *, application: str, batch_id: int) -> None:
        """Write a batch whole, or not at all; and once, however often it is given."""
        try:
            self._place.begin(application)
            if not self._written(frame, application, batch_id):
                self._rows.drain(frame)
                return
        except BaseException:
            # Also an interrupt: what is half done is cleared away before this process writes on.
            self._place.interrupted(application)
            raise
        if self._log.state.version % TIDY_EVERY == 0:
            self._tidy(application)

    def _written(self, frame: FrameIn, application: str, batch_id: int) -> bool:
        """Whether the frame was written now; False if it had been before."""
        for _ in range(ATTEMPTS_MAX):
            read_at = self._log.refresh().version
            if self._log.state.holds(application, batch_id):
                return False
            attempt = self._place.attempt(application, f"b{batch_id:010d}")
            commit = self._prepared(frame, attempt, application, batch_id)
            if self._committed(commit, read_at):
                self._place.finish(attempt, commit)
                return True
            self._place.withdraw(attempt, (*commit.added, *commit.changes_added))
        raise self._place.busy()

    def _prepared(self, frame: FrameIn, attempt: Attempt, application: str, batch_id: int) -> Commit:
        state = self._log.state
        began_ms = self._clock.now_ms()
        shape = self._shape(state, frame)
        commit = Commit(
            version=0,
            kind="batch",
            time_ms=began_ms,
            application=application,
            batch_id=batch_id,
            schema=shape.schema,
            partition_by=shape.partition_by,
            keys=shape.keys,
            order=shape.order,
        )
        if not shape.keys:
            self._rows.write(frame, shape, attempt.output)
            return self._measured(replace(commit, added=self._place.placed(attempt, FILES, self._rows.rows)))
        self._rows.write_changes(frame, shape, attempt.changes, sequence=state.version)
        if merging.is_due(
            state,
            now_ms=began_ms,
            deletes_by_order=shape.order is not None and shape.deleted is not None,
            merged_always_bytes=self._merged_always_bytes,
        ):
            return self._merged(commit, attempt, shape, also=(attempt.changes,))
        return self._measured(replace(commit, changes_added=self._place.placed(attempt, CHANGES, self._rows.rows)))

    def _merged(self, commit: Commit, attempt: Attempt, shape: Shape, *, also: tuple[str, ...]) -> Commit:
        """Write the files anew that the changes which wait, and those of this attempt, touch."""
        state = self._log.state
        waiting = tuple(state.changes.values())
        changes = [*(one.place for one in waiting), *also]
        touched = tuple(self._rows.holding(changes, tuple(state.live.values()), shape))
        self._rows.write_merged(changes, touched, shape, attempt.output)
        added = self._place.placed(attempt, FILES, self._rows.rows)
        return self._measured(replace(commit, added=added, removed=touched, changes_removed=waiting))

    def _measured(self, commit: Commit) -> Commit:
        now_ms = self._clock.now_ms()
        return replace(commit, time_ms=now_ms, took_ms=max(0, now_ms - commit.time_ms))

    def _committed(self, commit: Commit, read_at: int) -> bool:
        """Commit, also after others, as long as what they did does not touch it; False: it must be done again."""
        assert commit.application is not None, "a batch has an application"
        assert commit.batch_id is not None, "a batch has a number"
        for _ in range(ATTEMPTS_MAX):
            state = self._log.state
            self._place.require_not_replaced(commit.application)
            if state.holds(commit.application, commit.batch_id) or not still_fits(commit, state, read_at=read_at):
                return False
            touched = commit.added or commit.removed or commit.changes_added or commit.changes_removed
            if state.exists and not touched and commit.schema == state.schema:
                # Nothing came, so there is nothing that a second time could write twice; unless it was cleared away by
                # a process that has taken over, which is told in a version that is not read yet.
                self._log.refresh()
                self._place.require_not_replaced(commit.application)
                return True
            if self._log.append(replace(commit, schema=self._joined_schema(state, commit.schema or {}))):
                return True
            self._log.refresh()
        raise self._place.busy()

    # --- what the rows must look like -----------------------------------------------------------------

    def _shape(self, state: State, frame: FrameIn) -> Shape:
        settings = self._settings
        if state.exists:
            self._require_same("partition_by", state.partition_by, settings.partition_by)
            self._require_same("keys", state.keys, settings.keys)
            self._require_same("order", (state.order or "",), (settings.order or "",))
        rows = self._rows.schema(frame)
        partitions = tuple(map(partition_column, settings.partition_by))
        problems = partition_problems(partitions, rows)
        problems += [f"there is no column {key!r} for a key" for key in settings.keys if not schemas.type_of(rows, key)]
        if problems:
            raise TableRefused(settings.path, "; ".join(problems))
        made = [
            {"name": one.name, "type": "date", "nullable": True, "metadata": {}} for one in partitions if one.date_of
        ]
        schema = self._joined_schema(state, {"type": "struct", "fields": [*rows["fields"], *made]})
        return Shape(
            schema=schema,
            partition_by=settings.partition_by,
            keys=settings.keys,
            deleted=settings.deleted,
            order=settings.order,
        )

    def _require_same(self, what: str, was: tuple[str, ...], now: tuple[str, ...]) -> None:
        if was != now:
            raise TableRefused(
                self._settings.path,
                f"the table's {what} is {list(was)} and cannot become {list(now)}; write to another path, "
                f"or set {what} to what it was",
            )

    def _joined_schema(self, state: State, rows: dict[str, Any]) -> dict[str, Any]:
        schema, mismatches = schemas.merged(state.schema, rows)
        if mismatches:
            raise TableRefused(
                self._settings.path,
                f"{'; '.join(map(str, mismatches))}. Cast it back in a step, give the new column another name, "
                "or write to another path",
            )
        return schema

    # --- putting files together -----------------------------------------------------------------------

    def _tidy(self, application: str) -> None:
        """Between two batches: some compaction, if there is time, and the deletion of what nobody reads."""
        began_ms = self._clock.now_ms()
        try:
            if self._time.allows(began_ms):
                groups = compaction.groups(
                    self._log.state.live.values(), file_bytes_min=self._settings.file_bytes_min, in_passing=True
                )
                if groups:
                    self._put_together(application, groups)
                    self._time.spend(began_ms=began_ms, ended_ms=self._clock.now_ms())
            self._delete_expired(self._grace_ms, expired_bytes_max=EXPIRED_BYTES_MAX)
        except WriterReplaced:
            self._place.interrupted(application)
            raise
        except Exception as reason:
            # The batch is in the table; what failed here is tried again later.
            self._place.interrupted(application)
            log.warning("%s: tidying up between batches failed: %s", self._settings.path, reason)

    def compact(self, progress: Progress | None = None) -> int:
        """Put all small files together; returns how many files fewer there are."""
        self._require_table()
        application = f"compaction {self._unique()}"
        self._place.begin(application)
        before = len(self._log.state.live) + len(self._log.state.changes)
        self._merge_waiting(application)
        while groups := compaction.groups(
            self._log.refresh().live.values(), file_bytes_min=self._settings.file_bytes_min, in_passing=False
        ):
            fewer = self._put_together(application, groups)
            if progress is not None:
                progress(sum(len(group.files) for group in groups))
            if not fewer:
                # However Spark divides them, they come out as many as they were, and would again.
                break
        return before - len(self._log.state.live)

    def _merge_waiting(self, application: str) -> None:
        """Merge the changes that wait, without a batch."""
        state = self._log.state
        if not state.changes:
            return
        assert state.schema is not None, "there are changes, so there is a schema"
        shape = Shape(schema=state.schema, partition_by=state.partition_by, keys=state.keys, order=state.order)
        attempt = self._place.attempt(application, f"m{state.version:010d}")
        commit = Commit(version=0, kind="merge", time_ms=self._clock.now_ms())
        self._rewritten(application, attempt, self._merged(commit, attempt, shape, also=()))

    def _put_together(self, application: str, groups: tuple[compaction.Group, ...]) -> int:
        """Write the files of each group as one; returns how many files fewer that makes."""
        state = self._log.state
        assert state.schema is not None, "there are files, so there is a schema"
        old = tuple(one for group in groups for one in group.files)
        attempt = self._place.attempt(application, f"c{state.version:010d}")
        self._rows.write_again(old, Shape(schema=state.schema, partition_by=state.partition_by), attempt.output)
        added = self._place.placed(attempt, FILES, self._rows.rows)
        if sum(one.rows for one in old) != sum(one.rows for one in added):
            self._place.withdraw(attempt, added)
            raise TableError(self._settings.path, "a compaction came out with another number of rows, and is undone")
        now_ms = self._clock.now_ms()
        commit = Commit(version=0, kind="compaction", time_ms=now_ms, added=added, removed=old)
        self._rewritten(application, attempt, commit)
        return len(old) - len(added)

    def _rewritten(self, application: str, attempt: Attempt, commit: Commit) -> None:
        """Commit what changes no rows; or give it up, if somebody else has rewritten one of the files meanwhile."""
        for _ in range(ATTEMPTS_MAX):
            # Who has taken over has removed what this attempt wrote: with it the rows of all old files would be gone.
            self._place.require_not_replaced(application)
            if not still_fits(commit, self._log.state, read_at=0):
                break
            if self._log.append(commit):
                self._place.finish(attempt, commit)
                return
            self._log.refresh()
        self._place.withdraw(attempt, commit.added)

    # --- deleting -------------------------------------------------------------------------------------

    def vacuum(self, *, grace_ms: int = GRACE_MS) -> Vacuumed:
        """Delete what no version within the grace time needs, and what attempts of yesterday have left."""
        self._require_table()
        self._place.show_all()
        deleted = self._delete_expired(grace_ms)
        abandoned = self._abandoned()
        for path in abandoned:
            self._files.remove(path)
        # Only of attempts that had files of yesterday: one that has just begun has none yet.
        attempts = {"/".join(path.split("/")[:4]) for path in abandoned if path.startswith(f"{STAGING}/")}
        for attempt in sorted(attempts):
            if not self._files.found(attempt):
                self._files.remove_tree(attempt)
        self._log.checkpoint()
        # Whatever becomes of files, a writer that is about to commit must find the versions that came before it.
        commits = self._log.forget_before(self._clock.now_ms() - max(grace_ms, GRACE_MS))
        return Vacuumed(len(deleted) + len(abandoned), sum(one.bytes for one in deleted), commits)

    def _delete_expired(self, grace_ms: int, *, expired_bytes_max: int | None = None) -> list[DataFile]:
        now_ms = self._clock.now_ms()
        files = deletable(self._log.state, now_ms=now_ms, grace_ms=grace_ms, expired_bytes_max=expired_bytes_max)
        for one in files:
            self._files.remove(one.shown)
            self._files.remove(one.place)
        if files:
            paths = tuple(one.path for one in files)
            self._place.commit_always(lambda: Commit(version=0, kind="vacuum", time_ms=now_ms, deleted=paths))
        return files

    def _abandoned(self) -> list[str]:
        """Files that no commit names, of attempts that ended long ago."""
        before_ms = self._clock.now_ms() - ABANDONED_MS
        state = self._log.refresh()
        places = tuple(f"{HOME}/{name}/" for name in (FILES, CHANGES, STAGING.rpartition("/")[2]))
        return [
            one.path
            for one in self._files.found(HOME)
            if one.modified_ms < before_ms
            and (one.path.startswith(places) or one.path.endswith(".tmp"))
            and not state.names(one.path.removeprefix(f"{HOME}/"))
        ]

    def _require_table(self) -> None:
        if not self._log.refresh().exists:
            raise NoTable(self._settings.path, f"there is no table here: {COMMITS} holds no commit")
