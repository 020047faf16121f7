"""The monitor as a process of its own, beside a served task."""

import json
import os
import subprocess
import sys
import time
from collections.abc import Mapping
from typing import Any, BinaryIO, Self

from benchmarks.endpoint import Task, serve
from tests.waiting import wait_until


class Sidecar:
    """A running monitor and the task it watches."""

    def __init__(
        self,
        environment: Mapping[str, str],
        *,
        network_mode: str = "bridge",
        output: int | BinaryIO = subprocess.PIPE,
        **settings: str,
    ) -> None:
        self.task = Task(2, network_mode)
        self._server = serve(self.task)
        own = {f"TASK_PROFILER_{name}": value for name, value in settings.items()}
        variables = {
            "PATH": os.environ["PATH"],
            "ECS_CONTAINER_METADATA_URI_V4": f"http://127.0.0.1:{self._server.server_address[1]}/v4/own",
            "TASK_PROFILER_INTERVAL_SECONDS": "0.1",
            **environment,
            **own,
        }
        self.process = subprocess.Popen(
            [sys.executable, "-m", "profiler", "monitor"],
            env=variables,
            stdout=output,
            stderr=subprocess.PIPE,
        )

    def wait_for_samples(self) -> None:
        """Wait until the monitor has asked a few times: a real process needs a while to start."""
        wait_until(lambda: self.task.stats_reads >= 5, 30, "samples of the monitor")

    def end_batch(self) -> None:
        self.task.ended = time.time()

    def finish(self, seconds: float = 60) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
        """The lines of stdout and of stderr, once it has ended by itself with exit code 0."""
        output, errors = self.process.communicate(timeout=seconds)
        assert self.process.returncode == 0, errors
        return [json.loads(line) for line in output.splitlines()], [json.loads(line) for line in errors.splitlines()]

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_error: object) -> None:
        self.process.kill()
        self.process.communicate()
        self._server.shutdown()
        self._server.server_close()
