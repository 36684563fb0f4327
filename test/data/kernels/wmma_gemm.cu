// C = A * B through nvcuda::wmma, one 16x16 tile of C for each warp. Sizes are multiples of 16.
#include <cuda_fp16.h>
#include <mma.h>
using namespace nvcuda;

extern "C" __global__ void wmma_gemm(const half *a, const half *b, float *c, int m, int n, int k) {
    int warp = threadIdx.x / 32, row = (blockIdx.y * (blockDim.x / 32) + warp) * 16, column = blockIdx.x * 16;
    if (row >= m) return;
    wmma::fragment<wmma::matrix_a, 16, 16, 16, half, wmma::row_major> fa;
    wmma::fragment<wmma::matrix_b, 16, 16, 16, half, wmma::row_major> fb;
    wmma::fragment<wmma::accumulator, 16, 16, 16, float> acc;
    wmma::fill_fragment(acc, 0.0f);
    for (int i = 0; i < k; i += 16) {
        wmma::load_matrix_sync(fa, a + row * k + i, k);
        wmma::load_matrix_sync(fb, b + i * n + column, n);
        wmma::mma_sync(acc, fa, fb, acc);
    }
    wmma::store_matrix_sync(c + row * n + column, acc, n, wmma::mem_row_major);
}
