"""The sentence after several runs."""

from profiler.cli.run_end.runs_summary import summary_line
from profiler.record.record_model import Record
from tests.unit.cli.run_end.test_end_page import etl


def runs(*values: tuple[float | None, float | None]) -> list[Record]:
    return [etl({"duration_ms": duration, "max_memory_used_mb": memory}).record for duration, memory in values]


def test_the_median_and_the_range() -> None:
    three = runs((12_400, 1843), (11_900, 1700), (13_000, 900))
    assert summary_line(three) == "Median of 3 runs: 12.4 s (11.9 to 13.0 s), memory peak 1.7 GB (900 MB to 1.8 GB)."
    assert summary_line(runs((300, 5), (302, 5))) == "Median of 2 runs: 301 ms (300 to 302 ms), memory peak 5 MB."


def test_one_run_and_runs_without_numbers_have_none() -> None:
    assert summary_line(runs((300, 5))) == ""
    assert summary_line(runs((None, None), (None, None))) == ""
    assert summary_line(runs((1000, None), (1000, None))) == "Median of 2 runs: 1.0 s."


def test_only_successes_count() -> None:
    failed = etl({"duration_ms": 9}, status="failure", exit_code=1).record
    assert (
        summary_line([*runs((1000, 5), (1000, 5)), failed]) == "Median of 2 successful runs: 1.0 s, memory peak 5 MB."
    )
    assert summary_line([*runs((1000, 5)), failed]) == ""
