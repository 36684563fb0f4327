// Cooperative groups: tiles, reductions, scans, partitions, copies.
#define _CG_ABI_EXPERIMENTAL
#include <cooperative_groups.h>
#include <cooperative_groups/memcpy_async.h>
#include <cooperative_groups/reduce.h>
#include <cooperative_groups/scan.h>
namespace cg = cooperative_groups;
typedef unsigned int u32;
#define K extern "C" __global__ void

template <int N> __device__ int one_tile(int v) {
  auto t = cg::tiled_partition<N>(cg::this_thread_block());
  return cg::reduce(t, v, cg::plus<int>()) + 1000 * cg::reduce(t, v, cg::greater<int>()) +
         (cg::reduce(t, v, cg::bit_xor<int>()) << 20);
}
K tile_reduce(int *out, const int *x) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  int *o = out + i * 6;
  o[0] = one_tile<1>(x[i]);
  o[1] = one_tile<2>(x[i]);
  o[2] = one_tile<4>(x[i]);
  o[3] = one_tile<8>(x[i]);
  o[4] = one_tile<16>(x[i]);
  o[5] = one_tile<32>(x[i]);
}

K tile_reduce_float(float *out, double *wide, const float *x) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  auto t = cg::tiled_partition<8>(cg::this_thread_block());
  out[i] = cg::reduce(t, x[i], cg::plus<float>()) + cg::reduce(t, x[i], cg::less<float>());
  wide[i] = cg::reduce(t, (double)x[i], [](double a, double b) { return a > b ? a : b; });
}

K labeled_sums(int *out, int *size, const int *label, const int *x) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  auto warp = cg::tiled_partition<32>(cg::this_thread_block());
  auto mine = cg::labeled_partition(warp, label[i]);
  out[i] = cg::reduce(mine, x[i], cg::plus<int>()) * 2 + (mine.thread_rank() == 0);
  auto half = cg::binary_partition(warp, x[i] > 0);
  size[i] = half.size() * 100 + half.thread_rank();
}

// Lanes of a branch take consecutive places with one atomic.
__device__ int next_place(int *counter) {
  auto g = cg::coalesced_threads();
  int base;
  if (g.thread_rank() == 0) base = atomicAdd(counter, (int)g.size());
  return g.shfl(base, 0) + g.thread_rank();
}
K filter_positive(int *out, int *counter, const int *x, int n) {
  for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x)
    if (x[i] > 0) out[next_place(counter)] = x[i];
}

K tile_scans(int *in, int *ex, int *top, const int *x) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  auto t = cg::tiled_partition<16>(cg::this_thread_block());
  in[i] = cg::inclusive_scan(t, x[i]);
  ex[i] = cg::exclusive_scan(t, x[i], cg::plus<int>());
  top[i] = cg::inclusive_scan(t, x[i], cg::greater<int>());
}

// A tile of several warps, with memory of its own.
K wide_tile(int *out, const int *x) {
  __shared__ cg::block_tile_memory<256> memory;
  auto block = cg::this_thread_block(memory);
  auto t = cg::tiled_partition<64>(block);
  int i = block.group_index().x * block.size() + block.thread_rank();
  int sum = cg::reduce(t, x[i], cg::plus<int>());
  t.sync();
  out[i] = sum * 4 + t.meta_group_rank();
}

// A copy that runs beside the threads, waited for by the block.
K staged_copy(float *out, const float *x, int n) {
  extern __shared__ float stage[];
  auto block = cg::this_thread_block();
  float sum = 0;
  for (int at = 0; at < n; at += 256) {
    int count = min(256, n - at);
    cg::memcpy_async(block, stage, x + at, sizeof(float) * count);
    cg::wait(block);
    for (int j = block.thread_rank(); j < count; j += block.size()) sum += stage[count - 1 - j];
    block.sync();
  }
  out[block.thread_rank()] = sum;
}

K tile_talk(int *out, const int *x) {
  auto block = cg::this_thread_block();
  auto t = cg::tiled_partition<8>(block);
  int i = blockIdx.x * block.size() + block.thread_rank(), v = x[i];
  int a = t.shfl(v, 3), b = t.shfl_up(v, 2), c = t.shfl_down(v, 1), d = t.shfl_xor(v, 5);
  u32 m = t.match_any(v % 3), any = t.any(v == 0), all = t.all(v < 90), ballot = t.ballot(v & 1);
  int r = cg::invoke_one_broadcast(t, [&] { return t.meta_group_rank() * 17; });
  int *o = out + i * 8;
  o[0] = a; o[1] = b; o[2] = c; o[3] = d; o[4] = m; o[5] = any * 2 + all; o[6] = ballot; o[7] = r;
}

K dims_and_ranks(u32 *out) {
  auto block = cg::this_thread_block();
  auto grid = cg::this_grid();
  u32 *o = out + grid.thread_rank() * 6;
  dim3 t = block.thread_index(), b = block.group_index();
  o[0] = block.thread_rank(); o[1] = grid.block_rank(); o[2] = t.x | t.y << 8 | t.z << 16;
  o[3] = b.x | b.y << 8 | b.z << 16; o[4] = grid.num_blocks(); o[5] = block.num_threads();
}

// The whole grid meets twice (a cooperative launch).
K grid_meets(int *out, int *x) {
  auto grid = cg::this_grid();
  int i = grid.thread_rank(), n = grid.size();
  x[i] = x[i] * 3;
  grid.sync();
  out[i] = x[n - 1 - i] + x[(i + 1) % n];
  grid.sync();
  x[i] = out[i];
}

// Each tile of four takes its turn; the threads of one tile meet in a branch.
K turns_of_tiles(int *out, const int *x) {
  __shared__ int order[64];
  __shared__ int next;
  auto t = cg::tiled_partition<4>(cg::this_thread_block());
  if (threadIdx.x == 0) next = 0;
  __syncthreads();
  int v = x[threadIdx.x];
  if (t.all(v > 10)) {
    int s = t.shfl(v, 0) + t.shfl(v, 3);
    t.sync();
    if (t.thread_rank() == 0) atomicAdd(&next, s);
    v = s;
  }
  order[threadIdx.x] = v;
  __syncthreads();
  out[threadIdx.x] = order[63 - threadIdx.x] + next;
}
