"""Comparisons with the family: durations, processors, and successes that are unlike it; the
search for its runs.
"""

import json
import random
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

import msgspec
import pytest
from msgspec.structs import replace

from profiler.core.timestamps import NS_PER_DAY, NS_PER_MINUTE, NS_PER_SECOND, format_ms, parse_ns
from profiler.forwarder.document_updates import Document
from profiler.forwarder.ended_run import EndedRun, FamilyComparison, UnusualMeasure
from profiler.forwarder.family_runs import (
    _MEASURES,
    RUN_NUMBERS,
    FamilyRatesCache,
    FamilyRunReader,
    Measures,
    find_unusual,
)
from profiler.forwarder.function_settings import ForwarderSettings
from profiler.forwarder.invocation import PartialAnswerError, SearchClusterError
from profiler.forwarder.run_documents import report_document
from profiler.forwarder.search_cluster.bulk_client import SearchCluster
from profiler.record.family_statistics import Family, UsualDuration, family_of_reports
from profiler.record.model_base import json_name
from profiler.record.record_model import (
    NO_READINGS,
    UNKNOWN_PROCESSOR,
    AverageAndMaximum,
    Container,
    Metrics,
    Processor,
    Record,
    Report,
    Sampling,
    TaskSize,
    encode,
)
from profiler.record.search_document_fields import FIELDS
from profiler.record.unusual import MIN_FAR_RUNS
from tests.cases import each_case
from tests.counting_search import CountingSearch
from tests.ended_runs import NOTICE, changed, ended, in_task, report_line
from tests.fake_search import AnsweringSearch
from tests.fakes import START_NS
from tests.runs import report as run_report
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
    assert _MEASURES.keys() <= RUN_NUMBERS.keys()
    for name, measure in _MEASURES.items():
        assert paths[RUN_NUMBERS[name]] == f"metrics.{json_name(name)}"
        assert measure.row.path == f"metrics.{name}"


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


@each_case(("own", "earlier", "expected"), FAMILIES.values(), ids=FAMILIES)
def test_what_lies_far_outside_the_family_is_unusual(
    own: Measures, earlier: Sequence[Measures], expected: list[str]
) -> None:
    assert [measure.metric for measure in find_unusual(own, earlier)] == expected


def source(
    run: Mapping[str, float | None], *, cluster: str = "jobs", is_complete: bool = True
) -> dict[str, Any]:
    return {
        "usage": {
            "duration_ms": run["duration_ms"],
            "cpu": {"seconds": run.get("cpu_seconds")},
            "block": {
                "read_bytes": run.get("block_read_bytes"),
                "write_bytes": run.get("block_write_bytes"),
            },
        },
        "task": {"complete": is_complete},
        "orchestrator": {"cluster": {"name": cluster}},
    }


def cluster_with(*sources: dict[str, Any]) -> CountingSearch:
    """The successes of one family, the newest first."""
    own = {"family": NOTICE.task.family, "status": "success", "confirmed": True}
    place = {"account": {"id": "111122223333"}, "region": "eu-west-1"}
    documents = []
    for number, given in enumerate(sources):
        task = {**own, "id": f"earlier-{number}", **given.get("task", {})}
        moment = format_ms(START_NS - number * NS_PER_MINUTE)
        documents.append(
            {
                "container": {"name": "batch"},
                "cloud": place,
                "@timestamp": moment,
                **given,
                "task": task,
            }
        )
    return CountingSearch(*documents, now_ns=START_NS)


def success() -> EndedRun:
    """A run that did nothing."""
    metrics = Metrics(duration_ms=3000, cpu_seconds=0.2, block_read_bytes=0, block_write_bytes=0)
    record = Record(task_id="1", container=Container(name="batch"), metrics=metrics)
    finished = datetime(2026, 3, 1, 10, 0, 6, tzinfo=UTC)
    return in_task(
        changed(NOTICE, report_line=report_line(record)),
        cluster="jobs",
        execution_stopped_at=finished,
    )


def compare(cluster: SearchCluster, notice: EndedRun) -> FamilyComparison | None:
    return memory_of(cluster).compare_with_family(notice)


def unusual(notice: EndedRun, *sources: dict[str, Any]) -> tuple[UnusualMeasure, ...]:
    return present(compare(cluster_with(*sources), notice)).unusual


def test_one_search_is_enough_for_duration_and_measures() -> None:
    cluster = cluster_with(*[source(USUAL)] * 60)
    comparison = present(compare(cluster, success()))
    assert comparison.text == "400.0× shorter than the median of the last 20 successful runs."
    assert comparison.unusual == find_unusual(NOTHING, STEADY)
    assert [body["size"] for body in cluster.bodies] == [0]


def test_only_a_success_with_a_report_is_compared() -> None:
    runs = [source(USUAL)] * 9
    assert "cpuSeconds" in {measure.metric for measure in unusual(success(), *runs)}
    partial = replace(present(success().record), sampling=Sampling(cpu_covered_percent=80))
    found = unusual(changed(success(), report_line=report_line(partial)), *runs)
    assert "cpuSeconds" not in {measure.metric for measure in found} != set()
    unread = replace(
        partial, sampling=Sampling(cpu_covered_percent=80, sources=("task-metadata-v4",))
    )
    found = unusual(changed(success(), report_line=report_line(unread)), *runs)
    assert not {"blockReadBytes", "blockWriteBytes"} & {measure.metric for measure in found}
    assert not unusual(ended(success(), cause="failure", exit_code=1), *runs)
    checkpoint = report_line(present(success().record), "task.checkpoint")
    assert not unusual(changed(success(), report_line=checkpoint), *runs)


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


def lasted(duration_ms: float | None, **record: Any) -> EndedRun:
    metrics = Metrics(duration_ms=duration_ms)
    own = Record(task_id="1", container=Container(name="batch"), metrics=metrics, **record)
    return in_task(
        changed(NOTICE, report_line=report_line(own)), cluster="jobs", execution_stopped_at=None
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
    expected = (
        None if sentence is None else FamilyComparison(text=sentence, is_slow=duration_ms == 3100)
    )
    assert compare(cluster_with(*runs), lasted(duration_ms)) == expected


def test_a_processor_other_than_that_of_the_last_success_is_named() -> None:
    """What the runs before the last success ran on does not count."""
    own, last = (f"Intel(R) Xeon(R) Platinum {name} CPU @ 2.50GHz" for name in ("8259CL", "8375C"))
    cluster = cluster_with(*timed(1000.0, model=last), *timed(*[1000.0] * 5, model="Neoverse-N1"))
    comparison = present(compare(cluster, lasted(1000, processor=Processor(model=own))))
    assert comparison.text.endswith(
        "last 6 successful runs. It ran on Xeon 8259CL, the last success on 8375C."
    )
    same = present(compare(cluster, lasted(1000, processor=Processor(model=last))))
    assert same.text.endswith("last 6 successful runs.")


def test_an_unexpected_search_response_gives_no_comparison() -> None:
    away = AnsweringSearch(error=SearchClusterError("away", status=None))
    odd = AnsweringSearch({"aggregations": {"families": {"buckets": [{"key": "etl_daily"}]}}})
    for cluster in (
        away,
        AnsweringSearch({"hits": None}),
        odd,
        cluster_with(*[{"usage": None}] * 9),
    ):
        assert compare(cluster, lasted(5)) is None


ARN = "arn:aws:ecs:eu-west-1:111122223333:cluster/jobs"


def test_a_family_has_the_usual_duration_of_enough_successes() -> None:
    """A family has the usual duration of its successes in a cluster if there are enough."""
    few = timed(*[5.0] * 7, cluster="few")
    unknown = [source({"duration_ms": value}, cluster="unknown") for value in (None, *[5.0] * 7)]
    search = cluster_with(*timed(*range(1000, 31000, 1000), cluster="jobs"), *few, *unknown)
    usual = UsualDuration(median_ms=10500, p95_ms=19050, runs=20)
    assert memory_of(search).read_usual_durations({"etl_daily", "load"}, ARN) == {
        ("etl_daily", "jobs"): usual
    }
    assert memory_of(search).read_usual_durations({"load"}, ARN) == {}
    assert (
        memory_of(search).read_usual_durations({"etl_daily"}, ARN.replace("eu-west-1", "us-west-2"))
        == {}
    )


NOW = datetime.fromtimestamp(START_NS / NS_PER_SECOND, UTC)
LOST = {"_shards": {"total": 2, "successful": 1, "skipped": 0, "failed": 1}}
CUT_OFF = {"timed_out": True}


@pytest.mark.parametrize("part", [LOST, CUT_OFF])
def test_a_part_of_a_familys_runs_is_no_fact_of_the_family(part: dict[str, Any]) -> None:
    search = cluster_with(*timed(*[1000.0] * 30, cluster="jobs"))
    assert compare(search, lasted(9000)) is not None
    search.answer = part
    assert_says_nothing(search)


def test_a_closed_index_of_the_days_that_count_is_a_part() -> None:
    search = cluster_with(*timed(*[1000.0] * 30, cluster="jobs"))
    search.closed = f"task-reports-{NOW:%Y.%m}"
    assert_says_nothing(search)
    search.closed = "task-reports-2020.01"
    assert compare(search, lasted(9000)) is not None
    assert memory_of(search).read_usual_durations({"etl_daily"}, ARN)


def assert_says_nothing(search: CountingSearch) -> None:
    memory = memory_of(search)
    assert compare(search, lasted(9000)) is None
    assert memory.find_killed_run(success(), "earlier-1") == (None, TaskSize())
    asked: list[Callable[[], object]] = [
        lambda: memory.read_usual_durations({"etl_daily"}, ARN),
        lambda: memory.read_runs_per_month({"etl_daily"}, ARN),
        lambda: memory.read_successes({"etl_daily"}, ARN),
        lambda: memory.read_need_at_size(success(), 2048),
    ]
    for ask in asked:
        with pytest.raises(PartialAnswerError, match="A search is not whole"):
            ask()
    rates = FamilyRatesCache(period_ns=1000)
    assert rates.documents_with_monthly_savings([saving()], lambda: memory, 2000) == [saving()]


def test_every_search_for_runs_of_a_family_asks_for_confirmed_ones() -> None:
    """Any report can name any family: only the task's event confirms a run."""
    search = AnsweringSearch({"hits": {"hits": []}})
    memory = memory_of(search)
    memory.read_usual_durations({"etl"}, "arn:aws:ecs:eu-west-1:123456789012:cluster/jobs")
    memory.compare_with_family(success())
    memory.read_need_at_size(success(), 512)
    memory.find_killed_run(success(), "4dd5853f")
    memory.read_runs_per_month({"etl"}, "arn:aws:ecs:eu-west-1:123456789012:cluster/jobs")
    assert len(search.bodies) == 5
    for body in search.bodies:
        assert {"term": {"task.confirmed": True}} in body["query"]["bool"]["filter"]


DAY_MS = 86_400_000


def answered_window(tasks: int, days: float) -> AnsweringSearch:
    bucket = {
        "key": "etl",
        "tasks": {"value": tasks},
        "first": {"value": 1.0},
        "last": {"value": 1 + days * DAY_MS},
    }
    return AnsweringSearch({"aggregations": {"families": {"buckets": [bucket]}}})


def memory_of(search: SearchCluster) -> FamilyRunReader:
    return FamilyRunReader(cluster=search, prefix="task", timeout_seconds=5, now=NOW)


def saving(usd: float | None = 0.5, family: str = "etl") -> Document:
    fields: dict[str, Any] = {
        "cloud": {"account": {"id": "123456789012"}, "region": "eu-west-1"},
        "task": {"family": family},
        "cost": {"usd": 1.0, "waste_usd": usd},
    }
    return Document(index="task-reports-2026.03", id="1/batch", fields=fields)


def test_the_runs_a_month_are_those_between_the_first_and_the_last() -> None:
    rates = memory_of(answered_window(11, 10)).read_runs_per_month({"etl"}, success().task.arn)
    assert rates == {"etl": pytest.approx(30.4375)}


@pytest.mark.parametrize(("tasks", "days"), [(4, 10), (20, 0.9), (0, 0)])
def test_few_runs_or_less_than_a_day_are_not_extrapolated(tasks: int, days: float) -> None:
    search = answered_window(tasks, days)
    assert memory_of(search).read_runs_per_month({"etl"}, success().task.arn) == {}


def test_a_family_is_looked_up_once_in_a_period() -> None:
    search = answered_window(11, 10)
    rates = FamilyRatesCache(period_ns=1000)
    for now_ns in (2000, 2500, 3500):
        (document,) = rates.documents_with_monthly_savings(
            [saving()], lambda: memory_of(search), now_ns
        )
        monthly_usd = document.fields["recommendation"]["saving_usd_per_month"]
        assert monthly_usd == pytest.approx(0.5 * 30.4375)
    assert len(search.bodies) == 2


def test_runs_without_a_saving_are_not_looked_up() -> None:
    search = answered_window(11, 10)
    documents = [saving(None), saving(0.0)]
    rates = FamilyRatesCache(period_ns=1000)
    assert (
        rates.documents_with_monthly_savings(documents, lambda: memory_of(search), 2000)
        == documents
    )
    assert search.bodies == []


def test_a_cluster_that_refuses_the_search_changes_no_document_and_is_not_asked_again() -> None:
    search = AnsweringSearch(error=SearchClusterError("refused", status=403))
    rates = FamilyRatesCache(period_ns=1000)
    for now_ns in (2000, 2500):
        assert rates.documents_with_monthly_savings(
            [saving()], lambda: memory_of(search), now_ns
        ) == [saving()]
    assert len(search.bodies) == 1


def random_reports(chance: random.Random, count: int) -> list[Report]:
    """Ended runs of one family in two clusters, with two containers and three sizes."""
    reports = []
    for number in range(count):
        size_mb = chance.choice([512, 2048, 65_536])
        is_killed = chance.random() < 0.1
        made = run_report(
            number,
            peak_mb=chance.choice([None, round(chance.uniform(1, size_mb), 1)]),
            size=(1, size_mb),
            metrics={
                "duration_ms": chance.choice([None, chance.randrange(1, 10**7)]),
                "cpu_seconds": round(chance.uniform(0, 100), 2),
                "block_read_bytes": chance.randrange(10**9),
                "memory_mapped_file_mb": chance.choice(
                    [
                        NO_READINGS,
                        AverageAndMaximum(avg=0, max=0),
                        AverageAndMaximum(avg=1, max=200),
                    ]
                ),
            },
            container=Container(name=chance.choice(["batch", "batch", "log"])),
            cluster=chance.choice(["jobs", "test"]),
            account_id="111122223333",
            status="failure" if is_killed else chance.choice(["success", "success", "stopped"]),
            likely_out_of_memory=is_killed,
            processor=chance.choice([UNKNOWN_PROCESSOR, Processor(model="Xeon")]),
        )
        reports.append(made)
    chance.shuffle(reports)
    return reports


def documents_of(reports: Sequence[Report]) -> CountingSearch:
    """The cluster with these runs, each confirmed by its task's event."""
    search = CountingSearch()
    for made in reports:
        document = report_document(made, encode(made).decode(), ForwarderSettings())
        assert isinstance(document, Document)
        fields = json.loads(msgspec.json.encode(document.fields))
        fields["task"]["confirmed"] = True
        search.documents[document.index, document.id] = fields
    return search


@pytest.mark.parametrize("count", [0, 4, 5, 60, 200])
def test_lines_and_the_search_cluster_say_the_same_of_the_same_runs(count: int) -> None:
    reports = random_reports(random.Random(count), count)
    last = max((made.record.finished_at or "" for made in reports), default="")
    search = documents_of(reports)
    search.now_ns = (parse_ns(last) or 0) + NS_PER_MINUTE
    memory, of_lines = memory_of(search), family_of_reports(reports)
    place = "arn:aws:ecs:us-east-1:111122223333:cluster/jobs"
    found = memory.read_successes({"nightly", "other"}, place).get("nightly", Family())
    for cluster in ("jobs", "test", "unknown"):
        assert found.usual_duration(cluster) == of_lines.usual_duration(cluster)
        assert found.last_success(cluster) == of_lines.last_success(cluster)
    for container in ("batch", "log"):
        assert found.highest_peak(container) == of_lines.highest_peak(container)
    assert found.last_successes() == of_lines.last_successes()
    month = {made.record.task_id for made in reports if recent(made, search.now_ns, 30)}
    in_month = family_of_reports([made for made in reports if made.record.task_id in month])
    counted = memory.read_task_counts({"nightly"}, place).get("nightly", Family())
    assert (counted.task_count, counted.month) == (in_month.task_count, in_month.month)
    window = family_of_reports([made for made in reports if recent(made, search.now_ns, 35)])
    asking = in_task(
        NOTICE,
        arn="arn:aws:ecs:us-east-1:111122223333:task/jobs/0123",
        definition_arn="arn:aws:ecs:us-east-1:111122223333:task-definition/nightly:7",
        launch_type="FARGATE",
    )
    for size_mb in (512, 2048, 65_536, 1024):
        assert memory.read_need_at_size(asking, size_mb) == window.memory_need("batch", size_mb)


def recent(made: Report, now_ns: int, days: int) -> bool:
    ended_ns = parse_ns(made.record.finished_at) or 0
    return ended_ns >= now_ns - days * NS_PER_DAY
