"""Generated families whose memory is steady, grows, has two sorts, or leaks.

The same random numbers give the same family.
"""

from collections.abc import Callable, Iterator
from random import Random

from msgspec import Struct

# A leak in which no memory is ever enough: it is not counted as a run that could pass.
ENDLESS_MB = 10**9


class Run(Struct, frozen=True, kw_only=True):
    """The memory that a run needs, and the exit code that it has if it is not killed."""

    need_mb: float
    exit_code: int = 0


def steady(rng: Random, size_mb: float) -> Iterator[Run]:
    """Most runs fit; each needs a little more or less."""
    while True:
        yield Run(
            need_mb=size_mb * rng.gauss(0.88, 0.07),
            exit_code=rng.choices([0, 1, 137, 143], [94, 3, 2, 1])[0],
        )


def growing(rng: Random, size_mb: float) -> Iterator[Run]:
    """The input grows by one percent a run."""
    need_mb = size_mb * 0.75
    while True:
        need_mb *= 1 + rng.uniform(0, 0.014)
        yield Run(need_mb=need_mb * rng.gauss(1, 0.03))


def two_sorts(rng: Random, size_mb: float) -> Iterator[Run]:
    """One run in ten is the month's, which needs up to twice the memory."""
    large = rng.uniform(1.05, 1.9)
    while True:
        yield Run(need_mb=size_mb * (large if rng.random() < 0.1 else 0.6) * rng.gauss(1, 0.04))


def leaking(rng: Random, size_mb: float) -> Iterator[Run]:
    """A bug in some input takes all memory there is."""
    while True:
        is_leak = rng.random() < 0.05
        yield Run(need_mb=ENDLESS_MB if is_leak else size_mb * rng.gauss(0.6, 0.05))


SHAPES: tuple[Callable[[Random, float], Iterator[Run]], ...] = (steady, growing, two_sorts, leaking)
