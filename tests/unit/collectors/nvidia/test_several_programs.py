"""Runs on machines as people have them: several GPUs, another container on the same GPU, a GPU that
falls off the bus, MIG, drivers of other versions. The programs are those of the tapes.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import pytest

from profiler.collectors.nvidia.gpu_owners import MPS_SERVER, Descendants, GroupMembers
from profiler.collectors.nvidia.run_use import GpuReading, ProcessListFacts, ProcessOnGpu, RunUse
from profiler.collectors.nvidia.visible_gpus import GpuLimits, GpuScope
from profiler.record.device_totals import gpu_totals
from profiler.record.gpu_facts import gpu_error_text, gpu_memory_evidence_text
from profiler.record.gpu_sentences import gpu_idle_texts
from profiler.record.record_model import NOT_MEASURED, Record
from tests.fakes import seconds
from tests.gpu_cases import MISSING_IN_470, hidden, lost_after
from tests.gpu_runs import advice_on
from tests.played_tapes import PlayedTape, gpu_of
from tests.tape_driver import UUID, OtherProgram, uuid_of
from tests.values import present

PHASES = (0.05, 0.17, 0.35, 0.6, 0.85, 1.1)
at_each_phase = pytest.mark.parametrize("opening", PHASES)
# Memory that the driver needs for the two processes of "two".
_DRIVERS_MB = 20


def warnings(record: Record) -> tuple[str, ...]:
    return present(record.monitor).warnings


@pytest.mark.parametrize("opening", PHASES[::3])
def test_of_eight_gpus_the_record_has_those_that_the_run_used(opening: float) -> None:
    """One first, then another beside it; a neighbour is on a third."""
    others = (
        OtherProgram(tape="short", place=5, after=6.0),
        OtherProgram(tape="neighbour", place=2, is_own=False),
    )
    record = PlayedTape("two", opening=opening, gpus=8, others=others).play()
    first, second = record.gpus
    assert [first.index, second.index] == [0, 5]
    assert [first.shared, second.shared] == [False, False]
    assert present(second.first_used_seconds) == pytest.approx(9.6, abs=0.3)
    assert present(first.memory_used_mb.max) > present(second.memory_used_mb.max)
    sentence, _ = gpu_idle_texts(record)
    assert sentence.startswith("the 2 GPUs were idle 81 % of the run on average")


@pytest.mark.diagonal
@at_each_phase
@pytest.mark.parametrize("as_batch", [False, True], ids=["run", "monitor"])
def test_memory_of_another_container_is_not_the_runs(opening: float, *, as_batch: bool) -> None:
    """Its program comes after that of the run, and the driver does not list it here."""
    others = (hidden(after=8.0),)
    scope = GpuScope((UUID,)) if as_batch else None
    played = PlayedTape("two", opening=opening, others=others, as_batch=as_batch, scope=scope)
    record = played.play()
    gpu = gpu_of(record)
    assert present(gpu.memory_used_mb.max) <= played.tape.own_peak_mb + _DRIVERS_MB
    assert gpu.shared is None
    assert record.gpu_scope == "instance"
    assert advice_on(record) == []
    (warning,) = warnings(record)
    assert warning.startswith("GPU 0 had memory in use that belongs to no process that can be")


@pytest.mark.diagonal
@at_each_phase
@pytest.mark.parametrize(
    ("after", "scopes"),
    [(8.0, ["instance"]), (1.0, ["instance", "shared"])],
    ids=["beside", "before"],
)
def test_memory_of_another_container_is_seen_at_the_reading_that_has_it(
    opening: float, after: float, scopes: list[str]
) -> None:
    """Prometheus asks at once; the record waits until it knows where the run ended. Before the
    run's own process is listed, the driver may be one that lists nobody.
    """
    others = (hidden(after=after),)
    played = PlayedTape("two", opening=opening, others=others, scope=GpuScope((UUID,)))
    seen: dict[str | None, float] = {}

    def look() -> None:
        if played.collector.has_data:
            (gpu,) = present(played.collector.latest()).gpus
            seen.setdefault(gpu.scope, played.clock.now_ns / 1e9 - after)

    played.play(look)
    assert list(seen) == [None, *scopes]
    assert seen[scopes[0]] < 2


@pytest.mark.diagonal
@at_each_phase
@pytest.mark.parametrize("name", ["two", "starved", "oom"])
@pytest.mark.parametrize(
    "case",
    [
        {"sees_all": True},
        {},
        {"as_batch": True, "seconds_before": 2.0},
        {"scope": (UUID,)},
        {"scope": (UUID,), "as_batch": True},
    ],
    ids=["run", "run in a container", "monitor", "assigned to run", "assigned to a batch"],
)
def test_of_a_driver_that_lists_no_process_the_numbers_are_the_gpus(
    name: str, opening: float, case: dict[str, Any]
) -> None:
    """The driver of a virtual GPU gives its guest empty lists. The record said that the run held
    0 MB of a GPU that another program used, or had no GPU.
    """
    options = case | {"scope": GpuScope(case["scope"])} if "scope" in case else case
    played = PlayedTape(name, pids="hidden", opening=opening, **options)
    record = played.play()
    gpu = gpu_of(record)
    assert record.gpu_scope == "instance"
    assert gpu.shared is None
    assert present(gpu.memory_used_mb.max) == pytest.approx(played.tape.peak_mb, rel=0.08)
    assert advice_on(record) == []
    assert record.likely_out_of_gpu_memory is None
    (warning,) = warnings(record)
    assert warning.startswith("GPU 0 had memory in use that belongs to no process that can be")


@pytest.mark.parametrize("case", [{}, {"scope": GpuScope((UUID,))}], ids=["visible", "assigned"])
def test_memory_that_was_in_use_before_the_run_is_of_another_program(case: dict[str, Any]) -> None:
    record = PlayedTape("neighbour", pids="hidden", **case).play()
    assert record.gpu_scope is None
    assert [gpu.shared for gpu in record.gpus] == [True] * len(case)


@pytest.mark.diagonal
@at_each_phase
@pytest.mark.parametrize("name", ["two", "starved", "oom"])
@pytest.mark.parametrize("case", [{}, {"scope": GpuScope((UUID,))}], ids=["visible", "assigned"])
def test_beside_a_desktop_a_driver_that_lists_nobody_hides_no_use(
    name: str, opening: float, case: dict[str, Any]
) -> None:
    """The record had no GPU, or 0 MB of one. The desktop of Windows holds memory before the run."""
    played = PlayedTape(name, pids="hidden", opening=opening, unlisted_mb=1500, **case)
    record = played.play()
    gpu = gpu_of(record)
    assert record.gpu_scope == "instance"
    assert gpu.shared is None
    assert present(gpu.memory_used_mb.max) == pytest.approx(played.tape.peak_mb + 1500, rel=0.08)
    assert advice_on(record) == []
    assert record.likely_out_of_gpu_memory is None
    (warning,) = warnings(record)
    assert warning.startswith("GPU 0 had memory in use that belongs to no process that can be")


@pytest.mark.diagonal
@at_each_phase
@pytest.mark.parametrize("after", [-1.0, 3.0])
def test_where_the_driver_lists_the_run_another_gpu_is_another_containers(
    opening: float, after: float
) -> None:
    """The run's own numbers were of the instance."""
    others = (hidden(after=after, place=1),)
    record = PlayedTape("two", opening=opening, gpus=2, others=others).play()
    alone = PlayedTape("two", opening=opening).play()
    assert gpu_of(record) == gpu_of(alone)
    assert record.gpu_scope is None
    assert warnings(record) == ()


def test_the_error_of_a_gpu_that_the_run_used_with_memory_of_nobody_may_be_anothers() -> None:
    """Managed memory looks the same: nobody says that the run may not have used its own GPU."""
    record = PlayedTape("illegal", others=(hidden(),), scope=GpuScope((UUID,))).play()
    assert gpu_of(record).xids == (31,)
    assert record.gpu_scope == "instance"
    assert gpu_error_text(record).endswith(
        "Another program may have caused it. It is not known which programs used this GPU."
    )


@pytest.mark.parametrize("after", [-1.0, 8.0])
def test_where_the_driver_says_no_memory_of_processes_that_in_use_is_of_all(after: float) -> None:
    """Driver 560 in a container: another one's program may be hidden, whose memory is in the sum."""
    for others in ((), (hidden(after=after),)):
        record = PlayedTape("two", pids="no memory", others=others).play()
        assert gpu_of(record).shared is None
        assert record.gpu_scope == "instance"
        assert advice_on(record) == []
        (warning,) = warnings(record)
        assert "whose memory the driver does not say" in warning


def test_where_no_process_is_hidden_other_memory_is_the_runs_managed_memory() -> None:
    record = PlayedTape("two", others=(hidden(after=8.0),), has_gpm=False, sees_all=True).play()
    gpu = gpu_of(record)
    assert present(gpu.memory_used_mb.max) > 4000
    assert gpu.shared is False
    assert warnings(record) == ()


@pytest.mark.parametrize("is_long", [False, True], ids=["470", "535.54"])
@pytest.mark.parametrize("name", ["two", "beside"])
def test_the_lists_of_older_drivers_say_the_same(name: str, *, is_long: bool) -> None:
    usual = gpu_of(PlayedTape(name, has_gpm=False).play())
    played = PlayedTape(name, has_gpm=False, missing=() if is_long else MISSING_IN_470)
    played.driver.gpu.has_long_entries = is_long
    gpu = gpu_of(played.play())
    assert gpu.shared == usual.shared
    assert gpu.idle_seconds == usual.idle_seconds
    assert gpu.utilization_percent == usual.utilization_percent
    peak = present(gpu.memory_used_mb.max)
    # Without the driver's sum, its own need is not known.
    assert (
        present(usual.memory_used_mb.max) - _DRIVERS_MB <= peak <= present(usual.memory_used_mb.max)
    )
    assert (gpu.memory_size_mb is None) == (not is_long)


def test_the_limit_of_mps_is_held_against_the_runs_processes_alone() -> None:
    """A neighbour holds 10 GB, which is more than one process of the run may have."""
    neighbour = OtherProgram(tape="neighbour", place=0, is_own=False)
    small = GpuLimits(memory={"0": 4 << 30}, is_mps=True)
    failed = PlayedTape("starved", others=(neighbour,), limits=small)
    failed.tape.exit_code = 1
    assert not failed.play().likely_out_of_gpu_memory
    large = GpuLimits(memory={"0": 79 << 30}, is_mps=True)
    record = PlayedTape("oom", limits=large).play()
    assert record.likely_out_of_gpu_memory
    text = gpu_memory_evidence_text(record)
    assert text.startswith(
        "One of its processes held at least 76.6 GB of the 79 GB that MPS lets a process"
    )


@at_each_phase
def test_a_gpu_that_was_lost_unused_is_no_reason_of_a_failure(opening: float) -> None:
    record = lost_after(PlayedTape("illegal", opening=opening, gpus=2), 1, 1.2, 79)
    assert [(gpu.index, gpu.xids) for gpu in record.gpus] == [(0, (31,))]
    assert "Xid 31" in gpu_error_text(record)
    (warning,) = warnings(record)
    assert warning.startswith(f"GPU 1 ({uuid_of(1)}) was lost by its driver at ")
    record = lost_after(PlayedTape("neighbour", opening=opening, gpus=2), 1, 2.0, 79)
    assert record.gpus == ()
    assert gpu_error_text(record) == ""


def test_of_gpus_whose_use_is_known_in_part_no_average_is_told() -> None:
    played = PlayedTape("two", gpus=2, others=(OtherProgram(tape="starved", place=1),))
    record = lost_after(played, 0, 9.0, 79)
    assert [gpu.xids for gpu in record.gpus] == [(79,), ()]
    assert "That is the machine's fault" in gpu_error_text(record)
    assert gpu_totals(record).text.startswith("2 GPUs use unknown, ≥")


def test_the_parts_of_a_gpu_have_their_own_programs_and_no_use() -> None:
    others = (
        OtherProgram(tape="neighbour", place=1, is_own=False),
        OtherProgram(tape="starved", place=2),
    )
    record = PlayedTape("two", gpus=3, others=others, is_divided=True).play()
    assert [gpu.uuid for gpu in record.gpus] == ["MIG-1", "MIG-3"]
    assert [gpu.shared for gpu in record.gpus] == [False, False]
    assert {gpu.utilization_percent for gpu in record.gpus} == {NOT_MEASURED}
    assert record.gpu_idle is None
    assert advice_on(record) == []
    assert gpu_totals(record).text.startswith("2 GPUs use unknown, ≥2.8 GB of ")


def use(
    *lists: tuple[ProcessOnGpu, ...], used_gib: Sequence[int] = (), sees_all: bool = True
) -> RunUse:
    """The use of a GPU with these processes, a second each, whose memory stays the same unless
    ``used_gib`` says what is used in each second.
    """
    made = RunUse(
        0, lambda identity: identity == "own", ProcessListFacts(sees_all, has_listed=True)
    )
    for number, processes in enumerate(lists, start=1):
        made.add_reading(
            GpuReading(
                start_ns=seconds(number - 1),
                end_ns=seconds(number),
                processes=processes,
                used_bytes=(used_gib[number - 1] if used_gib else 2) << 30,
            )
        )
    return made


OWN, HIDDEN = ProcessOnGpu("own", 1 << 30), ProcessOnGpu(None, 1 << 30)


def test_a_process_that_is_not_listed_any_more_is_forgotten() -> None:
    """Its id may be used again, by another program."""
    parents = {1: (0, b"init"), 2: (1, b"profiler"), 7: (2, b"python3")}
    owners = Descendants(2, read_status=parents.get)
    owns = present(owners.owner_of(""))
    assert owns(owners.identify(7))
    parents[7] = (1, b"another")
    owners.forget_except({7})
    assert owns(owners.identify(7)), "asked when it is first listed"
    owners.forget_except(set())
    assert not owns(owners.identify(7))


class _Ending:
    """Processes of which those that end can be read so many times more."""

    def __init__(self, parents: Mapping[int, tuple[int, bytes]], reads: dict[int, int]) -> None:
        self._parents = parents
        self._reads = reads

    def get(self, pid: int) -> tuple[int, bytes] | None:
        self._reads[pid] = self._reads.get(pid, 100) - 1
        return self._parents.get(pid) if self._reads[pid] >= 0 else None


@pytest.mark.parametrize("reads", [1, 2])
def test_a_process_that_ends_while_it_is_looked_up_is_nobodys(reads: int) -> None:
    """It was another program for good, so that the GPU was shared and the run got no idle time."""
    parents = {1: (0, b"init"), 2: (1, b"profiler"), 6: (2, b"sh"), 7: (6, b"python3")}
    owners = Descendants(2, read_status=_Ending(parents, {6: 0, 7: reads}).get)
    owns = present(owners.owner_of(""))
    assert owners.identify(7) is None
    # One whose parent stays hidden, as of a service, is another program.
    hidden_parent = Descendants(2, read_status=_Ending(parents, {6: 0}).get)
    assert owns(hidden_parent.identify(7)) is False


def test_a_process_whose_parent_ends_while_it_is_looked_up_is_still_the_runs() -> None:
    parents = {1: (0, b"init"), 2: (1, b"profiler"), 6: (2, b"sh"), 7: (6, b"python3")}

    def read(pid: int) -> tuple[int, bytes] | None:
        if pid == 6 and 6 in parents:
            del parents[6]
            parents[7] = (2, b"python3")  # the profiler gets the child
        return parents.get(pid)

    owners = Descendants(2, read_status=read)
    assert present(owners.owner_of(""))(owners.identify(7))


def test_the_server_of_mps_is_nobodys() -> None:
    """It is on each GPU as soon as MPS runs, with 25 to 30 MiB; its clients are programs."""
    started_by = {1: (0, b"init"), 2: (1, b"profiler"), 3: (2, b"python3")}
    started_by |= {40: (1, b"nvidia-cuda-mps-server"), 41: (1, b"python3")}
    owners = Descendants(2, read_status=started_by.get)
    server, own, other = (owners.identify(pid) for pid in (40, 3, 41))
    assert server == MPS_SERVER
    members = GroupMembers(
        lambda batch: batch,
        lambda docker_id, groups: docker_id.encode() in groups,
        lambda _: b"0::/ecs/batch",
        lambda pid: started_by[pid][1],
    )
    assert [members.identify(pid) for pid in (40, 3)] == [MPS_SERVER, b"0::/ecs/batch"]
    owns = present(owners.owner_of(""))
    assert [owns(own), owns(other)] == [True, False]
    on_gpu = (ProcessOnGpu("own", 1 << 30), ProcessOnGpu(MPS_SERVER, 30 << 20))
    alone = use(on_gpu, on_gpu, on_gpu)
    assert not alone.is_shared
    assert alone.own_memory.maximum == (2 << 30) - (30 << 20)
    assert use((*on_gpu, ProcessOnGpu("other", 1 << 30))).is_shared


def test_a_process_that_proc_hides_is_of_another_user() -> None:
    """With hidepid, its id is listed and not found; one that ends is not found once."""
    assert use((OWN,), (OWN, HIDDEN), (OWN, HIDDEN)).is_shared
    assert not use((OWN,), (OWN, HIDDEN), (OWN,), (OWN, HIDDEN)).is_shared
    assert not use((HIDDEN,), (HIDDEN,)).is_shared


def test_memory_that_stays_when_the_run_has_left_is_of_another_program() -> None:
    """The driver clears that of the run at once."""
    assert not use((OWN,), (), ()).is_shared
    assert use((OWN,), (), (), ()).is_shared


@pytest.mark.parametrize(
    ("used_gib", "is_unlisted"),
    [((6, 1, 1, 1), False), ((6, 6, 6, 1), False), ((6, 8, 1, 1), True), ((6, 6, 6, 6), True)],
    ids=["at once", "later", "more than it had", "stays"],
)
def test_memory_that_is_cleared_is_not_of_another_container(
    used_gib: Sequence[int], *, is_unlisted: bool
) -> None:
    """One of two processes of the run ends: its memory is in use a moment longer than listed."""
    large = ProcessOnGpu("own", 5 << 30)
    made = use((OWN, large), (OWN,), (OWN,), (OWN,), used_gib=used_gib, sees_all=False)
    assert made.has_unlisted == is_unlisted
