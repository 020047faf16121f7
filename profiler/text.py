"""A report as one line of text, in the words and with the tabs of Lambda's REPORT line. Pure."""

import math
from collections.abc import Sequence

from profiler.accelerators.gpu_advice import is_idle
from profiler.known import max_known, mean_known, sum_known
from profiler.record import Cost, Distribution, Gpu, Neuron, Number, Recommendation, Record, Report

_SEPARATOR = "\t"
_MILLISECOND_DIGITS = 2
_NO_DISTRIBUTION = Distribution()


def report_text(report: Report) -> str:
    """The line without its newline; what is not known is left out."""
    record = report.record
    metrics = record.metrics
    vcpu = metrics.vcpu_used or _NO_DISTRIBUTION
    cpu_percent = metrics.cpu_utilization_percent or _NO_DISTRIBUTION
    memory = metrics.memory_used_mb or _NO_DISTRIBUTION
    fields = (
        ("REPORT TaskId", record.task_id),
        ("Duration", _format_ms(metrics.duration_ms)),
        ("Billed Duration", _format_number(metrics.billed_duration_ms, "ms")),
        ("vCPU Size", _format_number(metrics.vcpu_size)),
        ("Max vCPU Used", _format_number(vcpu.max)),
        ("Memory Size", _format_number(metrics.memory_size_mb, "MB")),
        ("Max Memory Used", _format_number(metrics.max_memory_used_mb, "MB")),
        ("Memory Peak Source", metrics.memory_peak_source),
        ("Init Duration", _format_ms(metrics.init_duration_ms)),
        ("CPU Time", _format_number(metrics.cpu_seconds, "s")),
        ("Avg vCPU Used", _format_number(vcpu.avg)),
        ("Avg CPU", _format_number(cpu_percent.avg, "%")),
        ("Avg Memory Used", _format_number(memory.avg, "MB")),
        *_gpu_fields(record.gpus),
        *_neuron_fields(record.neuron),
        ("Name", _one_line(record.family)),
        ("Status", record.status),
        ("Exit Code", _format_number(record.exit_code)),
        ("Likely Out Of Memory", "true" if record.likely_out_of_memory else None),
        *_cost_fields(record),
    )
    return _SEPARATOR.join(f"{name}: {value}" for name, value in fields if value is not None)


def _cost_fields(record: Record) -> tuple[tuple[str, str | None], ...]:
    cost, advice = record.cost or Cost(), record.recommendation or Recommendation()
    return (
        ("Cost", None if cost.usd is None else f"{_format_usd(cost.usd)} USD"),
        ("Recommended vCPU", _format_number(advice.vcpu)),
        ("Recommended Memory", _format_number(advice.memory_mb, "MB")),
        ("Saving", _format_number(advice.saving_percent, "%")),
        ("Advice", _one_line(" ".join(advice.reasons)) or None),
    )


def _format_usd(usd: float) -> str:
    """Four digits that say something: most runs cost less than a cent."""
    return f"{usd:.{max(4, 3 - math.floor(math.log10(usd)))}f}" if usd > 0 else "0"


def _gpu_fields(gpus: Sequence[Gpu]) -> tuple[tuple[str, str | None], ...]:
    """Over all GPUs: the mean of their averages, the largest peaks, and the energy of all."""
    if not gpus:
        return ()
    idle = sum(1 for gpu in gpus if is_idle(gpu))
    return (
        ("GPUs", str(len(gpus))),
        ("Idle GPUs", str(idle) if idle else None),
        (
            "Avg GPU",
            _format_number(mean_known(*((gpu.utilization_percent or _NO_DISTRIBUTION).avg for gpu in gpus)), "%"),
        ),
        (
            "Max GPU Memory Used",
            _format_number(max_known(*((gpu.memory_used_mb or _NO_DISTRIBUTION).max for gpu in gpus)), "MB"),
        ),
        ("GPU Energy", _format_number(sum_known(*(gpu.energy_joules for gpu in gpus)), "J")),
    )


def _neuron_fields(neuron: Neuron | None) -> tuple[tuple[str, str | None], ...]:
    if neuron is None:
        return ()
    average = mean_known(*((core.utilization_percent or _NO_DISTRIBUTION).avg for core in neuron.cores))
    memory = neuron.device_memory_used_mb or _NO_DISTRIBUTION
    return (
        ("Neuron Cores", str(len(neuron.cores)) if neuron.cores else None),
        ("Avg Neuron Core", _format_number(average, "%")),
        ("Max Neuron Memory Used", _format_number(memory.max, "MB")),
    )


def _format_ms(value: Number | None) -> str | None:
    """Always with two digits, as Lambda prints durations."""
    return None if value is None else f"{value:.{_MILLISECOND_DIGITS}f} ms"


def _format_number(value: Number | None, unit: str = "") -> str | None:
    """A number with two digits after the point, four below 1, and none that say nothing."""
    if value is None:
        return None
    digits = 2 if value >= 1 else 4
    text = f"{value:.{digits}f}".rstrip("0").rstrip(".") if isinstance(value, float) else str(value)
    return f"{text} {unit}".rstrip()


def _one_line(text: str | None) -> str | None:
    """Tabs and line ends in a name would break the line into other fields."""
    return None if text is None else " ".join(text.split())
