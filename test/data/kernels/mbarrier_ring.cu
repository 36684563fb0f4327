// nvcc -arch=sm_80
// A ring of four stages between 128 threads that copy rows of 128 floats with cp.async, which arrives at an mbarrier, and
// 128 threads that add them up along diagonals. `rows` has n of them.
#include <cstdint>
#include <cuda_pipeline.h>

__device__ void init(uint64_t *bar, int count) {
    asm volatile("mbarrier.init.shared.b64 [%0], %1;" ::"r"((uint32_t)__cvta_generic_to_shared(bar)), "r"(count));
}
__device__ void wait(uint64_t *bar, int parity) {
    asm volatile("{ .reg .pred p; AGAIN: mbarrier.test_wait.parity.shared.b64 p, [%0], %1; @!p bra AGAIN; }" ::"r"(
                     (uint32_t)__cvta_generic_to_shared(bar)),
                 "r"(parity)
                 : "memory");
}
__device__ void arrive(uint64_t *bar) {
    asm volatile("mbarrier.arrive.shared.b64 _, [%0];" ::"r"((uint32_t)__cvta_generic_to_shared(bar)) : "memory");
}

extern "C" __global__ void mbarrier_ring(const float *rows, float *sums, int n) {
    __shared__ alignas(16) float tile[4][128];
    __shared__ uint64_t full[4], empty[4];
    int t = threadIdx.x;
    if (t < 4) {
        init(&full[t], 128);
        init(&empty[t], 128);
    }
    __syncthreads();
    if (t < 128) {
        for (int i = 0; i < n; i++) {
            wait(&empty[i & 3], (i >> 2 & 1) ^ 1);
            __pipeline_memcpy_async(&tile[i & 3][t], rows + (size_t)i * 128 + t, 4);
            asm volatile("cp.async.mbarrier.arrive.noinc.shared.b64 [%0];" ::"r"(
                             (uint32_t)__cvta_generic_to_shared(&full[i & 3]))
                         : "memory");
        }
    } else {
        float sum = 0;
        for (int i = 0; i < n; i++) {
            wait(&full[i & 3], i >> 2 & 1);
            sum += tile[i & 3][(t + i) & 127];
            arrive(&empty[i & 3]);
        }
        sums[t - 128] = sum;
    }
}
