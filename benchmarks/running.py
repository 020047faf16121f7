"""A program that runs as long as it is measured."""

import os
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager


@contextmanager
def running(
    command: Sequence[str], more_environment: Mapping[str, str] | None = None
) -> Iterator[subprocess.Popen[bytes]]:
    """Its process, killed in the end; what it prints is not wanted."""
    environment = {**os.environ, **(more_environment or {})}
    process = subprocess.Popen(command, env=environment, stdout=subprocess.DEVNULL)
    try:
        yield process
    finally:
        process.kill()
        process.wait()
