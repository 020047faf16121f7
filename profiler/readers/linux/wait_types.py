"""What a blocked thread waits for."""

from typing import Literal

from msgspec import Struct

# Whose work a thread waits for: that of its children and their descendants, of the other threads of
# its process, of the processes at the other ends of a pipe or of connections within the batch, or
# that hold the lock of a file, or of the threads and processes that share the memory of a lock.
Helpers = Literal["nobody", "children", "threads", "pipe", "memory"]


class Wait(Struct, frozen=True):
    """The kind of a wait, and the peer or path if it has one."""

    kind: str
    target: str | None = None


class Connection(Struct, frozen=True, gc=False):
    """A TCP connection on which a thread waits, at the first look of the wait.

    ``owes``: the last that was sent is later than the last that came. ``inode`` and ``stream``: how
    to ask the kernel for it again, 0 if the kernel does not know it. ``received_segments`` and
    ``sent_segments``: in how many segments bytes came and were sent, None if unknown.
    ``is_within``: a process of the batch is at its other end.
    """

    peer: str
    received_bytes: int
    owes: bool = False
    inode: int = 0
    stream: bytes = b""
    received_segments: int | None = None
    sent_segments: int | None = None
    is_within: bool = False

    @property
    def awaits_answer(self) -> bool:
        """Whether it owes an answer, or a greeting."""
        return self.owes or not self.received_bytes


class BlockedThread(Struct, frozen=True, kw_only=True):
    """What a blocked thread waits for.

    ``helpers`` are those whose work it waits for, ``helper_pids`` the processes at the other ends
    of a pipe or a connection, or that hold a lock, or share its memory, or the child for which a
    thread waits, without it any child; ``helper_thread`` is the one whose end it waits for, without
    it any of its process.
    ``may_be_idle``: it watches nothing but listening and unconnected sockets, and ``connections``
    on which something has come before: where nothing comes on these, it waits for somebody to come,
    and ``otherwise`` is what else it waits for. ``has_timeout``: of poll, select or epoll.
    ``until_ns``: the timeout does not end the wait before this (monotonic), and at the latest so
    long after it, ``until_within_ns``, or whenever if that is None.
    ``only_listens``: nothing but clients that connect may come on the sockets that it watches.
    ``others_add``: other threads of the process say in the midst of the wait what it watches.
    ``is_stopped``: by a signal or a frozen group, ``is_traced``: or by a tracer such as strace,
    which lets it go on at once. ``is_hidden``: its system call is not readable.
    """

    wait: Wait
    helpers: Helpers = "nobody"
    may_be_idle: bool = False
    only_listens: bool = False
    has_timeout: bool = False
    until_ns: int | None = None
    until_within_ns: int | None = None
    connections: tuple[Connection, ...] = ()
    helper_pids: frozenset[int] = frozenset()
    helper_thread: int | None = None
    others_add: bool = False
    is_stopped: bool = False
    is_traced: bool = False
    is_hidden: bool = False
    otherwise: "BlockedThread | None" = None

    @property
    def is_certain(self) -> bool:
        """Whether it is what the thread waits for, whatever others do and whatever comes."""
        is_open = self.is_hidden or self.may_be_idle or self.is_stopped
        return self.helpers == "nobody" and not is_open

    @property
    def awaits_answer(self) -> bool:
        """Whether a connection owes an answer, or a greeting."""
        return any(each.awaits_answer for each in self.connections)

    @property
    def awaits_answer_of_others(self) -> bool:
        """Whether somebody who is not part of the batch owes an answer."""
        return any(each.awaits_answer and not each.is_within for each in self.connections)

    @property
    def may_wait_for_children(self) -> bool:
        """Whether the thread waits for a child, or for a pipe or memory which may be one's, too,
        at least if nothing comes.
        """
        blocked = self.otherwise or self
        has_end = blocked.helpers == "pipe" and blocked.wait.kind != "network"
        return has_end or blocked.helpers in ("children", "memory")

    @property
    def may_be_told_of_child(self) -> bool:
        """Whether a signal's handler may wake the thread, as at the end of a child: a loop watches
        its own wake-up, also beside sockets on which nobody comes.
        """
        return self.is_for_own_wake_up or self.may_be_idle

    @property
    def is_for_own_wake_up(self) -> bool:
        """Whether the thread waits for another one of its process, or for a signal's handler."""
        return self.helpers == "threads" and self.wait.kind == "other"

    @property
    def is_for_file_lock(self) -> bool:
        """Whether the thread waits for the lock of a file, which known processes hold."""
        return self.helpers == "pipe" and self.wait.kind == "lock"

    @property
    def waits_for_any_thread(self) -> bool:
        """Whether the thread waits for any other one of its process."""
        return self.helpers == "threads" and self.helper_thread is None

    @property
    def may_go_on(self) -> bool:
        """Whether the wait may be repeated until something comes on its connections: by a client
        that lets a signal end its waits, or by a loop that has timers.
        """
        return self.has_timeout and bool(self.connections)

    @property
    def may_time_out(self) -> bool:
        """Whether how it ended says something of it: a timeout, or something before it."""
        return self.may_go_on or self.until_ns is not None

    @property
    def is_timeout_of_event_loop(self) -> bool:
        """Whether a loop waits for its own wake-up, at most for a limited time."""
        return self.has_timeout and self.wait.kind == "sleep"

    @property
    def is_timeout_of_own_wake_up(self) -> bool:
        """Whether it is that, and nothing but the loop's own threads may wake it before."""
        return self.is_timeout_of_event_loop and self.helpers == "nobody" and not self.connections

    @property
    def is_timeout_of_listeners(self) -> bool:
        """Whether it waits at most for a limited time for clients that connect."""
        return self.only_listens and self.has_timeout and self.otherwise is None

    @property
    def may_ask_for_children(self) -> bool:
        """Whether the thread may sleep until it asks again whether a child has ended."""
        return self.wait.kind == "sleep" and self.helpers == "nobody"


STOPPED = BlockedThread(wait=Wait("other", "stopped"), is_stopped=True)
TRACED = BlockedThread(wait=STOPPED.wait, is_stopped=True, is_traced=True)
MEMORY = BlockedThread(wait=Wait("other", "memory"))
