"""A batch with known needs, run inside the base image: uses CPU and memory as told, idles, and
exits as told.

It needs the standard library only. The steps come in this order: hold memory (anonymous, shared,
mapped), write a file and read it twice, write one that is kept, wait for a peer, spin, wait, spike,
take turns in children, SIGUSR1, have a child killed for memory, be killed itself, idle, wait for
SIGTERM, end.
"""

import argparse
import contextlib
import mmap
import os
import signal
import socket
import sys
import tempfile
import time
from collections.abc import Callable
from types import FrameType

_MIB = 1024 * 1024
_OOM_CHUNK_MIB = 8
_OOM_CAP_MIB = 2048  # where the container has no limit, the machine must survive
_NOT_KILLED = 3
_READ_SECONDS = 2.5
_PORT = 5432


def main() -> int:
    """Do as the arguments say and return the exit code."""
    options = _options()
    signal.signal(signal.SIGTERM, _on_term)
    signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGUSR1])
    _say("ready")  # from here on SIGTERM does what it should
    held = bytearray(
        options.memory_mib * _MIB
    )  # a bytearray is filled with zeros, so every page is touched
    mappings = [_shared(options.shared_mib)] if options.shared_mib else []
    if options.mapped_mib:
        mappings.append(_mapped(options.mapped_mib))
    if options.file_mib:
        _read_twice(options.file_mib)
    _keep(options.kept_mib)
    _wait_for_peer(options.network_seconds)
    _spin(options.cpu_seconds)
    time.sleep(options.wait_seconds)
    if options.spike_mib:
        _spike(options.spike_mib, options.spike_seconds)
    for _ in range(options.turns):
        _in_a_child(lambda: _spike(options.turn_mib, options.turn_seconds))
    if options.until_usr1:
        signal.sigwait([signal.SIGUSR1])
    if options.oom_child:
        _say(f"child ended with {_in_a_child(_grow)}")
    if options.oom:
        return _grow()
    time.sleep(options.idle_seconds)
    while options.until_term:
        signal.pause()
    for mapping in mappings:
        _touch(mapping)
    _say(f"done, held {len(held)} bytes, used {time.process_time():.3f} CPU seconds")
    return int(options.exit_code)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    for name in ("network-seconds", "cpu-seconds", "wait-seconds", "turn-seconds", "idle-seconds"):
        parser.add_argument(f"--{name}", type=float, default=0.0)
    for name in (
        "memory-mib",
        "shared-mib",
        "mapped-mib",
        "file-mib",
        "kept-mib",
        "spike-mib",
        "turn-mib",
        "turns",
    ):
        parser.add_argument(f"--{name}", type=int, default=0)
    for name in ("oom-child", "oom", "until-term", "until-usr1"):
        parser.add_argument(f"--{name}", action="store_true")
    parser.add_argument("--spike-seconds", type=float, default=0.4)
    parser.add_argument("--exit-code", type=int, default=0)
    return parser.parse_args()


def _shared(mib: int) -> mmap.mmap:
    mapping = mmap.mmap(-1, mib * _MIB)  # shared, as it is not asked to be private
    for offset in range(0, len(mapping), mmap.PAGESIZE):
        mapping[offset] = 1
    return mapping


def _mapped(mib: int) -> mmap.mmap:
    with tempfile.TemporaryFile() as file:
        _write(file.fileno(), mib)
        mapping = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
    _touch(mapping)
    return mapping


def _touch(mapping: mmap.mmap) -> None:
    for offset in range(0, len(mapping), mmap.PAGESIZE):
        mapping[offset]


def _read_twice(mib: int) -> None:
    with tempfile.TemporaryFile(buffering=0) as file:
        _write(file.fileno(), mib)
        for _ in range(2):
            file.seek(0)
            while file.read(_MIB):
                pass
        time.sleep(_READ_SECONDS)  # the file, and its pages in memory, are there until it is closed


def _keep(mib: int) -> None:
    _write(os.open("/kept", os.O_CREAT | os.O_WRONLY), mib)


def _write(descriptor: int, mib: int) -> None:
    block = bytes(_MIB)
    for _ in range(mib):
        os.write(descriptor, block)
    os.fsync(descriptor)


def _on_term(number: int, _frame: FrameType | None) -> None:
    sys.exit(128 + number)


def _say(text: str) -> None:
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


def _wait_for_peer(seconds: float) -> None:
    if not seconds:
        return
    with (
        socket.create_server(("127.0.0.1", _PORT)),
        socket.create_connection(("127.0.0.1", _PORT)) as connection,
    ):
        connection.settimeout(seconds)
        with contextlib.suppress(TimeoutError):
            connection.recv(1)


def _spin(seconds: float) -> None:
    while time.process_time() < seconds:
        pass


def _spike(mib: int, seconds: float) -> None:
    spike = bytearray(mib * _MIB)
    time.sleep(seconds)
    del spike


def _in_a_child(work: Callable[[], object]) -> int:
    """Fork, work, and wait; returns how the child ended, a signal as a negative number."""
    pid = os.fork()
    if pid == 0:
        work()
        os._exit(0)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def _grow() -> int:
    chunks: list[bytearray] = []
    while len(chunks) * _OOM_CHUNK_MIB < _OOM_CAP_MIB:
        chunks.append(bytearray(_OOM_CHUNK_MIB * _MIB))
    return _NOT_KILLED


if __name__ == "__main__":
    sys.exit(main())
