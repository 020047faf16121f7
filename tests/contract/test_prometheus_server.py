"""The metrics over real HTTP: what clients do, and what they cannot do."""

import errno
import re
import socket
from collections.abc import Iterator
from contextlib import closing, suppress
from typing import Any
from unittest.mock import Mock

import pytest
import requests
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from profiler.monitor.prometheus.exporter import MetricsServer, PrometheusExporter
from tests.fakes import FakeLog
from tests.prometheus_world import ScrapedTask
from tests.values import present
from tools.waiting import LIMIT_SECONDS

LOCAL, IPV6_LOCAL = "127.0.0.1", "::1"


BODY = b"a_metric 1.0\n"


@pytest.fixture
def page() -> Mock:
    """What the server is given to show."""
    return Mock(return_value=BODY)


@pytest.fixture
def log() -> FakeLog:
    return FakeLog()


@pytest.fixture
def server(page: Mock, log: FakeLog) -> Iterator[MetricsServer]:
    with closing(MetricsServer((LOCAL, 0), page, log)) as server:
        server.start()
        yield server
    with pytest.raises(ConnectionRefusedError):  # after the end nobody listens
        socket.create_connection((LOCAL, server.port))


def get(server: MetricsServer, path: str = "/metrics") -> requests.Response:
    return requests.get(f"http://{LOCAL}:{server.port}{path}", timeout=LIMIT_SECONDS)


def test_the_metrics_are_at_their_path_whatever_is_asked_of_them(server: MetricsServer) -> None:
    for path in ("/metrics", "/metrics?name[]=x"):
        answer = get(server, path)
        assert answer.status_code == 200
        assert answer.content == BODY
        assert answer.headers["Content-Type"] == "text/plain; version=0.0.4; charset=utf-8"
        assert answer.headers["Server"] == "task-profiler"


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [("GET", "/etc/passwd", 404), ("POST", "/metrics", 501), ("DELETE", "/metrics", 501)],
)
def test_there_is_nothing_else(
    server: MetricsServer, page: Mock, method: str, path: str, status: int
) -> None:
    answer = requests.request(method, f"http://{LOCAL}:{server.port}{path}", timeout=LIMIT_SECONDS)
    assert answer.status_code == status
    assert page.call_count == 0


def test_a_scrape_that_fails_is_one_error_and_the_next_one_works(
    server: MetricsServer, page: Mock, log: FakeLog
) -> None:
    page.side_effect = ValueError("a bug")
    for _ in range(2):
        with pytest.raises(requests.ConnectionError):
            get(server)
    page.side_effect = None
    assert get(server).status_code == 200
    ((level, event, fields),) = log.lines
    assert level == "error"
    assert fields == {"reason": "ValueError('a bug')"}
    assert "report is not affected" in event


def connected(server: MetricsServer, said: bytes = b"") -> closing[socket.socket]:
    """A client that has said this and waits for half a minute at most."""
    client = socket.create_connection((LOCAL, server.port))
    client.settimeout(LIMIT_SECONDS)
    client.sendall(said)
    return closing(client)


def read_response(client: socket.socket) -> bytes:
    """All that the server says until it closes; it may cut short who still talks."""
    said = b""
    with suppress(ConnectionError):
        while more := client.recv(65536):
            said += more
    return said


LINE = b"GET /metrics HTTP/1.1\r\n"


def test_a_silent_client_delays_the_next_scrape_and_is_then_closed(
    server: MetricsServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server.RequestHandlerClass, "timeout", 0.01)
    with connected(server, LINE) as silent:
        assert get(server).status_code == 200
        assert read_response(silent) == b""


@pytest.mark.slow
@settings(max_examples=100, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.binary(max_size=200), st.binary(max_size=200))
def test_whatever_a_client_says_is_no_error_of_ours(
    server: MetricsServer, log: FakeLog, target: bytes, rest: bytes
) -> None:
    with connected(server, b"GET " + target + b" HTTP/1.1\r\n" + rest) as client:
        client.shutdown(socket.SHUT_WR)
        read_response(client)
    assert log.lines == []


# --- the exporter ---------------------------------------------------------------------------------------------------


class Exported:
    """A task whose snapshots are exported."""

    def __init__(self, port: int = 0) -> None:
        self.fakes = ScrapedTask()
        self.exporter = PrometheusExporter(port, self.fakes.builder, FakeLog())

    @property
    def port(self) -> int:
        return present(self.exporter._server).port

    def scraped(self) -> str:
        return requests.get(f"http://{LOCAL}:{self.port}/metrics", timeout=LIMIT_SECONDS).text


@pytest.fixture
def exported() -> Iterator[Exported]:
    exported = Exported()
    assert exported.exporter.start() is None
    yield exported
    exported.exporter.close()


def test_a_scrape_shows_what_was_published_and_never_samples(exported: Exported) -> None:
    assert exported.scraped() == ""
    exported.fakes.tick()
    exported.exporter.publish()
    reads = exported.fakes.sampler.readings
    first = exported.scraped()
    assert (
        'task_profiler_container_cpu_seconds_total{container="batch",task_family="etl",task_id="0123"} '
        "0.5"
    ) in first
    exported.fakes.tick(3)
    assert exported.scraped() == first
    exported.exporter.publish()
    assert '"0123"} 2.0' in exported.scraped()
    assert exported.fakes.sampler.readings == reads + 3


def test_readings_that_nobody_renews_are_gone_after_ten_seconds(exported: Exported) -> None:
    exported.fakes.builder.shared.ticker.missed = 3
    exported.fakes.tick()
    exported.exporter.publish()
    exported.fakes.clock.advance(10)
    assert "task_profiler_container_" in exported.scraped()
    exported.fakes.clock.advance(0.1)
    stuck = dict(re.findall(r"^task_profiler_(\w+){.*} (.*)$", exported.scraped(), re.MULTILINE))
    assert stuck.pop("monitor_memory_peak_bytes")
    assert stuck == {
        **dict.fromkeys(("task_info", "monitor_info"), "1.0"),
        **dict.fromkeys(("monitor_source_up", "monitor_read_failures_total"), "0.0"),
        "monitor_cpu_seconds_total": "0.5",
        "monitor_missed_ticks_total": "3.0",
    }


def test_a_port_in_use_is_a_sentence_and_publishing_does_nothing(exported: Exported) -> None:
    second = Exported(exported.port)
    assert second.exporter.start() == (
        f"The monitor cannot listen on port {exported.port} (Address already in use), so there "
        "are no live metrics: set TASK_PROFILER_PROMETHEUS_PORT to a port above 1023 that is "
        "free in the task."
    )
    second.exporter.publish()
    assert second.exporter._snapshot is None
    assert second.exporter._server is None
    second.exporter.close()


def has_ipv6() -> bool:
    try:
        socket.create_server((IPV6_LOCAL, 0), family=socket.AF_INET6).close()
    except OSError:
        return False
    return True


WITH_IPV6 = pytest.mark.skipif(not has_ipv6(), reason="this machine has no IPv6")


def reached(host: str, exported: Exported) -> None:
    with closing(exported.exporter):
        assert (
            requests.get(
                f"http://{host}:{exported.port}/metrics", timeout=LIMIT_SECONDS
            ).status_code
            == 200
        )


@pytest.mark.parametrize("host", [LOCAL, pytest.param(f"[{IPV6_LOCAL}]", marks=WITH_IPV6)])
def test_the_task_is_reached_by_ipv4_and_by_ipv6(host: str) -> None:
    exported = Exported()
    assert exported.exporter.start() is None
    reached(host, exported)


@pytest.mark.parametrize("refusal", [errno.EAFNOSUPPORT, errno.EADDRNOTAVAIL])
def test_without_ipv6_the_task_is_reached_by_ipv4(
    refusal: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Ipv4Socket(socket.socket):
        def __init__(self, family: int = -1, *rest: Any, **more: Any) -> None:
            if family == socket.AF_INET6:
                raise OSError(refusal, "no IPv6 here")
            super().__init__(family, *rest, **more)

    exported = Exported()
    with monkeypatch.context() as patched:
        patched.setattr(socket, "socket", Ipv4Socket)
        assert exported.exporter.start() is None
    reached(LOCAL, exported)


@WITH_IPV6
@pytest.mark.parametrize("taken", [socket.AF_INET, socket.AF_INET6])
def test_a_port_that_somebody_has_in_one_of_the_families_is_in_use(
    taken: socket.AddressFamily,
) -> None:
    """Not half a success, where it depends on the scraper's family whose numbers it gets."""
    with closing(socket.create_server(("", 0), family=taken)) as other:
        port = other.getsockname()[1]
        exported = Exported(port)
        problem = exported.exporter.start()
        assert present(problem).startswith(
            f"The monitor cannot listen on port {port} (Address already in use)"
        )
