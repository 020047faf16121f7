"""Comparisons with the family: durations, processors, and successes that are unlike it; the
search for its runs.
"""

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

import pytest
from msgspec.structs import replace

from profiler.forwarder.documents import Document
from profiler.forwarder.family_runs import (
    _MEASURES,
    MAX_RUNS,
    FamilyMemory,
    FamilyRates,
    Measures,
    find_unusual,
)
from profiler.forwarder.invocation import PartialAnswerError, SearchClusterError
from profiler.forwarder.notifications.notification import Comparison, EndedTask, UnusualMeasure
from profiler.record.family_identity import UsualDuration
from profiler.record.model_base import json_name
from profiler.record.record_model import (
    Container,
    Metrics,
    Processor,
    Record,
    Sampling,
    TaskSize,
)
from profiler.record.search_document_fields import FIELDS
from profiler.record.unusual import MIN_FAR_RUNS
from tests.ended_runs import NOTICE, ended, in_task, report_line
from tests.fake_search import AnsweringSearch
from tests.values import present

GIB = 2**30
USUAL = {
    "duration_ms": 1_200_000.0,
    "cpu_seconds": 900.0,
    "block_read_bytes": 2.0 * GIB,
    "block_write_bytes": 0.0,
}
NOTHING = {
    "duration_ms": 3000.0,
    "cpu_seconds": 0.2,
    "block_read_bytes": 0.0,
    "block_write_bytes": 0.0,
}
STEADY = [USUAL] * MIN_FAR_RUNS


def test_the_compared_fields_are_those_of_documents() -> None:
    paths = {field.name: field.record_path for field in FIELDS}
    for field, measure in _MEASURES.items():
        assert paths[field] == f"metrics.{json_name(measure.name)}"


def times(factor: float, run: Mapping[str, float] = USUAL) -> dict[str, float]:
    return {name: value * factor for name, value in run.items()}


THREE = ["durationMs", "cpuSeconds", "blockReadBytes"]
NOISY = [times(factor) for factor in (0.5, 0.5, 0.5, 1, 1, 2, 2, 2)]
SMALL = {
    "duration_ms": 2000.0,
    "cpu_seconds": 0.1,
    "block_read_bytes": 0.0,
    "block_write_bytes": 4096.0,
}
COLD = {
    "duration_ms": 600.0,
    "cpu_seconds": 0.02,
    "block_read_bytes": 1e6,
    "block_write_bytes": 0.0,
}
FAMILIES: dict[str, tuple[Measures, Sequence[Measures], list[str]]] = {
    **{
        f"{factor} times is unusual": (times(factor), STEADY, THREE)
        for factor in (0.32, 0.1, 3.1, 100)
    },
    **{
        f"{factor} times is usual": (times(factor), STEADY, [])
        for factor in (0.35, 0.9, 1, 1.1, 2.9)
    },
    **{f"only the {name} is small": ({**USUAL, name: NOTHING[name]}, STEADY, []) for name in USUAL},
    **{
        f"only the {name} is large": ({**USUAL, name: 100 * (USUAL[name] + GIB)}, STEADY, [])
        for name in USUAL
    },
    "within six deviations of a noisy family": (times(0.1), NOISY, []),
    "beyond six deviations of a noisy family": (times(0.01), NOISY, THREE),
    "the first larger run": (times(10), [USUAL] * 9, THREE),
    "a weekly larger run": (times(10), [*[USUAL] * 6, times(8), *[USUAL] * 6], []),
    "the second one in a row": (NOTHING, [NOTHING, *STEADY], THREE),
    "the second larger one in a row": (times(10), [times(10), *STEADY], THREE),
    "the third one in a row": (NOTHING, [NOTHING, NOTHING, *STEADY], []),
    "an unknown measure of the run": ({"duration_ms": 3000, "cpu_seconds": None}, STEADY, []),
    "an unknown measure of the family": (
        NOTHING,
        [{"duration_ms": 1_200_000, "block_read_bytes": None}] * 20,
        [],
    ),
    "two measures": (
        NOTHING,
        [{"duration_ms": 1_200_000.0, "cpu_seconds": 900.0}] * 8,
        ["durationMs", "cpuSeconds"],
    ),
    "small amounts, once with a cold cache": (COLD, [SMALL] * 20, []),
}


@pytest.mark.parametrize(("own", "earlier", "expected"), FAMILIES.values(), ids=FAMILIES)
def test_what_lies_far_outside_the_family_is_unusual(
    own: Measures, earlier: Sequence[Measures], expected: list[str]
) -> None:
    assert [measure.metric for measure in find_unusual(own, earlier)] == expected


def source(
    run: Mapping[str, float], *, cluster: str = "jobs", is_complete: bool = True
) -> dict[str, Any]:
    return {
        "usage": {
            "duration_ms": run["duration_ms"],
            "cpu": {"seconds": run["cpu_seconds"]},
            "block": {
                "read_bytes": run["block_read_bytes"],
                "write_bytes": run["block_write_bytes"],
            },
        },
        "task": {"complete": is_complete},
        "orchestrator": {"cluster": {"name": cluster}},
    }


def cluster_with(*sources: dict[str, Any]) -> AnsweringSearch:
    return AnsweringSearch({"hits": {"hits": [{"_source": one} for one in sources]}})


def success() -> EndedTask:
    """A run that did nothing."""
    metrics = Metrics(duration_ms=3000, cpu_seconds=0.2, block_read_bytes=0, block_write_bytes=0)
    record = Record(task_id="1", container=Container(name="batch"), metrics=metrics)
    finished = datetime(2026, 3, 1, 10, 0, 6, tzinfo=UTC)
    return in_task(
        replace(NOTICE, report_line=report_line(record)),
        cluster="jobs",
        execution_stopped_at=finished,
    )


def compare(cluster: AnsweringSearch, notice: EndedTask) -> Comparison | None:
    return FamilyMemory(cluster=cluster, prefix="task", timeout_seconds=5).compare(notice)


def unusual(notice: EndedTask, *sources: dict[str, Any]) -> tuple[UnusualMeasure, ...]:
    return present(compare(cluster_with(*sources), notice)).unusual


def test_one_search_is_enough_for_duration_and_measures() -> None:
    cluster = cluster_with(*[source(USUAL)] * 30)
    comparison = present(compare(cluster, success()))
    assert comparison.text == "400.0× shorter than the median of the last 20 successful runs."
    assert comparison.unusual == find_unusual(NOTHING, STEADY)
    assert [body["size"] for body in cluster.bodies] == [MAX_RUNS]


def test_only_a_success_with_a_report_is_compared() -> None:
    runs = [source(USUAL)] * 9
    assert "cpuSeconds" in {measure.metric for measure in unusual(success(), *runs)}
    partial = replace(present(success().record), sampling=Sampling(cpu_covered_percent=80))
    found = unusual(replace(success(), report_line=report_line(partial)), *runs)
    assert "cpuSeconds" not in {measure.metric for measure in found} != set()
    unread = replace(
        partial, sampling=Sampling(cpu_covered_percent=80, sources=("task-metadata-v4",))
    )
    found = unusual(replace(success(), report_line=report_line(unread)), *runs)
    assert not {"blockReadBytes", "blockWriteBytes"} & {measure.metric for measure in found}
    assert not unusual(ended(success(), cause="failure", exit_code=1), *runs)
    checkpoint = report_line(present(success().record), "task.checkpoint")
    assert not unusual(replace(success(), report_line=checkpoint), *runs)


def test_it_is_compared_with_complete_runs_of_its_cluster_if_there_are_eight() -> None:
    others = [source(NOTHING, cluster="test")] * 9
    assert unusual(success(), *[source(USUAL)] * 8, *others)
    assert not unusual(success(), *[source(USUAL)] * 7, *others)
    assert not unusual(success(), *[source(USUAL, is_complete=False)] * 20)


def timed(
    *durations_ms: float, cluster: str = "test", model: str | None = None
) -> list[dict[str, Any]]:
    """Runs of which only this is known."""
    host = {} if model is None else {"host": {"cpu": {"model": model}}}
    known = {"orchestrator": {"cluster": {"name": cluster}}, **host}
    return [{"usage": {"duration_ms": value}, **known} for value in durations_ms]


def lasted(duration_ms: float | None, **record: Any) -> EndedTask:
    metrics = Metrics(duration_ms=duration_ms)
    own = Record(task_id="1", container=Container(name="batch"), metrics=metrics, **record)
    return in_task(
        replace(NOTICE, report_line=report_line(own)), cluster="jobs", execution_stopped_at=None
    )


OWN = timed(*[1000.0] * 5, cluster="jobs")


@pytest.mark.parametrize(
    ("runs", "duration_ms", "sentence"),
    [
        (
            timed(*[1000.0] * 20),
            3100,
            "3.1× longer than the median of the last 20 successful runs.",
        ),
        (timed(*[1000.0] * 5), 400, "2.5× shorter than the median of the last 5 successful runs."),
        (
            OWN[:5] + timed(*[4000.0] * 7),
            1000,
            "About as long as the median of the last 5 successful runs.",
        ),
        (
            OWN[:4] + timed(*[4000.0] * 8),
            1000,
            "4.0× shorter than the median of the last 12 successful runs.",
        ),
        (timed(*[1000.0] * 4), 9000, None),
        (timed(*[1000.0] * 20), None, None),
    ],
)
def test_the_duration_is_compared_with_recent_runs(
    runs: list[dict[str, Any]], duration_ms: float | None, sentence: str | None
) -> None:
    """Those in the same ECS cluster are preferred."""
    expected = None if sentence is None else Comparison(text=sentence, is_slow=duration_ms == 3100)
    assert compare(cluster_with(*runs), lasted(duration_ms)) == expected


def test_a_processor_other_than_that_of_the_last_success_is_named() -> None:
    """The first answer of the search is the last success; what the runs before it ran on does
    not count.
    """
    own, last = (f"Intel(R) Xeon(R) Platinum {name} CPU @ 2.50GHz" for name in ("8259CL", "8375C"))
    cluster = cluster_with(*timed(1000.0, model=last), *timed(*[1000.0] * 5, model="Neoverse-N1"))
    comparison = present(compare(cluster, lasted(1000, processor=Processor(model=own))))
    assert comparison.text.endswith(
        "last 6 successful runs. It ran on Xeon 8259CL, the last success on 8375C."
    )
    assert "host.cpu.model" in cluster.bodies[0]["_source"]
    same = present(compare(cluster, lasted(1000, processor=Processor(model=last))))
    assert same.text.endswith("last 6 successful runs.")


def test_an_unexpected_search_response_gives_no_comparison() -> None:
    away = AnsweringSearch(error=SearchClusterError("away", status=None))
    for cluster in (away, AnsweringSearch({"hits": None}), cluster_with(*[{"usage": None}] * 9)):
        assert compare(cluster, lasted(5)) is None


def test_a_family_has_the_usual_duration_of_enough_successes() -> None:
    """A family has the usual duration of its successes in a cluster if there are enough."""
    durations = {
        "jobs": [*range(1000, 21000, 1000)],
        "few": [5.0] * 7,
        "unknown": [None, "x", *[5.0] * 7],
    }
    clusters = [
        {
            "key": name,
            "runs": {
                "hits": {
                    "hits": [{"_source": {"usage": {"duration_ms": value}}} for value in values]
                }
            },
        }
        for name, values in durations.items()
    ]
    families = [{"key": "etl", "clusters": {"buckets": clusters}}]
    search = AnsweringSearch({"aggregations": {"families": {"buckets": families}}})
    memory = FamilyMemory(cluster=search, prefix="task", timeout_seconds=5)
    assert memory.durations({"load", "etl"}, "arn:aws:ecs:eu-west-1:123456789012:cluster/jobs") == {
        ("etl", "jobs"): UsualDuration(median_ms=10500, p95_ms=19050, runs=20)
    }
    (body,) = search.bodies
    asked = body["query"]["bool"]["filter"]
    assert {"terms": {"task.family": ["etl", "load"]}} in asked
    successes = {
        "task.status": "success",
        "cloud.account.id": "123456789012",
        "cloud.region": "eu-west-1",
    }
    assert all({"term": {name: value}} in asked for name, value in successes.items())


def test_every_search_for_runs_of_a_family_asks_for_confirmed_ones() -> None:
    """Any report can name any family: only the task's event confirms a run."""
    search = AnsweringSearch({"hits": {"hits": []}})
    memory = FamilyMemory(cluster=search, prefix="task", timeout_seconds=5)
    memory.durations({"etl"}, "arn:aws:ecs:eu-west-1:123456789012:cluster/jobs")
    memory.compare(success())
    memory.highest_peak_mb(success())
    memory.killed_run(success(), "4dd5853f")
    memory.runs_per_month({"etl"}, "arn:aws:ecs:eu-west-1:123456789012:cluster/jobs")
    assert len(search.bodies) == 5
    for body in search.bodies:
        assert {"term": {"task.confirmed": True}} in body["query"]["bool"]["filter"]


LOST = {"_shards": {"total": 2, "successful": 1, "skipped": 0, "failed": 1}}
CUT_OFF = {"timed_out": True}


@pytest.mark.parametrize("part", [LOST, CUT_OFF])
def test_a_part_of_a_familys_runs_is_no_answer(part: dict[str, Any]) -> None:
    search = AnsweringSearch(
        {**part, "hits": {"hits": [{"_source": {"task": {"id": "4dd5853f-whole"}}}]}}
    )
    memory = memory_of(search)
    assert memory.compare(success()) is None
    assert memory.killed_run(success(), "4dd5853f") == (None, TaskSize())
    for read in (memory.durations, memory.runs_per_month):
        with pytest.raises(PartialAnswerError, match="A search is not whole"):
            read({"etl"}, success().task.arn)


def test_a_peak_of_a_part_is_asked_again_unless_shards_are_lost() -> None:
    peak = {"aggregations": {"peak": {"value": 300.0}}}
    assert memory_of(AnsweringSearch(peak)).highest_peak_mb(success()) == 300
    assert memory_of(AnsweringSearch({**peak, **LOST})).highest_peak_mb(success()) is None
    with pytest.raises(PartialAnswerError) as raised:
        memory_of(AnsweringSearch({**peak, **CUT_OFF})).highest_peak_mb(success())
    assert raised.value.is_retryable


DAY_MS = 86_400_000


def answered_window(tasks: int, days: float) -> AnsweringSearch:
    bucket = {
        "key": "etl",
        "tasks": {"value": tasks},
        "first": {"value": 1.0},
        "last": {"value": 1 + days * DAY_MS},
    }
    return AnsweringSearch({"aggregations": {"families": {"buckets": [bucket]}}})


def memory_of(search: AnsweringSearch) -> FamilyMemory:
    return FamilyMemory(cluster=search, prefix="task", timeout_seconds=5)


def saving(usd: float | None = 0.5, family: str = "etl") -> Document:
    fields: dict[str, Any] = {
        "cloud": {"account": {"id": "123456789012"}, "region": "eu-west-1"},
        "task": {"family": family},
        "cost": {"usd": 1.0, "waste_usd": usd},
    }
    return Document(index="task-reports-2026.03", id="1/batch", fields=fields)


def test_the_runs_a_month_are_those_between_the_first_and_the_last() -> None:
    rates = memory_of(answered_window(11, 10)).runs_per_month({"etl"}, success().task.arn)
    assert rates == {"etl": pytest.approx(30.4375)}


@pytest.mark.parametrize(("tasks", "days"), [(4, 10), (20, 0.9), (0, 0)])
def test_few_runs_or_less_than_a_day_are_not_extrapolated(tasks: int, days: float) -> None:
    search = answered_window(tasks, days)
    assert memory_of(search).runs_per_month({"etl"}, success().task.arn) == {}


def test_a_family_is_looked_up_once_in_a_period() -> None:
    search = answered_window(11, 10)
    rates = FamilyRates(period_ns=1000)
    for now_ns in (2000, 2500, 3500):
        (document,) = rates.with_savings([saving()], lambda: memory_of(search), now_ns)
        monthly_usd = document.fields["recommendation"]["saving_usd_per_month"]
        assert monthly_usd == pytest.approx(0.5 * 30.4375)
    assert len(search.bodies) == 2


def test_runs_without_a_saving_are_not_looked_up() -> None:
    search = answered_window(11, 10)
    documents = [saving(None), saving(0.0)]
    rates = FamilyRates(period_ns=1000)
    assert rates.with_savings(documents, lambda: memory_of(search), 2000) == documents
    assert search.bodies == []


def test_a_cluster_that_refuses_the_search_changes_no_document_and_is_not_asked_again() -> None:
    search = AnsweringSearch(error=SearchClusterError("refused", status=403))
    rates = FamilyRates(period_ns=1000)
    for now_ns in (2000, 2500):
        assert rates.with_savings([saving()], lambda: memory_of(search), now_ns) == [saving()]
    assert len(search.bodies) == 1
