"""The wait of a run's threads for a CPU: how long it was, and why; one sentence for all outputs."""

from profiler.core.timestamps import MS_PER_SECOND
from profiler.record.fact_list import Bound, Fact
from profiler.record.mention_limits import is_cpu_wait_partial
from profiler.record.record_model import Processor, Record
from profiler.record.units import AT_LEAST, format_count, format_duration, format_vcpu

# Less of a CPU delays nobody.
_MIN_OTHERS_VCPU = 0.1


def cpu_wait_fact(record: Record) -> Fact:
    """The wait of all threads for a CPU, in seconds; the sentence has no full stop.

    Its share of the time in which the threads could run is another number than the part of the run
    in which it waited for a CPU, so that it is only said of several runs.
    """
    seconds = record.metrics.cpu_wait_seconds or 0
    bound: Bound = AT_LEAST if is_cpu_wait_partial(record) else ""
    duration = format_duration(seconds * MS_PER_SECOND)
    why = cpu_wait_reason(record)
    return Fact(
        name="CPU wait",
        value=seconds,
        unit="s",
        bound=bound,
        text=f"{bound}{duration} in total: {why}",
        sentence=f"its threads waited {bound}{duration} in total for a CPU: {why}",
    )


def cpu_wait_reason(record: Record) -> str:
    """Why its threads waited for a CPU: what they and other programs used, as far as known."""
    metrics = record.metrics
    reasons = []
    if metrics.max_pids and metrics.vcpu_size and metrics.max_pids > metrics.vcpu_size:
        threads = format_count(metrics.max_pids, "thread")
        reasons.append(f"up to {threads} shared {format_vcpu(metrics.vcpu_size)}")
    processor = record.processor or Processor()
    others = processor.others_vcpu_used
    if others is not None and others >= _MIN_OTHERS_VCPU:
        used = format_vcpu(others).removesuffix(" vCPU")
        reasons.append(f"other programs used {used} of the machine's {processor.count} CPUs")
    elif others is None and not reasons:
        reasons.append("it shares its CPU with others, or its threads run in short bursts")
    elif not reasons:
        reasons.append("its threads run in short bursts, or are held at a CPU limit")
    return ", and ".join(reasons)
