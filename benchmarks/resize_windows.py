"""Measure the memory and the time of the windows of runs by which sizes are decided.

    python -m benchmarks.resize_windows [--families 40] [--runs 100000] [--json FILE]

Each run is decoded from a line of its own, as from a file, and each family is decided on. The
memory is the peak of this process, all imports and the lines of one run included.
"""

import argparse
import random
import resource
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

from benchmarks.figures import BenchmarkResult, Figure, print_and_save
from profiler.core.timestamps import NS_PER_DAY, NS_PER_MINUTE, format_ms
from profiler.record.record_model import (
    Container,
    Distribution,
    Metrics,
    OtherContainer,
    Record,
    Report,
    Sampling,
    SlowdownBounds,
    TaskSize,
    decode,
    encode,
)
from profiler.sizing.family_window import FamilyWindow, WindowSpan
from profiler.sizing.prices import PriceOverrides
from profiler.sizing.resize_decision import decide
from profiler.sizing.resize_policy import ResizePolicy
from profiler.sizing.run_facts import facts_of
from profiler.sizing.sized_revision import Circumstances, SizedRevision

NOW_NS = 1_763_600_000 * 1_000_000_000
_MAX_MEMORY_MIB = 200.0
_SIZE = TaskSize(vcpu=1, memory_mb=4096)
_DAYS = 35


def lines(families: int, runs: int, rng: random.Random) -> Iterator[bytes]:
    """The lines of all families in turn, each with three containers."""
    of_family = runs // families
    step_ns = _DAYS * NS_PER_DAY // of_family
    for number in range(of_family):
        began_ns = NOW_NS - _DAYS * NS_PER_DAY + (number + 1) * step_ns - NS_PER_MINUTE
        for family in range(families):
            yield encode(_report(f"family-{family}", number, began_ns, rng))


def _report(family: str, number: int, began_ns: int, rng: random.Random) -> Report:
    duration_ms = rng.uniform(60_000, 600_000)
    peak_mb = rng.uniform(200, 400)
    spread = Distribution(avg=peak_mb / 2, p50=0.2, p95=0.3, p99=peak_mb, max=peak_mb)
    metrics = Metrics(
        duration_ms=duration_ms,
        billed_duration_ms=duration_ms + 20_000,
        max_memory_used_mb=peak_mb,
        memory_used_mb=spread,
        vcpu_used=spread,
        cpu_utilization_percent=spread,
        memory_peak_source="sampled",
        vcpu_size=1,
        memory_size_mb=4096,
        slowdown_at_vcpu={
            "0.25": SlowdownBounds(min=1, max=rng.uniform(1, 2)),
            "0.5": SlowdownBounds(min=1, max=1.01),
        },
    )
    beside = OtherContainer(name="proxy", metrics=Metrics(max_memory_used_mb=40, vcpu_used=spread))
    monitor = OtherContainer(name="task-monitor", metrics=Metrics(max_memory_used_mb=20))
    record = Record(
        task_id=f"{rng.getrandbits(128):032x}",
        family=family,
        revision="7",
        account_id="123456789012",
        region="us-east-1",
        launch_type="FARGATE",
        cpu_architecture="X86_64",
        container=Container(name="batch"),
        status="success",
        exit_code=0,
        started_at=format_ms(began_ns),
        finished_at=format_ms(began_ns + round(duration_ms) * 1_000_000),
        sampling=Sampling(samples=number, stats_period_ms=1000),
        metrics=metrics,
        containers=(beside, monitor),
        task_size=_SIZE,
    )
    return Report(time=format_ms(began_ns), type="task.report", record=record)


def measure(families: int, runs: int) -> BenchmarkResult:
    """Read all runs into windows and decide on each family."""
    span = WindowSpan(now_ns=NOW_NS, days=_DAYS)
    windows: dict[str, FamilyWindow] = {}
    add_s = 0.0
    for line in lines(families, runs, random.Random(7)):
        begin_s = time.perf_counter()
        facts = facts_of(decode(line))
        windows.setdefault(facts.family.name, FamilyWindow(span)).add(facts)
        add_s += time.perf_counter() - begin_s
    begin_s = time.perf_counter()
    resized = 0
    for window in windows.values():
        window.close()
        decision = decide(
            window,
            SizedRevision(revision="7", size=_SIZE),
            Circumstances(),
            ResizePolicy(),
            PriceOverrides(),
        )
        resized += decision.action == "resize"
    decide_s = time.perf_counter() - begin_s
    peak_mib = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    title = f"Windows of {families} families with {runs:,} runs"
    figures = (
        Figure(name="peak memory", value=peak_mib, unit="MiB", at_most=_MAX_MEMORY_MIB),
        Figure(name="decode and add a run", value=1e6 * add_s / runs, unit="µs", digits=0),
        Figure(name="decide on a family", value=1e3 * decide_s / families, unit="ms", digits=1),
        Figure(name="families resized", value=resized, unit="", digits=0, at_least=families),
    )
    return BenchmarkResult(title=title, figures=figures)


def main(arguments: Sequence[str] | None = None) -> None:
    """Print the figures."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--families", type=int, default=40)
    parser.add_argument("--runs", type=int, default=100_000, help="of all families together")
    parser.add_argument("--json", type=Path)
    options = parser.parse_args(arguments)
    print_and_save(measure(options.families, options.runs), options.json)


if __name__ == "__main__":
    main()
