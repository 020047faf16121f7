"""Divides the memory of a process tree among its processes, so that no page counts twice."""

from collections.abc import Callable, Collection, Mapping, Sequence
from operator import is_

from msgspec import Struct
from msgspec.structs import replace

from profiler.core.clock import CpuBudget
from profiler.readers.linux import proc
from profiler.readers.linux.process_tree import ProcessReading, inherited_bytes

# The shares are read again when they may lack this share of the sum.
MAX_UNSURE_SHARE = 0.05
_Identity = tuple[int, int]


class _Base(Struct, frozen=True, gc=False, kw_only=True):
    """A process when its share was read or it was first seen: ``own_bytes`` of
    ``anonymous_bytes``, and of the files.

    It mapped ``mapped_bytes`` of files and shared memory, and ``file_bytes`` are its part, with
    ``shmem_bytes`` in shared memory (None: unknown). Others also hold the ``shared_bytes`` of both
    parts. Of ``inherited_bytes`` it has copied nothing since
    its fork.
    """

    own_bytes: int
    anonymous_bytes: int
    file_bytes: int
    mapped_bytes: int
    shared_bytes: int
    inherited_bytes: int
    faults: int
    is_forked: bool
    shmem_bytes: int | None = None


class MemoryShares:
    """The shares of the processes of one tree.

    Their sum is a lower bound, which ``unsure_bytes`` may complete.

    ``is_exact``: they complete it by at most 5 %. ``has_lost``: a process has ended since the
    reading before.

    The share is the PSS (``smaps_rollup``: processes of the same user), read whenever the sum may
    have moved by 5 % and the CPU time allows it. Since then, what a process allocated is its own,
    but not what a fork inherited or which files it maps. Each page fault may have copied one
    inherited page. All processes together hold at least as much as the largest, and as many pages
    of files.
    """

    def __init__(
        self,
        budget: CpuBudget,
        page_bytes: int,
        monotonic_ns: Callable[[], int],
        cpu_ns: Callable[[], int],
    ) -> None:
        self._budget = budget
        self._monotonic_ns = monotonic_ns
        self._cpu_ns = cpu_ns
        self.used_cpu_ns = 0
        self._page_bytes = page_bytes
        self._bases: dict[_Identity, _Base] = {}
        self._ended_bytes = 0
        # What the forks of a process inherited: it may copy as much.
        self._inheritance: dict[int, int] = {}
        self._divided: dict[int, tuple[ProcessReading, ProcessReading]] = {}
        self.unsure_bytes = 0
        self.is_exact = False
        self.has_lost = False

    def divide(self, processes: Sequence[ProcessReading]) -> tuple[ProcessReading, ...]:
        before = self._divided
        if self.is_exact and _are_same(processes, before.values()):  # nothing has run since
            self.has_lost = False
            return tuple([divided for _, divided in before.values()])
        living = {
            process.identity: process for process in processes if process.rss_bytes is not None
        }
        self.has_lost = not self._bases.keys() <= living.keys()
        unsure_before = self.unsure_bytes
        shares = self._shares(living)
        max_unsure_bytes = MAX_UNSURE_SHARE * sum(shares.values())
        # What still changes will have to be read again.
        has_settled = self.unsure_bytes - unsure_before <= max_unsure_bytes
        if self.unsure_bytes > max_unsure_bytes:
            now_ns = self._monotonic_ns()
            began_ns = self._cpu_ns()
            if self._budget.allows(now_ns, is_urgent=has_settled):
                self._read(living)
                cost_ns = self._cpu_ns() - began_ns
                self._budget.add_cost(cost_ns, now_ns)
                self.used_cpu_ns += cost_ns
                shares = self._shares(living)
        self.is_exact = self.unsure_bytes <= MAX_UNSURE_SHARE * sum(shares.values())
        self._divided = {}
        for process in processes:
            known = before.get(process.pid)
            share_bytes = shares.get(process.identity)
            if known is None or known[0] is not process or known[1].share_bytes != share_bytes:
                known = process, replace(process, share_bytes=share_bytes)
            self._divided[process.pid] = known
        return tuple([divided for _, divided in self._divided.values()])

    def mapped_shmem(self, processes: Sequence[ProcessReading]) -> tuple[int, int]:
        """The least and the most bytes of shared memory and tmpfs that these processes map, of
        which no page counts twice. For the processes of the last :meth:`divide`.
        """
        largest_bytes = 0
        least_bytes = 0
        most_bytes = 0
        for process in processes:
            size_bytes = process.shmem_bytes
            if not size_bytes:
                continue
            largest_bytes = max(largest_bytes, size_bytes)
            base = self._bases.get(process.identity)
            part_bytes = None if base is None else base.shmem_bytes
            if base is None or part_bytes is None:
                most_bytes += size_bytes
                continue
            least_bytes += min(part_bytes, size_bytes)
            mapped_bytes = (process.rss_bytes or 0) - _anonymous(process)
            new_bytes = max(mapped_bytes - base.mapped_bytes, 0)
            most_bytes += min(part_bytes + new_bytes, size_bytes)
        return max(largest_bytes, least_bytes), max(largest_bytes, most_bytes)

    def _shares(self, living: Mapping[_Identity, ProcessReading]) -> dict[_Identity, int]:
        """The shares as far as they are known now, which determines what is unsure."""
        self._follow(living)
        if len(living) <= 1:
            self.unsure_bytes = 0
            return {identity: process.rss_bytes or 0 for identity, process in living.items()}
        page_bytes = self._page_bytes
        shares = dict[_Identity, int]()
        inheritance = self._inheritance
        unsure_bytes = self._ended_bytes
        shared_files = 0
        unread_files = 0
        largest_bytes = 0
        mapping = next(iter(living))
        largest = mapping
        most_mapped = 0
        for identity, process in living.items():
            base = self._bases[identity]
            rss_bytes = process.rss_bytes or 0
            anonymous_bytes = _anonymous(process)
            mapped_bytes = rss_bytes - anonymous_bytes
            growth_bytes = anonymous_bytes - base.anonymous_bytes
            own_bytes = min(max(base.own_bytes + growth_bytes, 0), anonymous_bytes)
            file_bytes = min(base.file_bytes, mapped_bytes)
            shares[identity] = own_bytes + file_bytes
            inherited_bytes = max(base.inherited_bytes, inheritance.get(process.pid, 0))
            copied_bytes = (process.faults - base.faults) * page_bytes - max(growth_bytes, 0)
            unsure_bytes += min(max(copied_bytes, 0), inherited_bytes)
            shared_files += file_bytes
            unread_files += max(mapped_bytes - base.mapped_bytes, 0)
            if mapped_bytes > most_mapped:
                mapping = identity
                most_mapped = mapped_bytes
            if rss_bytes > largest_bytes:
                largest = identity
                largest_bytes = rss_bytes
        lacking_files = max(most_mapped - shared_files, 0)
        shares[mapping] += lacking_files
        unsure_bytes += max(unread_files - lacking_files, 0)
        lacking_bytes = max(largest_bytes - sum(shares.values()), 0)
        shares[largest] += lacking_bytes
        rss_sum_bytes = sum([process.rss_bytes or 0 for process in living.values()])
        most_bytes = rss_sum_bytes - sum(shares.values())
        self.unsure_bytes = max(min(unsure_bytes - lacking_bytes, most_bytes), 0)
        return shares

    def _follow(self, living: Mapping[_Identity, ProcessReading]) -> None:
        """Forget the processes that have ended, and add new ones and those that have executed a
        program.
        """
        for identity in self._bases.keys() - living.keys():
            base = self._bases.pop(identity)
            inherited = min(base.own_bytes, self._inheritance.get(identity[0], 0))
            self._ended_bytes += max(base.shared_bytes, inherited)  # others still hold it
        is_alone = len(living) <= 1
        if is_alone:
            self._ended_bytes = 0
        by_pid: dict[int, ProcessReading] | None = None
        for identity, process in living.items():
            known = self._bases.get(identity)
            if known is not None and known.is_forked == process.is_forked and not is_alone:
                continue
            own_bytes = _anonymous(process)
            anonymous_bytes = own_bytes
            mapped_bytes = 0
            faults = process.faults
            if is_alone:
                mapped_bytes = (process.rss_bytes or 0) - anonymous_bytes
            elif process.is_forked:
                faults = 0  # it began at 0
                by_pid = by_pid or {other.pid: other for other in living.values()}
                own_bytes = max(
                    own_bytes - inherited_bytes(process, by_pid.get(process.parent_pid)), 0
                )
            self._bases[identity] = _Base(
                own_bytes=own_bytes,
                anonymous_bytes=anonymous_bytes,
                file_bytes=mapped_bytes,
                mapped_bytes=mapped_bytes,
                shared_bytes=0,
                inherited_bytes=anonymous_bytes - own_bytes,
                faults=faults,
                is_forked=process.is_forked,
            )
        inheritance = dict[int, int]()
        self._inheritance = inheritance
        for process in living.values():
            if process.is_forked:
                base = self._bases[process.identity]
                before_bytes = inheritance.get(process.parent_pid, 0)
                inheritance[process.parent_pid] = before_bytes + base.inherited_bytes

    def _read(self, living: Mapping[_Identity, ProcessReading]) -> None:
        has_read = False
        for identity, process in living.items():
            rollup = proc.read(f"/proc/{process.pid}/smaps_rollup") or b""
            rss_bytes = proc.bytes_after(rollup, b"Rss:")
            pss_bytes = proc.bytes_after(rollup, b"Pss:")
            anonymous_bytes = proc.bytes_after(rollup, b"Anonymous:")
            if rss_bytes is None or pss_bytes is None or anonymous_bytes is None:
                continue
            own_bytes = proc.bytes_after(rollup, b"Pss_Anon:")
            private_bytes = proc.parse_private(rollup) or 0
            # Before Linux 5.4, the PSS was not divided.
            if own_bytes is None:
                own_bytes = anonymous_bytes
            own_bytes = min(own_bytes, pss_bytes)
            self._bases[identity] = _Base(
                own_bytes=own_bytes,
                anonymous_bytes=anonymous_bytes,
                file_bytes=pss_bytes - own_bytes,
                mapped_bytes=rss_bytes - anonymous_bytes,
                shared_bytes=max(pss_bytes - private_bytes, 0),
                inherited_bytes=max(anonymous_bytes - private_bytes, 0),
                faults=process.faults,
                is_forked=process.is_forked,
                shmem_bytes=proc.bytes_after(rollup, b"Pss_Shmem:"),
            )
            has_read = True
        if has_read:
            self._ended_bytes = 0


def _are_same(
    processes: Sequence[ProcessReading], before: Collection[tuple[ProcessReading, ProcessReading]]
) -> bool:
    """Whether these are the very readings that were divided before."""
    if len(processes) != len(before):
        return False
    return all(map(is_, processes, [reading for reading, _ in before]))


def _anonymous(process: ProcessReading) -> int:
    return min(process.anonymous_bytes or 0, process.rss_bytes or 0)
