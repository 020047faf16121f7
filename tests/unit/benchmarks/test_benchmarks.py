"""The output of the benchmarks: figures, tables and the machine."""

import json
from datetime import UTC, datetime
from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.__main__ import write
from benchmarks.figures import BenchmarkResult, Figure, figures_table, print_and_save
from benchmarks.machine import Machine

START = datetime(2026, 11, 1, tzinfo=UTC)
finite = st.floats(-1e9, 1e9)


@given(finite, finite)
def test_a_figure_is_met_within_its_inclusive_bound(value: float, bound: float) -> None:
    assert Figure(name="x", value=value, unit="s", at_most=bound).is_met is (value <= bound)
    assert Figure(name="x", value=value, unit="s", at_least=bound).is_met is (value >= bound)
    assert Figure(name="x", value=value, unit="s").is_met is None


def test_the_table_shows_whether_each_figure_is_met() -> None:
    figures = (
        Figure(name="CPU", value=0.1234, unit="% of a core", digits=3, at_most=0.15),
        Figure(name="rate", value=4999.4, unit="reports/s", digits=0, at_least=5000, note="cold"),
        Figure(name="ratio", value=0.8, unit="×"),
    )
    assert figures_table(figures).splitlines() == [
        "| name | measured | target |  |",
        "| --- | --: | --: | --- |",
        "| CPU | 0.123 % of a core | ≤ 0.15 | met |",
        "| rate | 4,999 reports/s | ≥ 5,000 | **not met**, cold |",
        "| ratio | 0.80 × |  |  |",
    ]


def test_a_result_survives_the_round_trip_through_its_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    result = BenchmarkResult(
        title="Monitor", figures=(Figure(name="CPU", value=1.5, unit="%", at_most=2),), tables=("| a |",)
    )
    print_and_save(result, tmp_path / "part.json")
    assert msgspec.json.decode((tmp_path / "part.json").read_bytes(), type=BenchmarkResult) == result
    assert capsys.readouterr().out == "CPU: 1.50 % (≤ 2: met)\n| a |\n"


def test_both_files_contain_the_machine_and_the_time(tmp_path: Path) -> None:
    machine = Machine(cpu="A CPU", cores=2, memory_gib=23.4, kernel="6.1", python="3.11.2", load=1.25)
    write(tmp_path / "new", machine, START, [BenchmarkResult(title="Monitor", skip_reason="No.")])
    text = (tmp_path / "new" / "bench.md").read_text()
    assert text.startswith(
        "Measured on 2026-11-01: A CPU, 2 cores, 23 GiB, Linux 6.1, Python 3.11.2; load 1.2 at the start"
    )
    document = json.loads((tmp_path / "new" / "bench.json").read_text())
    assert document["machine"]["cores"] == 2
    assert document["measuredAt"] == "2026-11-01T00:00:00+00:00"
    assert document["parts"] == [{"title": "Monitor", "skip_reason": "No."}]
