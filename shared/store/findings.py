"""What is wrong with a store that still answers: said at start-up, before it costs scores."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import structlog

from shared.telemetry import Logger

OLDEST_REDIS = 7

_log: Logger = structlog.get_logger()


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """What was found, and what to do about it."""

    found: str
    next_step: str


def findings_of(info: Mapping[str, Any], where: str) -> list[Finding]:
    """Each finding in the reply of INFO, once."""
    nodes = list(info.values()) if info and all(isinstance(node, Mapping) for node in info.values()) else [info]
    return list(dict.fromkeys(finding for node in nodes for finding in _of_node(node, where)))


def tell(findings: Iterable[Finding]) -> None:
    """A warning for each in the log."""
    for one in findings:
        _log.warning("store is not set up well", found=one.found, next_step=one.next_step)


def _of_node(info: Mapping[str, Any], where: str) -> list[Finding]:
    found = []
    policy = str(info.get("maxmemory_policy", ""))
    if policy.startswith("allkeys-"):
        found.append(
            Finding(
                found=f"maxmemory-policy {policy} at {where}: when it is full it drops scores and the pointer",
                next_step="CONFIG SET maxmemory-policy noeviction, and in its configuration",
            )
        )
    version = str(info.get("redis_version", ""))
    major = version.partition(".")[0]
    if major.isdigit() and int(major) < OLDEST_REDIS:
        found.append(
            Finding(
                found=f"the protocol of Redis {version} at {where}: Redis 7 or Valkey 8 is needed",
                next_step="upgrade it",
            )
        )
    return found
