"""Whose wait held the run back, and what it waited for, at one look.

A look is divided among the threads that wait, each in proportion to the work that its wait held
back: the CPU time that the thread uses when it runs next, or used when it ran last, without that
around waits that no look saw (:mod:`unseen_waits`), and that of those who work while it waits for
them. A thread that waits for others hands its weight on to those of them that did not run meanwhile
(:mod:`wait_chains`). A wait for somebody to come counts only where no thread waits for anything
else (:mod:`sorted_waits`).
"""

from collections.abc import Collection, Mapping

from profiler.aggregation.sorted_waits import SLEEP, UNCLEAR, SortedWaits, with_busy_peer
from profiler.aggregation.thread_wait import MIN_WORK_NS, ThreadWait
from profiler.aggregation.wait_chains import WaitChains, total_work_ns
from profiler.core.timestamps import NS_PER_MS
from profiler.readers.linux.wait_types import Wait

# With more threads that wait for others, the heaviest hand on.
_MAX_HANDING = 16
# A thread that used so many times less CPU time than one for which it waits only helps that one, as
# those of Node.js that collect.
_HELPS_TIMES = 10
# A free thread helps a server's that used at least this part of its CPU time.
_MIN_SERVED_PART = 1 / 3
# A thread that used less CPU time than this has started a program, and done nothing since.
_START_NS = 10 * NS_PER_MS


def _without_unclear_shares(shares: Mapping[Wait, float]) -> Mapping[Wait, float]:
    """The shares of the others; none if these are the smaller part."""
    unclear = shares.get(UNCLEAR)
    if unclear is None:
        return shares
    if unclear >= 1 - unclear:
        return {}
    return {wait: share / (1 - unclear) for wait, share in shares.items() if wait != UNCLEAR}


def _add_weight(weights: dict[Wait, float], wait: ThreadWait, name: Wait, weight_ns: float) -> None:
    """Add the weight of a wait to that of its name. If a timer or an answer that was owed ended it,
    both have the part of the waits of the thread that they certainly ended.
    """
    part = wait.part_of_timeouts if name is UNCLEAR else None
    if part is not None and wait.blocked is not None:
        weights[SLEEP] = weights.get(SLEEP, 0) + part * weight_ns
        name = with_busy_peer(wait.blocked, wait)
        weight_ns *= 1 - part
    weights[name] = weights.get(name, 0) + weight_ns


def _shares_by_weight(names: Mapping[ThreadWait, Wait]) -> Mapping[Wait, float]:
    """The shares of waits that each count by their own weight."""
    kinds = set(names.values())
    if len(kinds) == 1 and UNCLEAR not in kinds:
        return {kinds.pop(): 1.0}
    weights: dict[Wait, float] = {}
    for wait, name in names.items():
        _add_weight(weights, wait, name, wait.held_back_work_ns)
    total = sum(weights.values())
    return {name: weight / total for name, weight in weights.items()}


def _only_helps(wait: ThreadWait, ends: Collection[ThreadWait]) -> bool:
    """Whether a thread has used so little that it only helps one of those for which it waits."""
    return _HELPS_TIMES * wait.run_ns < max(end.run_ns for end in ends)


def same_certain_wait(waits: Collection[ThreadWait]) -> Wait | None:
    """What all of these threads that are blocked certainly wait for, whatever each wait held back
    and whoever else did what; None if that has to be found out.
    """
    waiting = [wait for wait in waits if wait.blocked is not None]
    blocked = waiting[0].blocked if waiting else None
    if blocked is None or not blocked.is_certain:
        return None
    if all(wait.blocked is blocked and wait.is_plain and not wait.is_asking for wait in waiting):
        return blocked.wait
    return None


class LookDivision:
    """Divides one look: ``waits`` are those of all threads that are blocked, ``children`` the
    children of each process.
    """

    def __init__(
        self, waits: Collection[ThreadWait], children: Mapping[int, Collection[int]]
    ) -> None:
        self._waits = SortedWaits(waits, children)
        self._chains = WaitChains(self._waits, children)
        self._has_unknown = False

    def share_of_each_wait(self) -> Mapping[Wait, float]:
        """The share of each wait; empty if no thread is blocked, or all that are wait for some of
        which nobody knows what they do now.

        While all are stopped, they are stopped, not beside one that can run; so is who waits only
        for those that are.
        """
        return _without_unclear_shares(self._all_shares())

    def _all_shares(self) -> Mapping[Wait, float]:
        if self._waits.firm and not self._waits.handing:
            return _shares_by_weight(self._waits.firm)
        carried = self._weights_at_chain_ends()
        if not carried and self._has_unknown:
            return {}
        if not carried:
            self._waits.idle |= self._waits.serving
            carried = {wait: wait.held_back_work_ns for wait in self._waits.idle}
        if not carried and self._waits.able:
            return {}
        if not carried:
            return dict.fromkeys(self._waits.stopped.values(), 1.0)
        weights: dict[Wait, float] = {}
        for wait, weight_ns in carried.items():
            _add_weight(weights, wait, self._waits.wait_to_name(wait), weight_ns)
        total = sum(weights.values())
        return {name: weight / total for name, weight in weights.items()}

    def held_back_ns(self) -> Mapping[int, float]:
        """The work that the wait of each thread held back: its own, and what those who wait for it
        hand on. A thread that waits for somebody to come has none.
        """
        held_back_ns = {wait.thread: float(wait.held_back_work_ns) for wait in self._waits.handing}
        for wait, weight in self._weights_at_chain_ends().items():
            held_back_ns[wait.thread] = max(held_back_ns.get(wait.thread, 0), weight)
        return held_back_ns

    def _weights_at_chain_ends(self) -> dict[ThreadWait, float]:
        """The weights of the threads at the ends of all chains. Who waits for any thread of its
        process hands on last, as one of these may hand on to another process.
        """
        carried: dict[ThreadWait, float] = {
            wait: wait.held_back_work_ns for wait in self._waits.firm
        }
        handing = self._waits.handing
        heaviest = sorted(handing, key=lambda wait: -wait.held_back_work_ns)[:_MAX_HANDING]
        for wait in sorted(heaviest, key=lambda wait: handing[wait].helpers == "threads"):
            self._hand_weight_on(wait, carried)
        return carried

    def _hand_weight_on(self, wait: ThreadWait, carried: dict[ThreadWait, float]) -> None:
        """Add the weight of a thread that waits for others to those for which it waits, by their
        weights and what was handed on to them before.
        """
        ends = self._chains.ends_of(wait, carried)
        if not ends:
            self._has_unknown = True
            return
        handing = self._waits.handing[wait].wait
        if ends == (wait,) and (handing.kind == "other" or wait.is_of_loop):
            self._waits.idle[wait] = handing  # a signal, or its own wake-up
            return
        if all(end in self._waits.idle or end in self._waits.serving for end in ends):
            # A thread that waits for a child or a pipe may serve others, as those for which it
            # waits do. One that waits for a lock or for a server's answer does not, unless it only
            # helps them.
            woken = self._chains.wait_of_waker(wait, ends)
            if woken is not None:
                self._waits.named[wait] = woken
            elif handing.kind not in ("lock", "network") or self._waits_only_for_tasks(wait, ends):
                return
            carried[wait] = carried.get(wait, 0) + wait.held_back_work_ns
            return
        if not _only_helps(wait, ends):
            self._chains.name_ends_by_answer(wait, ends)
        own_ns = wait.held_back_work_ns
        weights = [total_work_ns(end, carried) for end in ends]
        total = sum(weights)
        for end, weight_ns in zip(ends, weights, strict=True):
            carried[end] = carried.get(end, 0) + own_ns * weight_ns / total

    def _waits_only_for_tasks(self, wait: ThreadWait, ends: Collection[ThreadWait]) -> bool:
        """Whether a thread waits for tasks of another one of its process, which does the work, or
        for its end; also one that has only started the others, as the main thread of tokio.
        """
        handing = self._waits.handing[wait]
        if handing.helpers != "threads" or handing.helper_thread is not None:
            return handing.helper_thread is not None
        if wait.run_ns < _START_NS:
            return True
        most_ns = max(end.run_ns for end in ends)
        if wait.following_work_ns < MIN_WORK_NS and _MIN_SERVED_PART * wait.run_ns <= most_ns:
            return True
        return _only_helps(wait, ends)
