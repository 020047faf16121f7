import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any
from unittest.mock import Mock

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from profiler.collectors.collector import Collectors
from profiler.collectors.stacks.py_spy import ProcessStacks, PySpy, StackFrame, ThreadStack
from profiler.collectors.stacks.python_processes import Identity
from profiler.collectors.stacks.stack_collector import (
    SamplingSchedule,
    StackAccess,
    StackAdvice,
    StackCollector,
)
from profiler.core.timestamps import NS_PER_SECOND, format_ms
from profiler.readers.container_sample import ResourceLimits
from profiler.readers.ecs.task_metadata import ContainerMetadata
from profiler.record.activity_model import NO_STACKS
from profiler.record.record_model import Container, Monitor, Record
from profiler.settings import StacksMode
from tests.collected import with_collected
from tests.fakes import START_NS, FakeClock, FakeLog, FakeStackReader, sample, seconds
from tests.values import present
from tools.waiting import LIMIT_SECONDS

_ADVICE = StackAdvice(
    missing="Install py-spy.", invisible="Set pidMode.", refused="Add SYS_PTRACE."
)
_BATCH = ContainerMetadata(name="batch", docker_id="d1")
_RECORD = Record(
    task_id="t1",
    container=Container(name="batch"),
    status="success",
    started_at=format_ms(START_NS - seconds(5)),
    finished_at=format_ms(START_NS + seconds(100)),
    monitor=Monitor(),
)


def stack(*names: str, is_active: bool = True) -> ThreadStack:
    frames = tuple(StackFrame(name, "job.py", 7, is_own=True) for name in names)
    return ThreadStack(frames=frames, is_active=is_active, is_main=True)


@dataclass
class SampledPython:
    """A collector, its reader, and processes that all run Python."""

    mode: StacksMode = "on"
    is_installed: bool = True
    clock: FakeClock = field(default_factory=FakeClock)
    log: FakeLog = field(default_factory=FakeLog)
    processes: dict[str, tuple[Identity, ...]] = field(default_factory=lambda: {"d1": ((10, 1),)})
    programs: dict[int, tuple[str, bool | None]] = field(default_factory=dict)
    used_cpu_seconds: float = 0
    own_cpu_seconds: float = 0
    local_vcpu: float = 0
    rate_hz: int | None = None

    def __post_init__(self) -> None:
        self.reader = FakeStackReader(
            ProcessStacks(stacks=(stack("<module>", "parse"),)),
            dump_cpu_ns=seconds(0.01),
            record_cpu_ns=seconds(0.01),
        )
        access = StackAccess(
            reader=self.reader if self.is_installed else PySpy(""),
            find_processes=lambda docker_id: self.processes.get(docker_id, ()),
            own_cpu_ns=lambda: seconds(self.own_cpu_seconds),
            advice=_ADVICE,
            vcpu=self.local_vcpu or None,
            runs_python=lambda pid, last: (
                None if last else self.programs.get(pid, ("python3", True))
            ),
        )
        self.collector = StackCollector(access, self.mode, self.clock, self.log, self.rate_hz)
        self.reader.on_record = self._record

    def _record(self, duration: int) -> None:
        self.clock.now_ns += seconds(duration)

    def begin(self) -> "SampledPython":
        self.collector.on_batch_started(_BATCH)
        return self

    def go_on(self, duration: float) -> "SampledPython":
        end_ns = self.clock.now_ns + seconds(duration)
        while (left_ns := end_ns - self.clock.now_ns) > 0:
            wait_ns = max(seconds(self.collector.tick()), 0)
            self.clock.now_ns += min(wait_ns, left_ns)
        return self

    def record(self, of: Record = _RECORD) -> Record:
        return with_collected(of, (self.collector,), "d1")

    def warnings(self) -> tuple[str, ...]:
        return self.record().monitor.warnings


def test_a_run_of_100_seconds() -> None:
    fakes = SampledPython().begin().go_on(100)
    stacks = present(fakes.record().stacks)
    assert stacks.source == "py-spy 9"
    assert stacks.samples == 60 + 4
    assert stacks.top[0].function == "parse"
    assert stacks.top[0].self_percent == 100
    assert fakes.warnings() == ()
    used = fakes.record(replace(_RECORD, monitor=Monitor(version="1", cpu_seconds=1.5))).monitor
    assert present(used).cpu_seconds == 1.5 + 64 * 0.01  # the monitor pays for py-spy
    line = json.loads(present(fakes.collector.stacks_line(_RECORD, "d1")))
    members = [line[key] for key in ("type", "taskId", "container", "format")]
    assert members == ["task.stacks", "t1", "batch", "folded"]
    assert line["steps"][0]["offsetMs"] == 5200
    assert sum(step["stacks"]["<module> (job.py);parse (job.py)"] for step in line["steps"]) == 64
    assert line["steps"][-1]["offsetMs"] + line["steps"][-1]["durationMs"] <= 105_000


def _recorded(*counts: int) -> ProcessStacks:
    """A recording of a thread that ran so often in each function."""
    stacks = []
    for number, count in enumerate(counts):
        stacks.append(replace(stack("main", f"step{number}"), count=count, thread_id=1))
    return ProcessStacks(stacks=tuple(stacks))


_WAITING = ProcessStacks(stacks=(stack("main", "wait", is_active=False),))


def test_a_local_run_is_recorded_between_readings_of_waiting_threads() -> None:
    fakes = SampledPython(local_vcpu=2).begin()
    fakes.reader.dumped = _WAITING
    fakes.reader.recorded = _recorded(14, 6)
    stacks = present(fakes.go_on(4).record().stacks)
    assert [length for _, length, _ in fakes.reader.recordings] == [1, 1, 1, 1]
    assert {rate for _, _, rate in fakes.reader.recordings} == {20}
    assert fakes.reader.asked == [10] * 4
    assert stacks.running_samples == 4 * 20
    assert stacks.samples == 4 * 20 + 4
    assert [(row.function, row.self_percent) for row in stacks.top] == [
        ("step0", 70),
        ("step1", 30),
        ("main", 0),
    ]


def test_a_waiting_thread_counts_for_the_time_since_the_reading_before() -> None:
    fakes = SampledPython(local_vcpu=2).begin()
    fakes.reader.dumped = _WAITING
    fakes.go_on(20.3)
    line = json.loads(present(fakes.collector.stacks_line(_RECORD, "d1")))
    counts = [step["stacks"]["main (job.py);wait (job.py) [waiting]"] for step in line["steps"]]
    assert counts == [1, 20, 20, 20, 20, 80, 80, 80, 80]


def test_the_samples_of_a_recording_are_spread_over_its_time() -> None:
    fakes = SampledPython(local_vcpu=2).begin()
    fakes.reader.dumped = ProcessStacks()
    fakes.go_on(5)
    fakes.reader.recorded = _recorded(82)
    fakes.go_on(1)
    line = json.loads(present(fakes.collector.stacks_line(_RECORD, "d1")))
    text = "main (job.py);step0 (job.py)"
    assert [step["stacks"][text] for step in line["steps"]] == [20, 21, 20, 21]
    assert [step["durationMs"] for step in line["steps"]] == [1000] * 4


@pytest.mark.parametrize(
    ("vcpu", "rate_hz", "has_recordings"), [(0.5, None, False), (0.5, 50, True)]
)
def test_a_run_with_half_a_cpu_is_recorded_only_at_the_users_word(
    vcpu: float, rate_hz: int | None, *, has_recordings: bool
) -> None:
    fakes = SampledPython(local_vcpu=vcpu, rate_hz=rate_hz).begin().go_on(3)
    assert bool(fakes.reader.recordings) == has_recordings


def test_a_task_is_never_recorded() -> None:
    assert SampledPython().begin().go_on(100).reader.recordings == []


def test_a_moment_ends_the_recording_and_has_what_ran_in_the_next_ones() -> None:
    fakes = SampledPython(local_vcpu=2).begin()
    fakes.reader.recorded = _recorded(14, 6)

    def record(duration: int) -> None:
        for _ in range(duration):
            fakes.clock.now_ns += seconds(1)
            fakes.used_cpu_seconds += 2
            usage = sample(START_NS + fakes.clock.now_ns, fakes.used_cpu_seconds, 100)
            fakes.collector.on_sample("d1", usage, ResourceLimits(vcpu=2, memory_bytes=1000))

    fakes.reader.on_record = record
    fakes.go_on(50)
    assert fakes.reader.interrupts == 1
    assert {length for _, length, _ in fakes.reader.recordings[-4:]} == {2}
    (moment,) = present(fakes.record().stacks).moments
    assert moment.kind == "saturated"
    assert (moment.samples or 0) > 4 * 20
    assert moment.stack[-1] == "step0 (job.py:7)"


def test_the_end_of_a_run_waits_for_its_recording(monkeypatch: pytest.MonkeyPatch) -> None:
    fakes = SampledPython(local_vcpu=2).begin()
    fakes.reader.recorded = _recorded(9)
    has_recorded = Mock()
    monkeypatch.setattr(fakes.collector, "_has_recorded", has_recorded)
    fakes.reader.on_record = lambda _: fakes.collector.final_reading(0.3)
    fakes.go_on(1)
    assert fakes.reader.interrupts == 1
    has_recorded.wait.assert_called_once_with(0.3)
    assert present(fakes.record().stacks).running_samples == 9 + 1


def test_the_end_of_a_run_does_not_wait_between_two_recordings() -> None:
    fakes = SampledPython(local_vcpu=2).begin().go_on(3)
    fakes.collector.final_reading(0)
    assert fakes.reader.interrupts == 0


def test_recordings_that_fail_leave_the_readings_and_keep_the_budget() -> None:
    fakes = SampledPython(local_vcpu=2).begin()
    fakes.reader.recorded = ProcessStacks(failure="no recording")
    fakes.reader.record_cpu_ns = seconds(0.005)
    fakes.reader.on_record = lambda _: None
    fakes.go_on(600)
    assert present(fakes.record().stacks).running_samples == len(fakes.reader.recordings)
    assert 0.015 * len(fakes.reader.recordings) <= 0.003 * 600


@pytest.mark.parametrize("local_vcpu", [0, 2])
def test_the_budget_sees_what_the_sampler_its_reader_and_their_start_take(
    local_vcpu: float,
) -> None:
    fakes = SampledPython(local_vcpu=local_vcpu).begin()
    fakes.reader.cpu_ns = seconds(1.2)
    fakes.own_cpu_seconds = 0.5
    fakes.go_on(599)
    assert len(fakes.reader.asked) == 1
    fakes.go_on(300)
    assert len(fakes.reader.asked) > 1


def test_a_run_that_ends_before_or_in_its_first_call_has_one_warning() -> None:
    warning = "There are no call stacks: the command ended before py-spy had read one."
    assert SampledPython(mode="moments").begin().warnings() == ()
    fakes = SampledPython().begin()
    assert fakes.warnings() == (warning,)
    assert fakes.record(replace(_RECORD, status="running")).monitor == Monitor()
    seen: list[tuple[str, ...]] = []
    fakes.reader.on_dump = lambda: seen.append(fakes.warnings())
    fakes.go_on(1)
    assert seen[0] == (warning,)
    assert seen[1:] == [()] * (len(seen) - 1)


def test_a_version_that_takes_forever_costs_no_first_sample(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    fakes = SampledPython().begin()
    samples: list[int | None] = []

    def version(_reader: FakeStackReader) -> str:
        stacks = fakes.record().stacks
        samples.append(stacks.samples)
        return "py-spy 9"

    monkeypatch.setattr(FakeStackReader, "version", property(version), raising=False)
    fakes.go_on(1)
    assert samples[0] == 1


def test_a_restarted_container_goes_on_in_the_same_record() -> None:
    """A restarted container goes on in the same record and one of another task has its own."""
    fakes = SampledPython().begin().go_on(5)
    fakes.processes = {"d2": ((20, 2),)}
    fakes.collector.on_batch_started(replace(_BATCH, docker_id="d2", first_docker_id="d1"))
    fakes.go_on(5)
    assert set(fakes.reader.asked) == {10, 20}
    fakes.processes["d3"] = ((30, 2),)
    fakes.collector.on_batch_started(replace(_BATCH, docker_id="d3"))
    fakes.go_on(5)
    stacks: list[Any] = [
        fakes.collector.part(_RECORD, batch).values["stacks"] for batch in ("d1", "d3")
    ]
    assert [one.samples for one in stacks] == [15, 5]
    fakes.collector.forget("d1")
    assert fakes.record().stacks is NO_STACKS


def test_without_py_spy_one_warning_says_what_to_do() -> None:
    fakes = SampledPython(is_installed=False).begin()
    fakes.collector.start()
    assert fakes.collector.startup_error == "Install py-spy."
    assert fakes.warnings() == ("Install py-spy.",)
    assert fakes.log.events("warning") == ["Install py-spy."]
    fakes.collector.stop(1)


@pytest.mark.parametrize("mode", ["on", "moments"])
def test_invisible_processes_are_looked_for_a_few_times(mode: StacksMode) -> None:
    fakes = SampledPython(mode=mode, processes={}).begin()
    assert "Set pidMode." not in fakes.warnings()
    fakes.go_on(10)
    assert fakes.warnings() == ("Set pidMode.",)
    assert fakes.reader.asked == []


def test_processes_that_may_not_be_read_are_not_tried_again() -> None:
    for programs, attempts in (
        ({10: ("", None)}, 0),
        ({}, 3),
    ):  # py-spy itself finds out the second time
        fakes = SampledPython(programs=dict(programs))
        fakes.reader.dumped = ProcessStacks(failure="Permission Denied: Try running again")
        fakes.begin().go_on(60)
        assert fakes.warnings() == ("Add SYS_PTRACE.",)
        assert fakes.reader.asked == [10] * attempts


def test_a_lasting_failure_is_one_warning_with_its_reason() -> None:
    fakes = SampledPython()
    fakes.reader.dumped = ProcessStacks(failure="Unsupported version of Python: 3.15.0")
    fakes.begin().go_on(600)
    assert fakes.warnings() == (
        "py-spy could not read a Python process: Unsupported version of Python: 3.15.0.",
    )
    assert len(fakes.reader.asked) < 20
    assert len(fakes.log.lines) == 1


def test_a_single_failure_is_repeated_at_once() -> None:
    """A single failure is repeated at once and a process that has ended meanwhile is none."""
    fakes = SampledPython().begin().go_on(3)
    before = len(fakes.reader.asked)
    fakes.reader.failures = ["Failed to get stack traces"]
    fakes.go_on(1)
    stacks = fakes.record().stacks
    assert len(fakes.reader.asked) == before + 2
    assert present(stacks).samples == 4
    fakes.reader.on_dump = fakes.processes.clear
    fakes.reader.dumped = ProcessStacks(failure="Failed to get process executable name")
    fakes.go_on(20)
    assert fakes.warnings() == ()
    assert fakes.collector._last_failure is None


def usage(fakes: SampledPython, duration: int, cpu_per_second: float, *, every: int = 1) -> None:
    for _ in range(0, duration, every):
        fakes.used_cpu_seconds += cpu_per_second * every
        fakes.go_on(every)
        now_ns = START_NS + fakes.clock.now_ns
        sizes = ResourceLimits(vcpu=fakes.local_vcpu or 1, memory_bytes=1000)
        fakes.collector.on_sample("d1", sample(now_ns, fakes.used_cpu_seconds, 100), sizes)


@pytest.mark.parametrize("every", [1, 10])
def test_in_the_mode_of_moments_only_these_are_sampled(every: int) -> None:
    fakes = SampledPython(mode="moments").begin()
    usage(fakes, 100, 0.5, every=every)
    assert fakes.reader.asked == []
    fakes.reader.dumped = ProcessStacks(stacks=(stack("<module>", "recv", is_active=False),))
    usage(fakes, 60, 0.0, every=every)
    usage(fakes, 100, 0.5, every=every)
    stacks = present(fakes.record().stacks)
    (moment,) = stacks.moments
    assert moment.kind == "idle"
    assert moment.stack[-1] == "recv (job.py:7)"
    assert 25 <= (moment.samples or 0) <= 40
    assert stacks.samples == moment.samples == len(fakes.reader.asked)


def test_an_idle_moment_asks_what_the_waits_of_its_threads_hold_back() -> None:
    fakes = SampledPython(mode="moments").begin()
    asked: list[int] = []

    def held_back_ns() -> Mapping[int, float]:
        asked.append(len(asked))
        return {7: 1e9}

    waits = Collectors(fakes.collector)
    fakes.reader.dumped = ProcessStacks(
        stacks=(
            replace(stack("serve", is_active=False), kernel_id=8),
            replace(stack("<module>", "recv", is_active=False), kernel_id=7),
        ),
    )
    for second in range(80):
        usage(fakes, 1, 0.5 if second < 20 else 0.0)
        waits.pass_waits_on("d1", held_back_ns)
    waits.pass_waits_on("another", held_back_ns)
    # At the begin, and after each sample.
    assert len(asked) == 1 + len(fakes.reader.asked) == 31
    (moment,) = present(fakes.record().stacks).moments
    assert (moment.stack[-1], moment.percent) == ("recv (job.py:7)", 100)


def test_without_python_nobody_asks_what_the_waits_hold_back() -> None:
    fakes = SampledPython(mode="moments", programs={10: ("java", False)}).begin()
    asked: list[int] = []

    def held_back_ns() -> Mapping[int, float]:
        asked.append(len(asked))
        return {}

    waits = Collectors(fakes.collector)
    for _ in range(80):
        usage(fakes, 1, 0.0)
        waits.pass_waits_on("d1", held_back_ns)
    assert len(asked) < 40  # until the moment is long enough to look at its processes


def test_a_checkpoint_has_only_the_innermost_functions_of_a_moment() -> None:
    """It is printed every minute, and log drivers split long lines."""
    fakes = SampledPython().begin()
    fakes.reader.dumped = ProcessStacks(stacks=(stack(*(f"f{index}" for index in range(30))),))
    usage(fakes, 60, 1)
    whole, short = (
        present(fakes.record(replace(_RECORD, status=status)).stacks).moments[0].stack
        for status in ("success", "running")
    )
    assert len(whole) == 30
    assert short == whole[-8:]


def test_the_reader_of_run_starts_before_the_first_measurement() -> None:
    """The reader of run is started before the first measurement and killed at the end."""
    fakes = SampledPython(mode="moments")
    fakes.collector.start()
    fakes.collector.stop(LIMIT_SECONDS)
    assert fakes.collector.child_pid is None
    access = replace(fakes.collector._access, vcpu=1)
    collector = StackCollector(access, "moments", fakes.clock, fakes.log)
    collector.start()
    assert collector.child_pid == 4242
    collector.stop(LIMIT_SECONDS)
    assert fakes.reader.is_killed is True
    assert fakes.reader.is_closed is True


_MS = NS_PER_SECOND // 1000


def taken(
    mode: StacksMode,
    until: float,
    costs_ms: list[int],
    moments: tuple[range, ...] = (),
) -> list[float]:
    """The seconds at which samples of these costs, again and again, are taken; they never cost
    more than their share.

    The cost of the next sample is not known before; it may be above that of the last one.
    """
    schedule, now_ns, times = SamplingSchedule(mode, 0), 0, list[float]()
    spent_ns = 0
    while now_ns < seconds(until):
        is_moment = any(now_ns // NS_PER_SECOND in moment for moment in moments)
        due_ns = schedule.next_ns(now_ns, is_moment=is_moment)
        if due_ns <= now_ns:
            spent_ns += costs_ms[len(times) % len(costs_ms)] * _MS
            schedule.add_sample(now_ns, spent_ns)
            times.append(now_ns / NS_PER_SECOND)
            assert spent_ns <= 0.003 * max(now_ns, seconds(600)) + max(costs_ms) * _MS
        now_ns += NS_PER_SECOND // 5
    return times


def test_a_moment_has_a_sample_a_second_and_expensive_samples_are_rarer() -> None:
    times = taken("on", 300, [5], moments=(range(100, 130),))
    assert len([at for at in times if 101 <= at < 130]) == 29
    times = taken("on", 600, [90])
    assert [round(after - before) for before, after in pairwise(times)][1:10] == [5] * 9
    assert 90 * len(times) <= 1800


@given(
    st.sampled_from(["on", "moments"]),
    st.lists(st.integers(1, 400), min_size=1, max_size=20),
    st.lists(st.tuples(st.integers(0, 3000), st.integers(0, 2000)), max_size=4),
)
def test_no_run_of_ten_minutes_or_more_costs_more_than_its_share(
    mode: StacksMode, costs_ms: list[int], moments: list[tuple[int, int]]
) -> None:
    during = tuple(range(first, first + length) for first, length in moments)
    taken(mode, 3000, costs_ms, during)
