"""A search server in its own process: start, wait until ready, kill and restart.

There is one way to stop it, SIGKILL to its process group: its folder is deleted afterwards, and a crash is what the
tests want to see anyhow.
"""

import contextlib
import os
import pwd
import random
import signal
import socket
import subprocess
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal

import requests

from tests.waiting import WaitTimeoutError, wait_until

Engine = Literal["elasticsearch", "opensearch"]

HEAP_OPTIONS: Final = (
    *("-Xms256m", "-Xmx256m", "-XX:-AlwaysPreTouch", "-XX:TieredStopAtLevel=1"),
    "-XX:-UsePerfData",  # else a killed server leaves a file in the machine's temporary folder
)

_START_SECONDS: Final = 120.0
_STOP_SECONDS: Final = 60.0
_ANSWER_SECONDS: Final = 5.0
_SHOWN_LINES: Final = 40
_MAX_WORKERS: Final = 8
_PORTS: Final = range(20_000, 32_000)  # below those that Linux gives to clients: none can take it during a restart


class ServerFailedError(Exception):
    """The server did not start; the text holds the end of what it wrote."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Credentials:
    """A user of a server with security."""

    name: str
    password: str

    @property
    def pair(self) -> tuple[str, str]:
        """Return what `requests` and the clients take as basic authentication."""
        return self.name, self.password


@dataclass(frozen=True, slots=True, kw_only=True)
class Launch:
    """All that is needed to start the server, as often as one likes."""

    command: tuple[str, ...]
    environment: Mapping[str, str]
    folder: Path
    user: str | None = None  # who it runs as; None is who runs the tests


class SearchServer:
    """A server that answers at `url`, on 127.0.0.1."""

    def __init__(
        self, *, engine: Engine, version: str, port: int, launch: Launch, admin: Credentials | None = None
    ) -> None:
        self.engine: Final = engine
        self.version: Final = version
        self.url: Final = f"http://127.0.0.1:{port}"
        self.admin: Final = admin
        self._port = port
        self._launch = launch
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def log(self) -> Path:
        """Return the file that has all the server wrote, over all its starts."""
        return self._launch.folder / "log"

    def restart(self) -> None:
        """Start the server on the data it has, killing it first if it runs; return when it answers."""
        self.kill()
        launch = self._launch
        with self.log.open("ab") as log:
            self._process = subprocess.Popen(
                launch.command,
                cwd=launch.folder,
                env=launch.environment,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
                user=launch.user,
                group=_group_of(launch.user),
                extra_groups=None if launch.user is None else (),
            )
        self._wait_for_answers(self._process)

    def kill(self) -> None:
        """End the server as a crash does, and return when its port is free."""
        if self._process is None:
            return
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait(_STOP_SECONDS)
        self._process = None
        wait_until(lambda: not _is_taken(self._port), _STOP_SECONDS, f"{self.engine} to leave its port")

    def _wait_for_answers(self, process: subprocess.Popen[bytes]) -> None:
        what = f"{self.engine} {self.version}"
        try:
            wait_until(lambda: process.poll() is not None or self._answers(), _START_SECONDS, f"{what} to answer")
        except WaitTimeoutError as error:
            raise ServerFailedError(f"{error}; its log ends:\n{self._end_of_log()}") from error
        if process.poll() is not None:
            raise ServerFailedError(f"{what} ended with {process.returncode}; its log ends:\n{self._end_of_log()}")

    def _answers(self) -> bool:
        try:
            answer = requests.get(
                f"{self.url}/_cluster/health",
                params={"wait_for_status": "yellow", "timeout": "1s"},
                auth=None if self.admin is None else self.admin.pair,
                timeout=_ANSWER_SECONDS,
            )
        except requests.RequestException:
            return False
        return answer.ok

    def _end_of_log(self) -> str:
        return "\n".join(self.log.read_text(errors="replace").splitlines()[-_SHOWN_LINES:])


@contextlib.contextmanager
def running(server: SearchServer) -> Iterator[SearchServer]:
    """Start the server, and kill it at the end of the block."""
    try:
        server.restart()
        yield server
    finally:
        server.kill()


def free_ports(count: int) -> tuple[int, ...]:
    """Return ports that nothing uses just now, and that no other process of the same test session takes."""
    worker = os.environ.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw")
    own = [port for port in _PORTS if port % _MAX_WORKERS == int(worker) % _MAX_WORKERS]
    candidates = random.SystemRandom().sample(own, k=len(own))  # the tests' own seed is the same in all sessions
    free = (port for port in candidates if not _is_taken(port))
    return tuple(next(free) for _ in range(count))


def _is_taken(port: int) -> bool:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # closed connections do not count
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return True
    return False


def _group_of(user: str | None) -> int | None:
    """Return the id of the user's own group."""
    if user is None:
        return None
    return pwd.getpwnam(user).pw_gid


def remove_ours(server: SearchServer) -> None:
    """Leave nothing that the forwarder or an import made on a server with security."""
    assert server.admin is not None
    admin = server.admin.pair
    for index in requests.get(f"{server.url}/_cat/indices/task-*?format=json", auth=admin, timeout=120).json():
        requests.delete(f"{server.url}/{index['index']}", auth=admin, timeout=120).raise_for_status()
    for kind in ("reports", "checkpoints", "logs"):
        requests.delete(f"{server.url}/_index_template/task-{kind}", auth=admin, timeout=120)
