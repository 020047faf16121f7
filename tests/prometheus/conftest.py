"""Fixtures of the tests against a real Prometheus: two monitors, scraped every half second."""

import contextlib
import shutil
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import requests
from msgspec import Struct

from tests.fake_neuron_monitor import install
from tests.fake_nvml import compile_driver
from tests.integration.sidecar import Sidecar
from tests.neuron_documents import percentiles, report, runtime
from tests.prerequisites import skip_or_fail
from tools.search_server import free_ports
from tools.waiting import wait_until

NOWHERE = {"AWS_EC2_METADATA_DISABLED": "true", "HOME": "/nonexistent"}
BUSY = report(runtime({0: 75.0, 1: 0}, {0: 10, 1: 0}, total_latency=percentiles(0.1, 0.2, 0.3)), ecc={0: (0, 0)})
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
        answer = requests.get(f"{self.url}/api/v1/{path}", params=parameters, timeout=120)
        document = answer.json()
        assert document["status"] == "success", document
        return document["data"]

    def query(self, expr: str) -> list[tuple[dict[str, str], float]]:
        """Labels and value of each series of an instant query."""
        found = self.ask("query", query=expr)["result"]
        return [(one["metric"], float(one["value"][1])) for one in found]


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
    arguments = (f"--config.file={config}", f"--storage.tsdb.path={folder}/data", f"--web.listen-address={url}")
    with (folder / "log").open("wb") as log:
        process = subprocess.Popen([program("prometheus"), *arguments], cwd=folder, stdout=log, stderr=log)
    try:
        prometheus = Prometheus(f"http://{url}")
        wait_until(lambda: is_ready(prometheus), 60, "Prometheus to answer")
        yield prometheus
    finally:
        process.kill()
        process.wait()


@pytest.fixture
def prometheus(tmp_path: Path) -> Iterator[Started]:
    """Starts a server with a configuration of the test's."""
    with contextlib.ExitStack() as stack:
        yield lambda configuration: stack.enter_context(started(configuration, free_ports(1)[0], tmp_path))


@pytest.fixture(scope="session")
def scraped(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Scraped]:
    """A task with GPUs and Neuron devices in bridge mode, and one in awsvpc mode."""
    program("prometheus")  # or skip at once
    folder = tmp_path_factory.mktemp("prometheus")
    server_port, *ports = free_ports(3)
    with contextlib.ExitStack() as stack:
        driver = {"LD_LIBRARY_PATH": str(compile_driver(folder))}
        neuron = install(folder, [{"repeat": BUSY}])
        devices = {**NOWHERE, **driver, "PATH": f"{neuron.parent}:/usr/bin:/bin"}
        stack.enter_context(Sidecar(devices, PROMETHEUS_PORT=str(ports[0])))
        stack.enter_context(Sidecar(NOWHERE, network_mode="awsvpc", PROMETHEUS_PORT=str(ports[1])))
        prometheus = stack.enter_context(started(_CONFIG % tuple(ports), server_port, folder))
        yield Scraped(prometheus, *ports)


def is_ready(prometheus: Prometheus) -> bool:
    try:
        return requests.get(f"{prometheus.url}/-/ready", timeout=120).ok
    except requests.ConnectionError:
        return False
