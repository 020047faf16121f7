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
# (RMM), llama.cpp and others on cudaMalloc, cuBLAS and cuDNN.
_TEXTS = re.compile(
    r"torch\.(?:cuda\.)?OutOfMemoryError"
    r"|CUDA out of memory\. Tried to allocate"
    r"|RESOURCE_EXHAUSTED: (?:Out of memory|Failed to allocate request for)"
    r"|RESOURCE_EXHAUSTED: .{0,200}trying to allocate"
    r"|OOM when allocating tensor"
    r"|CUDA_ERROR_OUT_OF_MEMORY"
    r"|cudaErrorMemoryAllocation"
    r"|CUDA error(?: \d+)?(?: in \S+)?: out of memory"
    r"|cuda runtime error \(2\) ?: out of memory"
    r"|cudaMalloc failed: out of memory"
    r"|cupy\.cuda\.memory\.OutOfMemoryError"
    r"|rmm::(?:out_of_memory|bad_alloc)"
    r"|std::bad_alloc: (?:out_of_memory: )?CUDA error"
    r"|(?:CUBLAS|CUDNN)_STATUS_ALLOC_FAILED"
)


def gpu_memory_error(lines: Sequence[str]) -> str | None:
    """The last of the lines that reports a lack of GPU memory, cut and without secrets; None if
    none does.
    """
    for line in reversed(lines):
        if _TEXTS.search(line):
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
