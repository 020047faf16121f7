"""What the dashboard asks, answered by a real Prometheus that scraped real monitors; how
Prometheus finds tasks.

Two monitors are scraped every half second.
"""

import contextlib
import json
import math
import re
import shutil
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import requests
from msgspec import Struct

from profiler.monitor.prometheus.prometheus_metrics import LIVE_METRICS
from tests.fake_neuron_monitor import install
from tests.fake_nvml import compile_driver
from tests.grafana_dashboard import PANELS, VARIABLES, Panel, Query
from tests.integration.sidecar import NO_AWS, Sidecar
from tests.neuron_documents import percentiles, report, runtime
from tests.prerequisites import skip_or_fail
from tests.task_endpoint import Task, TaskEndpoint
from tools.search_server import free_ports
from tools.waiting import LIMIT_SECONDS, wait_until

BUSY = report(
    runtime({0: 75.0, 1: 0}, {0: 10, 1: 0}, total_latency=percentiles(0.1, 0.2, 0.3)),
    ecc={0: (0, 0)},
)
_MAPPED_BYTES = 80_000_000
# The driver's GPUs are the task's: the idle time of GPUs that may be others' is not told.
_GPU_UUIDS = [f"GPU-0000000{index}-aaaa-bbbb-cccc-dddddddddddd" for index in range(2)]
_CONFIG = """
global: {scrape_interval: 500ms, scrape_timeout: 500ms}
scrape_configs:
  - job_name: tasks
    static_configs: [{targets: ['127.0.0.1:%d', '127.0.0.1:%d']}]
"""


def program(name: str) -> str:
    """A program of Debian's package prometheus."""
    found = shutil.which(name)
    if found is None:
        skip_or_fail(f"there is no {name}: on Debian, apt-get install prometheus")
    return found


class Prometheus(Struct, frozen=True):
    """A server that answers at ``url``."""

    url: str

    def ask(self, path: str, **parameters: str) -> Any:
        """The ``data`` of an answer of the HTTP API; what is wrong with a query is raised."""
        answer = requests.get(f"{self.url}/api/v1/{path}", params=parameters, timeout=LIMIT_SECONDS)
        document = answer.json()
        assert document["status"] == "success", document
        return document["data"]

    def query(self, expr: str, at: float | None = None) -> list[tuple[dict[str, str], float]]:
        """Labels and value of each series of an instant query, of now or another moment."""
        moment = {} if at is None else {"time": str(at)}
        found = self.ask("query", query=expr, **moment)["result"]
        return [(one["metric"], float(one["value"][1])) for one in found]


class _MappingTask(Task):
    """Its containers keep 80 MB of their files mapped."""

    def _sample(self, name: str) -> dict[str, object]:
        document: dict[str, Any] = super()._sample(name)
        memory = document["memory_stats"]
        memory["usage"] += _MAPPED_BYTES
        for key in ("cache", "active_file", "mapped_file"):
            for prefix in ("", "total_"):
                memory["stats"][f"{prefix}{key}"] += _MAPPED_BYTES
        return document


Started = Callable[[str], Prometheus]


class Scraped(Struct, frozen=True):
    """A Prometheus, and the ports of the two monitors that it scrapes."""

    prometheus: Prometheus
    with_devices: int
    with_shared_network: int


@contextlib.contextmanager
def started(configuration: str, port: int, folder: Path) -> Iterator[Prometheus]:
    """A server with its files in a folder, until it is no longer needed."""
    config = folder / "prometheus.yml"
    config.write_text(configuration)
    url = f"127.0.0.1:{port}"
    arguments = (
        f"--config.file={config}",
        f"--storage.tsdb.path={folder}/data",
        f"--web.listen-address={url}",
    )
    with (folder / "log").open("wb") as log:
        process = subprocess.Popen(
            [program("prometheus"), *arguments], cwd=folder, stdout=log, stderr=log
        )
    try:
        prometheus = Prometheus(f"http://{url}")
        wait_until(lambda: is_ready(prometheus), "Prometheus to answer")
        yield prometheus
    finally:
        process.kill()
        process.wait()


@pytest.fixture
def prometheus(tmp_path: Path) -> Iterator[Started]:
    """Starts a server with a configuration of the test's."""
    with contextlib.ExitStack() as stack:
        yield lambda configuration: stack.enter_context(
            started(configuration, free_ports(1)[0], tmp_path)
        )


@pytest.fixture(scope="session")
def scraped(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Scraped]:
    """A task with GPUs and Neuron devices in bridge mode, and one in awsvpc mode."""
    program("prometheus")  # or skip at once
    folder = tmp_path_factory.mktemp("prometheus")
    server_port, *ports = free_ports(3)
    with contextlib.ExitStack() as stack:
        driver = {"LD_LIBRARY_PATH": str(compile_driver(folder))}
        neuron = install(folder, [{"repeat": BUSY}])
        devices = {**NO_AWS, **driver, "PATH": f"{neuron.parent}:/usr/bin:/bin"}
        endpoint = stack.enter_context(TaskEndpoint(_MappingTask(2)))
        stack.enter_context(
            Sidecar(
                devices,
                endpoint=endpoint,
                PROMETHEUS_PORT=str(ports[0]),
                GPU_UUIDS=",".join(_GPU_UUIDS),
            )
        )
        stack.enter_context(Sidecar(NO_AWS, network_mode="awsvpc", PROMETHEUS_PORT=str(ports[1])))
        prometheus = stack.enter_context(started(_CONFIG % tuple(ports), server_port, folder))
        yield Scraped(prometheus, *ports)


def is_ready(prometheus: Prometheus) -> bool:
    try:
        return requests.get(f"{prometheus.url}/-/ready", timeout=LIMIT_SECONDS).ok
    except requests.ConnectionError:
        return False


# What Grafana puts into a query.
CHOICES: Mapping[str, str] = {
    "$family": ".*",
    "$task": ".*",
    "$__rate_interval": "5s",
    "$__range": "1m",
}
SHOWN_NAMES = {metric.full_name for metric in LIVE_METRICS}
# The GPUs of these tests have no NVLink, and their tasks no huge pages.
NOT_MEASURED = re.compile("_nvlink_|_huge_pages_")
QUERIES = [
    (panel, query)
    for panel in PANELS
    for query in panel.queries
    if NOT_MEASURED.search(query.expr) is None
]


def filled(expr: str, choices: Mapping[str, str] = CHOICES) -> str:
    for name, value in choices.items():
        expr = expr.replace(name, value)
    assert "$" not in expr
    return expr


@pytest.mark.parametrize(
    ("panel", "query"), QUERIES, ids=[f"{one.title}-{n}" for n, (one, _) in enumerate(QUERIES)]
)
def test_a_query_finds_series_that_its_legend_can_name(
    scraped: Scraped, panel: Panel, query: Query
) -> None:
    # Without a task, the number is 0.
    expr = filled(query.expr).removesuffix(" or vector(0)")

    def asked() -> tuple[list[tuple[dict[str, str], float]], float] | None:
        at = time.time() - 2  # what was scraped until then is stored
        series = scraped.prometheus.query(expr, at)
        return (series, at) if series else None

    found, at = wait_until(asked, f"an answer to {expr}")
    assert len(scraped.prometheus.query(filled(query.expr), at)) == len(found)
    for labels, value in found:
        assert math.isfinite(value)
        assert value >= 0
        assert panel.unit != "percentunit" or panel.axis_max is None or value <= panel.axis_max
        assert set(re.findall(r"{{(\w+)}}", query.legend)) <= set(labels)
    names = [legend(query, labels) for labels, _ in found]
    assert panel.kind == "table" or len(set(names)) == len(names), "two series of one name"


def legend(query: Query, labels: Mapping[str, str]) -> str:
    # Both monitors say that they are the same task; in ECS no two are.
    return re.sub(r"{{(\w+)}}", lambda match: labels[match[1]], query.legend) + labels.get(
        "instance", ""
    )


def test_the_choices_are_the_families_and_their_tasks(scraped: Scraped) -> None:
    found = {}
    for variable in VARIABLES:
        match = re.fullmatch(r"label_values\((.+), (\w+)\)", variable.query)
        assert match is not None
        ask = partial(
            scraped.prometheus.ask, f"label/{match[2]}/values", **{"match[]": filled(match[1])}
        )
        found[variable.name] = wait_until(ask, f"the values of {variable.name}")
    assert found == {"family": ["bench"], "task": ["0123456789abcdef0123456789abcdef"]}


def test_the_alerts_of_the_documentation_are_rules_that_prometheus_takes(scraped: Scraped) -> None:
    file = Path(__file__).parents[2] / "examples" / "alerts" / "prometheus_rules.yml"
    rules = file.read_text()
    subprocess.run([program("promtool"), "check", "rules", file], check=True)
    expressions = re.findall(r"^ +expr: (.+)$", rules, re.MULTILINE)
    assert len(expressions) == rules.count("- alert: ") >= 5
    for expr in expressions:
        scraped.prometheus.query(expr)
        assert {
            f"task_profiler_{name}" for name in re.findall(r"task_profiler_(\w+)", expr)
        } <= SHOWN_NAMES


def test_promtool_has_nothing_to_say(scraped: Scraped) -> None:
    for port in (scraped.with_devices, scraped.with_shared_network):
        text = requests.get(f"http://127.0.0.1:{port}/metrics", timeout=LIMIT_SECONDS).content
        done = subprocess.run(
            [program("promtool"), "check", "metrics"], input=text, capture_output=True, check=False
        )
        assert done.returncode == 0, done.stderr
        assert done.stdout == b""
        assert done.stderr == b""


PAGE = (Path(__file__).parents[2] / "docs" / "metrics.md").read_text()
CONFIGURATIONS = re.findall(r"^```yaml\n(scrape_configs:\n.*?)^```", PAGE, re.MULTILINE | re.DOTALL)


def without_aws(configuration: str, file: Path) -> str:
    """Targets from a file: Prometheus before 3.8 does not know ``aws_sd_configs``, and there is
    no AWS here.
    """
    discovery = re.compile(r"( +)aws_sd_configs:\n(?:\1  .*\n)+")
    return discovery.sub(rf"\1file_sd_configs: [{{files: [{file}]}}]\n", configuration)


def test_promtool_takes_the_configurations(tmp_path: Path) -> None:
    assert len(CONFIGURATIONS) == 2
    for configuration in CONFIGURATIONS:
        file = tmp_path / "prometheus.yml"
        file.write_text(without_aws(configuration, tmp_path / "targets.json"))
        subprocess.run([program("promtool"), "check", "config", "--syntax-only", file], check=True)


def test_a_tasks_tag_says_that_it_is_scraped_and_where(prometheus: Started, tmp_path: Path) -> None:
    (configuration,) = (one for one in CONFIGURATIONS if "aws_sd_configs" in one)
    file = tmp_path / "targets.json"
    tags = {
        "10.0.3.17": {"PrometheusPort": "8000"},
        "10.0.4.9": {"PrometheusPort": "9000"},
        "10.0.4.10": {},
    }
    found = [
        {
            "targets": [f"{address}:80"],
            "labels": {
                "__meta_ecs_ip_address": address,
                **{f"__meta_ecs_tag_task_{name}": value for name, value in pairs.items()},
            },
        }
        for address, pairs in tags.items()
    ]
    file.write_text(json.dumps(found))
    server = prometheus(without_aws(configuration, file))
    targets = wait_until(
        lambda: server.ask("targets", state="active")["activeTargets"], "the targets"
    )
    assert {target["labels"]["instance"] for target in targets} == {
        "10.0.3.17:8000",
        "10.0.4.9:9000",
    }
