"""How fresh a score is wanted, and which: what is sent, and what comes back."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.clients import Kind, Script, answer, played, refusal, score_body

from service.freshness import Wish
from service.headers import CacheStatus as ServicesCacheStatus
from shared.client.clients import ForescoreClient
from shared.client.freshness import CacheStatus, Wishes, cache_control
from shared.client.problems import InvalidId, NotCached
from shared.client.results import Score

ETAG = '"77aa"'
GOOD = answer(score_body(), etag=ETAG, cache_status="forescore; hit", age="14400")


@pytest.mark.parametrize(
    ("wishes", "header", "understood"),
    [
        ({}, None, Wish()),
        ({"max_age": 60}, "max-age=60", Wish(max_age=60)),
        ({"max_age": 60, "max_stale": 30}, "max-age=60, max-stale=30", Wish(max_age=90)),
        ({"no_cache": True}, "no-cache", Wish(max_age=-1)),
        ({"no_cache": False, "only_if_cached": False}, None, Wish()),
        ({"max_age": 0, "only_if_cached": True}, "max-age=0, only-if-cached", Wish(max_age=0, only_if_cached=True)),
    ],
)
def test_a_wish_is_sent_as_the_service_understands_it(
    kind: Kind, wishes: dict[str, Any], header: str | None, understood: Wish
) -> None:
    """One and many alike; the service reads of the header what the arguments mean."""
    script = Script([GOOD])
    many = Script([answer({"snapshot": None, "results": [score_body()]})])

    played(kind, script, "score", "a", **wishes)
    played(kind, many, "score_many", ["a"], **wishes)
    assert [one.headers.get("cache-control") for one in (*script.asked, *many.asked)] == [header, header]
    assert Wish.parse(header) == understood


@pytest.mark.parametrize(
    ("wishes", "rule"),
    [
        ({"max_age": -1}, "max_age is a whole number of seconds"),
        ({"max_age": 1.5}, "max_age is a whole number of seconds"),
        ({"max_age": True}, "max_age is a whole number of seconds"),
        ({"max_age": 1, "max_stale": "9"}, "max_stale is a whole number of seconds"),
        ({"max_stale": 9}, "give both"),
        ({"snapshot": "1-A", "model_version": "1"}, "not both"),
    ],
)
def test_a_wish_that_cannot_be_is_a_mistake(kind: Kind, wishes: dict[str, Any], rule: str) -> None:
    """It is told where it was made, and nothing is sent."""
    script = Script([GOOD])

    with pytest.raises(TypeError, match=rule):
        played(kind, script, "score", "a", **wishes)
    assert script.asked == []


@pytest.mark.parametrize(
    ("choice", "path"),
    [
        ({"snapshot": "1-A"}, "/score/a?snapshot=1-A"),
        ({"model_version": "2026.11"}, "/score/a?model_version=2026.11"),
        ({"snapshot": "1&x=#"}, "/score/a?snapshot=1%26x%3D%23"),
    ],
)
def test_another_snapshot_is_named_in_the_query(kind: Kind, choice: dict[str, str], path: str) -> None:
    """Whatever the name, it is one value of the query."""
    script = Script([GOOD])

    played(kind, script, "score", "a", **choice)
    assert script.paths == [path]


def test_an_id_that_no_path_carries_has_no_other_snapshot(kind: Kind) -> None:
    """It is asked for by POST, which reads the active snapshot only; the wish to be fresh is sent there too."""
    script = Script([answer({"snapshot": None, "results": [score_body("..")]})])

    with pytest.raises(InvalidId, match="snapshot"):
        played(kind, script, "score", "..", snapshot="1-A")
    assert script.asked == []
    played(kind, script, "score", "..", no_cache=True)
    assert script.asked[0].headers["cache-control"] == "no-cache"


def test_an_answer_says_how_the_cache_had_it(kind: Kind) -> None:
    """Cache status and tag are with a score that was asked for alone."""
    score = played(kind, Script([GOOD]), "score", "a")
    (listed,) = played(kind, Script([answer({"snapshot": None, "results": [score_body()]})]), "score_many", ["a"])

    assert (score.cache_status, score.etag, score.age_seconds) == (CacheStatus(), ETAG, 14400)
    assert score.cache_status.hit
    assert (listed.cache_status, listed.etag) == (None, None)


@given(
    st.builds(
        ServicesCacheStatus,
        forwarded=st.sampled_from([None, "miss", "request", "stale", "bypass"]),
        stored=st.booleans(),
        collapsed=st.booleans(),
        detail=st.sampled_from([None, "store-down", "not-rescored"]),
    )
)
def test_what_the_service_says_of_its_cache_is_read(status: ServicesCacheStatus) -> None:
    """Every status that the service can write, and beside a proxy's own."""
    expected = CacheStatus(
        forwarded=status.forwarded, stored=status.stored, collapsed=status.collapsed, detail=status.detail
    )

    assert CacheStatus.parse(str(status)) == expected
    assert CacheStatus.parse(f"edge; fwd=uri-miss; stored, {status}") == expected


@pytest.mark.parametrize("header", [None, "", "edge; hit", "forescore2; hit", ";;,,"])
def test_without_the_services_word_nothing_is_known(header: str | None) -> None:
    """A proxy's status is not taken for the service's."""
    assert CacheStatus.parse(header) is None


def test_a_known_score_that_holds_is_not_sent_again(kind: Kind) -> None:
    """304: the score at hand, as old as it is now; another answer takes its place."""
    known: Score = played(kind, Script([GOOD]), "score", "a")
    holds = Script([answer(None, 304, etag=ETAG, cache_status="forescore; hit", age="14500")])
    moved = Script([answer(score_body(snapshot="1-B"), etag='"88bb"', cache_status="forescore; hit")])

    again = played(kind, holds, "score", "a", known=known)
    assert holds.asked[0].headers["if-none-match"] == ETAG
    assert (again.scores, again.etag, again.age_seconds) == (known.scores, ETAG, 14500)
    assert played(kind, moved, "score", "a", known=known).snapshot == "1-B"


def test_an_answer_without_a_tag_is_asked_for_whole(kind: Kind) -> None:
    """A score from a list has no tag: there is nothing to compare."""
    (listed,) = played(kind, Script([answer({"snapshot": None, "results": [score_body()]})]), "score_many", ["a"])
    script = Script([GOOD])

    played(kind, script, "score", "a", known=listed)
    assert "if-none-match" not in script.asked[0].headers


def test_what_is_not_cached_is_told_at_once(kind: Kind) -> None:
    """504 for only-if-cached is the answer, and no outage: it is not asked again."""
    script = Script([refusal("not-cached", 504)])

    with pytest.raises(NotCached):
        played(kind, script, "score", "a", only_if_cached=True)
    assert len(script.asked) == 1


def test_every_wish_is_documented() -> None:
    """The client's help names each argument, as the types have them."""
    help_text = (Wishes.__doc__ or "") + (ForescoreClient.score.__doc__ or "")

    assert all(name in help_text for name in (*Wishes.__annotations__, "snapshot", "model_version", "known"))
    assert cache_control({}) == {}
