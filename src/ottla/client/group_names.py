"""Which names a group can have. A rule of our own client and command line: a broker refuses only the empty name."""

from __future__ import annotations

from ottla.client.errors import InvalidGroupName

_RESERVED = frozenset({"", ".", ".."})


def check_group_name(name: object) -> str:
    """The name, if a group can have it; InvalidGroupName says what is wrong with it.

    Names that a path could not hold as one part are refused, so that tools may keep something per group.
    """
    if not isinstance(name, str):
        raise InvalidGroupName(f"a group's name is a str, not {type(name).__name__}")
    if name in _RESERVED or "/" in name or "\0" in name:
        raise InvalidGroupName(f"{name!r} cannot be a group's name: it must not be empty, '.' or '..', nor hold '/'")
    try:
        encoded = name.encode()
    except UnicodeEncodeError as e:
        raise InvalidGroupName(f"{name!r} cannot be a group's name: it is not text that UTF-8 can hold") from e
    if len(encoded) > _BYTES_MAX:
        raise InvalidGroupName(f"a group's name of {len(encoded)} bytes is too long: at most {_BYTES_MAX}")
    return name


_BYTES_MAX = 2**15 - 1
"""What a string on the wire can hold."""
