"""The system calls of blocked threads: the two tables of numbers, and the kernel's line."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from profiler.readers.linux.waited_target import Calls, SystemCall, numbers_of, parse_system_call
from tests.values import present

# From the kernel's arch/x86/entry/syscalls/syscall_64.tbl and include/uapi/asm-generic/unistd.h.
KNOWN = [
    ("read", 0, 63, "file"),
    ("fsync", 74, 82, "file"),
    ("pwrite64", 18, 68, "file"),
    ("recvfrom", 45, 207, "socket"),
    ("connect", 42, 203, "socket"),
    ("accept4", 288, 242, "accept"),
    ("ppoll", 271, 73, "poll"),
    ("pselect6", 270, 72, "select"),
    ("epoll_pwait", 281, 22, "epoll"),
    ("epoll_pwait2", 441, 441, "epoll"),
    ("clock_nanosleep", 230, 115, "sleep"),
    ("futex", 202, 98, "lock"),
    ("flock", 73, 32, "lock"),
    ("fcntl", 72, 25, "record lock"),
    ("wait4", 61, 260, "child"),
    ("waitid", 247, 95, "child"),
    ("io_getevents", 208, 4, "disk"),
]


@pytest.mark.parametrize(("name", "on_x86", "on_arm", "action"), KNOWN)
def test_the_numbers_are_those_of_the_architecture(name: str, on_x86: int, on_arm: int, action: str) -> None:
    for machine, number in (("x86_64", on_x86), ("aarch64", on_arm)):
        calls, call = Calls(machine), SystemCall(number)
        assert (calls.name(call), calls.action(call)) == (name, action)


@pytest.mark.parametrize("machine", ["x86_64", "aarch64"])
def test_each_number_is_one_call_and_each_call_has_an_action(machine: str) -> None:
    numbers = numbers_of(machine)
    assert len(set(numbers.values())) == len(numbers)
    assert all(Calls(machine).action(SystemCall(number)) for number in numbers.values())


def test_another_architecture_has_no_table() -> None:
    calls = Calls("riscv64")
    assert not calls.are_known
    assert calls.action(SystemCall(0)) is None


@pytest.mark.parametrize(
    ("line", "number"),
    [
        ("running", None),
        ("-1 0x7ffd8c1b0e20 0x7f2b5e51a007", -1),  # blocked in a page fault
        ("162 0x0 0xffb0e520 0x0 0x0 0x0 0x0 0xffb0e510 0x8049020", -1),  # a 32-bit program has other numbers
        ("35 0x0 0x7ffd8c1b0e40 0x0 0x0 0x0 0x0 0x7ffd8c1b0e20 0x401020", 35),
        ("232 0x4 0x7ffd8c1b0e40 0x40 0xffffffff 0x0 0x8 0x7ffd8c1b0e20 0x7f2b5e51a007", 232),
    ],
)
def test_the_call_of_the_kernels_line(line: str, number: int | None) -> None:
    call = parse_system_call(f"{line}\n".encode())
    assert (None if call is None else call.number) == number
    if number == 232:
        assert call is not None
        assert call.arguments == (4, 0x7FFD8C1B0E40, 64, 0xFFFFFFFF, 0, 8)
        assert call.int_argument(3) == -1


@given(st.binary(max_size=200))
def test_any_text_is_a_call_or_none(text: bytes) -> None:
    call = parse_system_call(text)
    assert call is None or call.number >= -1


@given(st.integers(0, 600), st.lists(st.integers(0, 2**64 - 1), min_size=6, max_size=6))
def test_every_line_of_the_kernel_is_read(number: int, arguments: list[int]) -> None:
    line = " ".join([str(number), *map(hex, arguments), "0x7ffd8c1b0e20", "0x7f2b5e51a007"]).encode()
    call = parse_system_call(line)
    assert call == SystemCall(number, tuple(arguments))
    assert all(-(2**31) <= present(call).int_argument(position) < 2**31 for position in range(6))
