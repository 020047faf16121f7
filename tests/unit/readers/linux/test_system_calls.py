"""The numbers of system calls, and the line that shows in which one a thread is."""

from hypothesis import given
from hypothesis import strategies as st

from profiler.readers.linux.system_calls import (
    SystemCall,
    parse_system_call,
    waiting_calls_of_machine,
)
from tests.values import present

# From the kernel's arch/x86/entry/syscalls/syscall_64.tbl and include/uapi/asm-generic/unistd.h.
KNOWN = (
    ("read", 0, 63, "file"),
    ("recvfrom", 45, 207, "socket"),
    ("accept4", 288, 242, "accept"),
    ("ppoll", 271, 73, "poll"),
    ("pselect6", 270, 72, "select"),
    ("epoll_pwait", 281, 22, "epoll"),
    ("clock_nanosleep", 230, 115, "sleep"),
    ("futex", 202, 98, "futex"),
    ("fcntl", 72, 25, "record lock"),
    ("wait4", 61, 260, "child"),
    ("io_getevents", 208, 4, "disk"),
    ("io_uring_enter", 426, 426, "ring"),
    ("restart_syscall", 219, 128, "restart"),
)


def test_the_numbers_are_those_of_the_architecture() -> None:
    for name, on_x86, on_arm, action in KNOWN:
        assert (
            waiting_calls_of_machine("x86_64")[on_x86]
            == waiting_calls_of_machine("aarch64")[on_arm]
            == (name, action)
        )


def test_the_call_of_the_kernels_line() -> None:
    for line, number in (
        ("running", None),
        ("-1 0x7ffd8c1b0e20 0x7f2b5e51a007", -1),  # blocked in a page fault
        (
            "162 0x0 0xffb0e520 0x0 0x0 0x0 0x0 0xffb0e510 0x8049020",
            -1,
        ),  # a 32-bit program has other numbers
        ("35 0x0 0x7ffd8c1b0e40 0x0 0x0 0x0 0x0 0x7ffd8c1b0e20 0x401020", 35),
        ("232 0x4 0x7ffd8c1b0e40 0x40 0xffffffff 0x0 0x8 0x7ffd8c1b0e20 0x7f2b5e51a007", 232),
    ):
        call = parse_system_call(f"{line}\n".encode())
        assert (None if call is None else call.number) == number, line
    assert present(call).arguments == (4, 0x7FFD8C1B0E40, 64, 0xFFFFFFFF, 0, 8)
    assert present(call).int_argument(3) == -1


@given(st.integers(0, 600), st.lists(st.integers(0, 2**64 - 1), min_size=6, max_size=6))
def test_every_line_of_the_kernel_is_read(number: int, arguments: list[int]) -> None:
    line = " ".join(
        [str(number), *map(hex, arguments), "0x7ffd8c1b0e20", "0x7f2b5e51a007"]
    ).encode()
    call = parse_system_call(line)
    assert call == SystemCall(number, tuple(arguments))
    assert all(-(2**31) <= present(call).int_argument(position) < 2**31 for position in range(6))
