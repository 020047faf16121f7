"""Families that are easily misread. Each has a control, which must still be resized."""

from collections.abc import Sequence
from typing import Any

import pytest
from msgspec.structs import replace

from profiler.core.ecs_terms import EC2
from profiler.core.timestamps import NS_PER_DAY, NS_PER_HOUR, NS_PER_MINUTE, format_ms
from profiler.record.record_model import CONTAINER_INSIGHTS, Report, Sampling, TaskSize, Visible
from profiler.sizing.prices import PriceOverrides
from profiler.sizing.resize_limits import ResizeDecision, ResizePolicy
from profiler.sizing.size_candidates import resize_case
from profiler.sizing.sized_revision import (
    FamilyCircumstances,
    SizeBefore,
    SizedRevision,
    TargetOverride,
)
from profiler.sizing.sizing_rules import RULES
from profiler.sizing.window_advice import WindowAdvice
from tests.fakes import START_NS
from tests.family_windows import NOWHERE, decision_on, window_of, window_of_runs
from tests.runs import report, reported_facts, slowdown
from tests.values import present

BIG, OLD, NEW = (4.0, 8192), (1.0, 2048), (0.25, 512)
KILLED: dict[str, Any] = {"likely_out_of_memory": True, "status": "failure", "exit_code": 137}
FAILED: dict[str, Any] = {"status": "failure", "exit_code": 1}


def task_size(size: tuple[float, float]) -> TaskSize:
    return TaskSize(vcpu=size[0], memory_mb=size[1])


def revision(size: tuple[float, float] = OLD, number: int = 1, **more: Any) -> SizedRevision:
    return SizedRevision(revision=str(number), size=task_size(size), **more)


def runs(
    count: int,
    *,
    size: tuple[float, float] = OLD,
    revision: int = 1,
    start: float = 0,
    minutes: float = 24 * 60,
    **more: Any,
) -> list[Report]:
    """Runs from a day on, one each so many minutes."""
    made = []
    for number in range(count):
        began_ns = round(START_NS + start * NS_PER_DAY + number * minutes * NS_PER_MINUTE)
        made.append(
            report(
                size=size,
                revision=str(revision),
                task_id=f"{revision}-{size}-{began_ns}-{more.get('status')}",
                started_at=format_ms(began_ns),
                **more,
            )
        )
    return made


def decide(
    reports: Sequence[Report],
    of: SizedRevision | None = None,
    circumstances: FamilyCircumstances = NOWHERE,
    *,
    days: int = 35,
    **policy: Any,
) -> ResizeDecision:
    window = window_of(reports, days=days)
    return decision_on(window, revision() if of is None else of, circumstances, **policy)


def assert_resized(decision: ResizeDecision, size: tuple[float, float] = NEW) -> None:
    assert decision.action == "resize", decision.reason
    assert decision.size == task_size(size)


def resized(size: tuple[float, float] = NEW, before: tuple[float, float] = OLD) -> SizedRevision:
    """Revision 2, whose size the command has chosen."""
    old = SizeBefore(revision="1", size=task_size(before))
    return revision(size, 2, resized_from=old)


# --- the window -------------------------------------------------------------------------------


@pytest.mark.slow
def test_one_large_run_a_night_among_96_keeps_its_memory() -> None:
    small = runs(96 * 30, minutes=15, size=(1, 4096), peak_mb=300)
    nights = runs(30, start=0.1, size=(1, 4096), peak_mb=3300)
    found = decide([*small, *nights], revision((1, 4096)))
    assert found.size is None or (found.size.memory_mb or 0) >= 3300 * 1.2
    assert present(found.evidence).peak.value == 3300
    assert_resized(decide(small, revision((1, 4096))))


def test_the_largest_run_of_a_month_end_counts_for_35_days() -> None:
    usual = runs(60)
    large = runs(1, start=29.5, peak_mb=1650)
    found = decide([*usual, *large])
    assert found.size is None or (found.size.memory_mb or 0) >= 1650 * 1.2
    long_ago = runs(1, start=2.5, peak_mb=1650)
    assert_resized(decide([*usual, *long_ago]))
    assert decide([*usual, *long_ago], days=400).size != task_size(NEW)


def test_no_size_goes_down_before_14_days_were_seen() -> None:
    hourly = runs(24 * 9 + 1, minutes=60)
    found = decide(hourly)
    assert found.action == "none"
    assert found.reason == "9 of 14 days seen"
    assert found.size == task_size(NEW)
    assert_resized(decide(runs(24 * 14, minutes=60)))
    assert_resized(decide(runs(24 * 13 + 1, minutes=60)))


def test_days_of_failures_are_not_days_seen() -> None:
    failing = runs(13, **FAILED)
    young = runs(30, start=14, minutes=60)
    assert decide([*failing, *young]).reason == "1 of 14 days seen"
    assert_resized(decide([*runs(13), *young]))


def test_a_kill_enlarges_before_14_days_were_seen() -> None:
    found = decide([*runs(2), *runs(1, start=2, **KILLED)])
    assert found.action == "resize"
    assert found.reason == (
        "1 run ran out of memory; the vCPU size stays as it is: 3 of 20 runs seen"
    )
    assert (present(found.size).memory_mb or 0) > 2048
    assert decide(runs(3)).reason == "3 of 20 runs seen"


@pytest.mark.parametrize(
    ("reports", "of", "why"),
    [
        ([*runs(13), *runs(1, start=13, **KILLED)], None, "14 of 20 runs seen"),
        ([*runs(28, minutes=60), *runs(1, start=2, **KILLED)], None, "2 of 14 days seen"),
        (
            [*runs(70, start=-70), *runs(35, revision=3), *runs(1, revision=3, start=36, **KILLED)],
            revision(number=3, reverted_from=SizeBefore(revision="2", size=task_size(NEW))),
            "a smaller size has failed",
        ),
        (
            [*runs(70), *runs(1, start=70, **KILLED), *runs(35, size=BIG, start=30.1, p95=3.5)],
            None,
            "runs at other sizes need more than 0.5 vCPU allows",
        ),
        ([*runs(70), *runs(1, start=70, **KILLED)], None, ""),
    ],
)
def test_a_larger_memory_says_why_it_keeps_the_vcpus(
    reports: list[Report], of: SizedRevision | None, why: str
) -> None:
    """Without a reason, it is the size that recommend names, with fewer vCPUs."""
    found = decide(reports, of)
    kept = f"; the vCPU size stays as it is: {why}" if why else ""
    assert found.reason == f"1 run ran out of memory{kept}"
    assert (present(found.size).vcpu == 1) == bool(why)


def test_a_weekly_family_is_judged_by_its_newest_20_runs() -> None:
    weekly = runs(25, minutes=7 * 24 * 60)
    assert_resized(decide(weekly))
    assert decide(weekly[:15]).reason == "15 of 20 runs seen"


# --- only runs at the definition's size judge it ------------------------------------------------


def test_runs_at_another_size_forbid_a_smaller_one_and_never_enlarge() -> None:
    usual = runs(35)
    overridden = runs(35, start=0.1, size=BIG, peak_mb=1500)
    found = decide([*usual, *overridden])
    assert found.size is None or (found.size.memory_mb or 0) >= 1500 * 1.2
    huge = runs(35, start=0.1, size=BIG, peak_mb=7900)
    assert decide([*usual, *huge]).action == "none"
    killed = runs(1, start=34.1, size=BIG, **KILLED)
    assert decide([*usual, *killed]).action == "none"
    assert_resized(decide([*usual, *runs(35, start=0.1, size=BIG)]))


def test_the_answer_does_not_depend_on_which_schedule_ran_last() -> None:
    usual = runs(35)
    overridden = runs(35, start=-0.1, size=BIG)
    last = runs(35, start=0.1, size=BIG)
    assert_resized(decide([*usual, *overridden]))
    assert_resized(decide([*usual, *last]))


def test_a_size_has_no_effect_only_if_no_run_of_the_revision_has_it() -> None:
    overridden = runs(35, size=BIG)
    found = decide(overridden)
    reason = "its runs have 4 vCPU, 8 GB, so the definition's size has no effect"
    assert found.action == "none"
    assert found.reason == reason
    older = runs(35, start=-35, size=OLD)
    assert decide([*older, *runs(35, size=BIG, revision=2)], revision(number=2)).reason == reason
    assert_resized(decide([*overridden, *runs(35, start=0.2)]))


def test_a_retry_with_more_memory_hides_no_kill() -> None:
    before = runs(30)
    nights = runs(1, revision=2, start=31, size=NEW, **KILLED)
    retries = runs(10, revision=2, start=31.1, size=(0.25, 1024))
    found = decide([*before, *nights, *retries], resized())
    assert found.action == "revert"
    assert found.reason == "1 run ran out of memory"
    untagged = decide([*before, *nights, *retries], revision(NEW, 2))
    assert untagged.action == "resize"
    assert (present(untagged.size).memory_mb or 0) > 512
    good = runs(10, revision=2, start=31, size=NEW)
    assert decide([*before, *good, *retries], resized()).action == "keep"


def test_runs_at_another_size_are_no_successes_of_the_new_one() -> None:
    before = runs(30)
    retries = runs(20, revision=2, start=31, size=(0.25, 1024))
    own = runs(3, revision=2, start=31.1, size=NEW)
    found = decide([*before, *own, *retries], resized())
    assert found.action == "none"
    assert found.reason == "3 of 10 successes seen"
    own = runs(10, revision=2, start=31.1, size=NEW)
    assert decide([*before, *own, *retries], resized()).action == "keep"


@pytest.mark.slow
def test_a_persons_emergency_enlargement_is_not_undone_before_14_days() -> None:
    """A run of 02:00 needs 7 GB, and a person has registered 8 GB without a tag."""
    small = runs(96 * 20, minutes=15)
    nights = runs(3, start=17.08, **KILLED)
    enlarged = revision((1, 8192), 2)
    since = runs(24, revision=2, start=20, minutes=15, size=(1, 8192))
    found = decide([*small, *nights, *since], enlarged)
    assert found.action == "none"
    assert found.reason == "0 of 14 days seen at this size"
    assert found.saving_usd_per_month is None
    assert present(found.evidence).killed_above_mb == 2048
    assert present(found.evidence).margin_percent == 20
    assert (present(found.size).memory_mb or 0) > 2048
    two_weeks = runs(96 * 14 + 1, revision=2, start=20, minutes=15, size=(1, 8192))
    later = decide([*small, *nights, *two_weeks], enlarged)
    assert later.action == "resize"
    assert (present(later.size).memory_mb or 0) > 2048
    large = runs(14, revision=2, start=20.08, size=(1, 8192), peak_mb=7000)
    seen = decide([*small, *nights, *two_weeks, *large], enlarged)
    assert (present(seen.size or enlarged.size).memory_mb or 0) >= 7000 * 1.15


# --- Fargate and EC2 -----------------------------------------------------------------------------


def hours_on_ec2(start: float = 0.01, **more: Any) -> list[Report]:
    return runs(34 * 24, start=start, minutes=60, launch_type="EC2", **more)


@pytest.mark.parametrize("start", [-0.01, 0.51], ids=["fargate last", "ec2 last"])
def test_of_a_family_on_fargate_and_ec2_only_fargates_runs_are_priced(start: float) -> None:
    nights = runs(34)
    found = decide([*nights, *hours_on_ec2(start)])
    assert_resized(found)
    alone = decide(nights)
    assert found.saving_usd_per_month == alone.saving_usd_per_month
    assert found.usd_per_month == alone.usd_per_month
    assert found.runs == 34
    assert present(found.evidence).left_out_runs_sentences == (
        "Of 816 runs outside Fargate only the needs count, not the cost.",
    )


def test_what_runs_on_ec2_need_counts_for_a_family_that_is_also_on_fargate() -> None:
    nights = runs(34)
    needy = decide([*nights, *hours_on_ec2(), *runs(1, start=9.3, launch_type="EC2", peak_mb=1600)])
    assert needy.size is None or (needy.size.memory_mb or 0) >= 1600 * 1.2
    killed = runs(1, start=30.3, launch_type="EC2", **KILLED)
    found = decide([*nights, *killed])
    assert found.action == "resize"
    assert (present(found.size).memory_mb or 0) > 2048
    few = decide([*runs(3, start=31), *hours_on_ec2()])
    assert few.reason == "3 of 20 runs seen"


def test_a_kill_on_ec2_at_the_new_size_puts_the_old_one_back() -> None:
    good = [*runs(20), *runs(12, revision=2, start=21, size=NEW)]
    killed = runs(1, revision=2, start=30.5, size=NEW, launch_type="EC2", **KILLED)
    assert decide([*good, *killed], resized()).action == "revert"
    assert decide(good, resized()).action == "keep"


def test_a_revision_that_ran_only_on_ec2_is_not_judged() -> None:
    moved = runs(20, revision=2, start=35, launch_type="EC2")
    found = decide([*runs(35), *moved], revision(number=2))
    assert found.reason == "no run of revision 2 on Fargate is known yet"


@pytest.mark.parametrize(
    ("launch_type", "place"),
    [("EC2", "on EC2"), ("MANAGED_INSTANCES", "on Managed Instances")],
)
def test_a_family_that_has_left_fargate_saves_nothing_there(launch_type: str, place: str) -> None:
    """Also if more runs are known since than a window keeps; who ran last alone decides nothing."""
    nights = runs(20)
    reason = f"its newest runs are {place}, where the size is only a reservation"
    for moved in (
        runs(14, start=20.3, launch_type=launch_type),
        runs(14 * 24, start=20.01, minutes=60, launch_type=launch_type),
    ):
        found = decide([*nights, *moved])
        assert (found.action, found.reason) == ("none", reason)
        assert found.saving_usd_per_month is None
        assert_resized(decide([*nights, *moved, *runs(1, start=34)]))
        assert_resized(decide([*nights, *runs(1, start=1.5, launch_type=launch_type), *moved[:3]]))
    often = runs(5 * 24, start=20.01, minutes=60, launch_type=launch_type)
    assert_resized(decide([*nights, *often]))


def test_a_kill_after_the_move_from_fargate_puts_the_old_size_back() -> None:
    good = [*runs(20), *runs(8, revision=2, start=21, size=NEW)]
    outside: dict[str, Any] = {"revision": 2, "size": NEW, "launch_type": "MANAGED_INSTANCES"}
    moved = runs(3, start=30.1, **outside)
    killed = runs(1, start=33.5, **outside, **KILLED)
    assert decide([*good, *moved, *killed], resized()).action == "revert"
    assert decide([*good, *moved], resized()).action == "none"


# --- how runs end -------------------------------------------------------------------------------


@pytest.mark.parametrize("status", ["unknown", "lost"])
def test_runs_without_a_known_end_are_no_successes(status: str) -> None:
    before = runs(30)
    found = decide([*before, *runs(12, revision=2, start=31, size=NEW, status=status)], resized())
    assert found.action == "revert"
    assert "12 of 12 runs failed" in found.reason
    assert decide([*before, *runs(12, revision=2, start=31, size=NEW)], resized()).action == "keep"


def test_stopped_runs_are_neither_successes_nor_failures() -> None:
    before = runs(30)
    stopped = runs(12, revision=2, start=31, size=NEW, status="stopped")
    found = decide([*before, *stopped], resized())
    assert found.action == "none"
    assert found.reason == "0 of 10 successes seen"
    good = runs(10, revision=2, start=31.5, size=NEW)
    assert decide([*before, *stopped, *good], resized()).action == "keep"


def test_what_only_container_insights_knows_is_shown_and_not_registered() -> None:
    found = decide(by_minutes(30))
    assert found.reason == "Container Insights knows neither the peaks nor the ends of its runs"
    assert found.action == "none"
    assert found.saving_usd_per_month is None
    assert (present(found.size).memory_mb or 0) < 2048


def by_minutes(count: int, **more: Any) -> list[Report]:
    """Runs that only Container Insights knows."""
    return runs(
        count,
        status="unknown",
        sampling=Sampling(interval_ms=60_000, samples=20, sources=(CONTAINER_INSIGHTS,)),
        metrics={"duration_ms": 1_200_000, "memory_peak_source": None},
        **more,
    )


def test_runs_of_container_insights_never_count_beside_reports() -> None:
    means = by_minutes(30)
    found = decide([*means, *runs(2, start=5.5)])
    assert found.action == "none"
    assert found.reason == "2 of 20 runs seen"
    (left_out,) = present(found.evidence).left_out_runs_sentences
    assert left_out == (
        "30 runs can only forbid less memory: Container Insights knows neither the peaks nor the "
        "ends."
    )
    resized_by_reports = decide([*means, *runs(20, start=5.5)])
    assert_resized(resized_by_reports)
    assert resized_by_reports.runs == 20
    assert decide([*runs(2, start=5.5), *means]) == found


def test_a_run_that_only_container_insights_saw_forbids_less_memory_and_calls_for_none() -> None:
    """Its memory is the mean of a minute. Above what reports say, its peak may be half as much
    again.
    """
    reports = runs(34)

    def memory_mb(*more: Report) -> float:
        found = decide([*reports, *more])
        assert found == decide([*more, *reports])
        assert found.action == "resize"
        return present(found.size).memory_mb or 0

    assert memory_mb() == 512
    assert memory_mb(*by_minutes(1, start=5.5, peak_mb=400)) == 512
    assert memory_mb(*by_minutes(1, start=5.5, peak_mb=500)) == 1024
    assert memory_mb(*by_minutes(1, start=5.5, peak_mb=1500)) == 2048
    at_another_size = by_minutes(1, start=5.5, size=(4, 16384), peak_mb=12_000)
    assert memory_mb(*at_another_size) == 2048
    large = decide([*reports, *at_another_size])
    assert "a run that only Container Insights saw used 11.7 GB in the mean" in large.reason
    (by_minute,) = by_minutes(1, start=5.5)
    killed = replace(by_minute, record=replace(by_minute.record, **KILLED))
    assert memory_mb(killed) == 2048
    reason = decide([*reports, killed]).reason
    assert "a run that only Container Insights saw was killed with 2 GB of memory" in reason


# --- whose word ---------------------------------------------------------------------------------


def test_runs_that_nobody_vouches_for_are_counted_and_change_nothing() -> None:
    usual = [reported_facts(one) for one in runs(35)]
    forged = [reported_facts(one, is_confirmed=False) for one in runs(60, start=0.3, **KILLED)]
    found = decision_on(window_of_runs([*usual, *forged], days=400), revision())
    assert_resized(found)
    shown = present(found.evidence)
    assert shown.unconfirmed == 60
    assert shown.left_out_runs_sentences[0].startswith(
        "60 runs do not count: the task was not confirmed"
    )
    confirmed = [reported_facts(one) for one in runs(1, start=34.5, **KILLED)]
    found = decision_on(window_of_runs([*usual, *confirmed], days=400), revision())
    assert (present(found.size).memory_mb or 0) > 2048


# --- the account --------------------------------------------------------------------------------

QUARTER_HOUR = FamilyCircumstances(intervals_ms=dict.fromkeys(range(24), 15 * 60_000))
SLOWER = {"slowdown_at_vcpu": slowdown(v0_25=(1.8, 2), v0_5=(1.1, 1.2)), "duration_ms": 780_000}


def test_a_job_of_13_minutes_every_15_is_not_made_to_overlap_itself() -> None:
    tight = runs(35, metrics=SLOWER, p95=0.4)
    found = decide(tight, None, QUARTER_HOUR)
    assert found.action == "none"
    overlap = "with 0.5 vCPU, 1 GB, a run would take up to 15m 36s, and the next one is due 15m 00s"
    assert found.reason.startswith(overlap)
    larger = runs(35, size=(1, 4096), metrics=SLOWER, p95=0.4)
    found = decide(larger, revision((1, 4096)), QUARTER_HOUR)
    assert_resized(found, OLD)
    assert found.reason.startswith(f"saves 15 %; {overlap}")
    assert_resized(decide(tight), (0.5, 1024))
    for minutes, is_taken in ((17, False), (17.5, True)):  # with a tenth of the time left
        spaced = FamilyCircumstances(intervals_ms=dict.fromkeys(range(24), minutes * 60_000))
        assert (decide(tight, None, spaced).action == "resize") is is_taken
    hourly = FamilyCircumstances(intervals_ms=dict.fromkeys(range(24), 3_600_000))
    assert_resized(decide(tight, None, hourly), (0.5, 1024))


def test_more_memory_after_a_kill_lets_no_run_overlap_the_next_one() -> None:
    killed = [*runs(35, metrics=SLOWER, p95=0.4), *runs(1, start=34.5, **KILLED)]
    assert_resized(decide(killed, None, QUARTER_HOUR), (1, 3072))
    assert_resized(decide(killed), (0.5, 3072))


def minutes_long(minutes: float) -> dict[str, Any]:
    """A run of so many minutes that is up to 1.2 times as long with half a vCPU."""
    return {"p95": 0.4, "metrics": {**SLOWER, "duration_ms": minutes * 60_000}}


def test_the_longest_run_at_a_due_time_decides_whether_runs_overlap() -> None:
    short = runs(96 * 20, minutes=15, **minutes_long(3))
    nights = runs(20, start=4.01 / 24, **minutes_long(13))
    found = decide([*short, *nights], None, QUARTER_HOUR)
    assert found.action == "none"
    assert "a run would take up to 15m 36s, and the next one is due 15m 00s" in found.reason
    assert_resized(decide(short, None, QUARTER_HOUR), (0.5, 1024))
    night = START_NS // NS_PER_HOUR + 4
    by_hour = dict.fromkeys(range(24), 15 * 60_000) | {night % 24: 3_600_000}
    spaced = FamilyCircumstances(intervals_ms=by_hour)
    assert_resized(decide([*short, *nights], None, spaced), (0.5, 1024))
    no_slower = runs(20, start=4.01 / 24, metrics={"duration_ms": 14 * 60_000})
    assert_resized(decide(no_slower, None, QUARTER_HOUR))


def test_a_slower_run_that_overlaps_the_next_one_puts_the_old_size_back() -> None:
    before = runs(30, **minutes_long(13))
    after: dict[str, Any] = {"revision": 2, "start": 30, "size": (0.5, 1024)}
    good = runs(10, **after, **minutes_long(13))
    one = runs(1, **{**after, "start": 40}, **minutes_long(15.6))
    change = resized((0.5, 1024))
    assert decide([*before, *good], change, QUARTER_HOUR).action == "keep"
    found = decide([*before, *good, *one], change, QUARTER_HOUR)
    assert found.action == "revert"
    assert found.reason == "a run took 15m 36s, and the next one is due 15m 00s after its start"
    usual = runs(1, start=20.5, **minutes_long(15.6))
    assert decide([*before, *usual, *good, *one], change, QUARTER_HOUR).action == "keep"
    with_more = resized((1, 4096), before=(0.5, 4096))
    slow = {**after, "size": (1, 4096), **minutes_long(15.6)}
    old = runs(30, size=(0.5, 4096), **minutes_long(13))
    assert decide([*old, *runs(10, **slow)], with_more, QUARTER_HOUR).action == "keep"


@pytest.mark.parametrize(
    ("circumstances", "stops"),
    [
        (FamilyCircumstances(timeout_ms=900_000), "AWS Batch stops an attempt"),
        (
            FamilyCircumstances(time_limits_ms={"state Load of nightly": 900_000}),
            "the state Load of nightly ends it",
        ),
    ],
)
def test_no_size_makes_a_run_so_slow_that_its_time_limit_ends_it(
    circumstances: FamilyCircumstances, stops: str
) -> None:
    tight = runs(35, **minutes_long(13))
    found = decide(tight, None, circumstances)
    assert found.action == "none"
    assert found.reason == (
        f"with 0.5 vCPU, 1 GB, a run would take up to 15m 36s, and {stops} after 15m 00s"
    )
    one = runs(1, start=17.5, **minutes_long(13))
    assert decide([*runs(35, **minutes_long(3)), *one], None, circumstances).action == "none"
    assert_resized(decide(runs(35, **minutes_long(11)), None, circumstances), (0.5, 1024))


def test_a_size_that_the_containers_or_the_queues_of_a_job_do_not_allow_is_not_taken() -> None:
    least = FamilyCircumstances(is_job=True, least_vcpu=0.5)
    found = decide(runs(35), None, least)
    assert_resized(found, (0.5, 1024))
    assert found.reason.endswith("; its containers need 0.5 vCPU together")
    small = (0.25, 2048)
    killed = [*runs(3, size=small), *runs(1, start=3, size=small, **KILLED)]
    found = decide(killed, revision(small), FamilyCircumstances(is_job=True, most_vcpu=0.25))
    assert found.action == "none"
    assert found.reason == (
        "0.5 vCPU, 3 GB could never start: the environments of a queue of its jobs allow 0.25 vCPU"
    )
    roomy = FamilyCircumstances(is_job=True, most_vcpu=0.5)
    assert_resized(decide(killed, revision(small), roomy), (0.5, 3072))


def test_a_job_gets_no_more_memory_than_an_instance_that_it_has_seen_has_room_for() -> None:
    def decided(instance_mb: float) -> ResizeDecision:
        seen: dict[str, Any] = {"size": OLD, "launch_type": "EC2", "cluster": "AWSBatch-spot-1"}
        seen["visible"] = Visible(memory_mb=instance_mb)
        killed = [*runs(3, **seen), *runs(1, start=3, **seen, **KILLED)]
        window = window_of(killed, launch_type=EC2)
        return decision_on(window, revision(), FamilyCircumstances(is_job=True))

    found = decided(2100)
    assert found.action == "none"
    assert found.reason == "no instance that its jobs have seen has room for 2.1 GB"
    assert decided(2500).action == "resize"


def test_jobs_that_ran_elsewhere_than_their_definition_asks_for_say_nothing_of_its_size() -> None:
    on_ec2 = runs(35, launch_type="EC2", cluster="AWSBatch-spot-1")
    found = decide(on_ec2, None, FamilyCircumstances(is_job=True))
    assert found.action == "none"
    assert found.reason == "its newest jobs did not run on Fargate, which its definition asks for"
    assert_resized(decide(runs(35), None, FamilyCircumstances(is_job=True)))


def test_a_size_that_a_schedule_s_override_does_not_fit_is_not_taken() -> None:
    memory = TargetOverride(target="the schedule nightly", memory_mb=4096)
    found = decide(runs(35), None, FamilyCircumstances(overrides=(memory,)))
    assert "the schedule nightly overrides sizes" in found.reason
    assert found.size != task_size(NEW)
    container = TargetOverride(target="the rule nightly", least_memory_mb=1800)
    found = decide(runs(35), None, FamilyCircumstances(overrides=(container,)))
    assert found.action == "none" or (present(found.size).memory_mb or 0) >= 1800
    assert "the rule nightly overrides sizes" in found.reason
    whole = TargetOverride(target="the schedule nightly", vcpu=4, memory_mb=8192)
    assert_resized(decide(runs(35), None, FamilyCircumstances(overrides=(whole,))))


@pytest.mark.parametrize(
    ("circumstances", "reason"),
    [
        (
            FamilyCircumstances(off_tag="task-profiler:resize"),
            "its tag task-profiler:resize is off",
        ),
        (FamilyCircumstances(is_service=True), "a service runs it"),
        (
            FamilyCircumstances(stack="jobs"),
            (
                "the stack jobs of CloudFormation owns it: set 0.25 vCPU, 512 MB in its template, or let "
                "it read a file of sizes (--write-sizes)"
            ),
        ),
        (
            FamilyCircumstances(operating_system="WINDOWS_SERVER_2022_CORE"),
            "it is for WINDOWS_SERVER_2022_CORE, which is not measured",
        ),
    ],
)
def test_what_others_decide_is_left_alone_with_the_size_that_would_be_better(
    circumstances: FamilyCircumstances, reason: str
) -> None:
    found = decide(runs(35), None, circumstances)
    assert found.action == "none"
    assert found.reason == reason
    assert found.size == task_size(NEW)
    assert found.saving_usd_per_month is None
    assert_resized(decide(runs(35), None, FamilyCircumstances(operating_system="LINUX")))


def test_what_the_command_registered_is_put_back_whoever_owns_it() -> None:
    killed = [*runs(30), *runs(1, revision=2, start=31, size=NEW, **KILLED)]
    assert decide(killed, resized(), FamilyCircumstances(stack="jobs")).action == "revert"
    off = FamilyCircumstances(off_tag="task-profiler:resize")
    assert decide(killed, resized(), off).action == "none"
    assert_resized(decide(runs(35)))


@pytest.mark.parametrize(
    ("launch_type", "place"),
    [
        ("EC2", "on EC2"),
        ("EXTERNAL", "on external instances"),
        ("MANAGED_INSTANCES", "on Managed Instances"),
    ],
)
def test_outside_fargate_a_size_is_only_a_reservation(launch_type: str, place: str) -> None:
    found = decide(runs(35, launch_type=launch_type))
    reason = f"its runs are {place}, where the size is only a reservation: less is enough"
    assert found.action == "none"
    assert found.reason == reason
    assert_resized(decide(runs(35)))


def test_a_starter_that_passes_a_revision_is_named_after_20_runs() -> None:
    registered = revision(NEW, 2, registered_ns=START_NS)
    starters = FamilyCircumstances(starters=("AWS Step Functions",))
    found = decide(runs(25, start=0.5), registered, starters)
    assert found.reason == (
        "25 runs since its registration had an older revision, started by AWS Step Functions: "
        "start the family without a revision"
    )
    early = decide(runs(19, start=0.5), registered, starters)
    assert early.reason == "no run of revision 2 is known yet"
    own = runs(20, start=26, size=OLD, revision=2)
    assert_resized(decide([*runs(25, start=0.5), *own], revision(OLD, 2, registered_ns=START_NS)))


# --- the answer ---------------------------------------------------------------------------------


def test_the_evidence_has_the_peak_its_moment_the_days_and_the_duration() -> None:
    large = runs(1, start=20.5, peak_mb=420)
    found = present(decide([*runs(35, metrics=SLOWER, p95=0.4), *large]).evidence)
    assert found.peak.value == 420
    assert found.peak_at == large[0].record.started_at
    assert found.runs == 36
    assert found.days == 34
    assert present(found.duration).max == 1.2
    assert decide([]).evidence == present(decide([]).evidence)


def test_an_empty_window_is_a_reason_and_no_error() -> None:
    found = decide([])
    assert found.action == "none"
    assert found.reason == "no run of revision 1 is known yet"


def test_each_rule_that_leaves_a_family_alone_is_documented_once() -> None:
    documented = [rule.docs for rule in RULES if rule.docs is not None]
    assert len(documented) == len(set(documented))
    assert {rule.action for rule in RULES if rule.docs is not None} == {"none"}


# --- a larger size ------------------------------------------------------------------------------


def test_a_size_that_a_schedules_override_does_not_fit_is_refused() -> None:
    """A larger size that a schedule's override does not fit is refused and named."""
    small = (0.25, 2048)
    killed = [*runs(3, size=small), *runs(1, start=3, size=small, **KILLED)]
    override = TargetOverride(target="the schedule nightly", vcpu=0.25)
    found = decide(killed, revision(small), FamilyCircumstances(overrides=(override,)))
    assert found.action == "none"
    assert found.reason.startswith("the schedule nightly overrides sizes")
    assert_resized(decide(killed, revision(small)), (0.5, 3072))


def test_a_kill_at_a_containers_own_limit_is_no_kill_at_the_tasks_size() -> None:
    own_limit = {"memory_size_mb": 450}
    killed = [*runs(3), *runs(1, start=3, metrics=own_limit, **KILLED)]
    assert decide(killed).reason == "4 of 20 runs seen"
    nearly_full = [*runs(3, peak_mb=1900), *runs(1, start=3, metrics=own_limit, **KILLED)]
    assert decide(nearly_full).reason == "4 of 20 runs seen"
    limit = "a run was killed at the limit of 450 MiB of the container 'batch'"
    found = decide(killed, revision(killed_limit=limit))
    assert found.action == "resize"
    assert found.reason == limit
    assert found.size == task_size(OLD)


def test_more_memory_comes_with_fewer_vcpus_only_if_runs_at_any_size_allow_it() -> None:
    tight = runs(35, peak_mb=1950)
    busy = {"slowdown_at_vcpu": slowdown(v0_5=(1.8, 2))}
    others = runs(3, start=0.1, size=BIG, metrics=busy)
    assert_resized(decide([*tight, *others]), (1, 3072))
    assert_resized(decide(tight), (0.5, 3072))


def test_runs_from_before_the_registration_show_no_starter_of_an_old_revision() -> None:
    registered = revision(NEW, 2, registered_ns=START_NS + 20 * NS_PER_DAY)
    found = decide(runs(25, start=0.5), registered)
    assert found.reason == "no run of revision 2 is known yet"


def test_unconfirmed_runs_from_before_the_window_are_not_counted() -> None:
    usual = [reported_facts(one) for one in runs(35, start=100)]
    forged = [reported_facts(one, is_confirmed=False) for one in runs(5)]
    found = decision_on(window_of_runs([*usual, *forged], days=35), revision())
    assert_resized(found)
    assert present(found.evidence).unconfirmed == 0


# --- what a definition remembers ----------------------------------------------------------------


def test_a_file_with_a_parameter_in_its_size_is_judged_at_that_of_its_newest_revision() -> None:
    """Not at the size of more runs of an older one, nor at that of a run with overrides."""
    older = runs(40, size=BIG)
    newest = [*runs(3, revision=2, start=36), *runs(2, revision=2, start=36, size=BIG)]

    def judged_at(size: TaskSize, number: str | None = None) -> TaskSize:
        advised = WindowAdvice(window_of([*older, *newest]), ResizePolicy(), PriceOverrides())
        return resize_case(
            advised, SizedRevision(revision=number, size=size), NOWHERE
        ).definition_size

    assert judged_at(TaskSize()) == task_size(OLD)
    assert judged_at(TaskSize(memory_mb=8192)) == task_size(BIG)
    assert judged_at(TaskSize(vcpu=4)) == task_size(BIG)
    unseen = TaskSize(vcpu=2)
    assert judged_at(unseen) == unseen
    assert judged_at(TaskSize(), "2") == TaskSize(), "a revision has the size that it has"


def test_runs_under_a_lower_limit_of_a_container_do_not_count_as_days_seen() -> None:
    """Somebody raised the limit after a kill: a few small runs since then prove nothing."""
    reports = [*runs(30), *runs(4, revision=2, start=30)]
    raised = revision(number=2, under_raised_limits=frozenset({"2"}))
    found = decide(reports, raised)
    assert found.action == "none"
    assert found.reason == "3 of 14 days seen since a container's limit was raised"
    assert_resized(decide(reports, revision(number=2)))
    assert_resized(decide([*reports, *runs(11, revision=2, start=34)], raised))


def test_a_size_that_failed_is_remembered_after_its_revision_was_deregistered() -> None:
    """The definition's runs are older than the failure, so their number says nothing of it."""
    reverted = revision(
        number=1, reverted_from=SizeBefore(revision="2", size=task_size((0.5, 1024)))
    )
    failed = runs(1, revision=2, start=30, size=(0.5, 1024), **FAILED)
    found = decide([*runs(70, minutes=12 * 60), *failed], reverted)
    assert found.action == "none"
    assert found.reason.startswith("a smaller size has failed")
    unseen = decide(runs(70, minutes=12 * 60), reverted)
    assert unseen.reason == "this size, or a larger one, has failed before"


def test_a_size_that_was_only_slow_forbids_fewer_vcpus_and_not_less_memory() -> None:
    present_size, slow_size = (1, 4096), (0.5, 4096)
    reverted = revision(
        present_size, 3, reverted_from=SizeBefore(revision="2", size=task_size(slow_size))
    )
    past = [*runs(30, size=present_size), *runs(5, revision=2, start=30, size=slow_size)]
    since: dict[str, Any] = {"revision": 3, "start": 35, "minutes": 12 * 60, "size": present_size}
    found = decide([*past, *runs(60, **since, p95=0.9)], reverted, days=400)
    assert_resized(found, OLD)
    found = decide([*past, *runs(60, **since, p95=0.2)], reverted, days=400)
    assert found.action == "none"
    assert found.reason == "this size, or a larger one, has failed before"


def test_the_runs_of_a_file_at_another_size_say_so() -> None:
    found = decide(runs(35), SizedRevision(revision=None, size=task_size(NEW)))
    assert found.action == "none"
    assert found.reason == "its newest run has 1 vCPU, 2 GB, not the size of the file"
    assert_resized(decide(runs(35), SizedRevision(revision=None, size=task_size(OLD))))
