// Elementwise in packed halves and bfloat16: y = gelu(x) + bias, and a conversion on the way.
#include <cuda_bf16.h>
#include <cuda_fp16.h>

extern "C" __global__ void gelu_half(const half2 *x, const half2 *bias, half2 *y, __nv_bfloat16 *z, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    float2 v = __half22float2(x[i]);
    v.x = 0.5f * v.x * (1.0f + tanhf(0.7978846f * (v.x + 0.044715f * v.x * v.x * v.x)));
    v.y = 0.5f * v.y * (1.0f + tanhf(0.7978846f * (v.y + 0.044715f * v.y * v.y * v.y)));
    y[i] = __hfma2(__float22half2_rn(v), __float2half2_rn(1.0f), bias[i]);
    z[2 * i] = __float2bfloat16(v.x), z[2 * i + 1] = __float2bfloat16(v.y);
}
