"""Whose wait held the run back, and what it waited for, at one look.

A look is divided among the threads that wait, each in proportion to the work that its wait held
back: the CPU time that the thread uses when it runs next, or used when it ran last, and that of
those who work while it waits for them. A thread that waits for others hands its weight on to those
of them that did not run meanwhile. A wait for somebody to come counts only where no thread waits
for anything else.
"""

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet

from profiler.aggregation.thread_wait import MIN_WORK_NS, ThreadWait
from profiler.core.optional_math import first_known
from profiler.core.timestamps import NS_PER_MS
from profiler.readers.linux.wait_types import BlockedThread, Wait

HIDDEN = Wait("hidden")
"""A wait whose kind nobody could read."""
_SLEEP = Wait("sleep")
# A loop's limited wait for clients as if it watched nothing but its own wake-up.
_WITHOUT_CLIENTS = BlockedThread(wait=_SLEEP, has_timeout=True)
# A wait for a timer or for something that came: nobody can tell.
_UNCLEAR = Wait("unclear")
# With more threads that wait for others, the heaviest hand on, and a look goes through so many
# threads at most.
_MAX_HANDING = 16
_MAX_STEPS = 4000
# A thread that used so many times less CPU time than one for which it waits only helps that one, as
# those of Node.js that collect.
_HELPS_TIMES = 10
# A free thread helps a server's that used at least this part of its CPU time.
_MIN_SERVED_PART = 1 / 3
# A thread that used less CPU time than this has started a program, and done nothing since.
_START_NS = 10 * NS_PER_MS


def _waits_for_clients(blocked: BlockedThread, wait: ThreadWait) -> bool:
    """Whether the wait is for somebody to come: nothing came on its connections."""
    if not blocked.may_be_idle:
        return False
    wait = wait.last_repeated_wait
    if wait.came is not None:
        # A client may ask again and again whether its answer has come.
        still_asks = blocked.has_timeout and blocked.awaits_answer
        return all(came is False for came in wait.came) and not still_asks
    if not blocked.connections:
        return True
    return not wait.had_come and not blocked.awaits_answer


def _has_ended_by_timeout(blocked: BlockedThread, wait: ThreadWait) -> bool:
    """Whether a timeout ended a wait for somebody to come, and work followed; a thread that ends
    does other work.
    """
    is_in_vain = wait.next_poll is not None
    wait = wait.last_repeated_wait
    after_ns = None if wait.is_last else wait.after_ns
    if blocked.only_listens and (is_in_vain or (after_ns is None and wait.timeouts)):
        return False  # a client may have ended the last of these polls
    if after_ns is None:
        return blocked.has_timeout and wait.before_ns >= MIN_WORK_NS
    return blocked.has_timeout and after_ns >= MIN_WORK_NS


def _without_timeout_of_woken(blocked: BlockedThread) -> BlockedThread:
    """A wait for a limited time that another thread or process has ended before."""
    helpers = "threads" if blocked.helpers == "nobody" else blocked.helpers
    return BlockedThread(wait=Wait("lock"), helpers=helpers, helper_pids=blocked.helper_pids)


def _with_busy_peer(blocked: BlockedThread, wait: ThreadWait) -> Wait:
    """The wait with the one connection that is not idle, if several are watched."""
    if blocked.is_hidden and blocked.wait.kind == "other":
        return HIDDEN
    wait = wait.last_repeated_wait
    if len(blocked.connections) < 2 or wait.came is None:  # noqa: PLR2004  a choice
        return blocked.wait
    busy = [
        connection.peer
        for connection, came in zip(blocked.connections, wait.came, strict=False)
        if came is not False or not connection.received_bytes
    ]
    return Wait("network", busy[0]) if len(busy) == 1 else blocked.wait


def _has_handing_timeout(handing: BlockedThread | None) -> bool:
    """Whether a thread waits for others, and its timeout may end that."""
    return handing is not None and handing.wait == _SLEEP


def _polls_pipe_for_limited_time(handing: BlockedThread | None) -> bool:
    """Whether a thread polls a pipe for a limited time."""
    return handing is not None and handing.has_timeout and handing.wait.kind == "pipe"


def _without_unclear_shares(shares: Mapping[Wait, float]) -> Mapping[Wait, float]:
    """The shares of the others; none if these are the smaller part."""
    unclear = shares.get(_UNCLEAR)
    if unclear is None:
        return shares
    if unclear >= 1 - unclear:
        return {}
    return {wait: share / (1 - unclear) for wait, share in shares.items() if wait != _UNCLEAR}


def _likely_ends(
    waking: Sequence[ThreadWait], wait: ThreadWait, since: int
) -> Sequence[ThreadWait]:
    """Those of the waits that most likely ended another one. If all of these threads ran in vain
    meanwhile, as one that wakes the threads of a pool in turn does, it is what came, not the timer
    of a virtual machine. That waits for a lock for a limited time; who sleeps is a program's thread
    as those that are answered are.
    """
    all_ran = not any(end.did_not_run_in(wait, since) or end.is_sleep for end in waking)
    if all_ran and (came := [end for end in waking if end.has_come]):
        return came
    return [end for end in waking if end.is_likely_for(wait, since)] or waking


def _without_rare_timers(
    timed: Sequence[ThreadWait], known: Sequence[ThreadWait]
) -> list[ThreadWait]:
    """The timeouts but those that hardly have to do with the threads that work, as the timers of a
    virtual machine: less than two thirds of their ends were with waits of these, or less than half
    as many as of something known.
    """
    most = max([end.ended_with for end in known], default=0)
    return [
        end
        for end in timed
        if not most or (2 * end.ended_with > most and 3 * end.ended_with >= 2 * end.ends)
    ]


def _shares_by_weight(names: Mapping[ThreadWait, Wait]) -> Mapping[Wait, float]:
    """The shares of waits that each count by their own weight."""
    kinds = set(names.values())
    if len(kinds) == 1:
        return {kinds.pop(): 1.0}
    weights: dict[Wait, int] = {}
    total = 0
    for wait, name in names.items():
        weight_ns = wait.held_back_work_ns
        total += weight_ns
        weights[name] = weights.get(name, 0) + weight_ns
    return {name: weight / total for name, weight in weights.items()}


def same_certain_wait(waits: Collection[ThreadWait]) -> Wait | None:
    """What all of these threads that are blocked certainly wait for, whatever each wait held back
    and whoever else did what; None if that has to be found out.
    """
    waiting = [wait for wait in waits if wait.blocked is not None]
    blocked = waiting[0].blocked if waiting else None
    if blocked is None or not blocked.is_certain:
        return None
    if all(wait.blocked is blocked and wait.is_plain for wait in waiting):
        return blocked.wait
    return None


class LookDivision:
    """Divides one look: ``waits`` are those of all threads that are blocked, ``children`` the
    children of each process.
    """

    def __init__(
        self, waits: Collection[ThreadWait], children: Mapping[int, Collection[int]]
    ) -> None:
        self._waits = waits
        self._children = children
        self._steps = 0
        self._is_cut = False  # the last walk along chains, which may take no more steps
        self._firm: dict[ThreadWait, Wait] = {}
        self._idle: dict[ThreadWait, Wait] = {}
        self._serving: dict[ThreadWait, Wait] = {}  # and wait for others, too
        self._handing: dict[ThreadWait, BlockedThread] = {}
        self._woken: dict[ThreadWait, Wait] = {}
        self._able: list[ThreadWait] = []
        self._stopped: dict[ThreadWait, Wait] = {}
        self._has_unknown = False
        for wait in waits:
            blocked = wait.blocked
            if blocked is None:
                self._able.append(wait)
            elif wait.is_plain and blocked.is_certain:
                self._firm[wait] = blocked.wait
            else:
                self._add_uncertain(wait, blocked)
        self._by_process: dict[int, list[ThreadWait]] = {}
        if self._handing:
            for group in (self._firm, self._idle, self._handing, self._able, self._stopped):
                for wait in group:
                    self._by_process.setdefault(wait.process, []).append(wait)

    def _add_uncertain(self, wait: ThreadWait, blocked: BlockedThread) -> None:
        if blocked.may_go_on:
            if wait.was_ended_by_timer or self._answers_by_timer(wait, blocked):
                self._firm[wait] = _SLEEP
                return
            if wait.is_end_unclear:
                if blocked.helpers == "nobody":
                    self._firm[wait] = _UNCLEAR
                    return
                self._woken[wait] = _UNCLEAR  # unless those at the other ends say more
        if wait.is_timer_without_clients:
            blocked = _WITHOUT_CLIENTS
        is_woken = wait.is_woken and not blocked.may_be_idle
        is_woken = is_woken or self._was_told_of_answer(wait, blocked)
        is_firm = not (blocked.may_be_idle or blocked.is_stopped or is_woken)
        if is_firm and blocked.helpers == "nobody":
            self._firm[wait] = _with_busy_peer(blocked, wait)
        else:
            self._add_wait(wait, blocked, is_woken=is_woken)

    def _add_wait(self, wait: ThreadWait, blocked: BlockedThread, *, is_woken: bool) -> None:
        if blocked.otherwise is not None and _waits_for_clients(blocked, wait):
            self._serving[wait] = blocked.wait
            blocked = blocked.otherwise
        elif is_woken:
            blocked = _without_timeout_of_woken(blocked)
        if blocked.is_stopped:
            self._stopped[wait] = blocked.wait
        elif _waits_for_clients(blocked, wait) or self._was_closed_after_end(wait, blocked):
            if _has_ended_by_timeout(blocked, wait):
                self._firm[wait] = _SLEEP
            else:
                self._idle[wait] = blocked.wait
        elif blocked.helpers != "nobody":
            self._handing[wait] = blocked
        else:
            self._firm[wait] = _with_busy_peer(blocked, wait)

    def _was_told_of_answer(self, wait: ThreadWait, blocked: BlockedThread) -> bool:
        """Whether a wait for the thread's own wake-up was over as something came on a connection of
        another thread, which has not run since the last work of this one, or since it asks: an
        answer that was owed, or anything if the thread does nothing but to ask again and again.
        Nobody saw the end of its last poll.
        """
        last = wait.last_repeated_wait
        end = last.over
        if end is None or not blocked.is_timeout_of_own_wake_up:
            return False
        since = first_known(last.idle_since, first_known(last.polled_since, last.begun))
        return any(
            other.process == wait.process
            and other.has_come
            and (last.asked_in_vain or other.awaits_answer)
            and other.end in (end, end - 1)
            and first_known(other.polled_since, other.begun) <= since
            for other in self._waits
        )

    def _answers_by_timer(self, wait: ThreadWait, server: BlockedThread) -> bool:
        """Whether the timer of a loop ended as the wait of a client of the run for its answer did,
        however little work that was: a server which lets its clients wait.
        """
        return any(
            client is not wait
            and client.process in server.helper_pids
            and client.blocked is not None
            and client.blocked.wait.kind == "network"
            and wait.process in client.blocked.helper_pids
            and not client.was_cut
            and wait.has_timer_that_ended(client)
            for client in self._waits
        )

    def _was_closed_after_end(self, wait: ThreadWait, blocked: BlockedThread) -> bool:
        """Whether the thread closed its idle connections after a wait which another thread of its
        process may have ended: a loop does so that waited for a thread of its pool, at the end of
        the program. Nobody knows any more whether something came, nor of a poll whose limit is
        unknown whether that ended it.
        """
        came = wait.came
        if not came or None not in came or any(came) or wait.over is None:
            return False
        has_unknown_limit = blocked.has_timeout and blocked.until_ns is None
        if has_unknown_limit or wait.had_come or blocked.awaits_answer:
            return False
        return any(
            other.process == wait.process
            and other.thread != wait.thread
            and other.blocked is not None
            and not other.blocked.may_be_idle
            and other.over in (wait.over, wait.over - 1)
            for other in self._waits
        )

    def share_of_each_wait(self) -> Mapping[Wait, float]:
        """The share of each wait; empty if no thread is blocked, or all that are wait for some of
        which nobody knows what they do now.

        While all are stopped, they are stopped, not beside one that can run; so is who waits only
        for those that are.
        """
        return _without_unclear_shares(self._all_shares())

    def _all_shares(self) -> Mapping[Wait, float]:
        if self._firm and not self._handing:
            return _shares_by_weight(self._firm)
        carried = self._weights_at_chain_ends()
        if not carried and self._has_unknown:
            return {}
        if not carried:
            self._idle |= self._serving
            carried = {wait: wait.held_back_work_ns for wait in self._idle}
        if not carried and self._able:
            return {}
        if not carried:
            return dict.fromkeys(self._stopped.values(), 1.0)
        weights: Counter[Wait] = Counter()
        for wait, weight in carried.items():
            # A Counter of floats.
            weights[self._wait_to_name(wait)] += weight  # type: ignore[assignment]
        total = weights.total()
        return {name: weight / total for name, weight in weights.items()}

    def held_back_ns(self) -> Mapping[int, float]:
        """The work that the wait of each thread held back: its own, and what those who wait for it
        hand on. A thread that waits for somebody to come has none.
        """
        held_back_ns = {wait.thread: float(wait.held_back_work_ns) for wait in self._handing}
        for wait, weight in self._weights_at_chain_ends().items():
            held_back_ns[wait.thread] = max(held_back_ns.get(wait.thread, 0), weight)
        return held_back_ns

    def _weights_at_chain_ends(self) -> dict[ThreadWait, float]:
        """The weights of the threads at the ends of all chains."""
        carried: dict[ThreadWait, float] = {wait: wait.held_back_work_ns for wait in self._firm}
        heaviest = sorted(self._handing, key=lambda wait: -wait.held_back_work_ns)
        for wait in heaviest[:_MAX_HANDING]:
            self._hand_weight_on(wait, carried)
        return carried

    def _wait_to_name(self, wait: ThreadWait) -> Wait:
        if wait in self._handing and wait not in self._idle:
            return self._woken.get(wait) or _with_busy_peer(self._handing[wait], wait)
        return self._firm.get(wait) or self._stopped.get(wait) or self._idle[wait]

    def _hand_weight_on(self, wait: ThreadWait, carried: dict[ThreadWait, float]) -> None:
        """Add the weight of a thread that waits for others to those for which it waits, by their
        weights and what was handed on to them before.
        """
        ends = self._chain_ends(wait)
        if not ends:
            self._has_unknown = True
            return
        handing = self._handing[wait].wait
        if ends == (wait,) and (handing.kind == "other" or wait.is_of_loop):
            self._idle[wait] = handing  # a signal, or its own wake-up
            return
        if all(end in self._idle or end in self._serving for end in ends):
            # A thread that waits for a child or a pipe may serve others, as those for which it
            # waits do. One that waits for a lock or for a server's answer does not, unless it only
            # helps them.
            woken = self._wait_of_woken_pool_thread(wait, ends)
            if woken is not None:
                self._woken[wait] = woken
            elif handing.kind not in ("lock", "network") or self._waits_only_for_tasks(wait, ends):
                return
            carried[wait] = carried.get(wait, 0) + wait.held_back_work_ns
            return
        own_ns = wait.held_back_work_ns
        weights = [carried.get(end, end.held_back_work_ns) for end in ends]
        total = sum(weights)
        for end, weight_ns in zip(ends, weights, strict=True):
            carried[end] = carried.get(end, 0) + own_ns * weight_ns / total

    def _waits_only_for_tasks(self, wait: ThreadWait, ends: Collection[ThreadWait]) -> bool:
        """Whether a thread waits for tasks of another one of its process, which does the work, or
        for its end; also one that has only started the others, as the main thread of tokio.
        """
        handing = self._handing[wait]
        if handing.helpers != "threads" or handing.helper_thread is not None:
            return handing.helper_thread is not None
        if wait.run_ns < _START_NS:
            return True
        most_ns = max(end.run_ns for end in ends)
        if wait.following_work_ns < MIN_WORK_NS and _MIN_SERVED_PART * wait.run_ns <= most_ns:
            return True
        return _HELPS_TIMES * wait.run_ns < most_ns

    def _wait_of_woken_pool_thread(
        self, wait: ThreadWait, ends: Collection[ThreadWait]
    ) -> Wait | None:
        """What the thread of a pool waited for, if another one that waited for somebody to come
        woke it: both waits ended before the same look, or its own one look later, as it waited for
        a CPU. None if nothing shows that, or a child of its process ended then: the handler of the
        signal woke both.
        """
        over = wait.over
        if self._handing[wait].helpers != "threads" or over is None:
            return None
        if self._handing[wait].may_be_told_of_child and self._has_child_that_ended_with(wait, over):
            return None
        # The end of a process ends the waits of all its threads.
        together = [
            (end.blocked, self._idle[end])
            for end in ends
            if end in self._idle
            and end.last_repeated_wait.over in (over, over - 1)
            and not end.last_repeated_wait.was_cut
        ]
        # A loop may have waited several times meanwhile.
        together += [
            (end.blocked, end.blocked.wait)
            for end in wait.enders
            if end.blocked is not None and _waits_for_clients(end.blocked, end) and not end.was_cut
        ]
        for blocked, _ in together:
            if blocked is not None and blocked.has_timeout:
                return _SLEEP  # that of a loop, whose pool does the work
        return together[0][1] if together else None

    def _has_child_that_ended_with(self, wait: ThreadWait, over: int) -> bool:
        """Whether a child of the thread's process ended before this look, or one look before."""
        return any(
            child.last_repeated_wait.is_last and child.last_repeated_wait.over in (over, over - 1)
            for pid in self._children.get(wait.process, ())
            for child in self._by_process.get(pid, ())
        )

    def _chain_ends(self, wait: ThreadWait) -> Collection[ThreadWait]:
        """The threads at the ends of the chains that begin with this one; none if one of them could
        run when it was asked last, or was not asked since it ran, and may wait for anything now, or
        if there are too many threads to walk along all chains. Who still waited when the wait was
        over cannot have ended it.
        """
        reached, _ = self._reached_threads(wait, only_still=True)
        still = self._ends_of_known_kind(reached, wait)
        if still and (wait.end is None or any(end.may_have_ended(wait) for end in still)):
            return still
        is_timed = self._handing[wait].wait.kind == "sleep"
        if is_timed and not wait.is_asked_in_vain:
            return still or (wait,)  # its timeout may end it
        reached, passed = self._reached_threads(wait, only_still=False)
        known = self._ends_of_known_kind(reached, wait)
        timed = [end for end in reached if _has_handing_timeout(self._handing.get(end))]
        timed = _without_rare_timers(timed, known)
        waking = [end for end in (*known, *timed) if end.may_have_woken(wait)]
        if waking and not wait.was_cut:
            return _likely_ends(waking, wait, self._last_work_ended(wait))
        if still or is_timed:
            return still or (wait,)
        if any(end.may_have_ended(wait) for end in known):
            return known
        return [*known, *timed] or self._chain_ends_if_unknown(wait, reached, passed)

    def _last_work_ended(self, wait: ThreadWait) -> int:
        """The look since which no thread of the process works that waits for others of it now: what
        ran before may have woken one of these, as those of a pool.
        """
        worked = [
            other.begun
            for other in self._by_process.get(wait.process, ())
            if other in self._handing
            and self._handing[other].wait.kind == "lock"
            and other.before_ns >= MIN_WORK_NS
        ]
        return max([wait.begun, *worked])

    def _chain_ends_if_unknown(
        self, wait: ThreadWait, reached: Sequence[ThreadWait], passed: AbstractSet[ThreadWait]
    ) -> Collection[ThreadWait]:
        """The ends of chains of which none is of a known kind."""
        if self._is_cut or any(end.blocked is None for end in reached):
            return ()
        stopped = [end for end in reached if end in self._stopped]
        if stopped and self._has_only_this_end(stopped, wait, reached):
            return stopped
        asking = [end for end in passed if self._asks_others(end)]
        if asking:  # a proxy and its clients wait for each other, and the proxy for its server
            return asking
        serving = self._serving.keys() & passed
        if serving and not any(self._waits_for_own_server(each) for each in passed):
            return serving
        polling = [end for end in reached if _polls_pipe_for_limited_time(self._handing.get(end))]
        if polling:  # as a server that sleeps, and watches whether its parent lives
            self._woken.update(dict.fromkeys(polling, _SLEEP))
            return polling
        handing = [
            end
            for end in reached
            if end in self._handing and self._handing[end].wait.kind != "other"
        ]
        idle = [end for end in reached if end in self._idle and end not in self._handing]
        return handing or idle or (wait,)

    def _has_only_this_end(
        self, stopped: Sequence[ThreadWait], wait: ThreadWait, reached: Sequence[ThreadWait]
    ) -> bool:
        """Whether no other end of the chains can be what a thread waits for: a shell with a stopped
        job waits for its other child, and a tracer lets its child go on. A lock, or an answer,
        never waits for who waits for somebody to come.
        """
        if any(end.blocked is not None and end.blocked.is_traced for end in stopped):
            return False
        if self._handing[wait].wait.kind in ("lock", "network"):
            return not any(end in self._firm for end in reached)
        return len(stopped) == len(reached)

    def _asks_others(self, wait: ThreadWait) -> bool:
        """Whether a thread waits for processes of the run, or for the answer of others."""
        return wait in self._handing and self._handing[wait].awaits_answer_of_others

    def _waits_for_own_server(self, wait: ThreadWait) -> bool:
        """Whether a thread waits for the answer of a server of the run."""
        return wait in self._handing and self._handing[wait].wait.kind == "network"

    def _ends_of_known_kind(
        self, reached: Iterable[ThreadWait], wait: ThreadWait
    ) -> list[ThreadWait]:
        """The reached waits of a known kind; if some may have ended the wait, only these."""
        known = [end for end in reached if end in self._firm and self._is_of_known_kind(end)]
        return [end for end in known if end.may_have_ended(wait)] or known

    def _is_of_known_kind(self, wait: ThreadWait) -> bool:
        """Whether the wait says more than that of a thread which waits for it."""
        name = self._firm[wait]
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
        known = {start}
        passed: set[int] = set()
        asked: dict[int, ThreadWait] = {}  # for the threads of a process
        pending = [start]
        while pending and self._steps < _MAX_STEPS:
            wait = pending.pop()
            passed.add(wait.process)
            is_idle = wait in self._idle
            handing = self._handing.get(wait)
            is_end = (
                is_idle or _has_handing_timeout(handing) or _polls_pipe_for_limited_time(handing)
            )
            first = wait
            if handing is not None and handing.waits_for_any_thread:
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
                if helper in known or (only_still and not helper.did_not_run_in(wait)):
                    continue
                if is_idle and helper.process in passed:
                    continue
                known.add(helper)
                pending.append(helper)
        self._is_cut = bool(pending)
        return reached, known

    def _waits_of_helpers(
        self, wait: ThreadWait, blocked: BlockedThread | None
    ) -> Collection[ThreadWait]:
        """The waits of those for whom a thread waits."""
        if blocked is None or blocked.helpers == "nobody":
            return ()
        processes: Collection[int] = ()
        if blocked.helpers == "threads":
            processes = (wait.process,)
        elif blocked.helpers == "children":
            children = self._children.get(wait.process, ())
            # A container may have other ids than the reader.
            processes = blocked.helper_pids.intersection(children) or children
        elif blocked.helpers == "pipe":
            # A child that has just begun was not asked for its end of the pipe.
            processes = blocked.helper_pids or self._children.get(wait.process, ())
        elif blocked.helpers == "memory":
            others = blocked.helper_pids.intersection(self._by_process)
            processes = (wait.process, *(others or self._children.get(wait.process, ())))
        return [
            helper
            for process in processes
            for helper in self._by_process.get(process, ())
            if helper is not wait and blocked.helper_thread in (None, helper.thread)
        ]
