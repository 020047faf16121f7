"""The instance below the containers: memory, swap, disks."""

import string

import pytest
from hypothesis import given
from hypothesis import strategies as st

from profiler.sources.host import parse_memory
from profiler.sources.instance import SwapCounters, parse_swap_counters, read_instance
from profiler.sources.task_metadata import TaskMetadata
from profiler.swap import SwapTracker

MIB = 2**20


def test_swap_counts_pages() -> None:
    assert parse_swap_counters(b"nr_free_pages 5\npswpin 3\npswpout 20\n", 4096) == SwapCounters(
        out_bytes=81920, in_bytes=12288
    )


@pytest.mark.parametrize("text", [b"", b"pswpin 3\n", b"pswpin 3\npswpout -1\n", b"pswpin 3 4\npswpout 5\n"])
def test_a_kernel_that_does_not_count_swap_tells_nothing(text: bytes) -> None:
    assert parse_swap_counters(text, 4096) is None


@given(st.binary(max_size=200))
def test_any_text_of_counters_is_survived(text: bytes) -> None:
    parse_swap_counters(text, 4096)


def test_sizes_of_memory_are_kibibytes() -> None:
    assert parse_memory("MemTotal:       2048 kB\nHugePages_Total:   0\nMemFree: much\n") == {
        "MemTotal": 2 * MIB,
        "HugePages_Total": 0,
    }


@given(st.dictionaries(st.text(string.ascii_letters, min_size=1), st.integers(0, 2**40)))
def test_sizes_of_memory_come_back(sizes: dict[str, int]) -> None:
    text = "".join(f"{name}:  {kib} kB\n" for name, kib in sizes.items())
    assert parse_memory(text) == {name: kib * 1024 for name, kib in sizes.items()}


def test_this_machine_can_be_read() -> None:
    reading = read_instance()
    assert not hasattr(reading, "reason")
    assert reading.memory_size_bytes is not None
    assert reading.memory_available_bytes is not None
    assert 0 < reading.memory_available_bytes <= reading.memory_size_bytes
    assert reading.disks[0].mount_point == "/"
    assert 0 <= reading.disks[0].available_bytes <= reading.disks[0].size_bytes


# --- the warning ----------------------------------------------------------------------------------------------------

ON_EC2 = TaskMetadata(launch_type="EC2")


def swap_counters(out_mib: float, in_mib: float) -> SwapCounters:
    return SwapCounters(out_bytes=round(out_mib * MIB), in_bytes=round(in_mib * MIB))


def notes(before: SwapCounters | None, after: SwapCounters | None, task: TaskMetadata = ON_EC2) -> tuple[str, ...]:
    readings = [before, after]
    watch = SwapTracker(lambda: readings.pop(0))
    watch.start()
    return watch.notes(task)


def test_an_instance_that_swapped_during_the_run_is_named_with_the_amount() -> None:
    (note,) = notes(swap_counters(100, 50), swap_counters(612.5, 146))
    assert note == (
        "The instance swapped while the batch ran (512 MiB out, 96 MiB back in): give it more memory, "
        "or fewer tasks at a time."
    )


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (swap_counters(900, 900), swap_counters(900, 900)),  # long ago
        (swap_counters(0, 0), swap_counters(0.9, 0.9)),
        (None, swap_counters(5, 5)),
        (swap_counters(0, 0), None),
        (swap_counters(900, 900), swap_counters(0, 0)),
    ],
)
def test_without_swapping_during_the_run_there_is_nothing_to_say(
    before: SwapCounters | None, after: SwapCounters | None
) -> None:
    assert notes(before, after) == ()


@pytest.mark.parametrize("launch_type", ["FARGATE", None])
def test_swap_is_not_spoken_of_where_there_is_no_instance(launch_type: str | None) -> None:
    assert notes(swap_counters(0, 0), swap_counters(50, 50), TaskMetadata(launch_type=launch_type)) == ()
