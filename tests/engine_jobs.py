"""Runs of an engine's jobs in AWS Batch, and what is printed for its configuration."""

import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

import profiler
from profiler.record.batch_job import BatchJob
from profiler.record.record_model import Report
from tests.runs import lines, report

ROOT = Path(profiler.__file__).parent.parent
_RUNS = 3


def write_jobs(
    file: Path, size: tuple[float, float], p95: float, peaks_mb: Mapping[str, float]
) -> None:
    """Write runs of each process or rule on EC2, of one size and one definition."""
    reports: list[Report] = []
    for name, peak_mb in peaks_mb.items():
        for _ in range(_RUNS):
            number = len(reports)
            job = BatchJob(
                job_id="0f8fad5b-d9cb-469f-a165-70867728950e",
                job_name=f"{name}_{number}",
                job_definition="etl",
            )
            reports.append(
                report(
                    number,
                    size=size,
                    p95=p95,
                    peak_mb=peak_mb,
                    launch_type="EC2",
                    cluster="AWSBatch-spot-1",
                    batch=job,
                )
            )
    file.write_bytes(lines(reports))


def written_for(engine: str, jobs: Path) -> str:
    """The lines for the engine's configuration."""
    command = [sys.executable, "-m", "profiler", "recommend", "--format", engine]
    return printed([*command, "--from", str(jobs)], ROOT)


def printed(
    command: Sequence[str], folder: Path, environment: Mapping[str, str] | None = None
) -> str:
    """What a command prints that must succeed."""
    done = subprocess.run(
        command, cwd=folder, env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def classpath(folder: Path, file: Path) -> str:
    """The classpath of the folder's pom.xml, whose artifacts Maven fetches."""
    goal = "dependency:build-classpath"
    printed(["mvn", "-q", "-B", goal, f"-Dmdep.outputFile={file}"], folder)
    return file.read_text()
