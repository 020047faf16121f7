"""What ``schedstat``, ``stat`` and ``syscall`` in ``/proc/PID/task/TID`` say of one thread, and
which of its waits for a CPU can be true. The files stay open as far as the process's limit permits.

An open file belongs to its thread: after the thread's end it cannot be read, also if another thread
has the same number. To open and close a file costs more than to read it.
"""

import os
from collections.abc import Iterator, Sequence
from resource import RLIMIT_NOFILE, getrlimit

from msgspec import Struct

from profiler.core.files import open_or_none
from profiler.core.timestamps import NS_PER_MS
from profiler.readers.linux import proc
from profiler.readers.linux.poll_outcome import WorkBeginBounds
from profiler.readers.linux.system_calls import SystemCall, parse_system_call
from profiler.readers.linux.wait_types import BlockedThread, Wait

# The files of all threads together, up to a quarter of those that may be open, usually 1024.
_MAX_OPEN_FILES = 256
_MAX_SHARE_OF_FILES = 4
# Linux 6.18 sometimes counts the time in which a thread was blocked as a wait for a CPU, on a
# machine with much to do. So a thread that was blocked when it was asked, and has not run since,
# can have waited for at most the last step or this time. A longer wait does not count.
_MAX_UNSEEN_WAIT_NS = 500 * NS_PER_MS
_MAX_FILE_BYTES = 1024
_QUEUED_DIVISOR = 10
_WORDS = 3  # time on a CPU, time waiting for one, time slices
# Linux 6.12 and later leave a thread that goes to sleep in the queue of its CPU for a while. If it
# is moved to another CPU meanwhile, the kernel counts its sleep as a wait for a CPU. This happens
# on a machine with much to do: there, up to 8 % of the waits of 32 processes that woke together
# once a second were several times too long.
# So many threads that ran at least half as long show what one may have waited: the kernel gives all
# about as much of the CPUs, unless they may use other CPUs or have another priority. A thread's
# wait is wrong if it was blocked before, and the wait is this many times as long as three in four
# of theirs, and a notable part of the step.
_MIN_PEERS = 16
_MAX_TIMES_PEERS = 2
_NOTABLE_PART = 10


class ThreadTimeGrowth(Struct, frozen=True, gc=False):
    """The growth of a thread's time on a CPU, and waiting for one, in ``steps`` readings over
    ``span_ns``.

    ``could_run``: it was not blocked when it was asked last, so that it may have waited for long.
    ``slices``: so many times it came onto a CPU so far, as the kernel prints it; few ask.
    """

    run_ns: int
    wait_ns: int
    steps: int = 1
    thread: int = 0
    is_new: bool = False
    could_run: bool = False
    process: int = 0
    span_ns: int = 0
    slices: bytes = b"0"


class ThreadState(Struct, frozen=True, gc=False):
    """The letter of a thread's state, empty after its end, whether it blocks all signals, and
    whether this user may read in which function of the kernel it waits.
    """

    letter: str
    blocks_signals: bool = False
    shows_function: bool = False


class ReadingNumberAndTime(Struct, frozen=True, gc=False):
    """The time of a reading, and how many were before it."""

    number: int
    at_ns: int


class ThreadFiles:
    """Opens and closes the files of threads, at most as many as may be kept open."""

    def __init__(self) -> None:
        limit = getrlimit(RLIMIT_NOFILE)[0] // _MAX_SHARE_OF_FILES
        self._left = min(_MAX_OPEN_FILES, limit)

    def open(self, path: str) -> int | None:
        """The descriptor of a file; None if there are too many, or it cannot be opened."""
        if self._left <= 0:
            return None
        descriptor = open_or_none(path)
        if descriptor is not None:
            self._left -= 1
        return descriptor

    def close(self, descriptor: int | None) -> None:
        if descriptor is not None:
            os.close(descriptor)
            self._left += 1


class FollowedThread(Struct, eq=False):
    """One thread.

    ``is_stale``: it was on a CPU since ``blocked`` was determined; ``is_postponed``: its peer was
    not.
    ``sleeps_unsignalled``: it blocked all signals when it was last seen in an interruptible sleep.
    ``last_wait`` is what it waited for when it was asked last and could not run.
    ``ran_after_ns``: its present wait has begun after this. ``waited_until_ns``: the wait before
    went on until then; since then the thread ran, and waited for a CPU, for ``busy_ns``, of which
    it waited for ``queued_ns``; ``text_before`` was ``text`` then. ``accepted``: how many
    connections its network had accepted as it was asked last. ``disk_marks`` are as of its last
    uninterruptible sleep: see :class:`DiskEvidence`.
    """

    thread_id: int
    path: str
    files: ThreadFiles
    read_at: ReadingNumberAndTime
    counters_file: int | None = None
    state_file: int | None = None
    call_file: int | None = None
    text: bytes = b""
    state_text: bytes = b""
    state: ThreadState = ThreadState("")
    call_text: bytes = b""
    call: SystemCall | None = None
    run_ns: int = 0
    wait_ns: int = 0
    blocked: BlockedThread | None = None
    last_wait: Wait | None = None
    is_stale: bool = True
    is_postponed: bool = False
    sleeps_unsignalled: bool = False
    ran_after_ns: int = 0
    waited_until_ns: int = 0
    busy_ns: int = 0
    queued_ns: int = 0
    text_before: bytes = b""
    accepted: int | None = None
    disk_marks: tuple[int, int] | None = None

    def read_growth(
        self, since: ReadingNumberAndTime, now: ReadingNumberAndTime, process: int
    ) -> ThreadTimeGrowth | None:
        """Read the counters; None if they are the same as before.

        Raises ProcessLookupError after the thread's end.

        ``since`` is the last reading before which the thread is known not to have run.
        """
        if self.counters_file is None:
            text = proc.read_beginning(f"{self.path}/schedstat", _MAX_FILE_BYTES)
        else:
            text = os.pread(self.counters_file, _MAX_FILE_BYTES, 0)
        read_before = self.read_at
        self.read_at = now
        if text == self.text:
            # Without counters nothing shows that the thread did not run.
            self.is_stale = self.is_stale or not text
            return None
        if read_before.number > since.number:
            since = read_before
        words = text.split(b" ", 2)
        if len(words) < _WORDS:
            raise ProcessLookupError(self.path)
        run_ns = int(words[0])
        wait_ns = int(words[1])
        is_new = not self.text
        # A thread that executes a program takes the id of the first thread, but keeps its own
        # smaller counters.
        ran_ns = run_ns - self.run_ns if run_ns > self.run_ns else 0
        waited_ns = wait_ns - self.wait_ns if wait_ns > self.wait_ns else 0
        length_ns = now.at_ns - since.at_ns
        could_run = False
        if not self.is_stale:
            could_run = self.blocked is None
            if not could_run and waited_ns > _MAX_UNSEEN_WAIT_NS and waited_ns > length_ns:
                waited_ns = 0
        steps = now.number - since.number
        growth = ThreadTimeGrowth(
            ran_ns,
            waited_ns,
            steps,
            self.thread_id,
            is_new,
            could_run,
            process,
            length_ns,
            words[2],
        )
        if not self.is_stale:
            self.text_before = self.text
        self.text = text
        self.run_ns = run_ns
        self.wait_ns = wait_ns
        if not self.is_stale:
            self.waited_until_ns = since.at_ns
            self.busy_ns = self.queued_ns = 0
        self.busy_ns += ran_ns + waited_ns
        self.queued_ns += waited_ns
        self.is_stale = True
        self.ran_after_ns = since.at_ns
        return growth

    @property
    def has_run(self) -> bool:
        """Whether it was on a CPU since its counters were read last."""
        return proc.read_beginning(f"{self.path}/schedstat", _MAX_FILE_BYTES) != self.text

    def work_begin_bounds(self, now_ns: int, *, is_able: bool) -> WorkBeginBounds:
        """When the thread has begun to run since the wait before; ``is_able``: it still can."""
        last_ns = now_ns - self.busy_ns
        # On a busy machine, it may wait for a CPU now, which is not counted yet.
        is_known = is_able and _QUEUED_DIVISOR * self.queued_ns <= self.busy_ns
        first_ns = last_ns if is_known else min(self.waited_until_ns, last_ns)
        worked_ns = self.busy_ns - self.queued_ns
        return WorkBeginBounds(
            first_ns, last_ns, is_known, worked_ns, is_of_able=is_able, turns=self._turns
        )

    @property
    def _turns(self) -> int:
        """How often it was on a CPU since the wait before; at least once."""
        slices = [int(text.split(b" ", 2)[2]) for text in (self.text_before, self.text) if text]
        return max(slices[-1] - slices[0], 1) if slices else 1

    def read_state(self) -> ThreadState:
        """The present state."""
        if self.state_file is None:
            self.state_file = self.files.open(f"{self.path}/stat")
        if self.state_file is None:
            text = proc.read_beginning(f"{self.path}/stat", _MAX_FILE_BYTES)
        else:
            text = proc.reread_descriptor(self.state_file)
        if text != self.state_text:
            self.state_text = text
            self.state = _parse_state(text)
        return self.state

    def read_call(self) -> SystemCall | None:
        """The present system call; None if the thread is not blocked. Raises OSError.

        A thread that waits again and again mostly does so in the same call, which is parsed once.
        """
        if self.call_file is None:
            self.call_file = self.files.open(f"{self.path}/syscall")
        if self.call_file is None:
            text = _read_once(f"{self.path}/syscall")
        else:
            text = os.pread(self.call_file, _MAX_FILE_BYTES, 0)
        if text != self.call_text:
            self.call_text = text
            self.call = parse_system_call(text)
        return self.call

    @property
    def is_in_read_call(self) -> bool:
        """Whether the present system call is the one that was read last; False if unknown."""
        if self.call_file is None or not self.call_text:
            return False
        try:
            return os.pread(self.call_file, _MAX_FILE_BYTES, 0) == self.call_text
        except OSError:
            return False

    @property
    def has_left_call(self) -> bool:
        """Whether the thread is not in the system call any more that was read last; False if
        unknown.
        """
        return self.call_file is not None and not self.is_in_read_call

    def close(self) -> None:
        for descriptor in (self.counters_file, self.state_file, self.call_file):
            self.files.close(descriptor)
        self.counters_file = self.state_file = self.call_file = None


def _read_once(path: str) -> bytes:
    """The contents of a small file. Raises OSError."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        return os.read(descriptor, _MAX_FILE_BYTES)
    finally:
        os.close(descriptor)


def _parse_state(stat: bytes) -> ThreadState:
    fields = stat[stat.rfind(b")") + 1 :].split()
    if not fields:
        return ThreadState("")
    return ThreadState(
        fields[0].decode(errors="replace"),
        proc.blocks_all_signals(fields),
        proc.shows_function(fields),
    )


def open_thread(
    thread_id: int, path: str, files: ThreadFiles, read_at: ReadingNumberAndTime
) -> FollowedThread:
    """A thread whose counters were not read yet."""
    counters_file = files.open(f"{path}/schedstat")
    return FollowedThread(thread_id, path, files, read_at, counters_file)


def with_plausible_waits(
    growth: Sequence[ThreadTimeGrowth], step_ns: int
) -> Iterator[ThreadTimeGrowth]:
    """The growth of the threads less those whose wait the kernel invented; ``step_ns`` is the
    length of the step.
    """
    notable_ns = step_ns // _NOTABLE_PART
    if max([grown.wait_ns for grown in growth], default=0) <= notable_ns:
        yield from growth
        return
    limits_ns: dict[int, int | None] = {}  # by the number of bits of the time on a CPU
    for grown in growth:
        wait_ns = grown.wait_ns // grown.steps
        if len(growth) < _MIN_PEERS or wait_ns <= notable_ns or grown.could_run:
            yield grown
            continue
        bits = _run_time_bits(grown)
        if bits not in limits_ns:
            limits_ns[bits] = _longest_plausible_wait_ns(growth, bits)
        limit_ns = limits_ns[bits]
        if limit_ns is None or wait_ns <= limit_ns:
            yield grown


def _run_time_bits(grown: ThreadTimeGrowth) -> int:
    return (grown.run_ns // grown.steps).bit_length()


def _longest_plausible_wait_ns(growth: Sequence[ThreadTimeGrowth], bits: int) -> int | None:
    """The longest wait that the waits of threads that ran as long make plausible; None if these
    are too few.
    """
    peers_ns = sorted(
        [grown.wait_ns // grown.steps for grown in growth if _run_time_bits(grown) >= bits]
    )
    if len(peers_ns) < _MIN_PEERS:
        return None
    return _MAX_TIMES_PEERS * peers_ns[len(peers_ns) * 3 // 4]
