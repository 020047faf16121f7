"""Programs on one GPU that know what they did there; they need only the NVIDIA driver.

    python -m tests.gpu.known_programs NAME --truth FILE

The file has the truth as JSON: ``used_seconds`` (kernels and copies, each waited for), the first
and last of them in seconds since the program began, ``held_mb`` and ``copied_gb_per_second``.
"""

import argparse
import ctypes
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path

from examples.gpu_burn.gpu_burn import CudaLoad, load_driver

_MIB = 2**20
_SMALL_BYTES = 64 * _MIB
_COPY_BYTES = 1024 * _MIB
_STEP_SHARE = 0.05  # of the GPU's memory


class Program:
    """A context on the first GPU, and what was done there."""

    def __init__(self, size_bytes: int = _SMALL_BYTES, **options: int) -> None:
        self._cuda = load_driver()
        self._load = CudaLoad(self._cuda, size_bytes, **options)
        self.held_bytes = size_bytes
        self._load.step()  # compiles the kernel
        self.used_seconds = 0.0
        self.first: float | None = None
        self.last = 0.0
        self.copied_bytes = 0

    def compute(self, seconds: float) -> None:
        """Kernels without pauses, for this time."""
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            self._work(self._load.step)

    def _work(self, work: Callable[[], object]) -> None:
        began = time.monotonic()
        work()
        self.last = time.monotonic()
        self.used_seconds += self.last - began
        if self.first is None:
            self.first = began

    def hold(self, size_bytes: int) -> bool:
        """Take more memory; False if the driver has none."""
        address = ctypes.c_uint64()
        code = self._cuda.cuMemAlloc_v2(ctypes.byref(address), ctypes.c_size_t(size_bytes))
        if code == 0:
            self.held_bytes += size_bytes
        return bool(code == 0)

    def total_bytes(self) -> int:
        free, total = ctypes.c_size_t(), ctypes.c_size_t()
        _check(self._cuda.cuMemGetInfo_v2(ctypes.byref(free), ctypes.byref(total)))
        return total.value

    def copy(self, seconds: float) -> None:
        """Copies from pinned memory of the host to the GPU, for this time."""
        host, device = ctypes.c_void_p(), ctypes.c_uint64()
        size = ctypes.c_size_t(_COPY_BYTES)
        _check(self._cuda.cuMemAllocHost_v2(ctypes.byref(host), size))
        _check(self._cuda.cuMemAlloc_v2(ctypes.byref(device), size))
        self.held_bytes += _COPY_BYTES
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            self._work(lambda: _check(self._cuda.cuMemcpyHtoD_v2(device, host, size)))
            self.copied_bytes += _COPY_BYTES

    def fault(self) -> None:
        """A kernel that writes to an address that is not its own."""
        self._load._memory.value = 8
        self._load.step()


def _check(code: int) -> None:
    if code:
        sys.exit(f"The CUDA driver refused a call (error {code}).")


def _spin(seconds: float) -> None:
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        pass


def burn() -> Program:
    program = Program(4096 * _MIB)
    program.compute(8)
    return program


def burn_half() -> Program:
    program = Program()
    program.compute(0.5)
    return program


def one_block() -> Program:
    program = Program(blocks=1)
    program.compute(14)
    return program


def late() -> Program:
    time.sleep(12)
    program = Program()
    program.compute(2)
    return program


def bursts() -> Program:
    program = Program()
    for _ in range(8):
        for seconds in (0.03, 0.1, 0.3):
            program.compute(seconds)
            time.sleep(0.3)
    return program


def starved() -> Program:
    program = Program()
    end = time.monotonic() + 34
    while time.monotonic() < end:
        program.compute(0.005)
        _spin(0.06)
    return program


def copies() -> Program:
    program = Program()
    program.copy(5)
    return program


def grow() -> Program:
    program = Program()
    step_bytes = int(_STEP_SHARE * program.total_bytes())
    for _ in range(8):
        program.hold(step_bytes)
        time.sleep(0.3)
    program.compute(0.2)
    return program


def oom() -> Program:
    program = Program()
    step_bytes = int(_STEP_SHARE * program.total_bytes())
    while program.hold(step_bytes):
        time.sleep(0.1)
    return program


def pool() -> Program:
    program = Program()
    program.hold(int(0.92 * program.total_bytes()))
    program.compute(2)
    return program


def fault() -> Program:
    program = Program()
    time.sleep(1)
    program.fault()
    return program


def no_gpu() -> None:
    _spin(4)


def two() -> None:
    """Two processes, one after the other began."""
    words = [sys.executable, "-m", "tests.gpu.known_programs", "burn"]
    with subprocess.Popen(words), subprocess.Popen(words):
        pass


PROGRAMS: Mapping[str, tuple[Callable[[], Program | None], int]] = {
    "burn": (burn, 0),
    "burn-half": (burn_half, 0),
    "one-block": (one_block, 0),
    "late": (late, 0),
    "bursts": (bursts, 0),
    "starved": (starved, 0),
    "copies": (copies, 0),
    "grow": (grow, 0),
    "oom": (oom, 1),
    "pool": (pool, 1),
    "fault": (fault, 1),
    "no-gpu": (no_gpu, 0),
    "two": (two, 0),
}


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("name", choices=PROGRAMS)
    parser.add_argument("--truth", type=Path)
    options = parser.parse_args()
    began = time.monotonic()
    run, exit_code = PROGRAMS[options.name]
    done = run()
    if done is not None and options.truth is not None:
        copied = done.copied_bytes / done.used_seconds / 1e9 if done.copied_bytes else None
        truth = {
            "used_seconds": done.used_seconds,
            "first_seconds": None if done.first is None else done.first - began,
            "last_seconds": done.last - began,
            "held_mb": done.held_bytes / _MIB,
            "copied_gb_per_second": copied,
        }
        options.truth.write_text(json.dumps(truth))
    if exit_code:
        # As a framework does: the context ends with the process.
        print("the program fails, as it was asked to", file=sys.stderr, flush=True)
        os._exit(exit_code)


if __name__ == "__main__":
    main()
