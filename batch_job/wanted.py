"""Which of the listed ids the table has."""

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc


class Wanted:
    """Counts the listed ids that were not seen; ``whole`` says that every row of the table is shown."""

    def __init__(self, ids: pa.Array | None, *, whole: bool) -> None:
        self._ids = ids.unique() if ids is not None and whole else None
        self._seen = np.zeros(0 if self._ids is None else len(self._ids), dtype=np.bool_)

    def see(self, ids: pa.Array) -> None:
        """Takes the ids of some rows; nulls are none."""
        if self._ids is not None:
            places = pc.index_in(ids, value_set=self._ids).drop_null()
            self._seen[places.to_numpy(zero_copy_only=False)] = True

    def missing(self) -> int | None:
        """How many were not seen; None where that is not asked or cannot be known."""
        return None if self._ids is None else int(len(self._seen) - self._seen.sum())
