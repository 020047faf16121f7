"""The division of a run's wall time: the four questions, as the design asks them."""

import math
import random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import Struct
from msgspec.structs import replace

from profiler.aggregation.busy_time import BusyTime
from profiler.aggregation.gpu_idle_breakdown import IdleTimeByPlace
from profiler.aggregation.recent_waits import RecentWaits
from profiler.aggregation.stretch import Stretch
from profiler.aggregation.time_breakdown import TimeAccount
from profiler.aggregation.wait_warnings import wait_warnings
from profiler.core.look_times import LookTimes
from profiler.readers.linux.cpu_pressure import CpuPressure
from profiler.readers.linux.look import ThreadSeen, ThreadsLook
from profiler.readers.linux.thread_counters import ThreadTimeGrowth
from profiler.readers.linux.wait_types import MEMORY, STOPPED, BlockedThread, Wait
from profiler.record.activity_model import NO_BREAKDOWN, TimeBreakdown, WaitTarget
from profiler.record.record_model import NOT_SAMPLED, Container, Metrics, Record, Sampling
from tests.fakes import START_NS, seconds
from tests.looked_run import (
    CHILD,
    CONNECTION,
    DISK,
    FILE_LOCK,
    HIDDEN,
    IDLE,
    LISTENS,
    LOCK,
    NETWORK,
    POLL,
    SLEEP,
    TIMED_FUTEX,
    Did,
    LookedRun,
    all_parts,
    pipe_to,
)
from tests.values import present


def test_a_step_is_divided_into_cpu_wait_and_what_it_was_blocked_by() -> None:
    run = LookedRun().look(Did(1, NETWORK, run=0.25, wait=0.25))
    assert run.parts == {"on_cpu": 25.0, "waiting_for_cpu": 25.0, "network": 50.0}
    assert run.breakdown.waiting_for == (
        WaitTarget(kind="network", target="10.0.3.9:5432", percent=50.0),
    )
    assert run.breakdown.covered_percent == 100.0


class TestCouldAnythingRun:
    """Question 1."""

    def test_threads_that_wait_together_wait_once(self) -> None:
        run = LookedRun().look(Did(1, SLEEP, wait=0.6), Did(2, SLEEP, wait=0.6))
        assert run.parts == {"waiting_for_cpu": 60.0, "sleep": 40.0}

    @pytest.mark.parametrize(
        ("one", "both", "busy", "points"),
        [(0, 0, 50.0, 0.1), (0, 100, 50.0, 2), (120, 40, 80.0, 0.1), (80, 10, 69.8, 0.1)],
    )
    def test_where_the_bounds_lie_apart_looks_say_how_many_can_run_together(
        self, one: int, both: int, busy: float, points: float
    ) -> None:
        """Two threads that run for half of each step: together, or one after the other. Where the
        looks find only half of what ran, each may have run at its own times.
        """
        run = LookedRun()
        for number in range(200):
            first = None if number < one + both else SLEEP
            second = None if number < both else SLEEP
            run.look(Did(1, first, run=0.5), Did(2, second, run=0.5))
        assert run.parts["on_cpu"] == pytest.approx(busy, abs=points)

    def test_where_too_much_ran_unread_the_share_of_the_looks_decides(self) -> None:
        run = LookedRun(cpus=4)
        for number in range(20):
            does = None if number < 16 else SLEEP
            run.look(Did(1, does, run=0.5), unread=0.5)
        assert run.parts["on_cpu"] == pytest.approx(80, abs=0.1)

    @pytest.mark.parametrize(
        ("is_able", "able_peeks", "busy"), [(0, 0, 0.3), (0, 2, 0.5), (1, 2, 0.6)]
    )
    def test_peeks_between_two_looks_count_as_these_do(
        self, is_able: int, able_peeks: int, busy: float
    ) -> None:
        time = BusyTime()
        stretch = Stretch(0, seconds(1), 2, run_ns=seconds(0.6), longest_ns=seconds(0.3))
        stretch.able_ns = is_able * seconds(1)
        stretch.peeks, stretch.able_peeks = 3, able_peeks
        time.add_part_of_interval(stretch)
        assert time.busy_ns == pytest.approx(seconds(busy))

    @pytest.mark.parametrize(("asked_share", "slept"), [(1.0, 30.0), (0.3, 100 * math.exp(-3.4))])
    def test_a_look_that_did_not_ask_all_threads_has_missed_some_that_could_run(
        self, asked_share: float, slept: float
    ) -> None:
        """On average 3.4 can run, of which seven looks in ten find one."""
        run = LookedRun()
        for number in range(10):
            first = Did(1, None if number < 7 else SLEEP, run=0.05, wait=0.25)
            others = [Did(thread, SLEEP, run=0.05, wait=0.25) for thread in range(2, 11)]
            run.look(first, *others, later=0.4, asked_share=asked_share)
        assert run.parts["sleep"] == pytest.approx(slept, abs=0.5)

    @pytest.mark.parametrize("asked_share", [0.1, 0.3, 0.8])
    @pytest.mark.parametrize(
        ("together", "asleep", "others", "points"),
        [
            pytest.param(0, 0.74, None, 3, id="at own times"),
            pytest.param(0, 0.74, 0, 4, id="at own times, nothing else on the machine"),
            pytest.param(0, 0.74, 4, 3, id="at own times, a busy machine"),
            pytest.param(0, 0.3, 1, 3, id="at own times, busy"),
            pytest.param(1, 0.82, 0, 3, id="in turn"),
            pytest.param(1, 0.82, 4, 3, id="in turn, a busy machine"),
            pytest.param(1, 0.5, 0, 11, id="in turn, busy"),
            pytest.param(2, 0.5, 0, 5, id="two together"),
            pytest.param(20, 0.9, 0, 6, id="many together"),
            pytest.param(60, 0.7, 0, 5, id="nearly all together"),
            pytest.param(60, 0.7, 1, 9, id="nearly all together, others, too"),
        ],
    )
    def test_looks_at_some_of_many_threads_say_for_how_long_any_could_run(
        self, asked_share: float, together: int, asleep: float, others: int | None, points: float
    ) -> None:
        """At each moment none of 150 threads can run, or so many ``together``, or, if 0, each at its
        own times; and on average so many of ``others`` on a machine of 64 CPUs.
        """
        chance, asleep_looks = random.Random(together), 0
        mean = together * (1 - asleep) or -math.log(asleep)
        time = BusyTime()
        for _ in range(200):
            able = together * (chance.random() >= asleep)
            if not together:
                able = sum(chance.random() < mean / 150 for _ in range(150))
            asleep_looks += not able
            found = sum(chance.random() < asked_share for _ in range(able))
            beside = sum(chance.random() < (others or 0) / 64 for _ in range(64))
            stretch = Stretch(0, seconds(1), 64, wait_ns=seconds(mean))
            stretch.longest_ns = seconds(mean / 150)
            stretch.able_ns = seconds(1) * (found > 0)
            stretch.asked_share = asked_share
            stretch.able_on_machine = None if others is None else able + beside
            time.add_part_of_interval(stretch)
        busy_percent = 100 * time.busy_ns / time.length_ns
        assert busy_percent == pytest.approx(100 - asleep_looks / 2, abs=points)

    def test_looks_that_find_several_of_a_pool_or_none_say_little_of_it(self) -> None:
        """Of eight processes, on average 1.4 can run, each at its own times. On a busy machine,
        looks come late: 13 of 20 find three, the others none.
        """
        time = BusyTime()
        for number in range(20):
            stretch = Stretch(0, seconds(1), 2, run_ns=seconds(0.4), wait_ns=seconds(1))
            stretch.longest_ns = seconds(0.175)
            if number < 13:
                stretch.able_threads, stretch.able_ns = 3, seconds(1)
            time.add_part_of_interval(stretch)
        assert time.busy_ns / time.length_ns == pytest.approx(1 - (1 - 0.175) ** 8, abs=0.06)

    def test_looks_that_found_none_are_no_threads_in_turn(self) -> None:
        """Half of the looks find two at once."""
        time = BusyTime()
        for able in (2, 0):
            stretch = Stretch(0, seconds(1), 4, run_ns=seconds(1), longest_ns=seconds(0.3))
            stretch.able_threads, stretch.able_ns = able, seconds(able / 2)
            time.add_part_of_interval(stretch)
        assert time.sure.are_together

    def test_a_thread_that_used_more_than_at_own_times_could_run_for_that_long(self) -> None:
        time = BusyTime()
        stretch = Stretch(0, seconds(1), 2, run_ns=seconds(0.9), longest_ns=seconds(0.8))
        stretch.wait_ns = seconds(0.2)
        time.add_part_of_interval(stretch)
        assert time.own.at_own_times_ns == seconds(0.8)

    def test_thousands_of_threads_that_a_look_did_not_find_ran_together_before_it(self) -> None:
        time = BusyTime()
        stretch = Stretch(0, seconds(1), 2, wait_ns=seconds(5000), longest_ns=seconds(0.1))
        stretch.able_on_machine = 0
        time.add_part_of_interval(stretch)
        assert time.busy_ns == pytest.approx(seconds(0.1))

    def test_threads_of_a_group_that_has_used_up_its_quota_are_not_on_the_machines_list(
        self,
    ) -> None:
        """Nobody can run on the machine, but the threads wait for the quota."""
        times = []
        for throttled in (0, 0.1):
            time = BusyTime()
            for _ in range(50):
                stretch = Stretch(0, seconds(1), 2, wait_ns=seconds(0.8), longest_ns=seconds(0.1))
                stretch.asked_share, stretch.able_on_machine = 0.3, 0
                stretch.throttled_ns = seconds(throttled)
                time.add_part_of_interval(stretch)
            assert bool(time.others.weight) == (not throttled)
            times.append(time.busy_ns / time.length_ns)
        assert times == pytest.approx([0.1, 0.5], abs=0.1)

    @pytest.mark.parametrize(("threads", "on_cpu"), [(1, 11.0), (2, 8.0)])
    def test_threads_that_ended_before_the_look_ran_as_many_at_once_as_looks_found(
        self, threads: int, on_cpu: float
    ) -> None:
        """Each task has a thread of its own, which no look finds at its end."""
        time = BusyTime()
        for _ in range(10):
            works = Stretch(0, seconds(1), 2, run_ns=seconds(0.5), longest_ns=seconds(0.5))
            works.able_ns, works.able_threads = seconds(1), threads
            time.add_part_of_interval(works)
            time.add_part_of_interval(Stretch(0, seconds(1), 2, unread_ns=seconds(0.6)))
        assert time.on_cpu_ns == pytest.approx(seconds(on_cpu))

    def test_where_too_many_can_run_for_a_look_the_share_of_the_looks_decides(self) -> None:
        run = LookedRun(cpus=2)
        for number in range(20):
            does = None if number < 16 else SLEEP
            threads = range(2, 50)
            run.look(Did(1, does, run=0.5), *[Did(each, SLEEP, run=0.01) for each in threads])
        assert run.parts["on_cpu"] == pytest.approx(80, abs=0.1)

    @pytest.mark.parametrize(("waits", "busy"), [(None, 100.0), (SLEEP, 10.0)])
    def test_a_thread_that_could_run_and_has_ended_may_have_waited(
        self, waits: BlockedThread | None, busy: float
    ) -> None:
        """Each look finds another thread of a pool; what it did after that look was not read."""
        run = LookedRun(cpus=1)
        for number in range(1, 40):
            run.look(Did(number, waits, run=0.1), ended=(number - 1,))
        percent = run.parts["on_cpu"] + run.parts.get("waiting_for_cpu", 0)
        assert percent == pytest.approx(busy, abs=3)

    def test_a_look_says_how_many_can_run_until_threads_have_their_turn_again(self) -> None:
        """Others use the CPUs, and of a pool's threads, without their system calls, each second
        reading is left out.
        """
        run = LookedRun(points=40)
        nothing = ThreadsLook(is_behind=True, is_nobodys_turn=True)
        for number in range(20):
            can_run = number % 5 != 0
            threads = range(1, 5)
            run.look(
                *[Did(each, None if can_run else HIDDEN) for each in threads],
                growth=[
                    ThreadTimeGrowth(seconds(0.02), seconds(0.4), 2, each, span_ns=seconds(2))
                    for each in threads
                ],
                sees_calls=False,
            )
            run.at += 1
            run.account.add_look(START_NS + seconds(run.at), nothing, run.series)
        assert run.parts["waiting_for_cpu"] == pytest.approx(80 - run.parts["on_cpu"], abs=1)

    def test_a_throttled_group_is_busy_whichever_of_its_threads_it_hit(self) -> None:
        run = LookedRun(cpus=1)
        for number in range(1, 11):
            pressure = CpuPressure(cpu_stat=b"throttled_time %d\n" % (number * seconds(0.5)))
            run.look(Did(1, CHILD, run=0.01), pressure=pressure, unread=0.49)
        assert run.parts["waiting_for_cpu"] == pytest.approx(45, abs=5)
        assert run.parts.get("child", 0) < 6

    def test_what_no_thread_shows_ran_in_processes_that_nobody_read(self) -> None:
        run = LookedRun(cpus=1).look(Did(1, SLEEP, run=0.2), unread=0.4)
        assert run.parts == {"on_cpu": 60.0, "sleep": 40.0}

    @pytest.mark.parametrize("length", [0.03, 0.11, 0.3, 0.7])
    def test_programs_that_follow_one_another_are_busy_all_the_time(self, length: float) -> None:
        """A shell waits for one after the other; what each ran since the last look before its end
        is known once a second.
        """
        run = LookedRun({1: 0})
        step, child = 0.2, 0
        for number in range(1, 101):
            before, at = child, number * step - 0.01
            child = int(at / length)
            ran = min(at - child * length, step)
            run.look(
                Did(1, CHILD, run=0.0001),
                Did(10 + child, None, run=ran, process=10 + child),
                length=step,
                unread=step - ran,
                ended=[10 + before] if before != child else (),
                has_total=number % 5 == 0,
            )
        assert run.parts["on_cpu"] == pytest.approx(100, abs=1.5)

    def test_a_pressure_that_is_read_at_times_limits_the_waits_before(self) -> None:
        """Those of processes that nobody read, where half of the looks find one that can run."""
        run = LookedRun(cpus=2)
        for number in range(21):
            pressure = CpuPressure(pressure=b"some avg10=0.00 total=%d\n" % number)
            run.look(
                Did(1, None if number % 2 else HIDDEN, 0.001),
                unread=0.3 if number else 0,  # nothing limits the waits before the first reading
                pressure=None if number % 5 else pressure,
                sees_calls=False,
            )
        assert run.parts["on_cpu"] == pytest.approx(29, abs=2)
        assert run.parts.get("waiting_for_cpu", 0) < 1

    def test_the_pressure_says_nothing_of_the_time_before_it_was_read_first(self) -> None:
        """A group that is stopped by its quota was so before the first look, too."""
        run = LookedRun(cpus=1)
        run.look(Did(1, None, run=0.01), unread=0.5, length=0.9, pressure=CpuPressure())
        for number in range(1, 6):
            pressure = CpuPressure(
                pressure=b"some avg10=0.00 total=0\n",
                cpu_stat=b"throttled_time %d\n" % (number * seconds(0.01)),
            )
            run.look(Did(1, None, run=0.01), length=0.02, pressure=pressure, has_total=False)
        assert run.parts["waiting_for_cpu"] == pytest.approx(45, abs=5)
        assert "child" not in run.parts

    def test_what_ended_after_the_last_look_belongs_to_the_next_one(self) -> None:
        run = LookedRun().look(Did(1, None, run=0.5), Did(2, SLEEP, run=0.5))
        run.add_total(late=0.8, unread=0.8)
        run.look(Did(1, None, run=0.2))
        assert run.parts == {"on_cpu": 100.0}

    def test_what_finds_no_room_since_the_last_total_ran_before(self) -> None:
        """A process with thousands of threads, which were rarely read, ends."""
        run = LookedRun(cpus=1)
        for _ in range(10):
            run.look(Did(1, SLEEP, run=0.01))
        run.add_total(late=0.05, unread=4.0)
        assert run.parts["on_cpu"] == pytest.approx(40, abs=2)

    def test_a_process_with_many_threads_ran_when_its_clock_says_so(self) -> None:
        """Its threads are read in turn: after four looks, one read them all at last."""
        run = LookedRun(cpus=1)
        for later in (0.5, 0, 0.5, 0):
            run.look(Did(1, SLEEP if later else None), later=later)
        before = run.parts["on_cpu"]
        read = [
            ThreadTimeGrowth(seconds(0.25), 0, steps=5, thread=number, span_ns=seconds(5))
            for number in range(2, 6)
        ]
        run.look(Did(1, SLEEP), growth=read)
        assert (before, run.parts["on_cpu"]) == (25.0, 20.0)

    def test_processes_that_nobody_read_began_where_others_ran(self) -> None:
        """Two at a time in one of two seconds; who begins them sleeps in the other one."""
        run = LookedRun()
        for _ in range(10):
            run.look(Did(1, SLEEP, run=0.1), unread=1.9, has_total=False).look()
        assert run.parts == {"on_cpu": 50.0, "sleep": 50.0}

    def test_what_is_counted_late_fills_the_stretch_before(self) -> None:
        run = LookedRun()
        for _ in range(10):
            run.look(Did(1, None, run=0.92)).look(Did(1, None, run=1.08))
        assert run.parts == {"on_cpu": 100.0}

    def test_throttled_time_is_counted_at_its_end(self) -> None:
        """50 of 100 ms are throttled, and counted in the 30 ms before the last look."""
        run = LookedRun(cpus=1, interval=0.1)
        for number in range(100):
            before, now = (
                CpuPressure(cpu_stat=b"throttled_time %d\n" % (periods * seconds(0.05)))
                for periods in (number, number + 1)
            )
            run.look(
                Did(1, CHILD, 0.0001), length=0.07, pressure=before, unread=0.05, has_total=False
            )
            run.look(Did(1, CHILD, 0.0001), length=0.03, pressure=now)
        assert run.parts["waiting_for_cpu"] == pytest.approx(50, abs=0.5)
        assert run.parts.get("child", 0) < 0.5

    def test_a_look_that_misses_the_child_for_which_a_thread_waits_says_nothing(self) -> None:
        """The child ends while the look goes on: these looks find nothing that can run."""
        run = LookedRun(cpus=1)
        for number in range(20):
            misses = bool(number % 2)
            child = [] if misses else [Did(100 + number, None, process=2)]
            run.look(Did(1, CHILD, run=0.01), *child, unread=0.4, misses_child=misses)
        assert run.parts == {"on_cpu": 41.0, "waiting_for_cpu": 59.0}

    @pytest.mark.parametrize("last", [[], [Did(1, CHILD, 0.001)]])
    def test_jobs_that_could_run_until_the_end_ran_as_before(self, last: list[Did]) -> None:
        """Two jobs at a time of make; those that end last are not read any more, nor are their
        waits. What found them last says what they did.
        """
        run = LookedRun()
        jobs = [Did(job, None, run=0.1, wait=0.1, process=job) for job in (2, 3)]
        run.look(Did(1, CHILD, 0.001), *jobs, length=0.2)
        for _ in range(20):
            run.look(*jobs, length=0.2)
        run.look(*last, length=0.4, ended=(1, 2, 3), have_all_ended=True, unread=0.4)
        assert run.parts.get("child", 0) < 0.5
        assert run.parts["on_cpu"] == pytest.approx(100, abs=0.5)

    @pytest.mark.parametrize("last", [NETWORK, SLEEP, DISK])
    def test_a_wait_that_nobody_saw_again_before_the_end_went_on(self, last: BlockedThread) -> None:
        run = LookedRun().look(Did(1, CHILD, 0.5), length=9).look(Did(1, last, 0.001))
        run.look(ended=(1,), have_all_ended=True, length=1)
        assert run.parts[last.wait.kind] == pytest.approx(100 * 2 / 11, abs=0.5)

    def test_what_the_looks_left_at_the_end_is_not_all_of_the_last_one(self) -> None:
        """Each stands for 0.2 s, and blocked time of 0.4 s was left: by chance, the last one finds
        the shorter of two waits that take turns.
        """
        run = LookedRun()
        for turn in range(9):
            part_ns = seconds(0.2)
            for number in range(5):
                blocked = DISK if number == 4 or turn == 8 else NETWORK
                run.look(Did(1, blocked, 0.00001), length=0.21, part_ns=part_ns)
                if turn == 8:
                    break
        assert run.parts["disk"] == pytest.approx(20, abs=2.5)

    @pytest.mark.parametrize("running", [0, 0.2])
    def test_after_the_last_thread_has_ended_time_is_no_threads(self, running: float) -> None:
        """The main process waits for somebody to reap it, and is looked at."""
        run = LookedRun()
        for _ in range(10):
            run.look(Did(1, CHILD, running))
        run.look(ended=(1,), have_all_ended=True)
        parts = run.parts
        for _ in range(5):
            run.look(ended=(1,), have_all_ended=True)
        assert run.parts == parts
        covered_percent = run.record(duration=16).time_breakdown.covered_percent
        assert covered_percent == pytest.approx(100 * 11 / 16, abs=0.1)
        run.look(Did(9, SLEEP, 0.001), length=0.5)  # the container is started again
        assert run.parts["sleep"] > 3

    def test_what_finds_no_room_was_counted_early(self) -> None:
        run = LookedRun(cpus=1)
        for _ in range(10):
            run.look(Did(1, CHILD, run=0.01), unread=1.03).look(
                Did(1, CHILD, run=0.01), unread=0.95
            )
        assert run.parts["on_cpu"] == pytest.approx(100, abs=0.2)

    def test_a_thread_that_could_run_and_has_not_run_since_waits_all_the_time(self) -> None:
        """Its wait is counted when it is over, and fits into that stretch, too."""
        run = LookedRun(cpus=1)
        for _ in range(10):
            run.look(Did(1, None, run=0.7), length=0.7).look(length=0.3)
            run.look(Did(1, SLEEP, run=0.1, wait=0.3), length=1)
        assert run.parts == {"on_cpu": 40.0, "waiting_for_cpu": 15.0, "sleep": 45.0}

    def test_a_program_under_a_quota_can_run_all_the_time(self) -> None:
        """25 of 100 ms run. What a look finds counted ends where the last wait has ended."""
        run = LookedRun(cpus=1, interval=0.25)
        at = ran = counted = 0.0
        for number in range(1, 400):
            length = (0.031, 0.081, 0.024, 0.093)[number % 4]
            at += length
            periods, within = divmod(at, 0.1)
            run_before, ran = ran, 0.025 * periods + min(within, 0.025)
            known_before, counted = counted, 0.1 * periods + min(within, 0.025)
            run_now, wait_now = ran - run_before, counted - known_before - ran + run_before
            did = Did(1, None, run=run_now, wait=max(wait_now, 0))
            run.look(*[did] * (run_now + wait_now > 1e-6), length=length)
        assert run.parts["on_cpu"] == pytest.approx(25, abs=0.5)
        assert run.parts["waiting_for_cpu"] == pytest.approx(75, abs=0.5)


@pytest.mark.parametrize("length", [0.4, 1.0, 10.0])
@pytest.mark.parametrize("parts", [(0.25, 0.25), (0.0, 1.0), (0.5, 0.125)])
def test_parts_of_many_threads_are_added_as_one_after_the_other(
    parts: tuple[float, float], length: float
) -> None:
    times_ns = [(seconds(run), seconds(run % 0.7)) for run in (0.1, 2.0, 0.0, 0.75)]
    together, in_turn = (Stretch(0, seconds(length), 4) for _ in range(2))
    together.add_parts_of_threads(times_ns, *parts)
    for run_ns, wait_ns in times_ns:
        in_turn.add_thread_time(round(parts[0] * run_ns), round(parts[1] * wait_ns))
    for name in ("run_ns", "wait_ns", "longest_ns"):
        assert getattr(together, name) == pytest.approx(getattr(in_turn, name), abs=4)


class TestDidAnythingRun:
    """Question 2."""

    def test_on_one_cpu_it_is_the_sum(self) -> None:
        run = LookedRun(cpus=1).look(Did(1, SLEEP, run=0.3, wait=0.3), Did(2, SLEEP, run=0.3))
        assert run.parts == {"on_cpu": 60.0, "sleep": 40.0}

    def test_a_wait_while_another_thread_runs_is_no_wait(self) -> None:
        """Two threads compress on one CPU: each waits while the other one runs."""
        run = LookedRun(cpus=1)
        for _ in range(10):
            run.look(Did(1, NETWORK, run=0.15, wait=0.15), Did(2, NETWORK, run=0.15, wait=0.15))
        assert run.parts == {"on_cpu": 30.0, "network": 70.0}

    @pytest.mark.parametrize(
        ("loses_cpu_time", "waited", "on_cpu"),
        [(False, 0.1, 10), (True, 0.1, 50), (True, 0.3, 25), (True, 0, 100)],
    )
    def test_threads_of_which_nobody_knows_for_how_long_they_ran(
        self, waited: float, on_cpu: float, *, loses_cpu_time: bool
    ) -> None:
        """Children whose parent ignores their ends: after a look that found one able to run, it
        ran and waited as those did that were read.
        """
        run = LookedRun(cpus=1)
        run.account.loses_cpu_time = loses_cpu_time
        for number in range(1, 60):
            run.look(Did(number, None, run=0.1, wait=waited), ended=(number - 1,))
        assert run.parts["on_cpu"] == pytest.approx(on_cpu, abs=2)
        busy = run.parts["on_cpu"] + run.parts.get("waiting_for_cpu", 0)
        assert busy == pytest.approx(100, abs=2)

    def test_what_looks_read_of_ended_processes_does_not_count_once_more(self) -> None:
        """No parent has their CPU time, and the task stats have all of it."""
        run = LookedRun(cpus=1)
        for number in range(1, 9):
            run.look(Did(number, None, run=0.2), ended=(number - 1,), has_total=False)
            at_ns = START_NS + seconds(run.at)
            run.account.add_total(at_ns, 0, seconds(0.2) if number > 1 else 0)
        run.account.add_unread(seconds(3), START_NS)
        assert run.parts["on_cpu"] == pytest.approx(100 * (3 + 0.2 + 0.05) / 8, abs=0.5)

    def test_never_more_than_the_time_in_which_anything_could_run(self) -> None:
        run = LookedRun().look(Did(1, SLEEP, run=0.25), Did(2, SLEEP, run=0.25))
        assert run.parts == {"on_cpu": 25.0, "sleep": 75.0}

    def test_a_wait_that_ends_belongs_to_the_steps_in_which_the_thread_waited(self) -> None:
        run = LookedRun().look(Did(1, NETWORK)).look().look().look(Did(1, NETWORK, 0.5, 2.5))
        assert run.parts == {"on_cpu": 12.5, "waiting_for_cpu": 62.5, "network": 25.0}

    def test_a_wait_that_the_kernel_invents_for_one_of_many_threads_does_not_count(self) -> None:
        herd = [Did(number, SLEEP, 0.0001, 0.02) for number in range(2, 300)]
        run = LookedRun().look(Did(1, SLEEP, 0.0001, 0.9), *herd)
        assert run.parts["on_cpu"] + run.parts.get("waiting_for_cpu", 0) < 4


class TestWhoseWaitHeldTheRunBack:
    """Question 3."""

    def in_turns(
        self, other: BlockedThread, work: BlockedThread = SLEEP, **parents: Any
    ) -> LookedRun:
        """A thread that computes and waits, beside another one that never runs again."""
        run = LookedRun(**parents).look(Did(1, work, 0.3), Did(2, other, 0.0001))
        for _ in range(20):
            run.look(Did(1, work, 0.3))
        return run

    @pytest.mark.parametrize("other", [NETWORK, DISK, LISTENS, IDLE])
    def test_who_never_runs_decides_nothing(self, other: BlockedThread) -> None:
        parts = self.in_turns(other).parts
        assert parts["sleep"] == pytest.approx(70, abs=0.2)

    def test_a_heartbeat_weighs_what_it_runs(self) -> None:
        run = LookedRun()
        for _ in range(30):
            run.look(Did(1, NETWORK, 0.2), Did(2, SLEEP, 0.0001))
        assert run.parts["network"] == pytest.approx(80, abs=0.2)

    def test_equal_threads_share_the_time(self) -> None:
        run = LookedRun()
        for _ in range(10):
            threads = [Did(number, NETWORK, 0.01) for number in range(14)]
            run.look(*threads, Did(20, DISK, 0.01), Did(21, DISK, 0.01))
        made = run.breakdown
        assert (made.network_percent or 0) / (made.disk_percent or 1) == pytest.approx(7, abs=0.1)

    def test_what_a_thread_runs_next_counts_if_it_is_more(self) -> None:
        run = LookedRun().look(Did(1, NETWORK, 0.001), Did(2, SLEEP, 0.001))
        run.look(Did(2, SLEEP, 0.001)).look(Did(1, NETWORK, 0.9), Did(2, SLEEP, 0.001))
        run.look(Did(1, NETWORK, 0.9), Did(2, SLEEP, 0.001))
        assert run.parts.get("sleep", 0) < 0.2

    @pytest.mark.parametrize("woken", [TIMED_FUTEX, None])
    def test_who_is_woken_before_a_timeout_waited_for_who_works(
        self, woken: BlockedThread | None
    ) -> None:
        """It may be seen when it runs, or when it waits again. Each task is done by a thread that
        begins to wait after the one for which it does it.
        """
        run = LookedRun()
        for _ in range(10):
            run.look(Did(1, woken, 0.1, was_woken=True), Did(2, LOCK, 0.1), length=0.1)
            run.look(Did(1, TIMED_FUTEX, 0.05), Did(2, LOCK), length=0.05)
            run.look(Did(2, NETWORK, 0.05), length=0.5).look(length=0.5)
        assert run.parts["network"] > 75
        assert run.parts.get("sleep", 0) < 8  # the last wait is not over

    def test_who_is_asked_again_in_the_same_wait_was_not_woken(self) -> None:
        """The wall clock places the end of the wait a little elsewhere each time."""
        run = LookedRun()
        for number in range(10):
            blocked = replace(TIMED_FUTEX, until_ns=seconds(60) + number)
            run.look(Did(1, blocked, was_woken=number > 0))
        assert run.parts == {"sleep": 100.0}

    def test_who_is_asked_again_in_the_same_wait_may_be_woken_later(self) -> None:
        run = LookedRun()
        for number in range(20):
            blocked = replace(TIMED_FUTEX, until_ns=seconds(60) + number)
            run.look(Did(1, blocked, 0.1, was_woken=True), Did(2, NETWORK, 0.01), length=0.2)
            asked_again = replace(blocked, until_ns=seconds(61) + number)
            run.look(Did(1, asked_again), Did(2, NETWORK, 0.01), length=0.8)
        assert run.parts.get("sleep", 0) < 8  # the last wait is not over

    def test_the_work_of_other_threads_is_not_that_of_one_which_waits_for_a_task(self) -> None:
        """As those of a virtual machine that compile or collect garbage."""
        run = LookedRun({1: 0, 2: 1}).look(Did(3, LOCK, 0.001, process=2))
        for _ in range(5):
            run.look(Did(2, None, 1, process=2))
        run.look(Did(3, LOCK, 0.001, process=2), ended=[2])
        for _ in range(20):
            run.look(Did(1, SLEEP, 0.3))
        assert run.parts.get("lock", 0) < 10

    @pytest.mark.parametrize("gap", [0, 5])
    def test_readings_in_which_no_thread_has_its_turn_are_kept_as_one(self, gap: float) -> None:
        """The same as if each was added alone, as when the time so far is asked."""
        runs = [LookedRun(points=40), LookedRun(points=40)]
        for is_asked, run in enumerate(runs):
            nothing = ThreadsLook(is_behind=True, is_nobodys_turn=True, peeks=5, able_peeks=2)
            for number in range(4):
                threads = [Did(1, HIDDEN, 0.2), Did(2, HIDDEN, 0.2)]
                run.look(*threads, sees_calls=False)
                for _ in range(6):
                    run.at += 1 + gap * (number == 1)
                    run.account.add_look(START_NS + seconds(run.at), nothing, run.series)
                    if is_asked:
                        run.account.breakdown_so_far()
        merged, alone = runs
        assert merged.breakdown == alone.breakdown
        assert merged.breakdown.covered_percent == pytest.approx(100 if not gap else 53.4, abs=0.1)
        merged.account.pass_cpu_waits_on(merged.series)
        alone.account.pass_cpu_waits_on(alone.series)
        assert present(merged.series).series_so_far() == present(alone.series).series_so_far()

    def test_a_look_that_finds_a_thread_able_to_run_says_nothing(self) -> None:
        run = LookedRun().look(Did(1, SLEEP, 0.2), Did(2, NETWORK, 0.2))
        for _ in range(10):
            run.look(Did(1, None, 0.2)).look(Did(1, SLEEP, 0.2), Did(2, SLEEP, 0.2))
        assert run.parts.get("network", 0) <= 6

    def test_a_look_that_leaves_out_a_thread_able_to_run_says_nothing(self) -> None:
        run = LookedRun().look(Did(1, NETWORK, 0.2), Did(2, SLEEP))
        for _ in range(10):
            run.look(Did(1, None, 0.2)).look(is_behind=True).look(Did(1, NETWORK, 0.2))
        assert "sleep" not in run.parts

    @pytest.mark.parametrize(
        ("has_timeout", "is_late", "kind"),
        [(True, False, "sleep"), (True, True, "sleep"), (False, False, "network")],
    )
    def test_who_is_woken_by_a_loop_that_has_waited_several_times(
        self, *, has_timeout: bool, is_late: bool, kind: str
    ) -> None:
        """A runtime of Rust beside a listener: one thread waits for the others' timers and
        connections, and wakes the first thread for the work, which may wait for a CPU.
        """
        loop = Did(2, replace(LISTENS, has_timeout=has_timeout), run=0.0001)
        run = LookedRun().look(Did(1, LOCK, run=0.5), loop)
        for _ in range(4):
            run.look(length=0.5).look(loop, length=0.5)
            work = Did(1, LOCK, run=0.3)
            if is_late:
                run.look(loop, length=0.5).look(work, length=0.4)
            else:
                run.look(loop, work, length=0.9)
        run.look(loop, Did(1, None, run=0.1), length=0.1)
        assert set(run.parts) == {"on_cpu", kind}

    @pytest.mark.parametrize("is_asked", [True, False], ids=["could run", "not asked"])
    def test_a_pool_of_which_only_the_free_workers_were_read_says_nothing(
        self, *, is_asked: bool
    ) -> None:
        """Two processes of a server ask a database. One is free, and polls the first process; the
        other one has run since it was asked, and too many threads are left to ask it again.
        """
        leads, free = pipe_to(2, 3), replace(pipe_to(1), has_timeout=True)
        run = LookedRun({1: 0, 2: 1, 3: 1})
        for _ in range(10):
            run.look(
                Did(1, leads, 0.001),
                Did(2, NETWORK, 0.05, process=2),
                Did(3, NETWORK, 0.05, process=3),
            )
            ran = ThreadTimeGrowth(seconds(0.1), 0, thread=3, process=3, span_ns=seconds(1))
            run.look(
                Did(2, free, 0.1, process=2),
                *[Did(3, None, 0.1, process=3)] * is_asked,
                growth=() if is_asked else [ran],
                is_behind=True,
            )
            for _ in range(2):
                run.look(Did(4, LOCK, 0.0001, process=2), is_behind=True)
        assert run.parts.keys() == {"on_cpu", "network"}

    def test_a_wait_that_is_over_at_the_end_of_its_first_look_counts_nowhere(self) -> None:
        """A thread is asked, and can run when its state is read at the end of the look."""
        run = LookedRun()
        for _ in range(20):
            run.look(Did(1, DISK, 0.01), Did(1, None), length=0.01)
            run.look(Did(1, NETWORK, 0.01))
        assert run.parts.get("disk", 0) == 0
        assert run.parts["network"] > 95

    def test_a_run_without_any_other_look_takes_any(self) -> None:
        run = LookedRun()
        for _ in range(5):
            run.look(Did(1, None, 0.1), Did(2, NETWORK, 0.1))
        assert set(run.parts) <= {"on_cpu", "network", "waiting_for_cpu"}


def _polls_after(number: int, row: int) -> BlockedThread:
    """A poll, with as much as has come by then."""
    received_bytes = 100 + 10 * number + row
    return replace(POLL, connections=(replace(CONNECTION, received_bytes=received_bytes),))


class TestWhatDidItWaitFor:
    """Question 4."""

    def test_a_server_to_which_nobody_comes_waits_for_the_network(self) -> None:
        run = LookedRun({1: 0, 2: 1}).look(Did(1, CHILD, 0.01), Did(2, LISTENS, 0.1, process=2))
        for _ in range(5):
            run.look()
        assert run.parts["network"] > 90

    def test_rows_that_come_are_what_the_program_waits_for(self) -> None:
        run = LookedRun().look(Did(1, IDLE, 0.01), Did(2, SLEEP, 0.0001))
        for _ in range(10):
            run.look(Did(1, IDLE, 0.01, came=(True,)))
        assert run.parts["network"] > 95
        assert run.targets["10.0.3.9:5432"] > 95

    @pytest.mark.parametrize("blocked_again", [True, False])
    def test_a_client_that_polls_waits_for_the_answer_until_it_comes(
        self,
        blocked_again: bool,  # noqa: FBT001
    ) -> None:
        """As one that lets a signal end its wait, beside another thread's timer. When the answer
        has come, it may be seen as it works.
        """
        answered = Did(1, POLL, 0.3, came=(True,))
        run = LookedRun().look(Did(1, POLL, 0.3), Did(2, SLEEP, 0.01))
        for _ in range(10):
            for _ in range(4):
                run.look(Did(1, POLL, 0.0001, came=(False,)), Did(2, SLEEP, 0.0001))
            if blocked_again:
                run.look(answered)
            else:
                run.look(Did(1, None, 0.01, came=(True,))).look(Did(1, POLL, 0.3))
        assert run.parts.get("sleep", 0) < 1
        assert run.parts["network"] > 80

    def test_a_client_that_polls_for_what_does_not_come_decides_nothing(self) -> None:
        run = LookedRun().look(Did(1, POLL, 0.3), Did(2, SLEEP, 0.01))
        for _ in range(700):
            run.look(Did(1, POLL, 0.0001, came=(False,)), Did(2, SLEEP, 0.3))
        assert run.parts["sleep"] > 65
        assert run.parts.get("network", 0) < 1

    def test_a_loop_that_looks_again_and_again_whether_its_timer_is_due_sleeps(self) -> None:
        """As tokio does, beside a connection that is kept, and a thread that waits for the loop."""
        run = LookedRun().look(Did(1, POLL, 0.3), Did(2, LOCK, 0.05))
        for _ in range(10):
            for _ in range(4):
                run.look(Did(1, POLL, 0.0001, came=(False,)))
            run.look(Did(1, POLL, 0.3, came=(False,)))
        assert run.parts["sleep"] > 80

    def test_a_poll_goes_on_while_another_thread_asks_on_the_connection(self) -> None:
        """As a selector, whose answers a pool computes with: only the end says what came."""
        asked = replace(POLL, connections=(replace(CONNECTION, owes=True),))
        run = LookedRun().look(Did(1, POLL, 0.01), Did(2, LOCK, 0.3))
        for _ in range(10):
            for _ in range(3):
                run.look()
            run.look(Did(1, asked, 0.0001, came=(False,)))
            run.look(Did(1, POLL, 0.0001, came=(True,)), Did(2, LOCK, 0.3))
        assert run.parts["network"] > 80
        assert run.parts.get("lock", 0) < 3

    @pytest.mark.parametrize(
        ("timed_out", "user_seconds", "sleep"),
        [(False, 0.1, 50), (True, 0.1, 0), (True, 0.0005, 50), (None, 0.0005, 0)],
        ids=["woken", "its user asked", "due", "unclear"],
    )
    def test_a_poll_does_not_go_on_after_it_was_woken_or_its_timer_was_due_to_ask(
        self,
        timed_out: bool | None,  # noqa: FBT001
        user_seconds: float,
        sleep: float,
    ) -> None:
        """As that of an HTTP client of Java, whose user has slept, or a loop with a timer. If the
        user has worked, it may have asked.
        """
        poll = replace(POLL, until_ns=seconds(1000))
        asked = replace(poll, connections=(replace(CONNECTION, owes=True),))
        run = LookedRun().look(Did(1, poll, 0.0005), Did(2, TIMED_FUTEX, 0.1))
        for _ in range(20):
            run.look()
            ended = Did(1, asked, 0.0005, came=(False,), timed_out=timed_out)
            run.look(ended, Did(2, LOCK, user_seconds)).look()
            run.look(Did(1, poll, 0.0005, came=(True,)), Did(2, TIMED_FUTEX, 0.1))
        blocked = 100 - run.parts["on_cpu"]
        assert 100 * run.parts.get("sleep", 0) / blocked == pytest.approx(sleep, abs=5), run.parts

    def test_who_is_seen_to_run_as_its_process_dies_has_woken_nobody(self) -> None:
        """A lock that nobody releases, beside a subscriber to whom nobody writes."""
        for dying in ((), (Did(1, None, 0.0001), Did(2, None, 0.0001))):
            run = LookedRun().look(Did(1, LOCK, 0.3), Did(2, IDLE, 0.01))
            for _ in range(5):
                run.look()
            run.look(*dying).look(ended=(1, 2))
            assert run.parts.get("network", 0) < 1, dying
            assert run.parts["lock"] > 80, dying

    def test_nor_has_who_dies_later_than_the_thread_beside_it(self) -> None:
        run = LookedRun().look(Did(1, LOCK, 0.3), Did(2, IDLE, 0.01))
        for _ in range(5):
            run.look()
        run.look(Did(2, None), ended=(1,)).look(Did(2, None)).look().look(ended=(2,))
        assert run.parts.get("network", 0) < 1
        assert run.parts["lock"] > 50

    def test_each_poll_counts_by_itself_where_nobody_knows_whether_something_came(self) -> None:
        run = LookedRun().look(Did(1, POLL, 0.3), Did(2, SLEEP, 0.01))
        for _ in range(100):
            run.look(Did(1, POLL, 0.0001, came=(None,)), Did(2, SLEEP, 0.3))
        assert run.parts["sleep"] > 65
        assert run.parts["network"] < 1

    @pytest.mark.parametrize("timed_out", [True, None])
    def test_a_loop_whose_timer_ends_the_poll_before_its_work_sleeps(
        self,
        timed_out: bool | None,  # noqa: FBT001
    ) -> None:
        """Rows that it only looks at come meanwhile; where one may have ended the poll, too, none
        has brought work before.
        """
        run = LookedRun().look(Did(1, POLL, 0.3))
        for number in range(10):
            for row in range(2):
                run.look(Did(1, _polls_after(number, row), 0.0005, came=(True,)))
            run.look(Did(1, POLL, 0.3, came=(True,), timed_out=timed_out))
        assert run.parts["sleep"] > 85
        assert run.parts.get("network", 0) < 5

    @pytest.mark.parametrize("timed_out", [False, None])
    def test_a_loop_that_works_with_rows_waits_for_them_beside_a_timer(
        self,
        timed_out: bool | None,  # noqa: FBT001
    ) -> None:
        run = LookedRun().look(Did(1, POLL, 0.3))
        for number in range(10):
            for turn in range(2):
                polls = _polls_after(number, turn)
                run.look(Did(1, polls, 0.0001, came=(False,), timed_out=True))
            run.look(Did(1, POLL, 0.3, came=(True,), timed_out=timed_out))
        assert run.parts["network"] > 85
        assert run.parts.get("sleep", 0) < 5

    def test_what_may_have_ended_a_poll_is_not_guessed(self) -> None:
        """The next look that knows it says it."""
        for timed_out, kind in ((True, "sleep"), (False, "network")):
            run = LookedRun().look(Did(1, POLL, 0.3))
            for _ in range(5):
                run.look(Did(1, POLL, 0.3, came=(True,), timed_out=None))
            run.look(Did(1, SLEEP, 0.3, came=(True,), timed_out=timed_out))
            assert ("network" in run.parts) == (kind == "network")
            assert run.parts[kind] > 25, kind

    def test_the_last_wait_of_a_loop_is_for_what_it_was_before(self) -> None:
        """The end of its process cuts it off; but it waits for an answer that is owed."""
        asked = replace(POLL, connections=(replace(CONNECTION, owes=True),))
        for last, kind in ((POLL, "sleep"), (asked, "network")):
            run = LookedRun().look(Did(1, POLL, 0.3))
            for _ in range(2):
                run.look(Did(1, POLL, 0.3, came=(True,), timed_out=True))
            run.look(Did(1, last, 0.3, came=(True,), timed_out=True))
            for _ in range(9):
                run.look()
            run.look(Did(1, None, 0.0001, came=(True,))).look(ended=(1,))
            assert run.parts[kind] > 60, kind

    def test_rows_with_which_a_loop_works_more_than_after_its_timer(self) -> None:
        """Little with each, but of many."""
        run = LookedRun().look(Did(1, POLL, 0.3))
        for number in range(4):
            for row in range(10):
                run.look(Did(1, _polls_after(number, row), 0.0025, came=(True,)))
            run.look(Did(1, POLL, 0.01, came=(True,), timed_out=True))
        assert run.parts["network"] > 85

    def test_a_connection_that_is_kept_is_not(self) -> None:
        run = LookedRun().look(Did(1, SLEEP, 0.01), Did(2, IDLE, 0.3))
        for _ in range(10):
            run.look(Did(1, SLEEP, 0.01))
        assert run.parts["sleep"] > 80

    def test_waits_of_unknown_kind_are_other(self) -> None:
        run = LookedRun().look(Did(1, HIDDEN, 0.5), sees_calls=False)
        known = {name for name, value in all_parts(run.breakdown).items() if value is not None}
        assert known == {"on_cpu", "waiting_for_cpu", "disk", "other"}
        assert run.breakdown.waiting_for == ()
        run = LookedRun()
        for _ in range(10):
            run.look(Did(1, NETWORK, 0.1))
        assert run.look(Did(1, HIDDEN, 0.01), length=0.1).breakdown.network_percent is not None
        assert run.look(Did(1, HIDDEN, 0.1)).breakdown.network_percent is None

    def test_a_run_that_is_stopped_is_stopped_and_a_sentence_says_so(self) -> None:
        run = LookedRun().look(Did(1, SLEEP, 0.01))
        run.look(Did(1, STOPPED, 0.001)).look().look().look(Did(1, SLEEP, 0.001))
        assert run.targets == {"stopped": pytest.approx(60, abs=1)}
        assert run.breakdown.covered_percent == 100
        record = run.record(duration=5)
        assert "was stopped for 3.0 s (Ctrl-Z" in wait_warnings(record)[0]

    @pytest.mark.parametrize("is_asked", [False, True], ids=["at the end", "and meanwhile"])
    def test_a_stop_that_is_seen_later_began_with_the_wait(self, *, is_asked: bool) -> None:
        run = LookedRun().look(Did(1, SLEEP, 0.001)).look(Did(1, SLEEP, 0.001))
        if is_asked:
            assert run.targets == {}
        run.look(Did(1, STOPPED, is_correction=True)).look().look(Did(1, SLEEP, 0.001))
        assert run.targets == {"stopped": pytest.approx(60, abs=1)}

    def test_a_stop_that_begins_later_did_not_begin_with_the_wait(self) -> None:
        run = LookedRun().look(Did(1, SLEEP, 0.001)).look(Did(1, SLEEP, 0.001))
        run.look(Did(1, STOPPED, 0.001)).look().look(Did(1, SLEEP, 0.001))
        assert run.targets == {"stopped": pytest.approx(40, abs=1)}

    def test_a_stop_is_shown_without_system_calls_too(self) -> None:
        run = LookedRun().look(Did(1, HIDDEN, 0.01), sees_calls=False)
        run.look(Did(1, STOPPED, 0.001), sees_calls=False)
        for _ in range(2):
            run.look(sees_calls=False)
        run.look(Did(1, HIDDEN, 0.001), sees_calls=False)
        assert run.targets == {"stopped": pytest.approx(60, abs=1)}
        assert run.breakdown.network_percent is None

    def test_a_stop_of_this_process_too_is_covered_time(self) -> None:
        run = LookedRun().look(Did(1, SLEEP, 0.01))
        run.account.add_stopped(START_NS + seconds(2), START_NS + seconds(8))
        run.at = 8
        run.look(Did(1, SLEEP, 0.01))
        run.look(Did(1, SLEEP, 0.01))
        assert run.targets["stopped"] == pytest.approx(60, abs=0.5)
        assert run.breakdown.covered_percent == 100
        assert run.parts["sleep"] > 38

    def test_a_wait_for_memory_is_no_disk(self) -> None:
        run = LookedRun().look(Did(1, MEMORY, 0.1)).look()
        assert run.parts == {"on_cpu": 5.0, "other": 95.0}
        assert run.targets == {"memory": 95.0}


def test_a_look_is_settled_when_all_have_run_again_or_after_a_minute() -> None:
    run = LookedRun()
    for _ in range(10):
        run.look(Did(1, SLEEP, 0.1))
    assert len(run.account._open) <= 2
    run.look(Did(1, SLEEP, 0.1), Did(2, LISTENS, 0.0001))
    for _ in range(200):
        run.look(Did(1, SLEEP, 0.1))
    assert 58 <= len(run.account._open) <= 62
    assert run.parts["sleep"] == pytest.approx(90, abs=0.2)


def test_equal_looks_in_a_row_are_kept_as_one() -> None:
    run = LookedRun().look(Did(1, SLEEP, 0.1), Did(2, LISTENS))
    for _ in range(50):
        run.look()
    assert len(run.account._open) <= 3
    assert run.parts["sleep"] > 99


@pytest.mark.slow
def test_memory_is_flat() -> None:
    run = LookedRun()
    chance = random.Random(1)
    for number in range(1200):
        threads = [Did(chance.randrange(1000), SLEEP, 0.001) for _ in range(30)]
        run.look(*{each.thread: each for each in threads}.values(), Did(5000 + number, SLEEP, 0.01))
        run.look(ended=[5000 + number])
    account = run.account
    assert len(account._open) <= 512
    assert account._open_waits <= 10_100
    assert len(account._threads._threads) <= 1001
    assert len(account._head) <= 1001


class Gpus(Struct):
    """GPUs that were idle from the second 1 to the second 3.5, in seconds of the run."""

    known_until: float | None = 1000

    def idle_ns(self, start_ns: int, end_ns: int) -> int:
        first, last = START_NS + seconds(1), START_NS + seconds(3.5)
        return max(min(end_ns, last) - max(start_ns, first), 0)

    def known_until_ns(self) -> int | None:
        return None if self.known_until is None else START_NS + seconds(self.known_until)


def run_beside(gpus: Gpus) -> LookedRun:
    run = LookedRun()
    run.account = TimeAccount(START_NS, seconds(1), gpus)
    run.look(Did(1, NETWORK, 0.0001)).look(Did(1, DISK, 0.0001))
    return run.look(Did(1, DISK, 0.5)).look(Did(1, NETWORK, 0.0001, 0.999))


def idle_parts(run: LookedRun, first: float, last: float) -> tuple[TimeBreakdown, TimeBreakdown]:
    """What a run did while its GPUs were idle, by when they worked, in seconds of the run."""
    divide = present(run.account.activity_so_far(None, 0).idle_parts)
    return divide(START_NS + seconds(first), START_NS + seconds(last))


def test_the_idle_time_of_gpus_is_divided_before_their_work_and_between() -> None:
    before, between = idle_parts(run_beside(Gpus()), 1, 4)
    assert (between.on_cpu_percent, between.waiting_for_cpu_percent) == (20.0, 20.0)
    assert between.disk_percent == 60.0
    assert before is NO_BREAKDOWN
    before, between = idle_parts(run_beside(Gpus()), 3, 4)
    assert (before.on_cpu_percent, before.disk_percent) == (25.0, 75.0)
    assert between.waiting_for_cpu_percent == 99.9


def test_without_gpus_no_idle_time_is_divided() -> None:
    assert idle_parts(LookedRun().look(Did(1, NETWORK)), 1, 4) == (NO_BREAKDOWN, NO_BREAKDOWN)


def test_a_look_waits_until_the_work_of_the_gpus_is_known_for_a_minute_at_most() -> None:
    gpus = Gpus(known_until=2)
    run = run_beside(gpus)
    for _ in range(40):
        run.look(Did(1, DISK, 0.0001))
    run.account.pass_cpu_waits_on(None)
    settled_ns = run.account._open[0].stretch.end_ns
    assert settled_ns == START_NS + seconds(3)
    for _ in range(40):
        run.look(Did(1, DISK, 0.0001))
    run.account.pass_cpu_waits_on(None)
    assert run.account._open[0].stretch.end_ns > START_NS + seconds(20)


def test_the_places_of_a_long_run_are_of_a_bounded_number() -> None:
    places = IdleTimeByPlace(0)
    for at in range(3000):
        stretch = Stretch(seconds(at), seconds(at + 1), run_ns=seconds(0.5))
        places.add_stretch(stretch, seconds(1), 1.0, 1.0)
        places.divide_among_waits(stretch, 1.0, {DISK.wait if at < 1500 else NETWORK.wait: 1.0})
    assert 24 <= len(places.places) <= 48
    before, between = places.idle_parts_before_and_between(seconds(1500), seconds(3000))
    disk = present(
        present(before).percent_breakdown(sees_calls=True, has_waits=False, duration_ns=None)
    )
    network = present(
        present(between).percent_breakdown(sees_calls=True, has_waits=False, duration_ns=None)
    )
    assert (disk.disk_percent, network.network_percent) == (50.0, 50.0)


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
    run = LookedRun().look(growth=[ThreadTimeGrowth(seconds(read), seconds(waited))])
    run.cpu = used
    record = run.record(sampling=Sampling())
    assert present(record.sampling).cpu_wait_covered_percent == covered
    start = "The time waiting for a CPU is a lower bound: threads ended before"
    expected = () if warned is None else (f"{start} {warned} of the CPU time was read.",)
    assert wait_warnings(record) == expected
    assert run.record().sampling == NOT_SAMPLED


def test_a_kernel_without_counters() -> None:
    run = LookedRun(cpus=1).look(Did(1, NETWORK), growth=None, unread=0.25)
    assert run.breakdown.waiting_for_cpu_percent is None
    assert run.breakdown.network_percent == 75.0
    assert run.record().metrics == Metrics()
    assert LookedRun().record().time_breakdown == NO_BREAKDOWN  # without a look
    assert LookedRun(is_new=False).look(Did(1, NETWORK)).record().time_breakdown == NO_BREAKDOWN


def test_a_run_that_was_found_later_has_a_first_look_that_stands_for_no_time() -> None:
    run = LookedRun(is_new=False).look(Did(1, SLEEP, run=0.1)).look(Did(1, None, run=0.3))
    assert run.parts == {"on_cpu": 30.0, "sleep": 70.0}


def test_a_gap_is_covered_for_1_5_intervals_and_what_is_not_is_unknown() -> None:
    run = LookedRun().look(Did(1, NETWORK, 0.0001)).look(Did(1, FILE_LOCK, 0.0001), length=9)
    assert run.breakdown.covered_percent == 25.0
    assert run.parts["other"] == pytest.approx(75, abs=0.1)
    run = LookedRun().look(Did(1, NETWORK, 0.0001)).look(Did(1, NETWORK, 0.0001), length=9)
    assert run.breakdown.covered_percent == 25.0  # both ends show the same
    assert run.parts["network"] > 99
    for waits, known in ((NETWORK, "network"), (FILE_LOCK, "other")):  # a look in it found work
        run = LookedRun().look(Did(1, NETWORK, 0.0001)).look(Did(1, None, 0.0001), length=9)
        run.look(Did(1, waits, 0.0001))
        assert run.parts[known] > 60
    made = present(LookedRun().look(Did(1, NETWORK)).record(duration=4).time_breakdown)
    assert made.covered_percent == 25.0  # after the last


def test_a_look_covers_the_readings_for_which_it_stands() -> None:
    run = LookedRun().look(Did(1, HIDDEN, 0.1)).look(Did(1, HIDDEN, 0.4, 0.8), length=4, readings=4)
    assert run.breakdown.covered_percent == 100.0
    assert (run.parts["on_cpu"], run.parts["waiting_for_cpu"]) == (10.0, 16.0)
    late = LookedRun().look(Did(1, HIDDEN, 0.1)).look(Did(1, HIDDEN, 0.4), length=9, readings=4)
    assert late.breakdown.covered_percent == 70.0


@pytest.mark.parametrize("first", [None, SLEEP, LOCK, LISTENS])
def test_what_was_before_the_first_look_is_unknown_whatever_it_finds(
    first: BlockedThread | None,
) -> None:
    """A monitor that begins late."""
    run = LookedRun().look(Did(1, first, 0.0001), length=10)
    for _ in range(9):
        run.look(Did(1, SLEEP, 0.0001))
    assert run.breakdown.covered_percent == pytest.approx(55.3, abs=0.1)
    assert run.parts["other"] == pytest.approx(44.7, abs=0.1)


def test_the_threads_of_a_restarted_container_wait_no_more() -> None:
    run = LookedRun().look(Did(1, NETWORK, 0.3))
    run.account.end_threads()
    for _ in range(10):
        run.look(Did(2, SLEEP, 0.0001))
    assert run.parts["sleep"] > 90


def test_a_lock_beside_a_listener_is_a_lock_though_both_waits_end_with_the_process() -> None:
    run = LookedRun().look(Did(1, LOCK, 1.0), Did(2, LISTENS, 0.001))
    for _ in range(20):
        run.look()
    run.look(Did(1, None, 0.001), ended=(2,))  # the first thread is a zombie
    assert run.parts["lock"] > 90


class TestTheLongestWait:
    def test_a_socket_that_was_closed_before_a_lock_hung_is_not_named(self) -> None:
        run = LookedRun()
        for at in range(300):
            run.look(Did(1, NETWORK if at < 200 else FILE_LOCK, 0.001))
        waits = [run.account.longest_wait(START_NS + seconds(at)) for at in (0, 100, 200, 300)]
        assert waits == [NETWORK.wait, NETWORK.wait, Wait("lock"), None]

    def test_it_is_that_of_the_thread_that_held_the_run_back(self) -> None:
        run = LookedRun().look(Did(1, LOCK, 1.0), Did(2, IDLE, 0.001))
        for _ in range(40):
            run.look()
        assert run.account.longest_wait(START_NS + seconds(2)) == Wait("lock")

    def test_the_threads_at_both_ends_held_the_run_back_and_no_listener(self) -> None:
        """One that works waits for another one of its pool, which has hardly run."""
        run = LookedRun().look(
            Did(1, LOCK, 1.0), Did(2, NETWORK, 0.001), Did(3, LISTENS, 0.5), Did(4, CHILD, 0.001)
        )
        held_back_ns = run.account.held_back_ns()
        assert held_back_ns.keys() == {1, 2, 4}
        assert 0.9e9 < held_back_ns[1] < held_back_ns[2] < 1.1e9
        assert held_back_ns[4] < 0.01e9
        assert LookedRun().look(Did(1, HIDDEN, 0.1), sees_calls=False).account.held_back_ns() == {}

    def test_what_is_not_known_is_not_named(self) -> None:
        assert LookedRun().account.longest_wait(0) is None
        assert LookedRun().look(Did(1, HIDDEN, 0.1)).account.longest_wait(0) is None

    @given(
        st.lists(
            st.tuples(st.floats(0.01, 500), st.sampled_from("abcdefghijklmnopq")), max_size=300
        )
    )
    def test_it_is_kept_in_constant_memory(self, steps: list[tuple[float, str]]) -> None:
        recent, at_ns = RecentWaits(), 0
        for length, peer in steps:
            recent.add_waits(
                at_ns, at_ns + seconds(length), {Wait("network", peer): seconds(length)}
            )
            at_ns += seconds(length)
        assert len(recent._spans) <= 64
        assert all(len(span.waits) <= 16 for span in recent._spans)
        assert bool(steps) == (recent.longest_wait_since(0) is not None)
        assert [span.start_ns for span in recent._spans[1:]] == [
            span.end_ns for span in recent._spans[:-1]
        ]


def test_at_most_eight_targets_and_one_row_for_the_rest() -> None:
    run = LookedRun()
    for number in range(300):
        target = f"/data/{number}" if number % 3 else "/data/large"
        run.look(Did(1, BlockedThread(wait=Wait("disk", target)), 0.0001))
    rows = run.breakdown.waiting_for
    assert rows[0].target == "/data/large"
    assert rows[0].percent == pytest.approx(33.3, abs=1)
    assert len(rows) == 9
    assert (rows[-1].kind, rows[-1].target) == ("other", "other")
    assert sum(row.percent for row in rows) == pytest.approx(100, abs=1)


def test_the_series_has_the_mean_number_of_waiting_threads() -> None:
    run = LookedRun(points=10).look(Did(1, SLEEP, wait=0.5), Did(2, SLEEP, wait=1)).look()
    run.look(Did(1, SLEEP, 0.5, 1))
    run.account.pass_cpu_waits_on(run.series)
    assert present(present(run.series).series_so_far()).cpu_wait == (1.5, 0.5, 0.5)


def test_a_defect_costs_the_division_and_one_sentence() -> None:
    run = LookedRun().look(Did(1, SLEEP, 0.1))
    broken = ThreadTimeGrowth(1, seconds(1), steps=0, thread=1)
    run.look(growth=[broken, ThreadTimeGrowth(1, 1, steps=0)]).look(Did(1, SLEEP, 0.1))
    assert run.record().time_breakdown == NO_BREAKDOWN
    assert "error in the profiler (ZeroDivisionError)" in run.account.defect_warnings[0]
    assert LookedRun().look(Did(1, SLEEP, 0.1)).account.defect_warnings == ()


def test_a_stop_is_not_mentioned_without_one() -> None:
    record = Record(task_id="t", container=Container(name="c"), metrics=Metrics(duration_ms=1.0))
    assert wait_warnings(record) == ()


BLOCKED = st.sampled_from([NETWORK, DISK, SLEEP, LOCK, CHILD, LISTENS, IDLE, HIDDEN, None])
DOES = st.builds(
    Did,
    thread=st.integers(1, 4),
    blocked=BLOCKED,
    run=st.floats(0, 3),
    wait=st.floats(0, 5),
    process=st.just(1),
)
LOOKS = st.tuples(
    st.lists(DOES, max_size=4, unique_by=lambda did: did.thread),
    st.floats(0.001, 4),
    st.floats(0, 2),
    st.integers(1, 4),
)


@given(looks=st.lists(LOOKS, min_size=1, max_size=60), asks_between=st.booleans())
def test_any_run_is_divided_completely(*, looks: list[Any], asks_between: bool) -> None:
    run, again = LookedRun(points=5), LookedRun(points=5)
    for did, length, unread, ended in looks:
        for each in (run, again):
            each.look(*did, length=length, unread=unread, ended=[ended])
        if asks_between:
            again.record()
    made = run.breakdown
    parts = [percent for percent in all_parts(made).values() if percent is not None]
    assert sum(parts) == pytest.approx(100, abs=0.1)
    assert min(parts) >= 0
    assert 0 <= (made.covered_percent or 0) <= 100
    assert len(made.waiting_for) <= 9
    assert sum(row.percent for row in made.waiting_for) <= 100.5
    assert again.breakdown == made
    total = sum(did.wait for look in looks for did in look[0])
    assert run.record().metrics.cpu_wait_seconds == pytest.approx(total, abs=1e-5)


@given(place=st.floats(0, 1, exclude_max=True), period=st.sampled_from([1, 0.5, 0.2, 0.37, 1.2]))
def test_looks_that_are_spread_meet_no_period_in_one_phase(place: float, period: float) -> None:
    """A thread waits for the network for 60 % of each period, and sleeps for the rest."""
    made = periodic_run(place, period, share=0.6)
    assert made.network_percent == pytest.approx(60, abs=4)


def periodic_run(place: float, period: float, share: float) -> TimeBreakdown:
    looks = LookTimes(0, seconds(1), 0.003, place)
    account = TimeAccount(0, seconds(1))
    turns = 0
    while looks.due_ns < seconds(60):
        at_ns = looks.due_ns
        phase = at_ns / seconds(period)
        is_asleep = phase % 1 > share
        before, turns = turns, 2 * int(phase) + is_asleep + 1
        run_ns = (turns - before) * seconds(0.0001)
        growth = [ThreadTimeGrowth(run_ns, 0, thread=1, process=1)] if run_ns else []
        seen = [ThreadSeen(1, 1, SLEEP if is_asleep else NETWORK)] if run_ns else []
        look = ThreadsLook(growth=growth, seen=seen, sees_calls=True)
        account.add_look(at_ns, look, part_ns=looks.part_ns)
        account.add_total(at_ns, 0, 0)
        looks.note_look(at_ns, seconds(0.0002))
    return present(account.breakdown_so_far())
