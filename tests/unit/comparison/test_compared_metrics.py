"""The metrics that are compared."""

from profiler.comparison.compared_metrics import COMPARED_METRICS, compare_metrics, is_measured
from profiler.record.record_model import Cost, Distribution, Metrics
from tests.runs import report
from tests.shown_runs import etl


def test_the_seven_metrics_are_those_of_the_record() -> None:
    record = etl().record
    assert {metric.name: metric.read(record) for metric in COMPARED_METRICS} == {
        "durationMs": 1_182_000,
        "cpuSeconds": 1290.4,
        "maxMemoryUsedMB": 3310,
        "memoryAverageMB": 1420,
        "blockReadBytes": 1_200_000_000,
        "blockWriteBytes": 380_000_000,
        "costUsd": 0.0329,
    }
    bare = report(metrics=dict.fromkeys(Metrics.__struct_fields__)).record
    assert [metric.read(bare) for metric in COMPARED_METRICS] == [None] * 7
    assert (is_measured(record), is_measured(bare)) == (True, False)


def test_runs_without_a_metric_do_not_count_for_it() -> None:
    averages = [report(metrics={"memory_used_mb": Distribution(avg=avg)}).record for avg in (100, None, 300)]
    costs = [report(cost=Cost(usd=0.5)).record] * 3
    by_name = {one.metric.name: one for one in compare_metrics(averages, costs)}
    memory, cost = by_name["memoryAverageMB"], by_name["costUsd"]
    assert (memory.known_a, memory.known_b, memory.change.a, memory.change.b) == (2, 0, 200, None)
    assert (cost.known_a, cost.known_b, cost.change.b, cost.change.verdict) == (0, 3, 0.5, "too few runs")
    assert by_name["durationMs"].change.change_percent == 0
