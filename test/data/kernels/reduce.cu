// out[block] = sum and maximum of a block's elements: shuffles within warps, shared memory between them.
extern "C" __global__ void reduce(const float *in, float *sums, float *maxima, int n) {
    __shared__ float partial[2][32];
    int i = blockIdx.x * blockDim.x + threadIdx.x, lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    float sum = 0.0f, top = -3.0e38f;
    for (; i < n; i += gridDim.x * blockDim.x) {
        sum += in[i];
        top = fmaxf(top, in[i]);
    }
    for (int step = 16; step; step >>= 1) {
        sum += __shfl_down_sync(0xffffffffu, sum, step);
        top = fmaxf(top, __shfl_xor_sync(0xffffffffu, top, step));
    }
    if (lane == 0) partial[0][warp] = sum, partial[1][warp] = top;
    __syncthreads();
    if (warp == 0) {
        bool there = lane < blockDim.x / 32;
        sum = there ? partial[0][lane] : 0.0f;
        top = there ? partial[1][lane] : -3.0e38f;
        for (int step = 16; step; step >>= 1) {
            sum += __shfl_down_sync(0xffffffffu, sum, step);
            top = fmaxf(top, __shfl_down_sync(0xffffffffu, top, step));
        }
        if (lane == 0) sums[blockIdx.x] = sum, maxima[blockIdx.x] = top;
    }
}
