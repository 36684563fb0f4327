// Integer intrinsics: packed bytes, dot products, funnel shifts, wide products, division.
typedef unsigned int u32;
typedef unsigned long long u64;
#define K extern "C" __global__ void

K packed_bytes(u32 *out, const u32 *x, const u32 *y) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  u32 a = x[i], b = y[i], *o = out + i * 20;
  o[0] = __vadd4(a, b); o[1] = __vsub4(a, b); o[2] = __vaddss4(a, b); o[3] = __vaddus4(a, b);
  o[4] = __vsubss4(a, b); o[5] = __vsubus4(a, b); o[6] = __vabsdiffu4(a, b); o[7] = __vabsdiffs4(a, b);
  o[8] = __vmaxu4(a, b); o[9] = __vmaxs4(a, b); o[10] = __vminu4(a, b); o[11] = __vmins4(a, b);
  o[12] = __vcmpgtu4(a, b); o[13] = __vcmpges4(a, b); o[14] = __vsetltu4(a, b); o[15] = __vcmpeq4(a, b);
  o[16] = __vavgu4(a, b); o[17] = __vhaddu4(a, b); o[18] = __vsadu4(a, b); o[19] = __vsads4(a, b);
}
K packed_halves(u32 *out, const u32 *x, const u32 *y) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  u32 a = x[i], b = y[i], *o = out + i * 16;
  o[0] = __vadd2(a, b); o[1] = __vsub2(a, b); o[2] = __vaddss2(a, b); o[3] = __vaddus2(a, b);
  o[4] = __vsubss2(a, b); o[5] = __vabsdiffu2(a, b); o[6] = __vabsdiffs2(a, b); o[7] = __vmaxs2(a, b);
  o[8] = __vminu2(a, b); o[9] = __vcmpgts2(a, b); o[10] = __vsetgeu2(a, b); o[11] = __vavgs2(a, b);
  o[12] = __vneg2(a); o[13] = __vabs2(a); o[14] = __vabsss2(a); o[15] = __vsadu2(a, b);
}
K dot_products(int *out, const int *x, const int *y, const int *z) {
  int i = blockIdx.x * blockDim.x + threadIdx.x, a = x[i], b = y[i], c = z[i], *o = out + i * 6;
  o[0] = __dp4a(a, b, c); o[1] = __dp4a((u32)a, (u32)b, (u32)c);
  o[2] = __dp2a_lo(a, b, c); o[3] = __dp2a_hi(a, b, c);
  o[4] = __dp2a_lo((u32)a, (u32)b, (u32)c); o[5] = __dp2a_hi((u32)a, (u32)b, (u32)c);
}
K shifts_and_bits(u32 *out, u64 *wide, const u32 *x, const u32 *y, const u32 *s) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  u32 a = x[i], b = y[i], n = s[i], *o = out + i * 18;
  u64 w = (u64)a << 32 | b, *q = wide + i * 6;
  o[0] = __funnelshift_l(a, b, n); o[1] = __funnelshift_r(a, b, n); o[2] = __funnelshift_lc(a, b, n); o[3] = __funnelshift_rc(a, b, n);
  o[4] = __byte_perm(a, b, n); o[5] = __brev(a); o[6] = __clz(a); o[7] = __ffs(b); o[8] = __popc(a);
  o[9] = __clzll(w); o[10] = __ffsll(w); o[11] = __popcll(w);
  u32 r; asm("bfe.u32 %0, %1, %2, %3;" : "=r"(r) : "r"(a), "r"(n & 63), "r"(n >> 6 & 63)); o[12] = r;
  int t; asm("bfe.s32 %0, %1, %2, %3;" : "=r"(t) : "r"(a), "r"(n & 63), "r"(n >> 6 & 63)); o[13] = t;
  asm("bfi.b32 %0, %1, %2, %3, %4;" : "=r"(r) : "r"(a), "r"(b), "r"(n & 63), "r"(n >> 6 & 63)); o[14] = r;
  asm("bmsk.clamp.b32 %0, %1, %2;" : "=r"(r) : "r"(n & 63), "r"(n >> 6 & 63)); o[15] = r;
  asm("szext.wrap.s32 %0, %1, %2;" : "=r"(t) : "r"(a), "r"(n & 31)); o[16] = t;
  asm("bfind.shiftamt.u32 %0, %1;" : "=r"(r) : "r"(a)); o[17] = r;
  q[0] = __brevll(w); asm("bfe.s64 %0, %1, %2, %3;" : "=l"(q[1]) : "l"(w), "r"(n & 127), "r"(n >> 7 & 63));
  q[2] = w << (n & 63); q[3] = (long long)w >> (n & 63); q[4] = __umul64hi(w, ~w); q[5] = __mul64hi(w, w ^ 0x123456789ull);
}
K products(u32 *out, const u32 *x, const u32 *y) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  u32 a = x[i], b = y[i], *o = out + i * 14;
  o[0] = __mulhi((int)a, (int)b); o[1] = __umulhi(a, b); o[2] = __mul24((int)a, (int)b); o[3] = __umul24(a, b);
  o[4] = __hadd((int)a, (int)b); o[5] = __rhadd((int)a, (int)b); o[6] = __uhadd(a, b); o[7] = __urhadd(a, b);
  o[8] = __sad((int)a, (int)b, 7u); o[9] = __usad(a, b, 9u);
  u32 r; asm("mad24.hi.u32 %0, %1, %2, %3;" : "=r"(r) : "r"(a), "r"(b), "r"(5)); o[10] = r;
  asm("mad.hi.sat.s32 %0, %1, %2, %3;" : "=r"(r) : "r"(a), "r"(b), "r"(0x70000000)); o[11] = r;
  asm("mul24.hi.s32 %0, %1, %2;" : "=r"(r) : "r"(a), "r"(b)); o[12] = r;
  asm("mad.lo.s32 %0, %1, %2, %3;" : "=r"(r) : "r"(a), "r"(b), "r"(a ^ b)); o[13] = r;
}
K divisions(u32 *out, u64 *wide, const u32 *x, const u32 *y, const u64 *p, const u64 *q) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  u32 a = x[i], b = y[i], *o = out + i * 8;
  u64 c = p[i], d = q[i], *w = wide + i * 6;
  o[0] = a / b; o[1] = a % b; o[2] = (int)a / (int)b; o[3] = (int)a % (int)b;
  o[4] = a / 7; o[5] = (int)a % 1000; o[6] = (unsigned short)a / (unsigned short)(b | 1); o[7] = (short)a % (short)(b | 1);
  w[0] = c / d; w[1] = c % d; w[2] = (long long)c / (long long)d; w[3] = (long long)c % (long long)d; w[4] = c / 10; w[5] = (long long)c / -3;
}
K wide_products(u64 *out, const u64 *p, const u64 *q) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  unsigned __int128 a = (unsigned __int128)p[i] << 64 | q[i], b = (unsigned __int128)q[i] << 17 | p[i] >> 5;
  u64 *o = out + i * 10;
  unsigned __int128 m = a * b, s = a - b, h = a >> (p[i] & 127);
  o[0] = m; o[1] = m >> 64; o[2] = s; o[3] = s >> 64; o[4] = h; o[5] = h >> 64;
  unsigned __int128 n = a / (b | 1), r = a % (p[i] | 1);
  o[6] = n; o[7] = n >> 64; o[8] = r; o[9] = (__int128)a < (__int128)b;
}
K dpx(int *out, const int *x, const int *y, const int *z) {
  int i = blockIdx.x * blockDim.x + threadIdx.x, a = x[i], b = y[i], c = z[i], *o = out + i * 14;
  bool p, q;
  o[0] = __vimax3_s32(a, b, c); o[1] = __vimin3_s32(a, b, c); o[2] = __vimax3_u32(a, b, c); o[3] = __vimax_s32_relu(a, b);
  o[4] = __vimax3_s16x2(a, b, c); o[5] = __vimin3_u16x2(a, b, c); o[6] = __viaddmax_s32(a, b, c); o[7] = __viaddmin_s16x2(a, b, c);
  o[8] = __viaddmax_s16x2_relu(a, b, c); o[9] = __vibmax_s32(a, b, &p) * 2 + p; o[10] = __vibmin_u16x2(a, b, &p, &q) ^ p ^ q << 16;
  o[11] = __viaddmax_u32(a, b, c); o[12] = __vimin_s16x2_relu(a, b); o[13] = __vimax3_s16x2_relu(a, b, c);
}
K video(int *out, const int *x, const int *y, const int *z) {
  int i = blockIdx.x * blockDim.x + threadIdx.x, a = x[i], b = y[i], c = z[i], r, *o = out + i * 9;
  asm("vadd.s32.u32.s32.sat %0, %1.b1, %2.h1;" : "=r"(r) : "r"(a), "r"(b)); o[0] = r;
  asm("vsub.s32.s32.s32.add %0, %1.h0, %2.b3, %3;" : "=r"(r) : "r"(a), "r"(b), "r"(c)); o[1] = r;
  asm("vabsdiff.u32.u32.u32.max %0, %1, %2, %3;" : "=r"(r) : "r"(a), "r"(b), "r"(c)); o[2] = r;
  asm("vmin.s32.s32.s32 %0.b2, %1, %2, %3;" : "=r"(r) : "r"(a), "r"(b), "r"(c)); o[3] = r;
  asm("vmad.s32.s32.s32.shr7 %0, %1.h1, %2.h0, %3;" : "=r"(r) : "r"(a), "r"(b), "r"(c)); o[4] = r;
  asm("vset.s32.u32.lt %0, %1, %2;" : "=r"(r) : "r"(a), "r"(b)); o[5] = r;
  asm("vshl.u32.u32.u32.wrap %0, %1, %2;" : "=r"(r) : "r"(a), "r"(b)); o[6] = r;
  asm("vabsdiff4.u32.u32.u32.add %0, %1, %2, %3;" : "=r"(r) : "r"(a), "r"(b), "r"(c)); o[7] = r;
  asm("vavrg2.s32.s32.s32 %0, %1, %2, %3;" : "=r"(r) : "r"(a), "r"(b), "r"(c)); o[8] = r;
}

__device__ u32 rotr(u32 x, int n) { return x >> n | x << (32 - n); }
__constant__ u32 primes[64] = {
  0x428a2f98,0x71374491,0xb5c0fbcf,0xe9b5dba5,0x3956c25b,0x59f111f1,0x923f82a4,0xab1c5ed5,0xd807aa98,0x12835b01,0x243185be,0x550c7dc3,0x72be5d74,0x80deb1fe,0x9bdc06a7,0xc19bf174,
  0xe49b69c1,0xefbe4786,0x0fc19dc6,0x240ca1cc,0x2de92c6f,0x4a7484aa,0x5cb0a9dc,0x76f988da,0x983e5152,0xa831c66d,0xb00327c8,0xbf597fc7,0xc6e00bf3,0xd5a79147,0x06ca6351,0x14292967,
  0x27b70a85,0x2e1b2138,0x4d2c6dfc,0x53380d13,0x650a7354,0x766a0abb,0x81c2c92e,0x92722c85,0xa2bfe8a1,0xa81a664b,0xc24b8b70,0xc76c51a3,0xd192e819,0xd6990624,0xf40e3585,0x106aa070,
  0x19a4c116,0x1e376c08,0x2748774c,0x34b0bcb5,0x391c0cb3,0x4ed8aa4a,0x5b9cca4f,0x682e6ff3,0x748f82ee,0x78a5636f,0x84c87814,0x8cc70208,0x90befffa,0xa4506ceb,0xbef9a3f7,0xc67178f2};
// One block of SHA-256 for each thread: a message of up to 55 bytes.
K sha256(unsigned char *out, const unsigned char *text, const int *length) {
  int i = blockIdx.x * blockDim.x + threadIdx.x, n = length[i];
  u32 w[64], h[8] = {0x6a09e667,0xbb67ae85,0x3c6ef372,0xa54ff53a,0x510e527f,0x9b05688c,0x1f83d9ab,0x5be0cd19}, s[8];
  for (int j = 0; j < 16; j++) {
    w[j] = 0;
    for (int b = 0; b < 4; b++) {
      int at = j * 4 + b;
      w[j] = w[j] << 8 | (at < n ? text[i * 55 + at] : at == n ? 0x80 : 0);
    }
  }
  w[15] = n * 8;
  for (int j = 16; j < 64; j++) {
    u32 a = rotr(w[j - 15], 7) ^ rotr(w[j - 15], 18) ^ w[j - 15] >> 3, b = rotr(w[j - 2], 17) ^ rotr(w[j - 2], 19) ^ w[j - 2] >> 10;
    w[j] = w[j - 16] + a + w[j - 7] + b;
  }
  for (int j = 0; j < 8; j++) s[j] = h[j];
  for (int j = 0; j < 64; j++) {
    u32 t = s[7] + (rotr(s[4], 6) ^ rotr(s[4], 11) ^ rotr(s[4], 25)) + ((s[4] & s[5]) ^ (~s[4] & s[6])) + primes[j] + w[j];
    u32 u = (rotr(s[0], 2) ^ rotr(s[0], 13) ^ rotr(s[0], 22)) + ((s[0] & s[1]) ^ (s[0] & s[2]) ^ (s[1] & s[2]));
    for (int k = 7; k; k--) s[k] = s[k - 1];
    s[4] += t; s[0] = t + u;
  }
  for (int j = 0; j < 32; j++) out[i * 32 + j] = h[j / 4] + s[j / 4] >> 8 * (3 - j % 4);
}
K crc32(u32 *out, const unsigned char *text, int n) {
  __shared__ u32 table[256];
  for (u32 i = threadIdx.x; i < 256; i += blockDim.x) {
    u32 c = i;
    for (int k = 0; k < 8; k++) c = c & 1 ? c >> 1 ^ 0xEDB88320u : c >> 1;
    table[i] = c;
  }
  __syncthreads();
  u32 c = ~0u;
  for (int j = 0; j < n; j++) c = table[(c ^ text[threadIdx.x * n + j]) & 255] ^ c >> 8;
  out[threadIdx.x] = ~c;
}
K philox(uint4 *out, u32 seed) {
  u32 i = blockIdx.x * blockDim.x + threadIdx.x, k0 = seed, k1 = seed ^ 0xDEADBEEF;
  uint4 c = make_uint4(i, i * 3, 7, 0);
  for (int r = 0; r < 10; r++) {
    u32 h0 = __umulhi(0xD2511F53u, c.x), l0 = 0xD2511F53u * c.x, h1 = __umulhi(0xCD9E8D57u, c.z), l1 = 0xCD9E8D57u * c.z;
    c = make_uint4(h1 ^ c.y ^ k0, l1, h0 ^ c.w ^ k1, l0);
    k0 += 0x9E3779B9u; k1 += 0xBB67AE85u;
  }
  out[i] = c;
}
K modular_power(u64 *out, const u64 *base, const u64 *exponent, u64 modulus) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  u64 r = 1, b = base[i] % modulus;
  for (u64 e = exponent[i]; e; e >>= 1) {
    if (e & 1) r = (unsigned __int128)r * b % modulus;
    b = (unsigned __int128)b * b % modulus;
  }
  out[i] = r;
}
