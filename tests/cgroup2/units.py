"""`task-profiler run` in systemd units of its own, inside the virtual machine."""

import contextlib
import json
import os
import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

PYTHON = "/usr/bin/python3"
DELEGATED = ("Delegate=yes",)
LIMIT_SECONDS = 240.0


def profile(
    *command: str,
    properties: Sequence[str] = DELEGATED,
    user: str = "root",
    options: Sequence[str] = (),
    is_scope: bool = False,
) -> dict[str, Any]:
    """Run a command under `run` with these options in a new unit, a service or a scope; return report and output."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        folder.chmod(0o777)
        kind = ("--scope",) if is_scope else ("--pipe", "--wait")
        unit = ("systemd-run", "--quiet", "--collect", *kind, *(f"--property={each}" for each in properties))
        finished = subprocess.run(
            (*unit, f"--uid={user}", *run_command(folder, *options), "--", *command),
            capture_output=True,
            text=True,
            timeout=LIMIT_SECONDS,
            cwd="/",
            check=False,
        )
        return {
            "exitCode": finished.returncode,
            "output": finished.stdout,
            "errors": finished.stderr,
            "report": _report(folder),
        }


def run_command(folder: Path, *options: str) -> tuple[str, ...]:
    """Return the arguments of a `run` that writes its report and its history into the folder."""
    history = ("env", f"XDG_DATA_HOME={folder}")
    return (*history, PYTHON, "-m", "profiler", "run", "--output", str(folder / "report"), *options)


def _report(folder: Path) -> Any:
    lines = (folder / "report").read_text().splitlines() if (folder / "report").exists() else ()
    return json.loads(lines[-1]) if lines else None


@contextlib.contextmanager
def file_on_disk(size_mib: int) -> Iterator[Path]:
    """Give a file that is not in the page cache: the kernel charges its pages to the first reader's group."""
    with tempfile.NamedTemporaryFile(dir="/var/tmp") as file:
        for _ in range(size_mib):
            file.write(os.urandom(2**20))
        file.flush()
        os.fsync(file.fileno())
        Path("/proc/sys/vm/drop_caches").write_text("1")
        yield Path(file.name)
