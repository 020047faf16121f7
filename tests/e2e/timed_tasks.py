"""Programs that know how their time was spent, in containers that monitors watch: from their
tasks, and for the whole instance.

Their reports are in the logs of the monitors: the batches have no log group.
"""

import json
import signal
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, Literal

from msgspec.structs import replace

from profiler.record.record_model import Record, decode
from tests.e2e.container import BATCH, ContainerSpec, monitor_container
from tests.e2e.engine import Engine
from tests.e2e.images import BASE_IMAGE
from tests.e2e.task import Task
from tests.integration.sidecar import NO_AWS
from tests.programs.phases import FOLDER
from tests.timed_programs import Program
from tests.timed_runs import ROOT, Observation, prepared, truth_of
from tests.true_parts import as_level_1_knows
from tools.waiting import has_signal_handler, wait_until

# In the containers.
_SOURCES, _WRITTEN = "/sources", "/tmp"
_SAMPLES = 3
_KNOWN = {"python": "python3", "sources": f"{_SOURCES}/tests/programs", "folder": _WRITTEN}

# Level 2 has SYS_PTRACE, level 1 only sees the processes.
Watcher = Literal["sidecar 2", "sidecar 1", "instance 2", "instance 1"]
SIDECARS: tuple[Watcher, ...] = ("sidecar 2", "sidecar 1")
INSTANCES: tuple[Watcher, ...] = ("instance 2", "instance 1")


def run_beside_sidecar(
    engine: Engine, program: Program, watcher: Watcher, monitors: Mapping[Watcher, Task]
) -> Mapping[Watcher, Observation]:
    """Run the program in a task whose monitor watches it, as do those of the instance."""
    with _batch(program) as (batch, folder):
        sidecar = _sidecar(watcher, program)
        with Task(engine, batch, sidecar, pid_mode_task=True) as task:
            task.start()
            wait_until(
                lambda: task.endpoint.paths.count("/task/stats") >= _SAMPLES,
                "the monitor to begin",
            )
            _let_begin(engine, task)
            task.wait_stopped()
            _take_phases(engine, task, folder)
            report = _reports(task, sidecar.name)[task.task_id]
            seen = _reported_by(monitors, task, program, folder)
            return {watcher: _observation(watcher, report, program, folder), **seen}


@contextmanager
def instance_monitors(engine: Engine) -> Iterator[Mapping[Watcher, Task]]:
    """Run a monitor of each level for all tasks of this machine."""
    with ExitStack() as stack:
        tasks: dict[Watcher, Task] = {}
        for watcher in INSTANCES:
            monitor = _instance_monitor(watcher, engine)
            tasks[watcher] = stack.enter_context(Task(engine, monitor))
            tasks[watcher].start()
        yield tasks


def run_on_instance(
    engine: Engine, program: Program, monitors: Mapping[Watcher, Task]
) -> Mapping[Watcher, Observation]:
    """Run the program in a task that knows nothing of the monitors."""
    with _batch(program) as (batch, folder), Task(engine, batch) as task:
        task.start()
        wait_until(lambda: task[BATCH].stats, "the batch to run for a second")
        _let_begin(engine, task)
        task.wait_stopped()
        _take_phases(engine, task, folder)
        return _reported_by(monitors, task, program, folder)


def _reported_by(
    monitors: Mapping[Watcher, Task], task: Task, program: Program, folder: Path
) -> dict[Watcher, Observation]:
    """What the monitors of the instance say of a task that has ended."""
    seen: dict[Watcher, Observation] = {}
    for watcher, monitor in monitors.items():
        report = wait_until(
            lambda: _reports(monitor, _name(watcher)).get(task.task_id),  # noqa: B023
            f"the report of {watcher}",
        )
        seen[watcher] = _observation(watcher, report, program, folder)
    return seen


@contextmanager
def _batch(program: Program) -> Iterator[tuple[ContainerSpec, Path]]:
    """The batch's container, and a folder for its phases. It waits until it may begin."""
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="timed-")))
        words = stack.enter_context(prepared(program, folder, _KNOWN))
        late = ("python3", "-m", "tests.programs.late", "signal")
        yield (
            ContainerSpec(
                name=BATCH,
                image=BASE_IMAGE,
                command=(*late, *words),
                environment={
                    "PYTHONPATH": _SOURCES,
                    "PYTHONDONTWRITEBYTECODE": "1",
                    FOLDER: _WRITTEN,
                },
                memory_mib=1024,
                read_only_mounts=((ROOT, _SOURCES),),
            ),
            folder,
        )


def _sidecar(watcher: Watcher, program: Program) -> ContainerSpec:
    settings = {
        **NO_AWS,
        "TASK_PROFILER_CONTAINER": BATCH,
        "TASK_PROFILER_INTERVAL_SECONDS": str(program.interval_seconds),
    }
    monitor = monitor_container(settings, ptrace=watcher.endswith("2"))
    return replace(monitor, name=_name(watcher))


def _instance_monitor(watcher: Watcher, engine: Engine) -> ContainerSpec:
    settings = {
        **NO_AWS,
        "TASK_PROFILER_SCOPE": "instance",
        "TASK_PROFILER_PROCESSES": "on",
    }
    monitor = monitor_container(settings, as_root=True, depends_on=(), memory_mib=256)
    return replace(
        monitor,
        name=_name(watcher),
        essential=True,
        sees_all_processes=True,
        drop_capabilities=True,
        add_capabilities=("SYS_PTRACE",) if watcher.endswith("2") else (),
        read_only_mounts=(
            (engine.api.socket_path.parent, "/var/run"),
            (Path("/sys/fs/cgroup"), "/sys/fs/cgroup"),
        ),
    )


def _take_phases(engine: Engine, task: Task, folder: Path) -> None:
    """Copy what the program has written; raises AssertionError if it failed."""
    batch = task[BATCH]
    assert batch.facts.exit_code == 0, batch.logs()
    engine.command("cp", f"{batch.facts.docker_id}:{_WRITTEN}/.", str(folder))


def _reports(task: Task, monitor: str) -> dict[str, bytes]:
    """The reports on batches in a monitor's log, by the ids of their tasks."""
    output, _ = task[monitor].logs()
    lines: list[dict[str, Any]] = [json.loads(line) for line in output.splitlines()]
    return {
        line["record"]["taskId"]: json.dumps(line).encode()
        for line in lines
        if line["type"] == "task.report"
        and line["record"]["status"] != "running"
        and line["record"]["container"]["name"] == BATCH
    }


def _observation(watcher: Watcher, report: bytes, program: Program, folder: Path) -> Observation:
    record: Record = decode(report).record
    truth = truth_of(folder, record, program.cpus)
    if watcher.endswith("1"):
        truth = as_level_1_knows(truth)
    return Observation(truth=truth, record=record)


def _name(watcher: Watcher) -> str:
    return watcher.replace(" ", "-")


def _let_begin(engine: Engine, task: Task) -> None:
    """Send the signal that the program waits for, as soon as it does: a container's first process
    gets none before.
    """
    docker_id = task[BATCH].facts.docker_id
    pid = int(engine.command("inspect", "--format={{.State.Pid}}", docker_id))
    wait_until(lambda: has_signal_handler(pid, signal.SIGALRM), "the program to wait")
    engine.command("kill", "--signal=ALRM", docker_id)
