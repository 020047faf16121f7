/* A driver library for tests, so that the real Python binding can be run where no GPU is. Layouts and error numbers
 * are those of NVIDIA's nvml.h.
 *
 * A process that finds this library has GPUS devices with fixed numbers, of which only the first is busy. A test that
 * loads it gives devices of its own to `play` (tests/fake_nvml.py), and scripts the errors of calls with `fail_next`
 * and `fail_always`. `set_on_call` names a function that is called before each call, which may change the devices.
 * With MEASURED_COSTS every call takes the CPU time (median) that it took on an H100 (driver 580.159) when it
 * was called once a second: several times as much as in a loop. A program is on each GPU then, and
 * the driver has its samples.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#ifndef GPUS
#define GPUS 2
#endif
#define MAX_DEVICES 64
#define MAX_SCRIPTS 128
#define MAX_CODES 64
#define MAX_FUNCTIONS 64
#define MAX_PROCESSES 8
#define MAX_SAMPLES 128
#define METRICS 9
#define MAX_PARTS 7
#define MIB (1024ULL * 1024ULL)
#define ALIVE 0x5a5a5a5a

typedef int nvmlReturn_t;
enum { SUCCESS = 0, UNINITIALIZED = 1, INVALID_ARGUMENT = 2, NOT_SUPPORTED = 3, NOT_FOUND = 6,
       INSUFFICIENT_SIZE = 7, TIMEOUT = 10, GPU_IS_LOST = 15,
       VERSION_MISMATCH = 25 };

struct metric { unsigned id; nvmlReturn_t result; double value; const char *names[3]; };
struct process { unsigned pid; unsigned long long used_bytes; unsigned gpu_instance, compute_instance; };
/* Which lists have a process: 1 computing, 2 drawing, 4 through MPS; 0 is as 1. */
enum { COMPUTING = 1, DRAWING = 2, OF_MPS = 4 };
struct use { unsigned long long microseconds; union { double real; unsigned percent; } value; };

struct device {
    char uuid[64], name[64];
    unsigned long long used_bytes, reserved_bytes, total_bytes, reasons, energy_millijoules, energy_step_millijoules;
    long long ecc_uncorrected; /* -1: not supported */
    unsigned utilization_percent, power_milliwatts, clock_mhz, celsius, xids[4], has_gpm, is_registered;
    struct metric metrics[METRICS];
    /* With a time, the metrics are sums since the tape's start, each of so much weight. */
    double gpm_seconds, gpm_weights[METRICS];
    unsigned has_lists, process_count, has_samples, sample_count, link_generation, link_width;
    struct process processes[MAX_PROCESSES];
    struct use samples[MAX_SAMPLES];
    /* MIG: the parts of a GPU, with holes, and a part's number in events. */
    unsigned is_divided, instance, xid_instance;
    struct device *parts[MAX_PARTS];
    unsigned lists[MAX_PROCESSES];
    /* An early 535 driver: the newest lists have entries of 32 bytes. */
    unsigned has_long_entries;
    /* It has fallen off the bus: every call fails, and each wait for events. */
    unsigned is_lost;
};

static struct device fixed[GPUS];
static struct device *devices[MAX_DEVICES];
static int device_count, is_played;
int is_open, starts, live_samples;

/* The script: which calls fail. */
static struct script { char function[64]; struct device *device; int codes[MAX_CODES], count, used, always; }
    scripts[MAX_SCRIPTS];
static struct { const char *function; int calls; } counts[MAX_FUNCTIONS];
static int script_count;

void play(struct device **visible, int count) {
    memcpy(devices, visible, count * sizeof *visible);
    device_count = count;
    is_played = 1;
}

static void (*on_call)(const char *function);

void set_on_call(void (*called)(const char *)) { on_call = called; }

void reset(void) {
    on_call = NULL;
    device_count = script_count = is_open = starts = live_samples = 0;
    memset(counts, 0, sizeof counts);
}

void clear_failures(void) { script_count = 0; }

static struct script *script_of(const char *function, struct device *device) {
    for (int index = 0; index < script_count; index++)
        if (scripts[index].device == device && !strcmp(scripts[index].function, function)) return &scripts[index];
    if (script_count == MAX_SCRIPTS) abort();
    struct script *made = &scripts[script_count++];
    memset(made, 0, sizeof *made);
    snprintf(made->function, sizeof made->function, "%s", function);
    made->device = device;
    return made;
}

void fail_next(const char *function, struct device *device, int code) {
    struct script *script = script_of(function, device);
    if (script->count == MAX_CODES) abort();
    script->codes[script->count++] = code;
}

void fail_always(const char *function, struct device *device, int code) { script_of(function, device)->always = code; }

int calls_of(const char *function) {
    for (int index = 0; index < MAX_FUNCTIONS && counts[index].function; index++)
        if (!strcmp(counts[index].function, function)) return counts[index].calls;
    return 0;
}

static nvmlReturn_t scripted(const char *function, struct device *device) {
    int place = 0;
    while (counts[place].function && strcmp(counts[place].function, function)) place++;
    counts[place].function = function;
    counts[place].calls++;
    if (on_call) on_call(function);
    for (int index = 0; index < script_count; index++) {
        struct script *script = &scripts[index];
        if ((script->device && script->device != device) || strcmp(script->function, function)) continue;
        int code = script->used < script->count ? script->codes[script->used++] : script->always;
        if (code) return code;
    }
    return SUCCESS;
}

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

#define SCRIPTED(function, device) \
    do { nvmlReturn_t code_ = scripted(function, device); if (code_) return code_; } while (0)
static int is_lost(struct device *device) { return device && device->is_lost; }

#define ENTER(function, device) \
    SCRIPTED(function, device); \
    if (!is_open) return UNINITIALIZED; \
    if (is_lost(device)) return GPU_IS_LOST

static void make_fixed_devices(void) {
    static const unsigned ids[METRICS] = {1, 2, 3, 5, 10, 20, 21, 60, 61};
    static const double busy[METRICS] = {75, 40, 30, 20, 10, 100, 200, 0, 0};
    for (int index = 0; index < GPUS; index++) {
        struct device *device = devices[index] = &fixed[index];
        int is_busy = index == 0;
        snprintf(device->uuid, sizeof device->uuid, "GPU-0000000%d-aaaa-bbbb-cccc-dddddddddddd", index);
        snprintf(device->name, sizeof device->name, "NVIDIA Test");
        device->total_bytes = 16384 * MIB;
        device->reserved_bytes = 400 * MIB;
        device->used_bytes = is_busy ? 2048 * MIB : 0;
        device->utilization_percent = is_busy ? 75 : 0;
        device->power_milliwatts = is_busy ? 150000 : 25000;
        device->reasons = is_busy ? 4 : 1;
        device->clock_mhz = 1410;
        device->celsius = 55;
        device->energy_step_millijoules = 1000;
        device->ecc_uncorrected = -1;
        device->xids[0] = is_busy ? 31 : 0;
        device->has_gpm = 1;
#ifdef MEASURED_COSTS
        device->has_lists = device->has_samples = device->process_count = 1;
        device->processes[0] = (struct process){1, 2048 * MIB, ~0U, ~0U};
#endif
        for (int place = 0; place < METRICS; place++) {
            int has_link = ids[place] < 60;
            device->metrics[place] =
                (struct metric){ids[place], has_link ? SUCCESS : NOT_SUPPORTED, is_busy ? busy[place] : 0, {0}};
        }
    }
    device_count = GPUS;
}

nvmlReturn_t nvmlInitWithFlags(unsigned flags) {
    (void)flags;
    SCRIPTED("nvmlInit", NULL);
    if (!is_played && !device_count) make_fixed_devices();
    is_open++; /* as NVML, which counts */
    starts++;
    return SUCCESS;
}

nvmlReturn_t nvmlShutdown(void) {
    ENTER("nvmlShutdown", NULL);
    is_open--;
    return SUCCESS;
}

const char *nvmlErrorString(nvmlReturn_t code) { (void)code; return "fake error"; }

nvmlReturn_t nvmlDeviceGetCount_v2(unsigned *count) {
    ENTER("nvmlDeviceGetCount", NULL);
    *count = device_count;
    return SUCCESS;
}

nvmlReturn_t nvmlDeviceGetHandleByIndex_v2(unsigned index, struct device **device) {
    ENTER("nvmlDeviceGetHandleByIndex", index < (unsigned)device_count ? devices[index] : NULL);
    if (index >= (unsigned)device_count) return INVALID_ARGUMENT;
    *device = devices[index];
    return SUCCESS;
}

nvmlReturn_t nvmlDeviceGetHandleByUUID(const char *uuid, struct device **device) {
    struct device *found = NULL;
    for (int index = 0; index < device_count; index++) {
        if (!strcmp(devices[index]->uuid, uuid)) found = devices[index];
        for (int place = 0; place < MAX_PARTS; place++)
            if (devices[index]->parts[place] && !strcmp(devices[index]->parts[place]->uuid, uuid))
                found = devices[index]->parts[place];
    }
    ENTER("nvmlDeviceGetHandleByUUID", found);
    *device = found;
    return found ? SUCCESS : NOT_FOUND;
}

nvmlReturn_t nvmlDeviceGetMigMode(struct device *device, unsigned *current, unsigned *pending) {
    ENTER("nvmlDeviceGetMigMode", device);
    *current = *pending = device->is_divided;
    return SUCCESS;
}

nvmlReturn_t nvmlDeviceGetMaxMigDeviceCount(struct device *device, unsigned *count) {
    ENTER("nvmlDeviceGetMaxMigDeviceCount", device);
    *count = MAX_PARTS;
    return SUCCESS;
}

nvmlReturn_t nvmlDeviceGetMigDeviceHandleByIndex(struct device *device, unsigned place, struct device **part) {
    ENTER("nvmlDeviceGetMigDeviceHandleByIndex", device);
    if (place >= MAX_PARTS) return INVALID_ARGUMENT;
    *part = device->parts[place];
    return *part ? SUCCESS : NOT_FOUND;
}

nvmlReturn_t nvmlDeviceGetGpuInstanceId(struct device *part, unsigned *instance) {
    ENTER("nvmlDeviceGetGpuInstanceId", part);
    *instance = part->instance;
    return part->instance ? SUCCESS : NOT_SUPPORTED;
}

static nvmlReturn_t text(const char *function, struct device *device, const char *from, char *to, unsigned length) {
    ENTER(function, device);
    snprintf(to, length, "%s", from);
    return SUCCESS;
}

nvmlReturn_t nvmlDeviceGetUUID(struct device *device, char *to, unsigned length) {
    return text("nvmlDeviceGetUUID", device, device->uuid, to, length);
}

nvmlReturn_t nvmlDeviceGetName(struct device *device, char *to, unsigned length) {
    return text("nvmlDeviceGetName", device, device->name, to, length);
}

nvmlReturn_t nvmlDeviceGetUtilizationRates(struct device *device, unsigned *rates) {
    ENTER("nvmlDeviceGetUtilizationRates", device);
    cost(21);
    rates[0] = device->utilization_percent;
    rates[1] = 0;
    return SUCCESS;
}

struct memory { unsigned long long total, free, used; };
struct memory_v2 { unsigned version; unsigned long long total, reserved, free, used; };

nvmlReturn_t nvmlDeviceGetMemoryInfo(struct device *device, struct memory *memory) {
    ENTER("nvmlDeviceGetMemoryInfo", device);
    memory->total = device->total_bytes;
    memory->used = device->used_bytes + device->reserved_bytes;
    memory->free = memory->total - memory->used;
    return SUCCESS;
}

nvmlReturn_t nvmlDeviceGetMemoryInfo_v2(struct device *device, struct memory_v2 *memory) {
    ENTER("nvmlDeviceGetMemoryInfo_v2", device);
    if (memory->version != (sizeof *memory | 2U << 24)) return VERSION_MISMATCH;
    cost(105);
    memory->total = device->total_bytes;
    memory->reserved = device->reserved_bytes;
    memory->used = device->used_bytes;
    memory->free = memory->total - memory->reserved - memory->used;
    return SUCCESS;
}

nvmlReturn_t nvmlDeviceGetPowerUsage(struct device *device, unsigned *milliwatts) {
    ENTER("nvmlDeviceGetPowerUsage", device);
    cost(10);
    *milliwatts = device->power_milliwatts;
    return SUCCESS;
}

nvmlReturn_t nvmlDeviceGetClockInfo(struct device *device, unsigned kind, unsigned *mhz) {
    ENTER("nvmlDeviceGetClockInfo", device);
    if (kind != 1) return INVALID_ARGUMENT;
    cost(10);
    *mhz = device->clock_mhz;
    return SUCCESS;
}

nvmlReturn_t nvmlDeviceGetTemperature(struct device *device, unsigned sensor, unsigned *celsius) {
    ENTER("nvmlDeviceGetTemperature", device);
    if (sensor != 0) return INVALID_ARGUMENT;
    cost(7);
    *celsius = device->celsius;
    return SUCCESS;
}

nvmlReturn_t nvmlDeviceGetCurrentClocksThrottleReasons(struct device *device, unsigned long long *bits) {
    ENTER("nvmlDeviceGetCurrentClocksThrottleReasons", device);
    cost(8);
    *bits = device->reasons;
    return SUCCESS;
}

nvmlReturn_t nvmlDeviceGetTotalEnergyConsumption(struct device *device, unsigned long long *energy) {
    ENTER("nvmlDeviceGetTotalEnergyConsumption", device);
    cost(3300);
    device->energy_millijoules += device->energy_step_millijoules;
    *energy = device->energy_millijoules;
    return SUCCESS;
}

nvmlReturn_t nvmlDeviceGetTotalEccErrors(struct device *device, unsigned kind, unsigned scope, unsigned long long *n) {
    ENTER("nvmlDeviceGetTotalEccErrors", device);
    cost(800);
    if (kind != 1 || scope != 0) return INVALID_ARGUMENT;
    *n = device->ecc_uncorrected;
    return device->ecc_uncorrected < 0 ? NOT_SUPPORTED : SUCCESS;
}

/* The processes with a context, and the driver's samples of utilization. */

static void add_samples_until_now(struct device *device) {
#ifdef MEASURED_COSTS
    /* One each 200 ms, of which 71 are kept. */
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    unsigned long long number = (now.tv_sec * 1000000ULL + now.tv_nsec / 1000) / 200000;
    device->sample_count = 71;
    for (unsigned index = 0; index < 71; index++) {
        device->samples[index].microseconds = (number - 70 + index) * 200000;
        device->samples[index].value.percent = device->utilization_percent;
    }
#else
    (void)device;
#endif
}

static nvmlReturn_t listed(const char *function, struct device *device, unsigned list, int is_newest,
                           unsigned *count, void *to) {
    ENTER(function, device);
    if (!device->has_lists) return NOT_SUPPORTED;
    cost(list == COMPUTING ? 170 : 30);
    size_t stride = is_newest && device->has_long_entries ? sizeof(struct process) + 8 : sizeof(struct process);
    unsigned found = 0, room = *count;
    for (unsigned index = 0; index < device->process_count; index++) {
        if (!((device->lists[index] ? device->lists[index] : COMPUTING) & list)) continue;
        if (to && found < room) {
            char *entry = (char *)to + found * stride;
            memset(entry, 0, stride);
            memcpy(entry, &device->processes[index], sizeof(struct process));
        }
        found++;
    }
    *count = found;
    return found && room < found ? INSUFFICIENT_SIZE : SUCCESS;
}

#define LIST(name, list) \
    nvmlReturn_t name##_v3(struct device *device, unsigned *count, void *to) { \
        return listed(#name, device, list, 1, count, to); \
    } \
    nvmlReturn_t name##_v2(struct device *device, unsigned *count, void *to) { \
        return listed(#name "_v2", device, list, 0, count, to); \
    }

LIST(nvmlDeviceGetComputeRunningProcesses, COMPUTING)
LIST(nvmlDeviceGetMPSComputeRunningProcesses, OF_MPS)
LIST(nvmlDeviceGetGraphicsRunningProcesses, DRAWING)

nvmlReturn_t nvmlDeviceGetSamples(struct device *device, unsigned kind, unsigned long long last, unsigned *value_kind,
                                  unsigned *count, struct use *to) {
    ENTER("nvmlDeviceGetSamples", device);
    if (!device->has_samples || kind != 1) return NOT_SUPPORTED;
    cost(1150); /* it is called twice */
    add_samples_until_now(device);
    unsigned found = 0, room = *count;
    for (unsigned index = 0; index < device->sample_count; index++) {
        if (device->samples[index].microseconds <= last) continue;
        if (to && found < room) to[found] = device->samples[index];
        found++;
    }
    *value_kind = 1;
    *count = found;
    return found ? SUCCESS : NOT_FOUND;
}

nvmlReturn_t nvmlDeviceGetMaxPcieLinkGeneration(struct device *device, unsigned *generation) {
    ENTER("nvmlDeviceGetMaxPcieLinkGeneration", device);
    *generation = device->link_generation;
    return device->link_generation ? SUCCESS : NOT_SUPPORTED;
}

nvmlReturn_t nvmlDeviceGetMaxPcieLinkWidth(struct device *device, unsigned *width) {
    ENTER("nvmlDeviceGetMaxPcieLinkWidth", device);
    *width = device->link_width;
    return device->link_width ? SUCCESS : NOT_SUPPORTED;
}

/* GPM: a sample keeps the metrics of the moment at which it is taken, and a pair has those of its second one; of a
 * tape the mean between the two, and zeros if they are less than 100 ms apart. */

struct sample {
    unsigned alive;
    int number;
    struct device *device;
    struct metric metrics[METRICS];
    double seconds, weights[METRICS];
};
struct support { unsigned version, is_supported; };
struct request { unsigned version, count; struct sample *first, *second; struct metric metrics[]; };

nvmlReturn_t nvmlGpmQueryDeviceSupport(struct device *device, struct support *support) {
    ENTER("nvmlGpmQueryDeviceSupport", device);
    if (support->version != 1) return VERSION_MISMATCH;
    support->is_supported = device->has_gpm;
    return SUCCESS;
}

nvmlReturn_t nvmlGpmSampleAlloc(struct sample **sample) {
    ENTER("nvmlGpmSampleAlloc", NULL);
    *sample = calloc(1, sizeof **sample);
    (*sample)->alive = ALIVE;
    live_samples++;
    return SUCCESS;
}

nvmlReturn_t nvmlGpmSampleFree(struct sample *sample) {
    ENTER("nvmlGpmSampleFree", NULL);
    if (!sample || sample->alive != ALIVE) abort();
    sample->alive = 0;
    free(sample);
    live_samples--;
    return SUCCESS;
}

nvmlReturn_t nvmlGpmSampleGet(struct device *device, struct sample *sample) {
    static int numbers;
    ENTER("nvmlGpmSampleGet", device);
    cost(146);
    if (!sample || sample->alive != ALIVE) abort();
    sample->number = ++numbers;
    sample->device = device;
    memcpy(sample->metrics, device->metrics, sizeof sample->metrics);
    memcpy(sample->weights, device->gpm_weights, sizeof sample->weights);
    sample->seconds = device->gpm_seconds;
    return SUCCESS;
}

nvmlReturn_t nvmlGpmMetricsGet(struct request *request) {
    struct sample *first = request->first, *second = request->second;
    ENTER("nvmlGpmMetricsGet", second ? second->device : NULL);
    if (request->version != 1) return VERSION_MISMATCH;
    cost(54);
    if (!first || !second || first->alive != ALIVE || second->alive != ALIVE) abort();
    if (!first->number || first->device != second->device || first->number >= second->number) return INVALID_ARGUMENT;
    for (unsigned asked = 0; asked < request->count; asked++) {
        struct metric *wanted = &request->metrics[asked];
        wanted->result = NOT_FOUND;
        for (int place = 0; place < METRICS; place++) {
            if (second->metrics[place].id != wanted->id) continue;
            *wanted = second->metrics[place];
            if (!second->seconds) continue;
            double weight = second->weights[place] - first->weights[place];
            int is_apart = second->seconds - first->seconds >= 0.1 && weight > 0;
            wanted->value = is_apart ? (wanted->value - first->metrics[place].value) / weight : 0;
        }
    }
    return SUCCESS;
}

/* Errors of the GPUs: each once, on the devices that are registered. */

static int event_set;

nvmlReturn_t nvmlEventSetCreate(int **set) {
    ENTER("nvmlEventSetCreate", NULL);
    for (int index = 0; index < device_count; index++) devices[index]->is_registered = 0;
    *set = &event_set;
    return SUCCESS;
}

nvmlReturn_t nvmlEventSetFree(int *set) {
    (void)set;
    ENTER("nvmlEventSetFree", NULL);
    return SUCCESS;
}

nvmlReturn_t nvmlDeviceRegisterEvents(struct device *device, unsigned long long kinds, int *set) {
    (void)kinds; (void)set;
    ENTER("nvmlDeviceRegisterEvents", device);
    device->is_registered = 1;
    return SUCCESS;
}

struct event { struct device *device; unsigned long long kind, data; unsigned gpu, compute; };

nvmlReturn_t nvmlEventSetWait_v2(int *set, struct event *event, unsigned timeout_ms) {
    (void)set; (void)timeout_ms;
    ENTER("nvmlEventSetWait_v2", NULL);
    cost(36);
    for (int index = 0; index < device_count; index++) {
        struct device *device = devices[index];
        if (!device->is_registered) continue;
        if (device->is_lost && !device->xids[0]) return GPU_IS_LOST;
        if (!device->xids[0]) continue;
        memset(event, 0, sizeof *event);
        event->device = device;
        event->kind = 8;
        event->gpu = device->xid_instance;
        event->data = device->xids[0];
        memmove(device->xids, device->xids + 1, 3 * sizeof *device->xids);
        device->xids[3] = 0;
        return SUCCESS;
    }
    return TIMEOUT;
}
