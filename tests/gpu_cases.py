"""Runs on GPUs as machines have them: estimates, other containers, MPS, lost and refused GPUs, MIG,
older drivers. The programs are those of the tapes.
"""

from collections.abc import Callable, Mapping
from functools import cache, partial

import pynvml
from msgspec import Struct

from profiler.collectors.nvidia.gpu_usage import GpuSoFar
from profiler.collectors.nvidia.visible_gpus import GpuLimits, GpuScope
from profiler.record.record_model import Record, Report
from tests.fakes import seconds
from tests.gpu_runs import report_of
from tests.played_tapes import PlayedTape
from tests.tape_driver import UUID, OtherProgram, uuid_of
from tests.values import present

_LISTS = tuple(f"nvmlDeviceGet{kind}RunningProcesses_v3" for kind in ("Compute", "Graphics"))
_LISTS_OF_MPS = ("nvmlDeviceGetMPSComputeRunningProcesses_v3",)
# What a driver before 510 lacks.
MISSING_IN_470 = (
    *_LISTS,
    *_LISTS_OF_MPS,
    "nvmlDeviceGetMemoryInfo_v2",
    "nvmlGpmQueryDeviceSupport",
)


class PlayedCase(Struct, frozen=True, kw_only=True):
    """A run: its report, and what Prometheus reads at its end."""

    report: Report
    live: tuple[GpuSoFar, ...]


def hidden(tape: str = "burn-half", after: float = 3.0, *, place: int = 0) -> OtherProgram:
    """A program of another container, which the driver does not list here."""
    return OtherProgram(tape=tape, place=place, after=after, is_own=False, is_listed=False)


def lost_after(played: PlayedTape, place: int, when: float, xid: int) -> Record:
    """The record if the GPU falls off the bus at this second of the run."""
    gpu = played.driver.gpus[place].gpu

    def lose() -> None:
        if played.clock.now_ns > seconds(when) and not gpu.is_lost:
            gpu.fall_with(xid)
            gpu.is_lost = 1

    return played.play(lose)


def played_until(played: PlayedTape, stop_seconds: float, error: int, *functions: str) -> Record:
    """The record if functions of the driver fail from this second of the run on."""
    stopped: list[bool] = []

    def stop() -> None:
        if played.clock.now_ns > seconds(stop_seconds) and not stopped:
            stopped.append(True)
            for function in functions:
                played.driver.nvml.fail(function, error, always=True)

    return played.play(stop)


def samples_until(stop_seconds: float) -> Callable[[PlayedTape], Record]:
    """The driver's samples, which are read every 10 s, end."""
    error = pynvml.NVML_ERROR_NOT_SUPPORTED
    return lambda played: played_until(played, stop_seconds, error, "nvmlDeviceGetSamples")


def _refused(played: PlayedTape) -> Record:
    """All GPUs but the first may not be opened."""
    for place in range(1, len(played.driver.gpus)):
        played.driver.nvml.fail("nvmlDeviceGetHandleByIndex", 4, uuid=uuid_of(place), always=True)
    return played.play()


_SHORT_OF_MEMORY = GpuLimits(memory={"0": 79 << 30}, is_mps=True)
_OF_ECS = GpuLimits(memory={"0": 4 << 30}, compute_percent=25, is_mps=True)
_EIGHT = (
    OtherProgram(tape="short", place=5, after=6.0),
    OtherProgram(tape="neighbour", place=2, is_own=False),
)
_OF_PARTS = (
    OtherProgram(tape="neighbour", place=1, is_own=False),
    OtherProgram(tape="starved", place=2),
)
Play = Callable[[PlayedTape], Record]
CASES: Mapping[str, tuple[Callable[[], PlayedTape], Play]] = {
    **{
        name: (partial(PlayedTape, name), PlayedTape.play)
        for name in (
            *("beside", "burn-half", "bursts", "copies", "grow", "illegal", "neighbour"),
            *("one-block", "oom", "short", "starved", "two"),
        )
    },
    "estimate": (lambda: PlayedTape("bursts", has_samples=False, has_gpm=False), PlayedTape.play),
    "estimate in part": (
        lambda: PlayedTape("short", has_samples=False, has_gpm=False, opening=0.6),
        PlayedTape.play,
    ),
    "known in part": (lambda: PlayedTape("starved"), samples_until(11)),
    "hardly known": (lambda: PlayedTape("starved"), samples_until(3)),
    "other container": (lambda: PlayedTape("two", others=(hidden(),)), PlayedTape.play),
    "no memory of processes": (lambda: PlayedTape("two", pids="no memory"), PlayedTape.play),
    "error beside another container": (
        lambda: PlayedTape("illegal", others=(hidden(),), scope=GpuScope((UUID,))),
        PlayedTape.play,
    ),
    "other container's GPU": (
        lambda: PlayedTape("two", gpus=2, others=(hidden(place=1),)),
        PlayedTape.play,
    ),
    "desktop": (lambda: PlayedTape("two", pids="hidden", unlisted_mb=1500), PlayedTape.play),
    "desktop assigned": (
        lambda: PlayedTape("two", pids="hidden", unlisted_mb=1500, scope=GpuScope((UUID,))),
        PlayedTape.play,
    ),
    "unseen": (
        lambda: PlayedTape("short", as_batch=True, sees_batch=False, pids="hidden"),
        PlayedTape.play,
    ),
    "ids of the host": (lambda: PlayedTape("neighbour", pids="host"), PlayedTape.play),
    "container": (lambda: PlayedTape("two", as_batch=True), PlayedTape.play),
    "MPS": (lambda: PlayedTape("short", limits=_OF_ECS), PlayedTape.play),
    "MPS without memory": (lambda: PlayedTape("oom", limits=_SHORT_OF_MEMORY), PlayedTape.play),
    "of eight": (lambda: PlayedTape("two", gpus=8, others=_EIGHT), PlayedTape.play),
    "seven refused": (lambda: PlayedTape("two", gpus=8), _refused),
    "lost": (
        lambda: PlayedTape("two", gpus=2, others=(OtherProgram(tape="starved", place=1),)),
        lambda played: lost_after(played, 0, 9.0, 79),
    ),
    "lost unused": (
        lambda: PlayedTape("illegal", gpus=2),
        lambda played: lost_after(played, 1, 1.2, 79),
    ),
    "parts": (
        lambda: PlayedTape("two", gpus=3, others=_OF_PARTS, is_divided=True),
        PlayedTape.play,
    ),
    "never used": (
        lambda: PlayedTape("neighbour", gpus=2, scope=GpuScope((uuid_of(1),))),
        PlayedTape.play,
    ),
    "driver 470": (
        lambda: PlayedTape("two", has_gpm=False, missing=MISSING_IN_470),
        PlayedTape.play,
    ),
}


@cache
def played_case(name: str) -> PlayedCase:
    make, play = CASES[name]
    played = make()
    report = report_of(play(played), name.replace(" ", "-"))
    return PlayedCase(report=report, live=present(played.collector.latest()).gpus)
