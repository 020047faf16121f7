"""The data of the page: one JSON text, safe inside a script element."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

from msgspec import Struct

from profiler.core.timestamps import NS_PER_MS, parse_ns
from profiler.html_report.page import round_significant, round_to, to_script_json
from profiler.html_report.runs import BYTES_PER_MB, Run, Step, downsample
from profiler.record.model import Distribution, Gpu, Number, Record, TaskSize
from profiler.sizing.advice import Advice, advise
from profiler.sizing.evidence import LAST_RUNS, families_of
from profiler.sizing.policy import Policy
from profiler.sizing.prices import PriceOverrides

SHARED_TEXTS = frozenset({"family", "container", "outcome", "peakBy", "cluster", "launch", "labels", "warnings"})
# What is shown of a run that is opened, and may be long.
DETAILS = frozenset({"gpus", "labels", "warnings"})
# The other half of what the rows leave is for the runs' courses.
_SHARE_OF_DETAILS = 0.5
_COMMA = 1
_NULL = len("null")


class PackedRuns(Struct, frozen=True, kw_only=True):
    """As many runs as fit, each with its values in the order of ``fields``; a shared text is its place in ``texts``."""

    fields: tuple[str, ...]
    rows: Sequence[Sequence[object]]
    texts: Sequence[str]
    without_details: int


def pack_runs(runs: Sequence[Mapping[str, Any]], max_bytes: int) -> PackedRuns:
    """The runs, newest first, in at most so many bytes; the newest is there in any case."""
    fields = tuple(dict.fromkeys(name for run in runs for name in run))
    texts = _TextTable()
    rows: list[list[object]] = []
    left_bytes = max_bytes - len(to_script_json(fields))
    for run in runs:
        values, length = texts.encode_values(run, [None if field in DETAILS else field for field in fields])
        if length + _COMMA > left_bytes and rows:
            texts.undo()
            break
        rows.append(values)
        left_bytes -= length + _COMMA
    without = _add_details(rows, runs, fields, texts, round(left_bytes * _SHARE_OF_DETAILS))
    return PackedRuns(fields=fields, rows=rows, texts=texts.all, without_details=without)


def _add_details(
    rows: Sequence[list[object]],
    runs: Sequence[Mapping[str, Any]],
    fields: Sequence[str],
    texts: "_TextTable",
    left_bytes: int,
) -> int:
    """Fill in the details where they fit; says for how many runs they did not."""
    places = [place for place, field in enumerate(fields) if field in DETAILS]
    without = 0
    for row, run in zip(rows, runs, strict=False):
        values, length = texts.encode_values(run, [fields[place] for place in places])
        more_bytes = length - len(to_script_json([None] * len(places)))
        if more_bytes > left_bytes:
            texts.undo()
            without += 1
            continue
        left_bytes -= more_bytes
        for place, value in zip(places, values, strict=True):
            row[place] = value
    return without


class _TextTable:
    """The texts so far, and where each stands."""

    def __init__(self) -> None:
        self.all: list[str] = []
        self._places: dict[str, int] = {}
        self._size_before = 0

    def encode_values(self, run: Mapping[str, Any], fields: Iterable[str | None]) -> tuple[list[object], int]:
        """A run's values of these fields, with places for texts, and how long they and the new texts are."""
        self._size_before = len(self.all)
        values = [None if field is None else self._value(field, run.get(field)) for field in fields]
        new_bytes = sum(len(to_script_json(text)) + _COMMA for text in self.all[self._size_before :])
        return values, len(to_script_json(values)) + new_bytes

    def undo(self) -> None:
        """Forget the texts that were new in the last run."""
        for text in self.all[self._size_before :]:
            del self._places[text]
        del self.all[self._size_before :]

    def _value(self, field: str, value: object) -> object:
        if field not in SHARED_TEXTS or value is None:
            return value
        return [self._place(text) for text in value] if isinstance(value, list) else self._place(str(value))

    def _place(self, text: str) -> int:
        if text not in self._places:
            self._places[text] = len(self.all)
            self.all.append(text)
        return self._places[text]


MAX_STEPS = 100_000
MAX_STEPS_PER_RUN = 600
MIN_STEPS_PER_RUN = 60
_MS_PER_SECOND = 1000

Column = list[Number | None]


def steps_per_run(runs: int) -> int:
    """How finely the course of a run is shown among so many."""
    return max(MIN_STEPS_PER_RUN, min(MAX_STEPS_PER_RUN, MAX_STEPS // max(runs, 1)))


def series_members(runs: Sequence[Run], max_bytes: int) -> Iterator[str]:
    """JSON members: by the run's place in the list, the columns of its course; those that do not fit are left out."""
    of_each = steps_per_run(sum(1 for run in runs if run.steps))
    left_steps, left_bytes = MAX_STEPS, max_bytes
    for place, run in enumerate(runs):
        steps = downsample(run.steps, of_each)
        numbers = columns(steps)
        if not numbers:
            continue
        text = f'"{place}":{to_script_json(numbers)},'
        if len(steps) > left_steps or len(text) > left_bytes:
            continue
        left_steps -= len(steps)
        left_bytes -= len(text)
        yield text[:-1]


def columns(steps: Sequence[Step]) -> dict[str, Column]:
    """Elapsed milliseconds and what was measured up to each; empty if nothing was.

    vCPU, MB of memory, MB read and written a second, percent and MB of the GPUs. A column without
    a number is left out.
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


def _rates(steps: Iterable[Step], of: Callable[[Step], int | None]) -> Iterator[Number | None]:
    """MB a second, over the time since the bytes were last known."""
    known_at_ms = 0
    for step in steps:
        grown_bytes, length_ms = of(step), step.elapsed_ms - known_at_ms
        if grown_bytes is None or length_ms <= 0:
            yield None
            continue
        known_at_ms = step.elapsed_ms
        yield round_significant(grown_bytes / BYTES_PER_MB * _MS_PER_SECOND / length_ms)


_REPORT = "task.report"
_COMMA_BYTES = 1


def sizing(runs: Sequence[Run], price_overrides: PriceOverrides, max_bytes: int) -> list[dict[str, Any]]:
    """By family, those with the most runs first; what does not fit is left out."""
    families = families_of((run.report for run in runs if run.report.type == _REPORT), last=LAST_RUNS)
    found = [evidence for family in families.values() if (evidence := family.evidence()) is not None]
    rows: list[dict[str, Any]] = []
    left_bytes = max_bytes
    for evidence in sorted(found, key=lambda one: (-one.runs, one.family)):
        row = _row(advise(evidence, Policy(), price_overrides))
        left_bytes -= len(to_script_json(row)) + _COMMA_BYTES
        if left_bytes < 0:
            break
        rows.append(row)
    return rows


def _row(advice: Advice) -> dict[str, Any]:
    choice = advice.choice
    row = {
        "family": advice.family,
        "size": _size(choice.size),
        "changes": choice.changes,
        "saving": choice.saving_percent,
        "reasons": list(advice.reasons),
    }
    return {name: value for name, value in row.items() if value is not None}


def _size(size: TaskSize) -> dict[str, Any]:
    known = {"vcpu": size.vcpu, "mb": size.memory_mb}
    return {name: value for name, value in known.items() if value is not None}


# With plotly's 5 MB the page stays below 8 MB: labels and courses that do not fit are left out, then whole runs,
# the oldest first.
MAX_BYTES = 2_700_000
_SHARE_OF_SIZING = 20
# The names of the block's parts and what stands between them.
_KEYS_BYTES = 200
_NONE = Distribution()


class PageData(Struct, frozen=True, kw_only=True):
    """The JSON text, how many of the runs are in it, and how many of these without their labels, warnings and GPUs."""

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
    """These runs, newest first, as far as they fit, and the right sizes of their families."""
    advice = sizing(runs, price_overrides or PriceOverrides(), max_bytes // _SHARE_OF_SIZING)
    about = {
        "version": version,
        "generatedAt": generated_at,
        "onlyOne": only_one,
        "shared": sorted(SHARED_TEXTS),
        "sizing": advice,
    }
    kept = pack_runs([_run(run) for run in runs], max_bytes - len(to_script_json(about)) - _KEYS_BYTES)
    left_out = {"runs": len(runs) - len(kept.rows), "details": kept.without_details}
    content = {**about, "leftOut": left_out, "fields": kept.fields, "runs": kept.rows, "texts": kept.texts}
    without_series = to_script_json(content)
    shown = ",".join(series_members(runs[: len(kept.rows)], max_bytes - len(without_series) - _KEYS_BYTES))
    text = f'{without_series[:-1]},"courses":{{{shown}}}}}'
    return PageData(text=text, runs=len(kept.rows), without_details=kept.without_details)


def _run(run: Run) -> dict[str, Any]:
    record = run.report.record
    metrics = record.metrics
    vcpu = metrics.vcpu_used or _NONE
    cpu = metrics.cpu_utilization_percent or _NONE
    memory = metrics.memory_utilization_percent or _NONE
    began_ns = parse_ns(run.began)
    return _without_none(
        {
            "id": record.task_id,
            "family": record.family,
            "container": record.container.name,
            "outcome": outcome(record),
            "exit": record.exit_code,
            "began": None if began_ns is None else began_ns // NS_PER_MS,
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
            "gpus": [_gpu(gpu) for gpu in record.gpus] or None,
            "labels": _labels(record.labels),
            "warnings": list(record.monitor.warnings) or None if record.monitor else None,
        }
    )


def outcome(record: Record) -> str:
    """The status; a run that probably was killed for its memory is an outcome of its own."""
    return "out of memory" if record.likely_out_of_memory else record.status


def _gpu(gpu: Gpu) -> dict[str, Any]:
    used, memory = gpu.utilization_percent or _NONE, gpu.memory_used_mb or _NONE
    return _without_none(
        {
            "name": gpu.name or gpu.uuid,
            "percent": round_to(used.avg),
            "mb": round_to(memory.max),
            "size": round_to(gpu.memory_size_mb),
        }
    )


def _labels(labels: Mapping[str, str] | None) -> list[str] | None:
    return [f"{name}={value}" for name, value in labels.items()] if labels else None


def _without_none(fields: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in fields.items() if value is not None}
