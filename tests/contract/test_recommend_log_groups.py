"""``task-profiler recommend`` with ``--from logs:GROUP`` over HTTP, against moto's CloudWatch Logs.

Moto takes no notice of the filter pattern: lines that are no reports come too, and are skipped.
"""

import json
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.command_line import run_here
from tests.runs import lines, report, slowdown
from tools.moto_server import FakeAws, fake_aws

GROUP = "/ecs/jobs"
# The newest has 1 vCPU; the others had more and would have been slower there.
RUNS = [
    report(
        n,
        size=(4 >> n, 8192 >> n),
        metrics={
            "slowdown_at_vcpu": slowdown(v0_25=(4 - n, 5 - n), v0_5=(2 - n / 2, 3 - n)),
            "vcpu_saturated_percent": 7.5,
        },
    )
    for n in range(3)
]


@pytest.fixture(scope="module")
def aws() -> Iterator[FakeAws]:
    with fake_aws() as aws:
        aws.create_log_group(GROUP)
        aws.create_log_stream(GROUP, "ecs/batch/1")
        now_ms = time.time_ns() // 1_000_000
        messages = ["hello", *(line.decode() for line in lines(RUNS).splitlines())]
        events = [{"timestamp": now_ms - 1000 + place, "message": text} for place, text in enumerate(messages)]
        aws.client("logs").put_log_events(logGroupName=GROUP, logStreamName="ecs/batch/1", logEvents=events)
        yield aws


def test_reports_in_a_log_group_are_enough_for_advice_and_to_compare_runs(aws: FakeAws, tmp_path: Path) -> None:
    done = run_here(aws.environment(), "recommend", "--json", "--from", f"logs:{GROUP}")
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert (found["family"], found["runs"], found["recommended"]) == ("nightly", 3, {"vcpu": 1, "memoryMB": 2048})
    file = tmp_path / "runs.jsonl"
    file.write_bytes(lines(RUNS))
    assert found == json.loads(run_here({}, "recommend", "--json", "--from", str(file)).stdout)
    assert "use --since TIME to read further back." in done.stderr
    words = ("compare", "nightly", "task-0", "--json")
    done = run_here(aws.environment(), *words, "--from", f"logs:{GROUP}")
    assert done.returncode == 0, done.stderr
    assert done.stdout == run_here({}, *words, "--from", str(file)).stdout
    assert json.loads(done.stdout)["a"] == {"set": "nightly", "runs": 3}


@pytest.mark.parametrize(
    "line",
    ["show", "history", "report -o -", "recommend", "compare nightly task-0", "watch --once", "schedules"],
)
def test_a_pattern_that_matches_no_log_group_is_named_by_every_reader(aws: FakeAws, line: str) -> None:
    done = run_here(aws.environment(), *line.split(), "--from", "logs:/ecs/no[pq]e-*")
    assert (done.returncode, done.stdout) == (1, "")
    assert "No log group matches '/ecs/no[pq]e-*': check the name, --region and --profile." in done.stderr
    assert done.stderr.count("\n") == 1


def test_the_runs_of_all_matching_log_groups_are_read(aws: FakeAws) -> None:
    aws.create_log_group("/ecs/other")
    by_name = run_here(aws.environment(), "history", "--from", f"logs:{GROUP}", "--from", "logs:/ecs/other")
    by_pattern = run_here(aws.environment(), "history", "--from", "logs:/ecs/*")
    assert by_pattern.returncode == 0
    assert by_pattern.stdout == by_name.stdout
    assert "/ecs/jobs and /ecs/other: only the last 30 days" in by_pattern.stderr
    assert "nightly" in by_pattern.stdout
