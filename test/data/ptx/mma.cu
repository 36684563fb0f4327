// A tensor-core loop as nvcc prints it.
// Regenerate: nvcc -ptx -arch=sm_80 -o mma.ptx mma.cu
#include <cuda_fp16.h>

extern "C" __global__ void product(const unsigned *a, const unsigned *b, float *c, int k) {
    unsigned smem = threadIdx.x * 16;
    float d[4] = {0, 0, 0, 0};
    for (int i = 0; i < k; i += 16) {
        unsigned x[4], y[2];
        asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];" : "=r"(x[0]), "=r"(x[1]), "=r"(x[2]), "=r"(x[3]) : "r"(smem + i));
        asm volatile("ldmatrix.sync.aligned.m8n8.x2.trans.shared.b16 {%0, %1}, [%2];" : "=r"(y[0]), "=r"(y[1]) : "r"(smem + 4096 + i));
        x[0] ^= a[i], y[0] ^= b[i];
        asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
                     : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]) : "r"(x[0]), "r"(x[1]), "r"(x[2]), "r"(x[3]), "r"(y[0]), "r"(y[1]));
    }
    reinterpret_cast<float4 *>(c)[threadIdx.x] = make_float4(d[0], d[1], d[2], d[3]);
}
