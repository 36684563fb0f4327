// Variables that the host sees, too.
#define K extern "C" __global__ void
__device__ __managed__ int managed_counter = 7;
__managed__ float managed_table[4] = {1, 2.5, -3, 4};
K managed_memory(float *out) {
  int i = threadIdx.x;
  atomicAdd(&managed_counter, 1);
  __syncthreads();
  out[i] = managed_counter + managed_table[i & 3];
}
