"""How the main job looks in the terminal: a live view where there is one, else a line every few seconds. Only draws."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from examples.orders.totals import Window

WINDOWS_SHOWN = 6
BAR_WIDTH = 30
NUMBERS = ("generated", "in the table", "bad", "late", "waiting")


@dataclass(frozen=True, slots=True)
class View:
    """What there is to see at one moment."""

    seconds: int
    stage: str
    """What is going on, in a few words."""
    generated: int
    in_table: int
    bad: int
    late: int
    lag: int | None
    """Orders that the slowest query has not dealt with yet; None: not known yet."""
    events_per_second: float
    shop_time: str
    closed_before: str
    """Windows that begin before this time are closed; empty while none is."""
    windows: Sequence[Window] = ()
    note: str = ""
    """The last thing that went wrong."""

    @property
    def open(self) -> int:
        """Windows that may still grow."""
        return sum(not self._is_closed(window) for window in self.windows)

    def _is_closed(self, window: Window) -> bool:
        return bool(self.closed_before) and window.minute < self.closed_before

    def numbers(self) -> tuple[str, ...]:
        """The values under NUMBERS."""
        waiting = "..." if self.lag is None else f"{self.lag:,}"
        return (f"{self.generated:,}", f"{self.in_table:,}", f"{self.bad:,}", f"{self.late:,}", waiting)

    def line(self) -> str:
        """All on one line."""
        numbers = ", ".join(f"{name} {value}" for name, value in zip(NUMBERS, self.numbers(), strict=True))
        closed = len(self.windows) - self.open
        text = f"{self.seconds:4d} s  {self.stage}: {numbers}; {self.events_per_second:,.0f} events/s; "
        text += f"windows {closed} closed, {self.open} open"
        return f"{text}; {self.note}" if self.note else text

    def drawn(self) -> RenderableType:
        """As a small picture."""
        head = Text.assemble(
            ("Ottla ", "bold"), f"{self.seconds} s  {self.stage}", ("   in the shop it is ", "dim"), self.shop_time
        )
        numbers = Table.grid(padding=(0, 3))
        for name in (*NUMBERS, "events/s"):
            numbers.add_column(name, justify="right")
        numbers.add_row(*(Text(name, style="dim") for name in (*NUMBERS, "events/s")))
        numbers.add_row(*(Text(value, style="bold") for value in (*self.numbers(), f"{self.events_per_second:,.0f}")))
        closed = len(self.windows) - self.open
        title = Text(f"revenue per minute: {closed} windows closed, {self.open} open", style="dim")
        parts: list[RenderableType] = [head, "", numbers, "", title, self._minutes()]
        if self.note:
            parts += ["", Text(self.note, style="yellow")]
        return Group(*parts, "", Text("Ctrl-C stops it and checks the totals.", style="dim"))

    def _minutes(self) -> RenderableType:
        table = Table(box=None, padding=(0, 2))
        for name, justify in (("minute", "left"), ("orders", "right"), ("revenue", "right"), ("", "left")):
            table.add_column(name, justify=justify, header_style="dim")  # type: ignore[arg-type]
        shown = self.windows[-WINDOWS_SHOWN:]
        most = max((window.revenue or 0.0 for window in shown), default=0.0) or 1.0
        for window in reversed(shown):
            revenue = window.revenue or 0.0
            bar = "#" * round(BAR_WIDTH * revenue / most)
            state = "" if self._is_closed(window) else " open"
            table.add_row(window.minute[:16].replace("T", " "), f"{window.orders:,}", f"{revenue:,.2f}", bar + state)
        return table
