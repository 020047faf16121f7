"""Children of this process that have nothing to do with the command it profiles."""

from collections.abc import Callable, Iterable


class UnrelatedChildren:
    """Those that were there before the command, and those that the profiler started for itself.

    ``own_pid_getters`` tell the process that they run now, if any: it may be another one after a restart.
    """

    def __init__(self, preexisting: Iterable[int], own_pid_getters: Iterable[Callable[[], int | None]] = ()) -> None:
        self._preexisting = frozenset(preexisting)
        self._own_pid_getters = tuple(own_pid_getters)

    def __contains__(self, pid: object) -> bool:
        """Whether a process is one of them now."""
        return pid in self._preexisting or any(pid == get_pid() for get_pid in self._own_pid_getters)
