"""Texts of a lack of GPU memory as programs print them, and texts that are none."""

import pytest
from msgspec.structs import replace

from profiler.record.gpu_facts import gpu_memory_evidence, more_gpu_memory
from profiler.record.gpu_memory_texts import gpu_memory_error, with_gpu_memory_error
from profiler.record.record_model import Container, Gpu, GpuMemoryEvidence, Record
from tests.values import present

LACK = (
    "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 22.78 GiB. GPU 0 has a total capacity of 31.47 GiB of which 12.73 GiB is free.",
    "torch.cuda.OutOfMemoryError: CUDA out of memory. Tried to allocate 32.00 MiB. GPU 0 has a total capacty of 4.00 GiB of which 41.56 MiB is free.",
    "RuntimeError: CUDA out of memory. Tried to allocate 1024.00 KiB (GPU 0; 11.17 GiB total capacity; 10.90 GiB already allocated; 576.00 KiB free; 30.96 MiB cached)",
    "[rank0]: torch.OutOfMemoryError: Allocation on device 0 would exceed allowed memory. (out of memory)",
    "torch.OutOfMemoryError: HIP out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total capacity of 23.98 GiB.",
    "jax.errors.JaxRuntimeError: RESOURCE_EXHAUSTED: Out of memory while trying to allocate 34359738368 bytes.",
    "jaxlib.xla_extension.XlaRuntimeError: RESOURCE_EXHAUSTED: Failed to allocate request for 8.00GiB (8589934592B) on device ordinal 0",
    "tensorflow.python.framework.errors_impl.ResourceExhaustedError: OOM when allocating tensor with shape[8192,8192] and type float on /job:localhost/replica:0/task:0/device:GPU:0",
    "pycuda._driver.MemoryError: cuMemAlloc failed: CUDA_ERROR_OUT_OF_MEMORY",
    "numba.cuda.cudadrv.driver.CudaAPIError: [2] Call to cuMemAlloc results in CUDA_ERROR_OUT_OF_MEMORY",
    "CUDA error: out of memory",
    "ggml_cuda: cudaMalloc failed: out of memory",
    "cupy.cuda.memory.OutOfMemoryError: Out of memory allocating 34,359,738,368 bytes (allocated so far: 42,949,672,960 bytes).",
    "MemoryError: std::bad_alloc: out_of_memory: CUDA error at: /rmm/include/rmm/mr/device/cuda_memory_resource.hpp",
    "RuntimeError: cuda runtime error (2) : out of memory at /pytorch/aten/src/THC/THCStorage.cu:58",
    "RuntimeError: CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`",
    "[ONNXRuntimeError] : 6 : RUNTIME_EXCEPTION : Non-zero status code returned while running MatMul node. CUDA failure 2: out of memory ; GPU=0 ; file=cuda_allocator.cc",
    "[TRT] [E] [resizingAllocator.cpp::allocate::78] Error Code 1: Cuda Runtime (out of memory)",
    "pycuda._driver.MemoryError: cuMemAlloc failed: out of memory",
    "mxnet.base.MXNetError: pooled_storage_manager.h:161: cudaMalloc retry failed: out of memory",
    "ResourceExhaustedError: Out of memory error on GPU 0. Cannot allocate 1.007812GB memory on GPU 0",
    "node1:21:40 [0] include/alloc.h:48 NCCL WARN Cuda failure 'out of memory'",
    "ncclUnhandledCudaError: Call to CUDA function failed. Cuda failure 2 'out of memory'",
    "MemoryError: std::bad_alloc: out_of_memory: RMM failure at:pool_memory_resource.hpp:424: Maximum pool size exceeded",
    "RuntimeError: CUDA driver error: out of memory",
    "faiss: Error: 'err == cudaSuccess' failed: Failed to cudaMalloc 1073741824 bytes on device 0 (error 2 out of memory)",
    "RuntimeError: CUDA Error: out of memory",
    "LightGBMError: [CUDA] out of memory cuda_utils.hu 46",
    "ERROR: LoadError: Out of GPU memory trying to allocate 8.000 GiB",
    "ValueError: No available memory for the cache blocks. Try increasing `gpu_memory_utilization`.",
    "ValueError: Free memory on device cuda:0 (3.25/23.43 GiB) on startup is less than desired GPU memory utilization (0.96, 22.49 GiB).",
)
NO_LACK = (
    "MemoryError: Unable to allocate 8.00 GiB for an array with shape (1073741824,) and data type float64",
    "grpc._channel._InactiveRpcError: StatusCode.RESOURCE_EXHAUSTED: Quota exceeded for requests per minute",
    "ERROR 1041 (HY000): Out of memory; check if mysqld or some other process uses all available memory",
    "RuntimeError: DataLoader worker (pid 812) is killed by signal: Killed.",
    "Killed process 812 (python3) total-vm:81234kB, oom-kill",
    "java.lang.OutOfMemoryError: Java heap space",
    "CUDA error: an illegal memory access was encountered",
    "reserving memory so that CUDA does not run out of memory",
    "ResourceExhaustedError: OOM when allocating tensor with shape[100000,100000] and type float on /job:localhost/replica:0/task:0/device:CPU:0 by allocator cpu [Op:Mul]",
    "RESOURCE_EXHAUSTED: Out of memory allocating 40000000000 bytes.",
    "    except torch.OutOfMemoryError:",
    "    except torch.OutOfMemoryError: pass",
    "        torch.OutOfMemoryError: If the batch does not fit on the GPU.",
    "        cupy.cuda.memory.OutOfMemoryError: when the pool is full",
    "grpc: RESOURCE_EXHAUSTED: the server is busy, trying to allocate a worker",
    "ResourceExhausted: 429 RESOURCE_EXHAUSTED: Out of memory while planning the query",
    "    except (torch.cuda.OutOfMemoryError, RuntimeError) as error:",
    "    if 'CUDA out of memory. Tried to allocate' in str(error):",
    "retry_on=('torch.OutOfMemoryError',)",
    "tests/test_memory.py::test_catches_CUDA_ERROR_OUT_OF_MEMORY PASSED",
    "test_catches_cudaErrorMemoryAllocation (test_memory.Retries) ... ok",
    "test_catches_CUBLAS_STATUS_ALLOC_FAILED (test_memory.Retries) ... ok",
    "tests/test_memory.py::test_retries[CUDA_ERROR_OUT_OF_MEMORY] PASSED      [ 50%]",
    "tests/test_memory.py::test_retries[CUDA error: out of memory] SKIPPED (no GPU)",
    "Allocator (GPU_0_bfc) ran out of memory trying to allocate 2.00GiB with freed_by_count=0. The caller indicates that this is not a failure",
)


@pytest.mark.parametrize("text", LACK)
def test_the_texts_of_the_frameworks_are_known(text: str) -> None:
    assert (
        gpu_memory_error(["Traceback (most recent call last):", text, "exited with 1"]) is not None
    )


@pytest.mark.parametrize("text", NO_LACK)
def test_other_texts_are_no_evidence(text: str) -> None:
    assert gpu_memory_error([text]) is None


def test_a_line_is_cut_and_loses_its_secrets() -> None:
    text = present(gpu_memory_error([f"{LACK[0]} api_key=abcdef123456 {'x' * 1000}"]))
    assert len(text) <= 300
    assert "abcdef123456" not in text


FAILED = Record(task_id="t", container=Container(name="c"), status="failure", exit_code=1)


def test_the_record_of_a_run_that_failed_by_itself_gets_it() -> None:
    found = with_gpu_memory_error(FAILED, LACK[0])
    assert found.likely_out_of_gpu_memory is True
    assert found.gpu_memory_evidence == GpuMemoryEvidence(kind="log", text=LACK[0])


@pytest.mark.parametrize(
    "record",
    [
        replace(FAILED, status="success", exit_code=0),
        replace(FAILED, status="stopped", exit_code=143),
        replace(FAILED, exit_code=137),
        replace(FAILED, gpus=(Gpu(uuid="GPU-a", xids=(31,)),)),
        replace(
            FAILED,
            likely_out_of_gpu_memory=True,
            gpu_memory_evidence=GpuMemoryEvidence(kind="memory-at-limit", own_mb=9),
        ),
    ],
)
def test_other_records_stay_as_they_are(record: Record) -> None:
    assert with_gpu_memory_error(record, LACK[0]) == record


def test_without_such_a_line_nothing_is_added() -> None:
    assert with_gpu_memory_error(FAILED, None) == FAILED


@pytest.mark.parametrize(
    ("used_mb", "text"),
    [
        (3900, "One of its processes held at least 3.8 GB of the 3.9 GB that MPS lets a process"),
        (
            9000,
            "Its processes held at least 3.8 GB of the 3.9 GB that MPS lets a process use, other ",
        ),
    ],
    ids=["of a process", "older record"],
)
def test_what_was_held_of_the_limit_of_mps(used_mb: int, text: str) -> None:
    """Older records count other programs against it, and all processes of the run."""
    seen = GpuMemoryEvidence(
        kind="memory-at-limit", uuid="GPU-a", own_mb=3900, used_mb=used_mb, limit_mb=4000
    )
    gpu = Gpu(uuid="GPU-a", memory_limit_mb=4000)
    record = replace(FAILED, gpus=(gpu,), gpu_memory_evidence=seen)
    assert gpu_memory_evidence(record).startswith(text)


@pytest.mark.parametrize(
    ("seen", "limit_mb", "remedy"),
    [
        (GpuMemoryEvidence(kind="log", text="CUDA out of memory"), 4000, "limit of MPS"),
        (GpuMemoryEvidence(kind="log", text="CUDA out of memory"), None, "GPU with more memory"),
        (GpuMemoryEvidence(kind="memory-at-limit", uuid="GPU-a", limit_mb=4000), 4000, "of MPS"),
        (
            GpuMemoryEvidence(kind="memory-at-limit", uuid="GPU-a", limit_mb=80_000),
            4000,
            "GPU with more memory",
        ),
        (None, None, "GPU with more memory"),
    ],
    ids=["log with MPS", "log", "limit of MPS", "GPU that is full", "older record"],
)
def test_the_remedy_is_of_the_limit_that_was_reached(
    seen: GpuMemoryEvidence | None, limit_mb: int | None, remedy: str
) -> None:
    gpu = Gpu(uuid="GPU-a", memory_limit_mb=limit_mb)
    record = replace(FAILED, gpus=(gpu,), gpu_memory_evidence=seen)
    assert remedy in more_gpu_memory(record)
