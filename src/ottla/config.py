"""What a setting is, and where its value comes from.

A `Setting` is one row of a table: name, type, default, check, help. `Settings.resolve` reads such a table
from flags, environment and file, in that order of strength, and remembers where each value stood. The
tables themselves are elsewhere, and nothing is opened here: file and environment are handed in as data.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from enum import Enum, IntEnum
from typing import NamedTuple

from ottla.errors import InvalidConfig

ENVIRONMENT_PREFIX = "OTTLA_"
INT_MAX = 2**31 - 1
LONG_MAX = 2**63 - 1

Value = bool | int | float | str | tuple[str, ...] | None
"""A setting's value: of the type that its kind says, None where it has none."""

_INTEGER = re.compile(r"[+-]?[0-9]{1,19}")
_HIDDEN = "[hidden]"


class Kind(IntEnum):
    """The type of a setting; the numbers are those of DescribeConfigs."""

    BOOLEAN = 1
    STRING = 2
    INT = 3
    SHORT = 4
    LONG = 5
    DOUBLE = 6
    LIST = 7
    CLASS = 8
    PASSWORD = 9


_BITS = {Kind.SHORT: 15, Kind.INT: 31, Kind.LONG: 63}


class Scope(Enum):
    """Who may change a broker's setting while it runs; a topic's can always be changed."""

    READ_ONLY = "read-only"
    PER_BROKER = "per-broker"
    CLUSTER_WIDE = "cluster-wide"


class Source(Enum):
    """Where a resolved value stood; the later ones are stronger."""

    DEFAULT = "default"
    FILE = "file"
    ENVIRONMENT = "environment"
    FLAG = "flag"


class Synonym(NamedTuple):
    """Another name for a setting, in a coarser unit: `log.retention.hours` for `log.retention.ms`."""

    name: str
    multiplier: int = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """One row of a table of settings."""

    name: str
    kind: Kind
    default: Value
    help: str
    at_least: int | float | None = None
    at_most: int | float | None = None
    choices: tuple[str, ...] = ()
    """What a string may be, or what may stand in a list."""
    check: Callable[[Value], str | None] | None = None
    """Says what is wrong with a value, or None."""
    sensitive: bool = False
    scope: Scope = Scope.READ_ONLY
    synonyms: tuple[Synonym, ...] = ()
    """Weaker names for the same thing, the finest unit first."""
    default_from: str | None = None
    """The broker's setting that stands in where a topic has none of its own."""

    def parse(self, raw: object) -> Value:
        """The value of a text, or of what a TOML file holds; InvalidConfig when it is not one."""
        value = self._typed(raw)
        wrong = self._wrong(value)
        if wrong is not None:
            raise InvalidConfig(f"{self.name}={self._shown(raw)}: {wrong}")
        return value

    def format(self, value: Value) -> str | None:
        """The text that `parse` reads back."""
        if value is None:
            return None
        if isinstance(value, bool):
            return "true" if value else "false"
        if isinstance(value, tuple):
            return ",".join(value)
        return str(value)

    def canonical(self, raw: object) -> str:
        """The one way to write what `raw` means; InvalidConfig when it means nothing."""
        return self.format(self.parse(raw)) or ""

    def scaled(self, raw: object, name: str) -> Value:
        """The value that was given under one of the setting's names."""
        for synonym in self.synonyms:
            if synonym.name == name and synonym.multiplier != 1:
                count = self._typed(raw)
                # Whoever writes -1 hours means "no limit" as much as with -1 milliseconds.
                scaled = count * synonym.multiplier if isinstance(count, int) and count > 0 else count
                return self.parse(self.format(scaled))
        return self.parse(raw)

    def allowed(self) -> str:
        """What values it takes, in words; empty where anything goes."""
        if self.choices:
            return ("any of " if self.kind is Kind.LIST else "one of ") + ", ".join(self.choices)
        if self.at_least is not None and self.at_most is not None:
            return f"{self.at_least} to {self.at_most}"
        if self.at_least is not None:
            return f"at least {self.at_least}"
        return "" if self.at_most is None else f"at most {self.at_most}"

    def _typed(self, raw: object) -> Value:
        kind = self.kind
        if kind is Kind.LIST and isinstance(raw, list | tuple) and all(isinstance(item, str) for item in raw):
            return tuple(raw)
        if isinstance(raw, str):
            return self._typed_text(raw)
        if kind is Kind.BOOLEAN and isinstance(raw, bool):
            return raw
        if kind in _BITS and isinstance(raw, int) and not isinstance(raw, bool):
            return self._fitting(raw)
        if kind is Kind.DOUBLE and isinstance(raw, int | float) and not isinstance(raw, bool):
            return float(raw)
        raise self._not_a(raw)

    def _typed_text(self, text: str) -> Value:
        kind = self.kind
        stripped = text.strip()
        if kind is Kind.BOOLEAN and stripped.lower() in ("true", "false"):
            return stripped.lower() == "true"
        if kind in _BITS and _INTEGER.fullmatch(stripped):
            return self._fitting(int(stripped))
        if kind is Kind.DOUBLE:
            try:
                return float(stripped)
            except ValueError as error:
                raise self._not_a(text) from error
        if kind is Kind.LIST:
            return tuple(item.strip() for item in text.split(",")) if stripped else ()
        if kind is Kind.PASSWORD:
            # Blanks at the edge of a secret may be part of it.
            return text
        if kind in (Kind.STRING, Kind.CLASS):
            return stripped
        raise self._not_a(text)

    def _fitting(self, value: int) -> int:
        limit = 1 << _BITS[self.kind]
        if not -limit <= value < limit:
            raise self._not_a(value)
        return value

    def _not_a(self, raw: object) -> InvalidConfig:
        return InvalidConfig(f"{self.name}={self._shown(raw)}: a value of type {self.kind.name} is expected")

    def _shown(self, raw: object) -> str:
        return _HIDDEN if self.sensitive else str(raw)[:200]

    def _wrong(self, value: Value) -> str | None:
        if isinstance(value, int | float) and not isinstance(value, bool):
            # Written so that NaN, which is no number of anything, fails too.
            low = self.at_least is None or value >= self.at_least
            high = self.at_most is None or value <= self.at_most
            if not (low and high) or value != value:
                return f"it must be {self.allowed() or 'a number'}"
        if self.choices:
            given = value if isinstance(value, tuple) else (value,)
            if not set(given) <= set(self.choices):
                return f"it must be {self.allowed()}"
        if isinstance(value, tuple) and (len(set(value)) < len(value) or "" in value):
            return "each item may stand there once, and none may be empty"
        return None if self.check is None else self.check(value)


class Table:
    """Settings by name and by synonym. Two rows that claim one name are a bug."""

    def __init__(self, title: str, settings: Iterable[Setting]) -> None:
        self.title = title
        self._settings = {setting.name: setting for setting in settings}
        self._by_any_name = dict(self._settings)
        for setting in self._settings.values():
            for synonym in setting.synonyms:
                assert synonym.name not in self._by_any_name, synonym.name
                self._by_any_name[synonym.name] = setting

    def __iter__(self) -> Iterator[Setting]:
        return iter(self._settings.values())

    def __len__(self) -> int:
        return len(self._settings)

    def __getitem__(self, name: str) -> Setting:
        """The row of exactly this name; for code that knows it is there."""
        return self._settings[name]

    def get(self, name: str) -> Setting | None:
        """The row of exactly this name, or None."""
        return self._settings.get(name)

    def find(self, name: str, *, place: str = "") -> Setting:
        """The row of this name or synonym; InvalidConfig that names the nearest one and where the wrong one stood."""
        found = self._by_any_name.get(name)
        if found is None:
            raise InvalidConfig(f"{place}{name} is no {self.title}{self._suggestion(name)}")
        return found

    def names(self) -> list[str]:
        """Every name that `find` knows."""
        return list(self._by_any_name)

    def _suggestion(self, name: str) -> str:
        # Only a mistake needs it, and it would be a tenth of the time that a start may take.
        from difflib import get_close_matches

        near = get_close_matches(name, self._by_any_name, n=1, cutoff=0.5)
        return f"; did you mean {near[0]}?" if near else ""


class Resolved(NamedTuple):
    """One setting's value, and where it stood."""

    setting: Setting
    value: Value
    source: Source
    given_as: str
    """The name under which it was given: the setting's, a synonym's, or a variable's."""

    @property
    def text(self) -> str | None:
        """The value as people may see it."""
        return _HIDDEN if self.setting.sensitive and self.value else self.setting.format(self.value)


class Settings:
    """A value for every row of a table."""

    def __init__(self, table: Table, resolved: Mapping[str, Resolved]) -> None:
        self.table = table
        self._resolved = resolved

    @classmethod
    def resolve(
        cls,
        table: Table,
        *,
        file: Mapping[str, object] | None = None,
        environment: Mapping[str, str] | None = None,
        flags: Mapping[str, str] | None = None,
        other_variables: Collection[str] = (),
    ) -> Settings:
        """Flag beats environment beats file beats default.

        `file` is a parsed TOML document, with dotted names or nested tables. Of the environment only names
        that begin with `OTTLA_` count, and of those not the `other_variables`, which mean something else.
        """
        resolved = {setting.name: Resolved(setting, setting.default, Source.DEFAULT, setting.name) for setting in table}
        for source, given in (
            (Source.FILE, _flattened(file or {})),
            (Source.ENVIRONMENT, _from_environment(table, environment or {}, other_variables)),
            (Source.FLAG, dict(flags or {})),
        ):
            resolved.update(_of_source(table, source, given))
        return cls(table, resolved)

    def __iter__(self) -> Iterator[Resolved]:
        return iter(self._resolved.values())

    def __getitem__(self, name: str) -> Resolved:
        return self._resolved[name]

    def integer(self, name: str) -> int:
        """The value of a whole-number setting."""
        value = self._resolved[name].value
        assert isinstance(value, int), name
        return value

    def boolean(self, name: str) -> bool:
        """The value of a setting that is on or off."""
        value = self._resolved[name].value
        assert isinstance(value, bool), name
        return value

    def text(self, name: str) -> str:
        """The value of a text setting; empty where there is none."""
        value = self._resolved[name].value
        assert value is None or isinstance(value, str), name
        return value or ""

    def items(self, name: str) -> tuple[str, ...]:
        """The value of a list setting; empty where there is none."""
        value = self._resolved[name].value
        assert value is None or isinstance(value, tuple), name
        return value or ()


def variable_of(name: str) -> str:
    """The environment variable that sets a setting."""
    return ENVIRONMENT_PREFIX + name.upper().replace(".", "_")


def _of_source(table: Table, source: Source, given: Mapping[str, object]) -> dict[str, Resolved]:
    """What one source says. Of two names for one setting the setting's own wins, then the finer unit."""
    found: dict[str, tuple[int, Resolved]] = {}
    for name, raw in given.items():
        place = f"in the {source.value}: "
        setting = table.find(name, place=place)
        rank = next((n for n, synonym in enumerate(setting.synonyms, 1) if synonym.name == name), 0)
        if setting.name in found and found[setting.name][0] < rank:
            continue
        try:
            value = setting.scaled(raw, name)
        except InvalidConfig as error:
            raise InvalidConfig(f"{place}{error}") from None
        given_as = variable_of(name) if source is Source.ENVIRONMENT else name
        found[setting.name] = (rank, Resolved(setting, value, source, given_as))
    return {name: resolved for name, (_, resolved) in found.items()}


def _flattened(tables: Mapping[str, object], prefix: str = "") -> dict[str, object]:
    """A TOML document as dotted names."""
    flat: dict[str, object] = {}
    for key, value in tables.items():
        name = f"{prefix}{key}"
        below = _flattened(value, f"{name}.") if isinstance(value, Mapping) else {name: value}
        twice = flat.keys() & below.keys()
        if twice:
            raise InvalidConfig(f"in the file: {min(twice)} is set twice; keep one of them")
        flat |= below
    return flat


def _from_environment(table: Table, environment: Mapping[str, str], others: Collection[str]) -> dict[str, object]:
    names = {variable_of(name): name for name in table.names()}
    found: dict[str, object] = {}
    for variable, text in environment.items():
        if not variable.startswith(ENVIRONMENT_PREFIX) or variable in others:
            continue
        # An unknown one is spelled as a setting, so that the suggestion compares like with like.
        name = names.get(variable) or variable.removeprefix(ENVIRONMENT_PREFIX).lower().replace("_", ".")
        if variable not in names:
            table.find(name, place=f"in the environment, {variable}: ")
        found[name] = text
    return found
