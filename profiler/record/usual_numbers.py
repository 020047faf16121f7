"""Which runs a number of a run compares with, and what is usual of it by them."""

from collections.abc import Callable, Iterable, Sequence

from profiler.record.fact_list import MEMORY_PEAK, MEMORY_ROWS, NumberRow, number_of_row
from profiler.record.measured import Number
from profiler.record.record_model import Record, known_peak_source
from profiler.record.unusual import UsualRange, usual_value_of

# What is usual of a number of a record; None if that is not known.
UsualOf = Callable[[NumberRow, Record], UsualRange | None]
# How a number was measured; None in it is like anything.
_Basis = tuple[object, ...]


def are_measured_alike(row: NumberRow, this: Record, that: Record) -> bool:
    """Whether a number was measured in the same way in both runs."""
    return _are_alike(_basis_of(row, this), _basis_of(row, that))


def usual_number(row: NumberRow, record: Record, earlier: Iterable[Record]) -> UsualRange | None:
    """What is usual of a number, by earlier successes in which it was measured as in ``record``,
    the newest first.
    """
    return EarlierNumbers([*earlier]).usual_number(row, record)


class EarlierNumbers:
    """The numbers of successes of a family, the newest first. Each is read once, for all runs that
    are compared with it.
    """

    def __init__(self, records: Sequence[Record]) -> None:
        self._records = records
        self._columns: dict[str, tuple[list[_Basis], list[Number | None]]] = {}

    def usual_number(
        self, row: NumberRow, record: Record, first: int = 0, most: int | None = None
    ) -> UsualRange | None:
        """As the function of this name, by the successes from the ``first`` (0: the newest) on, at
        most ``most`` of them.
        """
        if row.path not in self._columns:
            self._columns[row.path] = (
                [_basis_of(row, other) for other in self._records],
                [number_of_row(row, other) for other in self._records],
            )
        all_bases, all_values = self._columns[row.path]
        part = slice(first, None if most is None else first + most)
        bases = all_bases[part]
        values = all_values[part]
        basis = _basis_of(row, record)
        if bases.count(basis) < len(bases):
            are_alike = [_are_alike(basis, other) for other in bases]
            values = [value for value, is_alike in zip(values, are_alike, strict=True) if is_alike]
        return usual_value_of(values)


def _basis_of(row: NumberRow, record: Record) -> _Basis:
    """How a number was measured: a sampled memory peak does not compare with the kernel's, memory
    with mapped files with memory without them, nor the least that Spot costs with the price.
    """
    metrics = record.metrics
    if row not in MEMORY_ROWS:
        return row.is_least(record), row.is_estimate(record)
    counts_files = metrics.counts_files if metrics.has_memory else None
    if row is MEMORY_PEAK:
        return known_peak_source(metrics), counts_files
    return row.is_least(record), row.is_estimate(record), counts_files


def _are_alike(basis: _Basis, other: _Basis) -> bool:
    return all(
        None in (of_one, of_other) or of_one == of_other
        for of_one, of_other in zip(basis, other, strict=True)
    )
