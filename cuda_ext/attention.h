// One query against the keys of its own row, in the order in which they lie in the cache.
#pragma once
#include "fixed.h"

namespace antiphon {

inline int ring_places(int context) { return (context + kLanes - 1) / kLanes * kLanes; }

// q, out: [dim]; keys, values: [count, dim]; scores: scratch of at least count rounded up to 16. dim is a multiple of 16.
inline void attend(const float* q, const float* keys, const float* values, int count, int dim, float scale,
                   float* scores, float* out) {
  float top = -3.4e38f;
  for (int t = 0; t < count; ++t) {
    v16 acc{};
    for (int i = 0; i < dim; i += kLanes) acc = load(q + i) * load(keys + size_t(t) * dim + i) + acc;
    scores[t] = sum(acc) * scale;
    top = scores[t] > top ? scores[t] : top;
  }
  const int padded = (count + kLanes - 1) / kLanes * kLanes;
  for (int t = count; t < padded; ++t) scores[t] = -3.4e38f;
  float total = 0.0f;
  for (int t = 0; t < padded; t += kLanes) store(scores + t, vexp(load(scores + t) - top));
  for (int t = 0; t < count; ++t) total += scores[t];
  const float inverse = 1.0f / total;
  for (int i = 0; i < dim; i += kLanes) {
    v16 acc{};
    for (int t = 0; t < count; ++t) acc = splat(scores[t]) * load(values + size_t(t) * dim + i) + acc;
    store(out + i, acc * inverse);
  }
}

// A slot's ring of keys and values of one head; places are addressed modulo the context. In float32: keys [blocks of 16
// places][dim][16], so that sixteen scores are sixteen lanes; values [places][dim].
struct FloatRing {
  float *keys, *values;

  static size_t bytes(int context, int dim) { return size_t(ring_places(context)) * dim * sizeof(float); }
  FloatRing(char* keys_at, char* values_at, int, int)
      : keys(reinterpret_cast<float*>(keys_at)), values(reinterpret_cast<float*>(values_at)) {}

  void write(int place, int dim, const float* key, const float* value) const {
    float* k = keys + size_t(place / kLanes) * kLanes * dim + place % kLanes;
    for (int i = 0; i < dim; ++i) k[size_t(i) * kLanes] = key[i];
    std::memcpy(values + size_t(place) * dim, value, sizeof(float) * size_t(dim));
  }

  // scores: [count], rounded up to 16 (what lies past the count may be anything).
  void score(const float* q, int count, int dim, float* scores, int8_t*) const {
    for (int t = 0; t < count; t += kLanes) {
      const float* block = keys + size_t(t) * dim;
      v16 a{}, c{}, d{}, e{};
      for (int i = 0; i < dim; i += 4) {
        a = load(block + size_t(i) * kLanes) * q[i] + a;
        c = load(block + size_t(i + 1) * kLanes) * q[i + 1] + c;
        d = load(block + size_t(i + 2) * kLanes) * q[i + 2] + d;
        e = load(block + size_t(i + 3) * kLanes) * q[i + 3] + e;
      }
      store(scores + t, (a + c) + (d + e));
    }
  }

  // weights: [count], zero up to a multiple of 16; out: their sum of the values.
  void mix(const float* weights, int count, int dim, float* out, int8_t*) const {
    for (int i = 0; i < dim; i += 4 * kLanes) {
      const int width = dim - i < 4 * kLanes ? (dim - i) / kLanes : 4;
      v16 acc[4] = {};
      for (int t = 0; t < count; ++t)
        for (int j = 0; j < 4; ++j)
          if (j < width) acc[j] = load(values + size_t(t) * dim + i + j * kLanes) * weights[t] + acc[j];
      for (int j = 0; j < width; ++j) store(out + i + j * kLanes, acc[j]);
    }
  }
};

// In whole numbers: a key or value is scaled by its largest magnitude to 8 bits and stored 128 too large (one side of
// VPDPBUSD is unsigned); a query, and the weights of the values, to 16 bits as in fixed.h. Sums are exact, so every
// instruction set gives the same bits. Keys: [blocks of 16 places][dim / 4][16 places][4], then the places' scales;
// values: [blocks of 4 places][dim][4 places], then the scales.
struct ByteRing {
  uint8_t *keys, *values;
  float *key_scales, *value_scales;

  static size_t bytes(int context, int dim) { return size_t(ring_places(context)) * (size_t(dim) + sizeof(float)); }
  ByteRing(char* keys_at, char* values_at, int context, int dim)
      : keys(reinterpret_cast<uint8_t*>(keys_at)), values(reinterpret_cast<uint8_t*>(values_at)),
        key_scales(reinterpret_cast<float*>(keys_at + size_t(ring_places(context)) * dim)),
        value_scales(reinterpret_cast<float*>(values_at + size_t(ring_places(context)) * dim)) {}

  struct Excess {  // 128 times the sums of a row's parts
    int32_t high = 0, low = 0;
    Excess(const int8_t* high_at, const int8_t* low_at, int n) {
      for (int i = 0; i < n; ++i) {
        high += high_at[i];
        low += low_at[i];
      }
      high *= 128;
      low *= 128;
    }
  };

  // One vector to bytes of its own scale, Group of them together, element i at i * each; what is not finite shows in the
  // scale.
  template <int Group>
  static float to_bytes(const float* x, int dim, uint8_t* y, size_t each) {
    const int32_t bits = largest_bits(x, dim);
    float top;
    std::memcpy(&top, &bits, 4);
    if (bits >= 0x7f800000) return std::numeric_limits<float>::quiet_NaN();
    const float inverse = top > 1e-30f ? 127.0f / top : 0.0f;
    for (int i = 0; i < dim; i += kLanes) {
      const v16b q = __builtin_convertvector(nearest(load(x + i) * inverse) + 128, v16b);
      uint8_t bytes[kLanes];
      std::memcpy(bytes, &q, kLanes);
      for (int j = 0; j < kLanes; j += Group)
        std::memcpy(y + size_t(i + j) * each, bytes + j, Group);
    }
    return top / 127.0f;
  }

  void write(int place, int dim, const float* key, const float* value) const {
    uint8_t* k = keys + size_t(place / kLanes) * kLanes * dim + size_t(place % kLanes) * 4;
    uint8_t* v = values + size_t(place / 4) * 4 * dim + place % 4;
    key_scales[place] = to_bytes<4>(key, dim, k, kLanes);
    value_scales[place] = to_bytes<1>(value, dim, v, 4);
  }

  // Sum over groups of four of bytes (unsigned) times parts (signed): group g of lane l at bytes[(g * lanes + l) * 4].
  // parts: [2][4 * groups], high and low; the result is 256 high + low, less what the 128 added.
  static v16 dot(const uint8_t* bytes, size_t stride, const int8_t* parts, int groups, Excess over) {
    v16i high = v16i{} - over.high, low = v16i{} - over.low;
    for (int g = 0; g < groups; ++g) {
      high = dot_four(high, bytes + size_t(g) * stride, parts + g * 4);
      low = dot_four(low, bytes + size_t(g) * stride, parts + (groups + g) * 4);
    }
    return __builtin_convertvector(high, v16) * 256.0f + __builtin_convertvector(low, v16);
  }

  static v16i dot_four(v16i acc, const uint8_t* bytes, const int8_t* part) {
#if defined(__AVX512VNNI__)
    int32_t four;
    std::memcpy(&four, part, 4);
    return (v16i)_mm512_dpbusd_epi32((__m512i)acc, _mm512_loadu_si512(bytes), _mm512_set1_epi32(four));
#else
    for (int l = 0; l < kLanes; ++l)
      for (int j = 0; j < 4; ++j) acc[l] += int32_t(bytes[l * 4 + j]) * part[j];
    return acc;
#endif
  }

  void score(const float* q, int count, int dim, float* scores, int8_t* parts) const {
    const float scale = to_fixed(q, dim, dim, parts, parts + dim);
    const Excess over(parts, parts + dim, dim);
    for (int t = 0; t < count; t += kLanes)
      store(scores + t, dot(keys + size_t(t) * dim, 4 * kLanes, parts, dim / 4, over) * (load(key_scales + t) * scale));
  }

  void mix(float* weights, int count, int dim, float* out, int8_t* parts) const {
    const int padded = (count + kLanes - 1) / kLanes * kLanes;
    for (int t = 0; t < count; t += kLanes) store(weights + t, load(weights + t) * load(value_scales + t));
    for (int t = count; t < padded; ++t) weights[t] = 0.0f;
    const float scale = to_fixed(weights, padded, padded, parts, parts + padded);
    const Excess over(parts, parts + padded, padded);
    for (int i = 0; i < dim; i += kLanes)
      store(out + i, dot(values + size_t(i) * 4, size_t(dim) * 4, parts, padded / 4, over) * scale);
  }
};

// q: [dim], scaled; out: [dim]; scores: scratch of the ring's places. The order of every sum is that of the places.
template <typename Ring>
inline void ring_attend(const float* q, Ring ring, int count, int dim, float* scores, int8_t* parts, float* out) {
  const int padded = (count + kLanes - 1) / kLanes * kLanes;
  ring.score(q, count, dim, scores, parts);
  for (int t = count; t < padded; ++t) scores[t] = -3.4e38f;
  v16 top = splat(-3.4e38f), total{};
  for (int t = 0; t < padded; t += kLanes) top = vmax(top, load(scores + t));
  const v16 highest = splat(largest(top));
  for (int t = 0; t < padded; t += kLanes) {
    const v16 weight = vexp(load(scores + t) - highest);
    store(scores + t, weight);
    total = total + weight;
  }
  for (int t = count; t < padded; ++t) scores[t] = 0.0f;
  const float inverse = 1.0f / sum(total);
  ring.mix(scores, count, dim, out, parts);
  for (int i = 0; i < dim; i += kLanes) store(out + i, load(out + i) * inverse);
}

}  // namespace antiphon
