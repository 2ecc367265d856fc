"""A Spark for one transfer, and what becomes of its reports: hundreds of lines of Java, of which one says why."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING

from ottla.pipelines.transfer.errors import TransferFailed
from ottla.spark import session

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SETTINGS = {
    "spark.ui.enabled": "false",
    # As other readers of Parquet expect it; Spark's own default is a format that has been given up.
    "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",
}
OF_SPARK = ("pyspark.", "py4j.")
CALLING = "An error occurred while calling"
_OURS = re.compile(r"^(?:[\w.]*: )?ottla\.[\w.]+: (.+)$", re.MULTILINE)


@contextmanager
def transferring(*, master: str | None, remote: str | None, config: Mapping[str, str]) -> Iterator[SparkSession]:
    """The session of this program, or one that ends with the transfer."""
    from pyspark.sql import SparkSession

    is_guest = SparkSession.getActiveSession() is not None
    spark: SparkSession | None = None
    try:
        spark = session("ottla", master=master, remote=remote, config={**({} if is_guest else SETTINGS), **config})
        yield spark
    except Exception as e:
        if not type(e).__module__.startswith(OF_SPARK):
            raise
        raise TransferFailed(
            f"Spark gave up: {reason(str(e))}. What was done counts: run the same command again to go on"
        ) from e
    finally:
        if spark is not None and not is_guest:
            spark.stop()


def reason(report: str) -> str:
    """The line of a report of Spark's that says why: the last that an error of ours wrote, else the first."""
    ours = _OURS.findall(report)
    lines = [line.strip().lstrip(": ") for line in report.splitlines() if line.strip()]
    # Of what was called nobody knows anything but its number.
    told = [line for line in lines if not line.startswith(CALLING)] or lines
    return (ours[-1] if ours else told[0] if told else "it does not say why").rstrip(".")
