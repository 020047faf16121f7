"""Two weeks of runs whose reports and events arrive in any order, days late, and more than once:
each run is in exactly one morning message, from the search cluster and from the lines.
"""

import json
from collections import Counter
from collections.abc import Callable
from datetime import UTC
from random import Random

import pytest
from msgspec import Struct

from profiler.core.timestamps import NS_PER_DAY, NS_PER_HOUR, NS_PER_MS, format_ms, parse_ns
from profiler.forwarder import cluster_night, night_period
from profiler.forwarder.cluster_night import ClusterNight
from profiler.forwarder.documents import Document, report_document
from profiler.forwarder.event_document import event_documents
from profiler.forwarder.function_settings import ForwarderSettings
from profiler.forwarder.night_period import NightPeriod, first_period
from profiler.forwarder.night_runs import NightRuns, runs_of_lines
from profiler.forwarder.search_cluster.document_delivery import deliver
from profiler.record.event_end import end_of_event
from tests.counting_search import CountingSearch
from tests.ended_runs import run_of
from tests.fakes import FakeInvocationTime
from tests.notices import report_line
from tests.stopped_tasks import report
from tests.task_events import ARN, task
from tests.values import present

BEGIN_NS = present(parse_ns("2026-03-01T08:00:00Z"))
DAYS = 14
LATEST_NS = 4 * NS_PER_DAY  # a message looks back a week
RUNS = 60
SETTINGS = ForwarderSettings()
# How much later something arrives, in hours: usual, about the bounds of the rules, and days.
DELAYS = (0.02, 0.02, 0.02, 1.0, 4.5, 5.5, 7.0, 30.0, 100.0)


class Arrival(Struct, frozen=True, order=True):
    """What arrives of a run, which is also its family: its report, or ECS's event."""

    at_ns: int
    run: int
    ended_ns: int
    is_report: bool

    def documents(self) -> list[Document]:
        name = f"{self.run:032x}"
        times = {
            "startedAt": format_ms(self.ended_ns - NS_PER_HOUR),
            "executionStoppedAt": format_ms(self.ended_ns),
            "stoppedAt": format_ms(self.ended_ns + NS_PER_HOUR // 100),
            "createdAt": format_ms(self.ended_ns - 2 * NS_PER_HOUR),
        }
        family = f"run-{self.run}"
        definition = f"arn:aws:ecs:us-west-2:111122223333:task-definition/{family}:5"
        arn = f"{ARN.rpartition('/')[0]}/{name}"
        stopped = task(taskArn=arn, taskDefinitionArn=definition, **times)
        if not self.is_report:
            end = end_of_event(stopped, stopped.container("batch"))
            return [*event_documents(run_of(task=stopped, end=end, container="batch"), SETTINGS)]
        finished = {"startedAt": times["startedAt"], "finishedAt": times["executionStoppedAt"]}
        line = report(taskId=name, family=family, **finished)
        line = json.dumps({**json.loads(line), "time": times["executionStoppedAt"]})
        document = report_document(report_line(line).report, line, SETTINGS)
        assert isinstance(document, Document)
        return [document]

    @property
    def line(self) -> tuple[int, str]:
        """What task_stopped prints of an event."""
        ended = {
            "text": "ended",
            "taskId": f"{self.run:032x}",
            "family": f"run-{self.run}",
            "status": "success",
            "stopCategory": "exit",
            "outcome": "success",
            "finishedAt": format_ms(self.ended_ns),
        }
        return self.at_ns // NS_PER_MS, json.dumps(ended)


def arrivals_of(rng: Random, run: int) -> list[Arrival]:
    """The event comes once or more, the report once or never."""
    ended_ns = BEGIN_NS + round(rng.uniform(0, DAYS - 6) * NS_PER_DAY)

    def after(hours: float) -> int:
        return ended_ns + round(min(hours * NS_PER_HOUR * rng.uniform(0.9, 1.1), LATEST_NS))

    events = [after(rng.choice(DELAYS)) for _ in range(rng.choice((1, 1, 2, 3)))]
    reports = [after(rng.choice(DELAYS)) for _ in range(rng.choice((0, 1, 1)))]
    return [
        *(Arrival(at_ns, run, ended_ns, is_report=False) for at_ns in events),
        *(Arrival(at_ns, run, ended_ns, is_report=True) for at_ns in reports),
    ]


def messages(
    rng: Random, arrivals: list[Arrival], told: Callable[[NightPeriod, list[Arrival]], NightRuns]
) -> Counter[str]:
    """How many messages have each run. Some mornings have none, but not two one after the other."""
    counted: Counter[str] = Counter()
    last = first_period(BEGIN_NS + NS_PER_DAY)
    known = 0
    was_skipped = False
    for day in range(1, DAYS + 1):
        was_skipped = day < DAYS and not was_skipped and rng.random() < 0.2
        if was_skipped:
            continue
        period = NightPeriod(last=last, end_ns=BEGIN_NS + day * NS_PER_DAY, zone=UTC)
        new = [one for one in arrivals[known:] if one.at_ns < period.end_ns]
        known += len(new)
        found = told(period, new)
        counted.update(found.families)
        last = period.to_remember(found.remembered)
    assert known == len(arrivals)
    return counted


@pytest.mark.parametrize("remembered", [4096, 3])
@pytest.mark.parametrize("seed", range(6))
def test_each_run_is_in_exactly_one_message_of_a_search_cluster(
    seed: int, remembered: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also if more runs ended shortly before a message than the next one can be told."""
    monkeypatch.setattr(night_period, "MAX_REMEMBERED", remembered)
    monkeypatch.setattr(cluster_night, "MAX_REMEMBERED", remembered)
    rng = Random(seed)
    arrivals = sorted(one for run in range(RUNS) for one in arrivals_of(rng, run))
    cluster = CountingSearch()
    reader = ClusterNight(
        cluster=cluster, prefix="task", account_id=None, region=None, timeout_seconds=5
    )

    def told(period: NightPeriod, new: list[Arrival]) -> NightRuns:
        for one in new:
            moment = format_ms(one.at_ns)
            assert deliver(cluster, FakeInvocationTime(), one.documents(), moment).rejected == ()
        return reader.runs(period)

    assert messages(rng, arrivals, told) == {f"run-{run}": 1 for run in range(RUNS)}


@pytest.mark.parametrize("seed", range(6))
def test_each_run_is_in_exactly_one_message_of_the_lines(seed: int) -> None:
    rng = Random(seed)
    arrivals = sorted(one for run in range(RUNS) for one in arrivals_of(rng, run))
    arrivals = [one for one in arrivals if not one.is_report]
    lines: list[tuple[int, str]] = []

    def told(period: NightPeriod, new: list[Arrival]) -> NightRuns:
        lines.extend(one.line for one in new)
        return runs_of_lines(lines, period)

    assert messages(rng, arrivals, told) == {f"run-{run}": 1 for run in range(RUNS)}
