// One query against the keys of its own row, in the order in which they lie in the cache.
#pragma once
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

}  // namespace antiphon
