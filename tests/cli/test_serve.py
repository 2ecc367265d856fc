"""`ottla serve` as a process: ready, served, stopped, and what it says when it cannot."""

from __future__ import annotations

import os
import re
import signal
import socket
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from tests.cli.server_process import COMMAND, WAIT_S, environment, run, serving

RESIDENT_KB_MAX = 60 << 10


def refused(*arguments: str, directory: Path, variables: dict[str, str] | None = None) -> str:
    """What a server that does not come up says; exactly one line, and nothing on standard output."""
    done = run("serve", "--log-level", "warning", *arguments, variables=variables, cwd=directory)
    assert done.returncode == 1, done.stderr.decode()
    assert done.stdout == b""
    assert re.fullmatch(r"ottla: [^\n]+\n", done.stderr.decode())
    return done.stderr.decode()


def misused(*arguments: str, directory: Path, variables: dict[str, str] | None = None) -> str:
    done = run("serve", *arguments, variables=variables, cwd=directory)
    assert (done.returncode, done.stdout) == (2, b""), done.stderr.decode()
    assert re.fullmatch(r"ottla: [^\n]+\n", done.stderr.decode())
    return done.stderr.decode()


# --- ready, serving, stopping ----------------------------------------------------------------------------


def test_the_one_line_on_standard_output_says_where_clients_may_connect(tmp_path: Path) -> None:
    with serving(tmp_path) as server:
        host, port = server.address.split(":")
        with socket.create_connection((host, int(port)), timeout=WAIT_S):
            pass
        assert server.ready_line == f"ready {host}:{port}\n"
        assert host == "127.0.0.1"
        assert server.stop() == 0
        assert server.process.stdout is not None
        assert server.process.stdout.read() == ""


@pytest.mark.parametrize("by", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_the_server_cleanly(by: signal.Signals, tmp_path: Path) -> None:
    with serving(tmp_path) as server:
        assert server.stop(by) == 0

    assert (tmp_path / "data" / "ottla.clean").exists()


def test_records_are_there_after_a_restart(tmp_path: Path) -> None:
    with serving(tmp_path) as server:
        server.succeed("produce", "kept", stdin=b"one\ntwo\n")
        assert server.stop() == 0

    with serving(tmp_path) as server:
        assert server.succeed("consume", "kept") == b"one\ntwo\n"


def test_a_topic_keeps_its_configs_after_a_restart(tmp_path: Path) -> None:
    with serving(tmp_path) as server:
        server.succeed("topics", "create", "kept", "--config", "retention.ms=12345")
        assert server.stop() == 0

    with serving(tmp_path) as server:
        assert b"retention.ms\t12345\tset\n" in server.succeed("configs", "show", "--topic", "kept", "--changed")


def test_without_any_setting_it_listens_on_loopback_only(tmp_path: Path) -> None:
    shown = run("config", "show", cwd=tmp_path).stdout.decode()

    assert "listeners\tPLAINTEXT://127.0.0.1:9092\tdefault\n" in shown


def test_an_advertised_address_is_what_clients_are_told(tmp_path: Path) -> None:
    with serving(tmp_path, "--advertise", "broker.example:9099") as server:
        assert b'"host": "broker.example",\n      "port": 9099' in server.succeed("cluster", "--json")


def test_a_reader_who_is_gone_does_not_keep_the_server_from_serving(tmp_path: Path) -> None:
    port, _ = _free_ports()
    address = f"127.0.0.1:{port}"
    reading, writing = os.pipe()
    os.close(reading)
    log = tmp_path / "serve.log"
    with log.open("wb") as stderr:
        process = subprocess.Popen(
            [*COMMAND, "serve", "--data-dir", str(tmp_path / "data"), "--listen", address],
            stdout=writing,
            stderr=stderr,
            env=environment(),
        )
    os.close(writing)
    try:
        # Nobody says when it is ready, so it is asked until it answers.
        answers = (run("topics", "list", "--bootstrap", address).returncode for _ in range(100))
        assert 0 in answers
    finally:
        process.terminate()
        ended = process.wait(WAIT_S)
    assert ended == 0
    assert "Traceback" not in log.read_text(encoding="utf-8")


def test_the_log_is_one_line_per_event(tmp_path: Path) -> None:
    with serving(tmp_path, "--log-level", "debug") as server:
        server.succeed("topics", "list")
        server.stop()

    lines = server.log.read_text(encoding="utf-8").splitlines()
    assert lines
    pattern = r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z (DEBUG|INFO|WARNING|ERROR) [a-z._]+: .+"
    assert [line for line in lines if not re.fullmatch(pattern, line)] == []


# --- where settings come from ----------------------------------------------------------------------------


def test_the_environment_names_the_port(tmp_path: Path) -> None:
    first, second = _free_ports()
    variables = {"OTTLA_LISTENERS": f"127.0.0.1:{first}"}
    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()

    with serving(tmp_path / "a", variables=variables, listen=()) as by_variable:
        flags = ("--listen", f"127.0.0.1:{second}")
        with serving(tmp_path / "b", variables=variables, listen=flags) as by_flag:
            assert by_variable.address == f"127.0.0.1:{first}"
            assert by_flag.address == f"127.0.0.1:{second}"


def test_a_flag_beats_the_environment_beats_the_file_beats_the_default(tmp_path: Path) -> None:
    file = tmp_path / "ottla.toml"
    file.write_text(
        'num.partitions = 2\n"default.replication.factor" = 2\n[log]\nretention.hours = 2\n', encoding="utf-8"
    )
    variables = {"OTTLA_NUM_PARTITIONS": "3", "OTTLA_LOG_RETENTION_MS": "3", "OTTLA_CONFIG": str(file)}

    shown = run("config", "show", "--set", "num.partitions=4", variables=variables).stdout.decode().splitlines()

    assert "num.partitions\t4\tflag" in shown
    assert "log.retention.ms\t3\tenvironment (OTTLA_LOG_RETENTION_MS)" in shown
    assert "default.replication.factor\t2\tfile" in shown
    assert "delete.topic.enable\ttrue\tdefault" in shown


def test_the_server_has_the_settings_that_config_shows(tmp_path: Path) -> None:
    file = tmp_path / "ottla.toml"
    file.write_text("[num]\npartitions = 5\n", encoding="utf-8")

    with serving(tmp_path, "--config", str(file)) as server:
        server.succeed("topics", "create", "wide")
        assert len(server.succeed("topics", "describe", "wide").splitlines()) == 1 + 5


def test_an_unknown_setting_is_refused_with_the_nearest_known(tmp_path: Path) -> None:
    said = misused("--set", "num.partition=3", directory=tmp_path)

    assert said == "ottla: in the flag: num.partition is no broker setting; did you mean num.partitions?\n"


def test_an_unknown_variable_is_refused_by_its_own_name(tmp_path: Path) -> None:
    said = misused(directory=tmp_path, variables={"OTTLA_NUM_PARTITION": "3"})

    assert "OTTLA_NUM_PARTITION" in said
    assert "did you mean num.partitions?" in said


def test_an_unknown_setting_in_the_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "ottla.toml").write_text("[num]\npartition = 3\n", encoding="utf-8")

    assert "in the file: num.partition" in misused("--config", "ottla.toml", directory=tmp_path)


def test_a_file_that_is_no_toml_is_refused_with_the_line(tmp_path: Path) -> None:
    (tmp_path / "ottla.toml").write_text("[num\n", encoding="utf-8")

    assert "line 1" in misused("--config", "ottla.toml", directory=tmp_path)


def test_a_file_that_is_missing_is_refused_by_its_name(tmp_path: Path) -> None:
    assert "ottla.toml: No such file" in misused("--config", "ottla.toml", directory=tmp_path)


def test_a_value_of_the_wrong_type_is_refused(tmp_path: Path) -> None:
    assert "a value of type INT is expected" in misused("--set", "num.partitions=many", directory=tmp_path)


def test_a_flag_that_is_given_twice_is_refused(tmp_path: Path) -> None:
    said = misused("--listen", "127.0.0.1:0", "--set", "listeners=127.0.0.1:1", directory=tmp_path)

    assert "leave one of them out" in said


def test_an_address_that_is_none_is_refused(tmp_path: Path) -> None:
    assert "write HOST:PORT" in misused("--listen", "somewhere", directory=tmp_path)


# --- what cannot be --------------------------------------------------------------------------------------


def test_a_port_in_use_is_said_in_one_line(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        said = refused("--listen", address, directory=tmp_path)

    assert address in said
    assert "another program listens there" in said


def test_a_port_in_use_leaves_the_data_directory_clean(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        refused("--listen", f"127.0.0.1:{taken.getsockname()[1]}", directory=tmp_path)

    assert (tmp_path / "ottla-data" / "ottla.clean").exists()


def test_a_second_server_on_the_same_directory_is_told_who_has_it(tmp_path: Path) -> None:
    with serving(tmp_path) as server:
        said = refused("--data-dir", "data", "--listen", "127.0.0.1:0", directory=tmp_path)
        assert server.succeed("topics", "list") == b""

    assert f"process {server.process.pid} has this data directory open" in said


def test_a_directory_of_somebody_else_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "letters.txt").write_text("dear", encoding="utf-8")

    said = refused("--data-dir", ".", "--listen", "127.0.0.1:0", directory=tmp_path)

    assert "letters.txt: does not belong" in said
    assert [path.name for path in tmp_path.iterdir()] == ["letters.txt"]


def test_a_data_directory_of_kafka_is_refused_as_such(tmp_path: Path) -> None:
    (tmp_path / "meta.properties").write_text("version=1\n", encoding="utf-8")

    assert "Apache Kafka" in refused("--data-dir", ".", "--listen", "127.0.0.1:0", directory=tmp_path)


def test_a_file_in_the_place_of_the_directory_is_refused(tmp_path: Path) -> None:
    (tmp_path / "data").write_text("", encoding="utf-8")

    assert "a directory is expected" in refused("--data-dir", "data", "--listen", "127.0.0.1:0", directory=tmp_path)


_AS_SOMEBODY_ELSE = """
import os, sys
import ottla.server.lifecycle, uvloop
from ottla.cli.main import app
os.setresgid(65534, 65534, 65534)
os.setresuid(65534, 65534, 65534)
app(sys.argv[1:])
"""
"""The super-user may write everywhere. Loaded first: another user may not reach the modules."""


def test_a_directory_that_may_not_be_written_is_refused_with_what_to_do() -> None:
    program = ("-c", _AS_SOMEBODY_ELSE) if os.geteuid() == 0 else ("-m", "ottla")
    with tempfile.TemporaryDirectory() as directory:
        data = Path(directory, "data")
        data.mkdir(mode=0o555)
        Path(directory).chmod(0o755)
        done = subprocess.run(
            [sys.executable, *program, "serve", "--log-level", "warning", "--data-dir", str(data)],
            capture_output=True,
            env=environment(),
            timeout=WAIT_S,
            check=False,
        )

    assert done.returncode == 1
    assert re.fullmatch(rb"ottla: [^\n]+Permission denied[^\n]+give this user the right to it[^\n]+\n", done.stderr)


def test_another_brokers_data_is_refused_as_a_wrong_setting(tmp_path: Path) -> None:
    with serving(tmp_path) as server:
        server.succeed("topics", "create", "of-broker-1")

    said = misused("--data-dir", "data", "--set", "node.id=7", "--log-level", "error", directory=tmp_path)

    assert "none of node.id=7" in said


# --- small and quick -------------------------------------------------------------------------------------


def test_memory_after_the_start_is_small(tmp_path: Path) -> None:
    with serving(tmp_path) as server:
        status = Path(f"/proc/{server.process.pid}/status").read_text(encoding="ascii")

    found = re.search(r"VmRSS:\s+(\d+) kB", status)
    assert found is not None
    assert int(found[1]) < RESIDENT_KB_MAX


def test_serving_loads_neither_the_client_nor_what_draws_on_terminals(tmp_path: Path) -> None:
    loaded = _modules_loaded("serve", "--data-dir", str(tmp_path / "letters"), "--listen", "127.0.0.1:0")

    assert "ottla.server.lifecycle" in loaded
    assert {
        name for name in loaded if name.split(".")[0] in ("rich", "numpy", "pyarrow", "pyspark", "pydantic")
    } == set()
    assert {name for name in loaded if name.startswith("ottla.client")} == set()


def test_a_command_of_a_client_loads_no_broker() -> None:
    loaded = _modules_loaded("topics", "list", "--bootstrap", "127.0.0.1:1")

    assert "ottla.client.blocking.client" in loaded
    assert {name for name in loaded if name.startswith(("ottla.broker", "ottla.server", "ottla.storage"))} == set()


_SAY_MODULES = """
import os, signal, sys, threading
from ottla.cli.main import app

def stop_when_ready():
    os.read(reading, 1)
    os.kill(os.getpid(), signal.SIGTERM)

reading, writing = os.pipe()
os.dup2(writing, 1)
threading.Thread(target=stop_when_ready, daemon=True).start()
try:
    app(sys.argv[1:])
except SystemExit:
    sys.stderr.write("\\nloaded " + " ".join(sys.modules))
"""


def _modules_loaded(*arguments: str) -> set[str]:
    """What a command has imported when it ends; a server is told to end as soon as it is ready."""
    done = subprocess.run(
        [sys.executable, "-c", _SAY_MODULES, *arguments],
        capture_output=True,
        env=environment(),
        timeout=WAIT_S,
        check=False,
    )
    return set(done.stderr.decode().rpartition("\nloaded ")[2].split())


def _free_ports() -> tuple[int, int]:
    with socket.create_server(("127.0.0.1", 0)) as first, socket.create_server(("127.0.0.1", 0)) as second:
        return first.getsockname()[1], second.getsockname()[1]
