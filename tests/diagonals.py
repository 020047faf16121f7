"""Sweeps whose diagonal `make test` runs: each value of each parameter, but not each with each
other. The rest has the marker ``slow``.
"""

from collections import defaultdict
from collections.abc import Iterable, Sequence

import pytest


def mark_rest_as_slow(items: Iterable[pytest.Item]) -> None:
    """Of each test with the marker ``diagonal``, ``diagonal(MOST)`` for at most so many."""
    sweeps = defaultdict[str, list[pytest.Function]](list)
    for item in items:
        is_slow = item.get_closest_marker("slow") is not None
        if (
            isinstance(item, pytest.Function)
            and item.get_closest_marker("diagonal")
            and not is_slow
        ):
            sweeps[item.nodeid.partition("[")[0]].append(item)
    for sweep in sweeps.values():
        (*given,) = sweep[0].get_closest_marker("diagonal").args  # type: ignore[union-attr]
        places = diagonal([item.callspec._idlist for item in sweep], *given)
        for number, item in enumerate(sweep):
            if number not in places:
                item.add_marker(pytest.mark.slow)


def diagonal(cases: Sequence[Sequence[str]], most: int | None = None) -> set[int]:
    """The places of the cases on the diagonal, at most so many, as far from each other as can be.
    A case is the names of its values, one of each parameter.
    """
    values = [sorted(set(names)) for names in zip(*cases, strict=True)]
    longest = max(map(len, values))
    steps = [tuple(of[n % len(of)] for of in values) for n in range(longest)]
    if most is not None and most < longest:
        steps = [steps[n * (longest - 1) // (most - 1)] for n in range(most)]
    return {number for number, case in enumerate(cases) if tuple(case) in steps}
