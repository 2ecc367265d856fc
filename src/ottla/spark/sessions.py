"""A Spark session that is set up for streams of records: the Python of the workers, small batches, little noise.

    from ottla.spark import session

    spark = session()                                       # this machine, all its cores
    spark = session(master="spark://host:7077")             # a cluster
    spark = session(remote="sc://host:15002")               # Spark Connect

Only what makes a local Spark work or makes its small batches quick is set, and only for a local Spark (a cluster is
told which Python, where its own choice would be another one); what you give as `config` comes last. Knows no topic and
no broker: the source and the sink work in any other session as well.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import warnings
from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

from ottla.spark.errors import OttlaSparkError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

JAVA_VERSION_MIN = 17
JAVA_ANSWER_SECONDS_MAX = 60
LOCAL_MASTER = "local[*]"
WORKER_PYTHON = "PYSPARK_PYTHON"
SHUFFLE_PARTITIONS = "spark.sql.shuffle.partitions"

LOCAL_SETTINGS = {
    # Workers run on this machine and nobody else has to reach the driver; the name of a laptop often leads nowhere.
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.host": "127.0.0.1",
    # Over TCP each Python task waits forty milliseconds for an acknowledgement that is put off.
    "spark.python.unix.domain.socket.enabled": "true",
    # Two files are written for each micro-batch; this way of writing them takes a third off a small batch.
    "spark.sql.streaming.checkpointFileManagerClass": (
        "org.apache.spark.sql.execution.streaming.checkpointing.FileSystemBasedCheckpointFileManager"
    ),
    # Pandas frames come and go by column instead of row by row.
    "spark.sql.execution.arrow.pyspark.enabled": "true",
    # A stream would draw a bar for each of its batches.
    "spark.ui.showConsoleProgress": "false",
    "spark.log.level": "ERROR",
}
"""What a local session gets unless `config` says otherwise."""


class SparkMissing(OttlaSparkError):
    """Something that Spark cannot do without is not on this machine; the message says how to get it."""


def session(
    app: str = "ottla",
    *,
    master: str | None = None,
    remote: str | None = None,
    config: Mapping[str, object] | None = None,
) -> SparkSession:
    """The session of this program: the one that it has already, or a new one.

    Without `master` and `remote` it runs on this machine with all its cores, unless the program was started by
    `spark-submit`, by a notebook that has a session, or with SPARK_REMOTE set: then it runs where those say.
    """
    if master is not None and remote is not None:
        raise OttlaSparkError("session: give a master or a remote, not both")
    if find_spec("pyspark") is None:
        raise SparkMissing("pyspark is not installed: pip install 'ottla[spark]'")
    from pyspark.sql import SparkSession

    if master is None and remote is None and not _is_placed(os.environ):
        master = LOCAL_MASTER
    given = {name: _text(value) for name, value in (config or {}).items()}
    settings = local_settings(given) if is_local(master or remote) else given
    if is_local(master or remote) and not _has_session():
        check_java(os.environ)
        # Spark takes the first python3 of the PATH for its workers, and that one often lacks what this one has.
        os.environ.setdefault(WORKER_PYTHON, sys.executable)
        # Before its settings count, Spark looks for an address of its own, and warns of what it finds.
        os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    elif master is not None and not _has_session() and needs_python_named(os.environ, sys.executable):
        os.environ[WORKER_PYTHON] = sys.executable
    builder = SparkSession.builder.appName(app)
    if master is not None:
        builder = builder.master(master)
    if remote is not None:
        builder = builder.remote(remote)
    for name, value in settings.items():
        builder = builder.config(name, value)
    with warnings.catch_warnings():
        # A local Spark Connect is started with all of them, and then told once more, where some come too late.
        warnings.filterwarnings("ignore", message=r"\[?Failed to set spark\.", category=UserWarning)
        made = builder.getOrCreate()
    if is_local(master or remote) and SHUFFLE_PARTITIONS not in given:
        # The default of 200 is for clusters: a stream that groups would start 200 tasks for each small batch.
        made.conf.set(SHUFFLE_PARTITIONS, str(core_count(master or remote or "", cores=os.cpu_count() or 1)))
    return made


def local_settings(given: Mapping[str, str]) -> dict[str, str]:
    """The settings of a local session: ours, and what the user gave, which counts for more."""
    return {**LOCAL_SETTINGS, **given}


def is_local(place: str | None) -> bool:
    """Whether a master or a remote means this process's own machine: `local`, `local[4]`, `local[*]`, `local[2,3]`."""
    return place is not None and re.match(r"local(\[|$)", place) is not None


def needs_python_named(environment: Mapping[str, str], executable: str) -> bool:
    """Whether a cluster's driver would look for our source in another Python than this one.

    It takes `python3` of its PATH, and so do the workers on their machines. Where that is this very Python nothing is
    named, since on the workers it may be elsewhere; otherwise they are expected to have it in the same place.
    """
    if WORKER_PYTHON in environment or "PYSPARK_DRIVER_PYTHON" in environment:
        return False
    found = shutil.which("python3", path=environment.get("PATH"))
    return found is None or Path(found).parent != Path(executable).parent


def core_count(place: str, *, cores: int) -> int:
    """How many tasks a local master runs at once, on a machine with so many cores."""
    found = re.match(r"local\[(\d+)", place)
    if found:
        return max(1, int(found.group(1)))
    return cores if place.startswith("local[*") else 1


def check_java(environment: Mapping[str, str]) -> None:
    """Raise unless the Java that Spark's own scripts would start is there and new enough."""
    home = environment.get("JAVA_HOME")
    wanted = str(Path(home, "bin", "java")) if home else "java"
    found = shutil.which(wanted, path=environment.get("PATH"))
    if found is None:
        where = f"JAVA_HOME is {home}, and it holds no bin/java" if home else "there is no java on the PATH"
        raise SparkMissing(f"Spark needs Java {JAVA_VERSION_MIN} or newer, and {where}. {_HOW_TO_GET_JAVA}")
    version = _java_version(found)
    if version is not None and version < JAVA_VERSION_MIN:
        raise SparkMissing(
            f"Spark needs Java {JAVA_VERSION_MIN} or newer, and {found} is Java {version}. {_HOW_TO_GET_JAVA}"
        )


_HOW_TO_GET_JAVA = (
    "Install it (Debian and Ubuntu: apt install openjdk-17-jre-headless; macOS: brew install openjdk@17; "
    "conda: conda install openjdk=17), or set JAVA_HOME to where it is"
)


def _java_version(binary: str) -> int | None:
    """The major version, or None where it does not say: then Spark is left to find out."""
    try:
        answer = subprocess.run(
            [binary, "-version"], capture_output=True, text=True, timeout=JAVA_ANSWER_SECONDS_MAX, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    # Java 8 called itself 1.8.
    found = re.search(r'version "(?:1\.)?(\d+)', answer.stderr + answer.stdout)
    return int(found.group(1)) if found else None


def _is_placed(environment: Mapping[str, str]) -> bool:
    """Whether something outside this program has said where Spark runs."""
    outside = ("PYSPARK_GATEWAY_PORT", "SPARK_REMOTE", "SPARK_CONNECT_MODE_ENABLED")
    return _has_session() or any(name in environment for name in outside)


def _has_session() -> bool:
    from pyspark.sql import SparkSession

    return SparkSession.getActiveSession() is not None


def _text(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
