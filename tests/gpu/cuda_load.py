"""A real load for one NVIDIA GPU with nothing but the driver: holds memory and multiplies without pause.

    python tests/gpu/cuda_load.py --gib 4 --seconds 10

Prints "ready" when the memory is held and the first kernel has run. The kernel comes as PTX, which
the driver compiles for whatever GPU it finds.
"""

import argparse
import ctypes
import sys
import time

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


def check(code: int, what: str) -> None:
    """End with a sentence if the driver refuses."""
    if code:
        sys.exit(f"The CUDA driver refused {what} (error {code}).")


def main() -> None:
    """Hold the memory and keep the GPU busy."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--gib", type=float, default=4)
    parser.add_argument("--seconds", type=float, default=10)
    options = parser.parse_args()
    cuda = ctypes.CDLL("libcuda.so.1")
    device, context, memory, module, kernel = (
        ctypes.c_int(),
        ctypes.c_void_p(),
        ctypes.c_uint64(),
        ctypes.c_void_p(),
        ctypes.c_void_p(),
    )
    check(cuda.cuInit(0), "to start")
    check(cuda.cuDeviceGet(ctypes.byref(device), 0), "the first GPU")
    check(cuda.cuCtxCreate_v2(ctypes.byref(context), 0, device), "a context")
    size = ctypes.c_size_t(int(options.gib * 2**30))
    check(cuda.cuMemAlloc_v2(ctypes.byref(memory), size), f"{options.gib} GiB")
    check(cuda.cuModuleLoadData(ctypes.byref(module), _PTX), "the kernel's code")
    check(cuda.cuModuleGetFunction(ctypes.byref(kernel), module, b"burn"), "the kernel")
    rounds = ctypes.c_uint32(_ROUNDS)
    pointers = (ctypes.c_void_p * 2)(ctypes.addressof(memory), ctypes.addressof(rounds))
    end = None
    while end is None or time.monotonic() < end:
        check(cuda.cuLaunchKernel(kernel, _BLOCKS, 1, 1, _THREADS, 1, 1, 0, None, pointers, None), "a launch")
        check(cuda.cuCtxSynchronize(), "to wait")
        if end is None:
            print("ready", flush=True)  # noqa: T201  the signal to the test
            end = time.monotonic() + options.seconds


if __name__ == "__main__":
    main()
