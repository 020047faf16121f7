"""Live metrics of a real monitor beside a served task."""

import socket
from contextlib import closing

import pytest
import requests
from prometheus_client.parser import text_string_to_metric_families

from tests.integration.sidecar import NO_AWS, Sidecar
from tests.search.server import free_ports
from tests.waiting import wait_until


@pytest.fixture
def port() -> int:
    return free_ports(1)[0]


def scraped(port: int) -> dict[tuple[str, str], float]:
    """By name and container; empty while nobody listens."""
    try:
        text = requests.get(f"http://127.0.0.1:{port}/metrics", timeout=120).text
    except requests.ConnectionError:
        return {}
    families = text_string_to_metric_families(text)
    return {
        (one.name.removeprefix("task_profiler_"), one.labels.get("container", "")): one.value
        for family in families
        for one in family.samples
    }


def test_the_task_can_be_scraped_until_its_report_is_out(port: int) -> None:
    used = ("container_cpu_used_vcpus", "batch")
    with Sidecar(NO_AWS, PROMETHEUS_PORT=str(port)) as sidecar:
        wait_until(lambda: used in scraped(port), 120, "the batch's second sample")
        found = scraped(port)
        assert found[used] == pytest.approx(0.4, rel=0.1)
        assert found["container_memory_limit_bytes", "batch"] == 512 * 2**20
        assert found["instance_memory_size_bytes", ""] > 2**20
        assert found["monitor_memory_peak_bytes", ""] > 2**20
        sidecar.end_batch()
        (report,), _ = sidecar.finish()
    assert (report["record"]["status"], report["record"]["monitor"]["warnings"]) == ("success", [])
    assert scraped(port) == {}


def test_a_port_in_use_is_one_error_and_the_run_is_reported(port: int) -> None:
    with closing(socket.create_server(("0.0.0.0", port))), Sidecar(NO_AWS, PROMETHEUS_PORT=str(port)) as sidecar:
        (report,), errors = sidecar.watch()
    told = [line for line in errors if f"port {port}" in line["event"]]
    assert [line["level"] for line in told] == ["error"]
    assert report["record"]["status"] == "success"
    assert report["record"]["monitor"]["warnings"] == [told[0]["event"]]
