"""Tasks of an instance with cgroup v2: containers of a real Docker daemon, in the slices that
the ECS agent makes.
"""

import contextlib
import inspect
import json
import os
import secrets
import signal
import subprocess
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from msgspec import Struct

from tests.e2e.engine import DockerError, Engine
from tests.e2e.images import BASE_IMAGE
from tests.e2e.task import MetadataEndpoint
from tools.waiting import READINGS_OF_FILES, wait_until

PYTHON = "/usr/bin/python3"
_SECONDS = 1800.0
_ARN = "arn:aws:ecs:eu-west-1:111122223333:task/jobs/"
_CGROUPS = Path("/sys/fs/cgroup")
_SYSTEMD = (
    "org.freedesktop.systemd1",
    "/org/freedesktop/systemd1",
    "org.freedesktop.systemd1.Manager",
)


def counted(group: Path) -> dict[str, int]:
    """What the kernel counts for a group."""
    cpu_us, mark = (group / "cpu.stat").read_text().split()[1], (group / "memory.peak").read_text()
    kills = (group / "memory.events").read_text().partition("oom_kill ")[2].split()[0]
    return {"cpuNs": int(cpu_us) * 1000, "markBytes": int(mark), "kills": int(kills)}


_PROGRAM = f"""
import json, os, signal, sys, time
from pathlib import Path
{READINGS_OF_FILES}
{inspect.getsource(counted)}
def burn(seconds):
    end = time.process_time() + seconds
    while time.process_time() < end: pass
def write(mib):
    with open("/file", "wb") as file:
        for i in range(mib): file.write(bytes(2**20))
signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGUSR1])
signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
print("ready", flush=True)
%s
print(json.dumps(counted(Path("/sys/fs/cgroup"))), flush=True)
"""
_UNTIL_USR1 = "burn(0.5); signal.sigwait([signal.SIGUSR1])"
_GROW = "x = bytearray(2**30)"
_SPIKE = "x = bytearray(200 * 2**20)"
_OTHER = "burn(1); x = bytearray(50 * 2**20)"
_HOLDS = "wait_until_read('/sys/fs/cgroup/memory.stat', seconds=3 * 3600)"  # by the monitor
_SMALL = ("--memory=128m", "--memory-swap=128m")
REPLACED, RESTARTED = "instance_monitor_replaced", "instance_dockerd_restarted"


class Batch(Struct, frozen=True, kw_only=True):
    """A batch in a task of its own. ``other`` is the program of another container."""

    program: str
    exit_code: int = 0
    other: str | None = None
    options: tuple[str, ...] = ("--memory=512m",)
    task_memory_mib: int = 1024
    has_slice: bool = True
    scenario: str = "instance_tasks"


BATCHES = {
    "burner": Batch(program="burn(2)"),
    "two_containers": Batch(program=f"burn(2); {_HOLDS}", other=f"{_OTHER}; signal.pause()"),
    "failing": Batch(program="burn(0.5); sys.exit(3)", exit_code=3),
    "killed": Batch(program=_GROW, options=_SMALL, exit_code=137),
    "killed_in_the_task": Batch(program=_GROW, options=(), task_memory_mib=128, exit_code=137),
    "child_killed": Batch(
        program="os.fork() or bytearray(2**30); os.wait(); time.sleep(1); sys.exit(5)",
        options=_SMALL,
        exit_code=5,
    ),
    "spike_0": Batch(program=f"{_SPIKE}; time.sleep(0.4); del x"),
    "spike_0.6": Batch(program=f"time.sleep(0.6); {_SPIKE}; time.sleep(0.4); del x"),
    "spike_at_the_end": Batch(program=f"time.sleep(1.5); {_SPIKE}"),
    "file_written": Batch(program=f"x = bytearray(30 * 2**20); write(200); {_HOLDS}"),
    "file_deleted": Batch(program=f"write(200); {_HOLDS}; os.unlink('/file'); {_HOLDS}"),
    "moment": Batch(program="true"),
    "no_slice": Batch(program=f"burn(2); x = bytearray(100 * 2**20); {_HOLDS}", has_slice=False),
    "stopped": Batch(program="burn(1); signal.pause()", exit_code=143),
    "through": Batch(program=_UNTIL_USR1, scenario=REPLACED),
    "away": Batch(program=_UNTIL_USR1, scenario=REPLACED),
    # The other one ends while the batch runs: what Docker does to start a container counts in the
    # container's group, too.
    "other_was_reported": Batch(
        program=_UNTIL_USR1,
        other=f"{_OTHER}; signal.sigwait([signal.SIGUSR1])",
        scenario=REPLACED,
    ),
    "without_dockerd": Batch(program=_UNTIL_USR1, scenario=RESTARTED),
    "killed_without_dockerd": Batch(
        program=f"{_UNTIL_USR1}; {_GROW}", options=_SMALL, exit_code=137, scenario=RESTARTED
    ),
    "two_dockerds": Batch(program=_UNTIL_USR1, scenario=RESTARTED),
}


class Instance:
    """The instance's monitor, and tasks that do not know it."""

    def __init__(self, engine: Engine, checkout: Path) -> None:
        self._engine = engine
        self._endpoint = MetadataEndpoint(self._document)
        self._mounts = ("--volume=/usr:/usr:ro", f"--volume={checkout}:{checkout}:ro")
        self._ids = {name: secrets.token_hex(16) for name in BATCHES}
        self._containers: dict[tuple[str, str], str] = {}  # by batch and name
        self._monitors: list[str] = []
        self._stopped_by_agent: set[str] = set()
        self._start_monitor()

    def run_tasks(self) -> Mapping[str, Any]:
        *names, stopped = (
            name for name, batch in BATCHES.items() if batch.scenario == "instance_tasks"
        )
        for first in range(0, len(names), 4):
            self._start(*names[first : first + 4])
            self._finish(*names[first : first + 4])
        self._start(stopped)
        self._stopped_by_agent.add(stopped)
        self._engine.command("stop", self._containers[stopped, "batch"])
        self._finish(stopped)
        return self._seen()

    def replace_monitor(self) -> Mapping[str, Any]:
        """Kill it after the end of another container; a batch ends before its successor starts."""
        through, away, beside = names = [
            name for name, batch in BATCHES.items() if batch.scenario == REPLACED
        ]
        self._start(*names)
        other = self._containers[beside, "other"]
        _wait(lambda: "ready" in _output(other), "the other container")
        self._go_on(beside, "other")
        _wait(lambda: self._reports(beside, "other"), "the report of the other container")
        self._engine.command("kill", self._monitors[-1])
        self._go_on(away)
        self._wait_ended(away)
        self._start_monitor()
        self._finish(away)
        self._go_on(through)
        self._go_on(beside)
        self._finish(through, beside)
        return self._seen()

    def restart_dockerd(self) -> Mapping[str, Any]:
        """All batches but the last one end meanwhile."""
        names = [name for name, batch in BATCHES.items() if batch.scenario == RESTARTED]
        self._start(*names)
        pids = [int(self._state(name)["Pid"]) for name in names[:-1]]
        subprocess.run(("systemctl", "stop", "docker.socket", "docker.service"), check=True)
        for pid in pids:
            os.kill(pid, signal.SIGUSR1)
        _wait(lambda: not any(Path(f"/proc/{pid}").exists() for pid in pids), "the batches' ends")
        subprocess.run(("systemctl", "start", "docker.service"), check=True)
        self._go_on(names[-1])
        self._finish(*names)
        return self._seen()

    def _start_monitor(self) -> None:
        """As taskdef/instance-monitor.json does; return when it receives Docker's events."""
        before = self._engine.api.call("GET", "/info")["NEventsListener"]
        options = [
            "--cap-drop=ALL",
            "--read-only",
            "--memory=128m",
            "--volume=state:/var/lib/task-profiler",
        ]
        options += [f"--volume={folder}:{folder}:ro" for folder in ("/var/run", _CGROUPS)]
        options += ["--env=TASK_PROFILER_SCOPE=instance", "--env=AWS_EC2_METADATA_DISABLED=true"]
        command = (PYTHON, "-B", "-m", "profiler", "monitor")
        self._monitors.append(
            self._run(secrets.token_hex(16), "task-monitor", "monitor", *options, command=command)
        )
        _wait(
            lambda: self._engine.api.call("GET", "/info")["NEventsListener"] > before, "the monitor"
        )

    def _start(self, *names: str) -> None:
        for name in names:
            batch = BATCHES[name]
            parent = (f"--cgroup-parent={self._make_slice(name)}",) if batch.has_slice else ()
            for container, program in (("other", batch.other), ("batch", batch.program)):
                if program is not None:
                    command = (
                        (program,)
                        if program == "true"
                        else (PYTHON, "-B", "-c", _PROGRAM % program)
                    )
                    docker_id = self._run(
                        self._ids[name], container, name, *parent, *batch.options, command=command
                    )
                    self._containers[name, container] = docker_id
        for name in names:
            _wait(
                lambda: (
                    "ready" in _output(self._containers[name, "batch"])  # noqa: B023
                    or BATCHES[name].program == "true"  # noqa: B023
                ),
                name,
            )

    def _make_slice(self, name: str) -> str:
        """As the agent's cgroupv2_controller_linux.go does: the slice stays until the agent
        stops it.
        """
        unit, limit_bytes = f"ecstasks-{self._ids[name]}.slice", BATCHES[name].task_memory_mib << 20
        accounting = "MemoryAccounting b true CPUAccounting b true IOAccounting b true"
        properties = (
            f"6 DefaultDependencies b false {accounting} Wants as 1 system.slice MemoryMax t "
            f"{limit_bytes} 0"
        )
        call = (
            "busctl",
            "--quiet",
            "call",
            *_SYSTEMD,
            "StartTransientUnit",
            "ssa(sv)a(sa(sv))",
            unit,
            "replace",
        )
        subprocess.run((*call, *properties.split()), check=True)
        _wait((_CGROUPS / "ecstasks.slice" / unit).is_dir, unit)
        return unit

    def _run(
        self, task: str, container: str, family: str, *options: str, command: tuple[str, ...]
    ) -> str:
        labels = {
            "container-name": container,
            "task-arn": f"{_ARN}{task}",
            "task-definition-family": family,
        }
        shown = [f"--label=com.amazonaws.ecs.{key}={value}" for key, value in labels.items()]
        address = f"--env=ECS_CONTAINER_METADATA_URI_V4={self._endpoint.url}/v4/{task}"
        given = (
            "--detach",
            "--network=host",
            "--log-driver=json-file",
            address,
            *shown,
            *self._mounts,
            *options,
        )
        return self._engine.command("run", *given, BASE_IMAGE, *command).strip()

    def _document(self, endpoint_id: str, path: str) -> dict[str, Any] | None:
        """What the agent says of a task: it stops when its batch has ended, or when the agent
        stops it.
        """
        name = next((name for name, one in self._ids.items() if one == endpoint_id), None)
        if name is None or path != "/task":
            return None
        containers = []
        for container in ("other", "batch") if BATCHES[name].other is not None else ("batch",):
            shown = {"Name": container, "KnownStatus": "PULLED"}
            with contextlib.suppress(OSError, DockerError, KeyError):
                state = self._state(name, container)
                shown["KnownStatus"] = "RUNNING" if state["Running"] else "STOPPED"
                shown |= {
                    "StartedAt": state["StartedAt"],
                    "DockerId": self._containers[name, container],
                }
            containers.append(shown)
        head = {
            "TaskARN": f"{_ARN}{endpoint_id}",
            "Family": name,
            "Revision": "1",
            "Containers": containers,
        }
        known = "STOPPED" if containers[-1]["KnownStatus"] == "STOPPED" else "RUNNING"
        desired = "STOPPED" if name in self._stopped_by_agent else known
        return {**head, "DesiredStatus": desired, "KnownStatus": known}

    def _state(self, name: str, container: str = "batch") -> Any:
        return self._engine.api.call(
            "GET", f"/containers/{self._containers[name, container]}/json"
        )["State"]

    def _go_on(self, name: str, container: str = "batch") -> None:
        self._engine.command("kill", "--signal=USR1", self._containers[name, container])

    def _wait_ended(self, name: str) -> None:
        _wait(lambda: not self._state(name)["Running"], f"the end of {name}")

    def _finish(self, *names: str) -> None:
        """Stop the other containers when the batches have ended, as the agent does, and wait for
        the reports.
        """
        for name in names:
            self._wait_ended(name)
            if (name, "other") in self._containers:
                self._engine.command("stop", self._containers[name, "other"])
        for name in names:
            _wait(lambda: self._reports(name, "batch"), f"the report of {name}")  # noqa: B023

    def _reports(self, name: str, container: str) -> list[Any]:
        lines = [line for one in self._monitors for line in _output(one).splitlines()]
        found = [
            json.loads(line) for line in lines if "task.report" in line and self._ids[name] in line
        ]
        return [one for one in found if one["record"]["container"]["name"] == container]

    def _seen(self) -> Mapping[str, Any]:
        """By batch and container the reports, the last reading of its own group, and Docker's
        state.
        """
        time.sleep(5)  # for a second report, which would be wrong
        seen: dict[str, Any] = {}
        for (name, container), docker_id in self._containers.items():
            group = _CGROUPS / "ecstasks.slice" / f"ecstasks-{self._ids[name]}.slice"
            task = seen.setdefault(
                name, {"task": counted(group) if BATCHES[name].has_slice else None}
            )
            lines = [line for line in _output(docker_id).splitlines() if line.startswith("{")]
            reports, state = self._reports(name, container), self._state(name, container)
            task[container] = {
                "reports": reports,
                "own": json.loads(lines[-1]) if lines else None,
                "state": state,
            }
        self._engine.command("rm", "--force", *self._containers.values(), *self._monitors)
        return seen


def _wait(check: Callable[[], object], what: str) -> None:
    """Look twice a second: each look costs dockerd the time of an emulated processor."""
    wait_until(check, what, step_seconds=0.5, seconds=_SECONDS)


def _output(docker_id: str) -> str:
    """What a container has printed, also while dockerd is away."""
    log = Path("/var/lib/docker/containers", docker_id, f"{docker_id}-json.log")
    lines = log.read_text().splitlines() if log.exists() else ()
    return "".join(one["log"] for one in map(json.loads, lines) if one["stream"] == "stdout")
