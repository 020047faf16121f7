"""What a test asks for, in the words of a task definition, and a real container that is watched
as the ECS agent does.

Two threads follow a started container: one keeps the last document of Docker's stats stream, one
waits for the end. What they learn is in `facts`, an immutable value that is replaced as a whole, so
that readers need no lock.
"""

import contextlib
import http.client
import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from msgspec import Struct, field
from msgspec.structs import replace

from tests.e2e.engine import CALL_SECONDS, DockerError, Engine
from tests.e2e.images import BASE_IMAGE, MONITOR_IMAGE
from tests.e2e.kernel import (
    KernelAccounting,
    KernelReading,
    accounting_at,
    accounting_of,
    remove_cgroup,
)
from tools.waiting import LIMIT_SECONDS, wait_until

_MIB = 1024 * 1024
_NANO_CPUS = 1_000_000_000
_KERNEL_READ_SECONDS = 0.05
_NO_TIME = "0001-01-01"  # what Docker reports as the time of a sample it does not have


BATCH = "batch"
MONITOR = "task-monitor"

_BATCH_LOAD = Path(__file__).with_name("batch_load.py")
_MOUNTED = "/mounted"


class ContainerSpec(Struct, frozen=True, kw_only=True):
    """One container of the task definition; all `depends_on` are of the condition START."""

    name: str
    image: str
    command: tuple[str, ...] = ()
    environment: Mapping[str, str] = field(default_factory=dict)
    essential: bool = True
    depends_on: tuple[str, ...] = ()
    memory_mib: int | None = None
    cpus: float | None = None
    stop_timeout_seconds: int = 30
    user: str = ""
    read_only: bool = False
    drop_capabilities: bool = False
    add_capabilities: tuple[str, ...] = ()
    no_new_privileges: bool = False
    read_only_mounts: tuple[tuple[Path, str], ...] = ()
    mounts: Mapping[str, str] = field(default_factory=dict)  # their type, "volume" or "tmpfs"
    sees_all_processes: bool = False  # of the machine
    log_group: str | None = None
    type: str = "NORMAL"


def batch_container(
    *load: str,
    depends_on: tuple[str, ...] = (),
    memory_mib: int = 512,
    cpus: float | None = None,
    files_on: str | None = None,
) -> ContainerSpec:
    """Describe a batch that runs `batch_load.py` with these arguments.

    ``files_on``: its files are in a mount of this type, and not in the container's own layer.
    """
    return ContainerSpec(
        name=BATCH,
        image=BASE_IMAGE,
        command=("python3", "-B", "/batch_load.py", *load),
        depends_on=depends_on,
        memory_mib=memory_mib,
        cpus=cpus,
        read_only_mounts=((_BATCH_LOAD, "/batch_load.py"),),
        environment={} if files_on is None else {"TMPDIR": _MOUNTED},
        mounts={} if files_on is None else {_MOUNTED: files_on},
    )


def monitor_container(
    environment: Mapping[str, str],
    *,
    essential: bool = False,
    depends_on: tuple[str, ...] = (BATCH,),
    memory_mib: int = 128,
    as_root: bool = False,
    ptrace: bool = False,
) -> ContainerSpec:
    """Describe the product beside the batch, with no more rights than its task definition gives
    it.

    As root it has the capabilities that Docker gives, as a container without any settings does.
    With ``ptrace`` it is root and has SYS_PTRACE too, as ``--stacks`` sets it.
    """
    return ContainerSpec(
        name=MONITOR,
        image=MONITOR_IMAGE,
        command=("monitor",),
        # A report is printed where CloudWatch answers late.
        environment={"TASK_PROFILER_STOP_SECONDS": "800", **environment},
        essential=essential,
        depends_on=depends_on,
        memory_mib=memory_mib,
        stop_timeout_seconds=900,
        user="0" if as_root or ptrace else "65532",
        read_only=True,
        drop_capabilities=not (as_root or ptrace),
        add_capabilities=("SYS_PTRACE",) if ptrace else (),
        no_new_privileges=True,
    )


class Placement(Struct, frozen=True, kw_only=True):
    """What the task gives each of its containers."""

    docker_name: str
    environment: Mapping[str, str]
    labels: Mapping[str, str]
    cgroup_parent: str | None
    pid_mode: str
    stats_period_seconds: float = 0


class ContainerFacts(Struct, frozen=True, kw_only=True):
    """What is known of a container so far; times are Docker's own texts."""

    docker_id: str = ""
    image_id: str = ""
    known_status: str = "PULLED"
    created_at: str | None = None
    started_at: str | None = None
    finished_at: str | None = None
    exit_code: int | None = None
    oom_killed: bool = False

    @property
    def stopped(self) -> bool:
        return self.known_status == "STOPPED"


class RealContainer:
    """A container of a real Docker daemon, from creation to removal."""

    def __init__(
        self,
        engine: Engine,
        spec: ContainerSpec,
        placement: Placement,
        on_stopped: Callable[["RealContainer"], None],
    ) -> None:
        self.spec = spec
        self.placement = placement
        self.facts = ContainerFacts()
        self._engine = engine
        self._on_stopped = on_stopped
        self._stats: dict[str, Any] | None = None
        self._accounting: KernelAccounting | None = None
        self._last_kernel: KernelReading | None = None
        self._threads: list[threading.Thread] = []

    @property
    def stats(self) -> dict[str, Any] | None:
        """Return the last stats document, or None before the first one and as soon as the
        container has stopped.
        """
        return None if self.facts.stopped else self._stats

    def start(self) -> None:
        """Create and start the container and begin to follow it."""
        body = _creation(self.spec, self.placement)
        created = self._engine.api.call(
            "POST", "/containers/create", query={"name": self.placement.docker_name}, body=body
        )
        self.facts = replace(self.facts, docker_id=created["Id"])
        self._learn("CREATED")
        self._call("POST", "start")
        self._find_accounting(self._learn("RUNNING"))
        self._run(self._follow_stats)
        self._run(self._await_end)

    def abandon(self) -> None:
        """Note that the container is not to be followed any more: it was removed, or will never
        be started.
        """
        self.facts = replace(self.facts, known_status="STOPPED")

    def stop(self, seconds: int) -> None:
        """Send SIGTERM, wait, and send SIGKILL when the time is over, as a stopTimeout does."""
        self._call("POST", "stop", {"t": str(seconds)}, seconds + CALL_SECONDS)

    def wait_until_ready(self) -> None:
        """Wait until the batch has written that it is ready for a signal."""
        wait_until(
            lambda: "ready" in "".join(self.logs()), f"'ready' from container {self.spec.name}"
        )

    def execute(self, *command: str) -> str:
        """Run another program in the container and return its output; CommandFailedError if it
        fails.
        """
        return self._engine.command("exec", self.facts.docker_id, *command)

    def logs(self) -> tuple[str, str]:
        return self._engine.logs(self.facts.docker_id)

    def kernel(self) -> KernelReading:
        """Return the kernel's accounting now, or at the end of a finished container."""
        if self.placement.cgroup_parent is not None and self._accounting is not None:
            return self._accounting.read()
        return wait_until(lambda: self._last_kernel, f"kernel accounting of {self.spec.name}")

    def remove(self) -> None:
        """Kill and delete the container and what the harness made for it."""
        if self.facts.docker_id:
            with contextlib.suppress(DockerError):  # gone already
                self._call("DELETE", query={"force": "true", "v": "true"})
        for thread in self._threads:
            thread.join(LIMIT_SECONDS)
        if not self.facts.stopped:
            self.abandon()
        if self.placement.cgroup_parent is not None:
            remove_cgroup(self.placement.cgroup_parent)

    def _call(
        self,
        method: str,
        action: str = "",
        query: dict[str, str] | None = None,
        seconds: float | None = CALL_SECONDS,
    ) -> Any:
        path = f"/containers/{self.facts.docker_id}" + (f"/{action}" if action else "")
        return self._engine.api.call(method, path, query=query, seconds=seconds)

    def _run(self, work: Callable[[], None]) -> None:
        thread = threading.Thread(
            target=work, name=f"{self.spec.name} {work.__name__}", daemon=True
        )
        self._threads.append(thread)
        thread.start()

    def _learn(self, known_status: str) -> int:
        """Take over what Docker knows of the container, and return its first process."""
        document = self._call("GET", "json")
        state = document["State"]
        self.facts = ContainerFacts(
            docker_id=document["Id"],
            image_id=document["Image"],
            known_status=known_status,
            created_at=document["Created"],
            started_at=_time(state["StartedAt"]),
            finished_at=_time(state["FinishedAt"]) if known_status == "STOPPED" else None,
            exit_code=state["ExitCode"] if known_status == "STOPPED" else None,
            oom_killed=state["OOMKilled"],
        )
        return int(state["Pid"])

    def _follow_stats(self) -> None:
        """Keep the newest document of the stats stream; the daemon ends it when the container is
        removed.
        """
        kept_at = float("-inf")
        path = f"/containers/{self.facts.docker_id}/stats"
        with contextlib.suppress(DockerError, OSError, http.client.HTTPException):
            for document in self._engine.api.stream(path, query={"stream": "1"}):
                if self.facts.stopped:
                    return
                is_due = time.monotonic() - kept_at >= self.placement.stats_period_seconds
                if is_due and not document["read"].startswith(_NO_TIME):
                    self._stats, kept_at = document, time.monotonic()

    def _await_end(self) -> None:
        with contextlib.suppress(
            DockerError, OSError
        ):  # the daemon lost it while the test was being cleaned up
            self._call("POST", "wait", seconds=None)
            self._learn("STOPPED")
            self._on_stopped(self)

    def _find_accounting(self, pid: int) -> None:
        if self.placement.cgroup_parent is not None:
            self._accounting = accounting_at(self.placement.cgroup_parent)
            return
        with contextlib.suppress(FileNotFoundError):  # it ended at once
            self._accounting = accounting_of(pid)
            self._run(self._record_kernel)

    def _record_kernel(self) -> None:
        """Read again and again, because a cgroup that Docker chose vanishes together with the
        container.
        """
        pause = threading.Event()
        with contextlib.suppress(OSError):
            while self._accounting is not None and not self.facts.stopped:
                self._last_kernel = self._accounting.read()
                pause.wait(_KERNEL_READ_SECONDS)


def _time(text: str) -> str | None:
    return None if text.startswith(_NO_TIME) else text


def _creation(spec: ContainerSpec, placement: Placement) -> dict[str, Any]:
    memory = (spec.memory_mib or 0) * _MIB
    host = {
        "NetworkMode": "host",
        "PidMode": "host" if spec.sees_all_processes else placement.pid_mode,
        "Memory": memory,
        "MemorySwap": memory,
        "NanoCpus": round((spec.cpus or 0) * _NANO_CPUS),
        "ReadonlyRootfs": spec.read_only,
        "CapAdd": list(spec.add_capabilities),
        "CapDrop": ["ALL"] if spec.drop_capabilities else [],
        "SecurityOpt": ["no-new-privileges"] if spec.no_new_privileges else [],
        "Binds": [f"{source}:{target}:ro" for source, target in spec.read_only_mounts],
        "Mounts": [{"Type": kind, "Target": target} for target, kind in spec.mounts.items()],
        "LogConfig": {"Type": "json-file"},
    }
    if placement.cgroup_parent is not None:
        host["CgroupParent"] = placement.cgroup_parent
    return {
        "Image": spec.image,
        "Cmd": list(spec.command) or None,
        "Env": [f"{name}={value}" for name, value in placement.environment.items()],
        "Labels": dict(placement.labels),
        "User": spec.user,
        "HostConfig": host,
    }
