"""The texts of ``/proc/PID``: read in one go, parsed by pure functions, None for what is not there.

A process can vanish between two reads or belong to somebody else: both are ordinary here.
"""

import os
import re

from msgspec import Struct

_BYTES_PER_KIB = 1024
_CHUNK_BYTES = 65_536
# Positions in /proc/PID/stat after the name, which is the only field that may hold spaces.
_STATE, _PARENT, _FLAGS, _MINOR_FAULTS, _CHILD_MINOR_FAULTS, _MAJOR_FAULTS, _CHILD_MAJOR_FAULTS = 0, 1, 6, 7, 8, 9, 10
_USER, _SYSTEM, _CHILD_USER, _CHILD_SYSTEM, _THREADS, _STARTED, _RESIDENT = 11, 12, 13, 14, 17, 19, 21
STOPPED = "T"
_DEAD_STATES = (b"Z", b"X")  # its parent has not waited for it yet
_PF_EXITING = 0x4
_OCTAL_ESCAPE = re.compile(r"\\([0-7]{3})")


class ProcessStat(Struct, frozen=True, kw_only=True):
    """``/proc/PID/stat``. What "children" used counts once a parent has waited for them.

    ``name`` is the command's, at most 15 bytes of it; ``faults`` are page faults: memory does not
    grow without them. ``is_exiting`` is already true while it gives its memory back, before it is a zombie.
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
    resident_pages: int
    is_exiting: bool


class ProcessStatus(Struct, frozen=True, kw_only=True):
    """``/proc/PID/status``: resident memory now, its unshared part, its high-water mark."""

    rss_bytes: int | None = None
    anonymous_bytes: int | None = None
    peak_bytes: int | None = None
    ignored_signals: int = 0


class BlockBytes(Struct, frozen=True, kw_only=True):
    """``/proc/PID/io``: what a process and all that it has waited for brought from and sent to storage."""

    read_bytes: int
    write_bytes: int


def parse_stat(text: bytes) -> ProcessStat | None:
    """None if the text is cut short or is something else."""
    name_ends = text.rfind(b")")
    fields = text[name_ends + 1 :].split()
    if len(fields) <= _RESIDENT:
        return None
    try:
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
            resident_pages=int(fields[_RESIDENT]),
            is_exiting=fields[_STATE] in _DEAD_STATES or bool(int(fields[_FLAGS]) & _PF_EXITING),
        )
    except ValueError:
        return None


def parse_status(text: bytes) -> ProcessStatus:
    """A zombie and a kernel thread have no memory: the sizes are None then."""
    ignored = _field(text, b"SigIgn:")
    try:
        signals = int(ignored or b"0", 16)
    except ValueError:
        signals = 0
    return ProcessStatus(
        rss_bytes=_size_bytes(text, b"VmRSS:"),
        anonymous_bytes=_size_bytes(text, b"RssAnon:"),
        peak_bytes=_size_bytes(text, b"VmHWM:"),
        ignored_signals=signals,
    )


def parse_pss(rollup: bytes) -> int | None:
    """The proportional set size in ``/proc/PID/smaps_rollup``."""
    return _size_bytes(rollup, b"Pss:")


def parse_counter(text: str, name: str) -> int | None:
    """The number after ``name`` in lines of names and numbers."""
    for line in text.splitlines():
        key, _, value = line.partition(" ")
        if key == name and value.strip().isdecimal():
            return int(value)
    return None


def parse_io(text: bytes) -> BlockBytes | None:
    """None if the file was not ours to read, or the kernel does not count."""
    read_bytes, write_bytes = _field(text, b"read_bytes:"), _field(text, b"write_bytes:")
    if read_bytes is None or write_bytes is None or not (read_bytes.isdigit() and write_bytes.isdigit()):
        return None
    return BlockBytes(read_bytes=int(read_bytes), write_bytes=int(write_bytes))


def parse_pids(children: bytes) -> tuple[int, ...]:
    """The process ids in ``/proc/PID/task/TID/children``."""
    return tuple(int(word) for word in children.split() if word.isdigit())


def unescape_path(path: str) -> str:
    """A path of ``/proc/PID/mountinfo``, in which blanks and backslashes are octal."""
    return _OCTAL_ESCAPE.sub(lambda match: chr(int(match[1], 8)), path)


def parse_arguments(cmdline: bytes) -> tuple[str, ...]:
    """The arguments in ``/proc/PID/cmdline``, without the command itself."""
    words = cmdline.removesuffix(b"\0").split(b"\0")
    return tuple(word.decode(errors="replace") for word in words[1:])


def all_pids(folder: str = "/proc") -> list[int]:
    """All processes that are visible, in no order."""
    try:
        names = os.listdir(folder)  # noqa: PTH208  names, many times a minute
    except OSError:
        return []
    return [int(name) for name in names if name.isdecimal()]


def read(path: str) -> bytes | None:
    """A whole file of ``/proc``, None if the process is gone or the file is not ours to read."""
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


def _size_bytes(text: bytes, name: bytes) -> int | None:
    value = _field(text, name)
    return int(value) * _BYTES_PER_KIB if value is not None and value.isdigit() else None


def _field(text: bytes, name: bytes) -> bytes | None:
    """The first word after ``name`` at the beginning of a line."""
    start = 0 if text.startswith(name) else text.find(b"\n" + name) + 1
    if start == 0 and not text.startswith(name):
        return None
    words = text[start + len(name) :].split(None, 1)
    return words[0] if words else None
