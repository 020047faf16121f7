"""Every source of past runs but the cluster, with the same runs (the cluster:
tests/search/test_past_runs.py).
"""

import json
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
from msgspec.structs import replace

from profiler.aws_account.clusters_and_log_groups import matching_log_groups
from profiler.cli.options import SourceOptions
from profiler.cli.wiring.aws_options import open_clients
from profiler.cli.wiring.open_log_groups import page_reader
from profiler.cli.wiring.open_past_runs import open_source
from profiler.core.timestamps import NS_PER_MS, format_ms, parse_ns
from profiler.record.line_trust import AccountTrust, TrustedGroups
from profiler.record.record_model import Container, Report, encode
from profiler.record.run_outcome import Status
from profiler.runs.past_runs.log_group_runs import LogGroupRuns, filter_pattern
from profiler.runs.past_runs.run_source import RunFilter
from tests.command_line import run_here
from tests.run_sources import (
    NOW_NS,
    RUNS,
    check_source,
    checkpoint_at,
    ended,
    put_in_own_streams,
    text,
)
from tests.runs import checkpoint, history_of, lines, report
from tests.shown_runs import waiting_stacks
from tools.moto_server import FakeAws, fake_aws

# The tasks of the first two have words as ids, and several accounts: a group of this name is
# trusted, and its account unknown, where they are read.
GROUP, SECOND_GROUP, OWN_GROUP = "/ecs/jobs", "/ecs/other", "/ecs/own"
OWN_IDS = [f"{number:032x}" for number in range(len(RUNS))]


def put(aws: FakeAws, group: str, stream: str, *events: dict[str, Any]) -> None:
    aws.create_log_stream(group, stream)
    aws.client("logs").put_log_events(logGroupName=group, logStreamName=stream, logEvents=events)


def event(report: Report) -> dict[str, Any]:
    return {
        "timestamp": (parse_ns(report.time) or 0) // NS_PER_MS,
        "message": encode(report).decode(),
    }


@pytest.fixture(scope="module")
def aws() -> Iterator[FakeAws]:
    """Two log groups with the reports, a checkpoint, and lines of the batches."""
    with fake_aws() as aws:
        for group, reports in ((GROUP, RUNS[::2]), (SECOND_GROUP, RUNS[1::2])):
            aws.create_log_group(group)
            events = [event(one) for one in (*reports, checkpoint(reports[0]))]
            events += [
                {"timestamp": events[0]["timestamp"], "message": text}
                for text in ("hello", '{"task.report": 1')
            ]
            put(aws, group, "ecs/batch/1", *sorted(events, key=lambda one: one["timestamp"]))
        aws.create_log_group(OWN_GROUP)
        own = [
            replace(one, record=replace(one.record, account_id=None, task_id=task_id))
            for one, task_id in zip(RUNS, OWN_IDS, strict=True)
        ]
        put_in_own_streams(aws.client("logs"), OWN_GROUP, *map(text, own))
        yield aws


def test_the_local_history(tmp_path: Path) -> None:
    path = tmp_path / "history.sqlite3"
    history_of(path, *RUNS)
    check_source(open_source(SourceOptions(sources=(f"history:{path}",))))


def test_a_file_of_record_lines(tmp_path: Path) -> None:
    path = tmp_path / "lines.jsonl"
    path.write_bytes(b"\nhello\n" + lines([checkpoint(RUNS[0]), *RUNS, *RUNS]))
    source = open_source(SourceOptions(sources=(str(path),)))
    check_source(source)
    assert source.notes == (f"{path}: skipped 1 invalid line: 2",)


LOST, YOUNG, ELSEWHERE, DONE = (digit * 32 for digit in "1234")


def test_a_run_that_left_only_checkpoints_is_lost(aws: FakeAws, tmp_path: Path) -> None:
    """With the last of them, also from a file; it runs while they are recent.

    Other groups have their own reports.
    """
    # The command has the real clock, and ten minutes after its last checkpoint a run is lost.
    now_ns = time.time_ns() // NS_PER_MS * NS_PER_MS
    group = "/ecs/lost"
    lost = [
        checkpoint_at(now_ns, 100, age_seconds=60 * age, task_id=LOST, log_group=group)
        for age in (99, 61, 60)
    ]
    young = [
        checkpoint_at(now_ns, 60, age_seconds=60 * age, task_id=YOUNG, log_group=group)
        for age in (59, 1)
    ]
    elsewhere = [
        checkpoint_at(now_ns, 100, age_seconds=3600, task_id=ELSEWHERE, log_group="/ecs/elsewhere")
    ]
    done = checkpoint_at(now_ns, 30, age_seconds=1500, task_id=DONE, log_group=group)
    aws.create_log_group(group)
    for name, reports in (
        (LOST, lost),
        (YOUNG, young),
        (ELSEWHERE, elsewhere),
        (DONE, [done, ended(done)]),
    ):
        put(aws, group, f"ecs/task-monitor/{name}", *map(event, reports))
    path = tmp_path / "lines"
    path.write_bytes(lines([*lost, *young, done, ended(done)]))
    for source in (("--from", f"logs:{group}"), ("--from", str(path))):
        shown = run_here(aws.environment(), "history", *source, "--since", "1d").stdout
        words = [line.split() for line in shown.splitlines()[1:]]
        assert [(run[0], run[4], run[5]) for run in words] == [
            (DONE[:8], "success", "5m"),
            (YOUNG[:8], "running", "59m"),
            (LOST[:8], "lost", "40m"),
        ]
        unknown = run_here(
            aws.environment(), "history", *source, "--since", "1d", "--status", "unknown"
        ).stdout
        assert [line.split()[0] for line in unknown.splitlines()[1:]] == [LOST[:8]]
        page = tmp_path / "page.html"
        made = run_here(
            aws.environment(), "report", *source, "--since", "1d", "--json", "-o", str(page)
        )
        assert json.loads(made.stdout)["runs"] == 3


Event = dict[str, Any]
DOCUMENTS: dict[str, Callable[[list[Event]], object]] = {
    "filter-log-events": lambda events: {"events": events, "searchedLogStreams": []},
    "get-log-events": lambda events: {
        "events": events,
        "nextForwardToken": "f",
        "nextBackwardToken": "b",
    },
    "get-query-results": lambda events: {
        "results": [
            [{"field": "@message", "value": one["message"]}, {"field": "@ptr", "value": "x"}]
            for one in events
        ],
        "status": "Complete",
    },
    "events[].message": lambda events: [one["message"] for one in events],
    "events[].[message]": lambda events: [[one["message"]] for one in events],
}


@pytest.mark.parametrize("indent", [None, 4])
@pytest.mark.parametrize("command", DOCUMENTS)
def test_the_json_of_the_aws_cli(tmp_path: Path, command: str, indent: int | None) -> None:
    path = tmp_path / "printed.json"
    path.write_text(json.dumps(DOCUMENTS[command]([event(one) for one in RUNS]), indent=indent))
    check_source(open_source(SourceOptions(sources=(str(path),))))


def test_log_groups(aws: FakeAws) -> None:
    with pytest.MonkeyPatch.context() as patch:
        for name, value in aws.environment().items():
            patch.setenv(name, value)
        open_client = open_clients(None, None)
        trust = AccountTrust(groups=TrustedGroups(globs=("/ecs/*",)))
        groups = matching_log_groups(open_client, ("/ecs/jobs", "/ecs/[jo]*r"))
        source = LogGroupRuns(page_reader(open_client), groups, NOW_NS, trust=trust)
        check_source(source)
    limit, unreadable = source.notes
    assert limit.startswith("/ecs/jobs, /ecs/other: only the last 30 days were read")
    assert limit.endswith("use --since TIME to read further back.")
    assert "could not be read" in unreadable


def test_the_command_reads_log_groups(aws: FakeAws) -> None:
    """With AWS_REGION alone, which boto3 does not read.

    The Region of the command line comes first.
    """
    environment = {
        name: value for name, value in aws.environment().items() if name != "AWS_DEFAULT_REGION"
    }
    done = run_here(environment, "history", "--from", f"logs:{OWN_GROUP}", "--json")
    assert done.returncode == 0, done.stderr
    assert [json.loads(line)["record"]["taskId"] for line in done.stdout.splitlines()] == OWN_IDS
    assert f"The log group {OWN_GROUP} is less than a day old, the window has 30." in done.stderr
    elsewhere = run_here(
        environment, "history", "--from", f"logs:{GROUP}", "--region", "eu-west-1", "--since", "1d"
    )
    assert elsewhere.returncode == 1, elsewhere.stderr
    assert f"There is no log group {GROUP} in eu-west-1" in elsewhere.stderr


@pytest.mark.parametrize(
    ("environment", "sentence"),
    [
        (
            {},
            "There is no log group /ecs/none in us-east-1: check the name",
        ),
        (
            {"AWS_REGION": ""},
            "AWS cannot be used: the Region is unknown: use --region, or set AWS_REGION.",
        ),
        (
            {"AWS_PROFILE": "nobody"},
            "there is no profile 'nobody': aws configure list-profiles shows the profiles.",
        ),
        (
            {"AWS_ACCESS_KEY_ID": "", "AWS_SECRET_ACCESS_KEY": ""},
            "there are no AWS credentials: sign in",
        ),
        ({"AWS_ENDPOINT_URL": "http://127.0.0.1:9"}, "AWS cannot be reached at http://127.0.0.1:9"),
        (
            {"AWS_ENDPOINT_URL": "nonsense"},
            "AWS cannot be used: a setting is wrong (Invalid endpoint: nonsense): check the",
        ),
        (
            {"AWS_ENDPOINT_URL": "http://127.0.0.1:99999"},
            "AWS cannot be used: a setting is wrong (Port out of range 0-65535): check the",
        ),
        ({"AWS_MAX_ATTEMPTS": "abc"}, "AWS cannot be used: a setting is wrong ("),
        ({"AWS_RETRY_MODE": "no"}, "AWS cannot be used: the AWS client failed ("),
    ],
)
def test_errors_of_aws_are_a_sentence(
    aws: FakeAws, environment: dict[str, str], sentence: str, tmp_path: Path
) -> None:
    settings = aws.environment() | {
        "AWS_EC2_METADATA_DISABLED": "true",
        "HOME": str(tmp_path),
        "AWS_MAX_ATTEMPTS": "1",
    }
    del settings["AWS_DEFAULT_REGION"]
    done = run_here(settings | environment, "history", "--from", "logs:/ecs/none", "--since", "1d")
    assert done.returncode == 1, done.stderr
    assert done.stdout == ""
    assert done.stderr.count("\n") == 1
    assert sentence in done.stderr


REPORTS, FIRST = '$.type = "task.report"', "$.record.metrics.durationMs < 120000"


@pytest.mark.parametrize(
    ("conditions", "pattern"),
    [
        (
            {"families": ("a*", "b")},
            f'{REPORTS} && ($.record.family = "a*" || $.record.family = "b")',
        ),
        ({"tags": (("team", "x"), ("a b", "y"))}, f'{REPORTS} && $.record.tags.team = "x"'),
        (
            {"run": "ab", "reads_checkpoints": True},
            (
                '$.type = "task.*" && ($.record.taskId = "ab*" || $.record.batch.jobId = "ab*" || '
                '$.record.family = "ab")'
            ),
        ),
        (
            {"clusters": ("ab",), "reads_checkpoints": True},
            f'({REPORTS} || ($.type = "task.checkpoint" && {FIRST})) && $.record.cluster = "ab"',
        ),
        ({"families": ("a?",), "clusters": ('"',), "statuses": ("unknown",)}, REPORTS),
        ({"families": ("x" * 2000,)}, REPORTS),
        (
            {"run": "ab/batch"},
            f'{REPORTS} && ($.record.taskId = "ab*" || $.record.family = "ab/batch")',
        ),
        (
            {"run": "nightly"},
            f'{REPORTS} && ($.record.taskId = "nightly*" || $.record.family = "nightly")',
        ),
        (
            {"labels": (("batch.job_id", "4c8d:7"), ("batch.attempt", "2"), ("x", "y"))},
            f'{REPORTS} && $.record.batch.jobId = "4c8d:7"',
        ),
    ],
)
def test_what_cloudwatch_can_filter_it_filters(conditions: dict[str, Any], pattern: str) -> None:
    assert (
        filter_pattern(RunFilter(**conditions))
        == f'{{ ({pattern}) || ($.type = "schedule.notice") }}'
    )


def test_a_source_that_fails_is_named_and_the_others_are_read(aws: FakeAws, tmp_path: Path) -> None:
    """Of a run in several sources, one is listed."""
    path, history = tmp_path / "lines", tmp_path / "history.sqlite3"
    path.write_bytes(lines(RUNS[:3]))
    history_of(history, *RUNS[2:4])
    words = (
        "history",
        "--json",
        "--since",
        "300d",
        "--from",
        str(path),
        "--from",
        f"history:{history}",
    )
    both = run_here({}, *words)
    assert both.returncode == 0, both.stderr
    assert both.stderr == ""
    found = sorted(json.loads(line)["record"]["taskId"] for line in both.stdout.splitlines())
    assert found == sorted({one.record.task_id for one in RUNS[:4]})
    none = f"history:{tmp_path}/none"
    for source, sentence in (
        (
            "/ecs/jobs",
            "There is no file /ecs/jobs: for a log group in CloudWatch, write logs:/ecs/jobs.",
        ),
        ("logs:/ecs/none", "There is no log group /ecs/none in us-east-1: check the name"),
        ("logs:/ecs/job", "Did you mean /ecs/jobs?"),
        ("logs:/ecs/none*", "No log group matches '/ecs/none*'"),
        ("insights:none", "Container Insights is off for none"),
        ("http://127.0.0.1:9", "http://127.0.0.1:9 refused the connection"),
        (none, "none does not exist: check --from."),
    ):
        done = run_here(aws.environment() | {"NO_PROXY": "*"}, *words, "--from", source)
        assert done.returncode == 1, source
        assert done.stdout == both.stdout, source
        assert done.stderr.count("\n") == 1, source
        assert sentence in done.stderr
        alone = run_here(
            aws.environment() | {"NO_PROXY": "*"}, "show", "--from", source, "--since", "300d"
        )
        assert alone.returncode == 1, source
        assert alone.stdout == "", source
        assert sentence in alone.stderr, source
    nothing = run_here({}, "history", "--from", none, "--from", "nowhere")
    assert nothing.returncode == 1, nothing.stderr
    assert nothing.stdout == ""
    assert nothing.stderr.count("\n") == 2


def test_the_variable_names_sources_which_from_replaces(tmp_path: Path) -> None:
    for number in range(3):
        (tmp_path / f"{number}").write_bytes(lines([RUNS[number]]))
    environment = {"TASK_PROFILER_FROM": f"{tmp_path}/0 {tmp_path}/1"}
    assert len(run_here(environment, "history", "--json").stdout.splitlines()) == 2
    (line,) = run_here(
        environment, "history", "--json", "--from", f"{tmp_path}/2"
    ).stdout.splitlines()
    assert json.loads(line)["record"]["taskId"] == RUNS[2].record.task_id


def in_stream(stream: str, **record: Any) -> Report:
    """A run of ten minutes that has just ended."""
    started = format_ms(NOW_NS - 600 * 10**9)
    return report(
        log_group=GROUP,
        log_stream=stream,
        started_at=started,
        finished_at=format_ms(NOW_NS),
        **record,
    )


def test_show_prints_the_log_at_the_moments(aws: FakeAws, tmp_path: Path) -> None:
    """In the region of the record; a missing permission or stream would be a sentence."""
    stream = "ecs/batch/shown"
    now_ms = NOW_NS // NS_PER_MS
    events = [
        {"timestamp": now_ms - 60_000 + number, "message": f"line {number}"} for number in range(30)
    ]
    put(aws, GROUP, stream, *events)
    path = tmp_path / "run.jsonl"
    path.write_bytes(encode(in_stream(stream, task_id="shown", region=aws.region)))
    environment = {name: value for name, value in aws.environment().items() if "REGION" not in name}
    done = run_here(environment, "show", "--from", str(path), "--logs", "3")
    assert done.returncode == 0, done.stderr
    assert "nightly succeeded in 9m 50s." in done.stdout
    assert [line.split()[1:] for line in done.stdout.splitlines()[-3:]] == [
        ["line", str(n)] for n in (27, 28, 29)
    ]
    path.write_bytes(encode(in_stream("none", task_id="shown", region=aws.region)))
    done = run_here(environment, "show", "--from", str(path), "--logs")
    assert done.returncode == 1
    assert (
        f"The log of shown cannot be read: {GROUP} has no stream none: check the retention"
        in done.stderr
    )


def test_show_reads_the_stacks_in_the_batchs_stream(aws: FakeAws) -> None:
    """From the log group alone; of two tasks with stacks, those of the one that is shown."""
    shown_id = "5" * 32
    stream = f"ecs/batch/{shown_id}"
    now_ms = NOW_NS // NS_PER_MS
    shown = in_stream(stream, task_id=shown_id)
    lines = [
        msgspec.json.encode(replace(waiting_stacks(), task_id=task_id, container="batch")).decode()
        for task_id in (shown_id, "another")
    ]
    messages = [
        "a batch's line",
        *lines,
        encode(replace(shown, time=format_ms(NOW_NS))).decode(),
    ]
    events = [
        {"timestamp": now_ms - 10 + number, "message": text} for number, text in enumerate(messages)
    ]
    put(aws, GROUP, stream, *events)
    words = ("show", shown_id, "--from", f"logs:{GROUP}", "--since", "1d")
    done = run_here(aws.environment(), *words, "--stacks")
    assert done.returncode == 0, done.stderr
    assert "parse_row" in done.stdout
    done = run_here(aws.environment(), *words, "--logs", "5")
    assert "a batch's line" in done.stdout
    assert "task.stacks" not in done.stdout
    # Those of the fixture, and the call stacks of another task are not its.
    assert "not of their log stream's task" in done.stderr


def test_show_from_log_groups_saves_what_recommend_saves(aws: FakeAws) -> None:
    """Two families share the group, and another prefix has runs of the same name elsewhere."""
    group = "/ecs/shared"
    aws.create_log_group(group)
    logs = aws.client("logs")
    made = []
    for number in range(12):
        for family, peak_mb in (("load", 900), ("check", 1900)):
            started_ns = NOW_NS - number * 20 * 3_600_000 * NS_PER_MS
            run = report(
                family=family,
                task_id=f"{peak_mb:016x}{number:016x}",
                started_at=format_ms(started_ns),
                finished_at=None,
                peak_mb=peak_mb if number else peak_mb / 2,
                size=(2, 4096),
                log_group=group,
            )
            made.append(replace(run, time=format_ms(started_ns + 600_000 * NS_PER_MS)))
    put_in_own_streams(logs, group, *map(text, made), prefix="etl/jobs")
    source = ("--from", f"logs:{group}")
    for family in ("load", "check"):
        found = run_here(aws.environment(), "recommend", family, "--json", *source)
        advice = json.loads(found.stdout)
        size = advice["recommended"]
        shown = run_here(aws.environment(), "show", family, *source).stdout
        vcpu = f"{size['vcpu']:g} vCPU, {size['memoryMB'] / 1024:g} GB"
        assert f"{vcpu}, saves {advice['savingPercent']:.0f} % (based on 12 runs)" in shown


def test_tasks_of_another_family_change_no_advice(aws: FakeAws) -> None:
    """They say that they are payroll's, in their own streams and in those of their monitor."""
    ecs, logs = aws.client("ecs"), aws.client("logs")
    for family in ("payroll", "thumbs"):
        aws.create_log_group(f"/ecs/{family}")
        options = {"awslogs-group": f"/ecs/{family}", "awslogs-stream-prefix": "ecs"}
        logged = {"logDriver": "awslogs", "options": options}
        containers = [
            {"name": name, "image": "x", "memory": 64, "logConfiguration": logged}
            for name in ("batch", "task-monitor")
        ]
        ecs.register_task_definition(family=family, containerDefinitions=containers)

    def runs(count: int, first: int, peak_mb: float, status: Status = "success") -> list[str]:
        made = []
        for number in range(count):
            ended_ns = NOW_NS - (number + 1) * 3_600_000 * NS_PER_MS
            run = report(
                family="payroll",
                task_id=f"{first + number:032x}",
                container=Container(name="batch"),
                started_at=format_ms(ended_ns - 600_000 * NS_PER_MS),
                finished_at=format_ms(ended_ns),
                status=status,
                likely_out_of_memory=status == "failure",
                peak_mb=peak_mb,
                size=(1, 8192),
            )
            made.append(text(replace(run, time=format_ms(ended_ns))))
        return made

    put_in_own_streams(logs, "/ecs/payroll", *runs(25, 5000, 6300))
    source = ("--from", "logs:/ecs/*")

    def advice() -> Any:
        done = run_here(aws.environment(), "recommend", "payroll", "--json", *source)
        return json.loads(done.stdout)

    before = advice()
    assert before["evidence"]["runs"] == 25
    put_in_own_streams(logs, "/ecs/thumbs", *runs(60, 6000, 20, "failure"))
    assert advice() == before
    done = run_here(aws.environment(), "recommend", "payroll", *source)
    assert "60 unconfirmed runs left out" in " ".join(done.stderr.split())
    check = ("--check", "--min-saving", "99")
    assert run_here(aws.environment(), "recommend", "payroll", *check, *source).returncode == 0
    assert "payroll succeeded" in run_here(aws.environment(), "show", "payroll", *source).stdout
    listed = run_here(aws.environment(), "history", "payroll", "--last", "100", *source)
    assert listed.stdout.count("unconfirmed") == 60
    assert "60 runs unconfirmed" in " ".join(listed.stderr.split())
