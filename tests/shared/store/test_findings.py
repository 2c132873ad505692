"""What is said about a server that is set up badly."""

import pytest
from redis import Redis
from support.servers import ValkeyProcess, start_valkey
from support.stores import settings_for

from shared.layout import Keys
from shared.store.connect import open_store
from shared.store.findings import findings_of
from shared.store.inspection import store_findings


@pytest.mark.parametrize("policy", ["allkeys-lru", "allkeys-lfu", "allkeys-random"])
def test_a_policy_that_drops_scores_is_found(policy: str) -> None:
    """F2: allkeys policies evict buckets and the pointer; the finding names the policy and what to set."""
    [finding] = findings_of({"maxmemory_policy": policy, "redis_version": "7.2.4"}, "cache:6379")
    assert policy in finding.found
    assert "cache:6379" in finding.found
    assert "noeviction" in finding.next_step


def test_an_old_server_is_found() -> None:
    """Redis 7 is the oldest that is supported."""
    [finding] = findings_of({"maxmemory_policy": "noeviction", "redis_version": "6.2.1"}, "cache:6379")
    assert "6.2.1" in finding.found


def test_every_node_of_a_cluster_is_looked_at() -> None:
    """The finding is there if one of them has it, and only once."""
    good, bad = ({"maxmemory_policy": policy, "redis_version": "8.0"} for policy in ("noeviction", "allkeys-lru"))
    assert len(findings_of({"a:1": good, "b:1": bad, "c:1": bad}, "cluster")) == 1


def test_a_real_server_is_asked(valkey: ValkeyProcess, cluster: ValkeyProcess) -> None:
    """One that is set up as it should be has no findings, alone or as a cluster."""
    assert store_findings(settings_for(valkey.url)) == []
    assert store_findings(settings_for(f"redis+cluster://127.0.0.1:{cluster.port}")) == []


def test_a_real_server_that_evicts_is_found(tmp_path_factory: pytest.TempPathFactory, namespace: str) -> None:
    """F2: and where the pointer was evicted, the store says that nothing is active, which is no crash."""
    with start_valkey(tmp_path_factory.mktemp("evicts"), "--maxmemory-policy", "allkeys-lru") as server:
        settings = settings_for(server.url, namespace)
        assert "allkeys-lru" in store_findings(settings)[0].found
        with open_store(settings, "churn") as store, Redis(port=server.port) as client:
            client.delete(Keys(namespace, "churn").active())
            assert store.catalogue.active() is None
