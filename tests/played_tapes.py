"""A run of the GPU collector on a tape, whose readings go through the real binding at the time of a
fake clock.
"""

from collections.abc import Callable, Sequence

from profiler.collectors.collector import COMMAND
from profiler.collectors.nvidia.gpu_collector import GpuCollector, GpuSurroundings
from profiler.collectors.nvidia.gpu_owners import Descendants, GpuOwners, GroupMembers
from profiler.collectors.nvidia.nvml_calls import Nvml
from profiler.collectors.nvidia.nvml_source import NvmlSource
from profiler.collectors.nvidia.visible_gpus import GpuLimits, GpuScope
from profiler.core.timestamps import format_ms
from profiler.readers.ecs.task_metadata import ContainerMetadata
from profiler.record.record_model import Container, Gpu, Metrics, Monitor, Record, Sampling
from profiler.sizing.advice import with_recommendation
from profiler.sizing.prices import PriceOverrides
from tests.collected import with_collected
from tests.fakes import FakeClock, FakeLog, seconds
from tests.nvml_tape import Tape
from tests.tape_driver import HOST_PIDS, OtherProgram, Pids, TapeDriver

_PROFILER_PID = 2
_QUICK_CPU_NS = 75_000  # each of the two readings of the CPU clock adds this
BATCH = ContainerMetadata(name="batch", docker_id="b" * 64)


class PlayedTape:
    """Plays a tape with a collector: from ``seconds_before`` the program began, to its end.

    ``opening`` is how long it takes to import the binding and to open the driver, ``delay`` how
    long after the program the thread starts. With ``as_batch`` a monitor follows a container,
    whose processes it sees with ``sees_batch``. The machine has ``gpus``, and ``others`` run beside.
    ``sees_all``: in no container. ``unlisted_mb`` is what a desktop holds of each GPU.
    """

    def __init__(
        self,
        name: str,
        *,
        has_gpm: bool = True,
        has_samples: bool = True,
        pids: Pids = "own",
        list_seconds: float = 0.0,
        opening: float = 0.17,
        delay: float = 0.0,
        seconds_before: float = 0.0,
        scope: GpuScope | None = None,
        as_batch: bool = False,
        sees_batch: bool = True,
        limits: GpuLimits | None = None,
        gpus: int = 1,
        others: Sequence[OtherProgram] = (),
        missing: Sequence[str] = (),
        sees_all: bool = False,
        is_divided: bool = False,
        unlisted_mb: int = 0,
    ) -> None:
        self.tape = Tape(name)
        self.clock = FakeClock()
        self._opening = opening
        self._delay = delay
        self._as_batch = as_batch
        self._seconds_before = seconds_before
        self.driver = TapeDriver(
            self.tape,
            self.clock,
            self.tape.started - seconds_before,
            has_gpm=has_gpm,
            has_samples=has_samples,
            pids=pids,
            list_seconds=list_seconds,
            gpus=gpus,
            others=others,
            missing=missing,
            is_divided=is_divided,
        )
        for played in self.driver.gpus:
            played.unlisted_bytes = unlisted_mb << 20
        self._cpu_ns = 0
        self._sees_all = sees_all
        self.collector = GpuCollector(
            NvmlSource(self._load, self.clock),
            scope or GpuScope(()),
            self.clock,
            FakeLog(),
            seconds(1),
            is_required=False,
            surroundings=GpuSurroundings(
                owners=self._owners(sees_batch=sees_batch),
                limits_of=lambda _: limits or GpuLimits(),
                is_local=not as_batch,
                cpu_ns=self._thread_cpu_ns,
            ),
        )

    def _owners(self, *, sees_batch: bool) -> GpuOwners:
        if not self._as_batch:
            return Descendants(_PROFILER_PID, read_status=self._status, sees_all=self._sees_all)
        return GroupMembers(
            lambda batch: batch if sees_batch else None,
            lambda docker_id, groups: docker_id.encode() in groups,
            self._groups,
            lambda _: b"python3",
            sees_all=self._sees_all,
        )

    def _load(self) -> Nvml:
        self.clock.advance(self._opening)
        return self.driver.nvml.binding

    def _thread_cpu_ns(self) -> int:
        self._cpu_ns += _QUICK_CPU_NS
        return self._cpu_ns

    def _status(self, pid: int) -> tuple[int, bytes] | None:
        """The parent of a process: programs of the tape descend from the profiler."""
        if pid >= HOST_PIDS:
            return None
        if pid == _PROFILER_PID:
            return 1, b"profiler"
        return (_PROFILER_PID if pid in self.driver.own_pids else 1), b"python3"

    def _groups(self, pid: int) -> bytes | None:
        if pid >= HOST_PIDS:
            return None
        return b"0::/ecs/" + (b"b" if pid in self.driver.own_pids else b"c") * 64

    @property
    def batch(self) -> str:
        return BATCH.followed_id if self._as_batch else COMMAND

    def play(self, on_reading: Callable[[], None] = lambda: None) -> Record:
        """Take all readings, and return the record with advice."""
        started_ns = seconds(self._seconds_before)
        finished_ns = started_ns + seconds(self.tape.seconds)
        if not self._as_batch:
            self.clock.now_ns = started_ns
            self.collector.begin_command()
            self.clock.now_ns += seconds(self._delay)
        next_tick_ns = self.clock.now_ns
        has_begun = not self._as_batch
        while self.clock.now_ns < finished_ns:
            if not has_begun and self.clock.now_ns >= started_ns:
                has_begun = True
                self._begin_batch(started_ns)
            next_tick_ns = self._read(next_tick_ns)
            on_reading()
            next_ns = min(self.collector.quick.next_ns(self.clock.now_ns), next_tick_ns)
            self.clock.now_ns = min(max(next_ns, self.clock.now_ns + 1), finished_ns)
        self.clock.now_ns = finished_ns + seconds(0.02)
        self.collector.take_reading(is_complete=True)
        return self._record(started_ns, finished_ns)

    def _begin_batch(self, started_ns: int) -> None:
        wall_ns = self.clock.wall_offset_ns + started_ns
        self.collector.on_batch_started(
            ContainerMetadata(name="batch", docker_id="b" * 64, started_ns=wall_ns)
        )

    def _read(self, next_tick_ns: int) -> int:
        """Take the reading that is due; returns when the next tick is."""
        if self.clock.now_ns < next_tick_ns:
            self.collector.quick.read()
            return next_tick_ns
        self.collector.take_reading()
        while next_tick_ns <= self.clock.now_ns:
            next_tick_ns += seconds(1)
        return next_tick_ns

    def _record(self, started_ns: int, finished_ns: int) -> Record:
        wall_ns = self.clock.wall_offset_ns
        record = Record(
            task_id="1",
            family=self.tape.name,
            launch_type="EC2" if self._as_batch else "LOCAL",
            container=Container(name="batch"),
            status="success" if self.tape.exit_code == 0 else "failure",
            exit_code=self.tape.exit_code,
            started_at=format_ms(wall_ns + started_ns),
            finished_at=format_ms(wall_ns + finished_ns),
            sampling=Sampling(),
            monitor=Monitor(),
            metrics=Metrics(duration_ms=(finished_ns - started_ns) / 1e6),
        )
        record = with_collected(record, (self.collector,), self.batch)
        return with_recommendation(record, PriceOverrides(), time="2026-11-20T03:12:45.123Z")


def gpu_of(record: Record) -> Gpu:
    (gpu,) = record.gpus
    return gpu
