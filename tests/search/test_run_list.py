"""The list of runs from the forwarder's documents on real servers is the same as from every other source.

The other sources: tests/contract/test_run_sources.py.
"""

import json
from typing import Any

import pytest
from msgspec.structs import replace

from profiler.cli.options import SourceOptions
from profiler.cli.wiring.open_past_runs import open_source
from profiler.core.clock import SystemClock
from profiler.core.timestamps import parse_ns
from profiler.forwarder.documents import schedule_notice_document
from profiler.forwarder.function_settings import ForwarderSettings
from profiler.record.notice_model import encode_notice
from profiler.record.record_model import encode
from profiler.runs.past_runs.run_source import RunFilter, RunSource
from tests.run_sources import IDS, RUNS, check_source
from tests.search.conftest import TWO_SERVERS
from tests.search.server import SearchServer
from tests.search.test_forwarder import Context, Forward, call, event, forward, search
from tests.shown_runs import missed_notice
from tests.values import present

__all__ = ["forward"]  # the fixture

pytestmark = [pytest.mark.search, TWO_SERVERS]


def source_of(server: SearchServer) -> RunSource:
    return open_source(SourceOptions(url=server.url, prefix="task"), {}, SystemClock())


def put(server: SearchServer, index: str, task_id: str, document: dict[str, Any]) -> None:
    call(server, "PUT", f"{index}/_doc/{task_id}?refresh=true", document)


def test_the_cluster_finds_the_same_runs_as_every_other_source(forward: Forward, search_server: SearchServer) -> None:
    forward(event(*(encode(one).decode() for one in RUNS)), Context())
    search(search_server)  # refreshes
    check_source(source_of(search_server))
    with_event(search_server, "abc1")
    with_event(search_server, "bcd1", record_only=True)
    corrected, restored = (next(source_of(search_server).runs(RunFilter(run=one))) for one in ("abc1", "bcd1"))
    assert (corrected.report.record.status, corrected.report.record.exit_code) == ("stopped", 0)
    assert present(corrected.event).stopped_reason == "Stopped by ann"
    assert corrected.line == encode(RUNS[0])
    assert (restored.report.type, restored.report.schema_version) == ("task.report", "1.3")
    assert restored.report.time == restored.report.record.finished_at or restored.report.time
    found = source_of(search_server).runs(RunFilter(statuses=("stopped",)))
    assert [one.report.record.task_id for one in found] == ["abc1", "bcd1", "bcd2"]


def with_event(server: SearchServer, task_id: str, *, record_only: bool = False) -> None:
    """What the task's event changes in a document; other shippers store the record alone."""
    (hit,) = search(server, query={"term": {"task.id": task_id}})["hits"]["hits"]
    source = hit["_source"]
    source["task"] |= {"status": "stopped", "stop_category": "user", "stopped_reason": "Stopped by ann"}
    if record_only:
        source["record"] = json.dumps(json.loads(source["record"])["record"])
    put(server, hit["_index"], hit["_id"].replace("/", "%2F"), source)


def test_runs_without_a_record_get_a_partial_line(forward: Forward, search_server: SearchServer) -> None:
    forward(event(*(encode(one).decode() for one in RUNS)), Context())
    task = {"id": "lost", "family": "nightly-etl", "status": "failure", "stopped_reason": "CannotPullContainerError"}
    never = {"@timestamp": "2099-01-01T00:00:00.000Z", "task": task, "container": {"name": "batch"}}
    started = {**never, "task": {**task, "id": "gone"}, "event": {"start": "2020-01-01T00:00:00.000Z"}}
    put(search_server, "task-reports-2099.01", "lost", never)
    put(search_server, "task-reports-2020.01", "gone", started)
    search(search_server)  # refreshes
    source = source_of(search_server)
    runs = list(source.runs(RunFilter()))
    assert [run.report.record.task_id for run in runs] == ["lost", *IDS, "gone"]
    assert runs[0].line is None
    assert runs[0].report.record.metrics.duration_ms is None
    assert runs[0].event is not None
    put(search_server, "task-reports-2020.01", "gone", {**started, "record": "no record"})
    assert len(list(source.runs(RunFilter(run="gone")))) == 1
    assert source.notes == ("the indices task-reports-*: 1 record could not be read, so numbers are missing.",)


def test_runs_of_several_search_pages_are_listed(forward: Forward, search_server: SearchServer) -> None:
    """Also with equal starts."""
    texts = [encode(RUNS[0]).decode().replace('"abc1"', f'"many-{number:03}"') for number in range(450)]
    forward(event(*texts), Context())
    search(search_server)
    ids = [one.report.record.task_id for one in source_of(search_server).runs(RunFilter())]
    assert ids == [f"many-{number:03}" for number in range(450)]


def test_a_run_with_checkpoints_alone_is_found_by_its_id(forward: Forward, search_server: SearchServer) -> None:
    text = encode(RUNS[0]).decode().replace("task.report", "task.checkpoint").replace('"success"', '"running"')
    forward(event(text), Context())
    search(search_server, "task-checkpoints-*")
    source = source_of(search_server)
    assert list(source.runs(RunFilter(run="abc1"))) == []
    (run,) = source.runs(RunFilter(run="abc1", reads_checkpoints=True))
    assert run.report.record.status == "running"
    assert len(source.checkpoints(run)) == 1


@pytest.mark.usefixtures("forward")  # which installs the index templates
def test_missed_runs_are_found_by_family_and_due_time(search_server: SearchServer) -> None:
    missed = missed_notice()
    later = replace(missed, notice=replace(missed.notice, due_at="2026-11-20T04:00:00.000Z"))
    other = replace(missed, family="hourly")
    for number, line in enumerate((missed, later, other)):
        document = schedule_notice_document(line, encode_notice(line).decode(), ForwarderSettings())
        put(search_server, document.index, str(number), dict(document.fields))
    source = source_of(search_server)
    assert source.schedule_notices(RunFilter(families=("nightly-*",), accounts=("111122223333",))) == (later, missed)
    until_ns = parse_ns(later.notice.due_at)
    assert set(source.schedule_notices(RunFilter(until_ns=until_ns, clusters=("jobs",)))) == {missed, other}
    assert source.schedule_notices(RunFilter(regions=("mars-1",))) == ()
