"""What a process loads before its clock starts, so that no measurement counts the loading of a library.

pyarrow loads its datasets when they are first used, and pandas, where that is installed, with its first column.
"""

import pyarrow as pa
import pyarrow.dataset


def load_libraries() -> None:
    """Loads what the first use would."""
    pyarrow.dataset.dataset(pa.table({"column": [0]})).to_table()["column"].to_numpy()
