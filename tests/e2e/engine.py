"""Finds a Docker daemon for the tests, the one that is already there, else one of our own; and a
client of its API.

A machine of a CI provider has a running daemon. A bare machine may only have the `dockerd` program:
then a daemon is started in a temporary folder, without bridge and iptables (containers share the
host's network), and it is stopped by its process id, together with everything it left, at the end.
The API over the daemon's unix socket is used and not the command line wherever answers are read:
its documents are what the ECS agent itself passes on.
"""

import contextlib
import http.client
import json
import os
import shutil
import socket
import subprocess
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

from msgspec import Struct

from tests.e2e.kernel import remove_cgroup
from tools.waiting import LIMIT_SECONDS, WaitTimeoutError, wait_until

# A daemon on an emulated processor takes more than a minute to start a container.
CALL_SECONDS = 600.0
_STORAGE_DRIVERS = (
    "overlay2",
    "vfs",
)  # vfs works everywhere, but copies the whole image for each container
_NO_NETWORK = ("--bridge=none",)
# For containers that have no parent of their own: those of image builds.
_CGROUP = "/e2e-task-profiler/daemon"


class DockerError(Exception):
    """The daemon answered a call with an error."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(f"Docker answered {status}: {message}")
        self.status = status


class _UnixConnection(http.client.HTTPConnection):
    """An HTTP connection whose other end is a unix socket."""

    def __init__(self, path: Path, timeout: float | None) -> None:
        super().__init__("docker", timeout=timeout)
        self._path = path

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.sock.settimeout(self.timeout)
        self.sock.connect(str(self._path))


class DockerApi(Struct, frozen=True):
    """Calls of one daemon; every call has a connection of its own, so threads need no lock."""

    socket_path: Path

    def call(
        self,
        method: str,
        path: str,
        *,
        query: dict[str, str] | None = None,
        body: dict[str, Any] | None = None,
        seconds: float | None = CALL_SECONDS,
    ) -> Any:
        """Return the parsed answer, or None when it is empty; `seconds=None` waits as long as it
        takes.
        """
        with self._request(method, path, query, body, seconds) as response:
            answer = response.read()
        return json.loads(answer) if answer else None

    def stream(self, path: str, *, query: dict[str, str]) -> Iterator[dict[str, Any]]:
        """Yield the documents of a call that answers one after another, until the daemon ends
        it.
        """
        with self._request("GET", path, query, None, CALL_SECONDS) as response:
            while line := response.readline():
                yield json.loads(line)

    @contextlib.contextmanager
    def _request(
        self,
        method: str,
        path: str,
        query: dict[str, str] | None,
        body: dict[str, Any] | None,
        seconds: float | None,
    ) -> Iterator[http.client.HTTPResponse]:
        with contextlib.closing(_UnixConnection(self.socket_path, seconds)) as connection:
            target = f"{path}?{urlencode(query)}" if query else path
            payload = None if body is None else json.dumps(body)
            connection.request(
                method, target, payload, {"Content-Type": "application/json"} if body else {}
            )
            response = connection.getresponse()
            if response.status >= http.client.BAD_REQUEST:
                raise DockerError(response.status, response.read().decode(errors="replace").strip())
            yield response


class EngineMissingError(Exception):
    """No usable Docker here; the text says what is missing."""


class CommandFailedError(Exception):
    """A program that the harness ran ended badly; the text holds what it wrote."""


class Engine(Struct, frozen=True):
    api: DockerApi
    cgroup_driver: str

    @property
    def owns_cgroups(self) -> bool:
        """Whether containers can be put below a cgroup of our choice, which outlives them and
        keeps their totals.
        """
        return self.cgroup_driver == "cgroupfs" and os.geteuid() == 0

    def command(self, *arguments: str, environment: dict[str, str] | None = None) -> str:
        """Run the docker command on this daemon and return its standard output."""
        return run_command(
            "docker", *arguments, environment=self.environment() | (environment or {})
        )

    def logs(self, container_id: str) -> tuple[str, str]:
        """Return what a container wrote, standard output and standard error apart."""
        done = subprocess.run(
            ["docker", "logs", container_id],
            env=self.environment(),
            capture_output=True,
            text=True,
            timeout=LIMIT_SECONDS,
            check=True,
        )
        return done.stdout, done.stderr

    def environment(self) -> dict[str, str]:
        others = {name: value for name, value in os.environ.items() if name != "DOCKER_CONTEXT"}
        return others | {"DOCKER_HOST": f"unix://{self.api.socket_path}"}


def run_command(
    *command: str, environment: dict[str, str] | None = None, seconds: float = LIMIT_SECONDS
) -> str:
    """Run a program to its end and return its standard output; kill it after the time, which
    raises TimeoutExpired.
    """
    done = subprocess.run(
        command, env=environment, capture_output=True, text=True, timeout=seconds, check=False
    )
    if done.returncode != 0:
        raise CommandFailedError(
            f"{' '.join(command)} ended with {done.returncode}:\n{done.stdout}{done.stderr}"
        )
    return done.stdout


@contextlib.contextmanager
def running_engine() -> Iterator[Engine]:
    """Give a daemon for the length of the block; raise EngineMissingError when there can be
    none.
    """
    if shutil.which("docker") is None:
        raise EngineMissingError("the docker command is not installed")
    api = _running_daemon()
    if api is not None:
        yield _engine(api)
        return
    if os.geteuid() != 0 or shutil.which("dockerd") is None:
        raise EngineMissingError(
            "no Docker daemon answers, and starting one needs root and the dockerd program"
        )
    with own_engine() as own:
        yield own


def _engine(api: DockerApi) -> Engine:
    return Engine(api=api, cgroup_driver=api.call("GET", "/info")["CgroupDriver"])


def _running_daemon() -> DockerApi | None:
    """Find the daemon that the docker command itself would use, if it is a local one and
    answers.
    """
    try:
        host = run_command(
            "docker", "context", "inspect", "--format", "{{.Endpoints.docker.Host}}"
        ).strip()
    except CommandFailedError:
        return None
    if not host.startswith("unix://"):
        return None
    api = DockerApi(Path(host.removeprefix("unix://")))
    return api if _answers(api) else None


def _answers(api: DockerApi) -> bool:
    with contextlib.suppress(OSError, DockerError):
        api.call("GET", "/info", seconds=10.0)
        return True
    return False


@contextlib.contextmanager
def own_engine(
    network: tuple[str, ...] = _NO_NETWORK, variables: Mapping[str, str] | None = None
) -> Iterator[Engine]:
    """Run our own daemon, with the first storage driver that this machine's file system bears."""
    reasons = []
    for driver in _STORAGE_DRIVERS:
        folder = Path(
            tempfile.mkdtemp(prefix="task-profiler-e2e-")
        )  # short: a socket path has 107 characters at most
        with contextlib.ExitStack() as stack:
            stack.callback(_remove_folder, folder)
            process = _start_daemon(
                folder,
                (f"--storage-driver={driver}", *network),
                {**os.environ, **(variables or {})},
            )
            stack.callback(remove_cgroup, _CGROUP)
            stack.callback(_stop_daemon, process)
            api = DockerApi(folder / "docker.sock")
            if _came_up(process, api):
                yield _engine(api)
                return
            log = (folder / "log").read_text(errors="replace").splitlines() or ["it wrote nothing"]
            reasons.append(f"dockerd with {driver} did not start: {log[-1]}")
    raise EngineMissingError("; ".join(reasons))


def _start_daemon(
    folder: Path, options: tuple[str, ...], environment: dict[str, str]
) -> subprocess.Popen[bytes]:
    command = [
        "dockerd",
        f"--host=unix://{folder}/docker.sock",
        f"--data-root={folder}/data",
        f"--exec-root={folder}/exec",
        f"--pidfile={folder}/pid",
        *options,
        f"--cgroup-parent={_CGROUP}",
        "--exec-opt=native.cgroupdriver=cgroupfs",
        "--log-level=warn",
        "--iptables=false",
        "--ip6tables=false",
    ]
    with (folder / "log").open("wb") as log:
        return subprocess.Popen(
            command, env=environment, stdout=log, stderr=subprocess.STDOUT, start_new_session=True
        )


def _came_up(process: subprocess.Popen[bytes], api: DockerApi) -> bool:
    with contextlib.suppress(WaitTimeoutError):
        wait_until(lambda: process.poll() is not None or _answers(api), "dockerd to answer")
        return process.poll() is None
    return False


def _stop_daemon(process: subprocess.Popen[bytes]) -> None:
    """Stop the daemon; on SIGTERM it stops its containers and its containerd itself."""
    process.terminate()
    try:
        process.wait(LIMIT_SECONDS)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait(LIMIT_SECONDS)


def _remove_folder(folder: Path) -> None:
    """Unmount what a daemon left mounted below its folder (its network namespaces), then delete
    it.
    """
    mounts = [line.split()[1] for line in Path("/proc/self/mounts").read_text().splitlines()]
    for mount in sorted((path for path in mounts if path.startswith(f"{folder}/")), reverse=True):
        with contextlib.suppress(CommandFailedError):
            run_command("umount", "--lazy", mount)
    shutil.rmtree(folder, ignore_errors=True)
