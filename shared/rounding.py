"""How matrix products round, settled once for a process."""

import os


def settle_rounding() -> None:
    """Asks for products whose bits do not depend on where in memory a row begins.

    Intel's MKL, behind torch on x86, adds up in another order where a row is not aligned to 16 bytes: with 22 columns,
    every other row of a batch. Then no tile but single rows can be certified, and scoring is many times slower. Its
    "conditional numerical reproducibility" mode has one order for all; the cost measured is a few percent. It is read
    at the first product of the process, so this comes before it; a value that the user has set stands.
    https://www.intel.com/content/www/us/en/docs/onemkl/developer-guide-linux/2024-2/obtaining-numerically-reproducible-results.html
    """
    os.environ.setdefault("MKL_CBWR", "AUTO")
