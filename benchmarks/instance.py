"""Measure one monitor for an instance: its cost for 0 and 100 tasks, beside sidecars and
Telegraf, for 60 jobs of AWS Batch, and short spikes.

    python -m benchmarks.instance SOCKET IMAGE [--tasks 100] [--seconds 30] [--json FILE]

It needs root, a Docker daemon with the cgroupfs driver that listens on SOCKET (named docker.sock),
and an IMAGE with Python. The tasks are containers with the labels of the ECS agent, which is
simulated, as is CloudWatch Logs. Sidecars are ``--sidecars`` monitors of one task each. Telegraf's
docker input is measured if ``telegraf`` is on the PATH. The spikes that sidecars and Telegraf find
are those in Docker's statistics, from which both have their numbers.
"""

import argparse
import http.client
import json
import os
import random
import shutil
import subprocess
import sys
import tempfile
import threading
import time
import uuid
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

from benchmarks.figures import BenchmarkResult, Figure, benchmark_parser
from benchmarks.monitor import (
    SteadyState,
    measure_steady_states,
    run_endpoint,
    run_monitor,
    run_telegraf,
)
from profiler.readers import Unavailable
from profiler.readers.container_sample import ContainerSample
from profiler.readers.docker.docker_api import connect_docker
from profiler.readers.docker.ecs_container import TASK_ARN_LABEL
from profiler.readers.ecs.container_stats import decode_stats
from profiler.record.units import MIB
from tools.moto_server import FakeAws, fake_aws
from tools.waiting import LIMIT_SECONDS, wait_until

_GROUP = "/ecs/bench"
_REGION = "us-east-1"
_SPIKES, _SPIKE_MIB, _SPIKE_SECONDS = 20, 200, 0.4
_SPIKE = (
    "import time; time.sleep({}); held = bytearray({} << 20); time.sleep({}); del held; "
    "time.sleep(1.5)"
)
# The monitor looks for the socket in /var/run: in its own mount namespace that is the daemon's
# folder.
_IN_NAMESPACE = (
    'mount --bind "$0" /var/run && mount -t tmpfs none /var/lib && mkdir /var/lib/task-profiler '
    '&& exec "$@"'
)
_TELEGRAF_INPUT = '[[inputs.docker]]\n  endpoint = "unix://{}"'


class FakeEcsAgent(ThreadingHTTPServer):
    """Answers ``/ID/task`` as the ECS agent does for a task of one container, ``default`` in a job
    of AWS Batch.
    """

    daemon_threads = True

    def __init__(self) -> None:
        self.jobs: set[str] = set()
        super().__init__(("127.0.0.1", 0), _Handler)
        threading.Thread(target=self.serve_forever, daemon=True).start()

    def address(self, task: str) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}/{task}"


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        task = self.path.split("/")[1]
        status = {"DesiredStatus": "RUNNING", "KnownStatus": "RUNNING"}
        is_job = isinstance(self.server, FakeEcsAgent) and task in self.server.jobs
        name = "default" if is_job else "batch"
        containers = [{"Name": name, "DockerId": "", **status}]
        known = {"Cluster": "bench", "Family": "bench", "Revision": "1", "LaunchType": "EC2"}
        task_body = {"TaskARN": arn(task), **known, **status, "Containers": containers}
        body = json.dumps(task_body).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:
        """Nothing is printed."""


def arn(task: str) -> str:
    """The ARN of a task."""
    return f"arn:aws:ecs:{_REGION}:123456789012:task/bench/{task}"


class DockerInstance:
    """The Docker daemon, and the tasks that run on it."""

    def __init__(self, socket: Path, image: str, agent: FakeEcsAgent, aws: FakeAws) -> None:
        self._socket, self._image, self._agent, self._aws = socket, image, agent, aws
        self._environment = {**os.environ, "DOCKER_HOST": f"unix://{socket}"}

    def docker(self, *arguments: str) -> str:
        command = [shutil.which("docker") or "docker", *arguments]
        done = subprocess.run(
            command, env=self._environment, capture_output=True, text=True, check=True
        )
        return done.stdout.strip()

    @contextmanager
    def run_tasks(self, programs: Sequence[str], *, are_jobs: bool = False) -> Iterator[list[str]]:
        """Run a Python program in each task, which may be a job of AWS Batch; yields the ids of
        the tasks.
        """
        started: list[str] = []
        ids = [uuid.uuid4().hex for _ in programs]
        try:
            for task, program in zip(ids, programs, strict=True):
                started.append(self._start(task, program, is_job=are_jobs))
            yield ids
        finally:
            if started:
                self.docker("rm", "--force", *started)
            for task in ids:
                for group in Path("/sys/fs/cgroup").glob(f"*/ecs/{task}"):
                    group.rmdir()

    def _start(self, task: str, program: str, *, is_job: bool) -> str:
        known = {
            "task-arn": arn(task),
            "container-name": "default" if is_job else "batch",
            "cluster": f"bench_Batch_{uuid.UUID(int=1)}" if is_job else "bench",
            "task-definition-family": "bench",
        }
        variables = {"ECS_CONTAINER_METADATA_URI_V4": self._agent.address(task)}
        if is_job:
            self._agent.jobs.add(task)
            variables |= {"AWS_BATCH_JOB_ID": str(uuid.uuid4()), "AWS_BATCH_JQ_NAME": "bench"}
        labels = [f"--label=com.amazonaws.ecs.{name}={value}" for name, value in known.items()]
        environment = [f"--env={name}={variables[name]}" for name in variables]
        options = ("--detach", "--network=none", "--log-driver=none", "--memory=512m")
        group = f"--cgroup-parent=/ecs/{task}"
        program_words = ("python3", "-c", program)
        return self.docker(
            "run", *options, group, *labels, *environment, self._image, *program_words
        )

    def follow_stats(self, task: str, peaks: dict[str, float]) -> None:
        """Keep the largest memory of Docker's statistics, one a second, as the agent and
        Telegraf read them.
        """
        (container,) = self.docker(
            "ps", "--quiet", "--no-trunc", f"--filter=label={TASK_ARN_LABEL}={arn(task)}"
        ).split()
        api = http.client.HTTPConnection("docker")
        api.sock = connect_docker(str(self._socket), LIMIT_SECONDS)
        api.request("GET", f"/containers/{container}/stats")
        with suppress(OSError):  # the container is removed
            for line in api.getresponse():
                reading = decode_stats(b'{"batch":%b}' % line)
                sample = None if isinstance(reading, Unavailable) else reading.get("batch")
                if isinstance(sample, ContainerSample):
                    peaks[task] = max(peaks.get(task, 0), (sample.memory_used_bytes or 0) / MIB)

    @contextmanager
    def run_monitor(self, output: Path) -> Iterator[subprocess.Popen[bytes]]:
        """Run the monitor of the instance, which writes the reports to its output: Docker keeps
        no log here.
        """
        socket, monitor = str(self._socket.parent), (sys.executable, "-m", "profiler", "monitor")
        command = ("unshare", "--mount", "sh", "-c", _IN_NAMESPACE, socket, *monitor)
        variables = {**self._aws.environment(), "TASK_PROFILER_SCOPE": "instance"}
        variables["ECS_CONTAINER_METADATA_URI_V4"] = self._agent.address("own")
        with output.open("wb") as file:
            process = subprocess.Popen(
                command, env={**os.environ, **variables}, stdout=file, stderr=subprocess.DEVNULL
            )
        try:
            yield process
        finally:
            process.kill()
            process.wait()


def measure_costs(
    instance: DockerInstance, aws: FakeAws, socket: Path, options: argparse.Namespace
) -> Iterator[Figure]:
    """One monitor without tasks, and then beside all others for the same tasks."""
    with tempfile.TemporaryDirectory(prefix="bench-instance-") as folder, ExitStack() as stack:
        process = stack.enter_context(instance.run_monitor(Path(folder) / "reports"))
        (empty,) = measure_steady_states((process.pid,), options.seconds)
        yield _cpu_figure("one monitor without tasks", empty, at_most=0.05)
        stack.enter_context(instance.run_tasks(["import time; time.sleep(3600)"] * options.tasks))
        pids = [process.pid]
        address, _ = stack.enter_context(run_endpoint(2))
        pids += [
            stack.enter_context(run_monitor(address, aws)).pid for _ in range(options.sidecars)
        ]
        if program := shutil.which("telegraf"):
            telegraf_process = run_telegraf(program, _TELEGRAF_INPUT.format(socket))
            pids.append(stack.enter_context(telegraf_process).pid)
        ours, *others = measure_steady_states(pids, options.seconds, 60)
    yield _cpu_figure(f"one monitor, {options.tasks} tasks", ours, at_most=0.5)
    yield _memory_figure(f"one monitor, {options.tasks} tasks", ours.memory.peak_mib, at_most=48)
    sidecars, factor = others[: options.sidecars], options.tasks / options.sidecars
    note = f"{options.sidecars} were measured"
    total = factor * sum(one.cpu_percent for one in sidecars)
    name = f"{options.tasks} sidecars"
    yield Figure(f"CPU, {name}", total, "% of a core", note=note)
    yield _memory_figure(
        name, factor * sum(one.memory.pss_mib for one in sidecars), note=f"PSS; {note}"
    )
    yield Figure(f"ratio of one monitor to {name}", ours.cpu_percent / total, "×", digits=3)
    for telegraf in others[options.sidecars :]:
        yield _cpu_figure(f"Telegraf's docker input, {options.tasks} tasks", telegraf)
        yield _memory_figure(
            f"Telegraf's docker input, {options.tasks} tasks", telegraf.memory.peak_mib
        )
        ratio = ours.cpu_percent / telegraf.cpu_percent
        yield Figure("ratio of one monitor to Telegraf's docker input", ratio, "×", digits=3)


def measure_jobs(instance: DockerInstance, options: argparse.Namespace) -> Iterator[Figure]:
    """Jobs of AWS Batch at once, beside as many tasks of ECS."""
    states: list[SteadyState] = []
    programs = ["import time; time.sleep(3600)"] * options.jobs
    with tempfile.TemporaryDirectory(prefix="bench-instance-") as folder:
        for are_jobs in (True, False):
            with (
                instance.run_monitor(Path(folder) / "reports") as process,
                instance.run_tasks(programs, are_jobs=are_jobs),
            ):
                states += measure_steady_states((process.pid,), options.seconds, 60)
    jobs, tasks = states
    name = f"one monitor, {options.jobs} jobs of AWS Batch"
    yield _cpu_figure(name, jobs, at_most=0.5)
    yield _memory_figure(name, jobs.memory.peak_mib, at_most=48)
    ratio = jobs.cpu_percent / tasks.cpu_percent
    yield Figure("ratio of jobs of AWS Batch to as many tasks", ratio, "×", digits=3)


def _cpu_figure(name: str, state: SteadyState, at_most: float | None = None) -> Figure:
    return Figure(f"CPU, {name}", state.cpu_percent, "% of a core", digits=3, at_most=at_most)


def _memory_figure(
    name: str, mib: float, at_most: float | None = None, note: str = "peak"
) -> Figure:
    return Figure(f"memory, {name}", mib, "MiB", digits=1, at_most=at_most, note=note)


def measure_spikes(instance: DockerInstance) -> Iterator[Figure]:
    """Of batches with a spike at any phase, the share whose reports have at least 99 % of it.

    A sidecar without the batch's pid namespace, and Telegraf, have the largest of Docker's
    readings.
    """
    sampled: dict[str, float] = {}
    rng = random.Random(1)
    programs = [
        _SPIKE.format(round(1 + rng.random(), 3), _SPIKE_MIB, _SPIKE_SECONDS)
        for _ in range(_SPIKES)
    ]
    with tempfile.TemporaryDirectory(prefix="bench-instance-") as folder:
        output = Path(folder) / "reports"

        def peaks() -> list[float]:
            records = [
                json.loads(line)["record"]
                for line in output.read_text().splitlines()
                if "task.report" in line
            ]
            return [record["metrics"].get("maxMemoryUsedMB", 0) for record in records]

        with instance.run_monitor(output):
            time.sleep(2)
            # More at once would need more memory than small machines have.
            for first in range(0, _SPIKES, 4):
                with instance.run_tasks(programs[first : first + 4]) as tasks:
                    for task in tasks:
                        threading.Thread(
                            target=instance.follow_stats, args=(task, sampled), daemon=True
                        ).start()
                    wait_until(lambda: len(peaks()) >= first + 4, "the reports")  # noqa: B023
            found = peaks()
    name = f"right peaks of a spike of {_SPIKE_MIB} MiB for {_SPIKE_SECONDS} s"
    note = f"{_SPIKES} batches"
    yield Figure(name, _right_percent(found), "%", digits=0, at_least=99, note=note)
    name += " by Docker's reading of each second, as of sidecars and Telegraf"
    yield Figure(name, _right_percent(sampled.values()), "%", digits=0, note=note)


def _right_percent(peaks: Iterable[float]) -> float:
    return 100 * sum(0.99 * _SPIKE_MIB <= peak <= _SPIKE_MIB + 32 for peak in peaks) / _SPIKES


def main(arguments: Sequence[str]) -> None:
    """Measure, print the results, and write them as JSON on request."""
    parser = benchmark_parser(__doc__)
    parser.add_argument("socket", type=Path, help="the Docker daemon's socket")
    parser.add_argument("image", help="an image with python3")
    parser.add_argument("--tasks", type=int, default=100)
    parser.add_argument("--jobs", type=int, default=60)
    parser.add_argument(
        "--sidecars", type=int, default=20, help="how many of the sidecars are measured"
    )
    parser.add_argument(
        "--seconds", type=float, default=30, help="duration of each measurement in steady state"
    )
    options = parser.parse_args(arguments)
    with fake_aws() as aws:
        aws.create_log_group(_GROUP)
        instance = DockerInstance(options.socket, options.image, FakeEcsAgent(), aws)
        figures = (
            *measure_spikes(instance),
            *measure_costs(instance, aws, options.socket, options),
            *measure_jobs(instance, options),
        )
    BenchmarkResult("One monitor for an instance", figures=figures).print_and_save(options.json)


if __name__ == "__main__":
    main(sys.argv[1:])
