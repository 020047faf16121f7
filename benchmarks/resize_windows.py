"""Measure the commands that read a file of many runs, such as ``taskdef resize``.

    python -m benchmarks.resize_windows [--families 40] [--runs 100000] [--file-runs 1000000]
        [--json FILE]

A second file has the same runs as jobs of AWS Batch. Each command is a process of its own. A million runs take 2.3 GB in the temporary folder.
"""

import json
import random
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from uuid import UUID

from msgspec.structs import replace

from benchmarks.figures import BenchmarkResult, Figure, benchmark_parser
from benchmarks.measured_process import process_figures
from profiler.core.timestamps import NS_PER_DAY, NS_PER_MINUTE, format_ms
from profiler.record.batch_job import BatchJob
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
    encode,
)

NOW_NS = 1_763_600_000 * 1_000_000_000
_PROFILER = (sys.executable, "-m", "profiler")
_MAX_RESIZE_MIB = 200.0
_MAX_MEMORY_MIB = 300.0
_MAX_CPU_SECONDS = 15.0
_DEFINITION = {"cpu": "1024", "memory": "4096", "containerDefinitions": [{"name": "batch"}]}
_SERIES = (
    b',"series":{"startedAt":"2026-11-01T00:00:00.000Z","stepMs":6000,"vcpuUsed":[%s],'
    b'"memoryUsedMB":[%s]}' % (b",".join([b"0.123"] * 75), b",".join([b"234.5"] * 75))
)
_SIZE = TaskSize(vcpu=1, memory_mb=4096)
_DAYS = 35


def report_lines(
    families: int, runs: int, rng: random.Random, now_ns: int = NOW_NS, *, of_jobs: bool = False
) -> Iterator[bytes]:
    """The lines of all families in turn, each with three containers, until ``now_ns``; with
    ``of_jobs``, each run is of a job of AWS Batch.
    """
    of_family = runs // families
    step_ns = _DAYS * NS_PER_DAY // of_family
    for number in range(of_family):
        began_ns = now_ns - _DAYS * NS_PER_DAY + (number + 1) * step_ns - NS_PER_MINUTE
        for family in range(families):
            made = _report(f"family-{family}", number, began_ns, rng)
            yield encode(_of_job(made, number) if of_jobs else made)


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


def _of_job(made: Report, number: int) -> Report:
    family = made.record.family or ""
    job = BatchJob(
        job_id=str(UUID(made.record.task_id)),
        job_name=f"{family}-{number}",
        job_definition=family,
        job_definition_revision=3,
        queue="nightly",
        compute_environment="spot",
        attempt=1,
    )
    return replace(made, record=replace(made.record, batch=job))


def measure(families: int, runs: int, file_runs: int) -> BenchmarkResult:
    """Decide on each family by a file, and read a larger one with the three commands."""
    now_ns = time.time_ns()
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "runs.jsonl"
        write_runs(file, families, runs, now_ns)
        definitions = []
        for family in range(families):
            definition = Path(folder) / f"family-{family}.json"
            definition.write_text(json.dumps({**_DEFINITION, "family": f"family-{family}"}))
            definitions += ["--apply", str(definition)]
        resize = [*_PROFILER, "taskdef", "resize", "--from", str(file), *definitions]
        figures = process_figures("resize", resize, max_memory_mib=_MAX_RESIZE_MIB)
        texts = [file.read_text() for file in Path(folder).glob("family-*.json")]
        resized = sum('"4096"' not in text for text in texts)
        name = "families resized"
        figures.append(Figure(name, resized, "", digits=0, at_least=families))
        recommend = [*_PROFILER, "recommend", "--from", str(file)]
        figures += process_figures(f"recommend of {runs:,} runs of tasks", recommend)
        write_runs(file, families, runs, now_ns, of_jobs=True)
        figures += process_figures(f"recommend of {runs:,} runs of jobs", recommend)
        if file_runs:
            write_runs(file, families, file_runs, now_ns)
            for command in ("history", "recommend", "show"):
                figures += process_figures(
                    f"{command} of {file_runs:,} runs",
                    [*_PROFILER, command, "--from", str(file)],
                    max_cpu_seconds=_MAX_CPU_SECONDS,
                    max_memory_mib=_MAX_MEMORY_MIB,
                )
    title = f"Files of {families} families: resize with {runs:,} runs"
    return BenchmarkResult(title, figures=tuple(figures))


def write_runs(file: Path, families: int, runs: int, now_ns: int, *, of_jobs: bool = False) -> None:
    """A file with lines of 2.3 KB."""
    with file.open("wb") as stream:
        for line in report_lines(families, runs, random.Random(7), now_ns, of_jobs=of_jobs):
            stream.write(line[:-2] + _SERIES + b"}}\n")


def main(arguments: Sequence[str] | None = None) -> None:
    """Print the figures."""
    parser = benchmark_parser(__doc__)
    parser.add_argument("--families", type=int, default=40)
    parser.add_argument("--runs", type=int, default=100_000, help="of all families together")
    parser.add_argument("--file-runs", type=int, default=0, help="of a second file")
    options = parser.parse_args(arguments)
    result = measure(options.families, options.runs, options.file_runs)
    result.print_and_save(options.json)


if __name__ == "__main__":
    main()
