"""Texts of a lack of GPU memory as programs print them, and texts that are none."""

import re
from pathlib import Path

import pytest
from msgspec.structs import replace

from profiler.record import gpu_memory_texts
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
    "[hevc_nvenc @ 0x55d0] CreateInputBuffer failed: out of memory (10): (no details)",
    "[AVHWFramesContext @ 0x55a] cu->cuMemAlloc(&data, size) failed -> CUDA_ERROR_OUT_OF_MEMORY: out of memory",
    "[h264_cuvid @ 0x5] cuvidCreateDecoder(&cudec, &cuinfo) failed -> CUDA_ERROR_OUT_OF_MEMORY: out of memory",
    "cupy.cuda.memory.OutOfMemoryError: out of memory to allocate 8589934592 bytes (total 17179869184 bytes)",
    "cupy_backends.cuda.api.runtime.CUDARuntimeError: cudaErrorMemoryAllocation: out of memory",
    "ValueError: The model's max seq len (32768) is larger than the maximum number of tokens that can be stored in KV cache (24000). Try increasing `gpu_memory_utilization` or decreasing `max_model_len` when initializing the engine.",
    "ValueError: To serve at least one request with the models's max seq len (131072), (16.00 GiB KV cache is needed, which is larger than the available KV cache memory (5.35 GiB). Based on the available memory, the estimated maximum model length is 43792.",
    "RuntimeError: CUDA out of memory occurred when warming up sampler with 1024 dummy requests. Please try lowering `max_num_seqs` or `gpu_memory_utilization` when initializing the engine.",
    "RuntimeError: Not enough memory. Please try to increase --mem-fraction-static.",
    "RuntimeError: Not enough memory to handle 4096 prefill tokens. You need to decrease `--max-batch-prefill-tokens`",
    "tensorflow.python.framework.errors_impl.ResourceExhaustedError: {{function_node __wrapped__AddV2_device_/job:localhost/replica:0/task:0/device:GPU:0}} failed to allocate memory [Op:AddV2]",
    "tensorflow.python.framework.errors_impl.InternalError: Failed copying input tensor from /job:localhost/replica:0/task:0/device:CPU:0 to /job:localhost/replica:0/task:0/device:GPU:0 in order to run _EagerConst: Dst tensor is not initialized.",
    "System is out of GPU memory",
    "OPTIX_ERROR_DEVICE_OUT_OF_MEMORY",
    "Optix call 'optixAccelBuild' failed: OPTIX_ERROR_DEVICE_OUT_OF_MEMORY",
    "vk::Device::allocateMemory: ErrorOutOfDeviceMemory",
    "ggml_vulkan: Device memory allocation of size 1073741824 failed. vk::Device::allocateMemory: ErrorOutOfDeviceMemory",
    "VK_ERROR_OUT_OF_DEVICE_MEMORY",
    "cudaMalloc GpuBuffer::Allocate failed out of memory",
    "FATAL ERROR: CUDA error cudaMalloc((void **)pp, sizeofT*(len)) in file src/CudaUtils.C, function allocate_device_T, line 78 on Pe 0 (ip-10-0-0-1 device 0 pci 0:0:1e): out of memory",
    "com.nvidia.spark.rapids.jni.GpuSplitAndRetryOOM: GPU OutOfMemory: could not split inputs and retry",
    "com.nvidia.spark.rapids.jni.GpuRetryOOM: GPU OutOfMemory",
    "java.lang.OutOfMemoryError: Could not allocate native memory: std::bad_alloc: out_of_memory: CUDA error at: /home/jenkins/rmm/mr/device/cuda_memory_resource.hpp:70: cudaErrorMemoryAllocation out of memory",
    "NCudaLib::TOutOfMemoryError: catboost/cuda/cuda_lib/memory_pool/stack_like_memory_pool.h:302: Error: Out of memory. Requested 5120.0; Free 1.2",
    "_catboost.CatBoostError: catboost/cuda/cuda_lib/memory_pool/stack_like_memory_pool.h:302: Error: Out of memory. Requested 5120; Free 1.25",
    "xgboost.core.XGBoostError: [12:00:00] /workspace/src/c_api/../data/../common/device_helpers.cuh:431: Memory allocation error on worker 0: Caching allocator",
    "[TRT] [E] 2: [virtualMemoryBuffer.cpp::resizePhysical::127] Error Code 2: OutOfMemory (no further information)",
    "[TRT] [E] Error Code 2: OutOfMemory (Requested size was 8589934592 bytes.)",
    "cuMemAlloc(): out of memory",
    "StandardGpuResources: alloc fail type TemporaryMemoryOverflow dev 0 space Device stream 0x55 size 1610612736 bytes (cudaMalloc error out of memory [2])",
    "dgl._ffi.base.DGLError: [10:11:12] /opt/dgl/src/runtime/cuda/cuda_device_api.cc:117: Check failed: e == cudaSuccess || e == cudaErrorCudartUnloading: CUDA: out of memory",
    "cudaSafeCall() failed at main.cu:12 : out of memory",
    "Error using gpuArray/mtimes Out of memory on device. To view more detail about available memory on the GPU, use 'gpuDevice()'.",
    "torch.AcceleratorError: CUDA error: out of memory",
    "Warp CUDA error 2: out of memory (in function wp_alloc_device_async, /builds/warp.cu:660)",
    "jaxlib.xla_extension.XlaRuntimeError: INTERNAL: Failed to allocate 4294967296 bytes for new constant",
    "jax.errors.JaxRuntimeError: RESOURCE_EXHAUSTED: Out of memory while trying to allocate 34.00GiB.",
    "E0412 10:00:00.1 1 model_lifecycle.cc:621] failed to load 'bert' version 1: Internal: onnx runtime error 6: Exception during initialization: CUDA failure 2: out of memory ; GPU=0",
    "GPUassert: out of memory main.cu 45",
    "CUDA Runtime Error: out of memory",
    "CUDA Error 2: out of memory",
    "Cuda error in file 'src/engine.cu' in line 42 : out of memory.",
    'Kokkos failed to allocate memory for label "x".  Allocation using MemorySpace named "Cuda" failed with the following error:  Allocation of size 8 G failed, likely due to insufficient memory.',
    "nvidia.dali.backend_impl... Error: CUDA allocation failed",
    "RuntimeError: Can't allocate 4294967296 bytes on device 0.",
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
    "[h264_nvenc @ 0x5581] OpenEncodeSessionEx failed: out of memory (10): (no details)",
    "triton.runtime.errors.OutOfResources: out of resource: shared memory, Required: 147456, Hardware limit: 101376. Reducing block sizes or `num_stages` may help.",
    "W0412 10:00:00 pinned_memory_manager.cc:133] failed to allocate pinned system memory: no pinned memory pool, falling back to non-pinned system memory",
    "[TRT] [W] Tactic Device request: 4395MB Available: 2354MB. Device memory is insufficient to use tactic.",
    "[TRT] [W] Skipping tactic 3 due to insufficient memory on requested size of 8589934592 detected for tactic 0x0000.",
    "CUDA error: too many resources requested for launch",
    "CUDA error: out of memory is handled by halving the batch",
    "Hint: if you get 'CUDA error: out of memory', reduce --batch-size",
    "To avoid CUDA error: out of memory set PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True",
    "model requires more system memory (16.0 GiB) than is available (8.0 GiB)",
    "RuntimeError: [enforce fail at alloc_cpu.cpp:114] . DefaultCPUAllocator: can't allocate memory: you tried to allocate 80000000000 bytes. Error code 12 (Cannot allocate memory)",
    "RuntimeError: unable to mmap 512 bytes from file </torch_1>: Cannot allocate memory (12)",
    "RuntimeError: unable to write to file </torch_8_1>: No space left on device (28)",
    "ERROR: Unexpected bus error encountered in worker. This might be caused by insufficient shared memory (shm).",
    "AssertionError: Error in memory profiling. Initial free memory 20.1 GiB, current free memory 21.0 GiB. This happens when other processes sharing the same container release GPU memory while vLLM is profiling",
    "    if status == CUDA_ERROR_OUT_OF_MEMORY:",
    '    raise RuntimeError("CUDA out of memory. Tried to allocate 2 GB")',
    '    "CUDA_ERROR_OUT_OF_MEMORY": 2,',
    "#define CUBLAS_STATUS_ALLOC_FAILED 3",
    "java.lang.OutOfMemoryError: GPU is fine, Java heap space",
    "INFO retries=0 CUDA_ERROR_OUT_OF_MEMORY=0 cudaErrorMemoryAllocation=0",
    "CUDA error: out of memory errors: 0",
    "Error response from daemon: OCI runtime create failed: nvidia-container-cli: out of memory",
    "RESOURCE_EXHAUSTED: grpc: received message larger than max (5123456 vs. 4194304), trying to allocate 5123456",
    "numpy.core._exceptions._ArrayMemoryError: Unable to allocate 74.5 GiB for an array",
)


@pytest.mark.parametrize("text", LACK)
def test_the_texts_of_the_frameworks_are_known(text: str) -> None:
    assert (
        gpu_memory_error(["Traceback (most recent call last):", text, "exited with 1"]) is not None
    )


@pytest.mark.parametrize("text", NO_LACK)
def test_other_texts_are_no_evidence(text: str) -> None:
    assert gpu_memory_error([text]) is None


def test_no_pattern_has_a_part_of_any_length() -> None:
    """A line of many beginnings ("cuMalloccuMalloc…") took the square of its length."""
    source = Path(gpu_memory_texts.__file__).read_text()
    assert re.findall(r"(?:\\[wSd]|[.\]])[*+]", source) == []


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
