"""How much is done. The bars are the same for every size; only ``FULL`` is what they were set for."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Sizes:
    """``big_rows`` and ``small_rows``: the two tables of the batch job; the small one's snapshot is served."""

    name: str
    rounds: int
    batch_rounds: int
    big_rows: int
    small_rows: int
    reference_rows: int
    """Rows that the slow references of the batch job are measured on, per row."""
    random_rows: int
    round_seconds: float
    """How long one round of cached or posted answers lasts."""
    unseen: int
    """Unseen entities that one round of misses asks for."""
    connections: int
    calls: int
    """Calls for the time of one row."""
    starts: int
    """How often commands are started."""
    bodies: int = 5_000
    """Different requests that a round goes through again and again."""
    customers: int = 7_043
    """Of the example's customers, how many are compared bit for bit: all, unless said."""
    compiles: bool = True
    """Whether the engine `compiled` is compiled where the bench compares the engines' bits: most of a minute."""
    cold_starts: int = 1
    """Starts before those that count, after which what is read and compiled once is there."""
    patient: bool = False
    """Whether the service waits longer than by default for its store: where a busy machine must fail no test."""


FULL = Sizes(
    name="full",
    rounds=5,
    batch_rounds=3,
    big_rows=2_000_000,
    small_rows=200_000,
    reference_rows=100_000,
    random_rows=100_000,
    round_seconds=4,
    unseen=12_000,
    connections=32,
    calls=5_000,
    starts=5,
)
QUICK = Sizes(
    name="quick",
    rounds=3,
    batch_rounds=2,
    big_rows=200_000,
    small_rows=20_000,
    reference_rows=20_000,
    random_rows=10_000,
    round_seconds=2,
    unseen=3_000,
    connections=32,
    calls=2_000,
    starts=3,
)
TINY = Sizes(
    name="tiny",
    rounds=1,
    batch_rounds=1,
    big_rows=4_000,
    small_rows=2_000,
    reference_rows=500,
    random_rows=200,
    round_seconds=0.3,
    unseen=100,
    connections=8,
    calls=50,
    starts=1,
    bodies=200,
    customers=300,
    compiles=False,
    cold_starts=0,
    patient=True,
)
SIZES = {size.name: size for size in (FULL, QUICK, TINY)}
