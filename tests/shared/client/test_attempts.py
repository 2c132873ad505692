from datetime import timedelta
from email.utils import format_datetime

import httpx2
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.clients import NOW, Kind, Script, StandIn, answer, played, refusal, score_body

from shared.client.attempts import ClientPolicy, retry_after
from shared.client.problems import (
    ForescoreProblem,
    TooLate,
    Unavailable,
    Unreachable,
)
from shared.errors import SettingsError
from shared.testing.clock import FrozenClock

GOOD = answer(score_body())
BUSY = refusal("overloaded", 503)


@pytest.fixture
def stand_in() -> StandIn:
    return StandIn()


@pytest.mark.parametrize("status", [429, 502, 503, 504])
def test_what_may_pass_is_tried_again(kind: Kind, stand_in: StandIn, status: int) -> None:
    """Too many requests, a gateway without a service, an outage and a missed deadline may be over a moment later."""
    script = Script([answer("no", status), answer("no", status), GOOD])

    assert played(kind, script, "score", "a", stand_in=stand_in).scores == {"buys": 0.8581489}
    assert len(script.asked) == 3


@pytest.mark.parametrize("status", [301, 400, 401, 403, 404, 405, 409, 413, 422, 500, 501])
def test_what_cannot_help_is_not_tried_again(kind: Kind, stand_in: StandIn, status: int) -> None:
    """An answer that would be the same the next time is told at once."""
    script = Script([refusal("some-thing", status, later="1"), GOOD])

    with pytest.raises(ForescoreProblem) as raised:
        played(kind, script, "score", "a", stand_in=stand_in)
    assert raised.value.status == status
    assert (len(script.asked), stand_in.pauses) == (1, [])


@pytest.mark.parametrize("error", [httpx2.ConnectError, httpx2.ConnectTimeout, httpx2.RemoteProtocolError])
def test_a_connection_is_tried_again(kind: Kind, stand_in: StandIn, error: type[httpx2.TransportError]) -> None:
    """A connection that cannot be made, or that ends before the answer, is made again."""
    script = Script([error("at 10.0.0.1"), GOOD])

    assert played(kind, script, "score", "a", stand_in=stand_in).entity_id == "a"
    assert len(stand_in.pauses) == 1


def test_nobody_there_says_where(kind: Kind) -> None:
    """After the last try the error names the address, the kind of failure and the tries, and nothing that was sent."""
    script = Script([httpx2.ConnectError("4242.4242")])

    with pytest.raises(Unreachable) as raised:
        played(kind, script, "score", "secret-id", url="http://user:secret@scores.test:8000/below", key="secret-key")
    assert str(raised.value) == (
        "The service cannot be reached: ConnectError at http://scores.test:8000, in 3 tries; "
        "check the address and that the service runs"
    )
    assert isinstance(raised.value, ConnectionError)
    assert len(script.asked) == 3


def test_the_number_of_tries_is_bounded(kind: Kind) -> None:
    """A service that stays busy is asked as often as the policy says, and what it said last is raised."""
    script = Script([BUSY])

    with pytest.raises(Unavailable) as raised:
        played(kind, script, "score", "a", policy=ClientPolicy(attempts=5))
    assert raised.value.type == "overloaded"
    assert len(script.asked) == 5


def test_pauses_grow_and_are_a_random_share(kind: Kind, stand_in: StandIn) -> None:
    """Full jitter: each pause is a random share of a span that doubles, up to the most."""
    policy = ClientPolicy(attempts=6, backoff_seconds=0.2, backoff_most_seconds=1)

    with pytest.raises(Unavailable):
        played(kind, Script([BUSY]), "score", "a", stand_in=stand_in, policy=policy, timeout=60)
    assert stand_in.pauses == [0.1, 0.2, 0.4, 0.5, 0.5]


def test_retry_after_in_seconds_is_waited_for(kind: Kind, stand_in: StandIn) -> None:
    """The service says when to come back, and the client comes back then."""
    script = Script([refusal("overloaded", 503, later="3"), GOOD])

    played(kind, script, "score", "a", stand_in=stand_in)
    assert stand_in.pauses == [3]


def test_retry_after_as_a_date_is_waited_for(kind: Kind, stand_in: StandIn) -> None:
    """The date is compared with the wall clock."""
    date = format_datetime(NOW + timedelta(seconds=4), usegmt=True)

    played(kind, Script([refusal("overloaded", 503, later=date), GOOD]), "score", "a", stand_in=stand_in)
    assert stand_in.pauses == [4]


def test_a_pause_that_would_end_after_the_deadline_is_not_made(kind: Kind, stand_in: StandIn) -> None:
    """Told to come back in a minute, with five seconds left, the client says so at once, and when to come back."""
    script = Script([refusal("overloaded", 503, later="60"), GOOD])

    with pytest.raises(Unavailable) as raised:
        played(kind, script, "score", "a", stand_in=stand_in)
    assert raised.value.retry_after == 60
    assert (len(script.asked), stand_in.pauses) == (1, [])


def test_all_tries_together_keep_the_deadline(kind: Kind, stand_in: StandIn) -> None:
    """Each try is given what is left of the time, connections a bounded part of it, and the sum is never more."""
    script = Script([refusal("overloaded", 503, later="2")])

    with pytest.raises(Unavailable):
        played(kind, script, "score", "a", stand_in=stand_in, policy=ClientPolicy(attempts=100), timeout=5.5)
    given = [request.extensions["timeout"] for request in script.asked]
    assert [one["read"] for one in given] == [5.5, 3.5, 1.5]
    assert [one["connect"] for one in given] == [1, 1, 1]
    assert sum(stand_in.pauses) <= 5.5


@pytest.mark.parametrize("error", [httpx2.ReadTimeout, httpx2.WriteTimeout, httpx2.PoolTimeout])
def test_a_late_answer_is_too_late(kind: Kind, stand_in: StandIn, error: type[httpx2.TransportError]) -> None:
    """When the time of the call is over nothing is tried again, and the error says how long it was."""
    script = Script([error("4242.4242"), GOOD])

    with pytest.raises(TooLate) as raised:
        played(kind, script, "score", "a", stand_in=stand_in, timeout=0.25)
    assert str(raised.value).startswith("Deadline exceeded: no answer within 0.25 s, in one try")
    assert isinstance(raised.value, TimeoutError)
    assert len(script.asked) == 1


def test_readiness_is_asked_once(kind: Kind, stand_in: StandIn) -> None:
    """Whether a service is ready is a question about now: not ready is an answer, and nobody there is told at once."""
    script = Script([answer({"status": "loading", "reason": "golden rows"}, 503, retry_after="2")])

    readiness = played(kind, script, "ready", stand_in=stand_in)
    assert (bool(readiness), readiness.status, readiness.reason) == (False, "loading", "golden rows")
    with pytest.raises(Unreachable):
        played(kind, Script([httpx2.ConnectError("")]), "ready", stand_in=stand_in)
    assert (len(script.asked), stand_in.pauses) == (1, [])


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        (None, None),
        ("0", 0),
        (" 7 ", 7),
        ("Mon, 30 Nov 2026 02:00:51 GMT", 10),
        ("Mon, 30 Nov 2026 02:00:51 -0000", 10),
        ("Mon, 30 Nov 2026 01:00:00 GMT", 0),
        ("soon", None),
        ("-5", None),
        ("1.5", None),
        ("9" * 5000, None),
        ("Mon, 99 Nov 2026 01:00:00 GMT", None),
        ("", None),
    ],
)
def test_retry_after_is_read_as_http_has_it(text: str | None, seconds: float | None) -> None:
    """Seconds or a date; a date that has passed is now; anything else says nothing."""
    assert retry_after(text, FrozenClock(NOW.timestamp())) == seconds


@given(st.text(max_size=40))
def test_no_retry_after_breaks_the_client(text: str) -> None:
    """Whatever stands in the header, it is a time to wait or nothing."""
    seconds = retry_after(text, FrozenClock(NOW.timestamp()))

    assert seconds is None or seconds >= 0


@pytest.mark.parametrize("seconds", [0, -1, float("nan")])
def test_a_timeout_leaves_time(kind: Kind, seconds: float) -> None:
    """A time in which nothing can be done is refused, for the client and for one call."""
    with pytest.raises(SettingsError, match="above 0"):
        played(kind, Script([GOOD]), "score", "a", timeout=seconds)


@pytest.mark.parametrize("wrong", [{"attempts": 0}, {"slab_items": 0}, {"concurrency": 0}, {"backoff_seconds": 0}])
def test_a_policy_is_possible(wrong: dict[str, int]) -> None:
    """A policy under which nothing could be asked is refused when it is made."""
    with pytest.raises(SettingsError, match="client policy"):
        ClientPolicy(**wrong)
