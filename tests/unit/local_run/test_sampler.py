"""A command's samples: their times, the memory of its control group, and the series."""

import itertools
import os
import resource
import signal
import time
from collections.abc import Callable, Sequence
from unittest.mock import Mock

import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from profiler.aggregation.container_usage import ContainerUsage
from profiler.aggregation.process_tree_usage import GroupPeak
from profiler.aggregation.record_parts import RecordPart
from profiler.aggregation.statistics import DeviceReadings
from profiler.aggregation.time_series import step_means
from profiler.collectors.collector import Collectors
from profiler.core.clock import SystemClock
from profiler.core.look_times import LookTimes
from profiler.core.timestamps import NS_PER_MS, NS_PER_SECOND
from profiler.local_run import command_supervisor
from profiler.local_run.command_supervisor import ReapedUsage, Supervisor
from profiler.local_run.command_usage import CommandReader, GroupMemory
from profiler.local_run.prepared_run import StartedRun
from profiler.local_run.report_builder import delay_warnings
from profiler.local_run.sampler import Details, RunSampler, SampleBuffer
from profiler.local_run.sampling_pace import FINEST_NS, Reading, SamplingPace
from profiler.readers import Unavailable
from profiler.readers.cgroup.command_group import CommandCgroup
from profiler.readers.container_sample import ContainerSample
from profiler.readers.linux import proc
from profiler.readers.linux.kernel_memory import FreeMemory
from profiler.readers.linux.look import ThreadsLook
from profiler.readers.linux.proc import ProcessBlockBytes
from profiler.readers.memory_usage import MemoryReading
from profiler.record.record_model import Record
from tests.fakes import START_NS, FakeClock, process, sample, seconds
from tests.values import present
from tools.waiting import wait_until

_MIB = 2**20


class _Cgroup(CommandCgroup):
    """A fake group with given readings."""

    def __init__(
        self, readings: Sequence[MemoryReading | None], *, outside: Sequence[int] = ()
    ) -> None:
        super().__init__()
        self._readings = list(readings)
        self.outside = outside
        self.in_swap_bytes: int | None = None

    def read_memory(self) -> MemoryReading | None:
        return self._readings.pop(0)

    def swap_bytes(self) -> int | None:
        return self.in_swap_bytes

    def memory_peak_bytes(self) -> int | None:
        return 100 * _MIB

    def counts_memory_of(self, pid: int) -> bool:
        return pid not in self.outside


def _reading(used: int, cache: int) -> MemoryReading:
    return MemoryReading(
        used_bytes=used * _MIB, cache_bytes=cache * _MIB, reclaimable_bytes=cache * _MIB
    )


def _read(
    memory: GroupMemory, *pids: int, tree_mib: int = 0, shmem_mib: int = 0
) -> MemoryReading | None:
    processes = [process(pid) for pid in pids or (1,)]
    return memory.read_memory(processes, tree_mib * _MIB, shmem_mib * _MIB)


def test_processes_never_overrule_the_group() -> None:
    """They map shared memory that another group made."""
    memory = GroupMemory(_Cgroup([_reading(20, 0)] * 9))
    assert _read(memory, tree_mib=220, shmem_mib=200) == _reading(20, 0)
    assert memory.read_quickly() == _reading(20, 0)
    memory.add_marks(230 * _MIB)
    assert memory.peak_bytes == 30 * _MIB, "a mark 10 MiB above"
    memory.add_marks(900 * _MIB)
    assert memory.peak_bytes == 100 * _MIB, "the group's own mark"


def test_marks_count_no_more_than_the_group_has_beside_its_page_cache() -> None:
    """They count the pages of a file that was mapped between two readings."""
    memory = GroupMemory(_Cgroup([_reading(8, 0), _reading(8, 10), _reading(8, 91)]))
    for _ in range(3):
        _read(memory)
    memory.add_marks(95 * _MIB)
    assert memory.peak_bytes == 9 * _MIB


def test_page_cache_that_comes_after_a_mark_does_not_count_against_it() -> None:
    memory = GroupMemory(_Cgroup([_reading(8, 0), _reading(8, 90)]))
    _read(memory)
    memory.add_marks(60 * _MIB)
    _read(memory)
    memory.add_marks(60 * _MIB)
    assert memory.peak_bytes == 60 * _MIB


def test_the_most_cache_and_memory_are_kept() -> None:
    """The most cache and memory are kept and a process outside of the group invalidates its peak."""
    memory = GroupMemory(_Cgroup([_reading(10, 1), _reading(30, 5), None, _reading(20, 2)]))
    assert [_read(memory) for _ in range(3)] == [_reading(10, 1), _reading(30, 5), None]
    assert memory.used_peak_bytes == 30 * _MIB
    assert memory.final_peak() == GroupPeak(size_bytes=100 * _MIB, cache_bytes=5 * _MIB)
    memory = GroupMemory(
        _Cgroup([_reading(10, 0), _reading(10, 0), _reading(10, 0), None], outside=[2])
    )
    assert [_read(memory, *pids) for pids in ([1], [1, 2], [1])] == [
        _reading(10, 0),
        None,
        None,
    ]
    assert memory.final_peak() == GroupPeak(size_bytes=100 * _MIB, includes_all_processes=False)


@pytest.mark.parametrize("pid", [1, 9])
def test_a_process_that_leaves_the_group_later_ends_its_readings(pid: int) -> None:
    """As one that `systemd-run --scope` moves; of many processes, a few are asked at a time."""
    group = _Cgroup([_reading(10, 0)] * 5)
    memory = GroupMemory(group)
    pids = range(1, 10)
    assert _read(memory, *pids) == _reading(10, 0)
    group.outside = [pid]
    assert None in [_read(memory, *pids) for _ in range(3)]
    assert memory.read_quickly() is None
    assert memory.final_peak().size_bytes_of_all is None


def test_the_most_that_was_in_swap_is_kept() -> None:
    group = _Cgroup([_reading(10, 0), _reading(10, 0), _reading(10, 0)])
    memory = GroupMemory(group)
    for swap_bytes in (None, 7 * _MIB, 3 * _MIB):
        group.in_swap_bytes = swap_bytes
        _read(memory)
    assert memory.swap_peak_bytes == 7 * _MIB


class _Gpu:
    """A fake GPU with given utilizations."""

    def __init__(self, percents: Sequence[float]) -> None:
        self._percents = list(percents)

    def part(self, record: Record, batch: str) -> RecordPart:
        return RecordPart()

    def take_readings(self, _batch: str, into: DeviceReadings) -> None:
        into.gpu_percent.add_reading(self._percents.pop(0))


def _sample(
    second: float, cpu_ns: int | None = 0, memory_bytes: int | None = None
) -> ContainerSample:
    return ContainerSample(read_ns=seconds(second), cpu_ns=cpu_ns, memory_used_bytes=memory_bytes)


def test_readings_of_devices_count_for_the_step_that_ends_with_the_tick() -> None:
    buffer = SampleBuffer(seconds(1), seconds(1000), series_points=5)
    gpus = Collectors(_Gpu([10, 20, 30, 40]))
    buffer.add_devices(gpus, seconds(0.5))  # without a sample, nothing is taken
    buffer.add_quick(_sample(1000.5), seconds(0.5))
    for tick in (1.001, 2.002):  # ticks are always a little late
        buffer.add_sample(_sample(1000 + tick), seconds(tick))
        buffer.add_devices(gpus, seconds(tick))
    buffer.add_final_sample(_sample(1002.8), seconds(2.8))
    buffer.add_devices(gpus, seconds(2.8))
    series = present(buffer.usage.series)
    percents = step_means(series.gpu, series.step_count)
    assert [percent for percent, _ in itertools.groupby(percents)] == [10, 20, 30]
    # They count for all short steps of their time.
    buffer, gpus = (
        SampleBuffer(seconds(1), seconds(1000), series_points=60),
        Collectors(_Gpu([10, 20])),
    )
    for tick in (0.5, 1, 2):
        buffer.add_sample(_sample(1000 + tick), seconds(tick))
    for tick in (1, 2):
        buffer.add_devices(gpus, seconds(tick))
    series = present(buffer.usage.series)
    assert series.step_ns == seconds(1) // 32
    assert step_means(series.gpu, series.step_count) == (10,) * 32 + (20,) * 32


def test_the_cpu_time_of_a_short_step_is_counted_with_the_one_before() -> None:
    buffer = SampleBuffer(seconds(1), seconds(0))
    for second, cpu_ns in ((0.6, 6), (0.7, 8), (0.72, None), (0.78, 9)):
        buffer.add_quick(_sample(second, cpu_ns, 1), seconds(second))
    buffer.add_sample(_sample(0.79, 26, 2), seconds(0.79))  # clock ticks of 10
    buffer.add_final_sample(_sample(0.8, 28), seconds(0.8))
    usage = buffer.usage
    assert usage.samples == 5
    assert usage.run.cpu_seconds == 28 / 1e9
    assert usage.memory_max_bytes == 2
    # The step of 0.01 s alone would be the highest rate.
    assert usage.run.vcpu.maximum == 22 / (0.2 * 1e9)


def test_many_quick_samples_do_not_pile_up() -> None:
    buffer = SampleBuffer(seconds(1), seconds(0))
    for number in range(1, 200):
        buffer.add_quick(_sample(number / 50, None, number), seconds(number / 50))
    assert buffer.usage.samples >= 100
    buffer.add_final_sample(_sample(4), seconds(4))
    assert buffer.usage.samples == 199


_STARTED_NS = 7 * NS_PER_SECOND


def _run(
    length: float,
    *,
    interval: float = 1.0,
    cost_ns: Callable[[Reading], int] = lambda _: 0,
    on_reading: Callable[[Reading, int], None] = lambda *_: None,
) -> tuple[list[tuple[Reading, int]], SamplingPace, int]:
    """Sample a simulated run; returns the readings (time since the start), the pace, and the CPU
    time of all.
    """
    pace, now_ns, cpu_ns = SamplingPace(_STARTED_NS, seconds(interval), 0), _STARTED_NS, 0
    readings: list[tuple[Reading, int]] = []
    while (next_ns := pace.next_ns(now_ns, cpu_ns)) < _STARTED_NS + seconds(length):
        now_ns = max(next_ns, now_ns)
        kind = pace.begin_reading(now_ns)
        readings.append((kind, now_ns - _STARTED_NS))
        on_reading(kind, now_ns - _STARTED_NS)
        cpu_ns += cost_ns(kind)
        now_ns += cost_ns(kind)
    return readings, pace, cpu_ns


def _steps_ms(readings: list[tuple[Reading, int]], begin: float, end: float) -> list[float]:
    times = [at_ns for _, at_ns in readings if seconds(begin) <= at_ns <= seconds(end)]
    return [(after - before) / NS_PER_MS for before, after in itertools.pairwise(times)]


def test_a_short_run_is_sampled_every_20_ms() -> None:
    """A short run is sampled every 20 ms and a long one at the interval."""
    readings, pace, _ = _run(200)
    assert max(_steps_ms(readings, 0, 2)) <= 30  # 20, but for the last one before a tick
    assert 80 <= min(_steps_ms(readings, 9, 10)[:-1]) <= max(_steps_ms(readings, 9, 10)) <= 150
    assert set(_steps_ms(readings, 100, 200)) == {1000}
    assert {at_ns for kind, at_ns in readings if kind == "tick"} == {
        seconds(tick) for tick in range(1, 200)
    }
    assert pace.missed_ticks == 0


@given(
    quick_us=st.integers(50, 20_000),
    full_us=st.integers(200, 60_000),
    length=st.floats(3, 60),
    interval=st.sampled_from([0.1, 1.0, 5.0]),
)
def test_readings_stay_within_their_share(
    quick_us: int, full_us: int, length: float, interval: float
) -> None:
    cost_ns = {"quick": quick_us * 1000, "full": full_us * 1000, "tick": full_us * 1000}
    readings, pace, cpu_ns = _run(length, interval=interval, cost_ns=cost_ns.__getitem__)
    ticks = [at_ns for kind, at_ns in readings if kind == "tick"]
    between_ns = cpu_ns - len(ticks) * cost_ns["tick"]
    assert between_ns <= 0.01 * seconds(length) + max(cost_ns.values())
    share, advance_ns = (0.01 if interval >= 1 else 0.025), 30 * NS_PER_MS
    assert cpu_ns <= share * seconds(length) + advance_ns + max(cost_ns.values())
    assert len(ticks) + pace.missed_ticks >= int(length / interval) - 1
    assert all(at_ns % seconds(interval) <= max(cost_ns.values()) for at_ns in ticks)


def test_ticks_that_would_cost_too_much_are_left_out() -> None:
    """Ticks that would cost too much are left out and the pace says what was kept."""
    cost_ns = {"quick": 0, "full": seconds(0.04), "tick": seconds(0.04)}
    readings, pace, _ = _run(300, cost_ns=cost_ns.__getitem__)
    ticks = [at_ns for kind, at_ns in readings if kind == "tick"]
    assert 0 <= len(ticks) + pace.missed_ticks - 299 < 10  # the next one may come after the end
    assert pace.kept_interval_ns == pytest.approx(seconds(300) / len(ticks), rel=0.05)
    assert seconds(4) < pace.kept_interval_ns < seconds(8)
    assert _run(300, interval=10, cost_ns=cost_ns.__getitem__)[1].kept_interval_ns == seconds(10)


def test_ticks_of_many_processes_and_all_other_readings_have_one_share() -> None:
    """A long run pays off what ticks use in advance: at most one tick, and 30 ms, are left."""
    tick_ns, length = seconds(0.04), 1000
    cost_ns = {"quick": seconds(0.0003), "full": tick_ns, "tick": tick_ns}
    readings, _, cpu_ns = _run(length, cost_ns=cost_ns.__getitem__)
    assert cpu_ns <= 0.007 * seconds(length) + 30 * NS_PER_MS + tick_ns
    assert sum(kind == "tick" for kind, _ in readings) > 100


@pytest.mark.slow
@settings(max_examples=25, phases=[Phase.explicit, Phase.generate])  # it would shrink for minutes
@given(st.lists(st.tuples(st.integers(0, 40), st.integers(1, 100)), min_size=110, max_size=140))
def test_the_fine_first_seconds_weigh_no_more_than_others(levels: list[tuple[int, int]]) -> None:
    """Each level is the tenths of a vCPU and the megabytes of one second."""
    even = ContainerUsage(seconds(1), 60)
    fine = SampleBuffer(seconds(1), START_NS, 4.0, 60)
    used_ns = [0]
    for tenths, _ in levels:
        used_ns.append(used_ns[-1] + tenths * NS_PER_SECOND // 10)

    def sample(at_ns: int) -> ContainerSample:
        second = (at_ns - 1) // NS_PER_SECOND
        cpu_ns = used_ns[second] + levels[second][0] * (at_ns - second * NS_PER_SECOND) // 10
        return ContainerSample(
            read_ns=START_NS + at_ns, cpu_ns=cpu_ns, memory_used_bytes=levels[second][1] * 2**20
        )

    def read(kind: Reading, at_ns: int) -> None:
        (fine.add_quick if kind == "quick" else fine.add_sample)(sample(at_ns), at_ns)

    _run(len(levels) + 0.001, on_reading=read)
    fine.add_final_sample(sample(seconds(len(levels))), seconds(len(levels)))
    for second in range(1, len(levels) + 1):
        even.add_sample(sample(seconds(second)), received_ns=seconds(second), started_ns=START_NS)
    assert fine.usage.samples > 3 * even.samples
    assert fine.usage.run.cpu_seconds == even.run.cpu_seconds
    for name in ("vcpu", "memory_bytes"):
        finely, evenly = (
            present(getattr(usage.run, name).distribution()) for usage in (fine.usage, even)
        )
        assert finely.avg == pytest.approx(evenly.avg, rel=1e-6, abs=1e-6)
        assert finely.max == pytest.approx(evenly.max, rel=1e-6, abs=1e-6)
        assert finely.p50 == pytest.approx(evenly.p50, rel=0.001, abs=0.001)
        assert finely.p95 == pytest.approx(evenly.p95, rel=0.001, abs=0.001)
    fine_series, even_series = present(fine.usage.series), present(even.series)
    assert fine_series.step_ns == even_series.step_ns
    assert fine_series.series_so_far() == even_series.series_so_far()


def test_after_a_reading_above_the_share_quick_ones_go_on_at_longer_steps() -> None:
    pace = SamplingPace(0, seconds(10), 0)
    quick_ns = 100_000
    at_ns = pace.next_ns(0, 0)
    assert pace.begin_reading(at_ns) == "quick"
    used_ns = quick_ns
    assert pace.next_ns(at_ns, used_ns) == at_ns + FINEST_NS
    used_ns += seconds(0.05)  # a full reading of large processes
    assert pace.begin_reading(seconds(0.3)) == "full"
    due_ns = pace.next_ns(seconds(0.3), used_ns)
    assert seconds(0.3) + FINEST_NS < due_ns < seconds(0.4)
    assert pace.begin_reading(due_ns) == "quick"
    pace.next_ns(due_ns, used_ns + quick_ns)
    assert (
        pace.begin_reading(seconds(0.7)) == "quick"
    )  # a full one would add to what was used too much
    # A pause of the whole group is no reading.
    pace = SamplingPace(0, seconds(1), 0)
    assert pace.next_ns(0, 0) == FINEST_NS
    assert pace.begin_reading(seconds(60)) == "tick"  # stopped by the terminal, and continued
    assert pace.next_ns(seconds(60), 0) == seconds(60) + seconds(60) // 100
    assert pace.missed_ticks == 59


def test_a_signal_that_may_not_be_sent_does_not_end_the_profiler(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def refuse(*_: int) -> None:
        raise PermissionError

    supervisor = Supervisor(os.getpid(), SystemClock(), (), lambda: None)
    signals = [None, signal.struct_siginfo((signal.SIGTERM, 0, 0, 1, 0, 0, 0))]
    monkeypatch.setattr(os, "kill", refuse)
    monkeypatch.setattr(signal, "sigtimedwait", lambda *_: signals.pop())
    assert not supervisor.wait_until_exit(0)
    assert not signals


@pytest.mark.parametrize(
    ("number", "code", "is_sent"),
    [
        *((number, 0x80, False) for number in (signal.SIGINT, signal.SIGQUIT, signal.SIGTSTP)),
        (signal.SIGWINCH, 0x80, False),
        (signal.SIGALRM, 0x80, True),
        (signal.SIGTSTP, 0, True),
    ],
)
def test_a_command_in_the_foreground_has_the_terminals_signals_already(
    number: int, code: int, *, is_sent: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The kernel's code is that of the terminal, for a timer it is the same."""
    sent: list[tuple[int, int]] = []
    signals = [None, signal.struct_siginfo((number, code, 0, 0, 0, 0, 0))]
    monkeypatch.setattr(os, "kill", lambda *to: sent.append(to))
    monkeypatch.setattr(signal, "sigtimedwait", lambda *_: signals.pop())
    supervisor = Supervisor(os.getpid(), SystemClock(), (), lambda: None)
    assert not supervisor.wait_until_exit(0)
    assert sent == [(os.getpid(), number)] * is_sent


def test_a_command_that_ends_while_its_state_is_asked_is_reaped(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    pid = os.posix_spawnp("sleep", ["sleep", "1000"], os.environ)
    wait = os.waitid

    def wait_id(kind: int, number: int, options: int) -> object:
        if kind == os.P_PID:
            os.kill(pid, signal.SIGKILL)
            wait(os.P_PID, pid, os.WEXITED | os.WNOWAIT)
        return wait(kind, number, options)

    monkeypatch.setattr(os, "waitid", wait_id)
    monkeypatch.setattr(
        signal, "sigtimedwait", lambda *_: signal.struct_siginfo((signal.SIGCHLD, 0, 0, 0, 0, 0, 0))
    )
    supervisor = Supervisor(pid, SystemClock(), (), lambda: None)
    assert supervisor.wait_until_exit(0)
    assert supervisor.reap_all().exit_code == 128 + signal.SIGKILL


def test_a_command_whose_signal_another_thread_took_has_ended_at_the_deadline(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    pid = os.posix_spawnp("sh", ["sh", "-c", "exit 3"], os.environ)
    os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)
    monkeypatch.setattr(signal, "sigtimedwait", lambda *_: None)
    supervisor = Supervisor(pid, SystemClock(), (), lambda: None)
    assert supervisor.wait_until_exit(0)
    assert supervisor.reap_all().exit_code == 3


@pytest.mark.parametrize(
    ("late_seconds", "expected"),
    [
        ((0.9, 0.9), ""),
        (
            (3, 0.1),
            (
                "The profiler did not run for 3.0 s, as if stopped or frozen: the command may have "
                "been stopped, too, and the duration includes that."
            ),
        ),
        (
            (3, 4),
            (
                "The profiler did not run for 7.0 s, as if stopped or frozen: the command may have "
                "ended up to 4.0 s earlier than the report says."
            ),
        ),
    ],
)
def test_a_profiler_that_did_not_run_does_not_know_when_the_command_ended(
    late_seconds: tuple[float, float], expected: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = FakeClock()
    late = iter(late_seconds)
    pid = os.posix_spawnp("true", ["true"], os.environ)
    os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)

    def wait(_: object, left_seconds: float) -> None:
        clock.advance(left_seconds + next(late))

    monkeypatch.setattr(signal, "sigtimedwait", wait)
    supervisor = Supervisor(pid, clock, (), lambda: None)
    supervisor._wait_for_signal(seconds(1))
    assert supervisor.wait_until_exit(seconds(2))
    assert "".join(delay_warnings(supervisor.reap_all())) == expected


def test_a_stop_of_the_command_that_the_kernel_reports_later_stops_the_profiler_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """With a group of its own, as that of ``timeout``: the second stop discarded the SIGCONT of the
    shell.
    """
    command = os.posix_spawnp("sleep", ["sleep", "1000"], os.environ, setpgroup=0)
    own_stops: list[int] = []
    send = os.kill

    def kill(pid: int, number: int) -> None:
        if pid == os.getpid():
            own_stops.append(number)
        else:
            send(pid, number)
            wait_until(lambda: is_stopped() is (number == signal.SIGTSTP), "its new state")

    def is_stopped() -> bool:
        return proc.read_stat(f"/proc/{command}").state == proc.STOPPED

    signals = [signal.SIGTSTP, signal.SIGCHLD, signal.SIGCONT]
    infos = [Mock(si_signo=number, si_code=0, si_pid=0) for number in signals]
    monkeypatch.setattr(signal, "sigtimedwait", Mock(side_effect=[*infos, None]))
    monkeypatch.setattr(os, "kill", kill)
    monkeypatch.setattr(command_supervisor, "_has_terminal", lambda: True)
    monkeypatch.setattr(command_supervisor, "stop_if_pending", lambda: None)
    try:
        assert not Supervisor(command, SystemClock(), (), lambda: None).wait_until_exit(0)
        assert own_stops == [signal.SIGTSTP]
        assert not is_stopped()
    finally:
        send(command, signal.SIGKILL)
        os.waitpid(command, 0)


# A child that deletes what its parent wrote, too.
_DELETES = b"wchar: 70\nsyscw: 2\nread_bytes: 0\nwrite_bytes: 4096\ncancelled_write_bytes: 5000\n"


def test_reaped_usage_adds_up_without_the_start_of_the_command() -> None:
    """Reaped usage adds up and the time to start the command is not its own."""
    supervisor = Supervisor(os.getpid(), SystemClock(), (), lambda: None)
    for _ in range(2):
        usage = {"ru_utime": 1.0, "ru_stime": 0.5, "ru_maxrss": 3, "ru_minflt": 4, "ru_majflt": 1}
        used = Mock(ru_inblock=1, ru_oublock=2, **usage)
        supervisor._add_usage(used, b"")
    supervisor._add_usage(Mock(ru_utime=0, ru_stime=0, ru_maxrss=0), _DELETES)
    blocks = ProcessBlockBytes(read_bytes=1024, write_bytes=2048 + 4096, cancelled_bytes=5000)
    assert supervisor.reaped == ReapedUsage(
        cpu_ns=seconds(3),
        blocks=blocks,
        unread_write_bytes=2048,
        changed_bytes=2048 + 70 + 2 * 2 * resource.getpagesize(),
        max_rss_bytes=3072,
        faulted_bytes=5 * resource.getpagesize(),
    )
    assert supervisor.reaped.blocks.stored_bytes == 2048 + 4096 - 5000
    started = Mock(startup_cpu_ns=seconds(0.5), started_wall_ns=0)
    sampler = CommandReader(Mock(own_cgroup=CommandCgroup(), shared_memory=None), started, Mock())
    assert sampler._add_cpu((), supervisor.reaped.cpu_ns) == seconds(2.5)


def test_kernel_memory_that_is_there_between_two_full_samples_only_is_a_bound() -> None:
    """A queue of a tenth of a second: free memory shows that a look is worth its cost."""
    started = Mock(startup_cpu_ns=0, started_wall_ns=0)
    prepared = Mock(
        own_cgroup=CommandCgroup(), shared_memory=None, clock=Mock(monotonic_ns=lambda: 1)
    )
    reader = CommandReader(prepared, started, Mock())
    reader._quick_memory = Mock(estimate_held_bytes=lambda: 5 * _MIB, pids=(), has_changed=True)
    free = iter((1000 * _MIB, 980 * _MIB, 870 * _MIB, 869 * _MIB))
    reader._free_memory = FreeMemory(lambda: next(free))
    growth = iter((116 * _MIB,))
    reader._kernel_growth_bytes = lambda: next(growth)
    bounds = []
    for at in range(3):
        assert reader.sample_quickly(at) is not None
        bounds.append(reader.kernel_bound_bytes)
    assert bounds == [0, 121 * _MIB, 121 * _MIB]


def test_the_imports_before_a_full_reading_do_not_count_as_its_time() -> None:
    started = StartedRun(pid=1, startup_cpu_ns=0, started_ns=200, started_wall_ns=START_NS)
    clock = Mock(monotonic_ns=lambda: 265)
    plan = Mock(interval_seconds=1, series_points=0, max_history_steps=0)
    sampler = RunSampler(Mock(clock=clock), started, plan, Mock(), 1)
    sampler.command = Mock(processes=(), cpu_ns=0)
    sampler.command.read_sample.return_value = Unavailable("no process")
    sampler.command.take_pages_cpu_ns.return_value = 0
    assert sampler.read_everything(ReapedUsage(), is_tick=False) is None
    assert sampler.command.read_sample.call_args.args[0] == START_NS + 65
    assert (
        present(sampler.details).processes.largest_process_rows() == ()
    )  # no process could be read: no step
    assert sampler.samples.failures == 1


@pytest.mark.parametrize(
    ("at", "is_tick", "count", "left_out"),
    [(10, True, 0, 0), (40, False, 0, 0), (40, True, 1, 0), (71, True, 0, 1), (72, True, 1, 0)],
)
def test_a_tick_has_the_look_when_nothing_has_run_for_long(
    at: int, count: int, left_out: int, *, is_tick: bool
) -> None:
    started = StartedRun(pid=1, startup_cpu_ns=0, started_ns=0, started_wall_ns=START_NS)
    plan = Mock(interval_seconds=1, series_points=0, max_history_steps=0)
    clock = Mock(monotonic_ns=Mock(return_value=0))
    sampler = RunSampler(Mock(clock=clock), started, plan, Mock(), 1)
    sampler.command = Mock(processes=(), cpu_ns=0)
    sampler.command.read_sample.return_value = Unavailable("no process")
    sampler.command.take_pages_cpu_ns.return_value = 0
    sampler.read_everything(ReapedUsage(), is_tick=False)
    details = present(sampler.details)
    details.threads = Mock(sees_calls=True, take_read_ended_ns=lambda: 0)
    details.threads.look_with_reading.return_value = ThreadsLook(sees_calls=True)
    details.looks = LookTimes(0, seconds(1), 0.003, 0.3)
    while details.looks.due_ns < seconds(at):
        details.looks.note_look(details.looks.due_ns, 1, look=ThreadsLook())
    sampler.command.read_sample.return_value = sample(START_NS + seconds(at), 0, 0)
    clock.monotonic_ns.return_value = seconds(at)
    sampler.read_everything(ReapedUsage(), is_tick=is_tick)
    assert details.threads.look_with_reading.call_count == count
    assert details.threads.leave_out_reading.call_count == left_out
    assert (details.looks.due_ns >= seconds(at + 1)) is bool(count or left_out)


def _sampler_with_threads(**attributes: object) -> tuple[RunSampler, Details, Mock]:
    """A sampler of one process, whose threads are not read but have these attributes."""
    started = StartedRun(pid=1, startup_cpu_ns=0, started_ns=0, started_wall_ns=START_NS)
    plan = Mock(interval_seconds=1, series_points=0, max_history_steps=0)
    sampler = RunSampler(Mock(clock=Mock(monotonic_ns=lambda: 0)), started, plan, Mock(), 1)
    sampler.command = Mock(processes=(process(),), cpu_ns=0)
    sampler.command.read_sample.return_value = Unavailable("no process")
    sampler.command.take_pages_cpu_ns.return_value = 0
    sampler.read_everything(ReapedUsage(), is_tick=False)
    details = present(sampler.details)
    threads = details.threads = Mock(
        sees_calls=True,
        can_peek=True,
        lookup_cpu_ns=0,
        is_one_enough=lambda _: False,
        **attributes,
    )
    details.looks = LookTimes(0, seconds(1), 0.003, 0.3)
    return sampler, details, threads


def test_no_reading_is_left_out_for_the_search_for_peers() -> None:
    """It has a limit of its own."""
    sampler, details, threads = _sampler_with_threads()

    def look(*_: object, **__: object) -> None:
        threads.lookup_cpu_ns += seconds(9)

    threads.look = look
    for _ in range(2):
        sampler.look_if_due(details.looks.due_ns, [])
    used_ns = time.thread_time_ns() + seconds(18)
    assert seconds(1) < sampler.pace.next_ns(seconds(1), used_ns) <= seconds(2)
    assert sampler.pace.kept_interval_ns == seconds(1)


def test_a_defect_of_a_peek_ends_the_division_of_the_time_and_not_the_run() -> None:
    sampler, details, threads = _sampler_with_threads(peek=Mock(side_effect=KeyError))
    while not details.looks.is_peek:
        details.looks.note_look(details.looks.due_ns, seconds(0.0029))
    before_ns = details.looks.due_ns
    sampler.look_if_due(before_ns, [])
    assert details.looks.due_ns > before_ns
    assert "error in the profiler (KeyError)" in details.time.defect_warnings[0]
    sampler.look_if_due(seconds(100), [])
    assert threads.peek.call_count == 1
    threads.look.assert_not_called()
