// A fake libnvidia-ml.so.1 for the tests: it answers out of the text file that $FAKE_NVML names.
//
// Each line is a key, white space, and what NVML answers; keys are NVML's own names without "nvmlDeviceGet":
//
//     system/Count           2
//     gpu/0/UUID             GPU-0000
//     gpu/1/PowerUsage       !15                an error, by its number in nvml.h
//     gpu/*/PowerUsage       350000             shell patterns; the first line that matches counts
//     gpu/0/mig/1/MemoryInfo 10468982784 0 4096 a MIG instance
//     gpu/1/lost_after       2                  how often PowerUsage is asked until the GPU is lost
//
// What no line tells is "not supported", as on a real GPU. The file is read again whenever it changes, so a test can
// change the host while it is watched: replace the file, do not write into it. $FAKE_NVML_LOG names a file that gets
// the name of each function called, a line each. For one thread at a time.

#include <fnmatch.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

typedef unsigned int uint;
typedef unsigned long long ull;

enum {
    SUCCESS = 0,
    UNINITIALIZED = 1,
    INVALID_ARGUMENT = 2,
    NOT_SUPPORTED = 3,
    NOT_FOUND = 6,
    INSUFFICIENT_SIZE = 7,
    DRIVER_NOT_LOADED = 9,
    GPU_IS_LOST = 15,
    ARGUMENT_VERSION_MISMATCH = 25,
};
enum { UNTOLD = -1 }; /* no line says anything: not supported, unless the function knows better */
enum { MAX_GPUS = 16, MAX_MIG = 8, MAX_LINES = 4096, MAX_PROCESSES = 64 };
enum { MEMORY_V2 = 0x02000028, TEMPERATURE_V1 = 0x0100000C };

typedef struct {
    int gpu, mig; /* mig is -1 for the GPU itself */
} device_t;

/* The layouts of nvml.h. */
typedef struct {
    char busIdLegacy[16];
    uint domain, bus, device, pciDeviceId, pciSubSystemId;
    char busId[32];
} pci_info_t;
typedef struct {
    ull total, free, used;
} memory_t;
typedef struct {
    uint version;
    ull total, reserved, free, used;
} memory_v2_t;
typedef struct {
    uint gpu, memory;
} utilization_t;
typedef struct {
    uint pid;
    ull usedGpuMemory;
    uint gpuInstanceId, computeInstanceId;
} process_t;
typedef struct {
    uint version, sensor;
    int temperature;
} temperature_t;

static device_t devices[MAX_GPUS][MAX_MIG + 1];
static long asked[MAX_GPUS]; /* for PowerUsage: about once a sample */
static int starts; /* nvmlInit counts */

static struct {
    char *pattern, *value;
} lines[MAX_LINES];
static int line_count;
static char *contents;
static struct stat seen;
static const char *said; /* the line that was found last */

static void read_scenario(void)
{
    const char *path = getenv("FAKE_NVML");
    struct stat now;
    if (!path || stat(path, &now)) {
        line_count = 0;
        memset(&seen, 0, sizeof seen);
        return;
    }
    if (contents && now.st_ino == seen.st_ino && now.st_size == seen.st_size && now.st_dev == seen.st_dev
        && now.st_mtim.tv_sec == seen.st_mtim.tv_sec && now.st_mtim.tv_nsec == seen.st_mtim.tv_nsec)
        return;
    FILE *file = fopen(path, "r");
    if (!file)
        return;
    seen = now;
    free(contents);
    contents = calloc(1, (size_t)now.st_size + 1);
    size_t length = fread(contents, 1, (size_t)now.st_size, file);
    fclose(file);
    contents[length] = 0;
    line_count = 0;
    for (char *line = strtok(contents, "\n"); line && line_count < MAX_LINES; line = strtok(NULL, "\n")) {
        line += strspn(line, " \t");
        if (!*line || *line == '#')
            continue;
        char *value = line + strcspn(line, " \t");
        if (*value)
            *value++ = 0;
        lines[line_count].pattern = line;
        lines[line_count++].value = value + strspn(value, " \t");
    }
}

static void note(const char *function)
{
    const char *path = getenv("FAKE_NVML_LOG");
    FILE *file = path ? fopen(path, "a") : NULL;
    if (file) {
        fprintf(file, "%s\n", function);
        fclose(file);
    }
}

static int find(const char *key)
{
    for (int i = 0; i < line_count; i++)
        if (!fnmatch(lines[i].pattern, key, FNM_PATHNAME)) {
            said = lines[i].value;
            return *said == '!' ? atoi(said + 1) : SUCCESS;
        }
    return UNTOLD;
}

/* What the scenario says to a function without a device. */
static int system_says(const char *function, const char *key)
{
    note(function);
    read_scenario();
    return starts ? find(key) : UNINITIALIZED;
}

static int gpu_says(const device_t *device, const char *name, const char *more)
{
    char key[160];
    if (device->mig < 0)
        snprintf(key, sizeof key, "gpu/%d/%s%s", device->gpu, name, more);
    else
        snprintf(key, sizeof key, "gpu/%d/mig/%d/%s%s", device->gpu, device->mig, name, more);
    return find(key);
}

/* What the scenario says to "nvmlDeviceGet" NAME for a device; `more` goes on the key. */
static int says(const device_t *device, const char *function, const char *more)
{
    char name[64];
    note(function);
    read_scenario();
    if (!starts)
        return UNINITIALIZED;
    if (device < &devices[0][0] || device >= &devices[MAX_GPUS][0])
        return INVALID_ARGUMENT;
    const device_t whole = {device->gpu, -1};
    if (!gpu_says(&whole, "lost_after", "") && asked[device->gpu] >= atol(said))
        return GPU_IS_LOST;
    asked[device->gpu] += !strcmp(function, "nvmlDeviceGetPowerUsage");
    snprintf(name, sizeof name, "%s", function + strlen("nvmlDeviceGet"));
    char *version = strstr(name, "_v");
    if (version && strcmp(name, "MemoryInfo_v2"))
        *version = 0;
    return gpu_says(device, name, more);
}

static int text(int status, char *out, uint length)
{
    if (status)
        return status == UNTOLD ? NOT_SUPPORTED : status;
    if (strlen(said) >= length)
        return INSUFFICIENT_SIZE;
    strcpy(out, said);
    return SUCCESS;
}

/* Up to four whole numbers on one line. */
static int numbers(int status, ull *a, ull *b, ull *c, ull *d)
{
    ull *out[] = {a, b, c, d};
    char *rest = (char *)said;
    for (int i = 0; !status && i < 4 && out[i]; i++)
        *out[i] = strtoull(rest, &rest, 10);
    return status == UNTOLD ? NOT_SUPPORTED : status;
}

static int number(int status, uint *out)
{
    ull answer;
    status = numbers(status, &answer, NULL, NULL, NULL);
    if (!status)
        *out = (uint)answer;
    return status;
}

/* --- the host --- */

int nvmlInitWithFlags(uint flags)
{
    (void)flags;
    note(__func__);
    read_scenario();
    int status = line_count ? find("system/Init") : DRIVER_NOT_LOADED;
    if (status > 0)
        return status;
    for (int gpu = 0; gpu < MAX_GPUS; gpu++) {
        asked[gpu] = 0;
        for (int mig = -1; mig < MAX_MIG; mig++)
            devices[gpu][mig + 1] = (device_t){gpu, mig};
    }
    starts++;
    return SUCCESS;
}

int nvmlInit_v2(void)
{
    return nvmlInitWithFlags(0);
}

int nvmlShutdown(void)
{
    note(__func__);
    if (!starts)
        return UNINITIALIZED;
    starts--;
    return SUCCESS;
}

const char *nvmlErrorString(int error)
{
    note(__func__);
    switch (error) {
    case SUCCESS: return "Success";
    case UNINITIALIZED: return "Uninitialized";
    case INVALID_ARGUMENT: return "Invalid Argument";
    case NOT_SUPPORTED: return "Not Supported";
    case 4: return "Insufficient Permissions";
    case NOT_FOUND: return "Not Found";
    case INSUFFICIENT_SIZE: return "Insufficient Size";
    case DRIVER_NOT_LOADED: return "Driver Not Loaded";
    case 13: return "Function Not Found";
    case GPU_IS_LOST: return "GPU is lost";
    case 16: return "GPU requires reset";
    case 18: return "Driver/library version mismatch";
    default: return "Unknown Error";
    }
}

int nvmlSystemGetDriverVersion(char *out, uint length)
{
    return text(system_says(__func__, "system/DriverVersion"), out, length);
}

int nvmlSystemGetCudaDriverVersion(int *out)
{
    return number(system_says(__func__, "system/CudaDriverVersion"), (uint *)out);
}

int nvmlSystemGetProcessName(uint pid, char *out, uint length)
{
    char key[64];
    snprintf(key, sizeof key, "process/%u", pid);
    int status = system_says(__func__, key);
    return text(status == UNTOLD ? NOT_FOUND : status, out, length);
}

int nvmlDeviceGetCount_v2(uint *out)
{
    return number(system_says(__func__, "system/Count"), out);
}

int nvmlDeviceGetHandleByIndex_v2(uint index, device_t **out)
{
    char key[64];
    if (index >= MAX_GPUS)
        return INVALID_ARGUMENT;
    snprintf(key, sizeof key, "gpu/%u/HandleByIndex", index);
    int status = system_says(__func__, key);
    *out = &devices[index][0];
    return status == UNTOLD ? SUCCESS : status; /* a handle is had unless a line refuses it */
}

/* --- a GPU, or a MIG instance --- */

int nvmlDeviceGetName(device_t *device, char *out, uint length)
{
    return text(says(device, __func__, ""), out, length);
}

int nvmlDeviceGetUUID(device_t *device, char *out, uint length)
{
    return text(says(device, __func__, ""), out, length);
}

int nvmlDeviceGetPciInfo_v3(device_t *device, pci_info_t *out)
{
    int status = says(device, __func__, "");
    if (status)
        return status == UNTOLD ? NOT_SUPPORTED : status;
    memset(out, 0, sizeof *out);
    sscanf(said, "%x:%x:%x", &out->domain, &out->bus, &out->device);
    snprintf(out->busId, sizeof out->busId, "%08X:%02X:%02X.0", out->domain, out->bus, out->device);
    snprintf(out->busIdLegacy, sizeof out->busIdLegacy, "%04X:%02X:%02X.0", out->domain & 0xFFFF, out->bus & 0xFF,
             out->device & 0xFF);
    return SUCCESS;
}

/* "total reserved used", in bytes: the first version counts what is reserved as used. */
int nvmlDeviceGetMemoryInfo(device_t *device, memory_t *out)
{
    ull reserved;
    int status = numbers(says(device, __func__, ""), &out->total, &reserved, &out->used, NULL);
    if (status)
        return status;
    out->used += reserved;
    out->free = out->total - out->used;
    return SUCCESS;
}

/* As MemoryInfo, unless a line MemoryInfo_v2 refuses it. */
int nvmlDeviceGetMemoryInfo_v2(device_t *device, memory_v2_t *out)
{
    if (out->version != MEMORY_V2)
        return ARGUMENT_VERSION_MISMATCH;
    int status = says(device, __func__, "");
    if (status == UNTOLD)
        status = gpu_says(device, "MemoryInfo", "");
    status = numbers(status, &out->total, &out->reserved, &out->used, NULL);
    if (status)
        return status;
    out->free = out->total - out->reserved - out->used;
    return SUCCESS;
}

int nvmlDeviceGetUtilizationRates(device_t *device, utilization_t *out)
{
    ull gpu, memory;
    int status = numbers(says(device, __func__, ""), &gpu, &memory, NULL, NULL);
    if (!status)
        *out = (utilization_t){(uint)gpu, (uint)memory};
    return status;
}

static const char *clock_name(uint type)
{
    static const char *const names[] = {"/GRAPHICS", "/SM", "/MEM", "/VIDEO"};
    return type < 4 ? names[type] : "/?";
}

#define CLOCK(NAME)                                                                                                    \
    int nvmlDeviceGet##NAME(device_t *device, uint type, uint *out)                                                    \
    {                                                                                                                  \
        return number(says(device, __func__, clock_name(type)), out);                                                  \
    }
CLOCK(ClockInfo)
CLOCK(MaxClockInfo)
CLOCK(ApplicationsClock)
CLOCK(DefaultApplicationsClock)

#define NUMBER(NAME)                                                                                                   \
    int nvmlDeviceGet##NAME(device_t *device, uint *out)                                                               \
    {                                                                                                                  \
        return number(says(device, __func__, ""), out);                                                                \
    }
NUMBER(PowerUsage)
NUMBER(EnforcedPowerLimit)
NUMBER(PowerManagementDefaultLimit)
NUMBER(CurrPcieLinkGeneration)
NUMBER(CurrPcieLinkWidth)
NUMBER(MaxPcieLinkGeneration)
NUMBER(MaxPcieLinkWidth)
NUMBER(PersistenceMode)
NUMBER(MaxMigDeviceCount)

int nvmlDeviceGetTemperature(device_t *device, uint sensor, uint *out)
{
    return sensor ? INVALID_ARGUMENT : number(says(device, __func__, ""), out);
}

int nvmlDeviceGetTemperatureV(device_t *device, temperature_t *out)
{
    uint answer;
    if (out->version != TEMPERATURE_V1)
        return ARGUMENT_VERSION_MISMATCH;
    int status = out->sensor ? INVALID_ARGUMENT : number(says(device, __func__, ""), &answer);
    if (!status)
        out->temperature = (int)answer;
    return status;
}

int nvmlDeviceGetCurrentClocksEventReasons(device_t *device, ull *out)
{
    return numbers(says(device, __func__, ""), out, NULL, NULL, NULL);
}

int nvmlDeviceGetCurrentClocksThrottleReasons(device_t *device, ull *out)
{
    return numbers(says(device, __func__, ""), out, NULL, NULL, NULL);
}

int nvmlDeviceGetTotalEccErrors(device_t *device, uint type, uint counter, ull *out)
{
    return type != 1 || counter != 0 ? INVALID_ARGUMENT : numbers(says(device, __func__, ""), out, NULL, NULL, NULL);
}

int nvmlDeviceGetRemappedRows(device_t *device, uint *correctable, uint *uncorrectable, uint *pending, uint *failed)
{
    ull a, b, c, d;
    int status = numbers(says(device, __func__, ""), &a, &b, &c, &d);
    if (!status)
        *correctable = (uint)a, *uncorrectable = (uint)b, *pending = (uint)c, *failed = (uint)d;
    return status;
}

int nvmlDeviceGetCudaComputeCapability(device_t *device, int *major, int *minor)
{
    ull a, b;
    int status = numbers(says(device, __func__, ""), &a, &b, NULL, NULL);
    if (!status)
        *major = (int)a, *minor = (int)b;
    return status;
}

int nvmlDeviceGetMigMode(device_t *device, uint *current, uint *pending)
{
    ull a, b;
    int status = numbers(says(device, __func__, ""), &a, &b, NULL, NULL);
    if (!status)
        *current = (uint)a, *pending = (uint)b;
    return status;
}

/* A slot holds an instance if a line gives its UUID. */
int nvmlDeviceGetMigDeviceHandleByIndex(device_t *device, uint index, device_t **out)
{
    int status = says(device, __func__, "");
    if (status > 0)
        return status;
    if (device->mig >= 0 || index >= MAX_MIG)
        return INVALID_ARGUMENT;
    *out = &devices[device->gpu][index + 1];
    return gpu_says(*out, "UUID", "") ? NOT_FOUND : SUCCESS;
}

int nvmlDeviceGetP2PStatus(device_t *one, device_t *other, uint capability, uint *out)
{
    static const char *const names[] = {"READ", "WRITE", "NVLINK", "ATOMICS", "PCI"};
    char more[32];
    if (capability > 4)
        return INVALID_ARGUMENT;
    snprintf(more, sizeof more, "/%s/%d", names[capability], other->gpu);
    return number(says(one, __func__, more), out);
}

int nvmlDeviceGetNvLinkState(device_t *device, uint link, uint *out)
{
    char more[16];
    snprintf(more, sizeof more, "/%u", link);
    return number(says(device, __func__, more), out);
}

/* "pid:bytes …"; without ":bytes" the memory is not available. */
int nvmlDeviceGetComputeRunningProcesses_v3(device_t *device, uint *count, process_t *out)
{
    int status = says(device, __func__, "");
    if (status)
        return status == UNTOLD ? NOT_SUPPORTED : status;
    process_t found[MAX_PROCESSES];
    uint total = 0;
    char *rest = (char *)said;
    for (; total < MAX_PROCESSES && *(rest += strspn(rest, " \t")); total++) {
        char *end;
        ull pid = strtoull(rest, &end, 10);
        if (end == rest)
            break;
        ull memory = *end == ':' ? strtoull(end + 1, &end, 10) : (ull)-1;
        found[total] = (process_t){(uint)pid, memory, (uint)-1, (uint)-1};
        rest = end;
    }
    uint room = *count;
    *count = total;
    if (room < total)
        return INSUFFICIENT_SIZE;
    if (total)
        memcpy(out, found, total * sizeof *out);
    return SUCCESS;
}
