"""The table of error codes against kio's, which is generated from Kafka's sources."""

from __future__ import annotations

from kio.schema.errors import ErrorCode as KioErrorCode

from ottla.error_codes import ErrorCode


def test_numbers_names_and_retriable_flags_are_kafkas() -> None:
    ours = {code.value: (code.name, code.retriable) for code in ErrorCode}
    theirs = {code.value: (code.name.upper(), code.retriable) for code in KioErrorCode}
    assert ours == theirs


def test_every_code_has_a_sentence_of_its_own() -> None:
    sentences = [code.sentence for code in ErrorCode]
    assert len(set(sentences)) == len(sentences)
    assert all(sentence[0].isupper() and sentence.endswith(".") for sentence in sentences)


def test_a_code_from_the_wire_is_found_by_its_number() -> None:
    assert ErrorCode(3) is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert int(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION) == 3
