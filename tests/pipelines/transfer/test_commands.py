"""`ottla export`, `import` and `repartition`, as programs; one of them is killed half-way."""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from collections import Counter
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer
from typer.testing import CliRunner

from ottla.cli import repartition, transfer
from ottla.cli.failures import FAILED, MISUSED
from ottla.cli.main import Commands
from ottla.client.values import NewRecord
from ottla.pipelines.transfer.documents import LocalDirectory
from ottla.pipelines.transfer.sessions import reason
from tests.clients.server_process import ROOT
from tests.clients.transactions.kill_producer import pause
from tests.pipelines.transfer.moves import content, export, fill, placed
from tests.spark.brokers import Broker
from tests.spark.kills.driver_process import DriverProcess
from tests.spark.programs import environment

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

PROGRAM_SECONDS_MAX = 600
LOOK_SECONDS = 0.05
app = typer.Typer(cls=Commands, rich_markup_mode=None, pretty_exceptions_enable=False)
app.command("export")(transfer.export)
app.command("import")(transfer.import_)
app.command("repartition")(repartition.repartition)

PROGRAM = "from tests.pipelines.transfer.test_commands import app; app()"


def told(broker: Broker, *words: str) -> dict[str, Any]:
    """What a command that ends well says, in this process and its Spark."""
    done = CliRunner().invoke(app, [*words, "--json", "--bootstrap", broker.bootstrap])
    assert done.exit_code == 0, (done.output, done.exception)
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def refused(broker: Broker, *words: str) -> tuple[int, str]:
    """How a command that cannot be done ends, and what it says."""
    done = CliRunner().invoke(app, [*words, "--bootstrap", broker.bootstrap])
    return done.exit_code, done.stderr


def test_a_topic_goes_through_all_three_commands(
    spark: SparkSession, ottla_broker_process: Broker, tmp_path: Path
) -> None:
    broker = ottla_broker_process
    topic, place = fill(broker), str(tmp_path / "files")
    records = broker.records(topic)
    broker.client.admin().alter_group_offsets(f"of {topic}", {(topic, 0): broker.ends(topic)[0]})
    made = told(broker, "export", topic, place)
    assert (made["records"], made["topic"]) == (len(records), topic)
    assert refused(broker, "export", topic, place)[0] == MISUSED
    assert refused(broker, "import", place, f"{topic}-back") == (
        FAILED,
        f"ottla: there is no topic '{topic}-back'; --create makes it\n",
    )
    done = told(broker, "import", place, f"{topic}-back", "--create")
    assert (done["records"], done["records_before"]) == (len(records), 0)
    assert list(map(placed, broker.records(f"{topic}-back"))) == list(map(placed, records))
    assert broker.client.admin().describe_configs(topic=f"{topic}-back")["retention.ms"].value == "604800000"
    words = ("repartition", topic, f"{topic}-4", "--partitions", "4", "--map", str(tmp_path / "map"), "--groups")
    copied = told(broker, *words)
    assert (copied["records"], copied["lag"]) == (len(records), 0)
    assert [move["group"] for move in copied["groups"]] == [f"of {topic}"]
    assert Counter(map(content, broker.records(f"{topic}-4"))) == Counter(map(content, records))


def test_an_empty_topic_is_exported_and_imported_too(
    spark: SparkSession, ottla_broker_process: Broker, tmp_path: Path
) -> None:
    broker = ottla_broker_process
    topic, place = broker.topic(2), str(tmp_path / "files")
    assert told(broker, "export", topic, place)["records"] == 0
    assert told(broker, "import", place, f"{topic}-back", "--create")["records"] == 0
    assert broker.client.admin().partition_count(f"{topic}-back") == 2
    assert told(broker, "repartition", topic, f"{topic}-4", "--partitions", "4", "--map", str(tmp_path / "map")) == {
        "topic": topic,
        "new_topic": f"{topic}-4",
        "records": 0,
        "lag": 0,
        "map": str(tmp_path / "map"),
        "groups": [],
    }


def started(directory: Path, *words: str) -> DriverProcess:
    path = {"PYTHONPATH": os.pathsep.join([str(ROOT / "src"), str(ROOT)])}
    number = len(list(directory.glob("*.log")))
    command = [sys.executable, "-c", PROGRAM, *words, "--json", "--master", "local[2]"]
    return DriverProcess(command, log=directory / f"{number}.log", environment=environment(path), cwd=directory)


def test_an_import_that_is_killed_and_started_again_writes_every_record_once(
    spark: SparkSession, ottla_broker_process: Broker, tmp_path: Path
) -> None:
    broker = ottla_broker_process
    topic, files = fill(broker), tmp_path / "files"
    back, records = f"{topic}-back", broker.records(topic)
    export(spark, broker, topic, LocalDirectory(files))
    program = started(tmp_path, "import", str(files), back, "--create", "--bootstrap", broker.bootstrap)
    deadline = time.monotonic() + PROGRAM_SECONDS_MAX
    try:
        while broker.client.admin().partition_count(back) is None or not sum(broker.ends(back).values()):
            assert program.is_alive, program.said
            assert time.monotonic() < deadline, program.said
            pause(LOOK_SECONDS)
    finally:
        program.kill()
    assert sum(broker.ends(back).values()) < len(records)
    done = told(broker, "import", str(files), back, "--create")
    assert done["records"] + done["records_before"] == len(records)
    assert list(map(placed, broker.records(back))) == list(map(placed, records))


def _await(program: DriverProcess, holds: Callable[[], bool]) -> None:
    deadline = time.monotonic() + PROGRAM_SECONDS_MAX
    while not holds():
        assert time.monotonic() < deadline, program.said
        pause(LOOK_SECONDS)


def test_a_copy_follows_those_who_write_until_it_is_interrupted(
    spark_java: Path, ottla_broker_process: Broker, tmp_path: Path
) -> None:
    broker = ottla_broker_process
    admin, old = broker.client.admin(), broker.topic(2)
    new = f"{old}-3"
    words = ("repartition", old, new, "--partitions", "3", "--map", "map", "--follow", "--bootstrap", broker.bootstrap)
    program = started(tmp_path, *words)

    def has_copied(count: int) -> bool:
        assert program.is_alive, program.said
        return admin.partition_count(new) is not None and len(broker.records(new)) >= count

    try:
        for count in (100, 200):
            broker.produce(old, [NewRecord(b"%d" % n, b"key-%d" % (n % 7)) for n in range(count - 100, count)])
            _await(program, partial(has_copied, count))
        program._process.send_signal(signal.SIGINT)
        _await(program, lambda: not program.is_alive)
    finally:
        program.kill()

    assert program.exit_code == 0, program.said
    # Spark's own workers may have something to say behind it.
    summary, _ = json.JSONDecoder().raw_decode(program.said, program.said.rindex("{"))
    assert summary["records"] == 200
    copied = broker.records(new)
    for key in {record.key for record in copied}:
        numbers = [int(record.value or b"") for record in copied if record.key == key]
        assert numbers == sorted(numbers)
    assert len(copied) == 200


def test_of_a_long_report_the_line_that_says_why_is_told() -> None:
    report = (
        "An error occurred while calling o59.save.\n: org.apache.spark.SparkException: ...\n"
        "Traceback (most recent call last):\n\nottla.spark.errors.InvalidOption: deliveryGuarantee: no. Fix it.\n\n"
        "\tat java.base\n"
    )
    assert reason(report) == "deliveryGuarantee: no. Fix it"


def test_of_a_report_of_sparks_own_the_first_line_is_told() -> None:
    assert reason("[PATH_NOT_FOUND] no such path.\n  at scala\n") == "[PATH_NOT_FOUND] no such path"


def test_of_a_report_from_java_the_name_of_its_error_is_told() -> None:
    report = "An error occurred while calling None.x.\n: java.net.BindException: in use\n\tat x\n"
    assert reason(report) == "java.net.BindException: in use"
