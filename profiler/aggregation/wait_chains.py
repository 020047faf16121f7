"""Who waits for whom at a look, and who of them has most likely ended a wait.

A chain begins with a thread that waits for others, and ends with one that waits for nobody, for
somebody to come, or for a limited time. Who still waited when the wait was over cannot have ended
it; who ran meanwhile, and did not end it, is not waited for.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet

from profiler.aggregation.end_counts import EndCounts
from profiler.aggregation.sorted_waits import (
    HIDDEN,
    SLEEP,
    UNCLEAR,
    SortedWaits,
    waits_for_clients,
    with_busy_peer,
)
from profiler.aggregation.thread_wait import MIN_WORK_NS, ThreadWait
from profiler.aggregation.wait_order import (
    did_not_run_in,
    is_likely_for,
    may_have_ended,
    may_have_woken,
)
from profiler.aggregation.wait_proofs import (
    has_slept,
    is_asked_in_vain,
    is_beside_arrivals,
    is_for_children,
    is_told_of_arrival,
    usual_ends,
)
from profiler.readers.linux.wait_types import BlockedThread, Wait

# A look goes through so many threads at most.
_MAX_STEPS = 4000


def _has_handing_timeout(handing: BlockedThread | None) -> bool:
    """Whether a thread waits for others, and its timeout may end that."""
    return handing is not None and handing.wait == SLEEP


def _polls_pipe_for_limited_time(handing: BlockedThread | None) -> bool:
    """Whether a thread polls a pipe for a limited time."""
    return handing is not None and handing.has_timeout and handing.wait.kind == "pipe"


def _is_told_by_any(ends: Iterable[ThreadWait], wait: ThreadWait) -> bool:
    """Whether a thread waited for what came to one of these, not for a timeout."""
    return is_told_of_arrival(wait) and any(end.has_come for end in ends)


def total_work_ns(wait: ThreadWait, carried: Mapping[ThreadWait, float]) -> float:
    """The work that a wait held back, with what was handed on to it so far."""
    return carried.get(wait, wait.held_back_work_ns)


def _likely_ends(
    waking: Sequence[ThreadWait], wait: ThreadWait, since: int, carried: Mapping[ThreadWait, float]
) -> Sequence[ThreadWait]:
    """Those of the waits that most likely ended another one. If all of these threads ran in vain
    meanwhile, as one that wakes the threads of a pool in turn does, it is what came, not the timer
    of a virtual machine. That waits for a lock for a limited time; who sleeps or reads a disk is a
    program's thread as those that are answered are.
    """
    all_ran = not any(
        did_not_run_in(end, wait, since) or end.is_sleep or end.is_for_disk for end in waking
    )
    if all_ran and (came := [end for end in waking if end.has_come]):
        return came
    likely = [end for end in waking if is_likely_for(end, wait, since, total_work_ns(end, carried))]
    return likely or waking


def _without_rare_timers(
    timed: Sequence[ThreadWait], known: Sequence[ThreadWait]
) -> list[ThreadWait]:
    """The timeouts but those that hardly have to do with the threads that work, as the timers of a
    virtual machine: less than two thirds of their ends were with waits of these, or less than half
    as many as of something known.
    """
    most = max([end.end_counts.with_workers for end in known], default=0)

    def is_rare(counts: EndCounts) -> bool:
        return 2 * counts.with_workers <= most or 3 * counts.with_workers < 2 * counts.ends

    return [end for end in timed if not (most and is_rare(end.end_counts))]


class WaitChains:
    """The chains from each thread that waits for others to the threads at their ends; ``children``
    are those of each process.
    """

    def __init__(self, waits: SortedWaits, children: Mapping[int, Collection[int]]) -> None:
        self._waits = waits
        self._children = children
        self._steps = 0
        self._is_cut = False  # the last walk along chains, which may take no more steps

    def wait_of_waker(self, wait: ThreadWait, ends: Collection[ThreadWait]) -> Wait | None:
        """What the thread of a pool waited for, if another one that waited for somebody to come
        woke it: both waits ended before the same look, or its own one look later, as it waited for
        a CPU. None if nothing shows that, or a child of its process ended then: the handler of the
        signal woke both.
        """
        over = wait.over
        if self._waits.handing[wait].helpers != "threads" or over is None:
            return None
        if self._waits.handing[wait].may_be_told_of_child and self._has_child_that_ended_with(
            wait, over
        ):
            return None
        # The end of a process ends the waits of all its threads.
        together = [
            (end.blocked, self._waits.idle[end])
            for end in ends
            if end in self._waits.idle
            and end.last_repeated_wait.over in (over, over - 1)
            and not end.last_repeated_wait.was_cut
        ]
        # A loop may have waited several times meanwhile.
        together += [
            (end.blocked, end.blocked.wait)
            for end in wait.enders
            if end.blocked and waits_for_clients(end.blocked, end) and not end.was_cut
        ]
        for blocked, _ in together:
            if blocked and blocked.has_timeout:
                return SLEEP  # that of a loop, whose pool does the work
        return together[0][1] if together else None

    def name_ends_by_answer(self, wait: ThreadWait, ends: Collection[ThreadWait]) -> None:
        """Let those of the ends be for an answer that woke the thread when it came: timers have
        ended some of their waits for it, and it was still owed.
        """
        over = wait.end
        if over is None or wait.was_cut:
            return
        for end in ends:
            if self._waits.firm.get(end) not in (SLEEP, UNCLEAR):
                continue
            last = end.last_for_answer(over)
            if last.blocked and last.has_owed_answer_come and last.over in (over, over - 1):
                self._waits.firm[end] = with_busy_peer(last.blocked, last)

    def _has_child_that_ended_with(self, wait: ThreadWait, over: int) -> bool:
        """Whether a child of the thread's process ended before this look, or one look before."""
        return any(
            child.last_repeated_wait.is_last and child.last_repeated_wait.over in (over, over - 1)
            for pid in self._children.get(wait.process, ())
            for child in self._waits.by_process.get(pid, ())
        )

    def ends_of(
        self, wait: ThreadWait, carried: Mapping[ThreadWait, float]
    ) -> Collection[ThreadWait]:
        """The threads at the ends of the chains that begin with this one; none if one of them could
        run when it was asked last, or was not asked since it ran, and may wait for anything now, or
        if there are too many threads to walk along all chains. Who still waited when the wait was
        over cannot have ended it. ``carried`` is what was handed on so far.
        """
        if has_slept(wait):
            return (wait,)
        reached, _ = self._reached_threads(wait, only_still=True)
        still = self._ends_of_known_kind(reached, wait)
        if still and (wait.end is None or any(may_have_ended(end, wait) for end in still)):
            return usual_ends(wait, still)
        is_timed = self._waits.handing[wait].wait.kind == "sleep"
        if is_timed and not is_asked_in_vain(wait):
            return still or (wait,)  # its timeout may end it
        if is_timed:
            still = []  # who still waits has not ended it
        reached, passed = self._reached_threads(wait, only_still=False)
        known = self._ends_of_known_kind(reached, wait)
        timed = [end for end in reached if _has_handing_timeout(self._waits.handing.get(end))]
        timed = _without_rare_timers(timed, known)
        if _is_told_by_any(known, wait):
            timed = []
        waking = [
            end
            for end in (*known, *timed)
            if may_have_woken(end, wait, total_work_ns(end, carried))
        ]
        if waking and not wait.was_cut:
            likely = usual_ends(wait, waking)
            return _likely_ends(likely, wait, self._last_work_ended(wait), carried)
        if still or is_timed:
            return still or (wait,)
        if not any(may_have_ended(end, wait) for end in known):
            known = [*known, *timed]
        return known or self._chain_ends_if_unknown(wait, reached, passed)

    def _last_work_ended(self, wait: ThreadWait) -> int:
        """The look since which no thread of the process works that waits for others of it now: what
        ran before may have woken one of these, as those of a pool.
        """
        worked = [
            other.begun
            for other in self._waits.by_process.get(wait.process, ())
            if other in self._waits.handing
            and self._waits.handing[other].wait.kind == "lock"
            and other.before_ns >= MIN_WORK_NS
        ]
        return max([wait.begun, *worked])

    def _chain_ends_if_unknown(
        self, wait: ThreadWait, reached: Sequence[ThreadWait], passed: AbstractSet[ThreadWait]
    ) -> Collection[ThreadWait]:
        """The ends of chains of which none is of a known kind."""
        if self._is_cut or any(end.blocked is None for end in reached):
            return ()
        stopped = [end for end in reached if end in self._waits.stopped]
        if stopped and self._has_only_this_end(stopped, wait, reached):
            return stopped
        asking = [end for end in passed if self._asks_others(end)]
        if asking:  # a proxy and its clients wait for each other, and the proxy for its server
            return asking
        serving = [end for end in passed if end in self._waits.serving]
        if serving and not any(self._waits_for_own_server(each) for each in passed):
            return serving
        sleeping = [end for end in passed if end.is_asking]
        sleeping += [
            end for end in reached if _polls_pipe_for_limited_time(self._waits.handing.get(end))
        ]
        if sleeping:  # as a server that sleeps, and watches whether its parent lives
            self._waits.named.update(dict.fromkeys(sleeping, SLEEP))
            return sleeping
        handing = [
            end
            for end in reached
            if end in self._waits.handing and self._waits.handing[end].wait.kind != "other"
        ]
        idle = [
            end for end in reached if end in self._waits.idle and end not in self._waits.handing
        ]
        return handing or idle or (wait,)

    def _has_only_this_end(
        self, stopped: Sequence[ThreadWait], wait: ThreadWait, reached: Sequence[ThreadWait]
    ) -> bool:
        """Whether no other end of the chains can be what a thread waits for: a shell with a stopped
        job waits for its other child, and a tracer lets its child go on. A lock, or an answer,
        never waits for who waits for somebody to come.
        """
        if any(end.blocked and end.blocked.is_traced for end in stopped):
            return False
        if self._waits.handing[wait].wait.kind in ("lock", "network"):
            return not any(end in self._waits.firm for end in reached)
        return len(stopped) == len(reached)

    def _waits_for_own_server(self, wait: ThreadWait) -> bool:
        """Whether a thread waits for the answer of a server of the run."""
        return wait in self._waits.handing and self._waits.handing[wait].wait.kind == "network"

    def _ends_of_known_kind(
        self, reached: Iterable[ThreadWait], wait: ThreadWait
    ) -> list[ThreadWait]:
        """The reached waits of a known kind; if some may have ended the wait, only these."""
        known = [end for end in reached if end in self._waits.firm and self._is_of_known_kind(end)]
        if _is_told_by_any(known, wait):
            known = [end for end in known if not end.is_of_loop]
        if is_beside_arrivals(wait):
            others = [end for end in known if not end.has_come]
            if any(may_have_ended(end, wait) for end in others):
                known = others
        known = [end for end in known if may_have_ended(end, wait)] or known
        return self._ended_children(known, wait) or known

    def _ended_children(self, ends: Sequence[ThreadWait], wait: ThreadWait) -> list[ThreadWait]:
        """Those of the ends that were over with the wait of a thread for a child as their thread
        ended: only the end of a child ends such a wait.
        """
        over = wait.end
        is_for_child = is_for_children(wait) or self._waits.handing[wait].helpers == "children"
        if over is None or not is_for_child:
            return []
        lasts = [(end, end.last_repeated_wait) for end in ends if end.process != wait.process]
        return [end for end, last in lasts if last.is_last and last.over in (over, over - 1)]

    def _is_of_known_kind(self, wait: ThreadWait) -> bool:
        """Whether the wait says more than that of a thread which waits for it."""
        name = self._waits.firm[wait]
        return name.kind not in ("other", HIDDEN.kind) or name.target is not None

    def _reached_threads(
        self, start: ThreadWait, *, only_still: bool
    ) -> tuple[list[ThreadWait], AbstractSet[ThreadWait]]:
        """The threads that hand on to nobody, or have a timeout, and that ``start`` reaches; and
        all on the way to them.

        ``only_still``: a thread hands on only to those that did not run while it waited. A server
        on whose connections nothing came hands on to its other clients, which may send what is
        waited for.
        """
        reached: list[ThreadWait] = []
        known: dict[ThreadWait, None] = {start: None}
        passed: set[int] = set()
        asked: dict[int, ThreadWait] = {}  # for the threads of a process
        pending = [start]
        while pending and self._steps < _MAX_STEPS:
            wait = pending.pop()
            passed.add(wait.process)
            is_idle = wait in self._waits.idle
            handing = self._waits.handing.get(wait)
            is_end = (
                is_idle or _has_handing_timeout(handing) or _polls_pipe_for_limited_time(handing)
            )
            first = wait
            if handing and handing.waits_for_any_thread:
                first = asked.setdefault(wait.process, wait)
            helpers: Collection[ThreadWait] = ()  # after the first: no others of the process
            if first is wait:
                helpers = self._waits_of_helpers(
                    wait, handing or (wait.blocked if is_idle else None)
                )
                is_end = is_end or not helpers
            if is_end and wait is not start:
                reached.append(wait)
            self._steps += len(helpers)
            for helper in helpers:
                if helper in known or (only_still and not did_not_run_in(helper, wait)):
                    continue
                if is_idle and helper.process in passed:
                    continue
                known[helper] = None
                pending.append(helper)
        self._is_cut = bool(pending)
        return reached, known.keys()

    def _waits_of_helpers(
        self, wait: ThreadWait, blocked: BlockedThread | None
    ) -> Collection[ThreadWait]:
        """The waits of those for whom a thread waits."""
        if not blocked or blocked.helpers == "nobody":
            return ()
        processes: Collection[int] = ()
        if blocked.helpers == "threads":
            processes = (wait.process,)
            if blocked.is_for_own_wake_up and len(self._waits.by_process[wait.process]) == 1:
                # A signal's handler wakes it, as at the end of a child of make.
                processes = self._children.get(wait.process, ())
        elif blocked.helpers == "children":
            children = self._children.get(wait.process, ())
            # A container may have other ids than the reader.
            processes = blocked.helper_pids.intersection(children) or children
        elif blocked.helpers == "pipe":
            # A child that has just begun was not asked for its end of the pipe.
            processes = blocked.helper_pids or self._children.get(wait.process, ())
        elif blocked.helpers == "memory":
            others = blocked.helper_pids.intersection(self._waits.by_process)
            processes = (wait.process, *(others or self._children.get(wait.process, ())))
        return [
            helper
            for process in processes
            for helper in self._waits.by_process.get(process, ())
            if helper is not wait and blocked.helper_thread in (None, helper.thread)
        ]

    def _asks_others(self, wait: ThreadWait) -> bool:
        """Whether a thread waits for processes of the run, or for the answer of others."""
        return wait in self._waits.handing and self._waits.handing[wait].awaits_answer_of_others
