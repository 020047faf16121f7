"""When the size of a family changes, when its last change is kept or put back, and when nothing
is done.
"""

from collections.abc import Iterable
from typing import Any

import pytest
from msgspec.structs import replace

from profiler.record.record_model import Report, TaskSize
from profiler.sizing.resize_limits import ResizeDecision
from profiler.sizing.sized_revision import SizeBefore, SizedRevision, parse_size_before_tag
from tests.cases import each_case
from tests.fakes import START_NS
from tests.family_windows import decision_on, window_of
from tests.runs import report
from tests.values import present

OLD, NEW = TaskSize(vcpu=1, memory_mb=2048), TaskSize(vcpu=0.25, memory_mb=512)
FROM_OLD = SizeBefore(revision="1", size=OLD)
KILLED: dict[str, Any] = {"likely_out_of_memory": True, "status": "failure", "exit_code": 137}
FAILED: dict[str, Any] = {"status": "failure", "exit_code": 1}


def runs(
    count: int, revision: str = "1", *, start: int = 0, size: TaskSize = OLD, **more: Any
) -> list[Report]:
    given: Any = (size.vcpu, size.memory_mb)
    return [
        report(start + number, revision=revision, size=given, **more) for number in range(count)
    ]


def of_containers(reports: Iterable[Report], *names: str) -> list[Report]:
    """The reports of each of these containers of the same tasks."""
    listed = []
    for made in reports:
        for name in names:
            container = replace(made.record.container, name=name)
            listed.append(replace(made, record=replace(made.record, container=container)))
    return listed


def at_new(count: int, **more: Any) -> list[Report]:
    """Runs of revision 2, which has the new size, after 30 of revision 1."""
    return runs(count, "2", start=30, size=NEW, **more)


def decision(reports: Iterable[Report], revision: SizedRevision, **policy: Any) -> ResizeDecision:
    return decision_on(window_of(reports), revision, **policy)


def resized(
    *own: Report, before: Iterable[Report] = (), old: SizeBefore = FROM_OLD, size: TaskSize = NEW
) -> ResizeDecision:
    revision = SizedRevision(revision="2", size=size, resized_from=old)
    return decision([*(before or runs(30)), *own], revision)


FIRST = SizedRevision(revision="1", size=OLD)


def test_a_tag_remembers_a_size() -> None:
    assert parse_size_before_tag(FROM_OLD.tag_value) == FROM_OLD
    assert FROM_OLD.tag_value == "1/1024/2048"
    assert [parse_size_before_tag(one) for one in (None, "", "1/2", "1/a/2", "1/2/3/4")] == [
        None
    ] * 5


def test_a_size_that_saves_is_taken_from_enough_runs_on() -> None:
    found = decision(runs(20), FIRST)
    assert found.action == "resize"
    assert found.reason == "saves 75 %"
    assert found.size == NEW
    # 1 vCPU and 2 GiB for ten minutes, 30.4375 runs a month, of which three quarters are saved.
    usd = (0.04048 + 2 * 0.004445) / 6 * 30.4375
    assert found.usd_per_month == pytest.approx(usd)
    assert found.saving_usd_per_month == pytest.approx(0.75 * usd)
    little = decision(runs(20), FIRST, min_saving_percent=80)
    assert little.action == "none"
    assert little.reason == "the recommended size saves only 75 %"


OF_SIZE = "TASK_PROFILER_PRICE_VCPU_HOUR"
OF_MEMORY = "TASK_PROFILER_PRICE_GB_HOUR"
OF_STORAGE = "TASK_PROFILER_PRICE_STORAGE_GB_HOUR"


@pytest.mark.parametrize(
    ("region", "storage_gb", "missing"),
    [
        ("cn-north-1", 20, f"price: set {OF_SIZE} and {OF_MEMORY}"),
        ("cn-north-1", 50, f"price: set {OF_SIZE}, {OF_MEMORY} and {OF_STORAGE}"),
        ("eu-west-1", 50, f"price of storage above 20 GB: set {OF_STORAGE}"),
    ],
)
def test_a_saving_without_a_price_names_the_prices_to_set(
    region: str, storage_gb: int, missing: str
) -> None:
    made = []
    for run in runs(20):
        metrics = replace(run.record.metrics, ephemeral_storage_size_mb=storage_gb * 1024)
        made.append(replace(run, record=replace(run.record, region=region, metrics=metrics)))
    found = decision(made, FIRST)
    assert found.action == "none"
    unknown = "what the recommended size saves is unknown, because its Region has no known "
    assert found.reason == f"{unknown}{missing}"


def test_a_task_of_several_containers_with_reports_is_one_run() -> None:
    assert decision(of_containers(runs(19), "a", "b"), FIRST).reason == "19 of 20 runs seen"
    assert decision(of_containers(runs(20), "a", "b"), FIRST).action == "resize"


def test_a_new_size_is_judged_by_tasks_not_by_their_containers() -> None:
    names = [f"c{number}" for number in range(10)]
    before = of_containers(runs(30), *names)
    found = resized(*of_containers(at_new(9), *names), before=before)
    assert found.reason == "9 of 10 successes seen"
    assert resized(*of_containers(at_new(10), *names), before=before).action == "keep"
    one_failure = of_containers(at_new(1, **FAILED), "c1", "c2")
    assert resized(*one_failure, before=before).action == "none"
    two_failures = of_containers(at_new(2, **FAILED), "c1", "c2")
    assert resized(*two_failures, before=before).action == "revert"


def test_a_larger_size_needs_a_risk_and_after_a_kill_no_number_of_runs() -> None:
    tight = SizedRevision(revision="1", size=NEW)
    found = decision(runs(20, size=NEW, peak_mb=500), tight, min_saving_percent=90)
    assert found.action == "resize"
    assert found.reason[:12] == "a run needed"
    assert (found.saving_usd_per_month or 0) < 0
    killed = decision(
        [*runs(2, size=NEW), report(2, revision="1", size=(0.25, 512), **KILLED)], tight
    )
    assert killed.action == "resize"
    assert killed.reason == "1 run ran out of memory"
    assert (present(killed.size).memory_mb or 0) > 512


NO_EFFECT = "its runs have 1 vCPU, 2 GB, so the definition's size has no effect"
FAILING = runs(
    60, peak_mb=20, p95=0.01, start=30, **FAILED
)  # runs that fail after seconds need little


@each_case(
    ("reports", "revision", "reason"),
    [
        (runs(30), SizedRevision(revision="2", size=OLD), "no run of revision 2 is known yet"),
        (runs(30), SizedRevision(revision="1", size=NEW), NO_EFFECT),
        (
            runs(30, launch_type="EC2"),
            FIRST,
            "its runs are on EC2, where the size is only a reservation: less is enough",
        ),
        (runs(30, peak_mb=None, p95=None), FIRST, "no run was measured"),
        (runs(19), FIRST, "19 of 20 runs seen"),
        (FAILING, FIRST, "no run has succeeded"),
        ([*runs(28, peak_mb=1700, p95=0.9), *FAILING], FIRST, "the size fits"),
        (runs(20, size=NEW, peak_mb=440), SizedRevision(revision="1", size=NEW), "the size fits"),
        (
            runs(3, size=NEW, peak_mb=500),
            SizedRevision(revision="1", size=NEW),
            "3 of 20 runs seen",
        ),
        (
            runs(30),
            SizedRevision(revision="1", size=OLD, overwritten=NEW),
            (
                "a later revision has the old size again: set the size at its source, or let it read a "
                "file of sizes (--write-sizes)"
            ),
        ),
    ],
)
def test_what_is_left_alone_and_why(
    reports: list[Report], revision: SizedRevision, reason: str
) -> None:
    found = decision(reports, revision)
    assert found.action == "none"
    assert found.reason == reason
    assert found.size == revision.overwritten or revision.overwritten is None


def test_a_new_size_is_kept_with_what_it_saved() -> None:
    early = resized(*at_new(9))
    assert early.action == "none"
    assert early.reason == "9 of 10 successes seen"
    found = resized(*at_new(10))
    assert found.action == "keep"
    assert found.reason == "10 runs at the new size went well"
    verdict = present(found.verdict)
    assert verdict.runs == 10
    assert verdict.killed == 0
    assert verdict.duration_change_percent == 0
    assert verdict.saved_usd_per_month == round((0.04048 + 2 * 0.004445) / 6 * 0.75 * 30.4375, 2)


def test_a_new_image_hides_neither_earlier_kills_nor_later_runs() -> None:
    """A deployment keeps the tag, so that all revisions since the change count."""
    deployed = SizedRevision(revision="3", size=NEW, resized_from=FROM_OLD)
    past = [*runs(30), *at_new(1, **KILLED), *runs(1, "3", start=31, size=NEW)]
    assert decision(past, deployed).action == "revert"
    assert (
        decision([*runs(30), *at_new(9), *runs(1, "3", start=39, size=NEW)], deployed).action
        == "keep"
    )
    reverted = SizedRevision(
        revision="5", size=OLD, reverted_from=SizeBefore(revision="3", size=NEW)
    )
    found = decision([*past, *runs(50, "4", start=32), *runs(10, "5", start=82)], reverted)
    assert found.action == "resize"
    assert found.size == TaskSize(vcpu=0.25, memory_mb=1024)


def slow(longer: float = 2) -> dict[str, Any]:
    return {"metrics": {"duration_ms": 590_000 * longer, "billed_duration_ms": 600_000 * longer}}


@pytest.mark.parametrize(
    ("own", "action", "reason"),
    [
        (at_new(1, **KILLED), "revert", "1 run ran out of memory"),
        (at_new(4, **slow()), "none", "4 of 10 successes seen"),
        (at_new(5, **slow()), "revert", "runs take 100 % longer"),
        (at_new(10, **slow(1.2)), "keep", "10 runs at the new size went well"),
    ],
)
def test_a_kill_or_slower_runs_put_the_old_size_back(
    own: list[Report], action: str, reason: str
) -> None:
    found = resized(*own)
    assert found.action == action
    assert found.reason == reason
    if action == "revert":
        assert found.size == OLD
        assert (found.saving_usd_per_month or 0) < 0


def test_runs_of_no_duration_are_no_measure_of_slower_ones() -> None:
    found = resized(*at_new(10), before=runs(30, metrics={"duration_ms": 0}))
    assert found.action == "keep"
    assert present(found.verdict).duration_change_percent is None


@pytest.mark.parametrize(
    ("failed_before", "failed", "action"),
    [(0, 1, "none"), (0, 2, "revert"), (15, 2, "none"), (3, 3, "revert")],
)
def test_more_failures_put_the_old_size_back(failed_before: int, failed: int, action: str) -> None:
    """A heap that follows the limit ends with exit code 1."""
    before = [*runs(30 - failed_before), *runs(failed_before, start=30 - failed_before, **FAILED)]
    own = [*at_new(failed, **FAILED), *at_new(9)[failed:]]
    assert resized(*own, before=before).action == action


def test_an_enlarged_family_that_is_killed_again_is_enlarged_further() -> None:
    tiny = SizeBefore(revision="1", size=NEW)
    larger = TaskSize(vcpu=0.25, memory_mb=1024)
    own = runs(3, "2", start=30, size=larger, **KILLED)
    found = resized(*own, before=runs(30, size=NEW), old=tiny, size=larger)
    assert found.action == "resize"
    assert found.size == TaskSize(vcpu=0.25, memory_mb=2048)


def test_a_kept_size_changes_again_when_its_own_runs_call_for_it() -> None:
    huge = SizeBefore(revision="1", size=TaskSize(vcpu=4, memory_mb=8192))
    own = runs(20, "2", start=30, size=OLD, peak_mb=300)
    found = resized(*own, before=runs(30, size=huge.size), old=huge, size=OLD)
    assert found.action == "resize"
    assert found.size == NEW
    assert resized(*own[:19], before=runs(30, size=huge.size), old=huge, size=OLD).action == "keep"


def test_a_reverted_family_is_left_alone_and_never_gets_the_failed_size_again() -> None:
    reverted = SizedRevision(
        revision="3", size=OLD, reverted_from=SizeBefore(revision="2", size=NEW)
    )
    past = [*runs(30), *at_new(1, **KILLED)]
    soon = decision([*past, *runs(59, "3", start=31)], reverted)
    alone = "a smaller size has failed, so the size is left alone for 60 runs or 90 days"
    assert soon.action == "none"
    assert soon.reason == alone
    known = decision([*past, *runs(60, "3", start=31)], reverted)
    assert known.action == "resize"
    assert known.size == TaskSize(vcpu=0.25, memory_mb=1024)
    # The kill is no longer in the window.
    long_ago = replace(reverted, registered_ns=START_NS)
    later = decision_on(window_of([*past, *runs(90, "3", start=31)], days=35), long_ago)
    assert later.action == "none"
    assert later.reason == "this size, or a larger one, has failed before"
    other = decision([*past, *runs(60, "3", start=31, peak_mb=700)], reverted)
    assert other.action == "resize"
    assert other.size == TaskSize(vcpu=0.25, memory_mb=1024)
    killed = decision(
        [*past, *runs(5, "3", start=31, peak_mb=2000), *runs(1, "3", start=36, **KILLED)], reverted
    )
    assert killed.action == "resize"
    assert (present(killed.size).memory_mb or 0) > 2048


def test_a_reverted_family_that_is_killed_at_the_old_size_too_keeps_its_vcpu() -> None:
    """Its runs were too slow with fewer."""
    old = TaskSize(vcpu=0.5, memory_mb=1024)
    reverted = SizedRevision(
        revision="3", size=old, reverted_from=SizeBefore(revision="2", size=NEW)
    )
    past = [*runs(30, size=old), *at_new(5, **slow()), *runs(3, "3", start=35, size=old)]
    found = decision([*past, *runs(1, "3", start=38, size=old, **KILLED)], reverted)
    assert found.action == "resize"
    assert found.size == TaskSize(vcpu=0.5, memory_mb=2048)


def test_without_runs_before_a_usual_share_of_failures_is_no_failure_of_the_size() -> None:
    """The runs before are no longer among those that are read."""

    def own(each: int) -> list[Report]:
        return [
            one
            for at in range(200)
            for one in runs(1, "2", start=at, size=NEW, **({} if at % each else FAILED))
        ]

    revision = SizedRevision(revision="2", size=NEW, resized_from=FROM_OLD)
    kept = decision(own(7), revision)
    reason = "29 of 200 runs at the new size failed, which is no reason to put the old size back"
    assert kept.action == "keep"
    assert kept.reason == reason
    found = decision(own(2), revision)
    assert found.action == "revert"
    assert found.reason == "100 of 200 runs failed"


@pytest.mark.parametrize(
    ("more", "reason"),
    [
        (FAILED, "10 of 10 runs failed, which was rarer before; a larger size is not put back"),
        (slow(), "runs take 100 % longer; a larger size is not put back"),
    ],
)
def test_a_larger_size_whose_runs_went_badly_is_not_called_good(
    more: dict[str, Any], reason: str
) -> None:
    larger = TaskSize(vcpu=0.5, memory_mb=3072)
    own = runs(10, "2", start=30, size=larger, peak_mb=1950, **more)
    found = resized(*own, before=runs(30, peak_mb=1950), size=larger)
    assert found.action == "none"
    assert found.reason == reason


def test_after_a_kill_few_runs_do_not_lower_the_vcpu() -> None:
    found = decision([*runs(6), report(6, revision="1", **KILLED)], FIRST)
    assert found.action == "resize"
    assert found.size == TaskSize(vcpu=1, memory_mb=3072)
    assert found.saving_usd_per_month == pytest.approx(
        -0.004445 / 6 * 30.4375, rel=1e-4
    )  # of one GB more


@pytest.mark.parametrize(
    ("failed", "used", "action", "size"),
    [
        # The vCPUs of the failed size were the same, so they are not what has failed.
        ((1, 2048), {"p95": 0.9, "peak_mb": 3900}, "resize", TaskSize(vcpu=1, memory_mb=5120)),
        # The heap was full, also with more vCPUs.
        ((0.25, 1024), {"p95": 0.4, "peak_mb": 700}, "none", TaskSize(vcpu=0.5, memory_mb=1024)),
    ],
)
def test_only_what_failed_of_a_size_is_not_chosen_again(
    failed: tuple[float, int], used: dict[str, float], action: str, size: TaskSize
) -> None:
    old, too_small = TaskSize(vcpu=1, memory_mb=4096), TaskSize(vcpu=failed[0], memory_mb=failed[1])
    past = [*runs(30, size=old, p95=used["p95"]), *runs(2, "2", start=30, size=too_small, **FAILED)]
    reverted = SizedRevision(
        revision="3", size=old, reverted_from=SizeBefore(revision="2", size=too_small)
    )
    found = decision([*past, *runs(60, "3", start=32, size=old, **used)], reverted)
    assert found.action == action
    assert found.size == size
    assert (found.reason == "this size, or a larger one, has failed before") is (action == "none")
