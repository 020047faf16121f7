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
