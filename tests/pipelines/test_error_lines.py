"""The line that matters in errors as Spark really tells them."""

from __future__ import annotations

import pytest

from ottla.pipelines.error_lines import LINE_LENGTH_MAX, line_that_matters

STATE = """
=== Streaming Query ===
Identifier: [id = 53298d6a, runId = c1842905]
Current Available Offsets: {RateStreamV2: 1}

Logical Plan:
+- ~Project [raise_error(USER_RAISED_EXCEPTION, map(errorMessage, other))]
"""

IN_FOREACH_BATCH = """An exception was raised by the Python Proxy. Return Message: Traceback (most recent call last):
  File "py4j/clientserver.py", line 644, in _call_proxy
    return_value = getattr(self.pool[obj_id], method)(*params)
                   ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^
  File "steps.py", line 14, in bad
    raise ValueError("the till is\\nempty")
ValueError: the till is
empty
"""
IN_A_FUNCTION = """[PYTHON_EXCEPTION] An exception was thrown from the Python worker: Traceback (most recent call last):
  File "steps.py", line 18, in boom
    def boom(x): raise KeyError("no such thing")
                 ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^
KeyError: 'no such thing'
 SQLSTATE: 38000"""
IN_THE_SOURCE = """[PYTHON_STREAMING_DATA_SOURCE_RUNTIME_ERROR] Failed when Python streaming data source perform \
initialOffset: Traceback (most recent call last):
  File "pyspark/sql/streaming/python_streaming_source_runner.py", line 267, in main
  File "ottla/spark/stream_reader.py", line 105, in initialOffset
    start = self._progress.initial()
            ^^^^^^^^^^^^^^^^^^^^^^^^
ottla.client.errors.NoBrokerReachable: no broker can be reached; tried: 127.0.0.1:1: [Errno 111] Connection refused
 SQLSTATE: 38000"""
RAISED_FROM_ANOTHER = """Traceback (most recent call last):
  File "a.py", line 1, in f
KeyError: 1

The above exception was the direct cause of the following exception:

Traceback (most recent call last):
  File "a.py", line 2, in g
ottla.pipelines.tables.errors.TableBroken: the log has a gap
"""
OF_JAVA = """org.apache.spark.SparkException: Job aborted due to stage failure: Task 0 failed 1 times
\tat org.apache.spark.scheduler.DAGScheduler.abortStage(DAGScheduler.scala:1)
Caused by: java.lang.RuntimeException: outer
\tat a.b.C.d(C.java:1)
Caused by: java.io.FileNotFoundException: /data/x.parquet (No such file)
\t... 26 more"""
SPARKS_ERROR_IN_PYTHON = """An exception was raised. Return Message: Traceback (most recent call last):
  File "pyspark/sql/utils.py", line 163, in call
    self.func(DataFrame(jdf, wrapped_session_jdf), batch_id)
pyspark.errors.exceptions.captured.AnalysisException: [PATH_NOT_FOUND] Path does not exist: file:/gone. SQLSTATE: 42K03
"""


@pytest.mark.parametrize(
    ("text", "line"),
    [
        (IN_FOREACH_BATCH, "ValueError: the till is empty"),
        (IN_A_FUNCTION, "KeyError: 'no such thing'"),
        (
            IN_THE_SOURCE,
            "NoBrokerReachable: no broker can be reached; tried: 127.0.0.1:1: [Errno 111] Connection refused",
        ),
        (RAISED_FROM_ANOTHER, "TableBroken: the log has a gap"),
        (OF_JAVA, "FileNotFoundException: /data/x.parquet (No such file)"),
        (SPARKS_ERROR_IN_PYTHON, "[PATH_NOT_FOUND] Path does not exist: file:/gone."),
        ("[USER_RAISED_EXCEPTION] rule positive: amount > 0 SQLSTATE: P0001", "rule positive: amount > 0"),
        (
            "[STREAM_FAILED] Query [id = 5, runId = c] terminated with exception: [DIVIDE_BY_ZERO] Division by zero. "
            "SQLSTATE: 22012 SQLSTATE: XXKST",
            "[DIVIDE_BY_ZERO] Division by zero.",
        ),
        ("Python worker failed to connect back.", "Python worker failed to connect back."),
    ],
)
def test_the_line_that_matters_is_found(text: str, line: str) -> None:
    assert line_that_matters(text + STATE) == line


def test_an_error_without_a_text_is_named() -> None:
    assert line_that_matters(KeyboardInterrupt()) == "KeyboardInterrupt"


def test_a_line_is_never_too_long_to_be_read() -> None:
    assert len(line_that_matters("x" * 10_000)) == LINE_LENGTH_MAX
