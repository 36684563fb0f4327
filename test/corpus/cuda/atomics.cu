// Atomics: hash tables, locks, lists, reductions, of 16 to 64 bits; and libcu++'s.
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda/atomic>
#include <cuda/barrier>
#include <cuda/semaphore>
#include <cuda/latch>
#include <cuda/std/cstdint>
typedef unsigned int u32;
typedef unsigned long long u64;
#define K extern "C" __global__ void

// Open addressing: keys are claimed with a compare and swap, values added up.
K hash_insert(u32 *keys, u32 *sums, const u32 *key, const u32 *value, int n, int size) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= n) return;
  u32 slot = key[i] * 2654435761u % size;
  while (true) {
    u32 was = atomicCAS(&keys[slot], ~0u, key[i]);
    if (was == ~0u || was == key[i]) { atomicAdd(&sums[slot], value[i]); return; }
    slot = (slot + 1) % size;
  }
}
K hash_lookup(u32 *found, const u32 *keys, const u32 *sums, const u32 *key, int n, int size) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= n) return;
  u32 slot = key[i] * 2654435761u % size;
  while (keys[slot] != key[i] && keys[slot] != ~0u) slot = (slot + 1) % size;
  found[i] = keys[slot] == key[i] ? sums[slot] : ~0u;
}

// Key and value in one word of 64 bits; the largest value stays.
K hash_pairs(u64 *table, const u32 *key, const u32 *value, int n, u32 mask) {
  for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x) {
    u64 mine = (u64)key[i] << 32 | value[i];
    u32 slot = (key[i] ^ key[i] >> 7) & mask;
    for (;;) {
      u64 was = atomicCAS(&table[slot], 0ull, mine);
      if (was == 0) break;
      if ((u32)(was >> 32) == key[i]) { atomicMax(&table[slot], mine); break; }
      slot = (slot + 1) & mask;
    }
  }
}

K atomics64(u64 *r, const u64 *x, int n) {
  for (int i = threadIdx.x; i < n; i += blockDim.x) {
    atomicAdd(&r[0], x[i]);
    atomicMin(&r[1], x[i]); atomicMax(&r[2], x[i]);
    atomicMin((long long *)&r[3], (long long)x[i]); atomicMax((long long *)&r[4], (long long)x[i]);
    atomicAnd(&r[5], x[i] | 0xFF00FFull); atomicOr(&r[6], x[i] & 0xF0F0F0F0F0F0F0ull); atomicXor(&r[7], x[i]);
  }
}

K wrapping_counters(u32 *r, u32 *up, u32 *down) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  up[i] = atomicInc(&r[0], 9);
  down[i] = atomicDec(&r[1], 12);
  atomicSub(&r[2], i);
  atomicExch(&r[3], 77);
}

K float_sums(float *f, double *d, __half2 *h, __nv_bfloat162 *b, __half *one, const float *x, int n) {
  __shared__ float s;
  if (threadIdx.x == 0) s = 0;
  __syncthreads();
  for (int i = threadIdx.x; i < n; i += blockDim.x) {
    atomicAdd(&s, x[i]);
    atomicAdd(d, (double)x[i] * 0.5);
    atomicAdd(h, __floats2half2_rn(x[i], 1.0f));
    atomicAdd(b, __floats2bfloat162_rn(1.0f, x[i] > 0 ? 1.0f : 0.0f));
    atomicAdd(one, __float2half(x[i] < 0 ? 1.0f : 0.5f));
  }
  __syncthreads();
  if (threadIdx.x == 0) atomicAdd(f, s);
}

__device__ float atomic_max_float(float *at, float v) {
  int *word = (int *)at, old = *word, was;
  do {
    was = old;
    if (__int_as_float(was) >= v) break;
    old = atomicCAS(word, was, __float_as_int(v));
  } while (was != old);
  return __int_as_float(old);
}
K float_maximum(float *top, const float *x, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) atomic_max_float(&top[i % 3], x[i]);
}

// A mutex that every thread takes: lanes of a warp must make progress one after the other.
K spin_lock(int *lock, int *sum, int *longest) {
  int v = threadIdx.x + 1;
  bool done = false;
  while (!done) {
    if (atomicCAS(lock, 0, 1) == 0) {
      __threadfence();
      *(volatile int *)sum = *(volatile int *)sum + v;
      if (*(volatile int *)longest < v) *(volatile int *)longest = v;
      __threadfence();
      atomicExch(lock, 0);
      done = true;
    }
  }
}
K spin_lock_held(int *lock, int *sum) {
  while (atomicCAS(lock, 0, 1) != 0) { }
  __threadfence();
  *(volatile int *)sum = *(volatile int *)sum * 2 % 1000003 + 1;
  __threadfence();
  atomicExch(lock, 0);
}
K ticket_lock(u32 *ticket, u32 *serving, u32 *order) {
  if (threadIdx.x % 32 == 0) {
    u32 mine = atomicAdd(ticket, 1);
    while (atomicAdd(serving, 0) != mine) __nanosleep(20);
    __threadfence();
    u32 n = order[0];
    order[0] = n + 1;
    order[1 + n] = mine;
    __threadfence();
    atomicAdd(serving, 1);
  }
}

// A stack of nodes whose head is swapped; then counted by one thread.
K push_list(int *head, int *next, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= n) return;
  int old = *(volatile int *)head;
  while (true) {
    next[i] = old;
    __threadfence();
    int was = atomicCAS(head, old, i);
    if (was == old) return;
    old = was;
  }
}

// Connected components by hooking and pointer jumping.
K components(int *parent, const int *from, const int *to, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= n) return;
  int a = from[i], b = to[i];
  while (true) {
    while (a != parent[a]) a = *(volatile int *)&parent[a];
    while (b != parent[b]) b = *(volatile int *)&parent[b];
    if (a == b) return;
    if (a < b) { int t = a; a = b; b = t; }
    if (atomicCAS(&parent[a], a, b) == a) return;
  }
}

K bfs_step(int *level, int *next, int *size, const int *frontier, int count, const int *start, const int *edge, int depth) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= count) return;
  int v = frontier[i];
  for (int e = start[v]; e < start[v + 1]; e++)
    if (atomicCAS(&level[edge[e]], -1, depth) == -1) next[atomicAdd(size, 1)] = edge[e];
}

K atomics16(unsigned short *words, const unsigned short *x, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= n) return;
  unsigned short *at = &words[x[i] % 5], old = *(volatile unsigned short *)at, was;
  do {
    was = old;
    old = atomicCAS(at, was, (unsigned short)(was + x[i]));
  } while (old != was);
}

K scopes(u32 *r, const u32 *x, int n) {
  __shared__ u32 s[2];
  if (threadIdx.x < 2) s[threadIdx.x] = 0;
  __syncthreads();
  for (int i = threadIdx.x; i < n; i += blockDim.x) {
    atomicAdd_block(&s[0], x[i]);
    atomicXor_block(&s[1], x[i]);
    atomicAdd_system(&r[0], x[i]);
    atomicMax_system(&r[1], x[i]);
  }
  __syncthreads();
  if (threadIdx.x == 0) { atomicAdd(&r[2], s[0]); atomicXor(&r[3], s[1]); }
}

K cuda_atomic_ref(int *r, u64 *big, float *f, const int *x, int n) {
  cuda::atomic_ref<int, cuda::thread_scope_device> sum(r[0]), low(r[1]), bits(r[2]);
  cuda::atomic_ref<u64, cuda::thread_scope_device> wide(*big);
  cuda::atomic_ref<float, cuda::thread_scope_device> real(*f);
  for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x) {
    sum.fetch_add(x[i], cuda::std::memory_order_relaxed);
    low.fetch_min(x[i], cuda::std::memory_order_acq_rel);
    bits.fetch_xor(x[i]);
    wide.fetch_add((u64)(x[i] + 5000) << 20, cuda::std::memory_order_release);
    real.fetch_add((float)x[i], cuda::std::memory_order_relaxed);
    int seen = r[3];
    cuda::atomic_ref<int, cuda::thread_scope_block> top(r[3]);
    while (seen < x[i] && !top.compare_exchange_weak(seen, x[i], cuda::std::memory_order_seq_cst)) { }
  }
}

// A value handed over with release and acquire.
K message(int *out, int *data, int *flag) {
  cuda::atomic_ref<int, cuda::thread_scope_device> ready(*flag);
  if (blockIdx.x == 0) {
    data[threadIdx.x] = threadIdx.x * 11 + 3;
    __syncthreads();
    if (threadIdx.x == 0) ready.store(1, cuda::std::memory_order_release);
  } else {
    if (threadIdx.x == 0) while (ready.load(cuda::std::memory_order_acquire) == 0) { }
    __syncthreads();
    out[threadIdx.x] = data[blockDim.x - 1 - threadIdx.x];
  }
}

K cuda_barrier(int *out, const int *x) {
  __shared__ cuda::barrier<cuda::thread_scope_block> bar;
  __shared__ int s[64];
  if (threadIdx.x == 0) init(&bar, blockDim.x);
  __syncthreads();
  int sum = 0;
  for (int turn = 0; turn < 4; turn++) {
    s[threadIdx.x] = x[threadIdx.x] + turn;
    auto token = bar.arrive();
    sum += turn;
    bar.wait(cuda::std::move(token));
    sum += s[(threadIdx.x * 7 + turn) % 64];
    bar.arrive_and_wait();
  }
  out[threadIdx.x] = sum;
}

K semaphore_and_latch(int *out, int *inside, int *most) {
  __shared__ cuda::counting_semaphore<cuda::thread_scope_block, 3> places;
  using Latch = cuda::latch<cuda::thread_scope_block>;
  __shared__ alignas(Latch) unsigned char bytes[sizeof(Latch)];
  Latch &all = *reinterpret_cast<Latch *>(bytes);
  if (threadIdx.x == 0) {
    new (&places) cuda::counting_semaphore<cuda::thread_scope_block, 3>(3);
    new (&all) Latch(blockDim.x);
  }
  __syncthreads();
  places.acquire();
  atomicMax(most, atomicAdd(inside, 1) + 1);
  atomicSub(inside, 1);
  places.release();
  all.arrive_and_wait();
  out[threadIdx.x] = atomicAdd(inside, 0) + *(volatile int *)most;
}
