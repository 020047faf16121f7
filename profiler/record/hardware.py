"""The hardware of a run: the short name of the CPU's model, what its GPUs' driver reported, and
limits that a program does not see.
"""

import re
from collections.abc import Sequence

from profiler.core.timestamps import MS_PER_SECOND
from profiler.record.measured import Number
from profiler.record.mention_limits import (
    SATURATED_PERCENT,
    is_near_limit,
    whole_cpu_seconds,
)
from profiler.record.record_model import Gpu, Record, TaskSize, Visible
from profiler.record.run_outcome import SIGKILL_EXIT_CODE, SIGTERM_EXIT_CODE
from profiler.record.units import (
    format_memory,
    format_vcpu,
)

# A warning where there is a driver, but not the package that reads it. The end of a run has it in
# one line of a terminal.
UNREAD_GPU = "The GPU is not read: pipx inject task-profiler nvidia-ml-py (or pip)."
_SEEN_MEMORY_FACTOR = (
    1.2  # up to this multiple of the limit, the memory that a program sees agrees with it
)
_MAX_THREADS_PER_VCPU = 2  # that can run at the same time, on average
# What the names of all models have in common.
_PROCESSOR_WORDS = (
    r"(?i)\((?:R|TM)\)|\b(?:Intel|AMD|CPU|Processor|Platinum|Gold|Silver|Bronze|\d+-Core)\b"
)


def most_telling_gpu_error(record: Record) -> int | None:
    """The driver's error (Xid) that says most about the run; None without any, also if there are
    only notes.
    """
    numbers = [xid for gpu in record.gpus for xid in gpu.xids]
    if not numbers:
        return None
    from profiler.record.xids import is_xid_error, worst_xid  # most runs have none

    number = worst_xid(numbers)
    return number if number is not None and is_xid_error(number) else None


def is_at_limit_of_mps(record: Record) -> bool:
    """Whether the limit that a run out of GPU memory reached is the one that MPS sets for each
    process, not the memory of the GPU. A line of the log does not tell: with MPS, its limit is the
    lower one.
    """
    seen = record.gpu_memory_evidence
    limits = {gpu.uuid: gpu.memory_limit_mb for gpu in record.gpus}
    if seen is None or seen.kind != "memory-at-limit":
        return any(limits.values())
    return bool(seen.limit_mb) and limits.get(seen.uuid or "") == seen.limit_mb


def may_lack_gpu_memory(record: Record, gpus: Sequence[Gpu]) -> bool:
    """Whether a lack of these GPUs' memory can be why the run failed: no signal of somebody else
    ended it, and the GPUs' driver reported no error, from which a lack of memory may follow.
    """
    is_signal = record.exit_code in (SIGKILL_EXIT_CODE, SIGTERM_EXIT_CODE)
    return record.status == "failure" and not is_signal and not any(gpu.xids for gpu in gpus)


def unseen_memory_limit(
    visible: Visible, size: TaskSize, container_mb: Number | None
) -> tuple[str, str] | None:
    """The memory that a program sees, and the task's limit; None if they agree, or if the
    container has its own.
    """
    seen_mb = visible.memory_mb
    limit_mb = size.memory_mb
    if (
        seen_mb is None
        or not limit_mb
        or container_mb != limit_mb
        or seen_mb <= _SEEN_MEMORY_FACTOR * limit_mb
    ):
        return None
    return format_memory(seen_mb), format_memory(limit_mb)


def unseen_cpu_limit(visible: Visible, size: TaskSize) -> tuple[str, str] | None:
    """The number of CPUs that a program sees, and the task's vCPUs; None if they agree or are
    unknown.
    """
    cpus = visible.cpus
    vcpu = size.vcpu
    if cpus is None or not vcpu or cpus <= vcpu:
        return None
    return f"{cpus:g} CPU{'' if cpus == 1 else 's'}", format_vcpu(vcpu)


def visible_memory_advice(record: Record, *, is_out_of_memory: bool) -> str | None:
    """A sentence for a run that was killed for memory (``is_out_of_memory``), or nearly."""
    metrics = record.metrics
    unseen = unseen_memory_limit(record.visible, record.task_size, metrics.memory_size_mb)
    is_high = is_near_limit(metrics.max_memory_used_mb, metrics.memory_size_mb)
    if unseen is None or not (is_out_of_memory or is_high):
        return None
    seen, limit = unseen
    may_use = limit.removesuffix(f" {seen.rpartition(' ')[2]}")
    remedy = "set the container's `memory`, or -Xmx/max_old_space_size/workers"
    return f"the program sees {seen} and may use {may_use}: {remedy}."


def visible_cpus_advice(record: Record) -> str | None:
    """A sentence for a saturated run whose threads that could run, on average, were too many for
    the task's vCPUs.
    """
    metrics = record.metrics
    vcpu = record.task_size.vcpu
    unseen = unseen_cpu_limit(record.visible, record.task_size)
    used = whole_cpu_seconds(record)
    waited = metrics.cpu_wait_seconds
    duration_ms = metrics.duration_ms
    if unseen is None or not vcpu or used is None or waited is None or not duration_ms:
        return None
    is_saturated = (metrics.vcpu_saturated_percent or 0) >= SATURATED_PERCENT
    if (
        not is_saturated
        or (used + waited) * MS_PER_SECOND / duration_ms <= _MAX_THREADS_PER_VCPU * vcpu
    ):
        return None
    return (
        f"it sees {unseen[0]} and may use {unseen[1].removesuffix(' vCPU')}: set the number of "
        "workers."
    )


def short_processor_name(model: str) -> str:
    """The model without what most models have: ``EPYC 7R13``.

    A frequency is left in if it is the only number.
    """
    name, at, frequency = model.partition("@")
    short = " ".join(re.sub(_PROCESSOR_WORDS, " ", name).split())
    if at and not any(character.isdigit() for character in short):
        short = f"{short} @ {frequency.strip()}".strip()
    return short or model.strip()


def processor_difference(record: Record, other: Record, other_name: str = "the other run") -> str:
    """Name both models if they differ and are known: ``ran on Xeon 8259CL, the other run on
    8375C``.
    """
    if (
        not (record.processor.model and other.processor.model)
        or record.processor.model == other.processor.model
    ):
        return ""
    own = short_processor_name(record.processor.model)
    others = short_processor_name(other.processor.model)
    if own == others:
        return ""
    brand, _, rest = others.partition(" ")
    is_same_brand = bool(rest) and own.startswith(f"{brand} ")
    return f"ran on {own}, {other_name} on {rest if is_same_brand else others}"
