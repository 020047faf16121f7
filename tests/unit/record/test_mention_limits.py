"""From which limit on a wait or an idle time is worth a word; the names of families."""

from typing import Any

from msgspec.structs import replace

from profiler.cli.styled_text import Line
from profiler.cli.terminal.next_step import next_step
from profiler.cli.terminal.page_parts import View, drawn_lines
from profiler.cli.terminal.time_bar import short_legend, time_parts
from profiler.record.activity_model import TimeBreakdown
from profiler.record.cpu_wait import is_long_cpu_wait, notable_cpu_wait_percent
from profiler.record.family_identity import FamilyKey, family_key, family_labels
from profiler.record.mention_limits import (
    are_bytes_partial,
    max_idle_vcpu,
)
from profiler.record.record_model import NOT_SAMPLED, Container, Metrics, Record, Sampling
from profiler.report_page.page_activity import activity_of
from tests.cases import each_case
from tests.runs import report, reported_story


def test_account_and_region_are_named_only_where_families_of_one_name_differ_in_them() -> None:
    dev, live = FamilyKey("etl", "1", "eu-west-1"), FamilyKey("etl", "2", "eu-west-1")
    far, other = FamilyKey("etl", "2", "us-east-1"), FamilyKey("load", "3", "us-east-1")
    assert family_labels([dev, other]) == {dev: "etl", other: "load"}
    assert family_labels([dev, live, other]) == {dev: "etl (1)", live: "etl (2)", other: "load"}
    assert family_labels([live, far]) == {live: "etl (eu-west-1)", far: "etl (us-east-1)"}
    unknown = FamilyKey("etl")
    assert family_labels([dev, unknown])[unknown] == "etl (unknown account, unknown Region)"
    # An empty account is an unknown one, and a run without a family has its container's name.
    assert family_key(report(family=None, account_id="", region="").record) == FamilyKey("batch")


@each_case(
    ("sampling", "is_partial"),
    [
        (NOT_SAMPLED, False),
        (Sampling(sources=("task-metadata-v4",), cpu_covered_percent=94), True),
        (Sampling(sources=("task-metadata-v4",), cpu_covered_percent=95), False),
        (Sampling(sources=("cgroup",), cpu_covered_percent=0), False),
        # The processes' CPU time is known to the end, the stats are up to ten seconds old.
        (Sampling(sources=("task-metadata-v4", "processes"), stats_period_ms=10_000), True),
        (Sampling(sources=("task-metadata-v4", "processes"), stats_period_ms=5_000), False),
        (Sampling(sources=("docker",), stats_period_ms=10_000), True),
        (Sampling(sources=("processes",), stats_period_ms=10_000), False),
    ],
)
def test_bytes_are_partial_where_the_stats_may_lack_a_twentieth_of_the_run(
    *, sampling: Sampling, is_partial: bool
) -> None:
    record = replace(report().record, metrics=Metrics(duration_ms=100_000), sampling=sampling)
    assert are_bytes_partial(record) is is_partial


def lines_of_time(record: Record, width: int) -> list[Line]:
    return drawn_lines(
        time_parts(reported_story(record), View(width=width, now_ns=0)),
        width,
    )


def test_a_wait_for_a_cpu_is_named_by_all_outputs_or_by_none() -> None:
    for milliseconds, percent, seconds, is_long in (
        (10_000, 10, 1, True),
        (10_000, 9.9, 1, False),
        (10_000, 50, 0.99, False),
        (10_000, 50, 0.05, False),
        (10_000, None, 1, False),
        (10_000, 10, None, False),
        (100, 90, 0.09, False),
    ):
        metrics = Metrics(
            duration_ms=milliseconds, cpu_wait_percent=percent, cpu_wait_seconds=seconds
        )
        record = Record(
            task_id="a", container=Container(name="b"), status="success", metrics=metrics
        )
        outputs = (
            next_step(record, reported_story(record), "") != "",
            bool(lines_of_time(record, 80)),
        )
        assert {
            is_long_cpu_wait(record),
            *outputs,
            activity_of(record, reported_story(record)).cpu_wait is not None,
        } == {is_long}


def test_a_wait_for_a_cpu_not_read_to_its_end_is_a_lower_bound() -> None:
    """A wait for a CPU that was not read to the end is a lower bound in all outputs."""
    metrics = Metrics(duration_ms=10_000, cpu_wait_percent=40, cpu_wait_seconds=2.4)
    partial: dict[str, Any]
    for covered, mark in ((94.9, "≥"), (95, ""), (None, "")):
        partial = {"metrics": metrics, "sampling": Sampling(cpu_wait_covered_percent=covered)}
        record = Record(task_id="a", container=Container(name="b"), status="success", **partial)
        assert f"waited {mark}2.4 s" in str(next_step(record, reported_story(record), ""))
        (shown,) = lines_of_time(record, 120)
        assert f"{mark}2.4 s in total" in shown[-1].text
        assert activity_of(record, reported_story(record)).cpu_wait_partial == (bool(mark) or None)
        times = TimeBreakdown(on_cpu_percent=60, waiting_for_cpu_percent=40)
        record = replace(record, time_breakdown=times)
        legends = (
            lines_of_time(record, 80)[1],
            short_legend(reported_story(record), 80),
        )
        for legend, name in zip(legends, ("waiting for CPU", "CPU wait"), strict=True):
            assert [span.text for span in legend if "%" in span.text] == [
                "on CPU 60 %",
                f"{name} {mark}40 %",
            ]


def test_waits_at_the_same_time_count_by_what_more_cpus_could_save() -> None:
    metrics = Metrics(duration_ms=8000, cpu_wait_percent=81, cpu_wait_seconds=3.4)
    record = Record(task_id="a", container=Container(name="b"), status="success", metrics=metrics)
    for on_cpu, waiting, is_long in (
        (100, 0, True),  # eight threads share two CPUs
        (50, 50, True),  # another program uses the CPU
        (8, 2, False),  # 2,400 threads wake together once a second
        (None, None, True),
    ):
        times = TimeBreakdown(on_cpu_percent=on_cpu, waiting_for_cpu_percent=waiting)
        made = replace(record, time_breakdown=times)
        assert is_long_cpu_wait(made) == is_long
        assert notable_cpu_wait_percent(made) == (81 if is_long else 0)


def test_idle_is_a_share_of_the_size_within_limits() -> None:
    idle = {0.25: 0.01, 1: 0.02, 2: 0.04, 64: 0.05, None: 0.05, 0: 0.05, -1: 0.05}
    assert {size: max_idle_vcpu(size) for size in idle} == idle
