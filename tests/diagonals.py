"""Sweeps of which `make test` runs few cases. Of a test with the marker ``diagonal``, it runs each
value of each parameter, but not each with each other, and `make slow` each pair of values of two
parameters. Of another test with parameters, it runs two cases, and `make slow` the others; but of one
that costs next to nothing, as the unit tests, all. What `make slow` runs has the marker ``slow``.
"""

from collections import defaultdict
from collections.abc import Callable, Sequence
from itertools import combinations

import pytest

_FEW = 2


def mark_rest_as_slow(items: list[pytest.Item], is_costly: Callable[[pytest.Item], bool]) -> None:
    """Of each sweep. ``diagonal(MOST)`` is for at most so many cases. What has no pair of its own is
    left out. ``is_costly``: whether two cases of a test without the marker are enough.
    """
    left_out = set[pytest.Item]()
    sweeps = defaultdict[str, list[pytest.Function]](list)
    for item in items:
        if (
            isinstance(item, pytest.Function)
            and hasattr(item, "callspec")
            and item.get_closest_marker("slow") is None
            and (item.get_closest_marker("diagonal") or is_costly(item))
        ):
            sweeps[item.nodeid.partition("[")[0]].append(item)
    for sweep in sweeps.values():
        marker = sweep[0].get_closest_marker("diagonal")
        cases = [item.callspec._idlist for item in sweep]
        places = diagonal(cases, *(marker.args if marker else (_FEW,)))
        others = {*range(len(cases))} - places
        rest = with_each_pair(cases, places) if marker else others
        for number in others:
            if number in rest:
                sweep[number].add_marker(pytest.mark.slow)
            else:
                left_out.add(sweep[number])
    if left_out:
        items[:] = [item for item in items if item not in left_out]


def diagonal(cases: Sequence[Sequence[str]], most: int | None = None) -> set[int]:
    """The places of the cases on the diagonal, at most so many, as far from each other as can be.
    A case is the names of its values, one of each parameter.
    """
    values = [sorted(set(names)) for names in zip(*cases, strict=True)]
    longest = max(map(len, values))
    steps = [tuple(of[n % len(of)] for of in values) for n in range(longest)]
    if most is not None and most < longest:
        steps = [steps[n * (longest - 1) // max(1, most - 1)] for n in range(most)]
    return {number for number, case in enumerate(cases) if tuple(case) in steps}


def with_each_pair(cases: Sequence[Sequence[str]], chosen: set[int]) -> set[int]:
    """The places of few cases that have, with the chosen ones, each pair of values of two
    parameters that any case has; of one or two parameters, all other cases.
    """
    if len(cases[0]) < 3:
        return {*range(len(cases))} - chosen
    pairs = [{*combinations(enumerate(case), 2)} for case in cases]
    seen = set().union(*(pairs[number] for number in chosen))
    found: set[int] = set()
    # Those with the most new pairs first, in an order that is not that of the tests.
    in_order = sorted(range(len(cases)), key=lambda number: tuple(cases[number]))
    for new in range(len(pairs[0]), 0, -1):
        for number in in_order:
            if len(pairs[number] - seen) >= new:
                found.add(number)
                seen |= pairs[number]
    return found
