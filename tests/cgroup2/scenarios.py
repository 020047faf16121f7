"""The scenarios of `task-profiler run`, and of the monitor in Docker, for the virtual machine
with cgroup v2.

`python3 -m tests.cgroup2.scenarios NAME…` in the machine performs scenarios and prints one JSON
line for each.

A scenario runs as root, under systemd, and returns what it measured. It asserts nothing about the
product: test_scenarios.py does. Each `run` is started in a systemd unit of its own.

The tasks are those of the end-to-end tests (tests/e2e). The daemon uses the systemd cgroup driver,
its default on version 2. The import of a whole image would take minutes on an emulated processor.
The image therefore contains only `sleep` and its libraries. Python, the project's dependencies and
the checkout are mounted from the machine. The monitor writes its report to its own output, because
the batch does not log to CloudWatch Logs.
"""

import contextlib
import errno
import functools
import json
import os
import resource
import subprocess
import sys
import tarfile
import tempfile
import time
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from msgspec.structs import replace

from tests.cgroup2.instance_tasks import PYTHON, REPLACED, RESTARTED, Instance
from tests.e2e.container import (
    BATCH,
    MONITOR,
    ContainerSpec,
    batch_container,
    monitor_container,
)
from tests.e2e.engine import DockerApi, Engine
from tests.e2e.images import BASE_IMAGE
from tests.e2e.task import Task
from tools.waiting import READINGS_OF_FILES, wait_until

_RUN = ("-m", "tests.cgroup2.unhurried", "run")
DELEGATED = ("Delegate=yes",)
LIMIT_SECONDS = 1800.0


def profile(
    *command: str,
    properties: Sequence[str] = DELEGATED,
    user: str = "root",
    options: Sequence[str] = (),
    is_scope: bool = False,
) -> dict[str, Any]:
    """Run a command under `run` with these options in a new unit, a service or a scope; return
    report and output.
    """
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        folder.chmod(0o777)
        kind = ("--scope",) if is_scope else ("--pipe", "--wait")
        unit = (
            "systemd-run",
            "--quiet",
            "--collect",
            *kind,
            *(f"--property={each}" for each in properties),
        )
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
    return (*history, PYTHON, *_RUN, "--output", str(folder / "report"), *options)


def _report(folder: Path) -> Any:
    lines = (folder / "report").read_text().splitlines() if (folder / "report").exists() else ()
    return json.loads(lines[-1]) if lines else None


@contextlib.contextmanager
def file_on_disk() -> Iterator[Path]:
    """Give 300 MiB that are not in the page cache: the kernel charges their pages to the first
    reader's group.
    """
    with tempfile.NamedTemporaryFile(dir="/var/tmp") as file:
        for _ in range(300):
            file.write(os.urandom(2**20))
        file.flush()
        os.fsync(file.fileno())
        Path("/proc/sys/vm/drop_caches").write_text("1")
        yield Path(file.name)


Results = Mapping[str, Any]
SCENARIOS: dict[str, Callable[[], Results]] = {}

_CGROUPS = Path("/sys/fs/cgroup")
_SUBTREE_CONTROL = "cgroup.subtree_control"


def scenario(function: Callable[[], Results]) -> Callable[[], Results]:
    SCENARIOS[function.__name__] = function
    return function


def _python(program: str, *arguments: str) -> tuple[str, ...]:
    return (PYTHON, "-c", program, *arguments)


def _groups_of_run() -> list[str]:
    return sorted(str(group.relative_to(_CGROUPS)) for group in _CGROUPS.rglob("task-profiler-*"))


# --- CPU time ------------------------------------------------------------------------------------

# Runs a command in a control group below its own, which is the one that `run` created, and prints
# two bounds of the CPU time that `run` must report. The lower one is what the kernel counted for
# the command, and this program's own time. The upper one is the whole group's: it includes the fork
# before this program and this program's start.
_WITNESS = """
import os, sys, time
start = time.process_time()
from pathlib import Path
own = Path("/sys/fs/cgroup" + open("/proc/self/cgroup").read().strip().removeprefix("0::"))
assert own.name.startswith("task-profiler-"), own
group = own / "witness"
group.mkdir()
entrance = os.open(group / "cgroup.procs", os.O_WRONLY)
pid = os.fork()
if pid == 0:
    os.write(entrance, b"0")
    os.execvp(sys.argv[1], sys.argv[1:])
assert os.waitpid(pid, 0)[1] == 0
def counted(group):
    return int((group / "cpu.stat").read_text().split()[1]) / 1e6
print(counted(group) + time.process_time() - start, counted(own), flush=True)
group.rmdir()
os._exit(0)
"""
_FORKS = (
    "import os, time\nfor i in range(8):\n    if os.fork() == 0:\n        end = "
    "time.process_time() + 0.4\n        while time.process_time() < end: pass\n        "
    "os._exit(0)\n"
)
_PROGRAMS = {
    "burner": "import time\nend = time.process_time() + 3\nwhile time.process_time() < end: pass\n",
    "8 children": _FORKS + "for i in range(8): os.wait()\n",
    "200 short-lived": "import subprocess\nfor i in range(200): subprocess.run(['/bin/true'])\n",
    "threads": (
        "import hashlib, threading\nblock = bytes(10**6)\n"
        "def work():\n    for i in range(50): hashlib.sha256(block).digest()\n"
        "threads = [threading.Thread(target=work) for i in range(4)]\n"
        "for thread in threads: thread.start()\nfor thread in threads: thread.join()\n"
    ),
    # The last wait ends, with an error, when there are no children any more.
    "unclaimed children": (
        "import signal\nsignal.signal(signal.SIGCHLD, signal.SIG_IGN)\n"
        + _FORKS
        + "try: os.wait()\nexcept ChildProcessError: pass\n"
    ),
}


@scenario
def cpu_seconds() -> Results:
    return {
        name: profile(*_python(_WITNESS, *_python(program))) for name, program in _PROGRAMS.items()
    }


# --- limits --------------------------------------------------------------------------------------

_LIMITS = """
import time
from pathlib import Path
own = Path("/sys/fs/cgroup" + open("/proc/self/cgroup").read().strip().removeprefix("0::"))
end = time.process_time() + 1
while time.process_time() < end: pass
print(own.name, (own / "memory.max").read_text())
"""


# --- memory --------------------------------------------------------------------------------------

_SPIKE = (
    "import time\ntime.sleep({})\nblock = bytearray(800 * 2**20)\ntime.sleep(0.4)\ndel "
    "block\ntime.sleep(0.3)\n"
)
_FORKED_BLOCK = (
    "import os\nblock = bytearray(200 * 2**20)\nfor i in range(4):\n    if os.fork() == 0: "
    "os._exit(0)\nfor i in range(4): os.wait()\n"
)
# A file in /dev/shm occupies memory until it is deleted. The kernel counts it as page cache
# (`file`) and as `shmem`.
# The quick readings between two full ones read a group of the command's own.
_HOLDS_FOR_FULL_READINGS = f"{READINGS_OF_FILES}wait_until_read('/proc/self/status')\n"
_HOLDS = f"""{READINGS_OF_FILES}
own = open("/proc/self/cgroup").read().strip().removeprefix("0::")
has_group = "task-profiler-" in own
wait_until_read(f"/sys/fs/cgroup{{own}}/memory.stat" if has_group else "/proc/self/status")
"""
_SHARED = (
    "import os\nwith open('/dev/shm/block', 'wb') as file:\n    for i in range(200): "
    f"file.write(bytes(2**20))\n{_HOLDS}os.unlink('/dev/shm/block')\n"
)
_MAPPED = (
    "import mmap, sys\nwith open(sys.argv[1], 'rb') as file:\n"
    "    block = mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ)\n"
    f"for place in range(0, len(block), 4096): block[place]\n{_HOLDS}"
)
_READ_TWICE = (
    "import sys\nfor i in range(2):\n    with open(sys.argv[1], 'rb') as file:\n"
    f"        while file.read(2**20): pass\n{_HOLDS}"
)
_WRITES = (
    "import sys\nwith open(sys.argv[1], 'wb') as file:\n    for i in range(300): "
    f"file.write(bytes(2**20))\n{_HOLDS}"
)


@scenario
def spike() -> Results:
    """One of several processes, at several phases of the sampling."""
    several = "sleep 1.2 & sleep 1.3 & {} -c '{}' & wait"
    return {
        str(phase): profile("sh", "-c", several.format(PYTHON, _SPIKE.format(phase)))
        for phase in (0, 0.3, 0.6, 0.9)
    }


@scenario
def mapped_file() -> Results:
    with file_on_disk() as file:
        return profile(*_python(_MAPPED, str(file)))


@scenario
def file_read_twice() -> Results:
    with file_on_disk() as file:
        return profile(*_python(_READ_TWICE, str(file)))


@scenario
def file_written() -> Results:
    with tempfile.TemporaryDirectory(dir="/var/tmp") as folder:
        return profile(*_python(_WRITES, f"{folder}/file"))


_SHARES_AND_READS = (
    "import mmap, sys\nshared = mmap.mmap(-1, 200 << 20)\n"
    "for page in range(0, len(shared), 4096): shared[page] = 1\n"
    f"with open(sys.argv[1], 'rb') as file:\n    while file.read(2**20): pass\n{_HOLDS}"
)
_LOOKS_AT_FILES = (
    "import os, sys\nfor below in os.scandir(sys.argv[1]):\n"
    f"    for file in os.scandir(below): file.stat()\n{_HOLDS}"
)


@scenario
def shared_memory_beside_a_file() -> Results:
    with file_on_disk() as file:
        return profile(*_python(_SHARES_AND_READS, str(file)))


_HOLDS_FILES = (
    "import os, resource, sys\nlimit = resource.getrlimit(resource.RLIMIT_NOFILE)[1]\n"
    "resource.setrlimit(resource.RLIMIT_NOFILE, (limit, limit))\n"
    "for below in os.scandir(sys.argv[1]):\n"
    "    for file in os.scandir(below): os.open(file.path, os.O_RDONLY)\n"
    f"{_HOLDS_FOR_FULL_READINGS}"
)
_HUGE_MIB = 60
_TAKES_HUGE_PAGES = (
    "import mmap\nflags = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | 0x40000\n"
    f"pages = mmap.mmap(-1, {_HUGE_MIB} << 20, flags=flags)\n"
    f"for place in range(0, len(pages), 2 << 20): pages[place] = 1\n{_HOLDS_FOR_FULL_READINGS}"
)


@contextlib.contextmanager
def _folder_of_files() -> Iterator[str]:
    """30,000 files whose inodes and directory entries are not in memory."""
    with tempfile.TemporaryDirectory(dir="/var/tmp") as folder:
        for number in range(30):
            below = Path(folder, str(number))
            below.mkdir()
            for name in range(1000):
                (below / str(name)).touch()
        os.sync()
        Path("/proc/sys/vm/drop_caches").write_text("3")
        yield folder


@scenario
def many_files() -> Results:
    """The command looks at them while another process holds as many descriptors."""
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    descriptors = []
    with _folder_of_files() as folder:
        resource.setrlimit(resource.RLIMIT_NOFILE, (limits[1], limits[1]))
        try:
            descriptors += [os.open(os.devnull, os.O_RDONLY) for _ in range(30_000)]
            return profile(*_python(_LOOKS_AT_FILES, folder))
        finally:
            for descriptor in descriptors:
                os.close(descriptor)
            resource.setrlimit(resource.RLIMIT_NOFILE, limits)


@scenario
def open_files() -> Results:
    with _folder_of_files() as folder:
        return profile(*_python(_HOLDS_FILES, folder))


@scenario
def huge_pages() -> Results:
    number = Path("/proc/sys/vm/nr_hugepages")
    number.write_text(str(_HUGE_MIB // 2))
    try:
        return profile(*_python(_TAKES_HUGE_PAGES))
    finally:
        number.write_text("0")


# Above `memory.high`, the kernel makes a program wait for up to two seconds a time. The start, which
# waits for the disk, is a small part of its life, however slow the machine is.
_WAITS_FOR_MEMORY = """
import os, time
from pathlib import Path
own = Path("/sys/fs/cgroup" + open("/proc/self/cgroup").read().strip().removeprefix("0::"))
assert own.name.startswith("task-profiler-"), own
def seconds_for_disks():
    return int((own / "io.pressure").read_text().partition("total=")[2].split()[0]) / 1e6
with open("/proc/self/stat") as stat, open("/proc/uptime") as uptime:
    began_ticks = int(stat.read().rpartition(")")[2].split()[19])
    start = float(uptime.read().split()[0]) - began_ticks / os.sysconf("SC_CLK_TCK")
before = seconds_for_disks()
(own / "memory.high").write_text(str(60 << 20))
blocks, began = [], time.monotonic()
while time.monotonic() < began + max(40, 4 * start):
    blocks.append(b"x" * (1 << 18))
waited = time.monotonic() - began - time.process_time()
print(waited, start + seconds_for_disks() - before, flush=True)
"""


@scenario
def wait_for_memory() -> Results:
    return profile(*_python(_WAITS_FOR_MEMORY))


@contextlib.contextmanager
def swap_space() -> Iterator[None]:
    """Give the machine 512 MiB of swap on its disk."""
    with tempfile.NamedTemporaryFile(dir="/var/tmp") as file:
        os.posix_fallocate(file.fileno(), 0, 512 * 2**20)
        os.fchmod(file.fileno(), 0o600)
        subprocess.run(("mkswap", "--quiet", file.name), check=True)
        subprocess.run(("swapon", file.name), check=True)
        try:
            yield
        finally:
            subprocess.run(("swapoff", file.name), check=True)


_IN_SWAP = "block = bytearray(b'x') * (300 * 2**20)\n"
_SHARED_IN_SWAP = (
    "with open('/dev/shm/block', 'wb') as file:\n"
    "    for i in range(300): file.write(bytes(2**20))\n"
)
# A reading that pages the profiler in costs so much that a full one, which has the processes' swap,
# may follow much later. A shorter interval has a larger share of the CPU.
_SWAP_INTERVAL = ("--interval", "0.2")
# What of the memory is in swap, before and after the readings: that of the program's control group,
# or its own.
_HOLDS_GROUP_SWAP = f"""
{READINGS_OF_FILES}
own = open("/proc/self/cgroup").read().strip().removeprefix("0::")
def swap_mb():
    return int(open(f"/sys/fs/cgroup{{own}}/memory.swap.current").read()) / 2**20
print(swap_mb())
wait_until_read(f"/sys/fs/cgroup{{own}}/memory.swap.current", count=1)
print(swap_mb())
"""
_WAITS_FOR_READINGS = f"""
{READINGS_OF_FILES}
wait_until_read("/proc/self/status", count=2)
"""
_HOLDS_OWN_SWAP = f"""
{READINGS_OF_FILES}
def swap_mb():
    return int(open("/proc/self/smaps_rollup").read().partition("\\nSwap:")[2].split()[0]) / 1024
print(swap_mb())
wait_until_read("/proc/self/status", count=1)
print(swap_mb())
"""


@scenario
def memory_in_swap() -> Results:
    """Half of 300 MiB, in a delegated group and for a user without one, and of a file in memory in
    both.
    """
    after_shared = "os.unlink('/dev/shm/block')\n"
    with swap_space():
        return {
            name: profile(
                *_python(program),
                properties=(*properties, "MemoryMax=150M"),
                user=user,
                options=_SWAP_INTERVAL,
            )
            for name, program, properties, user in (
                ("own group", _IN_SWAP + _HOLDS_GROUP_SWAP, DELEGATED, "root"),
                ("no group", _IN_SWAP + _HOLDS_OWN_SWAP, (), "nobody"),
                (
                    "file in memory",
                    _SHARED_IN_SWAP + _HOLDS_GROUP_SWAP + after_shared,
                    DELEGATED,
                    "root",
                ),
                (
                    "file without a group",
                    _SHARED_IN_SWAP + _WAITS_FOR_READINGS + after_shared,
                    (),
                    "nobody",
                ),
            )
        }


# --- one run each --------------------------------------------------------------------------------

_BLOCK = f"block = bytearray(100 * 2**20)\n{_HOLDS}"
_LIMIT = "MemoryMax=128M"
_MAX_KILLED_CHILDREN = 5


def _child_alone_killed(perform: Callable[[], dict[str, Any]]) -> dict[str, Any]:
    """What is performed, once more if the kernel has killed more than the child.

    The kernel passes over a dying process although its last pages still count. If another process
    needs memory in that moment, the kernel kills the next largest one, here the profiler: 4 of 67
    times in this machine, beside a process that always needs some.
    """
    for _ in range(_MAX_KILLED_CHILDREN):
        before = _kernel_kills()
        results = perform()
        killed = sorted(_kernel_kills() - before)
        if len(killed) <= 1:
            break
    return {**results, "kernelKills": killed}


def _kernel_kills() -> frozenset[str]:
    """The lines of the kernel's log about processes that it killed for memory."""
    log = subprocess.run(("dmesg",), capture_output=True, text=True, check=True).stdout
    return frozenset(line for line in log.splitlines() if "Killed process" in line)


def _child_killed(
    exit_code: int, *properties: str, user: str = "root", is_scope: bool = False
) -> Results:
    command = ("sh", "-c", f"{PYTHON} -c 'x = bytearray(2**28)'; sleep 1; exit {exit_code}")
    return _child_alone_killed(
        lambda: profile(*command, properties=(*properties, _LIMIT), user=user, is_scope=is_scope)
    )


SCENARIOS |= {
    "unclaimed_children_without_a_sample": partial(
        profile, *_python(_PROGRAMS["unclaimed children"]), options=("--interval", "60")
    ),
    "memory_limit": partial(profile, *_python(_LIMITS), properties=(*DELEGATED, "MemoryMax=512M")),
    "cpu_quota": partial(profile, *_python(_LIMITS), properties=(*DELEGATED, "CPUQuota=50%")),
    "memory_shared_by_forks": partial(profile, *_python(_FORKED_BLOCK)),
    "shared_memory": partial(profile, *_python(_SHARED)),
    "no_operation": partial(profile, "/bin/true"),
    "clock_is_set": partial(profile, "sh", "-c", "sleep 1; date --set '8 hours'; sleep 1"),
    "child_killed_then_failure": partial(_child_killed, 3, *DELEGATED),
    "child_killed_then_success": partial(_child_killed, 0, *DELEGATED),
    "command_killed": partial(
        profile, *_python("x = bytearray(2**28)"), properties=(*DELEGATED, _LIMIT)
    ),
    # Systemd may stop the scope after the kill.
    "child_killed_in_a_plain_scope": partial(_child_killed, 3, is_scope=True),
    # As an unprivileged user, whose `run` cannot create a group. Systemd does not stop the service
    # after the kill.
    "child_killed_in_a_plain_service_then_success": partial(
        _child_killed, 0, "OOMPolicy=continue", user="nobody"
    ),
    "unprivileged": partial(profile, *_python(_BLOCK), properties=(), user="nobody"),
    "unprivileged_with_a_delegated_group": partial(profile, *_python(_BLOCK), user="nobody"),
}


# --- what remains after a run ---------------------------------------------------------------------------


@scenario
def command_not_found() -> Results:
    before = _groups_of_run()
    return {**profile("no-such-command"), "groupsBefore": before, "groupsAfter": _groups_of_run()}


@scenario
def orphan() -> Results:
    """The command leaves a process, which keeps the scope alive after `run` has ended."""
    leaves = "sleep 600 > /dev/null 2>&1 & until grep -q sleep /proc/$!/comm; do :; done; echo $!"
    result = profile("sh", "-c", leaves, is_scope=True)
    own = Path(f"/proc/{int(result['output'])}/cgroup").read_text()
    group = _CGROUPS / own.strip().removeprefix("0::/")
    found = {
        "group": str(group.relative_to(_CGROUPS)),
        "groupsBelow": [path.name for path in group.iterdir() if path.is_dir()],
        "subtreeControl": (group / _SUBTREE_CONTROL).read_text().split(),
    }
    (group / "cgroup.kill").write_text("1")
    return {**result, **found}


@scenario
def run_killed() -> Results:
    """Kill `run` in a delegated service that does not stop the command, and start the service
    again.
    """
    unit = "killed-run.service"
    with tempfile.TemporaryDirectory() as name:
        properties = (*DELEGATED, "KillMode=process", "RemainAfterExit=no")
        command = (*run_command(Path(name)), "--", "sleep", "600")
        subprocess.run(
            (
                "systemd-run",
                "--quiet",
                f"--unit={unit}",
                *(f"--property={each}" for each in properties),
                *command,
            ),
            check=True,
            timeout=LIMIT_SECONDS,
        )
        group = _CGROUPS / "system.slice" / unit
        wait_until(lambda: b"sleep" in _commands_below(group), "the command's start")
        pid = int(_property(unit, "MainPID"))
        groups_while_running = [path.name for path in group.iterdir() if path.is_dir()]
        os.kill(pid, 9)
        wait_until(
            lambda: _property(unit, "ActiveState") == "failed",
            "the service's failure",
        )
        found: dict[str, Any] = {
            "groupsWhileRunning": groups_while_running,
            "subtreeControl": (group / _SUBTREE_CONTROL).read_text().split(),
            "enteringError": _error_of_entering(group),
        }
        subprocess.run(("systemctl", "start", unit), check=False)
        wait_until(
            lambda: _property(unit, "ActiveState") != "activating",
            "the second start",
        )
        time.sleep(2)  # the new process may still fail
        found["stateAfterStart"] = _property(unit, "ActiveState")
        (group / "cgroup.kill").write_text("1")
        return found


def _commands_below(group: Path) -> list[bytes]:
    pids = [pid for file in group.rglob("cgroup.procs") for pid in file.read_text().split()]
    names = []
    for pid in pids:
        with contextlib.suppress(OSError):
            names.append(Path(f"/proc/{pid}/comm").read_bytes().strip())
    return names


def _property(unit: str, name: str) -> str:
    command = ("systemctl", "show", "--value", f"--property={name}", unit)
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()


def _error_of_entering(group: Path) -> str | None:
    """Move a process into the group; return the name of the kernel's error, None if it went
    well.
    """
    process = subprocess.Popen(("sleep", "600"))
    try:
        (group / "cgroup.procs").write_text(str(process.pid))
    except OSError as error:
        return errno.errorcode.get(error.errno or 0, str(error))
    finally:
        process.kill()
        process.wait()
    return None


_CHECKOUT = Path.cwd()
_MOUNTS = tuple((path, str(path)) for path in (Path("/usr"), _CHECKOUT))
_IMAGE_LINKS = ("bin", "sbin", "lib", "lib64")
_MONITOR_ENVIRONMENT = {"AWS_EC2_METADATA_DISABLED": "true", "HOME": "/tmp"}
SPIKE_MIB = 800
RING_MIB = 128
_MAPS_A_RING = f"""
import mmap, socket, struct, time
block, number, frame = 2**20, {RING_MIB}, 2048
taker = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, 0)
request = struct.pack("IIII", block, number, frame, block * number // frame)
taker.setsockopt(263, 5, request)  # SOL_PACKET, PACKET_RX_RING
ring = mmap.mmap(taker.fileno(), block * number)
for place in range(0, len(ring), 4096): ring[place]
time.sleep(60)
"""
WRAPPED_MIB = 300


def _perform(memory_mib: int, *load: str) -> dict[str, Any]:
    """Run a batch with this load beside the monitor.

    The batch waits for the monitor, whose start takes some seconds on an emulated processor.
    """
    return _monitor(batch_container("--wait-seconds", "40", *load, memory_mib=memory_mib))


def _monitor(batch: ContainerSpec) -> dict[str, Any]:
    """Run a task whose containers share a process namespace; return the monitor's report and the
    kernel's mark.
    """
    monitor = replace(
        monitor_container(_MONITOR_ENVIRONMENT, as_root=True),
        image=BASE_IMAGE,
        command=(PYTHON, "-B", "-m", "profiler", "monitor"),
        memory_mib=256,
    )
    containers = tuple(
        replace(spec, read_only_mounts=(*spec.read_only_mounts, *_MOUNTS))
        for spec in (batch, monitor)
    )
    with Task(_engine(), *containers, pid_mode_task=True) as task:
        task.start()
        task.wait_stopped()
        output, errors = task[MONITOR].logs()
        return {
            "exitCode": task[BATCH].facts.exit_code,
            "report": _report_of_task(output.splitlines()),
            "errors": errors,
            "kernelPeakMB": (task[BATCH].kernel().memory_peak_bytes or 0) / 2**20,
        }


def _wrap(memory_mib: int, *load: str) -> dict[str, Any]:
    """Run a task of one container, whose entry point is `run` before the batch's command."""
    batch = batch_container(*load, memory_mib=memory_mib)
    wrapped = replace(
        batch,
        command=(PYTHON, "-B", *_RUN, "--no-history", "--", *batch.command),
        read_only_mounts=(*batch.read_only_mounts, *_MOUNTS),
    )
    with Task(_engine(), wrapped) as task:
        task.start()
        task.wait_stopped()
        output, errors = task[BATCH].logs()
        return {
            "exitCode": task[BATCH].facts.exit_code,
            "report": _report_of_task(errors.splitlines()),
            "output": output,
            "errors": errors,
            "dockerId": task[BATCH].facts.docker_id,
            "taskId": task.task_id,
            "kernelPeakMB": (task[BATCH].kernel().memory_peak_bytes or 0) / 2**20,
        }


def _report_of_task(lines: Sequence[str]) -> Any:
    documents = (json.loads(line) for line in lines if line.startswith("{"))
    return next((document for document in documents if document.get("type") == "task.report"), None)


@functools.cache
def _engine() -> Engine:
    subprocess.run(("systemctl", "start", "docker"), check=True, timeout=LIMIT_SECONDS)
    engine = Engine(
        api=(api := DockerApi(Path("/run/docker.sock"))),
        cgroup_driver=api.call("GET", "/info")["CgroupDriver"],
    )
    with tempfile.NamedTemporaryFile(suffix=".tar") as file:
        with tarfile.open(file.name, "w") as tar:
            for name in _IMAGE_LINKS:
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


SCENARIOS |= {
    "early_spike_root": lambda: _perform(
        1024, "--spike-mib", str(SPIKE_MIB), "--idle-seconds", "30"
    ),
    "container_child_killed": lambda: _perform(
        256, "--oom-child", "--idle-seconds", "30", "--exit-code", "3"
    ),
    "container_ring": lambda: _monitor(
        replace(batch_container(memory_mib=256), command=_python(_MAPS_A_RING))
    ),
    "wrapped_spike": lambda: _wrap(
        512, "--wait-seconds", "5", "--spike-mib", str(WRAPPED_MIB), "--idle-seconds", "2"
    ),
    "wrapped_child_killed": lambda: _child_alone_killed(
        lambda: _wrap(
            128, "--wait-seconds", "2", "--oom-child", "--idle-seconds", "2", "--exit-code", "3"
        )
    ),
    "instance_tasks": lambda: Instance(_engine(), _CHECKOUT).run_tasks(),
    REPLACED: lambda: Instance(_engine(), _CHECKOUT).replace_monitor(),
    RESTARTED: lambda: Instance(_engine(), _CHECKOUT).restart_dockerd(),
}


if __name__ == "__main__":
    for name in sys.argv[1:]:
        started = time.monotonic()
        try:
            answer: dict[str, Any] = {"results": SCENARIOS[name]()}
        except Exception:  # noqa: BLE001  one error must not stop the other scenarios
            answer = {"error": traceback.format_exc()}
        seconds = round(time.monotonic() - started, 1)
        # The results.
        print(json.dumps({"scenario": name, "seconds": seconds, **answer}), flush=True)  # noqa: T201
