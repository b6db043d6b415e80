// Row-wise normalisation and gating. Widths are multiples of 16.
#pragma once
#include <cmath>

#include "vector.h"

namespace antiphon {

// moshi modules/transformer.py _rms_norm: eps inside the mean, float32.
inline void rms_norm(const float* x, const float* alpha, int width, float eps, float* y) {
  v16 acc{};
  for (int i = 0; i < width; i += kLanes) {
    const v16 v = load(x + i);
    acc = v * v + acc;
  }
  const float scale = 1.0f / std::sqrt(eps + sum(acc) / float(width));
  for (int i = 0; i < width; i += kLanes) store(y + i, load(x + i) * (load(alpha + i) * scale));
}

inline void layer_norm(const float* x, const float* weight, const float* bias, int width, float eps, float* y) {
  v16 acc{};
  for (int i = 0; i < width; i += kLanes) acc = acc + load(x + i);
  const float mean = sum(acc) / float(width);
  v16 square{};
  for (int i = 0; i < width; i += kLanes) {
    const v16 d = load(x + i) - mean;
    square = d * d + square;
  }
  const float scale = 1.0f / std::sqrt(sum(square) / float(width) + eps);
  for (int i = 0; i < width; i += kLanes)
    store(y + i, (load(x + i) - mean) * scale * load(weight + i) + load(bias + i));
}

// moshi modules/gating.py: silu(first half) * second half; in and out may be the same row.
inline void silu_gate(const float* up, int hidden, float* y) {
  for (int i = 0; i < hidden; i += kLanes) store(y + i, vsilu(load(up + i)) * load(up + hidden + i));
}

inline void add(float* x, const float* y, int width) {
  for (int i = 0; i < width; i += kLanes) store(x + i, load(x + i) + load(y + i));
}

}  // namespace antiphon
