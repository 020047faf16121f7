"""Nextflow's own parser, and Snakemake itself, read the lines of ``recommend --format`` (``make
engines``; Nextflow needs Java and Maven).
"""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.engine_jobs import ROOT, classpath, printed, write_jobs, written_for
from tests.prerequisites import skip_or_fail

SNAKEMAKE = ROOT / ".venv-orchestrators" / "snakemake" / "bin" / "snakemake"
NEXTFLOW = Path(__file__).with_name("nextflow")
_MB_PER_GB = 1024


@pytest.fixture
def jobs(tmp_path: Path) -> Path:
    """Runs of two rules or processes, of which one needs more than whole GB."""
    file = tmp_path / "jobs.jsonl"
    write_jobs(file, (8, 65_536), 3.2, {"STAR_ALIGN": 25_600, "FASTQC": 1_500})
    return file


def test_nextflows_parser_reads_the_sizes(jobs: Path, tmp_path: Path) -> None:
    if shutil.which("mvn") is None or shutil.which("java") is None:
        skip_or_fail("Nextflow's parser needs java and mvn")
    config = tmp_path / "nextflow.config"
    config.write_text(written_for("nextflow", jobs))
    path = classpath(NEXTFLOW, tmp_path / "classpath.txt")
    program = str(NEXTFLOW / "ReadConfig.java")
    read = printed(["java", "-cp", path, program, str(config)], tmp_path)
    assert [line for line in read.splitlines() if line.startswith("withName")] == [
        "withName:FASTQC\t4\t1856",
        f"withName:STAR_ALIGN\t4\t{30 * _MB_PER_GB}",
    ]


def test_snakemake_takes_the_sizes_of_a_profile(jobs: Path, tmp_path: Path) -> None:
    if not SNAKEMAKE.exists():
        skip_or_fail("Snakemake is not installed: make engines installs it")
    profile = tmp_path / "profile"
    profile.mkdir()
    (profile / "config.yaml").write_text(written_for("snakemake", jobs))
    rule = 'rule {0}:\n    output: "{0}.txt"\n    threads: 1\n    shell: "touch {{output}}"\n'
    targets = 'rule all:\n    input: "STAR_ALIGN.txt", "FASTQC.txt"\n'
    rules = targets + rule.format("STAR_ALIGN") + rule.format("FASTQC")
    (tmp_path / "Snakefile").write_text(rules)
    command = [str(SNAKEMAKE), "--profile", str(profile), "--cores", "8", "--dry-run"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    plan = done.stdout + done.stderr
    for name, memory_mb in (("STAR_ALIGN", 30 * _MB_PER_GB), ("FASTQC", 1856)):
        of_rule = plan.partition(f"rule {name}:")[2].partition("\n\n")[0]
        assert "threads: 4" in of_rule
        assert f"mem_mb={memory_mb}," in of_rule


def test_snakemake_runs_rules_in_the_wrapper_to_their_own_ends(tmp_path: Path) -> None:
    """Outputs, exit codes and Snakemake's verdict are those of the rules, and each has a record."""
    if not SNAKEMAKE.exists():
        skip_or_fail("Snakemake is not installed: make engines installs it")
    wrapper = f"{sys.executable} -m profiler run --no-history --output runs.jsonl --name"
    rule = 'rule {0}:\n    output: "{0}.txt"\n    shell: "{1} {0} -- {2}"\n'
    good = rule.format("FASTQC", wrapper, "touch FASTQC.txt")
    bad = rule.format("STAR_ALIGN", wrapper, "sh -c 'exit 3'")
    targets = 'rule all:\n    input: "FASTQC.txt", "STAR_ALIGN.txt"\n'
    (tmp_path / "Snakefile").write_text(f"{targets}{good}{bad}")
    command = [str(SNAKEMAKE), "--cores", "1", "--keep-going"]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 1, done.stderr
    assert "rule STAR_ALIGN" in done.stderr
    assert "exit code 3" in done.stderr or "exited with non-zero" in done.stderr
    assert (tmp_path / "FASTQC.txt").exists()
    rows = [json.loads(line) for line in (tmp_path / "runs.jsonl").read_text().splitlines()]
    ends = {row["record"]["family"]: row["record"]["exitCode"] for row in rows}
    assert ends == {"FASTQC": 0, "STAR_ALIGN": 3}
