"""Runs whose numbers and ends are drawn at random, and agree with one another."""

from typing import Any

from hypothesis import strategies as st
from msgspec.structs import replace

from profiler.core.timestamps import NS_PER_MS, NS_PER_SECOND, format_ms, parse_ns
from profiler.record.activity_model import TimeBreakdown, WaitTarget
from profiler.record.batch_job import BatchJob
from profiler.record.record_model import (
    AverageAndMaximum,
    Distribution,
    MemoryKills,
    Metrics,
    Monitor,
    OtherContainer,
    Process,
    Processor,
    Record,
    Report,
    Visible,
)
from tests import shown_runs
from tests.awkward_runs import recommended
from tests.gpu_runs import gpu_run
from tests.runs import report
from tests.values import present

# Fargate's pairs, and a container's own limit on an instance.
_SIZES = ((0.25, 512), (0.5, 1024), (1, 2048), (1, 8192), (2, 5120), (4, 30720), (16, 122880))
# How a run ends: its status, its exit code, and whether it was out of memory.
_ENDS: Any = (
    ("success", 0, False),
    ("failure", 1, False),
    ("failure", 139, False),
    ("failure", 137, True),
    ("stopped", 143, False),
    ("unknown", None, None),
)
_MS_PER_WEEK = 7 * 86_400_000


def _numbers(least: float, most: float) -> st.SearchStrategy[float]:
    """Each order of magnitude is as likely."""
    return st.integers(0, 1000).map(lambda place: least * (most / least) ** (place / 1000))


@st.composite
def random_runs(draw: st.DrawFn) -> Report:
    """A report as the monitor writes it, with cost and recommended size."""
    vcpu, size_mb = draw(st.sampled_from(_SIZES))
    duration_ms = round(draw(_numbers(1, _MS_PER_WEEK)))
    average = draw(_numbers(0.001, 1)) * vcpu
    most = min(2 * average, vcpu)
    peak_mb = draw(_numbers(0.3, size_mb))
    status, exit_code, is_out_of_memory = draw(st.sampled_from(_ENDS))
    read_bytes, write_bytes = (round(draw(_numbers(1, 1e13))) for _ in range(2))
    made = report(
        peak_mb=peak_mb,
        size=(vcpu, size_mb),
        status=status,
        exit_code=exit_code,
        likely_out_of_memory=is_out_of_memory,
        launch_type=draw(st.sampled_from(("FARGATE", "EC2"))),
        metrics={
            "duration_ms": duration_ms,
            "billed_duration_ms": max(duration_ms, 60_000),
            "cpu_seconds": average * duration_ms / 1000,
            "vcpu_used": Distribution(avg=average, p95=average, max=most),
            "cpu_utilization_percent": Distribution(
                avg=100 * average / vcpu, p95=100 * average / vcpu, max=100 * most / vcpu
            ),
            "memory_peak_source": draw(st.sampled_from(("kernel", "sampled"))),
            "block_read_bytes": read_bytes,
            "block_write_bytes": write_bytes,
        },
    )
    ended_ns = present(parse_ns(made.record.started_at)) + duration_ms * NS_PER_MS
    record = replace(made.record, finished_at=format_ms(ended_ns))
    sampling = replace(
        record.sampling,
        samples=draw(st.sampled_from((1, 590))),
        cpu_covered_percent=draw(st.sampled_from((None, 40.0))),
    )
    record = replace(record, sampling=sampling)
    ended = replace(made, time=format_ms(ended_ns + NS_PER_SECOND), record=record)
    return recommended(lambda: ended)


_TAPES = ("short", "illegal", "oom", "neighbour", "beside", "starved", "copies", "two")
_JOB = BatchJob(
    job_id="0f8fad5b-d9cb-469f-a165-70867728950e", job_definition="load", attempt=2, queue="spot"
)
_JOB_CLUSTER = "AWSBatch-spot-0a1b2c3d-1111-2222-3333-444455556666"
_NAMES = st.sampled_from(("python3", "gzip", "java", "w"))
_SIZED = st.none() | _numbers(1, 1e5)
_PROCESSES = st.builds(
    Process,
    name=_NAMES,
    count=st.none() | st.integers(1, 300),
    cpu_seconds=_SIZED,
    max_memory_used_mb=_SIZED,
).filter(lambda process: process.cpu_seconds or process.max_memory_used_mb)


@st.composite
def _bases(draw: st.DrawFn) -> Report:
    """A task, a container or a program with GPUs, one with NeuronCores, or a local program."""
    kind = draw(st.sampled_from(("task", "GPU", "neuron", "local", "unmeasured")))
    if kind == "GPU":
        return gpu_run(draw(st.sampled_from(_TAPES)), as_batch=draw(st.booleans()))
    if kind == "task":
        return draw(random_runs())
    made = {"neuron": shown_runs.neuron, "local": shown_runs.local}
    return made.get(kind, shown_runs.unmeasured)()


def _parts(draw: st.DrawFn, record: Record) -> dict[str, Any]:
    """What else the record of a run can have: each part with its chance."""
    found: dict[str, Any] = {}
    if record.launch_type == "EC2" and draw(st.booleans()):
        found |= {"batch": _JOB, "cluster": _JOB_CLUSTER, "family": "load"}
    if draw(st.booleans()):
        found["processes"] = tuple(draw(st.lists(_PROCESSES, min_size=1, max_size=4)))
    if draw(st.booleans()):
        rows = tuple(Process(name=name) for name in draw(st.lists(_NAMES, max_size=3)))
        found["memory_kills"] = MemoryKills(count=len(rows) + 1, processes=rows)
    if draw(st.booleans()):
        sidecars = (
            OtherContainer(name="router", metrics=Metrics(max_memory_used_mb=12)),
            (OtherContainer(name="proxy", status="success", exit_code=0)),
        )
        found["containers"] = sidecars
    if draw(st.booleans()):
        found["visible"] = Visible(cpus=64, memory_mb=515_000)
    if draw(st.booleans()):
        found["monitor"] = Monitor(warnings=("docker stats: no answer for 30 s",))
    if draw(st.booleans()):
        network = draw(st.integers(30, 69))
        found["time_breakdown"] = TimeBreakdown(
            on_cpu_percent=30,
            network_percent=network,
            waiting_for=(WaitTarget(kind="network", target="10.0.3.9:5432", percent=network),),
            covered_percent=draw(st.sampled_from((60.0, 99.0))),
        )
        found["processor"] = Processor(count=2, others_vcpu_used=1.44)
    if draw(st.booleans()) and record.gpus:
        first, *others = record.gpus
        changed = replace(
            first,
            shared=draw(st.sampled_from((first.shared, True))),
            xids=draw(st.sampled_from(((), (31,), (79,)))),
            ecc_uncorrected=draw(st.sampled_from((None, 3))),
        )
        found["gpus"] = (changed, *others)
    if draw(st.booleans()) and record.neuron.cores:
        found["neuron"] = replace(record.neuron, ecc_uncorrected=2)
    return found


@st.composite
def told_runs(draw: st.DrawFn) -> Report:
    """Any run whose story has rows: GPUs, a job of AWS Batch, several containers, kills, mapped
    files, limits that the program does not see, bounded values.
    """
    made = draw(_bases())
    record = made.record
    metrics = record.metrics
    if metrics.has_memory and draw(st.booleans()):
        peak_mb = present(metrics.max_memory_used_mb)
        metrics = replace(
            metrics,
            memory_mapped_file_mb=AverageAndMaximum(max=peak_mb / 2),
            memory_huge_pages_mb=AverageAndMaximum(max=peak_mb / 3),
        )
    if metrics.cpu_seconds is not None and draw(st.booleans()):
        wait = draw(st.sampled_from((0.05, 0.5, 5.0))) * (metrics.duration_ms or 0) / 1000
        metrics = replace(metrics, cpu_wait_seconds=wait, max_pids=draw(st.sampled_from((1, 14))))
    if metrics.has_memory and draw(st.booleans()):
        metrics = replace(metrics, network_rx_bytes=2_900_000_000, network_tx_bytes=48_000_000)
    changed = replace(record, **{"metrics": metrics, **_parts(draw, record)})
    return recommended(lambda: replace(made, record=changed))
