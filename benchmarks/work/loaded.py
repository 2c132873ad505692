"""What a process loads before its clock starts, so that no measurement counts the loading of a library.

pyarrow loads its datasets when they are first used, and pandas, where that is installed, with its first column. torch's
library is one of them: the lesson's loop has imported it by then.
"""

import pyarrow as pa
import pyarrow.dataset

from shared.libtorch import libtorch


def load_libraries() -> None:
    """Loads what the first use would."""
    pyarrow.dataset.dataset(pa.table({"column": [0]})).to_table()["column"].to_numpy()
    libtorch()
