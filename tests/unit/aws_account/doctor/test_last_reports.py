"""The newest report of each family: how much is read."""

from collections.abc import Iterator, Mapping
from typing import Any

from msgspec.structs import replace

from profiler.aws_account.doctor.cluster_checks import LimitedPages, newest_reports
from profiler.core.timestamps import NS_PER_SECOND, format_ms
from profiler.record.record_model import encode
from profiler.runs.past_runs.log_group_runs import LogGroupRuns
from tests.runs import report

NOW_NS = 1_800_000_000 * NS_PER_SECOND
HOUR_NS = 3600 * NS_PER_SECOND
ACCOUNT, REGION = "123456789012", "us-east-1"


def line(family: str, hours_ago: int, *, account_id: str | None = ACCOUNT) -> dict[str, str]:
    given, at_ns = report(0, family=family), NOW_NS - hours_ago * HOUR_NS
    record = replace(
        given.record,
        task_id=f"{family}-{hours_ago}",
        account_id=account_id,
        region=REGION,
        started_at=format_ms(at_ns),
        finished_at=format_ms(at_ns),
    )
    return {"message": encode(replace(given, record=record, time=format_ms(at_ns))).decode()}


class Groups:
    """FilterLogEvents with some pages for each group, whatever the time."""

    def __init__(self, **pages: list[dict[str, Any]]) -> None:
        self.pages = pages
        self.calls: list[str] = []

    def __call__(self, **parameters: Any) -> Iterator[Mapping[str, Any]]:
        self.calls.append(parameters["logGroupName"])
        yield from self.pages[parameters["logGroupName"]]


def newest(groups: Groups, *families: str) -> tuple[Mapping[str, int], set[str]]:
    pages = LimitedPages(groups)
    source = LogGroupRuns(pages, sorted(groups.pages), NOW_NS)
    return newest_reports(source, frozenset(families), ACCOUNT, REGION, NOW_NS), pages.unread


def test_reading_ends_when_each_family_has_a_report() -> None:
    events = [line("a", 5), line("a", 3), line("b", 4), line("other", 1)]
    groups = Groups(one=[{"events": events[:2]}], two=[{"events": events[2:]}])
    assert newest(groups, "a", "b") == ({"a": NOW_NS - 3 * HOUR_NS, "b": NOW_NS - 4 * HOUR_NS}, set())
    assert groups.calls == ["one", "two"]


def test_a_family_of_another_account_does_not_count() -> None:
    groups = Groups(one=[{"events": [line("a", 1, account_id="111122223333"), line("b", 1, account_id=None)]}])
    assert newest(groups, "a", "b")[0] == {"b": NOW_NS - HOUR_NS}
    assert groups.calls == ["one"] * 3  # the last eight days


def test_a_large_group_is_not_read_to_its_end() -> None:
    pages = [{"events": [], "nextToken": "t"}] * 100
    groups = Groups(large=pages, small=[{"events": []}] * 5)
    found, unread = newest(groups, "a")
    assert (found, unread) == ({}, {"large"})
