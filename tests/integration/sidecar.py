"""The monitor as a process of its own, beside a served task."""

import json
import os
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from typing import Any, BinaryIO, Self

from tests.task_endpoint import Task, TaskEndpoint
from tools.waiting import LIMIT_SECONDS, wait_until

Line = dict[str, Any]
NO_AWS = {"AWS_EC2_METADATA_DISABLED": "true", "HOME": "/nonexistent"}


class Sidecar:
    """A running monitor and the task it watches: one of its own that behaves, or that of a given
    endpoint.
    """

    def __init__(
        self,
        environment: Mapping[str, str],
        *,
        network_mode: str = "bridge",
        output: int | BinaryIO = subprocess.PIPE,
        errors: int = subprocess.PIPE,
        endpoint: TaskEndpoint[Any] | None = None,
        container: str = "task-monitor",
        program: Sequence[str] = ("-m", "profiler"),
        **settings: str,
    ) -> None:
        self._closing = ExitStack()
        endpoint = endpoint or self._closing.enter_context(TaskEndpoint(Task(2, network_mode)))
        self.task: Task = endpoint.task
        self._output = output
        self._errors = errors
        self._program = program
        self._variables = {
            "PATH": os.environ["PATH"],
            "ECS_CONTAINER_METADATA_URI_V4": endpoint.address_of(container),
            "TASK_PROFILER_INTERVAL_SECONDS": "0.1",
            # A report is printed where CloudWatch answers late.
            "TASK_PROFILER_STOP_SECONDS": f"{LIMIT_SECONDS:g}",
            **environment,
            **{f"TASK_PROFILER_{name}": value for name, value in settings.items()},
        }
        self.start()

    def start(self) -> None:
        """The monitor begins, for the first time or after ``kill``."""
        self.process = subprocess.Popen(
            [sys.executable, *self._program, "monitor"],
            env=self._variables,
            stdout=self._output,
            stderr=self._errors,
            bufsize=0,  # a test that reads one line leaves the rest to communicate()
        )

    def kill(self) -> list[Line]:
        """SIGKILL; the lines that stdout had until then and that nobody has read."""
        self.process.kill()
        output, _ = self.process.communicate()
        return _lines(output)

    def wait_for_samples(self, reads: int = 5) -> None:
        """Wait until the monitor has asked so often more: a real process needs a while to start."""
        enough = self.task.stats_reads + reads
        wait_until(lambda: self.task.stats_reads >= enough, "samples of the monitor")

    def end_batch(self) -> None:
        self.task.ended = time.time()

    def finish(self) -> tuple[list[Line], list[Line]]:
        """The lines of stdout and of stderr, once it has ended by itself with exit code 0."""
        output, errors = self.process.communicate(timeout=LIMIT_SECONDS)
        assert self.process.returncode == 0, errors
        return _lines(output), _lines(errors)

    def watch(self, reads: int = 5) -> tuple[list[Line], list[Line]]:
        """See some samples and the batch's end; the lines as of ``finish``."""
        self.wait_for_samples(reads)
        self.end_batch()
        return self.finish()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_error: object) -> None:
        self.process.kill()
        self.process.communicate()
        self._closing.close()


def problems(errors: list[Line]) -> list[str]:
    """What was said at level error; on a busy machine a request may time out, and that is a
    warning.
    """
    return [line["event"] for line in errors if line["level"] == "error"]


def _lines(output: bytes | None) -> list[Line]:
    """JSON lines; none of an output that goes elsewhere."""
    return [json.loads(line) for line in (output or b"").splitlines()]
