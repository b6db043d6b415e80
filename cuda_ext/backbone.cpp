// The temporal transformer: one step for a few rows, each on its own ring of keys and values.
// Oracle: engine/backbone.py.
#include <algorithm>
#include <cmath>

#include "attention.h"
#include "model.h"
#include "norm.h"

using namespace antiphon;

namespace {

// moshi modules/rope.py: interleaved pairs, float32.
void rotate(float* x, const float* cosine, const float* sine, int head_dim) {
  for (int i = 0; i < head_dim / 2; ++i) {
    const float a = x[2 * i], b = x[2 * i + 1];
    x[2 * i] = a * cosine[i] - b * sine[i];
    x[2 * i + 1] = a * sine[i] + b * cosine[i];
  }
}

// One row's attention in one layer. qkv: [3 * dim], rotated in place; keys, values: the layer's planes of all slots.
template <typename Ring>
void attend_row(const Backbone& m, int slot, int64_t position, const float* angles, float* qkv, char* keys, char* values,
                float* scores, float* out) {
  const int dim = m.dim, head_dim = dim / m.heads, place = int(position % m.context);
  const int count = int(std::min<int64_t>(position + 1, m.context));
  const float scale = 1.0f / std::sqrt(float(head_dim));
  int8_t* parts = reinterpret_cast<int8_t*>(scores + ring_places(m.context));
  for (int h = 0; h < m.heads; ++h) {
    const size_t at = (size_t(slot) * m.heads + h) * Ring::bytes(m.context, head_dim);
    const Ring ring(keys + at, values + at, m.context, head_dim);
    float *q = qkv + h * head_dim, *k = q + dim;
    rotate(q, angles, angles + head_dim / 2, head_dim);
    rotate(k, angles, angles + head_dim / 2, head_dim);
    ring.write(place, head_dim, k, k + dim);
    for (int i = 0; i < head_dim; i += kLanes) store(q + i, load(q + i) * scale);
    ring_attend(q, ring, count, head_dim, scores, parts, out + h * head_dim);
  }
}

}  // namespace

extern "C" {

// Floats of scratch that a step over `rows` rows needs.
int64_t antiphon_backbone_scratch(const Backbone* m, int32_t rows) {
  const int64_t wide = std::max(3 * m->dim, 2 * m->hidden);
  return int64_t(rows) * (2 * m->dim + wide + m->dim / m->heads) + 2 * (m->context + m->dim) + 96;
}

// x: [rows, dim], embeddings in, normalised hidden states out. kv: [layers, 2, capacity, heads] rings
// (attention.h). A row writes its key and value at positions[row] % context of its slot and attends to all that are there.
void antiphon_backbone(const Backbone* m, int32_t rows, const int32_t* slots, const int64_t* positions, float* x,
                       void* kv, float* scratch) {
  const int dim = m->dim, heads = m->heads, head_dim = dim / heads, hidden = m->hidden;
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
  const auto ring_bytes = m->byte_cache ? ByteRing::bytes : FloatRing::bytes;
  const size_t plane = size_t(m->capacity) * heads * ring_bytes(m->context, head_dim);
  const auto attend = m->byte_cache ? attend_row<ByteRing> : attend_row<FloatRing>;
  for (int l = 0; l < m->layer_count; ++l) {
    const Layer& layer = m->layers[l];
    char *keys = static_cast<char*>(kv) + size_t(2 * l) * plane, *values = keys + plane;
    for (int r = 0; r < rows; ++r) rms_norm(x + size_t(r) * dim, layer.norm1, dim, m->norm_eps, normed + size_t(r) * dim);
    linear(layer.qkv, rows, normed, dim, up, wide);
    for (int r = 0; r < rows; ++r)
      attend(*m, slots[r], positions[r], angles + r * head_dim, up + size_t(r) * wide, keys, values, scores,
             normed + size_t(r) * dim);
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

// Whether the CPU's matrix tiles can be used by this process; asks the operating system for them.
int32_t antiphon_tiles() {
#ifdef ANTIPHON_TILES
  if (request_tiles()) {
    whole_products = kByTiles;
    return 1;
  }
#endif
  return 0;
}

// The most that products of whole numbers may use from now on (Products); without it, the best there is.
void antiphon_limit_products(int32_t products) { whole_products = products; }

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
