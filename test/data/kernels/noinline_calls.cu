// nvcc -arch=sm_80
// Functions with structs by value, called by some lanes and not by others, and a switch over roundings of double.
struct Pair {
    double a;
    long long b;
    int c;
};
__constant__ unsigned char table[4] = {3, 1, 4, 1};

__noinline__ __device__ int gcd(int a, int b) {
    while (b) {
        int r = a % b;
        a = b;
        b = r;
    }
    return a;
}
__noinline__ __device__ Pair next(Pair p, int n) {
    Pair q;
    q.a = p.a * n + p.b;
    q.b = p.b + gcd(n, 36);
    q.c = p.c ^ n;
    return q;
}

extern "C" __global__ void noinline_calls(const int *in, double *out, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    Pair p = {0.5, i, 7};
    for (int k = 0; k < in[i] % 5; k++) p = next(p, in[i] + k);
    double w = 0;
    switch (in[i] >> 4 & 7) {
    case 0: w = p.b; break;
    case 1: w = __ddiv_rz(p.a, 3.0); break;
    case 2: w = __dsqrt_ru(p.a); break;
    case 3: w = __fma_rd(p.a, 1.1, p.b); break;
    case 4: w = __dadd_rz(p.a, 1e-20); break;
    case 5: w = table[in[i] & 3]; break;
    case 6: w = __dmul_ru(p.a, p.a); break;
    case 7: w = __drcp_rd(p.a + 1); break;
    }
    out[2 * i] = w;
    out[2 * i + 1] = p.c;
}
