"""Errors of the client: one class per code, kinds of the named ones, with a flag for retries."""

from __future__ import annotations

import pytest

from ottla import errors
from ottla.client import errors as client_errors
from ottla.client import errors_by_code
from ottla.client.errors_by_code import ERRORS, error_class, error_for, is_retriable
from ottla.error_codes import ErrorCode


def test_every_code_but_success_has_a_class_of_its_own() -> None:
    assert set(ERRORS) == set(ErrorCode) - {ErrorCode.NONE}
    assert len(set(ERRORS.values())) == len(ERRORS)


@pytest.mark.parametrize("code", ERRORS)
def test_a_class_carries_its_code_and_says_whether_to_retry(code: ErrorCode) -> None:
    error = error_class(code)("what happened")

    assert (error.code, error.retriable) == (code, code.retriable)
    assert isinstance(error, errors.Refusal)


def test_a_class_is_found_by_the_name_of_its_code() -> None:
    assert errors_by_code.LeaderNotAvailable is ERRORS[ErrorCode.LEADER_NOT_AVAILABLE]


def test_a_name_that_is_no_code_is_no_attribute() -> None:
    with pytest.raises(AttributeError):
        _ = errors_by_code.NoSuchError


def test_a_refusal_is_caught_by_its_own_name() -> None:
    with pytest.raises(errors.TopicExists, match="is it there"):
        raise error_for(ErrorCode.TOPIC_ALREADY_EXISTS, about="topic 't'", message="is it there")


def test_a_code_from_the_future_is_an_unknown_server_error_that_names_it() -> None:
    error = error_for(31_999, about="x")

    assert error.code is ErrorCode.UNKNOWN_SERVER_ERROR
    assert "31999" in str(error)


def test_a_topic_that_is_not_there_is_caught_by_name_and_by_code() -> None:
    error = client_errors.TopicNotFound("t")

    assert isinstance(error, errors.TopicNotFound)
    assert isinstance(error, error_class(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION))


def test_only_refusals_with_the_flag_are_worth_retrying() -> None:
    assert is_retriable(error_for(ErrorCode.NOT_LEADER_OR_FOLLOWER, about="x"))
    assert not is_retriable(error_for(ErrorCode.INVALID_CONFIG, about="x"))
    assert not is_retriable(client_errors.BufferFull("x"))
