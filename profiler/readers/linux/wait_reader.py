"""What a thread waits for at this moment: by its system call, where the call is readable, else by
its state.
"""

from collections.abc import Callable

from msgspec.structs import replace

from profiler.readers.linux import proc
from profiler.readers.linux.disk_evidence import DiskEvidence
from profiler.readers.linux.process_threads import ProcessThreads
from profiler.readers.linux.system_calls import SystemCall
from profiler.readers.linux.thread_counters import FollowedThread, ThreadState
from profiler.readers.linux.wait_types import MEMORY, STOPPED, TRACED, BlockedThread, Wait
from profiler.readers.linux.waited_target import WaitResolver

SLEEP_STATE = "S"
TRACED_STATE = "t"
STOPPED_STATES = ("T", TRACED_STATE)
ENDED_STATES = ("Z", "X", "x", "")
ENDED = BlockedThread(wait=Wait("ended"))
HIDDEN_DISK = BlockedThread(wait=Wait("disk"), is_hidden=True)
RUNNABLE_STATE = "R"
_DISK_STATE = "D"
# In these, only a frozen thread has the state of a wait for a disk.
INTERRUPTIBLE_KINDS = ("network", "sleep", "pipe", "lock", "child")
_DISK = BlockedThread(wait=Wait("disk"))
# What speaks for these at one look may be of another wait.
DISK_BY_STATE = (HIDDEN_DISK, _DISK)
_HIDDEN = BlockedThread(wait=Wait("other"), is_hidden=True)
_OTHER = BlockedThread(wait=Wait("other"))
# The kernel functions in which threads wait for memory under their group's limit.
_FOR_MEMORY = (b"mem_cgroup", b"memcg")
# Those in which threads wait for the answer of a file system's server, which is no disk to the
# machine, and those in which they wait for a program.
_FOR_FILE_SERVER = (b"nfs", b"rpc_", b"fuse", b"request_wait_answer", b"cifs", b"smb")
_FOR_PROGRAM = (b"usermodehelper", b"vfork", b"kernel_clone")
_MAX_FILE_BYTES = 1024


class BlockedReader:
    """Reads what threads wait for.

    Without ``knows_calls``, the machine's system calls are unknown. ``is_frozen``: whether the
    control group of a process is stopped. ``is_short_of_memory``: whether the batch's group waits
    for memory under its limit. ``disk``: what speaks for a wait for a disk.
    """

    def __init__(
        self,
        resolver: WaitResolver,
        *,
        knows_calls: bool,
        is_frozen: Callable[[int], bool],
        is_short_of_memory: Callable[[], bool],
        disk: DiskEvidence,
    ) -> None:
        self._resolver = resolver
        self._knows_calls = knows_calls
        self._is_frozen = is_frozen
        self._is_short_of_memory = is_short_of_memory
        self.disk = disk
        self.has_seen_call = False

    def read_blocked_thread(
        self, process: ProcessThreads, thread: FollowedThread, now_ns: int
    ) -> BlockedThread | None:
        """What the thread waits for; None if it is not blocked.

        Notes whether the system calls of its process are refused, and whether the connection that
        it waits for is to be asked for again.
        """
        thread.is_postponed = False
        if process.state in STOPPED_STATES:
            return TRACED if process.state == TRACED_STATE else STOPPED
        if process.is_refused or not self._knows_calls:
            return self._read_by_state(process, thread)
        try:
            call = thread.read_call()
        except PermissionError:
            return self._read_by_state(process, thread)
        except OSError:
            return ENDED
        self.has_seen_call = True
        if call is None:
            return None
        blocked = self._resolver.unconditional_wait(call)
        if blocked is None:
            blocked = self._wait_in_call(process.reading.pid, thread, call, now_ns)
        return STOPPED if self._is_frozen_in(process, blocked) else blocked

    def _read_by_state(
        self, process: ProcessThreads, thread: FollowedThread
    ) -> BlockedThread | None:
        """What the thread of a process without readable system calls waits for."""
        process.is_refused = True
        reading = process.reading
        if reading.threads > 1:
            state = thread.read_state()
        else:
            state = ThreadState(reading.state, reading.blocks_signals, reading.shows_function)
        return self._wait_in_state(reading.pid, thread, state, is_hidden=True)

    def _is_frozen_in(self, process: ProcessThreads, blocked: BlockedThread | None) -> bool:
        """Whether the process is frozen in a wait, alone of its group or with it."""
        if blocked is None or process.state != _DISK_STATE:
            return False
        return blocked.wait.kind in INTERRUPTIBLE_KINDS and self._is_frozen(process.reading.pid)

    def _wait_in_call(
        self, pid: int, thread: FollowedThread, call: SystemCall, now_ns: int
    ) -> BlockedThread | None:
        is_restarted = self._resolver.is_restarted(call)
        if is_restarted:
            call = self._resolver.restarted_call(call, kernel_function(thread))
        blocked: BlockedThread | None = self._resolver.resolve_wait(
            pid, call, now_ns, thread.ran_after_ns
        )
        thread.is_postponed = self._resolver.sockets.has_postponed
        if blocked is None:
            return None
        if blocked.may_be_idle and thread.has_left_call:
            return None  # what came ended the wait while it was asked what has come
        if is_restarted:  # its time began before the stop
            blocked = replace(blocked, until_ns=None, until_within_ns=None)
        has_path = blocked.wait.kind == "disk" and blocked.wait.target is not None
        if has_path and thread.read_state().letter == SLEEP_STATE:
            blocked = self._resolver.resolve_sleep(pid, call, blocked, now_ns)
        is_known = blocked.helpers != "nobody" or blocked.may_be_idle
        if blocked.wait.kind == "other" and not is_known:
            return self._wait_in_state(pid, thread, thread.read_state(), is_hidden=False)
        if blocked.wait.kind == "disk" and self._waits_for_memory(kernel_function(thread)):
            return MEMORY
        return blocked

    def _wait_in_state(
        self, pid: int, thread: FollowedThread, state: ThreadState, *, is_hidden: bool
    ) -> BlockedThread | None:
        """What a state shows without the system call; None for a thread that can run.

        A parent in vfork sleeps uninterruptibly, too, until its child executes a program. The C
        library and language runtimes block all signals meanwhile, but not in other sleeps.
        """
        if state.letter in ENDED_STATES:
            return ENDED
        if state.letter == RUNNABLE_STATE:
            return None
        is_at_disk = state.letter == _DISK_STATE
        if state.letter in STOPPED_STATES or (is_at_disk and self._is_frozen(pid)):
            return STOPPED
        if state.letter == SLEEP_STATE:
            thread.sleeps_unsignalled = state.blocks_signals
        is_in_vfork = state.blocks_signals and not thread.sleeps_unsignalled
        if is_at_disk and not is_in_vfork:
            return self._wait_uninterruptibly(pid, thread, state, is_hidden=is_hidden)
        return _HIDDEN if is_hidden else _OTHER

    def _wait_uninterruptibly(
        self, pid: int, thread: FollowedThread, state: ThreadState, *, is_hidden: bool
    ) -> BlockedThread:
        """What a thread waits for that no signal wakes: a disk only if something speaks for it, at
        each look as long as the thread does not run.

        To try to read the function of the kernel costs more than to read the thread's state.
        """
        shows_function = state.shows_function or not is_hidden
        place = kernel_function(thread) if shows_function else b""
        if self._waits_for_memory(place):
            return MEMORY
        is_at_disk = any(name in place for name in _FOR_FILE_SERVER)
        if not (is_at_disk or any(name in place for name in _FOR_PROGRAM)):
            is_at_disk = thread.is_postponed = self.disk.shows_wait(pid, thread)
        if is_hidden:
            return HIDDEN_DISK if is_at_disk else _HIDDEN
        return _DISK if is_at_disk else _OTHER

    def _waits_for_memory(self, place: bytes) -> bool:
        """Whether a thread that seems to wait for a disk waits for memory under its group's limit:
        by the function of the kernel in which it is, if readable, else by the group's pressure.
        """
        return any(name in place for name in _FOR_MEMORY) or self._is_short_of_memory()


def kernel_function(thread: FollowedThread) -> bytes:
    """The function of the kernel in which a thread waits; ``0`` or empty if that is not shown."""
    return proc.read_beginning(f"{thread.path}/wchan", _MAX_FILE_BYTES)
