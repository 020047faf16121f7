"""What one monitor for an instance, which a DAEMON service runs, reports of a day of tasks that
know nothing of it.
"""

import json
import os
import signal
import tempfile
import threading
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest
from msgspec import Struct

from tests.aws_proxy import AwsProxy
from tests.e2e.images import MONITOR_IMAGE
from tests.e2e.kernel import KernelReading, accounting_at
from tests.real.control_plane import REGION, StartedTask
from tests.real.lab import LOG_GROUP, Lab
from tests.real.night import PRINTED, UNTIL, Job, batch_of, container_of, definition_of, printed_by
from tools.waiting import wait_until

CANARY = "canary-4f1c"
SPIKE_MIB = 200
_DEFINITION = Path(__file__).parents[2] / "taskdef" / "instance-monitor.json"
_ENDS_TWICE = "test -e /again && exit 0; touch /again; sleep 1.5; exit 3"
# It ignores the stop signal, so ECS kills it after the stop timeout.
_IGNORES_TERM = "trap '' TERM; echo ready; while :; do sleep 0.1; done"
# It outlives the signal: once the batch has ended, the agent wants its task STOPPED in any case.
# The agent of 70 tasks, asked after the signal, answers before the end.
_ENDS_SLOWLY = "trap 'sleep 10; exit 143' TERM; echo ready; while :; do sleep 0.1; done"
_SPIKE = ("--wait-seconds", "1.3", "--spike-mib", str(SPIKE_MIB), "--cpu-seconds", "0.5")
_STEPS = ("--memory-mib", "40", "--cpu-seconds", "0.3", UNTIL)
TWELVE = tuple(
    Job(
        family=f"one-of-12-{number}",
        load=("--memory-mib", str(20 + 5 * number), "--cpu-seconds", f"{0.4 + 0.1 * number:.1f}"),
    )
    for number in range(12)
)
JOBS = (
    *TWELVE,
    Job(
        family="failing",
        load=("--cpu-seconds", "0.2", "--exit-code", "3"),
        status="failure",
        exit_code=3,
    ),
    Job(family="greedy", load=("--oom",), memory_mib=64, status="failure", exit_code=137),
    Job(family="moment", command=("true",)),
    Job(family="stopped", load=("--until-term",), happens="stop", status="stopped", exit_code=143),
    Job(
        family="stopped-by-force",
        command=("sh", "-c", _IGNORES_TERM),
        happens="stop",
        status="stopped",
        exit_code=137,
    ),
    Job(
        family="killed-by-hand",
        command=("sh", "-c", _IGNORES_TERM),
        status="failure",
        exit_code=137,
    ),
    Job(
        family="term-by-hand",
        command=("sh", "-c", _ENDS_SLOWLY),
        status="failure",
        exit_code=143,
    ),
    Job(family="again", command=("sh", "-c", _ENDS_TWICE)),
    Job(family="page-cache", load=("--memory-mib", "30", "--kept-mib", "200"), memory_mib=400),
    Job(family="spike", load=_SPIKE, memory_mib=300),
    # The day goes on with these, one after the other.
    Job(family="put-held", load=_STEPS),
    Job(family="beside-held", load=_STEPS),
    Job(family="away", load=_STEPS),
    Job(family="two-monitors", load=(*_SPIKE, UNTIL, "--idle-seconds", "1"), memory_mib=300),
    Job(family="without-dockerd", load=_STEPS),
    Job(family="two-dockerds", load=_STEPS),
    # These have no report of the instance's monitor.
    Job(family="service", load=_STEPS, has_report=False),
    Job(family="own-monitor", load=_STEPS),
)
# They run under a monitor that samples them, and then under one that follows their processes, too.
CROWD = tuple(
    Job(family=f"crowd-{number}", load=("--memory-mib", "16", "--cpu-seconds", "0.2", UNTIL))
    for number in range(60)
)
_WORK = "while __import__('time').process_time() < 6: pass"
_CHILDREN = f"trap 'kill $!' USR1; echo ready; python3 -c \"{_WORK}\" & sleep 1000 & wait; exit 0"
CHILDREN = Job(family="children", command=("sh", "-c", _CHILDREN))
_COST_SECONDS = 10


class Seen(Struct, frozen=True, kw_only=True):
    """What is left of a run: its reports, and the kernel's and Docker's own numbers."""

    job: Job
    reports: tuple[dict[str, Any], ...]
    figures: (
        tuple[float, float] | None
    )  # the batch's memory in MiB and CPU seconds, as it printed them
    kernel: KernelReading
    docker: dict[str, Any]

    @property
    def record(self) -> dict[str, Any]:
        (record,) = self.reports
        return record


class Day(Struct, frozen=True, kw_only=True):
    """``written`` is all that the monitors have written anywhere.

    The costs for the crowd are in percent of a core.
    """

    runs: dict[str, Seen]
    written: str
    cost_percent: float
    cost_with_processes_percent: float


class _Gate(AwsProxy):
    """CloudWatch Logs as the monitor sees it; the put of the report of ``held_task`` is never
    answered.
    """

    def __init__(self, target: str) -> None:
        super().__init__(target)
        self.held_task = ""
        self.is_holding = threading.Event()
        self.given_up = threading.Event()
        self.before = self._hold

    def _hold(self, operation: str, body: bytes) -> None:
        if operation == "PutLogEvents" and self.held_task and self.held_task.encode() in body:
            self.is_holding.set()
            self.given_up.wait()
            raise ConnectionError


def run_day(lab: Lab) -> Day:
    with tempfile.TemporaryDirectory(prefix="task-profiler-state-") as state:
        gate = _Gate(lab.aws.url)
        try:
            return _Instance(lab, gate, Path(state)).run()
        finally:
            gate.given_up.set()
            gate.close()


class _Instance:
    def __init__(self, lab: Lab, gate: _Gate, state: Path) -> None:
        self._lab, self._gate, self._state = lab, gate, state
        self._tasks: dict[str, StartedTask] = {}

    def run(self) -> Day:
        monitors = [self._start_monitor()]
        for job in JOBS:
            self._tasks[job.family] = self._lab.plane.start(self._definition(job))
        for family in ("stopped", "stopped-by-force"):
            self._wait_ready(family)
            self._lab.plane.stop(self._tasks[family])
        self._signal("killed-by-hand", "KILL")
        self._signal("term-by-hand", "TERM")
        self._go_on("own-monitor")
        self._go_on("service")
        self._wait_reported(job.family for job in JOBS if UNTIL not in job.load)
        self._hold_a_put()
        monitors.append(self._replace_monitor(monitors[0]))
        self._wait_reported(("put-held", "away"))
        self._go_on("two-monitors")
        self._wait_reported(("two-monitors", "own-monitor"))
        self._restart_dockerd()
        self._wait_reported(("without-dockerd", "two-dockerds"))
        self._wait_stopped(self._tasks["service"])
        for job in CROWD:
            self._tasks[job.family] = self._lab.plane.start(self._definition(job))
        for job in CROWD:
            self._wait_ready(job.family)
        cost_percent = self._cost_percent(monitors[1])
        self._lab.plane.stop(monitors[1])
        self._wait_stopped(monitors[1])
        monitors.append(self._start_monitor(has_processes=True))
        self._tasks[CHILDREN.family] = self._lab.plane.start(self._definition(CHILDREN))
        self._wait_ready(CHILDREN.family)
        cost_with_processes_percent = self._cost_percent(monitors[2])
        at_once = (*CROWD, CHILDREN)
        batches = [
            str(container_of(self._lab, self._tasks[job.family], "batch")) for job in at_once
        ]
        self._lab.engine.command("kill", "--signal=USR1", *batches)
        self._wait_reported(job.family for job in at_once)
        self._lab.plane.stop(monitors[2])
        self._wait_stopped(monitors[2])
        runs = {job.family: self._seen(job) for job in (*JOBS, *CROWD, CHILDREN)}
        return Day(
            runs=runs,
            written=self._written(monitors, runs.values()),
            cost_percent=cost_percent,
            cost_with_processes_percent=cost_with_processes_percent,
        )

    def _cost_percent(self, monitor: StartedTask) -> float:
        group = accounting_at(f"/ecs/{monitor.id}")
        before_seconds, began = group.read().cpu_seconds, time.monotonic()
        time.sleep(_COST_SECONDS)
        return 100 * (group.read().cpu_seconds - before_seconds) / (time.monotonic() - began)

    def _hold_a_put(self) -> None:
        """The report of one batch does not arrive, which does not delay the next one's."""
        self._gate.held_task = self._tasks["put-held"].id
        self._go_on("put-held")
        wait_until(self._gate.is_holding.is_set, "the put that is held up")
        self._go_on("beside-held")
        self._wait_reported(("beside-held",))

    def _replace_monitor(self, monitor: StartedTask) -> StartedTask:
        """Kill the monitor while a put is held up, let another batch end, and start the next
        one.
        """
        self._lab.engine.command("kill", str(container_of(self._lab, monitor, "task-monitor")))
        self._wait_stopped(monitor)
        self._gate.held_task = ""
        self._gate.given_up.set()
        self._go_on("away")
        self._wait_stopped(self._tasks["away"])
        return self._start_monitor()

    def _restart_dockerd(self) -> None:
        """One batch ends meanwhile, another one afterwards."""
        self._wait_ready("without-dockerd")
        pid = batch_of(self._lab, self._tasks["without-dockerd"])["State"]["Pid"]
        self._wait_ready("two-dockerds")
        self._lab.daemon.stop()
        os.kill(pid, signal.SIGUSR1)
        wait_until(lambda: not Path(f"/proc/{pid}").exists(), "the batch's end")
        self._lab.daemon.start()
        self._go_on("two-dockerds")

    def _start_monitor(self, *, has_processes: bool = False) -> StartedTask:
        """Start the definition that users paste, where this machine has the folders of an
        instance.
        """
        definition: dict[str, Any] = json.loads(_DEFINITION.read_text())
        folders = {
            "/var/run": self._lab.engine.api.socket_path.parent,
            "/var/lib/task-profiler": self._state,
        }
        for volume in definition["volumes"]:
            path = volume["host"]["sourcePath"]
            volume["host"]["sourcePath"] = str(folders.get(path, path))
        (container,) = definition["containerDefinitions"]
        container["image"] = MONITOR_IMAGE
        if has_processes:
            definition["pidMode"] = "host"
            container["environment"].append({"name": "TASK_PROFILER_PROCESSES", "value": "on"})
        container["environment"].append(
            {"name": "AWS_ENDPOINT_URL_CLOUDWATCH_LOGS", "value": self._gate.url}
        )
        container["logConfiguration"]["options"] = {
            "awslogs-group": LOG_GROUP,
            "awslogs-region": REGION,
            "awslogs-endpoint": self._lab.aws.url,
        }
        task = self._lab.plane.start(definition)
        wait_until(lambda: container_of(self._lab, task, "task-monitor"), "the monitor")
        return task

    def _definition(self, job: Job) -> dict[str, Any]:
        definition = definition_of(job, self._lab, is_plain=job.family != "own-monitor")
        batch = next(one for one in definition["containerDefinitions"] if one["name"] == "batch")
        batch["environment"] = [{"name": "SECRET", "value": CANARY}]
        batch["cpu"] = 16  # the agent starts no more tasks than have room
        del definition["cpu"], definition["memory"]
        if job.family == "stopped-by-force":
            batch["stopTimeout"] = 2
        if job.family == "again":
            batch["restartPolicy"] = {
                "enabled": True,
                "ignoredExitCodes": [0],
                "restartAttemptPeriod": 1,
            }
        return definition | ({"serviceName": "web"} if job.family == "service" else {})

    def _signal(self, family: str, signal_name: str) -> None:
        """Signal the batch as another program does, without ECS."""
        self._wait_ready(family)
        batch = str(container_of(self._lab, self._tasks[family], "batch"))
        self._lab.engine.command("kill", f"--signal={signal_name}", batch)

    def _go_on(self, family: str) -> None:
        self._wait_ready(family)
        task = self._tasks[family]
        if family == "own-monitor":
            wait_until(
                lambda: container_of(self._lab, task, "task-monitor"),
                "the task's own monitor",
            )
        self._lab.engine.command(
            "kill", "--signal=USR1", str(container_of(self._lab, task, "batch"))
        )

    def _wait_ready(self, family: str) -> None:
        wait_until(
            lambda: "ready" in printed_by(self._lab, self._tasks[family]),
            f"the batch of {family}",
        )

    def _wait_stopped(self, task: StartedTask) -> None:
        wait_until(lambda: task.has_stopped, f"the end of {task.family}")

    def _wait_reported(self, families: Iterable[str]) -> None:
        for family in families:
            wait_until(lambda: self._reports(family), f"the report of {family}")  # noqa: B023

    def _reports(self, family: str) -> tuple[dict[str, Any], ...]:
        lines = printed_by(self._lab, self._tasks[family]).splitlines()
        return tuple(
            json.loads(line)["record"]
            for line in lines
            if line.startswith("{") and "task.report" in line
        )

    def _seen(self, job: Job) -> Seen:
        task = self._tasks[job.family]
        found = PRINTED.search(printed_by(self._lab, task))
        return Seen(
            job=job,
            reports=self._reports(job.family),
            figures=(int(found[1]) / (1 << 20), float(found[2])) if found else None,
            kernel=accounting_at(f"/ecs/{task.id}").read(),
            docker=batch_of(self._lab, task)["State"],
        )

    def _written(self, monitors: list[StartedTask], runs: Iterable[Seen]) -> str:
        states = [path.read_text() for path in self._state.rglob("*") if path.is_file()]
        streams = [str(container_of(self._lab, task, "task-monitor")) for task in monitors]
        logs = [
            printed_by(self._lab, task, stream)
            for task, stream in zip(monitors, streams, strict=True)
        ]
        bodies = [body.decode() for _, body in self._gate.bodies]
        return "\n".join((*states, *logs, *bodies, *(json.dumps(run.reports) for run in runs)))


pytestmark = pytest.mark.real

_REPORTED = pytest.mark.parametrize("family", [job.family for job in JOBS if job.has_report])
# What a container's start costs its task's group, which the batch itself does not see.
_START_SECONDS, _START_MIB = 0.2, 16


@pytest.fixture(scope="module")
def day(lab: Lab) -> Day:
    return run_day(lab)


@pytest.fixture
def run(family: str, day: Day) -> Seen:
    return day.runs[family]


@_REPORTED
def test_each_task_has_one_report_in_the_stream_of_its_batch(run: Seen) -> None:
    record = run.record
    assert record["family"] == run.job.family
    assert record["status"] == run.job.status
    assert record["exitCode"] == run.job.exit_code
    assert run.docker["ExitCode"] == run.job.exit_code


@_REPORTED
def test_the_numbers_are_those_of_the_batch_and_of_the_kernel(run: Seen) -> None:
    if run.job.family == "own-monitor":
        # It may have started after the batch's work, and the kernel's numbers are of both
        # containers.
        return
    metrics = run.record["metrics"]
    assert metrics["cpuSeconds"] == pytest.approx(run.kernel.cpu_seconds, rel=0.005, abs=0.002)
    if run.figures is not None:
        held_mib, cpu_seconds = run.figures
        assert cpu_seconds <= metrics["cpuSeconds"] + 0.03 <= 1.01 * cpu_seconds + _START_SECONDS
        assert metrics["maxMemoryUsedMB"] >= 0.99 * held_mib
        if "--spike-mib" not in run.job.load:
            assert metrics["maxMemoryUsedMB"] <= held_mib + _START_MIB


@_REPORTED
def test_no_task_used_more_than_the_machine_has(run: Seen) -> None:
    record = run.record
    assert record["metrics"].get("vcpuUsed", {"max": 0})["max"] <= record["visible"]["cpus"]


@pytest.mark.parametrize("family", ["spike", "two-monitors"])
def test_a_spike_of_400_ms_is_in_the_peak_of_a_late_monitor(run: Seen) -> None:
    metrics = run.record["metrics"]
    assert metrics["memoryPeakSource"] == "kernel"
    assert 0.99 * SPIKE_MIB <= metrics["maxMemoryUsedMB"] <= SPIKE_MIB + _START_MIB


def test_an_end_for_lack_of_memory_is_certain(day: Day) -> None:
    record = day.runs["greedy"].record
    assert record["likelyOutOfMemory"] is True
    assert record["outOfMemoryEvidence"] == "kernel-counter"
    others = [
        family
        for family, run in day.runs.items()
        if any(one.get("likelyOutOfMemory") for one in run.reports)
    ]
    assert others == ["greedy"]


def test_the_report_of_a_restarted_container_covers_all_attempts(day: Day) -> None:
    record = day.runs["again"].record
    assert record["container"]["restarts"] == 1
    assert record["metrics"]["durationMs"] >= 1500


def test_a_monitor_that_came_later_says_that_the_series_has_a_hole(day: Day) -> None:
    record = day.runs["two-monitors"].record
    assert "started after the batch" in record["monitor"]["warnings"][0]
    assert record["series"]["vcpuUsed"][0] is None
    assert record["series"]["vcpuUsed"][-1] is not None


def test_sixty_tasks_at_once_have_their_own_numbers(
    day: Day, capsys: pytest.CaptureFixture[str]
) -> None:
    for run in [day.runs[job.family] for job in CROWD]:
        test_each_task_has_one_report_in_the_stream_of_its_batch(run)
        test_the_numbers_are_those_of_the_batch_and_of_the_kernel(run)
    with capsys.disabled():
        print(  # noqa: T201
            f"\n60 tasks cost {day.cost_percent:.3f} % of a core, "
            f"with their processes {day.cost_with_processes_percent:.3f} %"
        )


def test_the_processes_of_a_batch_are_seen_from_the_hosts_namespace(day: Day) -> None:
    record = day.runs[CHILDREN.family].record
    names = {process["name"] for process in record["processes"]}
    assert {"sh", "python3", "sleep"} <= names
    parts = record["timeBreakdown"]
    assert {"onCpuPercent", "waitingForCpuPercent"} <= parts.keys()


def test_the_tasks_of_services_have_no_report(day: Day) -> None:
    assert day.runs["service"].reports == ()


def test_no_value_of_an_environment_variable_is_written(day: Day) -> None:
    assert "two-dockerds" in day.written
    assert CANARY not in day.written
