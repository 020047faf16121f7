"""The division of a run's wall time into parts."""

from collections import Counter
from collections.abc import Sequence
from random import Random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from profiler.aggregation.recent_waits import RecentWaits
from profiler.aggregation.record_draft import with_activity
from profiler.aggregation.time_breakdown import TimeAccount, wait_warnings
from profiler.aggregation.time_series import RunSeries
from profiler.readers.linux.cpu_pressure import CpuPressure
from profiler.readers.linux.thread_counters import ThreadGrowth
from profiler.readers.linux.thread_times import ThreadSample
from profiler.readers.linux.waited_target import TIMER, Wait
from profiler.record.activity_model import TimeBreakdown, WaitTarget
from profiler.record.record_model import Container, Metrics, Record, Sampling
from tests.fakes import START_NS, seconds
from tests.values import present

NETWORK = Wait("network", "10.0.3.9:5432")
KINDS = ("disk", "network", "sleep", "pipe", "lock", "child", "other")
PARTS = ("on_cpu", "waiting_for_cpu", *KINDS)


class Run:
    """A run whose steps are given one after the other."""

    def __init__(self, *, is_new: bool = True, interval: float = 1, points: int = 0) -> None:
        self.account = TimeAccount(START_NS if is_new else None, seconds(interval))
        self.series = RunSeries(START_NS, seconds(interval), points) if points else None
        self.at = 0.0
        self.cpu = 0.0

    def step(
        self, *waits: Wait, run: float = 0, wait: Any = (), length: float = 1, **sample: Any
    ) -> "Run":
        """A step in which one thread ran and waited for a CPU, or several waited: ``wait``."""
        known = {"growth": growth(run, wait), "sees_calls": True, **sample}
        added = ThreadSample(waits=Counter(waits), **known)
        self.at, self.cpu = self.at + length, self.cpu + run
        self.account.add(START_NS + seconds(self.at), seconds(self.cpu), added, self.series)
        return self

    def end(self, *, run: float = 0, wait: Any = (), length: float = 1) -> "Run":
        self.at, self.cpu = self.at + length, self.cpu + run
        last = ThreadSample(growth=growth(run, wait) if wait else (), sees_calls=True)
        self.account.finish(START_NS + seconds(self.at), seconds(self.cpu), last, self.series)
        return self

    def record(self, duration: float | None = None, sampling: Sampling | None = None) -> Record:
        metrics = Metrics(duration_ms=None if duration is None else 1000 * duration)
        record = Record(
            task_id="t", container=Container(name="c"), metrics=metrics, sampling=sampling
        )
        self.account.flush(self.series)
        activity = self.account.activity(metrics.duration_ms, seconds(self.cpu))
        return with_activity(record, activity)

    def waiting_threads(self) -> tuple[float | None, ...] | None:
        self.account.flush(self.series)
        return present(present(self.series).values()).cpu_wait

    @property
    def breakdown(self) -> TimeBreakdown:
        return present(self.record().time_breakdown)

    @property
    def parts(self) -> dict[str, float]:
        """The parts that are not 0."""
        return {name: percent for name, percent in all_parts(self.breakdown).items() if percent}


def growth(run: float, wait: float | Sequence[float]) -> list[ThreadGrowth]:
    waits = [wait] if isinstance(wait, (int, float)) else list(wait)
    return [
        ThreadGrowth(0 if index else seconds(run), seconds(one), thread=index)
        for index, one in enumerate(waits or [0])
    ]


def idle_run(*spans: tuple[float, float]) -> Run:
    """A run during which all GPUs are idle in these spans, in seconds since its start."""
    run = Run()

    def idle_ns(start_ns: int, end_ns: int) -> int:
        return sum(
            max(min(end_ns - START_NS, seconds(last)) - max(start_ns - START_NS, seconds(first)), 0)
            for first, last in spans
        )

    run.account = TimeAccount(START_NS, seconds(1), idle_ns)
    return run


def idle_parts(run: Run) -> dict[str, float]:
    run.account.flush(None)
    return {
        name: percent
        for name, percent in all_parts(present(run.account.breakdown(is_idle=True))).items()
        if percent
    }


def all_parts(made: TimeBreakdown) -> dict[str, float | None]:
    return {name: getattr(made, f"{name}_percent") for name in PARTS}


def test_a_step_is_divided_into_cpu_wait_and_what_it_was_blocked_by() -> None:
    run = Run().step(NETWORK, run=0.25, wait=0.25)
    assert run.parts == {"on_cpu": 25.0, "waiting_for_cpu": 25.0, "network": 50.0}
    assert run.breakdown.waiting_for == (
        WaitTarget(kind="network", target="10.0.3.9:5432", percent=50.0),
    )
    assert run.breakdown.covered_percent == 100.0


def test_the_time_in_which_the_gpus_were_idle_is_divided_on_its_own() -> None:
    disk = Wait("disk", "/data/train.tar")
    run = idle_run((1, 3.5)).step(NETWORK).step(disk).step(disk, run=0.5).step(NETWORK, wait=1)
    assert idle_parts(run) == {"on_cpu": 20.0, "waiting_for_cpu": 20.0, "disk": 60.0}
    idle = present(run.account.breakdown(is_idle=True))
    assert idle.waiting_for == (WaitTarget(kind="disk", target="/data/train.tar", percent=60.0),)
    assert idle.covered_percent == 100
    assert run.parts == {"on_cpu": 12.5, "waiting_for_cpu": 25.0, "disk": 37.5, "network": 25.0}
    never_idle = Run().step(NETWORK)
    never_idle.account.flush(None)
    assert never_idle.account.breakdown(is_idle=True) is None


@given(
    st.lists(
        st.tuples(st.floats(0, 1), st.sampled_from([None, *KINDS]), st.floats(0.1, 3)),
        min_size=1,
        max_size=80,
    )
)
def test_if_the_gpus_are_always_idle_both_divisions_are_the_same(
    steps: list[tuple[float, str | None, float]],
) -> None:
    run = idle_run((0, 1000))
    for busy, kind, length in steps:
        run.step(*([] if kind is None else [Wait(kind)]), run=busy * length, length=length)
    whole = run.breakdown
    assert run.account.breakdown(is_idle=True) == whole


def test_several_threads_fill_a_step_once() -> None:
    assert Run().step(NETWORK, run=3, wait=[2, 2]).parts == {"on_cpu": 100.0}
    assert Run().step(NETWORK, run=0.4, wait=[0.6, 0.6, 0.6]).parts == {
        "on_cpu": 40.0,
        "waiting_for_cpu": 60.0,
    }
    made = Run().step(Wait("sleep"), run=0.01, wait=[0.02] * 2400)
    assert made.parts == {"on_cpu": 1.0, "waiting_for_cpu": 2.0, "sleep": 97.0}
    metrics = Run().step(NETWORK, run=0.5, wait=[0.25, 0.25, 1]).record().metrics
    assert metrics.cpu_wait_seconds == 1.5
    assert metrics.cpu_wait_percent == 75.0


def test_a_wait_that_the_kernel_invents_for_one_of_many_threads_does_not_count() -> None:
    herd = [ThreadGrowth(seconds(0.0001), seconds(0.02), thread=number) for number in range(1, 300)]

    for run_seconds, wait_seconds, percent in ((0.0001, 0.9, 2.0), (0.1, 0.8, 80.0)):
        run, one = Run(), ThreadGrowth(seconds(run_seconds), seconds(wait_seconds))
        assert (
            run.step(NETWORK, run=0.1, growth=[*herd, one]).breakdown.waiting_for_cpu_percent
            == percent
        )
    assert Run().step(NETWORK, run=0.0001, wait=[0.9, 0.02]).parts["waiting_for_cpu"] == 90.0


def test_a_thread_that_began_in_the_step_may_have_waited_after_the_others() -> None:
    waits = ((0.3, False), (0.1, True), (0.2, True))
    grown = [ThreadGrowth(0, seconds(wait), thread=1, is_new=is_new) for wait, is_new in waits]
    assert Run().step(NETWORK, growth=grown).parts == {"waiting_for_cpu": 50.0, "network": 50.0}


@pytest.mark.parametrize("position", range(len(KINDS)))
def test_the_first_kind_of_all_threads_counts(position: int) -> None:
    kinds = KINDS[position:]
    assert Run().step(*(Wait(kind) for kind in reversed(kinds))).parts == {kinds[0]: 100.0}


def test_threads_that_wait_for_several_peers_share_the_time() -> None:
    made = (
        Run()
        .step(NETWORK, NETWORK, Wait("network", "b:1"), Wait("network"), Wait("lock"))
        .breakdown
    )
    assert made.network_percent == 100.0
    assert [(row.target, row.percent) for row in made.waiting_for] == [
        ("10.0.3.9:5432", 50.0),
        ("b:1", 25.0),
    ]


def test_a_step_without_a_blocked_thread_takes_the_nearest_kind() -> None:
    run = Run().step(Wait("sleep")).step(run=0.5).step(run=0.5).step(run=0.5).step(Wait("lock"))
    assert run.parts == {"on_cpu": 30.0, "sleep": 40.0, "lock": 30.0}


@pytest.mark.parametrize("kind", KINDS)
def test_threads_that_wait_for_other_threads_show_nothing_if_not_all_were_asked(kind: str) -> None:
    is_weak, sleeping = kind in ("lock", "child", "other"), [Wait("sleep")] * 2400
    run = (
        Run()
        .step(*sleeping)
        .step(Wait(kind), is_partial=True)
        .step(*sleeping[:-1])
        .step(Wait("pipe"))
    )
    assert run.parts == Counter({"sleep": 50.0, "pipe": 25.0}) + Counter(
        {"sleep" if is_weak else kind: 25.0}
    )
    run = Run().step(Wait("lock"))
    run.step(Wait(kind), is_partial=True).step(Wait(kind), is_partial=True).step(Wait("pipe"))
    assert run.parts == Counter({"lock": 25.0, "pipe": 25.0}) + Counter(
        {"other" if is_weak else kind: 50.0}
    )
    assert run.breakdown.covered_percent == 100.0
    assert Run().step(Wait(kind), is_partial=True).parts == {"other" if is_weak else kind: 100.0}


def worker_beside(
    bystander: Wait, on_cpu: tuple[float, float], waiting: tuple[float, float]
) -> tuple[Run, float]:
    """A minute in which a thread computes and waits for the network in turn, and the share of
    the latter in percent.
    """
    run, randomness = Run(), Random(1)
    now = computed = reported = 0.0
    while now < 60:
        for is_waiting, limits in ((False, on_cpu), (True, waiting)):
            ends = now + randomness.uniform(*limits)
            for at in range(int(now) + 1, int(ends) + 1):
                used = computed + (0 if is_waiting else at - now)
                run.step(
                    bystander,
                    *([NETWORK] if is_waiting else []),
                    run=used - reported,
                    has_running=not is_waiting,
                )
                reported = used
            computed += 0 if is_waiting else ends - now
            now = ends
    return run, 100 * (1 - reported / run.at)


@pytest.mark.parametrize("kind", ["sleep", "pipe", "child", "lock"])
@pytest.mark.parametrize(
    "turns", [((0.01, 0.03), (0.01, 0.03)), ((0.03, 0.03), (0.01, 0.01)), ((0.3, 3), (0.1, 2))]
)
def test_who_stands_by_does_not_take_the_wait_of_the_thread_that_works(
    kind: str, turns: tuple[tuple[float, float], tuple[float, float]]
) -> None:
    run, network_percent = worker_beside(Wait(kind), *turns)
    assert run.parts == {
        "on_cpu": pytest.approx(100 - network_percent, abs=0.1),
        "network": pytest.approx(network_percent, abs=0.1),
    }


def test_a_thread_on_a_cpu_hides_no_disk_and_no_network() -> None:
    run = Run().step(Wait("sleep")).step(NETWORK, Wait("sleep"), run=0.5, has_running=True)
    assert run.parts == {"on_cpu": 25.0, "network": 25.0, "sleep": 50.0}
    run = (
        Run()
        .step(NETWORK)
        .step(Wait("sleep"), run=0.5, has_running=True)
        .step(Wait("sleep"))
        .step(Wait("sleep"))
    )
    assert run.parts == {"on_cpu": 12.5, "network": 37.5, "sleep": 50.0}


def test_before_the_first_kind_the_next_one_counts_however_late_it_is() -> None:
    run = Run()
    for times, waits, kind in (
        (200, [], "other"),
        (1, [Wait("pipe")], "pipe"),
        (200, [Wait("pipe")], "pipe"),
    ):
        for _ in range(times):
            run.step(*waits, run=0.5)
        assert run.parts == {"on_cpu": 50.0, kind: 50.0}


def test_a_wait_that_ends_belongs_to_the_steps_in_which_the_thread_waited() -> None:
    run = Run().step(NETWORK).step().step().step(run=0.5, wait=2.5)
    assert run.parts == {"on_cpu": 12.5, "waiting_for_cpu": 62.5, "network": 25.0}
    # The part that it cannot have spent in its last step is earlier.
    run = Run().step(NETWORK).step(run=0.9, wait=0.6)
    assert run.parts == {"on_cpu": 45.0, "waiting_for_cpu": 30.0, "network": 25.0}

    # The next wait of the thread adds to its last one in the same step.
    run = Run().step(NETWORK, wait=[0.3, 0.4]).step(NETWORK, run=0.1, wait=1.2)
    assert run.parts == {"on_cpu": 5.0, "waiting_for_cpu": 75.0, "network": 20.0}
    run = Run().step(NETWORK, wait=[0.3, 0.4]).step(NETWORK, wait=[0, 1.2])
    assert run.parts == {"waiting_for_cpu": 80.0, "network": 20.0}


def test_a_wait_from_before_the_first_reading_does_not_count_in_the_division() -> None:
    run = Run(is_new=False).step(wait=100).step(NETWORK, wait=0.5)
    assert run.parts == {"waiting_for_cpu": 50.0, "network": 50.0}
    assert run.record().metrics.cpu_wait_seconds == 100.5


def test_without_privileges_only_the_disk_is_told() -> None:
    run = Run()
    for waits in ([Wait("disk"), Wait("other")], [Wait("other")]):
        run.step(*waits, run=0.5, has_refused=True, sees_calls=False)
    known = {name: value for name, value in all_parts(run.breakdown).items() if value is not None}
    assert known == {"on_cpu": 50.0, "waiting_for_cpu": 0.0, "disk": 25.0, "other": 25.0}
    assert run.breakdown.waiting_for == ()


def test_a_process_that_cannot_be_asked_for_long_hides_the_kinds() -> None:
    run = Run()
    for _ in range(10):
        run.step(NETWORK)
    assert (
        run.step(Wait("other"), has_refused=True, length=0.1).breakdown.network_percent is not None
    )
    made = run.step(Wait("other"), has_refused=True).breakdown
    assert made.network_percent is None
    assert made.other_percent == 100.0


@pytest.mark.parametrize(
    ("used", "read", "waited", "covered", "warned"),
    [
        (1.0, 0.96, 5, 96.0, None),
        (1.0, 0.42, 5, 42.0, "58 %"),
        (1.0, 0.0, 0, 0.0, "100 %"),
        (1.0, 0.5, 0.04, 50.0, None),
        (0.5, 0.6, 5, 100.0, None),
        (0.0, 0.0, 0, None, None),
    ],
)
def test_waits_of_threads_that_ended_before_they_were_read_make_a_lower_bound(
    used: float, read: float, waited: float, covered: float | None, warned: str | None
) -> None:
    run = Run().step(run=used, growth=[ThreadGrowth(seconds(read), seconds(waited))])
    record = run.record(sampling=Sampling())
    assert present(record.sampling).cpu_wait_covered_percent == covered
    start = "The time waiting for a CPU is a lower bound: threads ended before"
    expected = () if warned is None else (f"{start} {warned} of the CPU time was read.",)
    assert wait_warnings(record) == expected
    assert run.record().sampling is None


def test_a_kernel_without_counters() -> None:
    run = Run().step(NETWORK, run=0.25, growth=None)
    assert run.breakdown.waiting_for_cpu_percent is None
    assert run.breakdown.network_percent == 75.0
    assert run.record().metrics == Metrics()
    assert Run().record().time_breakdown is None  # without a sample
    assert Run(is_new=False).step(NETWORK).record().time_breakdown is None


def test_a_gap_is_covered_by_the_sample_at_its_end_for_1_5_intervals() -> None:
    """A gap between readings is covered by the sample at its end for an interval and a half."""
    run = Run().step(NETWORK).step(NETWORK).step(Wait("lock"), run=2, length=8)
    assert run.parts == {"on_cpu": 20.0, "network": 20.0, "lock": 11.3, "other": 48.7}
    assert run.breakdown.covered_percent == 35.0


def test_a_gap_between_equal_waits_belongs_to_them_but_is_not_covered() -> None:
    run = Run().step(NETWORK).step(NETWORK).step(NETWORK, run=2, length=8)
    assert run.parts == {"on_cpu": 20.0, "network": 80.0}
    assert run.breakdown.covered_percent == 35.0
    assert (
        present(Run().step(NETWORK).record(duration=4).time_breakdown).covered_percent == 25.0
    )  # after the last
    run = Run().step(NETWORK).step(Wait("lock"), wait=[0.4] * 300, length=9)
    assert run.parts == {"waiting_for_cpu": 4.0, "network": 10.0, "lock": 14.3, "other": 71.7}
    assert Run().step(NETWORK).step(Wait("network", "b:1"), length=9).parts == {
        "network": 25.0,
        "other": 75.0,
    }


class TestTheLongestWait:
    def since(self, run: Run, at: float) -> Wait | None:
        run.account.flush(None)
        return run.account.recent_waits.longest(START_NS + seconds(at))

    def test_a_socket_that_was_closed_before_a_lock_hung_is_not_named(self) -> None:
        run = Run()
        for at in range(3000):
            run.step(NETWORK if at < 2000 else Wait("lock"))
        assert [self.since(run, at) for at in (0, 1000, 2000, 3000)] == [
            NETWORK,
            NETWORK,
            Wait("lock"),
            None,
        ]

    def test_a_larger_kind_is_named_before_a_target(self) -> None:
        run = Run()
        for at in range(100):
            run.step(NETWORK if at % 100 < 46 else Wait("lock"))
        assert self.since(run, 0) == Wait("lock")

    def test_a_target_is_named_for_most_of_the_time_of_its_kind(self) -> None:
        run = Run().step(NETWORK, NETWORK, Wait("network", "b:1"), Wait("network"))
        assert self.since(run, 0) == Wait("network")
        assert self.since(run.step(NETWORK), 0) == NETWORK

    def test_what_is_not_known_is_not_named(self) -> None:
        assert self.since(Run(), 0) is None
        assert (
            self.since(Run().step(Wait("disk")).step(Wait("other")).step(Wait("other")), 0) is None
        )
        assert self.since(Run().step(NETWORK, run=3).step(Wait("lock"), run=0.9), 0) == Wait("lock")

    @given(
        st.lists(
            st.tuples(st.floats(0.01, 500), st.sampled_from("abcdefghijklmnopq")), max_size=300
        )
    )
    def test_it_is_kept_in_constant_memory(self, steps: list[tuple[float, str]]) -> None:
        recent, at_ns = RecentWaits(), 0
        for length, peer in steps:
            recent.add(at_ns, at_ns + seconds(length), {Wait("network", peer): seconds(length)})
            at_ns += seconds(length)
        assert len(recent._spans) <= 64
        assert all(len(span.waits) <= 16 for span in recent._spans)
        assert bool(steps) == (recent.longest(0) is not None)
        assert [span.start_ns for span in recent._spans[1:]] == [
            span.end_ns for span in recent._spans[:-1]
        ]


def test_the_end_has_the_counters_of_a_zombie() -> None:
    """The end has the counters of a zombie or the share of the step before."""
    read = Run().step(NETWORK).end(run=0.5, wait=0.5).parts
    assert read == {"on_cpu": 25.0, "waiting_for_cpu": 25.0, "network": 50.0}
    assert Run().step(run=0.2, wait=0.8).end(run=0.2).parts == {
        "on_cpu": 20.0,
        "waiting_for_cpu": 80.0,
    }
    assert Run().step(NETWORK, run=0.2).end().parts == {"on_cpu": 10.0, "network": 90.0}


def test_at_most_eight_targets_and_one_row_for_the_rest() -> None:
    run = Run()
    for number in range(300):
        run.step(Wait("disk", f"/data/{number}" if number % 3 else "/data/large"))
    rows = run.breakdown.waiting_for
    assert rows[0] == WaitTarget(kind="disk", target="/data/large", percent=33.3)
    assert len(rows) == 9
    assert rows[-1].kind == "other"
    assert rows[-1].target == "other"
    assert sum(row.percent for row in rows) == pytest.approx(100, abs=0.5)
    assert len(run.account._parts.targets_ns) <= 65


def test_the_series_has_the_mean_number_of_waiting_threads() -> None:
    run = Run(points=10).step(wait=[0.5, 1]).step().step(run=0.5, wait=1)
    assert run.waiting_threads() == (1.5, 0.5, 0.5)
    later, series = Run().step(wait=0.5).step(wait=0.25), RunSeries(START_NS, seconds(1), 10)
    later.account.flush(series)
    later.account.flush(series)
    assert present(series.values()).cpu_wait == (
        0.5,
        0.25,
    )  # the series may begin later than the run


def test_the_wait_of_a_thread_that_was_not_read_in_each_step_is_spread() -> None:
    run = Run(points=10).step(NETWORK, run=0.5).step(NETWORK, run=0.5).step(NETWORK, run=0.5)
    run.step(NETWORK, run=0.5, growth=[ThreadGrowth(seconds(1.5), seconds(1.5), 3)])
    assert run.parts == {"on_cpu": 50.0, "waiting_for_cpu": 37.5, "network": 12.5}
    assert run.waiting_threads() == (0.0, 0.5, 0.5, 0.5)


STEPS = st.tuples(
    st.lists(
        st.builds(Wait, st.sampled_from(KINDS), st.sampled_from((None, "a", "b"))), max_size=3
    ),
    st.floats(0, 3),
    st.lists(st.floats(0, 5), max_size=3),
    st.floats(0.001, 4),
    *[st.booleans()] * 3,
)


@given(
    steps=st.lists(STEPS, min_size=1, max_size=100),
    sees_calls=st.booleans(),
    asks_between=st.booleans(),
)
def test_any_run_is_divided_completely(
    *, steps: list[Any], sees_calls: bool, asks_between: bool
) -> None:
    run, again = Run(points=5), Run(points=5)
    for waits, used, waited, length, refused, partial, running in steps:
        sample = {
            "has_refused": refused,
            "sees_calls": sees_calls,
            "is_partial": partial,
            "has_running": running,
        }
        for each in (run, again):
            each.step(*waits, run=used, wait=waited, length=length, **sample)
        if asks_between:
            again.record()
    made = run.breakdown
    parts = [percent for percent in all_parts(made).values() if percent is not None]
    assert sum(parts) == pytest.approx(100, abs=0.1)
    assert min(parts) >= 0
    assert 0 <= (made.covered_percent or 0) <= 100
    assert len(made.waiting_for) <= 9
    assert sum(row.percent for row in made.waiting_for) <= 100.5
    if not sees_calls:
        assert made.network_percent is None
    assert again.breakdown == made
    total = sum(seconds(wait) for step in steps for wait in step[2])
    assert run.record().metrics.cpu_wait_seconds == pytest.approx(total / 1e9, abs=1e-5)


CHILD, TIMED = Wait("child"), TIMER


def short_programs(steps: int, working: int, *, pressure: float | None, run: float = 0.4) -> Run:
    """Each second, programs that nobody reads run; in the first steps, the samples show one."""
    shown = Run()
    for number in range(steps + 1):
        waits_us = round(number * (pressure or 0) * 1e6)
        shows_work = number <= working
        shown.step(
            *(() if shows_work else (CHILD,)),
            run=run if number else 0,
            growth=[],
            shows_work=shows_work,
            pressure=None
            if pressure is None
            else CpuPressure(pressure=b"some avg10=0.00 total=%d\n" % waits_us),
        )
    return shown


def test_samples_that_all_show_work_leave_no_time_for_a_wait_for_the_child() -> None:
    parts = short_programs(100, 100, pressure=1).parts
    assert "child" not in parts
    assert 50 < parts["waiting_for_cpu"] < 60
    assert parts["waiting_for_cpu"] + parts["other"] == pytest.approx(100 - parts["on_cpu"])


def test_few_samples_leave_more_time_unknown_than_many() -> None:
    few, many = (short_programs(count, count, pressure=1) for count in (5, 500))
    assert few.parts["other"] > 5 * many.parts["other"]
    # The first of six steps has no CPU time at all and is covered, though its kind is unknown.
    covered = 100 - (few.parts["other"] - 100 / 6)
    assert few.breakdown.covered_percent == pytest.approx(covered, abs=0.1)


def test_short_programs_of_an_idle_machine_wait_for_no_cpu() -> None:
    parts = short_programs(100, 40, pressure=0).parts
    assert "waiting_for_cpu" not in parts
    assert parts["child"] > 57


def test_without_pressure_the_samples_alone_limit_the_parts() -> None:
    parts = short_programs(100, 70, pressure=None).parts
    assert 15 < parts["waiting_for_cpu"] < 30
    assert 20 < parts["child"] < 30


@given(st.integers(1, 40), st.integers(0, 40), st.none() | st.floats(0, 2), st.floats(0.06, 3))
def test_parts_of_steps_that_nobody_read_add_up(
    steps: int, working: int, pressure: float | None, run: float
) -> None:
    shown = short_programs(steps, working, pressure=pressure, run=run)
    percents = [percent or 0 for percent in all_parts(shown.breakdown).values()]
    assert sum(percents) == pytest.approx(100, abs=0.1)
    assert min(percents) >= 0


@pytest.mark.parametrize(
    ("waits", "kind"),
    [
        ((TIMED, Wait("lock")), "sleep"),
        ((TIMED, Wait("pipe")), "pipe"),
        ((TIMED, NETWORK), "network"),
        ((TIMED, Wait("sleep")), "sleep"),
    ],
)
def test_a_wait_with_a_timeout_is_a_weak_sleep(waits: tuple[Wait, ...], kind: str) -> None:
    assert Run().step(*waits).parts == {kind: 100}
