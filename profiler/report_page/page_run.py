"""The rows of a run on the report page."""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from msgspec.structs import asdict, replace

from profiler.core.optional_math import known
from profiler.core.timestamps import NS_PER_MS, parse_ns, span_ms
from profiler.record.device_totals import GpuTotals
from profiler.record.fact_list import (
    GPU_AVERAGE,
    GPU_IDLE,
    GPU_IDLE_BETWEEN,
    GPU_MEMORY_PEAK,
    GPU_SM_ACTIVE,
    NUMBERS,
    NumberRow,
    estimated_rows,
    lower_bound_rows,
    number_of_row,
)
from profiler.record.gpu_facts import (
    gpu_active_text,
    gpu_idle_text,
    gpu_memory_text,
    gpu_percent_text,
    whose_numbers,
)
from profiler.record.measured import AtLeast, Number
from profiler.record.process_rows import (
    MeasuredProcessRow,
    displayed_process_name,
    measured_killed_rows,
    measured_rows,
)
from profiler.record.record_model import (
    NOT_MEASURED,
    UNKNOWN_COST,
    UNKNOWN_SIZE,
    Gpu,
    Neuron,
    NeuronCore,
    RaisedNotice,
    Record,
    TaskSize,
)
from profiler.record.record_paths import RunView
from profiler.record.run_summary import DOT, GPU_NOTES, UNSEEN_LIMITS, RowName, Story, story_of
from profiler.record.usual_numbers import UsualOf
from profiler.report_page.page_activity import activity_of
from profiler.report_page.page_rows import PageGpu, PageNeuron, PageProcess, PageRun, RunDetails
from profiler.report_page.page_series import Run, finite_or_none, memory_digits
from profiler.runs.past_runs.run_moments import RunMoment, find_moments, format_elapsed
from profiler.runs.past_runs.verdict_sentence import VerdictSentences, verdict_of
from profiler.runs.step_series import with_equal_steps
from profiler.sizing.prices import PriceOverrides
from profiler.sizing.run_facts import priced_as_if_on_fargate

_GPU_NUMBERS = {
    "gpu": GPU_AVERAGE,
    "gpu_sm": GPU_SM_ACTIVE,
    "gpu_idle": GPU_IDLE,
    "gpu_between": GPU_IDLE_BETWEEN,
    "gpu_peak": GPU_MEMORY_PEAK,
}


def priced_run(run: Run, price_overrides: PriceOverrides, on_fargate: str | None) -> Run:
    """The run with what it costs; nothing is known of the cost of a run that does not count."""
    record = priced_as_if_on_fargate(run.record, price_overrides, on_fargate)
    if not run.past.counts:
        record = replace(record, cost=UNKNOWN_COST)
    if record is run.record:
        return run
    return replace(run, past=run.past.with_record(record))


def family_text(label: str, *, counts: bool) -> str:
    """The label of a run's family; a run that does not count has a family of its own."""
    return label if counts else f"{label} (unconfirmed)"


def page_run(run: Run, family: str) -> PageRun:
    """What tables and overview charts show of a priced run; ``family`` is a label that only this
    family has.
    """
    record = run.record
    outcome = run.past.outcome
    metrics = record.metrics
    cpu = run.usage.cpu
    memory = metrics.memory_utilization_percent
    vcpu = metrics.vcpu_used
    started_ns = parse_ns(run.past.started_at)
    return PageRun(
        id=record.task_id,
        family=family,
        name=None if family == record.family else record.family,
        revision=record.revision,
        container=record.container.name,
        outcome=outcome.count_group,
        ending=None if outcome.word == outcome.count_group else outcome.word,
        why=outcome.title,
        exit=outcome.exit_code,
        began=known(whole_ms, started_ns),
        start_unknown=record.started_ns is None or None,
        ms=finite_or_none(metrics.duration_ms),
        init=finite_or_none(metrics.init_duration_ms),
        billed=finite_or_none(metrics.billed_duration_ms),
        cpu=finite_or_none(cpu.percent.avg),
        memory=finite_or_none(memory.avg),
        vcpu_size=finite_or_none(cpu.size),
        vcpu_asked=cpu.is_asked or None,
        vcpu_avg=finite_or_none(vcpu.avg),
        vcpu_p95=finite_or_none(vcpu.p95),
        vcpu_max=finite_or_none(vcpu.max),
        saturated=finite_or_none(metrics.vcpu_saturated_percent),
        cpu_seconds=finite_or_none(metrics.cpu_seconds),
        size=finite_or_none(metrics.memory_size_mb),
        memory_avg=finite_or_none(metrics.memory_used_mb.avg),
        peak=finite_or_none(metrics.max_memory_used_mb),
        peak_by=metrics.memory_peak_source,
        counts_files=metrics.counts_files or None,
        usd=finite_or_none(record.cost.usd),
        account=record.account_id,
        cluster=record.cluster,
        launch=record.launch_type,
        region=record.region,
        task_size=_size_pair(record.task_size),
        read=metrics.block_read_bytes,
        written=metrics.block_write_bytes,
        received=metrics.network_rx_bytes,
        sent=metrics.network_tx_bytes,
        pids=metrics.max_pids,
        **_gpu_values(record, run.usage.gpus),
        estimated=_names_on_page(estimated_rows(RunView(record))),
        at_least=_fields_at_least(record) or None,
        course=memory_digits(run.steps),
    )


def _gpu_values(record: Record, totals: GpuTotals) -> dict[str, Any]:
    """The fields of all GPUs together."""
    if not totals.count:
        return {}
    return {
        "gpu_word": totals.word_instead_of_use,
        "gpu_size": finite_or_none(totals.memory_size_mb),
        **{name: finite_or_none(number_of_row(row, record)) for name, row in _GPU_NUMBERS.items()},
    }


def _fields_at_least(record: Record) -> list[str]:
    """The fields of the numbers that may have been larger."""
    return _names_on_page(lower_bound_rows(RunView(record))) or []


def _names_on_page(rows: Iterable[NumberRow]) -> list[str] | None:
    return [row.page_field for row in rows if row.page_field] or None


def are_usual_by_field(record: Record, usual_of: UsualOf) -> dict[str, bool]:
    """Whether each compared number of the run, by its field on the page, is within the spread of
    earlier successes of its family. A number of fewer than five runs is left out.
    """
    judged = {}
    for row in NUMBERS:
        value = number_of_row(row, record) if row.compared_on_page else None
        if value is None:
            continue
        usual = usual_of(row, record)
        if usual is not None:
            judged[row.page_field] = usual.is_within_spread(value)
    return judged


def _nothing_usual(_row: NumberRow, _record: Record) -> None:
    """No run of the family is known."""


def _warning_rows(record: Record) -> Iterator[RowName]:
    """Errors of the memory of GPUs stand with the GPUs' numbers."""
    yield "warning"
    if not record.gpus:
        yield "ECC"


def run_details(run: Run, now_ns: int, usual_of: UsualOf = _nothing_usual) -> RunDetails:
    """What only an opened run shows. ``usual_of``: by earlier successes of its family."""
    record = run.record
    judged = are_usual_by_field(record, usual_of)
    series = record.series or with_equal_steps(run.steps, run.past.started_at)
    moments = find_moments(record, series)
    story = story_of(record, run.past.outcome, run.usage)
    return RunDetails(
        verdict=_verdict_texts(verdict_of(run.past, now_ns)),
        moments=[*map(_moment_row, moments)] or None,
        files=story.first_sentence_named("files") or None,
        huge_pages=story.first_sentence_named("huge") or None,
        peak_at=span_ms(record.started_ns, record.metrics.max_memory_used_at_ns),
        command=run.past.command,
        image=record.container.image,
        log_group=record.log_group,
        log_stream=record.log_stream,
        processes=_process_rows(measured_rows(record.processes, story.usage.memory.peak)) or None,
        kills=_kills_row(record, story),
        usual=[field for field, is_usual in judged.items() if is_usual] or None,
        unusual=[field for field, is_usual in judged.items() if not is_usual] or None,
        unmeasured=story.first_sentence_named("unmeasured") or None,
        run_advice=_run_advice_texts(story) or None,
        device_use=DOT.join(row.text for row in story.rows_named("GPU use", "Neuron use")) or None,
        beside=story.usage.beside_text or None,
        gpus=[_gpu_row(gpu, record) for gpu in record.gpus] or None,
        gpu_notes=[row.sentence for row in story.rows_named(*GPU_NOTES, "GPU advice")] or None,
        neuron=_neuron_row(record.neuron),
        labels=_name_value_texts(record.labels),
        job=story.first_text_named("job") or None,
        tags=_name_value_texts(record.tags),
        warnings=[row.text for row in story.rows_named(*_warning_rows(record))] or None,
        notices=[_notice_text(record, notice) for notice in record.notices] or None,
        **asdict(activity_of(record, story)),
    )


def _run_advice_texts(story: Story) -> list[str]:
    """What to do about the run, without what stands beside the GPUs and the wait for a CPU."""
    said = story.first_sentence_named("CPU wait")
    rows = [row for row in story.advice if row.name != "GPU advice" and row.sentence != said]
    return [row.sentence for row in (*rows, *story.rows_named(*UNSEEN_LIMITS))]


def whole_ms(time_ns: int) -> int:
    """Milliseconds, as the page has times."""
    return time_ns // NS_PER_MS


def _size_pair(size: TaskSize) -> tuple[Number | None, Number | None] | None:
    return None if size == UNKNOWN_SIZE else (size.vcpu, size.memory_mb)


def _verdict_texts(verdict: VerdictSentences) -> list[str]:
    """The tone, the sentence, and the evidence if there is any."""
    texts = [verdict.tone, verdict.text]
    if verdict.evidence:
        texts.append(verdict.evidence)
    return texts


def _moment_row(moment: RunMoment) -> tuple[str, int, int, str]:
    return moment.kind, round(moment.start_ms), round(moment.end_ms), moment.text


def _notice_text(record: Record, notice: RaisedNotice) -> str:
    after_ms = span_ms(record.started_ns, notice.at_ns)
    if after_ms is None:
        return notice.kind
    return f"{notice.kind} at {format_elapsed(after_ms)}"


def _process_rows(processes: Iterable[MeasuredProcessRow]) -> list[PageProcess]:
    rows: list[PageProcess] = []
    for measured in processes:
        process = measured.process
        row = (
            displayed_process_name(process),
            process.arguments,
            process.count,
            finite_or_none(measured.cpu_seconds.value),
            finite_or_none(measured.peak_mb.value),
            process.max_memory_used_processes,
            isinstance(measured.cpu_seconds, AtLeast),
            isinstance(measured.peak_mb, AtLeast),
        )
        rows.append(row)
    return rows


def _kills_row(record: Record, story: Story) -> tuple[str, list[PageProcess]] | None:
    sentence = story.first_sentence_named("killed")
    if not sentence or record.memory_kills is None:
        return None
    return sentence, _process_rows(measured_killed_rows(record.memory_kills.processes))


def _gpu_row(gpu: Gpu, record: Record) -> PageGpu:
    utilization = gpu.utilization_percent
    return PageGpu(
        name=_gpu_name(gpu, record),
        percent=gpu_percent_text(gpu, finite_or_none(utilization.avg)) or None,
        top=gpu_percent_text(gpu, finite_or_none(utilization.max)) or None,
        sm=gpu_active_text(gpu, finite_or_none(gpu.sm_active_percent.avg)) or None,
        idle=gpu_idle_text(gpu) or None,
        whose=whose_numbers(gpu, record),
        memory=gpu_memory_text(gpu) or known(_no_peak_text, gpu.memory_used_mb.max),
        size=finite_or_none(gpu.memory_limit_mb or gpu.memory_size_mb),
        watts=finite_or_none(gpu.power_watts.avg),
        celsius=finite_or_none(gpu.temperature_celsius.max),
        xids=list(gpu.xids) or None,
    )


def _no_peak_text(_: Number) -> str:
    """What stands for a memory peak of 0 MB, which is no bound."""
    return "none seen"


def _gpu_name(gpu: Gpu, record: Record) -> str:
    """The name; of one of several with its index, by which ``show`` names it."""
    name = gpu.name or gpu.uuid
    return name if gpu.index is None or len(record.gpus) == 1 else f"{gpu.index}: {name}"


def _neuron_row(neuron: Neuron) -> PageNeuron | None:
    """The devices, whose memory has no size of 0 MB; None if nothing was measured."""
    memory = neuron.device_memory_used_mb
    cores = []
    for core in neuron.cores:
        if core.utilization_percent != NOT_MEASURED:
            cores.append(_core_row(core))
    row = PageNeuron(
        cores=cores or None,
        mb=finite_or_none(memory.max),
        size=finite_or_none(neuron.device_memory_size_mb or None),
    )
    if neuron.executions is not None:
        row = replace(row, completed=neuron.executions.completed, failed=neuron.executions.failed)
    return None if row == PageNeuron() else row


def _core_row(core: NeuronCore) -> tuple[int, Number | None, Number | None]:
    use = core.utilization_percent
    return core.index, finite_or_none(use.avg), finite_or_none(use.max)


def _name_value_texts(texts: Mapping[str, str] | None) -> list[str] | None:
    if not texts:
        return None
    return [f"{name}={value}" for name, value in texts.items()]
