"""The scenarios of the monitor in Docker containers, for the virtual machine with cgroup v2.

The tasks are those of the end-to-end tests (tests/e2e). The daemon uses the systemd cgroup driver, its default on
version 2. The import of a whole image would take minutes on an emulated processor. The image therefore contains only
`sleep` and its libraries. Python, the project's dependencies and the checkout are mounted from the machine.

The monitor writes its report to its own output, because the batch does not log to CloudWatch Logs.
"""

import dataclasses
import functools
import json
import os
import subprocess
import tarfile
import tempfile
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from tests.cgroup2.scenarios import LIMIT_SECONDS, PYTHON, Results, file_on_disk
from tests.e2e.engine import DockerApi, Engine
from tests.e2e.images import BASE_IMAGE
from tests.e2e.specs import BATCH, MONITOR, ContainerSpec, TaskSpec, batch_container, monitor_container
from tests.e2e.task import Task

_CHECKOUT = Path.cwd()
_MOUNTS = tuple((path, str(path)) for path in (Path("/usr"), _CHECKOUT))
_LINKS = ("bin", "sbin", "lib", "lib64")
_ENVIRONMENT = {"AWS_EC2_METADATA_DISABLED": "true", "HOME": "/tmp"}
SPIKE_MIB = 800
_SPIKE = ("--spike-mib", str(SPIKE_MIB))
_FILE = "/input"


def _batch(memory_mib: int, *load: str) -> ContainerSpec:
    """A batch that waits for the monitor, whose start takes some seconds on an emulated processor."""
    return batch_container("--wait-seconds", "15", *load, memory_mib=memory_mib)


def _spike_at_the_end() -> Results:
    """Five tasks with a spike just before the end: only the group's mark after the last process includes it."""
    return {"tasks": [_perform(_batch(1024, *_SPIKE, "--spike-seconds", "0")) for _ in range(5)]}


def _reads_a_file_twice() -> Results:
    program = (
        "import time\nfor i in range(2):\n"
        f"    with open('{_FILE}', 'rb') as file:\n        while file.read(2**20): pass\n"
        "time.sleep(20)\n"
    )
    with file_on_disk(300) as file:
        mount = (file, _FILE)
        batch = batch_container(memory_mib=512)
        batch = dataclasses.replace(
            batch, command=(PYTHON, "-B", "-c", program), read_only_mounts=(*batch.read_only_mounts, mount)
        )
        return _perform(batch)


def _perform(batch: ContainerSpec, *, as_root: bool = True) -> dict[str, Any]:
    """Run a task whose containers share a process namespace; return the monitor's report and the kernel's mark."""
    monitor = dataclasses.replace(
        monitor_container(_ENVIRONMENT, as_root=as_root),
        image=BASE_IMAGE,
        command=(PYTHON, "-B", "-m", "profiler", "monitor"),
        memory_mib=256,
    )
    containers = tuple(
        dataclasses.replace(spec, read_only_mounts=(*spec.read_only_mounts, *_MOUNTS)) for spec in (batch, monitor)
    )
    spec = TaskSpec(containers=containers, limit_vcpu=2, limit_memory_mib=2048, pid_mode_task=True)
    with Task(_engine(), spec) as task:
        task.start()
        task.wait_stopped(LIMIT_SECONDS)
        output, errors = task[MONITOR].logs()
        return {
            "exitCode": task[BATCH].facts.exit_code,
            "report": _report(output.splitlines()),
            "errors": errors,
            "kernelPeakMB": (task[BATCH].kernel().memory_peak_bytes or 0) / 2**20,
        }


def _report(lines: Sequence[str]) -> Any:
    documents = (json.loads(line) for line in lines if line.startswith("{"))
    return next((document for document in documents if document.get("type") == "task.report"), None)


@functools.cache
def _engine() -> Engine:
    subprocess.run(("systemctl", "start", "docker"), check=True, timeout=LIMIT_SECONDS)
    engine = Engine(
        api=(api := DockerApi(Path("/run/docker.sock"))), cgroup_driver=api.call("GET", "/info")["CgroupDriver"]
    )
    with tempfile.NamedTemporaryFile(suffix=".tar") as file:
        with tarfile.open(file.name, "w") as tar:
            for name in _LINKS:
                tar.add(f"/{name}", name)
            for path in _files_of("/usr/bin/sleep"):
                tar.add(path, str(path).lstrip("/"), recursive=False)
        engine.command("import", file.name, BASE_IMAGE)
    return engine


def _files_of(program: str) -> Iterator[Path]:
    """The program and its libraries, at their real places."""
    yield Path(program)
    listed = subprocess.run(("ldd", program), capture_output=True, text=True, check=True).stdout
    for word in listed.split():
        if word.startswith("/"):
            real = Path(os.path.realpath(Path(word).parent)) / Path(word).name
            yield real
            if real.is_symlink():
                yield real.resolve()


SCENARIOS: dict[str, Callable[[], Results]] = {
    "spike_at_the_end_root": _spike_at_the_end,
    "early_spike_root": lambda: _perform(_batch(1024, *_SPIKE, "--idle-seconds", "10")),
    "early_spike_user": lambda: _perform(_batch(1024, *_SPIKE, "--idle-seconds", "10"), as_root=False),
    "container_killed": lambda: _perform(_batch(256, "--oom")),
    "container_child_killed": lambda: _perform(_batch(256, "--oom-child", "--idle-seconds", "5", "--exit-code", "3")),
    "container_reads_a_file_twice": _reads_a_file_twice,
}
