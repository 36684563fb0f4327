// Algorithms of whole blocks and grids: scans, sorts, tiles, stencils.
typedef unsigned int u32;
typedef unsigned long long u64;
#define K extern "C" __global__ void

K blelloch_scan(int *out, const int *x) {
  extern __shared__ int s[];
  int t = threadIdx.x, n = 2 * blockDim.x, base = blockIdx.x * n, step = 1;
  s[2 * t] = x[base + 2 * t]; s[2 * t + 1] = x[base + 2 * t + 1];
  for (int d = n / 2; d > 0; d /= 2) {
    __syncthreads();
    if (t < d) s[step * (2 * t + 2) - 1] += s[step * (2 * t + 1) - 1];
    step *= 2;
  }
  if (t == 0) s[n - 1] = 0;
  for (int d = 1; d < n; d *= 2) {
    step /= 2;
    __syncthreads();
    if (t < d) {
      int a = step * (2 * t + 1) - 1, b = step * (2 * t + 2) - 1, v = s[a];
      s[a] = s[b]; s[b] += v;
    }
  }
  __syncthreads();
  out[base + 2 * t] = s[2 * t]; out[base + 2 * t + 1] = s[2 * t + 1];
}

// Blocks wait for the sum of the one before them (a chained scan).
K chained_scan(u32 *out, volatile u32 *sums, volatile u32 *ready, u32 *ticket, const u32 *x) {
  __shared__ u32 s[128], mine, before;
  int t = threadIdx.x;
  if (t == 0) mine = atomicAdd(ticket, 1);
  __syncthreads();
  u32 b = mine;
  s[t] = x[b * 128 + t];
  __syncthreads();
  for (int d = 1; d < 128; d *= 2) {
    u32 v = t >= d ? s[t - d] : 0;
    __syncthreads();
    s[t] += v;
    __syncthreads();
  }
  if (t == 0) {
    u32 v = 0;
    if (b) { while (!ready[b - 1]) { } __threadfence(); v = sums[b - 1]; }
    before = v;
    sums[b] = v + s[127];
    __threadfence();
    ready[b] = 1;
  }
  __syncthreads();
  out[b * 128 + t] = s[t] + before;
}

K radix_sort(u32 *keys, u32 *values) {
  __shared__ u32 k[2][256], v[2][256], sums[256];
  int t = threadIdx.x;
  k[0][t] = keys[blockIdx.x * 256 + t]; v[0][t] = values[blockIdx.x * 256 + t];
  int from = 0;
  for (int bit = 0; bit < 32; bit++) {
    __syncthreads();
    u32 one = k[from][t] >> bit & 1;
    sums[t] = one;
    for (int d = 1; d < 256; d *= 2) {
      __syncthreads();
      u32 a = t >= d ? sums[t - d] : 0;
      __syncthreads();
      sums[t] += a;
    }
    __syncthreads();
    u32 zeros = 256 - sums[255], before = sums[t] - one;
    u32 to = one ? zeros + before : t - before;
    k[1 - from][to] = k[from][t]; v[1 - from][to] = v[from][t];
    from = 1 - from;
  }
  __syncthreads();
  keys[blockIdx.x * 256 + t] = k[from][t]; values[blockIdx.x * 256 + t] = v[from][t];
}

template <class T> __device__ void exchange(T &a, T &b, bool up) {
  if ((a > b) == up) { T t = a; a = b; b = t; }
}
K bitonic_block(float *x, int n) {
  extern __shared__ float f[];
  for (int i = threadIdx.x; i < n; i += blockDim.x) f[i] = x[i];
  for (int k = 2; k <= n; k *= 2)
    for (int j = k / 2; j; j /= 2) {
      __syncthreads();
      for (int i = threadIdx.x; i < n; i += blockDim.x)
        if ((i ^ j) > i) exchange(f[i], f[i ^ j], (i & k) == 0);
    }
  __syncthreads();
  for (int i = threadIdx.x; i < n; i += blockDim.x) x[i] = f[i];
}

// Each thread finds where its part of the merged list begins.
K merge_path(int *out, const int *a, int na, const int *b, int nb, int each) {
  int at = (blockIdx.x * blockDim.x + threadIdx.x) * each, end = min(at + each, na + nb);
  if (at >= na + nb) return;
  int low = max(0, at - nb), high = min(at, na);
  while (low < high) {
    int mid = (low + high) / 2;
    if (a[mid] <= b[at - 1 - mid]) low = mid + 1; else high = mid;
  }
  int i = low, j = at - low;
  for (; at < end; at++) out[at] = j >= nb || (i < na && a[i] <= b[j]) ? a[i++] : b[j++];
}

#define T 16
K tiled_matmul(float *c, const float *a, const float *b, int m, int n, int k) {
  __shared__ float x[T][T + 1], y[T][T];
  int row = blockIdx.y * T + threadIdx.y, column = blockIdx.x * T + threadIdx.x;
  float sum = 0;
  for (int at = 0; at < k; at += T) {
    x[threadIdx.y][threadIdx.x] = row < m && at + threadIdx.x < k ? a[row * k + at + threadIdx.x] : 0;
    y[threadIdx.y][threadIdx.x] = column < n && at + threadIdx.y < k ? b[(at + threadIdx.y) * n + column] : 0;
    __syncthreads();
    for (int i = 0; i < T; i++) sum = fmaf(x[threadIdx.y][i], y[i][threadIdx.x], sum);
    __syncthreads();
  }
  if (row < m && column < n) c[row * n + column] = sum;
}

K stencil_heat(float *out, const float *in, int width, int height) {
  __shared__ float s[10][34];
  int x = blockIdx.x * 32 + threadIdx.x, y = blockIdx.y * 8 + threadIdx.y;
  for (int r = threadIdx.y; r < 10; r += 8)
    for (int c = threadIdx.x; c < 34; c += 32) {
      int gx = (int)blockIdx.x * 32 + c - 1, gy = (int)blockIdx.y * 8 + r - 1;
      s[r][c] = gx >= 0 && gy >= 0 && gx < width && gy < height ? in[gy * width + gx] : 0.0f;
    }
  __syncthreads();
  if (x >= width || y >= height) return;
  int r = threadIdx.y + 1, c = threadIdx.x + 1;
  float around = s[r - 1][c] + s[r + 1][c] + s[r][c - 1] + s[r][c + 1];
  out[y * width + x] = 0.5f * s[r][c] + 0.125f * around;
}

__constant__ float taps[7] = {0.5f, -1.0f, 2.0f, 3.25f, 2.0f, -1.0f, 0.5f};
K convolve(float *out, const float *x, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= n) return;
  float sum = 0;
  for (int j = 0; j < 7; j++) {
    int at = i + j - 3;
    if (at >= 0 && at < n) sum += taps[j] * x[at];
  }
  out[i] = sum;
}

// The block that comes last adds up what all have left.
__device__ u32 arrived = 0;
K last_block_sums(double *total, double *part, const float *x, int n) {
  __shared__ double s[128];
  __shared__ bool last;
  double v = 0;
  for (int i = blockIdx.x * 128 + threadIdx.x; i < n; i += gridDim.x * 128) v += x[i];
  s[threadIdx.x] = v;
  __syncthreads();
  for (int d = 64; d; d /= 2) {
    if (threadIdx.x < d) s[threadIdx.x] += s[threadIdx.x + d];
    __syncthreads();
  }
  if (threadIdx.x == 0) {
    part[blockIdx.x] = s[0];
    __threadfence();
    last = atomicInc(&arrived, gridDim.x - 1) == gridDim.x - 1;
  }
  __syncthreads();
  if (last && threadIdx.x == 0) {
    double sum = 0;
    for (int b = 0; b < gridDim.x; b++) sum += ((volatile double *)part)[b];
    *total = sum;
  }
}

K compact(int *out, int *count, const int *x, int n) {
  __shared__ int place[4], base;
  int i = blockIdx.x * blockDim.x + threadIdx.x, lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  bool keep = i < n && x[i] % 3 == 0;
  u32 m = __ballot_sync(~0u, keep);
  if (lane == 0) place[warp] = __popc(m);
  __syncthreads();
  if (threadIdx.x == 0) {
    int sum = 0;
    for (int w = 0; w < blockDim.x / 32; w++) { int v = place[w]; place[w] = sum; sum += v; }
    base = atomicAdd(count, sum);
  }
  __syncthreads();
  if (keep) out[base + place[warp] + __popc(m & ((1u << lane) - 1))] = x[i];
}

K life(unsigned char *out, const unsigned char *in, int w, int h) {
  int x = blockIdx.x * blockDim.x + threadIdx.x, y = blockIdx.y * blockDim.y + threadIdx.y;
  if (x >= w || y >= h) return;
  int n = 0;
  for (int dy = -1; dy <= 1; dy++)
    for (int dx = -1; dx <= 1; dx++)
      if (dx || dy) n += in[(y + dy + h) % h * w + (x + dx + w) % w];
  out[y * w + x] = n == 3 || (n == 2 && in[y * w + x]);
}

// A warp for each row of a sparse matrix.
K spmv(double *y, const int *starts, const int *columns, const double *values, const double *x, int rows) {
  int row = (blockIdx.x * blockDim.x + threadIdx.x) / 32, lane = threadIdx.x % 32;
  if (row >= rows) return;
  double sum = 0;
  for (int i = starts[row] + lane; i < starts[row + 1]; i += 32) sum += values[i] * x[columns[i]];
  for (int d = 16; d; d /= 2) sum += __shfl_down_sync(~0u, sum, d);
  if (lane == 0) y[row] = sum;
}

K floyd(int *d, int n) {
  for (int k = 0; k < n; k++) {
    for (int i = threadIdx.x; i < n * n; i += blockDim.x) {
      int through = d[i / n * n + k] + d[k * n + i % n];
      if (through < d[i]) d[i] = through;
    }
    __syncthreads();
  }
}

// Edit distance, one diagonal at a time.
K levenshtein(int *out, const char *a, int na, const char *b, int nb) {
  extern __shared__ short rows[];
  short *old = rows, *last = rows + na + 1, *now = rows + 2 * (na + 1);
  for (int d = 0; d <= na + nb; d++) {
    for (int i = threadIdx.x; i <= min(d, na); i += blockDim.x) {
      int j = d - i;
      if (j > nb) continue;
      if (i == 0) now[i] = j;
      else if (j == 0) now[i] = i;
      else now[i] = min(min(last[i - 1], last[i]) + 1, old[i - 1] + (a[i - 1] != b[j - 1]));
    }
    __syncthreads();
    short *t = old; old = last; last = now; now = t;
  }
  if (threadIdx.x == 0) *out = last[na];
}

// Barriers with numbers: half the block hands values to the other half.
K named_barriers(int *out, const int *x, int turns) {
  __shared__ int slot[64];
  int t = threadIdx.x, sum = 0;
  if (t < 64) {
    for (int i = 0; i < turns; i++) {
      asm volatile("bar.sync 2, 128;" ::: "memory");
      slot[t] = x[i * 64 + t];
      asm volatile("bar.arrive 1, 128;" ::: "memory");
    }
  } else {
    for (int i = 0; i < turns; i++) {
      asm volatile("bar.arrive 2, 128;" ::: "memory");
      asm volatile("bar.sync 1, 128;" ::: "memory");
      sum = sum * 3 + slot[(t + i) % 64];
      asm volatile("bar.sync 3, 64;" ::: "memory");
    }
    out[t - 64] = sum;
  }
}

K counting_barriers(int *out, const int *x) {
  int i = threadIdx.x, v = x[i];
  int n = __syncthreads_count(v > 0), a = __syncthreads_and(v > -100), o = __syncthreads_or(v > 95);
  out[i] = n * 4 + (a != 0) * 2 + (o != 0);
}

// Threads that have nothing to do leave before the block meets.
K early_exit(int *out, const int *x, int n) {
  __shared__ int s[128];
  int t = threadIdx.x;
  if (t >= n) return;
  s[t] = x[t];
  __syncthreads();
  out[t] = s[n - 1 - t];
}

K transpose_padded(double *out, const double *in, int w, int h) {
  __shared__ double s[32][33];
  int x = blockIdx.x * 32 + threadIdx.x, y = blockIdx.y * 32 + threadIdx.y;
  for (int j = 0; j < 32; j += 8)
    if (x < w && y + j < h) s[threadIdx.y + j][threadIdx.x] = in[(y + j) * w + x];
  __syncthreads();
  x = blockIdx.y * 32 + threadIdx.x; y = blockIdx.x * 32 + threadIdx.y;
  for (int j = 0; j < 32; j += 8)
    if (x < h && y + j < w) out[(y + j) * h + x] = s[threadIdx.x][threadIdx.y + j];
}

// An FFT of 256 points in shared memory, twiddles from a table.
K fft(float2 *x, const float2 *root) {
  __shared__ float2 s[256];
  int t = threadIdx.x;
  float2 *row = x + blockIdx.x * 256;
  s[__brev(t) >> 24] = row[t];
  s[__brev(t + 128) >> 24] = row[t + 128];
  for (int half = 1; half < 256; half *= 2) {
    __syncthreads();
    int j = t % half, i = t / half * 2 * half + j;
    float2 w = root[j * (128 / half)], a = s[i], b = s[i + half];
    float2 p = {b.x * w.x - b.y * w.y, b.x * w.y + b.y * w.x};
    s[i] = {a.x + p.x, a.y + p.y};
    s[i + half] = {a.x - p.x, a.y - p.y};
  }
  __syncthreads();
  row[t] = s[t]; row[t + 128] = s[t + 128];
}
