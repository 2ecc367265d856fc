"""What commands print: JSON, tables, plain lines.

On a terminal a table is drawn by rich; in a pipe it is lines of fields between tabs, which `cut` and `awk`
take apart. All of it is UTF-8, whatever the locale says.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence
from typing import Annotated

import msgspec
import typer

AsJson = Annotated[bool, typer.Option("--json", help="Print JSON.")]

Cell = str | int | None


def write_json(value: object) -> None:
    """One JSON document, indented."""
    write_bytes(msgspec.json.format(msgspec.json.encode(value), indent=2) + b"\n")


def write_lines(lines: Iterable[str]) -> None:
    """Plain lines."""
    write_bytes("".join(f"{line}\n" for line in lines).encode("utf-8", "backslashreplace"))


def write_table(columns: Sequence[str], rows: Iterable[Sequence[Cell]]) -> None:
    """Rows under a heading; a cell that is None stays empty."""
    texts = [["" if cell is None else str(cell) for cell in row] for row in rows]
    if sys.stdout.isatty():
        _draw(columns, texts)
    else:
        write_lines("\t".join(row) for row in ([column.upper() for column in columns], *texts))


def write_bytes(data: bytes) -> None:
    """Bytes as they are, at once."""
    # Bytes and text share one file: what was written as text comes first.
    sys.stdout.flush()
    sys.stdout.buffer.write(data)
    sys.stdout.buffer.flush()


def _draw(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, pad_edge=False, header_style="bold")
    for column in columns:
        table.add_column(column.upper(), overflow="fold")
    for row in rows:
        # As Text, so that brackets in a name are not taken for markup.
        table.add_row(*map(Text, row))
    Console().print(table)
