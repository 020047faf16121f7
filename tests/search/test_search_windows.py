"""A size is decided alike, whether a real search cluster computes over the documents or each
record is read.
"""

import json
import random
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import pytest
import requests
from msgspec.structs import replace

from profiler.core.completeness import Completeness
from profiler.core.timestamps import NS_PER_DAY, NS_PER_SECOND, format_ms
from profiler.forwarder.document_updates import Document
from profiler.forwarder.function_settings import ForwarderSettings
from profiler.forwarder.run_documents import report_document
from profiler.record.batch_job import BatchJob
from profiler.record.family_identity import FamilyKey
from profiler.record.record_model import (
    AverageAndMaximum,
    Distribution,
    Metrics,
    Report,
    SlowdownBounds,
    TaskSize,
    encode,
)
from profiler.runs.past_runs.defined_jobs import RunsOfDefinedJobs
from profiler.runs.past_runs.family_evidence import read_windows
from profiler.runs.past_runs.past_run import PastRun
from profiler.runs.past_runs.run_source import RunFilter, RunSource
from profiler.runs.past_runs.search_runs import IndexedRuns
from profiler.search_setup.search_servers import ClusterServer
from profiler.sizing.family_window import FamilyWindow, WindowSpan
from profiler.sizing.sized_revision import SizedRevision
from profiler.sizing.window_evidence import evidence_at_size, with_all_needs
from tests.batch_jobs import CLUSTER, job_id
from tests.family_windows import decision_on
from tests.runs import report
from tests.search.conftest import TWO_SERVERS
from tests.search.forwarding import Forward, search
from tests.values import present
from tools.search_server import SearchServer
from tools.waiting import LIMIT_SECONDS

pytestmark = [pytest.mark.search, TWO_SERVERS]

NOW_NS = 1_772_400_000 * NS_PER_SECOND
SPAN = WindowSpan(now_ns=NOW_NS)
SIZES = ((1.0, 2048), (2.0, 4096), (0.25, 512))


class EachRun(RunSource):
    """The runs of another source, read one by one."""

    def __init__(self, source: RunSource) -> None:
        self.source = source
        self.place = source.place
        self.remedy = source.remedy

    @property
    def remarks(self) -> Sequence[str]:
        return self.source.remarks

    @property
    def completeness(self) -> Completeness:
        return self.source.completeness

    def runs(self, selection: RunFilter) -> Iterable[PastRun]:  # type: ignore[override]
        return self.source.runs(selection)


def made(family: str, number: int, rng: random.Random, sizes: Sequence[Any]) -> Report:
    """A run of a family, with an unusual end or need now and then."""
    size = rng.choice(sizes)
    is_killed = rng.random() < 0.03
    is_unmeasured = rng.random() < 0.02
    status = (
        "failure" if is_killed else rng.choices(("success", "failure", "stopped"), (9, 1, 1))[0]
    )
    peak_mb = None if is_unmeasured else round(rng.uniform(0.1, 0.6) * size[1], 1)
    began_ns = NOW_NS - round(rng.uniform(0.01, 45) * NS_PER_DAY) // 1_000_000 * 1_000_000
    duration_ms = round(rng.uniform(60_000, 600_000))
    slowdowns = {"0.25": SlowdownBounds(min=1.1, max=round(rng.uniform(1.2, 3), 3))}
    metrics: dict[str, Any] = {"duration_ms": duration_ms, "memory_usage_peak_mb": peak_mb}
    if rng.random() < 0.6 and not is_unmeasured:
        files_mb = round(rng.uniform(0, 0.7) * size[1], 1)
        metrics["memory_mapped_file_mb"] = AverageAndMaximum(avg=files_mb / 2, max=files_mb)
    if peak_mb is not None and number % 10 == 3:
        metrics["memory_used_bound_mb"] = round((1 + number % 7 / 10) * peak_mb, 1)
    metrics["memory_size_mb"] = rng.choice((size[1], size[1], size[1] - 100))
    if rng.random() < 0.9 and not is_unmeasured:
        metrics["slowdown_at_vcpu"] = slowdowns
    return report(
        number,
        family=family,
        task_id=f"{rng.getrandbits(128):032x}",
        revision=str(1 + number % 3),
        account_id="123456789012",
        size=size,
        peak_mb=peak_mb,
        p95=None if is_unmeasured else round(rng.uniform(0.05, 0.9) * size[0], 3),
        launch_type=rng.choices(("FARGATE", "EC2"), (9, 1))[0],
        others={"proxy": Metrics(max_memory_used_mb=round(rng.uniform(10, 90), 1),
                                 vcpu_used=Distribution(p95=0.01))},
        metrics=metrics,
        status=status,
        likely_out_of_memory=is_killed,
        started_at=format_ms(began_ns),
        finished_at=format_ms(began_ns + duration_ms * 1_000_000),
    )  # fmt: skip


def fields_of(run: Report) -> tuple[str, dict[str, Any]]:
    """The document of a run that ECS's event confirmed, and its index."""
    document = report_document(run, encode(run).decode(), ForwarderSettings())
    assert isinstance(document, Document)
    fields = json.loads(json.dumps(document.fields, default=str))
    fields["task"]["confirmed"] = True
    return document.index, fields


def put(server: SearchServer, documents: Iterable[tuple[str, Mapping[str, Any]]]) -> None:
    lines = []
    for number, (index, fields) in enumerate(documents):
        lines.append(json.dumps({"index": {"_index": index, "_id": str(number)}}))
        lines.append(json.dumps(fields))
    answer = requests.post(
        f"{server.url}/_bulk",
        data="\n".join([*lines, ""]).encode(),
        headers={"content-type": "application/x-ndjson"},
        timeout=LIMIT_SECONDS,
    ).json()
    assert not answer["errors"], answer
    search(server)  # refreshes


def both(server: SearchServer) -> tuple[Mapping[FamilyKey, FamilyWindow], ...]:
    source = IndexedRuns(ClusterServer(server.url, requests.Session()), "task")
    there = read_windows(source, RunFilter(), SPAN)
    return there, read_windows(EachRun(source), RunFilter(), SPAN)


def assert_alike(
    there: Mapping[FamilyKey, FamilyWindow], here: Mapping[FamilyKey, FamilyWindow]
) -> None:
    assert set(there) == set(here)
    for family, window in here.items():
        computed = there[family]
        assert computed.unconfirmed == window.unconfirmed
        assert set(computed.sizes) == set(window.sizes)
        assert set(computed.elsewhere) == set(window.elsewhere)
        for size, runs in window.elsewhere.items():
            assert computed.elsewhere[size].counts == runs.counts
            assert computed.elsewhere[size].longest_ms == runs.longest_ms
        for size, runs in window.sizes.items():
            for revision, of_revision in runs.revisions.items():
                computed_runs = computed.sizes[size].revisions[revision]
                assert computed_runs.counts == of_revision.counts
                assert computed_runs.limits_mb["batch"] == of_revision.limits_mb["batch"]
            assert computed.sizes[size].longest_ms == runs.longest_ms
            assert_same_needs(computed, window, size)
            for revision in ("1", "3"):
                chosen = SizedRevision(revision=revision, size=size)
                found = decision_on(computed, chosen)
                expected = decision_on(window, chosen)
                assert found.action == expected.action, expected
                assert found.size == expected.size, expected


def assert_same_needs(computed: FamilyWindow, window: FamilyWindow, size: TaskSize) -> None:
    evidence = evidence_at_size(computed, size)
    expected = evidence_at_size(window, size)
    assert (evidence is None) == (expected is None)
    if evidence is None or expected is None:
        return
    assert evidence.outcomes == expected.outcomes
    assert evidence.needs == expected.needs
    assert evidence.precision.stats_period_ms == expected.precision.stats_period_ms
    all_needs = with_all_needs(evidence, computed).needs
    all_expected = with_all_needs(expected, window).needs
    without_slowdowns = replace(all_needs, slowdowns=None)
    assert without_slowdowns == replace(all_expected, slowdowns=None)


@pytest.mark.diagonal
@pytest.mark.parametrize("seed", [1, 2, 3])
def test_a_window_of_computed_counts_decides_as_one_of_all_records(
    forward: Forward, search_server: SearchServer, seed: int
) -> None:
    rng = random.Random(seed)
    documents = []
    for family in ("alone", "mixed", "rare"):
        sizes = SIZES[:1] if family == "alone" else SIZES
        for number in range(6 if family == "rare" else 300):
            documents.append(fields_of(made(family, number, rng, sizes)))
    put(search_server, documents)
    assert_alike(*both(search_server))


def test_documents_without_the_newer_fields_and_unconfirmed_ones_change_nothing_else(
    forward: Forward, search_server: SearchServer
) -> None:
    rng = random.Random(4)
    documents = []
    for number in range(300):
        index, fields = fields_of(made("nightly", number, rng, SIZES))
        kind = number % 4
        if kind == 1:
            del fields["usage"]["task"]
        if kind == 2:
            del fields["task"]["confirmed"]
        if kind == 3 and number % 8 == 3:
            del fields["task"]["status"]
        documents.append((index, fields))
    put(search_server, documents)
    there, here = both(search_server)
    assert all(window.unconfirmed for window in here.values())
    assert_alike(there, here)


class DocumentsOfJobs(RunsOfDefinedJobs):
    """Takes runs that another source gives one by one for documents."""

    def run_under_read_name(self, run: PastRun) -> PastRun | None:
        named = super().run_under_read_name(run)
        return None if named is None else self._as_indexed(run, named)

    def indexed_run_under_read_name(self, run: PastRun) -> PastRun | None:
        return self.run_under_read_name(run)

    @staticmethod
    def _as_indexed(run: PastRun, named: PastRun) -> PastRun | None:
        task = run.report.record
        job = named.report.record
        return named if (task.family, task.revision) == (job.family, job.revision) else None


def job_document(number: int, rng: random.Random, definition: str, family: str) -> Any:
    """The document of a job, or of a task of another family that says it is one."""
    run = made(family, number, rng, SIZES[:2])
    revision = run.record.revision or "1"
    job = BatchJob(
        job_id=job_id(number),
        job_definition=definition,
        job_definition_revision=int(revision),
        queue="nightly",
    )
    return fields_of(replace(run, record=replace(run.record, batch=job, cluster=CLUSTER)))


def test_jobs_count_under_the_definition_that_batch_has_named(
    forward: Forward, search_server: SearchServer
) -> None:
    rng = random.Random(5)
    documents = [job_document(number, rng, "nightly", "nightly") for number in range(300)]
    documents += [job_document(300 + number, rng, "nightly", "thumbs") for number in range(40)]
    documents += [job_document(400 + number, rng, "other", "other") for number in range(40)]
    documents += [fields_of(made("nightly", 500 + number, rng, SIZES)) for number in range(40)]
    put(search_server, documents)
    source = IndexedRuns(ClusterServer(search_server.url, requests.Session()), "task")
    known = {"nightly": "FARGATE"}
    there = read_windows(source, RunFilter(), SPAN, jobs=RunsOfDefinedJobs(known))
    here = read_windows(EachRun(source), RunFilter(), SPAN, jobs=DocumentsOfJobs(known))
    assert [family.name for family in there] == ["nightly"]
    assert_alike(there, here)


def killed(vcpu: float, memory_mb: float, limit_mb: float | None = None) -> Report:
    """A run that was killed in a task of this size, at a limit of its container if given."""
    run = made("nightly", 1, random.Random(0), [(vcpu, memory_mb)])
    metrics = replace(
        run.record.metrics, memory_size_mb=limit_mb or memory_mb, max_memory_used_mb=limit_mb
    )
    record = replace(
        run.record,
        status="failure",
        exit_code=137,
        likely_out_of_memory=True,
        revision="3",
        started_at=format_ms(NOW_NS - NS_PER_DAY),
        finished_at=format_ms(NOW_NS - NS_PER_DAY + 60 * NS_PER_SECOND),
        task_size=TaskSize(vcpu=vcpu, memory_mb=memory_mb),
        metrics=metrics,
    )
    return replace(run, record=record)


def successes(count: int, vcpu: float, memory_mb: float, first: int = 1) -> list[Report]:
    runs = [
        made("nightly", number, random.Random(number), [(vcpu, memory_mb)])
        for number in range(first, first + count)
    ]
    return [
        replace(
            run,
            record=replace(
                run.record, status="success", likely_out_of_memory=None, exit_code=0, revision="3"
            ),
        )
        for run in runs
    ]


def test_a_kill_counts_although_its_retry_with_more_memory_succeeded(
    forward: Forward, search_server: SearchServer
) -> None:
    runs = [*successes(30, 0.25, 1024), killed(0.25, 512), *successes(5, 0.25, 512, first=40)]
    documents = [fields_of(run) for run in runs]
    documents[30][1]["task"]["retried_as"] = runs[0].record.task_id
    documents[0][1]["task"]["retry_of"] = runs[30].record.task_id
    put(search_server, documents)
    there, here = both(search_server)
    assert_alike(there, here)
    (window,) = there.values()
    size = TaskSize(vcpu=0.25, memory_mb=512)
    decision = decision_on(window, SizedRevision(revision="3", size=size))
    assert window.sizes[size].counts.counts_by_outcome["killed"] == 1
    assert decision.action == "resize"
    assert (present(decision.size).memory_mb or 0) > 512


def test_a_kill_at_the_limit_of_a_container_is_known_with_its_limit(
    forward: Forward, search_server: SearchServer
) -> None:
    runs = [*successes(250, 1, 2048), killed(1, 2048, limit_mb=700)]
    put(search_server, map(fields_of, runs))
    there, here = both(search_server)
    assert_alike(there, here)
    for windows in (there, here):
        (window,) = windows.values()
        memory = window.sizes[TaskSize(vcpu=1, memory_mb=2048)].containers["batch"]
        assert memory.killed_limit_mb == 700


def test_a_document_that_is_in_two_indices_changes_no_decision(
    forward: Forward, search_server: SearchServer
) -> None:
    documents = [fields_of(run) for run in successes(40, 1, 2048)]
    copies = [("task-reports-2026.09", fields) for _, fields in documents[:1]]
    put(search_server, [*documents, *copies])
    there, here = both(search_server)
    (computed,) = there.values()
    (window,) = here.values()
    chosen = SizedRevision(revision="3", size=TaskSize(vcpu=1, memory_mb=2048))
    assert window.deciding_counts.run_count + 1 == computed.deciding_counts.run_count
    assert decision_on(computed, chosen).size == decision_on(window, chosen).size
