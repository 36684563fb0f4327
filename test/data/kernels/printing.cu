#include <cstdio>
#include <cassert>
// Prints, assertions and the heap of a kernel.
extern "C" __global__ void report(const float *x, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    printf("block %d thread %2u: x = %8.3f %e|%-6s|%c|%#llx|100%%\n", blockIdx.x, threadIdx.x, x[i], (double)x[i] * 1e10,
           x[i] > 0 ? "plus" : "minus", 'a' + i % 26, 1ull << (i % 64));
    if (threadIdx.x % 3 == 0) printf("every third: %d\n", -i);
    __syncthreads();
    if (threadIdx.x == 0) printf("done %p\n", (void *)0);
}

extern "C" __global__ void checked(const int *x, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    assert(i < n && "within the array");
    if (x[i] < 0) __trap();
}

extern "C" __global__ void lists(int *sums, int n) {
    struct Node { int value; Node *next; };
    Node *head = nullptr;
    for (int i = 0; i < n + (int)threadIdx.x; i++) {
        Node *node = (Node *)malloc(sizeof(Node));
        node->value = i * i, node->next = head, head = node;
    }
    int sum = 0;
    while (head) {
        Node *next = head->next;
        sum = sum * 31 + head->value;
        free(head);
        head = next;
    }
    sums[threadIdx.x] = sum;
}
