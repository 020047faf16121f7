"""A load for one NVIDIA GPU: allocates memory and multiplies continuously.

    python gpu_burn.py --gib 4 --seconds 60

With ``--blocks 1`` it keeps one multiprocessor busy and leaves the others idle, and with ``--pause`` it sleeps between
spans of work, like a program that waits for its data.

The program uses PyTorch if it is installed and has a GPU, otherwise only the NVIDIA driver. For the driver, the kernel
is PTX code, which the driver compiles for the GPU. The program prints "ready" when it has allocated the memory and the
first kernel has finished.
"""

import argparse
import ctypes
import math
import sys
import time
from collections.abc import Callable
from types import ModuleType
from typing import NoReturn, Protocol

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
_MATRIX_ROWS = 8192
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
    load = create_load(options.by, size_bytes, options.blocks)
    burn(load, options.seconds, time.monotonic, work_seconds=options.work, pause_seconds=options.pause)


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


def create_load(backend: str, size_bytes: int, blocks: int | None = None) -> Load:
    """Create the load.

    Args:
        backend: "torch", "cuda" (the driver alone), or "auto" for the first of them that is available.
        size_bytes: The memory to allocate.
        blocks: The blocks of the driver's kernel, of which a multiprocessor runs some at a time; None: enough for all.

    Raises:
        SystemExit: The backend is not available. The message contains the remedy.
    """
    torch = None if backend == "cuda" or (blocks is not None and backend == "auto") else _load_torch()
    if torch is not None:
        return TorchLoad(torch, size_bytes)
    if backend == "torch":
        sys.exit("PyTorch is not installed or sees no GPU: install it with CUDA support, or omit --by.")
    return CudaLoad(_load_driver(), size_bytes, blocks or _BLOCKS)


class CudaLoad:
    """A load that uses only the driver API, ``libcuda``."""

    def __init__(self, cuda: ctypes.CDLL, size_bytes: int, blocks: int = _BLOCKS) -> None:
        self._cuda = cuda
        self._blocks = blocks
        device, context, module = ctypes.c_int(), ctypes.c_void_p(), ctypes.c_void_p()
        self._kernel, self._memory, self._rounds = ctypes.c_void_p(), ctypes.c_uint64(), ctypes.c_uint32(_ROUNDS)
        _check(cuda.cuInit(0), "initialize")
        _check(cuda.cuDeviceGet(ctypes.byref(device), 0), "open the first GPU")
        _check(cuda.cuCtxCreate_v2(ctypes.byref(context), 0, device), "create a context")
        allocated = cuda.cuMemAlloc_v2(ctypes.byref(self._memory), ctypes.c_size_t(size_bytes))
        _check(allocated, f"allocate {size_bytes / _GIB:g} GiB", _MEMORY_ADVICE)
        _check(cuda.cuModuleLoadData(ctypes.byref(module), _PTX), "load the kernel's code")
        _check(cuda.cuModuleGetFunction(ctypes.byref(self._kernel), module, b"burn"), "find the kernel")
        # The array contains addresses, so the attributes at these addresses must live as long as this object.
        self._parameters = (ctypes.c_void_p * 2)(ctypes.addressof(self._memory), ctypes.addressof(self._rounds))

    def step(self) -> None:
        """Launch the kernel once."""
        grid = (self._blocks, 1, 1, _THREADS, 1, 1)
        _check(self._cuda.cuLaunchKernel(self._kernel, *grid, 0, None, self._parameters, None), "launch the kernel")
        _check(self._cuda.cuCtxSynchronize(), "wait for the kernel")


class TorchLoad:
    """A load that uses PyTorch: products of half-precision matrices, which run on tensor cores if the GPU has them."""

    def __init__(self, torch: ModuleType, size_bytes: int) -> None:
        self._torch = torch
        try:
            self._held = torch.empty(size_bytes, dtype=torch.uint8, device="cuda")
            self._left, self._right = (
                torch.randn(_MATRIX_ROWS, _MATRIX_ROWS, dtype=torch.float16, device="cuda") for _ in range(2)
            )
        except RuntimeError as error:  # the base class of PyTorch's OutOfMemoryError
            _exit_with_torch_error(f"allocate {size_bytes / _GIB:g} GiB and its matrices", error)

    def step(self) -> None:
        """Multiply once."""
        try:
            self._torch.matmul(self._left, self._right)
            self._torch.cuda.synchronize()
        except RuntimeError as error:
            _exit_with_torch_error("multiply", error)


def _parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument(
        "--gib", type=_gibibytes, default=4, help="GPU memory to allocate, in GiB (default: %(default)s)"
    )
    parser.add_argument("--seconds", type=_non_negative, default=60, help="duration in seconds (default: %(default)s)")
    parser.add_argument(
        "--by",
        choices=("auto", "torch", "cuda"),
        default="auto",
        help="PyTorch or the driver alone (default: the first available)",
    )
    parser.add_argument(
        "--blocks", type=int, choices=range(1, _BLOCKS + 1), metavar="N", help="blocks of the driver's kernel"
    )
    parser.add_argument("--work", type=_non_negative, default=1, help="seconds before a pause (default: %(default)s)")
    parser.add_argument("--pause", type=_non_negative, default=0, help="seconds to sleep after work (default: 0)")
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


def _load_torch() -> ModuleType | None:
    try:
        import torch
    except ImportError:
        return None
    return torch if torch.cuda.is_available() else None


def _load_driver() -> ctypes.CDLL:
    try:
        return ctypes.CDLL("libcuda.so.1")
    except OSError:
        sys.exit(
            "The NVIDIA driver is missing (libcuda.so.1): run this on a machine with a GPU, in a container with "
            "NVIDIA_DRIVER_CAPABILITIES=compute,utility."
        )


def _check(code: int, operation: str, advice: str = _DRIVER_ADVICE) -> None:
    if code:
        sys.exit(f"The CUDA driver could not {operation} (error {code}): {advice}")


def _exit_with_torch_error(operation: str, error: RuntimeError) -> NoReturn:
    message = str(error).partition("\n")[0].partition(". ")[0]
    sys.exit(
        f"PyTorch could not {operation} ({message}): {_MEMORY_ADVICE if 'out of memory' in message else _DRIVER_ADVICE}"
    )


if __name__ == "__main__":
    main()
