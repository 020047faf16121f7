"""The documentation names what the code has."""

import json
import re
import shlex
from collections.abc import Iterator
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

import pytest
from botocore.session import Session
from botocore.validate import ParamValidator

import profiler
from forwarder.function_settings import (
    ALL_SUBJECTS,
    DEFAULT_GRACE_MINUTES,
    read_export_targets,
    read_notice_settings,
    read_settings,
)
from profiler.cli.recommend_command import command as recommend
from profiler.prometheus.prometheus_metrics import LIVE_METRICS
from profiler.record.emf import DIMENSION, EMF_METRICS, NAMESPACE, emf_unit
from profiler.record.record_model import json_schema
from profiler.settings import DEFAULT_EMF_METRICS
from profiler.sizing.prices import PRICE_TABLE, PRICE_TABLE_DATE
from tests.documentation import pages, scripts
from tests.unit.deployment.test_template import QUERIES, is_in_the_record

ROOT = Path(profiler.__file__).parent.parent
LINK = re.compile(r"\]\(([^)#]+)(?:#[^)]*)?\)")


def field_names(schema: dict[str, Any]) -> Iterator[str]:
    for definition in schema["$defs"].values():
        yield from definition["properties"]


def test_every_setting_of_the_monitor_is_documented() -> None:
    source = (ROOT / "profiler" / "settings.py").read_text()
    names = set(re.findall(r'\b_(?:text|parsed)\(\s*"([A-Z_]+)"', source))
    assert len(names) >= 14
    page = (ROOT / "docs" / "monitor.md").read_text()
    assert {name for name in names if f"TASK_PROFILER_{name}" not in page} == set()


def test_every_field_of_the_record_is_documented() -> None:
    page = (ROOT / "docs" / "record.md").read_text()
    assert {name for name in field_names(json_schema()) if not re.search(rf"\b{name}\b", page)} == set()


def test_every_region_with_a_price_is_documented() -> None:
    page = (ROOT / "docs" / "right-size.md").read_text()
    listed = re.search(r"^Regions: (.*)\.$", page, re.MULTILINE)
    assert listed is not None
    assert set(listed[1].split(", ")) == {region for region, _ in PRICE_TABLE}
    assert PRICE_TABLE_DATE in page


def test_every_option_of_recommend_is_documented() -> None:
    page = "".join((ROOT / "docs" / name).read_text() for name in ("right-size.md", "past-runs.md"))
    options = {name for parameter in recommend.params for name in parameter.opts if name.startswith("--")}
    assert len(options) >= 12
    assert {name for name in options if name not in page} == set()


def test_every_metric_is_documented_with_its_unit() -> None:
    page = (ROOT / "docs" / "metrics.md").read_text()
    rows = re.findall(r"^\| `(\w+)` \| (\w+) \| (yes|) ?\| \S", page, re.MULTILINE)
    assert rows == [
        (name, emf_unit(metric), "yes" * (name in DEFAULT_EMF_METRICS)) for name, metric in EMF_METRICS.items()
    ]


def test_the_costs_of_metrics_are_those_of_their_number() -> None:
    page = (ROOT / "docs" / "cost.md").read_text()
    few, all_of_them = len(DEFAULT_EMF_METRICS), len(EMF_METRICS)
    assert f"| families | default ({few} metrics) | all {all_of_them} metrics |" in page
    for families in (1, 20):
        costs = [f"at most {families * metrics * 0.3:.2f} USD a month" for metrics in (few, all_of_them)]
        assert f"| {families} | {costs[0]} | {costs[1]} |" in page


def test_the_alarms_are_on_metrics_there_are_and_cloudwatch_knows_their_parameters() -> None:
    page = (ROOT / "docs" / "metrics.md").read_text()
    commands = re.findall(r"^aws cloudwatch put-metric-alarm (.*?)^```", page, re.MULTILINE | re.DOTALL)
    assert len(commands) == 2
    shape = Session().get_service_model("cloudwatch").operation_model("PutMetricAlarm").input_shape
    for command in commands:
        words = shlex.split(command.replace("\\\n", " "))
        given = {name.title().replace("-", ""): value for name, value in zip(words[::2], words[1::2], strict=True)}
        assert (given["Namespace"], given["Dimensions"]) == (NAMESPACE, f"Name={DIMENSION},Value=nightly-etl")
        assert given["MetricName"] in EMF_METRICS
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


def test_every_live_metric_is_documented_with_its_labels() -> None:
    page = (ROOT / "docs" / "prometheus.md").read_text()
    rows = re.findall(r"^\| `(task_profiler_\w+)(?:\{(.+?)\})?` \| (.+) \|$", page, re.MULTILINE)
    assert rows == [(one.full_name, ",".join(one.labels), one.help.removesuffix(".")) for one in LIVE_METRICS]


def test_the_name_of_a_live_metric_shows_its_type() -> None:
    assert (
        "Names that end in `_total` are counters, all others gauges." in (ROOT / "docs" / "prometheus.md").read_text()
    )
    assert {one.full_name.endswith("_total") for one in LIVE_METRICS if one.kind == "counter"} == {True}
    assert {one.full_name.endswith("_total") for one in LIVE_METRICS if one.kind == "gauge"} == {False}


PAGES = pytest.mark.parametrize("page", pages(), ids=str)


def test_an_import_shows_as_many_objects_as_there_are() -> None:
    objects = len((ROOT / "kibana" / "kibana.ndjson").read_text().splitlines())
    page = (ROOT / "docs" / "how-to" / "existing-elk.md").read_text()
    assert f"imported: {objects} objects (lens)" in page


@PAGES
def test_links_between_pages_lead_somewhere(page: Path) -> None:
    targets = [target for target in LINK.findall((ROOT / page).read_text()) if "://" not in target]
    assert [target for target in targets if not (ROOT / page.parent / target).exists()] == []


def table_names(page: str) -> set[str]:
    """The settings in the first column of a page's tables."""
    rows = re.findall(r"^\| (`[A-Z].*?) \|", (ROOT / "docs" / page).read_text(), re.MULTILINE)
    return {name for row in rows for name in re.findall(r"`([A-Z][A-Z_]+)`", row)}


def test_every_setting_of_the_forwarder_is_documented_and_none_besides() -> None:
    read = set()
    for file in ("function_settings.py", "notices/slack_settings.py"):
        source = (ROOT / "lambda" / "forwarder" / file).read_text()
        calls = re.findall(r'(?:environment\.get\(|text\(|_(?:boolean|number)\(\s*environment, )"([A-Z_]+)"', source)
        read |= {*calls, *re.findall(r'^    "([A-Z_]+)",$', source, re.MULTILINE)}
    assert {"ELASTICSEARCH_URL", "SLACK_BOT_TOKEN", "REPORT_WAIT_SECONDS", "FORWARD_LOG_LINES"} <= read
    assert table_names("forwarder.md") == read


def test_the_forwarders_defaults_are_those_of_the_table() -> None:
    page = (ROOT / "docs" / "forwarder.md").read_text()
    told = dict(re.findall(r"^\| `([A-Z_]+)` \| `([^`]+)` \|", page, re.MULTILINE))
    log, notice = read_settings({}), read_notice_settings({})
    assert told == {
        "SEARCH_ENGINE": log.engine,
        "OPENSEARCH_AWS_AUTH": str(log.credentials.aws).lower(),
        "INDEX_PREFIX": log.index_prefix,
        "INDEX_PERIOD": log.index_period,
        "FORWARD_LOG_LINES": str(log.forward_log_lines).lower(),
        "NOTIFY": "all" if notice.subjects == ALL_SUBJECTS else "failure",
        "NOTIFY_SERVICES": str(notice.services).lower(),
        "NOTIFY_UNUSUAL": str(notice.unusual_as_failures).lower(),
        "SCHEDULE_GRACE_MINUTES": str(DEFAULT_GRACE_MINUTES),
        "REPORT_WAIT_SECONDS": f"{notice.report_wait_seconds:.0f}",
        "NOTIFY_LOG_LINES": str(notice.log_lines),
        "OTLP_PROTOCOL": read_export_targets({"OTLP_ENDPOINT": "http://x"}, str)["logs"].protocol,
        "OTLP_AWS_AUTH": "false",
    }


def leaves(mapping: dict[str, Any], path: str = "") -> Iterator[str]:
    for name, field in mapping["properties"].items():
        if "properties" in field:
            yield from leaves(field, f"{path}{name}.")
        else:
            yield f"{path}{name}"


def indexed_fields() -> set[str]:
    """All fields of reports and checkpoints that the index templates map."""
    files = [ROOT / "kibana" / "index-templates" / f"task-{kind}.json" for kind in ("reports", "checkpoints")]
    return {field for file in files for field in leaves(json.loads(file.read_text())["template"]["mappings"])}


def resolved(name: str, last: str, fields: set[str]) -> set[str]:
    """The fields that a name in the table stands for: itself, or beside or above the one named before it."""
    parts = last.split(".")[:-1]
    for depth in range(len(parts), -1, -1):
        whole = ".".join([*parts[:depth], name])
        found = {field for field in fields if fnmatchcase(field, whole)}
        if found:
            return found
    return set()


def documented_fields(text: str, fields: set[str]) -> set[str]:
    """Every name in backticks of the table's first column; each must be one of the fields."""
    found: set[str] = set()
    for row in re.findall(r"^\| (`[a-z@].*?) \|", text, re.MULTILINE):
        last = ""
        for name in re.findall(r"`([^`]+)`", row):
            stands_for = resolved(name, last, fields)
            assert stands_for, f"{name} is no field"
            last = min(stands_for)
            found |= stands_for
    return found


def test_every_field_of_the_documents_is_documented_and_none_besides() -> None:
    page = (ROOT / "docs" / "forwarder.md").read_text()
    table = page[page.index("### Documents") : page.index("### What happens")]
    sentence = re.search(r"It\s+sets\s+([^:]*):", page)
    assert sentence is not None
    of_the_event = re.findall(r"`(?:task\.)?(\w+)`", sentence[1])
    fields = indexed_fields()
    told = documented_fields(table, fields)
    told |= {f"task.{name}" for name in of_the_event} & fields
    assert told == fields


def test_a_field_that_is_not_there_and_one_that_is_missing_would_be_noticed() -> None:
    fields = {"a.b.c", "a.b.d", "a.e"}
    assert documented_fields("| `a.b.c`, `d`, `e` | x |", fields) == fields
    assert documented_fields("| `a.b.*` | x |", fields) == {"a.b.c", "a.b.d"}
    with pytest.raises(AssertionError, match="f is no field"):
        documented_fields("| `a.b.c`, `f` | x |", fields)


@pytest.mark.parametrize("page", ["gpu", "how-to/clusters"])
def test_a_task_on_ec2_waits_for_an_instance(page: str) -> None:
    """With a launch type it does not get the cluster's capacity provider, and fails where no instance runs yet."""
    runs = [script for script in scripts(Path("docs") / f"{page}.md") if "aws ecs run-task" in script]
    assert runs
    assert not [script for script in runs if "--launch-type" in script]


@PAGES
def test_queries_of_logs_insights_name_fields_of_the_record(page: Path) -> None:
    for script in scripts(page):
        for query in re.findall(r'--query-string "([^"]*)"', script):
            fields = re.findall(r"\b(?:record|type)\b[\w.]*", re.sub(r"'[^']*'", "", query))
            assert len(fields) >= 3
            assert [field for field in fields if not is_in_the_record(field)] == []


def test_the_query_for_memory_kills_is_the_one_that_the_template_saves() -> None:
    page = (ROOT / "docs" / "how-to" / "find-out-of-memory.md").read_text()
    (query,) = re.findall(r"^```text\n(filter type .*?)^```", page, re.MULTILINE | re.DOTALL)
    assert " ".join(query.split()) == " ".join(QUERIES["OutOfMemory"].split())


def test_the_page_on_changes_names_code_that_exists() -> None:
    page = (ROOT / "docs" / "contributing" / "changes.md").read_text()
    names = set(re.findall(r"`(?:\w+\.)?([A-Za-z]\w*)(?:\(\w*\))?`", page))
    files = [path for folder in ("profiler", "lambda", "tests") for path in (ROOT / folder).rglob("*.py")]
    words = {word for path in files for word in re.findall(r"\w+", path.read_text())}
    assert {"RunSource", "accepts"} <= names
    assert names - words - {"py"} == set()
