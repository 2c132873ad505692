"""Shared counts of rows: the same on one server, on a cluster and behind a sentinel."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeVar

import pytest
from redis import Redis
from support.servers import ValkeyProcess
from support.stores import settings_for

from service.rates import SharedRates, policies_of
from shared.errors import TooManyRequests
from shared.settings import LimitSettings, Settings
from shared.store.connect import open_rate_windows
from shared.store.rates import RateWindows
from shared.testing.clock import FrozenClock

T = TypeVar("T")
Story = Callable[[RateWindows, RateWindows], Awaitable[T]]
DAY = 86_400


@pytest.fixture(params=["valkey", "cluster", "sentinel"])
def server(request: pytest.FixtureRequest) -> ValkeyProcess:
    """The one that has the counts."""
    return request.getfixturevalue("cluster" if request.param == "cluster" else "valkey")  # type: ignore[no-any-return]


@pytest.fixture
def settings(request: pytest.FixtureRequest, server: ValkeyProcess, namespace: str) -> Settings:
    match request.node.callspec.params["server"]:
        case "cluster":
            return settings_for(f"redis+cluster://127.0.0.1:{server.port}", namespace, read_connections=4)
        case "sentinel":
            return settings_for(
                f"redis+sentinel://127.0.0.1:{request.getfixturevalue('sentinel')}/main", namespace, read_connections=4
            )
        case _:
            return settings_for(server.url, namespace, read_connections=4)


@pytest.fixture
def told(settings: Settings) -> Callable[[Story[T]], T]:
    """Tells a story of two workers."""

    def tell(story: Story[T]) -> T:
        async def opened() -> T:
            async with (
                open_rate_windows(settings, FrozenClock()) as one,
                open_rate_windows(settings, FrozenClock()) as other,
            ):
                return await story(one, other)

        return asyncio.run(opened())

    return tell


Told = Callable[[Story[T]], T]


def test_workers_share_what_is_counted(told: Told[TooManyRequests]) -> None:
    """What one takes another has not; the refusal says how much is left and when."""
    policies = policies_of(LimitSettings(rate="10/day", rate_per_key="8/day", storage="store"))

    async def story(one: RateWindows, other: RateWindows) -> TooManyRequests:
        await SharedRates(policies, one).take("a", 7)
        await SharedRates(policies, other).take("b", 2)
        with pytest.raises(TooManyRequests) as raised:
            await SharedRates(policies, other).take("b", 2)
        return raised.value

    refusal = told(story)
    assert (refusal.reason, refusal.state.startswith('"all";r=1;t=')) == ("rate", True)
    assert 0 < (refusal.retry_after or 0) <= 2 * DAY


def test_never_more_than_the_limit_however_many_ask_at_once(told: Told[list[bool]]) -> None:
    """Fifty takings of two workers with four connections each, at the same moment: ten rows are given."""

    async def story(one: RateWindows, other: RateWindows) -> list[bool]:
        return await asyncio.gather(*(windows.acquire("k", 10, DAY, 1) for windows in [one, other] * 25))

    assert sum(told(story)) == 10


def test_rows_are_taken_whole_or_not_at_all(told: Told[tuple[bool, bool, bool, int]]) -> None:
    """What does not fit takes nothing."""

    async def story(one: RateWindows, _: RateWindows) -> tuple[bool, bool, bool, int]:
        taken = [await one.acquire("k", 10, DAY, rows) for rows in (8, 3, 2)]
        return taken[0], taken[1], taken[2], (await one.window("k", DAY))[2]

    assert told(story) == (True, False, True, 10)


@pytest.mark.parametrize("name", ["a}b{c", "{}", "two words", "\u00e4\U0001f600", ""])
def test_a_key_may_have_any_name(told: Told[bool], name: str) -> None:
    """Both of its counts lie on the same node of a cluster."""

    async def story(one: RateWindows, _: RateWindows) -> bool:
        key = f"rate_per_key:1:1:{name}"
        return await one.acquire(key, 1, DAY, 1) and not await one.acquire(key, 1, DAY, 1)

    assert told(story)


def test_a_server_that_forgot_the_scripts_gets_them_again(told: Told[list[bool]], server: ValkeyProcess) -> None:
    """As after a restart, and on a node that is new."""

    async def story(one: RateWindows, _: RateWindows) -> list[bool]:
        before = await one.acquire("k", 2, DAY, 1)
        with Redis(port=server.port) as client:
            client.script_flush()
        return [before, *[await one.acquire("k", 2, DAY, 1) for _ in range(2)]]

    assert told(story) == [True, True, False]


def test_counts_go_by_themselves(told: Told[bool], server: ValkeyProcess, settings: Settings) -> None:
    """Each key has an end."""

    async def story(one: RateWindows, _: RateWindows) -> bool:
        return await one.acquire("k", 2, 1, 1)

    assert told(story)
    with Redis(port=server.port) as client:
        left = [client.pttl(key) for key in client.scan_iter(f"*{settings.redis.namespace}*")]
    assert all(0 < one <= 2000 for one in left if one != -2)
