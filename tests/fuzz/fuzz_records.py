"""Coverage-guided fuzzing of the record readers, run by hand: python tests/fuzz/fuzz_records.py [corpus]

Needs atheris (the `fuzz` extra). It follows Python code only; for the kernel's own branches, build the
kernel with sanitizers and let this run find the inputs.
"""

from __future__ import annotations

import sys

import atheris

with atheris.instrument_imports(include=["ottla"]):
    from tests.fuzz.records_cases import ask_everything, resealed


def one_input(data: bytes) -> None:
    """The bytes as they are, and once more with length and checksum put right."""
    ask_everything(data)
    ask_everything(resealed(data))


def main() -> None:
    """Run until something is found or the process is stopped."""
    atheris.Setup(sys.argv, one_input)
    atheris.Fuzz()


if __name__ == "__main__":
    main()
