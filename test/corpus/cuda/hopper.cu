// from sm_90
// Clusters, copies in bulk, barriers that count bytes, and what else came with sm_90.
#include <cooperative_groups.h>
#include <cooperative_groups/reduce.h>
#include <cuda/atomic>
#include <cuda/barrier>
#include <cuda/ptx>
#include <cuda_fp16.h>
namespace cg = cooperative_groups;
namespace ptx = cuda::ptx;
typedef unsigned int u32;
typedef unsigned long long u64;
#define K extern "C" __global__ void
#define CLUSTER(x) extern "C" __global__ void __cluster_dims__(x, 1, 1)

CLUSTER(4) cluster_ring(int *out, const int *x) {
  __shared__ int s[32];
  auto cluster = cg::this_cluster();
  int r = cluster.block_rank(), n = cluster.num_blocks(), t = threadIdx.x;
  s[t] = x[blockIdx.x * 32 + t];
  cluster.sync();
  int *next = cluster.map_shared_rank(s, (r + 1) % n);
  int sum = s[t] * 2 + next[31 - t];
  cluster.sync();
  atomicAdd(&next[t], r + 1);
  cluster.sync();
  out[blockIdx.x * 32 + t] = sum * 100 + s[t] - x[blockIdx.x * 32 + t];
}
CLUSTER(2) cluster_queries(u32 *out) {
  auto c = cg::this_cluster();
  u32 *o = out + (blockIdx.x * blockDim.x + threadIdx.x) * 8, r;
  o[0] = c.thread_rank(); o[1] = c.block_rank(); o[2] = c.num_threads(); o[3] = c.num_blocks();
  o[4] = c.dim_blocks().x; o[5] = c.block_index().x;
  asm("mov.u32 %0, %%clusterid.x;" : "=r"(r)); o[6] = r;
  asm("mov.u32 %0, %%nclusterid.x;" : "=r"(r)); o[7] = r;
}
CLUSTER(4) cluster_scan(int *out, const int *x) {
  __shared__ int total;
  auto c = cg::this_cluster();
  int v = x[blockIdx.x * 32 + threadIdx.x], s = v;
  for (int d = 1; d < 32; d *= 2) { int o = __shfl_up_sync(~0u, s, d); if (threadIdx.x >= d) s += o; }
  if (threadIdx.x == 31) total = s;
  c.sync();
  for (int b = 0; b < c.block_rank(); b++) s += *c.map_shared_rank(&total, b);
  c.sync();
  out[blockIdx.x * 32 + threadIdx.x] = s;
}
// One thread fetches a row in bulk and all wait for its bytes; the result goes back the same way.
K bulk_copies(int *out, const int *x, int turns) {
  __shared__ alignas(128) int in[2][256], back[256];
  __shared__ alignas(8) uint64_t bar[2];
  int t = threadIdx.x;
  if (t == 0) { ptx::mbarrier_init(&bar[0], 1); ptx::mbarrier_init(&bar[1], 1); ptx::fence_mbarrier_init(ptx::sem_release, ptx::scope_cluster); }
  __syncthreads();
  for (int i = 0; i < turns; i++) {
    int s = i & 1;
    if (t == 0) {
      ptx::mbarrier_arrive_expect_tx(ptx::sem_release, ptx::scope_cta, ptx::space_shared, &bar[s], 1024);
      ptx::cp_async_bulk(ptx::space_cluster, ptx::space_global, in[s], x + i * 256, 1024, &bar[s]);
    }
    while (!ptx::mbarrier_try_wait_parity(&bar[s], i / 2 & 1)) { }
    if (t == 0) ptx::cp_async_bulk_wait_group_read(ptx::n32_t<0>{});
    __syncthreads();
    for (int j = t; j < 256; j += 64) back[j] = in[s][255 - j] * (i + 1);
    ptx::fence_proxy_async(ptx::space_shared);
    __syncthreads();
    if (t == 0) { ptx::cp_async_bulk(ptx::space_global, ptx::space_shared, out + i * 256, back, 1024); ptx::cp_async_bulk_commit_group(); }
  }
  if (t == 0) ptx::cp_async_bulk_wait_group(ptx::n32_t<0>{});
}
K bulk_reduction(int *sum, float *low, const int *x) {
  __shared__ alignas(16) int s[64]; __shared__ alignas(16) __half h[64];
  int t = threadIdx.x;
  s[t] = x[blockIdx.x * 64 + t]; h[t] = __int2half_rn(t + blockIdx.x);
  ptx::fence_proxy_async(ptx::space_shared);
  __syncthreads();
  if (t == 0) {
    ptx::cp_reduce_async_bulk(ptx::space_global, ptx::space_shared, ptx::op_add, sum, s, 256);
    ptx::cp_reduce_async_bulk(ptx::space_global, ptx::space_shared, ptx::op_max, (int *)low, s, 256);
    ptx::cp_async_bulk_commit_group();
    ptx::cp_async_bulk_wait_group(ptx::n32_t<0>{});
  }
}
// A block's copy into the shared memory of its neighbour, which waits on its own barrier.
CLUSTER(2) bulk_to_neighbour(int *out, const int *x) {
  __shared__ alignas(128) int mine[64], theirs[64];
  __shared__ alignas(8) uint64_t bar;
  auto c = cg::this_cluster();
  int t = threadIdx.x;
  if (t == 0) { ptx::mbarrier_init(&bar, 1); ptx::fence_mbarrier_init(ptx::sem_release, ptx::scope_cluster); }
  mine[t] = x[blockIdx.x * 64 + t] * 3;
  ptx::fence_proxy_async(ptx::space_shared);
  c.sync();
  if (t == 0) {
    ptx::mbarrier_arrive_expect_tx(ptx::sem_release, ptx::scope_cta, ptx::space_shared, &bar, 256);
    u32 to = c.block_rank() ^ 1;
    ptx::cp_async_bulk(ptx::space_cluster, ptx::space_shared, c.map_shared_rank(theirs, to), mine, 256, c.map_shared_rank(&bar, to));
  }
  while (!ptx::mbarrier_try_wait_parity(&bar, 0)) { }
  out[blockIdx.x * 64 + t] = theirs[63 - t];
  c.sync();
}
__device__ bool elect(u32 mask) {
  u32 r;
  asm volatile("{ .reg .pred p; elect.sync _|p, %1; selp.u32 %0, 1, 0, p; }" : "=r"(r) : "r"(mask));
  return r;
}
K elected(int *out) {
  bool one = elect(~0u);
  int n = __popc(__ballot_sync(~0u, one));
  u32 half = threadIdx.x % 32 < 16 ? 0xFFFFu : 0xFFFF0000u;
  bool two = elect(half);
  out[blockIdx.x * blockDim.x + threadIdx.x] = n * 10 + __popc(__ballot_sync(half, two));
}
// A producer warpgroup with few registers, a consumer with many.
extern "C" __global__ void __launch_bounds__(256) producer_consumer(int *out, const int *x, int turns) {
  __shared__ int slot[128];
  __shared__ alignas(8) uint64_t full, empty;
  int t = threadIdx.x;
  if (t == 0) { ptx::mbarrier_init(&full, 128); ptx::mbarrier_init(&empty, 128); }
  __syncthreads();
  if (t < 128) {
    asm volatile("setmaxnreg.dec.sync.aligned.u32 40;");
    for (int i = 0; i < turns; i++) {
      if (i) while (!ptx::mbarrier_try_wait_parity(&empty, (i - 1) & 1)) { }
      slot[t] = x[i * 128 + t];
      ptx::mbarrier_arrive(&full);
    }
  } else {
    asm volatile("setmaxnreg.inc.sync.aligned.u32 232;");
    int sum = 0;
    for (int i = 0; i < turns; i++) {
      while (!ptx::mbarrier_try_wait_parity(&full, i & 1)) { }
      sum = sum * 7 + slot[(t * 5 + i) & 127];
      ptx::mbarrier_arrive(&empty);
    }
    out[t - 128] = sum;
  }
}
struct alignas(16) Pair { u64 a, b; };
K wide_swap(Pair *at, const u64 *x, int n) {
  for (int i = threadIdx.x; i < n; i += blockDim.x) {
    Pair old = {0, 0}, now;
    do { now = {old.a + x[i], old.b ^ x[i]}; Pair was = atomicCAS(at, old, now); if (was.a == old.a && was.b == old.b) break; old = was; } while (true);
  }
}
K vector_atomics(float4 *f, float2 *g, const float *x) {
  float v = x[threadIdx.x];
  atomicAdd(f, make_float4(v, 1, v * 2, -v));
  atomicAdd(g, make_float2(v, 3));
}
K stored_matrices(__half *out, const u32 *x) {
  __shared__ alignas(16) __half s[16][16];
  int t = threadIdx.x;
  u32 at = (u32)__cvta_generic_to_shared(&s[t % 16][t / 16 * 8]);
  asm volatile("stmatrix.sync.aligned.m8n8.x4.shared.b16 [%0], {%1,%2,%3,%4};" ::"r"(at), "r"(x[t * 4]), "r"(x[t * 4 + 1]), "r"(x[t * 4 + 2]), "r"(x[t * 4 + 3]) : "memory");
  __syncwarp();
  for (int i = t; i < 256; i += 32) out[i] = s[i / 16][i % 16];
}
K dependent(int *out, const int *x) {
  asm volatile("griddepcontrol.wait;" ::: "memory");
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  out[i] = x[i] + 1;
  asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
  __threadfence();
  asm volatile("fence.proxy.async;" ::: "memory");
}
