"""What users of the Spark source and sink get to see when something is wrong: each error names the cause and the fix.

Knows nothing of Spark's own error classes: Spark shows the text of what is raised here.
"""

from __future__ import annotations

from ottla.errors import OttlaError


class OttlaSparkError(OttlaError, ValueError):
    """The root of what the source and the sink raise on purpose."""


class InvalidOption(OttlaSparkError):
    """An option is missing, contradicts another one, or has a value that it cannot have."""

    def __init__(self, option: str, problem: str, *, fix: str = "") -> None:
        super().__init__(f"{option}: {problem}" + (f". {fix}" if fix else ""))
        self.option = option
        self.problem = problem
        self.fix = fix

    def __reduce__(self) -> tuple[object, ...]:
        # The text is made from three parts: an exception that travels between processes must be made from them again.
        return (_invalid_option, (self.option, self.problem, self.fix))


def _invalid_option(option: str, problem: str, fix: str) -> InvalidOption:
    return InvalidOption(option, problem, fix=fix)


class InvalidSchema(OttlaSparkError):
    """Columns that the source does not have, or that the sink cannot write."""


class DataLost(OttlaSparkError):
    """Records that the query has not read yet are gone."""

    FIX = (
        "Either they were deleted before the query came to them (retention, delete-records), or the topic was made "
        "anew. Set failOnDataLoss to false to go on with what is there, or start with a new checkpoint"
    )

    def __init__(self, what: str) -> None:
        super().__init__(f"data was lost: {what}. {self.FIX}")
        self.what = what

    def __reduce__(self) -> tuple[object, ...]:
        return (DataLost, (self.what,))
