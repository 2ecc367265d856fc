"""A Spark with Spark's own Kafka connector, in a process of its own: jars can only be given to a JVM that starts.

`ConnectorSpark` is the tests' side. The other side is this module run as a program: it reads one request per line and
answers each with one line. Both formats are there, `kafka` and `ottla`.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from tests.spark.programs import ROOT, environment

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ANSWER = "ANSWER "
QUERY_SECONDS_MAX = 120
END_SECONDS_MAX = 60


class Row(NamedTuple):
    """A record as Spark gave it; keys and values as text."""

    partition: int
    offset: int
    key: str | None
    value: str | None
    timestamp_ms: int
    headers: list[tuple[str, str]]


class ConnectorFailed(AssertionError):
    """Spark raised; carries its message."""


class ConnectorSpark:
    """What tests ask of that Spark."""

    def __init__(self, jars: str, directory: Path) -> None:
        more = {"PYTHONPATH": f"{ROOT / 'src'}:{ROOT}", "PYSPARK_PYTHON": sys.executable}
        self._log = directory / "spark.log"
        with self._log.open("wb") as log:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "tests.spark.connector_process", jars, str(directory)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                env=environment(more),
                cwd=directory,
                text=True,
            )

    def read(self, options: Mapping[str, str], *, source: str = "kafka") -> list[Row]:
        """A batch read, in order of partition and offset."""
        rows = self._ask(ask="read", source=source, options=options)
        return [Row(*row)._replace(headers=[(key, value) for key, value in row[-1] or []]) for row in rows]

    def write(self, rows: Sequence[tuple[str | None, str]], options: Mapping[str, str], *, sink: str = "kafka") -> None:
        """Write pairs of key and value as a batch."""
        self._ask(ask="write", sink=sink, rows=list(rows), options=options)

    def stream(
        self,
        source_options: Mapping[str, str],
        sink_options: Mapping[str, str],
        checkpoint: Path,
        *,
        source: str = "kafka",
        sink: str = "kafka",
    ) -> None:
        """Copy what is there now from topic to topic as a stream."""
        self._ask(
            ask="stream",
            source=source,
            source_options=source_options,
            sink=sink,
            sink_options=sink_options,
            checkpoint=str(checkpoint),
        )

    def run_pipeline(self, file: Path, bootstrap: str) -> None:
        """Run a pipeline over what is there."""
        self._ask(ask="pipeline", file=str(file), bootstrap=bootstrap)

    def _ask(self, **request: Any) -> Any:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps(request) + "\n")
        self._process.stdin.flush()
        for line in self._process.stdout:
            if line.startswith(ANSWER):
                answer = json.loads(line.removeprefix(ANSWER))
                if "error" in answer:
                    raise ConnectorFailed(answer["error"])
                return answer["result"]
        raise ConnectorFailed(self._log.read_text(encoding="utf-8", errors="replace")[-4000:])

    def end(self) -> None:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.close()
        try:
            self._process.wait(END_SECONDS_MAX)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._process.stdout.close()


def _session(jars: str, directory: str) -> SparkSession:
    from pyspark.sql import SparkSession

    return (
        SparkSession.builder.master("local[2]")
        .config("spark.jars", jars)
        .config("spark.ui.enabled", "false")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.driver.memory", "700m")
        .config("spark.local.dir", f"{directory}/local")
        .config("spark.sql.warehouse.dir", f"{directory}/warehouse")
        .config("spark.sql.shuffle.partitions", "2")
        .getOrCreate()
    )


def _read(spark: SparkSession, request: dict[str, Any]) -> list[list[Any]]:
    options = {"includeHeaders": "true", **request["options"]}
    frame = spark.read.format(request["source"]).options(**options).load()
    chosen = frame.selectExpr(
        "partition",
        "offset",
        "CAST(key AS STRING) AS key",
        "CAST(value AS STRING) AS value",
        "unix_millis(timestamp) AS timestamp_ms",
        "transform(headers, h -> array(h.key, CAST(h.value AS STRING))) AS headers",
    )
    return [list(row) for row in chosen.orderBy("partition", "offset").collect()]


def _write(spark: SparkSession, request: dict[str, Any]) -> None:
    frame = spark.createDataFrame([tuple(row) for row in request["rows"]], "key STRING, value STRING")
    frame.write.format(request["sink"]).options(**request["options"]).mode("append").save()


def _stream(spark: SparkSession, request: dict[str, Any]) -> None:
    frame = spark.readStream.format(request["source"]).options(**request["source_options"]).load()
    query = (
        frame.select("key", "value")
        .writeStream.format(request["sink"])
        .options(**request["sink_options"])
        .option("checkpointLocation", request["checkpoint"])
        .trigger(availableNow=True)
        .start()
    )
    if not query.awaitTermination(QUERY_SECONDS_MAX):
        query.stop()
        raise TimeoutError(f"the query still ran after {QUERY_SECONDS_MAX} s")


def _pipeline(spark: SparkSession, request: dict[str, Any]) -> None:
    from ottla.pipelines.reading import load
    from ottla.pipelines.runner import run

    outcome = run(load(Path(request["file"])), spark=spark, bootstrap=request["bootstrap"], once=True)
    if outcome.error is not None:
        raise RuntimeError(outcome.error)


def _main(jars: str, directory: str) -> None:
    spark = _session(jars, directory)
    spark.sparkContext.setLogLevel("ERROR")
    answers = {"read": _read, "write": _write, "stream": _stream, "pipeline": _pipeline}
    for line in sys.stdin:
        request = json.loads(line)
        try:
            answer: dict[str, Any] = {"result": answers[request["ask"]](spark, request)}
        except Exception as error:
            answer = {"error": f"{type(error).__name__}: {error}"}
        print(ANSWER + json.dumps(answer), flush=True)
    spark.stop()


if __name__ == "__main__":
    _main(*sys.argv[1:])
