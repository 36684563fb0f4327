// Counts bytes: shared atomics for each block, global atomics at the end; `last` is the largest index seen of each byte.
extern "C" __global__ void histogram(const unsigned char *in, unsigned *counts, int *last, int n) {
    __shared__ unsigned mine[256];
    for (int i = threadIdx.x; i < 256; i += blockDim.x) mine[i] = 0;
    __syncthreads();
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x) {
        atomicAdd(&mine[in[i]], 1u);
        atomicMax(&last[in[i]], i);
    }
    __syncthreads();
    for (int i = threadIdx.x; i < 256; i += blockDim.x)
        if (mine[i]) atomicAdd(&counts[i], mine[i]);
}
