"""Says no to what is too much: in bytes that are made once, since who is swamped must not spend much on saying so."""

from http import HTTPStatus

from starlette.types import Scope

from service.doors import door_of
from service.lines import RequestIds, Told
from service.pressure import Pressure
from service.problems import retold
from service.runtime import Service
from shared.errors import Overloaded

STATUS = HTTPStatus.SERVICE_UNAVAILABLE.value
RETRY_SECONDS = 1.0
"""What is too much is over within seconds, or goes on."""
_ID = "0" * 16
_REFUSAL = Overloaded("more is asked than can be answered in time; try again later", retry_after=RETRY_SECONDS)


class Shedder:
    """Asked for each request before anything else is, whoever would answer it, but for questions that may be hits: for
    those once they are known to be none. ``pressure`` decides."""

    def __init__(self, service: Service, pressure: Pressure) -> None:
        self.pressure = pressure
        self._lines = service.lines
        self._ids = RequestIds()
        facts: dict[str, str | int | None] = {}
        response = retold(_REFUSAL, _ID, facts, service.settings.service.retry_after_seconds)
        self._facts = facts
        headers = [*response.raw_headers, (b"x-request-id", _ID.encode())]
        self._head = b"".join([b"%b: %b\r\n" % header for header in headers])
        self._body = bytes(response.body)

    def lets_in(self, scope: Scope) -> bool:
        """Whether it may be answered; if so, it is in work until ``left``. Probes always may."""
        pressure = self.pressure
        if pressure.begin():
            return True
        if door_of(scope).limited:
            return False
        pressure.in_work += 1
        return True

    def left(self) -> None:
        """One that was let in is answered, or nobody waits for it any more."""
        self.pressure.end()

    def refusal(self, scope: Scope) -> tuple[bytes, bytes]:
        """Head and body for one that was not let in; counts it and has its line written."""
        self.pressure.refused()
        call_id = self._ids.next()
        told = Told(call_id, scope["method"], door_of(scope).route, STATUS, self._facts, {})
        self._lines.refused(told)
        mark, place = call_id.encode(), _ID.encode()
        body = b"" if scope["method"] == "HEAD" else self._body.replace(place, mark)
        return self._head.replace(place, mark), body
