"""Texts of a lack of GPU memory as programs print them, and texts that are none."""

import re
from pathlib import Path

import pytest
from msgspec.structs import replace

from profiler.record import gpu_memory_texts
from profiler.record.gpu_facts import gpu_memory_evidence_text, more_gpu_memory_advice
from profiler.record.gpu_memory_texts import gpu_memory_error_line, with_gpu_memory_error
from profiler.record.record_model import Container, Gpu, GpuMemoryEvidence, Record
from tests.cases import each_case
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
    "step 100 failed after CUDA error: out of memory",
    '{"level":"error","msg":"cuMemAlloc failed: CUDA_ERROR_OUT_OF_MEMORY","ts":1.2}',
    '{"msg": "vkCreateBuffer returned VK_ERROR_OUT_OF_DEVICE_MEMORY"}',
    "(Worker pid=7) Call to cuMemAlloc results in CUDA_ERROR_OUT_OF_MEMORY [repeated 7x across cluster]",
    "\x1b[31mCUDA_ERROR_OUT_OF_MEMORY\x1b[0m",
    "\x1b[31mERROR\x1b[0m: \x1b[1mCUDA error: out of memory\x1b[0m",
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
    "return code 2: CUDA error: out of memory",
    "case 17: CUDA error: out of memory",
    "#12 34.51 torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB.",
    "Giving up after 3 retries: CUDA error: out of memory",
    "Aborting on CUDA error: out of memory",
    "the worker died because of CUDA error: out of memory",
    '{"level":"error","message":"CUDA error: out of memory","rank":3}',
    '{"severity": "ERROR", "exc": "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 20.00 MiB."}',
    'time="2026-11-20T03:12:45Z" level=error msg="CUDA_ERROR_OUT_OF_MEMORY: out of memory"',
    "2026-11-20 03:12:45,123 ERROR train.py:88 - cuMemAlloc failed: CUDA_ERROR_OUT_OF_MEMORY",
    'CUDA error at matrixMul.cu:218 code=2(cudaErrorMemoryAllocation) "cudaMalloc(reinterpret_cast<void **>(&d_A), mem_size_A)"',
    "terminate called after throwing an instance of 'thrust::system::system_error'  what():  parallel_for failed: cudaErrorMemoryAllocation: out of memory",
    "cudaMalloc returned cudaErrorMemoryAllocation",
    "cuCtxCreate returned error CUDA_ERROR_OUT_OF_MEMORY",
    "CUDA driver API error 2 (CUDA_ERROR_OUT_OF_MEMORY) at gpu.c:55",
    "Error: CUDA_ERROR_OUT_OF_MEMORY",
    'DriverError(CUDA_ERROR_OUT_OF_MEMORY, "out of memory")',
    "thread 'main' panicked at 'called `Result::unwrap()` on an `Err` value: DriverError(CUDA_ERROR_OUT_OF_MEMORY, \"out of memory\")', src/main.rs:12:30",
    "ERROR: LoadError: CUDA error: out of memory (code 2, ERROR_OUT_OF_MEMORY)",
    "E tensorflow/stream_executor/cuda/cuda_dnn.cc:329] Could not create cudnn handle: CUDNN_STATUS_ALLOC_FAILED",
    "E tensorflow/stream_executor/cuda/cuda_blas.cc:226] failed to create cublas handle: CUBLAS_STATUS_ALLOC_FAILED",
    "RuntimeError: cuDNN error: CUDNN_STATUS_ALLOC_FAILED",
    "cupy.cuda.cublas.CUBLASError: CUBLAS_STATUS_ALLOC_FAILED",
    "cublasCreate failed with status CUBLAS_STATUS_ALLOC_FAILED",
    "CUBLAS error: CUBLAS_STATUS_ALLOC_FAILED (3) in file gemm.cu, line 41",
    "numba.cuda.cudadrv.driver.CudaAPIError: [CUresult.CUDA_ERROR_OUT_OF_MEMORY] Call to cuMemAlloc results in CUDA_ERROR_OUT_OF_MEMORY",
    "[rank5]: RuntimeError: CUDA error: out of memory",
    "(EngineCore_0 pid=812) ERROR 11-20 03:12:45 [core.py:700] torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 1.16 GiB. GPU 0 has a total capacity of 79.10 GiB",
    "(RayWorkerWrapper pid=99, ip=10.0.0.2) torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 896.00 MiB.",
    "ray.exceptions.RayTaskError(OutOfMemoryError): torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 4.00 GiB.",
    "ggml_backend_cuda_buffer_type_alloc_buffer: allocating 16384.00 MiB on device 0: cudaMalloc failed: out of memory",
    "CUDA error: out of memory   current device: 0, in function alloc at ggml-cuda.cu:365",
    "ggml-cuda.cu:100: CUDA error: out of memory",
    "[rank1]: torch.distributed.DistBackendError: NCCL error in: ProcessGroupNCCL.cpp:2006, unhandled cuda error, NCCL version 2.21.5 Last error: Cuda failure 2 'out of memory'",
    "ip-10-0-0-1:812:900 [3] NCCL WARN Cuda failure 2 'out of memory'",
    "MemoryError: std::bad_alloc: out_of_memory: CUDA error (failed to allocate 8589934592 bytes) at: /rmm/include/rmm/mr/device/cuda_async_memory_resource.hpp:220: cudaErrorMemoryAllocation out of memory",
    "RuntimeError: HIP error: out of memory",
    "hipErrorOutOfMemory: out of memory",
    "MIOpen(HIP): Error [FindSolutions] hipMalloc failed: hipErrorOutOfMemory",
    "W1120 03:12:45.1 cuda_executor.cc:1000] cuda_malloc: CUDA_ERROR_OUT_OF_MEMORY: out of memory",
    "jaxlib.xla_extension.XlaRuntimeError: RESOURCE_EXHAUSTED: Out of memory while trying to allocate 12884901888 bytes. BufferAssignment OOM Debugging.",
    "vkAllocateMemory failed: VK_ERROR_OUT_OF_DEVICE_MEMORY",
    "VkResult -2: vkCreateBuffer returned VK_ERROR_OUT_OF_DEVICE_MEMORY",
    "optixPipelineCreate: OPTIX_ERROR_DEVICE_OUT_OF_MEMORY (Optix error 7100)",
    "RuntimeError: Error on rank 3: CUDA error: out of memory",
    "FAILED tests/test_train.py::test_step[CUDA_ERROR_OUT_OF_MEMORY] - torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB",
    "tests/test_train.py::test_step FAILED  [ 50%] torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB",
    "RuntimeError: CUDA out of memory. Tried to allocate 2.00 GiB (GPU 0; 15.78 GiB total capacity) If reserved memory is >> allocated memory try setting max_split_size_mb to avoid fragmentation.",
    "Caused by: CUDA_ERROR_OUT_OF_MEMORY: out of memory",
    "exception: cudaErrorMemoryAllocation: out of memory",
    "GPU 0: CUDA error: out of memory; aborting after 4 attempts",
    "cudaErrorMemoryAllocation (2): out of memory",
    "Out of memory: CUDA_ERROR_OUT_OF_MEMORY",
    "Error code 2: CUDA_ERROR_OUT_OF_MEMORY",
    "except for rank 0, every rank reported CUDA error: out of memory",
    "3 of 4 checks PASSED; torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB",
    "- torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB",
    "-e torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB",
    "std::runtime_error: CUDA error: out of memory",
    "terminate called after throwing an instance of 'c10::Error' what():  CUDA error: out of memory",
    "status = CUBLAS_STATUS_ALLOC_FAILED",
    "cublas error: status=CUBLAS_STATUS_ALLOC_FAILED",
    "failed to open stream: CUDA error: out of memory",
    "container exited: CUDA error: out of memory.",
    "Traceback: RuntimeError('CUDA error: out of memory')",
    "Exception in thread Thread-3: CUDA error: out of memory",
    "2026-11-20T03:12:45Z stderr F RuntimeError: CUDA error: out of memory",
    "[2026-11-20 03:12:45][rank 2][ERROR] CUDA error: out of memory",
    "E0000 00:00:1700.1 812 cuda_driver.cc:900] cuDevicePrimaryCtxRetain: CUDA_ERROR_OUT_OF_MEMORY: out of memory",
    "INTERNAL: CUDA error: Failed to retain device primary context: CUDA_ERROR_OUT_OF_MEMORY: out of memory",
    "pyopencl... ; pycuda._driver.MemoryError: cuMemAllocPitch failed: out of memory",
    "numba.cuda.cudadrv.driver.CudaAPIError: [2] Call to cuLinkCreate results in CUDA_ERROR_OUT_OF_MEMORY",
    "CuPy: cupy.cuda.memory.OutOfMemoryError: Out of memory allocating 1,073,741,824 bytes (allocated so far: 0 bytes).",
    "xgboost.core.XGBoostError: [03:12:45] /workspace/src/common/common.h:46: /workspace/src/tree/updater_gpu_hist.cu: 812: cudaErrorMemoryAllocation: out of memory",
    "llama_model_load: error loading model: unable to allocate CUDA0 buffer; cudaMalloc failed: out of memory",
    "whisper_init: CUDA error 2 at ggml-cuda.cu:6951: out of memory",
    "CUDA error at cufft.cu:51: CUDA_ERROR_OUT_OF_MEMORY",
    "Fatal error: CUDA error: out of memory",
    "GROMACS: Error in user input: cudaMalloc failure: CUDA error: out of memory (cudaErrorMemoryAllocation)",
    "Program: gmx mdrun ... CUDA error #2 (cudaErrorMemoryAllocation): out of memory.",
    "Cuda Error in allocate: 2 (out of memory)",
    "[TensorRT] ERROR: ../rtSafe/safeRuntime.cpp (25) - Cuda Error in allocate: 2 (out of memory)",
    "torch._C._LinAlgError: cusolver error: CUSOLVER_STATUS_ALLOC_FAILED, when calling `cusolverDnCreate(handle)`",
    "cuDNN error: CUDNN_STATUS_ALLOC_FAILED",
    "F1120 math_functions.cu:26] Check failed: status == CUBLAS_STATUS_SUCCESS (3 vs. 0) CUBLAS_STATUS_ALLOC_FAILED",
    "Check failed: error == cudaSuccess (2 vs. 0) out of memory",
    "F tensorflow/core/common_runtime/gpu/gpu_device.cc: status: Internal: CUDA runtime implicit initialization on GPU:0 failed. Status: out of memory",
    "error: vk::Queue::submit: ErrorOutOfDeviceMemory",
    "Uncaught exception: CUDA_ERROR_OUT_OF_MEMORY (out of memory)",
    "worker 3 | RuntimeError: CUDA error: out of memory",
    "  what():  CUDA error: out of memory",
    "ERROR:root:CUDA error: out of memory",
    "OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB",
    "slurmstepd: error: task 3: RuntimeError: CUDA error: out of memory",
    "CUDA Error: out of memory: File exists",
    "RuntimeError: CUDA error: out of memory - in test step 3",
    "CUDA error: out of memory at test.cu:3",
    "prompt 'This is a test' failed: CUDA error: out of memory",
    "CUDA error: out of memory (prompt: 'this is a test')",
    "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB, only 1.00 GiB is free",
    "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB (GPU 0; 15.78 GiB total)",
    "darknet: ./src/cuda.c:36: check_error: Assertion `0' failed. CUDA Error: out of memory",
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
    "--retry-on CUDA_ERROR_OUT_OF_MEMORY",
    "+ python train.py --retry-on CUDA_ERROR_OUT_OF_MEMORY --epochs 3",
    "Running: ['python', 'train.py', '--retry-on', 'CUDA_ERROR_OUT_OF_MEMORY']",
    "retries on CUDA_ERROR_OUT_OF_MEMORY: enabled",
    "retries on CUDA error: out of memory: enabled",
    "cudaErrorMemoryAllocation = none",
    "cudaErrorMemoryAllocation: 0",
    "CUDA_ERROR_OUT_OF_MEMORY=false",
    "RETRY_ON=CUDA_ERROR_OUT_OF_MEMORY",
    "RETRY_ON='CUDA error: out of memory'",
    'retry_on: "CUDA error: out of memory"',
    "retry_on: [CUDA_ERROR_OUT_OF_MEMORY, CUDNN_STATUS_ALLOC_FAILED]",
    "Not enough memory to handle 0 prefill tokens",
    "known errors: CUDA_ERROR_OUT_OF_MEMORY, CUDNN_STATUS_ALLOC_FAILED",
    "ignored errors: CUDA error: out of memory",
    "handles CUDA error: out of memory by halving the batch",
    "OOM policy: on CUDA error: out of memory -> halve",
    "Will retry on CUDA_ERROR_OUT_OF_MEMORY",
    "Recovered from CUDA error: out of memory with batch size 16",
    "CUDA out of memory. Tried to allocate 2.00 GiB. Retrying with batch size 16",
    "WARNING CUDA error: out of memory, falling back to the CPU",
    "caught CUDA error: out of memory, skipping batch 17",
    "| WARNING: ran out of memory, retrying batch: CUDA out of memory. Tried to allocate 512.00 MiB",
    "2 CUDA_ERROR_OUT_OF_MEMORY The API call failed because it was unable to allocate enough memory",
    "| CUDA_ERROR_OUT_OF_MEMORY | 2 | The API call failed |",
    "    CUDA_ERROR_OUT_OF_MEMORY = 2,",
    "    CUDA_ERROR_OUT_OF_MEMORY,",
    '    case CUDA_ERROR_OUT_OF_MEMORY: return "out of memory";',
    "    case cudaErrorMemoryAllocation: return CUDA_ERROR_OUT_OF_MEMORY;",
    '    case 2: return "CUDA_ERROR_OUT_OF_MEMORY";',
    "    return CUDA_ERROR_OUT_OF_MEMORY;",
    '    return "CUDA error: out of memory" in str(error)',
    '    Self::OutOfMemory => "CUDA_ERROR_OUT_OF_MEMORY",',
    "    OUT_OF_MEMORY = 'CUDA error: out of memory'",
    "  --oom-exit N       exit with N on CUDA error: out of memory",
    " * CUDA_ERROR_OUT_OF_MEMORY is returned if the allocation fails",
    ".. note:: CUDA error: out of memory",
    "- Fix CUDA error: out of memory in the loader (#812)",
    "- fixed: CUDA_ERROR_OUT_OF_MEMORY with graphs",
    "fix CUDA_ERROR_OUT_OF_MEMORY in worker",
    "PASSED tests/test_memory.py::test_retries[CUDA error: out of memory]",
    "[gw0] [ 50%] PASSED tests/test_memory.py::test_retries[CUDA error: out of memory]",
    "[       OK ] Memory.Retries/CUDA_ERROR_OUT_OF_MEMORY (3 ms)",
    "--- PASS: TestRetry/CUDA_error:_out_of_memory (0.00s)",
    "ok 12 - retries after CUDA error: out of memory",
    "  ✓ retries after CUDA error: out of memory (5 ms)",
    "test retry::cuda_error_out_of_memory ... ok",
    "failed to allocate 10.76G (11553112064 bytes) from device: CUDA_ERROR_OUT_OF_MEMORY: out of memory",
    "no CUDA error: out of memory since the start",
    "number of CUDA error: out of memory: 0",
    'metric oom_total{error="CUDA_ERROR_OUT_OF_MEMORY"} 0',
    "export RETRY_PATTERN='CUDA error: out of memory|NCCL timeout'",
    "grep -c 'CUDA error: out of memory' train.log",
    "    with pytest.raises(RuntimeError, match='CUDA error: out of memory'):",
    "    logger.warning('CUDA error: out of memory, retrying')",
    "The job restarts if it meets CUDA error: out of memory",
    "simulating CUDA error: out of memory at step 3",
    "injected CUDA_ERROR_OUT_OF_MEMORY at step 3",
    "errors such as CUDA error: out of memory are retried three times",
    "alert rule: CUDA_ERROR_OUT_OF_MEMORY count > 0",
    "CUDA_ERROR_OUT_OF_MEMORY handler installed",
    "oom_patterns=['CUDA out of memory', 'CUDA error: out of memory', 'CUBLAS_STATUS_ALLOC_FAILED']",
    "config: {'retry': {'errors': ['CUDA error: out of memory'], 'max': 3}}",
    "CUDA error: out of memory: ignored",
    "cudaErrorMemoryAllocation -> CUDA_ERROR_OUT_OF_MEMORY mapping loaded",
    "Loaded 3 rules: CUBLAS_STATUS_ALLOC_FAILED, CUDNN_STATUS_ALLOC_FAILED, cudaErrorMemoryAllocation",
    "Batch size 64: CUDA out of memory. Tried to allocate 2.00 GiB; trying batch size 32",
    "tests/test_retry.py::test_one[CUDA error: out of memory] XPASS",
    "  -r, --retry-on TEXT  retry on CUDA error: out of memory",
    "Config(retry_on_oom=True, oom_errors=('CUDA error: out of memory',))",
    "INFO: OOM handling: CUDA error: out of memory => reduce batch",
    "usage: train.py [--on-oom {retry,fail}] [--oom-text 'CUDA error: out of memory']",
    "Environment: RETRY_ERRORS=CUDA error: out of memory;NCCL timeout",
    "See https://docs.example.com/errors#CUDA_ERROR_OUT_OF_MEMORY",
    "docs: what to do about CUDA error: out of memory",
    "Troubleshooting: CUDA error: out of memory means that the batch is too large",
    "Test plan: 1. CUDA error: out of memory is retried",
    "PASS: test_cuda_error_out_of_memory",
    "  CUDA_ERROR_OUT_OF_MEMORY             2",
    "enum cudaError { cudaSuccess = 0, cudaErrorInvalidValue = 1, cudaErrorMemoryAllocation = 2 };",
    "CUDA_ERROR_OUT_OF_MEMORY: retried 0 times",
    "oom_retries: CUDA_ERROR_OUT_OF_MEMORY x0",
    "assert 'CUDA error: out of memory' not in log",
    "self.assertIn('CUDA error: out of memory', log)",
    "# HELP gpu_errors_total errors by kind, e.g. CUDA_ERROR_OUT_OF_MEMORY",
    'gpu_errors_total{kind="CUDA_ERROR_OUT_OF_MEMORY"} 0',
    '{"retry_on": "CUDA_ERROR_OUT_OF_MEMORY", "attempts": 3}',
    '{"retry": ["CUDA_ERROR_OUT_OF_MEMORY", "CUDNN_STATUS_ALLOC_FAILED"]}',
    'const char* kOom = "CUDA error: out of memory";',
    "switch: cudaErrorMemoryAllocation -> retry",
    "policy=halve-batch trigger='CUDA error: out of memory'",
    "searching the log for 'CUDA error: out of memory' ... none",
    "no match for CUDA error: out of memory",
    "checks that CUDA error: out of memory is raised",
    "Prevents CUDA error: out of memory by freeing the cache",
    "fallback for CUDA_ERROR_OUT_OF_MEMORY registered",
    "excluding CUDA_ERROR_OUT_OF_MEMORY from alarms",
    "3 kinds of errors are retried: CUDA_ERROR_OUT_OF_MEMORY, NCCL timeout, ECC",
    "CUDNN_STATUS_ALLOC_FAILED workaround enabled",
    "set allow_growth to work around CUDNN_STATUS_ALLOC_FAILED",
    "recovered after CUDA error: out of memory (batch 64 -> 32)",
    "CUDA error: out of memory - retry 1/3",
    "hipErrorOutOfMemory - this is only a test",
    "hipErrorOutOfMemory: out of memory - this is only a test",
    "HIP error: out of memory (this is just a drill)",
    "CUDA error: out of memory - just testing the alert",
    "CUDA error: out of memory # only a test",
    "CUDA error: out of memory (example)",
    "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB - this is only a test",
    "this is only a test: CUDA error: out of memory",
    "This is a drill. RuntimeError: CUDA error: out of memory",
    "example: CUDA error: out of memory",
    "step 17: CUDA out of memory. Tried to allocate 2.00 GiB; will retry",
    "ran into CUDA error: out of memory, batch halved to 16",
    f"tests/test_memory.py::test_retries[CUDA error: out of memory{'-x' * 400}] PASSED [ 10%]",
)


@each_case("text", LACK)
def test_the_texts_of_the_frameworks_are_known(text: str) -> None:
    assert (
        gpu_memory_error_line(["Traceback (most recent call last):", text, "exited with 1"])
        is not None
    )


@each_case("text", NO_LACK)
def test_other_texts_are_no_evidence(text: str) -> None:
    assert gpu_memory_error_line([text]) is None


@pytest.mark.parametrize(
    "later",
    [
        "retrying with batch 16",
        "Batch size 64 failed, trying batch size 32",
        "OOM: halving the batch",
        "Recovered from OOM",
        "falling back to CPU",
    ],
)
def test_an_error_after_which_the_program_went_on_with_less_work_is_no_evidence(
    later: str,
) -> None:
    lines = [LACK[0], later, "KeyError: 'label'"]
    assert gpu_memory_error_line(lines) is None
    assert gpu_memory_error_line([*lines, LACK[1]]) is not None


@pytest.mark.parametrize(
    "later",
    ["Retrying (Retry(total=2)) after connection broken", "Engine core initialization failed"],
)
def test_other_lines_after_an_error_change_nothing(later: str) -> None:
    assert gpu_memory_error_line([LACK[0], later]) is not None


@each_case(
    "advice",
    [
        "Try reducing the batch size.",
        "Hint: try a smaller batch size",
        "Please try again with a smaller batch size",
        "Exiting. Please retry with smaller batch size",
        "You can avoid this by lowering the batch size",
        "Out of memory: try reducing batch size or sequence length",
        "Reducing the batch size may help",
        "If this recurs, falling back to CPU is possible",
    ],
)
def test_advice_to_a_person_does_not_say_that_the_program_went_on(advice: str) -> None:
    assert gpu_memory_error_line([LACK[0], advice]) is not None
    assert gpu_memory_error_line([f"{LACK[0]} {advice}"]) is not None


def test_no_pattern_has_a_part_of_any_length() -> None:
    """A line of many beginnings ("cuMalloccuMalloc…") took the square of its length."""
    source = Path(gpu_memory_texts.__file__).read_text()
    assert re.findall(r"(?:\\[wSd]|[.\]])[*+]", source) == []


def test_a_line_is_cut_and_loses_its_secrets() -> None:
    text = present(gpu_memory_error_line([f"{LACK[0]} api_key=abcdef123456 {'x' * 1000}"]))
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
    assert gpu_memory_evidence_text(record).startswith(text)


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
    assert remedy in more_gpu_memory_advice(record)
