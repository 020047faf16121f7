"""Which of the waits at a look are idle, and what the others say by themselves.

A wait for somebody to come is idle. A wait for work of others hands its weight on to them
(:mod:`wait_chains`). Every other wait is firm: it says what its thread waits for.
"""

from collections.abc import Collection, Mapping
from itertools import chain

from profiler.aggregation.thread_wait import MIN_WORK_NS, ThreadWait
from profiler.aggregation.wait_order import has_timer_that_ended
from profiler.aggregation.wait_proofs import is_timer_without_clients, is_told_of_arrival
from profiler.readers.linux.wait_types import BlockedThread, Wait

HIDDEN = Wait("hidden")
"""A wait whose kind nobody could read."""
SLEEP = Wait("sleep")
# A wait for a timer or for something that came: nobody can tell.
UNCLEAR = Wait("unclear")
# A loop's limited wait for clients as if it watched nothing but its own wake-up.
_WITHOUT_CLIENTS = BlockedThread(wait=SLEEP, has_timeout=True)
# A sleep until a thread asks again whether one of its children has ended.
_ASKED_CHILDREN = BlockedThread(wait=Wait("child"), helpers="children")


def waits_for_clients(blocked: BlockedThread, wait: ThreadWait) -> bool:
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
    if blocked.only_listens and (is_in_vain or (after_ns is None and wait.polls.timeouts)):
        return False  # a client may have ended the last of these polls
    if after_ns is None:
        return blocked.has_timeout and wait.before_ns >= MIN_WORK_NS
    return blocked.has_timeout and after_ns >= MIN_WORK_NS


def _without_timeout_of_woken(blocked: BlockedThread) -> BlockedThread:
    """A wait for a limited time that another thread or process has ended before."""
    helpers = "threads" if blocked.helpers == "nobody" else blocked.helpers
    return BlockedThread(wait=Wait("lock"), helpers=helpers, helper_pids=blocked.helper_pids)


def with_busy_peer(blocked: BlockedThread, wait: ThreadWait) -> Wait:
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


class SortedWaits:
    """The waits at a look by what they count as.

    ``firm`` and ``idle`` have the wait of each such thread, ``handing`` whom a thread waits for.
    ``serving`` are those of ``handing`` which also wait for somebody to come, and for whom.
    ``stopped`` threads go on when somebody lets them, ``able`` ones are not blocked. ``named`` has
    what some of ``handing`` waited for, where the end of the wait says more than its kind.
    ``by_process`` are all of these by process; it is empty if nobody hands on.
    """

    def __init__(
        self, waits: Collection[ThreadWait], children: Mapping[int, Collection[int]]
    ) -> None:
        self._waits = waits
        self.firm: dict[ThreadWait, Wait] = {}
        self.idle: dict[ThreadWait, Wait] = {}
        self.serving: dict[ThreadWait, Wait] = {}
        self.handing: dict[ThreadWait, BlockedThread] = {}
        self.named: dict[ThreadWait, Wait] = {}
        self.able: list[ThreadWait] = []
        self.stopped: dict[ThreadWait, Wait] = {}
        self.by_process: dict[int, list[ThreadWait]] = {}
        for wait in waits:
            blocked = wait.blocked
            if blocked is None:
                self.able.append(wait)
            elif wait.is_plain and blocked.is_certain:
                self.firm[wait] = blocked.wait
            else:
                self._add_uncertain(wait, blocked)
        if self.able or self.handing:
            self._hand_on_for_those_who_ask(children)
        if self.handing:
            for group in (self.firm, self.idle, self.handing, self.able, self.stopped):
                for wait in group:
                    self.by_process.setdefault(wait.process, []).append(wait)

    def _hand_on_for_those_who_ask(self, children: Mapping[int, Collection[int]]) -> None:
        """Who sleeps until it asks again whether a child has ended waits for what its children wait
        for, unless that is somebody to come, or its parent; of one that can run, it is not known.
        """
        asking = [wait for wait in self.firm if wait.is_asking]
        if not asking:
            return
        counting = {wait.process for wait in chain(self.firm, self.handing, self.able)}
        for wait in asking:
            if not counting.isdisjoint(children.get(wait.process, ())):
                self.named[wait] = self.firm.pop(wait)
                self.handing[wait] = _ASKED_CHILDREN

    def _add_uncertain(self, wait: ThreadWait, blocked: BlockedThread) -> None:
        """Sort a wait of which its end may say more than its kind."""
        if blocked.may_go_on:
            if wait.was_ended_by_timer or self._answers_by_timer(wait, blocked):
                self.firm[wait] = SLEEP
                return
            if wait.is_end_unclear:
                if blocked.helpers == "nobody":
                    self.firm[wait] = UNCLEAR
                    return
                self.named[wait] = UNCLEAR  # unless those at the other ends say more
        if is_timer_without_clients(wait):
            blocked = _WITHOUT_CLIENTS
        is_woken = wait.is_woken and not blocked.may_be_idle
        is_woken = is_woken or (blocked.is_timeout_of_own_wake_up and is_told_of_arrival(wait))
        is_firm = not (blocked.may_be_idle or blocked.is_stopped or is_woken)
        if is_firm and blocked.helpers == "nobody":
            self.firm[wait] = with_busy_peer(blocked, wait)
        else:
            self._add_wait(wait, blocked, is_woken=is_woken)

    def _add_wait(self, wait: ThreadWait, blocked: BlockedThread, *, is_woken: bool) -> None:
        """Sort a wait for others, for somebody to come, or that was over before its timeout."""
        if blocked.otherwise and waits_for_clients(blocked, wait):
            self.serving[wait] = blocked.wait
            blocked = blocked.otherwise
        elif is_woken:
            blocked = _without_timeout_of_woken(blocked)
        if blocked.is_stopped:
            self.stopped[wait] = blocked.wait
        elif waits_for_clients(blocked, wait) or self._was_closed_after_end(wait, blocked):
            if _has_ended_by_timeout(blocked, wait):
                self.firm[wait] = SLEEP
            else:
                self.idle[wait] = blocked.wait
        elif blocked.helpers != "nobody":
            self.handing[wait] = blocked
        else:
            self.firm[wait] = with_busy_peer(blocked, wait)

    def _answers_by_timer(self, wait: ThreadWait, server: BlockedThread) -> bool:
        """Whether the timer of a loop ended as the wait of a client of the run for its answer did,
        however little work that was: a server which lets its clients wait.
        """
        return any(
            client is not wait
            and client.process in server.helper_pids
            and client.blocked
            and client.blocked.wait.kind == "network"
            and wait.process in client.blocked.helper_pids
            and not client.was_cut
            and has_timer_that_ended(wait, client)
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
            and other.blocked
            and not (other.blocked.may_be_idle or other.blocked.waits_for_any_thread)
            and other.over in (wait.over, wait.over - 1)
            for other in self._waits
        )

    def wait_to_name(self, wait: ThreadWait) -> Wait:
        """What a thread waited for."""
        if wait in self.handing and wait not in self.idle:
            return self.named.get(wait) or with_busy_peer(self.handing[wait], wait)
        return self.firm.get(wait) or self.stopped.get(wait) or self.idle[wait]
