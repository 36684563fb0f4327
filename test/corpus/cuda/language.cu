// What C++ asks of a machine: calls, recursion, pointers to functions, structs, printf, memory from a heap.
#include <cstdio>
#include <cassert>
#include <cuda_fp16.h>
typedef unsigned int u32;
typedef unsigned long long u64;
#define K extern "C" __global__ void
#define NOINLINE __device__ __noinline__

NOINLINE u32 fibonacci(u32 n) { return n < 2 ? n : fibonacci(n - 1) + fibonacci(n - 2); }
NOINLINE u32 ackermann(u32 m, u32 n) {
  return m == 0 ? n + 1 : n == 0 ? ackermann(m - 1, 1) : ackermann(m - 1, ackermann(m, n - 1));
}
K recursion(u32 *f, u32 *a) {
  int i = threadIdx.x;
  f[i] = fibonacci(i % 11);
  a[i] = ackermann(i % 3, i / 3 % 5);
}

NOINLINE bool is_even(int n);
NOINLINE bool is_odd(int n) { return n == 0 ? false : is_even(n - 1); }
NOINLINE bool is_even(int n) { return n == 0 ? true : is_odd(n - 1); }
K mutual_recursion(int *out, const int *x) { out[threadIdx.x] = is_even(x[threadIdx.x]) * 2 + is_odd(x[threadIdx.x]); }

__device__ void quicksort(int *x, int low, int high) {
  if (low >= high) return;
  int pivot = x[(low + high) / 2], i = low, j = high;
  while (i <= j) {
    while (x[i] < pivot) i++;
    while (x[j] > pivot) j--;
    if (i <= j) { int t = x[i]; x[i++] = x[j]; x[j--] = t; }
  }
  quicksort(x, low, j);
  quicksort(x, i, high);
}
K recursive_quicksort(int *x, int n) { quicksort(x + threadIdx.x * n, 0, n - 1); }

NOINLINE int queens(int n, int row, u32 columns, u32 down, u32 up) {
  if (row == n) return 1;
  int count = 0;
  for (u32 free = ~(columns | down | up) & ((1u << n) - 1); free; free &= free - 1) {
    u32 bit = free & -free;
    count += queens(n, row + 1, columns | bit, (down | bit) << 1, (up | bit) >> 1);
  }
  return count;
}
K n_queens(int *out) { out[threadIdx.x] = queens(threadIdx.x + 1, 0, 0, 0, 0); }

__device__ __noinline__ int choose(int op, int a) {
  switch (op) {
    case 0: return a + 1; case 1: return a * 3; case 2: return a ^ 0x55; case 3: return a >> 2;
    case 4: return -a; case 5: return a % 7; case 6: return a | 9; case 7: return __popc(a);
    case 8: return a * a; case 9: return a / 5; default: return 0;
  }
}
K interpreter_loop(int *out, const unsigned char *code, const int *x, int n) {
  int i = threadIdx.x, a = x[i];
  for (int pc = 0; pc < n; pc++) {
    switch (code[(pc + i) % n]) {
      case 0: a += pc; break;
      case 1: a = a * 5 + 1; break;
      case 2: a ^= a >> 3; break;
      case 3: if (a & 1) pc++; break;
      case 4: a = ~a; break;
      case 5: a = (u32)a << 7 | (u32)a >> 25; break;
      case 6: a -= i; break;
      case 7: a = choose(a & 15, a); break;
      default: a ^= 0x1234;
    }
  }
  out[i] = a;
}

struct Inner { short a; double b; char c[3]; };
struct Options { int n; const float *in; Inner inner[2]; float *out; unsigned char flags; float scale[3]; };
K struct_by_value(Options o) {
  int i = threadIdx.x;
  if (i >= o.n) return;
  float v = o.in[i] * o.scale[i % 3] + (float)o.inner[i & 1].b + o.inner[1].c[i % 3];
  if (o.flags & 2) v += o.inner[0].a;
  o.out[i] = v;
}
template <int R> struct Shape { int extent[R]; };
template <int R> struct Stride { long long step[R]; };
template <int R, class T> struct Tensor { T *data; Shape<R> shape; Stride<R> stride; __device__ T &at(const int (&c)[R]) const {
  long long o = 0;
  for (int r = 0; r < R; r++) o += c[r] * stride.step[r];
  return data[o];
} };
struct Problem { Tensor<3, const float> a, b; Tensor<3, float> c; float alpha, beta; };
K cute_like(const __grid_constant__ Problem p) {
  for (int i = threadIdx.x; i < p.c.shape.extent[0] * p.c.shape.extent[1] * p.c.shape.extent[2]; i += blockDim.x) {
    int c[3] = {i / (p.c.shape.extent[1] * p.c.shape.extent[2]), i / p.c.shape.extent[2] % p.c.shape.extent[1], i % p.c.shape.extent[2]};
    p.c.at(c) = p.alpha * p.a.at(c) + p.beta * p.b.at(c);
  }
}
struct alignas(16) Wide { float4 v; int4 w; };
NOINLINE Wide turned(Wide x, int by) {
  float f[4] = {x.v.x, x.v.y, x.v.z, x.v.w};
  Wide r; r.v = make_float4(f[by & 3], f[by + 1 & 3], f[by + 2 & 3], f[by + 3 & 3]);
  r.w = make_int4(x.w.w, x.w.z, x.w.y, x.w.x + by);
  return r;
}
K structs_returned(Wide *out, const Wide *in, Wide bias) {
  int i = threadIdx.x;
  Wide x = turned(in[i], i);
  x.v.x += bias.v.w; x.w.y ^= bias.w.x;
  out[i] = x;
}
struct Bytes { char c; };
K small_arguments(int *out, char a, unsigned char b, short c, bool d, Bytes e, __half h, long long q, double f, char4 v) {
  int i = threadIdx.x;
  out[i] = a + b * 2 + c * 3 + d * 5 + e.c * 7 + (int)__half2float(h) + (int)(q >> 33) + (int)f + v.x - v.y + v.z * v.w + i;
}

K prints(const int *x, const char *names) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i == 0) printf("hello %d%%\n", 100);
  if (i < 3) printf("[%d] %5d|%-5d|%05d|%+d|%x|%#X|%o|%u|%c\n", i, x[i], x[i], x[i], x[i], x[i], x[i], x[i], (u32)x[i], 'a' + i);
  if (i == 3) printf("%f %.3f %10.2e %g %G %a\n", 3.14159, -2.5, 12345.678, 1e-7, 1e20, 1.5);
  if (i == 4) printf("%s and %10s, %.2s.\n", "text", names, names);
  if (i == 5) printf("%lld %llu %lx %hd %hhd\n", -5ll, ~0ull, 255ul, (short)-3, (char)-4);
  if (i == 6) printf("%*d|%.*f|%p\n", 6, 42, 2, 1.005, (void *)0);
}
K prints_in_order(int n) {
  for (int i = 0; i < n; i++) if (threadIdx.x == 0) printf("block %d turn %d\n", blockIdx.x, i);
}

K asserts(int *out, const int *x) {
  assert(x[threadIdx.x] < 1000);
  out[threadIdx.x] = x[threadIdx.x] * 2;
}

struct Node { int value; Node *next; };
K heap_list(int *out, int n) {
  Node *head = nullptr;
  for (int i = 0; i < n + (int)threadIdx.x; i++) {
    Node *x = (Node *)malloc(sizeof(Node));
    x->value = i * i; x->next = head; head = x;
  }
  int sum = 0;
  while (head) { sum = sum * 3 + head->value; Node *x = head; head = head->next; free(x); }
  out[threadIdx.x] = sum;
}
K heap_shared(int *out, const int *x) {
  __shared__ int *block;
  if (threadIdx.x == 0) block = new int[blockDim.x];
  __syncthreads();
  block[threadIdx.x] = x[blockIdx.x * blockDim.x + threadIdx.x];
  __syncthreads();
  out[blockIdx.x * blockDim.x + threadIdx.x] = block[blockDim.x - 1 - threadIdx.x];
  __syncthreads();
  if (threadIdx.x == 0) delete[] block;
}
K on_the_stack(int *out, int n) {
  int count = n + threadIdx.x % 4;
  int *x = (int *)alloca(count * sizeof(int));
  for (int i = 0; i < count; i++) x[i] = i * (threadIdx.x + 1);
  int sum = 0;
  for (int i = 0; i < count; i++) sum += x[(i * 7 + 3) % count] * (i + 1);
  out[threadIdx.x] = sum;
}

__device__ int table[6] = {3, 1, 4, 1, 5, 9};
__device__ const char *names[3] = {"zero", "one", "twenty-two"};
struct Entry { const int *at; int n; };
__device__ Entry entries[2] = {{table + 1, 3}, {table, 6}};
__constant__ short squares[8] = {0, 1, 4, 9, 16, 25, 36, 49};
__device__ int length(const char *s) { int n = 0; while (s[n]) n++; return n; }
K tables(int *out) {
  int i = threadIdx.x;
  const Entry &e = entries[i & 1];
  out[i] = e.at[i % e.n] * 10000 + length(names[i % 3]) * 100 + squares[i & 7] + names[i % 3][i % 3];
}

__device__ int counter_of_calls = 5;
K module_variables(int *out) {
  int i = threadIdx.x;
  atomicAdd(&counter_of_calls, i);
  __syncthreads();
  out[i] = counter_of_calls;
}

// Pointers that may be to shared, local, global or constant memory.
NOINLINE int through(const int *p, int i) { return p[i] * 2; }
K generic_pointers(int *out, const int *x) {
  __shared__ int s[32];
  int local[4], i = threadIdx.x;
  s[i] = x[i] + 1;
  for (int j = 0; j < 4; j++) local[j] = x[(i + j) % 32];
  __syncthreads();
  const int *p = i % 4 == 0 ? s : i % 4 == 1 ? local : i % 4 == 2 ? x : table;
  int kind = __isShared(p) | __isLocal(p) << 1 | __isGlobal(p) << 2;
  out[i] = through(p, i & 3) + kind * 100000;
}

union Pun { float f; u32 u; unsigned char b[4]; short s[2]; };
struct Packed { u32 a : 5; int b : 11; u32 c : 16; };
K unions_and_bits(u32 *out, const float *x) {
  int i = threadIdx.x;
  Pun p; p.f = x[i]; p.b[i & 3] ^= 0x5A; p.s[i >> 2 & 1] += 77;
  Packed q; q.a = i; q.b = -i * 9; q.c = p.u >> 9;
  u32 word; memcpy(&word, &q, 4);
  out[2 * i] = p.u; out[2 * i + 1] = word + q.b;
}

K local_arrays(int *out, const int *x, int n) {
  int count[16] = {0}, i = blockIdx.x * blockDim.x + threadIdx.x;
  for (int j = 0; j < n; j++) count[(x[j] + i) & 15]++;
  int best = 0;
  for (int j = 1; j < 16; j++) if (count[j] > count[best]) best = j;
  out[i] = best * 1000 + count[best];
}

// A jump into the middle of a loop.
K tangled(int *out, const int *x) {
  int i = threadIdx.x, v = x[i], n = 0;
  if (v & 1) goto middle;
top:
  v = v * 3 + 1; n += 2;
  if (n > 40) goto end;
middle:
  v >>= 1; n++;
  if (v % 5 == 3) goto top;
  if (v > 10) { if (v & 2) goto middle; goto top; }
end:
  out[i] = v * 100 + n;
}

K itoa_and_sort(char *text, const int *x) {
  int i = threadIdx.x, v = x[i], n = 0;
  char digits[12], *o = text + i * 12;
  u32 u = v < 0 ? -(u32)v : v;
  do { digits[n++] = '0' + u % 10; u /= 10; } while (u);
  if (v < 0) digits[n++] = '-';
  for (int j = 0; j < 12; j++) o[j] = j < n ? digits[n - 1 - j] : 0;
}

K clocks(u64 *out) {
  long long a = clock64();
  u32 b = clock(), smid, nsm, warp, nwarp; u64 time, grid;
  asm volatile("mov.u32 %0, %%smid;" : "=r"(smid));
  asm volatile("mov.u32 %0, %%nsmid;" : "=r"(nsm));
  asm volatile("mov.u32 %0, %%warpid;" : "=r"(warp));
  asm volatile("mov.u32 %0, %%nwarpid;" : "=r"(nwarp));
  asm volatile("mov.u64 %0, %%gridid;" : "=l"(grid));
  asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(time));
  __nanosleep(100);
  u64 *o = out + threadIdx.x * 4;
  o[0] = clock64() >= a; o[1] = smid < nsm; o[2] = warp < nwarp; o[3] = (time > 0) + (b + 1 > 0);
}

K carved_memory(float *out, int n) {
  extern __shared__ __align__(16) unsigned char bytes[];
  double *d = (double *)bytes; float *f = (float *)(d + n); short *s = (short *)(f + n); char *c = (char *)(s + n);
  int i = threadIdx.x;
  if (i < n) { d[i] = i * 0.5; f[i] = i * 0.25f; s[i] = i * 3; c[i] = i; }
  __syncthreads();
  if (i < n) { int j = n - 1 - i; out[i] = (float)d[j] + f[j] + s[j] + c[j]; }
}

K cache_hints(int *out, const int *x, const int4 *y) {
  int i = threadIdx.x;
  int4 q = __ldg(&y[i]);
  int v = __ldg(&x[i]) + __ldcg(&x[i]) * 2 + __ldca(&x[i]) * 3 + __ldcs(&x[i]) * 4 + __ldlu(&x[i]) * 5 + __ldcv(&x[i]) * 6;
  __stcs(&out[i], v); __stwb(&out[i + 32], q.x + q.w); __stcg(&out[i + 64], q.y); __stwt(&out[i + 96], q.z);
}
