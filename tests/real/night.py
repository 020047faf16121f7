"""One night: a dozen task definitions that people have, what happens to each, and what is left of each run."""

import json
import re
import tempfile
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any, Literal

import requests
from msgspec import Struct

from tests.command_line import run_here
from tests.real.control_plane import REGION, StartedTask
from tests.real.lab import BATCH_IMAGE, LOG_GROUP, PROFILER_IMAGE, Lab
from tests.search.deployed_forwarder import subscription_events
from tests.waiting import wait_until

_LOAD = Path(__file__).parents[1] / "e2e" / "batch_load.py"
_NO_IMAGE = "127.0.0.1:1/task-profiler:0"  # nothing listens there
_CLEANS_UP = "trap 'sleep 2; exit 0' TERM; echo ready; while :; do sleep 0.1; done"
_END_SECONDS = 300.0
_PRINTED = re.compile(r"done, held (\d+) bytes, used ([\d.]+) CPU seconds")


class Job(Struct, frozen=True, kw_only=True):
    """A family with one run; ``load`` are arguments of ``batch_load.py``, ``command`` is another program."""

    family: str
    load: tuple[str, ...] = ()
    command: tuple[str, ...] = ()
    memory_mib: int = 128
    network_mode: str = "bridge"
    is_pid_shared: bool = False
    others: tuple[dict[str, Any], ...] = ()
    monitor_image: str = PROFILER_IMAGE
    happens: Literal["", "stop", "spot", "agent restart"] = ""
    status: str = "success"
    exit_code: int = 0
    has_report: bool | None = True  # None: if the agent has started the monitor before the batch ended


def _beside(name: str, *load: str, **more: Any) -> dict[str, Any]:
    return {"name": name, "image": BATCH_IMAGE, "memory": 64, "command": ["python3", "-B", "/load.py", *load], **more}


_WORK = ("--cpu-seconds", "2", "--memory-mib", "50", "--idle-seconds", "2")
_ROUTER = _beside("log_router", "--until-term", firelensConfiguration={"type": "fluentbit"}, essential=True)
JOBS = (
    Job(family="plain", load=_WORK),
    Job(family="routed", load=_WORK, others=(_ROUTER,)),
    Job(family="pid-shared", load=(*_WORK, "--spike-mib", "40"), is_pid_shared=True),
    Job(family="host-network", load=_WORK, network_mode="host"),
    Job(family="published", load=_WORK, others=(_beside("cache", "--idle-seconds", "1", essential=False),)),
    Job(family="both-essential", load=_WORK, others=(_beside("worker", "--until-term", essential=True),)),
    Job(family="moment", command=("sleep", "0.015"), has_report=None),
    Job(family="failing", load=("--cpu-seconds", "1", "--exit-code", "3"), status="failure", exit_code=3),
    Job(family="greedy", load=("--idle-seconds", "2", "--oom"), memory_mib=64, status="failure", exit_code=137),
    Job(family="stopped", load=("--until-term",), happens="stop", status="stopped", exit_code=143),
    Job(family="interrupted", command=("sh", "-c", _CLEANS_UP), happens="spot", status="stopped"),
    Job(family="without-image", load=_WORK, monitor_image=_NO_IMAGE, has_report=False),
    Job(
        family="restarted",
        load=("--memory-mib", "40", "--cpu-seconds", "1", "--idle-seconds", "25"),
        happens="agent restart",
    ),
)


class Run(Struct, frozen=True, kw_only=True):
    """What is left of a job's run."""

    job: Job
    task: StartedTask
    docker: dict[str, Any]  # the state of the batch's container
    printed: str
    documents: tuple[dict[str, Any], ...]
    notices: tuple[dict[str, Any], ...]

    @property
    def held_bytes(self) -> int | None:
        found = _PRINTED.search(self.printed)
        return int(found[1]) if found else None

    @property
    def cpu_seconds(self) -> float | None:
        found = _PRINTED.search(self.printed)
        return float(found[2]) if found else None

    @property
    def record(self) -> dict[str, Any] | None:
        """The monitor's record, as the search cluster keeps it."""
        (document,) = self.documents
        if "record" not in document:
            return None
        record: dict[str, Any] = json.loads(document["record"])["record"]
        return record


def run_night(lab: Lab) -> dict[str, Run]:
    """Run all jobs to their end, deliver what AWS delivers, and return the runs by their families."""
    tasks = {}
    for job in JOBS:
        definition = _definition(job, lab)
        lab.aws.client("ecs").register_task_definition(**definition)
        tasks[job.family] = lab.plane.start(definition)
    for job in JOBS:
        if job.happens:
            _happen(lab, job.happens, tasks[job.family])
    for task in tasks.values():
        wait_until(partial(_has_stopped, task), _END_SECONDS, f"{task.family} to end")
    _deliver(lab, tuple(tasks.values()))
    return {job.family: _run(lab, job, tasks[job.family]) for job in JOBS}


def _happen(lab: Lab, what: str, task: StartedTask) -> None:
    """Do it in the middle of the run: when the batch is ready for a signal, and the monitor runs."""
    wait_until(lambda: "ready" in _printed(lab, task), _END_SECONDS, f"the batch of {task.family}")
    wait_until(lambda: _is_running(lab, task, "task-monitor"), _END_SECONDS, f"the monitor of {task.family}")
    if what == "agent restart":
        lab.agent.restart()
    else:
        lab.plane.stop(task, spot=what == "spot")


def _has_stopped(task: StartedTask) -> bool:
    return task.stopped_at is not None


def _definition(job: Job, lab: Lab) -> dict[str, Any]:
    """The family's definition, to which the command has added the monitor."""
    logs = {"awslogs-group": LOG_GROUP, "awslogs-region": REGION, "awslogs-stream-prefix": "ecs"}
    batch = _beside("batch", *job.load, memory=job.memory_mib, cpu=256, essential=True)
    batch["logConfiguration"] = {"logDriver": "awslogs", "options": logs}
    if job.command:
        batch["command"] = list(job.command)
    if any("firelensConfiguration" in one for one in job.others):
        batch["dependsOn"] = [{"containerName": "log_router", "condition": "START"}]
    given = {
        "family": job.family,
        "networkMode": job.network_mode,
        "taskRoleArn": "arn:aws:iam::123456789012:role/batch",
        "containerDefinitions": [batch, *job.others],
        "volumes": [{"name": "load", "host": {"sourcePath": str(_LOAD)}}],
    }
    with tempfile.NamedTemporaryFile("w", suffix=".json") as file:
        json.dump(given, file)
        file.flush()
        options = ("--image", job.monitor_image, "--container", "batch", *(("--pid",) if job.is_pid_shared else ()))
        done = run_here({}, "taskdef", "add-monitor", file.name, *options)
    assert done.returncode == 0, done.stderr
    definition: dict[str, Any] = json.loads(done.stdout)
    for container in definition["containerDefinitions"]:
        if container["image"] == BATCH_IMAGE:
            container["mountPoints"] = [{"sourceVolume": "load", "containerPath": "/load.py", "readOnly": True}]
        else:  # AWS itself is elsewhere
            address = {"name": "AWS_ENDPOINT_URL_CLOUDWATCH_LOGS", "value": lab.aws.url}
            container["environment"] = [*container.get("environment", ()), address]
        if "logConfiguration" in container:
            container["logConfiguration"]["options"]["awslogs-endpoint"] = lab.aws.url
    return definition


def _is_running(lab: Lab, task: StartedTask, name: str) -> bool:
    container = _container(lab, task, name)
    return container is not None and container["State"] == "running"


def _container(lab: Lab, task: StartedTask, name: str) -> dict[str, Any] | None:
    """One of Docker's containers, with its labels of the agent."""
    labels = [f"com.amazonaws.ecs.task-arn={task.arn}", f"com.amazonaws.ecs.container-name={name}"]
    query = {"all": "true", "filters": json.dumps({"label": labels})}
    found = lab.engine.api.call("GET", "/containers/json", query=query)
    return found[0] if found else None


def _printed(lab: Lab, task: StartedTask) -> str:
    logs = lab.aws.client("logs")
    stream = f"ecs/batch/{task.id}"
    try:
        events = logs.get_log_events(logGroupName=LOG_GROUP, logStreamName=stream, startFromHead=True)["events"]
    except logs.exceptions.ResourceNotFoundException:
        return ""
    return "\n".join(one["message"] for one in events)


def _deliver(lab: Lab, tasks: tuple[StartedTask, ...]) -> None:
    """Events come before and after the log lines, and one of them twice."""
    first, *others = tasks
    lab.task_stopped.invoke(first.stopped_event())
    for event in subscription_events(lab.aws.client("logs")):
        lab.forward_logs.invoke(event)
    for task in (*others, first):
        lab.task_stopped.invoke(task.stopped_event())


def _run(lab: Lab, job: Job, task: StartedTask) -> Run:
    container = _container(lab, task, "batch")
    assert container is not None, job.family
    state = lab.engine.api.call("GET", f"/containers/{container['Id']}/json")["State"]
    return Run(
        job=job,
        task=task,
        docker=state,
        printed=_printed(lab, task),
        documents=tuple(one for one in _documents(lab) if one["task"]["id"] == task.id),
        notices=tuple(one for one in lab.slack.messages if task.id in json.dumps(one)),
    )


def _documents(lab: Lab) -> Iterator[dict[str, Any]]:
    requests.post(f"{lab.search.url}/task-reports-*/_refresh", timeout=120).raise_for_status()
    answer = requests.get(f"{lab.search.url}/task-reports-*/_search", params={"size": "1000"}, timeout=120)
    answer.raise_for_status()
    yield from (hit["_source"] for hit in answer.json()["hits"]["hits"])
