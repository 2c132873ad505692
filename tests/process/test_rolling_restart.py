"""Two instances behind a load balancer, restarted one after the other while they are asked."""

from contextlib import ExitStack
from pathlib import Path

import httpx2
import pytest
from support.balancing import READY_SECONDS, Balancer, Instance
from support.clients import ROWS, published
from support.servers import ValkeyProcess, wait_until

from shared.scorer import open_scorer
from shared.testing.bundles import purchase_bundle

EXACT = {"0": 0.8581489, "1": 0.3100255, "2": 0.7310586, "3": 0.6899745}
pytestmark = pytest.mark.timeout(1200)


def test_a_rolling_restart_fails_no_request(tmp_path: Path, valkey: ValkeyProcess) -> None:
    """Hits and online scores, on new connections and on kept ones: through two restarts each is answered, and right."""
    scorer = open_scorer(purchase_bundle(tmp_path / "bundle"), device="cpu")
    hits = {entity: ROWS[entity] for entity in ("0", "1")}
    environment = published(valkey, scorer, hits) | {
        "FORESCORE_SERVICE__WRITE_BACK": "false",
        "FORESCORE_SERVICE__DRAIN_SECONDS": "2",
    }
    with ExitStack() as stack:
        instances = [Instance(tmp_path / name, scorer.bundle.path, environment) for name in ("a", "b")]
        for instance in instances:
            stack.callback(lambda each: each.process.stop(), instance)
        for instance in instances:
            wait_until(instance.is_ready, READY_SECONDS)
        for entity in ("2", "3"):
            answer = httpx2.put(f"{instances[0].url}/features/{entity}", json={"features": ROWS[entity]}, timeout=30)
            assert answer.status_code == 204
        balancer = Balancer([instance.url for instance in instances], EXACT)
        with balancer.busy(callers=4):
            codes = []
            balancer.wait_answered(by=instances[1].url, calls=50)
            for instance in instances:
                codes.append(instance.restart())
                balancer.wait_answered(by=instance.url, calls=50)
    assert balancer.failed == []
    assert codes == [0, 0]
    assert min(balancer.sources["cache"], balancer.sources["online"]) > 50
