"""The numbers of a notice, from a report or checkpoint, else from the event alone."""

from forwarder.aggregates import max_known, mean
from forwarder.notice import AcceleratorUse, KilledProcesses, RunNumbers, SizeAdvice
from forwarder.run_log import FoundReport
from forwarder.task_event import StoppedTask
from profiler.record import Distribution, Record

_UNKNOWN = Distribution()


def run_numbers(task: StoppedTask, found: FoundReport | None) -> RunNumbers:
    """What is known of the run. A checkpoint's duration is not the run's: the event's is."""
    if found is None:
        return RunNumbers(duration_ms=task.duration_ms)
    record = found.report.record
    metrics = record.metrics
    cpu = metrics.cpu_utilization_percent or _UNKNOWN
    memory = metrics.memory_utilization_percent or _UNKNOWN
    final_duration_ms = metrics.duration_ms if found.is_final and record.status != "stopped" else None
    return RunNumbers(
        duration_ms=task.duration_ms if final_duration_ms is None else final_duration_ms,
        billed_duration_ms=metrics.billed_duration_ms if found.is_final else None,
        cost_usd=record.cost.usd if record.cost is not None and found.is_final else None,
        vcpu_size=metrics.vcpu_size,
        cpu_average_percent=cpu.avg,
        cpu_maximum_percent=cpu.max,
        memory_size_mb=metrics.memory_size_mb,
        memory_average_percent=memory.avg,
        memory_maximum_percent=memory.max,
        memory_maximum_mb=metrics.max_memory_used_mb,
        gpus=_gpus(record),
        neuron=_neuron(record),
        killed=_killed(record),
        advice=_advice(record),
    )


def _gpus(record: Record) -> AcceleratorUse | None:
    if not record.gpus:
        return None
    use = [gpu.utilization_percent or _UNKNOWN for gpu in record.gpus]
    memory = [gpu.memory_used_mb or _UNKNOWN for gpu in record.gpus]
    return AcceleratorUse(
        count=len(record.gpus),
        average_percent=mean([one.avg for one in use]),
        maximum_percent=max_known([one.max for one in use]),
        maximum_memory_mb=max_known([one.max for one in memory]),
    )


def _neuron(record: Record) -> AcceleratorUse | None:
    if record.neuron is None or not record.neuron.cores:
        return None
    use = [core.utilization_percent or _UNKNOWN for core in record.neuron.cores]
    return AcceleratorUse(
        count=len(record.neuron.cores),
        average_percent=mean([one.avg for one in use]),
        maximum_percent=max_known([one.max for one in use]),
        maximum_memory_mb=(record.neuron.device_memory_used_mb or _UNKNOWN).max,
    )


def _killed(record: Record) -> KilledProcesses | None:
    kills = record.memory_kills
    if kills is None or kills.count < 1:
        return None
    return KilledProcesses(count=kills.count, names=tuple(process.name for process in kills.processes))


def _advice(record: Record) -> SizeAdvice | None:
    """A size that the task has already is none to try next: then only the reasons are told."""
    advice = record.recommendation
    if advice is None:
        return None
    size = record.task_size
    if size is not None and (size.vcpu, size.memory_mb) == (advice.vcpu, advice.memory_mb):
        return SizeAdvice(reasons=advice.reasons)
    return SizeAdvice(
        vcpu=advice.vcpu, memory_mb=advice.memory_mb, saving_percent=advice.saving_percent, reasons=advice.reasons
    )
