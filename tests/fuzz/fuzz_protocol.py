"""Coverage-guided fuzzing of the protocol, run by hand: python tests/fuzz/fuzz_protocol.py [-runs=N] [corpus]

Needs atheris (the `fuzz` extra) and says so where it is missing. The first two bytes of an input choose the
message and its version, the rest is read as such; the same bytes also go through a connection.
"""

from __future__ import annotations

import sys
from pathlib import Path

# Run as a script, this file is not found as part of the repository.
sys.path[:0] = [str(Path(__file__).resolve().parents[2] / folder) for folder in ("src", ".")]

try:
    import atheris
except ImportError:
    print("atheris is not installed (the `fuzz` extra brings it); nothing was fuzzed")
    sys.exit(0)

with atheris.instrument_imports(include=["ottla.protocol"]):
    from tests.fuzz.protocol_cases import EVERY_VERSION, Case, ask, ask_connection


def one_input(data: bytes) -> None:
    """One input of the fuzzer."""
    message, version = EVERY_VERSION[int.from_bytes(data[:2], "big") % len(EVERY_VERSION)]
    ask(Case(message, version, data[2:]))
    ask_connection(data)


def main() -> None:
    """Run until something is found, the number of runs is reached, or the process is stopped."""
    atheris.Setup(sys.argv, one_input)
    atheris.Fuzz()


if __name__ == "__main__":
    main()
