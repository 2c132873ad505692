"""The environment: what is set in vain, and what does not fit together."""

from collections.abc import Iterator, Mapping
from difflib import get_close_matches

from pydantic import BaseModel

from batch_job.doctor.finding import Check, Verdict, failure, ok, warning
from shared.settings import Settings

PREFIX = "FORESCORE_"
_NEAR = 0.6
_SHOWN = 100


def known_variables(prefix: str = PREFIX, model: type[BaseModel] = Settings) -> list[str]:
    """The name of every setting, and of each group, which may be given as JSON."""
    names: list[str] = []
    for name, field in model.model_fields.items():
        variable = f"{prefix}{name}".upper()
        names.append(variable)
        if isinstance(field.default, BaseModel):
            names += known_variables(f"{variable}__", type(field.default))
    return names


def unknown_variables(variables: Mapping[str, str]) -> Iterator[Verdict]:
    known = known_variables()
    ours = [name for name in variables if name.upper().startswith(PREFIX)]
    unknown = [name for name in ours if name.upper() not in known]
    for name in sorted(unknown):
        near = get_close_matches(name.upper(), known, n=1, cutoff=_NEAR)
        hint = f"did you mean {near[0]}? " if near else ""
        yield warning(
            f"{name[:_SHOWN]} is not a setting, so it has no effect", f"{hint}docs/settings.md lists them all"
        )
    if not unknown:
        yield ok(f"{len(ours)} variables set, all known")


def reader_within_deadline(settings: Settings) -> Iterator[Verdict]:
    tries = settings.redis.read_retries + 1
    store, features = settings.redis.read_timeout_ms * tries, settings.features.timeout_ms
    deadline = settings.service.deadline_ms
    told = (
        f"the store may take {settings.redis.read_timeout_ms} ms x {tries} = {store} ms and features {features} ms, "
        f"of a deadline of {deadline} ms"
    )
    step = "lower FORESCORE_REDIS__READ_TIMEOUT_MS or _RETRIES, or raise FORESCORE_SERVICE__DEADLINE_MS"
    if store >= deadline:
        yield failure(told, step)
    elif store + features >= deadline:
        yield warning(told, step)
    else:
        yield ok(told)


VARIABLES: tuple[Check[Mapping[str, str]], ...] = (
    Check("variables", f"{PREFIX}* in the environment", unknown_variables),
)

CHECKS: tuple[Check[Settings], ...] = (
    Check("timeouts", "FORESCORE_REDIS__READ_*, FEATURES__TIMEOUT_MS, SERVICE__DEADLINE_MS", reader_within_deadline),
)
