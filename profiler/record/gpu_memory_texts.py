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
# (RMM), ONNX Runtime, TensorRT, NCCL, vLLM, MXNet, Paddle, LightGBM, PyCUDA, CUDA.jl, faiss,
# llama.cpp and others on cudaMalloc, cuBLAS and cuDNN. An exception's name counts with its message:
# source text ("except torch.OutOfMemoryError: pass") and a docstring ("torch.OutOfMemoryError: If
# the batch is too large") have none. A name of CUDA is no part of another one ("test_CUDA_ERROR…").
# XLA says "Out of memory allocating", and TensorFlow "device:CPU", of the host's memory.
_TEXTS = re.compile(
    r"torch\.(?:cuda\.)?OutOfMemoryError: (?:\w+ out of memory|Allocation on device)"
    r"|CUDA out of memory\. Tried to allocate \d"
    r"|RESOURCE_EXHAUSTED: Failed to allocate request for"
    r"|RESOURCE_EXHAUSTED: .{0,200}trying to allocate \d"
    r"|OOM when allocating tensor(?!.*device:CPU)"
    r"|\bCUDA_ERROR_OUT_OF_MEMORY\b"
    r"|\bcudaErrorMemoryAllocation\b"
    r"|(?i:\bcuda (?:driver |runtime )?(?:error|failure)(?: \d+)?(?: in \S+)?:? '?out of memory)"
    r"|cuda runtime error \(2\) ?: out of memory"
    r"|Cuda Runtime \(out of memory\)"
    r"|\[CUDA\] out of memory"
    r"|cu(?:da)?M(?:em|alloc)\w*(?: retry)? failed: out of memory"
    r"|\(error 2 out of memory\)"
    r"|Out of memory error on GPU \d"
    r"|Out of GPU memory trying to allocate"
    r"|cupy\.cuda\.memory\.OutOfMemoryError: Out of memory allocating \d"
    r"|rmm::(?:out_of_memory|bad_alloc)"
    r"|std::bad_alloc: (?:out_of_memory: )?(?:CUDA error|RMM failure)"
    r"|\b(?:CUBLAS|CUDNN)_STATUS_ALLOC_FAILED\b"
    r"|No available memory for the cache blocks"
    r"|Free memory on device .{0,80} is less than desired GPU memory utilization"
)
# The name of a test, whose parameter may be such a text, with its result.
_PASSED_TEST = re.compile(r"::\S.* (?:PASSED|SKIPPED|XFAIL)\b")


def gpu_memory_error(lines: Sequence[str]) -> str | None:
    """The last of the lines that reports a lack of GPU memory, cut and without secrets; None if
    none does.
    """
    for line in reversed(lines):
        if _TEXTS.search(line) and not _PASSED_TEST.search(line):
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
