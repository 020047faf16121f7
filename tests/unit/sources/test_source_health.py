"""The failures of one source in the log."""

from profiler.sources import SourceHealth, Unavailable
from tests.fakes import FakeLog


def test_a_failing_source_is_logged_once_per_change_of_state() -> None:
    log = FakeLog()
    health = SourceHealth("/task/stats", log)
    health.on_success()
    for reason in ("HTTP 500", "HTTP 500", "HTTP 429", "HTTP 429"):
        health.on_failure(Unavailable(reason))
    health.on_success()
    health.on_success()
    health.on_failure(Unavailable("HTTP 500"))
    assert health.failures == 5
    assert [(level, fields) for level, _, fields in log.lines] == [
        ("warning", {"reason": "HTTP 500"}),
        ("warning", {"reason": "HTTP 429"}),
        ("info", {"failures": 2}),
        ("warning", {"reason": "HTTP 500"}),
    ]


def test_failures_of_one_kind_are_logged_once_whatever_their_detail() -> None:
    log = FakeLog()
    health = SourceHealth("/task", log)
    for position in (0, 11, 25):
        health.on_failure(Unavailable(f"not JSON (byte {position})", kind="not JSON"))
    assert health.failures == 3
    assert [fields for _, _, fields in log.lines] == [{"reason": "not JSON (byte 0)"}]
