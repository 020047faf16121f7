"""What commands say of a source or a family that is nearly right."""

from pathlib import Path

import pytest

from tests.command_line import run_here
from tests.runs import lines, report


@pytest.fixture
def file(tmp_path: Path) -> Path:
    made = tmp_path / "runs.jsonl"
    made.write_bytes(lines([report(family="nightly-etl"), report(1, family="nightly-etl")]))
    return made


@pytest.mark.parametrize("address", ["s3://bucket/runs.jsonl", "S3://bucket", "ftp://host/runs"])
def test_an_address_of_another_kind_is_not_called_a_log_group(address: str) -> None:
    done = run_here({}, "history", "--from", address)
    assert done.returncode == 2
    assert f"{address.partition(':')[0].lower()}:// is not supported" in done.stderr
    assert "logs:" not in done.stderr


@pytest.mark.parametrize("address", ["search:9200", "10.0.0.1:9200/jobs"])
def test_a_host_with_a_port_names_the_scheme(address: str) -> None:
    done = run_here({}, "history", "--from", address)
    assert done.returncode == 2
    assert f"write https://{address}" in done.stderr


def test_a_file_that_looks_like_an_address_is_a_file(
    file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file.rename(file.parent / "search:9200")
    monkeypatch.chdir(file.parent)
    assert run_here({}, "history", "--from", "search:9200").returncode == 0


@pytest.mark.parametrize(
    "word", ["s3://bucket", "nowhere.jsonl", "search:9200", "logs:", "history:/nowhere"]
)
def test_an_error_about_a_word_of_the_variable_names_the_variable(word: str) -> None:
    done = run_here({"TASK_PROFILER_FROM": word}, "history")
    assert done.returncode > 0
    assert done.stderr.endswith("TASK_PROFILER_FROM has this source.\n")


def test_a_word_of_the_variable_that_fails_beside_others_names_the_variable(file: Path) -> None:
    done = run_here({"TASK_PROFILER_FROM": f"{file} nowhere.jsonl"}, "history")
    assert done.returncode == 1
    assert "logs:nowhere.jsonl. TASK_PROFILER_FROM has this source." in done.stderr


def test_an_error_about_the_option_does_not_name_the_variable() -> None:
    environment = {"TASK_PROFILER_FROM": "s3://bucket"}
    assert "TASK_PROFILER_FROM" not in run_here(environment, "history", "--from", "none").stderr


def test_another_error_does_not_name_the_variable(file: Path) -> None:
    done = run_here({"TASK_PROFILER_FROM": str(file)}, "history", "--since", "never")
    assert "TASK_PROFILER_FROM" not in done.stderr


@pytest.mark.parametrize(
    "words",
    [
        ("show", "nightly-elt"),
        ("show", "nightly-elt", "--stacks"),
        ("history", "nightly-elt"),
        ("history", "nightly-elt", "--status", "success"),
        ("recommend", "nightly-elt"),
        ("report", "nightly-elt"),
        ("compare", "nightly-elt@25", "nightly-etl@26"),
    ],
)
def test_a_family_that_is_nearly_right_gets_a_suggestion(
    words: tuple[str, ...], file: Path
) -> None:
    done = run_here({}, *words, "--from", str(file))
    assert done.returncode == 1
    assert done.stderr.endswith("Did you mean nightly-etl?\n")


def test_a_family_that_is_nearly_right_beside_another_one_gets_a_suggestion(file: Path) -> None:
    done = run_here({}, "recommend", "nightly-etl", "nightly-elt", "--from", str(file))
    assert "Did you mean nightly-etl?" in done.stderr


@pytest.mark.parametrize("name", ["billing", "nightly-x*", "4dd5853f"])
def test_another_name_gets_no_suggestion(name: str, file: Path) -> None:
    assert "Did you mean" not in run_here({}, "show", name, "--from", str(file)).stderr
