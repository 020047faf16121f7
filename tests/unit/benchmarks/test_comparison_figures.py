"""The figures of the comparison, with few comparisons."""

from pathlib import Path
from random import Random

from benchmarks.comparison import normal, real_sets, seen_percent
from benchmarks.comparison_programs import read_sets
from tests.runs import lines, report


def test_a_large_change_is_seen_and_a_small_one_is_not() -> None:
    assert seen_percent(normal(0.02), 10, 1.2, comparisons=5) == 100
    assert seen_percent(normal(0.3), 5, 1.01, comparisons=5) < 100


def test_random_halves_of_real_runs_are_alike_while_the_later_half_is_more() -> None:
    random = Random(1)
    values = [random.gauss(100, 1) for _ in range(10)] + [random.gauss(150, 1) for _ in range(10)]
    (figure,), (table,) = real_sets({"etl": {"durationMs": values}}, splits=20)
    assert figure.is_met
    assert table.splitlines()[-1].endswith("%, more |")


def test_the_values_of_a_program_are_in_the_order_of_its_runs(tmp_path: Path) -> None:
    records = tmp_path / "records.jsonl"
    records.write_bytes(lines(report(number, peak_mb=peak) for number, peak in enumerate((300, None, 200))))
    assert read_sets(records)["nightly"] == {"durationMs": [590_000] * 3, "maxMemoryUsedMB": [300, 200]}
