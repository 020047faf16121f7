"""What a blocked thread does, by its system call and the architecture's numbers. Others are unknown."""

from collections.abc import Mapping
from typing import Literal

from msgspec import Struct

# How to find the target of a wait from a call's arguments; a wait without a target has only its kind.
Action = Literal["file", "socket", "accept", "poll", "select", "epoll", "record lock", "disk", "sleep", "lock", "child"]

_ACTIONS: Mapping[Action, str] = {
    "file": "read write readv writev pread64 pwrite64 preadv pwritev preadv2 pwritev2 fsync fdatasync syncfs ftruncate "
    "fallocate sync_file_range readahead getdents64 sendfile splice copy_file_range",
    "socket": "connect sendto recvfrom sendmsg recvmsg sendmmsg recvmmsg",
    "accept": "accept accept4",
    "poll": "poll ppoll",
    "select": "select pselect6",
    "epoll": "epoll_wait epoll_pwait epoll_pwait2",
    "record lock": "fcntl",
    "disk": "sync msync io_getevents io_pgetevents",
    "sleep": "nanosleep clock_nanosleep",
    "lock": "futex futex_wait futex_waitv flock semop semtimedop",
    # A thread in vfork waits until the child has executed its program.
    "child": "wait4 waitid clone clone3 vfork",
}
_SINCE_2019 = "clone3=435 epoll_pwait2=441 futex_waitv=449 futex_wait=455"
_X86_64 = (
    "read=0 write=1 poll=7 pread64=17 pwrite64=18 readv=19 writev=20 select=23 msync=26 nanosleep=35 sendfile=40 "
    "connect=42 accept=43 sendto=44 recvfrom=45 sendmsg=46 recvmsg=47 clone=56 vfork=58 wait4=61 semop=65 fcntl=72 "
    "flock=73 fsync=74 fdatasync=75 ftruncate=77 sync=162 readahead=187 futex=202 io_getevents=208 getdents64=217 "
    "semtimedop=220 clock_nanosleep=230 epoll_wait=232 waitid=247 pselect6=270 ppoll=271 splice=275 "
    "sync_file_range=277 epoll_pwait=281 fallocate=285 accept4=288 preadv=295 pwritev=296 recvmmsg=299 syncfs=306 "
    "sendmmsg=307 copy_file_range=326 preadv2=327 pwritev2=328 io_pgetevents=333"
)
_AARCH64 = (
    "io_getevents=4 epoll_pwait=22 fcntl=25 flock=32 ftruncate=46 fallocate=47 getdents64=61 read=63 write=64 "
    "readv=65 writev=66 pread64=67 pwrite64=68 preadv=69 pwritev=70 sendfile=71 pselect6=72 ppoll=73 splice=76 "
    "sync=81 fsync=82 fdatasync=83 sync_file_range=84 waitid=95 futex=98 nanosleep=101 clock_nanosleep=115 "
    "semtimedop=192 semop=193 accept=202 connect=203 sendto=206 recvfrom=207 sendmsg=211 recvmsg=212 readahead=213 "
    "clone=220 msync=227 accept4=242 recvmmsg=243 wait4=260 syncfs=267 sendmmsg=269 copy_file_range=285 preadv2=286 "
    "pwritev2=287 io_pgetevents=292"
)
_NUMBERS = {"x86_64": _X86_64, "aarch64": _AARCH64}
_ARGUMENTS = 6
_MAX_UINT = 0xFFFF_FFFF


class SystemCall(Struct, frozen=True):
    """A system call in progress. ``number`` is -1 for a thread that is blocked outside of one, as in a page fault."""

    number: int
    arguments: tuple[int, ...] = ()

    def int_argument(self, position: int) -> int:
        """An argument of the type ``int``: the kernel ignores the upper half of the register."""
        value = self.arguments[position] & _MAX_UINT
        return value if value <= _MAX_UINT >> 1 else value - _MAX_UINT - 1


def numbers_of(machine: str) -> Mapping[str, int]:
    """The numbers of an architecture's system calls by their names; empty for one without a table."""
    table = _NUMBERS.get(machine)
    words = [] if table is None else [word.partition("=") for word in f"{table} {_SINCE_2019}".split()]
    return {name: int(number) for name, _, number in words}


class Calls:
    """The calls of one architecture that a thread may wait in. Empty for an architecture without a table."""

    def __init__(self, machine: str) -> None:
        numbers = numbers_of(machine)
        self.are_known = bool(numbers)
        self._names = {number: name for name, number in numbers.items()}
        self._actions = {
            numbers[name]: action for action, names in _ACTIONS.items() for name in names.split() if name in numbers
        }

    def action(self, call: SystemCall) -> Action | None:
        """How to find the target that the call waits for; None for a call that is in no table."""
        return self._actions.get(call.number)

    def name(self, call: SystemCall) -> str:
        return self._names.get(call.number, "")


def parse_system_call(text: bytes) -> SystemCall | None:
    """Parse ``/proc/PID/task/TID/syscall``; None for a thread that is not blocked, or another format."""
    words = text.split()
    try:
        number, values = int(words[0]), tuple(int(word, 16) for word in words[1:])
    except (IndexError, ValueError):
        return None
    # The last two are the stack pointer and the instruction pointer. Below 4 GiB they belong to a 32-bit program, whose
    # calls have other numbers.
    if number < 0 or (values and max(values[-2:]) <= _MAX_UINT):
        return SystemCall(-1)
    return SystemCall(number, values[:_ARGUMENTS]) if len(values) == _ARGUMENTS + 2 else None
