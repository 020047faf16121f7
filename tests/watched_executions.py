"""One execution of a program that knows how its time was spent, watched by ``run`` and by the
monitors of a simulated task, of both levels, at once.
"""

import contextlib
import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Literal

from profiler.record.record_model import Record, decode
from tests.integration.sidecar import NO_AWS
from tests.simulation.known_runs import (
    WITHOUT_CAPABILITIES,
    Limits,
    control_group,
    last_report,
)
from tests.task_endpoint import Task, TaskEndpoint
from tests.timed_programs import Program
from tests.timed_runs import Observation, environment, folders, prepared, truth_of
from tests.true_parts import as_level_1_knows
from tools.waiting import LIMIT_SECONDS, has_signal_handler, wait_until

Watcher = Literal["run", "sidecar 2", "sidecar 1"]
# A container sees no other control groups.
_WITHOUT_GROUPS = (
    *("unshare", "--mount", "sh", "-c"),
    (
        "for place in $(grep -E ' - cgroup2? ' /proc/self/mountinfo | cut -d' ' -f5 | tac);"
        ' do umount -l "$place" 2>/dev/null; done; exec "$@"'
    ),
    "sh",
)
_ENTER: Mapping[Watcher, tuple[str, ...]] = {
    "sidecar 2": _WITHOUT_GROUPS,
    "sidecar 1": (*_WITHOUT_GROUPS, *WITHOUT_CAPABILITIES),
}
# Below the group in which ``run`` counts the CPU time.
_ENTER_CPU_GROUP = "cpu=/sys/fs/cgroup/cpuacct$(grep :cpuacct: /proc/self/cgroup | cut -d: -f3)"
_PROFILER = (sys.executable, "-m", "profiler")
_SAMPLES = 3


def watch(program: Program) -> dict[Watcher, Observation]:
    """Run the program, which begins when all watch it; MissingError if this machine cannot."""
    with contextlib.ExitStack() as stack:
        folder, phases = stack.enter_context(folders())
        words = stack.enter_context(prepared(program, folder))
        task = Task(2)
        task.has_batch_begun = False
        limits = Limits(has_slow_disk="{slow_disk}" in program.command)
        groups = stack.enter_context(control_group(limits, task.docker_id("batch"), folder))
        join = "".join(f"echo $$ > {group}/cgroup.procs; " for group in groups)
        started = folder / "started"
        enter = f"{_ENTER_CPU_GROUP}/{task.docker_id('batch')}; {join}"
        enter += f'mkdir $cpu; echo $$ > $cpu/cgroup.procs; echo $$ > {started}; exec "$@"'
        late = (sys.executable, "-m", "tests.programs.late", "signal")
        report = folder / "report"
        options = ("--interval", str(program.interval_seconds), "--output", str(report))
        command = (*_PROFILER, "run", *options, "--no-history", "--", "sh", "-c", enter, "sh")
        run = subprocess.Popen(
            [*command, *late, *words],
            env={**os.environ, **environment(phases)},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
        )
        try:
            with contextlib.ExitStack() as monitors:
                outputs = [
                    monitors.enter_context(_monitor(watcher, task, program, folder))
                    for watcher in _ENTER
                ]
                wait_until(lambda: started.exists() and started.read_text(), "the batch to begin")
                pid = int(started.read_text())
                task.cpu_file = stack.enter_context(_counted_cpu(pid))
                task.started = started.stat().st_mtime
                task.has_batch_begun = True
                wait_until(lambda: has_signal_handler(pid, signal.SIGALRM), "the batch to wait")
                seen = task.stats_reads + _SAMPLES * len(_ENTER)
                wait_until(lambda: task.stats_reads >= seen, "the monitors")
                batch = monitors.enter_context(os.fdopen(os.pidfd_open(pid), "rb", 0))
                os.kill(pid, signal.SIGALRM)
                assert select.select([batch], [], [], LIMIT_SECONDS)[0]
                task.ended = time.time()  # `run` still makes its report
                assert run.wait(LIMIT_SECONDS) == 0
        finally:
            run.kill()
            run.wait()
        records: dict[Watcher, Record] = {
            "run": decode(report.read_bytes().splitlines()[-1]).record,
            **{
                watcher: last_report(output.read_bytes().splitlines()).record
                for watcher, output in zip(_ENTER, outputs, strict=True)
            },
        }
        return {
            watcher: _observation(watcher, record, phases, program)
            for watcher, record in records.items()
        }


@contextlib.contextmanager
def _counted_cpu(pid: int) -> Iterator[Path]:
    """The file with the CPU time of the batch's group, which ``run`` cannot remove."""
    rows = (line.split(":") for line in Path(f"/proc/{pid}/cgroup").read_text().splitlines())
    (group,) = (path for _, controllers, path in rows if controllers == "cpuacct")
    folder = Path(f"/sys/fs/cgroup/cpuacct{group}")
    try:
        yield folder / "cpuacct.usage"
    finally:
        folder.rmdir()
        folder.parent.rmdir()


@contextlib.contextmanager
def _monitor(watcher: Watcher, task: Task, program: Program, folder: Path) -> Iterator[Path]:
    """A monitor of the task, until it has reported; the file has what it prints."""
    output = folder / watcher
    settings = {
        **NO_AWS,
        "TASK_PROFILER_CONTAINER": "batch",
        "TASK_PROFILER_INTERVAL_SECONDS": str(program.interval_seconds),
    }
    with TaskEndpoint(task) as endpoint, output.open("w") as printed:
        settings["ECS_CONTAINER_METADATA_URI_V4"] = endpoint.address
        monitor = subprocess.Popen(
            [*_ENTER[watcher], *_PROFILER, "monitor"],
            env={**os.environ, **settings},
            stdout=printed,
            stderr=subprocess.DEVNULL,
        )
        try:
            yield output
            monitor.wait(LIMIT_SECONDS)
        finally:
            monitor.kill()
            monitor.wait()


def _observation(watcher: Watcher, record: Record, phases: Path, program: Program) -> Observation:
    truth = truth_of(phases, record, program.cpus)
    if watcher.endswith("1"):
        truth = as_level_1_knows(truth)
    return Observation(truth=truth, record=record)
