"""The timeout of the task metadata endpoint."""

import pytest

from profiler.readers.ecs.endpoint_client import HttpEndpoint
from profiler.readers.keep_alive_http import Response
from tests.fakes import FakeClock


def test_the_timeout_doubles_after_two_timeouts_in_a_row_and_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    endpoint, given = HttpEndpoint("http://host", 1.0, FakeClock()), list[float]()

    def fetch(_connection: object, path: str, timeout_seconds: float) -> Response:
        given.append(timeout_seconds)
        if path == "slow":
            raise TimeoutError
        return Response(200, b"")

    monkeypatch.setattr(endpoint, "_fetch", fetch)
    for path in ("slow", "fast", "slow", "slow", "fast", *["slow"] * 6):
        endpoint.get(path)
    assert given == pytest.approx([0.9] * 4 + [1.8] * 3 + [3.6] * 2 + [5] * 2)
    assert HttpEndpoint("http://host", 60, FakeClock())._timeout_seconds == 5
