"""Whose wait held the run back, at one look."""

from collections.abc import Collection, Mapping, Sequence
from functools import partial
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from profiler.aggregation import sorted_waits, wait_chains
from profiler.aggregation.asking_sleeps import note_sleeps
from profiler.aggregation.awaited_events import ANY_CONNECTION, AwaitedEvents, EventCounts
from profiler.aggregation.current_waits import ThreadWaits
from profiler.aggregation.end_counts import EndCounts, PollEnds, TimedEnds
from profiler.aggregation.same_wait import is_asked_again
from profiler.aggregation.thread_wait import EarlierPolls, ThreadWait
from profiler.aggregation.wait_attribution import LookDivision, same_certain_wait
from profiler.core.timestamps import NS_PER_MS, NS_PER_SECOND
from profiler.readers.linux.look import ThreadSeen, ThreadsLook
from profiler.readers.linux.thread_counters import ThreadTimeGrowth
from profiler.readers.linux.wait_types import (
    MEMORY,
    STOPPED,
    TRACED,
    BlockedThread,
    Connection,
    Wait,
)
from tests.cases import each_case
from tests.fakes import seconds
from tests.looked_run import (
    CHILD,
    CONNECTION,
    DISK,
    FILE_LOCK,
    IDLE,
    KINDS,
    LISTENS,
    LOCK,
    NETWORK,
    POLL,
    SHARED_LOCK,
    SLEEP,
    TIMED_FUTEX,
    Did,
    LookedRun,
    pipe_to,
)
from tests.values import present

HIDDEN = BlockedThread(wait=sorted_waits.HIDDEN, is_hidden=True)
SIGNAL = BlockedThread(wait=Wait("other"), helpers="children")
TIMED = replace(LISTENS, has_timeout=True)
SERVES = replace(TIMED, only_listens=True, until_ns=seconds(1))
OWN_WAKE_UP = BlockedThread(wait=Wait("sleep"), has_timeout=True, until_ns=seconds(1))
# It is woken by another thread, or by the handler of a signal.
WAKE_UP = BlockedThread(wait=Wait("other"), helpers="threads")


def asks(*pids: int) -> BlockedThread:
    """It waits for the answer of a server of the run."""
    return replace(NETWORK, helpers="pipe", helper_pids=frozenset(pids))


def wait(
    blocked: BlockedThread | None,
    milliseconds: float = 0,
    *,
    process: int = 1,
    begun: int = 1,
    came: tuple[bool | None, ...] | None = None,
    **known: object,
) -> ThreadWait:
    used_ns = round(milliseconds * NS_PER_MS)
    made = ThreadWait(
        thread=0,
        process=process,
        blocked=blocked,
        begun=begun,
        run_ns=used_ns,
        before_ns=used_ns,
        came=came,
    )
    for name, value in known.items():
        setattr(made, name, value)
    return made


def _arrivals(ends: int, with_arrival: int, looks_in_vain: int, in_vain: int) -> AwaitedEvents:
    """What came beside the waits of a thread."""
    counts = EventCounts(ends, with_arrival, looks_in_vain, in_vain)
    return AwaitedEvents({ANY_CONNECTION: counts})


def receives_on(stream: bytes) -> BlockedThread:
    return replace(IDLE, connections=(replace(CONNECTION, stream=stream),))


def shares(
    *waits: ThreadWait, children: Mapping[int, Collection[int]] | None = None
) -> dict[str, float]:
    """The share of each kind in percent."""
    found: dict[str, float] = {}
    for each, share in LookDivision(waits, children or {}).share_of_each_wait().items():
        name = each.kind if each.kind != "other" else each.target or "other"
        found[name] = found.get(name, 0) + round(100 * share, 1)
    return {name: share for name, share in found.items() if share}


class TestWeights:
    @pytest.mark.parametrize(
        ("slices", "parent", "sleep"),
        [(6, 1, 16), (1, 1, 51), (6, 0, 51)],
        ids=["asks for its child", "slept once", "has no child"],
    )
    def test_who_asks_again_and_again_does_not_wait_for_its_last_sleep_to_end(
        self, slices: int, parent: int, sleep: float
    ) -> None:
        """It works before and after, but for and with what it asks for."""
        run = LookedRun({1: 0, 2: parent})
        run.look(Did(1, SLEEP, run=0.1), Did(2, NETWORK, run=0.01, process=2))
        for number in range(1, 4):
            so_far = b"%d" % (number * slices)
            growth = [ThreadTimeGrowth(NS_PER_MS // 5, 0, thread=1, process=1, slices=so_far)]
            run.look(Did(1, SLEEP), growth=growth)
        growth = [ThreadTimeGrowth(100 * NS_PER_MS, 0, thread=1, process=1, slices=b"30")]
        run.look(Did(1, SLEEP), Did(2, NETWORK, run=0.01, process=2), growth=growth)
        assert run.parts["sleep"] == pytest.approx(sleep, abs=2), run.parts

    @pytest.mark.parametrize(
        ("slices", "sleep"), [((1, 2, 8), 1), ((1, 2, 3), 18)], ids=["asks", "sleeps"]
    )
    def test_who_asks_may_be_seen_in_each_of_its_first_sleeps(
        self, slices: Sequence[int], sleep: float
    ) -> None:
        """Before the first, it worked; the last look tells that all were for what it asks."""
        run = LookedRun({1: 0, 2: 1})
        run.look(Did(1, SLEEP, run=0.1), Did(2, FILE_LOCK, run=0.01, process=2))
        for so_far in slices:
            text = b"%d" % so_far
            growth = [ThreadTimeGrowth(NS_PER_MS // 5, 0, thread=1, process=1, slices=text)]
            run.look(Did(1, SLEEP), growth=growth)
        run.look(Did(2, FILE_LOCK, run=0.01, process=2))
        assert run.parts["sleep"] == pytest.approx(sleep, abs=0.5), run.parts

    def test_who_asks_for_a_child_that_can_run_does_not_say_what_that_waited_for(self) -> None:
        asks_on = wait(SLEEP, 1, slices=b"9")
        note_sleeps(wait(SLEEP, 1), asks_on)
        child = wait(None, process=2)
        assert shares(asks_on, child, children={1: (2,)}) == {}
        assert shares(asks_on, child, children={3: (2,)}) == {"sleep": 100.0}
        assert shares(wait(SLEEP, 1), child, children={1: (2,)}) == {"sleep": 100.0}
        assert same_certain_wait((asks_on, child)) is None

    @pytest.mark.parametrize(
        ("child", "share"),
        [(NETWORK, {"network": 100.0}), (LISTENS, {"sleep": 100.0}), (None, {})],
        ids=["asks a server", "waits for clients", "can run"],
    )
    def test_who_waits_for_one_that_asks_for_its_children_waits_for_what_they_wait_for(
        self, child: BlockedThread | None, share: dict[str, float]
    ) -> None:
        """A shell waits for GNU parallel, which sleeps until it asks again."""
        shell = wait(CHILD, 100)
        asks_on = wait(SLEEP, 1, process=2, slices=b"9")
        note_sleeps(wait(SLEEP, 1), asks_on)
        children = {1: (2,), 2: (3,)}
        assert shares(shell, asks_on, wait(child, process=3), children=children) == share

    def test_who_sleeps_again_and_again_beside_a_server_that_a_shell_has_started_sleeps(
        self,
    ) -> None:
        asks_on = wait(SLEEP, 1, slices=b"9")
        note_sleeps(wait(SLEEP, 1), asks_on)
        shell, server = wait(CHILD, 1, process=2), wait(LISTENS, 1, process=3)
        children = {1: (2,), 2: (3,)}
        assert shares(asks_on, shell, server, children=children) == {"sleep": 100.0}

    @pytest.mark.parametrize(
        ("process", "share"),
        [(4, {"network": 100.0}), (2, {"child": 90.9, "network": 9.1})],
        ids=["of one thread", "another thread may have woken it"],
    )
    def test_a_signal_tells_a_process_of_one_thread_that_its_child_has_ended(
        self, process: int, share: dict[str, float]
    ) -> None:
        """A shell waits for make, which waits at its own pipe for a token, or for a job to end."""
        shell, make = wait(CHILD, 100), wait(WAKE_UP, 1, process=2)
        job, idle = wait(NETWORK, 10, process=3), wait(WAKE_UP, process=process)
        children = {1: (2, 4), 2: (3,)}
        assert shares(shell, make, job, idle, children=children) == share

    def test_a_thread_that_watches_files_leads_to_the_child_that_makes_them(self) -> None:
        watches = replace(LISTENS, wait=Wait("other"))
        watches = replace(watches, otherwise=replace(WAKE_UP, helpers="memory"))
        waits = [
            wait(LOCK, 100, over=2),
            wait(watches, 1, over=2),
            wait(CHILD, 1, process=2, over=2),
            wait(SLEEP, 1, process=3, over=2, is_last=True),
        ]
        assert shares(*waits, children={1: (2,), 2: (3,)}) == {"sleep": 100.0}

    def test_who_makes_the_tasks_of_its_children_slowly_does_not_wait_for_them(self) -> None:
        """A pool's main thread waits for a worker, which waits for the thread that makes tasks."""
        makes = wait(SLEEP, 1, slices=b"9")
        note_sleeps(wait(SLEEP, 1), makes)
        pipe = BlockedThread(wait=Wait("pipe"), helpers="pipe")
        main = wait(replace(pipe, helper_pids=frozenset({2})), 100)
        worker = wait(replace(pipe, helper_pids=frozenset({1})), 1, process=2)
        assert shares(main, makes, worker, children={1: (2,)}) == {"sleep": 100.0}

    def test_a_poll_with_a_clear_end_has_no_part_of_timers(self) -> None:
        came = wait(POLL, 10, came=(True,), poll_ends=PollEnds(1, 1))
        assert shares(came, wait(DISK, 10)) == {"network": 50.0, "disk": 50.0}

    def test_in_proportion_to_the_work_that_a_wait_held_back(self) -> None:
        assert shares(wait(NETWORK, 30), wait(SLEEP, 10)) == {"network": 75.0, "sleep": 25.0}

    def test_what_runs_next_if_that_is_more(self) -> None:
        assert shares(wait(NETWORK, 10, after_ns=30 * NS_PER_MS), wait(SLEEP, 10)) == {
            "network": 75.0,
            "sleep": 25.0,
        }

    @pytest.mark.parametrize(
        ("slices", "blocked", "share"),
        [(100, SLEEP, 0.9), (1, SLEEP, 50.0), (10, SLEEP, 50.0), (100, DISK, 50.0)],
        ids=["asks", "slept once", "works each time", "reads"],
    )
    def test_who_asks_again_and_again_by_one_of_its_sleeps(
        self, slices: int, blocked: BlockedThread, share: float
    ) -> None:
        """A main thread asks a hundred times in a step whether its thread has ended."""
        run = LookedRun()
        run.look(Did(1, blocked), Did(2, NETWORK))
        for number in range(1, 21):
            so_far = b"%d" % (number * slices)
            growth = [ThreadTimeGrowth(10 * NS_PER_MS, 0, thread=1, process=1, slices=so_far)]
            growth.append(ThreadTimeGrowth(10 * NS_PER_MS, 0, thread=2, process=1))
            run.look(Did(1, blocked), Did(2, NETWORK), growth=growth)
        breakdown = run.account.breakdown_so_far()
        asked = breakdown.sleep_percent if blocked is SLEEP else breakdown.disk_percent
        rest = 100 - present(breakdown.on_cpu_percent)
        assert 100 * present(asked) / rest == pytest.approx(share, abs=1.5)

    @pytest.mark.parametrize(
        ("first", "every", "share"), [(0, 5, 38.0), (4, 100, 9.0), (0, 100, 9.0)]
    )
    def test_a_worker_does_not_ask_though_others_take_the_cpu_from_it_again_and_again(
        self, first: int, every: int, share: float
    ) -> None:
        """It waits for an answer now and then, at the begin only, or never."""
        run = LookedRun()
        for number in range(40):
            is_asked = number < first or number % every == every - 1
            so_far = b"%d" % (number * 10)
            growth = [ThreadTimeGrowth(2 * NS_PER_MS, 0, thread=1, process=1, slices=so_far)]
            growth.append(ThreadTimeGrowth(2 * NS_PER_MS, 0, thread=2, process=1))
            run.look(Did(1, NETWORK if is_asked else SLEEP), Did(2, DISK), growth=growth)
        breakdown = run.account.breakdown_so_far()
        rest = 100 - present(breakdown.on_cpu_percent)
        slept = 100 * present(breakdown.sleep_percent) / rest
        assert slept == pytest.approx(share, abs=4)

    def test_the_timeout_of_a_loop_held_back_what_followed(self) -> None:
        """A worker of Node that has no work has timers of its own."""
        loop = replace(SLEEP, has_timeout=True)
        idle = wait(loop, 50, after_ns=1 * NS_PER_MS)
        assert shares(idle, wait(NETWORK, 99)) == {"sleep": 1.0, "network": 99.0}
        assert shares(wait(loop, 50), wait(NETWORK, 50)) == {"sleep": 50.0, "network": 50.0}

    def test_threads_that_never_run_share(self) -> None:
        assert shares(wait(NETWORK), wait(SLEEP)) == {"network": 50.0, "sleep": 50.0}

    def test_nobody_is_blocked(self) -> None:
        assert shares() == shares(wait(None, 5)) == {}


class TestLeftBehind:
    """A thread of a pool that worked as the program began, and that nobody needs."""

    @pytest.mark.parametrize(
        ("worked", "ended", "slept"),
        [(0.2, (1, 2, 3), 0), (0.2, (), 0), (0.05, (1, 2, 3), 65), (0.05, (), 65)],
        ids=["until the end", "so far", "others do less until the end", "others do less so far"],
    )
    def test_it_counts_for_nothing_once_another_thread_did_as_much(
        self, worked: float, ended: Sequence[int], slept: float
    ) -> None:
        """What it waits for, by all that is known, is a thread that has never run."""
        run = LookedRun()
        run.look(Did(1, NETWORK, run=0.1))
        run.look(Did(1, NETWORK, run=0.9), Did(2, LOCK, run=0.1), Did(3, SLEEP))
        for _ in range(10):
            run.look(Did(1, NETWORK, run=worked))
            run.look(Did(1, NETWORK, run=0.001))
            run.look(Did(1, NETWORK, run=0.001))
        if ended:
            run.look(ended=ended, have_all_ended=True)
        assert run.parts.get("sleep", 0) == pytest.approx(slept, abs=15 if slept else 1)

    def test_it_counts_again_when_it_is_needed(self) -> None:
        run = LookedRun()
        run.look(Did(1, NETWORK, run=0.2), Did(2, LOCK, run=0.1), Did(3, SLEEP))
        for _ in range(10):
            run.look(Did(1, NETWORK, run=0.2))
        run.look(Did(2, LOCK, run=0.8), Did(3, SLEEP, run=0.001))
        assert run.parts["sleep"] > 40


class TestAskedAgain:
    """A thread that waits for another one a second at a time, as the calls of fsspec do."""

    @pytest.mark.parametrize(
        ("used", "is_of_asker", "expected"),
        [(0.5, True, True), (0.5, False, False), (1.5, False, True)],
        ids=["little work, but it asks", "little work, as a ticker's", "work"],
    )
    def test_its_timeouts_only_ask_again(
        self,
        used: float,
        is_of_asker: bool,  # noqa: FBT001
        expected: bool,  # noqa: FBT001
    ) -> None:
        before = wait(replace(TIMED_FUTEX, until_ns=seconds(1)), used, is_of_asker=is_of_asker)
        after = wait(replace(TIMED_FUTEX, until_ns=seconds(2)), used + 0.05)
        assert is_asked_again(before, after) is expected

    @pytest.mark.parametrize(
        ("ends", "over", "expected"),
        [
            (TimedEnds(due=0, woken=1), 7, "network"),
            (TimedEnds(due=1, woken=3), 7, "sleep"),
            (None, 7, "sleep"),
            (TimedEnds(due=0, woken=1), None, "sleep"),
        ],
        ids=["always told", "told or not", "unknown", "still waits"],
    )
    def test_if_nobody_saw_what_followed_it_is_what_ended_its_waits_before(
        self, ends: TimedEnds | None, over: int | None, expected: str
    ) -> None:
        asks = wait(
            replace(TIMED_FUTEX, until_ns=seconds(1)),
            300,
            over=over,
            timed_ends=ends,
            polls=EarlierPolls(timeouts=2),
        )
        receives = wait(NETWORK, 1, begun=5, over=7, thread=2)
        assert shares(asks, receives)[expected] > 90


class TestHandingOn:
    def test_a_parent_of_a_child_that_sleeps_sleeps(self) -> None:
        waits = (wait(CHILD, 50), wait(SLEEP, 1, process=2))
        assert shares(*waits, children={1: [2]}) == {"sleep": 100.0}

    def test_a_child_whose_wait_is_not_known_is_a_child(self) -> None:
        assert shares(wait(CHILD, 50)) == {"child": 100.0}

    def test_a_parent_of_a_child_that_waits_for_a_files_lock(self) -> None:
        waits = (wait(CHILD, 50), wait(FILE_LOCK, 1, process=2))
        assert shares(*waits, children={1: [2]}) == {"lock": 100.0}

    def test_a_chain_of_children_threads_and_pipes(self) -> None:
        waits = (
            wait(CHILD, 90),
            wait(pipe_to(3), 1, process=2),
            wait(LOCK, 1, process=3),
            wait(DISK, 1, process=3),
        )
        assert shares(*waits, children={1: [2]}) == {"disk": 100.0}

    @pytest.mark.parametrize("is_asked", [True, False], ids=["asked", "children"])
    def test_a_lock_that_processes_share(self, *, is_asked: bool) -> None:
        """Who waits for it waits for whoever shares its memory, and a child that began just now may
        be one of them.
        """
        shared = replace(SHARED_LOCK, helper_pids=frozenset((2, 3) if is_asked else (9,)))
        siblings = replace(SHARED_LOCK, helper_pids=frozenset((1, 3)))
        waits = (wait(shared, 50), wait(siblings, 5, process=2), wait(NETWORK, 1, process=3))
        assert shares(*waits, children={1: [2, 3]}) == {"network": 100.0}
        assert shares(*waits[:2], children={1: [2, 3]}) == {"lock": 100.0}

    def test_a_lock_that_processes_share_may_be_held_by_another_thread(self) -> None:
        waits = (wait(SHARED_LOCK, 50), wait(DISK, 1))
        assert shares(*waits) == {"disk": 100.0}

    def test_a_timed_wait_for_a_process_that_ended_early(self) -> None:
        timed = replace(SHARED_LOCK, wait=Wait("sleep"), helper_pids=frozenset((2,)))
        disk = wait(DISK, 1, process=2, begun=3)
        assert shares(wait(timed, 99, begun=1, was_woken=True), disk) == {"disk": 100.0}
        assert shares(wait(timed, 99, begun=1), disk)["sleep"] > 95

    def test_a_server_that_polls_a_pipe_for_a_limited_time_sleeps(self) -> None:
        """As a backend of PostgreSQL in pg_sleep watches whether its parent lives."""
        polls = replace(pipe_to(3), has_timeout=True)
        parent = wait(LISTENS, 1, process=3)
        assert shares(wait(asks(2), 50), wait(polls, 1, process=2), parent) == {"sleep": 100.0}
        disk = wait(DISK, 1, process=3, begun=5)
        assert shares(wait(asks(2), 50), wait(polls, 1, process=2), disk) == {"disk": 100.0}

    def test_workers_of_a_server_to_which_nobody_comes(self) -> None:
        """As Node's cluster: the first process listens and watches pipes to its workers, which poll
        theirs for a limited time. A client within the run waits for an answer.
        """
        leads = replace(LISTENS, otherwise=pipe_to(2, 3))
        polls = replace(pipe_to(1), has_timeout=True)
        server = (wait(leads, 1), wait(polls, 50, process=2), wait(polls, 50, process=3))
        assert shares(*server) == {"network": 100.0}
        shell = wait(CHILD, 5, process=4)
        assert shares(*server, shell, children={4: [1]}) == {"network": 100.0}
        assert shares(*server, wait(asks(2), 50, process=5))["sleep"] > 95
        assert shares(*server, wait(SLEEP, 1, process=4)) == {"sleep": 100.0}

    def test_helpers_of_a_server_to_which_nobody_comes(self) -> None:
        """As Node's threads that collect: they used little, long ago. Where a thread did the work,
        and waits for a lock that nobody releases, the run waits for that.
        """
        serves = wait(LISTENS, 0.1, run_ns=300 * NS_PER_MS)
        helpers = [wait(LOCK, used, run_ns=used * NS_PER_MS) for used in (2, 5)]
        assert shares(serves, *helpers) == {"network": 100.0}
        assert shares(serves, *helpers, wait(SLEEP, 1, process=2)) == {"sleep": 100.0}
        free = wait(LOCK, 0.1, run_ns=500 * NS_PER_MS)
        assert shares(serves, free) == {"network": 100.0}
        works = wait(LOCK, 50, run_ns=50 * NS_PER_MS)
        assert shares(serves, *helpers, works) == {"lock": 100.0}
        collects = wait(LOCK, 20, run_ns=20 * NS_PER_MS)
        assert shares(serves, *helpers, collects) == {"network": 100.0}
        held = replace(FILE_LOCK, helpers="pipe", helper_pids=frozenset((1,)))
        assert shares(serves, wait(held, 1, process=2)) == {"lock": 100.0}

    def test_who_has_only_started_a_server_to_which_nobody_comes(self) -> None:
        """As the main thread of tokio, whose other threads serve."""
        starts, helps = wait(LOCK, 2), wait(LOCK, 0.1)
        assert shares(starts, helps, wait(LISTENS, 0.1)) == {"network": 100.0}
        assert shares(starts, helps, wait(DISK, 0.1))["disk"] > 95
        assert shares(starts, helps) == {"lock": 100.0}

    def test_who_sleeps_until_a_time_beside_a_server_to_which_nobody_comes_sleeps(self) -> None:
        """A scheduler beside a health endpoint does little after its timeout: its pool works."""
        serves = wait(LISTENS, 0.1, run_ns=50 * NS_PER_MS)
        scheduler = wait(TIMED_FUTEX, 0.1, run_ns=2 * NS_PER_MS)
        assert shares(serves, scheduler) == {"sleep": 100.0}

    def test_what_a_thread_holds_back_is_not_less_than_its_own_work(self) -> None:
        """Though it hands all of that on, and others hand less on to it."""
        timed = wait(TIMED_FUTEX, 50, over=7, thread=2)
        waits = (wait(LOCK, 10, over=7, thread=1), timed, wait(NETWORK, 1, thread=3))
        assert LookDivision(waits, {}).held_back_ns()[2] == 50 * NS_PER_MS + 1

    def test_who_waits_for_the_end_of_one_thread_waits_for_no_other(self) -> None:
        join = replace(LOCK, helper_thread=11)
        joins = wait(join, 90, run_ns=90 * NS_PER_MS, thread=10)
        sleeps = wait(SLEEP, 1, thread=12)
        assert shares(joins, wait(DISK, 1, thread=11), sleeps)["disk"] > 95
        serves = wait(LISTENS, 1, thread=11)
        assert shares(joins, serves) == {"network": 100.0}
        waits = (joins, wait(LOCK, 9, thread=13), wait(NETWORK, 1, thread=11), sleeps)
        assert shares(*waits) == {"network": 98.9, "sleep": 1.1}

    def test_who_waits_for_one_of_which_nobody_knows_what_it_does_now_says_nothing(self) -> None:
        """As the workers of a server whose first process could run when it was asked last."""
        free = wait(replace(pipe_to(1), has_timeout=True), 50, process=2)
        able = wait(None, process=1)
        assert shares(free, able, wait(LISTENS, 1, process=4)) == {}
        assert shares(free, able, wait(LOCK, 1)) == {}, "threads of the first process"
        leads = wait(pipe_to(2, 3, 4), 1)
        assert shares(free, leads, wait(None, process=3)) == {}
        asks_others = wait(NETWORK, 50, process=3)
        assert shares(free, leads, asks_others, wait(None, process=4)) == {"network": 100.0}

    def test_through_a_server_on_whose_connections_nothing_came_to_its_other_clients(self) -> None:
        """A broker that wakes by itself now and then: a row comes from a producer, which sleeps."""
        broker = replace(IDLE, helpers="pipe", helper_pids=frozenset((1, 3)))
        idle = wait(broker, 1, process=2, came=(False,))
        assert shares(wait(asks(2), 50), idle, wait(SLEEP, 1, process=3)) == {"sleep": 100.0}
        assert shares(wait(asks(2), 50), idle, wait(asks(2), 1, process=3)) == {"network": 100.0}

    def test_through_an_idle_server_not_back_to_who_waits_for_it(self) -> None:
        broker = replace(IDLE, helpers="pipe", helper_pids=frozenset((1,)))
        idle = wait(broker, 1, process=2, came=(False,))
        assert shares(wait(asks(2), 99), idle, wait(SLEEP, 1))["network"] > 95

    def test_threads_that_wait_for_each_other_are_a_cycle(self) -> None:
        assert shares(wait(LOCK, 5), wait(LOCK, 5)) == {"lock": 100.0}

    @pytest.mark.parametrize(("is_within", "kind"), [(False, "network"), (True, "child")])
    def test_a_proxy_waits_for_its_server_beside_the_client_that_waits_for_it(
        self, *, is_within: bool, kind: str
    ) -> None:
        """Who waits for the client waits for the answer that is owed from outside of the run."""
        owing = replace(CONNECTION, owes=True, is_within=is_within)
        proxy = wait(replace(asks(2), connections=(owing,)), 1, process=3)
        parent, client = wait(CHILD, 99), wait(asks(3), 1, process=2)
        found = shares(parent, client, proxy, children={1: (2, 3)})
        assert found[kind] > 95, found

    def test_to_those_that_did_not_run_meanwhile(self) -> None:
        waiting = wait(LOCK, 100, begun=1)
        ran = wait(NETWORK, 50, begun=5)
        still = wait(SLEEP, 1, begun=1)
        found = shares(waiting, ran, still)
        assert found["network"] == pytest.approx(100 * 50 / 151, abs=0.2)
        assert found["sleep"] == pytest.approx(100 * 101 / 151, abs=0.2)
        assert shares(waiting, ran) == {"network": 100.0}  # all ran

    def test_to_one_that_did_not_run_and_may_have_ended_it_before_those_that_ran(self) -> None:
        waiting = wait(LOCK, 100, over=7)
        still, ran = wait(NETWORK, 1, over=7), wait(DISK, 1, begun=3, over=7)
        assert shares(waiting, still, ran)["network"] > 95

    @pytest.mark.parametrize(("worker_begun", "worker_over"), [(1, 6), (6, 9)])
    def test_who_was_left_for_later_looks_may_have_been_woken_at_an_earlier_one(
        self, worker_begun: int, worker_over: int
    ) -> None:
        """As the main thread of Java whose pool asks, beside the timer of a thread of the virtual
        machine. At the look that asked the pool only, its threads ask already for the next one.
        """
        worker = wait(NETWORK, 0.5, begun=worker_begun, over=worker_over)
        timer = wait(TIMED_FUTEX, 0.5, begun=1, over=7)
        late = wait(LOCK, 99, over=7, over_since=6)
        assert shares(late, worker, timer)["network"] > 95
        assert shares(wait(LOCK, 99, over=7), worker, timer)["sleep"] > 95

    def test_who_waits_for_what_ended_before_the_looks_that_left_both_out(self) -> None:
        """A thread whose counters are left for later looks ends: when it did is not known."""
        for is_behind in (True, False):
            run = LookedRun().look(Did(1, LOCK, 0.1), Did(2, NETWORK, 0.001), Did(3, SLEEP, 0.001))
            run.look(length=9)
            run.look(Did(2, LOCK, 0.001), is_behind=is_behind, length=1)
            run.look(ended=(1, 2, 3), have_all_ended=True, length=0.1)
            assert (run.parts["network"] > 70) == is_behind, run.parts

    def test_what_comes_by_chance_as_a_thread_is_woken_is_not_what_it_waits_for(self) -> None:
        """Another thread answers someone from outside, who asks in a rhythm of its own."""
        reads = replace(NETWORK, connections=(CONNECTION,))
        parts = []
        for rows_every, sleep_every in ((5, 3), (3, 5)):
            run = LookedRun()
            for number in range(90):
                comes = Did(3, reads, run=0.002, came=(True,), came_before=0.2)
                did = [] if number % rows_every else [comes]
                did += [] if number % sleep_every else [Did(2, SLEEP, run=0.002)]
                run.look(*did, *[] if number % 3 else [Did(1, LOCK, run=0.1)], length=0.3)
            parts.append(run.parts)
        assert parts[0]["sleep"] > 80
        assert parts[0]["network"] < 4
        assert parts[1]["network"] > 70

    @pytest.mark.parametrize("has_connection", [False, True])
    @pytest.mark.parametrize("asks_every", [None, 2])
    def test_a_loop_whose_timer_tells_another_thread_of_its_end_has_slept(
        self,
        has_connection: bool,  # noqa: FBT001
        asks_every: int | None,
    ) -> None:
        """As a worker of Node whose timer ends, and which does nothing but tell the main thread; one
        that asks in vain all the time tells nobody.
        """
        reads = replace(NETWORK, connections=(CONNECTION,))
        polls = replace(POLL, connections=(CONNECTION,)) if has_connection else OWN_WAKE_UP
        came = (False,) if has_connection else ()
        times_out = Did(2, polls, run=0.0001, came=came, timed_out=has_connection)
        is_told = Did(2, polls, run=0.0001, came=came, was_woken=not has_connection)
        run = LookedRun()
        for number in range(100):
            turn = number % 5
            did = [is_told] if turn == 0 and asks_every is None else []
            did += [Did(1, LOCK, run=0.1)] if turn == 0 else []
            did += [Did(1, None, run=0.1)] if turn == 4 else []
            is_in_vain = asks_every and number % asks_every == 0
            did += [times_out] if is_in_vain or (turn == 4 and asks_every is None) else []
            if turn == 4 and asks_every:
                did.append(Did(3, reads, run=0.0001, came=(True,), came_before=0.2))
            run.look(*did, length=0.25)
        if asks_every is None:
            assert run.parts["sleep"] > 55, run.parts
        else:
            assert run.parts["network"] > 55, run.parts

    def test_a_child_that_another_thread_reaps_ends_the_wait_beside_what_comes_then(self) -> None:
        """As the main thread of Java waits for a process, beside one that answers; the children of a
        thread that starts one after the other are not what the main thread waits for.
        """
        reads = replace(NETWORK, connections=(CONNECTION,))
        parts = []
        for child_every, rows_every in ((4, 8), (3, 4)):
            run = LookedRun({1: 0, 2: 1})
            for number in range(80):
                has_ended = number % child_every == 0
                did = [] if number % 4 else [Did(1, LOCK, run=0.1)]
                if has_ended:
                    did += [Did(12, CHILD, run=0.001), Did(2, SLEEP, run=0.001, process=2)]
                if number % rows_every == 0:
                    did.append(Did(3, reads, run=0.002, came=(True,), came_before=0.2))
                run.look(*did, ended=(2,) if has_ended and number else (), length=0.3)
            parts.append(run.parts)
        assert parts[0]["network"] < 10, parts
        assert parts[1]["network"] > 60, parts

    @pytest.mark.parametrize("is_child", [True, False])
    def test_a_child_that_ended_before_the_last_look_ended_the_wait_of_its_parent(
        self,
        is_child: bool,  # noqa: FBT001
    ) -> None:
        """A thread of its own process that ends so was killed by the process's end."""
        process = 2 if is_child else 1
        waits_for_it = CHILD if is_child else LOCK
        server = wait(NETWORK, 1, process=3 if is_child else 1, over=9)
        parent = wait(waits_for_it, 99, begun=6, over=9)
        ended = wait(SLEEP, 1, process=process, begun=6, over=9, was_cut=True, is_last=True)
        found = shares(parent, ended, server, children={1: (2, 3)})
        assert found["sleep" if is_child else "network"] > 95, found

    def test_a_pipe_of_which_no_other_end_is_known_is_a_childs(self) -> None:
        """It has begun just now."""
        waits = (wait(pipe_to(), 50), wait(SLEEP, 1, process=2))
        assert shares(*waits, children={1: [2]}) == {"sleep": 100.0}

    def test_who_waits_for_a_child_waits_for_its_lock_and_not_for_who_may_come_to_it(self) -> None:
        held = replace(FILE_LOCK, helpers="pipe", helper_pids=frozenset((9,)))
        waits = (wait(CHILD, 50), wait(held, 1, process=2))
        assert shares(*waits, children={1: [2]}) == {"lock": 100.0}
        assert shares(*waits, wait(LISTENS, 1, process=2), children={1: [2]}) == {"lock": 100.0}

    def test_a_wait_for_memory_is_known(self) -> None:
        memory = wait(MEMORY, 1, process=2)
        assert shares(wait(CHILD, 50), memory, children={1: [2]}) == {"memory": 100.0}

    def test_who_waits_for_a_broker_to_which_nobody_comes_waits_for_no_child(self) -> None:
        """Though a client of the broker waits for a signal."""
        broker = replace(IDLE, helpers="pipe", helper_pids=frozenset((3,)))
        idle = wait(broker, 1, process=2, came=(False,))
        waits = (wait(CHILD, 50), idle, wait(SIGNAL, 1, process=3))
        assert shares(*waits, children={1: [2]}) == {"network": 50.0, "other": 50.0}

    def test_who_asked_in_vain_sleeps_if_nobody_can_have_ended_its_wait(self) -> None:
        timed = wait(
            TIMED_FUTEX, 100, over=7, polls=EarlierPolls(timeouts=1), after_ns=2 * NS_PER_MS
        )
        assert shares(timed, wait(NETWORK, 1, begun=3, over=9))["sleep"] > 95

    def test_to_those_of_them_that_ran_before_it_was_over(self) -> None:
        waiting = wait(LOCK, 100, over=5)
        found = shares(waiting, wait(NETWORK, 1, over=5), wait(SLEEP, 1, over=9))
        assert found["network"] > 98

    @pytest.mark.parametrize(
        ("changes", "expected"),
        [
            ({}, "network"),
            ({"blocked": SLEEP}, "sleep"),
            ({"ended_with": (), "after_ns": seconds(0.1)}, "sleep"),
            ({"ended_with": ()}, "network"),  # nobody saw what followed
            ({"awaited": _arrivals(2, 2, 4, 3)}, "sleep"),
            ({"awaited": _arrivals(4, 2, 9, 0)}, "sleep"),
            ({"awaited": None}, "sleep"),
        ],
    )
    def test_who_asks_again_and_again_for_its_own_wake_up_was_told_of_what_came(
        self, changes: dict[str, Any], expected: str
    ) -> None:
        """A client of gRPC: another one of its threads receives."""
        known: dict[str, Any] = {
            "over": 5,
            "ended_with": (ANY_CONNECTION,),
            "awaited": _arrivals(2, 2, 4, 2),
        }
        known |= changes
        asks = wait(known.pop("blocked", OWN_WAKE_UP), 100, begun=3, **known)
        receives = wait(IDLE, 0.1, thread=2, over=5, came=(True,))
        found = shares(asks, receives)
        assert max(found, key=lambda kind: found[kind]) == expected

    def test_a_timeout_beside_what_told_of_an_arrival_ended_nothing(self) -> None:
        """Another thread of the process that received, and one whose timeout ended then, too."""
        told: dict[str, Any] = {
            "ended_with": (ANY_CONNECTION,),
            "awaited": _arrivals(2, 2, 4, 2),
        }
        asks = wait(LOCK, 100, begun=3, over=5, **told)
        receives = wait(IDLE, 0.1, thread=2, over=5, came=(True,))
        timers = [
            wait(OWN_WAKE_UP, 50, thread=3, over=5),
            wait(TIMED_FUTEX, 0.1, thread=4, over=5),
        ]
        assert shares(asks, receives, timers[1])["network"] > 99
        assert shares(asks, receives, *timers)["network"] > 60
        asks.ended_with, asks.after_ns = (), seconds(0.1)
        assert shares(asks, receives, *timers)["network"] < 50

    @pytest.mark.parametrize(
        ("came_in_vain", "came_before", "expected"),
        [((False,), None, "network"), ((True,), None, "sleep"), ((False,), 0.02, "sleep")],
        ids=["awaited", "also in vain", "after the work began"],
    )
    def test_what_comes_as_often_in_vain_is_not_awaited(
        self, came_in_vain: tuple[bool], came_before: float | None, expected: str
    ) -> None:
        """A main thread asks for its wake-up, and other threads take turns at its connection."""
        run = LookedRun()
        run.look(Did(1, OWN_WAKE_UP, run=0.1), Did(2, IDLE, run=0.00005), Did(3, LOCK))
        for turn in range(12):
            for _ in range(3):
                run.look(
                    Did(1, OWN_WAKE_UP, run=0.00005),
                    Did(2 + turn % 2, IDLE, run=0.00005, came=came_in_vain),
                )
            run.look(
                Did(1, OWN_WAKE_UP, run=0.1),
                Did(2 + turn % 2, LOCK, run=0.00005, came=(True,), came_before=came_before),
                Did(3 - turn % 2, IDLE, run=0.00005),
            )
        parts = run.parts
        assert max(parts, key=lambda kind: parts[kind]) == expected, parts

    def test_polls_of_a_loop_whose_timers_do_little_are_one_wait(self) -> None:
        """What follows the last of them, and not what each timer does, is the work of the job."""
        run = LookedRun()
        run.look(Did(1, OWN_WAKE_UP, run=0.1), Did(2, NETWORK, run=0.001))
        for _ in range(8):
            run.look(Did(1, OWN_WAKE_UP, run=0.0004), Did(2, NETWORK, run=0.0004))
        run.look(Did(1, SLEEP, run=0.1), Did(2, NETWORK, run=0.0004))
        run.look(Did(1, SLEEP, run=0.1), Did(2, NETWORK, run=0.0004))
        assert run.parts["sleep"] > 10 * run.parts["network"], run.parts

    def test_who_asks_in_vain_waits_for_the_end_of_its_last_poll(self) -> None:
        run = LookedRun()
        run.look(Did(1, OWN_WAKE_UP, run=0.1), Did(2, IDLE, run=0.001))
        for _ in range(4):
            run.look(Did(1, OWN_WAKE_UP, run=0.00005))
        run.look(Did(1, SLEEP, run=0.1), Did(2, IDLE, run=0.001, came=(True,)))
        run.look(Did(1, SLEEP, run=0.1))
        assert run.parts["network"] > 60, run.parts

    @pytest.mark.parametrize(
        ("has_client", "sleep"),
        [(False, (99, 100)), (True, (20, 60)), (None, (20, 60))],
        ids=["nobody", "somebody", "unknown"],
    )
    def test_polls_for_clients_of_which_none_has_come_are_the_sleep_of_a_loop(
        self, *, has_client: bool | None, sleep: tuple[float, float]
    ) -> None:
        """Of a job beside a server with a timer; where somebody may have come, only the last one is
        the timer's.
        """
        run = LookedRun()
        run.look(Did(1, SERVES, run=0.1))
        for _ in range(3):
            run.look(Did(1, SERVES, run=0.0003))
        run.look(Did(1, SLEEP, run=0.1, has_client=has_client))
        run.look(Did(1, SLEEP, run=0.1))
        assert sleep[0] <= 100 - run.parts.get("network", 0) <= sleep[1], run.parts

    def test_a_server_to_which_nobody_comes_does_not_sleep_when_it_ends(self) -> None:
        run = LookedRun()
        run.look(Did(1, SERVES, run=0.1))
        for _ in range(9):
            run.look(Did(1, SERVES, run=0.0003))
        run.look(ended=(1,))
        assert run.parts["network"] > 70, run.parts

    @pytest.mark.parametrize("is_known", [False, True])
    def test_a_loop_beside_a_server_that_slept_sleeps_when_it_ends(self, *, is_known: bool) -> None:
        """A client may have come as the last of the polls was over, and nobody has before."""
        run = LookedRun()
        for _ in range(2 if is_known else 1):
            run.look(Did(1, SERVES, run=0.1, has_client=False))
            for _ in range(9):
                run.look(Did(1, SERVES, run=0.0003))
        run.look(ended=(1,))
        assert (run.parts.get("network", 0) < 20) is is_known, run.parts

    def test_a_loop_beside_a_server_was_told_of_an_answer(self) -> None:
        """Its pool's thread asked, and nobody came to the server."""
        known: dict[str, Any] = {"after_ns": 100 * NS_PER_MS, "has_client": False}
        known["ended_with"] = (ANY_CONNECTION,)
        polls = wait(SERVES, 100, begun=3, over=5, **known)
        asks = wait(IDLE, 0.1, thread=2, over=5, came=(True,))
        assert shares(polls, asks)["sleep"] > 99
        polls.awaited = _arrivals(2, 2, 4, 2)
        assert shares(polls, asks) == {"network": 100}

    def test_what_comes_beside_the_polls_of_a_server_is_counted(self) -> None:
        """Its pool's thread asks for what its loop works with."""
        run = LookedRun()
        for _ in range(6):
            for _ in range(3):
                run.look(Did(1, SERVES, run=0.00005), Did(2, IDLE))
            told = Did(2, LOCK, run=0.00005, came=(True,))
            run.look(Did(1, SERVES, run=0.1, has_client=False), told)
        assert run.parts["network"] > 60, run.parts

    def test_rows_that_come_as_a_sleeper_tells_did_not_tell(self) -> None:
        """It sleeps and tells by a semaphore. Rows come at every third of the thread's ends."""
        run = LookedRun()
        row = Did(3, receives_on(b"rows"), run=0.0002, came=(True,))
        for turn in range(30):
            told = Did(1, LOCK, run=0.1), Did(2, SLEEP, run=0.0001)
            run.look(*told, *[row] * (turn % 3 == 0), length=0.1)
            run.look(length=0.3)
        assert run.parts["network"] < 5, run.parts

    @pytest.mark.parametrize("is_first", [False, True])
    def test_an_answer_on_one_connection_is_awaited_beside_rows_on_another(
        self, *, is_first: bool
    ) -> None:
        """A main thread polls its wake-up for answers and for its own times, in turns."""
        run = LookedRun()
        answer = Did(2, receives_on(b"answers"), run=0.0001, came=(True,))
        row = Did(3, receives_on(b"rows"), run=0.0001, came=(True,))
        for turn in range(40):
            for look in range(3):
                run.look(Did(1, OWN_WAKE_UP, run=0.00005), *[row] * ((turn + look) % 4 == 0))
            came = [answer] * (turn % 2 == is_first) + [row] * (turn % 4 == 3)
            run.look(Did(1, OWN_WAKE_UP, run=0.1), *came)
        assert run.parts["network"] == pytest.approx(run.parts["sleep"], abs=15), run.parts

    def test_the_last_polls_of_a_run_weigh_what_the_thread_worked_before(self) -> None:
        """It began to work, and ended with the run: nobody saw how much that was."""
        run = LookedRun()
        run.look(Did(1, OWN_WAKE_UP, run=0.1), Did(2, NETWORK, run=0.001))
        for _ in range(8):
            run.look(Did(1, OWN_WAKE_UP, run=0.00005), Did(2, NETWORK, run=0.0004))
        run.look(Did(1, None), Did(2, NETWORK, run=0.0004))
        assert run.parts["sleep"] > 10 * run.parts["network"], run.parts

    def test_a_loop_that_does_nothing_again_and_again_weighs_nothing(self) -> None:
        """Also if it has worked before."""
        run = LookedRun()
        run.look(Did(1, OWN_WAKE_UP, run=0.5), Did(2, NETWORK, run=0.01))
        for _ in range(20):
            run.look(Did(1, OWN_WAKE_UP, run=0.00005), Did(2, NETWORK, run=0.01))
        assert run.parts["network"] > 90, run.parts

    @pytest.mark.parametrize(
        ("end", "expected"),
        [
            ({"over": 5}, "sleep"),
            ({"over": 4}, "sleep"),
            ({"over": 9}, "network"),
            ({"over": 5, "is_last": False}, "network"),
        ],
        ids=["ended", "ended one look before", "goes on", "waits again"],
    )
    def test_who_is_told_by_a_signal_that_its_child_has_ended_was_not_woken_by_who_serves(
        self, end: Mapping[str, Any], expected: str
    ) -> None:
        """The signal's handler wakes both, but no thread that waits for a lock."""
        told = wait(BlockedThread(wait=Wait("other"), helpers="threads"), 100, over=5)
        serves = wait(LISTENS, 0.1, over=5)
        child = wait(SLEEP, 1, process=2, **{"is_last": True, **end})
        found = shares(told, serves, child, children={1: [2]})
        assert max(found, key=lambda kind: found[kind]) == expected
        worker = wait(LOCK, 100, over=5)
        assert shares(worker, serves, child, children={1: [2]})["network"] > 90

    @pytest.mark.parametrize("over", [None, 5])
    def test_a_thread_of_a_pool_waits_for_those_that_work_and_not_for_a_timeout_beside_them(
        self, over: int | None
    ) -> None:
        """The threads of a virtual machine wait for a limited time, and nothing wakes them."""
        pool = (wait(LOCK, 50, over=over), wait(NETWORK, 50, begun=3, over=4))
        for timeout in (wait(TIMED_FUTEX, 0.2), wait(TIMED_FUTEX, 0.2, over=over)):
            assert shares(*pool, timeout)["network"] > 99

    def test_not_to_a_timeout_that_cannot_have_ended_it_beside_a_poller_that_may_have(
        self,
    ) -> None:
        """Who computes in a virtual thread waits until the poller has something for it."""
        carrier, poller = wait(LOCK, 300, over=7), wait(NETWORK, 0.2, begun=3, over=7)
        still, early = wait(TIMED_FUTEX, 0.2, over=9), wait(TIMED_FUTEX, 0.2, over=5)
        assert shares(carrier, poller, still)["network"] > 99
        assert shares(carrier, poller, early)["network"] > 99
        worked = wait(TIMED_FUTEX, 0.2, over=5, after_ns=30 * NS_PER_MS)
        assert shares(carrier, poller, worked)["sleep"] > 95
        assert shares(carrier, poller, wait(TIMED_FUTEX, 0.2, over=7))["sleep"] > 40

    def test_to_a_poller_that_ran_only_while_another_one_of_the_pool_worked(self) -> None:
        """It has woken that one: only what it does since then can be in vain."""
        waits = partial(wait, LOCK, over=7, after_ns=300 * NS_PER_MS)
        pool = (waits(0.2, begun=1), waits(300, begun=5))
        timer = wait(TIMED_FUTEX, 0.1, over=7)
        assert shares(*pool, timer, wait(NETWORK, 0.8, begun=5, over=7))["network"] > 85
        in_vain = wait(NETWORK, 0.8, begun=6, over=7)
        assert shares(*pool, timer, in_vain)["sleep"] > 99
        has_no_task = wait(LOCK, 0.2, begun=7, over=7)
        assert shares(*pool, has_no_task, timer, in_vain)["sleep"] > 99

    def test_not_to_a_timer_that_hardly_ever_ended_with_those_who_work(self) -> None:
        """As those of a virtual machine, beside what ends the waits of its threads each time."""
        waiting = wait(LOCK, 300, over=7)
        poller = wait(NETWORK, 0.2, begun=3, over=7, end_counts=EndCounts(6, 6))
        timer = partial(wait, TIMED_FUTEX, 0.2, over=7)
        assert shares(waiting, poller, timer(end_counts=EndCounts(0, 3)))["network"] > 99
        assert shares(waiting, poller, timer(end_counts=EndCounts(6, 4)))["sleep"] > 99
        assert shares(waiting, poller, timer(end_counts=EndCounts(7, 4)))["network"] > 99

    def test_how_often_a_thread_ended_with_those_who_work(self) -> None:
        waits = ThreadWaits()

        def over(*threads: int) -> dict[int, tuple[int, int]]:
            grown = [ThreadTimeGrowth(2 * NS_PER_MS, 0, thread=each, process=1) for each in threads]
            blocked = {1: LOCK, 2: NETWORK, 3: TIMED_FUTEX}
            seen = [ThreadSeen(each, 1, blocked[each]) for each in threads]
            change = waits.add_look(ThreadsLook(growth=grown, seen=seen))
            return {
                wait.thread: (wait.end_counts.with_workers, wait.end_counts.ends)
                for wait in change.over
            }

        over(1, 2, 3)
        assert over(1, 2) == {1: (0, 0), 2: (1, 1)}
        assert over(3) == {3: (0, 1)}
        over(1)  # the timer was over one look before
        assert over(2, 3) == {2: (1, 2), 3: (1, 2)}
        assert over(1, 2) == {1: (0, 0), 2: (2, 3)}

    def test_to_a_poller_whose_counters_were_left_for_a_later_look(self) -> None:
        """It may have ended the wait before it was read, unlike a timer that ended in between."""
        carrier, timer = wait(LOCK, 300, over=7), wait(TIMED_FUTEX, 0.2, begun=3, over=7)
        late = wait(NETWORK, 0.2, over=8, over_since=7)
        assert shares(carrier, timer, late)["network"] > 99
        assert shares(carrier, timer, wait(NETWORK, 0.2, over=8)).get("sleep", 0) > 99

    def test_since_when_the_wait_of_such_a_thread_may_have_been_over(self) -> None:
        for steps, over_since in ((1, 4), (2, 3), (9, 1)):
            waits = ThreadWaits()
            waits.add_look(ThreadsLook(seen=[ThreadSeen(2, 1, NETWORK)]))
            waits.add_look(ThreadsLook())
            waits.add_look(ThreadsLook())
            grown = ThreadTimeGrowth(NS_PER_MS, 0, steps, thread=2, process=1)
            (over,) = waits.add_look(ThreadsLook(growth=[grown])).over
            assert (over.over, over.over_since) == (4, over_since)

    def test_to_the_timeout_that_ended_with_it_beside_one_that_ran_in_vain(self) -> None:
        """A timer completes a future, beside a connection on which something comes often."""
        waiting, timer = wait(LOCK, 100, over=9), wait(TIMED_FUTEX, 0.2, over=9)
        for begun in (4, 8):
            ran = wait(NETWORK, 0.2, begun=begun, over=begun + 1)
            assert shares(waiting, timer, ran)["sleep"] > 99
        worked = wait(NETWORK, 0.2, begun=4, over=5, after_ns=90 * NS_PER_MS)
        assert shares(waiting, timer, worked)["network"] > 98

    def test_to_the_one_that_may_have_ended_it_before_one_that_still_waited(self) -> None:
        """A schedule's thread sleeps once it has handed out a task, beside rows that come later."""
        waiting, sleeps = wait(LOCK, 100, begun=4, over=6), wait(SLEEP, 0.1, begun=5, over=6)
        rows = wait(NETWORK, 0.1, over=9)
        assert shares(waiting, sleeps, rows)["sleep"] > 99
        assert shares(waiting, sleeps, wait(NETWORK, 0.1))["sleep"] > 99
        assert shares(waiting, wait(SLEEP, 0.1, begun=5, over=9), rows)["network"] > 99
        assert shares(waiting, sleeps, wait(NETWORK, 0.1, over=6))["network"] > 99
        ends = partial(wait, over=6, is_last=True, was_cut=True)
        assert shares(ends(LOCK, 100, begun=4), sleeps, rows)["network"] > 99

    def test_not_to_who_asked_again_in_vain_meanwhile(self) -> None:
        """The selector of Java's HTTP client, which wakes up every three seconds for nothing."""
        main, worker = wait(LOCK, 100, begun=4, over=9), wait(NETWORK, 0.1, begun=4, over=6)
        later = wait(OWN_WAKE_UP, 0.1, begun=6, over=20, polls=EarlierPolls(timeouts=1, since=1))
        earlier = wait(OWN_WAKE_UP, 0.1, begun=1, over=6, next_poll=later)
        for polls in (earlier, later):
            assert shares(main, worker, polls)["network"] > 99
        its_wake_up = wait(OWN_WAKE_UP, 0.1, begun=1, over=20)
        assert shares(main, worker, its_wake_up)["sleep"] > 99

    def test_at_the_end_of_the_process_not_to_who_slept_already_when_it_ran_last(self) -> None:
        """The holder of a lock works in pieces; another thread has nothing to do with it."""
        waiting = wait(LOCK, 50, begun=8, over=10)
        ends = partial(wait, over=10, is_last=True, was_cut=True)
        pieces, bystander = ends(NETWORK, 6, begun=9), ends(SLEEP, 0.1, begun=2)
        assert shares(waiting, pieces, bystander)["network"] > 98
        assert shares(waiting, bystander) == {"sleep": 100.0}
        assert shares(waiting, ends(SLEEP, 6, begun=8), ends(NETWORK, 0.1, begun=2))["sleep"] > 98

    @pytest.mark.parametrize("is_seen_to_work", [True, False])
    def test_who_waits_for_its_threads_did_not_wait_for_one_that_its_end_killed(
        self,
        is_seen_to_work: bool,  # noqa: FBT001
    ) -> None:
        """The main thread works after the threads for whose end it waited; a daemon sleeps."""
        run = LookedRun().look(Did(1, LOCK, run=0.09), Did(2, NETWORK, run=0.01), Did(3, SLEEP))
        for _ in range(20):
            run.look(Did(2, NETWORK, run=0.02))
        after = ThreadTimeGrowth(seconds(0.02), 0, thread=1, process=1)
        if is_seen_to_work:
            run.look(Did(1, None, run=0.02), ended=(2,)).look(ended=(1, 3))
        else:
            run.look(growth=[after], ended=(2, 3))
        assert run.parts["network"] > 90

    def test_who_waits_for_its_threads_waited_for_one_that_has_ended_since(self) -> None:
        """The threads of a pool that is shut down after its task work and end between two looks."""
        sleeps = Did(3, SLEEP, run=0.01)
        run = LookedRun().look(Did(1, LOCK, run=0.09), Did(2, NETWORK, run=0.001), sleeps)
        for _ in range(20):
            run.look()
        after = ThreadTimeGrowth(seconds(0.09), 0, thread=1, process=1)
        run.look(Did(1, LOCK), Did(4, NETWORK, run=0.001), growth=[after], ended=(2,))
        for _ in range(20):
            run.look()
        run.look(Did(1, LOCK), growth=[after], ended=(4,))
        assert run.parts["network"] > 85

    @pytest.mark.parametrize(("work", "kind"), [(0.1, "sleep"), (0.0005, "network")])
    def test_who_works_after_its_timeout_has_slept(self, work: float, kind: str) -> None:
        """Java's Thread.sleep beside a thread that waits for a debugger, which asked it before."""
        sleeps = replace(TIMED_FUTEX, until_ns=1)
        run = LookedRun().look(Did(1, sleeps, run=0.1), Did(2, NETWORK, run=0.001))
        for _ in range(3):
            run.look(Did(1, sleeps, run=work))
        run.look(Did(1, DISK, run=work))
        assert max(run.parts, key=lambda part: run.parts[part]) == kind, run.parts

    def test_who_asks_again_in_vain_was_woken_if_it_works_then(self) -> None:
        """Nobody knows what ended the last of its waits, its timeout or the other thread."""
        queue = replace(TIMED_FUTEX, until_ns=1)
        for little, work in ((0.00004, 0.1), (0.0004, 0.1), (0.00004, 0.0005)):
            run = LookedRun().look(Did(1, queue, run=0.1), Did(2, NETWORK))
            for _ in range(3):
                run.look(Did(1, queue, run=little))
            run.look(Did(2, NETWORK, run=0.01))
            run.look(Did(1, queue, run=work))
            run.look(Did(1, DISK, run=0.01))
            is_woken = (little, work) == (0.00004, 0.1)
            assert (run.parts.get("sleep", 0) < 20) == is_woken, (little, work, run.parts)

    @pytest.mark.parametrize(
        ("ends", "kind"),
        [
            pytest.param((True, True, None), "sleep", id="it waits for times"),
            pytest.param((False, True, False, True, None, None), "network", id="others tell it"),
            pytest.param((None, None), "network", id="nobody knows"),
        ],
    )
    def test_who_mostly_works_at_its_timeouts_waits_for_a_time(
        self, ends: Sequence[bool | None], kind: str
    ) -> None:
        """It asks once more before each of its times. The other thread reads rows."""
        until = replace(TIMED_FUTEX, until_ns=1)
        run = LookedRun().look(Did(1, until, run=0.1), Did(2, NETWORK, run=0.001))
        for was_due in ends:
            run.look(Did(1, until, run=0.00004), length=0.01)
            run.look(length=9)
            ended = Did(1, None, run=0.05, was_due=was_due)
            run.look(ended, Did(2, NETWORK, run=0.001), length=0.06)
            run.look(Did(1, until, run=0.05), length=0.06)
        run.look(Did(1, until, run=0.00004), length=0.01)
        run.look(length=9).look(ended=(1, 2), length=0.01)
        assert max(run.parts, key=lambda part: run.parts[part]) == kind, run.parts

    @pytest.mark.parametrize(("came_before", "kind"), [(0.05, "network"), (0.02, "sleep")])
    def test_an_answer_that_comes_as_the_timeout_is_due_ends_the_wait(
        self, came_before: float, kind: str
    ) -> None:
        """A client of gRPC whose rows come at twice its timeout."""
        until = replace(TIMED_FUTEX, until_ns=1)
        run = LookedRun().look(Did(1, until, run=0.1), Did(2, IDLE, run=0.0001))
        came = Did(2, IDLE, run=0.0001, came=(True,), came_before=came_before)
        for _ in range(6):
            run.look(Did(1, until, run=0.00004), length=0.2)
            run.look(Did(1, None, run=0.05, was_due=True), came, length=0.2)
            run.look(Did(1, until, run=0.05), length=0.05)
        assert max(KINDS, key=lambda part: run.parts.get(part, 0)) == kind, run.parts

    def test_who_asks_again_is_not_told_by_one_that_waits_on(self) -> None:
        until = replace(TIMED_FUTEX, until_ns=1)
        for is_over, kind in ((False, "sleep"), (True, "network")):
            run = LookedRun().look(Did(1, until, run=0.1), Did(2, NETWORK, run=0.01))
            for _ in range(3):
                run.look(Did(1, until, run=0.00004))
            run.look(Did(1, None, run=0.05), *[Did(2, NETWORK, run=0.01)] * is_over)
            run.look(Did(1, DISK, run=0.05))
            assert max(run.parts, key=lambda part: run.parts[part]) == kind, run.parts

    def test_a_loop_of_which_nobody_knows_what_ended_its_poll_waits_for_its_peers_in_the_run(
        self,
    ) -> None:
        """A scheduler whose workers answer, and that has timers, too."""
        polls = replace(POLL, helpers="pipe", helper_pids=frozenset((2,)))
        unclear = partial(wait, over=4, after_ns=9 * NS_PER_MS, came=(True,), timed_out=None)
        asks = wait(NETWORK, 1, process=2, over=4)
        assert shares(unclear(polls, 9), asks) == {"network": 100.0}
        assert shares(unclear(polls, 9), wait(SLEEP, 1, process=3)) == {}
        assert shares(unclear(POLL, 9), asks) == {}

    def test_a_loop_whose_timers_end_before_the_answer_comes_waits_for_that(self) -> None:
        polls = replace(POLL, helpers="pipe", helper_pids=frozenset((1,)))
        client = wait(asks(2), 100, over=4)
        timer = partial(wait, polls, 0.1, process=2, over=3, came=(False,), timed_out=True)
        last = wait(polls, 0.1, process=2, begun=3, over=4, came=(True, False))
        assert shares(client, timer(next_poll=last)) == {"network": 100.0}
        last.over = 5
        assert shares(client, timer(next_poll=last)) == {"sleep": 100.0}

    @pytest.mark.parametrize("gives_up", [True, False])
    def test_a_timeout_after_which_an_owed_answer_is_given_up_is_a_wait_for_it(
        self,
        gives_up: bool,  # noqa: FBT001
    ) -> None:
        """Else the timer of another task ended the poll."""
        owing = replace(POLL, connections=(replace(CONNECTION, owes=True, stream=b"7"),))
        then = SLEEP if gives_up else replace(owing, may_be_idle=False)
        run = LookedRun()
        for number in range(20):
            blocked = then if number % 2 else owing
            run.look(Did(1, blocked, run=0.1, came=(False,), timed_out=True))
        assert (run.parts["network"] > 40) == gives_up, run.parts

    def test_a_loop_to_which_an_answer_is_owed_waits_for_that(self) -> None:
        """Nobody knows whether its timer ended the poll."""
        unclear = partial(wait, over=4, after_ns=9 * NS_PER_MS, came=(True,), timed_out=None)
        owing = replace(POLL, connections=(replace(CONNECTION, owes=True),))
        assert shares(unclear(POLL, 9), wait(DISK, 1)) == {}
        assert shares(unclear(owing, 9), wait(DISK, 1)) == {"network": 90.0, "disk": 10.0}

    @pytest.mark.parametrize("is_owed", [True, False])
    def test_a_loop_whose_timers_work_before_the_answer_comes_tells_who_waits_for_it(
        self,
        is_owed: bool,  # noqa: FBT001
    ) -> None:
        """As a worker thread of Node that asks, and collects now and then: the main thread waits
        for its message. Rows that nobody asked for are not what it tells.
        """
        owing = replace(POLL, connections=(replace(CONNECTION, owes=is_owed, stream=b"7"),))
        wakes_up = replace(TIMED_FUTEX, wait=Wait("lock"))
        run = LookedRun(interval=0.2)
        for _ in range(20):
            run.look(Did(1, wakes_up, run=0.1), Did(2, owing, run=0.001), length=0.1)
            run.look(Did(2, owing, run=0.005, came=(False,), timed_out=True), length=0.4)
            run.look(Did(1, None, run=0.1), Did(2, owing, run=0.001, came=(True,)), length=0.4)
        assert (run.parts["network"] > 60) == is_owed, run.parts

    def test_who_only_helps_a_loop_does_not_say_that_its_timers_wait_for_the_answer(self) -> None:
        """As a thread of V8 that collects beside the main thread: it works after each poll."""
        owing = replace(POLL, connections=(replace(CONNECTION, owes=True, stream=b"7"),))
        run = LookedRun(interval=0.2)
        for _ in range(20):
            run.look(Did(1, LOCK, run=0.002), Did(2, owing, run=0.05, came=(True,)), length=0.4)
            run.look(Did(2, owing, run=0.05, came=(False,), timed_out=True), length=0.4)
        assert run.parts["sleep"] == pytest.approx(run.parts["network"], abs=5)

    @pytest.mark.parametrize(
        ("answers", "sleep"),
        [
            pytest.param(1, 50.0, id="timers end as many"),
            pytest.param(3, 25.0, id="timers end some"),
            pytest.param(4, 17.0, id="timers end hardly any"),
        ],
    )
    def test_an_end_by_a_timer_or_an_owed_answer_is_divided_as_the_certain_ones_are(
        self, answers: int, sleep: float
    ) -> None:
        """A queue of tasks, of which some ask, and others pause."""
        owing = replace(POLL, connections=(replace(CONNECTION, owes=True, stream=b"7"),))
        answered = Did(1, owing, run=0.01, came=(True,))
        run = LookedRun()
        for _ in range(20):
            for _ in range(answers):
                run.look(answered)
            run.look(Did(1, owing, run=0.01, came=(False,), timed_out=True))
            run.look(Did(1, owing, run=0.01, came=(True,), timed_out=None))
        assert run.parts["sleep"] == pytest.approx(sleep, abs=3)

    @pytest.mark.parametrize(("arrivals", "kind"), [(1, "network"), (0, "sleep")])
    def test_parts_of_an_answer_are_what_a_loop_waits_for_whose_timers_end_no_wait(
        self, arrivals: int, kind: str
    ) -> None:
        """A download that comes slowly, and is compressed; or rows beside a timer."""
        run = LookedRun().look(Did(1, POLL, run=0.01))
        for _ in range(10):
            for _ in range(arrivals):
                run.look(Did(1, POLL, run=0.01, came=(True,)))
            for _ in range(3):
                run.look(Did(1, POLL, run=0.002, came=(True,)))
            run.look(Did(1, POLL, run=0.01, came=(True,), timed_out=None))
        assert run.parts[kind] > 80, run.parts

    def test_a_wait_of_which_nobody_saw_the_end_is_woken_as_the_one_before(self) -> None:
        event = replace(TIMED_FUTEX, helpers="memory", helper_pids=frozenset((2,)))
        reads = Did(2, DISK, run=0.001, process=2)
        for was_woken, name in ((True, "disk"), (False, "sleep")):
            run = LookedRun({1: 0, 2: 1})
            for _ in range(3):
                run.look(Did(1, event, run=0.1, was_woken=was_woken), reads).look(reads).look(reads)
            run.look(growth=[ThreadTimeGrowth(seconds(0.1), 0, thread=1, process=1)], ended=(2,))
            assert run.parts[name] > 80

    def test_who_asks_again_for_a_lock_after_a_timeout_waits_until_it_is_free(self) -> None:
        """As Java's monitors do; who does more after a timeout has slept."""
        monitor = replace(TIMED_FUTEX, until_ns=1)
        reads = Did(2, NETWORK, run=0.004)
        for little, sleep in ((0.00004, None), (0.00008, None), (0.0004, 24.0)):
            run = LookedRun().look(Did(1, monitor, run=0.1), reads)
            for _ in range(4):
                run.look(reads).look(reads).look(Did(1, monitor, run=little))
            run.look(reads).look(Did(1, None, run=0.1, was_woken=True), reads)
            assert run.parts.get("sleep") == sleep

    def test_a_wait_of_which_a_new_process_is_known_is_the_same_wait(self) -> None:
        event = replace(TIMED_FUTEX, helpers="memory", until_ns=1)
        run = LookedRun({1: 0, 2: 1}).look(Did(1, event, run=0.1))
        reads = Did(2, DISK, run=0.001, process=2)
        run.look(reads).look(reads).look(reads)
        run.look(Did(1, replace(event, helper_pids=frozenset((2,)))), reads)
        run.look(Did(1, None, run=0.1, was_woken=True))
        assert "sleep" not in run.parts

    def test_a_wait_with_a_timeout_that_a_signal_ended_is_sleep(self) -> None:
        """The death of a process takes CPU time, too."""
        run = LookedRun().look(Did(1, TIMED_FUTEX, run=0.1)).look()
        run.look(growth=[ThreadTimeGrowth(seconds(0.1), 0, thread=1, process=1)])
        assert run.parts["sleep"] > 80

    def test_to_what_came_before_the_timer_of_a_virtual_machine(self) -> None:
        """One of a pool to which a selector's thread gives each second task."""
        waiting, ticks = wait(LOCK, 250, begun=4, over=6), wait(TIMED_FUTEX, 2, begun=5, over=6)
        asks = wait(NETWORK, 0.7, begun=5, over=6, came=(True,))
        assert shares(waiting, ticks, asks)["network"] > 98
        scheduler = wait(TIMED_FUTEX, 0.1, begun=4, over=6)
        assert shares(waiting, scheduler, asks)["sleep"] > 99

    @pytest.mark.parametrize("blocked", [SLEEP, DISK], ids=["slept", "read"])
    def test_to_equal_threads_by_their_work(self, blocked: BlockedThread) -> None:
        """One that slept or read and one that was answered run after each other; a third waits for
        both.
        """
        waiting, other = wait(LOCK, 250, begun=4, over=6), wait(blocked, 2, begun=5, over=6)
        answered = wait(NETWORK, 2, begun=5, over=6, came=(True,))
        assert 49 < shares(waiting, other, answered)["network"] < 51

    def test_to_those_that_worked_before_as_to_those_that_work_next(self) -> None:
        """The threads of a pool work after they slept, and hardly after an answer."""
        main = wait(LOCK, 60, over=9)
        slept = wait(SLEEP, 0.2, begun=4, over=5, after_ns=10 * NS_PER_MS)
        answered = wait(NETWORK, 10, begun=4, over=5, after_ns=NS_PER_MS // 5, came=(True,))
        assert 49 < shares(main, slept, answered)["network"] < 51

    @pytest.mark.parametrize("blocked", [CHILD, pipe_to(2)], ids=["child", "pipe"])
    def test_to_the_children_of_those_that_work(self, blocked: BlockedThread) -> None:
        """A thread of a pool waits for a child that hardly works itself, another one is answered."""
        main, parent = wait(LOCK, 60, over=9), wait(blocked, 5, begun=4, over=5)
        child = wait(SLEEP, 0.1, process=2, begun=4, over=5, is_last=True, after_ns=0)
        answered = wait(NETWORK, 5, begun=4, over=5, came=(True,))
        of_child = shares(main, parent, child, answered, children={1: (2,)})["sleep"]
        assert 49 < of_child < 51

    def test_to_nobody_who_ran_as_the_process_ended(self) -> None:
        """An idle thread of a pool, and a virtual machine's own that runs at the end."""
        idle = wait(LOCK, 250, begun=4, over=9, is_last=True, was_cut=True)
        ticks, asks = wait(SLEEP, 0.1, begun=5, over=8), wait(NETWORK, 0.9, begun=5, over=7)
        assert shares(idle, ticks, asks)["network"] > 85

    def test_by_what_the_others_hand_on_to_them(self) -> None:
        """A main thread waits for the end of one that works whenever a timer wakes it."""
        main, works = wait(LOCK, 50), wait(LOCK, 250, begun=5, over=9)
        timer, rows = wait(SLEEP, 0.1, begun=5, over=9), wait(NETWORK, 0.1, begun=2, over=20)
        assert shares(main, works, timer, rows)["sleep"] > 99
        assert shares(main, timer, rows)["sleep"] == 50

    def test_to_nobody_whose_wait_ended_with_the_process(self) -> None:
        """A main thread waits until the end, beside a timer of an hour and a client that asks."""
        asking = wait(NETWORK, 1, begun=4, over=5)
        cut = partial(wait, over=9, is_last=True, was_cut=True)
        timer = cut(TIMED_FUTEX, 1)
        assert shares(cut(LOCK, 100), asking, timer)["network"] > 98
        assert shares(wait(LOCK, 100, over=9), timer) == {"sleep": 100.0}

    def test_to_a_timeout_if_nothing_else_works(self) -> None:
        waiting = wait(LOCK, 100, over=5)
        assert shares(waiting, wait(TIMED_FUTEX, 1, over=5)) == {"sleep": 100.0}
        assert shares(wait(LOCK, 100), wait(TIMED_FUTEX, 1, over=5)) == {"sleep": 100.0}

    def test_to_one_that_began_meanwhile(self) -> None:
        began = wait(SLEEP, 1, begun=5, is_first=True)
        assert shares(wait(LOCK, 100, begun=1), began, wait(NETWORK, 1, begun=5))["sleep"] > 95

    def test_to_the_one_child_for_which_a_thread_waits(self) -> None:
        waits = (
            wait(replace(CHILD, helper_pids=frozenset((2,))), 50),
            wait(SLEEP, 1, process=2),
            wait(NETWORK, 1, process=3),
        )
        found = shares(*waits, children={1: [2, 3]})
        assert found["sleep"] == pytest.approx(98.1, abs=0.2)
        # A container has other ids.
        other = (wait(replace(CHILD, helper_pids=frozenset((99,))), 50), *waits[1:])
        assert shares(*other, children={1: [2, 3]}) == {"sleep": 50.0, "network": 50.0}

    def test_a_lock_beside_a_listener_is_a_lock_and_a_child_that_listens_is_not(self) -> None:
        assert shares(wait(LOCK, 50), wait(LISTENS, 50)) == {"lock": 100.0}
        waits = (wait(CHILD, 50), wait(LISTENS, 1, process=2))
        assert shares(*waits, children={1: [2]}) == {"network": 100.0}

    def test_a_client_of_a_server_of_the_run_waits_for_what_that_waits_for(self) -> None:
        client = wait(asks(2), 30)
        assert shares(client, wait(SLEEP, 1, process=2)) == {"sleep": 100.0}
        assert shares(client, wait(LOCK, 1, process=2), wait(DISK, 1, process=2)) == {"disk": 100.0}
        for server in (wait(LISTENS, 1, process=2), wait(SLEEP, 0, process=3)):
            assert shares(client, server)["network"] > 95
        assert shares(client) == {"network": 100.0}

    def test_a_connection_within_the_run_may_be_idle(self) -> None:
        kept = replace(IDLE, helpers="pipe", helper_pids=frozenset((2,)))
        waits = (wait(SLEEP, 1), wait(LOCK, 50, process=2), wait(kept, 50, came=(False,)))
        assert shares(*waits)["sleep"] < 5
        assert shares(wait(SLEEP, 1), wait(kept, 50, came=(False,))) == {"sleep": 100.0}
        found = shares(wait(DISK, 1, process=2), wait(kept, 50, came=(True,)))
        assert found == {"disk": 100.0}

    def test_who_closes_its_connection_after_another_thread_has_woken_it_waits_for_that(
        self,
    ) -> None:
        """A loop that waited for a thread of its pool, at the end of the program."""
        closed = partial(wait, IDLE, 50, came=(None,), over=7)
        for over in (6, 7):
            sleeper = wait(SLEEP, 1, over=over, thread=2)
            assert shares(closed(), sleeper) == {"sleep": 100.0}
            assert shares(closed(had_come=True), sleeper)["network"] > 95
        for other in (
            wait(SLEEP, 1, over=8, thread=2),
            wait(SLEEP, 1, thread=2),
            wait(SLEEP, 1, over=7, thread=2, process=2),
        ):
            assert shares(closed(), other)["network"] > 95
        waits_for_it = wait(LOCK, 100, over=7, thread=2)
        assert shares(closed(), waits_for_it) == {"network": 100.0}
        assert shares(closed(), waits_for_it, wait(SLEEP, 1, thread=3))["network"] > 95
        serves = wait(LISTENS, 1, over=7, thread=2)
        assert shares(closed(), serves, wait(SLEEP, 1, thread=3))["network"] > 95
        limited = replace(POLL, until_ns=15 * NS_PER_SECOND)  # a timer that closes idle connections
        sleeper = wait(SLEEP, 1, over=7, thread=2)
        assert shares(wait(limited, 50, came=(None,), over=7), sleeper) == {"sleep": 100.0}
        owing = replace(IDLE, connections=(replace(CONNECTION, owes=True),))
        for blocked in (owing, POLL):
            other = wait(SLEEP, 1, over=7, thread=2)
            assert shares(wait(blocked, 50, came=(None,), over=7), other)["network"] > 95

    def test_who_closes_one_of_its_connections_waits_for_what_came_on_the_other(self) -> None:
        two = replace(IDLE, connections=(CONNECTION, CONNECTION))
        sleeper = wait(SLEEP, 1, over=7, thread=2)
        for came, kind in (((None, False), "sleep"), ((None, True), "network")):
            found = shares(wait(two, 50, came=came, over=7), sleeper)
            assert max(found, key=lambda each: found[each]) == kind
        # A connection to a server of the run is not idle because nothing came on it.
        other = replace(asks(9), connections=(CONNECTION,))
        assert shares(wait(other, 50, came=(False,), over=7), sleeper)["network"] > 95
        alone = wait(other, 50, came=(None,), over=7)
        assert shares(alone, wait(SLEEP, 1, thread=2))["network"] > 95

    def test_a_thread_of_a_pool_waits_for_what_the_thread_that_woke_it_waited_for(self) -> None:
        worker = wait(LOCK, 300, over=7)
        assert shares(worker, wait(LISTENS, 0.1, over=7)) == {"network": 100.0}
        assert shares(worker, wait(TIMED, 0.1, after_ns=0, over=7)) == {"sleep": 100.0}
        assert shares(worker, wait(TIMED, 0.1, over=7), wait(DISK, 1, over=9)) == {"disk": 100.0}
        assert shares(worker, wait(TIMED, 0.1, over=6)) == {"sleep": 100.0}, "it waited for a CPU"
        for over in (5, 8, None):
            assert shares(worker, wait(TIMED, 0.1, over=over)) == {"lock": 100.0}
        assert shares(wait(LOCK, 300), wait(TIMED, 0.1)) == {"lock": 100.0}
        ended = wait(LISTENS, 0.1, over=7, was_cut=True)
        assert shares(worker, ended) == {"lock": 100.0}
        for came, kind in ((False, "network"), (True, "lock")):
            woken = wait(LOCK, 300, over=7, enders=(wait(IDLE, 0.1, came=(came,)),))
            assert shares(woken, wait(LISTENS)) == {kind: 100.0}

    def test_many_threads_that_wait_for_each_other_cost_a_bounded_time(self) -> None:
        waits = [wait(LOCK, number % 7) for number in range(2000)]
        division = LookDivision(waits, {})
        assert division.share_of_each_wait() == {Wait("lock"): 1.0}
        division = LookDivision(waits[:100], {})
        division.share_of_each_wait()
        assert division._chains._steps <= 16 * 2 * 100

    def test_a_chain_that_is_too_long_to_walk_has_no_end(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(wait_chains, "_MAX_STEPS", 2)
        chain = [wait(pipe_to(number + 1), 9, process=number) for number in range(1, 4)]
        assert shares(*chain) == {}
        assert shares(*chain, wait(DISK, 1, process=4)) == {"disk": 100.0}

    def test_all_threads_of_a_large_pool_hand_on(self) -> None:
        waits = [wait(LOCK, 50, over=5) for _ in range(60)]
        assert shares(*waits, wait(NETWORK, 50, over=5)) == {"network": 100.0}

    def test_a_parent_of_a_child_that_waits_for_a_signal_waits_for_the_child(self) -> None:
        waits = (wait(CHILD, 1), wait(SIGNAL, 50, process=2))
        assert shares(*waits, children={1: [2]}) == {"child": 100.0}
        assert shares(wait(SIGNAL, 50), wait(SLEEP)) == {"sleep": 100.0}
        assert shares(wait(SIGNAL, 50)) == {"other": 100.0}
        serves = (*waits, wait(LISTENS, 1, process=3))
        assert shares(*serves, children={1: [2], 2: [3]}) == {"network": 100.0}

    def test_a_wait_for_a_limited_time_is_a_sleep_unless_another_thread_holds_it_up(self) -> None:
        assert shares(wait(TIMED_FUTEX, 50), wait(LISTENS, 9)) == {"sleep": 100.0}
        assert shares(wait(TIMED_FUTEX, 50), wait(NETWORK, 1)) == {"network": 100.0}
        ran = wait(NETWORK, 1, begun=5)
        assert shares(wait(TIMED_FUTEX, 99, begun=1), ran)["sleep"] > 95

    @pytest.mark.parametrize("blocked", [TIMED_FUTEX, SLEEP])
    def test_one_that_was_woken_before_waited_for_the_others(self, blocked: BlockedThread) -> None:
        """The thread that made a pool's tasks waits for their results, with a timeout."""
        worker = wait(NETWORK, 1, begun=5)
        assert shares(wait(blocked, 99, begun=1, was_woken=True), worker) == {"network": 100.0}
        assert shares(wait(blocked, 99, was_woken=True)) == {"lock": 100.0}

    def test_a_loop_that_an_unknown_process_woke_decides_nothing(self) -> None:
        """A worker of joblib without work, whose parent gives it the next one."""
        idle = wait(replace(SLEEP, has_timeout=True), 50, was_woken=True)
        assert shares(idle, wait(NETWORK, 1, process=2)) == {"network": 100.0}
        assert shares(idle) == {"lock": 100.0}

    def test_a_lock_whose_threads_wait_with_a_timeout_is_their_sleep(self) -> None:
        """A virtual machine's compiler waits for work beside the program's sleep."""
        compiler, program = wait(LOCK, 50), wait(TIMED_FUTEX, 300, begun=5)
        assert shares(compiler, program) == {"sleep": 100.0}
        assert shares(compiler, program, wait(NETWORK, 1))["network"] > 5


class TestSomebodyToCome:
    @pytest.mark.parametrize("idle", [LISTENS, IDLE, TIMED])
    def test_it_counts_only_where_nobody_waits_for_anything_else(self, idle: BlockedThread) -> None:
        assert shares(wait(idle, 500, after_ns=0), wait(SLEEP)) == {"sleep": 100.0}
        assert shares(wait(idle, 500, after_ns=0)) == {"network": 100.0}

    def test_a_connection_is_idle_if_nothing_came(self) -> None:
        for came, kind in ((True, "network"), (False, "sleep"), (None, "network")):
            found = shares(wait(IDLE, 500, came=(came,), after_ns=0), wait(SLEEP))
            assert found == {kind: 100.0}

    def test_of_one_that_did_not_run_again_the_wait_before_says_it(self) -> None:
        assert shares(wait(IDLE, 5), wait(SLEEP)) == {"sleep": 100.0}
        assert shares(wait(IDLE, 5, had_come=True), wait(SLEEP)) == {"network": 100.0}
        owing = replace(IDLE, connections=(replace(CONNECTION, owes=True),))
        assert shares(wait(owing, 5), wait(SLEEP)) == {"network": 100.0}

    def test_a_poll_that_its_timeout_ended_is_a_sleep_if_work_followed(self) -> None:
        assert shares(wait(TIMED, 0, after_ns=2 * NS_PER_MS)) == {"sleep": 100.0}
        assert shares(wait(TIMED, 9, after_ns=NS_PER_MS // 2)) == {"network": 100.0}

    def test_who_asks_again_and_again_for_an_answer_waits_for_it(self) -> None:
        """Nothing came in one of its polls, and its work follows the next ones."""
        owing = replace(TIMED, connections=(replace(CONNECTION, owes=True),))
        polls = wait(owing, 9, came=(False,), after_ns=300 * NS_PER_MS)
        assert shares(polls, wait(SLEEP, 1))["network"] > 99

    def test_what_came_before_says_nothing_of_a_wait_without_connections(self) -> None:
        assert shares(wait(LISTENS, 5, had_come=True), wait(SLEEP, 1)) == {"sleep": 100.0}

    def test_a_disk_is_known_by_the_state_though_the_call_is_hidden(self) -> None:
        assert shares(wait(replace(DISK, is_hidden=True))) == {"disk": 100.0}
        assert shares(wait(HIDDEN)) == {"hidden": 100.0}

    def test_the_last_wait_is_for_its_answer_though_loops_of_its_process_had_timers(self) -> None:
        last = partial(wait, milliseconds=5, was_for_timer=True, is_last=True)
        assert shares(last(NETWORK)) == {"network": 100.0}
        assert shares(last(POLL)) == {"sleep": 100.0}
        assert shares(wait(POLL, 0.1, was_for_timer=True, over=5)) == {"sleep": 100.0}

    def test_what_a_thread_does_before_it_ends_is_no_work_of_a_loop(self) -> None:
        ended = partial(wait, TIMED, after_ns=9 * NS_PER_MS, is_last=True)
        assert shares(ended(0.2)) == {"network": 100.0}
        assert shares(ended(2)) == {"sleep": 100.0}

    def test_what_else_it_waits_for_counts_if_nothing_comes(self) -> None:
        both = replace(IDLE, otherwise=CHILD)
        waits = (wait(both, 5, came=(False,)), wait(SLEEP, 1, process=2))
        assert shares(*waits, children={1: [2]}) == {"sleep": 100.0}
        assert shares(wait(both, 5, came=(True,))) == {"network": 100.0}
        came = wait(both, 5, came=(True,))
        found = shares(came, wait(SLEEP, 1, process=2), children={1: [2]})
        assert found["network"] > 80
        assert shares(wait(replace(LISTENS, otherwise=SLEEP))) == {"sleep": 100.0}
        woken = wait(replace(LISTENS, otherwise=pipe_to(2)), 5, was_woken=True)
        assert shares(woken) == {"network": 100.0}

    def test_the_one_connection_that_is_not_idle_is_named(self) -> None:
        several = replace(
            IDLE,
            wait=Wait("network", "2 connections"),
            connections=(CONNECTION, Connection("10.0.3.10:443", 5)),
        )
        for came, target in (
            ((False, True), "10.0.3.10:443"),
            ((True, True), "2 connections"),
        ):
            (found,) = LookDivision([wait(several, 5, came=came)], {}).share_of_each_wait()
            assert found.target == target

    def test_a_connection_on_which_nothing_came_yet_is_not_idle(self) -> None:
        greets = Connection("10.0.3.10:443", 0)
        both = replace(IDLE, may_be_idle=False, connections=(CONNECTION, greets))
        (found,) = LookDivision([wait(both, 5, came=(False, False))], {}).share_of_each_wait()
        assert found.target == greets.peer


def test_all_are_stopped_or_those_that_are_do_not_count() -> None:
    assert shares(wait(STOPPED), wait(STOPPED, 5)) == {"stopped": 100.0}
    assert shares(wait(STOPPED, 5), wait(SLEEP)) == {"sleep": 100.0}


def test_who_waits_for_a_program_that_it_traces_is_not_stopped() -> None:
    """As strace, whose program stops at each system call."""
    traced = wait(TRACED, 5, process=2)
    assert shares(wait(CHILD, 50), traced, children={1: [2]}) == {"child": 100.0}
    assert shares(traced) == {"stopped": 100.0}


def test_a_stopped_job_beside_a_thread_that_can_run_is_no_stop() -> None:
    """As that of a shell which has just begun its next command, or is about to."""
    assert shares(wait(STOPPED, 5, process=2), wait(None)) == {}
    assert shares(wait(STOPPED, 5, process=2)) == {"stopped": 100.0}


@pytest.mark.parametrize(
    "waits_for_it",
    [
        CHILD,
        pipe_to(2),
        asks(2),
        replace(FILE_LOCK, helpers="pipe", helper_pids=frozenset((2,))),
        replace(SHARED_LOCK, helper_pids=frozenset((2,))),
    ],
    ids=["child", "pipe", "answer", "file's lock", "lock in memory"],
)
def test_who_waits_for_a_process_that_is_stopped_is_stopped(waits_for_it: BlockedThread) -> None:
    children = {1: [2]}
    waiting, stopped = wait(waits_for_it, 50), wait(STOPPED, 1, process=2)
    assert shares(waiting, stopped, children=children) == {"stopped": 100.0}
    # Also a thread that waits for that one, beside a server to which nobody comes.
    others = (wait(LOCK, 20), wait(LISTENS, 5))
    assert shares(waiting, stopped, *others, children=children) == {"stopped": 100.0}


def test_a_chain_that_reaches_a_known_wait_is_not_stopped() -> None:
    children = {1: [2, 3]}
    stopped = wait(STOPPED, 90, process=2)
    assert shares(wait(CHILD, 50), stopped, wait(SLEEP, 1, process=3), children=children) == {
        "sleep": 100.0
    }
    assert shares(wait(CHILD, 50), stopped, wait(None, 1, process=3), children=children) == {}
    assert shares(wait(SLEEP, 30), wait(pipe_to(2), 10), stopped, children=children) == {
        "sleep": 75.0,
        "stopped": 25.0,
    }
    assert shares(wait(pipe_to(3), 50), stopped, wait(DISK, 1, process=3), children=children) == {
        "disk": 100.0
    }


@each_case(
    ("foreground", "named"),
    [
        (LISTENS, "network"),
        (IDLE, "network"),
        (
            BlockedThread(wait=Wait("pipe"), helpers="pipe"),
            "pipe",
        ),  # the terminal, or the run's stdin
        (BlockedThread(wait=Wait("other")), "child"),
        (HIDDEN, "child"),
    ],
    ids=["server", "kept connection", "stdin", "signal", "hidden"],
)
@each_case("waits_for_both", [CHILD, pipe_to(2, 3)], ids=["child", "pipe"])
def test_who_waits_for_another_one_beside_a_stopped_one_is_not_stopped(
    foreground: BlockedThread, named: str, waits_for_both: BlockedThread
) -> None:
    """As a shell with a stopped job, or a supervisor of many: nothing proves that its wait is for
    the stopped one.
    """
    waits = (
        wait(waits_for_both, 50),
        wait(STOPPED, 90, process=2),
        wait(foreground, 1, process=3),
    )
    found = shares(*waits, children={1: [2, 3]})
    assert "stopped" not in found
    if waits_for_both is CHILD:
        assert named in found


@pytest.mark.parametrize("waits_for_it", [asks(2, 3), SHARED_LOCK], ids=["answer", "lock"])
def test_who_waits_for_a_stopped_one_or_for_one_of_which_nothing_is_known(
    waits_for_it: BlockedThread,
) -> None:
    waits_for_it = replace(waits_for_it, helper_pids=frozenset((2, 3)))
    waits = (wait(waits_for_it, 50), wait(STOPPED, 9, process=2), wait(HIDDEN, 1, process=3))
    assert "stopped" not in shares(*waits)
    assert shares(*waits[:2], wait(LISTENS, 1, process=3)) == {"stopped": 100.0}


WAITS = st.builds(
    wait,
    st.sampled_from(
        [NETWORK, DISK, SLEEP, LOCK, CHILD, LISTENS, IDLE, TIMED, pipe_to(1, 2), STOPPED, None]
    ),
    st.floats(0, 1e4),
    process=st.integers(1, 4),
    begun=st.integers(1, 5),
    over=st.sampled_from([None, 6, 7]),
)


@given(st.lists(WAITS, max_size=12), st.integers(1, 4))
def test_the_shares_add_up_to_one(waits: list[ThreadWait], parent: int) -> None:
    """Beside a thread that can run, there may be none: what is waited for may be its work."""
    found = LookDivision(waits, {parent: [1, 2, 3, 4]}).share_of_each_wait()
    blocked = [each.blocked for each in waits if each.blocked is not None]
    if not blocked:
        assert not found
    elif found or len(blocked) == len(waits) or {SLEEP, DISK, NETWORK}.intersection(blocked):
        assert sum(found.values()) == pytest.approx(1)
        assert min(found.values()) >= 0


@each_case(
    "end, kind",
    (
        ({}, "sleep"),
        ({"over": 3}, "sleep"),  # the client waited for a CPU
        ({"over": 2}, "network"),
        ({"over": 5}, "network"),
        ({"over": None}, "network"),
        ({"timed_out": False}, "network"),
        ({"timed_out": None}, "network"),
        # The client has asked again; of two connections, the other one may have brought the answer.
        ({"came": (True,)}, "sleep"),
        ({"came": (False, True)}, "network"),
    ),
)
def test_a_loop_whose_timer_ends_as_the_wait_of_its_client_sleeps(
    end: Mapping[str, Any], kind: str
) -> None:
    """The answer takes hardly any work."""
    polls = replace(POLL, helpers="pipe", helper_pids=frozenset((1,)))
    client = wait(asks(2), 100, over=4)
    known: dict[str, Any] = {
        "over": 4,
        "came": (False,),
        "timed_out": True,
        "after_ns": NS_PER_MS // 10,
    }
    server = partial(wait, polls, 0.1, process=2)
    assert shares(client, server(**{**known, **end})) == {kind: 100.0}
    parent = wait(replace(CHILD, helper_pids=frozenset((2,))), 100, over=4)
    assert shares(parent, server(**known), children={1: [2]}) == {"network": 100.0}
    other_server = wait(asks(3), 100, over=4)
    assert shares(other_server, server(**known)) == {"network": 100.0}
    others_client = replace(polls, helper_pids=frozenset((3,)))
    assert shares(client, wait(others_client, 0.1, process=2, **known)) == {"network": 100.0}
    client.was_cut = True
    assert shares(client, server(**known)) == {"network": 100.0}


@pytest.mark.parametrize(
    ("others", "same"),
    [
        ([wait(None)], SLEEP.wait),
        ([wait(SLEEP, 9, is_plain=True)], SLEEP.wait),
        ([wait(SLEEP, 9)], None),
        ([wait(DISK, is_plain=True)], None),
    ],
)
def test_who_can_run_leaves_certain_what_all_others_wait_for(
    others: Collection[ThreadWait], same: Wait | None
) -> None:
    waits = [*others, wait(SLEEP, 1, is_plain=True)]
    assert same_certain_wait(waits) == same
    if same is not None:
        assert LookDivision(waits, {}).share_of_each_wait() == {same: 1.0}
    assert same_certain_wait([wait(None)]) is None
    assert same_certain_wait([wait(LOCK, is_plain=True)]) is None
