"""The timeout of the task metadata endpoint."""

import pytest

from profiler.readers.ecs.endpoint_client import AdaptiveTimeout


def test_the_timeout_doubles_after_two_timeouts_in_a_row_and_stays() -> None:
    adaptive_timeout = AdaptiveTimeout(1.0)
    assert adaptive_timeout.timeout_seconds == pytest.approx(0.9)
    adaptive_timeout.on_timeout()
    adaptive_timeout.on_success()
    adaptive_timeout.on_timeout()
    assert adaptive_timeout.timeout_seconds == pytest.approx(0.9)
    for _ in range(2):  # the third in a row is the first of the next two
        adaptive_timeout.on_timeout()
        assert adaptive_timeout.timeout_seconds == pytest.approx(1.8)
    adaptive_timeout.on_success()
    for _ in range(10):
        adaptive_timeout.on_timeout()
    assert adaptive_timeout.timeout_seconds == 5
    assert AdaptiveTimeout(60).timeout_seconds == 5
