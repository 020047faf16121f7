"""Live metrics of a real monitor beside a served task."""

import socket
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, suppress
from pathlib import Path

import pytest
import requests
from prometheus_client.parser import text_string_to_metric_families

from benchmarks.measured_process import read_memory
from profiler.prometheus.server import MAX_CONNECTIONS
from tests.integration.sidecar import Sidecar
from tests.search.server import free_ports
from tests.waiting import wait_until

NOWHERE = {"AWS_EC2_METADATA_DISABLED": "true", "HOME": "/nonexistent"}


@pytest.fixture
def port() -> int:
    return free_ports(1)[0]


def scraped(port: int) -> dict[tuple[str, str], float]:
    """By name and container; empty while nobody listens."""
    try:
        text = requests.get(f"http://127.0.0.1:{port}/metrics", timeout=30).text
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
    with Sidecar(NOWHERE, PROMETHEUS_PORT=str(port)) as sidecar:
        wait_until(lambda: used in scraped(port), 30, "the batch's second sample")
        found = scraped(port)
        assert found[used] == pytest.approx(0.4, rel=0.1)
        assert found["container_memory_limit_bytes", "batch"] == 512 * 2**20
        assert found["instance_memory_size_bytes", ""] > 2**20
        assert found["monitor_memory_peak_bytes", ""] > 2**20
        sidecar.end_batch()
        (report,), _ = sidecar.finish()
    assert (report["record"]["status"], report["record"]["monitor"]["warnings"]) == ("success", [])
    assert scraped(port) == {}


def test_what_clients_send_is_not_kept_in_memory(port: int) -> None:
    """Heads of six megabytes on all connections, of which one alone would be more than what is allowed here."""
    with Sidecar(NOWHERE, PROMETHEUS_PORT=str(port)) as sidecar:
        wait_until(lambda: scraped(port), 30, "the first scrape")
        before = read_memory(sidecar.process.pid).peak_mib
        with ThreadPoolExecutor(MAX_CONNECTIONS) as pool:
            assert len(list(pool.map(talk, [port] * MAX_CONNECTIONS))) == MAX_CONNECTIONS
        wait_until(lambda: scraped(port), 30, "a free place")
        assert read_memory(sidecar.process.pid).peak_mib - before < 6
        sidecar.end_batch()
        (report,), _ = sidecar.finish()
    assert report["record"]["status"] == "success"


def talk(port: int) -> None:
    """A request whose headers do not end, by a client that goes on as long as somebody listens."""
    with closing(socket.create_connection(("127.0.0.1", port))) as client, suppress(ConnectionError):
        client.sendall(b"GET /metrics HTTP/1.1\r\n")
        for number in range(99):
            client.sendall(b"X%02d: " % number + b"x" * 65_500 + b"\r\n")
        client.sendall(b"\r\n")
        while client.recv(65536):
            pass


def test_a_port_in_use_is_one_error_and_the_run_is_reported(port: int) -> None:
    with closing(socket.create_server(("0.0.0.0", port))), Sidecar(NOWHERE, PROMETHEUS_PORT=str(port)) as sidecar:
        sidecar.wait_for_samples()
        sidecar.end_batch()
        (report,), errors = sidecar.finish()
    told = [line for line in errors if f"port {port}" in line["event"]]
    assert [line["level"] for line in told] == ["error"]
    assert report["record"]["status"] == "success"
    assert report["record"]["monitor"]["warnings"] == [told[0]["event"]]


def test_without_a_port_the_monitor_listens_nowhere() -> None:
    """State 0A in the kernel's tables is LISTEN; whose a socket is, its inode tells."""
    with Sidecar(NOWHERE) as sidecar:
        sidecar.wait_for_samples()
        pid = sidecar.process.pid
        assert not own_sockets(pid) & {*listening(f"/proc/{pid}/net/tcp"), *listening(f"/proc/{pid}/net/tcp6")}


def listening(table: str) -> Iterator[str]:
    for line in Path(table).read_text().splitlines()[1:]:
        fields = line.split()
        if fields[3] == "0A":
            yield fields[9]


def own_sockets(pid: int) -> set[str]:
    found = set()
    for entry in Path(f"/proc/{pid}/fd").iterdir():
        with suppress(FileNotFoundError):  # closed since
            found.add(str(entry.readlink()).removeprefix("socket:[").rstrip("]"))
    return found
