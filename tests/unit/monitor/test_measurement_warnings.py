"""Warnings about an instance that swaps, and about outputs that nobody reads."""

import pytest

from profiler.monitor.task_sampler import OutputWarning, SwapWarning
from profiler.readers.linux.host import SwapCounters
from profiler.record.record_model import Container, Monitor, Record
from tests.fakes import FakeStdout

MIB = 2**20


def record(launch_type: str | None = "EC2") -> Record:
    return Record(task_id="1", container=Container(name="batch"), launch_type=launch_type, monitor=Monitor())


def swap_counters(out_mib: float, in_mib: float) -> SwapCounters:
    return SwapCounters(out_bytes=round(out_mib * MIB), in_bytes=round(in_mib * MIB))


def swapped(before: SwapCounters | None, after: SwapCounters | None, launch_type: str | None) -> tuple[str, ...]:
    readings = [before, after]
    warning = SwapWarning(lambda: readings.pop(0))
    warning.start()
    return warning.part(record(launch_type)).warnings


def test_an_instance_that_swapped_during_the_run_is_named_with_the_amount() -> None:
    (text,) = swapped(swap_counters(100, 50), swap_counters(612.5, 146), "EC2")
    amounts = "512 MiB out, 96 MiB back in"
    assert (
        text == f"The instance swapped while the batch ran ({amounts}): give it more memory, or fewer tasks at a time."
    )


@pytest.mark.parametrize(
    ("before", "after", "launch_type"),
    [
        (swap_counters(900, 900), swap_counters(900, 900), "EC2"),  # long ago
        (swap_counters(0, 0), swap_counters(0.9, 0.9), "EC2"),
        (None, swap_counters(5, 5), "EC2"),
        (swap_counters(0, 0), None, "EC2"),
        (swap_counters(900, 900), swap_counters(0, 0), "EC2"),
        (swap_counters(0, 0), swap_counters(50, 50), "FARGATE"),
        (swap_counters(0, 0), swap_counters(50, 50), None),
    ],
)
def test_without_swapping_of_an_instance_during_the_run_there_is_no_warning(
    before: SwapCounters | None, after: SwapCounters | None, launch_type: str | None
) -> None:
    assert swapped(before, after, launch_type) == ()


class StalledOutput(FakeStdout):
    """Its lines are dropped."""

    __hash__ = object.__hash__

    def __init__(self, dropped: int) -> None:
        super().__init__()
        self.dropped = dropped


def test_lines_that_were_dropped_are_counted_for_each_output() -> None:
    both = OutputWarning(StalledOutput(1), StalledOutput(20))
    first, second = both.part(record()).warnings
    assert first == (
        "The monitor's standard output was not read for a while (a log driver that hangs?): 1 line was dropped."
    )
    assert "standard error" in second
    assert "20 lines were dropped" in second
    shared = StalledOutput(3)
    assert len(OutputWarning(shared, shared).part(record()).warnings) == 1
    assert OutputWarning(StalledOutput(0), StalledOutput(0)).part(record()).warnings == ()
