"""The failures of one source in the log."""

from profiler.readers import SourceHealth, Unavailable
from tests.fakes import FakeLog


def test_a_failing_source_is_logged_once_per_change_of_state_whatever_the_reasons() -> None:
    log = FakeLog()
    health = SourceHealth("/task/stats", log)
    health.on_success()
    for reason in ("HTTP 500", "HTTP 500", "the response ends after 7 of 90 bytes", "HTTP 429"):
        health.on_failure(Unavailable(reason))
    assert health.last_reason == "HTTP 429"
    health.on_success()
    health.on_success()
    health.on_failure(Unavailable("HTTP 503"))
    assert health.failures == 5
    assert [(level, fields) for level, _, fields in log.lines] == [
        ("warning", {"reason": "HTTP 500"}),
        ("info", {"failures": 4}),
        ("warning", {"reason": "HTTP 503", "outage": 2}),
    ]


def test_an_hour_of_an_endpoint_that_cuts_every_second_answer_is_a_few_lines() -> None:
    log = FakeLog()
    health = SourceHealth("/task/stats", log)
    for second in range(3600):
        if second % 2:
            health.on_success()
        else:
            health.on_failure(Unavailable(f"the response ends after {second} of 9000 bytes"))
    assert health.failures == 1800
    assert log.events("warning") == ["/task/stats cannot be read and is tried again"] * 2
    assert log.events("info") == ["/task/stats can be read again"]


def test_of_many_short_outages_a_few_are_logged_with_their_number_and_each_long_one() -> None:
    log = FakeLog()
    health = SourceHealth("/task", log)
    for outage in range(1, 41):
        for _ in range(12 if outage == 23 else 1):
            health.on_failure(Unavailable("HTTP 500"))
        for _ in range(64):
            health.on_success()
    numbers = [fields.get("outage", 1) for level, _, fields in log.lines if level == "warning"]
    assert numbers == [1, 2, 4, 8, 16, 23, 32]
    failures = [fields["failures"] for level, _, fields in log.lines if level == "info"]
    assert failures == [1, 1, 1, 1, 1, 12, 1]
