"""The names of all options, and the ones that a user gave, looked up without regard to case.

Knows what options are called, not what they mean. Spark hands their names over in lower case; messages spell them as
the documentation does.
"""

from __future__ import annotations

from collections.abc import Mapping
from difflib import get_close_matches

from ottla.spark import kafka_options
from ottla.spark.errors import InvalidOption
from ottla.spark.values import INT64_MAX, switch, whole_number, word_of

PREFIX = "kafka."
NAMES = (
    "assign",
    "subscribe",
    "subscribePattern",
    "startingOffsets",
    "startingOffsetsByTimestamp",
    "startingOffsetsByTimestampStrategy",
    "startingTimestamp",
    "endingOffsets",
    "endingOffsetsByTimestamp",
    "endingTimestamp",
    "asOf",
    "failOnDataLoss",
    "includeHeaders",
    "columns",
    "maxOffsetsPerTrigger",
    "minOffsetsPerTrigger",
    "maxTriggerDelay",
    "maxBytesPerTrigger",
    "minPartitions",
    "maxRecordsPerPartition",
    "tasks",
    "groupIdPrefix",
    "kafkaConsumer.pollTimeoutMs",
    "fetchOffset.numRetries",
    "fetchOffset.retryIntervalMs",
    "topic",
    "deliveryGuarantee",
    "txnAppId",
    "txnVersion",
)
OF_RUNNERS = ("holdFile",)
"""Set by programs that run queries for their users, and by no user."""
OF_SPARK = frozenset({"path", "checkpointlocation", "queryname", "outputmode", "truncate", "numrows", "mode", "schema"})
"""What Spark itself or other sources put there; close to ours or not, they are no mistake."""
LIKENESS = 0.86
"""How alike a name must be to count as misspelt: one letter wrong or missing in a short name, two in a long one."""


class Given:
    """The options that are there; a value of None counts as not given."""

    def __init__(self, given: Mapping[str, object]) -> None:
        self._texts = {name.lower(): _as_text(value) for name, value in given.items() if value is not None}
        self.kafka = {name[len(PREFIX) :]: text for name, text in self._texts.items() if name.startswith(PREFIX)}

    def __contains__(self, name: str) -> bool:
        return name.lower() in self._texts

    @property
    def names(self) -> tuple[str, ...]:
        """In lower case, in order."""
        return tuple(sorted(self._texts))

    def text(self, name: str) -> str | None:
        """Without what surrounds it; a name or a pattern cannot begin or end with a space."""
        text = self._texts.get(name.lower())
        return None if text is None else text.strip()

    def number(self, name: str, *, lowest: int, highest: int = INT64_MAX) -> int | None:
        text = self.text(name)
        return None if text is None else whole_number(text, option=name, lowest=lowest, highest=highest)

    def switch(self, name: str, *, default: bool) -> bool:
        text = self.text(name)
        return default if text is None else switch(text, option=name)

    def word(self, name: str, words: tuple[str, ...], *, default: str) -> str:
        text = self.text(name)
        return default if text is None else word_of(text, words, option=name)


def _as_text(value: object) -> str:
    """As Spark turns what Python programs give into texts."""
    return str(value).lower() if isinstance(value, bool) else str(value)


def refuse_misspelt(options: Given) -> None:
    """Raises for a name that is not ours but looks like it, or that lacks its `kafka.`; others are not our business."""
    by_lower = {name.lower(): name for name in NAMES + OF_RUNNERS}
    for name in options.names:
        if name in by_lower or name in OF_SPARK or name.startswith(PREFIX):
            continue
        if "." in name and kafka_options.is_known(name):
            raise InvalidOption(name, "is a setting of Kafka's", fix=f"Write {PREFIX}{name}")
        if close := get_close_matches(name, by_lower, n=1, cutoff=LIKENESS):
            raise InvalidOption(name, "there is no such option", fix=f"Is {by_lower[close[0]]} meant?")
    if "bootstrap.servers" not in options.kafka:
        near = get_close_matches(f"{PREFIX}bootstrap.servers", options.names, n=1, cutoff=LIKENESS)
        if near:
            raise InvalidOption(near[0], "there is no such option", fix="Is kafka.bootstrap.servers meant?")
