"""Whether processes were killed for lack of memory: the kernel's count, and the verdict."""

from collections import Counter
from collections.abc import Sequence
from typing import Literal

from msgspec import Struct, field

from profiler.aggregation.memory_peak import MemoryPeak
from profiler.aggregation.record_evidence import KillEvidence
from profiler.aggregation.run_end import RunEnd
from profiler.aggregation.statistics import MonotonicCounter
from profiler.core.optional_math import excess, first_known, quotient
from profiler.readers.linux.process_tree import ProcessReading
from profiler.record.record_model import MemoryKills, Process, Record
from profiler.record.run_outcome import SIGKILL_EXIT_CODE, OutOfMemoryEvidence
from profiler.record.task_needs import may_have_lost_a_child
from profiler.record.units import bytes_to_mebibytes

# The memory counts as at its limit from the first share on; with reclaims at the limit, from the
# second one on.
_AT_LIMIT_FRACTION = 0.9
_AT_LIMIT_FRACTION_WITH_HITS = 0.7
_MAX_KILLED_SHOWN = 5
# The kernel chooses the largest process of a group, by all that it maps, as its mark counts.
_LEAST_VICTIM_SHARE = 0.5

_Kill = Literal["in container", "on host", "main process"]


class OutOfMemoryVerdict(Struct, frozen=True, kw_only=True):
    """A verdict of :func:`judge_out_of_memory`."""

    likely: bool | None = None
    evidence: OutOfMemoryEvidence | None = None


def judge_out_of_memory(
    end: RunEnd,
    kills: KillEvidence,
    peak: MemoryPeak,
    *,
    charged_bytes: float | None,
    memory_size_bytes: float | None,
    limit_hits: int | None = None,
    may_have_missed_a_kill: bool = False,
) -> OutOfMemoryVerdict:
    """Whether the kernel killed the batch or one of its processes for lack of memory, as far as
    there is evidence.

    The kills that the kernel counted are decisive (None: unknown), also none: then the memory and
    the exit code prove nothing. ``charged_bytes`` of the memory count for the limit. ``limit_hits``
    alone are no evidence, because version 1 of cgroup also counts reclaimed page cache. With
    ``may_have_missed_a_kill``, an exit code excludes none.
    """
    if kills.own_count:
        return OutOfMemoryVerdict(likely=True, evidence="kernel-counter")
    if kills.shared_count:
        return _judge_kill_in_shared_group(end, kills, peak, memory_size_bytes)
    is_unseen = end.status == "unknown" and end.exit_code is None and end.until_ns is None
    if end.status == "running" or is_unseen:
        return OutOfMemoryVerdict()
    share = quotient(charged_bytes, memory_size_bytes) if memory_size_bytes else None
    at_limit = _AT_LIMIT_FRACTION_WITH_HITS if limit_hits else _AT_LIMIT_FRACTION
    is_counted = kills.own_count is not None or kills.excludes_kill_at_end
    is_killed = end.status != "stopped" and end.exit_code in (None, SIGKILL_EXIT_CODE)
    if is_killed and not is_counted and (share or 0) >= at_limit:
        return OutOfMemoryVerdict(
            likely=True,
            evidence="memory-at-limit" if end.exit_code is None else "exit-137-at-limit",
        )
    is_excluded = (
        end.exit_code not in (None, SIGKILL_EXIT_CODE)
        or (peak.source == "kernel" and first_known(share, 1) < _AT_LIMIT_FRACTION)
        or is_counted
    )
    is_open = may_have_missed_a_kill and kills.own_count is None
    return OutOfMemoryVerdict(likely=False if is_excluded and not is_open else None)


def _judge_kill_in_shared_group(
    end: RunEnd, kills: KillEvidence, peak: MemoryPeak, memory_size_bytes: float | None
) -> OutOfMemoryVerdict:
    """A kill in a group that others share explains a failure of a run that held much of its memory;
    else, and after a success, the victim is unknown.
    """
    least_bytes = _LEAST_VICTIM_SHARE * (memory_size_bytes or 0)
    most_bytes = max(peak.size_bytes or least_bytes, kills.marked_bytes)
    if end.exit_code == 0 or most_bytes < least_bytes:
        return OutOfMemoryVerdict()
    return OutOfMemoryVerdict(likely=True, evidence="kernel-counter")


def may_have_missed_kill(record: Record) -> bool:
    """Whether a process may have been killed for memory with any exit code: a child, or an
    earlier attempt.
    """
    return bool(record.container.restarts) or may_have_lost_a_child(record.metrics)


class OomKillTracker(Struct):
    """Attributes increases of the OOM kill counter to processes that ended at the same time.

    The kernel counts a kill before the process ends: a count that was read after an end and has not
    risen excludes that a kill was its cause.

    A killed process is missing in the reading in which the counter rose, or in the next one. The
    host's counter, for a container whose own is not readable, also counts other tasks: on a host
    with several, a kill is the batch's only if its main process ended then, by SIGKILL.
    ``host_kills`` are all that can be the batch's.
    """

    _in_container: MonotonicCounter = field(default_factory=MonotonicCounter)
    _host_first: int | None = None
    _host_before: int | None = None
    _counted_ends: int = 0  # of main processes: at which all kills so far were known
    _ends_without_kill: int = 0
    host_kills: Counter[_Kill] = field(default_factory=Counter)
    _pending: int = 0
    _pending_on_host: int = 0
    _victims: list[tuple[_Kill, Process]] = field(default_factory=list)

    def start_new_group(self) -> None:
        """The container has a new control group, whose counter begins at 0."""
        self._in_container.reset_to_zero()

    def add_reading(
        self,
        in_container: int | None,
        on_host: int | None,
        ended: Sequence[ProcessReading],
        missed_pids: int,
        *,
        has_main_ended: bool = False,
        is_group_current: bool = False,
    ) -> None:
        """Add a reading of the kernel's counters of OOM kills: in the container, and on the host
        since its boot.

        ``ended`` have ended since the last reading; ``missed_pids`` started and ended in between.
        ``is_group_current``: the container's counter was read after these ends.
        """
        if self._host_first is None:
            self._host_first = on_host
        if has_main_ended:
            is_counted = is_group_current or on_host == 0
            self._counted_ends += is_counted
            has_no_rise = on_host is not None and on_host == self._host_first
            self._ends_without_kill += is_counted or has_no_rise
        kind: _Kill = "in container"
        before = self._host_before
        self._host_before = on_host
        if in_container is not None:
            growth = self._in_container.advance_to(in_container)
            new_kills = first_known(growth, in_container)
        else:  # the container's counter is not readable
            kind = "main process" if has_main_ended else "on host"
            new_kills = excess(on_host, before) or 0
        pending = self._pending + new_kills
        victims = sorted(ended, key=lambda process: -(process.rss_bytes or 0))[:pending]
        attributed = len(victims) or min(pending, missed_pids)
        if in_container is not None:
            attributed_on_host = 0
        else:
            attributed_on_host = min(attributed, self._pending_on_host + new_kills)
        self.host_kills[kind] += attributed_on_host
        kind = kind if attributed_on_host else "in container"
        shown = (
            (
                kind,
                Process(
                    name=victim.name, max_memory_used_mb=bytes_to_mebibytes(victim.share_bytes)
                ),
            )
            for victim in victims
        )
        self._victims = [*self._victims, *shown][-_MAX_KILLED_SHOWN:]
        self._pending = min(new_kills, pending - attributed)
        self._pending_on_host = 0 if in_container is not None else self._pending

    def has_certainly_no_kill(self, attempts: int) -> bool:
        """Whether the kernel has killed no process of the batch, whose main process was started
        as often as this.
        """
        return self._counted_ends == attempts and not self._has_kills

    def has_certainly_no_kill_at_end(self, attempts: int) -> bool:
        """Whether no kill has ended one of the main processes, of as many as this."""
        return self._ends_without_kill == attempts and not self._has_kills

    @property
    def _has_kills(self) -> bool:
        """Whether there were any that can be the batch's."""
        return bool(self._in_container.total or self.host_kills.total())

    def attributed_kills(self, *, is_host_dedicated: bool, was_killed: bool) -> MemoryKills | None:
        """The kills so far; None if none can be attributed to the batch, which SIGKILL ended if
        it ``was_killed``.
        """
        kinds: list[_Kill] = ["in container"]
        if is_host_dedicated:
            kinds += ["on host", "main process"]
        elif was_killed:
            kinds += ["main process"]
        count = (self._in_container.total or 0) + sum(self.host_kills[kind] for kind in kinds)
        victims = tuple(process for kind, process in self._victims if kind in kinds)
        if count:
            return MemoryKills(count=count, processes=victims)
        return None
