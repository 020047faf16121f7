"""A real load for one NVIDIA GPU: holds memory and multiplies without pause, to see the numbers move.

    python gpu_burn.py --gib 4 --seconds 60

By PyTorch where that is installed and sees a GPU, else by the driver alone: the kernel comes as PTX, which the driver
compiles for whatever GPU it finds. Prints "ready" when the memory is held and the first kernel has run.
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
_RESULT_BYTES = _BLOCKS * _THREADS * 4  # a number of each thread: the least that must be held
_GIB = 2**30
_MOST_GIB = 1_000_000  # far more than a GPU has; beyond 64 bits the driver would be asked for another size
_MATRIX_ROWS = 8192
_HOLD_LESS = "hold less by --gib, or end what else is on the GPU."
_SEE_THE_DRIVER = "look at what nvidia-smi says, and at NVIDIA_DRIVER_CAPABILITIES in a container."


class Load(Protocol):
    """Memory on a GPU, held as long as this object lives, and work for it."""

    def step(self) -> None:
        """Give the GPU some milliseconds' work, and wait for it."""
        ...


def main() -> None:
    """Hold the memory and keep the GPU busy."""
    options = _arguments()
    size_bytes = max(int(options.gib * _GIB), _RESULT_BYTES)
    burn(load_by(options.by, size_bytes), options.seconds, time.monotonic)


def burn(load: Load, seconds: float, monotonic_seconds: Callable[[], float]) -> None:
    """One step after the other; the time counts from the end of the first, which may have to be compiled."""
    load.step()
    print("ready", flush=True)
    end = monotonic_seconds() + seconds
    while monotonic_seconds() < end:
        load.step()


def load_by(by: str, size_bytes: int) -> Load:
    """``by``: "torch", "cuda", or "auto" for the first of them that is there. Ends with a sentence if it is not."""
    torch = None if by == "cuda" else _torch_with_a_gpu()
    if torch is not None:
        return TorchLoad(torch, size_bytes)
    if by == "torch":
        _give_up("PyTorch is not installed or sees no GPU: install it with CUDA, or leave --by out.")
    return CudaLoad(_driver(), size_bytes)


class CudaLoad:
    """By the driver's own interface, ``libcuda``."""

    def __init__(self, cuda: ctypes.CDLL, size_bytes: int) -> None:
        self._cuda = cuda
        device, context, module = ctypes.c_int(), ctypes.c_void_p(), ctypes.c_void_p()
        self._kernel, self._memory, self._rounds = ctypes.c_void_p(), ctypes.c_uint64(), ctypes.c_uint32(_ROUNDS)
        _check(cuda.cuInit(0), "to start")
        _check(cuda.cuDeviceGet(ctypes.byref(device), 0), "the first GPU")
        _check(cuda.cuCtxCreate_v2(ctypes.byref(context), 0, device), "a context")
        allocated = cuda.cuMemAlloc_v2(ctypes.byref(self._memory), ctypes.c_size_t(size_bytes))
        _check(allocated, f"{size_bytes / _GIB:g} GiB", _HOLD_LESS)
        _check(cuda.cuModuleLoadData(ctypes.byref(module), _PTX), "the kernel's code")
        _check(cuda.cuModuleGetFunction(ctypes.byref(self._kernel), module, b"burn"), "the kernel")
        # Addresses: what they lead to must live as long as this object does.
        self._parameters = (ctypes.c_void_p * 2)(ctypes.addressof(self._memory), ctypes.addressof(self._rounds))

    def step(self) -> None:
        """Launch the kernel once."""
        grid = (_BLOCKS, 1, 1, _THREADS, 1, 1)
        _check(self._cuda.cuLaunchKernel(self._kernel, *grid, 0, None, self._parameters, None), "a launch")
        _check(self._cuda.cuCtxSynchronize(), "to wait")


class TorchLoad:
    """By PyTorch: products of half-precision matrices, which tensor cores do where there are any."""

    def __init__(self, torch: ModuleType, size_bytes: int) -> None:
        self._torch = torch
        try:
            self._held = torch.empty(size_bytes, dtype=torch.uint8, device="cuda")
            self._left, self._right = (
                torch.randn(_MATRIX_ROWS, _MATRIX_ROWS, dtype=torch.float16, device="cuda") for _ in range(2)
            )
        except RuntimeError as error:  # of which PyTorch's OutOfMemoryError is one
            _refused(f"{size_bytes / _GIB:g} GiB and its matrices", error)

    def step(self) -> None:
        """Multiply once."""
        try:
            self._torch.matmul(self._left, self._right)
            self._torch.cuda.synchronize()
        except RuntimeError as error:
            _refused("a multiplication", error)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--gib", type=_gib, default=4, help="GPU memory to hold (default: %(default)s)")
    parser.add_argument("--seconds", type=_seconds, default=60, help="how long (default: %(default)s)")
    parser.add_argument(
        "--by", choices=("auto", "torch", "cuda"), default="auto", help="PyTorch or the driver alone (default: either)"
    )
    return parser.parse_args()


def _gib(text: str) -> float:
    number = _seconds(text)
    if not 0 < number <= _MOST_GIB:
        raise argparse.ArgumentTypeError(f"{text} is not above 0 and at most {_MOST_GIB}")
    return number


def _seconds(text: str) -> float:
    try:
        number = float(text)
    except ValueError:
        number = math.nan
    if not math.isfinite(number) or number < 0:
        raise argparse.ArgumentTypeError(f"{text} is no number of 0 or more")
    return number


def _torch_with_a_gpu() -> ModuleType | None:
    try:
        import torch  # noqa: PLC0415  slow to import, and often not there
    except ImportError:
        return None
    return torch if torch.cuda.is_available() else None


def _driver() -> ctypes.CDLL:
    try:
        return ctypes.CDLL("libcuda.so.1")
    except OSError:
        _give_up(
            "There is no NVIDIA driver here (libcuda.so.1): run this on a machine with a GPU, in a container with "
            "NVIDIA_DRIVER_CAPABILITIES=compute,utility."
        )


def _check(code: int, what: str, advice: str = _SEE_THE_DRIVER) -> None:
    if code:
        _give_up(f"The CUDA driver refused {what} (error {code}): {advice}")


def _refused(what: str, error: RuntimeError) -> NoReturn:
    said = str(error).partition("\n")[0].partition(". ")[0]
    _give_up(f"PyTorch refused {what} ({said}): {_HOLD_LESS if 'out of memory' in said else _SEE_THE_DRIVER}")


def _give_up(sentence: str) -> NoReturn:
    sys.exit(sentence)


if __name__ == "__main__":
    main()
