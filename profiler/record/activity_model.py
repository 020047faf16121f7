"""The parts of the record that show what the processes did: the time breakdown, usage by
command, and call stacks.
"""

from typing import Annotated, Final, Literal, get_args

from msgspec import Meta, field

from profiler.core.timestamps import parse_ns
from profiler.record.model_base import Model

WaitKind = Literal["disk", "network", "sleep", "lock", "pipe", "child", "other"]
MomentKind = Literal["memory", "idle", "saturated"]
# Follows a folded stack of threads that were not on a CPU.
WAITING_SUFFIX = " [waiting]"
# A reader keeps a word that only a newer writer knows.
_AnyWaitKind = Annotated[str, Meta(extra_json_schema={"examples": list(get_args(WaitKind))})]
_AnyMomentKind = Annotated[str, Meta(extra_json_schema={"examples": list(get_args(MomentKind))})]


class WaitTarget(Model, frozen=True, kw_only=True):
    """What the run waited for: a peer's address and port, or a path.

    ``percent`` is its share of the wall time.

    The time of all targets that are not listed is in one row whose kind and target are ``other``.
    """

    kind: _AnyWaitKind
    target: str
    percent: float


class TimeBreakdown(Model, frozen=True, kw_only=True):
    """The wall time of the run in parts that add up to 100 %.

    A kind that the monitor's privileges do not show is absent, and its time is in ``otherPercent``.
    Without SYS_PTRACE only ``onCpuPercent``, ``waitingForCpuPercent``, ``diskPercent`` and
    ``otherPercent`` are known. ``coveredPercent`` is the share of the run's time that samples
    explain: where processes ended before their threads were read, a part is unknown.
    """

    on_cpu_percent: float | None = None
    waiting_for_cpu_percent: float | None = None
    disk_percent: float | None = None
    network_percent: float | None = None
    sleep_percent: float | None = None
    lock_percent: float | None = None
    pipe_percent: float | None = None
    child_percent: float | None = None
    other_percent: float | None = None
    waiting_for: tuple[WaitTarget, ...] = ()
    covered_percent: float | None = None


NO_BREAKDOWN: Final = TimeBreakdown()


class ProcessSeries(Model, frozen=True, kw_only=True):
    """The processes of one command in the steps of the time series; ``null``: nothing was read
    in the step.

    ``vcpuUsed`` is the mean of a step, ``memoryUsedMB`` its maximum; neither is above the run's.
    Shared memory counts once where that can be read. ``other``: the rest of the CPU time.
    """

    command: str
    vcpu_used: tuple[float | None, ...] | None = None
    memory_used_mb: tuple[float | None, ...] | None = None


class StackFunction(Model, frozen=True, kw_only=True):
    """A function in the stack samples.

    ``line`` lies inside the function. ``own``: it is the user's code.

    The code of Python and of installed packages is not the user's.

    ``selfPercent`` is the share of the samples of running threads in which the function itself ran,
    ``totalPercent`` the share in which it was anywhere on the stack.
    """

    function: str
    file: str
    line: int | None = None
    self_percent: float | None = None
    total_percent: float | None = None
    own: bool | None = None


class StackMoment(Model, frozen=True, kw_only=True):
    """A moment of the run and the stack that was seen most often in it.

    ``kind``: ``memory`` (above 80 % of the size and rising), ``idle`` (nothing on a CPU for 30 s,
    or for 2 s in which stacks were read), ``saturated`` (all vCPUs in use for 30 s). ``stack``
    begins with the outermost function; ``percent`` is its share of the samples. ``own`` has true
    for each function of ``stack`` that is the user's code; records of schema 1.2 and earlier lack
    it.
    """

    kind: _AnyMomentKind
    from_at: str | None = field(default=None, name="from")
    to_at: str | None = field(default=None, name="to")
    samples: int | None = None
    stack: tuple[str, ...] = ()
    percent: float | None = None
    own: tuple[bool, ...] = ()

    @property
    def from_ns(self) -> int | None:
        """``from_at`` in nanoseconds since 1970."""
        return parse_ns(self.from_at)

    @property
    def to_ns(self) -> int | None:
        """``to_at`` in nanoseconds since 1970."""
        return parse_ns(self.to_at)


class Stacks(Model, frozen=True, kw_only=True):
    """The call stacks of the run's Python processes: their reader, its samples, and the stacks
    of running threads.
    """

    source: str
    samples: int | None = None
    running_samples: int | None = None
    top: tuple[StackFunction, ...] = ()
    moments: tuple[StackMoment, ...] = ()


NO_STACKS: Final = Stacks(source="")
