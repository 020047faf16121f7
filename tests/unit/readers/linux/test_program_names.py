"""The name of a process is its program's, whatever its main thread calls itself."""

import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from profiler.readers.linux import proc
from profiler.readers.linux.program_names import (
    read_live_name,
    read_name_with_script,
    read_program_name,
)

_RENAMED = (
    "import ctypes; ctypes.CDLL(None).prctl(15, b'MainThread', 0, 0, 0); print(flush=True); input()"
)


def test_a_process_has_a_name_until_it_ends() -> None:
    with subprocess.Popen((sys.executable, "-c", "input()"), stdin=subprocess.PIPE) as process:
        stat = proc.parse_stat(proc.read_or_none(f"/proc/{process.pid}/stat") or b"")
        assert stat is not None
        assert read_live_name(process.pid, stat.started_ticks) == stat.name
        assert read_live_name(process.pid, stat.started_ticks - 1) is None
        process.kill()
        os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
        assert read_live_name(process.pid, stat.started_ticks) is None


def process_folder(tmp_path: Path, executable: str | None, *words: str) -> str:
    """A folder like ``/proc/PID``; without an executable that of another user's process."""
    if executable is not None:
        (tmp_path / "exe").symlink_to(executable)
    (tmp_path / "cmdline").write_bytes(b"".join(word.encode() + b"\0" for word in words))
    return str(tmp_path)


@pytest.mark.parametrize(
    ("comm", "executable", "words", "name"),
    [
        # The main thread has another name.
        ("MainThread", "/usr/bin/node", ["node", "job.js"], "node job.js"),
        ("MainThread", "/opt/node-24/bin/node", ["/opt/n24", "./job.js"], "node job.js"),
        ("MainThread", None, ["/usr/bin/node", "job.js"], "node job.js"),
        ("pt_main_thread", "/usr/bin/python3.11", ["python3", "train.py"], "python3 train.py"),
        ("Web Content", "/usr/lib/firefox/firefox", ["firefox", "-contentproc"], "firefox"),
        ("worker", "/usr/bin/tool (deleted)", ["tool", "--x"], "tool"),
        ("MainThread", "/usr/bin/node", ["secret title of a job"], "node"),
        # The kernel's name is that of the file which was executed.
        ("python3", "/usr/bin/python3.11", ["python3", "job.py"], "python3 job.py"),
        ("gzip", "/bin/busybox", ["gzip", "-9"], "gzip"),
        ("sh", "/usr/bin/dash", ["-sh"], "sh"),
        ("dbt", "/usr/bin/python3.11", ["/venv/bin/python", "/venv/bin/dbt", "run"], "dbt"),
        ("dbt", "/usr/bin/python3.11", ["/venv/bin/python", "-I", "/venv/bin/dbt"], "dbt"),
        ("postgres", "/usr/lib/postgresql/bin/postgres", ["postgres: writer"], "postgres"),
        # Debian's redis-server is a link to it.
        ("redis-server", "/usr/bin/redis-check-rdb", ["redis-server *:6379"], "redis-server"),
        # It executes itself.
        ("exe", "/usr/lib/chromium/chromium", ["/proc/self/exe", "--type=zygote"], "chromium"),
        ("exe", "/usr/bin/dockerd", ["/proc/4711/exe"], "dockerd"),
        ("exe", None, ["/proc/self/exe", "--type=zygote"], "exe"),
        # It is cut to 15 bytes.
        ("clickhouse-serv", "/usr/bin/clickhouse", ["clickhouse-server"], "clickhouse-server"),
        ("some-long-progr", "/opt/some-long-program", ["title"], "some-long-program"),
        ("a-job-in-memory", "/memfd:a-job-in-memory (deleted)", ["bin/backend"], "backend"),
        ("gunicorn: maste", "/usr/bin/python3.11", ["gunicorn: master [app]"], "gunicorn: maste"),
        # Nothing else is known: a kernel thread, a zombie.
        ("kworker/0:1", None, [], "kworker/0:1"),
        ("MainThread", None, [], "MainThread"),
        ("", None, [], ""),
    ],
)
def test_a_process_has_the_name_of_its_program(
    tmp_path: Path, comm: str, executable: str | None, words: Sequence[str], name: str
) -> None:
    assert read_name_with_script(process_folder(tmp_path, executable, *words), comm) == name


def test_a_script_is_no_part_of_the_name_of_the_program(tmp_path: Path) -> None:
    folder = process_folder(tmp_path, "/usr/bin/node", "node", "job.js")
    assert read_program_name(folder, "MainThread") == "node"


def test_a_real_program_that_renames_its_main_thread_keeps_its_name(tmp_path: Path) -> None:
    script = tmp_path / "job.py"
    script.write_text(_RENAMED)
    words = (sys.executable, str(script))
    with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        output = process.stdout
        assert output is not None
        output.readline()
        folder = f"/proc/{process.pid}"
        stat = proc.parse_stat(proc.read_or_none(f"{folder}/stat") or b"")
        assert stat is not None
        assert stat.name == "MainThread"
        assert read_name_with_script(folder, stat.name) == f"{Path(sys.executable).name} job.py"
        process.kill()
