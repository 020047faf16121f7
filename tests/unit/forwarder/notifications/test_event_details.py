"""The details of the events and the log line of an ended run: bounded size, valid against the
schemas.
"""

import html
import json
import re
from datetime import UTC, datetime
from typing import Any

import jsonschema
import msgspec
import pytest
from botocore.exceptions import ClientError, EndpointConnectionError, ReadTimeoutError
from hypothesis import given, settings
from msgspec.structs import fields, replace

from profiler.forwarder.ended_run import EndedRun, FamilyComparison, MemoryRetry, UnusualMeasure
from profiler.forwarder.invocation import NoticeError
from profiler.forwarder.job_notice import JobNotice
from profiler.forwarder.notifications.channels import event_bus_channel
from profiler.forwarder.notifications.embedded_texts import markdown_escaped
from profiler.forwarder.notifications.event_details import (
    DETAILS,
    EndedLine,
    EndedRunDetail,
    bus_event,
    ended_line,
    ended_run_detail,
    job_notice_detail,
    run_title,
)
from profiler.forwarder.notifications.next_steps import steps_while_running
from profiler.forwarder.notifications.notification import NightSummary, Notification, SummaryLine
from profiler.record.activity_model import NO_BREAKDOWN, TimeBreakdown, WaitTarget
from profiler.record.batch_job_detail import parse_job
from profiler.record.model_base import json_schema_of_type
from profiler.record.notice_model import NoticeLine, ScheduleNoticeLine
from profiler.record.record_model import Metrics, Recommendation, SlowdownBounds
from tests.batch_jobs import end_without_attempt
from tests.bus_events import RECORD, RUN
from tests.cases import each_case
from tests.documentation import ROOT
from tests.ended_runs import (
    NOTICE,
    NOTICES,
    OOM,
    RUN_NOTICES,
    SCHEDULE_NOTICES,
    TASK,
    changed,
    ended,
    recorded,
    report_line,
    text_of,
)
from tests.fake_batch import FakeBatch
from tests.shown_runs import gpu, missed_notice, stuck_notice
from tests.values import present

KIBANA = "https://kibana.example.com"
MAX_DETAIL_BYTES = 32 * 1024  # as the docs say
SCHEMAS = {name: json_schema_of_type(*described) for name, described in DETAILS.items()}
SCHEMA, RUN_SCHEMA, SCHEDULE_SCHEMA, NIGHT_SCHEMA, JOB_SCHEMA = map(
    jsonschema.Draft202012Validator, SCHEMAS.values()
)


class Bus:
    """Keeps the entries of EventBridge's client, and answers; or raises botocore's error."""

    def __init__(self, answer: dict[str, Any] | Exception) -> None:
        self.entries: list[dict[str, Any]] = []
        self._answer = answer

    def put_events(self, *, Entries: list[dict[str, Any]]) -> dict[str, Any]:
        if isinstance(self._answer, Exception):
            raise self._answer
        self.entries += Entries
        return self._answer


def refusal(code: str, status: int = 400) -> ClientError:
    answer: Any = {"Error": {"Code": code}, "ResponseMetadata": {"HTTPStatusCode": status}}
    return ClientError(answer, "PutEvents")


@pytest.mark.parametrize(
    ("answer", "code"),
    [
        (
            {"FailedEntryCount": 1, "Entries": [{"ErrorCode": "ResourceNotFound"}]},
            "ResourceNotFound",
        ),
        (refusal("AccessDenied"), "AccessDenied"),
        (EndpointConnectionError(endpoint_url="https://events"), "EndpointConnectionError"),
    ],
)
def test_a_bus_that_rejects_the_event_is_named(
    answer: dict[str, Any] | Exception, code: str
) -> None:
    with pytest.raises(
        NoticeError,
        match=rf"^The event bus runs did not accept the event \({code}\).*EVENT_BUS_NAME",
    ):
        event_bus_channel("runs", lambda: Bus(answer), None).post(RUN, "failure")


@pytest.mark.parametrize(
    ("answer", "sentence"),
    [
        (refusal("ThrottlingException"), "too many calls: send it again in a minute"),
        (
            {"FailedEntryCount": 1, "Entries": [{"ErrorCode": "ThrottlingException"}]},
            "too many calls: send it again in a minute",
        ),
        (
            {"FailedEntryCount": 1, "Entries": [{"ErrorCode": "InternalFailure"}]},
            "a fault of EventBridge's own: send it again in a minute",
        ),
        (ReadTimeoutError(endpoint_url="https://events"), "so it may have the event: sent again"),
        (refusal("InternalException", 500), "so it may have the event: sent again"),
    ],
)
def test_what_passes_is_sent_again_and_a_lost_answer_may_have_the_event(
    answer: dict[str, Any] | Exception, sentence: str
) -> None:
    with pytest.raises(NoticeError, match=sentence):
        event_bus_channel("runs", lambda: Bus(answer), None).post(RUN, "failure")


def event(notification: Notification) -> tuple[dict[str, Any], dict[str, Any]]:
    """The entry on the bus, and its detail."""
    bus = Bus({"FailedEntryCount": 0, "Entries": [{"EventId": "1"}]})
    event_bus_channel("default", lambda: bus, KIBANA).post(notification, "failure")
    (entry,) = bus.entries
    assert len(entry["Detail"].encode()) < MAX_DETAIL_BYTES
    return entry, json.loads(entry["Detail"])


def detail(notice: EndedRun) -> dict[str, Any]:
    entry, parsed = event(notice)
    assert entry["Source"] == "task-profiler"
    assert entry["DetailType"] == "Task Run Ended"
    return parsed


def test_the_detail_of_a_run_with_a_report() -> None:
    run = detail(RUN)
    links, advice = run.pop("links"), run.pop("recommendation")
    assert run.pop("markdown") == run["text"]
    assert run.pop("nextSteps").startswith("Task 0123 in cluster jobs: https://eu-west-1.console")
    assert run.pop("summary").startswith(
        "The task ran 2h 13m: started at 2026-03-01 10:00:03 UTC, ended at 2026-03-01 12:00:00 UTC. "
        "Billed: 1m 00s, $0.012. Memory: peak ≥993 MB. Recommended size: 0.25 vCPU, 2 GB. Xxx"
    )
    assert run == {
        "text": (
            "etl_daily:7 succeeded: A process in the container was killed because memory ran out, "
            "but the container exited successfully. why."
        ),
        "taskId": "0123",
        "taskArn": "arn:aws:ecs:eu-west-1:111122223333:task/jobs/0123",
        "cluster": "jobs",
        "family": "etl_daily",
        "revision": "7",
        "container": "batch",
        "status": "success",
        "outcome": "oom",
        "outcomeSentence": (
            "A process in the container was killed because memory ran out, but the container "
            "exited successfully"
        ),
        "stopCategory": "oom",
        "stoppedReason": "why",
        "exitCode": 0,
        "startedAt": "2026-03-01T10:00:03.000Z",
        "finishedAt": "2026-03-01T12:00:00.000Z",
        "metrics": {
            "durationMs": 7_980_000,
            "billedDurationMs": 60_000,
            "vcpuSize": 0.5,
            "maxMemoryUsedMB": 993.3,
        },
        "cost": {"usd": 0.0123, "priceBasis": "fargate"},
    }
    assert set(links) == {"logStream", "ecsTask", "kibana"}
    assert advice["vcpu"] == 0.25
    assert advice["memoryMB"] == 2048
    assert [len(reason) for reason in advice["reasons"]] == [400] * 5


def test_the_time_breakdown_has_its_three_largest_targets_and_a_sentence() -> None:
    targets = tuple(
        WaitTarget(kind="network", target=f"10.0.0.{n}:{'9' * 500}", percent=40.0 - n)
        for n in range(8)
    )
    breakdown = TimeBreakdown(
        on_cpu_percent=10.0, network_percent=90.0, other_percent=0.0, waiting_for=targets
    )
    record = replace(RECORD, time_breakdown=breakdown)
    run = detail(ended(changed(RUN, report_line=report_line(record)), cause="failure", exit_code=1))
    assert run["text"].startswith(
        "etl_daily:7 failed with exit code 1: why. 90 % of the time it waited for the net"
    )
    found = run["timeBreakdown"]
    assert found["onCpuPercent"] == 10
    assert found["networkPercent"] == 90
    assert found["otherPercent"] == 0
    assert "sleepPercent" not in found
    assert [(each["percent"], len(each["target"])) for each in found["waitingFor"]] == [
        (40, 400),
        (39, 400),
        (38, 400),
    ]


def test_the_line_is_the_detail_with_its_type() -> None:
    line = ended_line(RUN, kibana_url=KIBANA, indexed=True, notified=None)
    assert "\n" not in line
    added = {"indexed": True, "notified": None}
    whole = {"type": "task.ended", **detail(RUN), **added}
    for of_templates in ("markdown", "summary", "nextSteps"):
        del whole[of_templates]
    assert json.loads(line) == whole


def test_the_line_of_a_services_task_says_so_for_the_morning_message() -> None:
    of_service = replace(RUN, task=replace(RUN.task, group="service:web"))
    line = ended_line(of_service, kibana_url=None, indexed=True, notified=None)
    assert json.loads(line)["service"] is True


KILLED = "Out of memory: a process of the container was killed at its memory limit"


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        (
            {},
            (
                f"failed with exit code 137 (SIGKILL): {KILLED}. OutOfMemoryError: Container "
                "killed due to memory usage."
            ),
        ),
        ({"exit_code": None, "reason": None}, f"failed: {KILLED}."),
        (
            {"cause": "user", "out_of_memory": False, "exit_code": None, "reason": "by user."},
            "was stopped: A person or a program stopped the task. by user.",
        ),
        (
            {"cause": "unknown", "out_of_memory": False, "exit_code": None, "reason": ""},
            "ended with an unknown result.",
        ),
        (
            {"cause": "failure", "exit_code": 1, "reason": 'exec: "C:\\etl": \n x'},
            "failed with exit code 1: exec: 'C:/etl':   x.",
        ),
    ],
)
def test_the_text_is_a_sentence(changes: dict[str, Any], text: str) -> None:
    run = replace(OOM, report_line=report_line(RECORD))
    assert detail(ended(run, **changes))["text"] == f"etl_daily:7 {text}"


@each_case(
    ("text", "shown"),
    [
        (
            "[sign in again](https://evil.example/login)",
            r"\uff3bsign in again\uff3d(https:\u2215\u2215evil.example/login)",
        ),
        (
            "![x](http://e/p.png) **bold** `code`",
            r"!\uff3bx\uff3d(http:\u2215\u2215e/p.png) \u2217\u2217bold\u2217\u2217 'code'",
        ),
        (
            "<https://evil.example> <at>Ann</at>",
            r"\u2039https:\u2215\u2215evil.example\u203a \u2039at\u203aAnn\u2039/at\u203a",
        ),
        (
            "# heading, see www.evil.example",
            r"\uff03 heading, see www\uff0eevil.example",
        ),
        (
            "_stress_ but nightly_etl_2 ~~gone~~",
            r"\uff3fstress\uff3f but nightly_etl_2 \u223c\u223cgone\u223c\u223c",
        ),
        (
            "nightly:5 failed with exit code 137 (SIGKILL).",
            r"nightly:5 failed with exit code 137 (SIGKILL).",
        ),
        # What stresses nothing can be copied: an expression, the name of a family.
        ("cron(0 3 * * ? *) of nightly__etl", "cron(0 3 * * ? *) of nightly__etl"),
        ("* a list, *a *b* c", r"\u2217 a list, \u2217a \u2217b\u2217 c"),
        ("_nightly of _jobs, but a_b", "_nightly of _jobs, but a_b"),
        ("nightly_ of jobs_", "nightly_ of jobs_"),
        ("_nightly of jobs_", r"\uff3fnightly of jobs\uff3f"),
        ("__etl__ a_", r"\uff3f\uff3fetl\uff3f\uff3f a\uff3f"),
    ],
)
def test_markdown_shows_the_text_and_has_no_link(text: str, shown: str) -> None:
    """In characters that look alike."""
    safe = markdown_escaped(text)
    assert ascii(safe)[1:-1] == shown
    assert json.loads(f'"{safe}"') == safe


LOGIN = "[sign in again](https://evil.example/login)"


def test_a_link_that_a_batch_writes_is_text_for_teams_and_as_it_is_for_the_mail() -> None:
    line = stuck_notice()
    forged = replace(line, notice=replace(line.notice, message=LOGIN))
    _, detail = event(forged)
    assert detail["text"].endswith(LOGIN)
    assert detail["markdown"].endswith(markdown_escaped(LOGIN))
    run = ended(OOM, reason=LOGIN)
    _, detail = event(run)
    assert "](" not in detail["markdown"]
    assert LOGIN in detail["text"]
    record = replace(line.record, task_id=LOGIN, cluster=LOGIN, family=LOGIN)
    _, detail = event(replace(line, record=record))
    assert "](" not in detail["markdown"] + detail["nextSteps"]


NOT_STARTED = changed(
    ended(OOM, exit_code=None, cause="resources", reason="ResourceInitializationError: no"),
    report_line=None,
    report_log=None,
    log=None,
    task=replace(
        TASK,
        started_at=None,
        created_at=datetime(2026, 3, 1, 3, 8, tzinfo=UTC),
        stopped_at=datetime(2026, 3, 1, 3, 10, 30, tzinfo=UTC),
        started_by="chronos-schedule/etl",
    ),
)


def test_a_run_that_ecs_saw_after_its_end_does_not_start_later_than_it_ended() -> None:
    """A batch that fails at once is over when the control plane sees it running."""
    ended_at = datetime(2026, 3, 1, 10, 0, 1, tzinfo=UTC)
    for second, said in (
        (0, "started at 2026-03-01 10:00:00 UTC, ended at 2026-03-01 10:00:01 UTC."),
        (3, "ended at 2026-03-01 10:00:01 UTC."),
    ):
        task = replace(
            TASK,
            started_at=datetime(2026, 3, 1, 10, 0, second, tzinfo=UTC),
            execution_stopped_at=ended_at,
        )
        summary = detail(changed(OOM, task=task, report_line=None))["summary"]
        assert f": {said}" in summary
        assert summary.count("started at") == (second == 0)


def test_a_run_that_did_not_start_says_when_and_what_to_do() -> None:
    run = detail(NOT_STARTED)
    assert run["summary"] == (
        "The task did not run: created at 2026-03-01 03:08:00 UTC, "
        "stopped at 2026-03-01 03:10:30 UTC."
    )
    assert run["nextSteps"].endswith(
        " · To look: task-profiler doctor etl_daily --region eu-west-1 · "
        "To see what is due next: task-profiler schedules --cluster jobs --region eu-west-1"
    )
    assert "Log: " not in run["nextSteps"]
    assert "logStream" not in run["links"]


def test_the_links_are_whole_beside_a_cluster_of_any_length() -> None:
    task = replace(NOT_STARTED.task, cluster="a" * 10_000)
    run = detail(replace(NOT_STARTED, task=task))
    check_detail(run, SCHEMA)


def test_a_notice_has_the_commands_that_look_and_stop() -> None:
    _, stuck = event(stuck_notice())
    assert "To stop it: aws ecs stop-task --cluster jobs --task " in stuck["nextSteps"]
    assert "To look: task-profiler watch " in stuck["nextSteps"]
    assert stuck["summary"].startswith("Running for ")
    line = missed_notice()
    due = replace(line, notice=replace(line.notice, next_due_at="2026-03-02T03:00:00.000Z"))
    _, missed = event(due)
    assert missed["summary"].endswith(" It is due next on 2026-03-02 at 03:00 UTC.")
    assert "To see what is due next: task-profiler schedules --cluster " in missed["nextSteps"]
    assert "To look: task-profiler doctor nightly-etl" in missed["nextSteps"]


def test_a_notice_of_a_job_names_its_queue_and_no_task() -> None:
    line = missed_notice()
    late = replace(line.notice, kind="late", task_id="4109")
    _, detail = event(replace(line, cluster=None, queue="nights", family="etl", notice=late))
    assert (detail["queue"], detail["family"], "cluster" in detail) == ("nights", "etl", False)
    assert detail["nextSteps"].startswith("Job definition etl in queue nights · To ")
    assert "To look: task-profiler watch --queue nights" in detail["nextSteps"]
    assert "links" not in detail, "a job is not in the consoles of tasks"


def embedded(value: Any, path: str = "") -> dict[str, str]:
    """The texts of a detail by their paths."""
    if isinstance(value, dict | list):
        items = value.items() if isinstance(value, dict) else enumerate(value)
        return {
            name: text
            for key, item in items
            for name, text in embedded(item, f"{path}.{key}").items()
        }
    return {path: value} if isinstance(value, str) else {}


HOSTILE_TARGET = WaitTarget(kind='a"', target='"/\\\x07', percent=1.0)
SLOWDOWNS = dict.fromkeys(("9" * 40_000, *map(str, range(2000))), SlowdownBounds(min=1.0, max=2.0))
HOSTILE = replace(
    RECORD,
    metrics=replace(RECORD.metrics, slowdown_at_vcpu=SLOWDOWNS),
    finished_at='"\\',
    recommendation=replace(RECORD.recommendation, reasons=('say "more"\\\x07',)),
    time_breakdown=TimeBreakdown(network_percent=90.0, waiting_for=(HOSTILE_TARGET,)),
)


@settings(deadline=None)
@given(NOTICES, NOTICES)
def test_any_ended_task_becomes_a_bounded_detail_that_can_be_embedded(
    notice: EndedRun, other: EndedRun
) -> None:
    """EventBridge inserts a value as it is: a quotation mark would end the string of the
    template.
    """
    breakdown = notice.record.time_breakdown
    record = replace(
        HOSTILE,
        finished_at=other.outcome.reason,
        time_breakdown=HOSTILE.time_breakdown if breakdown is NO_BREAKDOWN else breakdown,
    )
    reported = changed(notice, report_line=report_line(record))
    hostile = ended(reported, reason=f'"{notice.outcome.reason}\\')
    run = detail(hostile)
    assert run["status"] == hostile.outcome.status
    assert run["outcome"] == hostile.outcome.cause
    check_detail(run, SCHEMA)


# What Markdown would draw: a link, an image, an address, emphasis, code, a heading.
MARKDOWN = re.compile(
    r"[\[\]<>`~]|(?<!\s)\*|\*(?![\s)])|^\s*#|://|\bwww\.|(?<!\w)_+(?=[^\s_]).*[^\s_]_+(?!\w)",
    re.IGNORECASE,
)


def check_detail(detail: dict[str, Any], schema: Any) -> None:
    schema.validate(detail)
    assert not MARKDOWN.search(detail["markdown"])
    if "nextSteps" in detail:
        for name, address in detail.get("links", {}).items():
            assert name == "kibana" or address in detail["nextSteps"]
        # A text of the run, which has no space of its own, can be at its beginning alone.
        assert not re.search(r"[\[\]<>*`]", detail["nextSteps"])
        assert detail["summary"]
    for path, text in embedded(detail).items():
        assert json.loads(f'"{text}"') == text, path


def test_the_event_of_a_stuck_run() -> None:
    line = stuck_notice()
    record = line.record
    entry, detail = event(line)
    assert entry["Source"] == "task-profiler"
    assert entry["DetailType"] == "Task Run Notice"
    assert entry["Resources"] == [record.task_arn] == [detail["taskArn"]]
    assert detail["text"] == f"nightly-etl:26 has been stuck for 30 minutes. {line.notice.message}"
    assert detail["notice"] == msgspec.to_builtins(line.notice)
    assert detail["taskId"] == record.task_id
    assert detail["startedAt"] == record.started_at
    named = [detail[name] for name in ("cluster", "family", "revision", "container")]
    assert named == ["jobs", "nightly-etl", "26", "batch"]
    assert detail["metrics"]["vcpuSize"] == record.metrics.vcpu_size
    assert set(detail["links"]) == {"logStream", "ecsTask", "kibana"}


def test_a_run_that_is_stuck_for_a_minute_has_the_singular() -> None:
    line = stuck_notice()
    evidence = replace(present(line.notice.evidence), minutes=1)
    short = replace(line, notice=replace(line.notice, evidence=evidence))
    assert run_title(short) == "nightly-etl:26 has been stuck for 1 minute"


@pytest.mark.parametrize("name", SCHEMAS)
def test_the_schema_in_the_docs_is_that_of_the_type(name: str) -> None:
    written = json.loads((ROOT / "docs" / f"{name}.schema.json").read_text())
    assert written == json.loads(json.dumps(SCHEMAS[name]))


def test_the_longest_name_of_characters_of_four_bytes_leaves_the_detail_within_its_limit() -> None:
    line = missed_notice()
    long = replace(line, schedule=replace(line.schedule, name="\N{ABACUS}" * 6000))
    check_detail(event(long)[1], SCHEDULE_SCHEMA)


@settings(deadline=None)
@given(RUN_NOTICES | SCHEDULE_NOTICES)
def test_any_notice_becomes_a_bounded_detail_that_can_be_embedded(
    line: NoticeLine | ScheduleNoticeLine,
) -> None:
    check_detail(event(line)[1], RUN_SCHEMA if isinstance(line, NoticeLine) else SCHEDULE_SCHEMA)


@pytest.mark.parametrize(
    "reasons",
    [
        ("1 of 4 GPUs was never used: request 3, or spread the work.",),
        ("30 runs used up to 8 GB of memory.", "1 of 4 GPUs was never used: request 3."),
    ],
)
def test_gpus_that_were_never_used_are_said_once(reasons: tuple[str, ...]) -> None:
    record = replace(gpu().record, recommendation=Recommendation(reasons=reasons))
    run = ended_run_detail(changed(NOTICE, report_line=report_line(record)), kibana_url=None)
    assert run.summary.count("was never used") == 1
    assert reasons[0] in run.summary


def test_a_night_summary_has_the_form_of_its_schema() -> None:
    lines = (SummaryLine(text="nightly-etl: Out of memory", command="task-profiler doctor"),)
    summary = NightSummary(
        night="2026-11-24",
        since="2026-11-24T08:00:00.000Z",
        title="Last night",
        sentence="Last night: 1 run.",
        lines=lines,
    )
    _, detail = bus_event(summary, kibana_url=None)
    check_detail(msgspec.json.decode(msgspec.json.encode(detail)), NIGHT_SCHEMA)


@pytest.mark.parametrize("attempts", [0, 2])
def test_a_job_notice_has_the_form_of_its_schema(attempts: int) -> None:
    with FakeBatch() as batch:
        batch.add_queue("nightly", "spot")
        batch.define("etl", retryStrategy={"attempts": 2})
        job = batch.submit('orders "\\ <!channel>', "nightly", "etl")
        for _ in range(attempts):
            batch.begin(job)
            batch.end(job, 1)
        if not attempts:
            end_without_attempt(job, batch.now_ms, 'no "quotes" \x1b')
        notice = JobNotice(job=present(parse_job(job)))
    kind, detail = bus_event(notice, kibana_url=None)
    assert kind == "Batch Job Notice"
    check_detail(msgspec.json.decode(msgspec.json.encode(detail)), JOB_SCHEMA)
    begins = "The job ran: started at 20" if attempts else "The job did not run: created at 20"
    told = job_notice_detail(notice)
    assert told.summary.startswith(begins)
    assert ", ended at 20" in told.summary
    assert notice.job.id in told.next_steps
    assert ("Log: https://" in told.next_steps) == bool(attempts)
    blocked = job_notice_detail(replace(notice, is_blocked=True))
    assert attempts or blocked.summary.startswith("The job has not started: created at 20")


def test_a_mail_advises_what_slack_advises() -> None:
    """The plan of the size is a command, and numbers from before the end are no advice."""
    sent = ended_run_detail(OOM, kibana_url=None)
    assert "Recommended size: 2 GB" in sent.summary
    assert sent.next_steps.endswith(
        "To see the plan of this size: "
        "task-profiler taskdef resize etl_daily --from logs:/ecs/jobs --region eu-west-1"
    )
    less = Recommendation(vcpu=0.25, memory_mb=512, saving_percent=48.7, reasons=("Too large.",))
    for killed in (OOM, ended(NOTICE, cause="failure", exit_code=1)):
        early = recorded(killed, recommendation=less)
        sent = ended_run_detail(early, kibana_url=None)
        assert "Recommended" not in sent.summary
        assert "Too large" not in sent.summary
        assert "resize" not in sent.next_steps
        assert "Recommended" not in text_of(early)


def test_a_command_ends_where_a_reader_sees_it() -> None:
    """On one line, no sentence follows a command, and a sign separates two."""
    back = "This puts it back: task-profiler taskdef resize etl_daily --revert"
    again = "Started again with 4 GB (was 2 GB)."
    retried = replace(OOM, reduced_memory=back, retry=MemoryRetry(sentence=again))
    run = ended_run_detail(retried, kibana_url=None)
    assert run.text.endswith(f" {again} {back}")
    with FakeBatch() as batch:
        batch.add_queue("nightly", "spot")
        batch.define("etl")
        job = batch.submit("orders", "nightly", "etl")
        batch.begin(job)
        batch.end(job, 137)
    notice = JobNotice(
        job=present(parse_job(job)), reduced_memory=back, retry=MemoryRetry(sentence=again)
    )
    assert job_notice_detail(notice).text.endswith(f" {again} {back}")
    _, stuck = event(stuck_notice())
    parts = stuck["nextSteps"].split(" · ")
    assert [part.partition(": ")[0].split()[0] for part in parts] == ["Task", "Log", "To", "To"]


def test_a_success_that_is_not_like_its_family_says_where_to_look() -> None:
    unusual = (UnusualMeasure(metric="durationMs", value=3000, usual=2_470_000),)
    unlike = replace(NOTICE, comparison=FamilyComparison(text="8.0× shorter.", unusual=unusual))
    killed = ended(NOTICE, cause="oom", out_of_memory=True, exit_code=0)
    look = "task-profiler show 0123 --from logs:/ecs/jobs --region eu-west-1"
    for notable in (unlike, killed):
        assert notable.outcome.status == "success"
        assert f"To look: {look}" in ended_run_detail(notable, kibana_url=None).next_steps
        assert look in text_of(notable)
    assert "To look" not in ended_run_detail(NOTICE, kibana_url=None).next_steps
    assert look not in text_of(NOTICE)


@each_case("length", [1, 100, 500, 900, 950, 1900, 1980, 3000, 10_000])
@each_case("letter", ["a", "é", "界"])
def test_a_command_is_whole_in_the_next_steps_or_counted(length: int, letter: str) -> None:
    line = stuck_notice()
    name = letter * length
    record = replace(line.record, task_id=name, cluster=name)
    steps = [step.command for step in steps_while_running(replace(line, record=record))]
    _, sent = event(replace(line, record=record))
    told = sent["nextSteps"].split(" · ")
    shown = [part.partition(": ")[2] for part in told if part.startswith("To ")]
    assert set(shown) <= set(steps)
    left_out = len(steps) - len(shown)
    ends = {1: "1 command is left out here", 2: "2 commands are left out here"}
    assert told[-1] == ends.get(left_out, f"To stop it: {steps[-1]}")
    assert (left_out == 0) is (length <= 100 or (letter == "a" and length <= 500))


@pytest.mark.parametrize(
    ("task", "cluster"),
    [("_night_", "jobs"), ("_a", "b_"), ("www.night", "jobs"), ("a*b", "jobs"), ("b_", "_a")],
)
def test_no_command_in_the_next_steps_is_drawn_with_other_characters(
    task: str, cluster: str
) -> None:
    """A receiver may draw them as Markdown, which a name of a batch can use."""
    line = stuck_notice()
    record = replace(line.record, task_id=task, cluster=cluster)
    noticed = replace(line, record=record)
    _, sent = event(noticed)
    commands = [part for part in sent["nextSteps"].split(" · ") if part.startswith("To ")]
    whole = {f"To {step.purpose}: {step.command}" for step in steps_while_running(noticed)}
    assert set(commands) <= whole
    assert markdown_escaped(" · ".join(commands)) == " · ".join(commands)
    assert commands or sent["nextSteps"].endswith(" · 2 commands are left out here")


def test_a_sentence_about_a_reduced_size_ends_with_its_whole_command() -> None:
    family = "f" * 255
    command = f"task-profiler taskdef resize {family} --revert --register --update-schedules"
    back = f"Its memory was reduced from 4 GB to 2 GB. This puts it back: {command}"
    killed = ended(replace(OOM, reduced_memory=back), reason="no memory, " * 200)
    assert detail(killed)["text"].endswith(f"{back}")
    assert command in html.unescape(text_of(killed))
    with FakeBatch() as batch:
        batch.add_queue("nightly", "spot")
        batch.define("etl")
        job = batch.submit("orders", "nightly", "etl")
        end_without_attempt(job, batch.now_ms, "no memory, " * 200)
    notice = JobNotice(job=present(parse_job(job)), reduced_memory=back)
    assert job_notice_detail(notice).text.endswith(back)
    assert len(job_notice_detail(notice).text) == 1024
    assert command in html.unescape(text_of(notice))


@pytest.mark.parametrize("letter", ["a", "é", "界", "\N{GRINNING FACE}"])
def test_a_morning_message_fits_into_an_entry_of_a_bus(letter: str) -> None:
    """256 KB, as older Regions take."""
    command = f"task-profiler taskdef resize {letter * 1900}"
    line = SummaryLine(text=letter * 500, at=datetime(2026, 3, 2, tzinfo=UTC), command=command)
    summary = NightSummary(
        night="2026-03-01", since="", title="", sentence=letter * 2000, lines=(line,) * 19
    )
    _, made = bus_event(summary, kibana_url=None)
    encoded = msgspec.json.encode(made)
    assert len(encoded) < 200_000
    assert (command in str(made)) is (letter == "a")


def test_the_morning_message_reads_the_fields_of_the_ended_runs_detail() -> None:
    """Under the same names: a field that is missing in a line would be a value that is unknown."""
    written = {field.encode_name: (field.type, field.default) for field in fields(EndedRunDetail)}
    read = {field.encode_name: (field.type, field.default) for field in fields(EndedLine)}
    read.pop("service")  # of the line alone
    usage, _ = read.pop("metrics")
    assert read.items() <= written.items()
    (of_report,) = msgspec.json.schema(usage)["$defs"].values()
    names = {field.encode_name for field in fields(Metrics)}
    assert of_report["properties"].keys() <= names
