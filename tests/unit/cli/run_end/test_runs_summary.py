"""The sentence after several runs."""

from profiler.cli.run_end.runs_summary import summary_sentence
from profiler.record.record_model import Metrics


def runs(*values: tuple[float | None, float | None]) -> list[Metrics]:
    return [Metrics(duration_ms=duration, max_memory_used_mb=memory) for duration, memory in values]


def test_the_median_and_the_range() -> None:
    three = runs((12_400, 1843), (11_900, 1700), (13_000, 900))
    assert (
        summary_sentence(three) == "Median of 3 runs: 12.4 s (11.9 to 13.0 s), memory peak 1.7 GB (900 MB to 1.8 GB)."
    )
    assert summary_sentence(runs((300, 5), (302, 5))) == "Median of 2 runs: 301 ms (300 to 302 ms), memory peak 5 MB."


def test_one_run_and_runs_without_numbers_have_none() -> None:
    assert summary_sentence(runs((300, 5))) == ""
    assert summary_sentence(runs((None, None), (None, None))) == ""
    assert summary_sentence(runs((1000, None), (1000, None))) == "Median of 2 runs: 1.0 s."
