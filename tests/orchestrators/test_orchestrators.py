"""What the functions of Airflow, Dagster and Prefect say about a task with a monitor (``make
orchestrators``).
"""

import json
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import profiler
from profiler.core.ecs_terms import ReportStream
from tests.orchestrators import documented_verdicts, matrix
from tests.orchestrators.matrix import BATCHES, LAST_LINE, MONITORS, STREAMS, WITHOUT, WRAPPER, Case

ROOT = Path(profiler.__file__).parent.parent
ENVIRONMENTS = ROOT / ".venv-orchestrators"
PAGE = ROOT / "docs" / "orchestrators.md"
END = "<!-- end -->\n"
TOOLS = ("airflow", "dagster", "prefect")
# Two containers are too many for it, whatever they do.
UNNAMED = "PipesECSClient without pipes_container_name"
# Of each tool's table on the page, the columns and the functions whose verdicts they have.
TABLES = {
    "airflow": {"`EcsRunTaskOperator`": "EcsRunTaskOperator", "executor": "executor"},
    "dagster": {
        "`PipesECSClient`": "PipesECSClient",
        "run launcher": "run launcher",
        "step executor": "step executor",
    },
    "prefect": {
        "container `prefect`": "container prefect",
        "another container": "other container",
    },
    "step functions": {documented_verdicts.STEP_FUNCTIONS: documented_verdicts.STEP_FUNCTIONS},
    "aws batch": {documented_verdicts.BATCH: documented_verdicts.BATCH},
}
WITH_XCOM = "airflow"

Verdicts = dict[Case, dict[str, Any]]


@pytest.fixture(scope="module")
def verdicts(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Verdicts]:
    """What each function says about each case; XCom is what an operator returns."""
    aws, home = matrix.OrchestratorAws(), tmp_path_factory.mktemp("home")
    environment = {
        "PATH": os.environ["PATH"],
        "HOME": str(home),
        "AIRFLOW_HOME": str(home),
        "PREFECT_HOME": str(home),
        "AWS_ENDPOINT_URL": aws.url,
        "AWS_ACCESS_KEY_ID": "x",
        "AWS_SECRET_ACCESS_KEY": "x",
        "AWS_DEFAULT_REGION": "us-east-1",
        "DO_NOT_TRACK": "1",
        "DAGSTER_DISABLE_TELEMETRY": "1",
        "PREFECT_SERVER_ANALYTICS_ENABLED": "false",
    }
    found: Verdicts = {case: documented_verdicts.verdicts(case) for case in matrix.cases()}
    for tool in TOOLS:
        done = subprocess.run(
            [
                ENVIRONMENTS / tool / "bin" / "python",
                Path(__file__).with_name(f"{tool}_verdicts.py"),
            ],
            input=json.dumps([case.name for case in found]),
            env=environment,
            text=True,
            capture_output=True,
            check=False,
        )
        assert done.returncode == 0, done.stderr[-4000:]
        said = json.loads(done.stdout.splitlines()[-1])
        for case, of_case in found.items():
            of_case.update(said[case.name])
    yield found
    aws.close()


def of(
    verdicts: Verdicts, batch: str, monitor: str, stream: ReportStream = "batch"
) -> dict[str, Any]:
    return {
        name: said
        for name, said in verdicts[Case(batch, monitor, stream)].items()
        if name != UNNAMED
    }


def without_xcom(said: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in said.items() if not name.startswith("xcom")}


@pytest.mark.parametrize("batch", BATCHES)
def test_neither_a_monitor_that_exited_with_0_nor_the_wrapper_changes_a_verdict(
    verdicts: Verdicts, batch: str
) -> None:
    alone = of(verdicts, batch, WITHOUT)
    assert without_xcom(of(verdicts, batch, "exited 0")) == without_xcom(alone)
    assert of(verdicts, batch, "exited 0", "monitor") == alone
    wrapped = verdicts[Case(batch, WRAPPER, "batch")]
    assert without_xcom(wrapped) == without_xcom(verdicts[Case(batch, WITHOUT, "batch")])


def test_the_report_replaces_xcom_only_in_the_batchs_stream(verdicts: Verdicts) -> None:
    for name, value in of(verdicts, "0", "exited 0").items():
        if name.startswith("xcom"):
            assert json.loads(value)["type"] == "task.report", name
            assert of(verdicts, "0", "exited 0", "monitor")[name] == LAST_LINE
            assert of(verdicts, "0", WITHOUT)[name] == LAST_LINE


def test_apart_from_xcom_the_stream_changes_no_verdict(verdicts: Verdicts) -> None:
    for case in verdicts:
        if case.stream == "monitor":
            other = of(verdicts, case.batch, case.monitor)
            assert without_xcom(of(verdicts, case.batch, case.monitor, "monitor")) == without_xcom(
                other
            )


def test_pipes_refuses_a_second_container_without_a_name(verdicts: Verdicts) -> None:
    said = {
        case.monitor: of_case[UNNAMED] for case, of_case in verdicts.items() if case.batch == "0"
    }
    assert {monitor for monitor, verdict in said.items() if verdict == "ok"} == {WITHOUT, WRAPPER}


def xcom(value: str | None) -> str:
    return "" if value is None else "batch's line" if value == LAST_LINE else "report"


def table(verdicts: Verdicts, tool: str) -> str:
    """The verdicts of a tool's functions as a table.

    Functions that always agree share a column; batches and monitors share a row.
    """
    columns: dict[tuple[str, ...], list[str]] = {}
    keys = [(batch, monitor) for batch in BATCHES for monitor in MONITORS]
    for title, name in TABLES[tool].items():
        columns.setdefault(
            tuple(verdicts[Case(*key, STREAMS[0])][name] for key in keys), []
        ).append(title)
    shown = {", ".join(titles): said for said, titles in columns.items()}
    for stream in STREAMS if tool == WITH_XCOM else ():
        of_stream = (
            verdicts.get(Case(*key, stream)) or verdicts[Case(*key, STREAMS[0])] for key in keys
        )
        shown[f"XCom, `{stream}`"] = tuple(xcom(said["xcom"]) for said in of_stream)
    alike: dict[tuple[str, tuple[str, ...]], list[str]] = {}
    for (batch, monitor), *cells in zip(keys, *shown.values(), strict=True):
        alike.setdefault((batch, tuple(cells)), []).append(monitor)
    rows: dict[tuple[str, tuple[str, ...]], list[str]] = {}
    for (batch, of_row), monitors in alike.items():
        rows.setdefault((", ".join(monitors), of_row), []).append(batch)
    titles = ("Batch", "Monitor", *shown)
    lines = [
        titles,
        ("-",) * len(titles),
        *((", ".join(rows[key]), key[0], *key[1]) for key in rows),
    ]
    return "".join(f"|{'|'.join(cells)}|\n" for cells in lines)


def with_tables(page: str, verdicts: Verdicts) -> str:
    """The page with the table of each tool."""
    for tool in TABLES:
        start = f"<!-- make orchestrators WRITE=1: {tool} -->\n"
        before, _, rest = page.partition(start)
        _, _, after = rest.partition(END)
        page = before + start + table(verdicts, tool) + END + after
    return page


def test_the_page_has_a_table_for_each_tool(verdicts: Verdicts) -> None:
    written = PAGE.read_text()
    generated = with_tables(written, verdicts)
    if os.environ.get("WRITE"):
        PAGE.write_text(generated)
    assert PAGE.read_text() == generated, "run make orchestrators WRITE=1"
