"""Which waits of a process were over together, so that one thread may have woken the other."""

from collections.abc import Collection, Iterable, Mapping, Sequence

from profiler.aggregation.thread_history import ThreadHistory
from profiler.aggregation.thread_wait import MIN_WORK_NS, ThreadWait


class JointEnds:
    """The ends of waits at a look and the one before."""

    def __init__(self) -> None:
        self._comers: Mapping[int, Sequence[ThreadWait]] = {}  # as of the last look
        self._ends: Sequence[ThreadWait] = ()  # those that may have ended others

    def note_ends(self, over: Iterable[ThreadWait], threads: Mapping[int, ThreadHistory]) -> None:
        """Note which waits for somebody to come were over with waits for other threads, or one look
        before: who was woken may have waited for a CPU. Count of each thread how often its waits
        were over, and how often so with those of threads that work and wait for others of the
        process.
        """
        comers: dict[int, list[ThreadWait]] = {}
        pools: list[ThreadWait] = []
        ends: list[ThreadWait] = []
        working: set[int] = set()
        for wait in over:
            blocked = wait.blocked
            if blocked is None:
                continue
            is_for_threads = blocked.waits_for_any_thread
            if blocked.may_be_idle:
                comers.setdefault(wait.process, []).append(wait)
            elif is_for_threads:
                pools.append(wait)
            if not is_for_threads or (blocked.wait.kind == "sleep" and not wait.was_woken):
                ends.append(wait)
            elif wait.held_back_work_ns >= MIN_WORK_NS:
                working.add(wait.process)
        _count_ends(ends, threads)
        if working:
            _count_ends_with_workers(working, (*self._ends, *ends), threads)
        self._ends = ends
        before = self._comers
        if comers or before:
            for wait in pools:
                wait.enders = (*comers.get(wait.process, ()), *before.get(wait.process, ()))
        self._comers = comers


def _count_ends(ends: Iterable[ThreadWait], threads: Mapping[int, ThreadHistory]) -> None:
    """Count of each thread how many of its waits are over."""
    for over in ends:
        thread = threads.get(over.thread)
        if thread is not None:
            thread.count_end(over)


def _count_ends_with_workers(
    working: Collection[int], ends: Iterable[ThreadWait], threads: Mapping[int, ThreadHistory]
) -> None:
    """Count of each thread that its waits were over with those of workers of its process."""
    for over in {wait.thread: wait for wait in ends if wait.process in working}.values():
        thread = threads.get(over.thread)
        if thread is not None:
            thread.count_end_with_workers(over)
