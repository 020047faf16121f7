"""A pipeline on Nextflow's local executor, with the sizes that ``recommend --format nextflow`` prints
and each process in the wrapper.
"""

import csv
import json
import os
import shutil
import sys
from pathlib import Path

import pytest

from tests.engine_jobs import ROOT, classpath, printed, write_jobs, written_for
from tests.prerequisites import skip_or_fail

PIPELINE = ROOT / "tests" / "orchestrators" / "nextflow_pipeline"
SETTINGS = """
trace {{ enabled = true; file = 'trace.txt'; fields = 'name,exit,cpus,memory' }}
process.shell = ['{python}', '-m', 'profiler', 'run', '--no-history', '--output', '{runs}', '--',
  '/bin/bash', '-ue']
"""
OFFLINE = {"NXF_OFFLINE": "true", "NXF_PLUGINS_DEFAULT": "false", "NXF_DISABLE_CHECK_LATEST": "1"}


@pytest.mark.slow  # where a JDK is: `make test` runs while it is installed
def test_a_pipeline_takes_the_printed_sizes_and_the_wrapper(tmp_path: Path) -> None:
    """Outputs, exit codes and Nextflow's verdict are those of the processes, and each has a
    record.
    """
    missing = [name for name in ("mvn", "java", "ps") if shutil.which(name) is None]
    if missing:
        skip_or_fail(f"Nextflow needs {', '.join(missing)}")
    jobs = tmp_path / "jobs.jsonl"
    write_jobs(jobs, (2, 4096), 0.5, {"STAR_ALIGN": 640, "FASTQC": 300, "BROKEN": 300})
    runs = tmp_path / "runs.jsonl"
    settings = SETTINGS.format(python=sys.executable, runs=runs)
    (tmp_path / "nextflow.config").write_text(written_for("nextflow", jobs) + settings)
    path = classpath(PIPELINE, tmp_path / "classpath.txt")
    environment = {
        **os.environ,
        **OFFLINE,
        "NXF_HOME": str(tmp_path / "home"),
        "PYTHONPATH": str(ROOT),
    }
    command = ["java", "-cp", path, "nextflow.cli.Launcher", "run", str(PIPELINE / "main.nf")]
    shown = printed([*command, "-ansi-log", "false"], tmp_path, environment)
    assert "\naligned\n" in shown
    assert "Process `BROKEN` terminated with an error exit status (3)" in shown
    with (tmp_path / "trace.txt").open() as trace:
        rows = {row.pop("name"): row for row in csv.DictReader(trace, delimiter="\t")}
    assert rows == {
        "STAR_ALIGN": {"exit": "0", "cpus": "1", "memory": "768 MB"},
        "FASTQC": {"exit": "0", "cpus": "1", "memory": "384 MB"},
        "BROKEN": {"exit": "3", "cpus": "1", "memory": "384 MB"},
    }
    records = [json.loads(line)["record"] for line in runs.read_text().splitlines()]
    assert sorted(record["exitCode"] for record in records) == [0, 0, 3]
