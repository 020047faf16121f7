"""Tasks of an instance with cgroup v2, in the slices and scopes that the ECS agent and Docker let systemd make."""

import inspect
import json
import secrets
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from unittest.mock import Mock

from msgspec.structs import replace

from profiler.aggregation.container_usage import ContainerUsage
from profiler.core.clock import SystemClock
from profiler.core.timestamps import NS_PER_SECOND
from profiler.monitor.instance.instance_task import InstanceTask
from profiler.readers.container_sample import ContainerSample
from profiler.readers.docker.docker_events import ContainerEvent
from profiler.readers.docker.ecs_container import EcsContainer, EcsLabels
from profiler.readers.docker.task_groups import InstanceCgroups
from tools.waiting import wait_until


def counted(group: Path) -> dict[str, int]:
    """What the kernel counts for a group."""
    cpu_us, mark = (group / "cpu.stat").read_text().split()[1], (group / "memory.peak").read_text()
    kills = (group / "memory.events").read_text().partition("oom_kill ")[2].split()[0]
    return {"cpuNs": int(cpu_us) * 1000, "markBytes": int(mark), "kills": int(kills)}


_PRINT_COUNTED = (
    f"import json\nfrom pathlib import Path\n{inspect.getsource(counted)}\n"
    "own = '/sys/fs/cgroup' + open('/proc/self/cgroup').read().strip().removeprefix('0::')\n"
    "print(json.dumps(counted(Path(own))), flush=True)\n"
)
_BURNER = "import time\nend = time.process_time() + 2\nwhile time.process_time() < end: pass\n"
_FILE = (
    "import os, time\nwith open('/var/tmp/file', 'wb') as file:\n    for i in range(200): file.write(bytes(2**20))\n"
    "time.sleep(2.5)\n"
)
PROGRAMS = {
    "burner": _BURNER,
    "two_containers": _BURNER,
    "file_written": _FILE + "block = bytearray(100 * 2**20)\n",
    "file_deleted": _FILE + "os.unlink('/var/tmp/file')\ntime.sleep(2.5)\n",
    "child_killed": "import os, time\nif os.fork() == 0: x = bytearray(2**30)\nos.wait()\ntime.sleep(1)\n",
}


def instance_task(name: str) -> Mapping[str, Any]:
    """Follow a task until only its own group is left; return our totals, and the kernel's of the two groups."""
    clock, (task_id, docker_id, other_id) = SystemClock(), (secrets.token_hex(size) for size in (16, 32, 32))
    task_slice = f"ecstasks-{task_id}.slice"
    group = Path("/sys/fs/cgroup/ecstasks.slice", task_slice)
    manager = ("org.freedesktop.systemd1", "/org/freedesktop/systemd1", "org.freedesktop.systemd1.Manager")
    unit = ("StartTransientUnit", "ssa(sv)a(sa(sv))", task_slice, "fail", "1", "MemoryMax", "t", str(2**30), "0")
    subprocess.run(("busctl", "--quiet", "call", *manager, *unit), check=True)
    wait_until(group.is_dir, 60, "the task's group")

    def start(an_id: str, program: str) -> subprocess.Popen[str]:
        scope = ("--scope", f"--slice={task_slice}", f"--unit=docker-{an_id}.scope", "--property=Delegate=yes")
        command = ("systemd-run", "--quiet", *scope, "--property=MemoryMax=512M", "python3", "-c", program)
        return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    labels = EcsLabels(task_arn=f"arn:aws:ecs:eu-west-1:111122223333:task/jobs/{task_id}", container_name="batch")
    task = InstanceTask(labels, InstanceCgroups(), clock, Mock(), Mock(), read_network=lambda _: None, is_resumed=False)
    other, usage = None, ContainerUsage(NS_PER_SECOND)
    box = EcsContainer(docker_id=docker_id, labels=labels, is_running=True, cgroup_parent=task_slice)
    if name == "two_containers":  # the other one ends with its standard input
        other = start(other_id, f"{_BURNER}import sys\nsys.stdin.read()")
        task.add(replace(box, docker_id=other_id, labels=replace(labels, container_name="other")))
    process = start(docker_id, PROGRAMS[name] + _PRINT_COUNTED)
    task.add(box)

    def step() -> None:
        sample = task.stats().get(docker_id)
        if isinstance(sample, ContainerSample):
            usage.add(sample, received_ns=clock.monotonic_ns(), started_ns=None)
        clock.sleep(0.25)

    while process.poll() is None:
        step()
    wait_until(lambda: not (group / f"docker-{docker_id}.scope").exists(), 60, "the end of the group")
    task.on_event(ContainerEvent(action="die", docker_id=docker_id, time_ns=clock.wall_ns(), exit_code=0))
    task.add(replace(box, is_running=False, finished_ns=clock.wall_ns(), exit_code=process.returncode))
    while task.is_ending:
        step()
        task.settle(may_ask=False)
    step()
    answer = {
        "cpuNs": usage.last_sample and usage.last_sample.cpu_ns,
        "usedBytes": usage.kernel_peak_bytes,
        "isOutOfMemory": next(one for one in task.task().containers if one.docker_id == docker_id).was_out_of_memory,
        "container": json.loads(process.communicate()[0]),
        "task": counted(group),
    }
    if other is not None:
        other.communicate()
    task.close()
    subprocess.run(("systemctl", "stop", task_slice), check=True)
    return answer
