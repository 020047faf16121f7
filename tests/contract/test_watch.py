"""``task-profiler watch`` over HTTP, against moto's CloudWatch Logs and ECS, and in a terminal.

Moto takes no notice of the filter pattern: lines of other kinds come too, and are skipped.
"""

import json
import os
import signal
import subprocess
import sys
import termios
import time
from collections.abc import Iterator
from typing import Any

import pytest

from profiler.core.timestamps import NS_PER_MS
from tests.command_line import run_here
from tests.http_server import OneAnswer
from tests.run_sources import (
    MESSAGE,
    checkpoint_at,
    ended,
    notice_text,
    put_in_own_streams,
    run,
    text,
)
from tests.sidecars import ACCOUNT, IMAGE, REGION, awslogs
from tests.terminals import open_terminal, read_all, read_until
from tools.moto_server import FakeAws, fake_aws
from tools.waiting import LIMIT_SECONDS

MONITORS, BATCHES = "/ecs/monitors", "/ecs/jobs"
# The other tests read MONITORS as a whole, and know what runs by its lines.
CLUSTER_MONITORS = "/ecs/monitors-of-the-cluster"
GROUPS = ("--from", f"logs:{MONITORS}", "--from", f"logs:{BATCHES}")
KEYS: dict[str, Any] = {"region": REGION, "account_id": ACCOUNT}
ENTER, LEAVE = b"\x1b[?1049h\x1b[?25l\x1b[?7l", b"\x1b[?7h\x1b[?25h\x1b[?1049l"


BATCH = {
    "name": "batch",
    "image": "etl:26",
    "memory": 256,
    "essential": True,
    "logConfiguration": awslogs(BATCHES),
}
MONITOR = {
    "name": "task-monitor",
    "image": IMAGE,
    "memory": 64,
    "logConfiguration": awslogs(CLUSTER_MONITORS),
}


RUNNING, OTHER, FAILED = "abcdef12" * 4, "b" * 32, "f" * 32


def put(aws: FakeAws, group: str, *lines: str) -> None:
    put_in_own_streams(aws.client("logs"), group, *lines)


@pytest.fixture(scope="module")
def aws() -> Iterator[FakeAws]:
    """A batch that runs and was noticed, one that has ended, and its past runs, in the groups of
    both containers.
    """
    with fake_aws() as aws:
        for group in (MONITORS, BATCHES):
            aws.create_log_group(group)
        now_ns = time.time_ns()
        running = checkpoint_at(now_ns, task_id=RUNNING, family="nightly-etl", **KEYS)
        other = checkpoint_at(now_ns, task_id=OTHER, family="nightly-load", **KEYS)
        hello = {"timestamp": now_ns // NS_PER_MS, "message": "hello"}
        aws.create_log_stream(MONITORS, f"ecs/task-monitor/{RUNNING}")
        aws.client("logs").put_log_events(
            logGroupName=MONITORS,
            logStreamName=f"ecs/task-monitor/{RUNNING}",
            logEvents=[hello],
        )
        put(aws, MONITORS, text(running), notice_text(running), text(other))
        over = ended(other)
        past = [
            run(
                f"{n:032x}",
                24 * n,
                family="nightly-etl",
                metrics={"duration_ms": 900_000 + n},
                **KEYS,
            )
            for n in (1, 2, 3)
        ]
        failed = run(FAILED, 30, family="nightly-etl", status="failure", **KEYS)
        put(aws, BATCHES, *map(text, (over, *past, failed)))
        yield aws


def test_one_json_line_for_each_running_task(aws: FakeAws) -> None:
    done = run_here(aws.environment(), "watch", "--json", *GROUPS)
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    found = json.loads(done.stdout)
    assert 600_000 <= found.pop("elapsedMs") < 900_000
    assert found.pop("startedAt")
    (notice,) = found.pop("notices")
    assert notice["kind"] == "stuck"
    assert notice["message"] == MESSAGE
    assert found == {
        "taskId": RUNNING,
        "container": "batch",
        "cluster": None,
        "family": "nightly-etl",
        "status": "running",
        "usual": {"medianMs": 900_002, "p95Ms": 900_003, "runs": 3},
        "vcpuUsed": 0.4,
        "vcpuSize": 1,
        "memoryUsedMB": 1024,
        "memorySizeMB": 2048,
    }


def test_without_a_terminal_there_is_one_table(aws: FakeAws) -> None:
    done = run_here(aws.environment(), "watch", "nightly-*", *GROUPS)
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    title, _, row, notice = done.stdout.splitlines()
    assert title == f"{MONITORS} and {BATCHES}: 1 running"
    assert row.startswith("abcdef12  nightly-etl  10m")
    assert notice.startswith("! abcdef12 nightly-etl, stuck: ")
    other = run_here(aws.environment(), "watch", "hourly", "--from", f"logs:{MONITORS}")
    assert other.returncode == 0, other.stderr
    assert other.stdout == f"{MONITORS}: nothing runs that matches 'hourly'\n"


@pytest.mark.parametrize("place", [GROUPS, ("--cluster", "idle")])
@pytest.mark.parametrize(
    ("name", "advice"),
    [("nightly-elt", "Did you mean nightly-etl?\n"), ("nightly-el*", ""), ("158d1c8", "")],
)
def test_a_name_that_is_nearly_right_gets_a_suggestion(
    aws: FakeAws, place: tuple[str, ...], name: str, advice: str
) -> None:
    ecs = aws.client("ecs")
    ecs.create_cluster(clusterName="idle")
    ecs.register_task_definition(family="nightly-etl", containerDefinitions=[BATCH])
    done = run_here(aws.environment(), "watch", name, *place)
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    title, shown = done.stdout.split("\n", 1)
    assert title.endswith(f": nothing runs that matches {name!r}")
    assert shown == advice
    done = run_here(aws.environment(), "watch", name, "--json", *place)
    assert (done.returncode, done.stdout) == (0, "")
    assert done.stderr.removeprefix("task-profiler: ") == advice


def test_a_family_of_past_runs_that_does_not_run_gets_no_suggestion(aws: FakeAws) -> None:
    done = run_here(aws.environment(), "watch", "nightly-load", *GROUPS)
    assert done.returncode == 0, done.stderr
    assert done.stdout.endswith(": nothing runs that matches 'nightly-load'\n")


@pytest.mark.parametrize(
    ("place", "told"),
    [
        (("--from", "logs:/ecs/none"), "check the name, --region and --profile.\n"),
        (("--from", "logs:/ecs/job"), "--profile. Did you mean /ecs/jobs?\n"),
        (("--cluster", "none"), "none"),
    ],
)
def test_what_is_not_there_is_a_sentence(aws: FakeAws, place: tuple[str, str], told: str) -> None:
    done = run_here(aws.environment(), "watch", *place)
    assert done.returncode == 1, done.stderr
    assert done.stdout == ""
    assert done.stderr.count("\n") == 1
    assert told in done.stderr


@pytest.mark.parametrize(("status", "warnings"), [(200, 0), (401, 1)])
def test_past_runs_can_come_from_a_search_cluster(aws: FakeAws, status: int, warnings: int) -> None:
    with OneAnswer(status, b'{"hits": {"hits": []}}') as server:
        done = run_here(aws.environment(), "watch", "--json", *GROUPS, "--from", server.url)
    assert done.returncode == 0, done.stderr
    assert done.stderr.count("The usual durations are unknown. http") == warnings
    assert json.loads(done.stdout)["usual"] is None


@pytest.fixture
def cluster(aws: FakeAws) -> dict[str, str]:
    """The ids of the running tasks by family: one with a monitor, and one without."""
    aws.create_log_group(CLUSTER_MONITORS)
    ecs = aws.client("ecs")
    ecs.create_cluster(clusterName="jobs")
    started = {}
    for family, containers in (("nightly-etl", [BATCH, MONITOR]), ("plain", [BATCH])):
        ecs.register_task_definition(
            family=family,
            containerDefinitions=containers,
            cpu="512",
            memory="1024",
            networkMode="awsvpc",
        )
        started[family] = aws.start_task(family)
    return started


def test_a_cluster_has_its_running_tasks_and_those_with_a_monitor_their_numbers(
    aws: FakeAws, cluster: dict[str, str]
) -> None:
    line = checkpoint_at(
        time.time_ns(), task_id=cluster["nightly-etl"], family="nightly-etl", **KEYS
    )
    put(aws, CLUSTER_MONITORS, text(line))
    done = run_here(aws.environment(), "watch", "--cluster", "jobs", "--json")
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    found = {one["family"]: one for one in map(json.loads, done.stdout.splitlines())}
    assert found.keys() == {"nightly-etl", "plain"}
    measured, plain = found["nightly-etl"], found["plain"]
    assert measured["taskId"] == cluster["nightly-etl"]
    assert measured["memoryUsedMB"] == 1024
    assert measured["usual"]["runs"] == 3
    assert plain["taskId"] == cluster["plain"]
    assert plain["container"] == "batch"
    assert plain["memoryUsedMB"] is None
    assert plain["usual"] is None
    named = run_here(aws.environment(), "watch", "plain", "--cluster", "jobs", "--json")
    assert json.loads(named.stdout)["taskId"] == cluster["plain"]


@pytest.mark.diagonal(1)
@pytest.mark.parametrize(
    ("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143), (signal.SIGHUP, 129)]
)
def test_a_signal_leaves_the_terminal_as_it_was(aws: FakeAws, number: int, code: int) -> None:
    ours, theirs = open_terminal(100)
    before = termios.tcgetattr(theirs)
    environment = {**os.environ, **aws.environment(), "TERM": "xterm"}
    words = (sys.executable, "-m", "profiler", "watch", *GROUPS)
    # The kernel discards SIGTSTP in a group without a parent in the same session.
    program = subprocess.Popen(
        words, stdin=theirs, stdout=theirs, stderr=theirs, env=environment, process_group=0
    )
    try:
        shown = read_until(ours, b"stuck:")
        program.send_signal(signal.SIGTSTP)
        os.waitid(os.P_PID, program.pid, os.WSTOPPED | os.WEXITED | os.WNOWAIT)
        program.send_signal(signal.SIGCONT)
        suspended = read_until(ours, ENTER)
        program.send_signal(number)
        assert program.wait(LIMIT_SECONDS) == code
        assert termios.tcgetattr(theirs) == before
    finally:
        program.kill()
        program.wait()
        os.close(theirs)
    rest = read_all(ours)
    os.close(ours)
    assert shown.startswith(ENTER)
    assert LEAVE in suspended
    assert rest.rstrip().endswith(LEAVE)
    assert b"Traceback" not in shown + suspended + rest
