"""Sparks that start quickly, for tests: most of theirs live for seconds, and starting takes longer than what they do.

Two things make a JVM of Spark's quick. It compiles little, as a short life is over before compiling well has paid. And
it has an archive of classes. Both together halve the processor time of a short program.

Knows nothing of the tests. They run with SPARK_SUBMIT_OPTS set, which Spark's own scripts look at.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping
from importlib.util import find_spec
from pathlib import Path

from tests.peers import class_archive
from tests.peers.maven import CACHE

VARIABLE = "SPARK_SUBMIT_OPTS"
TRAINING_SECONDS_MAX = 600
ROOT = Path(__file__).resolve().parents[2]
_ANNOUNCEMENT = "Noting which classes Spark needs, so that it starts quickly, once; this takes a minute."
_SMALL = ("-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC")


def options(archive: Path | None) -> str:
    """What a JVM of Spark's is given, with an archive of classes if there is one."""
    return " ".join([*_SMALL, *class_archive.options(archive)])


def archive(environment: Mapping[str, str], *, cache: Path = CACHE) -> Path | None:
    """Where the archive is or would be; None without a Java or a Spark, or where it could not be named."""
    home, spark = environment.get("JAVA_HOME"), find_spec("pyspark")
    java = shutil.which(str(Path(home, "bin", "java")) if home else "java", path=environment.get("PATH"))
    if java is None or spark is None or spark.origin is None:
        return None
    found = class_archive.place("spark", java=Path(java), jars=Path(spark.origin).with_name("jars"), cache=cache)
    # Spark takes the options apart at blanks.
    return None if any(character.isspace() for character in str(found)) else found


def bring(say: Callable[[str], None]) -> None:
    """Make the archive if it is not there; where that fails, the tests do without."""
    wanted = archive(os.environ)
    if wanted is None or wanted.is_file():
        return
    say(_ANNOUNCEMENT)
    class_archive.bring(wanted, _train)


def _train(options_of_archive: list[str]) -> None:
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("PYSPARK", "SPARK"))}
    environment[VARIABLE] = " ".join([*_SMALL, *options_of_archive])
    environment["PYTHONPATH"] = os.pathsep.join([str(ROOT / "src"), str(ROOT)])
    with tempfile.TemporaryDirectory() as scratch:
        # Java writes when it ends, after the program that has started it: it is done when nobody holds the output any
        # more, and that is what is waited for.
        subprocess.run(
            [sys.executable, "-m", "tests.peers.spark_training", scratch],
            cwd=scratch,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            timeout=TRAINING_SECONDS_MAX,
            check=False,
        )
