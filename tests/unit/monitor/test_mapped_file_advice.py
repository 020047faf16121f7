"""The advice for a program that maps a large file, from the statistics of a real container."""

import json
from collections.abc import Mapping
from typing import Any

import pytest

from profiler.core.timestamps import format_ms
from profiler.readers import Unavailable
from profiler.readers.container_sample import ContainerSample
from profiler.readers.ecs.container_stats import decode_stats
from tests.fakes import START_NS, seconds
from tests.monitor_world import MIB, PlayedMonitor

_OWN_MIB = 20
_LIMIT_MIB = 256
_USAGE_MIB = 252
_FILES_MIB = _USAGE_MIB - _OWN_MIB


def _version_1(mapped_mib: int) -> Mapping[str, int]:
    files = {"active_file": 30, "inactive_file": _FILES_MIB - 30}
    parts = {**files, "cache": _FILES_MIB, "mapped_file": mapped_mib, "rss": _OWN_MIB}
    return {f"total_{name}": size_mib * MIB for name, size_mib in parts.items()}


def _version_2(mapped_mib: int) -> Mapping[str, int]:
    files = {"active_file": 30, "inactive_file": _FILES_MIB - 30}
    parts = {**files, "file": _FILES_MIB, "file_mapped": mapped_mib, "anon": _OWN_MIB}
    none = dict.fromkeys(("shmem", "slab_reclaimable", "slab_unreclaimable"), 0)
    return {**none, **{name: size_mib * MIB for name, size_mib in parts.items()}}


class ReadsFile(PlayedMonitor):
    """A batch on EC2 of 20 MiB in a container of 256 MiB, which a file of 600 MiB fills that it
    maps and reads again and again, or reads with read().
    """

    def __init__(self, detail: Mapping[str, int], **ends: Any) -> None:
        super().__init__(batch_ends=120, **ends)
        self._detail = detail
        limit = {"memory_limit_bytes": _LIMIT_MIB * MIB}
        self.of_task = lambda _at: {"launch_type": "EC2", "vcpu_limit": 0.25, **limit}
        self.of_batch = lambda _at: limit

    def batch_sample(self, at: float) -> ContainerSample:
        memory = {"usage": _USAGE_MIB * MIB, "stats": self._detail, "limit": _LIMIT_MIB * MIB}
        if "total_rss" in self._detail:
            memory |= {"max_usage": _LIMIT_MIB * MIB, "failcnt": 50_000}
        document = {
            "read": format_ms(START_NS + seconds(at)),
            "cpu_stats": {"cpu_usage": {"total_usage": round(at * 0.1e9)}},
            "memory_stats": memory,
        }
        reading = decode_stats(json.dumps({"b": document}).encode())
        assert not isinstance(reading, Unavailable)
        sample = reading["b"]
        assert isinstance(sample, ContainerSample)
        return sample


@pytest.mark.parametrize("detail", [_version_1, _version_2])
@pytest.mark.parametrize("mapped_mib", [0, 225])
def test_a_file_asks_for_no_larger_task_whether_it_is_mapped_or_read(
    detail: Any, mapped_mib: int
) -> None:
    record = ReadsFile(detail(mapped_mib)).run().report()
    metrics = record["metrics"]
    assert metrics["maxMemoryUsedMB"] == _OWN_MIB
    assert metrics["memoryCacheMB"]["max"] == _FILES_MIB
    assert metrics["memoryMappedFileMB"] == {"avg": mapped_mib, "max": mapped_mib}
    assert record["recommendation"]["memoryMB"] <= _LIMIT_MIB
    assert not any("memory-bound" in reason for reason in record["recommendation"]["reasons"])


@pytest.mark.parametrize("detail", [_version_1, _version_2])
def test_a_batch_that_is_killed_with_its_limit_full_of_files_did_not_run_out_of_memory(
    detail: Any,
) -> None:
    """As far as the samples show: its memory may have risen between two of them."""
    record = ReadsFile(detail(225), exit_code=137).run().report()
    assert not record.get("likelyOutOfMemory")
    assert record["recommendation"]["memoryMB"] <= _LIMIT_MIB
