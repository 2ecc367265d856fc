"""What the queries of a pipeline were when it was started before: a file beside their checkpoints.

Checkpoints may lie wherever Spark can write, so that Spark's own file systems are asked. Knows the file's format and
nothing of how outputs come to share a query.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

import msgspec

from ottla.errors import OttlaError
from ottla.pipelines.sharing import Remembered

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

FILE = "queries.json"


class QueriesUnreadable(OttlaError):
    """The file cannot be read; the message says which, and what to do."""


class _Query(msgspec.Struct, forbid_unknown_fields=True, omit_defaults=True):
    outputs: list[str]
    source: str | None = None


class _File(msgspec.Struct, forbid_unknown_fields=True):
    version: int
    queries: dict[str, _Query]


class RememberedQueries:
    """The file of one pipeline."""

    def __init__(self, spark: SparkSession, checkpoints: str) -> None:
        java: Any = spark.sparkContext._jvm
        self._java = java
        self._configuration = spark.sparkContext._jsc.hadoopConfiguration()
        self._directory = java.org.apache.hadoop.fs.Path(checkpoints)
        self._path = java.org.apache.hadoop.fs.Path(self._directory, FILE)
        self._files = self._path.getFileSystem(self._configuration)

    def read(self, outputs: Iterable[str]) -> dict[str, Remembered]:
        """What is remembered. Of these outputs, those with checkpoints from before there was a file stay alone."""
        if self._files.exists(self._path):
            return self._decoded()
        path = self._java.org.apache.hadoop.fs.Path
        return {name: Remembered((name,)) for name in outputs if self._files.exists(path(self._directory, name))}

    def write(self, queries: Mapping[str, Remembered]) -> None:
        """Keep it, whole or not at all."""
        told = _File(1, {name: _Query(list(query.outputs), query.source) for name, query in queries.items()})
        text = msgspec.json.format(msgspec.json.encode(told), indent=2)
        fs = self._java.org.apache.hadoop.fs
        unfinished = fs.Path(self._directory, f".{FILE}.new")
        out = self._files.create(unfinished, True)
        try:
            out.write(bytearray(text))
            out.hsync()
        finally:
            out.close()
        # On a local disk there is a checksum beside each file, which is renamed after it. The old one with the new file
        # would be taken for damage; a file without one is taken as it is.
        self._files.delete(fs.Path(self._directory, f".{FILE}.crc"), False)
        context = fs.FileContext.getFileContext(self._path.toUri(), self._configuration)
        overwriting = self._java.java.lang.reflect.Array.newInstance(
            self._java.java.lang.Class.forName("org.apache.hadoop.fs.Options$Rename"), 1
        )
        overwriting[0] = getattr(fs, "Options$Rename").OVERWRITE
        context.rename(self._files.makeQualified(unfinished), self._files.makeQualified(self._path), overwriting)

    def _decoded(self) -> dict[str, Remembered]:
        from py4j.protocol import Py4JJavaError  # type: ignore[import-untyped]

        try:
            stream = self._files.open(self._path)
            try:
                text = bytes(stream.readAllBytes())
            finally:
                stream.close()
        except Py4JJavaError as error:
            raise _unreadable(self._path.toString(), str(error.java_exception.getMessage())) from error
        return remembered_in(text, path=self._path.toString())


def remembered_in(text: bytes | str, *, path: str) -> dict[str, Remembered]:
    """What a file says that has this text; QueriesUnreadable names its path."""
    try:
        found = msgspec.json.decode(text, type=_File)
    except msgspec.DecodeError as error:
        raise _unreadable(path, str(error)) from error
    return {name: Remembered(tuple(query.outputs), query.source) for name, query in found.queries.items()}


def _unreadable(path: str, reason: str) -> QueriesUnreadable:
    return QueriesUnreadable(
        f"{path} does not say which outputs share a query: {reason}. Restore the file, "
        f"or remove the pipeline's checkpoints to begin anew"
    )
