"""Jobs of AWS Batch in the commands that read past runs."""

import json
from pathlib import Path
from typing import Any

import pytest

from profiler.core.errors import TaskProfilerError
from profiler.record.batch_job import BatchJob
from tests.batch_jobs import job_id
from tests.runs import lines, report
from tests.unit.cli.conftest import Cli

JOB, ARRAY, NAMED = job_id(1), job_id(2), job_id(3)


def job(identity: str, attempt: int = 1, **more: Any) -> dict[str, Any]:
    return {"batch": BatchJob(job_id=identity, queue="nightly", attempt=attempt, **more)}


RUNS = (
    report(0, family="other"),
    report(1, task_id="a1" * 16, **job(JOB, 1), status="failure", exit_code=1),
    report(2, task_id="a2" * 16, **job(JOB, 2)),
    report(3, task_id="b1" * 16, **job(f"{ARRAY}:0", array_index=0)),
    report(4, task_id="b2" * 16, **job(f"{ARRAY}:17", array_index=17)),
    report(5, task_id="c1" * 16, **job(NAMED, job_name="orders")),
)


@pytest.fixture
def runs(here: Path) -> str:
    (here / "runs.jsonl").write_bytes(lines(RUNS))
    return "runs.jsonl"


def shown(cli: Cli, *words: str) -> str:
    return " ".join(cli(*words).out.split())


def test_a_job_is_found_by_its_id_at_its_newest_attempt(cli: Cli, runs: str) -> None:
    page = shown(cli, "show", JOB, "--from", runs)
    assert f"job {JOB}, attempt 2, queue nightly" in page
    page = shown(cli, "show", JOB[:9], "--from", runs)
    assert f"job {JOB}, attempt 2, queue nightly" in page
    page = shown(cli, "show", NAMED, "--from", runs)
    assert f"job orders {NAMED}, attempt 1, queue nightly" in page


def test_a_child_is_found_by_its_own_id_and_an_array_by_its_newest_child(
    cli: Cli, runs: str
) -> None:
    assert f"job {ARRAY}:0," in shown(cli, "show", f"{ARRAY}:0", "--from", runs)
    assert f"job {ARRAY}:17," in shown(cli, "show", ARRAY, "--from", runs)


def test_a_job_that_nobody_knows_is_said(cli: Cli, runs: str) -> None:
    with pytest.raises(TaskProfilerError, match=f"No run or family '{job_id(9)}'"):
        cli("show", job_id(9), "--from", runs)


def test_json_has_the_job(cli: Cli, runs: str) -> None:
    record = json.loads(cli("show", JOB, "--json", "--from", runs).out)["record"]
    assert record["batch"] == {"jobId": JOB, "queue": "nightly", "attempt": 2}


def test_the_history_has_columns_of_jobs_where_there_are_any(cli: Cli, runs: str) -> None:
    head, newest, *_, oldest = cli("history", "--from", runs).out.splitlines()
    assert "Job" in head
    assert "Attempt" in head
    assert "Queue" in head
    assert newest.split()[4:7] == ["orders", "1", "nightly"]
    assert oldest.split()[4:7] == ["-", "-", "-"]
    assert f"{ARRAY[:8]}:17" in cli("history", "--from", runs).out
    without = cli("history", "other", "--from", runs).out
    assert "Job" not in without


@pytest.mark.parametrize(
    ("label", "found"),
    [
        (f"batch.job_id={JOB}", 2),
        ("batch.queue=nightly", 5),
        ("batch.attempt=2", 1),
        ("batch.array_index=17", 1),
        ("batch.job_name=orders", 1),
        ("batch.queue=low", 0),
    ],
)
def test_a_label_selects_runs(cli: Cli, runs: str, label: str, found: int) -> None:
    words = ("history", "--json", "--label", label, "--from", runs)
    if found:
        assert len(cli(*words).out.splitlines()) == found
    else:
        with pytest.raises(TaskProfilerError, match="use fewer filters"):
            cli(*words)


def test_several_labels_must_all_match(cli: Cli, runs: str) -> None:
    both = ("--label", f"batch.job_id={JOB}", "--label", "batch.attempt=1")
    (line,) = cli("history", "--json", *both, "--from", runs).out.splitlines()
    assert json.loads(line)["record"]["taskId"] == "a1" * 16


@pytest.mark.parametrize(
    ("label", "sentence"),
    [
        ("batch.quue=x", "Did you mean batch.queue?"),
        ("queue", "--label 'queue' is not NAME=VALUE: write the label's name, =, and its value."),
    ],
)
def test_a_wrong_label_is_a_sentence(cli: Cli, runs: str, label: str, sentence: str) -> None:
    with pytest.raises(TaskProfilerError) as caught:
        cli("history", "--label", label, "--from", runs)
    assert sentence in str(caught.value)


def test_two_attempts_are_compared_by_their_label(cli: Cli, runs: str) -> None:
    words = ("compare", f"nightly@batch.job_id={ARRAY}:0", f"nightly@batch.job_id={ARRAY}:17")
    assert cli(*words, "--from", runs).code == 0


def test_a_jobs_name_is_anybodys_words(cli: Cli, here: Path) -> None:
    hostile = "\x1b[2J<!channel>\n\u202eorders" + "x" * 5_000
    (here / "runs.jsonl").write_bytes(lines([report(1, **job(JOB, job_name=hostile))]))
    for words in (("show", JOB), ("history",)):
        out = cli(*words, "--from", "runs.jsonl").out
        assert "\x1b" not in out
        assert "\u202e" not in out
        assert len(out) < 5_000


def test_two_jobs_of_one_name_stay_two(cli: Cli, here: Path) -> None:
    """A job of another Region may have the name, too."""
    first = report(1, task_id="a1" * 16, **job(JOB, job_name="orders"))
    second = report(2, task_id="a2" * 16, region="eu-west-1", **job(NAMED, job_name="orders"))
    (here / "runs.jsonl").write_bytes(lines([first, second]))
    for identity in (JOB, NAMED):
        assert f"job orders {identity}," in shown(cli, "show", identity, "--from", "runs.jsonl")
    named = ("--label", "batch.job_name=orders")
    assert len(cli("history", "--json", *named, "--from", "runs.jsonl").out.splitlines()) == 2


def test_without_a_source_the_log_group_of_batch_is_named(cli: Cli, here: Path) -> None:
    with pytest.raises(TaskProfilerError, match="add --from logs:/aws/batch/job"):
        cli("show", JOB)
