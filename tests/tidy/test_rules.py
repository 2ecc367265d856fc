"""Each rule of the guide finds what it is there to find, and leaves good code alone."""

from __future__ import annotations

import ast
from collections.abc import Iterator

import pytest

from tests.tidy import rules

BAD = {
    "file-length": "x = 1\n" * (rules.FILE_LINES_MAX + 1),
    "function-length": "def f():\n" + "    x = 1\n" * (rules.FUNCTION_LINES_MAX + 1),
    "module-docstring": "x = 1\n",
    "banned-call": "import time\nx = time.time()\n",
    "patched-code": "monkeypatch.setattr(log, 'append', fake)\n",
    "chance": "import random\nx = random.randint(1, 6)\n",
    "swallowed-error": "try:\n    f()\nexcept Exception:\n    pass\n",
    "keyword-only": "def read(offset: int, size: int): ...\n",
    "test-name": "def test_read():\n    f()\n",
    "cannot-fail": "def test_that_nothing_is_checked():\n    assert True\n",
    "unfinished": "x = 1  # TO" + "DO later\n",
}

GOOD = '''"""A module that says what it is for."""

import random


def read(offset: int, *, size: int, whole: bool) -> bytes:
    try:
        return log.open(offset, size)
    except OSError as error:
        raise StorageFault(offset) from error


def test_that_a_read_past_the_end_is_empty():
    assert random.Random(7).random() == 0.32383276483316237
'''


def _findings(source: str) -> Iterator[rules.Finding]:
    tree = ast.parse(source)
    for rule in {*rules.SOURCE_RULES, *rules.TEST_RULES, *rules.TOOL_RULES}:
        yield from rule(source, tree)


@pytest.mark.parametrize("rule", BAD)
def test_a_rule_finds_what_breaks_it(rule: str) -> None:
    assert rule in {finding.rule for finding in _findings(BAD[rule])}


def test_good_code_is_left_alone() -> None:
    assert list(_findings(GOOD)) == []


def test_a_flag_that_may_be_passed_without_its_name_is_found() -> None:
    source = '"""Doc."""\ndef read(whole: bool): ...\n'

    assert [finding.rule for finding in _findings(source)] == ["keyword-only"]


def test_a_docstring_does_not_count_as_length() -> None:
    docstring = "\n".join(["    line"] * 100)
    source = f'"""Doc."""\ndef f():\n    """Long.\n{docstring}\n    """\n    return 1\n'

    assert list(_findings(source)) == []


def test_the_replacement_of_a_banned_call_is_named() -> None:
    finding = next(rules.banned_calls("", ast.parse("open('x')")))

    assert "Disk" in finding.message


def test_a_sleep_in_a_test_is_found() -> None:
    finding = next(rules.banned_test_calls("", ast.parse("time.sleep(1)")))

    assert finding.rule == "banned-call"


def test_the_operating_system_may_be_patched() -> None:
    assert list(rules.patched_code("", ast.parse("monkeypatch.setattr(os, 'pread', short)"))) == []


def test_a_registry_host_in_any_text_is_found() -> None:
    host = rules.REGISTRY_HOSTS[0]

    assert [finding.line for finding in rules.registry_hosts(f"first line\nfetch it from https://{host}/simple")] == [2]


@pytest.mark.parametrize("stem", ["utils", "log_helpers", "manager", "base"])
def test_a_file_name_that_says_nothing_is_found(stem: str) -> None:
    assert len(list(rules.banned_file_name(stem))) == 1


def test_a_noun_is_a_good_file_name() -> None:
    assert list(rules.banned_file_name("offset_index")) == []
