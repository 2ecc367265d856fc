"""Fixtures that every part of the test suite may use, and the report after the last test."""

from __future__ import annotations

import gc
import os
import signal
import tempfile
import warnings
from collections.abc import Generator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from hypothesis import settings

from ottla.records import kernel
from tests import stolen
from tests.peers import kafka, spark_start
from tests.report import Report, collect

_DIRECTORY = pytest.StashKey[Path]()
_OWNED = pytest.StashKey[tempfile.TemporaryDirectory[str]]()

# The suite gives the same answer every time; the long run looks in new places.
settings.register_profile("suite", deadline=None, derandomize=True, database=None)
settings.register_profile("long", deadline=None, max_examples=300, print_blob=True)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "suite"))


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--report-to", metavar="PATH", help="also write the report after the last test to this file")


def pytest_configure(config: pytest.Config) -> None:
    """Make the directory that all processes of this run share."""
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        # Started in the background by a shell: servers and commands would inherit it, and no test could interrupt them.
        signal.signal(signal.SIGINT, signal.default_int_handler)
    os.environ.setdefault(spark_start.VARIABLE, spark_start.options(spark_start.archive(os.environ)))
    given = getattr(config, "workerinput", {}).get("report_directory")
    if given is None:
        config.stash[_OWNED] = tempfile.TemporaryDirectory(prefix="ottla-report-")
        given = config.stash[_OWNED].name
    config.stash[_DIRECTORY] = Path(given)


@pytest.hookimpl(optionalhook=True)
def pytest_configure_node(node: Any) -> None:
    """Tell a worker process of xdist where the shared directory is."""
    node.workerinput["report_directory"] = str(node.config.stash[_DIRECTORY])


@pytest.fixture
def compiled_kernel() -> ModuleType:
    """The compiled kernel; REQUIRE_KERNEL=1 makes its absence a failure."""
    if kernel.compiled is None:
        if os.environ.get("REQUIRE_KERNEL") == "1":
            pytest.fail("REQUIRE_KERNEL=1, but the compiled kernel is not in use", pytrace=False)
        pytest.skip("the compiled kernel is not in use")
    return kernel.compiled


@pytest.fixture(params=["plain", "compiled"])
def is_compiled(request: pytest.FixtureRequest) -> bool:
    """Both ways to do the kernel's work: plain Python first, then the kernel."""
    if request.param == "plain":
        return False
    request.getfixturevalue("compiled_kernel")
    return True


SLOW_PLACES = (
    "tests/cli/",
    "tests/client/test_real_brokers.py",
    "tests/clients/",
    "tests/fuzz/",
    "tests/server/",
    "tests/protocol/test_agreement.py",
)
"""Each test there is quick, but all together they take too long for `make check`: most start processes."""


LEAVES_SOCKETS = "leaves_sockets"
UNCLOSED = "ignore:unclosed:ResourceWarning"


@pytest.hookimpl(trylast=True)  # The marks that other rooms add are there by then.
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Whatever asks for Kafka's jars or a Java needs the peers, whether or not it says so."""
    report = Report(config.stash[_DIRECTORY])
    for item in items:
        if {"java", "kafka_jars"} & set(getattr(item, "fixturenames", ())):
            item.add_marker(pytest.mark.peers)
        if item.nodeid.startswith(SLOW_PLACES):
            item.add_marker(pytest.mark.slow)
        if item.get_closest_marker(LEAVES_SOCKETS):
            item.add_marker(pytest.mark.filterwarnings(UNCLOSED))
        stolen.watch(item, report)


def pytest_runtest_setup(item: pytest.Item) -> None:
    stolen.begin(item)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_teardown(item: pytest.Item, nextitem: pytest.Item | None) -> Generator[None]:
    """Collect the sockets that were left before a test begins that may not leave any, and would be blamed for them."""
    yield
    may_next = nextitem is not None and nextitem.get_closest_marker(LEAVES_SOCKETS)
    if item.get_closest_marker(LEAVES_SOCKETS) and not may_next:
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", "unclosed", ResourceWarning)
            gc.collect()


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    """Print what the tests reported, one section after the other."""
    sections = collect(config.stash[_DIRECTORY])
    for section, lines in sections.items():
        terminalreporter.section(section)
        for line in lines:
            terminalreporter.write_line(line)
    target = config.getoption("--report-to")
    if target:
        text = "\n\n".join("\n".join([section, *lines]) for section, lines in sections.items())
        Path(target).write_text(text, encoding="utf-8")


def pytest_unconfigure(config: pytest.Config) -> None:
    owned = config.stash.get(_OWNED, None)
    if owned is not None:
        owned.cleanup()


@pytest.fixture(scope="session")
def report_lines(pytestconfig: pytest.Config) -> Report:
    """Where a test puts lines and counts that are printed after the last test."""
    return Report(pytestconfig.stash[_DIRECTORY])


@pytest.fixture(scope="session")
def shared_directory(pytestconfig: pytest.Config) -> Path:
    """A directory that all processes of this test run share; gone when the run ends."""
    directory = pytestconfig.stash[_DIRECTORY] / "shared"
    directory.mkdir(exist_ok=True)
    return directory


def _missing(reason: kafka.PeerMissing) -> None:
    """Skip, or fail where the run has been told that the peers must be there."""
    if os.environ.get("REQUIRE_PEERS") == "1":
        pytest.fail(f"REQUIRE_PEERS=1, but {reason}", pytrace=False)
    pytest.skip(str(reason))


@pytest.fixture(scope="session")
def java() -> Path:
    """The Java binary that runs Kafka's tools."""
    try:
        return kafka.java()
    except kafka.PeerMissing as reason:
        _missing(reason)
        raise


@pytest.fixture(scope="session")
def kafka_jars(java: Path, pytestconfig: pytest.Config) -> Path:
    """The directory of Apache Kafka's jars; `java -cp '<it>/*'` runs its tools."""
    capture = pytestconfig.pluginmanager.getplugin("capturemanager")

    def say(line: str) -> None:
        with capture.global_and_fixture_disabled():
            print(f"\n{line}", flush=True)

    try:
        return kafka.jars(say)
    except kafka.PeerMissing as reason:
        _missing(reason)
        raise
