/* A CUDA driver for tests: the functions that examples/gpu_burn and
 * tests/gpu/known_programs.py call, so that its ctypes calls can be made where
 * no GPU is. Declared as in NVIDIA's cuda.h (12.9; error numbers too), which this file also compiles with.
 *
 * Runs no kernel: it takes a launch only if what was passed is what a driver needs for one, that is a grid whose
 * results fit into the memory, and parameters of the kernel's types at the addresses given.
 */
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#ifndef CUDA_VERSION /* else the real cuda.h was included, and its declarations are held against these */
typedef int CUresult;
typedef int CUdevice;
typedef struct CUctx_st *CUcontext;
typedef struct CUmod_st *CUmodule;
typedef struct CUfunc_st *CUfunction;
typedef struct CUstream_st *CUstream;
typedef unsigned long long CUdeviceptr;
enum { CUDA_SUCCESS = 0, CUDA_ERROR_INVALID_VALUE = 1, CUDA_ERROR_OUT_OF_MEMORY = 2, CUDA_ERROR_NOT_FOUND = 500 };
#define cuCtxCreate cuCtxCreate_v2
#define cuMemAlloc cuMemAlloc_v2
#define cuMemGetInfo cuMemGetInfo_v2
#define cuMemAllocHost cuMemAllocHost_v2
#define cuMemcpyHtoD cuMemcpyHtoD_v2
#endif

#define MEMORY_BYTES (8ULL << 30)
#define ADDRESS 0x7f0000000000ULL /* needs more than 32 bits, as a GPU's addresses do */
#define REQUIRE(condition) if (!(condition)) return CUDA_ERROR_INVALID_VALUE

static char context, module, function; /* handles are their addresses */
static unsigned long long held_bytes;
static int launches;

CUresult cuInit(unsigned int flags) {
    REQUIRE(flags == 0);
    return CUDA_SUCCESS;
}

CUresult cuDeviceGet(CUdevice *device, int ordinal) {
    REQUIRE(ordinal == 0);
    *device = 0;
    return CUDA_SUCCESS;
}

CUresult cuCtxCreate(CUcontext *created, unsigned int flags, CUdevice device) {
    REQUIRE(flags == 0 && device == 0);
    *created = (CUcontext)&context;
    return CUDA_SUCCESS;
}

CUresult cuMemAlloc(CUdeviceptr *address, size_t size) {
    REQUIRE(size > 0);
    if (size > MEMORY_BYTES - held_bytes) return CUDA_ERROR_OUT_OF_MEMORY;
    *address = ADDRESS + held_bytes;
    held_bytes += size;
    return CUDA_SUCCESS;
}

CUresult cuMemGetInfo(size_t *free_bytes, size_t *total_bytes) {
    *free_bytes = MEMORY_BYTES - held_bytes;
    *total_bytes = MEMORY_BYTES;
    return CUDA_SUCCESS;
}

CUresult cuMemAllocHost(void **address, size_t size) {
    *address = malloc(size);
    return *address ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

CUresult cuMemcpyHtoD(CUdeviceptr to, const void *from, size_t size) {
    REQUIRE(from && to >= ADDRESS && to + size <= ADDRESS + held_bytes);
    return CUDA_SUCCESS;
}

CUresult cuModuleLoadData(CUmodule *loaded, const void *image) {
    REQUIRE(strstr(image, ".version") && strstr(image, ".entry burn(.param .u64 out, .param .u32 rounds)"));
    *loaded = (CUmodule)&module;
    return CUDA_SUCCESS;
}

CUresult cuModuleGetFunction(CUfunction *found, CUmodule from, const char *name) {
    REQUIRE(from == (CUmodule)&module);
    if (strcmp(name, "burn") != 0) return CUDA_ERROR_NOT_FOUND;
    *found = (CUfunction)&function;
    return CUDA_SUCCESS;
}

CUresult cuLaunchKernel(CUfunction kernel, unsigned int grid_x, unsigned int grid_y, unsigned int grid_z,
                        unsigned int block_x, unsigned int block_y, unsigned int block_z, unsigned int shared_bytes,
                        CUstream stream, void **parameters, void **extra) {
    REQUIRE(kernel == (CUfunction)&function && stream == NULL && extra == NULL && shared_bytes == 0);
    REQUIRE(grid_x >= 1 && grid_y == 1 && grid_z == 1 && block_y == 1 && block_z == 1);
    REQUIRE(block_x >= 1 && block_x <= 1024 /* what any GPU takes */);
    REQUIRE(4ULL * grid_x * block_x <= held_bytes);
    REQUIRE(*(CUdeviceptr *)parameters[0] == ADDRESS && *(unsigned int *)parameters[1] > 0);
    REQUIRE(launches == 0); /* the load has waited for the one before */
    launches++;
    return CUDA_SUCCESS;
}

CUresult cuCtxSynchronize(void) {
    REQUIRE(launches == 1); /* the load waits for each */
    launches = 0;
    return CUDA_SUCCESS;
}
