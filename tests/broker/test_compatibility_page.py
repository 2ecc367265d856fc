"""docs/compatibility.md is what the table of handlers makes of it, and what handlers say about themselves is true."""

from __future__ import annotations

import pytest

from ottla.broker.handlers import HANDLERS
from ottla.protocol.api_keys import APIS, ApiKey
from scripts.compatibility_page import PAGE, main, name_of, page, story_of, versions_of


def test_the_page_is_current(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--check"]) == 0, capsys.readouterr().err


def test_every_api_of_the_table_has_a_row_and_a_section() -> None:
    text = PAGE.read_text(encoding="utf-8")
    for key in HANDLERS:
        assert f"| {int(key)} | [{name_of(key)}](#{name_of(key).lower()}) |" in text
        assert f"\n## {name_of(key)}\n" in text


@pytest.mark.parametrize("key", sorted(HANDLERS), ids=lambda key: key.name)
def test_a_handler_begins_with_its_name_and_the_versions_that_it_serves(key: ApiKey) -> None:
    first, rest = story_of(HANDLERS[key])
    assert first.startswith(f"{name_of(key)}, {versions_of(APIS[key].versions)}: ")
    assert rest


def test_nothing_on_the_page_is_wider_than_the_code() -> None:
    assert max(len(line) for line in page().splitlines()) <= 120
