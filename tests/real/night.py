"""One night: task definitions that people have, what happens to each, and what is left of each
run.
"""

import json
import re
import tempfile
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from pathlib import Path
from typing import Any, Literal

import requests
from msgspec import Struct

from tests.command_line import run_here
from tests.e2e.images import BASE_IMAGE, MONITOR_IMAGE
from tests.real.control_plane import REGION, StartedTask
from tests.real.lab import LOG_GROUP, Lab
from tests.recorded_agent import complete_answers, read_answers
from tests.search.deployed_forwarder import subscription_events
from tools.waiting import LIMIT_SECONDS, wait_until

_ADDRESS = "ECS_CONTAINER_METADATA_URI_V4="
LOAD = Path(__file__).parents[1] / "e2e" / "batch_load.py"
_NO_IMAGE = "127.0.0.1:1/task-profiler:0"  # nothing listens there
_CLEANS_UP = "trap 'sleep 2; exit 0' TERM; echo ready; while :; do sleep 0.1; done"
UNTIL = "--until-usr1"
PRINTED = re.compile(r"done, held (\d+) bytes, used ([\d.]+) CPU seconds")


class Job(Struct, frozen=True, kw_only=True):
    """A family with one run; ``load`` are arguments of ``batch_load.py``, ``command`` is another
    program.
    """

    family: str
    load: tuple[str, ...] = ()
    command: tuple[str, ...] = ()
    memory_mib: int = 128
    network_mode: str = "bridge"
    is_pid_shared: bool = False
    others: tuple[dict[str, Any], ...] = ()
    monitor_image: str = MONITOR_IMAGE
    happens: Literal["", "stop", "spot"] = ""
    status: str = "success"
    exit_code: int = 0
    has_report: bool | None = (
        True  # None: if the agent has started the monitor before the batch ended
    )


def _beside(name: str, *load: str, **more: Any) -> dict[str, Any]:
    return {
        "name": name,
        "image": BASE_IMAGE,
        "memory": 64,
        "command": ["python3", "-B", "/load.py", *load],
        **more,
    }


_ALONE = ("--cpu-seconds", "2", "--memory-mib", "50", "--idle-seconds", "2")
_WORK = (*_ALONE, UNTIL)  # it ends when the monitor runs, however slow the machine is
_ROUTER = _beside(
    "log_router", "--until-term", firelensConfiguration={"type": "fluentbit"}, essential=True
)
RESTARTED = Job(
    family="restarted",
    load=("--memory-mib", "40", "--idle-seconds", "2", UNTIL),
    network_mode="host",
)
JOBS = (
    Job(family="plain", load=_WORK),
    Job(family="routed", load=_WORK, others=(_ROUTER,)),
    Job(family="pid-shared", load=(*_WORK, "--spike-mib", "40"), is_pid_shared=True),
    Job(family="host-network", load=_WORK, network_mode="host"),
    Job(
        family="cached",
        load=_WORK,
        others=(_beside("cache", "--idle-seconds", "1", essential=False),),
    ),
    Job(
        family="both-essential",
        load=_WORK,
        others=(_beside("worker", "--until-term", essential=True),),
    ),
    Job(family="moment", command=("sleep", "0.015"), has_report=None),
    Job(
        family="failing",
        load=("--cpu-seconds", "1", "--exit-code", "3", UNTIL),
        status="failure",
        exit_code=3,
    ),
    Job(family="greedy", load=("--oom", UNTIL), memory_mib=64, status="failure", exit_code=137),
    Job(family="stopped", load=("--until-term",), happens="stop", status="stopped", exit_code=143),
    Job(family="interrupted", command=("sh", "-c", _CLEANS_UP), happens="spot", status="stopped"),
    Job(family="without-image", load=_ALONE, monitor_image=_NO_IMAGE, has_report=False),
    RESTARTED,
)


# Starts the night in a thread, at its first call.
BeginNight = Callable[[], Future[dict[str, StartedTask]]]


class Run(Struct, frozen=True, kw_only=True):
    """What is left of a job's run."""

    job: Job
    task: StartedTask
    docker: dict[str, Any]  # the state of the batch's container
    printed: str
    documents: tuple[dict[str, Any], ...]
    notices: tuple[dict[str, Any], ...]

    @property
    def figures(self) -> tuple[float, float] | None:
        """The batch's memory in MiB and its CPU seconds, as it printed them at its end."""
        found = PRINTED.search(self.printed)
        return (int(found[1]) / (1 << 20), float(found[2])) if found else None

    @property
    def idle_ms(self) -> float:
        """How long the batch only waited before its end."""
        load = self.job.load
        return (
            1000 * float(load[load.index("--idle-seconds") + 1]) if "--idle-seconds" in load else 0
        )

    @property
    def record(self) -> dict[str, Any] | None:
        """The monitor's record, as the search cluster keeps it."""
        (document,) = self.documents
        if "record" not in document:
            return None
        record: dict[str, Any] = json.loads(document["record"])["record"]
        return record


class Night(Struct, frozen=True, kw_only=True):
    """The runs by their families, and the agent's answers to one task while it ran and after its
    end.
    """

    runs: dict[str, Run]
    answers: dict[str, Any]


def begin_night(lab: Lab) -> dict[str, StartedTask]:
    """Start all jobs by their families, and let each go on that does not wait for a restart of
    the agent.
    """
    tasks = {}
    for job in JOBS:
        definition = definition_of(job, lab)
        lab.aws.client("ecs").register_task_definition(**definition)
        tasks[job.family] = lab.plane.start(definition)
    for job in JOBS:
        if job.happens or (UNTIL in job.load and job is not RESTARTED):
            _go_on(lab, job, tasks[job.family])
    return tasks


def end_night(lab: Lab, tasks: dict[str, StartedTask]) -> Night:
    """Restart the agent, run all jobs to their end, and deliver what AWS delivers."""
    running, address = _restart_agent(lab, tasks[RESTARTED.family])
    wait_until(
        lambda: all(task.has_stopped for task in tasks.values()),
        "the end of all tasks",
    )
    _deliver(lab, tuple(tasks.values()))
    answers = {"running": running, "ended": read_answers(address)}
    return Night(
        runs={job.family: _run(lab, job, tasks[job.family]) for job in JOBS}, answers=answers
    )


def _restart_agent(lab: Lab, task: StartedTask) -> tuple[dict[str, Any], str]:
    """Restart the agent in the middle of the task, whose batch ends afterwards; return what it
    answered, and where.
    """
    wait_until(lambda: container_of(lab, task, "task-monitor"), "the monitor")
    batch = batch_of(lab, task)
    address = next(
        one.removeprefix(_ADDRESS) for one in batch["Config"]["Env"] if one.startswith(_ADDRESS)
    )
    answers = wait_until(
        lambda: complete_answers(address), "the agent's statistics", step_seconds=0.2
    )
    lab.agent.restart()
    _go_on(lab, RESTARTED, task)
    return answers, address


def _go_on(lab: Lab, job: Job, task: StartedTask) -> None:
    """When the batch is ready for a signal, and the monitor runs: stop the task, or let the
    batch go on to its end.
    """
    wait_until(lambda: "ready" in printed_by(lab, task), f"the batch of {task.family}")
    wait_until(
        lambda: container_of(lab, task, "task-monitor"),
        f"the monitor of {task.family}",
    )
    if job.happens:
        lab.plane.stop(task, spot=job.happens == "spot")
    else:
        lab.engine.command("kill", "--signal=USR1", str(container_of(lab, task, "batch")))


def definition_of(job: Job, lab: Lab, *, is_plain: bool = False) -> dict[str, Any]:
    """The family's definition, to which the command has added the monitor, unless it is to know
    nothing of it.
    """
    logs = {"awslogs-group": LOG_GROUP, "awslogs-region": REGION, "awslogs-stream-prefix": "ecs"}
    batch = _beside("batch", *job.load, memory=job.memory_mib, cpu=256, essential=True)
    batch["logConfiguration"] = {"logDriver": "awslogs", "options": logs}
    if job.command:
        batch["command"] = list(job.command)
    if any("firelensConfiguration" in one for one in job.others):
        batch["dependsOn"] = [{"containerName": "log_router", "condition": "START"}]
    given: dict[str, Any] = {
        "family": job.family,
        "networkMode": job.network_mode,
        "cpu": "512",  # the agent starts no more tasks than have room
        "memory": "1024",
    }
    given |= {
        "taskRoleArn": "arn:aws:iam::123456789012:role/batch",
        "containerDefinitions": [batch, *job.others],
        "volumes": [{"name": "load", "host": {"sourcePath": str(LOAD)}}],
    }
    definition = given if is_plain else _with_monitor(given, job)
    for container in definition["containerDefinitions"]:
        if container["image"] == BASE_IMAGE:
            container["mountPoints"] = [
                {"sourceVolume": "load", "containerPath": "/load.py", "readOnly": True}
            ]
        else:  # AWS itself is elsewhere
            address = {"name": "AWS_ENDPOINT_URL_CLOUDWATCH_LOGS", "value": lab.aws.url}
            container["environment"] = [*container.get("environment", ()), address]
        if "logConfiguration" in container:
            container["logConfiguration"]["options"]["awslogs-endpoint"] = lab.aws.url
    return definition


def _with_monitor(given: dict[str, Any], job: Job) -> dict[str, Any]:
    with tempfile.NamedTemporaryFile("w", suffix=".json") as file:
        json.dump(given, file)
        file.flush()
        options = (
            "--image",
            job.monitor_image,
            "--container",
            "batch",
            *(("--pid",) if job.is_pid_shared else ()),
        )
        done = run_here({}, "taskdef", "add-monitor", file.name, *options)
    assert done.returncode == 0, done.stderr
    changed: dict[str, Any] = json.loads(done.stdout)
    return changed


def container_of(lab: Lab, task: StartedTask, name: str) -> str | None:
    """The id of a container that has been started."""
    labels = [f"com.amazonaws.ecs.task-arn={task.arn}", f"com.amazonaws.ecs.container-name={name}"]
    query = {
        "all": "true",
        "filters": json.dumps({"label": labels, "status": ["running", "exited"]}),
    }
    found = lab.engine.api.call("GET", "/containers/json", query=query)
    return str(found[0]["Id"]) if found else None


def batch_of(lab: Lab, task: StartedTask) -> dict[str, Any]:
    """What Docker knows of the batch's container."""
    inspected: dict[str, Any] = lab.engine.api.call(
        "GET", f"/containers/{container_of(lab, task, 'batch')}/json"
    )
    return inspected


def printed_by(lab: Lab, task: StartedTask, stream: str = "", group: str = LOG_GROUP) -> str:
    """What is in a log stream, the batch's unless it is another one."""
    logs = lab.aws.client("logs")
    stream = stream or f"ecs/batch/{task.id}"
    try:
        events = logs.get_log_events(logGroupName=group, logStreamName=stream, startFromHead=True)[
            "events"
        ]
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
    return Run(
        job=job,
        task=task,
        docker=batch_of(lab, task)["State"],
        printed=printed_by(lab, task),
        documents=tuple(one for one in _documents(lab) if one["task"]["id"] == task.id),
        notices=tuple(one for one in lab.slack.messages if task.id in json.dumps(one)),
    )


def _documents(lab: Lab) -> Iterator[dict[str, Any]]:
    requests.post(
        f"{lab.search.url}/task-reports-*/_refresh", timeout=LIMIT_SECONDS
    ).raise_for_status()
    answer = requests.get(
        f"{lab.search.url}/task-reports-*/_search", params={"size": "1000"}, timeout=LIMIT_SECONDS
    )
    answer.raise_for_status()
    yield from (hit["_source"] for hit in answer.json()["hits"]["hits"])
