"""Which threads work: those that used a notable part of the last step. Between two looks, a peek
reads the states of these, and of all that have run if they are few.
"""

from profiler.readers.linux.look import PresentLook
from profiler.readers.linux.reading_turns import PeekResults
from profiler.readers.linux.thread_counters import FollowedThread, ThreadTimeGrowth
from profiler.readers.linux.wait_reader import ENDED_STATES, RUNNABLE_STATE

# Those that used this part of the time work.
_WORKERS_DIVISOR = 100
# The most threads whose state is read at once.
MAX_STATES = 32
# If these are all that have run, peeks read the states of all.
_MAX_PEEKED = 16
# Without system calls, states are read between looks only of several threads that work.
_MIN_WORKERS = 2


class WorkingThreads:
    """The threads that work, and the ``others`` that have run, with their processes, as they ran
    last; and what ``peeks`` have found.
    """

    def __init__(self) -> None:
        self.workers: dict[FollowedThread, int] = {}
        self.others: dict[FollowedThread, int] = {}
        self.peeks = PeekResults()

    def note_run(self, thread: FollowedThread, grown: ThreadTimeGrowth, look: PresentLook) -> None:
        run_ns = grown.run_ns
        is_peeked = thread in self.workers or (thread in self.others and self._do_peeks_read_others)
        if not (is_peeked or look.is_first):
            self.peeks.missed_ns += run_ns
        self.forget(thread)
        if _WORKERS_DIVISOR * run_ns >= grown.span_ns:
            self.workers[thread] = grown.process
            self.peeks.workers_ns += run_ns
        else:
            self.others[thread] = grown.process
            self.peeks.rest_ns += run_ns

    def forget(self, thread: FollowedThread) -> None:
        if self.workers.pop(thread, None) is None:
            self.others.pop(thread, None)

    def can_peek(self, *, sees_calls: bool) -> bool:
        """Whether a peek says something: not if other threads may run, those of many that work
        little, or of processes that begin and end; nor if none has run lately. Without system
        calls, only if the counters leave open for how long any thread could run.
        """
        if not 0 < len(self.workers) <= MAX_STATES or not self.peeks.find_those_that_run:
            return False
        if sees_calls:
            return True
        return len(self.workers) >= _MIN_WORKERS and self.peeks.show_how_long_able

    def peek(self) -> None:
        """Note for the next look whether a thread that works can run, if that says something: not
        if one has ended, after which another may have begun.
        """
        is_able = has_one_ended = False
        others = reversed(self.others) if self._do_peeks_read_others else ()
        for thread in (*reversed(self.workers), *others):
            letter = thread.read_state().letter
            is_able = letter == RUNNABLE_STATE
            if is_able:
                break
            has_one_ended = has_one_ended or letter in ENDED_STATES
        if is_able or not has_one_ended:
            self.peeks.able.append(is_able)
        else:
            self.peeks.is_steady = False

    @property
    def _do_peeks_read_others(self) -> bool:
        """Whether peeks also read threads that worked little: they are few, and one may do the work
        next, as any of a runtime's threads can.
        """
        return len(self.workers) + len(self.others) <= _MAX_PEEKED
