"""A load for one NVIDIA GPU: allocates memory and multiplies continuously.

    python gpu_burn.py --gib 4 --seconds 60

With ``--blocks 1`` it keeps one multiprocessor busy and leaves the others idle, and with
``--pause`` it sleeps between spans of work, like a program that waits for its data.

It needs only the NVIDIA driver, which compiles the kernel's PTX code for the GPU. It prints "ready"
when it has allocated the memory and the first kernel has finished.
"""

import argparse
import ctypes
import math
import sys
import time
from collections.abc import Callable
from typing import Protocol

_PTX = b"""
.version 6.0
.target sm_50
.address_size 64
.visible .entry burn(.param .u64 out, .param .u32 rounds)
{
    .reg .pred %p1;
    .reg .f32 %f<4>;
    .reg .b32 %r<7>;
    .reg .b64 %rd<5>;
    ld.param.u64 %rd1, [out];
    ld.param.u32 %r1, [rounds];
    mov.u32 %r2, %tid.x;
    mov.u32 %r3, %ctaid.x;
    mov.u32 %r4, %ntid.x;
    mad.lo.s32 %r5, %r3, %r4, %r2;
    cvt.rn.f32.u32 %f1, %r5;
    mov.f32 %f2, 0f3F7FBE77;
    mov.f32 %f3, 0f3DCCCCCD;
    mov.u32 %r6, 0;
again:
    fma.rn.f32 %f1, %f1, %f2, %f3;
    fma.rn.f32 %f1, %f1, %f2, %f3;
    fma.rn.f32 %f1, %f1, %f2, %f3;
    fma.rn.f32 %f1, %f1, %f2, %f3;
    add.u32 %r6, %r6, 1;
    setp.lt.u32 %p1, %r6, %r1;
    @%p1 bra again;
    cvta.to.global.u64 %rd2, %rd1;
    mul.wide.u32 %rd3, %r5, 4;
    add.s64 %rd4, %rd2, %rd3;
    st.global.f32 [%rd4], %f1;
    ret;
}
\0"""
_BLOCKS, _THREADS, _ROUNDS = 4096, 256, 20_000
_RESULT_BYTES = _BLOCKS * _THREADS * 4  # each thread writes one number: the minimum allocation
_GIB = 2**30
_MAX_GIB = 1_000_000  # far more than any GPU has; prevents an overflow of the 64-bit size
_MEMORY_ADVICE = "request less with --gib, or stop other programs on the GPU."
_DRIVER_ADVICE = "check the output of nvidia-smi, and NVIDIA_DRIVER_CAPABILITIES in a container."


class Load(Protocol):
    """A GPU load. It owns GPU memory for the lifetime of the object."""

    def step(self) -> None:
        """Run some milliseconds of work on the GPU, and wait for its end."""
        ...


def main() -> None:
    """Allocate the memory and keep the GPU busy."""
    options = _parse_arguments()
    size_bytes = max(int(options.gib * _GIB), _RESULT_BYTES)
    load = CudaLoad(load_driver(), size_bytes, options.blocks)
    burn(
        load,
        options.seconds,
        time.monotonic,
        work_seconds=options.work,
        pause_seconds=options.pause,
    )


def burn(
    load: Load,
    seconds: float,
    monotonic_seconds: Callable[[], float],
    sleep: Callable[[float], None] = time.sleep,
    *,
    work_seconds: float = 0,
    pause_seconds: float = 0,
) -> None:
    """Run steps for this time, with a pause after each span of work.

    The time starts after the first step, which includes compiling the kernel.
    """
    load.step()
    print("ready", flush=True)
    now = monotonic_seconds()
    end = now + seconds
    while now < end:
        pause_at = now + work_seconds if pause_seconds else end
        while (now := monotonic_seconds()) < min(pause_at, end):
            load.step()
        if now < end:
            sleep(min(pause_seconds, end - now))
            now = monotonic_seconds()


class CudaLoad:
    """A load that uses only the driver API, ``libcuda``."""

    def __init__(self, cuda: ctypes.CDLL, size_bytes: int, blocks: int = _BLOCKS) -> None:
        self._cuda = cuda
        self._blocks = blocks
        device, context, module = ctypes.c_int(), ctypes.c_void_p(), ctypes.c_void_p()
        self._kernel, self._memory, self._rounds = (
            ctypes.c_void_p(),
            ctypes.c_uint64(),
            ctypes.c_uint32(_ROUNDS),
        )
        _check(cuda.cuInit(0), "initialize")
        _check(cuda.cuDeviceGet(ctypes.byref(device), 0), "open the first GPU")
        _check(cuda.cuCtxCreate_v2(ctypes.byref(context), 0, device), "create a context")
        allocated = cuda.cuMemAlloc_v2(ctypes.byref(self._memory), ctypes.c_size_t(size_bytes))
        _check(allocated, f"allocate {size_bytes / _GIB:g} GiB", _MEMORY_ADVICE)
        _check(cuda.cuModuleLoadData(ctypes.byref(module), _PTX), "load the kernel's code")
        _check(
            cuda.cuModuleGetFunction(ctypes.byref(self._kernel), module, b"burn"), "find the kernel"
        )
        # The array contains addresses, so the attributes at these addresses must live as long as
        # this object.
        self._parameters = (ctypes.c_void_p * 2)(
            ctypes.addressof(self._memory), ctypes.addressof(self._rounds)
        )

    def step(self) -> None:
        """Launch the kernel once."""
        grid = (self._blocks, 1, 1, _THREADS, 1, 1)
        _check(
            self._cuda.cuLaunchKernel(self._kernel, *grid, 0, None, self._parameters, None),
            "launch the kernel",
        )
        _check(self._cuda.cuCtxSynchronize(), "wait for the kernel")


def _parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument(
        "--gib",
        type=_gibibytes,
        default=4,
        help="GPU memory to allocate, in GiB (default: %(default)s)",
    )
    parser.add_argument(
        "--seconds",
        type=_non_negative,
        default=60,
        help="duration in seconds (default: %(default)s)",
    )
    parser.add_argument(
        "--blocks",
        type=int,
        choices=range(1, _BLOCKS + 1),
        default=_BLOCKS,
        metavar="N",
        help=(
            "blocks of the kernel, of which a multiprocessor runs some at a time (default: "
            "enough for all)"
        ),
    )
    parser.add_argument(
        "--work",
        type=_non_negative,
        default=1,
        help="seconds before a pause (default: %(default)s)",
    )
    parser.add_argument(
        "--pause", type=_non_negative, default=0, help="seconds to sleep after work (default: 0)"
    )
    return parser.parse_args()


def _gibibytes(text: str) -> float:
    number = _non_negative(text)
    if not 0 < number <= _MAX_GIB:
        raise argparse.ArgumentTypeError(f"{text} is not a number above 0 and at most {_MAX_GIB}")
    return number


def _non_negative(text: str) -> float:
    try:
        number = float(text)
    except ValueError:
        number = math.nan
    if not math.isfinite(number) or number < 0:
        raise argparse.ArgumentTypeError(f"{text} is not a number of 0 or more")
    return number


def load_driver() -> ctypes.CDLL:
    """Open the driver. Raises SystemExit with the remedy."""
    try:
        return ctypes.CDLL("libcuda.so.1")
    except OSError:
        sys.exit(
            "The NVIDIA driver is missing (libcuda.so.1): run this on a machine with a GPU, in a "
            "container with NVIDIA_DRIVER_CAPABILITIES=compute,utility."
        )


def _check(code: int, operation: str, advice: str = _DRIVER_ADVICE) -> None:
    if code:
        sys.exit(f"The CUDA driver could not {operation} (error {code}): {advice}")


if __name__ == "__main__":
    main()
