"""One verdict: each end of a run is one word and one sentence in everything that says how a run
ended.

The outputs are made by what ships, from one event and one report.
"""

import json
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from typing import Any, get_args

import msgspec
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from profiler.cli.history_command import run_table_lines
from profiler.core.ecs_terms import LogTarget
from profiler.core.timestamps import NS_PER_SECOND, parse_ns
from profiler.forwarder.document_updates import Document
from profiler.forwarder.ended_run import EndedRun, FamilyComparison
from profiler.forwarder.function_settings import ForwarderSettings
from profiler.forwarder.night_period import NightPeriod, RememberedNight
from profiler.forwarder.night_runs import NightRuns
from profiler.forwarder.night_searches import NightReader
from profiler.forwarder.notifications import value_formats
from profiler.forwarder.notifications.event_details import ended_line, ended_run_detail
from profiler.forwarder.notifications.slack_messages import slack_message_of
from profiler.forwarder.run_documents import event_documents, report_document
from profiler.forwarder.run_export import exported_run
from profiler.forwarder.search_cluster.document_delivery import deliver_documents
from profiler.forwarder.task_retry import should_retry
from profiler.otlp.run_signals import signals_of
from profiler.record.gpu_facts import cause_sentence
from profiler.record.query_clauses import RAN_OUT_OF_MEMORY
from profiler.record.record_model import Report
from profiler.record.run_outcome import Cause, Outcome
from profiler.record.run_summary import story_of
from profiler.record.stop_causes import TABLE, EventEnd, outcome_of
from profiler.report_page.page_run import page_run
from profiler.report_page.page_series import Run
from profiler.runs.past_runs.family_evidence import final_report
from profiler.runs.past_runs.past_run import PastRun
from profiler.runs.past_runs.search_documents import run_of_document
from profiler.runs.past_runs.verdict_sentence import verdict_of
from profiler.sizing.run_counts import outcome_counted_as
from profiler.sizing.run_facts import run_facts_of
from tests import screens
from tests.awkward_runs import RUNS, recommended
from tests.bus_events import mail_of
from tests.cases import each_case
from tests.cloudformation import template
from tests.counting_search import CountingSearch
from tests.documentation import ROOT
from tests.ended_runs import run_of, shown
from tests.fake_search import FakeSearchCluster
from tests.fakes import FakeInvocationTime
from tests.notices import report_line
from tests.otlp_schema import attributes_of, spans
from tests.printed_lines import runs_of_lines
from tests.run_ends import ENDS, EXITED, NO_START, OOM, RunEnd
from tests.stopped_tasks import WITH_MONITOR, judged_task
from tests.values import present

SETTINGS = ForwarderSettings()
BEFORE_NS = present(parse_ns("2026-02-28T12:00:00Z"))
NIGHT = NightPeriod(
    last=RememberedNight(end_ns=BEFORE_NS, whole_ns=BEFORE_NS),
    end_ns=present(parse_ns("2026-03-01T12:00:00Z")),
    zone=UTC,
)
NOW_NS = (parse_ns("2026-03-01T11:00:00Z") or 0) + NS_PER_SECOND
TEAMS = ROOT / "examples" / "teams_target.json"

every_end = each_case("end", ENDS, ids=[end.name for end in ENDS])


def ended(end: RunEnd) -> EndedRun:
    task = end.task
    of_event, batch = judged_task(task, WITH_MONITOR)
    line = None if end.line is None else report_line(end.line)
    return run_of(task, of_event, batch, line, log=LogTarget(group="g", stream="s"))


def of_report(end: RunEnd) -> list[Document]:
    if end.line is None:
        return []
    made = report_document(report_line(end.line).report, end.line, SETTINGS)
    assert isinstance(made, Document)
    return [made]


def of_event(end: RunEnd, *, with_report: bool = False) -> list[Document]:
    known = ended(end) if with_report else ended(replace(end, reported=None))
    return [*event_documents(known, SETTINGS)]


def written(*writes: Sequence[Document]) -> dict[str, Any]:
    cluster = FakeSearchCluster()
    for documents in writes:
        if documents:
            deliver_documents(cluster, FakeInvocationTime(), documents)
    (document,) = cluster.documents.values()
    return document


def document_of(end: RunEnd) -> dict[str, Any]:
    return written(of_report(end), of_event(end, with_report=True))


def past(end: RunEnd) -> PastRun:
    return run_of_document(document_of(end))


def tells(text: str, outcome: Outcome) -> bool:
    """Whether a text says why the run ended: the sentence, or the status if that is all.

    Where the report is known, the error of a GPU has its number and its meaning.
    """
    if outcome.cause == "gpu-error" and "GPU's driver reported Xid 31 during the run: " in text:
        return True
    if outcome.cause == "gpu-oom" and "probably ran out of GPU memory" in text:
        return True
    if outcome.sentence is not None:
        return outcome.sentence in text or (
            outcome.cause == "failure" and f"exit code {outcome.exit_code}" in text
        )
    return {"success": "succeeded", "unknown": "unknown result"}[outcome.status] in text


# The verdict


@every_end
def test_the_verdict(end: RunEnd) -> None:
    outcome = ended(end).outcome
    assert (outcome.status, outcome.cause) == (end.status, end.cause)
    assert end.said in (outcome.sentence or "")


def test_every_cause_has_a_row_and_an_end_and_none_is_without() -> None:
    causes = set(get_args(Cause))
    assert [row.cause for row in TABLE] == list(dict.fromkeys(row.cause for row in TABLE))
    assert {row.cause for row in TABLE} == causes
    assert {end.cause for end in ENDS} == causes - {"running"}
    assert len(ENDS) >= 40


# Documents, in any order


@every_end
def test_the_document_has_the_word_in_whatever_order_report_and_event_arrive(end: RunEnd) -> None:
    first = document_of(end)
    assert first["task"]["outcome"] == end.cause
    assert first["task"]["status"] == end.status
    assert first["event"]["outcome"] == (
        end.status if end.status in ("success", "failure") else "unknown"
    )
    assert first["task"]["stop_category"] == ended(end).outcome.stop_category
    report, event = of_report(end), of_event(end)
    for writes in (
        [report, event],
        [event, report],
        [event, event, report],
        [report, event, event, report],
        [of_event(end, with_report=True)],
        [of_event(end, with_report=True), report, event],
    ):
        assert written(*writes) == first


CODES = (None, 0, 1, 137, 143)
ANY_END = st.builds(
    lambda own, router, code, reason, said, reported: RunEnd(
        name="any",
        event={
            "containers": [
                {"name": "batch", "exitCode": own, "reason": said},
                {"name": "log_router", "exitCode": router},
            ],
            "stopCode": code,
            "stoppedReason": reason,
        },
        reported=reported,
        status="unknown",
        cause="unknown",
    ),
    st.sampled_from(CODES),
    st.sampled_from((None, 0, 139)),
    st.sampled_from((None, EXITED, NO_START, "UserInitiated", "TerminationNotice")),
    st.sampled_from((None, "Task failed to start", "Host EC2 (instance i-1) terminated.")),
    st.sampled_from((None, OOM)),
    st.none()
    | st.fixed_dictionaries(
        {"status": st.sampled_from(("success", "failure", "stopped", "unknown", "newer"))},
        optional={
            "exitCode": st.sampled_from(CODES[1:]),
            "likelyOutOfMemory": st.booleans(),
            "outOfMemoryEvidence": st.sampled_from(("kernel-counter", "exit-137-at-limit")),
        },
    ),
)


@given(ANY_END)
def test_any_report_and_event_are_one_document_in_any_order_and_one_verdict(end: RunEnd) -> None:
    first = document_of(end)
    report, event = of_report(end), of_event(end)
    assert written(report, event) == first
    assert written(event, report) == first
    assert written(event, report, event) == first
    outcome = ended(end).outcome
    read = run_of_document(first).outcome
    assert (read.status, read.cause) == (outcome.status, outcome.cause)
    assert first["task"]["outcome"] == outcome.cause
    assert first["task"]["status"] == outcome.status


@every_end
def test_an_earlier_document_without_the_word_is_read_by_the_same_function(end: RunEnd) -> None:
    """Where its fields say enough: they do not name the container that ended first."""
    document = document_of(end)
    task = dict(document["task"])
    for name in ("outcome", "event_outcome", "first_end"):
        task.pop(name, None)
    earlier = run_of_document({**document, "task": task}).outcome
    is_said = end.cause not in ("sidecar", "dependency", "timeout")
    assert (earlier.status, earlier.cause) == (end.status, end.cause) or not is_said
    assert earlier.ran_out_of_memory == (end.cause == "oom")


# Notices


@every_end
def test_slack_says_it_in_the_title_and_in_a_sentence(end: RunEnd) -> None:
    run = ended(end)
    message = slack_message_of(run, kibana_url=None)
    assert run.outcome.title in message.text
    assert run.outcome.title in message.blocks[0]["text"]["text"]
    if run.outcome.sentence is not None:
        sentence = cause_sentence(run.outcome, run.record)
        assert sentence
        assert sentence in shown(message)


@every_end
def test_no_sentence_is_twice_in_a_message(end: RunEnd) -> None:
    lines = shown(slack_message_of(ended(end), kibana_url=None)).splitlines()
    sentences = [line for line in lines if line.endswith(".")]
    assert len(sentences) == len(set(sentences))


@every_end
def test_bus_mail_and_teams_say_it(end: RunEnd) -> None:
    run = ended(end)
    detail = msgspec.to_builtins(ended_run_detail(run, kibana_url=None))
    assert detail["outcome"] == end.cause
    assert detail["status"] == end.status
    assert detail.get("outcomeSentence") == run.outcome.sentence
    (mail,) = template()["Resources"]["EmailRule"]["Properties"]["Targets"]
    (teams,) = json.loads(TEAMS.read_text())
    for target in (mail, teams):
        told = mail_of(target["InputTransformer"], detail)
        assert tells(told, run.outcome)
        assert "failed to start" not in told.lower(), "ECS's text says what the sentence says"


def test_a_run_is_judged_once() -> None:
    run = PastRun(report=RUNS["killed"]())
    assert run.outcome is run.outcome
    failed = run.with_record(replace(run.record, likely_out_of_memory=False, exit_code=1))
    assert (run.outcome.cause, failed.outcome.cause) == ("oom", "failure")


@each_case("make", RUNS.values(), ids=RUNS)
def test_mail_and_teams_have_the_numbers_of_slack(make: Callable[[], Report]) -> None:
    compared = FamilyComparison(text="Twice as long as the median of 12 successful runs.")
    run = replace(screens.ended(recommended(make)), comparison=compared)
    detail = msgspec.to_builtins(ended_run_detail(run, kibana_url=None))
    (mail,) = template()["Resources"]["EmailRule"]["Properties"]["Targets"]
    (teams,) = json.loads(TEAMS.read_text())
    message = slack_message_of(run, kibana_url=None)
    fields = [field for block in message.blocks for field in block.get("fields", ())]
    named = dict(field["text"].split("\n", 1) for field in fields)
    numbers = [named.get(f"*{name}*", "") for name in ("Duration", "Billed")]
    story = story_of(run.record, run.outcome)
    numbers += value_formats.cpu_and_memory_words(story)
    numbers += [compared.text, story.usage.gpus.unused_text]
    assert all(number in shown(message) for number in numbers)
    if run.outcome.status == "failure":
        numbers.append(named["*Exit code*"])
    for target in (mail, teams):
        told = mail_of(target["InputTransformer"], detail)
        assert [number for number in numbers if number not in told] == []


# The morning


def night_of_cluster(end: RunEnd) -> NightRuns:
    reader = NightReader(
        cluster=CountingSearch(document_of(end)),
        prefix="task",
        account_id=None,
        region=None,
        timeout_seconds=5,
    )
    return reader.read_runs(NIGHT)


def night_of_lines(end: RunEnd) -> NightRuns:
    line = ended_line(ended(end), kibana_url=None, indexed=False, notified=None)
    at = end.task.stopped_at or datetime(2026, 3, 1, tzinfo=UTC)
    return runs_of_lines([(round(at.timestamp() * 1000), line)], NIGHT)


@every_end
def test_the_morning_message_counts_it_with_and_without_a_cluster(end: RunEnd) -> None:
    outcome = ended(end).outcome
    for night in (night_of_cluster(end), night_of_lines(end)):
        counted = {word: dict(families) for word, families in night.counts.items() if families}
        assert counted == {outcome.count_group: {"nightly": 1}}
        if outcome.count_group in ("failure", "out of memory"):
            (failed,) = night.failed
            assert failed.reason == outcome.sentence
            assert failed.outcome == outcome.count_group


# Commands and the page


@every_end
def test_show_and_the_page_say_it(end: RunEnd) -> None:
    run = past(end)
    outcome = ended(end).outcome
    assert (run.outcome.status, run.outcome.cause) == (end.status, end.cause)
    verdict = verdict_of(run, NOW_NS)
    text = f"{verdict.text} {verdict.evidence or ''}"
    if outcome.ran_out_of_memory:
        assert "ran out of memory" in text
    elif outcome.status == "stopped" and outcome.cause == "unknown":
        assert "was stopped" in text
    else:
        assert tells(text, outcome) or (
            outcome.cause == "failure" and f"exit code {outcome.exit_code}" in text
        )
    row = page_run(Run(past=run), "nightly")
    assert row.outcome == outcome.count_group
    assert row.why == outcome.title
    endings = {"gpu-oom": "out of GPU memory", "gpu-error": "GPU error"}
    assert row.ending == endings.get(end.cause)
    assert row.exit == outcome.exit_code


@every_end
def test_history_says_it(end: RunEnd) -> None:
    text = "".join(
        str(getattr(span, "text", span)) for span in run_table_lines([past(end)], None)[1]
    )
    words = text.split()
    shown_word = {"oom": "OOM"}.get(end.cause, end.cause)
    if end.cause not in (end.status, "unknown"):
        assert shown_word in words
    assert end.status in words


@every_end
def test_opentelemetry_says_it(end: RunEnd) -> None:
    run = exported_run(ended(end), NOW_NS)
    root = spans(run)[0]
    attributes = attributes_of(root)
    assert attributes["task_profiler.outcome"] == end.cause
    assert attributes["task_profiler.status"] == end.status
    assert attributes.get("error.type") == (end.cause if end.status == "failure" else None)
    is_error = root["status"]["code"] == 2
    assert is_error == (end.status == "failure")
    assert not is_error or ended(end).outcome.title in root["status"]["message"]
    assert attributes["task_profiler.out_of_memory"] == (end.cause == "oom")
    assert signals_of(run).keys() >= {"traces", "logs"}


# What acts on it


@every_end
def test_only_a_proven_kill_is_started_again(end: RunEnd) -> None:
    assert should_retry(ended(end), ("*",)) == end.is_retried


@every_end
def test_resize_counts_it(end: RunEnd) -> None:
    run = past(end)
    report = present(final_report(run))
    counted = outcome_counted_as(run_facts_of(report, run.outcome))
    expected = {"success": "success", "failure": "failed", "stopped": "stopped"}
    if end.cause == "oom":
        assert counted == "killed"
    else:
        assert counted == expected.get(end.status, "failed")


@every_end
def test_a_search_for_kills_finds_it(end: RunEnd) -> None:
    search = CountingSearch(document_of(end))
    answer = search.request("/task-reports-*/_search", {"size": 9, "query": RAN_OUT_OF_MEMORY}, 5.0)
    assert bool(answer["hits"]["hits"]) == (end.cause == "oom")


# Whose word


def test_an_unconfirmed_report_overrules_none_of_ecs_words() -> None:
    stopped = present(past(next(end for end in ENDS if end.cause == "sidecar")).report.record)
    event = EventEnd(cause="success", exit_code=0, first_end="log_router exited with 139")
    assert outcome_of(stopped, event, is_confirmed=False).cause == "success"
    assert outcome_of(stopped, EventEnd(cause="unknown"), is_confirmed=False).status == "stopped"


def test_a_checkpoint_does_not_say_how_a_run_ended_later() -> None:
    line = report_line(
        json.dumps(
            {
                "time": "2026-03-01T10:12:00Z",
                "type": "task.checkpoint",
                "record": {"taskId": "1", "container": {"name": "batch"}, "status": "running"},
            }
        )
    )
    record = line.report.record
    assert outcome_of(record).cause == "running"
    assert outcome_of(record, EventEnd(cause="failure", exit_code=3)).title == "Exit code 3"
    assert outcome_of(record, EventEnd(cause="unknown")).cause == "unknown"


def test_the_page_of_the_forwarder_has_every_word() -> None:
    page = (ROOT / "docs" / "forwarder.md").read_text()
    assert [cause for cause in get_args(Cause) if f"`{cause}`" not in page] == []


def test_advice_commands_page_export_and_notices_ask_the_outcome_alone() -> None:
    """Whether memory ran out is not judged again by the record's evidence."""
    package = ROOT / "profiler"
    asking = [
        str(path.relative_to(package))
        for folder in ("sizing", "cli", "report_page", "otlp", "forwarder/notifications")
        for path in (package / folder).rglob("*.py")
        if "likely_out_of_memory" in path.read_text()
    ]
    assert asking == []
