"""Writes docs/compatibility.md from the table of handlers; `--check` only says whether it is current.

What each API does, and what it does not do yet, is what its handler says about itself, so that the page cannot say
anything else than the code.
"""

from __future__ import annotations

import argparse
import inspect
import sys
from collections.abc import Sequence
from pathlib import Path

from ottla.broker.handlers import HANDLERS, Handler
from ottla.protocol.api_keys import APIS, PRIVATE_APIS_TAG, ApiKey, is_private
from ottla.protocol.versions import Versions

PAGE = Path(__file__).resolve().parent.parent / "docs" / "compatibility.md"

_OPENING = f"""\
# Compatibility with Apache Kafka

Made by `scripts/compatibility_page.py` from the table of handlers, which is also what a broker announces: do not
edit it here. An API or a version that is not listed is not announced, and a request for it closes the connection.
APIs of Ottla's own have numbers from 10000 on. They are announced only to a client that puts the tagged field
{PRIVATE_APIS_TAG} into its ApiVersions request (version 3 or later), so that no other client ever hears of them.

| key | API | versions | announced |
|---|---|---|---|
"""


def name_of(key: ApiKey) -> str:
    """The API's name as Kafka writes it."""
    return "".join(word.capitalize() for word in key.name.split("_"))


def versions_of(versions: Versions) -> str:
    """A range of versions in words: `version 0` or `versions 2-7`."""
    return f"version{'' if versions.first == versions.last else 's'} {span(first=versions.first, last=versions.last)}"


def span(*, first: int, last: int) -> str:
    """`2-7`, or `0` where there is only one."""
    return str(first) if first == last else f"{first}-{last}"


def story_of(handler: Handler) -> tuple[str, str]:
    """What the module of a handler says about itself: the first line, and the rest."""
    module = inspect.getmodule(handler)
    text = inspect.cleandoc((module and module.__doc__) or "")
    first, _, rest = text.partition("\n")
    return first, rest.strip()


def page() -> str:
    """The whole page."""
    rows = []
    sections = []
    for key, handler in sorted(HANDLERS.items()):
        versions = APIS[key].versions
        served = span(first=versions.first, last=versions.last)
        announced = span(first=APIS[key].first_announced, last=versions.last)
        if is_private(key):
            announced += " on request"
        rows.append(f"| {int(key)} | [{name_of(key)}](#{name_of(key).lower()}) | {served} | {announced} |")
        first, rest = story_of(handler)
        what = first.partition(": ")[2]
        sections.append(f"## {name_of(key)}\n\n{what[:1].upper()}{what[1:]}\n\n{rest}".rstrip())
    return _OPENING + "\n".join(rows) + "\n\n" + "\n\n".join(sections) + "\n"


def main(arguments: Sequence[str]) -> int:
    """Write the page, or say whether it is current."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true", help="write nothing; fail when the page is not current")
    if not parser.parse_args(arguments).check:
        PAGE.write_text(page(), encoding="utf-8")
        return 0
    if PAGE.exists() and PAGE.read_text(encoding="utf-8") == page():
        return 0
    print(f"{PAGE.name} is not current: run scripts/compatibility_page.py", file=sys.stderr)
    return 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
