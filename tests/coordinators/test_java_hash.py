"""Keys of thousands of letters are hashed by another way than short ones, to the same codes."""

from __future__ import annotations

import random

import pytest

from ottla.coordinators.runtime import java_hash

ALPHABETS = ("g", "abcxyz", "aü€", "a😀\ud800", "\0\uffff")


def defined(text: str) -> int:
    """The code by its definition: the sum of all UTF-16 units, each times a power of 31, in 32 bits."""
    data = text.encode("utf-16-be", "surrogatepass")
    units = [int.from_bytes(data[at : at + 2]) for at in range(0, len(data), 2)]
    code = sum(unit * pow(31, len(units) - 1 - at, 2**32) for at, unit in enumerate(units)) % 2**32
    return code - 2**32 if code >= 2**31 else code


@pytest.mark.parametrize("alphabet", ALPHABETS, ids=ascii)
@pytest.mark.parametrize("length", [255, 256, 257, 511, 512, 513, 1_000, 32_767])
def test_long_keys_are_hashed_as_java_hashes_strings(alphabet: str, length: int) -> None:
    text = "".join(random.Random(length).choices(alphabet, k=length))
    assert java_hash(text) == defined(text)
