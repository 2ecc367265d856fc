"""The protocols that scenarios know; a line for each."""

from __future__ import annotations

from collections.abc import Callable

from tests.coordinators.groups.classic_stage import ClassicPlay
from tests.coordinators.groups.consumer_stage import ConsumerPlay
from tests.coordinators.groups.offsets_stage import OffsetsPlay
from tests.coordinators.groups.stage import Play, Stage

PLAYS: tuple[Callable[[Stage], Play], ...] = (ClassicPlay, ConsumerPlay, OffsetsPlay)
