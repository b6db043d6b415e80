// One query against the keys of its own row, in the order in which they lie in the cache.
#pragma once
#include <type_traits>

#include "vector.h"

namespace antiphon {

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

// A slot's ring of keys and values of one head, in float32 or float16 (Half). Keys: [blocks of 16 places][dim][16], so
// that sixteen scores are sixteen lanes; values: [places][dim]. Places are addressed modulo the context.
template <bool Half>
struct Ring {
  using Element = std::conditional_t<Half, uint16_t, float>;
  Element *keys, *values;

  static v16 lanes(const Element* at) {
    if constexpr (Half) return load_half(at);
    else return load(at);
  }
  static Element element(float x) {
    if constexpr (Half) return float_to_half(x);
    else return x;
  }
};

inline size_t ring_elements(int context, int dim) { return size_t(context + kLanes - 1) / kLanes * kLanes * size_t(dim); }

template <bool Half>
inline void ring_write(Ring<Half> ring, int place, int dim, const float* key, const float* value) {
  auto* k = ring.keys + size_t(place / kLanes) * kLanes * dim + place % kLanes;
  auto* v = ring.values + size_t(place) * dim;
  for (int i = 0; i < dim; ++i) {
    k[size_t(i) * kLanes] = Ring<Half>::element(key[i]);
    v[i] = Ring<Half>::element(value[i]);
  }
}

// q: [dim], scaled; out: [dim]; scores: scratch of count rounded up to 32. The order of every sum is that of the places.
template <bool Half>
inline void ring_attend(const float* q, Ring<Half> ring, int count, int dim, float* scores, float* out) {
  const int blocks = (count + kLanes - 1) / kLanes;
  v16 top = splat(-3.4e38f);
  for (int b = 0; b < blocks; ++b) {
    const auto* block = ring.keys + size_t(b) * kLanes * dim;
    v16 a{}, c{}, d{}, e{};
    for (int i = 0; i < dim; i += 4) {
      a = Ring<Half>::lanes(block + size_t(i) * kLanes) * q[i] + a;
      c = Ring<Half>::lanes(block + size_t(i + 1) * kLanes) * q[i + 1] + c;
      d = Ring<Half>::lanes(block + size_t(i + 2) * kLanes) * q[i + 2] + d;
      e = Ring<Half>::lanes(block + size_t(i + 3) * kLanes) * q[i + 3] + e;
    }
    v16 score = (a + c) + (d + e);
    if ((b + 1) * kLanes > count)
      for (int i = count - b * kLanes; i < kLanes; ++i) score[i] = -3.4e38f;
    store(scores + b * kLanes, score);
    top = vmax(top, score);
  }
  const v16 highest = splat(largest(top));
  v16 total{};
  for (int b = 0; b < blocks; ++b) {
    const v16 weight = vexp(load(scores + b * kLanes) - highest);
    store(scores + b * kLanes, weight);
    total = total + weight;
  }
  const float inverse = 1.0f / sum(total);
  for (int i = 0; i < dim; i += 4 * kLanes) {
    const int width = dim - i < 4 * kLanes ? (dim - i) / kLanes : 4;
    v16 acc[4] = {};
    for (int t = 0; t < count; ++t)
      for (int j = 0; j < 4; ++j)
        if (j < width)
          acc[j] = Ring<Half>::lanes(ring.values + size_t(t) * dim + i + j * kLanes) * scores[t] + acc[j];
    for (int j = 0; j < width; ++j) store(out + i + j * kLanes, acc[j] * inverse);
  }
}

}  // namespace antiphon
