"""What is wrong with a store that still answers: said at start-up, before it costs scores."""

from collections.abc import Mapping
from typing import Any

OLDEST_REDIS = 7


def findings_of(info: Mapping[str, Any], where: str) -> list[str]:
    """One sentence for each finding in the reply of INFO."""
    nodes = list(info.values()) if info and all(isinstance(node, Mapping) for node in info.values()) else [info]
    return list(dict.fromkeys(finding for node in nodes for finding in _of_node(node, where)))


def _of_node(info: Mapping[str, Any], where: str) -> list[str]:
    found = []
    policy = str(info.get("maxmemory_policy", ""))
    if policy.startswith("allkeys-"):
        found.append(
            f"the store at {where} has maxmemory-policy {policy}: when it is full it drops scores and the pointer; "
            "set it to noeviction or volatile-ttl"
        )
    version = str(info.get("redis_version", ""))
    major = version.partition(".")[0]
    if major.isdigit() and int(major) < OLDEST_REDIS:
        found.append(f"the store at {where} speaks the protocol of Redis {version}: Redis 7 or Valkey 8 is needed")
    return found
