"""Scoring online what the cache has no answer for: features, one forward pass, and back into the snapshot."""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from service.answers import Answer, parity_with
from service.features import FeatureChain, UnknownIds
from service.flight import Key
from service.forward import Row, RowScorer
from service.headers import CacheStatus
from service.refusals import rejected_online
from service.writeback import WriteBack
from shared.bundle import Bundle
from shared.clock import Clock
from shared.errors import RequestError, ScoreUnavailable, WrongShape
from shared.metrics import Metrics
from shared.snapshot import Active
from shared.store.interfaces import OnlineScore
from shared.telemetry import StageTimer

if TYPE_CHECKING:  # the scorer brings torch, which a process loads while it already answers its probes
    from shared.scorer import Scored


@dataclass(frozen=True, slots=True)
class NoFeatures:
    """No source has features of the entity; ``unsure`` where one failed that may have them."""

    unsure: bool


Computed = Answer | RequestError | NoFeatures
COMPUTED = CacheStatus(forwarded="miss")
STORED = CacheStatus(forwarded="miss", stored=True)
GIVEN = CacheStatus(forwarded="bypass")
"""What most callers are told; ``Desk`` changes it for the others."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Model:
    """What this process scores with: the bundle, and the digest of its golden scores as computed here."""

    bundle: Bundle
    golden_digest: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Given:
    """Features that came with a question, under the entity id that it named, if any. Their scores are never kept."""

    entity_id: str | None
    row: Row


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """What is scored together, as ``active`` was the active snapshot: entities by their features in the sources, and
    given features. The scores of those in ``kept`` may go into the snapshot, as long as ``is_current`` says so."""

    active: Active | None
    entities: Sequence[str] = ()
    given: Mapping[int, Given] = field(default_factory=dict)
    kept: Collection[str] = frozenset()
    is_current: Callable[[str], bool] = field(default=lambda _: True)


@dataclass(frozen=True, slots=True, kw_only=True)
class Scoring:
    """Computes scores. ``write_back`` is None where online scores are not kept."""

    model: Model
    chain: FeatureChain
    unknown: UnknownIds
    rows: RowScorer
    write_back: WriteBack | None
    clock: Clock
    metrics: Metrics

    async def compute(self, job: Job, stages: StageTimer, until: float | None) -> dict[Key, Computed]:
        """One question to each feature source and one forward pass, however many there are; a result for each."""
        rows: dict[Key, Row] = {place: given.row for place, given in job.given.items()}
        results: dict[Key, Computed] = {}
        if job.entities:
            results |= await self._fetch(job, rows, stages)
        if rows:
            results |= await self._score(job, rows, stages, until)
        return results

    async def replace(self, active: Active, entity_id: str, row: Row, stages: StageTimer) -> None:
        """Puts the row's score into the snapshot in place of an online score that is there."""
        if self.write_back is None or not self.keeps(active):
            return
        scored = await self.rows.score([row], stages)
        if len(scored.rows):
            await self.write_back.write(active.meta, [OnlineScore(entity_id, scored.scores[0].tolist(), self._now())])

    async def withdraw(self, entity_id: str) -> None:
        """No score that was computed before this call is written into the snapshot after it."""
        if self.write_back is not None:
            await self.write_back.withdraw(entity_id)

    async def _fetch(self, job: Job, rows: dict[Key, Row], stages: StageTimer) -> dict[Key, Computed]:
        """Adds to ``rows`` the features that can be had; returns the entities that have none."""
        snapshot = job.active.meta.snapshot if job.active is not None else None
        wanted = [entity for entity in job.entities if not self.unknown.has(snapshot, entity)]
        self.metrics.remembered(len(job.entities) - len(wanted))
        with stages.stage("features"):
            fetched = await self.chain.read(wanted)
        for entity in wanted:
            if entity not in fetched.rows and entity not in fetched.unsure and job.is_current(entity):
                self.unknown.remember(snapshot, entity)
        rows.update(fetched.rows)
        return {entity: NoFeatures(entity in fetched.unsure) for entity in job.entities if entity not in fetched.rows}

    async def _score(
        self, job: Job, rows: Mapping[Key, Row], stages: StageTimer, until: float | None
    ) -> dict[Key, Computed]:
        refused = self._refuse_namesake(job.active)
        if refused is not None:
            return dict.fromkeys(rows, refused)
        try:
            scored = await self.rows.score(list(rows.values()), stages, until)
        except RequestError as error:  # such as too much to do: what the cache has is answered all the same
            return dict.fromkeys(rows, error)
        return self._results(job, list(rows), scored)

    def _results(self, job: Job, keys: Sequence[Key], scored: "Scored") -> dict[Key, Computed]:
        now = self._now()
        parity = None if job.active is None else parity_with(job.active.meta, self.model.golden_digest)
        results: dict[Key, Computed] = {keys[one.row]: rejected_online(one) for one in scored.rejections}
        for one in scored.rejections:
            self.metrics.rejection(one.code)
        for place, scores in zip(scored.rows.tolist(), scored.scores.tolist(), strict=True):
            key = keys[place]
            entity, status = (
                (key, STORED if self._offer(job, key, scores, now) else COMPUTED)
                if isinstance(key, str)
                else (job.given[key].entity_id, GIVEN)
            )
            results[key] = Answer.from_online(
                entity, scores, self.model.bundle, scored_at=now, parity=parity, cache=status
            )
        if len(results) != len(keys):
            raise WrongShape(f"{len(keys)} rows were given to the model, and {len(results)} came back")
        return results

    def _offer(self, job: Job, entity_id: str, scores: Sequence[float], scored_at: int) -> bool:
        """Whether the score goes into the snapshot; one for features that a caller made up never does."""
        if self.write_back is None or job.active is None or not self.keeps(job.active):
            return False
        if entity_id not in job.kept or not job.is_current(entity_id):
            return False
        return self.write_back.offer(job.active.meta, entity_id, scores, scored_at)

    def keeps(self, active: Active) -> bool:
        """Whether the snapshot may take scores of this process: the same bundle, and proved to give the same bits."""
        return (
            self.write_back is not None
            and active.meta.bundle_digest == self.model.bundle.digest
            and active.meta.golden_digest == self.model.golden_digest
        )

    def _refuse_namesake(self, active: Active | None) -> RequestError | None:
        """One name and version must mean one model: with another one active under ours, nothing is scored here."""
        bundle = self.model.bundle
        if active is None or active.meta.model_version != bundle.version or active.meta.bundle_digest == bundle.digest:
            return None
        return ScoreUnavailable(
            f"version {bundle.version} of the active snapshot is another bundle than the one loaded here; "
            "restart the service with that bundle, or publish under a version of its own"
        )

    def _now(self) -> int:
        return int(self.clock.now())
