"""Documents whose samples are made only when they count give the lines of prompt samples."""

import json
from typing import Any

import pytest
from msgspec import Struct

from profiler.core.timestamps import format_ms
from profiler.monitor.loop import monitor_task
from profiler.readers.container_sample import ContainerSample
from profiler.readers.ecs import container_stats, endpoint_client
from profiler.readers.ecs.endpoint_client import HttpEndpoint, TaskMetadataSource
from tests.fakes import START_NS, FakeClock, seconds, task_settings
from tests.monitor_world import MIB, FakeMonitor

_LIMIT_MIB = 1024


class Documents(HttpEndpoint):
    """A batch and its monitor, whose documents of version 1 change each second: ``used_mib`` and
    ``kernel_mib`` by second, the last ones from then on.
    """

    def __init__(self, clock: FakeClock, used_mib: list[int], kernel_mib: list[int]) -> None:
        self._played = clock
        self._used_mib = used_mib
        self._kernel_mib = kernel_mib

    def close(self) -> None: ...

    def get_body(self, path: str, max_seconds: float | None = None) -> bytes:
        at = self._played.now_ns // seconds(1)
        if path == "/task/stats":
            return json.dumps({name: self._stats(name, at) for name in ("b", "m")}).encode()
        own = self._container("task-monitor", "m")
        batch = self._container("batch", "b")
        return json.dumps({"Containers": [own, batch]} if path == "/task" else own).encode()

    def _container(self, name: str, docker_id: str) -> dict[str, Any]:
        return {
            "Name": name,
            "DockerId": docker_id,
            "KnownStatus": "RUNNING",
            "StartedAt": format_ms(START_NS),
            "Limits": {"CPU": 256, "Memory": _LIMIT_MIB},
        }

    def _stats(self, name: str, at: int) -> dict[str, Any]:
        used_mib, kernel_mib = (
            values[min(at, len(values) - 1)] if name == "b" else 0
            for values in (self._used_mib, self._kernel_mib)
        )
        detail = {"total_rss": used_mib * MIB, "total_cache": 500 * MIB}
        lists = {"total_active_file": 300 * MIB, "total_inactive_file": 200 * MIB}
        usage_bytes = (used_mib + kernel_mib + 500) * MIB
        return {
            "read": format_ms(START_NS + seconds(at)),
            "cpu_stats": {"cpu_usage": {"total_usage": at * seconds(0.5)}},
            "memory_stats": {"usage": usage_bytes, "stats": {**detail, **lists}},
        }


def _estimates(clock: FakeClock, asked_at: list[int]) -> type:
    class Estimate:
        def reclaimable_bytes(self, kernel_bytes: int, _used_bytes: int) -> int:
            asked_at.append(clock.now_ns // seconds(1))
            return kernel_bytes // 2

    return Estimate


class Played(Struct):
    """The lines of 65 s; the seconds at which the machine was asked for its kernel memory; of each
    sample, the second of its document and that at which it was made.
    """

    lines: list[bytes]
    asked_at: list[int]
    made: list[tuple[int, int]]


def played(
    monkeypatch: pytest.MonkeyPatch, *, waits: bool, used_mib: list[int], kernel_mib: list[int]
) -> Played:
    fakes = FakeMonitor(FakeClock(), 65.0)
    fakes.settings = task_settings(container="batch", checkpoint_seconds=30)
    result = Played([], [], [])
    with monkeypatch.context() as patch:
        make = container_stats._container_sample

        def noted(*given: Any) -> ContainerSample:
            made = make(*given)
            taken = (made.read_ns - START_NS) // seconds(1)
            result.made.append((taken, fakes.clock.now_ns // seconds(1)))
            return made

        patch.setattr(container_stats, "_container_sample", noted)
        estimate = _estimates(fakes.clock, result.asked_at)
        patch.setattr(endpoint_client, "KernelMemoryEstimate", estimate)
        source = TaskMetadataSource(Documents(fakes.clock, used_mib, kernel_mib), 4)
        shared = fakes.shared()
        shared.collectors.are_timed = not waits
        monitor_task(fakes.task_of(source, shared, ()), shared)
    result.lines = [*fakes.output.lines, *[line for _, line in fakes.streams.lines]]
    return result


@pytest.mark.diagonal
@pytest.mark.parametrize("used_mib", [[100], [100] * 41 + [800], [*range(100, 1000, 20)]])
@pytest.mark.parametrize("kernel_mib", [[0], [0] * 33 + [80], [3]])
def test_the_lines_and_the_questions_to_the_machine_are_those_of_prompt_samples(
    monkeypatch: pytest.MonkeyPatch, used_mib: list[int], kernel_mib: list[int]
) -> None:
    waiting, prompt = (
        played(monkeypatch, waits=waits, used_mib=used_mib, kernel_mib=kernel_mib)
        for waits in (True, False)
    )
    assert waiting.lines == prompt.lines
    assert len(waiting.lines) >= 3
    if kernel_mib[-1] > 4:  # less needs no answer, and the first one is at once
        later = [second for second in prompt.asked_at if second >= 33]
        assert [second for second in waiting.asked_at if second >= 33] == later
        assert len(later) >= 32


def test_a_sample_is_made_when_it_counts_and_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """The page cache of 500 MB beside 100 MB leaves memory free."""
    made = played(monkeypatch, waits=True, used_mib=[100], kernel_mib=[0]).made
    assert [taken for taken, _ in made] == sorted([*range(66), 66] * 2)[: len(made)]
    waited = [now - taken for taken, now in made]
    assert max(waited) == 9
    assert sum(late > 0 for late in waited) > 80


def test_samples_near_the_limit_are_made_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    made = played(monkeypatch, waits=True, used_mib=[800], kernel_mib=[0]).made
    assert {now - taken for taken, now in made} == {0}


def test_a_defect_in_one_late_sample_does_not_lose_the_peak_of_those_after_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    make = container_stats._container_sample

    def failing(*given: Any) -> ContainerSample:
        made = make(*given)
        if made.read_ns - START_NS == seconds(22):
            raise RuntimeError("a defect")
        return made

    monkeypatch.setattr(container_stats, "_container_sample", failing)
    used_mib = [100] * 27 + [300, 100]
    lines = played(monkeypatch, waits=True, used_mib=used_mib, kernel_mib=[0]).lines
    record = json.loads(lines[-1])["record"]
    assert "a defect" in lines[-1].decode()
    assert record["metrics"]["maxMemoryUsedMB"] == 300
