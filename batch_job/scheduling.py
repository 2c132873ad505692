"""The life of ``forescore schedule``: opens everything, watches until it is told to end, closes everything."""

import logging
import sys
from contextlib import ExitStack
from datetime import UTC, datetime

import typer
from prometheus_client import CollectorRegistry

from batch_job.child import Child
from batch_job.nightly import Nightly
from batch_job.nightwatch import NightWatch
from batch_job.probes import probes
from batch_job.schedule import JOB, Nights, build_scheduler
from batch_job.schedule_health import Health
from batch_job.schedule_metrics import ScheduleMetrics
from shared.bundle import load_bundle
from shared.clock import MonotonicClock, WallClock
from shared.processes import heard
from shared.settings import Settings
from shared.store.connect import open_store
from shared.store.inspection import warn_of_store
from shared.telemetry import LibraryHandler, configure_logging


def run_schedule(nightly: Nightly, settings: Settings) -> int:
    """Watches until SIGTERM (0) or Ctrl-C (130). A run that is at work then ends in good order and can be resumed."""
    log = configure_logging(settings, sys.stderr)
    handler = LibraryHandler(log, speakers=("apscheduler",))
    logging.basicConfig(handlers=[handler], level=logging.WARNING, force=True)
    schedule, clock = settings.schedule, WallClock()
    trigger = Nights(schedule.cron, schedule.timezone)
    bundle = load_bundle(nightly.bundle)
    health = Health(trigger, schedule, clock, ScheduleMetrics(CollectorRegistry()))
    child = Child(
        deadline=schedule.run_deadline_seconds, stop_seconds=schedule.stop_seconds, stopwatch=MonotonicClock()
    )
    with ExitStack() as stack:
        ending = stack.enter_context(heard())
        url = stack.enter_context(probes(health, schedule.host, schedule.port))
        watch = NightWatch(
            calendar=trigger,
            store=stack.enter_context(open_store(settings, bundle.name)),
            settings=schedule,
            health=health,
            clock=clock,
            run=lambda due: child.run(command(nightly, due)),
            pause=ending.event.wait,
        )
        scheduler = build_scheduler(trigger, schedule, watch.attend)
        scheduler.start()
        stack.callback(scheduler.shutdown)
        stack.callback(child.stop)
        log.info("schedule begins", model=bundle.name, table=nightly.table, cron=str(trigger))
        typer.echo(f"Forescore's schedule tells of itself on {url}/readyz")
        warn_of_store(settings)
        while True:
            scheduler.wakeup()  # it sleeps until a moment by a clock that may have been set since
            if watch.tick():
                scheduler.modify_job(JOB, next_run_time=datetime.fromtimestamp(clock.now(), UTC))
            if ending.event.wait(schedule.poll_seconds):
                break
        log.info("schedule ends")
    return ending.code


def command(nightly: Nightly, due: datetime) -> list[str]:
    """The command line of the run of the night that was due then."""
    night = due.astimezone(UTC).isoformat()
    return [sys.executable, "-m", "forescore", "schedule", *nightly.arguments(), "--once", "--json", "--night", night]
