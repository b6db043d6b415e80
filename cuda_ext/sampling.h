// Top-k + Gumbel sampling with counter noise: the draw of a token is a function of (seed, generation, step, codebook,
// token) and of nothing else. Philox4x32-10: Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", SC 2011.
#pragma once
#include "phases/noise.h"
#include "vector.h"

namespace antiphon {

struct Draw {
  uint64_t seed;
  uint32_t generation;
  uint32_t step;
  float temperature;  // 0: arg-max
  int32_t top_k;      // 0: all
};

// phases::philox for the counters c0[0..n), all else equal; n is rounded up to 8.
inline void philox_many(uint64_t key, const int32_t* c0, int n, uint32_t c1, uint32_t c2, uint32_t c3, uint32_t* out) {
#if defined(__AVX512F__) && defined(__AVX512DQ__)
  const __m512i a_by = _mm512_set1_epi64(0xD2511F53u), b_by = _mm512_set1_epi64(0xCD9E8D57u);
  for (int i = 0; i < n; i += 8) {
    __m512i x0 = _mm512_cvtepu32_epi64(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(c0 + i)));
    __m512i x1 = _mm512_set1_epi64(c1), x2 = _mm512_set1_epi64(c2), x3 = _mm512_set1_epi64(c3);
    uint32_t k0 = uint32_t(key), k1 = uint32_t(key >> 32);
    for (int round = 0; round < 10; ++round) {  // products read the low words alone, so high ones may be anything
      const __m512i a = _mm512_mul_epu32(a_by, x0), b = _mm512_mul_epu32(b_by, x2);
      x0 = _mm512_xor_si512(_mm512_xor_si512(_mm512_srli_epi64(b, 32), x1), _mm512_set1_epi64(k0));
      x1 = b;
      x2 = _mm512_xor_si512(_mm512_xor_si512(_mm512_srli_epi64(a, 32), x3), _mm512_set1_epi64(k1));
      x3 = a;
      k0 += 0x9E3779B9u;
      k1 += 0xBB67AE85u;
    }
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(out + i), _mm512_cvtepi64_epi32(x0));
  }
#else
  for (int i = 0; i < n; ++i) out[i] = phases::philox(key, uint32_t(c0[i]), c1, c2, c3);
#endif
}

inline int arg_max(const float* x, int n) {
  int best = 0;
  for (int i = 1; i < n; ++i)
    if (x[i] > x[best]) best = i;
  return best;
}

inline int32_t ordered(float x) {  // integer with the order of the float
  int32_t i;
  std::memcpy(&i, &x, 4);
  return i ^ ((i >> 31) & 0x7fffffff);
}

// The k-th largest of keys[0..n), n padded to 16 with the smallest integer, by bisection over the integers.
inline int32_t kth_largest(const int32_t* keys, int padded, int k) {
  int64_t low = INT32_MIN, high = int64_t(INT32_MAX) + 1;  // count(>= low) >= k > count(>= high)
  while (high - low > 1) {
    const int64_t middle = low + (high - low) / 2;
    v16i count{};
    for (int i = 0; i < padded; i += kLanes) {
      v16i v;
      std::memcpy(&v, keys + i, sizeof v);
      count -= (v >= (v16i{} + int32_t(middle)));
    }
    int total = 0;
    for (int i = 0; i < kLanes; ++i) total += count[i];
    if (total >= k) low = middle;
    else high = middle;
  }
  return int32_t(low);
}

constexpr int kMaxCard = 16384;

// logits: [n]. Ties at the k-th value are all kept. Returns a token in [0, n).
inline int sample(const float* logits, int n, const Draw& d, uint32_t codebook) {
  if (d.temperature <= 0.0f) return arg_max(logits, n);
  alignas(64) static thread_local int32_t keys[kMaxCard];
  alignas(64) static thread_local float noise[kMaxCard];
  alignas(64) static thread_local int32_t token[kMaxCard + kLanes];
  alignas(64) static thread_local uint32_t words[kMaxCard + kLanes];
  const int padded = (n + kLanes - 1) / kLanes * kLanes;
  for (int i = 0; i < n; ++i) keys[i] = ordered(logits[i]);
  for (int i = n; i < padded; ++i) keys[i] = INT32_MIN;
  const int32_t bound = d.top_k > 0 && d.top_k < n ? kth_largest(keys, padded, d.top_k) : INT32_MIN;
  int count = 0;
  for (int i = 0; i < n; ++i) {
    token[count] = i;
    count += keys[i] >= bound;
  }
  philox_many(d.seed, token, count, codebook, d.step, d.generation, words);
  for (int i = 0; i < count; ++i) noise[i] = (float(words[i] >> 9) + 0.5f) * 1.1920929e-7f;
  for (int i = count; i % kLanes; ++i) noise[i] = 0.5f;
  for (int i = 0; i < count; i += kLanes) store(noise + i, -vlog(-vlog(load(noise + i))));
  const float inverse = 1.0f / d.temperature;
  int best = 0;
  float top = -3.4e38f;
  for (int i = 0; i < count; ++i) {
    const float value = logits[token[i]] * inverse + noise[i];
    if (value > top) {
      top = value;
      best = token[i];
    }
  }
  return best;
}

}  // namespace antiphon
