"""The documentation names what the code has."""

import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from botocore.session import Session
from botocore.validate import ParamValidator

import profiler
from profiler.cli.recommend import command as recommend
from profiler.emf import CATALOGUE, DEFAULT_METRICS, DIMENSION, NAMESPACE
from profiler.fargate import PRICE_TABLE_DATE, priced_regions, prices
from profiler.prices import PriceOverrides
from profiler.record import json_schema

ROOT = Path(profiler.__file__).parent.parent
LINK = re.compile(r"\]\(([^)#]+)(?:#[^)]*)?\)")


def field_names(schema: dict[str, Any]) -> Iterator[str]:
    for definition in schema["$defs"].values():
        yield from definition["properties"]


def test_every_setting_of_the_monitor_is_documented() -> None:
    source = (ROOT / "profiler" / "settings.py").read_text()
    names = set(re.findall(r'reader\.(?:text|parsed)\(\s*"([A-Z_]+)"', source))
    assert len(names) >= 14
    page = (ROOT / "docs" / "monitor.md").read_text()
    assert {name for name in names if f"TASK_PROFILER_{name}" not in page} == set()


def test_every_field_of_the_record_is_documented() -> None:
    page = (ROOT / "docs" / "record.md").read_text()
    assert {name for name in field_names(json_schema()) if not re.search(rf"\b{name}\b", page)} == set()


def test_the_price_table_is_that_of_the_code() -> None:
    page = (ROOT / "docs" / "right-size.md").read_text()
    rows = {
        cells[0]: cells[1:4]
        for line in page.splitlines()
        if len(cells := [cell.strip() for cell in line.strip("|").split("|")]) == 5
    }
    assert PRICE_TABLE_DATE in page
    for region in {region for region, _ in priced_regions()}:
        found = {arch: prices(region, arch, PriceOverrides()) for arch in ("X86_64", "ARM64")}
        shown = ["" if one is None else f"{one.vcpu_hour_usd:g}, {one.gb_hour_usd:g}" for one in found.values()]
        storage = {one.storage_gb_hour_usd for one in found.values() if one is not None}
        assert rows[region] == [*shown, *("-" if usd is None else f"{usd:g}" for usd in storage)]


def test_every_option_of_recommend_is_documented() -> None:
    page = (ROOT / "docs" / "right-size.md").read_text()
    options = {name for parameter in recommend.params for name in parameter.opts if name.startswith("--")}
    assert len(options) >= 12
    assert {name for name in options if name not in page} == set()


def test_every_metric_is_documented_with_its_unit_and_what_the_default_ones_cost() -> None:
    page = (ROOT / "docs" / "metrics.md").read_text()
    rows = re.findall(r"^\| `(\w+)` \| (\w+) \| (yes|) ?\| \S", page, re.MULTILINE)
    assert rows == [(metric.name, metric.unit, "yes" * (metric.name in DEFAULT_METRICS)) for metric in CATALOGUE]
    few, all_of_them = len(DEFAULT_METRICS), len(CATALOGUE)
    assert f"| families | default ({few} metrics) | all {all_of_them} metrics |" in page
    for families in (1, 20):
        costs = [f"at most {families * metrics * 0.3:.2f} USD a month" for metrics in (few, all_of_them)]
        assert f"| {families} | {costs[0]} | {costs[1]} |" in page
    assert f"`{','.join(DEFAULT_METRICS)}`" in (ROOT / "docs" / "monitor.md").read_text()


def test_the_alarms_are_on_metrics_there_are_and_cloudwatch_knows_their_parameters() -> None:
    page = (ROOT / "docs" / "metrics.md").read_text()
    commands = re.findall(r"^aws cloudwatch put-metric-alarm (.*?)^```", page, re.MULTILINE | re.DOTALL)
    assert len(commands) == 3
    shape = Session().get_service_model("cloudwatch").operation_model("PutMetricAlarm").input_shape
    for command in commands:
        words = shlex.split(command.replace("\\\n", " "))
        given = {name.title().replace("-", ""): value for name, value in zip(words[::2], words[1::2], strict=True)}
        assert (given["Namespace"], given["Dimensions"]) == (NAMESPACE, f"Name={DIMENSION},Value=nightly-etl")
        assert given["MetricName"] in {metric.name for metric in CATALOGUE}
        typed = {
            **given,
            "Dimensions": [{"Name": DIMENSION, "Value": "nightly-etl"}],
            "Period": int(given["Period"]),
            "EvaluationPeriods": int(given["EvaluationPeriods"]),
            "Threshold": float(given["Threshold"]),
            "AlarmActions": [given["AlarmActions"]],
        }
        assert ParamValidator().validate(typed, shape).generate_report() == ""
        assert given["Statistic"] in shape.members["Statistic"].enum
        assert given["ComparisonOperator"] in shape.members["ComparisonOperator"].enum


@pytest.mark.parametrize(
    "page",
    sorted(path.relative_to(ROOT) for glob in ("*.md", "docs/**/*.md", "examples/**/*.md") for path in ROOT.glob(glob)),
    ids=str,
)
def test_links_between_pages_lead_somewhere(page: Path) -> None:
    targets = [target for target in LINK.findall((ROOT / page).read_text()) if "://" not in target]
    assert [target for target in targets if not (ROOT / page.parent / target).exists()] == []
