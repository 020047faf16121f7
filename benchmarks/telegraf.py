"""Telegraf's ECS input at one reading a second, the usual way to sample a task; its output goes nowhere.

Measured where ``telegraf`` is on the PATH: no package registry has it built, but Go's does as source
(``go build -tags custom,inputs.ecs,outputs.discard ./cmd/telegraf``).
"""

import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from benchmarks.running import running

_SETTINGS = """
[agent]
  interval = "1s"
  flush_interval = "10s"
  omit_hostname = true
[[inputs.ecs]]
[[outputs.discard]]
"""


@contextmanager
def telegraf(program: str, address: str) -> Iterator[subprocess.Popen[bytes]]:
    """A running Telegraf that reads the task at ``address``."""
    with tempfile.TemporaryDirectory(prefix="bench-telegraf-") as folder:
        settings = Path(folder) / "telegraf.conf"
        settings.write_text(_SETTINGS)
        addresses = {"ECS_CONTAINER_METADATA_URI_V4": address, "ECS_CONTAINER_METADATA_URI": address}
        with running((program, "--config", str(settings), "--quiet"), addresses) as process:
            yield process
