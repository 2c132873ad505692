import re
from pathlib import Path
from typing import Any

import pytest
import typer
import yaml

from forescore import commands
from service.workers import CLOSING_SECONDS
from shared.settings import Settings

ROOT = Path(__file__).parents[1]
COMPOSE: dict[str, Any] = yaml.safe_load((ROOT / "docker-compose.yml").read_text(encoding="utf-8"))
SERVICES: dict[str, dict[str, Any]] = COMPOSE["services"]
OURS = [name for name, service in SERVICES.items() if service["image"].startswith("forescore:")]


@pytest.mark.parametrize("name", OURS)
def test_its_commands_exist(name: str) -> None:
    """Each command that the compose file runs is a command of Forescore and takes these arguments."""
    group: Any = typer.main.get_command(commands())
    first, *rest = SERVICES[name]["command"]
    assert first in group.commands
    group.commands[first].make_context(first, list(rest), resilient_parsing=False)


@pytest.mark.parametrize("name", OURS)
def test_its_settings_exist(name: str) -> None:
    """Each variable that the compose file sets is a setting, with a value that its rule allows."""
    known = {f"FORESCORE_{field}".upper() for field in Settings.model_fields}
    for variable in SERVICES[name]["environment"]:
        assert variable.partition("__")[0] in known


@pytest.mark.parametrize("name", list(SERVICES))
def test_every_container_is_confined(name: str) -> None:
    """No container writes to its image, gains rights, or takes all of the machine."""
    service = SERVICES[name]
    assert service["read_only"] is True
    assert service["cap_drop"] == ["ALL"]
    assert service["security_opt"] == ["no-new-privileges:true"]
    assert service["mem_limit"]
    assert service["cpus"]
    assert name in OURS or service["user"] not in {"root", "0"}


def test_only_the_service_is_reached_from_outside() -> None:
    """The store and Prometheus publish no port, and the service only on this machine."""
    published = {name: service["ports"] for name, service in SERVICES.items() if "ports" in service}
    assert list(published) == ["service"]
    assert all(port.startswith("127.0.0.1:") for port in published["service"])


def test_the_store_never_evicts() -> None:
    """A full store refuses the writer rather than drop a pointer or a bucket."""
    assert "--maxmemory-policy noeviction" in SERVICES["redis"]["command"]


def test_the_service_may_end_in_good_order() -> None:
    """Several workers answer, and they are given longer to end than they may take."""
    service = SERVICES["service"]
    assert service["command"] == ["serve", "--workers", "2"]
    settings = Settings().service
    bound = settings.drain_seconds + settings.flight_seconds + CLOSING_SECONDS
    assert float(service["stop_grace_period"].removesuffix("s")) > bound


def test_the_service_reads_the_files_that_the_schedule_leaves() -> None:
    """It has the schedule's home, read-only: what stands in for the store is there before it is needed."""
    assert "home:/var/lib/forescore:ro" in SERVICES["service"]["volumes"]
    assert "home:/var/lib/forescore" in SERVICES["schedule"]["volumes"]
    assert Settings(home=Path("/var/lib/forescore")).runs_folder == Path("/var/lib/forescore/runs")


def test_the_image_does_not_run_as_root() -> None:
    """The last stage of the image ends as a user of its own, and says how its health is seen."""
    last = (ROOT / "Dockerfile").read_text(encoding="utf-8").rpartition("\nFROM ")[2]
    assert "\nUSER forescore\n" in last
    assert "/readyz" in last


def test_passwords_are_on_no_command_line() -> None:
    """With the store's users, each process has its URL from the environment, and the users are a secret."""
    guarded: dict[str, Any] = yaml.safe_load((ROOT / "docker-compose.acl.yml").read_text(encoding="utf-8"))
    assert sorted(guarded["services"]) == sorted([*OURS, "redis"])
    for name in OURS:
        assert re.fullmatch(
            r"\$\{\w+:\?.*PASSWORD.*\}", guarded["services"][name]["environment"]["FORESCORE_REDIS__URL"]
        )
    store = guarded["services"]["redis"]
    plain = store["command"].replace(" --aclfile /run/secrets/users.acl", "")
    assert plain == SERVICES["redis"]["command"]
    assert store["secrets"] == list(guarded["secrets"])
    for file in (COMPOSE, guarded):
        for service in file["services"].values():
            assert not re.search(r"requirepass|masterauth|://\S+@|PASSWORD", str(service.get("command")))
