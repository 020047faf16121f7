"""The benchmark that replays recorded runs."""

import gzip
from collections.abc import Callable
from pathlib import Path

import pytest

from benchmarks.recorded_runs import count_announced


def write(folder: Path, used_mb: Callable[[int], float]) -> None:
    """The memory of twenty equal runs of an hour, a reading each ten seconds."""
    seconds = range(0, 3600, 10)
    rows = [f"{run},{second},{used_mb(second)}" for run in range(20) for second in seconds]
    with gzip.open(folder / "kind.csv.gz", "wt") as file:
        file.write("\n".join(("run,seconds,MB", *rows)))


@pytest.mark.parametrize("with_early", [True, False])
def test_of_equal_runs_only_the_runaways_are_announced(tmp_path: Path, *, with_early: bool) -> None:
    write(tmp_path, lambda second: 100 + second / 6)
    found = count_announced(tmp_path, with_early=with_early)
    assert (found.runs, found.false, found.seen, found.runaways) == (20, 0, 20, 20)


def test_a_run_that_jumps_over_its_size_between_two_readings_is_not_one_that_was_seen(
    tmp_path: Path,
) -> None:
    write(tmp_path, lambda second: 100 if second < 500 else 700)
    found = count_announced(tmp_path, with_early=True)
    assert (found.runs, found.seen, found.runaways, found.at_kill) == (20, 0, 0, 20)
