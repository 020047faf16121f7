"""Lines of runs as the profiler writes them: the real monitor on a fake clock, in tasks
simulated by scripts.

What the endpoint answers are JSON documents of the shape of ECS's, read by the real decoders. Each
task has 2 vCPU and 4 GiB on Fargate, its batch container at most 1024 MiB; each second a batch
receives 1000 bytes, sends 10, reads 4096 and writes 512.
"""

import json
from functools import cache
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from profiler.core.timestamps import NS_PER_SECOND, format_ms, parse_ns
from profiler.readers import Unavailable
from profiler.readers.ecs.container_stats import StatsReading, decode_stats
from profiler.readers.ecs.task_metadata import TaskMetadata, decode_task
from profiler.record.activity_model import TimeBreakdown
from profiler.record.record_model import (
    NO_INTERVAL,
    AverageAndMaximum,
    Distribution,
    Gpu,
    GpuIdle,
    Neuron,
    NeuronCore,
    Processor,
    Report,
    decode,
    encode,
)
from tests.monitor_world import MIB, PlayedMonitor

GROUP = "/ecs/jobs"
REGION, ACCOUNT, CLUSTER = "us-west-2", "111122223333", "jobs"
VCPU, MEMORY_MIB = 2, 1024
SIDE_SECONDS = 2
_PULL_SECONDS = 20


class Phase(Struct, frozen=True):
    """So many seconds of a batch, the CPUs it uses and the memory it holds in them."""

    seconds: int
    vcpu: float
    memory_mib: int


class Script(Struct, frozen=True):
    """A run: its phases, and how it ends half a second after them unless the task is told to
    stop before.
    """

    task_id: str
    family: str
    started: str
    phases: tuple[Phase, ...]
    exit_code: int = 0
    stop_at: float | None = None
    checkpoint_seconds: float = 0
    has_side: bool = False

    @property
    def ends(self) -> float:
        """Seconds after the start."""
        return sum(phase.seconds for phase in self.phases) + 0.5


SCRIPTS = (
    Script(
        *("a", "nightly", "2026-03-01T10:00:00Z", (Phase(60, 0.4, 256), Phase(90, 0.8, 512))),
        checkpoint_seconds=60,
        has_side=True,
    ),
    Script("b", "nightly", "2026-03-01T10:20:00Z", (Phase(600, 1.0, 512),)),
    Script(
        "killed",
        "nightly",
        "2026-03-01T10:45:00Z",
        (Phase(10, 1.6, 512), Phase(10, 1.6, 1000)),
        exit_code=137,
    ),
    Script("c", "nightly", "2026-03-01T10:55:00Z", (Phase(900, 1.8, 768),)),
    Script("d", "hourly", "2026-03-01T10:10:00Z", (Phase(600, 0.2, 64),)),
    Script("failed", "hourly", "2026-03-01T11:20:00Z", (Phase(700, 0.4, 128),), exit_code=3),
    Script("stopped", "hourly", "2026-03-01T11:40:00Z", (Phase(3600, 0.6, 256),), stop_at=300.4),
)


TIME_BREAKDOWNS = {
    "a": TimeBreakdown(
        on_cpu_percent=30.0,
        waiting_for_cpu_percent=10.0,
        disk_percent=5.0,
        network_percent=40.0,
        sleep_percent=5.0,
        lock_percent=2.0,
        pipe_percent=1.5,
        child_percent=0.5,
        other_percent=6.0,
    ),
    # Without SYS_PTRACE.
    "b": TimeBreakdown(
        on_cpu_percent=50.0, waiting_for_cpu_percent=10.0, disk_percent=0.0, other_percent=40.0
    ),
}


def arn(script: Script) -> str:
    return f"arn:aws:ecs:{REGION}:{ACCOUNT}:task/{CLUSTER}/{script.task_id}"


@cache
def produced() -> dict[str, list[str]]:
    """All scripts' lines by their log stream: the monitor's own, with devices in them (see
    :func:`with_devices`).
    """
    by_stream: dict[str, list[str]] = {}
    for script in SCRIPTS:
        task = PlayedTask(script)
        task.run()
        for target, line in task.streams.lines:
            assert target.group == GROUP
            by_stream.setdefault(target.stream, []).append(with_devices(line))
        for line in task.output.lines:
            by_stream.setdefault(stream("task-monitor", script), []).append(with_devices(line))
    return by_stream


def with_devices(line: bytes) -> str:
    """Add to a line of the monitor what it does not know in a played task, through the record's
    own model.

    A played task has neither GPUs nor NeuronCores nor processes for its sources to read. The
    checkpoints and the batch's report of the task `a` get two GPUs and a core, whose utilization is
    10 % and 20 points more with each; the batches `a` and `b` get a processor and a time breakdown.
    """
    report = decode(line)
    record = report.record
    is_batch = record.container.name == "batch"
    more = _devices(report) if is_batch and record.task_id == "a" else {}
    if is_batch and record.task_id in TIME_BREAKDOWNS:
        more["time_breakdown"] = TIME_BREAKDOWNS[record.task_id]
        more["processor"] = Processor(
            model="Intel(R) Xeon(R) Platinum 8259CL CPU @ 2.50GHz", count=4
        )
    return encode(replace(report, record=replace(record, **more))).decode()


def _devices(report: Report) -> dict[str, Any]:
    percent = {60_000: 10.0, 120_000: 30.0}.get(int(report.record.metrics.duration_ms or 0), 50.0)
    more: dict[str, Any] = {}
    if report.record.interval != NO_INTERVAL:
        more["interval"] = replace(
            report.record.interval,
            gpu_utilization_percent=AverageAndMaximum(avg=percent + 10, max=99),
            gpu_memory_used_mb=AverageAndMaximum(avg=5000, max=6000),
            neuron_utilization_percent=AverageAndMaximum(avg=percent, max=percent + 1),
        )
    return {
        **more,
        "gpus": (
            Gpu(
                uuid="G0",
                utilization_percent=Distribution(avg=percent, max=percent + 10),
                utilization_source="driver-samples",
                sm_active_percent=Distribution(avg=percent / 2, max=percent),
                memory_used_mb=Distribution(max=4000),
            ),
            Gpu(
                uuid="G1",
                utilization_percent=Distribution(avg=percent + 20, max=99),
                utilization_source="driver-samples",
                sm_active_percent=Distribution(avg=percent / 2, max=percent),
                xids=(31,) if report.record.interval == NO_INTERVAL else (),
                memory_used_mb=Distribution(max=6000),
            ),
        ),
        "gpu_idle": GpuIdle(percent=60 - percent, gpu_hours=0.25),
        "neuron": Neuron(
            cores=(
                NeuronCore(index=0, utilization_percent=Distribution(avg=percent, max=percent + 1)),
            ),
            device_memory_used_mb=Distribution(max=1500),
        ),
    }


def stream(container: str, script: Script) -> str:
    return f"ecs/{container}/{script.task_id}"


class PlayedTask(PlayedMonitor):
    """The monitor's fakes; the endpoint answers what a script says."""

    def __init__(self, script: Script) -> None:
        super().__init__(
            stop_at=script.stop_at, checkpoint_seconds=float(script.checkpoint_seconds)
        )
        self.script = script
        self.started_ns = parse_ns(script.started) or 0
        self.clock.wall_offset_ns = self.started_ns
        self.source.task_at = self.answered_task
        self.source.stats_at = self.answered_stats

    def answered_task(self, at: float) -> TaskMetadata:
        task = decode_task(json.dumps(self._task_document(at)).encode())
        assert isinstance(task, TaskMetadata)
        return task

    def answered_stats(self, at: float) -> StatsReading:
        document: dict[str, Any] = {
            "m": self._stats_document(at, round(at * 1_000_000), 30),
            "b": None,
        }
        if 0 < at < self.script.ends:
            document["b"] = self._stats_document(at, self._cpu_ns(at), self._memory_mib(at))
        stats = decode_stats(json.dumps(document).encode())
        assert not isinstance(stats, Unavailable)
        return stats

    def _task_document(self, at: float) -> dict[str, Any]:
        script = self.script
        containers = [
            self._container_document("batch", "b", at, ends=script.ends, code=script.exit_code),
            self._container_document("task-monitor", "m", at),
        ]
        if script.has_side:
            containers.append(self._container_document("side", "s", at, ends=SIDE_SECONDS))
        return {
            "Cluster": CLUSTER,
            "TaskARN": arn(script),
            "Family": script.family,
            "Revision": "5",
            "DesiredStatus": "RUNNING",
            "KnownStatus": "RUNNING",
            "Limits": {"CPU": VCPU, "Memory": 4096},
            "PullStartedAt": self._stamp(-_PULL_SECONDS),
            "AvailabilityZone": f"{REGION}b",
            "LaunchType": "FARGATE",
            "Containers": containers,
        }

    def _container_document(
        self, name: str, docker_id: str, at: float, *, ends: float = float("inf"), code: int = 0
    ) -> dict[str, Any]:
        document = {
            "DockerId": docker_id,
            "Name": name,
            "Image": "etl:7",
            "ImageID": "sha256:59",
            "Type": "NORMAL",
            "KnownStatus": "RUNNING",
            "Limits": {"CPU": 2, "Memory": MEMORY_MIB},
            "StartedAt": self._stamp(0),
            "LogDriver": "awslogs",
            "LogOptions": {
                "awslogs-group": GROUP,
                "awslogs-region": REGION,
                "awslogs-stream": stream(name, self.script),
            },
            "Networks": [{"NetworkMode": "awsvpc"}],
        }
        if at < ends:
            return document
        return {
            **document,
            "KnownStatus": "STOPPED",
            "ExitCode": code,
            "FinishedAt": self._stamp(ends),
        }

    def _stats_document(self, at: float, cpu_ns: int, memory_mib: int) -> dict[str, Any]:
        second = int(at)
        blocks = [{"major": 259, "minor": 0, "op": "Read", "value": 4096 * second},
                  {"major": 259, "minor": 0, "op": "Write", "value": 512 * second}]  # fmt: skip
        return {
            "read": self._stamp(at),
            "cpu_stats": {"cpu_usage": {"total_usage": cpu_ns}, "online_cpus": 4},
            "memory_stats": {"usage": memory_mib * MIB, "stats": {"inactive_file": 0}},
            "networks": {"eth1": {"rx_bytes": 1000 * second, "tx_bytes": 10 * second}},
            "blkio_stats": {"io_service_bytes_recursive": blocks},
            "pids_stats": {"current": 3},
        }

    def _cpu_ns(self, at: float) -> int:
        """The CPU counter: what all phases so far used."""
        total, left = 0.0, at
        for phase in self.script.phases:
            total += phase.vcpu * min(left, phase.seconds)
            left = max(left - phase.seconds, 0)
        return round(total * NS_PER_SECOND)

    def _memory_mib(self, at: float) -> int:
        """The memory held at the end of the second that ends now."""
        for phase in self.script.phases:
            if at <= phase.seconds:
                return phase.memory_mib
            at -= phase.seconds
        return self.script.phases[-1].memory_mib

    def _stamp(self, at: float) -> str:
        return format_ms(self.started_ns + round(at * NS_PER_SECOND))
