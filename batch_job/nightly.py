"""What is scored each night, and how."""

from dataclasses import dataclass
from pathlib import Path
from typing import Literal


@dataclass(frozen=True, slots=True, kw_only=True)
class Nightly:
    """The arguments and options of ``forescore schedule`` that say what a run does."""

    bundle: Path
    table: str
    order_by: str | None = None
    duplicates: Literal["refuse", "last"] = "refuse"
    max_rejected: str | None = None
    where: str | None = None

    def arguments(self) -> list[str]:
        """The same, as the command line says it."""
        options = {"--order-by": self.order_by, "--max-rejected": self.max_rejected, "--where": self.where}
        given = [f"{name}={value}" for name, value in options.items() if value is not None]
        return [str(self.bundle), self.table, f"--duplicates={self.duplicates}", *given]
