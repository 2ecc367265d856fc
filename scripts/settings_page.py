"""Writes docs/settings.md from the tables of settings; with --check only says whether it is current."""

from __future__ import annotations

import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PAGE = ROOT / "docs" / "settings.md"

sys.path.insert(0, str(ROOT / "src"))

from ottla.config import Setting, Table, variable_of  # noqa: E402
from ottla.metadata.broker_configs import BROKER_CONFIGS  # noqa: E402
from ottla.metadata.topic_configs import TOPIC_CONFIGS  # noqa: E402

HEAD = """# Settings

Written by `scripts/settings_page.py` from the tables in `src/ottla/metadata/`; do not edit.

Names are Kafka's where Kafka has the setting; those that begin with `ottla.` are our own. A flag
(`--set name=value`) beats the environment (`OTTLA_` and the name in capitals, dots as underscores), which beats the
TOML file (dotted names or tables), which beats the default. An unknown name is an error that names the nearest known
one. What is not listed here is refused, and never ignored.
"""


def page() -> str:
    """The whole page."""
    parts = [
        HEAD,
        "## Broker\n\n*Changes*: `read-only` takes a restart; `per-broker` and `cluster-wide` can be altered while the "
        f"broker runs. An example of a variable: `{variable_of('num.partitions')}`.\n",
        _table(BROKER_CONFIGS, broker=True),
        "## Topic\n\nGiven when a topic is created, or altered at any time. A topic without one takes the broker's.\n",
        _table(TOPIC_CONFIGS, broker=False),
    ]
    return "\n".join(parts)


def _table(table: Table, *, broker: bool) -> str:
    last = "changes" if broker else "broker's default"
    lines = [f"| name | type | default | values | {last} | |", "|---|---|---|---|---|---|"]
    for setting in sorted(table, key=lambda setting: setting.name):
        end = setting.scope.value if broker else f"`{setting.default_from}`"
        default = setting.format(setting.default)
        cells = [
            f"`{setting.name}`",
            setting.kind.name.lower(),
            f"`{default}`" if default else "",
            setting.allowed(),
            end,
            _explained(setting),
        ]
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines) + "\n"


def _explained(setting: Setting) -> str:
    others = ", ".join(f"`{synonym.name}`" for synonym in setting.synonyms)
    return f"{setting.help} Also {others}." if others else setting.help


if __name__ == "__main__":
    if "--check" in sys.argv[1:]:
        sys.exit(0 if PAGE.exists() and PAGE.read_text(encoding="utf-8") == page() else f"{PAGE.name} is not current")
    PAGE.write_text(page(), encoding="utf-8")
