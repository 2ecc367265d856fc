"""Small documents beside the data, in a directory on this machine or wherever Spark can write.

Knows paths and bytes. A document on a local disk is replaced as a whole and is there after a crash; elsewhere that is
as good as the file system.
"""

from __future__ import annotations

import os
import re
import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from ottla.pipelines.transfer.errors import TransferRefused
from ottla.storage.disk import OsDisk

if TYPE_CHECKING:
    from pyspark.sql import SparkSession as SparkSession

_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:/")
_LOCAL = "file:"


class Directory(Protocol):
    """A directory for data of Spark's, and documents of ours."""

    @property
    def url(self) -> str:
        """What Spark is told."""
        ...

    def read(self, name: str) -> bytes | None:
        """A document; None: there is none."""
        ...

    def write(self, name: str, document: bytes) -> None:
        """Make or replace a document."""
        ...

    def remove(self, name: str) -> None:
        """Remove a document, if it is there."""
        ...

    def remove_all(self, name: str) -> None:
        """Remove a directory below, with all that is in it, if it is there."""
        ...

    def is_empty(self) -> bool:
        """Whether there is nothing in it, or no such directory."""
        ...


class LocalDirectory:
    """A directory of this machine."""

    def __init__(self, path: Path) -> None:
        self._path = path.absolute()

    def __str__(self) -> str:
        return str(self._path)

    @property
    def url(self) -> str:
        # With its scheme: a Spark of a cluster would look elsewhere.
        return f"file://{self._path}"

    def read(self, name: str) -> bytes | None:
        try:
            return (self._path / name).read_bytes()
        except FileNotFoundError:
            return None

    def write(self, name: str, document: bytes) -> None:
        self._path.mkdir(parents=True, exist_ok=True)
        draft = self._path / f"{name}.new"
        with draft.open("wb") as file:
            file.write(document)
            file.flush()
            os.fsync(file.fileno())
        draft.replace(self._path / name)
        # Or a power loss brings back the document before, which says that less is done than is.
        OsDisk().sync_directory(str(self._path))

    def remove(self, name: str) -> None:
        (self._path / name).unlink(missing_ok=True)

    def remove_all(self, name: str) -> None:
        shutil.rmtree(self._path / name, ignore_errors=True)

    def is_empty(self) -> bool:
        return not self._path.is_dir() or next(self._path.iterdir(), None) is None


class HadoopDirectory:
    """A directory that Spark's own Java reaches: hdfs, s3a, ..."""

    def __init__(self, url: str, spark: SparkSession) -> None:
        self._url = url.rstrip("/")
        jvm: Any = getattr(spark, "_jvm", None)
        if jvm is None:
            raise TransferRefused(
                f"{url}: through Spark Connect only directories of this machine can be used. Use --master"
            )
        self._jvm = jvm
        configuration = spark._jsparkSession.sessionState().newHadoopConf()
        self._files = self._path("").getFileSystem(configuration)

    def __str__(self) -> str:
        return self._url

    def _path(self, name: str) -> Any:
        return self._jvm.org.apache.hadoop.fs.Path(f"{self._url}/{name}" if name else self._url)

    @property
    def url(self) -> str:
        return self._url

    def read(self, name: str) -> bytes | None:
        path = self._path(name)
        if not self._files.exists(path):
            return None
        stream = self._files.open(path)
        try:
            return bytes(stream.readAllBytes())
        finally:
            stream.close()

    def write(self, name: str, document: bytes) -> None:
        stream = self._files.create(self._path(name), True)
        stream.write(bytearray(document))
        stream.close()

    def remove(self, name: str) -> None:
        self._files.delete(self._path(name), False)

    def remove_all(self, name: str) -> None:
        self._files.delete(self._path(name), True)

    def is_empty(self) -> bool:
        path = self._path("")
        return not self._files.exists(path) or not len(self._files.listStatus(path))


def directory(place: str, spark: SparkSession) -> Directory:
    """A path of this machine, or the URL of some other file system."""
    if place.startswith(_LOCAL):
        return LocalDirectory(Path("/" + place.removeprefix(_LOCAL).lstrip("/")))
    return HadoopDirectory(place, spark) if _SCHEME.match(place) else LocalDirectory(Path(place))


def literal(url: str) -> str:
    """A path as Spark reads it whatever is in it: it takes brackets and stars for a pattern, but only in reading."""
    return "".join(f"\\{letter}" if letter in "*?[]{}\\" else letter for letter in url)
