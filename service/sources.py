"""From the setting to the sources: ``store,postgresql://reader@db/shop?table=customers`` are two."""

import asyncio
import inspect
import re
from collections.abc import Callable, Sequence
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any, cast

from service.features import FeatureSource, StoreFeatures
from service.parquet import open_parquet
from shared.errors import ForescoreError, SettingsError
from shared.importing import imported, is_import_path
from shared.schema import Schema
from shared.settings import FeatureSettings
from shared.store.interfaces import AsyncStore

_SETTING = "FORESCORE_FEATURES__URL"
_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*)://")


async def open_sources(settings: FeatureSettings, store: AsyncStore | None, schema: Schema) -> Sequence[FeatureSource]:
    """The sources in their order; without a store, those beside it.

    Whoever has them closes them; where one cannot be opened, the others are closed.
    """
    texts = [text.strip() for text in settings.url.get_secret_value().split(",")]
    sources: list[FeatureSource] = []
    async with AsyncExitStack() as opened:
        for text in texts:
            if text in {"", "none"} or (text == "store" and store is None):
                continue
            if text == "store" and store is not None:
                source: FeatureSource = StoreFeatures(store.features)
            else:
                source = await _open(text, schema, settings)
            opened.push_async_callback(source.close)
            sources.append(source)
        opened.pop_all()
    return sources


async def _open(text: str, schema: Schema, settings: FeatureSettings) -> FeatureSource:
    if scheme := _SCHEME.match(text):
        return await asyncio.to_thread(_open_sql, scheme[1], text, schema, settings)
    if is_import_path(text):
        return await _open_own(text, schema, settings)
    return await asyncio.to_thread(open_parquet, Path(text), schema)


def _open_sql(scheme: str, text: str, schema: Schema, settings: FeatureSettings) -> FeatureSource:
    if scheme.partition("+")[0] not in {"sqlite", "postgresql", "postgres"}:
        raise SettingsError(f"{_SETTING}: {scheme[:40]}:// is no source of features; sqlite:// and postgresql:// are")
    try:
        from service.sql import open_sql  # noqa: PLC0415 - an extra: only a service with such a source has it

        return open_sql(text, schema, settings)
    except ModuleNotFoundError as error:
        raise SettingsError(f"{_SETTING}: an SQL source needs {error.name}: pip install 'forescore[sql]'") from None


async def _open_own(text: str, schema: Schema, settings: FeatureSettings) -> FeatureSource:
    """Calls a function of the user's, ``async`` or not, and proves what it returns."""
    function = await asyncio.to_thread(imported, text)
    try:
        made = function(schema, settings)
        source = await made if inspect.isawaitable(made) else made
    except ForescoreError:
        raise
    except Exception as error:
        raise SettingsError(
            f"{_SETTING}: {text} raised {type(error).__name__}; call it in Python to see where"
        ) from error
    if not isinstance(getattr(source, "name", None), str) or not all(
        map(inspect.iscoroutinefunction, _methods(source))
    ):
        raise SettingsError(
            f"{_SETTING}: {text} returned {type(source).__name__}, which is no source: it needs a text `name` and the "
            "methods `async def read(self, ids)` and `async def close(self)`"
        )
    return cast("FeatureSource", source)


def _methods(source: object) -> list[Callable[..., Any] | None]:
    return [getattr(source, "read", None), getattr(source, "close", None)]
