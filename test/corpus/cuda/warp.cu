// Warp-synchronous code: every mask, every width, lanes that part and meet.
typedef unsigned int u32;
typedef unsigned long long u64;
#define K extern "C" __global__ void

// Lanes with the same label form a group; each reduces within its own.
K redux_groups(u32 *out, const u32 *label, const u32 *x) {
  u32 i = blockIdx.x * blockDim.x + threadIdx.x;
  u32 mask = __match_any_sync(~0u, label[i]);
  u32 v = x[i];
  out[i * 7] = mask;
  out[i * 7 + 1] = __reduce_add_sync(mask, v);
  out[i * 7 + 2] = __reduce_min_sync(mask, (int)v);
  out[i * 7 + 3] = __reduce_max_sync(mask, v);
  out[i * 7 + 4] = __reduce_and_sync(mask, v);
  out[i * 7 + 5] = __reduce_or_sync(mask, v);
  out[i * 7 + 6] = __reduce_xor_sync(mask, v);
}

// One warp for each mask of the array: only its lanes reduce, the others add up alone.
K redux_every_mask(int *out, const u32 *masks, const int *x) {
  u32 warp = (blockIdx.x * blockDim.x + threadIdx.x) / 32, lane = threadIdx.x % 32;
  u32 mask = masks[warp];
  int v = x[warp * 32 + lane], r;
  if (mask >> lane & 1) r = __reduce_add_sync(mask, v) + __reduce_max_sync(mask, v);
  else r = -v;
  out[warp * 32 + lane] = r;
}

template <int W> __device__ int widths(int v, int lane) {
  int a = __shfl_up_sync(~0u, v, 3 % W, W), b = __shfl_down_sync(~0u, v, W / 2, W);
  int c = __shfl_xor_sync(~0u, v, W - 1, W), d = __shfl_sync(~0u, v, lane * 5 + 3, W);
  return a * 1 + b * 1000 + c * 1000000 + (d << 24);
}
K shuffle_widths(int *out, const int *x) {
  int lane = threadIdx.x % 32, i = blockIdx.x * blockDim.x + threadIdx.x;
  out[i * 6 + 0] = widths<1>(x[i], lane);
  out[i * 6 + 1] = widths<2>(x[i], lane);
  out[i * 6 + 2] = widths<4>(x[i], lane);
  out[i * 6 + 3] = widths<8>(x[i], lane);
  out[i * 6 + 4] = widths<16>(x[i], lane);
  out[i * 6 + 5] = widths<32>(x[i], lane);
}

// Votes inside nested branches, each with the mask of who is there.
K votes_in_branches(u32 *out, const int *x) {
  int lane = threadIdx.x % 32, i = blockIdx.x * blockDim.x + threadIdx.x, v = x[i];
  u32 r = 0, even = __ballot_sync(~0u, v % 2 == 0);
  if (v % 2 == 0) {
    u32 big = __ballot_sync(even, v > 50);
    r = __all_sync(even, v >= 0) | __any_sync(even, v > 90) << 1;
    if (v > 50) r |= __popc(__ballot_sync(big, v % 3 == 0)) << 8;
    else r |= __popc(__ballot_sync(even & ~big, v % 3 == 1)) << 16;
    __syncwarp(even);
  } else {
    r = __popc(__ballot_sync(~even, v > lane)) << 24;
  }
  __syncwarp();
  out[i] = r ^ __ballot_sync(~0u, r & 1);
}

K warp_scan(int *inclusive, int *exclusive, const int *x, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x, lane = threadIdx.x % 32;
  int v = i < n ? x[i] : 0, s = v;
  for (int d = 1; d < 32; d *= 2) {
    int t = __shfl_up_sync(~0u, s, d);
    if (lane >= d) s += t;
  }
  if (i < n) { inclusive[i] = s; exclusive[i] = s - v; }
}

// A scan that starts again where a flag is set.
K segmented_scan(float *out, const float *x, const unsigned char *flag) {
  int i = blockIdx.x * blockDim.x + threadIdx.x, lane = threadIdx.x % 32;
  u32 heads = __ballot_sync(~0u, flag[i]);
  u32 mine = heads & (lane == 31 ? ~0u : (2u << lane) - 1);
  int first = mine ? 31 - __clz(mine) : 0;
  float s = x[i];
  for (int d = 1; d < 32; d <<= 1) {
    float t = __shfl_up_sync(~0u, s, d);
    if (lane - d >= first) s = s + t;
  }
  out[i] = s;
}

K bitonic_warp(u64 *keys) {
  int lane = threadIdx.x % 32, i = blockIdx.x * blockDim.x + threadIdx.x;
  u64 v = keys[i];
  for (int k = 2; k <= 32; k *= 2)
    for (int j = k / 2; j; j /= 2) {
      u64 w = __shfl_xor_sync(~0u, v, j);
      bool up = (lane & k) == 0, low = (lane & j) == 0;
      if ((v > w) == (up == low)) v = w;
    }
  keys[i] = v;
}

// The leader of each group of equal keys adds for all of them.
K match_histogram(u32 *counts, int *alike, const int *key, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x, lane = threadIdx.x % 32;
  u32 there = __ballot_sync(~0u, i < n);
  if (i >= n) return;
  u32 peers = __match_any_sync(there, key[i]);
  if (__ffs(peers) - 1 == lane) atomicAdd(&counts[key[i]], __popc(peers));
  int same;
  u32 all = __match_all_sync(there, key[i - lane] + (key[i] > 5000), &same);
  alike[i] = same ? (int)(all == there) : 0;
}

K warp_transpose(int *out, const int *x) {
  int lane = threadIdx.x, v[8];
  for (int r = 0; r < 8; r++) v[r] = x[(blockIdx.x * 8 + r) * 8 + lane % 8 + (lane / 8) * 64 * gridDim.x];
#pragma unroll
  for (int d = 1; d < 8; d *= 2)
#pragma unroll
    for (int r = 0; r < 8; r++)
      if (!(r & d)) {
        int give = lane & d ? v[r] : v[r + d], got = __shfl_xor_sync(~0u, give, d);
        if (lane & d) v[r] = got; else v[r + d] = got;
      }
  for (int r = 0; r < 8; r++) out[(blockIdx.x * 8 + r) * 8 + lane % 8 + (lane / 8) * 64 * gridDim.x] = v[r];
}

// Lanes leave a loop at different times; those still there count each other.
K leaving_lanes(u32 *seen, u32 *rank, const int *turns) {
  int i = blockIdx.x * blockDim.x + threadIdx.x, lane = threadIdx.x % 32, left = turns[i];
  u32 here = ~0u, sum = 0, ranks = 0;
  while (true) {
    here = __ballot_sync(here, left > 0);
    if (left <= 0) break;
    sum += __popc(here);
    ranks += __popc(here & ((1u << lane) - 1));
    left--;
  }
  __syncwarp();
  seen[i] = sum; rank[i] = ranks;
}

K shuffle_wide(double *d, u64 *q, const double *x, const u64 *y) {
  int i = blockIdx.x * blockDim.x + threadIdx.x, lane = threadIdx.x % 32;
  double s = x[i]; u64 m = y[i];
  for (int k = 16; k; k /= 2) {
    s += __shfl_down_sync(~0u, s, k);
    u64 o = __shfl_xor_sync(~0u, m, k);
    m = o > m ? o : m;
  }
  d[i] = __shfl_sync(~0u, s, 0) * (lane + 1);
  q[i] = m;
}

// Two halves of each pair of lanes talk within masks of two bits.
K pair_masks(int *out, const int *x) {
  int i = blockIdx.x * blockDim.x + threadIdx.x, lane = threadIdx.x % 32, v = x[i];
  u32 mask = 3u << (lane & ~1);
  int r;
  if (lane & 4) r = __shfl_xor_sync(mask, v, 1) * 2 + __any_sync(mask, v > 40);
  else r = __reduce_add_sync(mask, v) * 3 + __popc(__ballot_sync(mask, v > 40));
  out[i] = r;
}

K lane_masks(u32 *out) {
  u32 *o = out + threadIdx.x * 8, r;
  asm("mov.u32 %0, %%lanemask_eq;" : "=r"(r)); o[0] = r;
  asm("mov.u32 %0, %%lanemask_lt;" : "=r"(r)); o[1] = r;
  asm("mov.u32 %0, %%lanemask_le;" : "=r"(r)); o[2] = r;
  asm("mov.u32 %0, %%lanemask_gt;" : "=r"(r)); o[3] = r;
  asm("mov.u32 %0, %%lanemask_ge;" : "=r"(r)); o[4] = r;
  asm("mov.u32 %0, %%laneid;" : "=r"(r)); o[5] = r;
  o[6] = threadIdx.x % 3 ? __activemask() : 0;
  o[7] = __fns(0x9A5A5F03u ^ threadIdx.x, threadIdx.x % 32, (int)(threadIdx.x % 7) - 3);
}

// The other lane's write is seen after __syncwarp, through shared memory.
K through_shared(int *out, const int *x) {
  __shared__ int s[64];
  int t = threadIdx.x, w = t / 32 * 32, i = blockIdx.x * blockDim.x + t, v = x[i];
  for (int d = 16; d; d /= 2) {
    s[t] = v;
    __syncwarp();
    int o = s[w + ((t ^ d) & 31)];
    __syncwarp();
    v = min(v, o) + (v > o);
  }
  out[i] = v;
}
