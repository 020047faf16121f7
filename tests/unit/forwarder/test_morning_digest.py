"""The morning message: its lines, its form on Slack and as an event, and the lines of task_stopped
that it is made of.
"""

import json
import shlex
from datetime import UTC, datetime
from typing import Any

import msgspec
import pytest
from msgspec.structs import replace

from profiler.core.commands_to_copy import command_line
from profiler.core.completeness import Completeness, Gap
from profiler.core.timestamps import NS_PER_MS, NS_PER_SECOND, format_ms
from profiler.forwarder.ended_lines import EndedLineReader
from profiler.forwarder.morning_digest import (
    DigestPlace,
    NightSaving,
    families_with_saving,
    summarize_night,
)
from profiler.forwarder.night_period import NightPeriod, RememberedNight
from profiler.forwarder.night_runs import (
    EarlierRun,
    FailedRun,
    FamilyHistory,
    MissedTime,
    MissedTimes,
    NightRuns,
    ResizedCost,
    night_runs_of_printed,
)
from profiler.forwarder.notifications.event_details import bus_event
from profiler.forwarder.notifications.notification import (
    NightSummary,
    SummaryLine,
    notification_key,
)
from profiler.forwarder.notifications.slack_messages import (
    MAX_SECTION_LENGTH,
    slack_message_of,
    utf16_length,
)
from profiler.record.family_identity import PROOF_FAMILY
from profiler.record.measured import AtLeast, Exactly
from profiler.record.record_model import TaskSize
from profiler.record.run_outcome import OUT_OF_MEMORY
from tests.fakes import FakeInvocationTime
from tests.printed_lines import runs_of_lines
from tests.values import present

DAY_NS = 86_400 * NS_PER_SECOND
END_NS = round(datetime(2026, 11, 25, 8, tzinfo=UTC).timestamp()) * NS_PER_SECOND
LAST = RememberedNight(end_ns=END_NS - DAY_NS, whole_ns=END_NS - DAY_NS)
NIGHT = NightPeriod(last=LAST, end_ns=END_NS, zone=UTC)
TITLE = "Since yesterday 08:00 UTC"
PLACE = DigestPlace(region="eu-west-1", source="https://search.example.com", stack="profiler")
KILLED = FailedRun(
    outcome=OUT_OF_MEMORY,
    family="nightly-etl",
    reason="Out of memory",
    ended_at="2026-11-25T02:14:00Z",
    url="https://kibana.example.com/run",
)
QUIET = NightRuns(counts={"success": {"nightly-etl": 3}}, reports=3)


def summary_of(
    runs: NightRuns = QUIET,
    history: FamilyHistory | None = None,
    *missed: MissedTime,
    place: DigestPlace = PLACE,
) -> NightSummary:
    return summarize_night(
        NIGHT, runs, MissedTimes(times=missed), history or FamilyHistory(), place
    )


def texts(summary: NightSummary) -> list[str]:
    return [line.text for line in summary.lines]


def earlier(days_ago: float, **values: Any) -> EarlierRun:
    """A success of ten minutes whose memory peak is half of its size."""
    usual: dict[str, Any] = {
        "status": "success",
        "duration_ms": 600_000.0,
        "peak_mb": 1024.0,
        "size_mb": 2048.0,
        "saving_usd_per_month": None,
    }
    ended_ns = NIGHT.end_ns - round((days_ago + 0.3) * DAY_NS)
    return EarlierRun(ended_ns=ended_ns, **{**usual, **values})


def history_of(*runs: EarlierRun) -> FamilyHistory:
    return FamilyHistory(runs={"nightly-etl": runs})


def test_a_quiet_night_is_one_line() -> None:
    steady = history_of(*(earlier(day) for day in range(20, -1, -1)))
    summary = summary_of(QUIET, steady)
    assert summary.sentence == f"{TITLE}: 3 runs, 3 succeeded."
    message = slack_message_of(summary, kibana_url=None)
    assert message.text == summary.sentence
    # The header has the title already.
    assert [block["text"]["text"] for block in message.blocks] == [TITLE, "3 runs, 3 succeeded."]
    assert summary.lines == ()


def test_a_failed_run_has_its_reason_its_time_and_its_link() -> None:
    counts = {OUT_OF_MEMORY: {"nightly-etl": 1}}
    summary = summary_of(NightRuns(counts=counts, failed=(KILLED,), reports=1))
    (line,) = summary.lines
    assert line.text == "nightly-etl: Out of memory"
    assert line.at == datetime(2026, 11, 25, 2, 14, tzinfo=UTC)
    assert line.url == "https://kibana.example.com/run"


@pytest.mark.parametrize(
    ("corrected", "text"),
    [
        ({"etl": 1}, "1 job that did not succeed in an earlier message has succeeded since: etl"),
        (
            {"etl": 2, "a": 1},
            "3 jobs that did not succeed in an earlier message have succeeded since: etl ×2 and a",
        ),
        (
            dict.fromkeys("abcde", 1),
            (
                "5 jobs that did not succeed in an earlier message have succeeded since: "
                "a, b, c and 2 more"
            ),
        ),
    ],
)
def test_jobs_that_have_succeeded_since_they_were_told_have_a_line(
    corrected: dict[str, int], text: str
) -> None:
    assert texts(summary_of(replace(QUIET, corrected=corrected))) == [text]
    alone = summary_of(NightRuns(counts={}, corrected=corrected))
    assert alone.sentence == f"{TITLE}: no new run is known."
    assert texts(alone) == [text], "their reports did arrive"


def test_the_message_has_at_most_20_lines() -> None:
    families = {f"family-{number}": 1 for number in range(60)}
    failed = tuple(replace(KILLED, family=family) for family in families)
    missed = [MissedTime(family=family, message=f"{family} was due.") for family in families]
    growing = [earlier(day, peak_mb=2000 - 40 * day) for day in range(20, -1, -1)]
    slow = [*(earlier(day) for day in range(20, 0, -1)), earlier(0, duration_ms=9e6, peak_mb=2000)]
    history = FamilyHistory(
        runs={
            **{f"growing-{number}": growing for number in range(9)},
            **{f"slow-{number}": slow for number in range(9)},
            "oversized": [earlier(0, saving_usd_per_month=50)],
        },
        resized=(ResizedCost(tag="3/1024/4096", size=TaskSize(vcpu=0.5, memory_mb=2048), usd=10),),
    )
    runs = NightRuns(counts={OUT_OF_MEMORY: families}, failed=failed, reports=0)
    runs = replace(runs, other_families=60, corrected={"etl": 1})
    summary = summary_of(runs, history, *missed)
    assert 1 + len(summary.lines) <= 20
    assert "55 more families failed" in texts(summary)


def test_a_missed_due_time_is_said_in_the_words_of_its_notification() -> None:
    missed = MissedTime(family="report", message="report was due at 02:00 UTC.")
    summary = summary_of(QUIET, None, missed)
    assert summary.sentence.startswith(f"{TITLE}: 3 runs, 1 missed (report)")
    assert texts(summary) == ["report was due at 02:00 UTC."]


def test_a_success_much_slower_or_larger_than_usual_is_said() -> None:
    usual = [earlier(day) for day in range(20, 0, -1)]
    slow = summary_of(QUIET, history_of(*usual, earlier(0, duration_ms=1_260_000.0)))
    assert texts(slow) == ["nightly-etl: took 21m 00s, 2.1× its usual time"]
    large = summary_of(QUIET, history_of(*usual, earlier(0, peak_mb=1843.2)))
    assert texts(large) == ["nightly-etl: used 1.8 GB of memory, 1.8× its usual peak"]
    few = summary_of(QUIET, history_of(*usual[-4:], earlier(0, duration_ms=1_260_000.0)))
    assert texts(few) == []
    before = summary_of(QUIET, history_of(*usual, earlier(1.9, duration_ms=1_260_000.0)))
    assert texts(before) == []
    late = earlier(1.9, duration_ms=1_260_000.0, known_ns=NIGHT.end_ns - NS_PER_SECOND)
    assert texts(summary_of(QUIET, history_of(*usual, late))) == texts(slow)


def test_what_differs_from_run_to_run_is_not_said() -> None:
    """The inputs of a workflow differ by more than a half, and once a week they are large."""
    minutes = (4, 9, 30, 7, 12, 5, 18, 8, 6, 11)
    usual = [earlier(10 - day, duration_ms=6e4 * taken) for day, taken in enumerate(minutes)]
    large = summary_of(QUIET, history_of(*usual, earlier(0, duration_ms=6e4 * 32)))
    assert texts(large) == []
    larger = summary_of(QUIET, history_of(*usual, earlier(0, duration_ms=6e4 * 66)))
    assert texts(larger) == ["nightly-etl: took 1h 06m, 7.8× its usual time"]


@pytest.mark.parametrize(
    ("runs", "minutes", "is_said"),
    [(9, 100, False), (10, 21, False), (10, 30, True), (10, 100, True), (20, 15, True)],
)
def test_fewer_earlier_runs_need_a_larger_difference(
    runs: int,
    minutes: float,
    is_said: bool,  # noqa: FBT001  a parameter
) -> None:
    """The largest of few runs is often by half larger than the others by chance."""
    usual = [earlier(day) for day in range(runs, 0, -1)]
    summary = summary_of(QUIET, history_of(*usual, earlier(0, duration_ms=6e4 * minutes)))
    assert bool(texts(summary)) is is_said


def test_of_several_runs_in_the_night_the_median_is_said() -> None:
    usual = [earlier(day) for day in range(20, 0, -1)]
    one_of_three = [earlier(0, duration_ms=taken) for taken in (6e5, 7e5, 36e5)]
    assert texts(summary_of(QUIET, history_of(*usual, *one_of_three))) == []
    all_three = [earlier(0, duration_ms=taken, peak_mb=2e3) for taken in (12e5, 15e5, 36e5)]
    assert texts(summary_of(QUIET, history_of(*usual, *all_three))) == [
        "nightly-etl: took 25m 00s (median of 3 runs), 2.5× its usual time",
        "nightly-etl: used 2 GB of memory (median of 3 runs), 2.0× its usual peak",
    ]


def test_memory_that_grows_to_its_limit_is_said_with_the_nights_left() -> None:
    runs = [earlier(day, peak_mb=2048 * (0.89 - 0.007 * day)) for day in range(20, -1, -1)]
    assert texts(summary_of(QUIET, history_of(*runs))) == [
        "nightly-etl: memory 75 → 89 % in 20 nights, full in 16 nights"
    ]


@pytest.mark.parametrize(("share", "said"), [(0.994, "full in 1 night"), (1.01, "full now")])
def test_of_the_last_nights_before_the_limit_the_number_is_right(share: float, said: str) -> None:
    runs = [earlier(day, peak_mb=2048 * (share - 0.007 * day)) for day in range(20, -1, -1)]
    (line,) = texts(summary_of(QUIET, history_of(*runs)))
    assert line.endswith(f"in 20 nights, {said}")


def test_the_memory_that_is_said_to_grow_was_measured() -> None:
    """The line through these nights begins at 51 % and ends at 112 %."""
    shares = (0.52, 0.54, 0.66, 0.74, 0.82, 0.9, 0.98, 0.998, 0.998)
    runs = [earlier(8 - night, peak_mb=2048 * share) for night, share in enumerate(shares)]
    assert texts(summary_of(QUIET, history_of(*runs))) == [
        "nightly-etl: memory 52 → 99.8 % in 8 nights, full now"
    ]


def test_memory_that_grows_within_each_night_is_not_said_to_grow() -> None:
    """A workflow has its large inputs last."""
    runs = [
        earlier(day - part / 50, peak_mb=2048 * (0.3 + part / 30))
        for day in (3, 2, 1, 0)
        for part in range(12)
    ]
    assert texts(summary_of(QUIET, history_of(*runs))) == []


def test_nothing_is_a_multiple_of_nothing() -> None:
    """Runs of less than half a millisecond have a duration of 0."""
    runs = [earlier(day, duration_ms=0.0, peak_mb=0.0) for day in range(20, 0, -1)]
    newest = earlier(0, duration_ms=60_000.0, peak_mb=500.0)
    assert texts(summary_of(QUIET, history_of(*runs, newest))) == []


@pytest.mark.parametrize("per_night", [0.0, -0.01, 0.001])
def test_memory_that_does_not_grow_to_its_limit_soon_is_not_said(per_night: float) -> None:
    runs = [earlier(day, peak_mb=2048 * (0.7 - per_night * day)) for day in range(20, -1, -1)]
    assert texts(summary_of(QUIET, history_of(*runs))) == []


def test_the_growth_is_that_of_the_runs_at_the_size_of_the_newest() -> None:
    smaller = [earlier(day, size_mb=1024.0, peak_mb=1000 - 20 * day) for day in range(30, 20, -1)]
    larger = [earlier(day) for day in range(20, -1, -1)]
    assert texts(summary_of(QUIET, history_of(*smaller, *larger))) == []


@pytest.mark.parametrize("before", [False, True])
def test_no_peak_is_compared_with_one_that_means_something_else(before: bool) -> None:  # noqa: FBT001  a parameter
    """Records of schema 1.3 and earlier count mapped files as used, newer ones do not."""
    usual = [earlier(day, counts_files=before) for day in range(10, 4, -1)]
    newer = [earlier(day, counts_files=not before) for day in range(4, 0, -1)]
    large = {"peak_mb": 1900.0, "counts_files": not before}
    assert texts(summary_of(QUIET, history_of(*usual, *newer, earlier(0, **large)))) == []
    more = [earlier(day + 0.1, counts_files=not before) for day in range(20, 0, -1)]
    runs = sorted([*usual, *newer, *more], key=lambda run: run.ended_ns)
    (line,) = texts(summary_of(QUIET, history_of(*runs, earlier(0, **large))))
    assert line == "nightly-etl: used 1.9 GB of memory, 1.9× its usual peak"
    lower = [earlier(day, peak_mb=600.0, counts_files=before) for day in range(30, 20, -1)]
    upgraded = [earlier(day, peak_mb=1900.0, counts_files=not before) for day in range(20, -1, -1)]
    assert texts(summary_of(QUIET, history_of(*lower, *upgraded))) == []


def test_a_newest_run_without_a_peak_does_not_hide_an_unusual_one() -> None:
    """A document without memory has no mapped files either."""
    usual = [earlier(day) for day in range(20, 0, -1)]
    unmeasured = earlier(-0.1, peak_mb=None, size_mb=None, counts_files=True)
    runs = history_of(*usual, earlier(0, peak_mb=2000.0), unmeasured)
    assert texts(summary_of(QUIET, runs)) == [
        "nightly-etl: used 2 GB of memory, 2.0× its usual peak"
    ]


@pytest.mark.parametrize(
    "newest",
    [{"peak_mb": None, "size_mb": None}, {"peak_mb": 5.0, "counts_files": True}],
    ids=["no peak", "no sample"],
)
def test_a_newest_run_that_failed_at_once_does_not_hide_the_growth(newest: dict[str, Any]) -> None:
    runs = [earlier(day, peak_mb=2048 * (0.89 - 0.007 * day)) for day in range(20, -1, -1)]
    failed = earlier(-0.1, status="failure", **newest)
    (line,) = texts(summary_of(QUIET, history_of(*runs, failed)))
    assert "full in 16 nights" in line


def test_the_amount_that_other_sizes_save_is_the_commands_word() -> None:
    history = history_of(earlier(1, saving_usd_per_month=412.3), earlier(0, saving_usd_per_month=9))
    (line,) = summary_of(QUIET, history).lines
    assert line.text == (
        "The last runs of 1 family recommend a cheaper size. What a resize would save:"
    )
    assert line.command == (
        "task-profiler taskdef resize --from https://search.example.com --region eu-west-1"
    )
    assert summary_of(QUIET, history_of(earlier(0, saving_usd_per_month=0.5))).lines == ()


def test_a_family_is_asked_about_by_its_largest_run_at_its_newest_size() -> None:
    """As the command does: neither a small run nor a failure at the end makes its size; the money is
    that of a mean run.
    """
    small, fits = {"saving_usd_per_month": 40.0}, {"saving_usd_per_month": 0.0}
    runs = {
        "one fits": [earlier(2, **fits), earlier(1, **small), earlier(0, **small)],
        "failed last": [earlier(1, **small), earlier(0, status="failure", **fits)],
        "second report": [earlier(1, saving_usd_per_month=None), earlier(0, **small)],
        "was smaller": [earlier(1, size_mb=512.0, **fits), earlier(0, saving_usd_per_month=90.0)],
        "short runs": [*[earlier(2, saving_usd_per_month=0.1)] * 3, earlier(0, **small)],
        "only failures": [earlier(0, status="failure", **small)],
    }
    asked = families_with_saving(FamilyHistory(runs=runs))
    assert asked == ["was smaller", "failed last", "second report", "short runs"]


@pytest.mark.parametrize(
    ("days", "kept_days", "about"), [(3, 1, "3"), (3, 3, None), (1.4, 1, "1.4"), (1.6, 1, "2")]
)
def test_a_message_of_more_days_than_the_lines_are_kept_says_so(
    days: float, kept_days: int, about: str | None
) -> None:
    """Such as after a weekend, or after messages that no channel accepted."""
    since_ns = END_NS - round(days * DAY_NS) - 60 * NS_PER_SECOND
    last = RememberedNight(end_ns=since_ns, whole_ns=since_ns)
    period = NightPeriod(last=last, end_ns=END_NS, zone=UTC)
    runs = runs_of_lines([], period, kept_days=kept_days)
    summary = summarize_night(period, runs, MissedTimes(), FamilyHistory(), DigestPlace())
    said = (
        f"The log group of task_stopped keeps 1 day, and this message is about {about}, so runs "
        "are missing here: raise LogRetentionDays"
    )
    assert (said in texts(summary)) == (about is not None)


def test_families_that_are_named_like_options_are_none_in_the_command_of_the_saving() -> None:
    names = ("-x", "--register")
    history = FamilyHistory(
        runs={name: [earlier(0, saving_usd_per_month=9)] for name in (*names, "nightly")}
    )
    saving = NightSaving(asked=3, families=(*names, "nightly"), usd_per_month=27)
    (line,) = summarize_night(NIGHT, QUIET, MissedTimes(), history, PLACE, saving=saving).lines
    assert line.command is not None
    words = shlex.split(line.command)
    assert words[words.index("--") :] == ["--", *names]
    assert words[:4] == ["task-profiler", "taskdef", "resize", "nightly"]


def test_without_a_search_cluster_no_saving_is_said() -> None:
    history = history_of(earlier(0, saving_usd_per_month=9))
    saving = NightSaving(asked=1, families=("nightly-etl",), usd_per_month=5.24)
    summary = summarize_night(NIGHT, QUIET, MissedTimes(), history, DigestPlace(), saving=saving)
    assert summary.lines == ()


def test_what_resized_families_saved_is_the_price_of_the_size_before() -> None:
    half = ResizedCost(tag="3/1024/4096", size=TaskSize(vcpu=0.5, memory_mb=2048), usd=10)
    broken = ResizedCost(tag="none", size=TaskSize(vcpu=0.5, memory_mb=2048), usd=10)
    (line,) = summary_of(QUIET, FamilyHistory(resized=(half, broken))).lines
    assert line.text == "Resized families saved $10.00 in 30 days"


@pytest.mark.parametrize(
    ("counts", "said"),
    [
        ({}, "If tasks ran, their reports did not arrive. Look for the reason:"),
        (
            {"success": {"nightly-etl": 144}},
            "None of these runs left a report. Look for the reason:",
        ),
    ],
)
def test_a_night_without_a_report_names_the_command_that_finds_the_reason(
    counts: dict[str, dict[str, int]], said: str
) -> None:
    summary = summary_of(NightRuns(counts=counts, reports=0))
    (line,) = summary.lines
    assert line.text == said
    assert line.command == "task-profiler doctor --deployed profiler --region eu-west-1"
    if not counts:
        assert summary.sentence == f"{TITLE}: no run has left a report."


@pytest.mark.parametrize(
    ("count", "said"),
    [
        (1, "1 run unconfirmed: no event of ECS has told of its end, so it is not counted."),
        (
            12,
            "12 runs unconfirmed: no event of ECS has told of their ends, so they are not counted.",
        ),
    ],
)
def test_reports_without_an_event_of_ecs_are_counted_apart(count: int, said: str) -> None:
    """Such as where the rule of task_stopped is off."""
    summary = summary_of(NightRuns(counts={}, unconfirmed=count))
    assert summary.sentence == f"{TITLE}: no run is known."
    (line,) = summary.lines
    assert line.text == f"{said} Look for the reason:"
    assert line.command == "task-profiler doctor --deployed profiler --region eu-west-1"


def test_a_night_with_one_report_is_not_doubted() -> None:
    runs = NightRuns(counts={"success": {"nightly-etl": 144}}, reports=1)
    assert summary_of(runs).lines == ()


def test_families_beyond_those_with_a_name_are_counted_in_one_line() -> None:
    runs = NightRuns(
        counts={"success": {"a": 1}}, others={"success": 60}, other_families=60, reports=61
    )
    summary = summary_of(runs)
    assert summary.sentence == f"{TITLE}: 61 runs, 61 succeeded."
    assert texts(summary) == [
        "60 more families are counted above, and not compared with earlier runs"
    ]


@pytest.mark.parametrize(
    ("named", "others", "said"),
    [
        (67, 534, "62 more families and 534 runs of other families failed"),
        (6, 0, "1 more family failed"),
        (5, 1, "1 run of other families failed"),
    ],
)
def test_failures_of_families_without_a_name_are_counted_as_runs(
    named: int, others: int, said: str
) -> None:
    """Of 334 families that failed, 67 among the 200 with a name, it said "62 more"."""
    failed = tuple(replace(KILLED, family=f"family-{number}") for number in range(named))
    runs = replace(QUIET, failed=failed, others={"failure": others, "success": 9})
    assert texts(summary_of(runs))[5] == said


def test_due_times_beyond_those_that_were_read_are_counted() -> None:
    times = tuple(MissedTime(family=f"f{one}", message=f"f{one} was due.") for one in range(4))
    missed = MissedTimes(times=times, others=6)
    summary = summarize_night(NIGHT, QUIET, missed, FamilyHistory(), PLACE)
    assert "10 missed (f0, f1, f2 and others)" in summary.sentence
    assert "7 more due times were missed" in texts(summary)
    one_more = replace(missed, others=0)
    summary = summarize_night(NIGHT, QUIET, one_more, FamilyHistory(), PLACE)
    assert "f3 was due." in texts(summary)
    assert "more due time" not in " ".join(texts(summary))
    unread = replace(missed, times=times[:3], others=1)
    summary = summarize_night(NIGHT, QUIET, unread, FamilyHistory(), PLACE)
    assert "1 more due time was missed" in texts(summary)


def test_a_part_of_the_search_cluster_that_did_not_answer_is_said() -> None:
    why = "2 shards of the search cluster did not answer"
    part = Completeness((Gap(place="task-reports-*", reason=why),))
    summary = summary_of(NightRuns(counts={}, reports=0, completeness=part))
    assert summary.sentence == f"{TITLE}: no run is known."
    (line,) = summary.lines
    assert line.text == (
        "2 shards of the search cluster did not answer, so runs are missing here: check the "
        "health of its indices"
    )
    assert line.command is None


HOSTILE = '<!channel> *a* `b` & "c" \\ \x1b[31m\nd|e'


def test_the_slack_message_has_times_in_the_readers_zone_and_no_foreign_markup() -> None:
    failed = replace(KILLED, family=HOSTILE, url="https://evil.example/<x>|y")
    runs = NightRuns(counts={OUT_OF_MEMORY: {HOSTILE: 1}}, failed=(failed, KILLED), reports=2)
    message = slack_message_of(summary_of(runs), kibana_url=None)
    text = message.blocks[1]["text"]["text"]
    assert "<!date^1795572840^{time}|02:14 UTC>" in text
    assert "<https://kibana.example.com/run|open>" in text
    assert "<!channel>" not in text
    assert "evil.example" not in text
    assert "\x1b" not in text


@pytest.mark.parametrize("link", [600, 2900])
def test_a_night_of_a_thousand_families_with_long_names_has_all_its_lines_on_slack(
    link: int,
) -> None:
    """Lines that did not fit into one section were left out, those of failures before others."""
    names = [f"team-{number:04}-{'x' * 240}" for number in range(1000)]
    url = f"https://kibana.example.com/{'u' * link}"
    failed = tuple(replace(KILLED, family=name, reason="r" * 900, url=url) for name in names)
    missed = [MissedTime(family=name, message=f"{name} {'m' * 900}") for name in names[:50]]
    counts = {OUT_OF_MEMORY: dict.fromkeys(names[:500], 1), "failure": dict.fromkeys(names, 1)}
    runs = NightRuns(counts=counts, failed=failed, other_families=800, reports=1500)
    summary = summary_of(runs, None, *missed)
    message = slack_message_of(summary, kibana_url=None)
    texts = [block["text"]["text"] for block in message.blocks[1:]]
    assert sum(text.count("• ") for text in texts) == len(summary.lines) == 11
    assert "".join(texts).count("|open>") == (5 if link < 2000 else 0)
    assert all(utf16_length(text) <= MAX_SECTION_LENGTH for text in texts)
    assert len(message.blocks) <= 50


@pytest.mark.parametrize("length", [60, 255])
def test_a_command_for_families_with_long_names_is_whole_on_every_channel(length: int) -> None:
    """It was cut within its address on Slack, where it lacked its Region."""
    names = tuple(f"team-{number}-".ljust(length, "x") for number in range(5))
    line = SummaryLine(
        text="Other sizes would save $250.00 a month:",
        command=command_line(
            "taskdef", "resize", *names, source=f"https://{'v' * 60}.es.amazonaws.com", region="r-9"
        ),
    )
    summary = NightSummary(night="", since="", title="Night", sentence="Night: 1.", lines=(line,))
    message = slack_message_of(summary, kibana_url=None)
    _, detail = bus_event(summary, kibana_url=None)
    command = present(line.command)
    assert f" `{command}`" in message.blocks[-1]["text"]["text"]
    event = msgspec.to_builtins(detail)
    assert event["lines"] == (f"{line.text} {command}",)
    assert event["text"].endswith(f" • {line.text} {command}")
    assert event["markdown"].endswith(f" • {line.text} {command}")


def test_the_event_has_the_same_text_for_a_template() -> None:
    runs = NightRuns(
        counts={OUT_OF_MEMORY: {HOSTILE: 1}}, failed=(replace(KILLED, family=HOSTILE),), reports=1
    )
    kind, detail = bus_event(summary_of(runs), kibana_url=None)
    assert kind == "Night Summary"
    event = msgspec.to_builtins(detail)
    assert event["night"] == "2026-11-24"
    assert event["text"].startswith(f"{TITLE}: 1 run, 1 killed for memory")
    assert "Out of memory, 2026-11-25 02:14 UTC." in event["text"]
    assert not set('"\\\n\x1b').intersection(event["text"])
    assert len(msgspec.json.encode(detail)) < 32_000


def test_a_family_of_any_name_stresses_nothing_on_slack() -> None:
    name = "_etl_ *all* ~old~ `id` <&> nightly_etl"
    shown = "\uff3fetl\uff3f \u2217all\u2217 \u223cold\u223c 'id' &lt;&amp;&gt; nightly_etl"
    runs = NightRuns(
        counts={OUT_OF_MEMORY: {name: 1}}, failed=(replace(KILLED, family=name),), reports=1
    )
    (_, said) = slack_message_of(summary_of(runs), kibana_url=None).blocks
    text = said["text"]["text"]
    assert f"({shown})" in text
    assert f"• {shown}: " in text


def test_a_night_has_one_key() -> None:
    assert notification_key(summary_of()) == "night#2026-11-24T08:00:00.000Z"
    assert summary_of().night == "2026-11-24"


def line(task_id: str, hours: float, **fields: Any) -> tuple[int, str]:
    """A ``task.ended`` line of a run that ended so many hours after the last message, and when it
    was written: a minute later.
    """
    ended_ns = NIGHT.start_ns + round(hours * 3600 * NS_PER_SECOND)
    ended = {
        "type": "task.ended",
        "text": "nightly-etl ended.",
        "taskId": task_id,
        "family": "nightly-etl",
        "status": "success",
        "stopCategory": "exit",
        "outcome": "success",
        "finishedAt": format_ms(ended_ns),
        **fields,
    }
    return ended_ns // NS_PER_MS + 60_000, msgspec.json.encode(ended).decode()


def test_the_lines_of_a_night_are_its_runs_and_each_task_counts_once() -> None:
    report = {"metrics": {"durationMs": 6e4, "billedDurationMs": 6e4}, "cost": {"usd": 0.5}}
    failed = {"status": "failure", "outcome": "failure", "exitCode": 3, "family": "load"}
    killed = {"status": "failure", "stopCategory": "oom", "outcome": "oom", "exitCode": 137}
    runs = runs_of_lines(
        [
            line("1", 1, **report),
            line("1", 1, **report),
            line("2", 2, **failed),
            line("3", 3, **killed),
            line("4", -1),
            line("5", 24),
            line("6", 4, family=PROOF_FAMILY),
            (0, "no JSON"),
        ],
        NIGHT,
    )
    assert runs.counts == {
        OUT_OF_MEMORY: {"nightly-etl": 1},
        "failure": {"load": 1},
        "success": {"nightly-etl": 1},
    }
    assert [run.family for run in runs.failed] == ["nightly-etl", "load"]
    assert runs.failed[0].ended_at == "2026-11-24T11:00:00.000Z"
    assert runs.failed[1].reason == "The container exited with code 3"
    assert runs.cost == Exactly(0.5)
    assert runs.reports == 1


def test_an_attempt_of_a_job_whose_id_is_unknown_counts() -> None:
    """A container's own environment can lack it."""
    lines = [line("1", 1, batch={"attempt": 2}), line("2", 2, batch={"attempt": 1})]
    assert runs_of_lines(lines, NIGHT).counts == {"success": {"nightly-etl": 2}}


def repeated(job: str, number: int, hours: float) -> tuple[int, str]:
    """The line of an attempt that is repeated."""
    written_ns = NIGHT.start_ns + round(hours * 3600 * NS_PER_SECOND)
    told = {"type": "job.repeated", "jobId": job, "attempt": number}
    return written_ns // NS_PER_MS, msgspec.json.encode(told).decode()


@pytest.mark.parametrize("is_first", [True, False])
def test_an_attempt_that_is_repeated_only_costs(*, is_first: bool) -> None:
    """Its line may come before that of its task."""
    attempts = [
        line("1", 1, batch={"jobId": "j", "attempt": 1}, cost={"usd": 1}),
        line("2", 2, batch={"jobId": "k", "attempt": 1}, cost={"usd": 1}),
    ]
    told = repeated("j", 1, 0.9 if is_first else 1.1)
    runs = runs_of_lines([*attempts, told], NIGHT)
    assert runs.counts == {"success": {"nightly-etl": 1}}
    assert runs.cost == Exactly(2)
    assert set(runs.remembered) <= {"1", "2"}


@pytest.mark.parametrize("odd", [{"jobId": 5}, {"attempt": "1"}, {"attempt": None}, {"type": "x"}])
def test_a_line_of_a_repetition_of_another_form_says_nothing(odd: dict[str, Any]) -> None:
    of_job = line("1", 1, batch={"jobId": "j", "attempt": 1})
    told = json.dumps({"type": "job.repeated", "jobId": "j", "attempt": 1, **odd})
    runs = runs_of_lines([of_job, (of_job[0], told)], NIGHT)
    assert runs.counts == {"success": {"nightly-etl": 1}}


def test_the_selected_runs_alone_count_and_on_spot_the_cost_is_a_lower_bound() -> None:
    on_spot = {"usd": 0.25, "priceBasis": "at least, on FARGATE_SPOT: 30% of us-east-1 FARGATE"}
    lines = [line("1", 1, cost={"usd": 0.5}), line("2", 2, family="load", cost=on_spot)]
    assert runs_of_lines(lines, NIGHT).cost == AtLeast(0.75)
    selected = runs_of_lines(lines, NIGHT, lambda run: run.family == "nightly-etl")
    assert selected.family_names == ("nightly-etl",)
    assert selected.cost == Exactly(0.5)


class LogGroup:
    """CloudWatch Logs with the lines of task_stopped; keeps the filter patterns."""

    def __init__(self, *lines: tuple[int, str]) -> None:
        self.lines = lines
        self.patterns: list[str] = []

    def filter_log_events(
        self,
        *,
        startTime: int,
        filterPattern: str,
        endTime: int = 1 << 60,
        nextToken: str = "",
        **group: str,
    ) -> dict[str, Any]:
        """Three pages, the second one without lines."""
        assert group == {"logGroupName": "group"}
        events = [
            {"timestamp": at, "message": text, "logStreamName": "2026/11/25/[$LATEST]0"}
            for at, text in self.lines
            if startTime <= at <= endTime
        ]
        if nextToken == "2":
            return {"events": events[1:]}
        if nextToken:
            return {"nextToken": "2"}
        self.patterns.append(filterPattern)
        return {"events": events[:1], "nextToken": "1"}


def told(group: LogGroup, period: NightPeriod = NIGHT) -> NightRuns:
    """The runs of the log group's lines, all of which can be read in time."""
    lines = EndedLineReader(client=group, group="group", budget=FakeInvocationTime())
    return night_runs_of_printed(lines.read_printed_runs(period), period)


ALL_LINES = '{ $.type = "task.ended" || $.type = "job.repeated" }'
NEVER = {"finishedAt": None, "status": "failure", "stopCategory": "image", "outcome": "image"}


def rewritten(told: tuple[int, str], hours: float) -> tuple[int, str]:
    """The same line, of an event that was sent again so much later."""
    return told[0] + round(hours * 3_600_000), told[1]


def test_an_event_that_is_sent_again_late_gives_no_second_run() -> None:
    """Such as by a redrive, after a channel refused the notice of a run that was counted."""
    in_time, never = line("1", -40), line("2", -90, **NEVER)
    first = line("3", -40)
    lines = (in_time, never, rewritten(in_time, 45), rewritten(never, 95), rewritten(first, 60))
    group = LogGroup(*lines)
    runs = told(group)
    assert runs.counts == {"success": {"nightly-etl": 1}}
    assert runs.remembered == ()
    names = " || ".join(f'$.taskId = "{task}"' for task in "123")
    assert group.patterns == [
        ALL_LINES,
        ALL_LINES,
        f'{{ $.type = "task.ended" && ({names}) }}',
    ]


def test_a_late_line_of_a_run_within_a_long_message_is_found_by_the_first_search() -> None:
    last = RememberedNight(end_ns=END_NS - 7 * DAY_NS, whole_ns=END_NS - 8 * DAY_NS)
    week = replace(NIGHT, last=last)
    group = LogGroup(rewritten(line("1", -40), 45))
    assert told(group, week).counts
    assert group.patterns == [ALL_LINES] * 2


@pytest.mark.parametrize("name", ["", "by_hand", 'a" || $.b = "'])
def test_a_late_line_whose_task_cannot_be_in_a_pattern_is_found_by_all_lines(name: str) -> None:
    """Such as of a test event: an empty condition, or one with a quote, would be no pattern."""
    first = line(name, -40)
    group = LogGroup(first, rewritten(first, 45), rewritten(line("1", -40), 45))
    runs = told(group)
    assert runs.counts == {"success": {"nightly-etl": 1}}
    assert group.patterns == [ALL_LINES] * 3


@pytest.mark.parametrize(("late", "searches"), [(0, 2), (40, 3)])
def test_the_time_before_is_read_for_late_lines_alone(late: int, searches: int) -> None:
    lines = [line("in-time", 1), *(rewritten(line(f"t{one}", -40), 45) for one in range(late))]
    group = LogGroup(*lines)
    runs = told(group)
    assert runs.counts == {"success": {"nightly-etl": 1 + late}}
    # So many tasks fit into no pattern.
    assert group.patterns == [ALL_LINES] * searches


def test_a_task_that_never_started_ended_when_its_line_was_written() -> None:
    assert runs_of_lines([line("1", 5, **NEVER)], NIGHT).family_names == ("nightly-etl",)
    assert runs_of_lines([line("1", 30, **NEVER)], NIGHT).family_names == ()
