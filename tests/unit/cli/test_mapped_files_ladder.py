"""A batch with an index that fills the memory of its task, from Docker's statistics through the
monitor to ``recommend``: no size is too small for it, however often it is asked.
"""

import json
from pathlib import Path
from typing import Any

import pytest

from profiler.core.timestamps import format_ms
from profiler.readers import Unavailable
from profiler.readers.container_sample import ContainerSample
from profiler.readers.ecs.container_stats import decode_stats
from tests.fakes import START_NS, seconds
from tests.monitor_world import MIB, PlayedMonitor
from tests.unit.cli.conftest import Cli

pytestmark = pytest.mark.usefixtures("here")

RUNS = 12
GB = 1024
FULL = 0.985
# The rest of the cache is read, not mapped.
MAPPED = 0.97
SIZES = [(0.5, 2 * GB), (1, 3 * GB), (1, 4 * GB), (1, 5 * GB), (1, 8 * GB)]


class IndexedBatch(PlayedMonitor):
    """A batch on Fargate that uses its vCPUs and ``used_mb`` from its first second on, and has
    files in the rest of the memory.
    """

    def __init__(
        self,
        number: int,
        size: tuple[float, float],
        *,
        version: int,
        used_mb: float = 150,
        mapped: float = MAPPED,
        full: float = FULL,
    ) -> None:
        super().__init__(batch_ends=120)
        self.version = version
        self.used_bytes = round(used_mb * MIB)
        self.usage_bytes = round(full * size[1] * MIB)
        self.mapped = mapped
        self.vcpu = size[0]
        self.number = number
        self.of_task = lambda _at: {
            "arn": f"arn:aws:ecs:us-east-1:111122223333:task/jobs/{number:032x}",
            "launch_type": "FARGATE",
            "vcpu_limit": size[0],
            "memory_limit_bytes": round(size[1]) * MIB,
        }
        self.of_batch = lambda _at: {"memory_limit_bytes": None}

    def _details(self) -> dict[str, int]:
        cache_bytes = self.usage_bytes - self.used_bytes
        mapped_bytes = round(self.mapped * cache_bytes)
        lists = {"active_file": mapped_bytes, "inactive_file": cache_bytes - mapped_bytes}
        if self.version == 1:
            counters = {"rss": self.used_bytes, "cache": cache_bytes, "mapped_file": mapped_bytes}
            counters |= lists
            return {**counters, **{f"total_{name}": value for name, value in counters.items()}}
        slab = {"slab": 0, "slab_reclaimable": 0, "slab_unreclaimable": 0, "shmem": 0}
        files = {"file": cache_bytes, "file_mapped": mapped_bytes}
        return {"anon": self.used_bytes, **files, **lists, **slab}

    def batch_sample(self, at: float) -> ContainerSample:
        document: dict[str, Any] = {
            "read": format_ms(START_NS + seconds(at)),
            "cpu_stats": {"cpu_usage": {"total_usage": round(at * 0.9 * self.vcpu * 1e9)}},
            "memory_stats": {
                "usage": self.usage_bytes,
                "stats": self._details(),
                "limit": 9223372036854771712,
            },
        }
        if self.version == 1:
            document["memory_stats"]["max_usage"] = self.usage_bytes
        reading = decode_stats(json.dumps({"b": document}).encode())
        assert not isinstance(reading, Unavailable)
        sample = reading["b"]
        assert isinstance(sample, ContainerSample)
        return sample

    def line(self) -> str:
        """The report, of a night of its own."""
        ((_, line),) = self.run().streams.lines
        document = json.loads(line)
        night = seconds(86_400 * self.number)
        record = document["record"]
        record["startedAt"] = format_ms(START_NS + night)
        record["finishedAt"] = format_ms(START_NS + night + seconds(120))
        return json.dumps(document)


def nights(size: tuple[float, float], *, version: int = 2, **batch: Any) -> str:
    """A file with the runs of twelve nights."""
    batches = [
        IndexedBatch(number, size, version=version, **batch).line() for number in range(RUNS)
    ]
    Path("runs.jsonl").write_text("".join(f"{line}\n" for line in batches))
    return "runs.jsonl"


@pytest.mark.diagonal(2)
@pytest.mark.parametrize("version", [1, 2])
@pytest.mark.parametrize("size", SIZES)
def test_no_size_is_too_small_for_files(cli: Cli, size: tuple[float, float], version: int) -> None:
    source = nights(size, version=version)
    assert cli("recommend", "--check", "--from", source).code == 0
    (found,) = cli("recommend", "--json", "--from", source).objects
    assert found["recommended"] == {"vcpu": size[0], "memoryMB": size[1]}
    assert found["evidence"]["peakMB"] == pytest.approx(150 + 30, abs=1), "with the monitor"
    assert not [row for row in found["sizes"] if row["acceptable"] and row["memoryMB"] < size[1]]
    kept_mb = MAPPED * (FULL * size[1] - 150)
    (reason,) = [text for text in found["reasons"] if text.startswith("A run also")]
    assert reason == (
        f"A run also keeps up to {kept_mb / GB:.1f} GB of its files in memory: a smaller size would "
        "read them again."
    )


def test_one_run_says_the_same(cli: Cli) -> None:
    record = IndexedBatch(0, (1, 8 * GB), version=2).run().report()
    assert record["metrics"]["maxMemoryUsedMB"] == pytest.approx(150, abs=1)
    assert record["metrics"]["memoryMappedFileMB"]["max"] == pytest.approx(7681.5, abs=1)
    advice = record["recommendation"]
    assert (advice["vcpu"], advice["memoryMB"]) == (1, 8 * GB)
    assert [text for text in advice["reasons"] if text.startswith("A run also")]


@pytest.mark.parametrize("mapped", [0, 0.01])
def test_without_mapped_files_the_same_runs_shrink(cli: Cli, mapped: float) -> None:
    source = nights((1, 8 * GB), mapped=mapped)
    assert cli("recommend", "--check", "--from", source).code == 3
    (found,) = cli("recommend", "--json", "--from", source).objects
    assert found["recommended"] == {"vcpu": 1, "memoryMB": 2 * GB}
    assert not [text for text in found["reasons"] if text.startswith("A run also")]


def test_few_files_hold_back_what_is_too_small_for_them_alone(cli: Cli) -> None:
    """150 MB and 2.3 GB of files: 3 GB of 8 are enough."""
    source = nights((1, 8 * GB), mapped=0.3)
    (found,) = cli("recommend", "--json", "--from", source).objects
    assert found["recommended"] == {"vcpu": 1, "memoryMB": 3 * GB}


def test_memory_used_up_to_the_limit_still_gets_larger(cli: Cli) -> None:
    source = nights((1, 2 * GB), used_mb=1950)
    checked = cli("recommend", "--check", "--from", source)
    assert checked.code == 3
    (found,) = cli("recommend", "--json", "--from", source).objects
    assert found["recommended"] == {"vcpu": 1, "memoryMB": 3 * GB}
