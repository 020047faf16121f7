"""A program that waits by the requests of an io_uring, with its raw system calls.

python -m tests.programs.rings PROGRAM SECONDS PORT
"""

import ctypes
import mmap
import socket
import struct
import sys
from collections.abc import Callable

from tests.programs.phases import compute, phase, rounds, started, write_down

_SETUP, _ENTER = 425, 426  # the same on all machines
_TIMEOUT, _ACCEPT, _RECEIVE = 11, 13, 27
_GET_EVENTS, _HAS_LIMITS = 1, 8
_ENTRIES = 4
_ENTRY_BYTES = 64
_ENTRIES_OFFSET = 0x10000000
_PARAMETERS_BYTES = 120
_LIMITS_BYTES = 24
_WAIT_NS, _WORK_SECONDS = 600_000_000, 0.2
_CALL = ctypes.CDLL(None).syscall


class _Ring:
    """A ring of a few entries."""

    def __init__(self) -> None:
        parameters = bytearray(_PARAMETERS_BYTES)
        shared = (ctypes.c_char * len(parameters)).from_buffer(parameters)
        self._ring: int = _CALL(_SETUP, _ENTRIES, shared)
        self._tail, self._array, self._head = (
            struct.unpack_from("I", parameters, place)[0] for place in (44, 64, 80)
        )
        self._queues = mmap.mmap(self._ring, 4096)
        self._requests = mmap.mmap(self._ring, _ENTRIES * _ENTRY_BYTES, offset=_ENTRIES_OFFSET)
        self._asked = self._completed = 0

    def ask(self, operation: int, descriptor: int, address: int = 0, length: int = 0) -> None:
        """Add a request."""
        place = self._asked % _ENTRIES
        self._requests[place * _ENTRY_BYTES : place * _ENTRY_BYTES + 32] = struct.pack(
            "<BBHiQQII", operation, 0, 0, descriptor, 0, address, length, 0
        )
        struct.pack_into("I", self._queues, self._array + place * 4, place)
        self._asked += 1
        struct.pack_into("I", self._queues, self._tail, self._asked)
        _CALL(_ENTER, self._ring, 1, 0, 0, None, 0)

    def wait(self, timeout: int = 0) -> None:
        """Wait for an answer, or until the timeout at this address."""
        if not timeout:
            _CALL(_ENTER, self._ring, 0, 1, _GET_EVENTS, None, 0)
            self._completed += 1
            struct.pack_into("I", self._queues, self._head, self._completed)
            return
        limits = ctypes.create_string_buffer(struct.pack("16xQ", timeout), _LIMITS_BYTES)
        size = ctypes.c_size_t(_LIMITS_BYTES)  # an int leaves half of an argument undefined
        _CALL(_ENTER, self._ring, 0, 1, _GET_EVENTS | _HAS_LIMITS, limits, size)


def _time() -> "ctypes.Array[ctypes.c_int64]":
    return (ctypes.c_int64 * 2)(0, _WAIT_NS)


def timer(seconds: float, _port: str) -> None:
    ring, time = _Ring(), _time()
    for _ in rounds(seconds):
        ring.ask(_TIMEOUT, -1, ctypes.addressof(time), 1)
        with phase("sleep"):
            ring.wait()
        compute(_WORK_SECONDS)


def timer_beside_listener(seconds: float, _port: str) -> None:
    """A loop that accepts for a limited time; nobody comes."""
    ring, time = _Ring(), _time()
    with socket.create_server(("127.0.0.1", 0)) as listener:
        ring.ask(_ACCEPT, listener.fileno())
        for _ in rounds(seconds):
            with phase("sleep"):
                ring.wait(ctypes.addressof(time))
            compute(_WORK_SECONDS)


def answer(seconds: float, port: str) -> None:
    ring, buffer = _Ring(), ctypes.create_string_buffer(1)
    with socket.create_connection(("127.0.0.1", int(port))) as connection:
        for _ in rounds(seconds):
            connection.sendall(b"0.6\n")
            ring.ask(_RECEIVE, connection.fileno(), ctypes.addressof(buffer), 1)
            with phase("network"):
                ring.wait()
            compute(_WORK_SECONDS)


PROGRAMS: dict[str, Callable[[float, str], None]] = {
    function.__name__: function for function in (timer, timer_beside_listener, answer)
}


def main() -> None:
    started()
    PROGRAMS[sys.argv[1]](float(sys.argv[2]), sys.argv[3])
    write_down()


if __name__ == "__main__":
    main()
