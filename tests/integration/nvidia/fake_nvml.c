/* A driver library for tests: GPUs whose numbers are fixed, so that the real Python binding can be
 * run where no GPU is. Layouts and error numbers are those of NVIDIA's nvml.h.
 *
 * Each call of the energy counter adds 1 J to it. Only GPU 0 is busy. With MEASURED_COSTS every
 * call takes the CPU time that it took on an H200 (driver 580.159).
 */
#include <stdio.h>
#include <string.h>
#include <time.h>

#ifndef GPUS
#define GPUS 2
#endif

static void cost(double microseconds) {
#ifdef MEASURED_COSTS
    struct timespec begin, now;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &begin);
    do clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
    while ((now.tv_sec - begin.tv_sec) * 1e6 + (now.tv_nsec - begin.tv_nsec) / 1e3 < microseconds);
#else
    (void)microseconds;
#endif
}

typedef int nvmlReturn_t;
enum { SUCCESS = 0, UNINITIALIZED = 1, INVALID_ARGUMENT = 2, NOT_SUPPORTED = 3, TIMEOUT = 10 };

struct device { int index; unsigned long long energy_mj; };
static struct device devices[GPUS];
static int started = 0;

#define CHECK if (!started) return UNINITIALIZED
#define MIB (1024ULL * 1024ULL)

nvmlReturn_t nvmlInitWithFlags(unsigned flags) {
    (void)flags;
    started = 1;
    for (int index = 0; index < GPUS; index++) devices[index].index = index;
    return SUCCESS;
}
nvmlReturn_t nvmlShutdown(void) { CHECK; started = 0; return SUCCESS; }
const char *nvmlErrorString(nvmlReturn_t code) { (void)code; return "fake"; }

nvmlReturn_t nvmlDeviceGetCount_v2(unsigned *count) { CHECK; *count = GPUS; return SUCCESS; }

nvmlReturn_t nvmlDeviceGetHandleByIndex_v2(unsigned index, struct device **device) {
    CHECK;
    if (index >= GPUS) return INVALID_ARGUMENT;
    *device = &devices[index];
    return SUCCESS;
}

nvmlReturn_t nvmlDeviceGetUUID(struct device *device, char *text, unsigned length) {
    CHECK;
    snprintf(text, length, "GPU-0000000%d-aaaa-bbbb-cccc-dddddddddddd", device->index);
    return SUCCESS;
}

nvmlReturn_t nvmlDeviceGetName(struct device *device, char *text, unsigned length) {
    (void)device;
    CHECK;
    snprintf(text, length, "NVIDIA Test");
    return SUCCESS;
}

nvmlReturn_t nvmlDeviceGetUtilizationRates(struct device *device, unsigned *rates) {
    CHECK;
    cost(2);
    rates[0] = device->index == 0 ? 75 : 0;
    rates[1] = 0;
    return SUCCESS;
}

struct memory_v2 { unsigned version; unsigned long long total, reserved, free, used; };

nvmlReturn_t nvmlDeviceGetMemoryInfo_v2(struct device *device, struct memory_v2 *memory) {
    CHECK;
    cost(9);
    memory->total = 16384 * MIB;
    memory->reserved = 400 * MIB;
    memory->used = device->index == 0 ? 2048 * MIB : 0;
    memory->free = memory->total - memory->reserved - memory->used;
    return SUCCESS;
}

nvmlReturn_t nvmlDeviceGetPowerUsage(struct device *device, unsigned *milliwatts) {
    CHECK;
    cost(1.3);
    *milliwatts = device->index == 0 ? 150000 : 25000;
    return SUCCESS;
}

nvmlReturn_t nvmlDeviceGetClockInfo(struct device *device, unsigned kind, unsigned *mhz) {
    (void)device;
    CHECK;
    cost(1.4);
    *mhz = kind == 1 ? 1410 : 0;
    return SUCCESS;
}

nvmlReturn_t nvmlDeviceGetTemperature(struct device *device, unsigned sensor, unsigned *celsius) {
    (void)device; (void)sensor;
    CHECK;
    cost(1.9);
    *celsius = 55;
    return SUCCESS;
}

nvmlReturn_t nvmlDeviceGetCurrentClocksThrottleReasons(struct device *device, unsigned long long *bits) {
    CHECK;
    cost(1.1);
    *bits = device->index == 0 ? 4 : 1;
    return SUCCESS;
}

nvmlReturn_t nvmlDeviceGetTotalEnergyConsumption(struct device *device, unsigned long long *energy) {
    CHECK;
    cost(4020);
    device->energy_mj += 1000;
    *energy = device->energy_mj;
    return SUCCESS;
}

nvmlReturn_t nvmlDeviceGetTotalEccErrors(struct device *device, unsigned kind, unsigned scope, unsigned long long *n) {
    (void)device; (void)kind; (void)scope; (void)n;
    CHECK;
    cost(1.8);
    return NOT_SUPPORTED;
}

nvmlReturn_t nvmlDeviceGetMigMode(struct device *device, unsigned *now, unsigned *pending) {
    (void)device; (void)now; (void)pending;
    CHECK;
    cost(158);
    return NOT_SUPPORTED;
}

static int event_set;
nvmlReturn_t nvmlEventSetCreate(int **set) { CHECK; *set = &event_set; return SUCCESS; }
nvmlReturn_t nvmlEventSetFree(int *set) { (void)set; CHECK; return SUCCESS; }

nvmlReturn_t nvmlDeviceRegisterEvents(struct device *device, unsigned long long kinds, int *set) {
    (void)device; (void)kinds; (void)set;
    CHECK;
    return SUCCESS;
}

/* One Xid 31 on GPU 0, once. */
struct event { struct device *device; unsigned long long kind, data; unsigned gpu, compute; };

nvmlReturn_t nvmlEventSetWait_v2(int *set, struct event *event, unsigned timeout_ms) {
    static int told = 0;
    (void)set; (void)timeout_ms;
    CHECK;
    if (told) return TIMEOUT;
    told = 1;
    memset(event, 0, sizeof *event);
    event->device = &devices[0];
    event->kind = 8;
    event->data = 31;
    return SUCCESS;
}
