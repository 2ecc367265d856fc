"""What is asked of the disk for a client, and what is not."""

from __future__ import annotations

from ottla.broker.file_range import FileRange
from ottla.server.read_ahead import AHEAD_BYTES_MAX, FILES_MAX, ReadAhead
from ottla.storage.disk import File
from ottla.storage.memory_disk import MemoryDisk

SIZE = 100_000


def _file(name: str, size: int = SIZE) -> File:
    file = MemoryDisk().open(name, create=True)
    file.append([bytes(size)])
    return file


def _asked(ahead: ReadAhead, *parts: FileRange) -> list[tuple[int, int]]:
    return [(start, end) for _, start, end in ahead.coming(parts)]


def test_a_client_that_misses_nothing_is_asked_nothing_for() -> None:
    assert _asked(ReadAhead(), FileRange(_file("a"), position=0, size=1_000)) == []


def test_after_a_miss_all_ranges_are_asked_for_and_as_much_again() -> None:
    ahead, one, two = ReadAhead(), _file("a"), _file("b")
    parts = [b"head", FileRange(one, position=100, size=50), b"", FileRange(two, position=0, size=10)]
    assert [(each.file.path, each.start, each.end) for each in ahead.missed(parts)] == [("a", 100, 200), ("b", 0, 20)]


def test_what_was_asked_for_is_not_asked_for_again() -> None:
    ahead, file = ReadAhead(), _file("a")
    first = FileRange(file, position=0, size=1_000)
    ahead.missed([first])
    assert ahead.missed([first]) == []


def test_from_then_on_each_answer_has_the_next_one_asked_for() -> None:
    ahead, file = ReadAhead(), _file("a")
    ahead.missed([FileRange(file, position=0, size=1_000)])
    assert _asked(ahead, FileRange(file, position=1_000, size=1_000)) == [(2_000, 3_000)]
    assert _asked(ahead, FileRange(file, position=2_000, size=1_000)) == [(3_000, 4_000)]
    assert _asked(ahead, FileRange(_file("warm"), position=0, size=1_000)) == []


def test_a_client_that_goes_elsewhere_is_followed() -> None:
    ahead, file = ReadAhead(), _file("a")
    ahead.missed([FileRange(file, position=50_000, size=1_000)])
    assert _asked(ahead, FileRange(file, position=0, size=1_000)) == [(0, 2_000)]
    assert _asked(ahead, FileRange(file, position=90_000, size=1_000)) == [(90_000, 92_000)]


def test_beyond_the_end_of_a_file_there_is_nothing_to_ask_for() -> None:
    ahead, file = ReadAhead(), _file("a")
    ahead.missed([FileRange(file, position=SIZE - 3_000, size=1_000)])
    assert _asked(ahead, FileRange(file, position=SIZE - 2_000, size=1_000)) == [(SIZE - 1_000, SIZE)]
    # Who has come to the end reads what is written, which is in memory.
    file.append([bytes(5_000)])
    assert _asked(ahead, FileRange(file, position=SIZE, size=1_000)) == []


def test_no_more_than_so_much_is_asked_for_at_once() -> None:
    file = _file("a", 2 * AHEAD_BYTES_MAX)
    (wanted,) = ReadAhead().missed([FileRange(file, position=7, size=AHEAD_BYTES_MAX)])
    assert (wanted.start, wanted.end) == (7, 7 + AHEAD_BYTES_MAX)


def test_files_are_forgotten_when_there_are_too_many() -> None:
    ahead = ReadAhead()
    for number in range(FILES_MAX + 2):
        ahead.missed([FileRange(_file(str(number), 100), position=0, size=10)])
    assert _asked(ahead, FileRange(_file("0"), position=10, size=10)) == []
    assert _asked(ahead, FileRange(_file(str(FILES_MAX + 1)), position=10, size=10)) == [(20, 30)]
