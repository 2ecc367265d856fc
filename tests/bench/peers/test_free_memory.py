"""When the filling of free memory ends, with a kernel that only stands in for one."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from itertools import chain, repeat
from pathlib import Path

import pytest

from bench.peers.free_memory import PIECE_BYTES, PIECES, TAKEN_BACK_PAGES, Hole, fill, taken_back

STEP_BYTES = PIECES * PIECE_BYTES


@pytest.fixture
def hole(tmp_path: Path) -> Iterator[Hole]:
    with closing(Hole(tmp_path)) as hole:
        yield hole


def looks(*told: int) -> Iterator[int]:
    return chain(told, repeat(told[-1]))


def test_reads_until_the_kernel_takes_pages_back(hole: Hole) -> None:
    told = looks(7, 7, 7, 7 + TAKEN_BACK_PAGES - 1, 7 + TAKEN_BACK_PAGES)
    assert fill(hole, look=lambda: next(told)) == 3 * STEP_BYTES


def test_reads_no_more_than_there_is_memory(hole: Hole) -> None:
    assert fill(hole, look=lambda: 7, size_max=2 * STEP_BYTES) == 2 * STEP_BYTES


def test_reads_nothing_where_nobody_tells(hole: Hole) -> None:
    assert fill(hole, look=lambda: None) == 0


def test_leaves_nothing_with_a_name(hole: Hole, tmp_path: Path) -> None:
    assert hole.read() == PIECE_BYTES
    assert not list(tmp_path.iterdir())


def test_pages_that_were_taken_back_are_counted(tmp_path: Path) -> None:
    told = tmp_path / "vmstat"
    told.write_text("pgsteal_kswapd 5\npgsteal_direct 2\npgsteal_file 9\n")
    assert taken_back(told) == 7


@pytest.mark.parametrize("text", ["", "nr_free_pages 5\n"])
def test_a_kernel_that_does_not_tell(tmp_path: Path, text: str) -> None:
    told = tmp_path / "vmstat"
    told.write_text(text)
    assert taken_back(told) is None
    assert taken_back(tmp_path / "none") is None
