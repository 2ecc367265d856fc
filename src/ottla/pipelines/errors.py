"""What is wrong with a pipeline: each problem with its file, its line and the way to put it right.

Knows neither YAML nor Spark. Problems are gathered and told all at once, so that a file is mended in one go.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from ottla.errors import OttlaError
from ottla.pipelines.spec import Place


@dataclass(frozen=True, slots=True)
class Problem:
    """One mistake: where, what, and what to do about it. Both texts are sentences without their full stop."""

    place: Place
    what: str
    fix: str

    def __str__(self) -> str:
        end = "" if self.fix.endswith(("?", "!", ".")) else "."
        return f"{self.place}: {self.what}. {self.fix}{end}"


class PipelineInvalid(OttlaError):
    """A pipeline that cannot be run as it is declared. Its text has one line for each problem, by file and line."""

    def __init__(self, problems: Iterable[Problem]) -> None:
        found = sorted(set(problems), key=lambda problem: (problem.place.file, problem.place.line, problem.what))
        self.problems: tuple[Problem, ...] = tuple(found)
        super().__init__("\n".join(str(problem) for problem in self.problems))
