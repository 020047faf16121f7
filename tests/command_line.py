"""Runs ``task-profiler`` in this process: what a new process does, without the second that its
imports take.
"""

import os
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from subprocess import CompletedProcess
from types import SimpleNamespace
from unittest.mock import patch

import botocore.endpoint

from profiler.cli import progress
from profiler.cli.app import run_command_line


def run_here(environment: Mapping[str, str], *words: str) -> CompletedProcess[str]:
    """Run a command with this environment alone. boto3 repeats throttled calls without waiting, and
    a slow machine shows no sign of life.
    """
    clock = SimpleNamespace(sleep=lambda _seconds: None)
    with (
        _redirected("stdout", 1) as out,
        _redirected("stderr", 2) as err,
        patch.dict(os.environ, environment, clear=True),
        patch.object(sys, "argv", ["task-profiler", *words]),
        patch.object(botocore.endpoint, "time", clock),
        patch.object(progress, "SILENT_SECONDS", 3_600.0),
    ):
        code: object = 0
        try:
            run_command_line()
        except SystemExit as ended:
            code = ended.code
    return CompletedProcess(words, code if isinstance(code, int) else 0, out[0], err[0])


@contextmanager
def _redirected(name: str, number: int) -> Iterator[list[str]]:
    """Redirect a standard stream, and its file descriptor, to a file; the list gets its text
    afterwards.
    """
    text: list[str] = []
    outer = os.dup(number)
    try:
        with (
            tempfile.TemporaryFile() as file,
            os.fdopen(os.dup(file.fileno()), "w", encoding="utf-8") as stream,
        ):
            os.dup2(file.fileno(), number)
            with patch.object(sys, name, stream):
                yield text
            stream.flush()
            file.seek(0)
            text.append(file.read().decode())
    finally:
        os.dup2(outer, number)
        os.close(outer)
