"""The store is there and is not as it should be: full, read-only, without its pointer, evicting, corrupt."""

import signal
from collections.abc import Iterator

from support.servers import HOST, dead_port, wait_until

from drills.drill import drill
from drills.scene import Scene
from shared.layout import bucket_of

ROW = {"visits": 1, "returns": 0, "basket": 2}


@drill("the store is full (maxmemory, noeviction) in the middle of a load")
def store_full(scene: Scene) -> Iterator[str]:
    stage = scene.stage
    old, run = stage.published(), stage.new_run()
    loading = run.start(at="snapshot begun", how="stop")
    with stage.redis() as redis:
        redis.config_set("maxmemory", 1)
        yield "the store takes no more writes"
        loading.signal(signal.SIGCONT)
        code = loading.code()
        scene.expect(code == 1 and "OOM" in loading.errors, f"the load ended with {code}: {loading.errors[:200]}")
        scene.expect(stage.is_cached(old), "the old snapshot is not served")
        scene.expect(_put(scene) == 503, "features were taken by a full store")
        yield "the load failed and said why; the old snapshot is served"
        redis.config_set("maxmemory", 0)
    scene.ends(run, 0)
    scene.recovers(lambda: stage.is_cached(run))
    scene.accounted(run)
    yield "the same backfill again has ended"


@drill("the store becomes a read-only replica, as after a failover")
def store_read_only(scene: Scene) -> Iterator[str]:
    stage = scene.stage
    old, run = stage.published(), stage.new_run()
    with stage.redis() as redis:
        redis.replicaof(HOST, dead_port())
        yield "the store takes no writes"
        scene.ends(run, 1, "READONLY")
        scene.expect(stage.is_cached(old), "the old snapshot is not served")
        scene.expect(_put(scene) == 503, "features were taken by a replica")
        redis.replicaof("NO", "ONE")
    scene.ends(run, 0)
    scene.recovers(lambda: stage.is_cached(run))
    yield "it is the primary again"


@drill("the key that says which snapshot is active is deleted")
def pointer_deleted(scene: Scene) -> Iterator[str]:
    stage = scene.stage
    run = stage.published()
    with stage.redis() as redis:
        scene.expect(redis.delete(stage.keys.active()) == 1, "there was no pointer")
    scene.recovers(lambda: stage.is_cached(run))
    wait_until(lambda: stage.status() == "degraded", 20)
    scene.expect(stage.is_cached(run), "the last known snapshot is not served")
    yield "the last known snapshot is served, and /readyz says degraded"


@drill("the store evicts whatever it holds (allkeys-lru), the pointer too", refuses=True)
def pointer_evicted(scene: Scene) -> Iterator[str]:
    stage = scene.stage
    run = stage.published()
    with stage.redis() as redis:
        redis.config_set("maxmemory-policy", "allkeys-lru")
        redis.config_set("maxmemory", 1)
        wait_until(lambda: redis.exists(stage.keys.active()) == 0, 20)
        yield "nothing is left in the store"
        scene.degraded()
        redis.config_set("maxmemory", 0)
        redis.config_set("maxmemory-policy", "noeviction")
    scene.ends(run, 0)
    scene.recovers(lambda: stage.is_cached(run))
    yield "published again from the parts"


@drill("the bytes of two values are overwritten with others", refuses=True)
def value_corrupt(scene: Scene) -> Iterator[str]:
    stage = scene.stage
    run = stage.published()
    meta = run.manifest
    with stage.store() as store:
        buckets = next(row.meta.buckets for row in store.catalogue.snapshots() if row.meta.snapshot == meta.snapshot)
    with stage.redis() as redis:
        for entity in ("K3", "E3"):
            key = stage.keys.bucket(meta.snapshot, bucket_of(entity, buckets))
            scene.expect(redis.hset(key, entity, b"\x01\x00garbage") == 0, f"{entity} was not there")
    wait_until(lambda: stage.is_online("E3"), 20)
    answer = stage.get("K3")
    scene.expect(answer.status == 503 or stage.is_online("K3"), f"K3 was answered {answer.status} from garbage")
    scene.expect(stage.is_cached(run, "K4"), "its neighbour is not served")
    yield "only those two are touched, and no garbage is answered"
    following = stage.new_run()
    scene.ends(following, 0)
    scene.recovers(lambda: stage.is_cached(following, "K3") and stage.is_cached(following, "E3"))
    yield "the next backfill has mended them"


def _put(scene: Scene) -> int:
    """The status of an attempt to leave features."""
    return scene.stage.client.put("/features/P1", json={"features": ROW}).status_code
