"""``taskdef resize --apply`` where several files define one family."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.resize_account import BATCH, MONITOR, Account, logs_to
from tools.moto_server import fake_aws


@pytest.fixture
def account(tmp_path: Path) -> Iterator[Account]:
    with fake_aws() as aws:
        yield Account(aws, tmp_path)


def write(file: Path, group: str, memory: str = "2048") -> str:
    content: dict[str, Any] = {
        "family": "nightly",
        "cpu": "1024",
        "memory": memory,
        "containerDefinitions": [{**one, **logs_to(group)} for one in (BATCH, MONITOR)],
    }
    file.write_text(json.dumps(content, indent=2))
    return file.read_text()


def apply(account: Account, source: str, *files: Path) -> tuple[list[dict[str, Any]], Any]:
    """The rows and the total."""
    words = ["taskdef", "resize", "--from", source, "--json"]
    for file in files:
        words += ["--apply", str(file)]
    done = account.command(*words)
    assert done.returncode == 0, done.stderr
    *rows, total = map(json.loads, done.stdout.splitlines())
    return rows, total


def test_the_runs_of_one_stage_do_not_size_the_file_of_the_other_one(
    account: Account, tmp_path: Path
) -> None:
    prod, dev = tmp_path / "prod.json", tmp_path / "dev.json"
    before = write(prod, "/ecs/prod")
    write(dev, "/ecs/dev")
    account.runs("nightly", 25)
    account.put_reports("/ecs/dev")
    rows, total = apply(account, "logs:*", prod, dev)
    assert [row["action"] for row in rows] == ["none", "resize"]
    assert prod.read_text() == before
    assert json.loads(dev.read_text())["memory"] == "512"
    assert (total["families"], total["changes"]) == (2, 1)
    notes = [row["notes"][-1] for row in rows]
    assert notes == [f"This is the family in {file}." for file in (prod, dev)]


def test_a_file_keeps_the_limit_that_an_unknown_starter_gives_to_a_container(
    account: Account, tmp_path: Path
) -> None:
    """Without an account, too: the starter says it nowhere."""
    file = tmp_path / "nightly.json"
    write(file, "/ecs/jobs")
    account.runs("nightly", 25)
    account.runs("nightly", 1, metrics={"memory_size_mb": 1500})
    rows, _ = apply(account, str(account.file), file)
    assert json.loads(file.read_text())["memory"] == "2048"
    assert "what starts its runs overrides sizes" in rows[0]["reason"]


def test_each_stage_has_the_size_that_its_own_runs_call_for(
    account: Account, tmp_path: Path
) -> None:
    prod, dev = tmp_path / "prod.json", tmp_path / "dev.json"
    for file in (prod, dev):
        write(file, f"/ecs/{file.stem}")
    account.runs("nightly", 25, peak_mb=800)
    account.put_reports("/ecs/prod")
    account.runs("nightly", 25)
    account.put_reports("/ecs/dev")
    _, total = apply(account, "logs:*", dev, prod)
    assert [json.loads(file.read_text())["memory"] for file in (prod, dev)] == ["1024", "512"]
    assert total["changes"] == 2


@pytest.mark.parametrize("sizes", [("2048", "2048"), ("2048", "4096"), ("4096", "2048")])
def test_the_saving_of_one_family_is_counted_once(
    account: Account, tmp_path: Path, sizes: tuple[str, str]
) -> None:
    files = [tmp_path / f"{number}.json" for number in range(2)]
    before = [write(file, "/ecs/jobs", memory) for file, memory in zip(files, sizes, strict=True)]
    account.runs("nightly", 25)
    rows, total = apply(account, str(account.file), *files)
    assert (total["families"], total["changes"]) == (1, 1)
    (saving,) = {row["savingUsdPerMonth"] for row in rows if row["action"] == "resize"}
    assert total["savingUsdPerMonth"] == saving
    for file, text, memory in zip(files, before, sizes, strict=True):
        assert (file.read_text() == text) == (memory == "4096")


def test_a_file_without_places_is_sized_by_the_runs_of_the_one_that_has_them(
    account: Account, tmp_path: Path
) -> None:
    plain, bare = tmp_path / "plain.json", tmp_path / "jobs.tf"
    write(plain, "/ecs/jobs")
    bare.write_text(
        'resource "aws_ecs_task_definition" "nightly" {\n family = "nightly"\n'
        " cpu = 1024\n memory = 2048\n}\n"
    )
    account.runs("nightly", 25)
    account.put_reports("/ecs/other")
    rows, total = apply(account, "logs:*", bare, plain)
    assert [row["action"] for row in rows] == ["none", "none"]
    assert total["families"] == 1


def test_without_a_run_the_advice_names_no_option_that_apply_refuses(
    account: Account, tmp_path: Path
) -> None:
    write(tmp_path / "nightly.json", "/ecs/jobs")
    done = account.command("taskdef", "resize", "--apply", str(tmp_path / "nightly.json"))
    assert done.returncode == 1
    assert done.stderr.endswith(": name the source of the runs by --from.\n")
