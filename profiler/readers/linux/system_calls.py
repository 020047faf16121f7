"""The system calls that a thread may wait in: their numbers on each architecture, how to find the
target of a wait in them, and the one in which a thread is.
"""

from collections.abc import Mapping
from typing import Literal

from msgspec import Struct

# How to find the target of a wait from a call's arguments; a wait without a target has only its
# kind.
Action = Literal[
    "file",
    "socket",
    "accept",
    "poll",
    "select",
    "epoll",
    "ring",
    "record lock",
    "file lock",
    "disk",
    "sleep",
    "futex",
    "semaphore",
    "message",
    "message queue",
    "child",
    "signal",
    "restart",
]

_ACTIONS: Mapping[Action, str] = {
    "file": "read write readv writev pread64 pwrite64 preadv pwritev preadv2 pwritev2 fsync "
    "fdatasync syncfs ftruncate fallocate sync_file_range readahead getdents64 sendfile "
    "splice copy_file_range",
    "socket": "connect sendto recvfrom sendmsg recvmsg sendmmsg recvmmsg",
    "accept": "accept accept4",
    "poll": "poll ppoll",
    "select": "select pselect6",
    "epoll": "epoll_wait epoll_pwait epoll_pwait2",
    "ring": "io_uring_enter",
    "record lock": "fcntl",
    "disk": "sync msync io_getevents io_pgetevents",
    "sleep": "nanosleep clock_nanosleep",
    "futex": "futex futex_wait futex_waitv",
    "file lock": "flock",
    "semaphore": "semop semtimedop",
    "message": "msgsnd msgrcv",
    "message queue": "mq_timedsend mq_timedreceive",
    # A thread in vfork waits until the child has executed its program.
    "child": "wait4 waitid clone clone3 vfork",
    "signal": "pause rt_sigsuspend rt_sigtimedwait",
    # After a stop of the thread, a call with a timeout goes on as this one, with its arguments.
    "restart": "restart_syscall",
}
_SINCE_2019 = "io_uring_enter=426 clone3=435 epoll_pwait2=441 futex_waitv=449 futex_wait=455"
_X86_64 = (
    "read=0 write=1 poll=7 pread64=17 pwrite64=18 readv=19 writev=20 select=23 msync=26 "
    "pause=34 nanosleep=35 sendfile=40 connect=42 accept=43 sendto=44 recvfrom=45 sendmsg=46 "
    "recvmsg=47 "
    "clone=56 vfork=58 wait4=61 semop=65 msgsnd=69 msgrcv=70 fcntl=72 flock=73 fsync=74 "
    "fdatasync=75 ftruncate=77 "
    "sync=162 readahead=187 futex=202 io_getevents=208 getdents64=217 semtimedop=220 "
    "clock_nanosleep=230 epoll_wait=232 mq_timedsend=242 mq_timedreceive=243 waitid=247 "
    "pselect6=270 ppoll=271 splice=275 "
    "sync_file_range=277 epoll_pwait=281 fallocate=285 accept4=288 preadv=295 pwritev=296 "
    "recvmmsg=299 syncfs=306 sendmmsg=307 copy_file_range=326 preadv2=327 pwritev2=328 "
    "io_pgetevents=333 rt_sigtimedwait=128 rt_sigsuspend=130 restart_syscall=219"
)
_AARCH64 = (
    "io_getevents=4 epoll_pwait=22 fcntl=25 flock=32 ftruncate=46 fallocate=47 getdents64=61 "
    "read=63 write=64 readv=65 writev=66 pread64=67 pwrite64=68 preadv=69 pwritev=70 sendfile=71 "
    "pselect6=72 ppoll=73 splice=76 sync=81 fsync=82 fdatasync=83 sync_file_range=84 waitid=95 "
    "futex=98 nanosleep=101 clock_nanosleep=115 mq_timedsend=182 mq_timedreceive=183 msgrcv=188 "
    "msgsnd=189 semtimedop=192 semop=193 accept=202 connect=203 "
    "sendto=206 recvfrom=207 sendmsg=211 recvmsg=212 readahead=213 clone=220 msync=227 "
    "accept4=242 recvmmsg=243 wait4=260 syncfs=267 sendmmsg=269 copy_file_range=285 preadv2=286 "
    "pwritev2=287 io_pgetevents=292 rt_sigsuspend=133 rt_sigtimedwait=137 restart_syscall=128"
)
_NUMBERS = {"x86_64": _X86_64, "aarch64": _AARCH64}
_ARGUMENTS = 6
MAX_UINT = 0xFFFF_FFFF


class SystemCall(Struct, frozen=True):
    """A system call in progress.

    ``number`` is -1 for a thread that is blocked outside of one, as in a page fault.
    """

    number: int
    arguments: tuple[int, ...] = ()

    def int_argument(self, position: int) -> int:
        """An argument of the type ``int``: the kernel ignores the upper half of the register."""
        value = self.arguments[position] & MAX_UINT
        if value > MAX_UINT >> 1:
            value -= MAX_UINT + 1
        return value


def waiting_calls_of_machine(machine: str) -> Mapping[int, tuple[str, Action]]:
    """The calls of an architecture that a thread may wait in, by number; empty for one without a
    table.
    """
    if machine not in _NUMBERS:
        return {}
    actions: dict[str, Action] = {}
    for action, names in _ACTIONS.items():
        actions.update(dict.fromkeys(names.split(), action))
    calls: dict[int, tuple[str, Action]] = {}
    for word in f"{_NUMBERS[machine]} {_SINCE_2019}".split():
        name, _, number = word.partition("=")
        calls[int(number)] = (name, actions[name])
    return calls


def parse_system_call(text: bytes) -> SystemCall | None:
    """Parse ``/proc/PID/task/TID/syscall``; None for a thread that is not blocked, or another
    format.
    """
    words = text.split()
    try:
        number = int(words[0])
        values = tuple([int(word, 16) for word in words[1:]])
    except (IndexError, ValueError):
        return None
    # The last two are the stack pointer and the instruction pointer. Below 4 GiB they belong to a
    # 32-bit program, whose calls have other numbers.
    if number < 0 or (values and max(values[-2:]) <= MAX_UINT):
        return SystemCall(-1)
    if len(values) != _ARGUMENTS + 2:
        return None
    return SystemCall(number, values[:_ARGUMENTS])
