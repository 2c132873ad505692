"""The bundle on this host: whether it can be trusted, how it is run, and whether its scores are those served."""

from collections.abc import Iterator
from dataclasses import dataclass

from batch_job.doctor.finding import Check, Verdict, failure, note, nothing_active, ok, warning
from shared.bundle import Bundle
from shared.engine import EngineChoice
from shared.engine_cache import EngineCache
from shared.host import compiler
from shared.scorer import Scorer
from shared.settings import Settings
from shared.snapshot import SnapshotMeta


@dataclass(frozen=True, slots=True, kw_only=True)
class OnHost:
    """A bundle that loads; ``scorer`` is there if its golden rows hold here, ``served`` if a snapshot is active."""

    settings: Settings
    bundle: Bundle
    scorer: Scorer
    served: SnapshotMeta | None

    @property
    def active(self) -> SnapshotMeta:
        """What is served."""
        if self.served is None:
            raise nothing_active()
        return self.served


def certified(here: OnHost) -> Iterator[Verdict]:
    scorer, manifest = here.scorer, here.bundle.manifest
    told = (
        f"{here.bundle.name} {here.bundle.version}: all digests fit, {manifest.golden_rows} golden rows hold on "
        f"{scorer.device} with the engine {scorer.engine}, tile {scorer.tile.rows}"
    )
    if not scorer.tile.multiples and scorer.tile.rows > 1:
        yield warning(f"{told} exactly: other numbers of rows round otherwise here", "see docs/engines.md")
    else:
        yield ok(told)


def engine(here: OnHost) -> Iterator[Verdict]:
    import torch  # noqa: PLC0415 - the scorer has loaded it

    threads = torch.get_num_threads()
    wanted, running = here.settings.engine, here.scorer.engine
    told = f"{wanted} is asked for, {running} is there; torch uses {threads} threads in this process"
    step = f"run: forescore bundle compile {here.bundle.path}"
    if wanted == "compiled" and running != wanted:
        yield failure(f"{told}: each start compiles first, or fails", step)
    elif wanted == "auto" and running == "export" and here.scorer.device == "cpu":
        yield warning(f"{told}: one row takes many times longer", step)
    else:
        yield ok(told)


def engine_cache(here: OnHost) -> Iterator[Verdict]:
    folder = EngineChoice.of(here.settings).cache
    EngineCache(folder).find("")  # EngineUnavailable, which says so, where it is open to others
    graphs = len(list(folder.glob("*.so")))
    yield ok(f"{folder}: private, {graphs} compiled graphs" if folder.is_dir() else f"{folder}: not made yet")


def cpp_compiler(here: OnHost) -> Iterator[Verdict]:
    found = compiler()
    if found is not None:
        yield ok(found)
    elif here.scorer.engine == "compiled":
        yield note("none, and none is needed: the graph is compiled already")
    else:
        yield note(
            "none: the exported graph is run", "install g++, or bring an engine cache of a host of the same kind"
        )


def same_bundle(here: OnHost) -> Iterator[Verdict]:
    bundle, active = here.bundle, here.active
    told = f"this bundle is {bundle.version} ({bundle.digest[:12]}), served is {active.model_version} "
    told += f"({active.bundle_digest[:12]})"
    if bundle.digest == active.bundle_digest:
        yield ok(told)
    elif bundle.version == active.model_version:
        yield failure(f"{told}: one version, two bundles", "give the new one a version of its own, and build it again")
    else:
        yield note(f"{told}: the unseen are scored by another version than the known", "backfill with this bundle")


def parity(here: OnHost) -> Iterator[Verdict]:
    active = here.active
    if here.bundle.digest != active.bundle_digest:
        yield note("not comparable: what is served is another bundle's", "backfill with this bundle")
    elif here.scorer.golden_digest == active.golden_digest:
        yield ok("exact: the golden scores of this host are those of the host that scored, bit for bit")
    else:
        yield warning(
            "tolerance: this host rounds the golden scores otherwise than the one that scored, and answers say so",
            "score and serve on one kind of host, with one torch and one engine",
        )


CHECKS: tuple[Check[OnHost], ...] = (
    Check("certified", "digests, golden rows, tile", certified),
    Check("engine", "FORESCORE_ENGINE, the engine cache, torch", engine),
    Check("engine cache", "FORESCORE_ENGINE_CACHE: owner, permissions, content", engine_cache),
    Check("compiler", "CXX, PATH", cpp_compiler),
    Check("bundle served", "the digests of the bundle and of the active snapshot", same_bundle),
    Check("parity", "golden digests of this host and of the active snapshot", parity),
)
