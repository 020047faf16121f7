"""A search server in its own process: start, wait until ready, kill and restart.

There is one way to stop it, SIGKILL to its process group: its folder is deleted afterwards, and a
crash is what the tests want to see anyhow.
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
from typing import Any, Final, Literal

import requests

from tools.waiting import LIMIT_SECONDS, WaitTimeoutError, wait_until

# A server lives for minutes, and its jars come from a repository with checksums: what makes a long
# life fast, and what doubts its classes, only delays its start.
JAVA_OPTIONS: Final = (
    *(
        "-XX:TieredStopAtLevel=1",
        "-XX:+UnlockDiagnosticVMOptions",
        "-XX:-BytecodeVerificationRemote",
    ),
    "-XX:-UsePerfData",  # else a killed server leaves a file in the machine's temporary folder
)
SERVER_OPTIONS: Final = ("-Xms256m", "-Xmx256m", "-XX:-AlwaysPreTouch", *JAVA_OPTIONS)

_ANSWER_SECONDS: Final = 5.0
_SHOWN_LINES: Final = 40
_MAX_WORKERS: Final = 8
_PORTS: Final = range(
    20_000, 32_000
)  # below those that Linux gives to clients: none can take it during a restart


class ServerFailedError(Exception):
    """The server did not start; the text holds the end of what it wrote."""


@dataclass(kw_only=True, eq=False)
class SearchServer:
    """A server that answers at `url`, and all that is needed to start it as often as one likes.

    It runs as `user`; None is who runs the tests. Where the server has security, `admin` is the
    name and the password of a user who may do everything. `peer` is another node of its cluster.
    """

    engine: Literal["elasticsearch", "opensearch"]
    port: int
    command: tuple[str, ...]
    environment: Mapping[str, str]
    folder: Path
    user: str | None = None
    admin: tuple[str, str] | None = None
    peer: "SearchServer | None" = None
    _process: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def restart(self) -> None:
        """Start the server on the data it has, killing it first if it runs; return when it
        answers.
        """
        self.kill()
        with (self.folder / "log").open("ab") as log:
            self._process = process = subprocess.Popen(
                self.command,
                cwd=self.folder,
                env=self.environment,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
                **self._owner(),
            )
        try:
            wait_until(
                lambda: process.poll() is not None or self._answers(),
                f"{self.engine} to answer",
            )
        except WaitTimeoutError as error:
            raise ServerFailedError(f"{error}; its log ends:\n{self._end_of_log()}") from error
        if process.poll() is not None:
            raise ServerFailedError(
                f"{self.engine} ended with {process.returncode}; its log "
                f"ends:\n{self._end_of_log()}"
            )

    def _owner(self) -> dict[str, Any]:
        """The user of the process and the user's group; without a user, this process's own."""
        if self.user is None:
            return {}
        return {"user": self.user, "group": pwd.getpwnam(self.user).pw_gid, "extra_groups": ()}

    def kill(self) -> None:
        """End the server as a crash does, and return when its port is free."""
        if self._process is None:
            return
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait(LIMIT_SECONDS)
        self._process = None
        wait_until(lambda: not _is_taken(self.port), f"{self.engine} to leave its port")

    def remove_indices(self) -> None:
        """Leave no index that the forwarder or an import made. Deleting by a pattern is refused by
        default.
        """
        found = requests.get(
            f"{self.url}/_cat/indices/task-*?format=json", auth=self.admin, timeout=LIMIT_SECONDS
        ).json()
        names = ",".join(index["index"] for index in found)
        if names:
            requests.delete(
                f"{self.url}/{names}", auth=self.admin, timeout=LIMIT_SECONDS
            ).raise_for_status()

    def remove_ours(self) -> None:
        """Leave nothing that the forwarder or an import made, and no template of a test for such an
        index.
        """
        self.remove_indices()
        templates = requests.get(
            f"{self.url}/_index_template", auth=self.admin, timeout=LIMIT_SECONDS
        ).json()["index_templates"]
        for template in templates:
            patterns = template["index_template"]["index_patterns"]
            if any(pattern.startswith("task-") for pattern in patterns):
                requests.delete(
                    f"{self.url}/_index_template/{template['name']}",
                    auth=self.admin,
                    timeout=LIMIT_SECONDS,
                ).raise_for_status()

    def _answers(self) -> bool:
        status = {"wait_for_status": "yellow", "timeout": "1s"}
        try:
            return requests.get(
                f"{self.url}/_cluster/health",
                params=status,
                auth=self.admin,
                timeout=_ANSWER_SECONDS,
            ).ok
        except requests.RequestException:
            return False

    def _end_of_log(self) -> str:
        return "\n".join(
            (self.folder / "log").read_text(errors="replace").splitlines()[-_SHOWN_LINES:]
        )


@contextlib.contextmanager
def run_server(server: SearchServer) -> Iterator[SearchServer]:
    """Start the server, and kill it at the end of the block."""
    try:
        server.restart()
        yield server
    finally:
        server.kill()


def free_ports(count: int) -> tuple[int, ...]:
    """Return ports that nothing uses just now, and that no other process of the same test
    session takes.
    """
    worker = os.environ.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw")
    own = [port for port in _PORTS if port % _MAX_WORKERS == int(worker) % _MAX_WORKERS]
    candidates = random.SystemRandom().sample(
        own, k=len(own)
    )  # the tests' own seed is the same in all sessions
    free = (port for port in candidates if not _is_taken(port))
    return tuple(next(free) for _ in range(count))


def _is_taken(port: int) -> bool:
    with socket.socket() as probe:
        probe.setsockopt(
            socket.SOL_SOCKET, socket.SO_REUSEADDR, 1
        )  # closed connections do not count
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return True
    return False
