"""Mapped files beside the memory used, and runs of older versions, which count them as used."""

from collections.abc import Sequence

import pytest
from msgspec.structs import replace

from profiler.record.fact_list import (
    DURATION,
    MEMORY_AVERAGE,
    MEMORY_PEAK,
)
from profiler.record.family_statistics import FamilyRun, HighestPeak, family_of_reports
from profiler.record.mapped_files import (
    mapped_files_text,
    means_same_memory,
    mixed_memory_note,
    runs_of_one_meaning,
)
from profiler.record.memory_news import (
    memory_news_text,
    memory_now,
    notice_if_news,
    notice_of_checkpoint,
)
from profiler.record.notice_model import NoticeEvidence
from profiler.record.record_model import (
    UNKNOWN_SIZE,
    AverageAndMaximum,
    Distribution,
    Metrics,
    Record,
    Report,
    Sampling,
)
from profiler.record.task_needs import memory_with_files_mb
from profiler.record.usual_numbers import EarlierNumbers, are_measured_alike, usual_number
from profiler.runs.comparison.compared_metrics import compare_metrics, memory_meaning_of_both
from tests.runs import checkpoint, report
from tests.shown_runs import stuck_notice

NO_FILES = AverageAndMaximum(avg=0, max=0)


def older(number: int, peak_mb: float | None = 1900) -> Report:
    return report(number, peak_mb=peak_mb, metrics={"memory_used_mb": Distribution(avg=peak_mb)})


def newer(number: int, peak_mb: float | None = 150, files_mb: float = 1750) -> Report:
    made = older(number, peak_mb)
    apart = AverageAndMaximum(avg=files_mb / 2, max=files_mb)
    metrics = replace(made.record.metrics, memory_mapped_file_mb=apart)
    return replace(made, record=replace(made.record, metrics=metrics))


def records(reports: Sequence[Report]) -> list[Record]:
    return [one.record for one in reports]


OLDER = [older(number) for number in range(10)]
NEWER = [newer(number) for number in range(10, 20)]


def test_a_record_says_mapped_files_apart_or_counts_them() -> None:
    assert older(0).record.metrics.counts_files
    assert not newer(0).record.metrics.counts_files
    assert not newer(0, files_mb=0).record.metrics.counts_files
    assert not Metrics().counts_files
    minutes = Sampling(interval_ms=60_000, sources=("container-insights",))
    assert replace(older(0).record, sampling=minutes).metrics.counts_files
    assert not means_same_memory(older(0).record.metrics, newer(0).record.metrics)
    assert means_same_memory(older(0).record.metrics, Metrics())


@pytest.mark.parametrize(
    ("used_mb", "files_mb", "is_said"),
    [(60, 600, True), (60, 64, True), (60, 63, False), (9, 7, False), (4000, 300, False),
     (4000, 400, True), (0, 600, True)],
)  # fmt: skip
def test_files_are_said_where_they_are_more_than_any_programs_code(
    used_mb: float, files_mb: float, *, is_said: bool
) -> None:
    text = mapped_files_text(newer(0, used_mb, files_mb).record.metrics)
    assert bool(text) is is_said
    if files_mb == 600:
        assert text == (
            "it also keeps up to 600 MB of its files in memory (with less memory it reads them "
            "again)"
        )


@pytest.mark.parametrize(
    ("usage_mb", "size_mb", "most_mb"),
    [(None, 8192, 750), (700, 8192, 700), (100, 8192, 150), (None, 512, 512), (None, None, 750)],
)
def test_used_and_files_of_one_moment_are_at_most_the_usage_and_the_size(
    usage_mb: float | None, size_mb: float | None, most_mb: float
) -> None:
    record = newer(0, 150, 600).record
    metrics = replace(record.metrics, memory_usage_peak_mb=usage_mb, memory_size_mb=size_mb)
    assert memory_with_files_mb(replace(record, metrics=metrics, task_size=UNKNOWN_SIZE)) == most_mb
    assert memory_with_files_mb(older(0).record) is None
    assert memory_with_files_mb(newer(0, None).record) is None


def test_a_list_of_runs_of_both_meanings_has_a_note() -> None:
    assert mixed_memory_note(records(OLDER)) == ""
    assert mixed_memory_note(records(NEWER)) == ""
    assert mixed_memory_note(records([*NEWER, older(0, None)])) == ""
    assert mixed_memory_note(records([*OLDER, *NEWER])) == (
        "The memory of 10 runs may include pages of mapped files, as older versions, Container "
        "Insights and very short runs count them."
    )


def test_of_a_mixed_window_only_runs_of_one_meaning_count_once_there_are_five() -> None:
    runs = [True] * 10 + [False] * 4

    def counts(run: bool) -> bool:  # noqa: FBT001
        return run

    assert runs_of_one_meaning(runs, counts) == runs
    assert runs_of_one_meaning([*runs, False], counts) == [False] * 5
    assert runs_of_one_meaning([], counts) == []


# --- show and the page: what is usual -------------------------------------------------------------


def test_what_is_usual_of_memory_is_known_by_runs_of_the_same_meaning() -> None:
    new = newer(30).record
    old = older(30).record
    past = records([*NEWER[:4], *OLDER])
    for row in (MEMORY_PEAK, MEMORY_AVERAGE):
        assert usual_number(row, new, past) is None
        assert usual_number(row, new, records([*NEWER, *OLDER])) is not None
        assert [one for one in past if are_measured_alike(row, old, one)] == records(OLDER)
    usual = usual_number(MEMORY_PEAK, new, records([*NEWER[:5], *OLDER]))
    assert usual is not None
    assert usual.middle == 150
    assert all(are_measured_alike(DURATION, new, one) for one in past)


def test_a_part_of_the_earlier_successes_says_what_it_says_alone() -> None:
    past = records([*NEWER, *OLDER])
    numbers = EarlierNumbers(past)
    for row in (MEMORY_PEAK, MEMORY_AVERAGE, DURATION):
        for record in (newer(30).record, older(30).record):
            for first in range(len(past)):
                part = past[first : first + 7]
                usual = numbers.usual_number(row, record, first=first, most=7)
                assert usual == usual_number(row, record, part)


# --- notices --------------------------------------------------------------------------------------


def test_the_highest_peak_is_of_one_meaning_once_five_successes_have_it() -> None:
    assert family_of_reports(OLDER).highest_peak() == HighestPeak(
        peak_mb=1900, runs=10, median_mb=1900, counts_files=True
    )
    assert family_of_reports([*OLDER, *NEWER[:4]]).highest_peak() == HighestPeak(
        peak_mb=1900, runs=14, median_mb=1900, counts_files=True
    )
    assert family_of_reports([*OLDER, *NEWER[:5]]).highest_peak() == HighestPeak(
        peak_mb=150, runs=5, median_mb=150
    )
    assert not FamilyRun(task_id="1", container="batch", ended_ns=0, outcome="success").counts_files


def test_an_older_monitor_is_not_measured_by_peaks_without_files() -> None:
    """Its 1,900 MB with mapped files are no growth above the 150 MB that were used so far."""
    peak = HighestPeak(peak_mb=150, runs=12)
    old = replace(checkpoint(older(0)), record=checkpoint(older(0)).record)
    now = memory_now(old.record)
    assert now is not None
    assert now.counts_files
    assert memory_news_text(now, peak) == ""
    assert notice_of_checkpoint(old, peak) is None
    notice = stuck_notice()
    forecast = replace(
        notice,
        record=old.record,
        notice=replace(notice.notice, kind="memory", evidence=NoticeEvidence(used_mb=1900)),
    )
    assert notice_if_news(forecast, peak) == forecast


def test_a_run_above_older_peaks_is_above_what_they_used() -> None:
    peak = HighestPeak(peak_mb=1500, runs=12, counts_files=True)
    assert notice_of_checkpoint(checkpoint(newer(0, 1600)), peak) is not None
    assert notice_of_checkpoint(checkpoint(newer(0, 1500)), peak) is None
    assert notice_of_checkpoint(checkpoint(older(0, 1600)), peak) is not None


# --- compare --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("a", "b", "meaning", "verdict", "known"),
    [
        (OLDER, OLDER[::-1], "same", "no difference seen", (10, 10)),
        (NEWER, NEWER[::-1], "same", "no difference seen", (10, 10)),
        (OLDER, NEWER, "differs", "not comparable", (10, 10)),
        (OLDER, [*OLDER[5:], *NEWER[:4]], "differs", "not comparable", (10, 9)),
        ([*OLDER, *NEWER[:5]], NEWER, "without files", "no difference seen", (5, 10)),
    ],
)
def test_memory_of_two_sets_is_compared_in_one_meaning(
    a: list[Report], b: list[Report], meaning: str, verdict: str, known: tuple[int, int]
) -> None:
    assert memory_meaning_of_both(records(a), records(b)) == meaning
    changes = {change.metric.name: change for change in compare_metrics(records(a), records(b))}
    for name in ("maxMemoryUsedMB", "memoryAverageMB"):
        change = changes[name]
        assert change.change.verdict == verdict
        assert (change.known_a, change.known_b) == known
        assert (change.change.change_percent is None) is (meaning == "differs")
    assert changes["durationMs"].change.verdict == "no difference seen"
