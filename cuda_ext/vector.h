// Sixteen-lane float arithmetic, portable through GCC/Clang vector extensions. Every function works lane by lane, so a
// value's result never depends on its neighbours or on its place in memory.
#pragma once
#include <cstdint>
#include <cstring>
#if defined(__F16C__) || defined(__AVX512F__)
#include <immintrin.h>
#endif

namespace antiphon {

typedef float v16 __attribute__((vector_size(64)));
typedef int32_t v16i __attribute__((vector_size(64)));
constexpr int kLanes = 16;

inline v16 splat(float x) { return v16{} + x; }
inline v16 load(const float* p) { v16 v; std::memcpy(&v, p, sizeof v); return v; }
inline void store(float* p, v16 v) { std::memcpy(p, &v, sizeof v); }
inline v16 select(v16i mask, v16 yes, v16 no) { return (v16)((mask & (v16i)yes) | (~mask & (v16i)no)); }
inline v16 vmin(v16 a, v16 b) { return select(a < b, a, b); }
inline v16 vmax(v16 a, v16 b) { return select(a > b, a, b); }

inline float half_to_float(uint16_t h) {  // IEEE 754 binary16, exact
  const uint32_t sign = uint32_t(h & 0x8000u) << 16, exponent = (h >> 10) & 31u, fraction = h & 1023u;
  uint32_t bits;
  if (exponent == 0) {
    const float f = float(fraction) * 5.9604644775390625e-8f;  // subnormal: fraction * 2^-24
    std::memcpy(&bits, &f, 4);
    bits |= sign;
  } else {
    bits = sign | ((exponent == 31u ? 255u : exponent + 112u) << 23) | (fraction << 13);
  }
  float out;
  std::memcpy(&out, &bits, 4);
  return out;
}

inline uint16_t float_to_half(float x) {  // to nearest, ties to even; too large becomes infinite
#if defined(__F16C__)
  return uint16_t(_cvtss_sh(x, _MM_FROUND_TO_NEAREST_INT));
#else
  uint32_t bits;
  std::memcpy(&bits, &x, 4);
  const uint16_t sign = uint16_t(bits >> 16 & 0x8000u);
  bits &= 0x7fffffffu;
  if (bits > 0x7f800000u) return uint16_t(sign | 0x7e00u);
  if (bits >= 0x477ff000u) return uint16_t(sign | 0x7c00u);
  if (bits < 0x38800000u) {  // subnormal: the sum rounds at 2^-24
    float magnitude;
    std::memcpy(&magnitude, &bits, 4);
    magnitude += 0.5f;
    std::memcpy(&bits, &magnitude, 4);
    return uint16_t(sign | (bits - 0x3f000000u));
  }
  bits += 0xc8000000u + 0xfffu + (bits >> 13 & 1u);
  return uint16_t(sign | bits >> 13);
#endif
}

inline v16 load_half(const uint16_t* p) {
#if defined(__AVX512F__)
  return (v16)_mm512_cvtph_ps(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)));
#elif defined(__F16C__)
  v16 v;
  const __m256 lo = _mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p)));
  const __m256 hi = _mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p + 8)));
  std::memcpy(&v, &lo, 32);
  std::memcpy(reinterpret_cast<char*>(&v) + 32, &hi, 32);
  return v;
#else
  v16 v;
  for (int i = 0; i < kLanes; ++i) v[i] = half_to_float(p[i]);
  return v;
#endif
}

// A fixed tree: lanes 8 apart, then 4, 2, 1.
inline float sum(v16 v) {
#if defined(__AVX512F__)
  return _mm512_reduce_add_ps((__m512)v);
#else
  float a[16];
  store(a, v);
  for (int width = 8; width; width >>= 1)
    for (int i = 0; i < width; ++i) a[i] += a[i + width];
  return a[0];
#endif
}

inline float largest(v16 v) {
#if defined(__AVX512F__)
  return _mm512_reduce_max_ps((__m512)v);
#else
  float top = v[0];
  for (int i = 1; i < kLanes; ++i) top = v[i] > top ? v[i] : top;
  return top;
#endif
}

inline v16 round_to_even(v16 x) {  // |x| < 2^22
  const v16 magic = splat(12582912.0f);
  return (x + magic) - magic;
}

inline v16i nearest(v16 x) {  // ties to even; |x| < 2^22. What made x is rounded first: no multiply-add reaches into it.
#if defined(__AVX512F__)
  return (v16i)_mm512_cvtps_epi32((__m512)x);
#else
  asm("" : "+m"(x));
  return __builtin_convertvector(round_to_even(x), v16i);
#endif
}

inline v16 vexp(v16 x) {  // Cephes expf; relative error below 2e-7
  x = vmax(vmin(x, splat(88.0f)), splat(-87.0f));
  const v16 n = round_to_even(x * 1.44269504088896341f);
  const v16 r = (x - n * 0.693359375f) - n * -2.12194440e-4f;
  v16 p = splat(1.9875691500e-4f);
  p = p * r + 1.3981999507e-3f;
  p = p * r + 8.3334519073e-3f;
  p = p * r + 4.1665795894e-2f;
  p = p * r + 1.6666665459e-1f;
  p = p * r + 5.0000001201e-1f;
  p = p * (r * r) + r + 1.0f;
  const v16i e = (__builtin_convertvector(n, v16i) + 127) << 23;
  return p * (v16)e;
}

inline v16 vlog(v16 x) {  // Cephes logf; x > 0 and normal
  const v16i bits = (v16i)x;
  v16i e = ((bits >> 23) & 255) - 126;
  v16 m = (v16)((bits & 0x007fffff) | 0x3f000000);  // [0.5, 1)
  const v16i small = m < splat(0.707106781186547524f);
  e = e + small;  // true lanes are -1
  m = select(small, m + m, m) - 1.0f;
  const v16 z = m * m;
  v16 p = splat(7.0376836292e-2f);
  p = p * m - 1.1514610310e-1f;
  p = p * m + 1.1676998740e-1f;
  p = p * m - 1.2420140846e-1f;
  p = p * m + 1.4249322787e-1f;
  p = p * m - 1.6668057665e-1f;
  p = p * m + 2.0000714765e-1f;
  p = p * m - 2.4999993993e-1f;
  p = p * m + 3.3333331174e-1f;
  const v16 fe = __builtin_convertvector(e, v16);
  v16 y = p * m * z;
  y = y + fe * -2.12194440e-4f - z * 0.5f;
  return m + y + fe * 0.693359375f;
}

inline void vsincos(v16 x, v16* s, v16* c) {  // Cephes sinf/cosf; |x| below about 8192
  const v16 q = round_to_even(x * 0.636619772367581343f);
  v16 r = ((x - q * 1.5703125f) - q * 4.837512969970703125e-4f) - q * 7.54978995489188216e-8f;
  const v16i quadrant = __builtin_convertvector(q, v16i);
  const v16 z = r * r;
  v16 sine = splat(-1.9515295891e-4f) * z + 8.3321608736e-3f;
  sine = (sine * z - 1.6666654611e-1f) * z * r + r;
  v16 cosine = splat(2.443315711809948e-5f) * z - 1.388731625493765e-3f;
  cosine = (cosine * z + 4.166664568298827e-2f) * z * z - z * 0.5f + 1.0f;
  const v16i swap = -(quadrant & 1);
  const v16 rs = select(swap, cosine, sine), rc = select(swap, sine, cosine);
  *s = (v16)((v16i)rs ^ ((quadrant & 2) << 30));
  *c = (v16)((v16i)rc ^ (((quadrant + 1) & 2) << 30));
}

inline v16 vgelu(v16 x) {  // x Phi(x) with erf by Abramowitz and Stegun 7.1.26, |error| < 1.5e-7
  const v16 u = x * 0.70710678118654752f;
  const v16 a = select(u < splat(0.0f), -u, u);
  const v16 t = 1.0f / (a * 0.3275911f + 1.0f);
  v16 p = splat(1.061405429f) * t - 1.453152027f;
  p = p * t + 1.421413741f;
  p = p * t - 0.284496736f;
  p = p * t + 0.254829592f;
  const v16 tail = p * t * vexp(-(a * a));
  const v16 erf = select(u < splat(0.0f), tail - 1.0f, 1.0f - tail);
  return x * 0.5f * (erf + 1.0f);
}

inline v16 vsilu(v16 x) { return x / (vexp(-x) + 1.0f); }

}  // namespace antiphon
