// Row softmax, one warp for each row.
extern "C" __global__ void softmax(const float *in, float *out, int rows, int columns) {
    int row = blockIdx.x * (blockDim.x / 32) + threadIdx.x / 32, lane = threadIdx.x % 32;
    if (row >= rows) return;
    const float *from = in + row * columns;
    float top = -__int_as_float(0x7f800000), sum = 0.0f;
    for (int i = lane; i < columns; i += 32) top = fmaxf(top, from[i]);
    for (int step = 16; step; step >>= 1) top = fmaxf(top, __shfl_xor_sync(0xffffffffu, top, step));
    for (int i = lane; i < columns; i += 32) sum += __expf(from[i] - top);
    for (int step = 16; step; step >>= 1) sum += __shfl_xor_sync(0xffffffffu, sum, step);
    for (int i = lane; i < columns; i += 32) out[row * columns + i] = __expf(from[i] - top) / sum;
}
