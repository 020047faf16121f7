from pathlib import Path
from typing import Any
from unittest.mock import Mock, call

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from profiler.core.errors import UsageError
from profiler.local_run import local_labels as labels_module
from profiler.local_run.local_labels import (
    _AIRFLOW_LABELS,
    MAX_LABEL_CHARS,
    airflow_labels,
    checked_out_commit,
    parse_labels,
)
from profiler.local_run.run_budgets import failed_budgets, gpu_use
from profiler.record.record_model import AverageAndMaximum, Metrics, Record
from tests.gpu_runs import gpu_run

COMMIT = "0123456789abcdef0123456789abcdef01234567"


def test_labels_are_name_and_value() -> None:
    assert parse_labels(["team=data", "a.b-c_1=x=y", "empty="]) == {
        "team": "data",
        "a.b-c_1": "x=y",
        "empty": "",
    }
    for word in ("team", "=x", "1a=x", "a b=x", "é=x", "a" * 65 + "=x", "a=" + "x" * 257):
        with pytest.raises(UsageError, match="--label"):
            parse_labels([word])


def test_the_runners_are_labels_under_plain_names() -> None:
    """Only what is present is a label, and never a task token."""
    environment = {"AIRFLOW_CTX_TASK_ID": "load", "AIRFLOW_CTX_DAG_ID": " "}
    others = {"TASK_TOKEN": "secret", "HOME": "/root"}
    assert airflow_labels({**environment, **others}) == {"airflow.task": "load"}
    environment = {"AIRFLOW_CTX_DAG_ID": "etl", "AIRFLOW_CTX_DAG_RUN_ID": "r1"}
    assert airflow_labels(environment) == {"airflow.dag": "etl", "airflow.run": "r1"}


@given(
    st.dictionaries(
        st.sampled_from(sorted(_AIRFLOW_LABELS)),
        st.text(st.characters(exclude_categories=()), max_size=400),
    )
)
def test_labels_of_any_environment_are_valid_text_within_their_limit(
    environment: dict[str, str],
) -> None:
    for value in airflow_labels(environment).values():
        assert 0 < len(value) <= MAX_LABEL_CHARS
        assert value.encode()


def write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


def test_the_commit_of_a_branch_of_a_detached_head_and_of_a_worktree(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    git, below = tmp_path / ".git", tmp_path / "a" / "b"
    write(git / "HEAD", "ref: refs/heads/main\n")
    write(
        git / "packed-refs",
        f"# pack-refs with: peeled\n{'f' * 40} refs/heads/other\n{COMMIT} refs/heads/main\n",
    )
    assert checked_out_commit(str(tmp_path)) == COMMIT
    write(git / "refs" / "heads" / "main", "a" * 40 + "\n")
    below.mkdir(parents=True)
    reader = Mock(wraps=labels_module._text_of_file)
    monkeypatch.setattr(labels_module, "_text_of_file", reader)
    assert checked_out_commit(str(below)) == "a" * 40
    assert (
        call(str(git / "packed-refs")) not in reader.mock_calls
    )  # which takes seconds if they are many
    for head, commit in (
        ("f" * 40, "f" * 40),
        ("", None),
        ("ref: refs/heads/none", None),
        ("nonsense", None),
    ):
        write(git / "HEAD", f"{head}\n")
        assert checked_out_commit(str(tmp_path)) == commit
    write(git / "refs" / "heads" / "topic", COMMIT)
    write(git / "worktrees" / "topic" / "HEAD", "ref: refs/heads/topic\n")
    write(git / "worktrees" / "topic" / "commondir", "../..\n")
    write(below / ".git", f"gitdir: {git / 'worktrees' / 'topic'}\n")
    assert checked_out_commit(str(below)) == COMMIT


def check(*runs: Metrics, bound_mb: float | None = None, **limits: float) -> tuple[str, ...]:
    every: dict[str, Any] = {
        "memory_mb": None,
        "duration_ms": None,
        "cpu_seconds": None,
        **limits,
    }
    return failed_budgets(runs, **every, memory_bounds_mb=[bound_mb] * len(runs))


@pytest.mark.parametrize(
    ("run", "limits", "exceeded"),
    [
        (
            Metrics(max_memory_used_mb=1228.8, duration_ms=720_000, cpu_seconds=75),
            {"memory_mb": 900, "duration_ms": 600_000, "cpu_seconds": 60},
            (
                "memory 1.2 GB (limit 900 MB), duration 12m 00s (limit 10m 00s) and CPU time 1m "
                "15s (limit 1m 00s)"
            ),
        ),
        (
            Metrics(max_memory_used_mb=900.004, duration_ms=600_000.4, cpu_seconds=60.000001),
            {"memory_mb": 900, "duration_ms": 600_000, "cpu_seconds": 60},
            (
                "memory 900.004 MB (limit 900 MB), duration 600.0004 s (limit 600 s) and CPU "
                "time 60.000001 s (limit 60 s)"
            ),
        ),
        (
            Metrics(max_memory_used_mb=1228.8, duration_ms=720_000, cpu_seconds=75),
            {"memory_mb": 2048, "duration_ms": 600_000, "cpu_seconds": 75},
            "duration 12m 00s (limit 10m 00s)",
        ),
        (Metrics(duration_ms=1.014), {"duration_ms": 1}, "duration 1.014 ms (limit 1 ms)"),
    ],
)
def test_the_sentence_names_all_exceeded_budgets_with_value_and_limit(
    run: Metrics, limits: dict[str, float], exceeded: str
) -> None:
    """A value just above its limit is written exactly."""
    assert check(run, **limits) == (f"The run exceeded the budget: {exceeded}.",)
    assert check(run) == ()


@pytest.mark.parametrize(
    ("tape", "limits", "sentences"),
    [
        ("starved", {"gpu_memory_mb": 2048, "gpu_idle_percent": 98}, []),
        (
            "starved",
            {"gpu_memory_mb": 1024, "gpu_idle_percent": 20},
            [
                (
                    "The run exceeded the budget: GPU memory 1.7 GB (limit 1 GB) and GPU idle time 97 % "
                    "(limit 20 %)."
                )
            ],
        ),
        ("beside", {"gpu_memory_mb": 1024}, []),
        (
            "beside",
            {"gpu_idle_percent": 20},
            [
                (
                    "The GPU idle time of the run could not be measured, and so the budget could not be "
                    "checked: it needs a GPU that can be read, and its idle time one that is not shared "
                    "and is read throughout."
                )
            ],
        ),
    ],
)
def test_gpus_have_budgets(tape: str, limits: dict[str, float], sentences: list[str]) -> None:
    assert gpu_budgets(gpu_run(tape).record, limits) == sentences


def test_a_gpu_that_was_not_seen_throughout_may_have_been_idle_for_longer() -> None:
    record = gpu_run("starved").record
    gpus = tuple(replace(gpu, utilization_covered_percent=80) for gpu in record.gpus)
    found = gpu_budgets(replace(record, gpus=gpus), {"gpu_idle_percent": 98})
    assert ["idle time of the run could not be measured" in text for text in found] == [True]
    (exceeded,) = gpu_budgets(replace(record, gpus=gpus), {"gpu_idle_percent": 20})
    assert exceeded == "The run exceeded the budget: GPU idle time 97 % (limit 20 %)."


def gpu_budgets(record: Record, limits: dict[str, float]) -> list[str]:
    found = failed_budgets(
        [record.metrics],
        memory_mb=None,
        duration_ms=None,
        cpu_seconds=None,
        memory_bounds_mb=[None],
        gpu_uses=[gpu_use(record)],
        **limits,
    )
    return [*found]


def test_huge_pages_are_memory_of_the_budget() -> None:
    pages = AverageAndMaximum(avg=200, max=300)
    run = Metrics(max_memory_used_mb=8, memory_huge_pages_mb=pages)
    (exceeded,) = check(run, memory_mb=100)
    assert exceeded == "The run exceeded the budget: memory 300 MB (limit 100 MB)."
    assert check(run, memory_mb=300) == ()


def test_a_budget_that_could_not_be_checked_is_not_kept() -> None:
    unknown = (
        "could not be measured, and so the budget could not be checked: omit this budget if the "
        "command is "
    )
    run = Metrics(duration_ms=2)
    assert check(run, memory_mb=900, duration_ms=1) == (
        "The run exceeded the budget: duration 2 ms (limit 1 ms).",
        f"The memory of the run {unknown}always this short.",
    )
    assert check(
        run, Metrics(max_memory_used_mb=5, duration_ms=3), run, memory_mb=900, duration_ms=9
    ) == (f"The memory of 2 of 3 runs {unknown}always this short.",)
    # Memory below a known bound is within the budget.
    for bound_mb, failed in ((None, 1), (30, 0), (500, 0), (501, 1)):
        assert len(check(Metrics(), bound_mb=bound_mb, memory_mb=500)) == failed
    # A measured peak counts, whatever the bound: other programs may have caused that.
    assert check(Metrics(max_memory_used_mb=499), bound_mb=800, memory_mb=500) == ()
