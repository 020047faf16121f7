"""What outputs say of a run's GPUs: their use and memory in one line, how they worked, and what
their driver reported.

The terminal, the report page, Slack and the events print these, with the sentences of
``gpu_sentences``: each number has the same digits and marks everywhere.
"""

from collections.abc import Iterator, Sequence

from profiler.core.optional_math import all_known, first_known, known, mean_known
from profiler.core.text import as_sentence, listed
from profiler.core.timestamps import MS_PER_SECOND
from profiler.record.device_totals import (
    SHARED,
    GpuTotals,
    gpu_totals,
    held_memory_text,
    idle_between_texts,
)
from profiler.record.fact_list import (
    GPU_AVERAGE,
    GPU_IDLE_BETWEEN,
    GPU_MEMORY_PEAK,
    number_fact,
    number_of_row,
)
from profiler.record.gpu_sentences import (
    copy_rate_text,
)
from profiler.record.hardware import is_at_limit_of_mps
from profiler.record.measured import measured_from
from profiler.record.mention_limits import MIN_SHOWN_GPU_PERCENT, is_gpu_use_partial
from profiler.record.record_model import (
    LOCAL,
    Gpu,
    GpuMemoryEvidence,
    Record,
)
from profiler.record.run_outcome import Outcome
from profiler.record.units import (
    format_count,
    format_duration,
    format_memory,
    format_percent,
    format_share,
)
from profiler.record.xids import xid_sentence

# The numbers in tables of runs, and their titles.
GPU_COLUMNS = (
    ("GPU", GPU_AVERAGE),
    ("GPU memory", GPU_MEMORY_PEAK),
    ("Idle between", GPU_IDLE_BETWEEN),
)
_MIN_THROTTLED_PERCENT = 10
_MIN_DRAM_PERCENT = 10
# A run that computes so much of its time, and hardly ever with the tensor cores, does without them.
_MIN_SM_PERCENT = 25
_MIN_COPY_SECONDS = 0.1
_PERCENT = 100
# The driver needs 9 MiB of its own a process.
_MIN_OTHERS_MB = 64
# Clocks that an administrator has set, and those of a display, hold nothing back unexpectedly.
_THROTTLING = {
    "swPowerCap": "power cap",
    "hwPowerBrakeSlowdown": "power brake",
    "hwSlowdown": "slowed down by the hardware",
    "swThermalSlowdown": "too hot",
    "hwThermalSlowdown": "too hot (hardware)",
}


def gpu_memory_text(gpu: Gpu) -> str:
    """The most memory of the GPU that the run was seen to hold, of what it may hold: ``≥1.7 GB of
    79.6 GB``; "" if none was seen.
    """
    return held_memory_text(gpu.memory_used_mb.max, gpu.memory_limit_mb or gpu.memory_size_mb)


def gpu_idle_text(gpu: Gpu) -> str:
    """The share of the run in which the GPU was idle: ``≥58 %`` if its work is not known for the
    whole run, and ``≈ 58 %`` if it is an estimate; "" if it is unknown.
    """
    return measured_from(
        gpu.idle_percent, is_least=gpu.is_use_partial, is_estimate=gpu.is_use_estimated
    ).text(format_percent)


def gpu_percent_text(gpu: Gpu, percent: float | None) -> str:
    """A use of the GPU in percent, with its mark if it is an estimate, or of a part of the run; ""
    if it is unknown.
    """
    return measured_from(percent, is_estimate=gpu.is_use_approximate).text(format_percent)


def gpu_active_text(gpu: Gpu, percent: float | None) -> str:
    """How much of a part of the GPU was active, with its mark if it may be that of a part of the
    run; "" if it is unknown.
    """
    return measured_from(percent, is_estimate=gpu.is_use_partial).text(format_percent)


def gpu_family_text(records: Sequence[Record]) -> str:
    """The GPUs of several runs, as `GpuTotals.text` words those of one: the means, and the largest
    memory peak; "" without a run whose GPUs are known to be its own.
    """
    own = [record for record in records if record.gpus and not record.are_gpus_of_instance]
    use = mean_known(*(number_of_row(GPU_AVERAGE, record) for record in own))
    is_estimate = any(map(GPU_AVERAGE.is_estimate, own))
    average = measured_from(use, is_estimate=is_estimate).text(format_percent)
    parts = [f"{average} on average"] if average else []
    totals = map(gpu_totals, own)
    fullest = max(totals, key=lambda one: one.memory_used_mb.max or 0, default=GpuTotals())
    parts.append(fullest.memory_text)
    between = mean_known(*(number_of_row(GPU_IDLE_BETWEEN, record) for record in own))
    parts += idle_between_texts(between)
    text = ", ".join(filter(None, parts))
    return f"GPU {text}" if text else ""


def whose_numbers(gpu: Gpu, record: Record) -> str | None:
    """Whose the numbers of a GPU are, if not the run's alone."""
    if gpu.shared:
        return SHARED
    return "all programs" if record.are_gpus_of_instance else None


def gpu_cells(record: Record) -> list[str]:
    """The cells of a run below ``GPU_COLUMNS``."""
    use, *others = (number_fact(row, record).text for _, row in GPU_COLUMNS)
    return [gpu_totals(record).word_instead_of_use or use, *others]


def more_gpu_memory_advice(record: Record) -> str:
    """What to do for a run that ran out of GPU memory, in lower case."""
    more = (
        "a higher memory limit of MPS" if is_at_limit_of_mps(record) else "a GPU with more memory"
    )
    return f"use a smaller batch size, free what is not needed, or {more}."


def gpu_remedy(record: Record, outcome: Outcome) -> str:
    """What to do for a run that ran out of GPU memory; an error of the driver says it itself."""
    if outcome.cause != "gpu-oom":
        return ""
    return as_sentence(more_gpu_memory_advice(record))


def gpu_error_note(record: Record, outcome: Outcome) -> str:
    """The error of the GPU's driver, of a run whose verdict does not say it."""
    is_said = outcome.status in ("failure", "success")
    return "" if is_said else gpu_error_text(record)


def gpu_work_texts(record: Record, totals: GpuTotals, outcome: Outcome) -> Iterator[str]:
    """How the run's own GPUs worked, where it says something: multiprocessors, tensor cores,
    device memory, copies, and what held the clock back. Of a run that failed, nothing.
    """
    if totals.shared or record.are_gpus_of_instance or outcome.status == "failure":
        return
    active = totals.sm_active_percent.avg
    if active is not None:
        yield f"SM active {_active_part_text(active, record)}"
    yield from _tensor_texts(record, totals)
    dram = first_known(totals.dram_active_percent.avg, 0)
    if dram >= _MIN_DRAM_PERCENT:
        yield f"DRAM active {_active_part_text(dram, record)}"
    yield from _copy_texts(record)
    yield from _throttling_texts(record)


def _active_part_text(percent: float, record: Record) -> str:
    """How much of a part of the GPUs was active, marked where it may be that of a part of the
    run.
    """
    return measured_from(percent, is_estimate=is_gpu_use_partial(record)).text(format_percent)


def _tensor_texts(record: Record, totals: GpuTotals) -> Iterator[str]:
    tensor = totals.tensor_active_percent.avg
    if tensor is None:
        return
    if tensor >= MIN_SHOWN_GPU_PERCENT:
        yield f"tensor cores {_active_part_text(tensor, record)}"
        return
    active = totals.sm_active_percent.avg
    used = totals.utilization_percent.avg
    if active is not None and used and _PERCENT * active / used >= _MIN_SM_PERCENT:
        yield (
            f"tensor cores {_active_part_text(tensor, record)}: it computes without them, as "
            f"in fp32"
        )


def _copy_texts(record: Record) -> Iterator[str]:
    for gpu in record.gpus:
        seconds = gpu.copy_seconds or 0
        if seconds >= _MIN_COPY_SECONDS:
            of_gpu = "" if len(record.gpus) == 1 else f" of {_gpu_names([gpu])}"
            duration = format_duration(seconds * MS_PER_SECOND)
            yield f"copies over PCIe{of_gpu} {duration}, at {copy_rate_text(gpu)} GB/s"


def _throttling_texts(record: Record) -> Iterator[str]:
    """The largest share of each reason among the GPUs."""
    percents: dict[str, float] = {}
    for gpu in record.gpus:
        for reason, percent in (gpu.throttle_reasons or {}).items():
            percents[reason] = max(percents.get(reason, 0.0), percent)
    for reason, name in _THROTTLING.items():
        percent = percents.get(reason, 0.0)
        if percent >= _MIN_THROTTLED_PERCENT:
            yield f"{name} {format_percent(percent)} of the time"


def cause_sentence(outcome: Outcome, record: Record) -> str:
    """Why the run ended, as a sentence, if that is known; an error of the GPU's driver with its
    number, and that the limit of MPS was reached, which an outcome alone does not tell.
    """
    sentence = f"{outcome.sentence}." if outcome.sentence else ""
    if outcome.cause == "gpu-error":
        return gpu_error_text(record) or sentence
    if outcome.cause == "gpu-oom" and is_at_limit_of_mps(record):
        return "The run probably needed more GPU memory than MPS lets a process use."
    return sentence


def gpu_error_text(record: Record) -> str:
    """What the error of the GPU's driver means; "" without one."""
    return xid_sentence(
        [xid for gpu in record.gpus for xid in gpu.xids],
        is_shared=any(gpu.shared for gpu in record.gpus),
        is_local=record.launch_type == LOCAL,
        is_own=not record.are_gpus_of_instance,
    )


def device_memory_sentences(record: Record) -> Iterator[str]:
    """What the errors in the memory of GPUs and Neuron devices mean that could not be corrected."""
    failing = [gpu for gpu in record.gpus if gpu.ecc_uncorrected]
    if failing:
        yield _memory_errors_sentence(
            _gpu_names(failing), sum(gpu.ecc_uncorrected or 0 for gpu in failing)
        )
    if record.neuron.ecc_uncorrected:
        yield _memory_errors_sentence("The Neuron devices", record.neuron.ecc_uncorrected)


def _gpu_names(gpus: Sequence[Gpu]) -> str:
    """``GPUs 0 and 5``, or how many they are if the index of one is unknown."""
    indexes = all_known(*(known(str, gpu.index) for gpu in gpus))
    if indexes is None:
        return format_count(len(gpus), "GPU")
    return f"{'GPU' if len(gpus) == 1 else 'GPUs'} {listed(indexes)}"


def _memory_errors_sentence(devices: str, count: int) -> str:
    errors = format_count(count, "memory error")
    return (
        f"{devices} counted {errors} that cannot be corrected (ECC) during the run: its results "
        "may be wrong, and the machine may be at fault"
    )


def gpu_memory_sentence(name: str, when: str = "") -> str:
    """The sentence of a run that probably ran out of GPU memory; ``when`` begins with a blank."""
    return f"{name} probably ran out of GPU memory{when}."


def gpu_memory_evidence_text(record: Record) -> str:
    """Why the run probably ran out of GPU memory: its log's line, or how much was in use just
    before the end; "" if that is not known.
    """
    seen = record.gpu_memory_evidence
    if seen is None:
        return ""
    if seen.text is not None:
        return f"Its log says: {seen.text}"
    return _held_gpu_memory_text(seen, is_mps=is_at_limit_of_mps(record))


def _held_gpu_memory_text(seen: GpuMemoryEvidence, *, is_mps: bool) -> str:
    """What the run held; ``is_mps``: of the limit that MPS sets for each process."""
    if seen.own_mb is None or seen.used_mb is None or not seen.limit_mb:
        return ""
    others = ""
    if seen.used_mb - seen.own_mb > _MIN_OTHERS_MB:
        others = f", other programs {format_memory(seen.used_mb - seen.own_mb)}"
    share = format_share(seen.used_mb, seen.limit_mb)
    held = measured_from(seen.own_mb, is_least=True).sentence_words(format_memory)
    limit = format_memory(seen.limit_mb)
    of_limit = f"the {limit} that MPS lets a process use" if is_mps else f"the GPU's {limit}"
    # Older records count the memory of other programs against the limit of MPS, too.
    if is_mps and seen.own_mb == seen.used_mb:
        who, in_use = "One of its processes", share
    else:
        who, in_use = "Its processes", f"{share} in use"
    return (
        f"{who} held {held} of {of_limit}{others} ({in_use}), and had taken more and more just "
        "before the end."
    )


def gpu_cause_sentences(record: Record) -> Iterator[str]:
    """What shows that the GPU was the cause of a failure, and the remedy; or its error."""
    if record.likely_out_of_gpu_memory:
        yield from filter(
            None, (gpu_memory_evidence_text(record), as_sentence(more_gpu_memory_advice(record)))
        )
    else:
        yield from filter(None, (gpu_error_text(record),))
