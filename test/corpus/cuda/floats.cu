// Floating point: f16, bf16, f32, f64; rounding in every direction; libdevice's functions.
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_fp8.h>
typedef unsigned int u32;
typedef unsigned short u16;
typedef unsigned long long u64;
#define K extern "C" __global__ void
#define I int i = blockIdx.x * blockDim.x + threadIdx.x

K half_arithmetic(__half *out, const __half *x, const __half *y, const __half *z) {
  I; __half a = x[i], b = y[i], c = z[i], *o = out + i * 16;
  o[0] = __hadd(a, b); o[1] = __hsub(a, b); o[2] = __hmul(a, b); o[3] = __hfma(a, b, c);
  o[4] = __hadd_sat(a, b); o[5] = __hmul_sat(a, b); o[6] = __hfma_sat(a, b, c); o[7] = __hfma_relu(a, b, c);
  o[8] = __hneg(a); o[9] = __habs(b); o[10] = __hmax(a, b); o[11] = __hmin(a, b);
  o[12] = __hmax_nan(a, b); o[13] = __hmin_nan(b, c); o[14] = __hsub_sat(a, c); o[15] = __hmul_rn(b, c);
}
K half2_arithmetic(__half2 *out, const __half2 *x, const __half2 *y, const __half2 *z) {
  I; __half2 a = x[i], b = y[i], c = z[i], *o = out + i * 12;
  o[0] = a + b; o[1] = __hsub2(__hmul2_rn(a, b), c); o[2] = __hfma2(a, b, c); o[3] = __hfma2_relu(a, b, c);
  o[4] = __hmax2(a, b); o[5] = __hmin2_nan(b, c); o[6] = __hneg2(a); o[7] = __lowhigh2highlow(a);
  o[8] = __hcmadd(a, b, c); o[9] = __halves2half2(__low2half(a), __high2half(b)); o[10] = __habs2(c); o[11] = __hfma2_sat(a, b, c);
}
K half_comparisons(u32 *out, const __half2 *x, const __half2 *y) {
  I; __half2 p = x[i], q = y[i]; __half a = __low2half(p), b = __high2half(q);
  u32 r = __heq(a, b) | __hne(a, b) << 1 | __hlt(a, b) << 2 | __hle(a, b) << 3 | __hgt(a, b) << 4 | __hge(a, b) << 5 |
      __hequ(a, b) << 6 | __hneu(a, b) << 7 | __hltu(a, b) << 8 | __hgeu(a, b) << 9 | __hisnan(a) << 10 | (__hisinf(b) + 1) << 11 |
      __hbeq2(p, q) << 13 | __hbltu2(p, q) << 14 | __hbge2(p, q) << 15;
  out[i * 3] = r; out[i * 3 + 1] = __hlt2_mask(p, q);
  __half2 t = __hgtu2(p, q); out[i * 3 + 2] = *(u32 *)&t;
}
K half_conversions(u16 *out, int *ints, long long *longs, const float *x) {
  I; float f = x[i]; u16 *o = out + i * 10; int *n = ints + i * 8; __half h = __float2half(f);
  o[0] = __half_as_ushort(__float2half_rn(f)); o[1] = __half_as_ushort(__float2half_rz(f));
  o[2] = __half_as_ushort(__float2half_ru(f)); o[3] = __half_as_ushort(__float2half_rd(f));
  o[4] = __half_as_ushort(__double2half((double)f * 1.0000001)); o[5] = __half_as_ushort(__int2half_rn((int)(f * 100)));
  o[6] = __half_as_ushort(__ushort2half_rz((u16)(i * 77))); o[7] = __half_as_ushort(__ull2half_ru((u64)i * 123456789));
  o[8] = __half_as_ushort(__uint2half_rd(i * 1000003)); o[9] = __half_as_ushort(hrint(h));
  n[0] = __half2int_rn(h); n[1] = __half2int_rz(h); n[2] = __half2uint_ru(h); n[3] = __half2int_rd(h);
  n[4] = (u32)__half2short_rn(h); n[5] = __half2ushort_rz(h); n[6] = __half2uchar_rz(h); n[7] = __half_as_ushort(hfloor(h)) << 16 | __half_as_ushort(hceil(h));
  longs[i] = __half2ll_rd(h);
}
K bf16_arithmetic(__nv_bfloat16 *out, const __nv_bfloat16 *x, const __nv_bfloat16 *y, const __nv_bfloat16 *z) {
  I; __nv_bfloat16 a = x[i], b = y[i], c = z[i], *o = out + i * 12;
  o[0] = __hadd(a, b); o[1] = __hsub(a, b); o[2] = __hmul(a, b); o[3] = __hfma(a, b, c);
  o[4] = __hfma_relu(a, b, c); o[5] = __hmax(a, b); o[6] = __hmin_nan(a, b); o[7] = __hneg(a);
  o[8] = __habs(a); o[9] = __hadd_sat(a, b); o[10] = __hmul_sat(a, c); o[11] = __hmax_nan(b, c);
}
K bf16_conversions(u16 *out, float *floats, int *ints, const float *x) {
  I; float f = x[i]; u16 *o = out + i * 6;
  o[0] = __bfloat16_as_ushort(__float2bfloat16_rn(f)); o[1] = __bfloat16_as_ushort(__float2bfloat16_rz(f));
  o[2] = __bfloat16_as_ushort(__float2bfloat16_ru(f)); o[3] = __bfloat16_as_ushort(__float2bfloat16_rd(f));
  o[4] = __bfloat16_as_ushort(__double2bfloat16((double)f * 1.00000001)); o[5] = __bfloat16_as_ushort(__int2bfloat16_rn(i * 7919));
  floats[i] = __bfloat162float(__ushort_as_bfloat16(i * 517));
  ints[i] = __bfloat162int_rz(__float2bfloat16(f));
}
K half_functions(__half *out, __nv_bfloat16 *wide, const __half *x) {
  I; __half a = x[i], *o = out + i * 10; __nv_bfloat16 b = __float2bfloat16(__half2float(a)), *w = wide + i * 4;
  o[0] = hexp(a); o[1] = hlog(__habs(a)); o[2] = hsin(a); o[3] = hcos(a); o[4] = hsqrt(__habs(a)); o[5] = hrsqrt(__habs(a));
  o[6] = hrcp(a); o[7] = htanh(a); o[8] = hexp2(a); o[9] = __hdiv(a, __hadd(a, a));
  w[0] = hexp(b); w[1] = hsqrt(__habs(b)); w[2] = __h2div(__bfloat162bfloat162(b), __float2bfloat162_rn(3.0f)).x; w[3] = hlog2(__habs(b));
}
K fp8_conversions(unsigned char *out, float *back, const float *x) {
  I; float f = x[i]; unsigned char *o = out + i * 4;
  o[0] = __nv_cvt_float_to_fp8(f, __NV_SATFINITE, __NV_E4M3); o[1] = __nv_cvt_float_to_fp8(f, __NV_SATFINITE, __NV_E5M2);
  o[2] = __nv_cvt_float_to_fp8(f, __NV_NOSAT, __NV_E5M2); o[3] = __nv_fp8_e4m3(f * 0.01f).__x;
  __nv_fp8_e4m3 e; e.__x = i; __nv_fp8_e5m2 g; g.__x = i;
  back[2 * i] = (float)e; back[2 * i + 1] = (float)g;
}
K directed_floats(float *out, const float *x, const float *y, const float *z) {
  I; float a = x[i], b = y[i], c = z[i], *o = out + i * 24;
  o[0] = __fadd_rn(a, b); o[1] = __fadd_rz(a, b); o[2] = __fadd_ru(a, b); o[3] = __fadd_rd(a, b);
  o[4] = __fmul_rn(a, b); o[5] = __fmul_rz(a, b); o[6] = __fmul_ru(a, b); o[7] = __fmul_rd(a, b);
  o[8] = __fmaf_rn(a, b, c); o[9] = __fmaf_rz(a, b, c); o[10] = __fmaf_ru(a, b, c); o[11] = __fmaf_rd(a, b, c);
  o[12] = __fdiv_rn(a, b); o[13] = __fdiv_rz(a, b); o[14] = __fdiv_ru(a, b); o[15] = __fdiv_rd(a, b);
  o[16] = __fsqrt_rn(fabsf(a)); o[17] = __fsqrt_rz(fabsf(a)); o[18] = __fsqrt_ru(fabsf(a)); o[19] = __fsqrt_rd(fabsf(a));
  o[20] = __frcp_rn(a); o[21] = __frcp_ru(a); o[22] = __fsub_rz(a, b); o[23] = __fsub_rd(b, a);
}
K directed_doubles(double *out, const double *x, const double *y, const double *z) {
  I; double a = x[i], b = y[i], c = z[i], *o = out + i * 18;
  o[0] = __dadd_rn(a, b); o[1] = __dadd_rz(a, b); o[2] = __dadd_ru(a, b); o[3] = __dadd_rd(a, b);
  o[4] = __dmul_rn(a, b); o[5] = __dmul_rz(a, b); o[6] = __dmul_ru(a, b); o[7] = __dmul_rd(a, b);
  o[8] = __fma_rn(a, b, c); o[9] = __fma_ru(a, b, c); o[10] = __ddiv_rn(a, b); o[11] = __ddiv_ru(a, b);
  o[12] = __ddiv_rz(a, b); o[13] = __dsqrt_rn(fabs(a)); o[14] = __dsqrt_rd(fabs(a)); o[15] = __drcp_rn(a); o[16] = __drcp_rz(b); o[17] = __dsub_rd(a, c);
}
K float_to_integer(int *out, long long *wide, float *back, const float *x) {
  I; float f = x[i]; int *o = out + i * 10; long long *w = wide + i * 5; float *b = back + i * 8;
  o[0] = __float2int_rn(f); o[1] = __float2int_rz(f); o[2] = __float2int_ru(f); o[3] = __float2int_rd(f);
  o[4] = __float2uint_rn(f); o[5] = __float2uint_rz(f); o[6] = __float2uint_ru(f); o[7] = (signed char)__float2int_rz(fminf(fmaxf(f, -128), 127));
  o[8] = __double2int_rn((double)f * 3); o[9] = __double2uint_rd((double)f / 3);
  w[0] = __float2ll_rn(f); w[1] = __float2ll_rd(f); w[2] = __float2ull_rz(f); w[3] = __double2ll_ru((double)f * 1e3); w[4] = __double2ull_rn(f);
  b[0] = __int2float_rn(o[0] * 77); b[1] = __int2float_rz(i * 123456789); b[2] = __uint2float_ru(i * 987654321u); b[3] = __ll2float_rd(w[0] * 1000003);
  b[4] = __double2float_rn((double)f * 1.1); b[5] = __double2float_ru((double)f * 1.1); b[6] = __double2float_rz((double)f / 3); b[7] = (float)__longlong_as_double(__double_as_longlong(f) + 1);
}
K float_functions(float *out, const float *x, const float *y) {
  I; float a = x[i], b = y[i], *o = out + i * 24;
  o[0] = sinf(a); o[1] = cosf(a); o[2] = tanf(a); o[3] = expf(a); o[4] = logf(fabsf(a)); o[5] = powf(fabsf(a), b);
  o[6] = tanhf(a); o[7] = erff(a); o[8] = lgammaf(fabsf(a)); o[9] = atan2f(a, b); o[10] = asinf(a / 20); o[11] = cbrtf(a);
  o[12] = exp2f(a); o[13] = log1pf(fabsf(a)); o[14] = expm1f(a / 10); o[15] = hypotf(a, b); o[16] = sinhf(a); o[17] = acoshf(fabsf(a) + 1);
  o[18] = rsqrtf(fabsf(a)); o[19] = normcdff(a / 5); o[20] = j0f(a); o[21] = sinpif(a); o[22] = log10f(fabsf(a)); o[23] = erfcf(a / 4);
}
K large_arguments(float *out, double *wide, const float *x) {
  I; out[2 * i] = sinf(x[i]); out[2 * i + 1] = cosf(x[i]); wide[i] = sin((double)x[i] * 1e10);
}
K double_functions(double *out, const double *x, const double *y) {
  I; double a = x[i], b = y[i], *o = out + i * 16;
  o[0] = sin(a); o[1] = cos(a); o[2] = exp(a); o[3] = log(fabs(a)); o[4] = pow(fabs(a), b); o[5] = tanh(a); o[6] = erf(a); o[7] = tgamma(fabs(a) / 4 + 0.5);
  o[8] = atan2(a, b); o[9] = asin(a / 20); o[10] = cbrt(a); o[11] = exp2(a); o[12] = log1p(fabs(a)); o[13] = sinh(a); o[14] = rsqrt(fabs(a)); o[15] = hypot(a, b);
}
K exact_functions(float *out, double *wide, int *ints, const float *x, const float *y) {
  I; float a = x[i], b = y[i], *o = out + i * 18; double c = a, d = b, *w = wide + i * 9; int *n = ints + i * 6, e, q; float ip; double dp;
  o[0] = floorf(a); o[1] = ceilf(a); o[2] = truncf(a); o[3] = rintf(a); o[4] = roundf(a); o[5] = fmodf(a, b);
  o[6] = remainderf(a, b); o[7] = frexpf(a, &e); o[8] = ldexpf(a, i % 40 - 20); o[9] = modff(a, &ip); o[10] = ip; o[11] = nextafterf(a, b);
  o[12] = copysignf(a, b); o[13] = fdimf(a, b); o[14] = fminf(a, b); o[15] = logbf(a); o[16] = scalbnf(a, -5); o[17] = remquof(a, b, &q);
  w[0] = floor(c); w[1] = rint(d); w[2] = fmod(c, d); w[3] = remainder(c, d); w[4] = frexp(c * 3, &e); w[5] = ldexp(c, i - 50); w[6] = modf(c, &dp); w[7] = nextafter(c, d); w[8] = sqrt(fabs(c));
  n[0] = e; n[1] = ilogbf(a); n[2] = isnan(a) | isinf(b) << 1 | signbit(a) << 2 | isfinite(b) << 3; n[3] = lrintf(a); n[4] = llround(d); n[5] = __float_as_int(a) ^ __double2hiint(d) ^ __double2loint(c);
}
K fast_functions(float *out, const float *x, const float *y) {
  I; float a = x[i], b = y[i], *o = out + i * 12;
  o[0] = __sinf(a); o[1] = __cosf(a); o[2] = __expf(a); o[3] = __logf(fabsf(a)); o[4] = __fdividef(a, b); o[5] = __powf(fabsf(a), b);
  o[6] = __exp10f(a / 4); o[7] = __log2f(fabsf(a)); o[8] = __tanf(a); o[9] = __frsqrt_rn(fabsf(a)); o[10] = __saturatef(a); float s, c; __sincosf(b, &s, &c); o[11] = s * c;
}
K mandelbrot(float2 *out, const float2 *x, int n) {
  I; float2 z = {0, 0}, c = x[i]; int k = 0;
  for (; k < n && z.x * z.x + z.y * z.y < 4; k++) z = {z.x * z.x - z.y * z.y + c.x, 2 * z.x * z.y + c.y};
  out[i] = {(float)k, c.x * c.y};
}
K n_body(float4 *out, const float4 *body, int n) {
  __shared__ float4 tile[64];
  I; float4 me = body[i]; float3 a = {0, 0, 0};
  for (int at = 0; at < n; at += 64) {
    tile[threadIdx.x] = body[at + threadIdx.x];
    __syncthreads();
    for (int j = 0; j < 64; j++) {
      float4 o = tile[j]; float dx = o.x - me.x, dy = o.y - me.y, dz = o.z - me.z;
      float r = rsqrtf(dx * dx + dy * dy + dz * dz + 0.01f), s = o.w * r * r * r;
      a.x += dx * s; a.y += dy * s; a.z += dz * s;
    }
    __syncthreads();
  }
  out[i] = make_float4(a.x, a.y, a.z, me.w);
}
K lu_decomposition(double *a, int n) {
  __shared__ int pivot;
  for (int k = 0; k < n; k++) {
    if (threadIdx.x == 0) {
      pivot = k;
      for (int r = k + 1; r < n; r++) if (fabs(a[r * n + k]) > fabs(a[pivot * n + k])) pivot = r;
    }
    __syncthreads();
    int p = pivot;
    if (p != k) for (int c = threadIdx.x; c < n; c += blockDim.x) { double t = a[k * n + c]; a[k * n + c] = a[p * n + c]; a[p * n + c] = t; }
    __syncthreads();
    for (int r = k + 1 + threadIdx.x; r < n; r += blockDim.x) a[r * n + k] /= a[k * n + k];
    __syncthreads();
    for (int e = threadIdx.x; e < (n - k - 1) * (n - k - 1); e += blockDim.x) {
      int r = k + 1 + e / (n - k - 1), c = k + 1 + e % (n - k - 1);
      a[r * n + c] -= a[r * n + k] * a[k * n + c];
    }
    __syncthreads();
  }
}
K welford(float *mean, float *variance, const float *x, int n) {
  float m = 0, s = 0, c = 0;
  for (int i = threadIdx.x; i < n; i += 32) { c += 1; float d = x[blockIdx.x * n + i] - m; m += d / c; s += d * (x[blockIdx.x * n + i] - m); }
  for (int k = 16; k; k /= 2) {
    float om = __shfl_xor_sync(~0u, m, k), os = __shfl_xor_sync(~0u, s, k), oc = __shfl_xor_sync(~0u, c, k), t = c + oc, d = om - m;
    if (t > 0) { m += d * oc / t; s += os + d * d * c * oc / t; c = t; }
  }
  if (threadIdx.x == 0) { mean[blockIdx.x] = m; variance[blockIdx.x] = s / n; }
}
K softmax_online(__half *out, const __half *x, int n) {
  float m = -INFINITY, s = 0; const __half *row = x + blockIdx.x * n;
  for (int i = threadIdx.x; i < n; i += 32) { float v = __half2float(row[i]), t = fmaxf(m, v); s = s * __expf(m - t) + __expf(v - t); m = t; }
  for (int k = 16; k; k /= 2) {
    float om = __shfl_xor_sync(~0u, m, k), os = __shfl_xor_sync(~0u, s, k), t = fmaxf(m, om);
    s = (m > -INFINITY ? s * __expf(m - t) : 0) + (om > -INFINITY ? os * __expf(om - t) : 0); m = t;
  }
  for (int i = threadIdx.x; i < n; i += 32) out[blockIdx.x * n + i] = __float2half(__expf(__half2float(row[i]) - m) / s);
}
