/* A library with the functions of NVML that the recorder calls, for GPUS devices with known values.
 *
 *   cc -shared -fPIC -DGPUS=8 fake.c -o libfake.so
 *   -DLOST=3        the device 3 has fallen off the bus
 *   -DNO_COUNTERS   the driver does not count the bytes of PCIe
 *   -DHANG=5        the fifth question about utilisation is never answered
 *
 * Types and codes are those of NVIDIA's nvml.h. */
#include <stdint.h>
#include <string.h>
#include <time.h>

#ifndef GPUS
#define GPUS 8
#endif
#ifndef LOST
#define LOST -1
#endif

enum { SUCCESS = 0, INVALID = 2, NOT_SUPPORTED = 3, GPU_IS_LOST = 15 };
typedef void *device;
static char handles[GPUS];
#define INDEX(d) ((unsigned)((char *)(d)-handles))

static uint64_t nanoseconds(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

int nvmlInit_v2(void) { return SUCCESS; }
int nvmlShutdown(void) { return SUCCESS; }
int nvmlSystemGetDriverVersion(char *text, unsigned length) {
    strncpy(text, "550.54.15", length);
    return SUCCESS;
}
int nvmlDeviceGetCount_v2(unsigned *count) {
    *count = GPUS;
    return SUCCESS;
}
int nvmlDeviceGetHandleByIndex_v2(unsigned index, device *d) {
    if (index >= GPUS) return INVALID;
    if ((int)index == LOST) return GPU_IS_LOST;
    *d = &handles[index];
    return SUCCESS;
}
int nvmlDeviceGetUtilizationRates(device d, unsigned rates[2]) {
#ifdef HANG
    static int asked;
    if (++asked == HANG)
        for (;;) nanosleep(&(struct timespec){3600, 0}, 0);
#endif
    rates[0] = 10 * INDEX(d);
    rates[1] = 1;
    return SUCCESS;
}
int nvmlDeviceGetMemoryInfo_v2(device d, struct { unsigned version; unsigned long long total, reserved, free, used; } *m) {
    m->total = 80ull << 30;
    m->used = (unsigned long long)INDEX(d) << 30;
    m->reserved = 0;
    m->free = m->total - m->used;
    return SUCCESS;
}
int nvmlDeviceGetPowerUsage(device d, unsigned *milliwatts) {
    *milliwatts = 100500 + 1000 * INDEX(d);
    return SUCCESS;
}
int nvmlDeviceGetClockInfo(device d, int kind, unsigned *mhz) {
    *mhz = kind == 1 /* SM */ ? 1980 - INDEX(d) : 7;
    return SUCCESS;
}
int nvmlDeviceGetTemperature(device d, int sensor, unsigned *celsius) {
    *celsius = 40 + INDEX(d);
    return sensor == 0 ? SUCCESS : INVALID;
}
static int engine(unsigned value, unsigned *utilization, unsigned *period) {
    *utilization = value;
    *period = 167000;
    return SUCCESS;
}
int nvmlDeviceGetEncoderUtilization(device d, unsigned *u, unsigned *p) { return engine(1 + INDEX(d), u, p); }
int nvmlDeviceGetDecoderUtilization(device d, unsigned *u, unsigned *p) { return engine(20 + INDEX(d), u, p); }
int nvmlDeviceGetJpgUtilization(device d, unsigned *u, unsigned *p) { return engine(30 + INDEX(d), u, p); }
/* Device 1 is held back by heat, 2 by its power limit, the others by having nothing to do. */
int nvmlDeviceGetCurrentClocksThrottleReasons(device d, unsigned long long *reasons) {
    *reasons = INDEX(d) == 1 ? 0x40 : INDEX(d) == 2 ? 0x4 : 0x1;
    return SUCCESS;
}
struct field {
    unsigned id, scope;
    long long timestamp, latency;
    int type, code;
    union { double d; unsigned long long u; } value;
};
/* Device n receives n + 1 and sends 2 (n + 1) gigabytes a second. */
int nvmlDeviceGetFieldValues(device d, int count, struct field *fields) {
    for (int i = 0; i < count; i++) {
        uint64_t bytes = nanoseconds() * (INDEX(d) + 1);
        fields[i].code = SUCCESS;
        fields[i].type = 3; /* unsigned long long */
        if (fields[i].id == 198) fields[i].value.u = bytes;
        else if (fields[i].id == 197) fields[i].value.u = 2 * bytes;
        else fields[i].code = NOT_SUPPORTED;
#ifdef NO_COUNTERS
        fields[i].code = NOT_SUPPORTED;
#endif
    }
    return SUCCESS;
}
/* Kilobytes a second; 0 is sending, 1 receiving. */
int nvmlDeviceGetPcieThroughput(device d, int direction, unsigned *kilobytes) {
    nanosleep(&(struct timespec){0, 20000000}, 0);
    *kilobytes = (direction == 1 ? 1000 : 2000) * (INDEX(d) + 1);
    return SUCCESS;
}
