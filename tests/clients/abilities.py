"""What every client is asked to do, and the account that each client's tests give of it.

A test says what it shows with `@shows`; whatever a client cannot do stands in its file's table with the reason.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from enum import Enum
from types import ModuleType
from typing import TypeVar

_Test = TypeVar("_Test", bound=Callable[..., object])


class Ability(Enum):
    """One thing that Kafka clients do, groups and transactions aside."""

    CREATE_TOPICS = "creates topics"
    EVERY_CODEC = "produces with every codec"
    EVERY_ACKS = "produces with every acks mode"
    IDEMPOTENT = "produces idempotently"
    FETCH_BEGIN = "fetches from the beginning"
    FETCH_END = "fetches from the end"
    FETCH_OFFSET = "fetches from an offset"
    FETCH_TIMESTAMP = "fetches from a timestamp"
    ALTER_CONFIG = "alters a config"
    ADD_PARTITIONS = "adds partitions"
    DELETE_RECORDS = "deletes records"
    DELETE_TOPICS = "deletes topics"


def shows(*abilities: Ability) -> Callable[[_Test], _Test]:
    """Say of a test what it shows."""

    def mark(test: _Test) -> _Test:
        test.__dict__["abilities"] = abilities
        return test

    return mark


def check_account(module: ModuleType, lacking: Mapping[Ability, str]) -> None:
    """Every ability is shown by a test or stands in the table, and none is in both."""
    shown = {ability for test in vars(module).values() for ability in getattr(test, "abilities", ())}
    assert shown | set(lacking) == set(Ability)
    assert not shown & set(lacking)
