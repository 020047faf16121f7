"""What the page's program works on: one JSON text, safe inside a script element. Pure."""

import json
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from profiler.dashboard.runs import Run
from profiler.dashboard.series import Step, thinned
from profiler.record import Distribution, Gpu, Number, Record
from profiler.times import NS_PER_MS, parse_ns

MOST_STEPS = 100_000
MOST_STEPS_OF_A_RUN = 600
FEWEST_STEPS_OF_A_RUN = 60
# With plotly's 5 MB the page stays below 8 MB; courses that do not fit are left out, the oldest first.
MOST_BYTES = 2_700_000
_DIGITS = 3
_NONE = Distribution()
SHARED_TEXTS = frozenset({"family", "container", "outcome", "peakBy", "cluster", "launch", "labels", "warnings"})
# What HTML, or JavaScript in an old browser, would take for the end of the text; the rest is ASCII by json's own rule.
_ESCAPES = {"<": "\\u003c", ">": "\\u003e", "&": "\\u0026"}


def steps_of_each(runs: int) -> int:
    """How finely the course of a run is shown among so many."""
    return max(FEWEST_STEPS_OF_A_RUN, min(MOST_STEPS_OF_A_RUN, MOST_STEPS // max(runs, 1)))


def block(runs: Sequence[Run], *, generated_at: str, version: str, only_one: bool = False) -> str:
    """The JSON text of these runs, newest first."""
    rows = [_run(run) for run in runs]
    fields = list(dict.fromkeys(name for row in rows for name in row))
    texts = _Texts()
    content = {
        "version": version,
        "generatedAt": generated_at,
        "onlyOne": only_one,
        "fields": fields,
        "runs": [list(texts.placed(row, fields)) for row in rows],
        "texts": texts.all,
        "shared": sorted(SHARED_TEXTS),
    }
    without = _text(content)
    courses = _courses(runs, MOST_BYTES - len(without))
    return f'{without[:-1]},"courses":{{{",".join(courses)}}}}}'


class _Texts:
    """Texts that many runs have in common stand in the page once; a run names their places."""

    def __init__(self) -> None:
        self.all: list[str] = []
        self._places: dict[str, int] = {}

    def place(self, text: str) -> int:
        """Where the text stands."""
        if text not in self._places:
            self._places[text] = len(self.all)
            self.all.append(text)
        return self._places[text]

    def placed(self, row: Mapping[str, Any], fields: Iterable[str]) -> Iterator[object]:
        """The values of a run, with places for texts."""
        for field in fields:
            value = row.get(field)
            if field not in SHARED_TEXTS or value is None:
                yield value
            elif isinstance(value, list):
                yield [self.place(text) for text in value]
            else:
                yield self.place(value)


def _text(content: object) -> str:
    return escaped(json.dumps(content, separators=(",", ":"), allow_nan=False))


def escaped(json_text: str) -> str:
    """JSON that means the same and cannot end the script element that it stands in."""
    for character, escape in _ESCAPES.items():
        json_text = json_text.replace(character, escape)
    return json_text


def _courses(runs: Sequence[Run], most_bytes: int) -> Iterator[str]:
    """By the run's place in the list: columns of elapsed milliseconds, vCPU used and MB held."""
    of_each = steps_of_each(sum(1 for run in runs if run.steps))
    left_steps, left_bytes = MOST_STEPS, most_bytes
    for place, run in enumerate(runs):
        steps = thinned(run.steps, of_each)
        text = f'"{place}":{_text(_columns(steps))}'
        if not steps or len(steps) > left_steps or len(text) > left_bytes:
            continue
        left_steps -= len(steps)
        left_bytes -= len(text) + 1
        yield text


def _columns(steps: Iterable[Step]) -> dict[str, list[Number | None]]:
    steps = tuple(steps)
    return {
        "ms": [step.elapsed_ms for step in steps],
        "vcpu": [_short(step.vcpu_used) for step in steps],
        "mb": [_short(step.memory_used_mb, digits=1) for step in steps],
    }


def _run(run: Run) -> dict[str, Any]:
    record = run.report.record
    metrics = record.metrics
    vcpu = metrics.vcpu_used or _NONE
    cpu = metrics.cpu_utilization_percent or _NONE
    memory = metrics.memory_utilization_percent or _NONE
    began_ns = parse_ns(run.began)
    return _known(
        {
            "id": record.task_id,
            "family": record.family,
            "container": record.container.name,
            "outcome": outcome(record),
            "exit": record.exit_code,
            "began": None if began_ns is None else began_ns // NS_PER_MS,
            "ms": _short(metrics.duration_ms),
            "cpu": _short(cpu.avg),
            "memory": _short(memory.avg),
            "vcpuSize": _short(metrics.vcpu_size),
            "vcpuP95": _short(vcpu.p95),
            "vcpuMax": _short(vcpu.max),
            "cpuSeconds": _short(metrics.cpu_seconds),
            "size": _short(metrics.memory_size_mb),
            "peak": _short(metrics.max_memory_used_mb),
            "peakBy": metrics.memory_peak_source,
            "usd": _short(record.cost.usd, digits=6) if record.cost else None,
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
    return _known(
        {
            "name": gpu.name or gpu.uuid,
            "percent": _short(used.avg),
            "mb": _short(memory.max),
            "size": _short(gpu.memory_size_mb),
        }
    )


def _labels(labels: Mapping[str, str] | None) -> list[str] | None:
    return [f"{name}={value}" for name, value in labels.items()] if labels else None


def _known(fields: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in fields.items() if value is not None}


def _short(value: Number | None, digits: int = _DIGITS) -> Number | None:
    """Whole where it can be; digits that nobody sees would make the page long."""
    if value is None or not math.isfinite(value):
        return None
    rounded = round(value, digits)
    return int(rounded) if rounded == int(rounded) else rounded
