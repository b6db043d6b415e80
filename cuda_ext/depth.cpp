// The depth transformer (depformer): all codebooks of one frame, sampled one after another, in one call.
// Oracle: engine/depth.py.
#include <algorithm>
#include <cmath>

#include "attention.h"
#include "model.h"
#include "norm.h"

using namespace antiphon;

extern "C" {

int64_t antiphon_depth_scratch(const Depth* m, int32_t rows) {
  const int64_t wide = std::max({3 * m->dim, 2 * m->hidden, m->card + 16});
  return int64_t(rows) * (3 * m->dim + wide + int64_t(m->layer_count) * 2 * m->codebooks * m->dim) + m->codebooks + 64;
}

// hidden: [rows, main_dim]; first: [rows, dim] embedding of the text token; tokens: [rows, codebooks], the raw samples.
// forced (or null): tokens to take where they are >= 0. logits (or null): [rows, codebooks, card].
void antiphon_depth(const Depth* m, int32_t rows, const float* hidden, const float* first, const Draw* draws,
                    const int64_t* forced, int64_t* tokens, float* logits, float* scratch) {
  const int dim = m->dim, heads = m->heads, head_dim = dim / heads, books = m->codebooks;
  const int wide = std::max({3 * dim, 2 * m->hidden, m->card + 16});
  float* x = scratch;
  float* normed = x + size_t(rows) * dim;
  float* update = normed + size_t(rows) * dim;
  float* up = update + size_t(rows) * dim;
  float* cache = up + size_t(rows) * wide;  // [layers, 2, rows, heads, books, head_dim]
  float* scores = cache + size_t(m->layer_count) * 2 * rows * books * dim;
  const size_t plane = size_t(rows) * books * dim;
  const float scale = 1.0f / std::sqrt(float(head_dim));
  for (int book = 0; book < books; ++book) {
    const int set = m->schedule[book];
    linear(m->inputs[set], rows, hidden, m->main_dim, x, dim);
    for (int r = 0; r < rows; ++r) {
      const float* token = book == 0 ? first + size_t(r) * dim
                                     : m->embeddings[book - 1] + size_t(tokens[r * books + book - 1]) * dim;
      add(x + size_t(r) * dim, token, dim);
    }
    for (int l = 0; l < m->layer_count; ++l) {
      const DepthLayer& layer = m->layers[l];
      float* keys = cache + size_t(2 * l) * plane;
      float* values = keys + plane;
      for (int r = 0; r < rows; ++r)
        rms_norm(x + size_t(r) * dim, layer.norm1, dim, m->norm_eps, normed + size_t(r) * dim);
      linear(layer.qkv[set], rows, normed, dim, up, wide);
      for (int r = 0; r < rows; ++r)
        for (int h = 0; h < heads; ++h) {
          const float* q = up + size_t(r) * wide + h * head_dim;
          const size_t head = (size_t(r) * heads + h) * books * head_dim;
          std::memcpy(keys + head + size_t(book) * head_dim, q + dim, sizeof(float) * head_dim);
          std::memcpy(values + head + size_t(book) * head_dim, q + 2 * dim, sizeof(float) * head_dim);
          attend(q, keys + head, values + head, book + 1, head_dim, scale, scores,
                 normed + size_t(r) * dim + h * head_dim);
        }
      linear(layer.out[set], rows, normed, dim, update, dim);
      for (int r = 0; r < rows; ++r) {
        add(x + size_t(r) * dim, update + size_t(r) * dim, dim);
        rms_norm(x + size_t(r) * dim, layer.norm2, dim, m->norm_eps, normed + size_t(r) * dim);
      }
      linear(layer.up[set], rows, normed, dim, up, wide);
      for (int r = 0; r < rows; ++r) silu_gate(up + size_t(r) * wide, m->hidden, up + size_t(r) * wide);
      linear(layer.down[set], rows, up, wide, update, dim);
      for (int r = 0; r < rows; ++r) add(x + size_t(r) * dim, update + size_t(r) * dim, dim);
    }
    if (m->norms)
      for (int r = 0; r < rows; ++r)
        rms_norm(x + size_t(r) * dim, m->norms[book], dim, m->norm_eps, x + size_t(r) * dim);
    linear(m->heads_out[book], rows, x, dim, up, wide);
    for (int r = 0; r < rows; ++r) {
      const float* row = up + size_t(r) * wide;
      const size_t at = size_t(r) * books + book;
      if (logits) std::memcpy(logits + at * m->card, row, sizeof(float) * m->card);
      tokens[at] = forced && forced[at] >= 0 ? forced[at] : sample(row, m->card, draws[r], uint32_t(book + 1));
    }
  }
}

}  // extern "C"
