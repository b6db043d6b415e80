// The temporal transformer: one step for a few rows, each on its own ring of keys and values.
// Oracle: engine/backbone.py.
#include <algorithm>
#include <cmath>

#include "attention.h"
#include "linear.h"
#include "norm.h"
#include "sampling.h"

using namespace antiphon;

namespace {

struct Layer {
  const float* norm1;  // [dim]
  Linear qkv, out;
  const float* norm2;
  Linear up, down;  // up: [2 * hidden], down: [dim]
};

struct Backbone {
  const Layer* layers;
  const float* out_norm;
  const float* frequencies;  // [head_dim / 2] rope, radians a step
  int32_t layer_count, dim, heads, hidden, context, capacity;
  float norm_eps;
};

// moshi modules/rope.py: interleaved pairs, float32.
void rotate(float* x, const float* cosine, const float* sine, int head_dim) {
  for (int i = 0; i < head_dim / 2; ++i) {
    const float a = x[2 * i], b = x[2 * i + 1];
    x[2 * i] = a * cosine[i] - b * sine[i];
    x[2 * i + 1] = a * sine[i] + b * cosine[i];
  }
}

}  // namespace

extern "C" {

// Floats of scratch that a step over `rows` rows needs.
int64_t antiphon_backbone_scratch(const Backbone* m, int32_t rows) {
  const int64_t wide = std::max(3 * m->dim, 2 * m->hidden);
  return int64_t(rows) * (2 * m->dim + wide + m->dim / m->heads) + m->context + 64;
}

// x: [rows, dim], embeddings in, normalised hidden states out. kv: [layers, 2, capacity, heads, context, head_dim].
// A row writes its key and value at positions[row] % context of its slot and attends to all that are there.
void antiphon_backbone(const Backbone* m, int32_t rows, const int32_t* slots, const int64_t* positions, float* x,
                       float* kv, float* scratch) {
  const int dim = m->dim, heads = m->heads, head_dim = dim / heads, hidden = m->hidden, context = m->context;
  const int wide = std::max(3 * dim, 2 * hidden);
  float* normed = scratch;
  float* update = normed + size_t(rows) * dim;
  float* up = update + size_t(rows) * dim;
  float* angles = up + size_t(rows) * wide;
  float* scores = angles + size_t(rows) * head_dim;
  for (int r = 0; r < rows; ++r)
    for (int i = 0; i < head_dim / 2; ++i) {
      const float angle = m->frequencies[i] * float(positions[r]);
      angles[r * head_dim + i] = std::cos(angle);
      angles[r * head_dim + head_dim / 2 + i] = std::sin(angle);
    }
  const size_t ring = size_t(context) * head_dim, plane = size_t(m->capacity) * heads * ring;
  const float scale = 1.0f / std::sqrt(float(head_dim));
  for (int l = 0; l < m->layer_count; ++l) {
    const Layer& layer = m->layers[l];
    float* keys = kv + size_t(2 * l) * plane;
    float* values = keys + plane;
    for (int r = 0; r < rows; ++r) rms_norm(x + size_t(r) * dim, layer.norm1, dim, m->norm_eps, normed + size_t(r) * dim);
    linear(layer.qkv, rows, normed, dim, up, wide);
    for (int r = 0; r < rows; ++r) {
      const int place = int(positions[r] % context);
      const int count = int(std::min<int64_t>(positions[r] + 1, context));
      float* qkv = up + size_t(r) * wide;
      for (int h = 0; h < heads; ++h) {
        const size_t head = (size_t(slots[r]) * heads + h) * ring;
        float* q = qkv + h * head_dim;
        float* k = q + dim;
        rotate(q, angles + r * head_dim, angles + r * head_dim + head_dim / 2, head_dim);
        rotate(k, angles + r * head_dim, angles + r * head_dim + head_dim / 2, head_dim);
        std::memcpy(keys + head + size_t(place) * head_dim, k, sizeof(float) * head_dim);
        std::memcpy(values + head + size_t(place) * head_dim, k + dim, sizeof(float) * head_dim);
        attend(q, keys + head, values + head, count, head_dim, scale, scores, normed + size_t(r) * dim + h * head_dim);
      }
    }
    linear(layer.out, rows, normed, dim, update, dim);
    for (int r = 0; r < rows; ++r) {
      add(x + size_t(r) * dim, update + size_t(r) * dim, dim);
      rms_norm(x + size_t(r) * dim, layer.norm2, dim, m->norm_eps, normed + size_t(r) * dim);
    }
    linear(layer.up, rows, normed, dim, up, wide);
    for (int r = 0; r < rows; ++r) silu_gate(up + size_t(r) * wide, hidden, up + size_t(r) * wide);
    linear(layer.down, rows, up, wide, update, dim);
    for (int r = 0; r < rows; ++r) add(x + size_t(r) * dim, update + size_t(r) * dim, dim);
  }
  for (int r = 0; r < rows; ++r) rms_norm(x + size_t(r) * dim, m->out_norm, dim, m->norm_eps, x + size_t(r) * dim);
}

// Whether the CPU's matrix tiles can be used by this process; asks the kernel for them.
int32_t antiphon_tiles() {
#ifdef ANTIPHON_TILES
  return request_tiles() ? 1 : 0;
#else
  return 0;
#endif
}

// y: [rows, panels * 16].
void antiphon_linear(const Linear* l, int32_t rows, const float* x, int32_t ldx, float* y, int32_t ldy) {
  linear(*l, rows, x, ldx, y, ldy);
}

// logits: [rows, stride], of which n are valid; tokens: [rows].
void antiphon_sample(int32_t rows, const float* logits, int32_t stride, int32_t n, const Draw* draws, uint32_t codebook,
                     int64_t* tokens) {
  for (int r = 0; r < rows; ++r) tokens[r] = sample(logits + size_t(r) * stride, n, draws[r], codebook);
}

}  // extern "C"
