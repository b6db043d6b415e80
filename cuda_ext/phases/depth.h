// The depth transformer: all codebooks of a frame, sampled one after another, as one program. Every matrix may be of its
// own kind; sums and activations are float32. Oracle: engine/depth.py `frame`.
#pragma once
#include "product.h"
#include "sample.h"

namespace antiphon {
namespace phases {

struct DepthLayer {  // norms serve all codebooks
  const float *norm1, *norm2;
  const float *scale1, *scale2;  // or null
};
struct DepthSet {  // of one layer
  Matrix qkv, out, up, down;
};
struct DepthBook {
  Matrix input, head;
  const void* embedding;  // [card + 1, dim] of the codebook before; null for the first
  const float* bias;      // of the head, or null
  const float* norm;      // before the head, or null
  int32_t set, embedding_kind;
};
struct Depth {
  const DepthLayer* layers;  // [layer_count]
  const DepthSet* sets;      // [layer_count, set_count]
  const DepthBook* books;    // [book_count]
  int32_t layer_count, set_count, book_count, dim, heads, card, widest;
  float eps;
};
struct DepthCall {
  const float* hidden;  // [rows, main_dim]
  const float* first;   // [rows, dim], embedding of the text token
  const int64_t* forced;  // null or [drawn, book_count]
  int64_t* tokens;      // [drawn, book_count]
  float* logits;        // [rows], `logit_stride` apart, for each codebook `logit_step` further
  float* scratch;       // depth_scratch floats
  Draws draws;          // of the drawn rows
  const int64_t* guided_rows;
  const float* strength;
  int64_t logit_stride, logit_step;
  int32_t rows, drawn;  // rows behind the drawn ones are those that guide `guided_rows`
  int32_t main_dim, reserved;
};

HD int64_t depth_scratch(const Depth& m, int rows) {
  return int64_t(rows) * (3 * int64_t(m.dim) + m.widest + int64_t(m.layer_count) * 2 * m.book_count * m.dim);
}

struct DepthInput {  // x = projection + embedding of the token before
  static constexpr int kColumns = 1;
  float* y;
  const float* first;  // or null
  const void* embedding;
  const int64_t* tokens;       // of the codebook before, `books` apart
  const int64_t* guided_rows;
  int32_t dim, books, kind, drawn;
  HD int outputs() const { return dim; }
  HD int column(int output, int) const { return output; }
  HD void finish(int row, int output, const float* sum) const {
    const size_t at = size_t(row) * dim + output;
    if (first) {
      y[at] = sum[0] + first[at];
      return;
    }
    const int64_t owner = row < drawn ? row : guided_rows[row - drawn];
    y[at] = sum[0] + element(embedding, kind, size_t(tokens[owner * books]) * dim + output);
  }
};

struct DepthCache {  // queries aside, keys and values to their place
  static constexpr int kColumns = 1;
  float* q;             // [rows, dim]
  float *keys, *values;  // [rows, books, dim]
  int32_t dim, books, book, reserved;
  HD int outputs() const { return 3 * dim; }
  HD int column(int output, int) const { return output; }
  HD void finish(int row, int output, const float* sum) const {
    const size_t place = (size_t(row) * books + book) * dim;
    if (output < dim) q[size_t(row) * dim + output] = sum[0];
    else if (output < 2 * dim) keys[place + output - dim] = sum[0];
    else values[place + output - 2 * dim] = sum[0];
  }
};

constexpr int kMostBooks = 128;

struct DepthAttend {  // one block a row and head
  static constexpr int kSteps = 3;
  static constexpr int kParts = 8;  // threads that share a score
  static constexpr int kCells = kMostBooks * (kParts + 1);
  const float* q;
  const float *keys, *values;
  float* out;
  int32_t rows, heads, dim, books, count;
  HD int items() const { return rows * heads; }
  HD void step(int s, int item, int thread, Cell* shared) const {
    const int width = dim / heads, row = item / heads, at = item % heads * width;
    const float* query = q + size_t(row) * dim + at;
    const size_t base = size_t(row) * books * dim + at;
    Cell* scores = shared + kMostBooks * kParts;
    if (s == 0) {
      const int part = thread % kParts;
      for (int t = thread / kParts; t < count; t += kThreads / kParts) {
        float sum = 0.0f;
        for (int i = part; i < width; i += kParts) sum += query[i] * keys[base + size_t(t) * dim + i];
        shared[t * kParts + part].f = sum;
      }
    } else if (s == 1) {
      const float scale = 1.0f / sqrtf(float(width));
      for (int t = thread; t < count; t += kThreads) {
        float sum = 0.0f;
        for (int part = 0; part < kParts; ++part) sum += shared[t * kParts + part].f;
        scores[t].f = sum * scale;
      }
    } else {
      float top = scores[0].f;
      for (int t = 1; t < count; ++t) top = scores[t].f > top ? scores[t].f : top;
      for (int i = thread; i < width; i += kThreads) {
        float sum = 0.0f, mixed = 0.0f;
        for (int t = 0; t < count; ++t) {
          const float weight = expf(scores[t].f - top);
          sum += weight;
          mixed += weight * values[base + size_t(t) * dim + i];
        }
        out[size_t(row) * dim + at + i] = mixed / sum;
      }
    }
  }
};

struct DepthProgram {
  static constexpr int kCells = Product<Gate, Norm::kRms>::kCells;  // the most that one of its works takes
  static_assert(Sample::kCells <= kCells && DepthAttend::kCells <= kCells, "the gate's product has two sums");
  Depth m;
  DepthCall c;

#if defined(__CUDACC__)
#pragma nv_exec_check_disable
#endif
  template <class Runner>
  HD void operator()(Runner& run) const {
    const int dim = m.dim, rows = c.rows;
    float* x = c.scratch;
    float* q = x + size_t(rows) * dim;
    float* mixed = q + size_t(rows) * dim;
    float* wide = mixed + size_t(rows) * dim;
    float* cache = wide + size_t(rows) * m.widest;
    const size_t plane = size_t(rows) * m.book_count * dim;
    for (int book = 0; book < m.book_count; ++book) {
      const DepthBook& b = m.books[book];
      const int64_t* before = c.tokens + (book ? book - 1 : 0);
      run(Product<DepthInput, Norm::kNone>{
          b.input,
          {c.hidden, nullptr, rows, c.main_dim, 0.0f, 0},
          {x, book ? nullptr : c.first, b.embedding, before, c.guided_rows, dim, m.book_count, b.embedding_kind, c.drawn}});
      for (int l = 0; l < m.layer_count; ++l) {
        const DepthLayer& layer = m.layers[l];
        const DepthSet& set = m.sets[l * m.set_count + b.set];
        float *keys = cache + size_t(2 * l) * plane, *values = keys + plane;
        run(Product<DepthCache, Norm::kRms>{
            set.qkv, {x, layer.norm1, rows, dim, m.eps, 0}, {q, keys, values, dim, m.book_count, book, 0}});
        run(DepthAttend{q, keys, values, mixed, rows, m.heads, dim, m.book_count, book + 1});
        run(Product<Residual, Norm::kNone>{set.out, {mixed, nullptr, rows, dim, 0.0f, 0}, {x, layer.scale1, dim, dim}});
        const int hidden = set.down.inputs;
        run(Product<Gate, Norm::kRms>{set.up, {x, layer.norm2, rows, dim, m.eps, 0}, {wide, m.widest, hidden}});
        run(Product<Residual, Norm::kNone>{
            set.down, {wide, nullptr, rows, m.widest, 0.0f, 0}, {x, layer.scale2, dim, dim}});
      }
      float* logits = c.logits + size_t(book) * c.logit_step;
      const Store head{logits, b.bias, c.logit_stride, m.card, 0};
      if (b.norm) run(Product<Store, Norm::kRms>{b.head, {x, b.norm, rows, dim, m.eps, 0}, head});
      else run(Product<Store, Norm::kNone>{b.head, {x, nullptr, rows, dim, 0.0f, 0}, head});
      const Guided guided{c.guided_rows, c.strength, logits + size_t(c.drawn) * c.logit_stride, rows - c.drawn, 0};
      run(Sample{logits, c.tokens + book, c.forced ? c.forced + book : nullptr, c.draws, guided, c.logit_stride, c.drawn,
                 m.card, book + 1, m.book_count});
    }
  }
};

}  // namespace phases
}  // namespace antiphon
