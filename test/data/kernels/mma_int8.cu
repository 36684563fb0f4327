// C = A * B in s8, one warp for each 16x8 tile; A is m x k row-major, B is given as n x k. m and n fit the tiles, k is a
// multiple of 32.
extern "C" __global__ void mma_int8(const signed char *a, const signed char *b, int *c, int n, int k) {
    int lane = threadIdx.x, g = lane / 4, t = lane % 4, row = blockIdx.y * 16, column = blockIdx.x * 8;
    int acc[4] = {};
    for (int at = 0; at < k; at += 32) {
        const signed char *pa = a + (row + g) * k + at + t * 4, *pb = b + (column + g) * k + at + t * 4;
        unsigned x[4], y[2];
        x[0] = *reinterpret_cast<const unsigned *>(pa), x[1] = *reinterpret_cast<const unsigned *>(pa + 8 * k);
        x[2] = *reinterpret_cast<const unsigned *>(pa + 16), x[3] = *reinterpret_cast<const unsigned *>(pa + 8 * k + 16);
        y[0] = *reinterpret_cast<const unsigned *>(pb), y[1] = *reinterpret_cast<const unsigned *>(pb + 16);
        asm volatile("mma.sync.aligned.m16n8k32.row.col.s32.s8.s8.s32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
                     : "+r"(acc[0]), "+r"(acc[1]), "+r"(acc[2]), "+r"(acc[3])
                     : "r"(x[0]), "r"(x[1]), "r"(x[2]), "r"(x[3]), "r"(y[0]), "r"(y[1]));
    }
    for (int i = 0; i < 4; i++) c[(row + g + i / 2 * 8) * n + column + t * 2 + i % 2] = acc[i];
}
