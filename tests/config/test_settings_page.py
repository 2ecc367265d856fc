"""The page of settings is what the tables say."""

from __future__ import annotations

from scripts import settings_page


def test_the_page_of_settings_is_current() -> None:
    assert settings_page.PAGE.read_text(encoding="utf-8") == settings_page.page(), "run scripts/settings_page.py"
