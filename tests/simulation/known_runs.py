"""Runs the programs of known_programs.py: by ``task-profiler run``, and beside a monitor.

The monitor watches a simulated task whose batch is the program. With root's capabilities, the
monitor sees what ``SYS_PTRACE`` shows; without any, what every container sees.
"""

import contextlib
import json
import os
import socketserver
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Literal

import msgspec
from msgspec import Struct

from profiler.core.clock import SystemClock
from profiler.record.record_model import Record, Report, decode
from profiler.record.stacks_line import StacksLine, decode_stacks_line
from profiler.runs.history.run_database import HistoryStore
from tests.task_endpoint import GROUP, STREAM, Task, TaskEndpoint
from tools.moto_server import fake_aws
from tools.waiting import LIMIT_SECONDS

_PROGRAM = Path(__file__).with_name("known_programs.py")
_PROFILER = (sys.executable, "-m", "profiler")
WITHOUT_CAPABILITIES = ("setpriv", "--bounding-set", "-all", "--inh-caps", "-all")
_DISK_FILE_BYTES = 8 << 20
_DISK_BYTES_PER_SECOND = 2 << 20
_PERIOD_US = 100_000
_MAX_CPU_SHARES = 262144
# The monitor starts meanwhile, in a wait that counts as ``other``, as does the time before its
# first sample.
_FIRST_PHASE = "pause:6"
_CGROUPS = Path("/sys/fs/cgroup")
_CONTROLLERS = ("cpu", "memory", "blkio", "pids")
# As root, runs a command that can make no control group: they are read-only, as in most containers.
WITHOUT_GROUPS = (
    *("unshare", "--mount", "sh", "-ec"),
    (
        "while read -r _ _ _ _ place _; do case $place in /sys/fs/cgroup*)"
        ' mount -o remount,bind,ro "$place";; esac; done < /proc/self/mountinfo; exec "$@"'
    ),
    "sh",
)
_HEAD_BYTES = 200  # of a line: its type

Mode = Literal["run", "monitor", "monitor without SYS_PTRACE"]
MODES: tuple[Mode, ...] = ("run", "monitor", "monitor without SYS_PTRACE")


class PhaseTruth(Struct, frozen=True, kw_only=True):
    """A phase as the program itself measured it."""

    phase: str
    began_ns: int
    ended_ns: int
    cpu_seconds: float
    wait_seconds: float

    @property
    def seconds(self) -> float:
        return (self.ended_ns - self.began_ns) / 1e9


class Limits(Struct, frozen=True, kw_only=True):
    """The limits of a program's control group, which it does not need without any."""

    cpus: float | None = None
    memory_mib: int | None = None
    has_slow_disk: bool = False


class Observation(Struct, frozen=True, kw_only=True):
    """A run of a program: what it says, what was measured, and how long and how often its control
    group was throttled.
    """

    phases: tuple[PhaseTruth, ...]
    record: Record
    stacks: StacksLine | None = None
    throttled_seconds: float | None = None
    throttles: int = 0
    port: int
    disk_file: str


class _Answers(socketserver.BaseRequestHandler):
    def handle(self) -> None:
        while request := self.request.recv(64):
            time.sleep(float(request))
            self.request.sendall(b".")


class _Server(socketserver.ThreadingTCPServer):
    allow_reuse_address = True
    daemon_threads = True


@contextlib.contextmanager
def answering_server() -> Iterator[int]:
    """Serve on a free port of the loopback interface; answers each request, a number of seconds,
    after this time.
    """
    with _Server(("127.0.0.1", 0), _Answers) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield server.server_address[1]
        server.shutdown()


@contextlib.contextmanager
def control_group(limits: Limits, name: str, disk_file: Path) -> Iterator[tuple[Path, ...]]:
    """A control group with limits in each of version 1's hierarchies."""
    folders = {name_: _CGROUPS / name_ / name for name_ in _CONTROLLERS}
    try:
        for folder in folders.values():
            folder.mkdir(exist_ok=True)
        if limits.cpus is not None:
            (folders["cpu"] / "cpu.cfs_quota_us").write_text(str(round(limits.cpus * _PERIOD_US)))
            # So that the program waits for its quota and hardly for other programs.
            (folders["cpu"] / "cpu.shares").write_text(str(_MAX_CPU_SHARES))
        if limits.memory_mib is not None:
            (folders["memory"] / "memory.limit_in_bytes").write_text(str(limits.memory_mib << 20))
        if limits.has_slow_disk:
            device = disk_file.stat().st_dev
            limit = f"{os.major(device)}:{os.minor(device)} {_DISK_BYTES_PER_SECOND}"
            (folders["blkio"] / "blkio.throttle.read_bps_device").write_text(limit)
        yield tuple(folders.values())
    finally:
        for folder in folders.values():
            with contextlib.suppress(OSError):
                folder.rmdir()


@contextlib.contextmanager
def _counted_cpu(task: Task) -> Iterator[Path]:
    """A control group of the batch's whose CPU time the task's statistics have."""
    folder = _CGROUPS / "cpuacct" / task.docker_id("batch")
    folder.mkdir(exist_ok=True)
    task.cpu_file = folder / "cpuacct.usage"
    try:
        yield folder
    finally:
        with contextlib.suppress(OSError):
            folder.rmdir()


def can_limit() -> bool:
    """Whether this machine has the control groups that the scenarios with limits use (version 1,
    root).
    """
    return os.geteuid() == 0 and all(
        (_CGROUPS / name / "cgroup.procs").exists() for name in _CONTROLLERS
    )


def _throttled(folders: Sequence[Path]) -> tuple[float, int]:
    """For how many seconds a group has been throttled so far, and how often."""
    rows = dict(line.split() for line in (folders[0] / "cpu.stat").read_text().splitlines())
    return int(rows["throttled_time"]) / 1e9, int(rows["nr_throttled"])


def _inside(folders: Sequence[Path], command: Sequence[str]) -> list[str]:
    """The command that enters control groups and becomes another command."""
    if not folders:
        return list(command)
    enter = "".join(f"echo $$ > {folder}/cgroup.procs && " for folder in folders)
    return ["sh", "-c", f'{enter}exec "$@"', "sh", *command]


class Execution(Struct, frozen=True, kw_only=True):
    """A program with its surroundings, ready to be run."""

    task: Task
    program: tuple[str, ...]
    folders: tuple[Path, ...]
    folder: Path
    interval_seconds: float

    def by_run(self) -> tuple[Record, StacksLine | None]:
        """Run the program by ``task-profiler run``.

        The profiler shares the memory limit, which it reads. If it shared the CPU limit, the group
        would be throttled for its sake, too.
        """
        own = [folder for folder in self.folders if folder.parent.name == "memory"]
        others = [folder for folder in self.folders if folder not in own]
        output, history = self.folder / "report.json", self.folder / "history.sqlite3"
        options = ["--interval", str(self.interval_seconds), "--output", str(output)]
        command = [*_PROFILER, "run", *options, "--stacks", "--", *_inside(others, self.program)]
        environment = {**os.environ, "TASK_PROFILER_HISTORY": str(history)}
        subprocess.run(_inside(own, command), env=environment, check=False, timeout=LIMIT_SECONDS)
        report = last_report(output.read_bytes().splitlines())
        return report.record, HistoryStore(history, SystemClock()).stacks(report)

    def by_monitor(
        self, *, is_privileged: bool, enter: Sequence[str] = ()
    ) -> tuple[Record, StacksLine | None]:
        """Run the program beside a monitor that watches it; ``enter`` is what the monitor's
        command follows.
        """
        task = self.task
        task_group = control_group(Limits(), task.docker_id("batch"), self.folder)
        settings = {
            "TASK_PROFILER_CONTAINER": "batch",
            "TASK_PROFILER_INTERVAL_SECONDS": str(self.interval_seconds),
            "TASK_PROFILER_STACKS": "on",
        }
        with contextlib.ExitStack() as stack:
            aws = stack.enter_context(fake_aws())
            aws.create_log_group(GROUP)
            aws.create_log_stream(GROUP, STREAM)
            address = stack.enter_context(TaskEndpoint(task)).address
            folders = self.folders or stack.enter_context(task_group)
            counted = stack.enter_context(_counted_cpu(task))
            task.started = time.time()
            batch = subprocess.Popen(_inside((*folders, counted), self.program))
            monitor = subprocess.Popen(
                [*enter, *(() if is_privileged else WITHOUT_CAPABILITIES), *_PROFILER, "monitor"],
                env={**aws.environment(), **settings, "ECS_CONTAINER_METADATA_URI_V4": address},
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
            )
            end = time.monotonic() + LIMIT_SECONDS
            try:
                batch.wait(end - time.monotonic())
                task.ended = time.time()
                monitor.wait(end - time.monotonic())
            finally:
                for process in (batch, monitor):
                    process.kill()
                    process.wait()
            lines = [event.message.encode() for event in aws.events(GROUP, STREAM)]
        stacks = [
            decode_stacks_line(line) for line in lines if b'"task.stacks"' in line[:_HEAD_BYTES]
        ]
        return last_report(lines).record, stacks[-1] if stacks else None


def last_report(lines: Sequence[bytes]) -> Report:
    reports = [line for line in lines if b'"task.report"' in line[:_HEAD_BYTES]]
    if not reports:
        raise AssertionError(f"The profiler wrote no report, but {lines!r}.")
    return decode(reports[-1])


def read_truth(path: Path) -> tuple[PhaseTruth, ...]:
    """The phases that a program has written; a phase in which it was killed ends now."""
    phases: list[PhaseTruth] = []
    began: tuple[str, int] | None = None
    for line in path.read_text().splitlines():
        document = json.loads(line)
        if "began" in document:
            began = document["began"], document["at_ns"]
        else:
            phases.append(msgspec.convert(document, PhaseTruth))
            began = None
    if began is not None:
        name, at_ns = began
        phases.append(
            PhaseTruth(
                phase=name, began_ns=at_ns, ended_ns=time.time_ns(), cpu_seconds=0, wait_seconds=0
            )
        )
    return tuple(phases)


def observe(
    phases: Sequence[str], mode: Mode, *, limits: Limits, interval_seconds: float
) -> Observation:
    """Run a program in one of the ways, and read its truth."""
    with contextlib.ExitStack() as stack:
        # Not in /tmp, which may be in memory.
        folder = Path(
            stack.enter_context(
                tempfile.TemporaryDirectory(prefix="known-program-", dir="/var/tmp")
            )
        )
        disk_file, truth = folder / "disk", folder / "truth.jsonl"
        disk_file.write_bytes(os.urandom(_DISK_FILE_BYTES))
        os.sync()
        task = Task(2)
        group = control_group(limits, task.docker_id("batch"), disk_file)
        groups = () if limits == Limits() else stack.enter_context(group)
        port = stack.enter_context(answering_server())
        first = () if mode == "run" else (_FIRST_PHASE,)
        execution = Execution(
            task=task,
            program=(
                sys.executable,
                str(_PROGRAM),
                str(truth),
                str(port),
                str(disk_file),
                *first,
                *phases,
            ),
            folders=groups,
            folder=folder,
            interval_seconds=interval_seconds,
        )
        seconds_before, throttles_before = _throttled(groups) if groups else (0.0, 0)
        is_run, is_privileged = mode == "run", mode == "monitor"
        record, stacks = (
            execution.by_run() if is_run else execution.by_monitor(is_privileged=is_privileged)
        )
        seconds, throttles = _throttled(groups) if groups else (0.0, 0)
        return Observation(
            phases=read_truth(truth),
            record=record,
            stacks=stacks,
            throttled_seconds=seconds - seconds_before if groups else None,
            throttles=throttles - throttles_before,
            port=port,
            disk_file=str(disk_file),
        )
