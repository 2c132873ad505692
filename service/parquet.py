"""Features from one Parquet file, held in memory and found by entity id."""

import asyncio
from bisect import bisect_right
from collections.abc import Mapping, Sequence
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc

from shared.columns import python_value, python_values
from shared.encode import find_column
from shared.errors import TableNotFound
from shared.ids import id_column
from shared.schema import Schema

Row = Mapping[str, object]

FEW = 16
"""So many ids are found within the time that a change of threads takes."""
FEW_ROWS = 4
"""So many are read value by value: to take rows out of a table costs Arrow more, before it looks at the first."""


class ParquetFeatures:
    """The rows of a table by entity. Of several rows of one entity, the last in the file counts.

    ``order`` sorts the ids; Arrow sorts text by its UTF-8 bytes, which is the order of code points that Python compares
    by. The table stays as Arrow columns: it takes the memory of its values, not of Python objects.
    """

    name = "parquet"

    def __init__(self, table: pa.Table, ids: pa.Array) -> None:
        self._table = table
        self._columns = list(zip(table.column_names, table.columns, strict=True))
        self._ids = ids
        self._order = pc.sort_indices(ids).to_numpy()

    async def read(self, ids: Sequence[str]) -> Mapping[str, Row | None]:
        return self._rows(ids) if len(ids) <= FEW else await asyncio.to_thread(self._rows, ids)

    async def close(self) -> None:
        """Nothing is open: the file was read whole."""

    def _rows(self, ids: Sequence[str]) -> dict[str, Row | None]:
        found = {entity: row for entity in ids if (row := self._position(entity)) is not None}
        if len(found) <= FEW_ROWS:
            return {entity: self._row(row) for entity, row in found.items()}
        taken = self._table.take(pa.array(found.values(), pa.int64()))
        columns = [python_values(column.combine_chunks()) for column in taken.columns]
        rows = zip(*columns, strict=True)
        return {
            entity: dict(zip(taken.column_names, row, strict=True)) for entity, row in zip(found, rows, strict=True)
        }

    def _row(self, row: int) -> Row:
        return {name: python_value(column[row]) for name, column in self._columns}

    def _position(self, entity_id: str) -> int | None:
        place = bisect_right(self._order, entity_id, key=self._id_at) - 1
        if place < 0:
            return None
        row = int(self._order[place])
        return row if self._id_at(row) == entity_id else None

    def _id_at(self, row: int) -> str:
        return str(self._ids[row].as_py())


def open_parquet(path: Path, schema: Schema) -> ParquetFeatures:
    """Reads the schema's columns; TableNotFound, ColumnMissing and ColumnRefused say what is wrong with the file."""
    import pyarrow.parquet as pq  # noqa: PLC0415 - only a service with such a source pays for it

    if not path.is_file():
        raise TableNotFound(f"features: {path} is not a file; FORESCORE_FEATURES__URL names one Parquet file")
    names = [schema.entity, *(feature.name for feature in schema.features)]
    try:
        file = pq.ParquetFile(path)
        table = file.read(columns=[name for name in names if name in file.schema_arrow.names])
    except (pa.ArrowException, OSError, UnicodeDecodeError) as error:
        raise TableNotFound(f"features: {path} cannot be read as Parquet ({type(error).__name__})") from None
    columns = {name: find_column(table, name) for name in names}
    ids = id_column(columns.pop(schema.entity), schema.entity).text
    known = ids.is_valid()
    return ParquetFeatures(pa.table(columns).filter(known), ids.filter(known))
