// Copies beside the threads, and matrix instructions through wmma.
#include <cuda/pipeline>
#include <cuda/barrier>
#include <cuda_pipeline.h>
#include <cuda_bf16.h>
#include <mma.h>
#include <cooperative_groups.h>
typedef unsigned int u32;
#define K extern "C" __global__ void
using namespace nvcuda;
namespace cg = cooperative_groups;

// A ring of three stages; each thread copies 16 bytes of each.
K pipelined_sums(float *out, const float4 *x, int turns) {
  __shared__ float4 ring[3][64];
  int t = threadIdx.x;
  for (int s = 0; s < 2; s++) {
    if (s < turns) __pipeline_memcpy_async(&ring[s][t], &x[s * 64 + t], 16);
    __pipeline_commit();
  }
  float sum = 0;
  for (int i = 0; i < turns; i++) {
    if (i + 2 < turns) __pipeline_memcpy_async(&ring[(i + 2) % 3][t], &x[(i + 2) * 64 + t], 16);
    __pipeline_commit();
    __pipeline_wait_prior(2);
    __syncthreads();
    float4 v = ring[i % 3][63 - t];
    sum += v.x + 2 * v.y - v.z + v.w * i;
    __syncthreads();
  }
  out[t] = sum;
}
K zero_filled(int *out, const int *x, int n) {
  __shared__ int s[64];
  int t = threadIdx.x;
  __pipeline_memcpy_async(&s[t], &x[t], 4, t < n ? 0 : 4);
  __pipeline_commit();
  __pipeline_wait_prior(0);
  __syncthreads();
  out[t] = s[63 - t];
}
K cuda_pipeline(int *out, const int *x, int turns) {
  __shared__ int buffer[2][64];
  __shared__ cuda::pipeline_shared_state<cuda::thread_scope_block, 2> state;
  auto block = cg::this_thread_block();
  auto pipe = cuda::make_pipeline(block, &state);
  int sum = 0;
  for (int i = 0, loaded = 0; i < turns; i++) {
    for (; loaded < turns && loaded < i + 2; loaded++) {
      pipe.producer_acquire();
      cuda::memcpy_async(block, buffer[loaded % 2], x + loaded * 64, sizeof(int) * 64, pipe);
      pipe.producer_commit();
    }
    pipe.consumer_wait();
    sum = sum * 5 + buffer[i % 2][(threadIdx.x * 3 + i) % 64];
    pipe.consumer_release();
  }
  out[threadIdx.x] = sum;
}
K barrier_copy(int *out, const int *x) {
  __shared__ alignas(16) int s[128];
  __shared__ cuda::barrier<cuda::thread_scope_block> bar;
  auto block = cg::this_thread_block();
  if (block.thread_rank() == 0) init(&bar, block.size());
  block.sync();
  cuda::memcpy_async(block, s, x, cuda::aligned_size_t<16>(sizeof(s)), bar);
  bar.arrive_and_wait();
  for (int i = threadIdx.x; i < 128; i += blockDim.x) out[i] = s[127 - i];
}
K wmma_double(double *d, const double *a, const double *b, int k) {
  wmma::fragment<wmma::accumulator, 8, 8, 4, double> c;
  wmma::fill_fragment(c, 1.0);
  for (int i = 0; i < k; i += 4) {
    wmma::fragment<wmma::matrix_a, 8, 8, 4, double, wmma::row_major> x;
    wmma::fragment<wmma::matrix_b, 8, 8, 4, double, wmma::col_major> y;
    wmma::load_matrix_sync(x, a + i, k);
    wmma::load_matrix_sync(y, b + i, k);
    wmma::mma_sync(c, x, y, c);
  }
  wmma::store_matrix_sync(d, c, 8, wmma::mem_row_major);
}
K wmma_tf32(float *d, const float *a, const float *b) {
  __shared__ float s[16 * 16];
  wmma::fragment<wmma::matrix_a, 16, 16, 8, wmma::precision::tf32, wmma::row_major> x;
  wmma::fragment<wmma::matrix_b, 16, 16, 8, wmma::precision::tf32, wmma::row_major> y;
  wmma::fragment<wmma::accumulator, 16, 16, 8, float> c;
  wmma::fill_fragment(c, 0.0f);
  wmma::load_matrix_sync(x, a, 8); wmma::load_matrix_sync(y, b, 16);
  for (int i = 0; i < x.num_elements; i++) x.x[i] = wmma::__float_to_tf32(x.x[i]);
  for (int i = 0; i < y.num_elements; i++) y.x[i] = wmma::__float_to_tf32(y.x[i]);
  wmma::mma_sync(c, x, y, c);
  for (int i = 0; i < c.num_elements; i++) c.x[i] *= 2;
  wmma::store_matrix_sync(s, c, 16, wmma::mem_col_major);
  __syncwarp();
  for (int i = threadIdx.x; i < 256; i += 32) d[i] = s[i];
}
K wmma_integers(int *d, const signed char *a, const unsigned char *b, int *e, const unsigned char *p) {
  wmma::fragment<wmma::matrix_a, 32, 8, 16, signed char, wmma::col_major> x;
  wmma::fragment<wmma::matrix_b, 32, 8, 16, signed char, wmma::col_major> y;
  wmma::fragment<wmma::accumulator, 32, 8, 16, int> c;
  wmma::fill_fragment(c, -7);
  wmma::load_matrix_sync(x, a, 32); wmma::load_matrix_sync(y, (const signed char *)b, 16);
  wmma::mma_sync(c, x, y, c);
  wmma::store_matrix_sync(d, c, 8, wmma::mem_row_major);
  wmma::fragment<wmma::matrix_a, 8, 8, 128, wmma::experimental::precision::b1, wmma::row_major> u;
  wmma::fragment<wmma::matrix_b, 8, 8, 128, wmma::experimental::precision::b1, wmma::col_major> v;
  wmma::fragment<wmma::accumulator, 8, 8, 128, int> w;
  wmma::fill_fragment(w, 3);
  wmma::load_matrix_sync(u, p, 128); wmma::load_matrix_sync(v, p + 128, 128);
  wmma::bmma_sync(w, u, v, w, wmma::experimental::bmmaBitOpXOR);
  wmma::store_matrix_sync(e, w, 8, wmma::mem_row_major);
}
K wmma_bf16(float *d, const __nv_bfloat16 *a, const __nv_bfloat16 *b, int n, int k) {
  int row = blockIdx.y * 16, column = blockIdx.x * 16;
  wmma::fragment<wmma::accumulator, 16, 16, 16, float> c;
  wmma::fill_fragment(c, 0.0f);
  for (int i = 0; i < k; i += 16) {
    wmma::fragment<wmma::matrix_a, 16, 16, 16, __nv_bfloat16, wmma::row_major> x;
    wmma::fragment<wmma::matrix_b, 16, 16, 16, __nv_bfloat16, wmma::row_major> y;
    wmma::load_matrix_sync(x, a + row * k + i, k);
    wmma::load_matrix_sync(y, b + i * n + column, n);
    wmma::mma_sync(c, x, y, c);
  }
  for (int i = 0; i < c.num_elements; i++) c.x[i] = fmaxf(c.x[i], 0);
  wmma::store_matrix_sync(d + row * n + column, c, n, wmma::mem_row_major);
}
__device__ u32 shared_address(const void *p) { return (u32)__cvta_generic_to_shared(p); }
// Attention of one head, 16 queries to a warp: ldmatrix, mma.sync, online softmax.
K flash_attention(float *out, const __nv_bfloat16 *q, const __nv_bfloat16 *k, const __nv_bfloat16 *v, int n, float scale) {
  __shared__ alignas(16) __nv_bfloat16 sq[16][24], sk[16][24], sv[16][24];
  int lane = threadIdx.x, g = lane / 4, p = lane % 4;
  for (int i = lane; i < 256; i += 32) sq[i / 16][i % 16] = q[(blockIdx.x * 16 + i / 16) * 16 + i % 16];
  __syncwarp();
  u32 a[4];
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];" : "=r"(a[0]), "=r"(a[1]), "=r"(a[2]), "=r"(a[3])
               : "r"(shared_address(&sq[lane % 16][lane / 16 * 8])));
  float o[2][4] = {}, m[2] = {-INFINITY, -INFINITY}, l[2] = {0, 0};
  for (int at = 0; at < n; at += 16) {
    __syncwarp();
    for (int i = lane; i < 256; i += 32) { sk[i / 16][i % 16] = k[(at + i / 16) * 16 + i % 16]; sv[i / 16][i % 16] = v[(at + i / 16) * 16 + i % 16]; }
    __syncwarp();
    float s[2][4] = {};
    for (int h = 0; h < 2; h++) {
      u32 b[2];
      asm volatile("ldmatrix.sync.aligned.m8n8.x2.shared.b16 {%0,%1}, [%2];" : "=r"(b[0]), "=r"(b[1]) : "r"(shared_address(&sk[h * 8 + lane % 8][lane / 8 % 2 * 8])));
      asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
                   : "+f"(s[h][0]), "+f"(s[h][1]), "+f"(s[h][2]), "+f"(s[h][3]) : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
    }
    for (int r = 0; r < 2; r++) {
      float top = fmaxf(fmaxf(s[0][2 * r], s[0][2 * r + 1]), fmaxf(s[1][2 * r], s[1][2 * r + 1])) * scale;
      top = fmaxf(top, __shfl_xor_sync(~0u, top, 1)); top = fmaxf(top, __shfl_xor_sync(~0u, top, 2));
      float now = fmaxf(m[r], top), keep = exp2f(m[r] - now), sum = 0;
      for (int h = 0; h < 2; h++) for (int j = 0; j < 2; j++) { float e = exp2f(s[h][2 * r + j] * scale - now); s[h][2 * r + j] = e; sum += e; }
      sum += __shfl_xor_sync(~0u, sum, 1); sum += __shfl_xor_sync(~0u, sum, 2);
      l[r] = l[r] * keep + sum; m[r] = now;
      for (int h = 0; h < 2; h++) { o[h][2 * r] *= keep; o[h][2 * r + 1] *= keep; }
    }
    u32 e[4];
    for (int h = 0; h < 2; h++) for (int r = 0; r < 2; r++) {
      __nv_bfloat162 w = __floats2bfloat162_rn(s[h][2 * r], s[h][2 * r + 1]);
      e[h * 2 + r] = *(u32 *)&w;
    }
    for (int h = 0; h < 2; h++) {
      u32 b[2];
      asm volatile("ldmatrix.sync.aligned.m8n8.x2.trans.shared.b16 {%0,%1}, [%2];" : "=r"(b[0]), "=r"(b[1]) : "r"(shared_address(&sv[lane % 16][h * 8])));
      asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
                   : "+f"(o[h][0]), "+f"(o[h][1]), "+f"(o[h][2]), "+f"(o[h][3]) : "r"(e[0]), "r"(e[1]), "r"(e[2]), "r"(e[3]), "r"(b[0]), "r"(b[1]));
    }
  }
  for (int h = 0; h < 2; h++) for (int r = 0; r < 2; r++) for (int j = 0; j < 2; j++)
    out[(blockIdx.x * 16 + g + r * 8) * 16 + h * 8 + p * 2 + j] = o[h][2 * r + j] / l[r];
}
