"""``python -m benchmarks.work.publish RUN``: the product's ``publish_run``, from the parts to a promoted snapshot."""

import sys
import time
from pathlib import Path

from batch_job.job import Means
from batch_job.publish import publish_run
from benchmarks.children import answer
from benchmarks.work.loaded import load_libraries
from shared.store.connect import open_store


def main() -> None:
    load_libraries()
    run = Path(sys.argv[1])
    means = Means()
    with open_store(means.settings, "churn") as store:
        started = time.perf_counter()
        manifest = publish_run(run, store, means)
        seconds = time.perf_counter() - started
    answer(entities=manifest.counts.scored + manifest.counts.rejected, seconds=seconds, state=manifest.state.value)


if __name__ == "__main__":
    main()
