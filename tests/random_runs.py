"""Runs whose numbers and ends are drawn at random, and agree with one another."""

from typing import Any

from hypothesis import strategies as st
from msgspec.structs import replace

from profiler.core.timestamps import NS_PER_MS, NS_PER_SECOND, format_ms, parse_ns
from profiler.record.record_model import Distribution, Report
from tests.awkward_runs import recommended
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
