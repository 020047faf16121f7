"""Divides the memory of a process tree among its processes, so that no page counts twice."""

from collections.abc import Callable, Collection, Container, Mapping, Sequence
from operator import is_

from msgspec import Struct
from msgspec.structs import replace

from profiler.core.clock import CpuBudget
from profiler.core.optional_math import all_known, difference
from profiler.readers.linux import proc
from profiler.readers.linux.process_tree import ProcessReading, inherited_bytes
from profiler.readers.memory_usage import is_notable

# The shares are read again when they may lack this share of the sum.
MAX_UNSURE_SHARE = 0.05
# Once the processes rest, they are read once more where the shares may lack this share of the sum.
_MAX_UNSURE_AT_REST = 0.01
# Mapped files are read where a process maps so much, and so much more than at the last reading, of
# at most so many processes.
_MIN_FILE_BYTES = 64 * 2**20
_FILE_GROWTH = 1.1
# As of mapped files, of what a process has locked.
_MIN_LOCKED_BYTES = 4 * 2**20
_MAX_FILE_READERS = 8
_Identity = tuple[int, int]
_OF_A_WHOLE_PROCESS = (b"Rss:", b"Pss:", b"Anonymous:")


class _ShareBase(Struct, frozen=True, gc=False, kw_only=True):
    """A process when its share was read or it was first seen: ``own_bytes`` of
    ``anonymous_bytes``, and ``own_shmem_bytes`` of ``shmem_bytes``, which count each mapping.

    ``open_shmem_bytes``: what it may have of shared memory in addition. Others also hold the
    ``shared_bytes`` of both parts. Of ``inherited_bytes`` it has copied nothing since its fork.
    ``own_file_bytes`` of ``file_bytes``: its pages of files, once read, without those that it has
    certainly locked (``own_locked_bytes``, of ``locked_bytes``; ``mapped_locked_bytes`` counts each
    mapping of a page). ``all_locked_bytes`` are of all kinds. ``lazily_freed_bytes``, of
    ``own_bytes``, may be dropped by the kernel until the process writes to them.
    """

    own_bytes: int
    anonymous_bytes: int
    own_shmem_bytes: int = 0
    open_shmem_bytes: int = 0
    shmem_bytes: int = 0
    shared_bytes: int = 0
    own_file_bytes: int = 0
    own_locked_bytes: int = 0
    file_bytes: int = 0
    locked_bytes: int = 0
    mapped_locked_bytes: int = 0
    all_locked_bytes: int = 0
    lazily_freed_bytes: int = 0
    inherited_bytes: int = 0
    faults: int
    is_forked: bool


class _ShareNow(Struct, frozen=True, gc=False, kw_only=True):
    """What one process has of the memory of its tree now: ``share_bytes``, which counts in the sum,
    ``missing_bytes``, which it may have in addition (freed lazily, or copied after a fork), and
    ``most_bytes``, its share if no page were another's, too.

    ``own_bytes`` are of ``anonymous_bytes``. ``own_shmem_bytes``, of the share, and
    ``open_shmem_bytes``, in addition to all these, are of shared memory. ``own_file_bytes`` are its
    pages of files as far as they were read, ``unread_file_bytes`` what it maps in addition.
    ``own_locked_bytes``, of the share, are of files, as are ``mapped_locked_bytes``, which count
    each mapping of a page.
    """

    share_bytes: int
    missing_bytes: int
    most_bytes: int
    anonymous_bytes: int
    own_bytes: int
    own_shmem_bytes: int
    open_shmem_bytes: int
    own_file_bytes: int
    unread_file_bytes: int
    own_locked_bytes: int
    mapped_locked_bytes: int


_NO_BASE = _ShareBase(own_bytes=0, anonymous_bytes=0, faults=0, is_forked=False)


class MemoryShares:
    """The shares of the processes of one tree: anonymous and shared memory, of which no page counts
    twice. Pages of files do not count, unless they are locked: the kernel can drop them. So it can
    drop what was freed lazily (MADV_FREE), which is looked for after ``lazily_freed_pages``, the
    number of such pages of all programs so far, has risen above ``freed_before``, that of the
    start.

    Their sum is a lower bound, which ``unsure_bytes`` may complete, ``open_shmem_bytes`` of them
    shared memory and tmpfs; it contains ``shmem_bytes`` of these. ``file_bytes`` is what the
    processes map of files, each page once where that was read; of what was not, the most that one
    process maps. It is None while much of that waits for a reading: it may be the same pages again.

    ``own_locked_bytes``, of the sum, are locked pages of files. ``lacking_locked_bytes``: what one
    process has certainly locked beyond these, which have a page that other programs map, too, only
    in part.

    ``is_exact``: they complete it by at most 5 %. ``has_lost``: a process has ended since the
    reading before.

    The share is the PSS (``smaps_rollup``: processes of the same user), read whenever the sum may
    have moved by 5 % and the CPU time allows it, and once more when the processes rest and it may
    have moved by 1 %. Since then, what a process allocated is its own,
    but not what a fork inherited or what it maps of shared memory: the RSS counts each mapping of
    a page, also of one process. Each page fault may have copied one inherited page. All processes
    together hold at least as much anonymous memory as the one with most.

    ``limits``: what the machine's memory has grown by since the start, which the sum does not
    exceed, and the whole of it, which its bound does not exceed; None where a kernel tells the
    shares apart, or a machine's memory says nothing. Above it the same pages count several times.
    """

    def __init__(
        self,
        budget: CpuBudget,
        page_bytes: int,
        monotonic_ns: Callable[[], int],
        cpu_ns: Callable[[], int],
        lazily_freed_pages: Callable[[], int | None] = lambda: None,
        *,
        freed_before: int | None = None,
        limits: Callable[[], tuple[int, int] | None] = lambda: None,
    ) -> None:
        self._limits = limits
        self._lazily_freed_pages = lazily_freed_pages
        self._freed_pages = freed_before
        self._budget = budget
        self._monotonic_ns = monotonic_ns
        self._cpu_ns = cpu_ns
        self.used_cpu_ns = 0
        self._page_bytes = page_bytes
        self._bases: dict[_Identity, _ShareBase] = {}
        self._ended_bytes = 0
        # What the forks of a process inherited: it may copy as much.
        self._inheritance: dict[int, int] = {}
        self._divided: dict[int, tuple[ProcessReading, ProcessReading]] = {}
        self._with_shares: tuple[ProcessReading, ...] = ()
        self.unsure_bytes = 0
        self.shmem_bytes = 0
        self.open_shmem_bytes = 0
        self.file_bytes: int | None = 0
        self.own_locked_bytes = 0
        self.lacking_locked_bytes = 0
        self.is_exact = False
        self.has_lost = False
        self._is_read_at_rest = False

    def readings_with_shares(
        self, processes: Sequence[ProcessReading]
    ) -> tuple[ProcessReading, ...]:
        """The readings of all living processes of the tree, each with its share and what it freed
        lazily; the share is None if its memory is unknown. The same object if none has changed.
        """
        before = self._divided
        is_known = self.is_exact and self.file_bytes is not None
        are_at_rest = _are_same_readings(processes, before.values())  # nothing has run since
        self._is_read_at_rest &= are_at_rest
        lacks_at_rest = are_at_rest and self._lacks_a_reading_at_rest()
        if is_known and are_at_rest and not lacks_at_rest:
            self.has_lost = False
            return self._with_shares
        living = {
            process.identity: process for process in processes if process.rss_bytes is not None
        }
        self.has_lost = not self._bases.keys() <= living.keys()
        unsure_before = self.unsure_bytes
        shares = self._known_shares(living)
        max_unsure_bytes = MAX_UNSURE_SHARE * sum(shares.values())
        # What still changes will have to be read again.
        has_settled = self.unsure_bytes - unsure_before <= max_unsure_bytes
        is_unsure = self.unsure_bytes > max_unsure_bytes
        mapping_files = self._processes_that_map_more_files(living)
        unread = (
            self._processes_that_may_share(living) if is_unsure or lacks_at_rest else mapping_files
        )
        unread = unread or self._processes_that_may_free(living)
        now_ns = self._monotonic_ns()
        if unread and self._budget.allows(now_ns, is_urgent=is_unsure and has_settled):
            began_ns = self._cpu_ns()
            read = self._read_bases(unread)
            cost_ns = self._cpu_ns() - began_ns
            self._budget.add_cost(cost_ns, now_ns)
            self.used_cpu_ns += cost_ns
            shares = self._known_shares(living, read)
            self._is_read_at_rest = are_at_rest
            self._freed_pages = self._lazily_freed_pages()
        elif mapping_files:
            self.file_bytes = None
        self.is_exact = self.unsure_bytes <= MAX_UNSURE_SHARE * sum(shares.values())
        self._divided = {}
        for process in processes:
            known = before.get(process.pid)
            share_bytes = shares.get(process.identity)
            if known is None or known[0] is not process or known[1].share_bytes != share_bytes:
                freed_bytes = self._freed_bytes(process)
                known = (
                    process,
                    replace(process, share_bytes=share_bytes, lazily_freed_bytes=freed_bytes),
                )
            self._divided[process.pid] = known
        self._with_shares = tuple([divided for _, divided in self._divided.values()])
        return self._with_shares

    def _lacks_a_reading_at_rest(self) -> bool:
        sum_bytes = sum([divided.share_bytes or 0 for _, divided in self._divided.values()])
        return not self._is_read_at_rest and self.unsure_bytes > _MAX_UNSURE_AT_REST * sum_bytes

    def _known_shares(
        self, living: Mapping[_Identity, ProcessReading], read: Container[_Identity] = ()
    ) -> dict[_Identity, int]:
        """The shares as far as they are known now, which determines what is unsure.

        The shares of ``read`` are later than the processes: what one held before, another may
        have taken over.
        """
        self._follow_living(living)
        parts: dict[_Identity, _ShareNow] = {}
        for identity, process in living.items():
            parts[identity] = self._share_now(process, is_read=identity in read)
        shares = {identity: part.share_bytes for identity, part in parts.items()}
        lacking_bytes = 0
        if parts:
            # All processes together hold at least as much as the one with most.
            largest = max(parts, key=lambda identity: parts[identity].anonymous_bytes)
            own_bytes = sum([part.own_bytes for part in parts.values()])
            lacking_bytes = max(parts[largest].anonymous_bytes - own_bytes, 0)
            shares[largest] += lacking_bytes
        open_shmem_bytes = sum([part.open_shmem_bytes for part in parts.values()])
        missing_bytes = sum([part.missing_bytes for part in parts.values()])
        unsure_bytes = self._ended_bytes + missing_bytes + open_shmem_bytes - lacking_bytes
        most_bytes = sum([part.most_bytes for part in parts.values()])
        limits = self._limits()
        if limits is not None:
            limit_bytes, all_bytes = limits
            shares, unsure_bytes = _shares_within_limit(shares, limit_bytes, unsure_bytes)
            most_bytes = min(most_bytes, all_bytes)
        self.unsure_bytes = max(min(unsure_bytes, most_bytes - sum(shares.values())), 0)
        self.open_shmem_bytes = min(open_shmem_bytes, self.unsure_bytes)
        self.shmem_bytes = sum([part.own_shmem_bytes for part in parts.values()])
        unread_bytes = max([part.unread_file_bytes for part in parts.values()], default=0)
        read_bytes = sum([part.own_file_bytes for part in parts.values()])
        self.file_bytes = read_bytes + max(unread_bytes, 0)
        own_locked_bytes = sum([part.own_locked_bytes for part in parts.values()])
        most_locked_bytes = max([part.mapped_locked_bytes for part in parts.values()], default=0)
        self.own_locked_bytes = own_locked_bytes
        self.lacking_locked_bytes = max(most_locked_bytes - own_locked_bytes, 0)
        return shares

    def _share_now(self, process: ProcessReading, *, is_read: bool) -> _ShareNow:
        """What one process has, by its base and its growth since then. If ``is_read``, the base is
        later than the reading, and knows its growth.
        """
        base = self._bases[process.identity]
        anonymous_bytes = _anonymous_bytes(process)
        growth_bytes = anonymous_bytes - base.anonymous_bytes
        if is_read:
            growth_bytes = min(growth_bytes, 0)
        own_bytes = min(max(base.own_bytes + growth_bytes, 0), anonymous_bytes)
        freed_bytes = self._freed_bytes(process)
        mapped_bytes = _mapped_file_bytes(process)
        # What was unlocked since may have been of files.
        unlocked_bytes = max(base.all_locked_bytes - (process.locked_bytes or 0), 0)
        most_locked_bytes = min(process.locked_bytes or 0, mapped_bytes)
        locked_bytes = min(max(base.own_locked_bytes - unlocked_bytes, 0), most_locked_bytes)
        mapped_locked_bytes = min(
            max(base.mapped_locked_bytes - unlocked_bytes, 0), most_locked_bytes
        )
        shmem_bytes = _mapped_shmem_bytes(process)
        return _ShareNow(
            share_bytes=base.own_shmem_bytes + locked_bytes + max(own_bytes - freed_bytes, 0),
            missing_bytes=freed_bytes + self._most_copied_bytes(process, base, growth_bytes),
            most_bytes=anonymous_bytes + locked_bytes + shmem_bytes,
            anonymous_bytes=anonymous_bytes,
            own_bytes=own_bytes,
            own_shmem_bytes=base.own_shmem_bytes,
            open_shmem_bytes=_most_open_shmem_bytes(shmem_bytes, base),
            own_file_bytes=min(base.own_file_bytes, mapped_bytes - locked_bytes),
            unread_file_bytes=mapped_bytes - base.file_bytes,
            own_locked_bytes=locked_bytes,
            mapped_locked_bytes=max(mapped_locked_bytes, _locked_file_bytes(process)),
        )

    def _most_copied_bytes(
        self, process: ProcessReading, base: _ShareBase, growth_bytes: int
    ) -> int:
        """What the process may have copied of the pages that it shares with its parent or its
        forks: at most one with each fault beyond its growth.
        """
        from_fork_bytes = max(base.inherited_bytes, self._inheritance.get(process.pid, 0))
        if not (from_fork_bytes and process.faults):  # gVisor counts no faults
            return from_fork_bytes
        faulted_bytes = (process.faults - base.faults) * self._page_bytes
        return min(max(faulted_bytes - max(growth_bytes, 0), 0), from_fork_bytes)

    def _follow_living(self, living: Mapping[_Identity, ProcessReading]) -> None:
        """Forget the processes that have ended, and add new ones and those that have executed a
        program.
        """
        for identity in self._bases.keys() - living.keys():
            base = self._bases.pop(identity)
            inherited = min(base.own_bytes, self._inheritance.get(identity[0], 0))
            self._ended_bytes += max(base.shared_bytes, inherited)  # others still hold it
        by_pid: dict[int, ProcessReading] | None = None
        is_alone = len(living) <= 1
        for identity, process in living.items():
            known = self._bases.get(identity)
            if known is not None and known.is_forked == process.is_forked:
                if is_alone or (
                    known.shmem_bytes and _mapped_shmem_bytes(process) < known.shmem_bytes
                ):
                    self._bases[identity] = self._base_after_unmapping(
                        process, known, is_alone=is_alone
                    )
                continue
            own_bytes = _anonymous_bytes(process)
            anonymous_bytes = own_bytes
            faults = process.faults
            if process.is_forked and not is_alone:
                faults = 0  # it began at 0
                by_pid = by_pid or {other.pid: other for other in living.values()}
                own_bytes = max(
                    own_bytes - inherited_bytes(process, by_pid.get(process.parent_pid)), 0
                )
            self._bases[identity] = _ShareBase(
                own_bytes=own_bytes,
                anonymous_bytes=anonymous_bytes,
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

    def _base_after_unmapping(
        self, process: ProcessReading, base: _ShareBase, *, is_alone: bool
    ) -> _ShareBase:
        """The base after a process may have unmapped shared memory, which others may still map; of
        the only process, all anonymous memory is its own.
        """
        shmem_bytes = _mapped_shmem_bytes(process)
        if shmem_bytes < base.shmem_bytes:
            most_bytes = min(base.own_shmem_bytes + base.open_shmem_bytes, shmem_bytes)
            own_bytes = max(base.own_shmem_bytes - (base.shmem_bytes - shmem_bytes), 0)
            lost_bytes = max(base.own_shmem_bytes - most_bytes, 0)
            self._ended_bytes += min(lost_bytes, base.shared_bytes)
            base = replace(
                base,
                shmem_bytes=shmem_bytes,
                own_shmem_bytes=own_bytes,
                open_shmem_bytes=most_bytes - own_bytes,
            )
        if not is_alone:
            return base
        anonymous_bytes = _anonymous_bytes(process)
        self._ended_bytes = min(self._ended_bytes, shmem_bytes - base.own_shmem_bytes)
        if (base.own_bytes, base.anonymous_bytes) == (anonymous_bytes, anonymous_bytes):
            return base
        return replace(
            base,
            own_bytes=anonymous_bytes,
            anonymous_bytes=anonymous_bytes,
            inherited_bytes=0,
            faults=process.faults,
        )

    def _freed_bytes(self, process: ProcessReading) -> int:
        base = self._bases.get(process.identity, _NO_BASE)
        return min(base.lazily_freed_bytes, process.anonymous_bytes or 0)

    def _processes_that_may_free(
        self, living: Mapping[_Identity, ProcessReading]
    ) -> Sequence[ProcessReading]:
        """The processes that may have freed memory lazily since the last reading."""
        if self._freed_pages is None or len(living) > _MAX_FILE_READERS:
            return ()
        pages = difference(self._lazily_freed_pages(), self._freed_pages)
        if pages is None:
            return ()
        freed_bytes = pages * self._page_bytes
        return [
            process
            for process in living.values()
            if is_notable(freed_bytes, _anonymous_bytes(process))
        ]

    def _processes_that_may_share(
        self, living: Mapping[_Identity, ProcessReading]
    ) -> Sequence[ProcessReading]:
        """The processes of which others may hold pages, or that may map one several times."""
        sharing: list[ProcessReading] = []
        for identity, process in living.items():
            base = self._bases[identity]
            may_share_anonymous = process.is_forked or process.pid in self._inheritance
            was_shared = base.shared_bytes > 0 or base.own_bytes < base.anonymous_bytes
            has_freed = base.lazily_freed_bytes > 0
            if may_share_anonymous or was_shared or has_freed or _mapped_shmem_bytes(process) > 0:
                sharing.append(process)
        return sharing

    def _processes_that_map_more_files(
        self, living: Mapping[_Identity, ProcessReading]
    ) -> Sequence[ProcessReading]:
        """The processes that map or have locked much more of files than at their last reading, or
        have unlocked some of it, unless there are many processes.
        """
        mapping: list[ProcessReading] = []
        if len(living) > _MAX_FILE_READERS:
            return mapping
        for identity, process in living.items():
            base = self._bases[identity]
            file_bytes = _mapped_file_bytes(process)
            known_bytes = max(_FILE_GROWTH * base.file_bytes, _MIN_FILE_BYTES)
            locked_bytes = min(process.locked_bytes or 0, file_bytes)
            known_locked_bytes = max(_FILE_GROWTH * base.locked_bytes, _MIN_LOCKED_BYTES)
            unlocked_bytes = base.all_locked_bytes - (process.locked_bytes or 0)
            has_unlocked = base.own_locked_bytes > 0 and unlocked_bytes > _MIN_LOCKED_BYTES
            if file_bytes > known_bytes or locked_bytes > known_locked_bytes or has_unlocked:
                mapping.append(process)
        return mapping

    def _read_bases(self, processes: Sequence[ProcessReading]) -> Container[_Identity]:
        """Read the shares; returns the processes that are readable."""
        read = set[_Identity]()
        for process in processes:
            rollup = proc.read_or_none(f"/proc/{process.pid}/smaps_rollup") or b""
            base = _read_base(rollup, process)
            if base is not None:
                self._bases[process.identity] = base
                read.add(process.identity)
        if read:
            self._ended_bytes = 0
        return read


def _read_base(rollup: bytes, process: ProcessReading) -> _ShareBase | None:
    """The base of a process by its ``smaps_rollup``; None if that is not readable."""
    sizes = all_known(*[proc.bytes_after(rollup, name) for name in _OF_A_WHOLE_PROCESS])
    if sizes is None:
        return None
    rss_bytes, pss_bytes, anonymous_bytes = sizes
    private_bytes = proc.parse_private_bytes(rollup) or 0
    divided = all_known(
        proc.bytes_after(rollup, b"Pss_Anon:"), proc.bytes_after(rollup, b"Pss_Shmem:")
    )
    shmem_bytes = min(_mapped_shmem_bytes(process), rss_bytes - anonymous_bytes)
    open_shmem_bytes = 0
    if divided is not None:
        own_bytes, own_shmem_bytes = divided
    else:
        # Before Linux 5.4, the PSS was not divided: the rest may be of files.
        own_bytes = min(anonymous_bytes, pss_bytes)
        file_bytes = rss_bytes - anonymous_bytes - shmem_bytes
        most_shmem_bytes = min(pss_bytes - own_bytes, shmem_bytes)
        own_shmem_bytes = min(max(pss_bytes - own_bytes - file_bytes, 0), shmem_bytes)
        open_shmem_bytes = most_shmem_bytes - own_shmem_bytes
    shmem_bytes = max(shmem_bytes, own_shmem_bytes)
    pss_file_bytes = max(pss_bytes - own_bytes - own_shmem_bytes, 0)
    # All anonymous and shared memory may be locked, too: only the rest is certainly of files.
    locked_bytes = proc.bytes_after(rollup, b"Locked:") or 0
    own_locked_bytes = min(max(locked_bytes - own_bytes - own_shmem_bytes, 0), pss_file_bytes)
    mapped_locked_bytes = own_locked_bytes
    if min(locked_bytes, pss_file_bytes) - own_locked_bytes > _MIN_LOCKED_BYTES:
        # The mappings tell it, of which a process may have thousands.
        smaps = proc.read_or_none(f"/proc/{process.pid}/smaps") or b""
        part_bytes, mapped_locked_bytes = proc.parse_locked_file_bytes(
            smaps, shmem_bytes, own_shmem_bytes
        )
        own_locked_bytes = max(own_locked_bytes, min(part_bytes, pss_file_bytes))
        mapped_locked_bytes = max(mapped_locked_bytes, own_locked_bytes)
    # A page that n processes hold is in the PSS of each with a part of n: at most as much as is
    # missing there.
    missing_bytes = anonymous_bytes - own_bytes + shmem_bytes - own_shmem_bytes
    return _ShareBase(
        own_bytes=own_bytes,
        anonymous_bytes=anonymous_bytes,
        own_shmem_bytes=own_shmem_bytes,
        open_shmem_bytes=open_shmem_bytes,
        shmem_bytes=shmem_bytes,
        shared_bytes=min(max(pss_bytes - private_bytes, 0), missing_bytes),
        own_file_bytes=pss_file_bytes - own_locked_bytes,
        own_locked_bytes=own_locked_bytes,
        file_bytes=_mapped_file_bytes(process),
        locked_bytes=min(process.locked_bytes or 0, _mapped_file_bytes(process)),
        mapped_locked_bytes=mapped_locked_bytes,
        all_locked_bytes=process.locked_bytes or 0,
        lazily_freed_bytes=min(proc.bytes_after(rollup, b"LazyFree:") or 0, own_bytes),
        inherited_bytes=anonymous_bytes - (proc.parse_private_anonymous_bytes(rollup) or 0),
        faults=process.faults,
        is_forked=process.is_forked,
    )


def _shares_within_limit(
    shares: dict[_Identity, int], limit_bytes: int, unsure_bytes: int
) -> tuple[dict[_Identity, int], int]:
    """The shares that together do not exceed a limit, each smaller by the same factor, and what
    they may lack: what exceeds it, too.
    """
    excess_bytes = sum(shares.values()) - limit_bytes
    if excess_bytes <= 0:
        return shares, unsure_bytes
    factor = limit_bytes / (limit_bytes + excess_bytes)
    limited = {identity: int(factor * share) for identity, share in shares.items()}
    return limited, unsure_bytes + excess_bytes


def _are_same_readings(
    processes: Sequence[ProcessReading], before: Collection[tuple[ProcessReading, ProcessReading]]
) -> bool:
    """Whether these are the very readings that were divided before."""
    if len(processes) != len(before):
        return False
    return all(map(is_, processes, [reading for reading, _ in before]))


def _anonymous_bytes(process: ProcessReading) -> int:
    return min(process.anonymous_bytes or 0, process.rss_bytes or 0)


def _mapped_shmem_bytes(process: ProcessReading) -> int:
    """What a process maps of shared memory, each mapping of a page."""
    if process.shmem_bytes is None:  # before Linux 4.5
        return (process.rss_bytes or 0) - _anonymous_bytes(process)
    return process.shmem_bytes


def _locked_file_bytes(process: ProcessReading) -> int:
    """The least that a process has locked of files: all other memory may be locked, too."""
    others_bytes = _anonymous_bytes(process) + _mapped_shmem_bytes(process)
    return min(max((process.locked_bytes or 0) - others_bytes, 0), _mapped_file_bytes(process))


def _mapped_file_bytes(process: ProcessReading) -> int:
    """What a process maps of files, each mapping of a page."""
    return max(
        (process.rss_bytes or 0) - _anonymous_bytes(process) - _mapped_shmem_bytes(process), 0
    )


def _most_open_shmem_bytes(shmem_bytes: int, base: _ShareBase) -> int:
    """What a process may have of the shared memory that it maps, beyond its known share."""
    open_bytes = base.open_shmem_bytes + max(shmem_bytes - base.shmem_bytes, 0)
    return min(open_bytes, max(shmem_bytes - base.own_shmem_bytes, 0))
