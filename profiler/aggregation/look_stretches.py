"""The stretch before each look, with what the look says of it."""

from collections.abc import Sequence

from profiler.aggregation.settled_looks import OpenLook
from profiler.aggregation.stretch import Stretch
from profiler.readers.linux.cpu_pressure import CpuPressure
from profiler.readers.linux.look import ThreadsLook

# A look counts fewer threads than this that can run.
_MAX_COUNTED = 32
# So many threads that were asked stand for those that also ran, and were not.
_MIN_ASKED = 16


class LookStretches:
    """Makes the stretches of a run's looks."""

    def __init__(self, open_looks: Sequence[OpenLook]) -> None:
        self._open = open_looks
        self._pressure: CpuPressure | None = None  # as it was read last,
        self._pressure_ns: int | None = None  # at this moment

    def add_look(
        self, start_ns: int, end_ns: int, look: ThreadsLook, able_threads: int, able_before: int
    ) -> Stretch:
        """A stretch with what its look, and the one before, say of it. A look that finds no thread
        any more says nothing: the one before is the nearest, which found ``able_before`` threads
        that could run, not ``able_threads``.
        """
        stretch = Stretch(start_ns, end_ns, look.cpus, unread_ns=look.unread_run_ns)
        stretch.later_ns = look.later_run_ns
        stretch.peeks, stretch.able_peeks = look.peeks, look.able_peeks
        if look.pressure is not None:
            limits = look.pressure.cpu_wait_bounds_since(self._pressure)
            stretch.least_ns = limits.least_ns
            stretch.most_ns = limits.most_ns
            stretch.throttled_ns = limits.throttled_ns
            self._limit_waits(limits.most_ns)
            self._pressure, self._pressure_ns = look.pressure, end_ns
        if look.have_all_ended:
            able_threads = able_before
        elif look.is_behind:  # a thread that could run may be blocked since, and was not read
            able_threads = sum([seen.blocked is None for seen in look.seen])
        stretch.able_threads = able_threads
        stretch.counts_no_threads = max(able_threads, len(look.growth or ())) >= _MAX_COUNTED
        if not (able_threads or look.have_all_ended):
            stretch.is_unsure = _are_too_few_asked(look)
        stretch.asked_share = look.asked_share
        stretch.able_on_machine = look.able_on_machine
        if able_threads:
            stretch.able_ns = stretch.length_ns
        return stretch

    def _limit_waits(self, most_ns: int | None) -> None:
        """Limit the waits in the stretches since the pressure was read before, as in this one."""
        since_ns = self._pressure_ns
        if most_ns is None or since_ns is None:
            return
        for look in reversed(self._open):
            if look.stretch.most_ns is not None or look.stretch.start_ns < since_ns:
                return
            look.stretch.most_ns = most_ns


def _are_too_few_asked(look: ThreadsLook) -> bool:
    """Whether too few of the threads that ran were asked what they do now, or a child that somebody
    waits for.
    """
    if look.misses_child:
        return True
    if len(look.seen) >= _MIN_ASKED:
        return False
    asked = {seen.thread for seen in look.seen}
    asked.update(look.ended)
    run_ns = unasked_ns = 0
    for grown in look.growth or ():
        run_ns += grown.run_ns
        unasked_ns += 0 if grown.thread in asked else grown.run_ns
    return 2 * unasked_ns > run_ns
