"""Stats that change every few seconds only, as on Fargate, and the warnings of swapping and of
dropped lines.
"""

import json
from collections.abc import Callable
from dataclasses import dataclass, field
from unittest.mock import Mock

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from profiler.aggregation.record_evidence import NOTHING_SEEN, KillEvidence
from profiler.aggregation.record_parts import RecordPart
from profiler.aggregation.statistics import TimeWeightedStatistics
from profiler.collectors.collector import Collectors
from profiler.core.deadline_writer import Output
from profiler.core.timestamps import format_ms
from profiler.monitor.task_sampler import MachineKills, OutputWarning, SwapWarning, TaskSampler
from profiler.readers import Unavailable
from profiler.readers.container_sample import ContainerSample, ResourceLimits
from profiler.readers.ecs.endpoint_client import HttpEndpoint, TaskMetadataSource
from profiler.readers.ecs.task_metadata import ContainerMetadata
from profiler.readers.linux.host import Host
from profiler.readers.linux.instance import SwapCounters
from profiler.record.record_model import Container, Monitor, Record
from tests.cases import each_case
from tests.fakes import START_NS, FakeClock, FakeLog, seconds
from tests.values import present

MIB = 2**20


@dataclass
class Endpoint(HttpEndpoint):
    """A task whose stats were last refreshed at ``refreshed_at(now)``; its batch's stats vanish
    at ``ends_at``.
    """

    clock: FakeClock
    refreshed_at: Callable[[float], float]
    ends_at: float = 10**6
    fails_at: frozenset[int] = frozenset()
    task_reads: list[float] = field(default_factory=list)

    def get_body(self, path: str, _max_seconds: float | None = None) -> bytes | Unavailable:
        now = self.clock.now_ns / 1e9
        has_ended = now >= self.ends_at
        if path == "/task":
            self.task_reads.append(now)
            end = {"KnownStatus": "STOPPED", "ExitCode": 0} if has_ended else {}
            return json.dumps({"Containers": [{"Name": "batch", "DockerId": "b", **end}]}).encode()
        if path == "/task/stats":
            if int(now) in self.fails_at:
                return Unavailable("refused")
            at_ns = seconds(self.refreshed_at(now))
            cpu = {"cpu_usage": {"total_usage": at_ns // 2}}
            sample = {"read": format_ms(START_NS + at_ns), "cpu_stats": cpu}
            return json.dumps({"b": None if has_ended else sample}).encode()
        return b'{"Name":"task-monitor"}'


class Watched:
    """A sampler of the endpoint, with one tick a second."""

    takes_late_samples = False

    def __init__(self, clock: FakeClock, endpoint: Endpoint) -> None:
        self.clock = clock
        self.sampled: list[tuple[float, int]] = []
        source = TaskMetadataSource(endpoint, 4)
        self.sampler = TaskSampler(
            source, clock, FakeLog(), seconds(1), Collectors(self), host=Host()
        )

    def on_sample(self, batch: str, sample: ContainerSample, _sizes: ResourceLimits) -> None:
        assert batch == "b"
        self.sampled.append((self.clock.now_ns / 1e9, sample.read_ns))

    def part(self, record: Record, batch: str) -> RecordPart:
        return RecordPart()

    def tick(self) -> bool:
        refreshed = self.sampler.tick((self.sampler.followed.container_named("batch"),))
        self.clock.advance(1)
        return refreshed


periods = st.floats(0.3, 25)
phases = st.floats(0, 25)
jitters = st.lists(st.floats(0, 0.8), min_size=1, max_size=20)


@pytest.mark.slow
@settings(max_examples=60)
@given(
    period=periods,
    phase=phases,
    jitters=jitters,
    fails_at=st.frozensets(st.integers(0, 99), max_size=10),
)
def test_no_refresh_is_skipped_and_each_is_seen_at_the_next_tick(
    period: float, phase: float, jitters: list[float], fails_at: frozenset[int]
) -> None:
    moments = [phase + period * (index + jitters[index % len(jitters)]) for index in range(400)]

    def refreshed_at(now: float) -> float:
        return max((moment for moment in moments if moment <= now), default=0)

    clock = FakeClock()
    watched = Watched(clock, Endpoint(clock, refreshed_at, fails_at=fails_at))
    for _ in range(100):
        watched.tick()
    answered = [at for at in range(100) if at not in fails_at]
    first_seen: dict[str, float] = {}
    for at in answered:
        first_seen.setdefault(format_ms(START_NS + seconds(refreshed_at(at))), at)
    assert [at for at, _ in watched.sampled] == list(first_seen.values())
    assert [format_ms(read_ns) for _, read_ns in watched.sampled] == list(first_seen)
    usage = present(watched.sampler.followed.container_named("batch").usage)
    assert usage.samples + usage.duplicates == len(answered) == watched.sampler.readings


@settings(max_examples=60)
@given(period=periods, phase=phases, ends_at=st.floats(1, 60))
def test_the_end_is_seen_at_the_next_tick_whatever_the_period(
    period: float, phase: float, ends_at: float
) -> None:
    def refreshed_at(now: float) -> float:
        return max(now - (now + phase) % period, 0)

    clock = FakeClock()
    endpoint = Endpoint(clock, refreshed_at, ends_at)
    watched = Watched(clock, endpoint)
    while not (watched.tick() and (task := watched.sampler.task) and task.containers[0].is_stopped):
        pass
    assert clock.now_ns / 1e9 - 1 - ends_at < 1


@pytest.mark.parametrize(
    ("refreshed_at", "ends_at", "reads"),
    [
        (lambda _now: 0, 5, [0, 5, 6, 7, 8]),
        (lambda now: min(now - now % 2, 20), 1000, [0, 2, 12, 22, 25]),
    ],
    ids=["they vanish: at every tick", "they stay the same for two usual periods"],
)
def test_stats_that_may_show_an_end_have_the_task_read(
    refreshed_at: Callable[[float], float], ends_at: float, reads: list[float]
) -> None:
    clock = FakeClock()
    endpoint = Endpoint(clock, refreshed_at, ends_at)
    watched = Watched(clock, endpoint)
    for _ in range(40):
        watched.tick()
    assert endpoint.task_reads[:5] == reads


def test_how_often_stats_change_is_found_once_for_each_of_them(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """On Fargate nine of ten ticks repeat the last stats."""
    medians: list[TimeWeightedStatistics] = []
    median = TimeWeightedStatistics.median

    def counted(statistics: TimeWeightedStatistics) -> float | None:
        medians.append(statistics)
        return median(statistics)

    clock = FakeClock()
    watched = Watched(clock, Endpoint(clock, lambda now: now - now % 10))
    for _ in range(30):
        watched.tick()
    monkeypatch.setattr(TimeWeightedStatistics, "median", counted)
    for _ in range(100):
        watched.tick()
    steps = watched.sampler.followed.container_named("batch").usage.steps_ms
    assert sum(one is steps for one in medians) <= 2 * 10


def test_stats_that_stay_the_same_count_once_the_task_can_be_read() -> None:
    class LateTask(Endpoint):
        def get_body(self, path: str, _max_seconds: float | None = None) -> bytes | Unavailable:
            is_early = path == "/task" and not self.clock.now_ns
            return Unavailable("refused") if is_early else super().get_body(path)

    clock = FakeClock()
    watched = Watched(clock, LateTask(clock, lambda _now: 0))
    watched.tick()
    assert not watched.sampled
    watched.tick()
    assert watched.sampled


def record(launch_type: str | None = "EC2") -> Record:
    return Record(
        task_id="1", container=Container(name="batch"), launch_type=launch_type, monitor=Monitor()
    )


@each_case(
    ("before", "after", "launch_type", "amounts"),
    [
        ((100, 50), (612.5, 146), "EC2", ["512 MiB out, 96 MiB back in"]),
        ((900, 900), (900, 900), "EC2", []),  # long ago
        ((0, 0), (0.9, 0.9), "EC2", []),
        (None, (5, 5), "EC2", []),
        ((0, 0), None, "EC2", []),
        ((900, 900), (0, 0), "EC2", []),
        ((0, 0), (50, 50), "FARGATE", []),
        ((0, 0), (50, 50), None, []),
    ],
)
def test_an_instance_that_swapped_during_the_run_is_named_with_the_amount(
    before: tuple[float, float] | None,
    after: tuple[float, float] | None,
    launch_type: str | None,
    amounts: list[str],
) -> None:
    counters = (
        one and SwapCounters(out_bytes=round(one[0] * MIB), in_bytes=round(one[1] * MIB))
        for one in (before, after)
    )
    warning = SwapWarning(lambda: next(counters))
    warning.on_batch_started(ContainerMetadata(name="batch", docker_id="b"))
    sentence = (
        "The instance swapped while the batch ran ({}): give it more memory, or fewer tasks at "
        "a time."
    )
    assert warning.part(record(launch_type), "b").warnings == tuple(map(sentence.format, amounts))


@pytest.mark.parametrize(
    ("before", "after", "status", "is_excluded"),
    [
        (7, 7, "RUNNING", True),
        (7, 8, "RUNNING", False),  # perhaps another task's process
        (7, 7, "STOPPED", False),  # it had ended before the first count
        (None, None, "RUNNING", False),
    ],
)
def test_a_count_of_the_machines_kills_that_did_not_rise_excludes_one(
    before: int | None, after: int | None, status: str, *, is_excluded: bool
) -> None:
    counts = iter((before, after))
    kills = MachineKills(lambda: next(counts))
    container = ContainerMetadata(name="batch", docker_id="b", known_status=status)
    kills.on_batch_started(container)
    evidence = kills.part(record(), "b").evidence
    assert (evidence != NOTHING_SEEN) is is_excluded
    if is_excluded:
        assert evidence.kills == KillEvidence(excludes_kill_at_end=True)
    kills.forget("b")
    assert kills.part(record(), "b").evidence == NOTHING_SEEN


def test_lines_that_were_dropped_are_counted_for_each_output() -> None:
    stdout, stderr, read = (Mock(spec=Output, dropped=dropped) for dropped in (1, 20, 0))
    both = OutputWarning(stdout, stderr)
    sentence = (
        "The monitor's standard {} was not read for a while (a log driver that hangs?): {} dropped."
    )
    said = (sentence.format("output", "1 line was"), sentence.format("error", "20 lines were"))
    assert both.part(record(), "b").warnings == said
    assert len(OutputWarning(stdout, stdout).part(record(), "b").warnings) == 1
    assert OutputWarning(read, read).part(record(), "b").warnings == ()
