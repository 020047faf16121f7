"""The System V shared memory segments that the processes of a command make.

They exist without a process that maps them, until they are removed, and no file shows them.
"""

from collections.abc import Collection, Iterator

from msgspec import Struct

from profiler.core.timestamps import NS_PER_SECOND
from profiler.readers.linux import proc

_FILE = "/proc/sysvipc/shm"
_COLUMNS = (b"shmid", b"cpid", b"ctime", b"rss")


class SysvSegment(Struct, frozen=True, kw_only=True):
    """One line of ``/proc/sysvipc/shm``. ``changed_seconds`` is the time of its making, or of a
    later change of its owner or mode.
    """

    number: int
    maker_pid: int
    changed_seconds: int
    resident_bytes: int


def parse_segments(text: bytes) -> Iterator[SysvSegment]:
    """The segments of this IPC namespace; none before Linux 3.4, which has no sizes in memory."""
    heading, _, lines = text.partition(b"\n")
    names = heading.split()
    if not all(column in names for column in _COLUMNS):
        return
    places = [names.index(column) for column in _COLUMNS]
    for line in lines.splitlines():
        words = line.split()
        if len(words) != len(names):
            continue
        # cpid and times are signed
        number, maker_pid, changed_seconds, resident_bytes = (int(words[at]) for at in places)
        yield SysvSegment(
            number=number,
            maker_pid=maker_pid,
            changed_seconds=changed_seconds,
            resident_bytes=resident_bytes,
        )


class SysvSegments:
    """The segments that processes of a command have made since ``started_ns`` (wall clock).

    A segment is known from the first look on at which its maker lives, or lived at the look
    before. The kernel keeps the maker's id, which another process may have later.
    """

    def __init__(self, started_ns: int) -> None:
        self._started_seconds = started_ns // NS_PER_SECOND
        self._known: set[int] = set()
        self._earlier_pids: Collection[int] = ()

    @property
    def are_known(self) -> bool:
        return bool(self._known)

    def follow_only(self, pids: Collection[int]) -> None:
        """The processes of the command now, which may end before the next look."""
        self._earlier_pids = pids

    def held_bytes(self, pids: Collection[int]) -> int:
        """The memory of the segments that exist, attached or not; ``pids`` are the processes."""
        total_bytes = 0
        for segment in parse_segments(proc.read_or_none(_FILE) or b""):
            is_made_by = segment.maker_pid in pids or segment.maker_pid in self._earlier_pids
            if is_made_by and segment.changed_seconds >= self._started_seconds:
                self._known.add(segment.number)
            if segment.number in self._known:
                total_bytes += segment.resident_bytes
        return total_bytes
