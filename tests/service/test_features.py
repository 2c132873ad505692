import asyncio
from collections.abc import Callable, Mapping, Sequence
from typing import cast

import pytest
from prometheus_client import CollectorRegistry

from service.features import FeatureChain, Fetched, StoreFeatures, UnknownIds
from shared.errors import ColumnMissing, SourceDown
from shared.metrics import Metrics
from shared.testing.clock import FrozenClock
from shared.testing.store import MemoryStore

Row = Mapping[str, object]


async def _until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(10):
        while not condition():  # noqa: ASYNC110 - what is waited for has no event
            await asyncio.sleep(0)


class _Source:
    """A source that has what it is given, or fails; it keeps what it was asked."""

    def __init__(self, name: str, rows: Mapping[str, Row | None], failure: Exception | None = None) -> None:
        self.name = name
        self.asked: list[list[str]] = []
        self.closed = False
        self._rows = rows
        self.failure = failure

    async def read(self, ids: Sequence[str]) -> Mapping[str, Row | None]:
        self.asked.append(list(ids))
        if self.failure is not None:
            raise self.failure
        return {entity: self._rows[entity] for entity in ids if entity in self._rows}

    async def close(self) -> None:
        self.closed = True


class _Hung(_Source):
    async def read(self, ids: Sequence[str]) -> Mapping[str, Row | None]:
        await asyncio.Event().wait()
        raise AssertionError("unreachable")


class _Wrong(_Source):
    def __init__(self, answer: object) -> None:
        super().__init__("wrong", {})
        self._answer = answer

    async def read(self, ids: Sequence[str]) -> Mapping[str, Row | None]:
        return cast("Mapping[str, Row | None]", self._answer)


def _chain(*sources: _Source, timeout: float = 5) -> tuple[FeatureChain, CollectorRegistry]:
    registry = CollectorRegistry()
    return FeatureChain(sources, timeout, Metrics(registry)), registry


def _read(chain: FeatureChain, *ids: str) -> Fetched:
    return asyncio.run(chain.read(ids))


def test_sources_are_asked_in_order_and_only_for_what_is_left() -> None:
    """One question to each source, and none to a source that nothing is left for."""
    first, second, third = _Source("1", {"a": {"x": 1}}), _Source("2", {"a": {"x": 9}, "b": {"x": 2}}), _Source("3", {})
    chain, _ = _chain(first, second, third)

    assert _read(chain, "a", "b") == Fetched(rows={"a": {"x": 1}, "b": {"x": 2}}, unsure=frozenset())
    assert (first.asked, second.asked, third.asked) == ([["a", "b"]], [["b"]], [])


def test_a_failing_source_is_skipped_and_counted() -> None:
    """The next source may have the features; what none has is then not known for sure."""
    chain, registry = _chain(_Source("broken", {}, OSError("no")), _Source("2", {"a": {"x": 1}}))

    assert _read(chain, "a", "b") == Fetched(rows={"a": {"x": 1}}, unsure=frozenset({"b"}))
    assert registry.get_sample_value("forescore_feature_source_failures_total", {"source": "broken"}) == 1


def test_a_hung_source_costs_its_own_time_only() -> None:
    """Each source has a limit in time, after which the next one is asked."""
    chain, _ = _chain(_Hung("hung", {}), _Source("2", {"a": {"x": 1}}), timeout=0.01)

    assert _read(chain, "a").rows == {"a": {"x": 1}}


def test_features_that_cannot_be_read_cost_one_entity() -> None:
    """An entity whose features are broken is neither unknown, nor does it take others down."""
    chain, _ = _chain(_Source("1", {"a": None, "b": {"x": 1}}))

    assert _read(chain, "a", "b", "c") == Fetched(rows={"b": {"x": 1}}, unsure=frozenset({"a"}))


def test_what_is_no_mapping_is_a_failure() -> None:
    """A source of somebody's own is proved: what it returns by mistake harms nobody."""
    for wrong in ([], {"a": 1}, None):
        chain, _ = _chain(_Wrong(wrong), _Source("2", {"a": {"x": 1}}))

        assert _read(chain, "a", "b") == Fetched(rows={"a": {"x": 1}}, unsure=frozenset({"b"}))


def test_a_source_is_failing_until_it_answers() -> None:
    """The chain knows whose last question failed."""
    source = _Source("1", {"a": {"x": 1}}, OSError("no"))
    chain, _ = _chain(source)
    _read(chain, "a")
    assert chain.failing == {"1"}
    source.failure = None
    _read(chain, "a")
    assert chain.failing == frozenset()


def test_a_failing_source_is_asked_again_though_nobody_needs_it() -> None:
    """Otherwise a service without traffic would be degraded for ever."""
    broken, whole = _Source("1", {}, OSError("no")), _Source("2", {})
    chain, _ = _chain(broken, whole)

    async def story() -> None:
        await chain.check()
        assert chain.failing == {"1"}
        watch = asyncio.create_task(chain.watch(0.001))
        await _until(lambda: len(broken.asked) == 3)
        broken.failure = None
        await _until(lambda: not chain.failing)
        watch.cancel()

    asyncio.run(story())

    assert set(map(tuple, broken.asked)) == {()}
    assert whole.asked == [[]]


def test_a_mistake_is_raised_before_anything_is_served() -> None:
    """What waiting does not mend is told at the start; an outage is not."""
    chain, _ = _chain(_Source("1", {}, SourceDown("gone")), _Source("2", {}, ColumnMissing("no column")))
    with pytest.raises(ColumnMissing):
        asyncio.run(chain.check())


def test_closing_the_chain_closes_its_sources() -> None:
    """Who opens closes."""
    source = _Source("1", {})
    chain, _ = _chain(source)
    asyncio.run(chain.close())

    assert source.closed


def test_the_store_gives_what_was_put_into_it() -> None:
    """JSON objects come back as they are; anything else is an entity whose features cannot be read."""
    memory = MemoryStore()

    async def story() -> Mapping[str, Row | None]:
        store = memory.async_store.features
        await store.write("a", b'{"x": 1}', 60)
        await store.write("b", b"\xff", 60)
        await store.write("c", b"[1]", 60)
        return await StoreFeatures(store).read(["a", "b", "c", "d"])

    assert asyncio.run(story()) == {"a": {"x": 1}, "b": None, "c": None}


def test_an_unknown_id_is_remembered_for_a_short_while() -> None:
    """A thousand questions about nobody cost one look into the sources."""
    clock = FrozenClock()
    unknown = UnknownIds(2, clock)
    unknown.remember("1-A", "x")
    clock.advance(1.9)
    assert unknown.has("1-A", "x")
    clock.advance(0.1)
    assert not unknown.has("1-A", "x")


def test_what_one_snapshot_did_not_know_the_next_is_asked_for() -> None:
    """Entries belong to a snapshot and are dead at the flip."""
    unknown = UnknownIds(2, FrozenClock())
    unknown.remember("1-A", "x")

    assert not unknown.has("2-B", "x")
    assert not unknown.has(None, "x")


def test_new_features_end_the_memory() -> None:
    """Whoever brings features of an entity need not wait until it is forgotten."""
    unknown = UnknownIds(2, FrozenClock())
    unknown.remember("1-A", "x")
    unknown.forget("x")
    unknown.forget("never seen")

    assert not unknown.has("1-A", "x")


def test_the_memory_is_bounded() -> None:
    """The oldest goes when there are too many."""
    unknown = UnknownIds(2, FrozenClock(), limit=2)
    for entity in ("a", "b", "a", "c"):
        unknown.remember(None, entity)

    assert [unknown.has(None, entity) for entity in "abc"] == [True, False, True]
