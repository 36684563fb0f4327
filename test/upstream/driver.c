/* MLIR's wrappers of CUDA's driver (mlir/lib/ExecutionEngine/CudaRuntimeWrappers.cpp), as far as launches need them, for
   mlir-runner: a launch writes its kernel and the memory that was registered to a folder, runs a command, and reads the
   memory back. WARPLOOM_FOLDER is the folder, WARPLOOM_COMMAND the command. */
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct {
  char *base, *data;
  int64_t offset, sizes_and_strides[];
} MemRef;

static struct {
  char *start;
  size_t bytes;
} memories[64];
static int count;

static FILE *file(const char *name, const char *mode) {
  char path[4096];
  snprintf(path, sizeof path, "%s/%s", getenv("WARPLOOM_FOLDER"), name);
  FILE *opened = fopen(path, mode);
  if (!opened) {
    perror(path);
    exit(1);
  }
  return opened;
}

void mgpuMemHostRegisterMemRef(int64_t rank, MemRef *memory, int64_t element) {
  size_t bytes = element;
  for (int64_t i = 0; i < rank; ++i)
    bytes *= memory->sizes_and_strides[i];
  memories[count].start = memory->data + memory->offset * element;
  memories[count++].bytes = bytes;
}

void *mgpuMemAlloc(uint64_t bytes, void *stream, bool host_shared) {
  memories[count].start = memset(malloc(bytes), 0xff, bytes);
  memories[count].bytes = bytes;
  return memories[count++].start;
}

void mgpuMemFree(void *start, void *stream) {
  for (int i = 0; i < count; ++i)
    if (memories[i].start == start)
      memories[i] = memories[--count];
  free(start);
}

void mgpuMemset32(uint32_t *start, unsigned value, size_t words, void *stream) {
  for (size_t i = 0; i < words; ++i)
    start[i] = value;
}

void *mgpuModuleLoadJIT(char *text, int level, size_t size) {
  FILE *ptx = file("kernels.ptx", "w");
  fwrite(text, 1, strnlen(text, size), ptx);
  fclose(ptx);
  return text;
}

void *mgpuModuleLoad(char *text, size_t size) { return mgpuModuleLoadJIT(text, 2, size); }
void mgpuModuleUnload(void *module) {}
void *mgpuModuleGetFunction(void *module, const char *name) { return (void *)name; }
void *mgpuStreamCreate(void) { return 0; }
void mgpuStreamSynchronize(void *stream) {}
void mgpuStreamDestroy(void *stream) {}

static void memory(int i, const char *mode) {
  char name[32];
  snprintf(name, sizeof name, "memory%d", i);
  FILE *bytes = file(name, mode);
  size_t done = *mode == 'w' ? fwrite(memories[i].start, 1, memories[i].bytes, bytes)
                             : fread(memories[i].start, 1, memories[i].bytes, bytes);
  fclose(bytes);
  if (done != memories[i].bytes)
    exit(1);
}

/* A line for the kernel and its sizes, one for each argument: an offset in a memory, or the bits of a number. */
void mgpuLaunchKernel(char *name, intptr_t gx, intptr_t gy, intptr_t gz, intptr_t bx, intptr_t by, intptr_t bz,
                      int32_t shared, void *stream, void **arguments, void **extra, size_t n) {
  FILE *launch = file("launch", "w");
  fprintf(launch, "%s %zd %zd %zd %zd %zd %zd %d\n", name, gx, gy, gz, bx, by, bz, shared);
  for (size_t i = 0; i < n; ++i) {
    char *value = *(char **)arguments[i];
    int m = 0;
    while (m < count && !(value >= memories[m].start && value < memories[m].start + memories[m].bytes))
      ++m;
    if (m < count)
      fprintf(launch, "memory %d %zd\n", m, value - memories[m].start);
    else
      fprintf(launch, "number %lu\n", (unsigned long)value);
  }
  fclose(launch);
  for (int i = 0; i < count; ++i)
    memory(i, "w");
  if (system(getenv("WARPLOOM_COMMAND")))
    exit(1);
  for (int i = 0; i < count; ++i)
    memory(i, "r");
}

typedef struct {
  int64_t rank;
  MemRef *memory;
} UnrankedMemRef;

void _mlir_ciface_printMemrefF32(UnrankedMemRef *unranked) {
  MemRef *m = unranked->memory;
  int64_t *sizes = m->sizes_and_strides, *strides = sizes + 2;
  for (int64_t i = 0; i < sizes[0]; ++i)
    for (int64_t j = 0; j < sizes[1]; ++j)
      printf("%.9g%c", ((float *)m->data)[m->offset + i * strides[0] + j * strides[1]], j + 1 < sizes[1] ? ' ' : '\n');
}
