"""The style guide, held against every file of the repository."""

from __future__ import annotations

import ast
import re
import subprocess
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

from tests.tidy import rules
from tests.tidy.exceptions import EXCEPTIONS

ROOT = Path(__file__).resolve().parents[2]
FILE_BYTES_MAX = 200_000
REPOSITORY_BYTES_MAX = 10_000_000
IGNORED_PARTS = {".git", ".venv", ".cache", "__pycache__", "build", "dist"}
TEXT_ENDINGS = {".cfg", ".in", ".md", ".py", ".pyx", ".sh", ".toml", ".txt", ".xml", ".yml", ""}


@cache
def _files() -> tuple[Path, ...]:
    """What belongs to the repository: what git knows or would add; without git, what is not ignored by name."""
    listing = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard", "-z"],
        cwd=ROOT,
        capture_output=True,
        check=False,
    )
    if listing.returncode == 0:
        found = [ROOT / name.decode() for name in listing.stdout.split(b"\0") if name]
    else:
        found = [path for path in ROOT.rglob("*") if not IGNORED_PARTS & set(path.relative_to(ROOT).parts)]
    return tuple(path for path in sorted(found) if path.is_file())


def _name(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


def _python_files(*folders: str) -> list[str]:
    return [_name(path) for path in _files() if path.suffix == ".py" and _name(path).split("/")[0] in folders]


def _judge(name: str, chosen: tuple[rules.Rule, ...]) -> Iterator[rules.Finding]:
    source = (ROOT / name).read_text(encoding="utf-8")
    tree = ast.parse(source)
    yield from rules.banned_file_name(Path(name).stem)
    for rule in chosen:
        yield from rule(source, tree)


def _rules_for(name: str) -> tuple[rules.Rule, ...]:
    return {"src": rules.SOURCE_RULES, "tests": rules.TEST_RULES}.get(name.split("/")[0], rules.TOOL_RULES)


@pytest.mark.parametrize("name", _python_files("src", "tests", "bench", "scripts", "examples"))
def test_a_python_file_keeps_to_the_guide(name: str) -> None:
    findings = [finding for finding in _judge(name, _rules_for(name)) if (name, finding.rule) not in EXCEPTIONS]

    assert not findings, "\n".join(f"{name}:{finding.line}: {finding.message}" for finding in findings)


@pytest.mark.parametrize(("name", "rule"), EXCEPTIONS)
def test_an_exception_from_the_guide_is_still_needed(name: str, rule: str) -> None:
    assert rule in {finding.rule for finding in _judge(name, _rules_for(name))}


def test_no_file_names_a_package_registry() -> None:
    findings = [
        f"{_name(path)}:{finding.line}: {finding.message}"
        for path in _files()
        if path.suffix in TEXT_ENDINGS
        for finding in rules.registry_hosts(path.read_text(encoding="utf-8"))
    ]

    assert not findings, "\n".join(findings)


def test_no_file_is_big_and_neither_is_the_whole() -> None:
    sizes = {_name(path): path.stat().st_size for path in _files()}

    assert {name: size for name, size in sizes.items() if size > FILE_BYTES_MAX} == {}
    assert sum(sizes.values()) <= REPOSITORY_BYTES_MAX


def test_every_locked_package_has_an_exact_version_and_a_hash() -> None:
    for lock in (ROOT / "requirements").glob("*.txt"):
        for entry in re.split(r"\n(?=\S)", lock.read_text(encoding="utf-8")):
            if entry.startswith("#"):
                continue
            assert re.match(r"[a-z0-9.-]+==\S+", entry), f"{lock.name}: {entry.splitlines()[0]}"
            assert "--hash=sha256:" in entry, f"{lock.name}: {entry.splitlines()[0]}"


def test_the_index_of_decisions_names_every_page_and_no_other() -> None:
    folder = ROOT / "docs" / "decisions"
    named = re.findall(r"\((0[^)]*\.md)\)", (folder / "README.md").read_text(encoding="utf-8"))

    assert named == [path.name for path in sorted(folder.glob("0*.md"))]
