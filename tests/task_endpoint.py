"""A simulated task metadata endpoint: N containers whose counters increase with the clock.

    python -m tests.task_endpoint CONTAINERS [PERIOD]

The program prints the address of the endpoint and serves until stdin is closed. The line ``end`` on
stdin ends the batch container with exit code 0. The documents have the size of real ones (about 3
kB per container, cgroup v1). The stats are new with each request, or every PERIOD seconds (10 on
Fargate).
"""

import contextlib
import json
import secrets
import sys
import time
from datetime import UTC, datetime
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Generic, TypeVar

from tests.http_server import FakeHttpServer

TASK_ID = "0123456789abcdef0123456789abcdef"
# Where the batch logs.
GROUP = "/ecs/bench"
STREAM = f"ecs/batch/{TASK_ID}"
_KERNEL_MEMORY_KEYS = [
    *(
        "active_anon",
        "active_file",
        "cache",
        "dirty",
        "inactive_anon",
        "inactive_file",
        "mapped_file",
        "pgfault",
    ),
    *("pgmajfault", "pgpgin", "pgpgout", "rss", "rss_huge", "unevictable", "writeback"),
]


class Task:
    """The documents of a task with a monitor, a batch and other containers, whose ids no other
    task has. Until ``has_batch_begun``, the batch's image is only pulled.
    """

    def __init__(
        self, containers: int, network_mode: str = "bridge", stats_period_seconds: float = 0
    ) -> None:
        self._id = secrets.token_hex(16)
        self.names = [
            "task-monitor",
            "batch",
            *(f"other-{index}" for index in range(containers - 2)),
        ]
        self.network_mode = network_mode
        self.stats_period_seconds = stats_period_seconds
        self.started = time.time()
        self.has_batch_begun = True
        self.ended: float | None = None
        self.stats_reads = 0
        # Has the batch's CPU time, which otherwise grows evenly.
        self.cpu_file: Path | None = None
        self._cpu_ns = 0
        self._max_usage_bytes: dict[str, int] = {}

    def container(self, name: str) -> dict[str, object]:
        if name == "batch" and not self.has_batch_begun:
            return {"Name": name, "KnownStatus": "PULLED"}
        has_ended = name == "batch" and self.ended is not None
        document: dict[str, object] = {
            "DockerId": self.docker_id(name),
            "Name": name,
            "DockerName": name,
            "Image": "example/image:1",
            "ImageID": "sha256:" + "0" * 64,
            "Labels": {
                "com.amazonaws.ecs.cluster": "bench",
                "com.amazonaws.ecs.container-name": name,
            },
            "DesiredStatus": "RUNNING",
            "KnownStatus": "STOPPED" if has_ended else "RUNNING",
            "Limits": {"CPU": 256, "Memory": 512},
            "CreatedAt": timestamp(self.started),
            "StartedAt": timestamp(self.started),
            "Type": "NORMAL",
            "LogDriver": "awslogs",
            "LogOptions": {
                "awslogs-group": GROUP,
                "awslogs-region": "us-east-1",
                "awslogs-stream": f"ecs/{name}/{TASK_ID}",
            },
            "Networks": [{"NetworkMode": self.network_mode, "IPv4Addresses": ["172.17.0.2"]}],
        }
        if has_ended and self.ended is not None:
            document.update(ExitCode=0, FinishedAt=timestamp(self.ended))
        return document

    def docker_id(self, name: str) -> str:
        return f"{self._id}{self.names.index(name):032x}"

    def task(self) -> dict[str, object]:
        return {
            "Cluster": "bench",
            # The account of moto.
            "TaskARN": f"arn:aws:ecs:us-east-1:123456789012:task/bench/{TASK_ID}",
            "Family": "bench",
            "Revision": "1",
            "DesiredStatus": "RUNNING" if self.ended is None else "STOPPED",
            "KnownStatus": "RUNNING",
            "Limits": {"CPU": 1, "Memory": 2048},
            "PullStartedAt": timestamp(self.started - 10),
            "AvailabilityZone": "us-east-1a",
            "LaunchType": "EC2",
            "Containers": [self.container(name) for name in self.names],
        }

    def task_with_tags(self) -> dict[str, object]:
        return {**self.task(), "TaskTags": {"team": "data"}, "ContainerInstanceTags": {"rack": "1"}}

    def stats(self) -> dict[str, object]:
        self.stats_reads += 1
        return {
            self.docker_id(name): {}
            if name == "batch" and self.ended is not None
            else self._sample(name)
            for name in self.names
        }

    def _cpu_ns_of(self, name: str, now: float) -> int:
        if name != "batch" or self.cpu_file is None:
            return int((now - self.started) * 4e8)
        with contextlib.suppress(OSError):  # its group has been removed
            self._cpu_ns = int(self.cpu_file.read_text())
        return self._cpu_ns

    def _sample(self, name: str) -> dict[str, object]:
        now = time.time()
        if self.stats_period_seconds:
            now -= (now - self.started) % self.stats_period_seconds
        cpu = {
            "total_usage": self._cpu_ns_of(name, now),
            "percpu_usage": [1, 2],
            "usage_in_kernelmode": 3,
        }
        usage_bytes = 150_000_000 + int(now * 1e6) % 50_000_000
        self._max_usage_bytes[name] = max(self._max_usage_bytes.get(name, 0), usage_bytes)
        memory = {key: 1_000_000 + index for index, key in enumerate(_KERNEL_MEMORY_KEYS)}
        # What is neither page cache nor a process's would be the kernel's own.
        memory["rss"] = usage_bytes - memory["cache"]
        blocks = [
            {"major": 259, "minor": minor, "op": op, "value": 4096}
            for minor in (0, 1)
            for op in ("Read", "Write", "Sync", "Async", "Discard", "Total")
        ]
        return {
            "read": timestamp(now),
            "preread": timestamp(now - 1),
            "pids_stats": {"current": 3},
            "blkio_stats": {"io_service_bytes_recursive": blocks, "io_serviced_recursive": blocks},
            "num_procs": 0,
            "storage_stats": {},
            "cpu_stats": {"cpu_usage": cpu, "system_cpu_usage": 1, "online_cpus": 2},
            "precpu_stats": {"cpu_usage": cpu, "system_cpu_usage": 1, "online_cpus": 2},
            "memory_stats": {
                "usage": usage_bytes,
                "max_usage": self._max_usage_bytes[name],
                "stats": {**memory, **{f"total_{key}": value for key, value in memory.items()}},
                "limit": 536870912,
            },
            "name": name,
            "id": self.docker_id(name),
            "networks": {
                "eth0": {
                    "rx_bytes": int(now) % 10**9,
                    "tx_bytes": 5,
                    "rx_packets": 1,
                    "tx_packets": 1,
                }
            },
        }


T = TypeVar("T", bound=Task)


class TaskEndpoint(FakeHttpServer, Generic[T]):
    """Serves a task to any of its containers."""

    def __init__(self, task: T) -> None:
        super().__init__()
        self.task = task
        self.address = self.address_of("task-monitor")

    def address_of(self, container: str) -> str:
        return f"{self.url}/v4/{container}"

    def answer(
        self, request: BaseHTTPRequestHandler, body: bytes
    ) -> tuple[int, dict[str, str], bytes]:
        task, (_, _, own, *rest) = self.task, request.path.split("/")
        documents = {
            "": lambda: task.container(own),
            "task": task.task,
            "taskWithTags": task.task_with_tags,
        }
        document = documents.get("/".join(rest), task.stats)()
        return 200, {"Content-Type": "application/json"}, json.dumps(document).encode()


def timestamp(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")


def main() -> None:
    task = Task(
        int(sys.argv[1]), stats_period_seconds=float(sys.argv[2]) if len(sys.argv) > 2 else 0
    )
    with TaskEndpoint(task) as endpoint:
        sys.stdout.write(f"{endpoint.address}\n")
        sys.stdout.flush()
        for line in sys.stdin:
            if line.strip() == "end":
                task.ended = time.time()


if __name__ == "__main__":
    main()
