// only sm_90a
// Products of warpgroups, tensor copies and clusters: whole matrix kernels, and their parts one by one.
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda/ptx>
namespace ptx = cuda::ptx;
typedef unsigned int u32;
typedef unsigned long long u64;
#define K extern "C" __global__ void
#define CLUSTER(x) extern "C" __global__ void __cluster_dims__(x, 1, 1)
#define MAP const __grid_constant__ Map
struct alignas(64) Map { char bytes[128]; };

template <class T> __device__ u32 at(const T *p) { return (u32)__cvta_generic_to_shared(p); }
// A matrix of 128-byte swizzles; in a cluster the address has the rank of the CTA above.
__device__ u64 descriptor(const void *p, u32 leading = 16) {
  return (u64)(at(p) & 0x3FFFF) >> 4 | (u64)(leading >> 4) << 16 | 64ull << 32 | 1ull << 62;
}
__device__ void init(u64 *bar, u32 n) { asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(at(bar)), "r"(n) : "memory"); }
__device__ void expect(u64 *bar, u32 bytes) {
  asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(at(bar)), "r"(bytes) : "memory");
}
__device__ void arrive(u64 *bar) { asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(at(bar)) : "memory"); }
__device__ void arrive(u64 *bar, u32 rank) {
  asm volatile("{ .reg .b32 there; mapa.shared::cluster.u32 there, %0, %1;\n"
               "mbarrier.arrive.release.cluster.shared::cluster.b64 _, [there]; }" ::"r"(at(bar)), "r"(rank) : "memory");
}
__device__ void wait(u64 *bar, u32 parity) {
  asm volatile("{ .reg .pred p;\nW: mbarrier.try_wait.parity.shared::cta.b64 p, [%0], %1;\n@!p bra W; }" ::"r"(at(bar)),
               "r"(parity) : "memory");
}
__device__ void load(void *to, const Map *map, int x, int y, u64 *bar) {
  asm volatile("cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes [%0], [%1, {%2, %3}], [%4];" ::"r"(
                   at(to)), "l"(map), "r"(x), "r"(y), "r"(at(bar)) : "memory");
}
__device__ void load_all(void *to, const Map *map, int x, int y, u64 *bar, unsigned short mask) {
  asm volatile("cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes.multicast::cluster [%0], "
               "[%1, {%2, %3}], [%4], %5;" ::"r"(at(to)), "l"(map), "r"(x), "r"(y), "r"(at(bar)), "h"(mask) : "memory");
}
__device__ void store(const Map *map, int x, int y, const void *from) {
  asm volatile("cp.async.bulk.tensor.2d.global.shared::cta.tile.bulk_group [%0, {%1, %2}], [%3];" ::"l"(map), "r"(x), "r"(y),
               "r"(at(from)) : "memory");
}
__device__ void fence() { asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); }
__device__ void commit() { asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory"); }
template <int N> __device__ void wait_group() { asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(N) : "memory"); }

#define D32(d) "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]), "+f"(d[4]), "+f"(d[5]), "+f"(d[6]), "+f"(d[7]), "+f"(d[8]), \
  "+f"(d[9]), "+f"(d[10]), "+f"(d[11]), "+f"(d[12]), "+f"(d[13]), "+f"(d[14]), "+f"(d[15]), "+f"(d[16]), "+f"(d[17]), \
  "+f"(d[18]), "+f"(d[19]), "+f"(d[20]), "+f"(d[21]), "+f"(d[22]), "+f"(d[23]), "+f"(d[24]), "+f"(d[25]), "+f"(d[26]), \
  "+f"(d[27]), "+f"(d[28]), "+f"(d[29]), "+f"(d[30]), "+f"(d[31])
#define R32 "{%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, %16, %17, %18, %19, %20, %21, %22, " \
  "%23, %24, %25, %26, %27, %28, %29, %30, %31}"
__device__ void multiply(float *d, u64 a, u64 b, int add) {
  asm volatile("{ .reg .pred p; setp.ne.b32 p, %34, 0;\n"
               "wgmma.mma_async.sync.aligned.m64n64k16.f32.bf16.bf16 " R32 ", %32, %33, p, 1, 1, 0, 0; }"
               : D32(d) : "l"(a), "l"(b), "r"(add));
}
__device__ void multiply(float *d, const u32 *a, u64 b, int add) {  // fp8, A in registers
  asm volatile("{ .reg .pred p; setp.ne.b32 p, %37, 0;\n"
               "wgmma.mma_async.sync.aligned.m64n64k32.f32.e4m3.e4m3 " R32 ", {%32, %33, %34, %35}, %36, p, 1, 1; }"
               : D32(d) : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"(add));
}
__device__ void multiply_sparse(float *d, u64 a, u64 b, u32 e, int add) {
  asm volatile("{ .reg .pred p; setp.ne.b32 p, %35, 0;\n"
               "wgmma.mma_async.sp.sync.aligned.m64n64k32.f32.f16.f16 " R32 ", %32, %33, %34, 0, p, 1, 1, 0, 0; }"
               : D32(d) : "l"(a), "l"(b), "r"(e), "r"(add));
}
// Element i of a thread's 32 of 64 x 64.
__device__ int row(int i) { return threadIdx.x % 128 / 32 * 16 + threadIdx.x % 32 / 4 + i / 2 % 2 * 8; }
__device__ int column(int i) { return i / 4 * 8 + threadIdx.x % 4 * 2 + i % 2; }

// D = A B^T in bf16, rows and columns that are no multiples of a tile: a warp that copies, a warpgroup that multiplies.
K wgmma_matmul(MAP a, MAP b, float *d, int m, int n, int k) {
  extern __shared__ char raw[];
  char *s = raw + (1024 - at(raw) % 1024) % 1024;
  const int STAGES = 2;
  __nv_bfloat16 *as = (__nv_bfloat16 *)s, *bs = as + STAGES * 64 * 64;
  __shared__ u64 full[STAGES], empty[STAGES];
  int steps = (k + 63) / 64, t = threadIdx.x;
  if (t == 0) {
    for (int i = 0; i < STAGES; i++) init(full + i, 1), init(empty + i, 128);
    ptx::fence_mbarrier_init(ptx::sem_release, ptx::scope_cluster);
  }
  __syncthreads();
  if (t >= 128) {
    if (t == 128)
      for (int i = 0; i < steps; i++) {
        int at = i % STAGES;
        wait(empty + at, i / STAGES % 2 ^ 1);
        expect(full + at, 2 * 64 * 64 * 2);
        load(as + at * 4096, &a, i * 64, blockIdx.y * 64, full + at);
        load(bs + at * 4096, &b, i * 64, blockIdx.x * 64, full + at);
      }
    return;
  }
  float sum[32];
  for (int i = 0; i < steps; i++) {
    int at = i % STAGES;
    wait(full + at, i / STAGES % 2);
    fence();
    for (int j = 0; j < 4; j++) multiply(sum, descriptor(as + at * 4096) + 2 * j, descriptor(bs + at * 4096) + 2 * j, i + j);
    commit();
    wait_group<0>();
    arrive(empty + at);
  }
  for (int i = 0; i < 32; i++) {
    int r = blockIdx.y * 64 + row(i), c = blockIdx.x * 64 + column(i);
    if (r < m && c < n) d[r * n + c] = sum[i];
  }
}
// Two CTAs share B, each copies half of it to both; D leaves by a tensor store.
CLUSTER(2) wgmma_cluster(MAP a, MAP b, MAP d, int steps) {
  extern __shared__ char raw[];
  char *s = raw + (1024 - at(raw) % 1024) % 1024;
  const int STAGES = 2;
  __nv_bfloat16 *as = (__nv_bfloat16 *)s, *bs = as + STAGES * 4096;
  float *ds = (float *)(bs + STAGES * 4096);
  __shared__ u64 full[STAGES], empty[STAGES];
  int t = threadIdx.x;
  u32 rank;
  asm("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
  if (t == 0) {
    for (int i = 0; i < STAGES; i++) init(full + i, 1), init(empty + i, 2);
    ptx::fence_mbarrier_init(ptx::sem_release, ptx::scope_cluster);
  }
  asm volatile("barrier.cluster.arrive.aligned; barrier.cluster.wait.aligned;" ::: "memory");
  if (t >= 128) {
    if (t == 128)
      for (int i = 0; i < steps; i++) {
        int at = i % STAGES;
        wait(empty + at, i / STAGES % 2 ^ 1);
        expect(full + at, 2 * 64 * 64 * 2);
        load(as + at * 4096, &a, i * 64, blockIdx.x * 64, full + at);
        load_all(bs + at * 4096 + rank * 2048, &b, i * 64, rank * 32, full + at, 3);
      }
  } else {
    float sum[32];
    for (int i = 0; i < steps; i++) {
      int at = i % STAGES;
      wait(full + at, i / STAGES % 2);
      fence();
      for (int j = 0; j < 4; j++) multiply(sum, descriptor(as + at * 4096) + 2 * j, descriptor(bs + at * 4096) + 2 * j, i + j);
      commit();
      wait_group<0>();
      asm volatile("bar.sync 1, 128;" ::: "memory");
      if (t < 2) arrive(empty + at, t);
    }
    for (int i = 0; i < 32; i++) ds[row(i) * 64 + column(i)] = sum[i];
    ptx::fence_proxy_async(ptx::space_shared);
    asm volatile("bar.sync 1, 128;" ::: "memory");
    if (t == 0) {
      store(&d, 0, blockIdx.x * 64, ds);
      ptx::cp_async_bulk_commit_group();
      ptx::cp_async_bulk_wait_group_read(ptx::n32_t<0>());
    }
  }
  __syncwarp();
  asm volatile("barrier.cluster.arrive.aligned; barrier.cluster.wait.aligned;" ::: "memory");
}
// A of 8-bit floats from global memory to registers.
K wgmma_registers(const unsigned char *a, MAP b, float *d) {
  __shared__ alignas(1024) unsigned char bs[64 * 128];
  __shared__ u64 full;
  int t = threadIdx.x;
  if (t == 0) { init(&full, 1); ptx::fence_mbarrier_init(ptx::sem_release, ptx::scope_cluster); }
  __syncthreads();
  if (t == 0) expect(&full, sizeof bs), load(bs, &b, 0, 0, &full);
  wait(&full, 0);
  float sum[32];
  u32 held[4][4];
  for (int j = 0; j < 4; j++)
    for (int i = 0; i < 4; i++)
      held[j][i] = *(const u32 *)(a + (t / 32 * 16 + t % 32 / 4 + i % 2 * 8) * 128 + j * 32 + i / 2 * 16 + t % 4 * 4);
  fence();
  for (int j = 0; j < 4; j++) multiply(sum, held[j], descriptor(bs) + 2 * j, j);
  commit();
  wait_group<0>();
  for (int i = 0; i < 32; i++) d[row(i) * 64 + column(i)] = sum[i];
}
// Half of A is stored; the metadata says which.
K wgmma_sparse(MAP a, const u32 *e, MAP b, float *d) {
  __shared__ alignas(1024) __half as[64 * 64], bs[64 * 128];
  __shared__ u64 full;
  int t = threadIdx.x;
  if (t == 0) { init(&full, 1); ptx::fence_mbarrier_init(ptx::sem_release, ptx::scope_cluster); }
  __syncthreads();
  if (t == 0) expect(&full, sizeof as + sizeof bs), load(as, &a, 0, 0, &full), load(bs, &b, 0, 0, &full), load(bs + 4096, &b, 64, 0, &full);
  wait(&full, 0);
  float sum[32];
  fence();
  // Words of the metadata are for 64 columns: threads of selector 0 have those of the first 32, of 1 the next.
  for (int j = 0; j < 4; j++) {
    u32 word = __shfl_sync(~0u, e[j / 2 * 128 + t], t % 32 / 4 * 4 + t % 2 + j % 2 * 2);
    multiply_sparse(sum, descriptor(as) + 2 * j, descriptor(bs + j / 2 * 4096) + 4 * (j % 2), word, j);
  }
  commit();
  wait_group<0>();
  for (int i = 0; i < 32; i++) d[row(i) * 64 + column(i)] = sum[i];
}
// Boxes over every edge, through shared memory to another place.
K tensor_shift(MAP from, MAP to, int dx, int dy) {
  __shared__ alignas(1024) float tile[16 * 32];
  __shared__ u64 full;
  if (threadIdx.x == 0) {
    init(&full, 1);
    ptx::fence_mbarrier_init(ptx::sem_release, ptx::scope_cluster);
    expect(&full, sizeof tile);
    load(tile, &from, blockIdx.x * 32 + dx, blockIdx.y * 16 + dy, &full);
    wait(&full, 0);
    store(&to, blockIdx.x * 32, blockIdx.y * 16, tile);
    ptx::cp_async_bulk_commit_group();
    ptx::cp_async_bulk_wait_group(ptx::n32_t<0>());
  }
}
