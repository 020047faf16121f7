"""Jobs of AWS Batch on an instance that was started with our user data: sixty at once.

Batch itself is played: its agent's cluster, and the names, log streams and variables of its tasks.
"""

import json
import subprocess
import time
import uuid
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest
import requests
from msgspec import Struct

from tests.aws_proxy import AwsProxy
from tests.command_line import run_here
from tests.e2e.images import BASE_IMAGE, MONITOR_IMAGE
from tests.e2e.kernel import accounting_at, accounting_of
from tests.real.control_plane import REGION, StartedTask
from tests.real.lab import Agent, Lab
from tests.real.night import LOAD, PRINTED, UNTIL, container_of, printed_by
from tests.user_data import script_of
from tools.waiting import LIMIT_SECONDS, wait_until

pytestmark = pytest.mark.real

GROUP = "/aws/batch/job"
CLUSTER = f"spot_Batch_{uuid.UUID(int=0x5EED)}"
CANARY = "canary-9b21"
JOB_ID = "4109b2a0-6d1c-4f5e-9c4e-0123456789ab"
ENDS = {0: "success", 3: "failure", 137: "failure"}
_CROWD = 60
_COST_SECONDS = 10
_INTROSPECTION = "http://127.0.0.1:51678/v1/tasks"
_LOADS = {
    "orders": ("--memory-mib", "16", "--cpu-seconds", "0.2", UNTIL),
    "failing": ("--cpu-seconds", "0.2", "--exit-code", "3", UNTIL),
    "greedy": ("--oom", UNTIL),
}
_SYSTEMCTL = """#!/bin/bash
case "$1" in enable)
  command=$(sed -n 's/^ExecStart=//p' "{units}/${{@: -1}}")
  nohup "$command" >{folder}/monitor.log 2>&1 &
esac
"""


class Day(Struct, frozen=True, kw_only=True):
    """What is left of the jobs: the reports in their streams, what they printed, and the tasks
    that the agent showed while all of them ran.

    ``written`` is all that the monitor has written anywhere.
    """

    jobs: dict[str, StartedTask]
    reports: dict[str, list[dict[str, Any]]]
    printed: dict[str, str]
    shown_families: list[str]
    written: str
    cost_percent: float
    cpu_seconds: dict[str, float]


@pytest.fixture(scope="module")
def day(lab: Lab, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Day]:
    folder = tmp_path_factory.mktemp("instance")
    lab.agent.kill()
    wait_until(lambda: not lab.plane.is_connected, "the end of the first agent")
    lab.plane.cluster = CLUSTER
    data = folder / "agent"
    data.mkdir()
    agent = Agent(lab.engine, lab.plane, data)
    gate = AwsProxy(lab.aws.url)
    try:
        lab.plane.wait_connected()
        lab.aws.create_log_group(GROUP)
        start_monitor(lab, folder, gate.url)
        yield run_day(lab, folder, gate)
    finally:
        agent.kill()
        gate.close()


def start_monitor(lab: Lab, folder: Path, logs_url: str) -> None:
    """Run the script of the user data that the command prints, where this machine has the folders
    and the service manager of an instance.
    """
    settings = {
        "AWS_ENDPOINT_URL_CLOUDWATCH_LOGS": logs_url,
        "AWS_ACCESS_KEY_ID": "testing",
        "AWS_SECRET_ACCESS_KEY": "testing",
    }
    words = [word for name in settings for word in ("--setting", f"{name}={settings[name]}")]
    printed = run_here(
        {}, "setup", "batch-instances", "--image", MONITOR_IMAGE, "--region", REGION, *words
    )
    assert printed.returncode == 0, printed.stderr
    script = script_of(printed.stdout)
    units, programs, state = folder / "units", folder / "programs", folder / "state"
    for path in (units, programs, state):
        path.mkdir()
    places = {
        "/etc/systemd/system": units,
        "/usr/local/libexec": programs,
        "--volume=/var/run:": f"--volume={lab.engine.api.socket_path.parent}:",
        "--volume=/var/lib/task-profiler:": f"--volume={state}:",
        "mkdir -p /usr/local/libexec /var/lib/task-profiler": ":",
    }
    for place, here in reversed(places.items()):
        script = script.replace(place, str(here))
    systemctl = programs / "systemctl"
    systemctl.write_text(_SYSTEMCTL.format(units=units, folder=folder))
    systemctl.chmod(0o755)
    environment = lab.engine.environment()
    environment = {**environment, "PATH": f"{programs}:{environment['PATH']}"}
    subprocess.run(["bash", "-c", script], env=environment, check=True)
    wait_until(lambda: monitor_id(lab), "the instance's monitor")


def monitor_id(lab: Lab) -> str:
    name = "name=task-profiler-monitor"
    return lab.engine.command("ps", "--quiet", "--no-trunc", "--filter", name).strip()


def run_day(lab: Lab, folder: Path, gate: AwsProxy) -> Day:
    jobs = {f"orders:{index}": start_job(lab, "orders", index) for index in range(_CROWD)}
    jobs |= {name: start_job(lab, name) for name in ("failing", "greedy")}
    monitor = lab.engine.api.call("GET", f"/containers/{monitor_id(lab)}/json")
    for task in jobs.values():
        wait_until(lambda: "ready" in printed(lab, task), "the jobs")  # noqa: B023
    group = accounting_of(monitor["State"]["Pid"])
    before_seconds = group.read().cpu_seconds
    began = time.monotonic()
    time.sleep(_COST_SECONDS)
    used_seconds = group.read().cpu_seconds - before_seconds
    cost_percent = 100 * used_seconds / (time.monotonic() - began)
    shown = requests.get(_INTROSPECTION, timeout=LIMIT_SECONDS).json()["Tasks"]
    batches = [str(container_of(lab, task, "default")) for task in jobs.values()]
    lab.engine.command("kill", "--signal=USR1", *batches)
    for name, task in jobs.items():
        wait_until(lambda: reports(lab, task), f"the report of {name}")  # noqa: B023
    log = lab.engine.command("logs", monitor_id(lab))
    lab.engine.command("stop", "--time", "20", monitor_id(lab))
    state = [path.read_text() for path in (folder / "state").rglob("*") if path.is_file()]
    found = {name: reports(lab, task) for name, task in jobs.items()}
    bodies = [body.decode() for _, body in gate.bodies]
    return Day(
        jobs=jobs,
        reports=found,
        printed={name: printed(lab, task) for name, task in jobs.items()},
        shown_families=[str(one["Family"]) for one in shown],
        written="\n".join((log, *state, *bodies)),
        cost_percent=cost_percent,
        cpu_seconds={
            name: accounting_at(f"/ecs/{task.id}").read().cpu_seconds for name, task in jobs.items()
        },
    )


def start_job(lab: Lab, name: str, index: int | None = None) -> StartedTask:
    """Start a job as AWS Batch does on EC2: its definition has one container, ``default``, and its
    variables come with the task.
    """
    logs = {
        "awslogs-group": GROUP,
        "awslogs-region": REGION,
        "awslogs-stream-prefix": name,
        "awslogs-endpoint": lab.aws.url,
    }
    batch = {
        "name": "default",
        "image": BASE_IMAGE,
        "cpu": 16,
        "memory": 64,
        "essential": True,
        "command": ["python3", "-B", "/load.py", *_LOADS[name]],
        "environment": [{"name": "SECRET", "value": CANARY}],
        "mountPoints": [{"sourceVolume": "load", "containerPath": "/load.py", "readOnly": True}],
        "logConfiguration": {"logDriver": "awslogs", "options": logs},
    }
    definition = {
        "family": name,
        "networkMode": "host",
        "taskRoleArn": "arn:aws:iam::123456789012:role/job",
        "containerDefinitions": [batch],
        "volumes": [{"name": "load", "host": {"sourcePath": str(LOAD)}}],
    }
    variables = {
        "AWS_BATCH_JOB_ID": JOB_ID if index is None else f"{JOB_ID}:{index}",
        "AWS_BATCH_JOB_ATTEMPT": "2",
        "AWS_BATCH_JQ_NAME": "nightly",
        "AWS_BATCH_CE_NAME": "spot",
        "MANAGED_BY_AWS": CANARY,
    }
    if index is not None:
        variables["AWS_BATCH_JOB_ARRAY_INDEX"] = str(index)
    return lab.plane.start(definition, variables)


def printed(lab: Lab, task: StartedTask) -> str:
    return printed_by(lab, task, f"{task.family}/default/{task.id}", GROUP)


def reports(lab: Lab, task: StartedTask) -> list[dict[str, Any]]:
    """The records in the job's own stream."""
    lines: Iterable[str] = printed(lab, task).splitlines()
    return [
        json.loads(line)["record"]
        for line in lines
        if line.startswith("{") and "task.report" in line
    ]


def test_each_job_has_one_report_in_its_own_stream(day: Day) -> None:
    assert len(day.reports) == _CROWD + 2
    for name, task in day.jobs.items():
        (record,) = day.reports[name]
        assert record["family"] == task.family
        assert record["cluster"] == CLUSTER
        assert record["status"] == ENDS[record["exitCode"]]
        assert record["batch"]["queue"] == "nightly"
        assert record["batch"]["computeEnvironment"] == "spot"
        assert record["batch"]["attempt"] == 2


def test_a_child_of_an_array_is_known_by_its_index(day: Day) -> None:
    for index in range(_CROWD):
        (record,) = day.reports[f"orders:{index}"]
        assert record["batch"]["jobId"] == f"{JOB_ID}:{index}"
        assert record["batch"]["arrayIndex"] == index


def test_the_numbers_are_those_of_the_job_and_of_the_kernel(day: Day) -> None:
    for name in day.jobs:
        (record,) = day.reports[name]
        cpu_seconds = record["metrics"]["cpuSeconds"]
        assert cpu_seconds == pytest.approx(day.cpu_seconds[name], rel=0.005, abs=0.002)
        found = PRINTED.search(day.printed[name])
        if found is not None:
            assert float(found[2]) <= cpu_seconds + 0.03
            assert record["metrics"]["maxMemoryUsedMB"] >= 0.99 * int(found[1]) / (1 << 20)


def test_ends_are_what_the_jobs_did(day: Day) -> None:
    (failing,) = day.reports["failing"]
    (greedy,) = day.reports["greedy"]
    assert failing["exitCode"] == 3
    assert greedy["likelyOutOfMemory"] is True
    assert greedy["outOfMemoryEvidence"] == "kernel-counter"


def test_the_agent_shows_jobs_alone_so_that_batch_scales_in_when_they_have_ended(day: Day) -> None:
    assert sorted(set(day.shown_families)) == ["failing", "greedy", "orders"]
    assert len(day.shown_families) == len(day.jobs)


def test_no_other_variable_of_a_job_is_written(day: Day) -> None:
    assert JOB_ID in day.written
    assert CANARY not in day.written


def test_the_cost_of_sixty_jobs_is_said(day: Day, capsys: pytest.CaptureFixture[str]) -> None:
    with capsys.disabled():
        print(f"\n60 jobs cost {day.cost_percent:.3f} % of a core")  # noqa: T201
