// Structs by value, as CuTe and CUTLASS pass them: pointers behind other fields, in structs of structs, alone.

struct View {
    const float *data;
    int stride;
};

struct Parameters {
    int n;
    View x;
    double scale;
    float bias[3];
};

struct Iterator {
    float *pointer;
};

extern "C" __global__ void affine(Parameters p, Iterator out) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < p.n)
        out.pointer[i] = float(p.x.data[i * p.x.stride] * p.scale) + p.bias[i % 3];
}
