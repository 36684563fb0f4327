// nvcc -arch=sm_90
// Counts bytes with 64 bins in each of the four CTAs of a cluster: atomics on each other's shared memory.
#include <cooperative_groups.h>
namespace cg = cooperative_groups;

extern "C" __global__ void __cluster_dims__(4, 1, 1) cluster_histogram(const unsigned char *in, int *counts, int n) {
    __shared__ int bins[64];
    cg::cluster_group cluster = cg::this_cluster();
    for (int i = threadIdx.x; i < 64; i += blockDim.x) bins[i] = 0;
    cluster.sync();
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x)
        atomicAdd(cluster.map_shared_rank(bins, in[i] / 64) + in[i] % 64, 1);
    cluster.sync();
    for (int i = threadIdx.x; i < 64; i += blockDim.x) atomicAdd(counts + cluster.block_rank() * 64 + i, bins[i]);
}
