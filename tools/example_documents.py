"""Fill a cluster with made-up runs, to look at the dashboards: outcomes, GPUs and their errors, NeuronCores,
growth of memory, notices.

    python -m tools.example_documents CLUSTER_URL [--families 40] [--days 7] [--dashboards URL]

The index templates must be installed: `task-profiler kibana import`. The last runs end now, and
one goes on. The same seed gives the same runs, except for their times.
"""

import argparse
import json
import math
import random
import sys
from collections import defaultdict
from collections.abc import Collection, Iterator, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, Final

import requests
from msgspec import Struct
from msgspec.structs import replace

from profiler.forwarder.document_updates import Document, with_runs_per_month
from profiler.forwarder.function_settings import ForwarderSettings
from profiler.forwarder.notice_documents import notice_document, schedule_notice_document
from profiler.forwarder.run_documents import report_document
from profiler.record.activity_model import TimeBreakdown
from profiler.record.family_statistics import highest_peak_of
from profiler.record.metric_catalogue import TIME_PARTS
from profiler.record.notice_model import encode_notice_line
from profiler.record.record_model import (
    NO_NEURON,
    NO_RECOMMENDATION,
    NOT_MEASURED,
    AverageAndMaximum,
    Distribution,
    Gpu,
    GpuIdle,
    GpuMemoryEvidence,
    Interval,
    Metrics,
    Neuron,
    NeuronCore,
    Recommendation,
    Record,
    Report,
    encode,
)
from profiler.record.unusual import MIN_RUNS
from tools.example_fleet import (
    FLEET,
    RESIZED,
    UsageCourse,
    cluster_of,
    demand,
    draw_course,
    job_of,
    series_of_course,
    steps_of,
    threads_of,
    waiting_from,
    with_course,
)
from tools.example_notices import run_notices, schedule_notice
from tools.example_runs import Batch
from tools.fleet import Fleet, draw_profile, generate_families
from tools.fleet_record import (
    GPU_MEMORY_MB,
    RunProfile,
    checkpoints_before,
    deployment_at,
    generate_report,
)

SEED: Final = 20261121
_GROWTH: Final = 1.0
_DAYS_PER_MONTH: Final = 30.4
# A longer run that somebody stops waits for an answer at its end.
_LONG_MS: Final = 70 * 60_000
_WAITED_MS: Final = 45 * 60_000
_USD_PER_VCPU_HOUR, _USD_PER_GIB_HOUR = 0.04048, 0.004445
_MIN_GIB_PER_VCPU: Final = 2
_GOING_ON: Final = timedelta(minutes=25)
_FULL, _SMALL = 0.9, 0.4
_STOPPED_SHARE, _UNKNOWN_SHARE = 0.03, 0.015
_NEURON_MEMORY_MB = 32_768
_BATCH_SIZE, _TIMEOUT_SECONDS = 500, 60
_SIZES: Final = (0.25, 0.5, 1.0, 2.0, 4.0, 8.0)
_STOPS: Final = (
    ("user", "UserInitiated", "Task stopped by the deployment of release 214"),
    ("spot", "SpotInterruption", "Your Spot Task was interrupted."),
)
# On which days of the week a GPU is another one than on the others, or fails.
_FIRST_DAY_OF_WHOLE_GPU: Final = 2
_OUT_OF_GPU_MEMORY_ON, _GPU_ERROR_ON = 3, 5
_OUT_OF_MEMORY_SHARE: Final = 0.96
_OUT_OF_MEMORY: Final = "OutOfMemoryError: Container killed due to memory usage"


def example_families(count: int) -> tuple[Batch, ...]:
    """The families of the pictures, and simulated ones if there are to be more."""
    simulated = generate_families(Fleet(runs_per_day=1, families=count))
    return (*FLEET, *(family.batch for family in simulated))[:count]


def documents(
    end: datetime, *, count: int, days: int, kibana_url: str | None = None
) -> Iterator[Document]:
    """Yield the documents of all runs that ended before ``end``, and of their checkpoints and
    notices.
    """
    rng = random.Random(SEED)
    settings = ForwarderSettings(kibana_url=kibana_url)
    peaks_mb = defaultdict[str | None, list[float]](list)
    for run in _ended_runs(end, example_families(count), days, rng):
        told = schedule_notice(run.report, run.batch, random.Random(run.seed))
        if told is not None:
            document = schedule_notice_document(told, encode_notice_line(told).decode(), settings)
            assert isinstance(document, Document)
            yield document
            if told.notice.kind == "missed":
                continue
        yield from _documents_of(run, rng, kibana_url)
        earlier_mb = peaks_mb[run.report.record.family]
        yield from _running_notices(run, earlier_mb, kibana_url)
        if run.report.record.status == "success":
            earlier_mb.append(run.report.record.metrics.max_memory_used_mb or 0)
    going_on = _run(example_families(count)[0], end - _GOING_ON, days, days, rng)
    yield from _checkpoints_of(going_on, kibana_url, before=end)


def ended_reports(end: datetime, *, families: Collection[str], days: int) -> Iterator[Report]:
    """Yield the reports of these families' runs that ended before ``end``, the oldest day first."""
    for run in _ended_runs(end, FLEET, days, random.Random(SEED)):
        if run.report.record.family in families:
            yield run.report


def _ended_runs(
    end: datetime, chosen: Sequence[Batch], days: int, rng: random.Random
) -> Iterator["_Run"]:
    for day in range(days + 1):
        midnight = (end - timedelta(days=days - day)).replace(
            hour=0, minute=0, second=0, microsecond=0
        )
        for batch in chosen:
            for hour in batch.hours:
                started_at = midnight + timedelta(hours=hour, seconds=rng.uniform(0, 240))
                run = _run(batch, started_at, day, days, rng)
                if datetime.fromisoformat(run.report.record.finished_at or "") < end:
                    yield run


class _Run(Struct, frozen=True, kw_only=True):
    """A run, its family's parameters, its course, and the size before a resize. ``seed`` is for
    its notices.
    """

    report: Report
    seed: str
    batch: Batch
    course: UsageCourse
    resized_from: str | None


def _run(batch: Batch, started_at: datetime, day: int, days: int, rng: random.Random) -> _Run:
    profile = draw_profile(batch, _GROWTH * day / days, rng, stopped_share=_STOPPED_SHARE)
    threads = threads_of(batch)
    resized_from = None
    resized_on = RESIZED.get(batch.family)
    if batch.gpu is not None and day in (_OUT_OF_GPU_MEMORY_ON, _GPU_ERROR_ON):
        failed = replace(profile, status="failure", exit_code=1, is_killed=False)
        profile = replace(failed, memory=min(profile.memory, _FULL))
    if resized_on is not None and day >= resized_on:
        resized_at = started_at - timedelta(days=day - resized_on)
        resized_from = f"{deployment_at(resized_at)}/{batch.vcpu * 2048:.0f}/{batch.memory_mb * 2}"
    elif resized_on is not None:
        # The same work in twice the size.
        batch = replace(
            batch,
            vcpu=batch.vcpu * 2,
            memory_mb=batch.memory_mb * 2,
            mapped_files=batch.mapped_files / 2,
        )
        profile = replace(profile, cpu=profile.cpu / 2, memory=profile.memory / 2)
    run = generate_report(batch, profile, started_at, rng)
    record = run.record
    if resized_from is not None:
        record = replace(record, revision=str(deployment_at(started_at) + 1))
    metrics = record.metrics
    drawn = draw_course(
        batch.family,
        cpu=profile.cpu,
        most_cpu=threads / batch.vcpu,
        peak=profile.memory,
        is_killed=profile.is_killed,
        steps=steps_of(profile.duration_ms),
        rng=rng,
    )
    if profile.status == "stopped" and profile.duration_ms > _LONG_MS:
        drawn = waiting_from(drawn, 1 - _WAITED_MS / profile.duration_ms)
    cpu = demand(drawn, batch)
    saturated_percent = cpu.saturated_percent(batch.vcpu)
    slowdowns = cpu.slowdown_by_vcpu(vcpu_size=batch.vcpu, max_threads=threads) or {}
    record = replace(
        record,
        metrics=replace(
            with_course(metrics, drawn, batch),
            max_pids=threads,
            vcpu_saturated_percent=saturated_percent,
            slowdown_at_vcpu={f"{vcpu:g}": bounds for vcpu, bounds in slowdowns.items()},
        ),
        series=series_of_course(drawn, batch, record.started_at or "", profile.duration_ms),
        time_breakdown=_time_breakdown(batch, drawn, saturated_percent or 0),
        recommendation=_recommendation(batch, profile),
        neuron=_neuron(rng) if batch.has_neuron else NO_NEURON,
    )
    if record.gpus:
        record = _with_gpu_of_day(record, day)
    job = job_of(batch.family, started_at, record.revision)
    if job is not None:
        record = replace(record, batch=job, cluster=cluster_of(job))
    return _Run(
        report=replace(run, record=record),
        seed=f"{SEED}{day}{batch.family}{started_at.hour}",
        batch=batch,
        course=drawn,
        resized_from=resized_from,
    )


def _with_gpu_of_day(record: Record, day: int) -> Record:
    """What the GPU of a day's run differs in: on the first days, it is a virtual one, whose driver
    says its use once a second; a run needs more memory than it has, and another one makes an error.
    """
    (gpu,) = record.gpus
    if day < _FIRST_DAY_OF_WHOLE_GPU:
        virtual = replace(gpu, name="GRID A100D-80C", utilization_source="once-a-second")
        return replace(
            record, gpus=(_virtual_gpu_without_times(virtual),), gpu_idle=_idle_of_all_gpus(record)
        )
    if day == _GPU_ERROR_ON:
        return replace(record, gpus=(replace(gpu, xids=(31,)),))
    if day != _OUT_OF_GPU_MEMORY_ON:
        return record
    held_mb = _OUT_OF_MEMORY_SHARE * GPU_MEMORY_MB
    memory = replace(gpu.memory_used_mb, max=held_mb)
    evidence = GpuMemoryEvidence(
        kind="memory-at-limit",
        uuid=gpu.uuid,
        own_mb=held_mb,
        used_mb=held_mb,
        limit_mb=GPU_MEMORY_MB,
    )
    return replace(
        record,
        gpus=(replace(gpu, memory_used_mb=memory),),
        likely_out_of_gpu_memory=True,
        gpu_memory_evidence=evidence,
    )


def _virtual_gpu_without_times(gpu: Gpu) -> Gpu:
    """A virtual GPU, of which one moment of each second is known: not when its work began and
    ended.
    """
    return replace(
        gpu,
        first_used_seconds=None,
        last_used_seconds=None,
        idle_before_seconds=None,
        idle_between_seconds=None,
        idle_after_seconds=None,
        sm_active_percent=NOT_MEASURED,
        energy_joules=None,
    )


def _idle_of_all_gpus(record: Record) -> GpuIdle | None:
    idle = record.gpu_idle
    return idle and GpuIdle(percent=idle.percent, gpu_hours=idle.gpu_hours)


def _time_breakdown(batch: Batch, drawn: UsageCourse, saturated_percent: float) -> TimeBreakdown:
    """Each family waits for other things; how long a run waits depends on its CPU usage.

    It waits for a CPU only while it uses all of them.
    """
    rng = random.Random(batch.family)
    on_cpu_percent = min(100 * sum(drawn.cpu) / len(drawn.cpu), 95)
    weights = {part: rng.expovariate(1) ** 2 for part in TIME_PARTS[1:]}
    weights["waiting_for_cpu"] *= saturated_percent / 100
    unit = (100 - on_cpu_percent) / sum(weights.values())
    waits: dict[str, Any] = {
        f"{part}_percent": round(weight * unit, 1) for part, weight in weights.items()
    }
    return TimeBreakdown(on_cpu_percent=round(on_cpu_percent, 1), **waits)


def _recommendation(batch: Batch, profile: RunProfile) -> Recommendation:
    """Twice the memory for a run that used almost all of it; less of what a run used little of,
    where Fargate has such a size.
    """
    if batch.has_accelerator:
        return NO_RECOMMENDATION
    vcpu = batch.vcpu
    memory_mb: float = batch.memory_mb
    if profile.memory >= _FULL:
        memory_mb = memory_mb * 2
    else:
        if profile.cpu < _SMALL and vcpu > _SIZES[0]:
            vcpu = vcpu / 2
        if profile.memory < _SMALL:
            memory_mb = max(memory_mb / 2, vcpu * _MIN_GIB_PER_VCPU * 1024)
    saving = 1 - _usd_per_hour(vcpu, memory_mb) / _usd_per_hour(batch.vcpu, batch.memory_mb)
    return Recommendation(vcpu=vcpu, memory_mb=memory_mb, saving_percent=round(100 * saving, 1))


def _usd_per_hour(vcpu: float, memory_mb: float) -> float:
    return vcpu * _USD_PER_VCPU_HOUR + memory_mb / 1024 * _USD_PER_GIB_HOUR


def _neuron(rng: random.Random) -> Neuron:
    percent = rng.uniform(55, 85)
    cores = tuple(
        NeuronCore(index=index, utilization_percent=Distribution(avg=round(percent, 1), max=97.0))
        for index in range(2)
    )
    memory = Distribution(avg=11_000.0, max=round(rng.uniform(12_000, 16_000), 1))
    return Neuron(
        cores=cores, device_memory_used_mb=memory, device_memory_size_mb=_NEURON_MEMORY_MB
    )


def _documents_of(run: _Run, rng: random.Random, kibana_url: str | None) -> Iterator[Document]:
    settings = ForwarderSettings(kibana_url=kibana_url)
    ended = report_document(run.report, encode(run.report).decode(), settings)
    assert isinstance(ended, Document)
    ended = with_runs_per_month(ended, len(run.batch.hours) * _DAYS_PER_MONTH)
    yield replace(ended, fields=_with_event(dict(ended.initial_fields), run, rng))
    yield from _checkpoints_of(run, kibana_url)


def _checkpoints_of(
    run: _Run, kibana_url: str | None, *, before: datetime | None = None
) -> Iterator[Document]:
    for checkpoint in checkpoints_before(run.report):
        if before is not None and datetime.fromisoformat(checkpoint.time) > before:
            return
        record = replace(
            checkpoint.record,
            series=None,
            interval=_interval(checkpoint, run),
            metrics=_metrics_until(checkpoint, run),
        )
        varied = replace(checkpoint, record=record)
        settings = ForwarderSettings(kibana_url=kibana_url)
        document = report_document(varied, encode(varied).decode(), settings)
        assert isinstance(document, Document)
        yield document


def _running_notices(
    run: _Run, earlier_mb: Sequence[float], kibana_url: str | None
) -> Iterator[Document]:
    """The notices that a monitor wrote before the end of a run, with the peaks of its family's
    earlier successes.
    """
    earlier = highest_peak_of(earlier_mb if len(earlier_mb) >= MIN_RUNS else (math.inf,))
    settings = ForwarderSettings(kibana_url=kibana_url)
    for line in run_notices(run.report, run.batch, run.course, earlier):
        document = notice_document(line, encode_notice_line(line).decode(), settings)
        assert isinstance(document, Document)
        yield document


def _with_event(fields: dict[str, Any], made: _Run, rng: random.Random) -> dict[str, Any]:
    """Add what the forwarder takes from ECS's event of the task's end."""
    run = made.report
    task = dict(fields["task"])
    event = dict(fields["event"])
    task["confirmed"] = True
    task["event_outcome"] = task["outcome"]
    if made.resized_from is not None:
        task["resized_from"] = made.resized_from
    if run.record.likely_out_of_memory:
        task |= {"stop_category": "oom", "out_of_memory": True, "stopped_reason": _OUT_OF_MEMORY}
        task["event_outcome"] = task["outcome"] = "oom"
    elif run.record.status == "stopped":
        category, code, reason = rng.choice(_STOPS)
        task |= {
            "status": "stopped",
            "stop_category": category,
            "outcome": category,
            "event_outcome": category,
            "stop_code": code,
            "stopped_reason": reason,
        }
        event["outcome"] = "unknown"
    elif run.record.status == "failure":
        task |= {"stop_category": "exit"}
    elif rng.random() < _UNKNOWN_SHARE:
        task["status"] = task["outcome"] = task["event_outcome"] = event["outcome"] = "unknown"
        task.pop("exit_code", None)
    return {**fields, "task": task, "event": event}


def _elapsed_share(checkpoint: Report, run: _Run) -> float:
    """The share of the run's duration, from 0 to 1, after which a checkpoint was written."""
    duration_ms = run.report.record.metrics.duration_ms or 1
    return (checkpoint.record.metrics.duration_ms or 0) / duration_ms


def _metrics_until(checkpoint: Report, run: _Run) -> Metrics:
    """The metrics of a running task: the highest memory of its course until then."""
    metrics = checkpoint.record.metrics
    step = run.course.step_at(_elapsed_share(checkpoint, run))
    peak = max(run.course.memory[: step + 1])
    return replace(
        metrics,
        max_memory_used_mb=round(peak * run.batch.memory_mb, 1),
        memory_used_mb=NOT_MEASURED,
        memory_utilization_percent=Distribution(max=round(100 * peak, 1)),
    )


def _interval(checkpoint: Report, run: _Run) -> Interval:
    """The values of one interval: those of the run's course."""
    record = run.report.record
    elapsed = _elapsed_share(checkpoint, run)
    step = run.course.step_at(elapsed)
    cpu = run.course.cpu[step]
    devices: dict[str, Any] = {}
    if run.batch.gpu is not None:
        devices["gpu_utilization_percent"] = AverageAndMaximum(
            avg=round(100 * run.batch.gpu * cpu**0.3, 1), max=99.0
        )
        used = GPU_MEMORY_MB * (0.1 + 0.7 * min(elapsed * 5, 1))
        devices["gpu_memory_used_mb"] = AverageAndMaximum(avg=round(used, 1), max=round(used, 1))
    if record.neuron != NO_NEURON:
        devices["neuron_utilization_percent"] = AverageAndMaximum(
            avg=round(90 * cpu**0.3, 1), max=96.0
        )
    return replace(
        checkpoint.record.interval,
        cpu_utilization_percent=Distribution(avg=round(100 * cpu, 2)),
        memory_used_mb=Distribution(max=round(run.course.memory[step] * run.batch.memory_mb, 1)),
        **devices,
    )


def send_documents(url: str, documents_to_send: Iterator[Document]) -> int:
    """Index all documents. Returns their number. Raises SystemExit if the cluster rejects one."""
    count = 0
    lines = []
    for document in documents_to_send:
        lines += [
            json.dumps({"index": {"_index": document.index, "_id": document.id}}),
            json.dumps(document.fields),
        ]
        count += 1
        if len(lines) == 2 * _BATCH_SIZE:
            _bulk(url, lines)
            lines = []
    if lines:
        _bulk(url, lines)
    requests.post(f"{url}/task-*/_refresh", timeout=_TIMEOUT_SECONDS).raise_for_status()
    return count


def _bulk(url: str, lines: Sequence[str]) -> None:
    body = "".join(f"{line}\n" for line in lines).encode()
    headers = {"Content-Type": "application/x-ndjson"}
    response = requests.post(f"{url}/_bulk", data=body, headers=headers, timeout=_TIMEOUT_SECONDS)
    response.raise_for_status()
    if response.json()["errors"]:
        raise SystemExit(f"The cluster rejected a document: {response.text[:500]}")


def main(arguments: Sequence[str]) -> None:
    """Fill the cluster."""
    parser = argparse.ArgumentParser(description="Fill a cluster with made-up runs.")
    parser.add_argument("url", help="Elasticsearch or OpenSearch")
    parser.add_argument("--families", type=int, default=len(FLEET))
    parser.add_argument("--days", type=int, default=7)
    parser.add_argument(
        "--dashboards", metavar="URL", help="the dashboards' server, for the links to a run"
    )
    options = parser.parse_args(arguments)
    made = documents(
        datetime.now(UTC), count=options.families, days=options.days, kibana_url=options.dashboards
    )
    count = send_documents(options.url.rstrip("/"), made)
    print(f"{count} documents of {options.families} families")


if __name__ == "__main__":
    main(sys.argv[1:])
