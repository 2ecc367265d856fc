"""`ottla pipeline`: what can be said without Spark. `test_runner` runs pipelines."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.errors import IllegalArgumentException
from typer.testing import CliRunner, Result

import ottla
from ottla.cli.failures import CommandFailed
from ottla.cli.main import app
from ottla.cli.pipeline import problems_told
from ottla.pipelines.progress import PROGRESS_TOPIC, QueryProgress, RunProgress, State
from ottla.pipelines.progress_topics import make_topics, record_of
from ottla.testing.server_thread import ServerThread

TEXT = """
pipeline: shop
sources:
  orders: {topic: orders, format: json, schema: "id BIGINT, amount DOUBLE"}
steps:
  big: SELECT * FROM orders WHERE amount > 10
sinks:
  copy: {from: big, topic: big}
"""


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerThread]:
    made = ServerThread(str(tmp_path_factory.mktemp("server")), None)
    made.start()
    yield made
    made.stop()


@pytest.fixture
def file(tmp_path: Path, request: pytest.FixtureRequest) -> Path:
    """A pipeline whose name no other test has."""
    made = tmp_path / "shop.yaml"
    made.write_text(TEXT.replace("shop", request.node.name[:100]))
    return made


def invoke(*words: str | Path) -> Result:
    return CliRunner().invoke(app, ["pipeline", *map(str, words)])


def tell(server: ServerThread, name: str, state: State, error: str | None = None) -> None:
    run = RunProgress(pipeline=name, run="r1", state=state, at="then", place="host/1", process=5, queries=("copy",))
    query = QueryProgress(pipeline=name, query="copy", run="r1", state=state, at="then", batch_id=3, error=error)
    with ottla.connect(server.bootstrap) as client, client.producer() as producer:
        make_topics(client)
        producer.send_batch(PROGRESS_TOPIC, [record_of(query), record_of(run)])


def test_what_spark_raises_is_told_in_one_line() -> None:
    with pytest.raises(CommandFailed) as caught, problems_told():
        raise IllegalArgumentException("[INVALID_CONF_VALUE.X] The value 'many' is invalid. SQLSTATE: 22022\n\tat java")

    assert str(caught.value) == "[INVALID_CONF_VALUE.X] The value 'many' is invalid."


# --- check and plan -----------------------------------------------------------------------------------


def test_a_file_without_mistakes_is_fine(file: Path) -> None:
    result = invoke("check", file, "--quick")

    assert (result.exit_code, result.stdout) == (0, f"{file}: fine\n")


def test_every_mistake_of_a_file_is_told_with_its_line(file: Path) -> None:
    file.write_text(file.read_text().replace("from: big, topic", "form: big, topik"))
    result = invoke("check", file, "--quick")

    assert result.exit_code == 2
    assert len(result.stderr.splitlines()) > 1
    assert all(line.startswith(f"ottla: {file}:8: ") for line in result.stderr.splitlines())


def test_a_file_that_is_not_there_is_told(tmp_path: Path) -> None:
    result = invoke("check", tmp_path / "none.yaml", "--quick")

    assert result.exit_code == 2
    assert "there is no such file" in result.stderr


def test_a_step_that_nobody_uses_is_a_warning(file: Path) -> None:
    file.write_text(file.read_text().replace("sinks:", "  idle: SELECT * FROM orders\nsinks:"))
    result = invoke("check", file, "--quick")

    assert result.exit_code == 0
    assert result.stderr.startswith(f"ottla: warning: {file}:7: ")


def test_a_master_and_a_remote_are_not_for_one_run(file: Path) -> None:
    result = invoke("check", file, "--master", "local[1]", "--remote", "sc://host")

    assert (result.exit_code, result.stderr) == (2, "ottla: give --master or --remote, not both\n")


def test_the_plan_names_what_is_read_and_what_is_written(file: Path) -> None:
    result = invoke("plan", file)

    assert result.exit_code == 0
    assert "orders" in result.stdout
    assert "copy" in result.stdout


def test_the_plan_is_drawn_into_a_file(file: Path, tmp_path: Path) -> None:
    result = invoke("plan", file, "--svg", tmp_path / "shop.svg")

    assert result.exit_code == 0
    assert (tmp_path / "shop.svg").read_text().startswith("<svg")


def test_a_drawing_that_cannot_be_written_is_told(file: Path, tmp_path: Path) -> None:
    result = invoke("plan", file, "--svg", tmp_path / "none" / "shop.svg")

    assert result.exit_code == 1
    assert "No such file or directory" in result.stderr


# --- run ----------------------------------------------------------------------------------------------


def test_a_run_whose_topics_are_missing_names_them_before_spark_starts(file: Path, server: ServerThread) -> None:
    result = invoke("run", file, "--bootstrap", server.bootstrap)

    assert result.exit_code == 2
    assert f"ottla: {file}:4: there is no topic `orders`" in result.stderr
    assert f"ottla: {file}:8: there is no topic `big`" in result.stderr


def test_a_run_without_a_broker_says_so(file: Path) -> None:
    result = invoke("run", file, "--bootstrap", "127.0.0.1:1")

    assert result.exit_code == 1
    assert "is the server running?" in result.stderr


# --- status and stop ----------------------------------------------------------------------------------


def test_the_status_of_a_pipeline_that_never_ran(file: Path, server: ServerThread) -> None:
    result = invoke("status", file, "--bootstrap", server.bootstrap)

    assert result.exit_code == 1
    assert "it has not run against this server" in result.stderr


def test_the_status_shows_the_run_and_its_queries(file: Path, server: ServerThread) -> None:
    tell(server, name := _name(file), "running", error="ValueError: no")
    result = invoke("status", file, "--bootstrap", server.bootstrap)
    rows = [line.split("\t") for line in result.stdout.splitlines()]

    assert result.exit_code == 0
    assert rows[1][:2] == [name, "running"]
    assert rows[3][:2] == ["copy", "running"]
    assert rows[3][-1] == "ValueError: no"


def test_the_status_as_json(file: Path, server: ServerThread) -> None:
    tell(server, _name(file), "stopped")
    found = json.loads(invoke("status", file, "--json", "--bootstrap", server.bootstrap).stdout)

    assert (found["state"], found["run"]) == ("stopped", "r1")
    assert [(query["query"], query["batch_id"]) for query in found["queries"]] == [("copy", 3)]


def test_the_address_comes_from_the_file_where_nobody_says_another(file: Path, server: ServerThread) -> None:
    file.write_text(f"bootstrap: {server.bootstrap}\n{file.read_text()}")
    tell(server, _name(file), "stopped")

    assert invoke("status", file).exit_code == 0


def test_the_environment_comes_before_the_file(
    file: Path, server: ServerThread, monkeypatch: pytest.MonkeyPatch
) -> None:
    file.write_text(f"bootstrap: 127.0.0.1:1\n{file.read_text()}")
    tell(server, _name(file), "stopped")
    monkeypatch.setenv("OTTLA_BOOTSTRAP", server.bootstrap)

    assert invoke("status", file).exit_code == 0


def test_what_does_not_run_cannot_be_stopped(file: Path, server: ServerThread) -> None:
    tell(server, name := _name(file), "stopped")
    result = invoke("stop", file, "--bootstrap", server.bootstrap)

    assert result.exit_code == 1
    assert result.stderr == f"ottla: pipeline {name} is not running: its last run has stopped at then\n"


def test_a_run_that_does_not_end_in_time_is_told(file: Path, server: ServerThread) -> None:
    tell(server, _name(file), "running")
    result = invoke("stop", file, "--timeout", "1", "--bootstrap", server.bootstrap)

    assert result.exit_code == 1
    assert "was asked to stop and is running; not ended: copy" in result.stderr


@pytest.mark.parametrize("command", ["check", "plan", "run", "status", "stop"])
def test_every_command_has_examples(command: str) -> None:
    assert f"  ottla pipeline {command} orders.yaml\n" in invoke(command, "--help").stdout


def _name(file: Path) -> str:
    return next(line.split()[1] for line in file.read_text().splitlines() if line.startswith("pipeline:"))
