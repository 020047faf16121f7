"""The documentation names what the code has, and the page of faults the tests that there are."""

import re
import shlex
from pathlib import Path

import pytest

from profiler import decode
from profiler.cli.app import group
from profiler.core.notice_channels import CHANNELS
from profiler.forwarder.function_settings import (
    ALL_SUBJECTS,
    read_export_targets,
    read_notice_settings,
    read_settings,
)
from profiler.record.record_model import (
    UNKNOWN_COST,
    Distribution,
    Metrics,
    Report,
    json_schema,
)
from profiler.record.report_text_and_emf import DIMENSION, EMF_METRICS, NAMESPACE
from profiler.schedules.schedule_model import DEFAULT_GRACE_MINUTES
from profiler.settings import DEFAULT_EMF_METRICS, settings_help
from profiler.sizing.prices import PRICE_TABLE_DATE
from tests.cases import each_case
from tests.cloudformation import PARAMETERS, QUERIES, is_in_the_record
from tests.documentation import ROOT, blocks, is_shortened, pages, scripts
from tests.ended_runs import OOM as OUT_OF_MEMORY
from tests.ended_runs import text_of
from tests.runs import lines, report, slowdown
from tests.shown_runs import night

# Of a block of code, beside the page's navigation, without a scroll bar.
GITHUB_COLUMNS = 88
PAGES = each_case("page", pages(), ids=str)
FORWARDER = (ROOT / "docs" / "forwarder.md").read_text()
FAULTS = (ROOT / "docs" / "architecture.md").read_text().partition("\n## Faults\n")[2]


def test_every_setting_of_the_monitor_has_a_row_with_its_default_and_its_meaning() -> None:
    page = (ROOT / "docs" / "commands.md").read_text()
    names = re.findall("^TASK_PROFILER_[A-Z_]+", settings_help(), re.MULTILINE)
    rows = re.findall(
        r"^\| `(TASK_PROFILER_[A-Z_]+)` \| (.+) \| .+ \| (.+) \|$", page, re.MULTILINE
    )
    assert len(names) == 27
    assert [name for name, _, _ in rows] == names
    assert all(default and meaning for _, default, meaning in rows)


def test_every_field_of_the_record_is_documented() -> None:
    page = "".join(
        (ROOT / "docs" / name).read_text() for name in ("record.md", "measured-values.md", "gpu.md")
    )
    fields = {
        name for definition in json_schema()["$defs"].values() for name in definition["properties"]
    }
    assert fields - set(re.findall(r"\w+", page)) == set()


def test_the_line_on_the_page_is_a_report() -> None:
    (line,) = re.findall(
        r"^```json\n(.*?)^```", (ROOT / "docs" / "record.md").read_text(), re.MULTILINE | re.DOTALL
    )
    record = decode(line.replace("\n", "").encode()).record
    assert record.status == "failure"
    assert record.exit_code == 137
    assert record.likely_out_of_memory is True
    assert record.metrics.slowdown_at_vcpu is not None
    assert record.cost != UNKNOWN_COST


def test_the_slack_message_on_the_page_is_the_forwarders() -> None:
    (shown,) = [
        block.text
        for block in blocks(Path("docs/notifications.md"), "text")
        if "Out of memory after" in block.text
    ]
    without_dates = re.sub(r"<!date[^|]*\|([^>]*)>", r"\1", text_of(OUT_OF_MEMORY))
    sent = " ".join(without_dates.replace("*", " ").split())
    parts = [" ".join(part.split()) for part in re.split(r"\n| {3,}", shown.strip())]
    assert [part for part in parts if part not in sent] == []


def test_no_line_of_the_readmes_code_is_cut_at_githubs_width() -> None:
    code = [
        line
        for block in blocks(Path("README.md"), "sh", "text", "console")
        for line in block.text.splitlines()
    ]
    assert code
    assert [line for line in code if len(line) > GITHUB_COLUMNS] == []


def test_the_readme_names_a_source_once_and_the_commands_below_need_no_option() -> None:
    text = (ROOT / "README.md").read_text()
    before, _, after = text.partition("export TASK_PROFILER_FROM=")
    assert "--from " not in after
    assert before.count("--from ") == 1


def test_the_date_of_the_prices_is_documented() -> None:
    """The date of the prices is documented and the costs of metrics are those of their number."""
    assert PRICE_TABLE_DATE in (ROOT / "docs" / "right-size.md").read_text()
    page = (ROOT / "docs" / "operate.md").read_text()
    few, all_of_them = len(DEFAULT_EMF_METRICS), len(EMF_METRICS)
    assert f"at most {few * 0.3:.2f} USD a month with the {few} default metrics" in page
    assert f"at most {all_of_them * 0.3:.2f} USD with all {all_of_them}." in page


def test_the_alarms_are_on_metrics_there_are() -> None:
    page = (ROOT / "docs" / "metrics.md").read_text()
    commands = re.findall(
        r"^aws cloudwatch put-metric-alarm (.*?)^```", page, re.MULTILINE | re.DOTALL
    )
    assert len(commands) == 2
    for command in commands:
        words = shlex.split(command.replace("\\\n", " "))
        given = dict(zip(words[::2], words[1::2], strict=True))
        assert given["--namespace"] == NAMESPACE
        assert given["--dimensions"] == f"Name={DIMENSION},Value=nightly-etl"
        assert given["--metric-name"] in EMF_METRICS


def variable_of(parameter: str) -> str:
    """The environment variable of a template's parameter, by the page's rule."""
    return re.sub(r"(?<!^)(?=[A-Z])", "_", parameter).upper()


def documented_variables() -> tuple[dict[str, str], dict[str, str]]:
    """The defaults of the variables that have a parameter, and of those in the page's table,
    which have none.
    """
    of_parameters = {
        variable_of(name): str(one.get("Default", "")) for name, one in PARAMETERS.items()
    }
    rows = re.findall(r"^\| (`[A-Z_]+`(?:, `[A-Z_]+`)*) \| (.*?) ?\|", FORWARDER, re.MULTILINE)
    own = {
        name: default.strip("` ")
        for names, default in rows
        for name in re.findall(r"`(\w+)`", names)
    }
    return of_parameters, own


def test_every_setting_of_the_forwarder_is_documented_and_none_besides() -> None:
    read = set()
    for file in ("function_settings.py", "notifications/channels.py", "../core/aws_signature.py"):
        source = (ROOT / "profiler" / "forwarder" / file).read_text()
        named = r'(?:environment\.get\(|text\(|_(?:boolean|choice|number|text)\(\s*environment, )"([A-Z_]+)"'
        calls = re.findall(named, source)
        read |= {*calls, *re.findall(r'^    "([A-Z_]+)",$', source, re.MULTILINE)}
    for channel in CHANNELS:
        read |= {*channel.variables.values(), *channel.in_secret}
    assert {
        "ELASTICSEARCH_URL",
        "SLACK_BOT_TOKEN",
        "REPORT_WAIT_SECONDS",
        "FORWARD_LOG_LINES",
    } <= read
    of_parameters, own = documented_variables()
    assert set(own) <= read <= {*of_parameters, *own}


def test_the_forwarders_defaults_are_those_of_the_tables() -> None:
    of_parameters, own = documented_variables()
    log, notice = read_settings({}), read_notice_settings({})
    defaults = {
        "SEARCH_ENGINE": log.engine,
        "ELASTICSEARCH_AWS_AUTH": "es for Amazon's domains",
        "INDEX_PREFIX": log.indices.prefix,
        "INDEX_PERIOD": log.indices.period,
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
    documented = of_parameters | own
    assert {name: documented[name] for name in defaults} == defaults


@PAGES
def test_queries_of_logs_insights_name_fields_of_the_record(page: Path) -> None:
    for script in scripts(page):
        for query in re.findall(r'--query-string "([^"]*)"', script):
            fields = re.findall(r"\b(?:record|type)\b[\w.]*", re.sub(r"'[^']*'", "", query))
            assert len(fields) >= 3
            assert [field for field in fields if not is_in_the_record(field)] == []


def test_the_query_for_memory_kills_is_the_one_that_the_template_saves() -> None:
    page = (ROOT / "docs" / "after-a-bad-night.md").read_text()
    (query,) = re.findall(r"^```text\n(filter type .*?)^```", page, re.MULTILINE | re.DOTALL)
    assert " ".join(query.split()) == " ".join(QUERIES["OutOfMemory"].split())


def test_the_page_for_contributors_names_code_that_exists() -> None:
    page = (
        (ROOT / "CONTRIBUTING.md")
        .read_text()
        .partition("## Where a change goes")[2]
        .partition("\n## ")[0]
    )
    names = set(re.findall(r"`(?:\w+\.)?([A-Za-z]\w*)(?:\(\w*\))?`", page))
    files = [
        path for folder in ("profiler", "lambda", "tests") for path in (ROOT / folder).rglob("*.py")
    ]
    files.append(ROOT / "lambda" / "template.yaml")
    words = {word for path in files for word in re.findall(r"\w+", path.read_text())}
    assert {"RunSource", "accepts"} <= names
    assert names - words - {"py"} == set()


def names_in(*folders: str) -> set[str]:
    paths = [path for folder in folders for path in (ROOT / "tests").glob(folder)]
    return {
        name
        for path in paths
        for name in re.findall(r"^def (test_\w+)\(", path.read_text(), re.MULTILINE)
    }


def test_each_fault_on_the_page_has_its_test() -> None:
    """Each test on the page of faults is there each of a fault on the page and each fault names
    one.
    """
    named = set(re.findall(r"`(test_\w+)`", FAULTS))
    assert len(named) > 50
    assert named - names_in("**/test_*.py") == set()
    assert (
        names_in("faults/test_monitor_faults.py", "faults/test_forwarder_faults.py") - named
        == set()
    )
    faults = [line for line in FAULTS.splitlines() if line.startswith("- ")]
    assert len(faults) > 50
    assert [line for line in faults if not re.search(r"[.:] (`test_\w+` ?)+$", line)] == []


# The outputs of ``show`` and ``recommend`` are what the commands print.

BLOCK = re.compile(
    r"^```console\n\$ task-profiler ((?:recommend|show) .*?)\n(.*?)^```", re.MULTILINE | re.DOTALL
)
BILLED_MS = 1_800_000
INIT_MS = 20_000
WORST_RUN = 17


def nightly_etl(number: int) -> Report:
    is_worst = number == WORST_RUN
    bounds = (
        {"v0_25": (1.31, 1.62), "v0_5": (1.02, 1.1)}
        if is_worst
        else {"v0_25": (1.2, 1.4), "v0_5": (1.0, 1.05)}
    )
    return report(
        number,
        family="nightly-etl",
        task_id=f"etl-{number}",
        size=(1, 4096),
        peak_mb=821 - 5 * (29 - number),
        p95=0.3 if number != 21 else 0.48,
        status="failure" if number in (4, 11) else "success",
        others={"task-monitor": Metrics(max_memory_used_mb=31, vcpu_used=Distribution(p95=0.01))},
        metrics={
            "slowdown_at_vcpu": slowdown(**bounds),
            "vcpu_saturated_percent": 1.0,
            "init_duration_ms": INIT_MS,
            "duration_ms": BILLED_MS - INIT_MS + (60_000 if number % 2 else -60_000),
            "billed_duration_ms": BILLED_MS + (60_000 if number % 2 else -60_000),
        },
    )


RUNS = {"right-size.md": map(nightly_etl, range(30)), "after-a-bad-night.md": night()}


@pytest.mark.parametrize("page", RUNS)
def test_the_example_is_the_commands_output_with_omissions(
    page: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    ((command, shown),) = BLOCK.findall((ROOT / "docs" / page).read_text())
    monkeypatch.chdir(tmp_path)
    Path("reports.jsonl").write_bytes(lines(RUNS[page]))
    group.main(
        command.replace("logs:/ecs/nightly-etl", "reports.jsonl").split(), standalone_mode=False
    )
    assert is_shortened(shown, capfd.readouterr().out)


def test_the_table_of_past_runs_is_the_commands_output(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    page = (ROOT / "docs" / "past-runs.md").read_text()
    ((command, shown),) = re.findall(
        r"^```console\n\$ task-profiler (history .*?)\n(.*?)^```", page, re.MULTILINE | re.DOTALL
    )
    monkeypatch.chdir(ROOT)
    group.main(shlex.split(command), standalone_mode=False)
    assert capfd.readouterr().out == shown


# A managed daemon in words, in AWS's API and CLI, CloudFormation, Terraform and CDK.
DAEMON = (
    r"managed daemon|AWS::ECS::Daemon|aws_ecs_daemon|(?:create|register|update)-daemon"
    r"|(?:Create|Update)Daemon|Daemon(?:TaskDefinition|Definition)|daemonTaskDefinition|CfnDaemon"
)
NOT_CRITICAL = r"""(?i)["']?critical["']?\W{1,4}false"""
DAEMON_PAGE = Path("docs/instance-monitor.md")


def offered_files() -> list[Path]:
    """What users read and copy: pages, examples, templates and definitions."""
    folders = ("examples", "taskdef", "lambda", "kibana", "grafana", "profiler")
    kinds = {".md", ".json", ".yaml", ".yml", ".tf", ".ts", ".sh", ".py"}
    found = (path for folder in folders for path in (ROOT / folder).rglob("*"))
    others = (path.relative_to(ROOT) for path in found if path.suffix in kinds)
    return sorted({*pages(), *(path for path in others if "node_modules" not in path.parts)})


def test_each_managed_daemon_that_users_are_offered_is_not_critical() -> None:
    """By default, ECS drains an instance, which stops its tasks, when the daemon fails."""
    texts = {path: (ROOT / path).read_text(errors="replace") for path in offered_files()}
    daemons = [path for path, text in texts.items() if re.search(DAEMON, text)]
    assert DAEMON_PAGE in daemons
    assert [path for path in daemons if not re.search(NOT_CRITICAL, texts[path])] == []


@pytest.mark.parametrize(
    ("text", "is_safe"),
    [
        ("aws ecs create-daemon --daemon-name task-monitor", False),
        ('"daemonTaskDefinition": {"containerDefinitions": [{"essential": true}]}', False),
        ("Type: AWS::ECS::DaemonTaskDefinition\nProperties: {Critical: true}", False),
        ('resource "aws_ecs_daemon" "monitor" {}', False),
        ('resource "aws_ecs_daemon" "monitor" {\n  critical = false\n}', True),
        ('Create it with `"critical": false`: a managed daemon is critical by default.', True),
        ("new ecs.CfnDaemon(this, 'monitor', { critical: false })", True),
    ],
)
def test_a_managed_daemon_is_found_in_each_notation(text: str, *, is_safe: bool) -> None:
    assert re.search(DAEMON, text)
    assert bool(re.search(NOT_CRITICAL, text)) is is_safe


def test_the_monitor_of_instances_is_a_service_whose_end_drains_no_instance() -> None:
    template = (ROOT / "lambda" / "template.yaml").read_text()
    terraform = (ROOT / "taskdef/terraform/instance-monitor/examples/service/main.tf").read_text()
    for text in (template, terraform):
        assert re.search(r"(?i)scheduling_?strategy\W{1,4}\"?DAEMON", text)
        assert not re.search(DAEMON, text)
