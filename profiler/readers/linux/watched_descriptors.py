"""Which descriptors a thread watches in poll, select or epoll, for how long, and what they are open
for.
"""

import os
import re
from collections.abc import Iterable, Sequence

from profiler.core.optional_math import known
from profiler.core.timestamps import NS_PER_MS
from profiler.readers.linux import proc
from profiler.readers.linux.process_memory import ProcessMemory
from profiler.readers.linux.pseudoterminals import with_terminal_number
from profiler.readers.linux.system_calls import SystemCall

# Where poll and epoll have their timeout in milliseconds, and where others have that of a struct
# timespec.
_MS_TIMEOUTS = {"poll": 2, "epoll_wait": 3, "epoll_pwait": 3}
_TIMESPEC_TIMEOUTS = {"ppoll": 2, "epoll_pwait2": 3, "pselect6": 4}
_POLLFD_BYTES = 8
_MAX_LIST_BYTES = 65_536
_LONG_BYTES = 8
# The loop of an asynchronous program watches its own wake-up pipe with at most this many other
# descriptors.
MAX_DESCRIPTORS = 256
_WATCHED_BY_EPOLL = re.compile(rb"^tfd:\s*(\d+)\s+events:\s*([0-9a-f]+)", re.MULTILINE)
# Of the events of an epoll, those that say how, not for what: a descriptor with none but these has
# been reported once, and is not watched until a thread asks for it again.
_HOW_EVENTS = 0xF000_0000
# Once, or at an edge: so watch runtimes of which any thread adds to what is watched.
_EVENTS_OF_THREADS = 0xC000_0000
SOCKET = "socket:["
PIPE = "pipe:["
EPOLL = "anon_inode:[eventpoll]"


class WatchedDescriptors:
    """Reads the descriptors of processes.

    ``others_add``: other threads add to what the epoll that was read last watches.
    """

    def __init__(self, proc_folder: str, memory: ProcessMemory) -> None:
        self._folder = proc_folder
        self._memory = memory
        self.others_add = False

    def watched_in_call(
        self, pid: int, name: str, call: SystemCall
    ) -> tuple[Sequence[int] | None, bool]:
        """The descriptors that poll, select or epoll watch, None if not readable; and whether
        for a limited time.
        """
        if name.startswith("epoll"):
            has_timeout = call.int_argument(3) >= 0
            if name == "epoll_pwait2":
                has_timeout = bool(call.arguments[3])
            return self._watched_by_epoll(pid, call.int_argument(0)), has_timeout
        if name in ("poll", "ppoll"):
            has_timeout = call.int_argument(2) >= 0
            if name == "ppoll":
                has_timeout = bool(call.arguments[2])
            size = min(call.arguments[1] * _POLLFD_BYTES, _MAX_LIST_BYTES)
            memory = self._memory.read(pid, call.arguments[0], size)
            return known(poll_descriptors, memory), has_timeout
        return self._watched_by_select(pid, call), bool(call.arguments[4])

    def _watched_by_epoll(self, pid: int, descriptor: int) -> Sequence[int] | None:
        """The descriptors that an epoll descriptor watches now; None if not readable."""
        text = proc.read_or_none(f"{self._folder}/{pid}/fdinfo/{descriptor}")
        if text is None:
            return None
        entries = [(int(each), int(how, 16)) for each, how in _WATCHED_BY_EPOLL.findall(text)]
        if not entries or any(events & _EVENTS_OF_THREADS for _, events in entries):
            self.others_add = True
        return [number for number, events in entries if events & ~_HOW_EVENTS]

    def links_of(self, pid: int, descriptors: Sequence[int]) -> Sequence[str]:
        """What the descriptors are open for, and those that the epoll descriptors among them watch;
        empty if one of these lists is not readable.
        """
        links = {number: self.link_of(pid, number) for number in descriptors[:MAX_DESCRIPTORS]}
        pending = [number for number, link in links.items() if link == EPOLL]
        while pending:
            numbers = self._watched_by_epoll(pid, pending.pop())
            if numbers is None:
                return ()
            for number in numbers[: MAX_DESCRIPTORS - len(links)]:
                if number not in links:
                    links[number] = self.link_of(pid, number)
                    if links[number] == EPOLL:
                        pending.append(number)
        return tuple(links.values())

    def _watched_by_select(self, pid: int, call: SystemCall) -> Sequence[int] | None:
        """The descriptors of three sets, each of which may be absent."""
        words = -(-call.int_argument(0) // (8 * _LONG_BYTES))
        sets: list[bytes] = []
        for address in call.arguments[1:4]:
            if not address:
                continue
            memory = self._memory.read(pid, address, min(words * _LONG_BYTES, _MAX_LIST_BYTES))
            if memory is None:
                return None
            sets.append(memory)
        return select_descriptors(sets)

    def link_of(self, pid: int, descriptor: int) -> str:
        """What the descriptor is open for, such as ``socket:[4711]``; empty if not readable."""
        folder = f"{self._folder}/{pid}"
        try:
            link = os.readlink(f"{folder}/fd/{descriptor}")  # noqa: PTH115  faster
        except OSError:
            return ""
        return with_terminal_number(link, folder, descriptor)

    def timeout_ns(self, pid: int, name: str, call: SystemCall) -> int | None:
        """For how long a poll waits at most; None if that is not readable."""
        if name in _MS_TIMEOUTS:
            return call.int_argument(_MS_TIMEOUTS[name]) * NS_PER_MS
        if name not in _TIMESPEC_TIMEOUTS:
            return None
        return self._memory.read_timeout_ns(pid, call.arguments[_TIMESPEC_TIMEOUTS[name]])


def poll_descriptors(memory: bytes) -> list[int]:
    """The descriptors in an array of ``struct pollfd``; negative descriptors are not watched."""
    words = memoryview(memory[: len(memory) // _POLLFD_BYTES * _POLLFD_BYTES]).cast("i")
    return [number for number in words[::2] if number >= 0]


def select_descriptors(sets: Iterable[bytes]) -> list[int]:
    """The descriptors in bit sets, on machines with little-endian words: all that have a table
    of calls.
    """
    watched = 0
    for bits in sets:
        watched |= int.from_bytes(bits, "little")
    return [number for number in range(watched.bit_length()) if watched >> number & 1]
