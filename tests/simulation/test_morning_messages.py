"""Three weeks of runs whose reports and events arrive in any order, days late, and more than once,
and become visible some minutes after they arrived: each run is in exactly one morning message, in
the same one from the search cluster and from the lines.
"""

import json
from collections import Counter
from collections.abc import Callable, Sequence
from datetime import UTC
from random import Random

import pytest
from msgspec import Struct

from profiler.core.timestamps import (
    NS_PER_DAY,
    NS_PER_HOUR,
    NS_PER_MINUTE,
    NS_PER_MS,
    format_ms,
    parse_ns,
)
from profiler.forwarder import night_period, night_searches
from profiler.forwarder.document_updates import Document
from profiler.forwarder.function_settings import ForwarderSettings
from profiler.forwarder.job_changed import attempt_documents
from profiler.forwarder.night_period import NightPeriod, remembered_before_first
from profiler.forwarder.night_runs import NightRuns
from profiler.forwarder.night_searches import NightReader
from profiler.forwarder.run_documents import event_documents, report_document
from profiler.forwarder.search_cluster.document_delivery import deliver_documents
from profiler.record.batch_job_detail import parse_job
from profiler.record.ecs_event_outcome import end_of_event
from profiler.record.stopped_task import parse_stopped_task
from tests.batch_jobs import Json, arn, begin, end, submitted, task_arn, task_event
from tests.counting_search import CountingSearch
from tests.ended_runs import run_of
from tests.fakes import FakeInvocationTime
from tests.notices import report_line
from tests.printed_lines import runs_of_lines
from tests.stopped_tasks import report
from tests.task_events import ARN, task
from tests.values import present

BEGIN_NS = present(parse_ns("2026-03-01T08:00:00Z"))
DAYS = 22
LATEST_NS = 12 * NS_PER_DAY  # longer than a week
RUNS = 60
# A message is read some seconds after its end.
SEARCHED_AFTER_NS = NS_PER_MINUTE
SETTINGS = ForwarderSettings()
# How much later something arrives, in hours: usual, about the bounds of the rules, and days.
DELAYS = (0.02, 0.02, 0.02, 1.0, 4.5, 5.5, 7.0, 30.0, 100.0, 250.0)


class Arrival(Struct, frozen=True, order=True):
    """What arrives of a run, which is also its family: its report, or ECS's event. Until
    ``visible_ns``, a function works at it.
    """

    visible_ns: int
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
            end = end_of_event(stopped, stopped.container_or_name_only("batch"))
            return [*event_documents(run_of(task=stopped, end=end, container="batch"), SETTINGS)]
        finished = {"startedAt": times["startedAt"], "finishedAt": times["executionStoppedAt"]}
        line = report(taskId=name, family=family, **finished)
        line = json.dumps({**json.loads(line), "time": times["executionStoppedAt"]})
        document = report_document(report_line(line).report, line, SETTINGS)
        assert isinstance(document, Document)
        return [document]

    @property
    def lines(self) -> list[tuple[int, str]]:
        """What task_stopped prints of an event."""
        if self.is_report:
            return []
        ended = {
            "text": "ended",
            "taskId": f"{self.run:032x}",
            "family": f"run-{self.run}",
            "status": "success",
            "stopCategory": "exit",
            "outcome": "success",
            "finishedAt": format_ms(self.ended_ns),
        }
        return [(self.at_ns // NS_PER_MS, json.dumps(ended))]


def arrivals_of(rng: Random, run: int) -> list[Arrival]:
    """The event comes once or more, the report once or never. Half of the runs end about the time
    of a message.
    """
    ended_ns = BEGIN_NS + round(rng.uniform(0, DAYS - 14) * NS_PER_DAY)
    if rng.random() < 0.5:
        about = round(rng.uniform(-0.5, 0.5) * NS_PER_HOUR)
        ended_ns = BEGIN_NS + rng.randint(1, DAYS - 14) * NS_PER_DAY + about

    def arrival(*, is_report: bool) -> Arrival:
        hours = rng.choice(DELAYS)
        at_ns = ended_ns + round(min(hours * NS_PER_HOUR * rng.uniform(0.9, 1.1), LATEST_NS))
        visible_ns = at_ns + round(rng.choice((0.1, 0.1, 4, 15)) * NS_PER_MINUTE)
        return Arrival(visible_ns, at_ns, run, ended_ns, is_report=is_report)

    events = [arrival(is_report=False) for _ in range(rng.choice((1, 1, 2, 3)))]
    reports = [arrival(is_report=True) for _ in range(rng.choice((0, 1, 1)))]
    # One event after the other: which one was first is not known before it is written.
    events = [event for event in events if event.at_ns >= min(events).at_ns]
    return [*events, *reports]


class JobArrival(Struct, frozen=True, order=True):
    """What arrives of a job of AWS Batch, which is also its family: ECS's event of an attempt, or
    Batch's word after it: that it makes another one, or that the job has ended.
    """

    visible_ns: int
    at_ns: int
    run: int
    attempt: int
    ended_ns: int
    is_success: bool = False
    is_of_batch: bool = False
    is_repeated: bool = False

    @property
    def job(self) -> Json:
        """The job when its attempt ended; Batch says the end of one that waited later."""
        queue = {"jobQueueArn": arn("job-queue", "nightly")}
        definition = {
            "jobDefinitionArn": arn("job-definition", f"run-{self.run}:1"),
            "containerProperties": {},
        }
        asked = {"jobName": "orders", "retryStrategy": {"attempts": 9}}
        begun_ms = (self.ended_ns - NS_PER_HOUR) // NS_PER_MS
        (job,) = submitted(asked, queue, definition, self.run, begun_ms)
        for number in range(1, self.attempt + 1):
            begin(job, begun_ms)
            is_last = number == self.attempt
            end(job, self.ended_ns // NS_PER_MS, 0 if is_last and self.is_success else 1)
        if self.is_of_batch and not self.is_repeated and not self.is_success:
            job |= {"status": "FAILED", "stoppedAt": self.at_ns // NS_PER_MS}
        return job

    def documents(self) -> list[Document]:
        job = self.job
        if self.is_of_batch:
            return [*attempt_documents(present(parse_job(job)), SETTINGS)]
        times: Json = {
            "createdAt": format_ms(self.ended_ns - 2 * NS_PER_HOUR),
            "pullStartedAt": format_ms(self.ended_ns - NS_PER_HOUR),
            "startedAt": format_ms(self.ended_ns - NS_PER_HOUR),
            "executionStoppedAt": format_ms(self.ended_ns),
            "stoppedAt": format_ms(self.ended_ns + NS_PER_HOUR // 100),
        }
        times["containers"] = [{"name": "default", "exitCode": 0 if self.is_success else 1}]
        event = task_event(job, self.attempt, **times)
        stopped = present(parse_stopped_task(event))
        ended = end_of_event(stopped, stopped.container_or_name_only("default"))
        return [*event_documents(run_of(task=stopped, end=ended, container="default"), SETTINGS)]

    @property
    def lines(self) -> list[tuple[int, str]]:
        """What the functions print."""
        if not self.is_of_batch:
            task = task_arn(self.job["jobId"], self.attempt).rpartition("/")[2]
        elif self.is_repeated:
            again = {"type": "job.repeated", "jobId": self.job["jobId"], "attempt": self.attempt}
            return [(self.at_ns // NS_PER_MS, json.dumps(again))]
        else:
            return []
        word = "success" if self.is_success else "failure"
        ended = {
            "text": "ended",
            "taskId": task,
            "family": f"run-{self.run}",
            "status": word,
            "stopCategory": "exit",
            "outcome": word,
            "finishedAt": format_ms(self.ended_ns),
            "batch": {"jobId": self.job["jobId"], "attempt": self.attempt},
        }
        return [(self.at_ns // NS_PER_MS, json.dumps(ended))]


def arrivals_of_job(rng: Random, run: int, *, may_wait: bool) -> list[JobArrival]:
    """ECS's events come once or more. Batch's come in any order, days late, or not at all: its
    events can be off. An attempt begins up to a day after the one before. ``may_wait``: a job can
    end while it waits for another one.
    """
    has_words = rng.random() < 0.7
    last = rng.choice((1, 2, 2, 3))
    ended_ns = BEGIN_NS + rng.randint(1, DAYS - 16) * NS_PER_DAY
    ended_ns += round(rng.uniform(-0.5, 0.5) * NS_PER_HOUR)
    found: list[JobArrival] = []

    def arrive(attempt: int, **more: bool) -> None:
        late_ns = round(rng.choice(DELAYS) * NS_PER_HOUR * rng.uniform(0.9, 1.1))
        at_ns = ended_ns + min(late_ns, LATEST_NS - 3 * NS_PER_DAY)
        visible_ns = at_ns + round(rng.choice((0.1, 0.1, 4, 15)) * NS_PER_MINUTE)
        found.append(JobArrival(visible_ns, at_ns, run, attempt, ended_ns, **more))

    is_success = rng.random() < 0.6
    for attempt in range(1, last + 1):
        has_succeeded = is_success and attempt == last
        for _ in range(rng.choice((1, 1, 2))):
            arrive(attempt, is_success=has_succeeded)
        if has_words and attempt < last:
            arrive(attempt, is_of_batch=True, is_repeated=True)
        elif has_words:
            arrive(attempt, is_success=has_succeeded, is_of_batch=True)
            if may_wait and not has_succeeded:
                arrive(attempt, is_of_batch=True, is_repeated=True)
        ended_ns += round(rng.choice((0.1, 1, 24)) * NS_PER_HOUR)
    return found


Told = Callable[[NightPeriod, Sequence[Arrival | JobArrival]], NightRuns]


def arrivals_of_jobs(rng: Random, *, may_wait: bool) -> list[JobArrival]:
    """What becomes known of all jobs, in the order in which it does."""
    return sorted(
        one for run in range(RUNS) for one in arrivals_of_job(rng, run, may_wait=may_wait)
    )


def messages(
    rng: Random, arrivals: Sequence[Arrival | JobArrival], told: Told
) -> list[Counter[str]]:
    """The runs of each message. Some mornings have none, but not two one after the other."""
    found: list[Counter[str]] = []
    last = remembered_before_first(BEGIN_NS + NS_PER_DAY)
    known = 0
    was_skipped = False
    for day in range(1, DAYS + 1):
        was_skipped = day < DAYS and not was_skipped and rng.random() < 0.2
        if was_skipped:
            continue
        period = NightPeriod(last=last, end_ns=BEGIN_NS + day * NS_PER_DAY, zone=UTC)
        searched_ns = period.end_ns + SEARCHED_AFTER_NS
        new = [one for one in arrivals[known:] if one.visible_ns < searched_ns]
        known += len(new)
        runs = told(period, new)
        found.append(sum(map(Counter, runs.counts.values()), Counter()))
        last = period.next_remembered(runs.remembered, jobs=runs.told_jobs, until_ns=runs.until_ns)
    assert known == len(arrivals)
    return found


def of_cluster(*, has_pipeline: bool = False) -> Told:
    """``has_pipeline``: an ingest pipeline sets ``event.ingested`` with each write, as Elastic's
    own ones do.
    """
    cluster = CountingSearch()
    reader = NightReader(
        cluster=cluster, prefix="task", account_id=None, region=None, timeout_seconds=5
    )

    def told(period: NightPeriod, new: Sequence[Arrival | JobArrival]) -> NightRuns:
        for one in new:
            moment = format_ms(one.at_ns)
            assert (
                deliver_documents(cluster, FakeInvocationTime(), one.documents(), moment).rejected
                == ()
            )
            for source in cluster.documents.values() if has_pipeline else ():
                if source["task"]["family"] == f"run-{one.run}":
                    source["event"]["ingested"] = format_ms(one.visible_ns)
        return reader.read_runs(period)

    return told


def of_lines() -> Told:
    lines: list[tuple[int, str]] = []

    def told(period: NightPeriod, new: Sequence[Arrival | JobArrival]) -> NightRuns:
        lines.extend(line for one in new for line in one.lines)
        return runs_of_lines(lines, period)

    return told


def read_by(way: str) -> Told:
    """The reader of a search cluster, of one with a pipeline, or of the printed lines."""
    return of_lines() if way == "lines" else of_cluster(has_pipeline=way == "pipeline")


def in_each(found: list[Counter[str]]) -> Counter[str]:
    return sum(found, Counter())


EACH_ONCE = {f"run-{run}": 1 for run in range(RUNS)}


@pytest.mark.diagonal(2)
@pytest.mark.parametrize("has_pipeline", [False, True])
@pytest.mark.parametrize("remembered", [4096, 1])
@pytest.mark.parametrize("seed", range(6))
def test_each_run_is_in_exactly_one_message_and_in_the_same_one_of_both_ways(
    seed: int, remembered: int, monkeypatch: pytest.MonkeyPatch, *, has_pipeline: bool
) -> None:
    """Also if more runs became known shortly before a message than the next one can be told."""
    monkeypatch.setattr(night_period, "MAX_REMEMBERED", remembered)
    monkeypatch.setattr(night_searches, "MAX_REMEMBERED", remembered)
    rng = Random(seed)
    arrivals = sorted(one for run in range(RUNS) for one in arrivals_of(rng, run))
    with_cluster = messages(Random(seed), arrivals, of_cluster(has_pipeline=has_pipeline))
    assert in_each(with_cluster) == EACH_ONCE
    assert messages(Random(seed), arrivals, of_lines()) == with_cluster


@pytest.mark.diagonal(2)
@pytest.mark.parametrize("way", ["cluster", "pipeline", "lines"])
@pytest.mark.parametrize("remembered", [4096, 1])
@pytest.mark.parametrize("seed", range(8))
def test_each_job_is_counted_once_however_late_batch_says_that_it_makes_another_attempt(
    seed: int, remembered: int, way: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Once in all messages, however many of them its attempts and its events are about."""
    monkeypatch.setattr(night_period, "MAX_REMEMBERED", remembered)
    monkeypatch.setattr(night_searches, "MAX_REMEMBERED", remembered)
    rng = Random(seed)
    # A line of the end of one that waited is in the tests of the handler.
    may_wait = way != "lines" and rng.random() < 0.5
    arrivals = arrivals_of_jobs(rng, may_wait=may_wait)
    told = read_by(way)
    assert in_each(messages(Random(seed), arrivals, told)) == EACH_ONCE


@pytest.mark.diagonal(2)
@pytest.mark.parametrize("way", ["cluster", "lines"])
@pytest.mark.parametrize("remembered", [4096, 1])
@pytest.mark.parametrize("seed", [*range(6), 9, 12])
def test_a_message_tells_the_last_attempt_that_ecs_has_told_of_until_then(
    seed: int, remembered: int, way: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also if the message leaves the last minutes to the next one."""
    monkeypatch.setattr(night_period, "MAX_REMEMBERED", remembered)
    monkeypatch.setattr(night_searches, "MAX_REMEMBERED", remembered)
    rng = Random(seed)
    arrivals = arrivals_of_jobs(rng, may_wait=False)
    told = read_by(way)
    seen: list[JobArrival] = []
    wrong: list[str] = []

    def compared(period: NightPeriod, new: Sequence[Arrival | JobArrival]) -> NightRuns:
        seen.extend(one for one in new if isinstance(one, JobArrival) and not one.is_of_batch)
        runs = told(period, new)
        for word, families in runs.counts.items():
            for family in families:
                attempts = [
                    (one.attempt, "success" if one.is_success else "failure")
                    for one in seen
                    if f"run-{one.run}" == family and one.at_ns < period.end_ns
                ]
                if word != max(attempts)[1]:
                    wrong.append(f"{family}: {word}")
        # The newest first: a later message remembers the first ones.
        known = sorted((one.ended_ns, one) for one in seen if one.at_ns < period.end_ns)
        ended = {one.job["jobId"]: ended_ns // NS_PER_MS for ended_ns, one in known}
        new_jobs = [job_id for job_id in runs.told_jobs if job_id not in period.last.jobs]
        of_jobs = [ended[job_id] for job_id in new_jobs]
        assert of_jobs == sorted(of_jobs, reverse=True)
        return runs

    assert in_each(messages(rng, arrivals, compared)) == EACH_ONCE
    assert wrong == []


@pytest.mark.diagonal(1)
@pytest.mark.parametrize("way", ["cluster", "pipeline", "lines"])
@pytest.mark.parametrize("remembered", [4096, 1])
@pytest.mark.parametrize("seed", range(3))
def test_a_job_that_succeeds_after_its_message_is_corrected_once_in_a_later_one(
    seed: int, remembered: int, way: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No other job is: after the last message, each job is told as it ended."""
    monkeypatch.setattr(night_period, "MAX_REMEMBERED", remembered)
    monkeypatch.setattr(night_searches, "MAX_REMEMBERED", remembered)
    rng = Random(seed)
    may_wait = way != "lines" and rng.random() < 0.5
    arrivals = arrivals_of_jobs(rng, may_wait=may_wait)
    read = read_by(way)
    told: dict[str, str] = {}
    corrected: Counter[str] = Counter()

    def noted(period: NightPeriod, new: Sequence[Arrival | JobArrival]) -> NightRuns:
        runs = read(period, new)
        told.update({family: word for word, found in runs.counts.items() for family in found})
        corrected.update(runs.corrected)
        assert not runs.counts.get("success", {}).keys() & runs.corrected.keys()
        return runs

    messages(Random(seed), arrivals, noted)
    succeeded = {f"run-{one.run}" for one in arrivals if one.is_success}
    told_success = {family for family, word in told.items() if word == "success"}
    assert told_success | corrected.keys() == succeeded
    assert not told_success & corrected.keys()
    assert set(corrected.values()) == {1}


@pytest.mark.parametrize("read", [1000, 1])
@pytest.mark.parametrize("seed", range(6))
def test_each_missed_due_time_is_in_exactly_one_message(
    seed: int, read: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also of more notices than are read, which are only counted."""
    monkeypatch.setattr(night_searches, "_MAX_MISSED", read)
    rng = Random(seed)
    noticed: list[tuple[int, int]] = []  # when each is visible, and its time
    for _ in range(80):
        at_ns = BEGIN_NS + round(rng.uniform(0, 8) * NS_PER_DAY)
        if rng.random() < 0.5:
            about = round(rng.uniform(-0.5, 0.5) * NS_PER_HOUR)
            at_ns = BEGIN_NS + rng.randint(1, 8) * NS_PER_DAY + about
        noticed.append((at_ns + round(rng.choice((0.1, 0.1, 4, 15)) * NS_PER_MINUTE), at_ns))
    cluster = CountingSearch()
    reader = NightReader(
        cluster=cluster, prefix="task", account_id=None, region=None, timeout_seconds=5
    )
    named: Counter[str] = Counter()
    last = remembered_before_first(BEGIN_NS + NS_PER_DAY)
    told = 0
    for day in range(1, 11):
        period = NightPeriod(last=last, end_ns=BEGIN_NS + day * NS_PER_DAY, zone=UTC)
        for number, (visible_ns, at_ns) in enumerate(noticed):
            if visible_ns < period.end_ns + SEARCHED_AFTER_NS:
                place = "task-notices-2026.03", str(number)
                cluster.documents[place] = {
                    "@timestamp": format_ms(at_ns),
                    "notice": {"kind": "missed", "due_at": format_ms(at_ns), "message": "m"},
                    "schedule": {"group": "default", "name": str(number)},
                }
        found = reader.read_missed_times(period)
        named.update(time.family for time in found.times)
        told += len(found.times) + found.others
        last = period.next_remembered((), found.remembered, due_until_ns=found.until_ns)
    assert told == len(noticed)
    assert set(named.values()) == {1}
    assert len(named) == len(noticed) or read == 1
