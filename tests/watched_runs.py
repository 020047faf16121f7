"""Played log groups for `watch`."""

from collections.abc import Iterator, Mapping
from typing import Any

from profiler.aws_account.running_tasks.running_runs import MonitorLogFollower, RunningRuns
from profiler.aws_account.running_tasks.watched_tasks import WatchedTasks
from profiler.core.errors import TaskProfilerError
from profiler.core.timestamps import NS_PER_MS
from profiler.record.line_trust import AccountTrust, TrustedGroups
from profiler.runs.past_runs.family_evidence import FamilyCache
from tests.fakes import FakeClock
from tests.run_sources import log_event

GROUP, MISSING = "/ecs/jobs", "/ecs/none"


# The tasks of these tests have words as ids.
TRUST = AccountTrust(account_id="111122223333", groups=TrustedGroups(globs=("*",)))


class FakeLogs:
    """Plays FilterLogEvents without its pattern, and keeps the requests."""

    def __init__(self) -> None:
        self.events: list[tuple[int, str]] = []
        self.requests: list[Mapping[str, Any]] = []

    def put(self, at_ns: int, message: str) -> None:
        self.events.append((at_ns // NS_PER_MS, message))

    def pages(self, **parameters: Any) -> Iterator[Mapping[str, Any]]:
        self.requests.append(parameters)
        if parameters["logGroupName"] == MISSING:
            raise TaskProfilerError(
                f"{MISSING} cannot be read: allow logs:FilterLogEvents on the log group."
            )
        start_ms, end_ms = parameters["startTime"], parameters.get("endTime", 2**62)
        for at_ms, message in self.events:
            if start_ms <= at_ms <= end_ms:
                yield {"events": [{**log_event(message), "timestamp": at_ms}]}


def watched_tasks(logs: FakeLogs, clock: FakeClock, *groups: str, past: Any = None) -> WatchedTasks:
    families = FamilyCache(past, 0)
    followed, runs = MonitorLogFollower(logs.pages, clock, TRUST), RunningRuns()
    return WatchedTasks(
        seconds_between_reads=15,
        collected=runs,
        logs=followed,
        families=families,
        log_groups=groups or (GROUP,),
        clock=clock,
    )
