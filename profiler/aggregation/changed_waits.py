"""What a look changes of the waits of a run's threads."""

from msgspec import Struct, field

from profiler.aggregation.thread_wait import ThreadWait


class ChangedWaits(Struct, frozen=True):
    """What a look changed: the waits that begin with it, those that are over, and those of which
    all is known now. ``repeated`` are those of which the thread's next look says more,
    ``earliest_begin`` is the first look of which all this says more.
    """

    begun: list[ThreadWait] = field(default_factory=list)
    over: list[ThreadWait] = field(default_factory=list)
    known: list[ThreadWait] = field(default_factory=list)
    repeated: list[ThreadWait] = field(default_factory=list)

    @property
    def earliest_begin(self) -> int | None:
        changed = [*self.over, *self.known, *self.repeated]
        return min([wait.begun for wait in changed], default=None)

    def note_what_followed(self, wait: ThreadWait, after_ns: int) -> None:
        """What followed a wait: the thread's run, and the work of others in its next wait."""
        if wait.is_known:
            return
        wait.after_ns = after_ns
        self.note_known(wait)

    def note_known(self, wait: ThreadWait) -> None:
        """What followed a wait is known, and so what followed those before for the same answer."""
        wait.is_known = True
        self.known.append(wait)
        for poll in () if wait.repeated is None else wait.repeated.before:
            poll.is_known = True
            self.known.append(poll)
