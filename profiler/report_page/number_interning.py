"""One object for equal numbers of many runs: curves of the same family repeat a few hundred values,
each of which would take 24 bytes of memory in each run.
"""

from collections.abc import Sequence
from typing import TypeVar

from msgspec import Struct
from msgspec.structs import replace

from profiler.record.record_model import Series
from profiler.runs.step_series import StepSeries

_Number = TypeVar("_Number", float | None, int)
# What is kept for numbers that never repeat stays below ten megabytes.
_MAX_KEPT = 65_536


class SharedNumbers(Struct, frozen=True):
    """The numbers that were seen, up to a limit; those beyond it are not shared.

    Whole numbers are apart: 1 and 1.0 are equal, and differ as JSON.
    """

    _fractional: dict[float | None, float | None] = {}
    _whole: dict[int, int] = {}

    def share_in_record(self, series: Series) -> Series:
        """The curves of a record, with the same values."""
        return replace(
            series,
            vcpu_used=self._shared_values(series.vcpu_used),
            memory_used_mb=self._shared_values(series.memory_used_mb),
            gpu_utilization_percent=self._shared_values(series.gpu_utilization_percent),
            neuron_utilization_percent=self._shared_values(series.neuron_utilization_percent),
            cpu_wait=self._shared_values(series.cpu_wait),
        )

    def share_in_steps(self, steps: StepSeries) -> StepSeries:
        """The steps of a run, with the same values."""
        return replace(
            steps,
            ends_ms=_with_shared_numbers(steps.ends_ms, self._whole),
            vcpu_used=_with_shared_numbers(steps.vcpu_used, self._fractional),
        )

    def _shared_values(
        self, values: Sequence[float | None] | None
    ) -> tuple[float | None, ...] | None:
        return None if values is None else _with_shared_numbers(values, self._fractional)


def _with_shared_numbers(
    values: Sequence[_Number], seen: dict[_Number, _Number]
) -> tuple[_Number, ...]:
    if len(seen) >= _MAX_KEPT:
        return tuple([seen.get(value, value) for value in values])
    return tuple([seen.setdefault(value, value) for value in values])
