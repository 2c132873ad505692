"""The bytes of answers, made of parts that are made once for each snapshot, and once for what is scored online.

They are, byte for byte, what ``orjson.dumps(Answer.body())`` writes. An answer costs what differs in it: the id, the
scores, and the age.
"""

from collections.abc import Callable, Mapping, Sequence
from hashlib import sha256
from math import isfinite
from typing import Any, NamedTuple, assert_never

import numpy as np
import orjson

from service.answers import Parity, instant, parity_with
from shared.answer import shortest
from shared.bundle import Bundle
from shared.layout import FORMAT, ONLINE, scored_struct
from shared.schema import Binary, MultiClass, MultiLabel, Output, Regression
from shared.snapshot import SnapshotMeta

Fields = tuple[Any, ...]
"""What a packed value holds: format, flags, scored_at, and one float for each column."""
When = tuple[Any, ...]
"""Its flags and scored_at."""
Speaker = Callable[[Sequence[float]], bytes]
"""Says what the scores of one output mean, as a member of ``prediction``."""

MOST_TIMES = 1024
"""How many different ``scored_at`` are kept as text: a batch has one, online scores have one each second."""
_PLAIN_FROM, _PLAIN_TO = 1e-4, 1e6
"""Between these a float32 is written alike as what it is and as the float64 of the same digits."""
_NUMPY = orjson.OPT_SERIALIZE_NUMPY
SCORED_AT = 2
_SCORES = 3
"""Where they stand in ``Fields``."""


class Hit(NamedTuple):
    """An answer, and what is told of it. ``entity`` is its id as JSON, ``age`` the score's in seconds, ``seconds`` the
    same as text, ``lookup`` the seconds that the look-up took, ``key`` the name
    of the caller's key."""

    status: int
    tag: bytes
    seconds: bytes
    body: bytes
    call_id: str
    lookup: float
    entity: bytes
    snapshot: str
    age: float
    key: str | None = None


class Press:
    """Answers of one origin: the same outputs, the same ``source`` (members of the body, in order), the same parity."""

    def __init__(
        self, outputs: Sequence[Output], source: Mapping[str, str | None], parity: Parity | None, data_as_of: int | None
    ) -> None:
        self._names = [orjson.dumps(name) + b":" for output in outputs for name in output.columns]
        self._is_single = len(self._names) == 1
        self._speakers = _speakers(outputs)
        self._speaks = self._speakers[0][1] if self._is_single and self._speakers else None
        self._source = b"}," + orjson.dumps(source)[1:-1] + b',"scored_at":'
        self._end = b"," + orjson.dumps({"parity": parity})[1:]
        self._data_as_of = data_as_of
        self._times: dict[When, bytes] = {}

    def answer(self, entity: bytes, fields: Fields, age: bytes) -> tuple[bytes, bytes]:
        """The body for an entity, whose id comes as JSON, and the body's entity tag (``headers.entity_tag``)."""
        start = self._start(entity, fields)
        tag = b'"%b"' % sha256(start + self._end).hexdigest()[:32].encode()
        return b'%b,"age_seconds":%b%b' % (start, age, self._end), tag

    def body(self, entity: bytes, fields: Fields, age: bytes) -> bytes:
        """The body alone."""
        return b'%b,"age_seconds":%b%b' % (self._start(entity, fields), age, self._end)

    def _start(self, entity: bytes, fields: Fields) -> bytes:
        """The body up to the score's age."""
        scores = fields[_SCORES:]
        when = fields[1:_SCORES]
        times = self._times.get(when) or self._told(when)
        return b'{"entity_id":%b,"scores":{%b},"prediction":{%b%b%b' % (
            entity,
            self._names[0] + numeral(scores[0]) if self._is_single else self._listed(scores),
            self._speaks(scores) if self._speaks else b",".join([speak(scores[at]) for at, speak in self._speakers]),
            self._source,
            times,
        )

    def _listed(self, scores: Sequence[float]) -> bytes:
        return b",".join([name + numeral(score) for name, score in zip(self._names, scores, strict=True)])

    def _told(self, when: When) -> bytes:
        flags, scored_at = when
        data_as_of = None if flags & ONLINE else self._data_as_of
        text = orjson.dumps(instant(scored_at)) + b',"data_as_of":' + orjson.dumps(instant(data_as_of))
        if len(self._times) >= MOST_TIMES:
            self._times.clear()
        self._times[when] = text
        return text


class Print(Press):
    """Answers from one snapshot. What it cannot read as a plain score, it leaves to others."""

    def __init__(self, meta: SnapshotMeta, golden_digest: str) -> None:
        source = {"model": meta.model, "model_version": meta.model_version, "snapshot": meta.snapshot}
        super().__init__(meta.outputs, source | {"source": "cache"}, parity_with(meta, golden_digest), meta.data_as_of)
        self.meta = meta
        self._struct = scored_struct(len(meta.columns))

    def read(self, value: bytes) -> Fields | None:
        """What lies in the value, if it is a whole score of this snapshot."""
        if len(value) != self._struct.size or value[0] != FORMAT or value[1] & ~ONLINE:
            return None
        fields = self._struct.unpack(value)
        return fields if isfinite(sum(fields)) else None


def online_press(bundle: Bundle, parity: Parity | None) -> Press:
    """For scores that this process computes with its bundle, which are of no snapshot."""
    source: dict[str, str | None] = {"model": bundle.name, "model_version": bundle.version, "snapshot": None}
    return Press(bundle.schema.outputs, source | {"source": "online"}, parity, None)


def online_fields(scores: Sequence[float], scored_at: int) -> Fields:
    """Such scores, as ``Press`` takes them."""
    return (FORMAT, ONLINE, scored_at, *scores)


def numeral(score: float) -> bytes:
    """The float32 ``score`` as ``orjson`` writes ``answer.shortest(score)``, in a quarter of the time."""
    if _PLAIN_FROM <= abs(score) < _PLAIN_TO:
        return orjson.dumps(np.float32(score), None, _NUMPY)
    return orjson.dumps(shortest(score))


def least(threshold: float) -> float:
    """The least float32 whose printed decimal reaches the threshold: to compare with it is to compare the decimals."""
    with np.errstate(over="ignore"):  # beyond the greatest float32 is infinity
        reached = np.float32(threshold)
        while shortest(float(reached)) < threshold:
            reached = np.nextafter(reached, np.float32(np.inf))
        while (below := np.nextafter(reached, np.float32(-np.inf))) < reached and shortest(float(below)) >= threshold:
            reached = below
    return float(reached)


def _speakers(outputs: Sequence[Output]) -> list[tuple[slice, Speaker]]:
    """Those of the outputs that say something, each with its columns (see ``answer.predictions``)."""
    found: list[tuple[slice, Speaker]] = []
    start = 0
    for output in outputs:
        stop = start + len(output.columns)
        speaker = _speaker(output)
        if speaker is not None:
            found.append((slice(start, stop), speaker))
        start = stop
    return found


def _speaker(output: Output) -> Speaker | None:
    name = orjson.dumps(output.name) + b":"
    match output:
        case Binary():
            return None if output.threshold is None else _of_binary(name, output.classes, least(output.threshold))
        case MultiClass():
            words = [name + orjson.dumps(word) for word in output.classes]
            return lambda scores: words[scores.index(max(scores))]
        case MultiLabel():
            return None if output.threshold is None else _of_labels(name, output.classes, least(output.threshold))
        case Regression():
            return None
        case _:
            assert_never(output)


def _of_binary(name: bytes, classes: Sequence[str] | None, threshold: float) -> Speaker:
    below, above = (name + orjson.dumps(word) for word in (classes or (False, True)))
    return lambda scores: above if scores[0] >= threshold else below


def _of_labels(name: bytes, classes: Sequence[str], threshold: float) -> Speaker:
    labels = [orjson.dumps(label) for label in classes]
    return lambda scores: (
        b"%b[%b]"
        % (
            name,
            b",".join([label for label, score in zip(labels, scores, strict=True) if score >= threshold]),
        )
    )
