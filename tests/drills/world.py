"""The customers of all drills: their rows in each edition of the table, and what every answer about them must say.

Three kinds: K has no features outside the batch, E has some (so that it can be scored online in an outage), and U is
unseen by the batch. An edition is one state of the table; no customer has the same score in two editions.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from shared.scorer import Scorer, open_scorer
from shared.testing.bundles import PURCHASE_FEATURES, purchase_bundle

Row = Mapping[str, float]

FEW, BAD = 24, "bad"
KNOWN = tuple(f"{kind}{number}" for number in range(FEW) for kind in "KE")
UNSEEN = 8_000
WEIGHTS = {"1": (0.8, -0.4, 0.6), "2": (-0.5, 0.2, 0.1)}
OUTPUT = "buys"


def batch_row(entity: str, edition: int) -> Row:
    """The row of a customer whom the batch knows."""
    number = int(entity[1:]) * 2 + (entity[0] == "E")
    return {"visits": number / 16 + edition / 64, "returns": number % 5 / 4, "basket": number % 3 / 2}


def live_row(entity: str) -> Row:
    """The features that the service has of a customer."""
    number = int(entity[1:])
    return {"visits": number % 97 / 31 + 0.3, "returns": number % 1009 / 512, "basket": 0.25 if entity[0] == "E" else 0}


@dataclass(frozen=True)
class World:
    """Bundles, features of the live and right scores. ``snapshots``: the edition that each snapshot is of."""

    folder: Path
    scorers: Mapping[str, Scorer]
    snapshots: dict[str, int] = field(default_factory=dict)
    _numbers: Iterator[int] = field(default_factory=count)
    _batch: dict[tuple[str, int], dict[str, np.float32]] = field(default_factory=dict)
    _live: dict[str, dict[str, np.float32]] = field(default_factory=dict)

    @classmethod
    def made(cls, folder: Path) -> "World":
        scorers = {
            version: open_scorer(
                purchase_bundle(folder / f"bundle-{version}", version=version, weights=weights), device="cpu", threads=1
            )
            for version, weights in WEIGHTS.items()
        }
        world = cls(folder, scorers)
        live = [*(entity for entity in KNOWN if entity[0] == "E"), *(f"U{number}" for number in range(UNSEEN))]
        _write(world.features, {entity: live_row(entity) for entity in live})
        for version, scorer in scorers.items():
            world._live[version] = _scores(scorer, {entity: live_row(entity) for entity in live})
        return world

    def new_number(self) -> int:
        """One that no run and no edition had."""
        return next(self._numbers)

    @property
    def features(self) -> Path:
        """The table that the service has features from."""
        return self.folder / "features.parquet"

    def bundle(self, version: str = "1") -> Path:
        return self.scorers[version].bundle.path

    def table(self, edition: int) -> Path:
        """The table in that edition. One of its rows is to be rejected."""
        path = self.folder / f"customers-{edition}.parquet"
        if not path.exists():
            bad = dict.fromkeys(PURCHASE_FEATURES)
            _write(path, {entity: batch_row(entity, edition) for entity in KNOWN} | {BAD: bad})  # type: ignore[dict-item]
        return path

    def batch_scores(self, version: str, edition: int) -> dict[str, np.float32]:
        """What a snapshot of the version holds of that edition."""
        key = (version, edition)
        if key not in self._batch:
            rows = {entity: batch_row(entity, edition) for entity in KNOWN}
            self._batch[key] = _scores(self.scorers[version], rows)
        return self._batch[key]

    def live_score(self, version: str, entity: str) -> np.float32 | None:
        return self._live[version].get(entity)

    def fault(self, entity: str, body: Mapping[str, Any]) -> str | None:
        """What is wrong with a score that was answered; None: nothing."""
        score, snapshot = np.float32(body["scores"][OUTPUT]), body["snapshot"]
        said = f"{entity}: {score} from {body['source']} of {snapshot or body['model_version']}"
        if body["entity_id"] != entity:
            return f"{said} was answered as {body['entity_id']}'s"
        if snapshot is None:
            return (
                None if score == self.live_score(body["model_version"], entity) else f"{said} is not its online score"
            )
        version, edition = snapshot.partition("-")[0], self.snapshots.get(snapshot)
        if edition is None or version != body["model_version"]:
            return f"{said}: no such snapshot was made"
        written_back = self.live_score(version, entity)
        return None if score in {self.batch_scores(version, edition).get(entity), written_back} else f"{said} is wrong"


def _write(path: Path, rows: Mapping[str, Row]) -> None:
    columns = {name: [row[name] for row in rows.values()] for name in PURCHASE_FEATURES}
    pq.write_table(pa.table({"customer_id": list(rows), **columns}), path)


def _scores(scorer: Scorer, rows: Mapping[str, Row]) -> dict[str, np.float32]:
    scores = scorer.score(scorer.encoder.rows(list(rows.values())))[:, 0]
    return dict(zip(rows, scores, strict=True))
