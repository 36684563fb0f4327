// Loops that diverge: steps of the Collatz sequence, and the greatest common divisor of neighbours.
extern "C" __global__ void collatz(const unsigned *in, unsigned *steps, unsigned *divisors, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    unsigned long long x = in[i];
    unsigned count = 0;
    while (x > 1) {
        if (x & 1) {
            x = 3 * x + 1;
        } else {
            x >>= 1;
        }
        if (++count == 1000) break;
    }
    steps[i] = count;
    unsigned a = in[i], b = in[(i + 1) % n];
    while (b) {
        unsigned r = a % b;
        a = b, b = r;
    }
    divisors[i] = a;
}
