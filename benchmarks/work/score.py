"""``python -m benchmarks.work.score BUNDLE TABLE OUT``: the product's ``score_batch``, from the call to verified parts.

The libraries are loaded before the clock starts, as they are for the lesson's loop.
"""

import sys
import time

from batch_job.run import score_batch
from benchmarks.children import answer
from benchmarks.work.loaded import load_libraries


def main() -> None:
    load_libraries()
    bundle, table, out = sys.argv[1:]
    started = time.perf_counter()
    manifest = score_batch(table, out, bundle=bundle, force=True)
    seconds = time.perf_counter() - started
    answer(
        rows=manifest.counts.scored, rejected=manifest.counts.rejected, seconds=seconds, stages=dict(manifest.seconds)
    )


if __name__ == "__main__":
    main()
