"""Connections that outlive tasks: kept for the next one, dropped after a failure, never shared with another process."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from ottla.client.errors import ClientClosed, Unreachable
from ottla.client.settings import Address, ClientSettings
from ottla.client.transport import Call
from ottla.protocol.api_keys import ApiKey
from ottla.protocol.messages.api_versions import ApiVersionsRequest
from ottla.spark.options import Connection, FetchSettings
from ottla.spark.pool import IDLE_MAX, SETTINGS_MAX, Link, Pool

NOBODY = Address("127.0.0.1", 1)


def connection(client_id: str = "c") -> Connection:
    return Connection(
        bootstrap=(NOBODY,),
        client=ClientSettings(client_id=client_id),
        fetch=FetchSettings(),
        isolation="read_uncommitted",
    )


def is_closed(link: Link) -> bool:
    """A closed one refuses; an open one finds nobody to talk to."""
    call = Call(NOBODY, ApiKey.API_VERSIONS, 0, ApiVersionsRequest(), 1_000)
    with pytest.raises((ClientClosed, Unreachable)) as caught:
        link.transport.begin(call)
    return caught.type is ClientClosed


def test_the_next_task_finds_the_connections_of_the_one_before() -> None:
    pool = Pool()
    with pool.borrowed(connection()) as first:
        pass

    # Settings are compared by what they say: they come out of a pickle each time.
    with pool.borrowed(connection()) as second:
        assert second is first
        assert not is_closed(second)


def test_other_settings_have_connections_of_their_own() -> None:
    pool = Pool()
    with pool.borrowed(connection("a")) as first:
        pass

    with pool.borrowed(connection("b")) as second:
        assert second is not first


def test_two_users_at_once_do_not_share() -> None:
    pool = Pool()

    with pool.borrowed(connection()) as first, pool.borrowed(connection()) as second:
        assert first is not second


def test_a_user_that_fails_takes_its_connections_with_it() -> None:
    pool = Pool()
    with pytest.raises(RuntimeError), pool.borrowed(connection()) as broken:
        raise RuntimeError

    assert is_closed(broken)
    with pool.borrowed(connection()) as fresh:
        assert fresh is not broken


def test_a_generator_that_is_closed_early_gives_its_connections_back() -> None:
    pool = Pool()

    def reading() -> Iterator[Link]:
        with pool.borrowed(connection()) as link:
            yield link

    generator = reading()
    first = next(generator)
    generator.close()  # type: ignore[attr-defined]

    with pool.borrowed(connection()) as second:
        assert second is first


def test_no_more_than_a_few_wait_to_be_used() -> None:
    pool = Pool()
    used = [pool.borrowed(connection()) for _ in range(IDLE_MAX + 2)]
    links = [each.__enter__() for each in used]
    for each in used:
        each.__exit__(None, None, None)

    assert sum(map(is_closed, links)) == 2


def test_settings_that_nobody_uses_any_more_are_forgotten() -> None:
    pool = Pool()
    with pool.borrowed(connection("oldest")) as oldest:
        pass
    for number in range(SETTINGS_MAX):
        with pool.borrowed(connection(str(number))):
            pass

    assert is_closed(oldest)


def test_a_forked_process_does_not_touch_the_connections_of_its_parent() -> None:
    process_id = [1]
    pool = Pool(lambda: process_id[0])
    with pool.borrowed(connection()) as of_parent:
        pass
    client_of_parent = pool.client(connection())

    process_id[0] = 2

    with pool.borrowed(connection()) as of_child:
        assert of_child is not of_parent
    assert pool.client(connection()) is not client_of_parent
    assert not is_closed(of_parent)


def test_there_is_one_client_for_each_settings() -> None:
    pool = Pool()
    client = pool.client(connection("a"))

    assert pool.client(connection("a")) is client
    assert pool.client(connection("b")) is not client


def test_what_is_dropped_is_made_anew() -> None:
    pool = Pool()
    with pool.borrowed(connection()) as link:
        pass
    client = pool.client(connection())

    pool.drop(connection())

    assert is_closed(link)
    assert pool.client(connection()) is not client
