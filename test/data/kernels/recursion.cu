// Functions that call themselves and each other, with local arrays; functions through pointers, tables, virtual tables.

#include <new>

typedef int (*Step)(int);

__device__ int increment(int x) { return x + 1; }
__device__ int twice(int x) { return 2 * x; }
__device__ int square(int x) { return x * x; }
__device__ Step steps[3] = {increment, twice, square};

struct Shape {
    int side;
    __device__ explicit Shape(int side) : side(side) {}
    __device__ virtual int area() const { return side * side; }
    __device__ virtual Shape *larger(void *place) const;
};

struct Box : Shape {
    int height;
    __device__ Box(int side, int height) : Shape(side), height(height) {}
    __device__ int area() const override { return 2 * side * side + 4 * side * height; }
};

__device__ Shape *Shape::larger(void *place) const { return new (place) Box(side + 1, area()); }

__device__ __noinline__ int fibonacci(int n) { return n < 2 ? n : fibonacci(n - 1) + fibonacci(n - 2); }

__device__ bool odd(int n);
__device__ __noinline__ bool even(int n) { return n == 0 || odd(n - 1); }
__device__ __noinline__ bool odd(int n) { return n != 0 && even(n - 1); }

// Sums over the permutations of `left` numbers: each call has an array of its own, and reads that of its caller.
__device__ __noinline__ int permutations(const int *items, int left, int weight) {
    if (left == 0) return weight;
    int rest[8], sum = 0;
    for (int i = 0; i < left; i++) {
        for (int j = 0; j < left; j++)
            if (j != i) rest[j - (j > i)] = items[j];
        sum += permutations(rest, left - 1, weight * 10 + items[i]);
        sum ^= items[i] << left;
    }
    return sum;
}

extern "C" __global__ void recurse(int *out, int n) {
    int t = blockIdx.x * blockDim.x + threadIdx.x;
    if (t >= n) return;
    int items[5] = {t, t + 1, t * t, 7, t ^ 5};
    out[3 * t] = fibonacci(t % 11);
    out[3 * t + 1] = even(t) + 2 * odd(t);
    out[3 * t + 2] = permutations(items, t % 5, t);
}

extern "C" __global__ void dispatch(int *out, int n) {
    int t = blockIdx.x * blockDim.x + threadIdx.x;
    if (t >= n) return;
    int x = t;
    for (int i = 0; i < 4; i++) x = steps[(t + i) % 3](x);
    Shape plain(t);
    Box box(t, 3);
    Shape *shape = t & 1 ? &plain : &box;
    alignas(8) char place[32];
    out[2 * t] = x;
    out[2 * t + 1] = shape->area() * 1000 + shape->larger(place)->area();
}
