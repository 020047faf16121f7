"""Reads and parses the files of ``/proc``.

What is absent, has ended or is another user's is None, and no error.
"""

import os
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from signal import SIGKILL, SIGSTOP
from typing import Final

from msgspec import Struct

from profiler.core.files import close_files, open_or_none
from profiler.core.optional_math import sum_of_both
from profiler.core.timestamps import NS_PER_SECOND

BYTES_PER_KIB = 1024
STOPPED = "T"  # the state of a process that SIGSTOP or SIGTSTP has suspended
_CHUNK_BYTES = 65_536
_MAX_REREAD_BYTES = 8192
_MAX_CMDLINE_BYTES = 4096
_MAX_NUMBER_BYTES = 40  # with spaces before it
# Positions in /proc/PID/stat after the name, which is the only field that may hold spaces.
_STATE = 0
_PARENT = 1
_FLAGS = 6
_MINOR_FAULTS = 7
_CHILD_MINOR_FAULTS = 8
_MAJOR_FAULTS = 9
_CHILD_MAJOR_FAULTS = 10
_USER = 11
_SYSTEM = 12
_CHILD_USER = 13
_CHILD_SYSTEM = 14
_THREADS = 17
_STARTED = 19
_VIRTUAL = 20
_RESIDENT = 21
_STACK = 25
_MAPPED_DEVICE = 3  # in the first line of a mapping in smaps
_BLOCKED_SIGNALS = 29
# Positions in /proc/loadavg.
_ABLE = 3
_LAST_PID = 4
# Positions in /proc/PID/net/dev after the name of the interface.
_RECEIVED = 0
_SENT = 8
_DEAD_STATES = (b"Z", b"X")  # the parent has not waited for the process yet
_PF_EXITING = 0x4
_PF_FORKNOEXEC = 0x40
# Of the signals 1 to 31, all that can be blocked: not SIGKILL and SIGSTOP.
_ALL_SIGNALS = 0x7FFF_FFFF & ~(1 << SIGKILL - 1) & ~(1 << SIGSTOP - 1)
# Positions in /proc/PID/mountinfo: before the separator, and after it.
_DEVICE = 2
_ROOT = 3
_MOUNT_POINT = 4
_FILESYSTEM_TYPE = 0
_SUPER_OPTIONS = 2


class ProcessStat(Struct, frozen=True, kw_only=True):
    """``/proc/PID/stat``. The values of children count those that the process has waited for.

    ``is_exiting`` is true from the moment a process frees its memory, before it is a zombie,
    ``is_forked`` until it executes a program: so long it shares pages with its parent.
    ``stack_start`` is an address that changes when a process executes a program; 0 if it is not
    readable for this user. ``blocks_signals``: as of :func:`blocks_all_signals`.
    """

    name: str
    state: str
    parent_pid: int
    cpu_ticks: int
    children_cpu_ticks: int
    faults: int
    children_faults: int
    threads: int
    started_ticks: int
    virtual_bytes: int
    resident_pages: int
    is_exiting: bool
    is_forked: bool
    stack_start: int
    blocks_signals: bool


class ProcessStatus(Struct, frozen=True, kw_only=True):
    """``/proc/PID/status``: resident memory, its anonymous part and its part in shared memory and
    tmpfs, its high-water mark; its memory in swap; what it has locked, present or not; ignored
    signals (a bit mask); the most files that it may have open. The RSS lacks page tables, and huge
    pages of the machine's pool.
    """

    rss_bytes: int | None = None
    anonymous_bytes: int | None = None
    shmem_bytes: int | None = None
    peak_bytes: int | None = None
    swap_bytes: int | None = None
    page_table_bytes: int | None = None
    huge_page_bytes: int | None = None
    locked_bytes: int | None = None
    open_files_bound: int = 0
    ignored_signals: int = 0


class ProcessBlockBytes(Struct, frozen=True, kw_only=True):
    """``/proc/PID/io``: bytes that a process and the children it has waited for read from and
    wrote to storage.

    The kernel counts a write when a page of the cache becomes dirty. ``cancelled_bytes`` is what
    the process removed again before it was written: it deleted or truncated the file, its own or
    another's. rusage has no such count.
    """

    read_bytes: int = 0
    write_bytes: int = 0
    cancelled_bytes: int = 0

    @property
    def stored_bytes(self) -> int:
        """What was written to storage, or will be."""
        return max(self.write_bytes - self.cancelled_bytes, 0)

    def __add__(self, other: "ProcessBlockBytes") -> "ProcessBlockBytes":
        """The bytes of both together."""
        return ProcessBlockBytes(
            read_bytes=self.read_bytes + other.read_bytes,
            write_bytes=self.write_bytes + other.write_bytes,
            cancelled_bytes=self.cancelled_bytes + other.cancelled_bytes,
        )


class MountEntry(Struct, frozen=True, kw_only=True):
    """One line of ``/proc/PID/mountinfo``; ``root`` is the path within the file system that is
    mounted.
    """

    device: str
    root: str
    mount_point: str
    filesystem_type: str
    super_options: str


def parse_stat(text: bytes) -> ProcessStat | None:
    """Parse ``/proc/PID/stat``; None if the text is empty (the process has ended) or malformed."""
    name_ends = text.rfind(b")")
    fields = text[name_ends + 1 :].split()
    if len(fields) <= _STACK:
        return None
    try:
        flags = int(fields[_FLAGS])
        return ProcessStat(
            name=text[text.find(b"(") + 1 : name_ends].decode(errors="replace"),
            state=fields[_STATE].decode("ascii"),
            parent_pid=int(fields[_PARENT]),
            cpu_ticks=int(fields[_USER]) + int(fields[_SYSTEM]),
            children_cpu_ticks=int(fields[_CHILD_USER]) + int(fields[_CHILD_SYSTEM]),
            faults=int(fields[_MINOR_FAULTS]) + int(fields[_MAJOR_FAULTS]),
            children_faults=int(fields[_CHILD_MINOR_FAULTS]) + int(fields[_CHILD_MAJOR_FAULTS]),
            threads=int(fields[_THREADS]),
            started_ticks=int(fields[_STARTED]),
            virtual_bytes=int(fields[_VIRTUAL]),
            resident_pages=int(fields[_RESIDENT]),
            is_exiting=fields[_STATE] in _DEAD_STATES or bool(flags & _PF_EXITING),
            is_forked=bool(flags & _PF_FORKNOEXEC),
            stack_start=int(fields[_STACK]),
            blocks_signals=blocks_all_signals(fields),
        )
    except ValueError:
        return None


# The state of a process that has ended.
GONE: Final = ProcessStat(
    name="",
    state="X",
    parent_pid=0,
    cpu_ticks=0,
    children_cpu_ticks=0,
    faults=0,
    children_faults=0,
    threads=0,
    started_ticks=0,
    virtual_bytes=0,
    resident_pages=0,
    is_exiting=True,
    is_forked=False,
    stack_start=0,
    blocks_signals=False,
)


def read_stat(process_folder: str) -> ProcessStat:
    """The state of a process by its folder in ``/proc``; GONE if it cannot be read."""
    return parse_stat(read_or_none(f"{process_folder}/stat") or b"") or GONE


def blocks_all_signals(fields: Sequence[bytes]) -> bool:
    """Whether a thread blocks all signals from 1 to 31, as around a vfork, by the fields of its
    ``stat`` after the name. Raises ValueError.
    """
    if len(fields) <= _BLOCKED_SIGNALS:
        return False
    return int(fields[_BLOCKED_SIGNALS]) & _ALL_SIGNALS == _ALL_SIGNALS


def shows_function(fields: Sequence[bytes]) -> bool:
    """Whether this user may read the function of the kernel in which a thread waits, by the fields
    of its ``stat`` after the name: the kernel shows the stack's address to the same users.
    """
    return len(fields) > _STACK and fields[_STACK] != b"0"


def may_run_another_program(before: ProcessStat, now: ProcessStat) -> bool:
    """Whether a process has executed a program since, which causes page faults; at its end, its
    name remains.
    """
    if now.stack_start:
        has_another_stack = now.stack_start != before.stack_start
    else:
        has_another_stack = now.faults != before.faults
    return now.name != before.name or (has_another_stack and not now.is_exiting)


def parse_status(text: bytes) -> ProcessStatus:
    """Parse ``/proc/PID/status``.

    The sizes of zombies and kernel threads are None: they have no memory. gVisor's zombies have 0.
    """
    return ProcessStatus(
        rss_bytes=bytes_after(text, b"VmRSS:") or None,
        anonymous_bytes=bytes_after(text, b"RssAnon:"),
        shmem_bytes=bytes_after(text, b"RssShmem:"),
        peak_bytes=bytes_after(text, b"VmHWM:"),
        swap_bytes=bytes_after(text, b"VmSwap:"),
        page_table_bytes=bytes_after(text, b"VmPTE:"),
        huge_page_bytes=bytes_after(text, b"HugetlbPages:"),
        locked_bytes=bytes_after(text, b"VmLck:"),
        open_files_bound=number_after(text, b"FDSize:") or 0,
        ignored_signals=int(_word_after(text, b"SigIgn:") or b"0", 16),
    )


def parse_private_bytes(rollup: bytes) -> int | None:
    """The memory in ``/proc/PID/smaps_rollup`` that no other process maps, in bytes."""
    clean_bytes = bytes_after(rollup, b"Private_Clean:")
    dirty_bytes = bytes_after(rollup, b"Private_Dirty:")
    return sum_of_both(clean_bytes, dirty_bytes)


def parse_locked_file_bytes(
    smaps: bytes, shmem_bytes: int, own_shmem_bytes: int
) -> tuple[int, int]:
    """What a process has certainly locked of files in ``/proc/PID/smaps``, in bytes: by its parts
    of the pages (PSS), and each mapping of a page.

    What it maps without a disk may be its shared memory: ``shmem_bytes``, and by its parts
    ``own_shmem_bytes``.
    """
    part_bytes = mapped_bytes = 0
    diskless_part_bytes = diskless_mapped_bytes = 0
    for mapping in smaps.split(b"\nVmFlags:"):
        locked_bytes = bytes_after(mapping, b"Locked:")
        if not locked_bytes:
            continue
        anonymous_bytes = bytes_after(mapping, b"Anonymous:") or 0
        of_part_bytes = max(locked_bytes - anonymous_bytes, 0)
        of_mapped_bytes = max((bytes_after(mapping, b"Rss:") or 0) - anonymous_bytes, 0)
        words = mapping.partition(b"\nSize:")[0].rpartition(b"\n")[2].split(None, 4)
        if len(words) > _MAPPED_DEVICE and not words[_MAPPED_DEVICE].startswith(b"00:"):
            part_bytes += of_part_bytes
            mapped_bytes += of_mapped_bytes
        else:
            diskless_part_bytes += of_part_bytes
            diskless_mapped_bytes += of_mapped_bytes
    part_bytes += max(diskless_part_bytes - own_shmem_bytes, 0)
    mapped_bytes += max(diskless_mapped_bytes - shmem_bytes, 0)
    return part_bytes, mapped_bytes


def parse_private_anonymous_bytes(rollup: bytes) -> int | None:
    """The least anonymous memory in ``/proc/PID/smaps_rollup`` that no other process maps, in
    bytes: pages of files and of shared memory can be private, too.
    """
    private_bytes = parse_private_bytes(rollup)
    anonymous_bytes = bytes_after(rollup, b"Anonymous:")
    if private_bytes is None or anonymous_bytes is None:
        return None
    part_bytes = bytes_after(rollup, b"Pss:") or 0
    own_bytes = bytes_after(rollup, b"Pss_Anon:")
    if own_bytes is None:  # before Linux 5.4
        others_bytes = (bytes_after(rollup, b"Rss:") or 0) - anonymous_bytes
        return min(max(private_bytes - others_bytes, 0), anonymous_bytes)
    # At least two processes hold a page that is not private: its part is at most a half.
    least_bytes = max(private_bytes - (part_bytes - own_bytes), 2 * own_bytes - anonymous_bytes)
    return min(max(least_bytes, 0), private_bytes, anonymous_bytes)


def number_after(text: bytes, name: bytes, base: int = 10) -> int | None:
    """The number after ``name``, which includes a colon or a space, at the beginning of a line;
    None if absent.
    """
    word = _word_after(text, name)
    return int(word, base) if word.isdigit() else None


def numbers_after(text: bytes, name: bytes) -> list[int]:
    """The numbers after ``name``, wherever it is; to compile a regular expression for them would
    take longer than the shortest commands.
    """
    beginnings = [part[:_MAX_NUMBER_BYTES].split(None, 1) for part in text.split(name)[1:]]
    return [int(words[0]) for words in beginnings if words and words[0].isdigit()]


def bytes_after(text: bytes, name: bytes) -> int | None:
    """The bytes of the number of KiB that :func:`number_after` finds."""
    word = _word_after(text, name)
    return int(word) * BYTES_PER_KIB if word.isdigit() else None


def _word_after(text: bytes, name: bytes) -> bytes:
    line_at = text.find(b"\n" + name) + 1
    if not line_at and not text.startswith(name):
        return b""
    start = line_at + len(name)
    words = text[start : start + _MAX_NUMBER_BYTES].split(None, 1)
    return words[0] if words else b""


def parse_io(text: bytes) -> ProcessBlockBytes | None:
    """Parse ``/proc/PID/io``; None if the file could not be read or the kernel does not count."""
    read_bytes = number_after(text, b"read_bytes:")
    write_bytes = number_after(text, b"write_bytes:")
    if read_bytes is None or write_bytes is None:
        return None
    cancelled_bytes = number_after(text, b"cancelled_write_bytes:") or 0
    return ProcessBlockBytes(
        read_bytes=read_bytes, write_bytes=write_bytes, cancelled_bytes=cancelled_bytes
    )


def parse_changed_bytes(text: bytes) -> int | None:
    """The most that a process's calls for writing have changed of files, by ``/proc/PID/io``, with
    the rest of the first and the last page of each call; None if it is not shown.

    What it changed in mapped files, and by requests of io_uring, is not in it.
    """
    passed_bytes = number_after(text, b"wchar:")
    calls = number_after(text, b"syscw:")
    if passed_bytes is None or calls is None:
        return None
    return passed_bytes + 2 * calls * os.sysconf("SC_PAGE_SIZE")


def parse_network(net_dev: bytes, *, with_loopback: bool = False) -> tuple[int, int] | None:
    """The bytes received and sent by the interfaces of ``/proc/PID/net/dev``; None if it has
    none.
    """
    counts: list[tuple[int, int]] = []
    for line in net_dev.splitlines():
        name, colon, after = line.partition(b":")
        if not colon or (name.strip() == b"lo" and not with_loopback):
            continue
        words = after.split()
        try:
            counts.append((int(words[_RECEIVED]), int(words[_SENT])))
        except (IndexError, ValueError):
            return None
    if not counts:
        return None
    received, sent = zip(*counts, strict=True)
    return sum(received), sum(sent)


def parse_child_pids(children: bytes) -> tuple[int, ...]:
    """The process ids in ``/proc/PID/task/TID/children``."""
    return tuple(int(word) for word in children.split() if word.isdigit())


def parse_mountinfo(text: str) -> Iterator[MountEntry]:
    """The mounts in ``/proc/PID/mountinfo``, in the order of the file; malformed lines are
    skipped.
    """
    for line in text.splitlines():
        before, _, after = line.partition(" - ")
        place = before.split(" ")
        filesystem = after.split(" ")
        if len(place) > _MOUNT_POINT and len(filesystem) > _SUPER_OPTIONS:
            yield MountEntry(
                device=place[_DEVICE],
                root=_unescape_path(place[_ROOT]),
                mount_point=_unescape_path(place[_MOUNT_POINT]),
                filesystem_type=filesystem[_FILESYSTEM_TYPE],
                super_options=filesystem[_SUPER_OPTIONS],
            )


def _unescape_path(path: str) -> str:
    """Decode the octal escapes of spaces and backslashes in a path."""
    if "\\" not in path:
        return path
    return re.sub(r"\\([0-7]{3})", lambda match: chr(int(match[1], 8)), path)


def parse_command_line(cmdline: bytes) -> tuple[str, ...]:
    """The words in the first 4 KiB. One that is cut becomes an ellipsis: it may be part of a
    secret.
    """
    beginning = cmdline[:_MAX_CMDLINE_BYTES]
    words = [word.decode(errors="replace") for word in beginning.removesuffix(b"\0").split(b"\0")]
    is_cut = len(cmdline) >= _MAX_CMDLINE_BYTES and not beginning.endswith(b"\0")
    if is_cut and len(words) > 1:
        words[-1] = "…"
    return tuple(words)


def read_command_line(process_folder: str) -> tuple[str, ...]:
    """The words that a process was started with; one empty word if they cannot be read."""
    return parse_command_line(read_beginning(f"{process_folder}/cmdline", _MAX_CMDLINE_BYTES))


def read_arguments(process_folder: str) -> tuple[str, ...]:
    """The words of a process after the program; see :func:`parse_command_line`."""
    return read_command_line(process_folder)[1:]


def read_beginning(path: str, size_bytes: int, offset: int = 0) -> bytes:
    """Read at most ``size_bytes`` of a file from ``offset`` on; empty if that is not possible."""
    descriptor = open_or_none(path)
    if descriptor is None:
        return b""
    try:
        return os.pread(descriptor, size_bytes, offset)
    except (OSError, OverflowError):  # a tagged pointer is beyond all offsets
        return b""
    finally:
        os.close(descriptor)


def shows_own_pids() -> bool:
    """Whether ``/proc`` has the ids of this process's pid namespace: not after ``unshare --pid``
    with the old ``/proc``, where an id is that of an unrelated process.
    """
    try:
        return os.readlink("/proc/self") == str(os.getpid())  # noqa: PTH115  no pathlib in `run`
    except OSError:
        return False


def numeric_entries(folder: str = "/proc") -> list[int]:
    """The numeric entries of a folder, in no order: in ``/proc`` all processes that are visible
    here.
    """
    try:
        names = os.listdir(folder)  # noqa: PTH208  faster; called many times a minute
    except OSError:
        return []
    return [int(name) for name in names if name.isdecimal()]


def read_last_pid(folder: str = "/proc") -> int | None:
    """The id that this process namespace assigned last: see :class:`LoadFile`."""
    file = LoadFile(folder)
    try:
        return file.last_pid()
    finally:
        file.close()


def _positive_or_none(word: bytes) -> int | None:
    return (int(word) or None) if word.isdigit() else None


class KeptFile:
    """A small file of the kernel that stays open: to open it costs more than to read it."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._descriptor: int | None = None

    def read(self) -> bytes:
        """Its first page; empty if it cannot be read."""
        if self._descriptor is None:
            self._descriptor = self._open()
        return reread_descriptor(self._descriptor)

    def _open(self) -> int | None:
        return open_or_none(self._path)

    def close(self) -> None:
        """Close the file; the next reading opens it again."""
        close_files((self._descriptor,))
        self._descriptor = None


class LoadFile(KeptFile):
    """``loadavg``: how many threads of the whole machine can run just now, and the id that this
    process namespace assigned last.

    gVisor writes 0, which is no id, and not the number of threads: the one that reads can run.
    LXCFS mounts a file of its own there, which is some seconds old: nobody reads that.
    """

    def __init__(self, folder: str = "/proc") -> None:
        super().__init__(f"{folder}/loadavg")
        self._folder = folder

    def last_pid(self) -> int | None:
        """The id; None if it cannot be read."""
        _, last_pid = self.able_threads_and_last_pid()
        return last_pid

    def able_threads_and_last_pid(self) -> tuple[int | None, int | None]:
        """The number of threads that can run, with the calling one, and the id; each is None if it
        cannot be read.
        """
        words = self.read().split()
        if len(words) <= _LAST_PID:
            return None, None
        able, _, _ = words[_ABLE].partition(b"/")
        return _positive_or_none(able), _positive_or_none(words[_LAST_PID])

    def _open(self) -> int | None:
        descriptor = super()._open()
        if descriptor is None:
            return None
        if os.fstat(descriptor).st_dev == os.stat(self._folder).st_dev:  # noqa: PTH116  no pathlib
            return descriptor
        os.close(descriptor)
        return None


def read_or_none(path: str) -> bytes | None:
    """The contents of a file; None if the process has ended or the file is not readable for this
    user.
    """
    try:
        descriptor = os.open(path, os.O_RDONLY)
    except OSError:
        return None
    chunks = []
    try:
        while chunk := os.read(descriptor, _CHUNK_BYTES):
            chunks.append(chunk)
    except OSError:
        return None
    finally:
        os.close(descriptor)
    return b"".join(chunks)


def read_text(path: str | os.PathLike[str]) -> str:
    """The contents of a file, empty if unreadable.

    Bytes that are not UTF-8 become surrogates, to name files.
    """
    return (read_or_none(os.fspath(path)) or b"").decode(errors="surrogateescape")


def reread_descriptor(descriptor: int | None) -> bytes:
    """The contents of an open file of the kernel, up to 8 KiB, from its start; empty if it
    could not be opened, or cannot be read any more.
    """
    if descriptor is None:
        return b""
    try:
        return os.pread(descriptor, _MAX_REREAD_BYTES, 0)
    except OSError:
        return b""


def open_files(folder: str, names: Iterable[str | None]) -> dict[str | None, int]:
    """The descriptors of those files of a folder that can be opened, by name; a name is None
    where there is no file.
    """
    opened: dict[str | None, int] = {}
    for name in names:
        descriptor = None
        if name is not None:
            descriptor = open_or_none(f"{folder}/{name}")
        if descriptor is not None:
            opened[name] = descriptor
    return opened


def reread_file(files: Mapping[str | None, int], name: str | None) -> bytes:
    """The contents of a file of ``open_files``; empty if it is not open or cannot be read any
    more.
    """
    return reread_descriptor(files.get(name))


def ns_per_tick() -> int:
    """The unit of the CPU times in ``/proc/PID/stat``, usually 10 ms."""
    return NS_PER_SECOND // os.sysconf("SC_CLK_TCK")
