"""A run whose line has no price costs the same on every screen: by the settings of its machine, or
on Fargate in a Region.
"""

import json
import re
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from profiler.record.record_model import UNKNOWN_COST, TaskSize, Visible, encode
from profiler.record.units import format_usd
from tests.report_page import unpacked
from tests.shown_runs import etl
from tests.unit.cli.conftest import Cli

_IDS = ("a" * 32, "b" * 32)
_TYPE = "m7g.2xlarge"
_on_instance = partial(
    etl,
    launch_type="EC2",
    cost=UNKNOWN_COST,
    visible=Visible(cpus=8, memory_mb=32_768, instance_type=_TYPE),
)
_BILLED_HOURS = 1_201 / 3600
_HOUR: Mapping[str, str] = {"TASK_PROFILER_PRICE_HOUR": "3"}
_INSTANCES: Mapping[str, str] = {"TASK_PROFILER_PRICE_INSTANCES": f"{_TYPE}=0.8"}


def _costs(file: Path, cli: Cli, *options: str) -> Mapping[str, set[str]]:
    """What both runs cost, as each screen shows it."""
    source = ("--from", str(file))
    costs: dict[str, set[str]] = {"show": set(), "page": set()}
    compared = json.loads(cli("compare", *_IDS, *source, *options, "--json").out)
    cost = compared["metrics"].get("costUsd", {})
    costs["compare"] = {format_usd(usd) for usd in (cost.get("a"), cost.get("b")) if usd}
    page = cli("report", *source, *options, "--output", "-").out
    (data,) = re.findall(r'<script type="application/gzip" id="task-data">(.*)</script>', page)
    costs["page"] = {format_usd(run["usd"]) for run in unpacked(data)["runs"] if "usd" in run}
    for run in () if options else _IDS:  # it has no --on-fargate
        costs["show"] |= set(
            re.findall(r"^  cost +(\$\S+)", cli("show", run, *source).out, re.MULTILINE)
        )
    return costs


def _file(folder: Path, **fields: Any) -> Path:
    path = folder / "runs.jsonl"
    path.write_bytes(b"\n".join(encode(_on_instance(run, **fields)) for run in _IDS))
    return path


@pytest.mark.parametrize(
    ("settings", "usd"),
    [(_HOUR, 3 * _BILLED_HOURS), (_INSTANCES, 0.8 * 2 / 8 * _BILLED_HOURS), ({}, None)],
    ids=["an hour", "a share of the instance", "no setting"],
)
def test_a_run_on_an_instance_costs_the_same_on_every_screen(
    tmp_path: Path,
    cli: Cli,
    monkeypatch: pytest.MonkeyPatch,
    settings: Mapping[str, str],
    usd: float | None,
) -> None:
    for name, value in settings.items():
        monkeypatch.setenv(name, value)
    expected = set() if usd is None else {format_usd(usd)}
    costs = _costs(_file(tmp_path), cli)
    assert costs == {"show": expected, "page": expected, "compare": expected}


@pytest.mark.parametrize("settings", [_HOUR, {}], ids=["an hour", "no setting"])
def test_in_a_region_of_fargate_a_run_costs_the_same_on_every_screen(
    tmp_path: Path, cli: Cli, monkeypatch: pytest.MonkeyPatch, settings: Mapping[str, str]
) -> None:
    """The price of its instance does not replace that of Fargate, where Fargate has its size."""
    for name, value in settings.items():
        monkeypatch.setenv(name, value)
    costs = _costs(_file(tmp_path), cli, "--on-fargate", "us-east-1")
    assert costs["page"] == costs["compare"]
    assert len(costs["page"]) == 1
    odd = _file(tmp_path, task_size=TaskSize(vcpu=3, memory_mb=6000))
    nowhere = _costs(odd, cli, "--on-fargate", "us-east-1")
    assert (nowhere["page"], nowhere["compare"]) == (set(), set())


def test_a_stored_line_stays_what_the_monitor_wrote(
    tmp_path: Path, cli: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(*next(iter(_HOUR.items())))
    source = ("--from", str(_file(tmp_path)))
    for words in (("show", _IDS[0]), ("history",)):
        assert (
            "cost" not in json.loads(cli(*words, *source, "--json").out.splitlines()[0])["record"]
        )
