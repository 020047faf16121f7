"""From which value on a wait for something, an idle time, or the use of all CPUs is mentioned, by
all outputs for people.
"""

from profiler.core.optional_math import first_known
from profiler.core.timestamps import MS_PER_SECOND
from profiler.record.record_model import Record

# A target that took less of the run's time is not listed.
MIN_WAIT_PERCENT = 3
# If less of the run was sampled, the share is shown, and the CPU time is a lower bound.
MIN_COVERED_PERCENT = 95
# From this share of its vCPUs on, a run uses all of them, as in vcpuSaturatedPercent.
SATURATED_SHARE = 0.95
# A process that only looks now and then whether there is something to do uses less than the first
# of these. On a large machine, a process that works uses less than 2 % of it: more than the second
# is work.
QUIET_VCPU = 0.01
_MAX_IDLE_VCPU = 0.05
_IDLE_SHARE = 0.02
# From this share of the time on in which all vCPUs were used, a task counts as saturated.
SATURATED_PERCENT = 5
# From this share of its size on, the memory of a run that goes on is worth a look.
NEAR_FULL_SHARE = 0.7
# From this share of the limit on, a memory peak is near it.
NEAR_LIMIT_SHARE = 0.9
# From this share of the run on, the idle time of the GPUs gets advice.
MIN_GPU_IDLE_PERCENT = 10
# From this share on, an idle time or a use of the GPUs is shown.
MIN_SHOWN_GPU_PERCENT = 1
# The sources of a task's bytes, which are read last before the end of the run; and those that know
# the CPU time to the end.
_BYTE_SOURCES = ("task-metadata", "docker")
_TO_THE_END = frozenset({"docker", "processes"})
_PERCENT = 100
_WAIT_NAMES = {
    "lock": "a lock",
    "pipe": "a pipe",
    "child": "a child process",
    "sleep": "a timer",
    "disk": "the disk",
}


def wait_words(kind: str, target: str = "") -> str:
    """What a wait was for, with its target if that is known."""
    words = _WAIT_NAMES.get(kind, f"the {kind}")
    return f"{words} ({target})" if target not in ("", kind) else words


WAIT_FOR_CPU = "waiting_for_cpu"
PAST_WAITS = {
    WAIT_FOR_CPU: "waited for a CPU",
    "sleep": "slept",
    **{
        kind: f"waited for {wait_words(kind)}"
        for kind in ("disk", "network", "lock", "pipe", "child")
    },
}
"""Phrases for the parts of a run's time in which it was not on a CPU."""


def max_idle_vcpu(vcpu_size: float | None) -> float:
    """A run that uses at most these vCPUs is idle: 2 % of its size, but at least 0.01 and at
    most 0.05.
    """
    if not vcpu_size or vcpu_size < 0:
        return _MAX_IDLE_VCPU
    return min(max(_IDLE_SHARE * vcpu_size, QUIET_VCPU), _MAX_IDLE_VCPU)


def is_near_limit(used: float | None, limit: float | None) -> bool:
    """Whether so much of the memory was used that a little more data can be too much."""
    return bool(limit) and (used or 0) >= NEAR_LIMIT_SHARE * (limit or 0)


def is_cpu_partial(record: Record) -> bool:
    """Whether ``cpuSeconds`` lacks the CPU time of more than a twentieth of the run: its end was
    not measured.
    """
    return first_known(record.sampling.cpu_covered_percent, _PERCENT) < MIN_COVERED_PERCENT


def is_gpu_use_partial(record: Record) -> bool:
    """Whether the work of a GPU is not known for more than a twentieth of the run."""
    return any(gpu.is_use_partial for gpu in record.gpus)


def is_gpu_use_estimated(record: Record) -> bool:
    """Whether the use of a GPU is an estimate, from a value of each second."""
    return any(gpu.is_use_estimated for gpu in record.gpus)


def is_gpu_use_approximate(record: Record) -> bool:
    """Whether the use of a GPU is an estimate, or that of a part of the run."""
    return any(gpu.is_use_approximate for gpu in record.gpus)


def are_bytes_partial(record: Record) -> bool:
    """Whether the bytes of more than a twentieth of a task's run may be missing: no reading of the
    stats covers its end.
    """
    if not (is_cpu_partial(record) or _is_last_period_long(record)):
        return False
    return any(name.startswith(_BYTE_SOURCES) for name in record.sampling.sources)


def _is_last_period_long(record: Record) -> bool:
    """Whether the CPU time is known to the end, and a period of the stats is more than a twentieth
    of the run.
    """
    if _TO_THE_END.isdisjoint(record.sampling.sources):
        return False
    unread_ms = record.sampling.stats_period_ms or 0
    duration_ms = record.metrics.duration_ms or 0
    return _PERCENT * unread_ms > (_PERCENT - MIN_COVERED_PERCENT) * duration_ms


def whole_cpu_seconds(record: Record) -> float | None:
    """The CPU time, for comparisons.

    Of a part that was not measured, it is that of the rest on average; all together it is no less
    than what was measured.
    """
    metrics = record.metrics
    used = record.metrics.vcpu_used.avg
    if used is None or not metrics.duration_ms or not is_cpu_partial(record):
        return metrics.cpu_seconds
    return max(used * metrics.duration_ms / MS_PER_SECOND, metrics.cpu_seconds or 0.0)
