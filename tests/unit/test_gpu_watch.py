"""The thread beside the main loop, and which GPUs are whose."""

import threading
from collections.abc import Callable

import pytest
from msgspec.structs import replace

from profiler.accelerators.accelerator import with_collected
from profiler.accelerators.gpu_scope import GpuScope, GpuSelection, own_selection, parse_visible_devices, resolve
from profiler.accelerators.gpu_watch import GpuCollector
from profiler.record import Container, Monitor, Record, Sampling
from profiler.sizing.advised import with_recommendation
from profiler.sizing.prices import PriceOverrides
from profiler.sources import Unavailable
from profiler.sources.nvml.readings import GpuFacts, GpuReading, GpuSample
from profiler.sources.nvml.source import NvmlSource
from profiler.sources.task_metadata import ContainerMetadata
from tests.fake_nvml import MIB, FakeGpu, FakeNvml
from tests.fakes import FakeClock, FakeLog, seconds

BATCH = ContainerMetadata(name="batch", docker_id="b" * 64)
RECORD = Record(
    task_id="1", container=Container(name="batch"), status="success", sampling=Sampling(), monitor=Monitor()
)


class ScriptedSource:
    """Answers what it is told; ``blocks`` makes a reading wait as a hung driver does."""

    name = "nvml"
    is_driver_missing = False

    def __init__(self, *answers: GpuReading | Unavailable) -> None:
        self._answers = list(answers)
        self.asked: list[bool] = []
        self.permanently_unavailable = False
        self.closed = False
        self.let_go = threading.Event()
        self.let_go.set()
        self.called = threading.Event()

    def read(self, *, counters: bool) -> GpuReading | Unavailable:
        self.asked.append(counters)
        self.called.set()
        self.let_go.wait()
        return self._answers.pop(0) if len(self._answers) > 1 else self._answers[0]

    def close(self) -> None:
        self.closed = True


def reading(*uuids: str, percent: float = 0.0) -> GpuReading:
    return GpuReading(
        samples=tuple(
            GpuSample(facts=GpuFacts(uuid=uuid, index=index), utilization_percent=percent, memory_used_bytes=MIB)
            for index, uuid in enumerate(uuids)
        )
    )


class Watched:
    def __init__(
        self, source: ScriptedSource | NvmlSource, *, is_required: bool = False, scope: GpuScope | None = None
    ) -> None:
        self.clock = FakeClock()
        self.log = FakeLog()
        self.heard: list[tuple[float | None, int | None]] = []
        self.watch = GpuCollector(
            source,
            scope or GpuScope(()),
            self.clock,
            self.log,
            seconds(1),
            is_required=is_required,
            listener=lambda percent, used: self.heard.append((percent, used)),
        )

    def record(self) -> Record:
        return self.record_of(RECORD)

    def record_of(self, record: Record) -> Record:
        return with_recommendation(
            with_collected(record, (self.watch,)), PriceOverrides(), time="2026-11-20T03:12:45.123Z"
        )

    def warnings(self) -> tuple[str, ...]:
        monitor = self.record().monitor
        assert monitor is not None
        return monitor.warnings


@pytest.mark.parametrize(("gpus", "at"), [(1, [0, 10, 20, 30]), (3, [0, 30])])
def test_the_slow_counters_are_read_at_the_start_every_ten_seconds_a_gpu_and_when_asked(
    gpus: int, at: list[int]
) -> None:
    source = ScriptedSource(reading(*(f"GPU-{index}" for index in range(gpus))))
    world = Watched(source)
    for _ in range(31):
        world.watch.tick()
        world.clock.advance(1)
    assert [second for second, counters in enumerate(source.asked) if counters] == at
    world.watch.tick(counters=True)
    assert source.asked[-1]


def test_the_record_has_the_gpus_the_source_and_the_scope() -> None:
    world = Watched(ScriptedSource(reading("GPU-a", "GPU-b")))
    world.watch.tick()
    record = world.record()
    assert [gpu.uuid for gpu in record.gpus] == ["GPU-a", "GPU-b"]
    assert record.gpu_scope == "instance"
    assert record.sampling is not None
    assert record.sampling.sources == ("nvml",)
    assert record.recommendation is None
    assert world.heard == [(0.0, 2 * MIB)]


def test_gpus_that_are_known_to_be_the_batchs_are_given_without_a_scope_and_with_advice() -> None:
    world = Watched(ScriptedSource(reading("GPU-a", "GPU-b")), scope=GpuScope(("GPU-b",)))
    world.watch.tick()
    record = world.record()
    assert [gpu.uuid for gpu in record.gpus] == ["GPU-b"]
    assert record.gpu_scope is None
    assert record.recommendation is not None
    assert "never used" in record.recommendation.reasons[0]


def test_a_checkpoint_gives_no_advice() -> None:
    world = Watched(ScriptedSource(reading("GPU-a")), scope=GpuScope(("GPU-a",)))
    world.watch.tick()
    assert world.record_of(replace(RECORD, status="running")).recommendation is None


def test_uuids_that_nobody_has_are_pointed_out() -> None:
    world = Watched(ScriptedSource(reading("GPU-a")), scope=GpuScope(("GPU-zz",)))
    world.watch.tick()
    assert world.record().gpus == ()
    assert any("TASK_PROFILER_GPU_UUIDS" in warning for warning in world.warnings())


@pytest.mark.parametrize(
    ("value", "uuids"),
    [
        ("GPU-par", ["MIG-1", "MIG-2"]),
        ("GPU-parent", ["MIG-1", "MIG-2"]),
        ("0:1", ["MIG-2"]),
        ("GPU-q,MIG-1", ["MIG-1", "GPU-q1"]),
    ],
)
def test_the_batchs_gpus_are_found_however_they_are_spelled(value: str, uuids: list[str]) -> None:
    cut = FakeGpu("GPU-parent", instances=[FakeGpu("MIG-1"), FakeGpu("MIG-2")])
    nvml = FakeNvml(cut, FakeGpu("GPU-q1"))
    world = Watched(NvmlSource(lambda: nvml, FakeClock()), scope=GpuScope((), lambda _: value))
    world.watch.on_batch_started(BATCH)
    world.watch.tick()
    record = world.record()
    assert [gpu.uuid for gpu in record.gpus] == uuids
    assert (record.gpu_scope, world.warnings()) == (None, ())


def test_a_machine_without_a_gpu_is_silent() -> None:
    source = ScriptedSource(Unavailable("NVML Shared Library Not Found (NVML error 12)"))
    source.is_driver_missing = True
    world = Watched(source)
    world.watch.tick()
    assert world.record() == RECORD
    assert (world.log.lines, world.watch.startup_error) == ([], None)


def test_a_gpu_that_was_asked_for_and_is_not_there_is_missed_once_on_each_side() -> None:
    source = ScriptedSource(Unavailable("no GPU is visible here"))
    source.is_driver_missing = True
    world = Watched(source, is_required=True)
    for _ in range(3):
        world.watch.tick()
    assert len(world.log.events("warning")) == 1
    assert world.warnings() == (world.log.events("warning")[0],)
    assert world.watch.startup_error == world.warnings()[0]
    assert "no GPU is visible here" in world.warnings()[0]
    assert "NVIDIA_VISIBLE_DEVICES=all" in world.warnings()[0]


def test_a_gpu_that_is_there_and_cannot_be_read_is_noted_in_the_record_alone() -> None:
    world = Watched(ScriptedSource(Unavailable("fake error 999")))
    world.watch.tick()
    assert world.warnings() == ("There is a GPU that cannot be read: fake error 999.",)
    assert world.log.lines == []


def test_a_failure_in_the_middle_is_logged_once_and_costs_no_numbers() -> None:
    world = Watched(ScriptedSource(reading("GPU-a", percent=50), Unavailable("x"), Unavailable("x"), reading("GPU-a")))
    for _ in range(4):
        world.watch.tick()
    assert len(world.log.events("warning")) == 1
    assert len(world.log.events("info")) == 1
    assert len(world.record().gpus) == 1


def test_a_driver_that_stays_unreadable_is_told_with_since_when_until_it_works_again() -> None:
    mismatch = Unavailable("Driver/library version mismatch (NVML error 18)")
    world = Watched(
        ScriptedSource(reading("GPU-a"), mismatch, Unavailable("another reason"), reading("GPU-a"), reading("GPU-a"))
    )
    world.watch.tick()
    assert world.warnings() == ()
    for _ in range(2):
        world.clock.advance(1)
        world.watch.tick()
    (warning,) = world.warnings()
    assert warning == (
        "NVML could not be read since 2025-11-20T00:53:21.000Z, and the GPUs' numbers end there: "
        "Driver/library version mismatch (NVML error 18)."
    )
    world.watch.tick()
    assert world.warnings() == ()


def test_a_gpu_that_is_missing_after_the_driver_was_changed_is_told_as_lost() -> None:
    nvml, clock = FakeNvml(FakeGpu("GPU-a"), FakeGpu("GPU-b")), FakeClock()
    world = Watched(ScriptedSource(reading()))
    watch = world.watch = GpuCollector(
        NvmlSource(lambda: nvml, clock), GpuScope(()), clock, world.log, seconds(1), is_required=False
    )
    watch.tick()
    gone = nvml.gpus.pop()
    nvml.fail("nvmlDeviceGetMemoryInfo_v2", 1)
    for _ in range(3):
        watch.tick()
        clock.advance(1)
    assert world.warnings() == ("GPU 1 (GPU-b) was lost by its driver at 2025-11-20T00:53:21.000Z.",)
    assert latest_uuids(watch) == ["GPU-a"]
    nvml.gpus.append(gone)
    clock.advance(30)
    watch.tick()
    watch.tick()
    assert latest_uuids(watch) == ["GPU-a", "GPU-b"]


def latest_uuids(watch: GpuCollector) -> list[str]:
    latest = watch.latest()
    return [] if latest is None else [gpu.sample.facts.uuid for gpu in latest.gpus]


def gets_stuck(world: Watched, source: ScriptedSource) -> None:
    """The watch is started, and its call does not come back before the driver is let go."""
    source.let_go.clear()
    source.called.clear()
    world.watch.start()
    assert source.called.wait(10)


def stuck_at_the_end() -> tuple[ScriptedSource, Watched]:
    """One reading, and a last one that was asked for and does not come before the driver is let go."""
    source = ScriptedSource(reading("GPU-a"))
    world = Watched(source)
    world.watch.tick()
    gets_stuck(world, source)
    world.watch.final_reading(0.01)
    return source, world


def test_a_driver_that_hangs_at_the_end_is_told_however_short_the_wait() -> None:
    source, world = stuck_at_the_end()
    (warning,) = world.warnings()
    assert warning.startswith("The GPU driver did not answer when the batch had ended")
    source.let_go.set()
    world.watch.final_reading(10)
    assert world.warnings() == ()
    world.watch.stop(10)


def test_a_hung_driver_delays_nobody_and_is_told() -> None:
    source, world = stuck_at_the_end()
    world.clock.advance(35)
    assert world.warnings() == ("The GPU driver has not answered for 35 s; the GPUs' numbers end there.",)
    assert len(world.record().gpus) == 1
    world.watch.stop(0.01)
    source.let_go.set()


def test_stopping_does_not_wait_for_a_driver_that_is_stuck() -> None:
    """Nor for one that is still being opened, which takes a second or two."""
    source = ScriptedSource(reading("GPU-a"))
    world = Watched(source)
    gets_stuck(world, source)
    world.watch.stop(600)  # the test has a timeout
    world.clock.advance(1)
    world.watch.stop(600)
    assert not source.closed
    source.let_go.set()


def test_a_driver_that_cannot_be_closed_holds_up_nobody() -> None:
    class Unclosable(ScriptedSource):
        def close(self) -> None:
            self.closing.set()
            self.let_go.wait()

        closing = threading.Event()

    source = Unclosable(reading("GPU-a"))
    world = Watched(source)
    world.watch.start()
    world.watch.final_reading(10)
    source.let_go.clear()
    world.watch.stop(600)  # the test has a timeout
    assert source.closing.wait(10)
    source.let_go.set()


def test_settling_takes_one_reading_with_all_counters_and_stopping_closes_the_source() -> None:
    source = ScriptedSource(reading("GPU-a"))
    world = Watched(source)
    world.watch.tick()
    world.watch.start()
    world.watch.final_reading(10)
    assert source.asked[-1]
    world.watch.stop(10)
    assert source.closed
    world.watch.stop(10)


def test_nothing_is_settled_where_nothing_was_read() -> None:
    source = ScriptedSource(Unavailable("x"))
    world = Watched(source)
    world.watch.final_reading(10)
    source.permanently_unavailable = True
    world.watch.start()
    world.watch.final_reading(10)
    world.watch.stop(10)
    assert source.asked == []


def test_a_gpu_that_was_asked_for_is_missed_even_if_the_run_is_over_before_the_first_look() -> None:
    source = ScriptedSource(Unavailable("no GPU is visible here"))
    world = Watched(source, is_required=True)
    gets_stuck(world, source)
    threading.Timer(0.05, source.let_go.set).start()
    world.watch.final_reading(10)
    assert "no GPU can be read (no GPU is visible here)" in world.warnings()[0]
    world.watch.stop(10)
    assert world.log.events("warning") == [world.watch.startup_error]


def test_a_driver_that_does_not_answer_a_short_run_is_missed_and_delays_it_no_longer_than_said() -> None:
    source = ScriptedSource(reading("GPU-a"))
    world = Watched(source, is_required=True)
    gets_stuck(world, source)
    world.watch.final_reading(0.01)
    world.clock.advance(35)
    missed = "TASK_PROFILER_GPU=on, but no GPU was read: the driver had not answered when the run ended."
    assert world.warnings() == (missed,)
    assert world.watch.startup_error == missed
    assert world.log.events("warning") == [missed]
    world.watch.stop(0.01)
    source.let_go.set()


def test_a_gpu_that_nobody_asked_for_is_not_awaited() -> None:
    source = ScriptedSource(reading("GPU-a"))
    world = Watched(source)
    gets_stuck(world, source)
    world.watch.final_reading(600)  # the test has a timeout
    assert world.warnings() == ()
    world.watch.stop(0.01)
    source.let_go.set()


def test_a_whole_run_on_a_driver_that_is_reloaded_in_the_middle() -> None:
    """60 s at 40 % and 100 W with a reload after half of the time: energy is not counted twice."""
    gpu = FakeGpu(utilization_percent=40, energy_millijoules=9_000_000)
    nvml = FakeNvml(gpu)
    clock = FakeClock()
    world = Watched(NvmlSource(lambda: nvml, clock))
    world.clock = clock
    world.watch = GpuCollector(
        NvmlSource(lambda: nvml, clock), GpuScope(()), clock, world.log, seconds(1), is_required=False
    )
    for second in range(61):
        if second == 30:
            nvml.fail("nvmlDeviceGetMemoryInfo_v2", 1)
            gpu.energy_millijoules = 0
        world.watch.tick(counters=second == 60)
        clock.advance(1)
        gpu.energy_millijoules += 100_000
    (seen,) = world.record().gpus
    assert seen.utilization_percent is not None
    assert seen.utilization_percent.avg == 40
    # 0 to 20 s by the old counter (2000 J), 0 at 30 s, then to 60 s by the new one (3000 J).
    assert seen.energy_joules == 2000 + 3000
    assert nvml.starts == 2


@pytest.mark.parametrize(
    ("value", "wanted", "is_known"),
    [
        ("GPU-a,GPU-b", {"GPU-a", "GPU-b"}, True),
        (" 0, 1 ", {"0", "1"}, True),
        ("all", None, True),
        ("none", set(), True),
        ("void", set(), True),
        ("", None, False),
    ],
)
def test_what_the_batchs_environment_says_of_its_gpus(value: str, wanted: set[str] | None, *, is_known: bool) -> None:
    choice = parse_visible_devices(value)
    assert choice == GpuSelection(selectors=None if wanted is None else frozenset(wanted), is_known=is_known)


WHOLE = tuple(GpuFacts(uuid=f"GPU-{letter}", index=index) for index, letter in enumerate("abcd"))
CUT = tuple(GpuFacts(uuid=f"MIG-{place}", index=0, parent_uuid="GPU-p", mig_index=place) for place in range(3))


@pytest.mark.parametrize(
    ("value", "visible", "meant"),
    [
        ("all", WHOLE, None),
        ("2", WHOLE, {"GPU-c"}),
        ("1,GPU-d", WHOLE, {"GPU-b", "GPU-d"}),
        ("0,1,2,3", WHOLE, None),
        # In a container, where the runtime counts anew.
        ("3", WHOLE[:1], None),
        ("1,2", WHOLE[:2], None),
        ("1:2", CUT[:1], None),
        ("1", CUT, None),
        ("0:1", CUT, {"MIG-1"}),
        # UUIDs stay what they are.
        ("GPU-c", WHOLE[:1], "unknown"),
        ("GPU-c,GPU-a", WHOLE[:1], {"GPU-a"}),
        ("7,8", WHOLE[:1], "unknown"),
        ("none", WHOLE, "unknown"),
        ("void", WHOLE, "unknown"),
        (" ", WHOLE, "unknown"),
    ],
)
def test_what_the_own_environment_says_depends_on_what_is_visible(
    value: str, visible: tuple[GpuFacts, ...], meant: set[str] | str | None
) -> None:
    choice = resolve(own_selection(value), visible)
    if isinstance(meant, str):
        assert choice == GpuSelection()
    else:
        assert (choice.is_known, choice.selectors) == (True, None if meant is None else frozenset(meant))


def test_where_the_own_environment_names_nothing_that_is_visible_nobody_is_accused() -> None:
    world = Watched(ScriptedSource(reading("GPU-a")), scope=GpuScope((), default=own_selection("GPU-zz")))
    world.watch.tick()
    record = world.record()
    assert ([gpu.uuid for gpu in record.gpus], record.gpu_scope) == (["GPU-a"], "instance")
    assert (record.recommendation, world.warnings()) == (None, ())
    latest = world.watch.latest()
    assert latest is not None
    assert not latest.is_known


def asking(answers: dict[str, str | None], asked: list[str]) -> Callable[[str], str | None]:
    def ask(docker_id: str) -> str | None:
        asked.append(docker_id)
        return answers.get(docker_id)

    return ask


def test_the_batchs_processes_are_asked_until_they_have_answered() -> None:
    asked: list[str] = []
    answers: dict[str, str | None] = {}
    scope = GpuScope((), asking(answers, asked))
    scope.discover(BATCH)
    assert scope.selection_for("batch") == GpuSelection()
    answers["b" * 64] = "GPU-a"
    scope.discover(BATCH)
    scope.discover(BATCH)
    assert scope.selection_for("batch") == GpuSelection(selectors=frozenset({"GPU-a"}), is_known=True)
    assert scope.selection_for("another") == GpuSelection()
    assert len(asked) == 2


def test_the_setting_goes_before_the_environment() -> None:
    asked: list[str] = []
    scope = GpuScope(("GPU-x",), asking({"b" * 64: "GPU-a"}, asked))
    scope.discover(BATCH)
    assert scope.selection_for("batch").selectors == frozenset({"GPU-x"})
    assert asked == []


def test_all_that_look_on_see_the_gpus_of_every_batch_that_told() -> None:
    scope = GpuScope((), asking({"b" * 64: "GPU-a,GPU-b", "c": "GPU-c"}, []))
    assert scope.selection_for_all() == GpuSelection()
    scope.discover(BATCH)
    scope.discover(ContainerMetadata(name="other", docker_id="c"))
    assert scope.selection_for_all() == GpuSelection(selectors=frozenset({"GPU-a", "GPU-b", "GPU-c"}), is_known=True)
    assert GpuScope(("GPU-x",)).selection_for_all() == GpuSelection(selectors=frozenset({"GPU-x"}), is_known=True)


def test_one_batch_that_has_all_gpus_makes_all_of_them_seen() -> None:
    scope = GpuScope((), asking({"b" * 64: "all", "c": "GPU-c"}, []))
    scope.discover(BATCH)
    scope.discover(ContainerMetadata(name="other", docker_id="c"))
    assert scope.selection_for_all() == GpuSelection(is_known=True)
