"""The advice for a program that looks at many files, from the statistics of a real container."""

import json
from typing import Any

import pytest

from profiler.core.timestamps import format_ms
from profiler.readers import Unavailable
from profiler.readers.container_sample import ContainerSample
from profiler.readers.ecs.container_stats import decode_stats
from tests.fakes import START_NS, seconds
from tests.monitor_world import MIB, PlayedMonitor


class FileWalk(PlayedMonitor):
    """A batch on Fargate whose directory entries and inodes grow to 400 MiB beside 20 MiB."""

    def __init__(self, *, is_reclaimable: bool, unreclaimable_bytes: int = 524832) -> None:
        super().__init__(batch_ends=120)
        self._unreclaimable_bytes = unreclaimable_bytes
        self._is_reclaimable = is_reclaimable
        self.of_task = lambda _at: {
            "launch_type": "FARGATE",
            "vcpu_limit": 0.25,
            "memory_limit_bytes": 1024 * MIB,
        }
        self.of_batch = lambda _at: {"memory_limit_bytes": None}

    def batch_sample(self, at: float) -> ContainerSample:
        slab_bytes = round(min(at / 60, 1) * 400 * MIB)
        # As Docker's statistics of version 2 are on Fargate, with these numbers.
        detail = {
            "active_file": 7655424,
            "anon": 20 * MIB,
            "file": 25296896,
            "file_mapped": 0,
            "inactive_file": 17641472,
            "kernel_stack": 49152,
            "pgfault": 24552,
            "shmem": 0,
            "slab": slab_bytes + self._unreclaimable_bytes,
            "slab_reclaimable": slab_bytes if self._is_reclaimable else 0,
            "slab_unreclaimable": self._unreclaimable_bytes,
            "sock": 0,
        }
        document: dict[str, Any] = {
            "read": format_ms(START_NS + seconds(at)),
            "cpu_stats": {"cpu_usage": {"total_usage": round(at * 0.1e9)}},
            "memory_stats": {
                "usage": 20 * MIB + detail["file"] + detail["slab"],
                "stats": detail,
                "limit": 9223372036854771712,
            },
        }
        reading = decode_stats(json.dumps({"b": document}).encode())
        assert not isinstance(reading, Unavailable)
        sample = reading["b"]
        assert isinstance(sample, ContainerSample)
        return sample


def test_reclaimable_kernel_memory_asks_for_no_larger_task() -> None:
    record = FileWalk(is_reclaimable=True).run().report()
    assert record["metrics"]["maxMemoryUsedMB"] == pytest.approx(20.5, abs=0.1)
    assert record["metrics"]["memoryCacheMB"]["max"] > 400
    assert record["recommendation"]["memoryMB"] == 512
    assert not any("memory-bound" in reason for reason in record["recommendation"]["reasons"])
    assert not record["monitor"].get("warnings")


def test_kernel_memory_that_cannot_be_reclaimed_counts_for_the_size() -> None:
    record = FileWalk(is_reclaimable=False).run().report()
    assert record["metrics"]["maxMemoryUsedMB"] == pytest.approx(420.5, abs=0.1)
    assert record["recommendation"]["memoryMB"] > 512


def test_many_open_files_of_the_container_may_keep_reclaimable_memory() -> None:
    record = FileWalk(is_reclaimable=True, unreclaimable_bytes=10 * MIB).run().report()
    assert record["metrics"]["maxMemoryUsedMB"] == pytest.approx(30, abs=0.1)
    (warning,) = record["monitor"]["warnings"]
    assert warning.startswith("The memory peak may have been 189 MB: open files may have kept")
