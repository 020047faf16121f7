"""Children of this process that have nothing to do with the command it profiles."""

from collections.abc import Callable, Iterable


class Strangers:
    """Those that were there before the command, and those that the profiler started for itself.

    ``own`` tell the process that they run now, if any: it may be another one after a restart.
    """

    def __init__(self, before: Iterable[int], own: Iterable[Callable[[], int | None]] = ()) -> None:
        self._before = frozenset(before)
        self._own = tuple(own)

    def __contains__(self, pid: object) -> bool:
        """Whether a process is one of them now."""
        return pid in self._before or any(pid == tell() for tell in self._own)
