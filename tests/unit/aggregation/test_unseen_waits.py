"""What a wait held back if no look saw the next one."""

import bisect
import itertools
import random
from collections import Counter
from collections.abc import Sequence

import pytest
from msgspec import Struct
from msgspec.structs import replace

from profiler.aggregation.thread_wait import ThreadWait
from profiler.aggregation.time_breakdown import TimeAccount
from profiler.aggregation.unseen_waits import WorkAroundKind, WorkByKind
from profiler.aggregation.work_between_waits import note_unseen_waits
from profiler.core.timestamps import NS_PER_MS
from profiler.readers.linux.look import ThreadSeen, ThreadsLook
from profiler.readers.linux.thread_counters import ThreadTimeGrowth
from profiler.readers.linux.wait_types import STOPPED, BlockedThread
from tests.fakes import seconds
from tests.looked_run import CHILD, DISK, LOCK, NETWORK, POLL, SLEEP
from tests.values import present

_RUN_SECONDS = 200
_LOOKS_SECONDS = 0.34


class TestWorkByKind:
    def around_network(self, between: int, until: int, since: int) -> WorkAroundKind:
        works = WorkByKind()
        works.add_work(NETWORK, DISK, until, 1)
        works.add_work(DISK, NETWORK, since, 1)
        return present(works.add_work(NETWORK, NETWORK, between, 2))

    @pytest.mark.parametrize(
        ("between", "until", "since", "part"),
        [
            (10, 5, 5, 0.5),  # a wait for the disk was in between
            (10, 9, 1, 0.9),
            (10, 1, 9, 0.1),
            (50, 1, 1, 0.98),  # other work: at most one such wait is proven
            (10, 10, 10, 1),  # several were in between each time, whatever was seen
            (5, 10, 10, 1),
        ],
    )
    def test_the_part_that_is_not_of_the_other_kind(
        self, between: int, until: int, since: int, part: float
    ) -> None:
        around = self.around_network(between, until, since)
        assert around.part_after == pytest.approx(part)
        around = self.around_network(between, since, until)
        assert around.part_before == pytest.approx(part)

    def test_all_if_no_other_kind_was_seen_after_it_and_before(self) -> None:
        works = WorkByKind()
        works.add_work(NETWORK, DISK, 1, 1)
        around = present(works.add_work(NETWORK, NETWORK, 5, 2))
        assert (around.part_after, around.part_before) == (1, 1)

    def test_all_if_the_thread_came_onto_a_cpu_only_once_in_between(self) -> None:
        works = WorkByKind()
        assert works.add_work(NETWORK, NETWORK, 5, 1) is None
        assert works.add_work(NETWORK, NETWORK, 5, 2) is not None

    def test_all_if_the_thread_used_nothing_in_between(self) -> None:
        assert self.around_network(0, 1, 1).part_after == 1

    @pytest.mark.parametrize("other", [CHILD, LOCK])
    def test_the_work_until_and_since_a_wait_that_others_end_tells_nothing(
        self, other: BlockedThread
    ) -> None:
        for until, since in ((DISK, other), (other, DISK)):
            works = WorkByKind()
            works.add_work(NETWORK, until, 1, 1)
            works.add_work(since, NETWORK, 1, 1)
            assert present(works.add_work(NETWORK, NETWORK, 10, 2)).part_after == 1

    @pytest.mark.parametrize("other", [CHILD, LOCK, STOPPED, replace(POLL, has_timeout=True)])
    def test_a_wait_that_others_or_a_loop_end_tells_nothing(self, other: BlockedThread) -> None:
        works = WorkByKind()
        assert works.add_work(other, other, 5, 2) is None


@pytest.mark.parametrize(("used_ns", "is_noted"), [(NS_PER_MS, False), (10 * NS_PER_MS, True)])
def test_who_sleeps_again_and_again_has_the_work_of_one_sleep_already(
    used_ns: int, *, is_noted: bool
) -> None:
    works = WorkByKind()
    works.add_work(SLEEP, DISK, NS_PER_MS, 1)
    before = ThreadWait(thread=1, process=1, blocked=SLEEP, begun=1, slices=b"1")
    following = ThreadWait(thread=1, process=1, blocked=SLEEP, begun=2, run_ns=used_ns, slices=b"6")
    note_unseen_waits(before, following, works)
    assert (before.around_after is not None) is is_noted
    assert following.around_before is before.around_after


def test_a_thread_that_waits_for_one_kind_only_has_all_its_work() -> None:
    before = ThreadWait(thread=1, process=1, blocked=NETWORK, begun=1)
    following = ThreadWait(thread=1, process=1, blocked=NETWORK, begun=2, run_ns=9, slices=b"6")
    note_unseen_waits(before, following, WorkByKind())
    assert before.around_after is following.around_before is None


class Turn(Struct, frozen=True):
    """A wait of a thread for so long, and the work that follows, in milliseconds."""

    blocked: BlockedThread
    wait_ms: float
    work_ms: float


class Pool:
    """Equal threads, each of which waits and works in turn, in ``pieces`` of its work. The work takes
    no time here.
    """

    def __init__(self, threads: int, turns: Sequence[Turn], pieces: int) -> None:
        self.pieces = pieces
        self.threads = [self._begins(turns, random.Random(number)) for number in range(threads)]
        self.positions = [0] * threads

    def _begins(self, turns: Sequence[Turn], chance: random.Random) -> list[tuple[float, Turn]]:
        """When each turn begins."""
        at, begins = 0.0, []
        for turn in itertools.cycle(turns):
            begins.append((at, turn))
            at += chance.uniform(0.2, 1.8) * turn.wait_ms / 1000
            if at > _RUN_SECONDS:
                return begins
        return begins

    def look(self, at: float) -> tuple[ThreadsLook, Counter[str]]:
        """A look, and the true weight of each kind: each thread has that of what it does before or
        after its wait.
        """
        growth: list[ThreadTimeGrowth] = []
        seen: list[ThreadSeen] = []
        weights: Counter[str] = Counter()
        for number, begins in enumerate(self.threads):
            since = self.positions[number]
            now = bisect.bisect(begins, at, key=lambda begin: begin[0]) - 1
            turn = begins[now][1]
            before_ms = begins[now - 1][1].work_ms
            weights[turn.blocked.wait.kind] += round(1000 * max(before_ms, turn.work_ms))
            if now != since or not at:
                used_ms = sum(each.work_ms for _, each in begins[since:now])
                growth.append(
                    ThreadTimeGrowth(
                        round(used_ms * NS_PER_MS),
                        0,
                        thread=number,
                        process=1,
                        slices=b"%d" % (self.pieces * now),
                    )
                )
                seen.append(ThreadSeen(number, 1, turn.blocked))
            self.positions[number] = now
        return ThreadsLook(growth=growth, seen=seen, sees_calls=True, cpus=16), weights

    def said_and_true_disk(self) -> tuple[float, float]:
        """The share of the disk in what the pool waits for, as the account says, and in truth."""
        account, chance, at = TimeAccount(0, seconds(1)), random.Random(0), 0.0
        true: list[float] = []
        while at < _RUN_SECONDS - 1:
            look, weights = self.look(at)
            account.add_look(seconds(at), look)
            true.append(weights["disk"] / weights.total())
            at += _LOOKS_SECONDS * chance.uniform(0.5, 1.5)
        said = account.breakdown_so_far()
        disk, network = present(said.disk_percent), present(said.network_percent)
        return 100 * disk / (disk + network), 100 * sum(true) / len(true)


@pytest.mark.parametrize("pieces", [1, 3], ids=["work in one go", "work in pieces"])
@pytest.mark.parametrize(
    ("threads", "turns"),
    [
        (16, (Turn(NETWORK, 800, 2), Turn(DISK, 200, 2))),
        (4, (Turn(NETWORK, 950, 5), Turn(DISK, 50, 5))),
        (8, (Turn(DISK, 300, 2), Turn(NETWORK, 100, 2))),
        (16, (Turn(NETWORK, 800, 20), Turn(DISK, 150, 0.2))),
        (16, (Turn(NETWORK, 800, 0.2), Turn(DISK, 150, 20))),
        (16, (Turn(NETWORK, 80, 2), Turn(DISK, 20, 2))),
        (8, (Turn(NETWORK, 300, 2), Turn(DISK, 300, 2))),
    ],
    ids=["80/20", "95/5", "disk 75", "work after", "work before", "short waits", "equal"],
)
def test_a_pool_whose_threads_wait_for_two_things_in_turn(
    threads: int, turns: Sequence[Turn], pieces: int
) -> None:
    said, true = Pool(threads, turns, pieces).said_and_true_disk()
    assert said == pytest.approx(true, abs=1.5)
