"""The store goes away and comes back: killed, paused, loading, locked, empty, older."""

import shutil
import signal
from collections.abc import Iterator

from support.servers import wait_until

from drills.drill import drill
from drills.scene import Scene
from drills.stage import forget_saved, keep_saved

BALLAST = 300
LOAD_DELAY_MICROSECONDS = 5_000
PASSWORD = "of the drill"  # noqa: S105 - a server of this machine, for a second


@drill("kill -9 of the store; started again with what it had saved", refuses=True)
def store_killed(scene: Scene) -> Iterator[str]:
    stage = scene.stage
    run = stage.published()
    keep_saved(stage, "killed.rdb")
    stage.valkey.kill()
    yield "the store is killed"
    scene.degraded()
    yield "who has features is scored online"
    stage.valkey.start()
    scene.recovers(lambda: stage.is_cached(run))
    yield "the store is back"


@drill("SIGSTOP of the store, then SIGCONT", refuses=True)
def store_paused(scene: Scene) -> Iterator[str]:
    stage = scene.stage
    run = stage.published()
    stage.valkey.pause()
    yield "the store takes connections and says nothing"
    scene.degraded()
    stage.valkey.resume()
    scene.recovers(lambda: stage.is_cached(run))
    yield "it goes on"


@drill("kill -9 of the store; started again while it loads for seconds (LOADING)", refuses=True)
def store_loading(scene: Scene) -> Iterator[str]:
    stage = scene.stage
    run = stage.published()
    with stage.redis() as redis:
        for number in range(BALLAST):
            redis.set(f"ballast:{number}", b"x" * 200)
    keep_saved(stage, "loading.rdb")
    stage.valkey.kill()
    slowly = ("--key-load-delay", str(LOAD_DELAY_MICROSECONDS), "--loading-process-events-interval-bytes", "1024")
    assert stage.valkey.start(*slowly)
    scene.expect(stage.valkey.says(b"GET a\r\n").startswith(b"-LOADING"), "the store was not seen loading")
    yield "the store says LOADING"
    scene.degraded()
    scene.recovers(lambda: stage.is_cached(run))
    yield "it has loaded"
    with stage.redis() as redis:
        redis.delete(*(f"ballast:{number}" for number in range(BALLAST)))
        redis.config_set("key-load-delay", 0)


@drill("a password is set on the running store (NOAUTH), and taken away", refuses=True)
def store_locked(scene: Scene) -> Iterator[str]:
    stage = scene.stage
    run = stage.published()
    with stage.redis() as redis:
        redis.config_set("requirepass", PASSWORD)
    with stage.redis(password=PASSWORD) as redis:
        redis.client_kill_filter(_type="normal", skipme=True)
        yield "every connection must say a password that nobody has"
        scene.degraded()
        scene.ends(stage.new_run(), 1, "NOAUTH")
        redis.config_set("requirepass", "")
    scene.recovers(lambda: stage.is_cached(run))
    yield "the password is gone"


@drill("the store is restarted empty; the same backfill again publishes from its parts", refuses=True)
def store_emptied(scene: Scene) -> Iterator[str]:
    stage = scene.stage
    run = stage.published()
    forget_saved(stage)
    stage.valkey.kill()
    stage.valkey.start()
    yield "the store is empty"
    wait_until(lambda: stage.status() == "degraded", 20)
    scene.degraded()
    scene.ends(run, 0)
    scene.expect(not any("scored" in step for step in run.steps if "chunk" in step), "rows were scored again")
    scene.recovers(lambda: stage.is_cached(run))
    yield "published again, and nothing was scored again"


@drill("the store is replaced by an older copy of itself; the last backfill again brings the newer back", refuses=True)
def store_older(scene: Scene) -> Iterator[str]:
    stage = scene.stage
    older = stage.published()
    copy = keep_saved(stage, "older.rdb")
    newer = stage.published()
    stage.valkey.kill()
    shutil.copy(copy, stage.folder / "dump.rdb")
    stage.valkey.start()
    yield "the store knows only yesterday"
    wait_until(lambda: stage.is_cached(older), 20)
    yield "yesterday's scores are answered as yesterday's"
    scene.ends(newer, 0)
    scene.recovers(lambda: stage.is_cached(newer))
    forget_saved(stage)
    yield "today's are back"


@drill("SIGSTOP of the store in the middle of a load, then SIGCONT", refuses=True)
def store_paused_in_a_load(scene: Scene) -> Iterator[str]:
    stage = scene.stage
    run = stage.new_run()
    loading = run.start(at="snapshot begun", how="stop")
    run.note()
    stage.valkey.pause()
    loading.signal(signal.SIGCONT)
    yield "the load goes on against a store that says nothing"
    scene.degraded()
    stage.valkey.resume()
    scene.recovers(lambda: stage.is_cached(run))
    scene.expect(loading.code() == 0, f"the load failed: {loading.errors[:200]}")
    scene.accounted(run)
    yield "the load has ended"
