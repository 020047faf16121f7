"""The data of the page: one JSON text that is safe inside a script element.

The page must stay below 8 MB. If the data does not fit, details of runs and time series are left out first, then
the oldest runs.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

from msgspec import Struct

from profiler.core.timestamps import NS_PER_MS, parse_ns
from profiler.html_report.page import round_significant, round_to, to_script_json
from profiler.html_report.runs import Run, Step, downsample
from profiler.record.model import Distribution, Gpu, Number, Record, TaskSize, known_status
from profiler.record.units import MIB
from profiler.sizing.advice import Advice, advise
from profiler.sizing.evidence import LAST_RUNS, families_of
from profiler.sizing.policy import Policy
from profiler.sizing.prices import PriceOverrides

# The plotly library takes another 5 MB.
MAX_BYTES = 2_700_000
_SIZING_DIVISOR = 20
# Names and punctuation of the top-level object.
_KEYS_BYTES = 200
_COMMA_BYTES = 1

# Fields whose values repeat: a run refers to them by their index in a table of texts.
_SHARED_TEXTS = frozenset({"family", "container", "outcome", "peakBy", "cluster", "launch", "labels", "warnings"})
# Fields that only an opened run shows. They may be long.
_DETAILS = frozenset({"gpus", "labels", "warnings"})
# The time series get the other half of the bytes that the rows leave.
_DETAILS_SHARE = 0.5

MAX_STEPS = 100_000
_MAX_STEPS_PER_RUN = 600
_MIN_STEPS_PER_RUN = 60
_MS_PER_SECOND = 1000

_REPORT = "task.report"
_NO_DISTRIBUTION = Distribution()

Column = list[Number | None]


class PageData(Struct, frozen=True, kw_only=True):
    """The JSON text, the number of runs in it, and how many of these lack labels, warnings and GPUs."""

    text: str
    runs: int
    without_details: int


def build_page_data(
    runs: Sequence[Run],
    *,
    generated_at: str,
    version: str,
    only_one: bool = False,
    price_overrides: PriceOverrides | None = None,
    max_bytes: int = MAX_BYTES,
) -> PageData:
    """Build the data of the page.

    Args:
        runs: The runs, newest first.
        generated_at: Time of the page, ISO 8601.
        version: Version of the profiler.
        only_one: Whether the page shows a single run instead of the overview.
        price_overrides: Prices from the settings.
        max_bytes: Limit on the length of the text.
    """
    advice = _sizing_rows(runs, price_overrides or PriceOverrides(), max_bytes // _SIZING_DIVISOR)
    about = {
        "version": version,
        "generatedAt": generated_at,
        "onlyOne": only_one,
        "shared": sorted(_SHARED_TEXTS),
        "sizing": advice,
    }
    packed = pack_runs([_run_fields(run) for run in runs], max_bytes - len(to_script_json(about)) - _KEYS_BYTES)
    left_out = {"runs": len(runs) - len(packed.rows), "details": packed.without_details}
    content = {**about, "leftOut": left_out, "fields": packed.fields, "runs": packed.rows, "texts": packed.texts}
    without_series = to_script_json(content)
    left_bytes = max_bytes - len(without_series) - _KEYS_BYTES
    series = ",".join(series_members(runs[: len(packed.rows)], left_bytes))
    text = f'{without_series[:-1]},"courses":{{{series}}}}}'
    return PageData(text=text, runs=len(packed.rows), without_details=packed.without_details)


def outcome(record: Record) -> str:
    """Return the status, or ``out of memory`` for a run that was probably killed for it."""
    return "out of memory" if record.likely_out_of_memory else known_status(record)


def _run_fields(run: Run) -> dict[str, Any]:
    record = run.report.record
    metrics = record.metrics
    vcpu = metrics.vcpu_used or _NO_DISTRIBUTION
    cpu = metrics.cpu_utilization_percent or _NO_DISTRIBUTION
    memory = metrics.memory_utilization_percent or _NO_DISTRIBUTION
    started_ns = parse_ns(run.started_at)
    return _without_none(
        {
            "id": record.task_id,
            "family": record.family,
            "container": record.container.name,
            "outcome": outcome(record),
            "exit": record.exit_code,
            "began": None if started_ns is None else started_ns // NS_PER_MS,
            "ms": round_to(metrics.duration_ms),
            "cpu": round_to(cpu.avg),
            "memory": round_to(memory.avg),
            "vcpuSize": round_to(metrics.vcpu_size),
            "vcpuP95": round_to(vcpu.p95),
            "vcpuMax": round_to(vcpu.max),
            "cpuSeconds": round_to(metrics.cpu_seconds),
            "size": round_to(metrics.memory_size_mb),
            "peak": round_to(metrics.max_memory_used_mb),
            "peakBy": metrics.memory_peak_source,
            "usd": round_to(record.cost.usd, digits=6) if record.cost else None,
            "cluster": record.cluster,
            "launch": record.launch_type,
            "read": metrics.block_read_bytes,
            "written": metrics.block_write_bytes,
            "received": metrics.network_rx_bytes,
            "sent": metrics.network_tx_bytes,
            "gpus": [_gpu_fields(gpu) for gpu in record.gpus] or None,
            "labels": _labels(record.labels),
            "warnings": list(record.monitor.warnings) or None if record.monitor else None,
        }
    )


def _gpu_fields(gpu: Gpu) -> dict[str, Any]:
    utilization, memory = gpu.utilization_percent or _NO_DISTRIBUTION, gpu.memory_used_mb or _NO_DISTRIBUTION
    return _without_none(
        {
            "name": gpu.name or gpu.uuid,
            "percent": round_to(utilization.avg),
            "mb": round_to(memory.max),
            "size": round_to(gpu.memory_size_mb),
        }
    )


def _labels(labels: Mapping[str, str] | None) -> list[str] | None:
    return [f"{name}={value}" for name, value in labels.items()] if labels else None


def _without_none(fields: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in fields.items() if value is not None}


class PackedRuns(Struct, frozen=True, kw_only=True):
    """Runs as rows of values in the order of ``fields``. A shared text is given by its index in ``texts``."""

    fields: tuple[str, ...]
    rows: Sequence[Sequence[object]]
    texts: Sequence[str]
    without_details: int


def pack_runs(runs: Sequence[Mapping[str, Any]], max_bytes: int) -> PackedRuns:
    """Pack the newest runs that fit into ``max_bytes``; always at least one.

    Args:
        runs: The fields of each run, newest first.
        max_bytes: Limit on the length of rows and texts as JSON.
    """
    fields = tuple(dict.fromkeys(name for run in runs for name in run))
    texts = _TextTable()
    rows: list[list[object]] = []
    left_bytes = max_bytes - len(to_script_json(fields))
    for run in runs:
        values, length = texts.encode_values(run, [None if field in _DETAILS else field for field in fields])
        if length + _COMMA_BYTES > left_bytes and rows:
            texts.undo()
            break
        rows.append(values)
        left_bytes -= length + _COMMA_BYTES
    without_details = _add_details(rows, runs, fields, texts, round(left_bytes * _DETAILS_SHARE))
    return PackedRuns(fields=fields, rows=rows, texts=texts.texts, without_details=without_details)


def _add_details(
    rows: Sequence[list[object]],
    runs: Sequence[Mapping[str, Any]],
    fields: Sequence[str],
    texts: "_TextTable",
    left_bytes: int,
) -> int:
    """Add the details of the runs for which they fit. Returns the number of the other runs."""
    columns_of_details = [column for column, field in enumerate(fields) if field in _DETAILS]
    without_details = 0
    for row, run in zip(rows, runs, strict=False):
        values, length = texts.encode_values(run, [fields[column] for column in columns_of_details])
        more_bytes = length - len(to_script_json([None] * len(columns_of_details)))
        if more_bytes > left_bytes:
            texts.undo()
            without_details += 1
            continue
        left_bytes -= more_bytes
        for column, value in zip(columns_of_details, values, strict=True):
            row[column] = value
    return without_details


class _TextTable:
    """The shared texts and their indices."""

    def __init__(self) -> None:
        self.texts: list[str] = []
        self._indices: dict[str, int] = {}
        self._count_before = 0

    def encode_values(self, run: Mapping[str, Any], fields: Iterable[str | None]) -> tuple[list[object], int]:
        """Return the run's values of these fields, and their length as JSON with that of texts new to the table."""
        self._count_before = len(self.texts)
        values = [None if field is None else self._encode_value(field, run.get(field)) for field in fields]
        new_bytes = sum(len(to_script_json(text)) + _COMMA_BYTES for text in self.texts[self._count_before :])
        return values, len(to_script_json(values)) + new_bytes

    def undo(self) -> None:
        """Remove the texts that the last call of ``encode_values`` added."""
        for text in self.texts[self._count_before :]:
            del self._indices[text]
        del self.texts[self._count_before :]

    def _encode_value(self, field: str, value: object) -> object:
        if field not in _SHARED_TEXTS or value is None:
            return value
        return [self._index(text) for text in value] if isinstance(value, list) else self._index(str(value))

    def _index(self, text: str) -> int:
        if text not in self._indices:
            self._indices[text] = len(self.texts)
            self.texts.append(text)
        return self._indices[text]


def steps_per_run(runs: int) -> int:
    """Return the maximum number of steps in the time series of each of ``runs`` runs."""
    return max(_MIN_STEPS_PER_RUN, min(_MAX_STEPS_PER_RUN, MAX_STEPS // max(runs, 1)))


def series_members(runs: Sequence[Run], max_bytes: int) -> Iterator[str]:
    """Yield the time series as members of a JSON object, ``"INDEX":{…}``. A series that does not fit is left out."""
    max_steps = steps_per_run(sum(1 for run in runs if run.steps))
    left_steps, left_bytes = MAX_STEPS, max_bytes
    for index, run in enumerate(runs):
        steps = downsample(run.steps, max_steps)
        numbers = columns(steps)
        if not numbers:
            continue
        text = f'"{index}":{to_script_json(numbers)},'
        if len(steps) > left_steps or len(text) > left_bytes:
            continue
        left_steps -= len(steps)
        left_bytes -= len(text)
        yield text[:-1]


def columns(steps: Sequence[Step]) -> dict[str, Column]:
    """Turn steps into columns: the end of each step in ms after the start, and the measurements of the step.

    These are vCPU, MB of memory, MB read and written per second, percent and MB of the GPUs. A column without any
    value is left out; without any measurement the result is empty.
    """
    measured: dict[str, Column] = {
        "vcpu": [round_to(step.vcpu_used) for step in steps],
        "mb": [round_to(step.memory_used_mb, digits=1) for step in steps],
        "read": list(_rates(steps, lambda step: step.block_read_bytes)),
        "written": list(_rates(steps, lambda step: step.block_write_bytes)),
        "gpu": [round_to(step.gpu_percent, digits=1) for step in steps],
        "gpuMb": [round_to(step.gpu_memory_mb, digits=0) for step in steps],
    }
    known = {name: column for name, column in measured.items() if any(value is not None for value in column)}
    return {"ms": [step.elapsed_ms for step in steps], **known} if known else {}


def _rates(steps: Iterable[Step], bytes_of: Callable[[Step], int | None]) -> Iterator[Number | None]:
    """Yield MB per second, over the time since the last step whose bytes are known."""
    last_known_ms = 0
    for step in steps:
        growth_bytes, length_ms = bytes_of(step), step.elapsed_ms - last_known_ms
        if growth_bytes is None or length_ms <= 0:
            yield None
            continue
        last_known_ms = step.elapsed_ms
        yield round_significant(growth_bytes / MIB * _MS_PER_SECOND / length_ms)


def _sizing_rows(runs: Sequence[Run], price_overrides: PriceOverrides, max_bytes: int) -> list[dict[str, Any]]:
    """Recommend a size for each family, those with the most runs first. Families that do not fit are left out."""
    families = families_of((run.report for run in runs if run.report.type == _REPORT), last=LAST_RUNS)
    measured = [evidence for family in families.values() if (evidence := family.evidence()) is not None]
    rows: list[dict[str, Any]] = []
    left_bytes = max_bytes
    for evidence in sorted(measured, key=lambda evidence: (-evidence.runs, evidence.family)):
        row = _sizing_row(advise(evidence, Policy(), price_overrides))
        left_bytes -= len(to_script_json(row)) + _COMMA_BYTES
        if left_bytes < 0:
            break
        rows.append(row)
    return rows


def _sizing_row(advice: Advice) -> dict[str, Any]:
    choice = advice.choice
    return _without_none(
        {
            "family": advice.family,
            "size": _size_fields(choice.size),
            "changes": choice.changes,
            "saving": choice.saving_percent,
            "reasons": list(advice.reasons),
        }
    )


def _size_fields(size: TaskSize) -> dict[str, Any]:
    return _without_none({"vcpu": size.vcpu, "mb": size.memory_mb})
