// A little of everything nvcc prints: calls, printf, shared and constant memory, cp.async, shuffles, inline PTX.
// Regenerate: nvcc -ptx -arch=sm_80 -lineinfo -o sample.ptx sample.cu (paths in .file lines are then shortened by hand)
#include <cstdio>
#include <cuda_fp16.h>
#include <cuda_pipeline.h>

__constant__ float weights[2][3] = {{1.0f, 2.0f, 3.0f}, {4.0f, 5.0f, 6.0f}};
__device__ int counter = 7;
extern __shared__ float dynamic[];

__device__ __noinline__ float scaled(float x, int n) { return n > 3 ? scaled(x * 1.5f, n - 1) : x + weights[n & 1][n % 3]; }

extern "C" __global__ void __launch_bounds__(256, 2) everything(const float *__restrict__ in, float *out, __half *h, int n) {
    __shared__ float tile[256];
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    __pipeline_memcpy_async(&dynamic[threadIdx.x * 4], &in[i * 4], 16);
    __pipeline_commit();
    __pipeline_wait_prior(0);
    tile[threadIdx.x] = in[i] + dynamic[threadIdx.x];
    __syncthreads();
    float v = tile[255 - threadIdx.x];
    for (int k = 16; k > 0; k /= 2) v += __shfl_xor_sync(0xffffffffu, v, k);
    float4 q = reinterpret_cast<const float4 *>(in)[i];
    v = fmaf(q.x, q.y, v) + __expf(q.z) + rsqrtf(q.w) + scaled(v, n);
    asm volatile("{ .reg .pred p; setp.gt.f32 p, %1, 0f00000000; @p st.global.f32 [%0], %1; }" ::"l"(out + i), "f"(v) : "memory");
    h[i] = __hadd(__float2half(v), h[i]);
    atomicAdd(&counter, 1);
    if (v < 0.0f) printf("negative %f at %d\n", v, i);
}
