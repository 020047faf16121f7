"""``show`` advises what ``recommend`` does, whatever the source; and it names the family's trend."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from hashlib import md5
from pathlib import Path
from random import Random
from typing import Any

import pytest
from msgspec.structs import replace

from profiler.cli.styled_text import Line
from profiler.cli.terminal.page_parts import View
from profiler.cli.terminal.run_page import MAX_LINES, page_lines
from profiler.core.ecs_terms import LogTarget
from profiler.core.timestamps import MS_PER_DAY, NS_PER_MS, parse_ns
from profiler.record.record_model import Container, Cost, Metrics, Report, encode
from profiler.record.run_usage import run_usage_of
from profiler.runs.past_runs.family_advice import find_advice
from profiler.runs.past_runs.family_evidence import read_families
from profiler.runs.past_runs.joined_runs import JoinedRuns
from profiler.runs.past_runs.local_history import LocalRuns
from profiler.runs.past_runs.log_group_runs import LogGroupRuns
from profiler.runs.past_runs.past_run import PastRun
from profiler.runs.past_runs.record_files import FileRuns
from profiler.runs.past_runs.run_lookup import find_runs
from profiler.runs.past_runs.run_source import RunFilter, RunSource
from profiler.runs.past_runs.search_runs import IndexedRuns
from profiler.search_setup.cluster_requests import ServerResponse
from profiler.sizing.advice import Advice, advise_on_size
from profiler.sizing.advice_document import advice_as_json
from profiler.sizing.choose_size import SizePolicy
from profiler.sizing.prices import PriceOverrides
from profiler.sizing.run_collector import LAST_RUNS
from profiler.sizing.size_summary import size_story
from profiler.sizing.sizing_rules import advice_verdict
from tests.run_sources import log_event
from tests.runs import DAY_SECONDS, history_of, lines, report
from tests.sized_runs import any_family
from tests.values import present

NONE = PriceOverrides()
FAMILIES = 12
GROUP = "/ecs/jobs"


def with_task_ids(reports: Iterable[Report]) -> list[Report]:
    """The runs with ids as ECS gives them, which a log stream's name contains."""
    made = []
    for one in reports:
        task_id = md5(one.record.task_id.encode(), usedforsecurity=False).hexdigest()
        made.append(replace(one, record=replace(one.record, task_id=task_id)))
    return made


class PlayedLogGroup:
    """FilterLogEvents by time and stream; the filter pattern is ignored."""

    def __init__(self, reports: Sequence[Report], prefix: str = "ecs") -> None:
        self.events = [log_event(encode(one).decode(), prefix) for one in reports]
        self.calls: list[Mapping[str, Any]] = []
        self.now_ns = max(parse_ns(one.time) or 0 for one in reports) + 3_600_000 * NS_PER_MS

    def read_pages(self, **parameters: Any) -> Iterator[Mapping[str, Any]]:
        self.calls.append(parameters)
        first_ms, last_ms = parameters["startTime"], parameters["endTime"]
        prefix = parameters.get("logStreamNamePrefix", "")
        found = []
        for event in self.events:
            is_in_time = first_ms <= event["timestamp"] <= last_ms
            if is_in_time and event["logStreamName"].startswith(prefix):
                found.append(event)
        yield {"events": found}

    def source(self, *groups: str) -> LogGroupRuns:
        return LogGroupRuns(self.read_pages, groups or (GROUP,), self.now_ns)


class PlayedIndex:
    """A search for runs finds all documents, newest first; another one the families' starts."""

    def __init__(self, reports: Sequence[Report]) -> None:
        ended = [one for one in reports if one.type == "task.report"]
        self.reports = sorted(ended, key=lambda one: one.record.started_at or "", reverse=True)

    def request(self, method: str, path: str, body: Any = None) -> ServerResponse:
        if "aggs" in body:
            return _found({"hits": {"hits": []}, "aggregations": self._families()})
        if "@timestamp" in body["sort"][0]:
            return _found({"hits": {"hits": []}})
        (first,) = body.get("search_after", (0,))
        hits = []
        for number, one in enumerate(self.reports[first : first + body["size"]], first + 1):
            record = one.record
            source = {
                "task": {"id": record.task_id, "family": record.family},
                "cloud": {"region": record.region},
                "event": {"start": record.started_at},
                "record": encode(one).decode(),
            }
            hits.append({"_source": source, "sort": [number]})
        return _found({"hits": {"hits": hits}})

    def _families(self) -> Mapping[str, Any]:
        starts: dict[tuple[str | None, str | None], list[int]] = {}
        for one in self.reports:
            key = (one.record.family, one.record.region)
            starts.setdefault(key, []).append((parse_ns(one.record.started_at) or 0) // NS_PER_MS)
        buckets = []
        for (family, region), moments in starts.items():
            last = [{"key": moment} for moment in moments[:LAST_RUNS]]
            key_object = {"name": family, "account": None, "region": region}
            buckets.append({"key": key_object, "starts": {"buckets": last}})
        return {"families": {"buckets": buckets}}


def _found(body: Mapping[str, Any]) -> ServerResponse:
    return ServerResponse(status=200, body=dict(body))


def file_source(folder: Path, reports: Sequence[Report]) -> RunSource:
    path = folder / "lines"
    path.write_bytes(lines(reports))
    return FileRuns(str(path), 0)


def history_source(folder: Path, reports: Sequence[Report]) -> RunSource:
    ended = [one for one in reports if one.type == "task.report"]
    return LocalRuns(history_of(folder / "history.sqlite3", *ended))


def logs_source(_folder: Path, reports: Sequence[Report]) -> RunSource:
    return PlayedLogGroup(reports).source()


def search_source(_folder: Path, reports: Sequence[Report]) -> RunSource:
    return IndexedRuns(PlayedIndex(reports), "task")


def joined_source(folder: Path, reports: Sequence[Report]) -> RunSource:
    half = len(reports) // 2
    return JoinedRuns(
        [file_source(folder, reports[:half]), logs_source(folder, reports)], lambda _: None
    )


SOURCES: Mapping[str, Callable[[Path, Sequence[Report]], RunSource]] = {
    "file": file_source,
    "history": history_source,
    "logs": logs_source,
    "search": search_source,
    "file and logs": joined_source,
}


def recommended(source: RunSource, family: str) -> list[Any]:
    """What ``recommend FAMILY`` prints."""
    selection = RunFilter(families=(family,))
    found = read_families(source, selection, LAST_RUNS).families
    return [
        advice_as_json(advise_on_size(one, SizePolicy(), NONE))
        for one in found.values()
        if one is not None
    ]


def shown(source: RunSource, name: str) -> Advice | None:
    """What ``show NAME`` is drawn from."""
    run = find_runs(source, RunFilter(run=name, reads_checkpoints=True))[0]
    return find_advice(run, source.family_source(run), NONE)


@pytest.mark.diagonal(1)
@pytest.mark.parametrize("kind", SOURCES)
def test_the_size_and_the_saving_are_those_of_recommend(tmp_path: Path, kind: str) -> None:
    random = Random(20261126)
    checked = 0
    # The history writes each run to the disk.
    families = FAMILIES // 4 if kind == "history" else FAMILIES
    for number in range(families):
        name = f"family-{number}"
        other = [report(day, family="other", task_id=f"o-{day}") for day in range(3)]
        made = with_task_ids([*any_family(random, name), *other])
        folder = tmp_path / name
        folder.mkdir()
        expected = recommended(SOURCES[kind](folder, made), name)
        source = SOURCES[kind](folder, made)
        run = random.choice(made[:-3]).record
        for chosen in (name, run.task_id):
            found = shown(source, chosen) if _is_found(source, chosen) else None
            if found is None:
                assert not expected or chosen != name
                continue
            (of_family,) = expected
            one = advice_as_json(found)
            for field in ("recommended", "current", "savingPercent", "usdPerMonth", "runs"):
                assert one[field] == of_family[field], (chosen, field)
            checked += 1
    assert checked > families


def _is_found(source: RunSource, name: str) -> bool:
    return any(True for _ in source.runs(RunFilter(run=name, reads_checkpoints=True)))


def nightly(count: int, **record: Any) -> list[Report]:
    return with_task_ids(report(number, size=(2, 8192), **record) for number in range(count))


def test_from_log_groups_the_family_is_read_in_its_group_and_under_its_prefix() -> None:
    group = PlayedLogGroup(nightly(20), prefix="team/etl")
    source = group.source("/ecs/other", GROUP)
    run = find_runs(source, RunFilter(run="nightly", reads_checkpoints=True))[0]
    run = replace(run, place=LogTarget(group=GROUP, stream=present(run.place).stream))
    group.calls.clear()
    found = present(find_advice(run, source.family_source(run), NONE))
    assert found.evidence.outcomes.runs == 20
    for call in group.calls:
        assert call["logGroupName"] == GROUP
        assert call["logStreamNamePrefix"] == "team/etl/"
        assert '$.record.family = "nightly"' in call["filterPattern"]


def test_a_stream_without_a_prefix_is_read_with_its_whole_group() -> None:
    group = PlayedLogGroup(nightly(2))
    source = group.source()
    run = PastRun(report=nightly(1)[0], place=LogTarget(group=GROUP, stream="0" * 64))
    group.calls.clear()
    find_advice(run, source.family_source(run), NONE)
    assert group.calls
    assert not any("logStreamNamePrefix" in call for call in group.calls)


def test_the_family_is_read_as_far_back_as_the_run_was_looked_for() -> None:
    group = PlayedLogGroup(nightly(50))
    since_ns = group.now_ns - 45 * DAY_SECONDS * 1_000_000_000
    source = group.source()
    selection = RunFilter(run="nightly", since_ns=since_ns, reads_checkpoints=True)
    run = find_runs(source, selection)[0]
    found = present(find_advice(run, source.family_source(run), NONE))
    assert found.evidence.outcomes.runs == 45
    assert min(call["startTime"] for call in group.calls) == since_ns // NS_PER_MS
    alone = group.source()
    run = find_runs(alone, RunFilter(run="nightly", reads_checkpoints=True))[0]
    assert present(find_advice(run, alone.family_source(run), NONE)).evidence.outcomes.runs == 30
    assert (
        group.now_ns // NS_PER_MS - min(call["startTime"] for call in group.calls[-3:])
        == MS_PER_DAY * 30
    )


def test_a_busy_family_is_not_read_beyond_its_last_runs() -> None:
    reports = [
        report(
            started_at=f"2026-11-{day:02}T{hour:02}:00:00Z",
            finished_at=None,
            task_id=f"{day}-{hour}",
        )
        for day in range(1, 21)
        for hour in range(24)
    ]
    dated = [replace(one, time=str(one.record.started_at)) for one in with_task_ids(reports)]
    group = PlayedLogGroup(dated)
    source = group.source()
    run = find_runs(source, RunFilter(run="nightly", reads_checkpoints=True))[0]
    group.calls.clear()
    find_advice(run, source.family_source(run), NONE)
    assert len(group.calls) == 2, "one day, and the next stretch"


def trend_of(reports: Sequence[Report]) -> tuple[str, ...]:
    source = PlayedLogGroup(reports).source()
    advice = present(shown(source, "nightly"))
    return size_story(advice, run_usage_of(advice.evidence.latest)).trend


def test_the_trend_of_the_memory_peak_has_its_limit() -> None:
    reports = [report(number, peak_mb=1000 + 20 * number, size=(1, 2048)) for number in range(25)]
    assert trend_of(with_task_ids(reports)) == (
        "memory peak +20 MB a run over 25 runs, passes 2 GB in about 29 runs",
    )


def test_the_trend_of_the_duration_is_of_successes_at_the_size() -> None:
    reports = [
        report(number, metrics={"duration_ms": 60_000 + 3_000 * number}) for number in range(20)
    ]
    failed = [
        report(20 + number, status="failure", exit_code=1, metrics={"duration_ms": 10})
        for number in range(5)
    ]
    assert trend_of(with_task_ids([*reports, *failed])) == (
        "duration +3.0 s a run over 20 successes",
    )


def test_runs_without_a_trend_have_no_word() -> None:
    assert trend_of(nightly(25)) == ()
    few = [report(number, peak_mb=100 * (number + 1)) for number in range(7)]
    assert trend_of(with_task_ids(few)) == ()


def texts(page: Iterable[Line]) -> list[str]:
    return ["".join(span.text for span in one) for one in page]


def test_the_page_has_the_trend_in_its_40_lines() -> None:
    reports = with_task_ids(
        report(number, peak_mb=1000 + 20 * number, size=(1, 2048)) for number in range(25)
    )
    source = PlayedLogGroup(reports).source()
    run = find_runs(source, RunFilter(run="nightly", reads_checkpoints=True))[0]
    advice = find_advice(run, source.family_source(run), NONE)
    sizes = size_story(advice, run.story.usage)
    page = texts(page_lines(run, View(width=80, now_ns=0), sizes=sizes))
    assert len(page) <= MAX_LINES
    assert sum(one.strip().startswith("trend ") for one in page) == 1


def test_on_spot_a_container_without_the_tasks_cost_has_the_same_saving(tmp_path: Path) -> None:
    """Of a task's reports, only the last has the cost, which shows that it ran on Spot."""
    on_spot = Cost(usd=0.01, price_basis="at least, on FARGATE_SPOT: 30% of the on-demand price")
    reports = []
    for number in range(8):
        for name, other, cost in (("batch", "zip", on_spot), ("zip", "batch", None)):
            made = report(
                number,
                container=Container(name=name),
                others={other: Metrics(max_memory_used_mb=10)},
                cost=cost,
                size=(2, 8192),
            )
            reports.append(made)
    source = file_source(tmp_path, with_task_ids(reports))
    (expected,) = recommended(source, "nightly")
    runs = find_runs(source, RunFilter(run="nightly", reads_checkpoints=True))
    assert [run.report.record.cost for run in runs] == [on_spot, on_spot]
    for run in runs:
        found = advice_as_json(present(find_advice(run, source.family_source(run), NONE)))
        assert found["usdPerMonth"] == expected["usdPerMonth"]
        assert found["savingUsdPerMonth"] == expected["savingUsdPerMonth"]


@pytest.mark.parametrize("kind", ["file", "history", "logs"])
def test_a_name_in_two_accounts_is_two_families(tmp_path: Path, kind: str) -> None:
    needs = {"111122223333": 400, "444455556666": 3000}
    reports = []
    for account, peak_mb in needs.items():
        for number in range(6):
            task_id = f"{account}-{number}"
            reports.append(
                report(number, peak_mb=peak_mb, account_id=account, task_id=task_id, size=(2, 8192))
            )
    made = with_task_ids(reports)
    source = SOURCES[kind](tmp_path, made)
    expected = {one["accountId"]: one for one in recommended(source, "nightly")}
    assert set(expected) == set(needs)
    for one in made:
        found = advice_as_json(present(shown(source, one.record.task_id)))
        assert found["recommended"] == expected[str(one.record.account_id)]["recommended"]


def test_a_family_that_changed_its_launch_type_is_advised_where_it_is_now(tmp_path: Path) -> None:
    reports = [report(number, size=(4, 16384), launch_type="FARGATE") for number in range(5)]
    reports += [report(number, size=(4, 16384), launch_type="EC2") for number in range(5, 8)]
    source = file_source(tmp_path, with_task_ids(reports))
    (expected,) = recommended(source, "nightly")
    found = present(shown(source, "nightly"))
    assert advice_verdict(found) == "less is enough"
    assert advice_as_json(found)["recommended"] == expected["recommended"]


def test_a_family_with_failures_alone_keeps_its_size(tmp_path: Path) -> None:
    reports = [
        report(number, size=(4, 16384), status="failure", exit_code=1) for number in range(6)
    ]
    source = file_source(tmp_path, with_task_ids(reports))
    found = present(shown(source, "nightly"))
    assert found.choice.size == found.choice.current
    (expected,) = recommended(source, "nightly")
    assert advice_as_json(found)["recommended"] == expected["recommended"]


@pytest.mark.parametrize("last", [2, LAST_RUNS])
def test_file_and_cluster_count_the_same_tasks_for_a_month(tmp_path: Path, last: int) -> None:
    """Which of them gives more than the last runs depends on how it is read."""
    made = with_task_ids(report(number) for number in range(LAST_RUNS + 3))
    selection = RunFilter(families=("nightly",))
    here = read_families(file_source(tmp_path, made), selection, last)
    there = read_families(search_source(tmp_path, made), selection, last)
    assert here.tasks_read == there.tasks_read
    (read,) = here.tasks_read.values()
    assert read.tasks == last
