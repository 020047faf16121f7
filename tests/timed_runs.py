"""Runs the programs that know how their time was spent, and compares what the record says."""

import contextlib
import ctypes
import fcntl
import os
import shlex
import shutil
import socket
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from string import Formatter

import msgspec
from msgspec import Struct

from profiler.readers.linux.process_tree import list_children
from profiler.record.activity_model import TimeBreakdown
from profiler.record.record_model import Record, decode
from tests.counterparts import answering_server, visited_port
from tests.programs.phases import FOLDER
from tests.simulation.known_runs import Execution, Limits, can_limit, control_group
from tests.task_endpoint import Task
from tests.timed_programs import Program
from tests.true_parts import OF_LEVEL_1, PARTS, Part, read_phases, true_parts
from tools.waiting import wait_until

ROOT = Path(__file__).resolve().parent.parent
_SOURCES = ROOT / "tests" / "programs"
# Where `make waits` installs the frameworks of the programs.
_FRAMEWORKS = ROOT / ".venv-waits" / "bin" / "python"
_MONITOR_POINTS = 5.0
_MIN_COVERED_PERCENT, _MIN_COVERED_BESIDE_OTHERS = 90.0, 60.0
_NOBODY = 65534
_DISK_FILE_BYTES = 8 << 20
_UNIFIED_FOLDERS = (Path("/sys/fs/cgroup/unified"), Path("/sys/fs/cgroup"))
_FREEZERS = Path("/sys/fs/cgroup/freezer")


class MissingError(Exception):
    """What a program needs is not on this machine."""


class Observation(Struct, frozen=True, kw_only=True):
    """What a program says of itself, and what the record says of it. For so long the profiler
    waited for a CPU, by the kernel: then it could not look.
    """

    truth: Mapping[str, Part]
    record: Record
    waited_seconds: float = 0.0

    @property
    def said(self) -> dict[str, float]:
        """The parts of the record in percent; one that is absent is 0."""
        fields = msgspec.to_builtins(self.breakdown)
        return {part: fields.get(f"{part}Percent", 0.0) for part in PARTS}

    @property
    def breakdown(self) -> TimeBreakdown:
        return self.record.time_breakdown

    def wrong(self, points: float, *, is_alone: bool = True) -> dict[str, str]:
        """The parts that are further from the truth than the points, twice these beside other
        programs. What no look explains is ``other``, and missing elsewhere. Beside others, the
        profiler looks while it has a CPU.
        """
        covered_percent = self.breakdown.covered_percent or 0.0
        min_covered_percent = _MIN_COVERED_PERCENT if is_alone else _MIN_COVERED_BESIDE_OTHERS
        points *= 1 if is_alone else 2
        found = {}
        # All parts together lack no more than what no look explains.
        unexplained = left = 100 - covered_percent
        lacking = {part: self.truth[part].least - percent for part, percent in self.said.items()}
        for part, lacking_percent in sorted(lacking.items(), key=lambda each: -each[1]):
            truth, percent = self.truth[part], self.said[part]
            too_much, too_little = percent - truth.most, lacking_percent
            if part == "other":
                too_much -= unexplained
            elif lacking_percent > 0:
                too_little -= left
                left = max(left - lacking_percent, 0.0)
            if max(too_much, too_little) > points:
                found[part] = f"{percent:.1f} instead of {truth.least:.1f} to {truth.most:.1f}"
        if not is_alone:
            duration_ms = self.record.metrics.duration_ms or 1
            min_covered_percent -= 100_000 * self.waited_seconds / duration_ms
        if covered_percent < min_covered_percent:
            found["covered"] = f"{covered_percent:.1f}"
        return found

    def unlike(
        self, other: "Observation", *, is_full: bool, is_alone: bool = True
    ) -> dict[str, str]:
        """The parts in which two watchers of one execution differ by more than 5 points, twice
        these beside other programs, and what they did not see; unless it ``is_full``, of those that
        level 1 knows, too.
        """
        covered = [each.breakdown.covered_percent or 0.0 for each in (self, other)]
        most = _MONITOR_POINTS * (1 if is_alone else 2)
        most += max(100 - percent for percent in covered)
        found = {}
        for part, percent in self.said.items():
            is_known = is_full or part in OF_LEVEL_1
            if is_known and abs(percent - other.said[part]) > most:
                found[part] = f"{percent:.1f}, {other.said[part]:.1f}"
        return found


# --- what a command names in braces -----------------------------------------------------------


def _need(program: str) -> str:
    versions = sorted(map(str, Path("/usr/lib/postgresql").glob("*/bin")))
    found = shutil.which(program, path=os.pathsep.join([os.environ["PATH"], *versions]))
    if found is None:
        raise MissingError(f"the program {program}")
    return found


@contextlib.contextmanager
def _frameworks(_: Path) -> Iterator[str]:
    if not _FRAMEWORKS.exists():
        raise MissingError(f"{_FRAMEWORKS.relative_to(ROOT)} (make waits)")
    yield str(_FRAMEWORKS)


@contextlib.contextmanager
def _port(_: Path) -> Iterator[str]:
    with answering_server() as port:
        yield str(port)


@contextlib.contextmanager
def _visited(_: Path) -> Iterator[str]:
    port = _free_port()
    with visited_port(port, 0.9):
        yield port


@contextlib.contextmanager
def _address(_: Path) -> Iterator[str]:
    with answering_server() as port:
        yield f"127.0.0.1:{port}"


@contextlib.contextmanager
def _java_classes(folder: Path) -> Iterator[str]:
    sources = [_SOURCES / f"{name}.java" for name in ("Idle", "Locks", "Pool")]
    subprocess.run([_need("javac"), "-d", folder, *sources], check=True)
    yield str(folder)


@contextlib.contextmanager
def _virtual_threads(folder: Path) -> Iterator[str]:
    """A Java that has virtual threads, as each since version 21."""
    homes = [path.parent for path in Path("/usr/lib/jvm").glob("*/bin/javac")]
    homes.append(Path(_need("javac")).parent)
    for home in homes:
        made = subprocess.run(
            [home / "javac", "--release", "21", "-d", folder, _SOURCES / "Virtual.java"],
            check=False,
            capture_output=True,
        )
        if made.returncode == 0:
            yield f"{home / 'java'} -cp {folder}"
            return
    raise MissingError("Java 21 or newer")


@contextlib.contextmanager
def _go_program(folder: Path) -> Iterator[str]:
    subprocess.run([_need("go"), "build", "-o", folder / "idle", _SOURCES / "idle.go"], check=True)
    yield str(folder / "idle")


@contextlib.contextmanager
def _vforks(folder: Path) -> Iterator[str]:
    made = str(folder / "vforks")
    subprocess.run([_need("gcc"), "-o", made, _SOURCES / "vforks.c"], check=True)
    yield made


@contextlib.contextmanager
def _locked_file(folder: Path) -> Iterator[str]:
    _need("flock")
    path = folder / "locked"
    with path.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield str(path)


@contextlib.contextmanager
def _slow_disk_file(folder: Path) -> Iterator[str]:
    """A file that programs of this process's group read slowly."""
    if not can_limit():
        raise MissingError("root and version 1 of the control groups")
    path = folder / "disk"
    path.write_bytes(os.urandom(_DISK_FILE_BYTES))
    os.sync()
    yield str(path)


@contextlib.contextmanager
def _groups(_: Path) -> Iterator[str]:
    """The folder of all control groups of version 2, in which root may freeze one."""
    for folder in _UNIFIED_FOLDERS:
        if os.geteuid() == 0 and os.access(folder / "cgroup.procs", os.W_OK):
            yield str(folder)
            return
    raise MissingError("root and version 2 of the control groups")


@contextlib.contextmanager
def _freezers(_: Path) -> Iterator[str]:
    """The folder of all groups of version 1 that root may freeze."""
    if os.geteuid() != 0 or not os.access(_FREEZERS / "cgroup.procs", os.W_OK):
        raise MissingError("root and the freezer of version 1 of the control groups")
    yield str(_FREEZERS)


@contextlib.contextmanager
def _ring(_: Path) -> Iterator[str]:
    """Nothing, where the kernel permits an io_uring."""
    parameters = (ctypes.c_char * 120)()
    descriptor = ctypes.CDLL(None).syscall(425, 4, parameters)
    if descriptor < 0:
        raise MissingError("a kernel that permits io_uring")
    os.close(descriptor)
    yield ""


@contextlib.contextmanager
def _server(
    command: list[str], is_ready: Callable[[], object], user: int | None = None
) -> Iterator[None]:
    process = subprocess.Popen(
        command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, user=user
    )
    try:
        wait_until(is_ready, f"{command[0]} to be ready")
        yield
    finally:
        process.terminate()
        process.wait()


@contextlib.contextmanager
def _redis_port(folder: Path) -> Iterator[str]:
    port = _free_port()
    command = [_need("redis-server"), "--port", port, "--save", "", "--dir", str(folder)]
    with _server(command, lambda: _accepts(port)):
        yield port


@contextlib.contextmanager
def _redis(folder: Path) -> Iterator[str]:
    with _redis_port(folder) as port:
        yield f"127.0.0.1:{port}"


@contextlib.contextmanager
def _postgres(folder: Path) -> Iterator[str]:
    """A server of one test; it refuses root, who runs it as nobody."""
    user = _NOBODY if os.geteuid() == 0 else None
    data, port = folder / "postgres", _free_port()
    data.mkdir()
    if user is not None:
        os.chown(data, user, -1)
    initdb = [_need("initdb"), "--username=postgres", "--auth=trust", "--no-sync", str(data)]
    subprocess.run(initdb, check=True, stdout=subprocess.DEVNULL, user=user, cwd="/")
    command = [_need("postgres"), "-D", str(data), "-p", port, "-k", "", "-h", "127.0.0.1"]
    # Its port answers before it takes a client.
    ask = [_need("pg_isready"), "--quiet", "--host=127.0.0.1", f"--port={port}"]
    with _server(command, lambda: not subprocess.run(ask, check=False).returncode, user):
        yield f"127.0.0.1:{port}"


@contextlib.contextmanager
def _nginx(folder: Path) -> Iterator[str]:
    configuration = folder / "nginx.conf"
    kinds = ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")
    paths = " ".join(f"{kind}_temp_path {folder}/{kind};" for kind in kinds)
    configuration.write_text(
        f"daemon off; pid {folder}/nginx.pid; error_log stderr; events {{}}\n"
        f"http {{ {paths} access_log off; server {{ listen unix:{folder}/web; }} }}\n"
    )
    yield f"{_need('nginx')} -p {folder} -c {configuration}"


@contextlib.contextmanager
def _sshd(folder: Path) -> Iterator[str]:
    if os.geteuid() != 0:
        raise MissingError("root, for sshd")
    key = folder / "key"
    generate = [_need("ssh-keygen"), "-q", "-t", "ed25519", "-N", "", "-f", str(key)]
    subprocess.run(generate, check=True)
    Path("/run/sshd").mkdir(exist_ok=True)
    command = f"{_need('sshd')} -f /dev/null -h {key} -p {_free_port()} -o ListenAddress=127.0.0.1"
    if subprocess.run([*command.split(), "-t"], stderr=subprocess.DEVNULL, check=False).returncode:
        raise MissingError("the user of Debian's openssh-server")
    yield f"{command} -D"


def _free_port() -> str:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        return str(listening.getsockname()[1])


def _accepts(port: str) -> bool:
    with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", int(port)), 1):
        return True
    return False


_PREPARATIONS: dict[str, Callable[[Path], contextlib.AbstractContextManager[str]]] = {
    "python": lambda _: contextlib.nullcontext(sys.executable),
    "sources": lambda _: contextlib.nullcontext(str(_SOURCES)),
    "folder": lambda folder: contextlib.nullcontext(str(folder)),
    "frameworks": _frameworks,
    "port": _port,
    "answers": _address,
    "visited": _visited,
    "java": _java_classes,
    "virtual": _virtual_threads,
    "go": _go_program,
    "vforks": _vforks,
    "locked": _locked_file,
    "slow_disk": _slow_disk_file,
    "groups": _groups,
    "freezers": _freezers,
    "ring": _ring,
    "redis": _redis,
    "redis_port": _redis_port,
    "postgres": _postgres,
    "nginx": _nginx,
    "sshd": _sshd,
}


@contextlib.contextmanager
def prepared(
    program: Program, folder: Path, known: Mapping[str, str] | None = None
) -> Iterator[list[str]]:
    """The words of the program's command, while what they name is there; ``known`` is what needs
    no preparation. MissingError if this machine cannot.
    """
    with contextlib.ExitStack() as stack:
        values = dict(known or {})
        names = {field for _, field, _, _ in Formatter().parse(program.command) if field}
        for name in sorted(names - values.keys()):
            values[name] = stack.enter_context(_PREPARATIONS[name](folder))
        words = shlex.split(program.command.format(**values))
        if known is None:
            _need(words[0])
        yield words


@contextlib.contextmanager
def folders() -> Iterator[tuple[Path, Path]]:
    """A folder that other users can read, and the one in it for what programs write down."""
    # Not in /tmp, which may be in memory.
    with tempfile.TemporaryDirectory(prefix="timed-", dir="/var/tmp") as name:
        folder, phases = Path(name), Path(name, "phases")
        phases.mkdir()
        folder.chmod(0o755)
        yield folder, phases


def observe(program: Program, *, by_monitor: bool = False) -> Observation:
    """Run the program under ``task-profiler run``, or beside a monitor that watches a simulated
    task with it; MissingError if this machine cannot.
    """
    with contextlib.ExitStack() as stack:
        folder, phases = stack.enter_context(folders())
        words = stack.enter_context(prepared(program, folder))
        enter: list[str] = []
        if "{slow_disk}" in program.command:
            limits = Limits(has_slow_disk=True)
            groups = stack.enter_context(control_group(limits, folder.name, folder))
            join = "".join(f"echo $$ > {group}/cgroup.procs; " for group in groups)
            enter = ["sh", "-c", f'{join} exec "$@"', "sh"]
        profile = _profile_by_monitor if by_monitor else _profile
        record, waited_seconds = profile([*enter, *words], folder, phases, program.interval_seconds)
        truth = truth_of(phases, record, program.cpus)
        return Observation(truth=truth, record=record, waited_seconds=waited_seconds)


def points_of(program: Program, *, by_monitor: bool) -> float:
    """How far each part may be from the truth. A monitor sees seconds before the program, at one
    sample a second.
    """
    return max(program.points, _MONITOR_POINTS) if by_monitor else program.points


def check(
    programs: Mapping[str, Program], at_once: int, *, by_monitor: bool = False
) -> tuple[dict[str, object], dict[str, str]]:
    """What is wrong about some programs, and what this machine lacks for others.

    So many of them run at the same time: they mostly wait, and their truth is of the same run.
    Those that need a quiet network run before, one after the other.
    """
    wrong: dict[str, object] = {}
    missing: dict[str, str] = {}
    runs: dict[str, Future[Observation]] = {}
    quiet = [name for name, program in programs.items() if program.needs_quiet_network]
    others = [name for name in programs if name not in quiet]
    for names, count in ((quiet, 1), (others, at_once)):
        with ThreadPoolExecutor(count) as pool:
            for name in names:
                runs[name] = pool.submit(observe, programs[name], by_monitor=by_monitor)
    for name, run in runs.items():
        try:
            seen = run.result()
        except MissingError as error:
            missing[name] = str(error)
            continue
        points = points_of(programs[name], by_monitor=by_monitor)
        if parts := seen.wrong(points, is_alone=False):
            wrong[name] = parts
    return wrong, missing


def environment(phases: Path) -> dict[str, str]:
    return {FOLDER: str(phases), "PYTHONPATH": str(ROOT)}


def _profile(
    words: list[str], folder: Path, phases: Path, interval_seconds: float
) -> tuple[Record, float]:
    """The record, and the seconds that the profiler's main thread waited for a CPU beside its
    command.
    """
    output, printed = folder / "report.json", folder / "printed"
    options = ("--interval", str(interval_seconds), "--output", str(output), "--no-history")
    waited_ns: list[int] = []
    with printed.open("w") as file:
        profiler = subprocess.Popen(
            [sys.executable, "-m", "profiler", "run", *options, "--", *words],
            env={**os.environ, **environment(phases)},
            stdin=subprocess.DEVNULL,
            stdout=file,
            stderr=subprocess.STDOUT,
        )
    counters = Path(f"/proc/{profiler.pid}/schedstat")

    def has_ended() -> bool:
        if waited_ns or list_children(profiler.pid, threads=1):
            waited_ns.append(int(counters.read_text().split()[1]))
        return profiler.poll() is not None

    try:
        wait_until(has_ended, f"the end of {words}")
    finally:
        profiler.kill()
        profiler.wait()
    if profiler.returncode:
        raise AssertionError(f"{words} ended with {profiler.returncode}: {printed.read_text()}")
    record = decode(output.read_bytes().splitlines()[-1]).record
    return record, (max(waited_ns, default=0) - min(waited_ns, default=0)) / 1e9


def _profile_by_monitor(
    words: list[str], folder: Path, phases: Path, interval_seconds: float
) -> tuple[Record, float]:
    """The program begins when the monitor has read it."""
    if not can_limit():
        raise MissingError("root and version 1 of the control groups")
    variables = (f"{name}={value}" for name, value in environment(phases).items())
    late = (sys.executable, "-m", "tests.programs.late", "read")
    execution = Execution(
        task=Task(2),
        program=("env", *variables, *late, *words),
        folders=(),
        folder=folder,
        interval_seconds=interval_seconds,
    )
    record, _ = execution.by_monitor(is_privileged=True)
    return record, 0.0


def truth_of(phases: Path, record: Record, cpus: int) -> dict[str, Part]:
    """The true parts of a run, of the phases that its processes have written into the folder."""
    return true_parts(read_phases(phases), (record.metrics.duration_ms or 0) / 1000, cpus)
