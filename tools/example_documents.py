"""Fill a cluster with made-up runs, to look at the dashboards: outcomes, a GPU, NeuronCores,
growth of memory, notices.

    python -m tools.example_documents CLUSTER_URL [--families 9] [--days 7] [--dashboards URL]

The index templates must be installed: `task-profiler kibana import`. The runs end now. The same
seed gives the same runs, except for their times.
"""

import argparse
import json
import math
import random
import sys
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, Final

import requests
from msgspec.structs import replace

from profiler.forwarder.documents import (
    Document,
    notice_document,
    report_document,
    schedule_notice_document,
)
from profiler.forwarder.function_settings import ForwarderSettings
from profiler.forwarder.task_lines import InvalidReport
from profiler.record.activity_model import TimeBreakdown
from profiler.record.metric_catalogue import TIME_PARTS
from profiler.record.notice_model import (
    Notice,
    NoticedSchedule,
    NoticeLine,
    ScheduleNotice,
    ScheduleNoticeLine,
    encode_notice,
)
from profiler.record.record_model import (
    AverageAndMaximum,
    Distribution,
    Interval,
    Neuron,
    NeuronCore,
    Recommendation,
    Report,
    SlowdownBounds,
    encode,
)
from tools.example_runs import BATCHES, Batch
from tools.fleet import Fleet, draw_profile, families
from tools.fleet_record import RunProfile, checkpoints, report

SEED: Final = 20261121
_NEURON: Final = Batch(
    family="embed-texts", hours=(1, 13), minutes=38, vcpu=8, memory_mb=32_768, cpu=0.4, memory=0.5
)
_GROWTH: Final = 1.7
_STOPPED_SHARE = 0.03
_UNKNOWN_SHARE = 0.015
_GPU_MEMORY_MB = 24_576
_NEURON_MEMORY_MB = 32_768
_BATCH_SIZE = 500
_TIMEOUT_SECONDS = 60
_SIZES: Final = (0.25, 0.5, 1.0, 2.0, 4.0, 8.0)
_STOPS: Final = (
    ("user", "UserInitiated", "Task stopped by the deployment of release 214"),
    ("spot", "SpotInterruption", "Your Spot Task was interrupted."),
)
_NOTICE_SHARE: Final = 0.06
_RUN_NOTICES: Final = {
    "stuck": "The run used less than 0.01 vCPU and 1 KB/s of network and disk for 30 minutes; "
    "it has waited mostly for network 10.0.3.9:5432.",
    "overdue": "The run has taken 1h 30m; 1h 00m were expected.",
    "memory": (
        "The run uses 1.7 GB of its 2 GB memory and reaches the limit in 9 minutes if it grows "
        "as before."
    ),
    "disk": (
        "The task uses 17.2 GB of its 20 GB ephemeral storage and fills it in 12 minutes if that "
        "grows as before."
    ),
}
_SCHEDULE_NOTICES: Final = {
    "missed": (
        "no task was started: RunTask was refused, because the capacity is unavailable at this "
        "time."
    ),
    "late": "the task was started 22 minutes late.",
    "overlapped": "the previous run was still running.",
    "slow": "the run has taken 2h 10m; 95 % of the successes took at most 1h 05m.",
}
_OUT_OF_MEMORY: Final = "OutOfMemoryError: Container killed due to memory usage"


def batches(count: int) -> tuple[Batch, ...]:
    """The families of the pictures, and simulated ones if there are to be more."""
    simulated = families(Fleet(runs_per_day=1, families=count))
    return (*BATCHES, _NEURON, *(family.batch for family in simulated))[:count]


def documents(
    end: datetime, *, count: int, days: int, kibana_url: str | None = None
) -> Iterator[Document]:
    """Yield the documents of all runs that ended before ``end``, and of their checkpoints and
    notices.
    """
    rng = random.Random(SEED)
    for day in range(days + 1):
        midnight = (end - timedelta(days=days - day)).replace(
            hour=0, minute=0, second=0, microsecond=0
        )
        for batch in batches(count):
            for hour in batch.hours:
                started_at = midnight + timedelta(hours=hour, seconds=rng.uniform(0, 240))
                run = _run(batch, started_at, day / days, rng)
                if datetime.fromisoformat(run.record.finished_at or "") < end:
                    yield from _documents_of(run, batch, rng, kibana_url)
                    yield from _notices_of(
                        run, random.Random(f"{SEED}{day}{batch.family}{hour}"), kibana_url
                    )


def _run(batch: Batch, started_at: datetime, progress: float, rng: random.Random) -> Report:
    profile = draw_profile(batch, _GROWTH * progress, rng, stopped_share=_STOPPED_SHARE)
    run = report(batch, profile, started_at, rng)
    record = run.record
    metrics = run.record.metrics
    saturated = max(0.0, profile.cpu - 0.6) * 100
    slowdowns = {
        f"{size:g}": SlowdownBounds(min=round(share, 2), max=round(share * 1.3, 2))
        for size in _SIZES
        if size < batch.vcpu and (share := profile.cpu * batch.vcpu / size) > 1
    }
    record = replace(
        record,
        metrics=replace(
            metrics, vcpu_saturated_percent=round(saturated, 1), slowdown_at_vcpu=slowdowns
        ),
        time_breakdown=_time_breakdown(batch, profile),
        recommendation=_recommendation(batch, profile),
        neuron=_neuron(rng) if batch.family == _NEURON.family else None,
    )
    return replace(run, record=record)


def _time_breakdown(batch: Batch, profile: RunProfile) -> TimeBreakdown:
    """Each family waits for other things; how long a run waits depends on its CPU usage."""
    rng = random.Random(batch.family)
    on_cpu_percent = min(100 * profile.cpu, 95)
    weights = {part: rng.expovariate(1) ** 2 for part in TIME_PARTS[1:]}
    unit = (100 - on_cpu_percent) / sum(weights.values())
    waits: dict[str, Any] = {
        f"{part}_percent": round(weight * unit, 1) for part, weight in weights.items()
    }
    return TimeBreakdown(on_cpu_percent=round(on_cpu_percent, 1), **waits)


def _recommendation(batch: Batch, profile: RunProfile) -> Recommendation | None:
    """Twice the memory for a run that used almost all of it, half the size for a run that used
    little.
    """
    if batch.gpu is not None:
        return None
    if profile.memory >= 0.9:  # noqa: PLR2004
        return Recommendation(vcpu=batch.vcpu, memory_mb=batch.memory_mb * 2, saving_percent=-24.0)
    if max(profile.cpu, profile.memory) < 0.4 and batch.vcpu > _SIZES[0]:  # noqa: PLR2004
        return Recommendation(
            vcpu=batch.vcpu / 2, memory_mb=batch.memory_mb / 2, saving_percent=50.0
        )
    return Recommendation(vcpu=batch.vcpu, memory_mb=batch.memory_mb, saving_percent=0.0)


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


def _documents_of(
    run: Report, batch: Batch, rng: random.Random, kibana_url: str | None
) -> Iterator[Document]:
    ended = report_document(run, encode(run).decode(), ForwarderSettings(kibana_url=kibana_url))
    assert isinstance(ended, Document)
    yield replace(ended, fields=_with_event(dict(ended.initial_fields), run, rng))
    for number, checkpoint in enumerate(checkpoints(run)):
        record = replace(checkpoint.record, interval=_interval(checkpoint, run, batch, number))
        varied = replace(checkpoint, record=record)
        document = report_document(
            varied, encode(varied).decode(), ForwarderSettings(kibana_url=kibana_url)
        )
        assert isinstance(document, Document)
        yield document


def _notices_of(run: Report, rng: random.Random, kibana_url: str | None) -> Iterator[Document]:
    """Some runs have a notice, and some schedules did not start the run in time."""
    record = run.record
    documents = list[Document | InvalidReport]()
    if rng.random() < _NOTICE_SHARE:
        kind = rng.choice(list(_RUN_NOTICES))
        notice = Notice(kind=kind, message=_RUN_NOTICES[kind], since=record.started_at)
        line = NoticeLine(time=run.time, notice=notice, record=record)
        documents.append(
            notice_document(
                line, encode_notice(line).decode(), ForwarderSettings(kibana_url=kibana_url)
            )
        )
    if rng.random() < _NOTICE_SHARE:
        kind = rng.choice(list(_SCHEDULE_NOTICES))
        name = record.family or ""
        message = (
            f"{name} was due at {(record.started_at or '')[11:16]} and {_SCHEDULE_NOTICES[kind]}"
        )
        due = ScheduleNoticeLine(
            time=run.time,
            notice=ScheduleNotice(kind=kind, message=message, due_at=record.started_at),
            schedule=NoticedSchedule(
                kind="schedule", name=name, group="default", expression="rate(1 hour)"
            ),
            cluster=record.cluster,
            family=name,
            region=record.region,
            account_id=record.account_id,
        )
        documents.append(
            schedule_notice_document(
                due, encode_notice(due).decode(), ForwarderSettings(kibana_url=kibana_url)
            )
        )
    yield from (document for document in documents if isinstance(document, Document))


def _with_event(fields: dict[str, Any], run: Report, rng: random.Random) -> dict[str, Any]:
    """Add what the forwarder takes from ECS's event of the task's end."""
    task = dict(fields["task"])
    event = dict(fields["event"])
    if run.record.likely_out_of_memory:
        task |= {"stop_category": "oom", "out_of_memory": True, "stopped_reason": _OUT_OF_MEMORY}
    elif run.record.status == "stopped":
        category, code, reason = rng.choice(_STOPS)
        task |= {
            "status": "stopped",
            "stop_category": category,
            "stop_code": code,
            "stopped_reason": reason,
        }
        event["outcome"] = "unknown"
    elif run.record.status == "failure":
        task |= {"stop_category": "exit"}
    elif rng.random() < _UNKNOWN_SHARE:
        task["status"] = event["outcome"] = "unknown"
        task.pop("exit_code", None)
    return {**fields, "task": task, "event": event}


def _interval(checkpoint: Report, run: Report, batch: Batch, number: int) -> Interval:
    """The values of one interval: a course over the run instead of the run's mean."""
    before = checkpoint.record.interval or Interval()
    metrics = run.record.metrics
    elapsed = number * 60_000 / (metrics.duration_ms or 1)
    wave = 0.8 + 0.35 * math.sin(elapsed * 19) - (0.5 if 0.42 < elapsed < 0.5 else 0)  # noqa: PLR2004
    cpu = min((metrics.cpu_utilization_percent or Distribution()).avg or 0, 80) * wave
    memory = (metrics.max_memory_used_mb or 0) * (0.25 + 0.75 * min(elapsed * 1.1, 1) ** 0.7)
    devices: dict[str, Any] = {}
    if batch.gpu is not None:
        devices["gpu_utilization_percent"] = AverageAndMaximum(
            avg=round(100 * batch.gpu * min(wave, 1), 1), max=99.0
        )
        used = _GPU_MEMORY_MB * (0.1 + 0.7 * min(elapsed * 5, 1))
        devices["gpu_memory_used_mb"] = AverageAndMaximum(avg=round(used, 1), max=round(used, 1))
    if run.record.neuron is not None:
        devices["neuron_utilization_percent"] = AverageAndMaximum(
            avg=round(70 * min(wave, 1), 1), max=96.0
        )
    return replace(
        before,
        cpu_utilization_percent=Distribution(avg=round(max(cpu, 0.5), 2)),
        memory_used_mb=Distribution(max=round(memory, 1)),
        **devices,
    )


def send(url: str, documents_to_send: Iterator[Document]) -> int:
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
    parser.add_argument("--families", type=int, default=len(BATCHES) + 1)
    parser.add_argument("--days", type=int, default=7)
    parser.add_argument(
        "--dashboards", metavar="URL", help="the dashboards' server, for the links to a run"
    )
    options = parser.parse_args(arguments)
    made = documents(
        datetime.now(UTC), count=options.families, days=options.days, kibana_url=options.dashboards
    )
    count = send(options.url.rstrip("/"), made)
    print(f"{count} documents of {options.families} families")


if __name__ == "__main__":
    main(sys.argv[1:])
