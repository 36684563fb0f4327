// C = A * B with inline PTX: cp.async into two stages, ldmatrix, mma.m16n8k16. A 64x64 tile for a CTA of four warps,
// 16 rows each; m and n are multiples of 64, k of 32.
#include <cuda_fp16.h>

__device__ void copy16(unsigned to, const void *from) {
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(to), "l"(from));
}

extern "C" __global__ void __launch_bounds__(128) mma_pipeline(const half *a, const half *b, float *c, int m, int n, int k) {
    __shared__ __align__(128) half as[2][64][40];
    __shared__ __align__(128) half bs[2][32][72];
    int thread = threadIdx.x, lane = thread % 32, warp = thread / 32;
    int row = blockIdx.y * 64, column = blockIdx.x * 64;
    unsigned a0 = __cvta_generic_to_shared(as), b0 = __cvta_generic_to_shared(bs);
    auto load = [&](int stage, int at) {
        for (int i = thread; i < 64 * 4; i += 128)
            copy16(a0 + (stage * 64 * 40 + (i / 4) * 40 + (i % 4) * 8) * 2, a + (row + i / 4) * k + at + (i % 4) * 8);
        for (int i = thread; i < 32 * 8; i += 128)
            copy16(b0 + (stage * 32 * 72 + (i / 8) * 72 + (i % 8) * 8) * 2, b + (at + i / 8) * n + column + (i % 8) * 8);
        asm volatile("cp.async.commit_group;");
    };
    float acc[8][4] = {};
    load(0, 0);
    for (int at = 0, stage = 0; at < k; at += 32, stage ^= 1) {
        if (at + 32 < k) {
            load(stage ^ 1, at + 32);
            asm volatile("cp.async.wait_group 1;");
        } else {
            asm volatile("cp.async.wait_group 0;");
        }
        __syncthreads();
        for (int step = 0; step < 32; step += 16) {
            unsigned x[4], y[8][2];
            unsigned from = a0 + (stage * 64 * 40 + (warp * 16 + lane % 16) * 40 + step + lane / 16 * 8) * 2;
            asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                         : "=r"(x[0]), "=r"(x[1]), "=r"(x[2]), "=r"(x[3]) : "r"(from));
            for (int j = 0; j < 8; j++) {
                unsigned at_b = b0 + (stage * 32 * 72 + (step + lane % 16) * 72 + j * 8) * 2;
                asm volatile("ldmatrix.sync.aligned.m8n8.x2.trans.shared.b16 {%0, %1}, [%2];"
                             : "=r"(y[j][0]), "=r"(y[j][1]) : "r"(at_b));
                asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
                             : "+f"(acc[j][0]), "+f"(acc[j][1]), "+f"(acc[j][2]), "+f"(acc[j][3])
                             : "r"(x[0]), "r"(x[1]), "r"(x[2]), "r"(x[3]), "r"(y[j][0]), "r"(y[j][1]));
            }
        }
        __syncthreads();
    }
    for (int j = 0; j < 8; j++)
        for (int half_ = 0; half_ < 2; half_++) {
            float *to = c + (row + warp * 16 + lane / 4 + half_ * 8) * n + column + j * 8 + lane % 4 * 2;
            *reinterpret_cast<float2 *>(to) = make_float2(acc[j][2 * half_], acc[j][2 * half_ + 1]);
        }
}
