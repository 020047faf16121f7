"""The benchmark that replays recorded runs."""

import gzip
from pathlib import Path

import pytest

from benchmarks.recorded_runs import announced


@pytest.mark.parametrize("with_early", [True, False])
def test_of_equal_runs_only_the_runaways_are_announced(tmp_path: Path, *, with_early: bool) -> None:
    seconds = range(0, 3600, 10)
    rows = [f"{run},{second},{100 + second / 6}" for run in range(20) for second in seconds]
    with gzip.open(tmp_path / "kind.csv.gz", "wt") as file:
        file.write("\n".join(("run,seconds,MB", *rows)))
    found = announced(tmp_path, with_early=with_early)
    assert (found.runs, found.false, found.runaways) == (20, 0, 20)
