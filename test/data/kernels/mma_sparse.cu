// D = A * B with a 2:4 sparse A (16 x 32, 16 stored columns), one warp. `words` holds each lane's metadata.
#include <cuda_fp16.h>

extern "C" __global__ void mma_sparse(const half *stored, const half *b, const unsigned *words, float *d) {
    int lane = threadIdx.x, g = lane / 4, t = lane % 4;
    const unsigned *a32 = reinterpret_cast<const unsigned *>(stored);
    unsigned a[4] = {a32[g * 8 + t], a32[(g + 8) * 8 + t], a32[g * 8 + t + 4], a32[(g + 8) * 8 + t + 4]};
    unsigned x[4];
    for (int i = 0; i < 4; i++) {
        half2 pair = __halves2half2(b[(t * 2 + i * 8) * 8 + g], b[(t * 2 + i * 8 + 1) * 8 + g]);
        x[i] = *reinterpret_cast<unsigned *>(&pair);
    }
    float acc[4] = {};
    asm volatile("mma.sp::ordered_metadata.sync.aligned.m16n8k32.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, "
                 "{%8, %9, %10, %11}, {%0, %1, %2, %3}, %12, 0x0;"
                 : "+f"(acc[0]), "+f"(acc[1]), "+f"(acc[2]), "+f"(acc[3])
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(x[0]), "r"(x[1]), "r"(x[2]), "r"(x[3]), "r"(words[lane]));
    d[g * 8 + t * 2] = acc[0], d[g * 8 + t * 2 + 1] = acc[1];
    d[(g + 8) * 8 + t * 2] = acc[2], d[(g + 8) * 8 + t * 2 + 1] = acc[3];
}
