"""The texts with which programs report that a GPU's memory was not enough, in their own log.

Only the lines of the run's own stream count.
"""

import re
from collections.abc import Sequence

from msgspec.structs import replace

from profiler.core.redaction import redact
from profiler.record.hardware import may_lack_gpu_memory
from profiler.record.record_model import GpuMemoryEvidence, Record

# So many of the newest lines of a run are searched.
SEARCHED_LINES = 100
_MAX_LENGTH = 300
# PyTorch (also before 2.0), XLA with JAX and TensorFlow, CUDA's driver and runtime, CuPy, RAPIDS
# (RMM, Spark), ONNX Runtime, TensorRT, NCCL, vLLM, SGLang, TGI, MXNet, Paddle, LightGBM, XGBoost,
# CatBoost, PyCUDA, CUDA.jl, MATLAB, faiss, DGL, DALI, llama.cpp and others on cudaMalloc, Amber,
# NAMD, Kokkos, Blender, OptiX, Vulkan, ffmpeg's NVENC, hashcat, cuBLAS and cuDNN. An exception's
# name counts with its message: source text ("except torch.OutOfMemoryError: pass") and a docstring
# ("torch.OutOfMemoryError: If the batch is too large") lack the message. A name of CUDA counts
# neither as a part of another one ("test_CUDA_ERROR…") nor as a counter. XLA says "Out of memory
# allocating", and TensorFlow "device:CPU", of the host's memory. NVENC's OpenEncodeSessionEx says
# "out of memory" of its number of sessions, and Triton's OutOfResources is of the shared memory of
# a multiprocessor. A line may be anything, and 1 MB long: each repetition has a bound, so that a
# search takes time in proportion to the length, and not to its square.
_TEXTS = re.compile(
    r"torch\.(?:cuda\.)?OutOfMemoryError: (?:\w{1,20} out of memory|Allocation on device)"
    r"|CUDA out of memory\. Tried to allocate \d"
    r"|CUDA out of memory occurred when warming up"
    r"|RESOURCE_EXHAUSTED: Failed to allocate request for \d"
    r"|RESOURCE_EXHAUSTED: Out of memory .{0,100}trying to allocate \d"
    r"|INTERNAL: Failed to allocate \d{1,20} bytes for new constant"
    r"|OOM when allocating tensor(?!.{0,300}device:CPU)"
    r"|device:GPU:\d.{0,100}(?: failed to allocate memory|: Dst tensor is not initialized)"
    r"|\b(?:CUDA_ERROR_OUT_OF_MEMORY|cudaErrorMemoryAllocation)\b(?![\"']? ?[=:] ?\d)"
    r"|(?i:\bcuda (?:driver |runtime )?(?:error|failure)(?: \d{1,6})?"
    r"(?: in \S{1,200})?:? '?out of memory)(?! (?:is|are|errors?)\b)"
    r"|(?i:\bcuda error in file '[^']{1,200}' in line \d{1,6} ?: out of memory)"
    r"|cuda runtime error \(2\) ?: out of memory"
    r"|Cuda Runtime \(out of memory\)"
    r"|\[CUDA\] out of memory"
    r"|\bCUDA: out of memory"
    r"|\bCUDA allocation failed\b"
    r"|CUDA error cuda\w{1,60}\(.{0,250}: out of memory"
    r"|cu(?:da)?M(?:em|alloc)\w{0,60}(?: retry)? failed: out of memory"
    r"|cu(?:da)?M(?:em|alloc)\w{0,60}\(\): out of memory"
    r"|cudaSafeCall\(\) failed at .{0,200}: out of memory"
    r"|GPUassert: out of memory"
    r"|GpuBuffer::Allocate failed out of memory"
    r"|\(error 2 out of memory\)"
    r"|\(cudaMalloc error out of memory \[2\]\)"
    r"|Out of memory error on GPU \d"
    r"|Out of GPU memory trying to allocate"
    r"|Out of memory on device\. To view more detail about available memory on the GPU"
    r"|System is out of GPU (?:and shared host )?memory"
    r"|cupy\.cuda\.memory\.OutOfMemoryError: [Oo]ut of memory (?:allocating|to allocate) \d"
    r"|rmm::(?:out_of_memory|bad_alloc)"
    r"|std::bad_alloc: (?:out_of_memory: )?(?:CUDA error|RMM failure)"
    r"|rapids\.jni\.Gpu(?:SplitAnd)?RetryOOM: GPU OutOfMemory"
    r"|catboost/cuda/\S{1,200} Error: Out of memory\. Requested \d"
    r"|\.cuh?:\d{1,6}: Memory allocation error on worker \d"
    r"|Error Code 2: OutOfMemory \("
    r"|\b(?:CUBLAS|CUDNN)_STATUS_ALLOC_FAILED\b"
    r"|\bOPTIX_ERROR_DEVICE_OUT_OF_MEMORY\b"
    r"|\b(?:VK_ERROR_OUT_OF_DEVICE_MEMORY|ErrorOutOfDeviceMemory)\b"
    r"|nvenc @ \w{1,20}\] Create\w{1,60} failed: out of memory"
    r"|MemorySpace named \"Cuda\" failed .{0,200}insufficient memory"
    r"|Can't allocate \d{1,20} bytes on device \d"
    r"|No available memory for the cache blocks"
    r"|larger than the maximum number of tokens that can be stored in KV cache"
    r"|KV cache is needed, which is larger than the available KV cache memory"
    r"|Free memory on device .{0,80} is less than desired GPU memory utilization"
    r"|Not enough memory\. Please try to increase --mem-fraction-static"
    r"|Not enough memory to handle \d{1,12} prefill tokens"
)
# Not a report: the name of a test, whose parameter may be such a text, with its result; a line of
# source text; advice for the case.
_NO_REPORT = re.compile(
    r"::\S.{0,500} (?:PASSED|SKIPPED|XFAIL)\b"
    r"|^\s*(?:#|//|(?:if|elif|except|raise|return|case|assert)\b)"
)
_ADVICE = re.compile(r"(?i)\b(?:(?:if|when) you|to avoid|in case of|hint:)")


def gpu_memory_error(lines: Sequence[str]) -> str | None:
    """The last of the lines that reports a lack of GPU memory, cut and without secrets; None if
    none does.
    """
    for line in reversed(lines):
        found = _TEXTS.search(line)
        if found is None or _NO_REPORT.search(line) or _ADVICE.search(line, 0, found.start()):
            continue
        return redact(line.split())[:_MAX_LENGTH]
    return None


def with_gpu_memory_error(record: Record, error: str | None) -> Record:
    """Add what the log says of a lack of GPU memory to the record of a run that failed by itself.
    What the numbers say stays.
    """
    if error is None or record.likely_out_of_gpu_memory:
        return record
    if not may_lack_gpu_memory(record, record.gpus):
        return record
    evidence = GpuMemoryEvidence(kind="log", text=error)
    return replace(record, likely_out_of_gpu_memory=True, gpu_memory_evidence=evidence)
