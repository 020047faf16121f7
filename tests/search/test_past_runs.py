"""The reading commands find the same in the forwarder's documents on real servers as in every
other source.

The other sources of the list of runs: tests/contract/test_run_sources.py.
"""

import json
import os
import tempfile
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from subprocess import CompletedProcess
from typing import Any

import pytest
import requests
from msgspec.structs import replace

from profiler.cli.options import SourceOptions
from profiler.cli.wiring.open_past_runs import open_source
from profiler.core.timestamps import parse_ns
from profiler.forwarder.function_settings import ForwarderSettings
from profiler.forwarder.notice_documents import schedule_notice_document
from profiler.record.mapped_files import INCLUDES_FILES
from profiler.record.notice_model import encode_notice_line
from profiler.record.record_model import (
    AverageAndMaximum,
    Distribution,
    Report,
    decode,
    encode,
)
from profiler.runs.past_runs.past_run import NO_TASK_EVENT
from profiler.runs.past_runs.run_source import RunFilter, RunSource
from tests.command_line import run_here
from tests.report_page import unpacked
from tests.run_sources import IDS, RUNS, check_source
from tests.runs import checkpoint, lines, report
from tests.search.conftest import TWO_SERVERS
from tests.search.forwarding import Context, Forward, call, event, index_without_a_node, search
from tests.shown_runs import missed_notice
from tests.values import present
from tools.search_server import SearchServer
from tools.waiting import LIMIT_SECONDS

pytestmark = [pytest.mark.search, TWO_SERVERS]


def command(*words: str, given: bytes = b"") -> CompletedProcess[str]:
    """Run a command, with a file of these lines in place of a word ``-``."""
    with tempfile.NamedTemporaryFile() as file:
        file.write(given)
        file.flush()
        return run_here(os.environ, *(file.name if word == "-" else word for word in words))


def objects(*words: str, given: bytes = b"") -> dict[str, Any]:
    """What ``--json`` prints, by family."""
    done = command("recommend", "--json", *words, given=given)
    assert done.returncode == 0, done.stderr
    return {one["family"]: one for one in map(json.loads, done.stdout.splitlines())}


def indexed(forward: Forward, server: SearchServer, reports: Sequence[Report]) -> None:
    for account in {one.record.account_id for one in reports}:
        texts = [encode(one).decode() for one in reports if one.record.account_id == account]
        # An emulator's event has no owner: the account of its runs is unknown.
        assert forward(event(*texts, owner=account or ""), Context()) == {
            "indexed": len(texts),
            "skipped": 0,
            "failed": 0,
            "untrusted": 0,
        }
    search(server)  # refreshes


FAMILIES: dict[str, list[Report]] = {
    "grown": [report(n, family="grown", peak_mb=1000 + 50 * n) for n in range(12)],
    "mixed": [
        report(0, family="mixed", status="failure", exit_code=3),
        report(1, family="mixed", status="stopped", metrics={"memory_peak_source": "kernel"}),
        report(2, family="mixed", peak_mb=None, p95=None),
        report(3, family="mixed", peak_mb=1500, metrics={"memory_used_mb": Distribution(p99=300)}),
    ],
    "ec2": [
        report(n, family="ec2", launch_type="EC2", size=None, peak_mb=333.25) for n in range(2)
    ],
    "sixty": [report(n, family="sixty", peak_mb=1900 if n < 10 else 300) for n in range(60)],
}
# Documents are known by their task's id.
SIZED_RUNS = [
    replace(one, record=replace(one.record, task_id=f"{family}-{number}"))
    for family, runs in FAMILIES.items()
    for number, one in enumerate(runs)
]


def test_the_cluster_gives_the_same_recommendations_as_the_record_lines(
    forward: Forward, search_server: SearchServer
) -> None:
    """Also which 50 of 60 runs are the last, and that one of them has no numbers."""
    indexed(forward, search_server, [*SIZED_RUNS, checkpoint(SIZED_RUNS[0])])
    there = objects("--from", search_server.url)
    here = objects("--from", "-", given=lines(SIZED_RUNS))
    assert sorted(there) == sorted(FAMILIES)
    assert list(there) == list(here)  # the largest saving first
    for family, found in there.items():
        assert found == here[family]
    assert there["grown"]["evidence"]["runs"] == 12
    assert there["sixty"]["recommended"] == {"vcpu": 0.25, "memoryMB": 512}
    assert there["mixed"]["evidence"]["ignored"] == 1


def test_memory_that_may_include_files_is_not_compared_without_a_word_in_a_cluster_either(
    forward: Forward, search_server: SearchServer, tmp_path: Path
) -> None:
    """Reports before schema 1.4 do not say mapped files apart."""
    runs = [
        report(
            number,
            family="upgraded",
            task_id=f"upgraded-{number}",
            revision="1" if is_older else "2",
            peak_mb=1800 if is_older else 300,
            metrics={} if is_older else {"memory_mapped_file_mb": AverageAndMaximum(avg=0, max=0)},
        )
        for number in range(12)
        for is_older in [number < 6]
    ]
    indexed(forward, search_server, runs)
    for words in (
        ("compare", "upgraded@1", "upgraded@2"),
        ("history", "upgraded"),
        ("recommend", "upgraded"),
    ):
        there = command(*words, "--from", search_server.url)
        here = command(*words, "--from", "-", given=lines(runs))
        assert INCLUDES_FILES in " ".join((there.stdout + there.stderr).split()), words
        assert there.stdout == here.stdout
    page = tmp_path / "page.html"
    assert command("report", "-o", str(page), "--from", search_server.url).returncode == 0
    data = page.read_text().partition('id="task-data">')[2].partition("<")[0]
    told = [(run["peak"], run.get("countsFiles")) for run in unpacked(data)["runs"]]
    assert sorted(told, key=str) == [*[(1800, True)] * 6, *[(300, None)] * 6]


def test_the_cluster_filters_as_a_file_does(forward: Forward, search_server: SearchServer) -> None:
    """Each run has its own peak, so that a run that should not count changes the evidence."""
    statuses = ("success", "failure", "stopped", "unknown")
    runs = [
        report(
            number,
            family="filtered",
            peak_mb=300 + 37 * number % 11 * 100,
            cluster="jobs" if number % 3 else "other",
            tags={"team": "data" if number % 2 else "web", "stage": "live"},
            status=statuses[number % 4],
            task_id=f"filtered-{number}",
        )
        for number in range(9)
    ]
    indexed(forward, search_server, runs)
    second, third = str(runs[1].record.started_at), str(runs[2].record.started_at)
    for filters in (
        ("--cluster", "jobs", "--last", "2"),
        ("--tag", "team=data", "--cluster", "other"),
        ("--status", "stopped"),
        ("--since", second, "--until", third, "f?l*", "--last", "1"),
    ):
        there = objects("--from", search_server.url, *filters)
        assert there == objects("--from", "-", *filters, given=lines(runs)), filters
        assert list(there) == ["filtered"]


def test_unconfirmed_runs_are_listed_and_no_advice_is_of_them(
    forward: Forward, search_server: SearchServer
) -> None:
    """A task of another family prints them in its monitor's stream, of containers that it does not
    have. They are newer than the honest runs, and more than the last ones.
    """
    indexed(forward, search_server, [report(n, family="payroll", peak_mb=900) for n in range(3)])
    task = "cd" * 16
    forged = []
    for number in range(60):
        made = report(100 + number, family="payroll", peak_mb=20, status="failure", task_id=task)
        container = replace(made.record.container, name=f"made-up-{number}")
        forged.append(replace(made, record=replace(made.record, container=container)))
    texts = [encode(one).decode() for one in forged]
    assert forward(event(*texts, stream=f"ecs/task-monitor/{task}"), Context())["indexed"] == 60
    search(search_server)  # refreshes
    source = ("--from", search_server.url)
    advice = objects("payroll", *source)["payroll"]
    assert advice["evidence"]["runs"] == 3
    said = command("recommend", "payroll", *source).stderr
    assert "60 unconfirmed runs left out" in " ".join(said.split())
    assert command("recommend", "payroll", "--check", "--min-saving", "99", *source).returncode == 0
    assert "payroll succeeded" in command("show", "payroll", *source).stdout
    listed = command("history", "payroll", "--last", "100", *source)
    assert listed.stdout.count("unconfirmed") == 60
    assert "60 runs unconfirmed" in " ".join(listed.stderr.split())
    assert "Unconfirmed" in command("show", f"{task}/made-up-0", *source).stdout


def test_families_of_several_search_pages_are_read(
    forward: Forward, search_server: SearchServer
) -> None:
    """With ``--last 5000`` there is one family on a page, with fewer up to 100."""
    many = [
        replace(
            one, record=replace(one.record, family=f"family-{number:03}", task_id=f"many-{number}")
        )
        for number, one in enumerate([report()] * 230)
    ]
    indexed(forward, search_server, many)
    assert len(objects("--from", search_server.url)) == 230
    assert len(objects("--from", search_server.url, "--last", "9000", "family-00*")) == 10


def test_families_with_the_same_name_in_several_accounts_are_separate(
    forward: Forward, search_server: SearchServer
) -> None:
    runs = [
        report(
            number,
            account_id=account,
            region=region,
            task_id=f"{account}-{region}-{number}",
            peak_mb=peak_mb + number,
        )
        for account, region, peak_mb in (
            ("1", "eu-west-1", 100),
            ("2", "eu-west-1", 900),
            ("2", None, 3000),
        )
        for number in range(3)
    ]
    indexed(forward, search_server, runs)

    def lines_of(*words: str) -> str:
        done = command("recommend", "--json", *words, given=lines(runs))
        assert done.returncode == 0, done.stderr
        return done.stdout

    there = ("--from", search_server.url)
    for filters in (
        (),
        ("--account", "2"),
        ("--task-region", "eu-west-1"),
        ("--account", "2", "--last", "1"),
    ):
        assert lines_of(*there, *filters) == lines_of("--from", "-", *filters)
    families = [json.loads(line) for line in lines_of(*there).splitlines()]
    separate = [(family["accountId"], family["region"]) for family in families]
    # The last one has no price, so its saving is unknown.
    assert separate == [("1", "eu-west-1"), ("2", "eu-west-1"), ("2", None)]


def test_a_run_without_a_report_is_ignored_unless_it_ran_out_of_memory(
    forward: Forward, search_server: SearchServer
) -> None:
    """Of a lost run the last checkpoint's numbers are in the document."""
    indexed(forward, search_server, [replace(report(n), record=report(n).record) for n in range(2)])
    search(search_server)
    first, second = search(search_server)["hits"]["hits"]
    for hit, ended in ((first, {}), (second, {"out_of_memory": True})):
        task = {"complete": False, "stop_category": "exit", **ended}
        where = f"{search_server.url}/{hit['_index']}/_update/{hit['_id'].replace('/', '%2F')}"
        line = encode(checkpoint(decode(hit["_source"]["record"]))).decode()
        requests.post(
            where, json={"doc": {"task": task, "record": line}}, timeout=LIMIT_SECONDS
        ).raise_for_status()
    search(search_server)
    found = objects("--from", search_server.url)["nightly"]
    assert found["evidence"]["runs"] == 1
    assert found["evidence"]["ignored"] == 1
    assert found["evidence"]["outOfMemory"] == 1
    assert found["recommended"]["memoryMB"] == 3072


def test_a_cluster_without_documents_is_an_error(search_server: SearchServer) -> None:
    done = command("recommend", "--from", f"{search_server.url}/nobodys")
    assert done.returncode == 1, done.stderr
    assert done.stdout == ""
    assert done.stderr == (
        "task-profiler: No runs in the indices nobodys-reports-*: check --from "
        "https://HOST/PREFIX, and that the forwarder works.\n"
    )


def test_documents_without_the_templates_are_an_error(search_server: SearchServer) -> None:
    """Without a template the family's name is a text that cannot be aggregated."""
    where = f"{search_server.url}/bare-reports-1"
    document = {"task": {"family": "nightly"}, "event": {"start": "2026-03-01T10:00:00Z"}}
    requests.post(
        f"{where}/_doc?refresh=true", json=document, timeout=LIMIT_SECONDS
    ).raise_for_status()
    try:
        done = command("recommend", "--from", f"{search_server.url}/bare")
    finally:
        requests.delete(where, timeout=LIMIT_SECONDS).raise_for_status()
    assert done.returncode == 1
    assert "task-profiler kibana import" in done.stderr
    assert done.stderr.count("\n") == 1


def source_of(server: SearchServer) -> RunSource:
    return open_source(SourceOptions(sources=(server.url,)))


def put(server: SearchServer, index: str, task_id: str, document: dict[str, Any]) -> None:
    call(server, "PUT", f"{index}/_doc/{task_id}?refresh=true", document)


def test_the_cluster_finds_the_same_runs_as_every_other_source(
    forward: Forward, search_server: SearchServer
) -> None:
    indexed(forward, search_server, RUNS)
    check_source(source_of(search_server))
    with_event(search_server, "abc1")
    with_event(search_server, "bcd1", record_only=True)
    corrected, restored = (
        next(source_of(search_server).runs(RunFilter(run=one))) for one in ("abc1", "bcd1")
    )
    assert corrected.report.record.status == "stopped"
    assert corrected.report.record.exit_code == 0
    assert corrected.outcome.reason == "Stopped by ann"
    assert corrected.line == encode(RUNS[0])
    assert restored.report.type == "task.report"
    assert restored.report.schema_version == "1.4"
    assert restored.report.time == restored.report.record.finished_at or restored.report.time
    found = source_of(search_server).runs(RunFilter(statuses=("stopped",)))
    assert [one.report.record.task_id for one in found] == ["abc1", "bcd1", "bcd2"]


def with_event(server: SearchServer, task_id: str, *, record_only: bool = False) -> None:
    """What the task's event changes in a document; other shippers store the record alone."""
    (hit,) = search(server, query={"term": {"task.id": task_id}})["hits"]["hits"]
    source = hit["_source"]
    source["task"] |= {
        "status": "stopped",
        "stop_category": "user",
        "stopped_reason": "Stopped by ann",
    }
    if record_only:
        source["record"] = json.dumps(json.loads(source["record"])["record"])
    put(server, hit["_index"], hit["_id"].replace("/", "%2F"), source)


def test_runs_without_a_record_get_a_partial_line(
    forward: Forward, search_server: SearchServer
) -> None:
    indexed(forward, search_server, RUNS)
    task = {
        "id": "lost",
        "family": "nightly-etl",
        "status": "failure",
        "stop_category": "image",
        "stopped_reason": "CannotPullContainerError",
    }
    never = {"@timestamp": "2099-01-01T00:00:00.000Z", "task": task, "container": {"name": "batch"}}
    started = {
        **never,
        "task": {**task, "id": "gone"},
        "event": {"start": "2020-01-01T00:00:00.000Z"},
    }
    put(search_server, "task-reports-2099.01", "lost", never)
    put(search_server, "task-reports-2020.01", "gone", started)
    search(search_server)  # refreshes
    source = source_of(search_server)
    runs = list(source.runs(RunFilter()))
    assert [run.report.record.task_id for run in runs] == ["lost", *IDS, "gone"]
    assert runs[0].line is None
    assert runs[0].report.record.metrics.duration_ms is None
    assert runs[0].event != NO_TASK_EVENT
    put(search_server, "task-reports-2020.01", "gone", {**started, "record": "no record"})
    assert len(list(source.runs(RunFilter(run="gone")))) == 1
    assert source.notes == (
        "the indices task-reports-*: 1 record could not be read, so numbers are missing.",
    )


def test_an_index_without_a_node_is_said(forward: Forward, search_server: SearchServer) -> None:
    indexed(forward, search_server, RUNS)
    index_without_a_node(search_server)
    source = source_of(search_server)
    assert len(list(source.runs(RunFilter(reads_checkpoints=True)))) > 1
    assert source.notes[-1].startswith("the indices task-reports-*: 1 shard of the search cluster")
    assert source.completeness.places == (source.place,)


def run_of(month: str) -> dict[str, Any]:
    started = f"{month.replace('.', '-')}-05T10:00:00.000Z"
    task = {"id": month, "family": "nightly", "status": "success", "complete": True}
    return {"@timestamp": started, "task": task, "event": {"start": started}}


def moment_ns(text: str) -> int:
    return present(parse_ns(text))


@pytest.mark.diagonal
@pytest.mark.parametrize(
    ("closed", "since", "missing"),
    [
        (("2026.02",), None, "task-reports-2026.02 is closed, so its runs are missing: open it"),
        (("2026.02",), "2026-02-20T00:00:00Z", "task-reports-2026.02 is closed"),
        (("2026.02",), "2026-03-01T01:00:00Z", "task-reports-2026.02 is closed"),
        (("2026.02",), "2026-03-10T00:00:00Z", None),
        (
            ("2026.01", "2026.02"),
            "2026-01-10T00:00:00Z",
            "task-reports-2026.01, task-reports-2026.02 are closed",
        ),
        (("2026.01",), None, None),  # older ones than all that are open were put away
        (("2026.01", "2026.02"), None, None),
        ((), None, None),
    ],
)
def test_a_closed_index_that_can_have_the_runs_is_said(
    forward: Forward,
    search_server: SearchServer,
    closed: Sequence[str],
    since: str | None,
    missing: str | None,
) -> None:
    assert forward is not None  # it makes the templates
    months = ("2026.01", "2026.02", "2026.03")
    for month in months:
        put(search_server, f"task-reports-{month}", month, run_of(month))
    for month in closed:
        call(search_server, "POST", f"task-reports-{month}/_close")
    source = source_of(search_server)
    selection = RunFilter(since_ns=None if since is None else moment_ns(since))
    found_runs = {run.report.record.task_id for run in source.runs(selection)}
    assert found_runs <= set(months) - set(closed)
    if missing is None:
        assert source.completeness.is_whole
    else:
        (sentence,) = source.completeness.sentences
        assert sentence.startswith(missing)
    put_away = closed if missing is None and since is None else ()
    assert source.unsearched == [f"task-reports-{month}, which is closed" for month in put_away]


def test_nobody_acts_on_runs_of_which_an_index_is_closed(
    forward: Forward, search_server: SearchServer
) -> None:
    assert forward is not None
    now = datetime.now(UTC)
    last_month = f"{now.replace(day=1) - timedelta(days=1):%Y.%m}"
    for month in {f"{now - timedelta(days=days):%Y.%m}" for days in range(36)}:
        put(search_server, f"task-reports-{month}", month, run_of(month))
    definition = b'{"family": "nightly", "containerDefinitions": [{"name": "batch"}]}'
    words = ("taskdef", "resize", "--from", search_server.url, "--apply", "-")
    for verb, is_said in (("_close", True), ("_open", False)):
        call(search_server, "POST", f"task-reports-{last_month}/{verb}?wait_for_active_shards=1")
        done = command(*words, given=definition)
        assert ("is closed, so its runs are missing" in done.stderr) is is_said
        assert ("so nothing was changed" in done.stderr) is is_said, done.stderr
        assert done.returncode == (1 if is_said else 0), done.stderr
        # Without a time, too: the last runs of a family may be there.
        check = command("recommend", "--check", "--min-saving", "99", "--from", search_server.url)
        assert (f"task-reports-{last_month} is closed" in check.stderr) is is_said
        assert check.returncode == (1 if is_said else 0), check.stderr
        page = command("report", "--output=-", "--from", search_server.url).stdout
        note = f'<p class="panel" role="note">task-reports-{last_month} is closed, so its runs'
        assert (note in page) is is_said
        shown = command("show", last_month, "--from", search_server.url)
        assert ("was found in the part of the indices" in shown.stderr) is is_said, shown.stderr
    call(search_server, "DELETE", f"task-reports-{last_month}")
    done = command(*words, given=definition)
    assert f"there is none of {last_month}, so runs may be missing" in done.stderr
    assert done.returncode == 1


def test_runs_of_several_search_pages_are_listed(
    forward: Forward, search_server: SearchServer
) -> None:
    """Also with equal starts."""
    texts = [
        encode(RUNS[0]).decode().replace('"abc1"', f'"many-{number:03}"') for number in range(450)
    ]
    forward(event(*texts), Context())
    search(search_server)
    ids = [one.report.record.task_id for one in source_of(search_server).runs(RunFilter())]
    assert ids == [f"many-{number:03}" for number in range(450)]


def test_a_run_with_checkpoints_alone_is_found_by_its_id(
    forward: Forward, search_server: SearchServer
) -> None:
    text = (
        encode(RUNS[0])
        .decode()
        .replace("task.report", "task.checkpoint")
        .replace('"success"', '"running"')
    )
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
        document = schedule_notice_document(
            line, encode_notice_line(line).decode(), ForwarderSettings()
        )
        put(search_server, document.index, str(number), dict(document.fields))
    source = source_of(search_server)
    assert source.schedule_notices(
        RunFilter(families=("nightly-*",), accounts=("111122223333",))
    ) == (later, missed)
    until_ns = parse_ns(later.notice.due_at)
    assert set(source.schedule_notices(RunFilter(until_ns=until_ns, clusters=("jobs",)))) == {
        missed,
        other,
    }
    assert source.schedule_notices(RunFilter(regions=("mars-1",))) == ()
