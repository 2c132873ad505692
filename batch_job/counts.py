"""The accounting: every input row is scored, rejected or a duplicate."""

from collections import Counter
from collections.abc import Iterable
from typing import Self

from pydantic import BaseModel, ConfigDict

from shared.errors import AccountingBroken


class RejectionCount(BaseModel):
    """How many rows were rejected for one reason, and by which field."""

    model_config = ConfigDict(frozen=True)

    code: str
    field: str | None
    rows: int

    def __str__(self) -> str:
        return f"{self.rows} {self.code}" + (f" in {self.field}" if self.field is not None else "")


class Counts(BaseModel):
    """What became of rows. ``rejections`` are sorted, the most frequent first."""

    model_config = ConfigDict(frozen=True)

    input: int = 0
    scored: int = 0
    rejected: int = 0
    duplicate: int = 0
    rejections: tuple[RejectionCount, ...] = ()

    def require_balanced(self, where: str) -> Self:
        """The law ``input = scored + rejected + duplicate``; AccountingBroken says where it does not hold."""
        explained = sum(reason.rows for reason in self.rejections)
        if self.input != self.scored + self.rejected + self.duplicate or self.rejected != explained:
            raise AccountingBroken(
                f"{where}: {self.input} input rows, but {self.scored} scored + {self.rejected} rejected "
                f"({explained} with a reason) + {self.duplicate} duplicate; run again with --force, and report this"
            )
        return self


def rejection_counts(reasons: Iterable[tuple[str, str | None]]) -> tuple[RejectionCount, ...]:
    """Counts (code, field) pairs."""
    return _sorted(Counter(reasons))


def total(parts: Iterable[Counts]) -> Counts:
    """The sum of several counts."""
    known = list(parts)
    reasons: Counter[tuple[str, str | None]] = Counter()
    for part in known:
        for reason in part.rejections:
            reasons[reason.code, reason.field] += reason.rows
    return Counts(
        input=sum(part.input for part in known),
        scored=sum(part.scored for part in known),
        rejected=sum(part.rejected for part in known),
        duplicate=sum(part.duplicate for part in known),
        rejections=_sorted(reasons),
    )


def _sorted(reasons: Counter[tuple[str, str | None]]) -> tuple[RejectionCount, ...]:
    ordered = sorted(reasons.items(), key=lambda item: (-item[1], item[0][0], item[0][1] or ""))
    return tuple(RejectionCount(code=code, field=field, rows=rows) for (code, field), rows in ordered)
