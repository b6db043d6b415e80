// One query a row and head against rows of a static table of keys and values, addressed by index: a slot's ring, or a
// voice. Oracle: engine/layers.py `attend` and `rotate`.
#pragma once
#include "product.h"

namespace antiphon {
namespace phases {

constexpr int kParts = 8;           // threads that share a score
constexpr int kMostPositions = 1024;

struct Attend {  // one block a row and head
  static constexpr int kSteps = 7;
  static constexpr int kScores = kMostPositions * kParts, kFirst = kScores + kMostPositions, kTop = kFirst + kThreads,
                       kSum = kTop + kWarp, kCells = kSum + kWarp;
  static_assert(kThreads * kVector <= kScores, "the mixed values take the place of the partial scores");

  const float* q;         // [rows, heads * head_dim]
  const void* keys;       // [.., heads, positions, head_dim]; a row of the table is `row_stride` elements
  const void* values;     // as keys
  float* out;             // [rows, heads * head_dim]
  const int64_t* index;   // which row of the table; null: the first
  const int64_t* steps;   // positions before this one, of a ring: min(steps + 1, positions) count; or null:
  const int64_t* length;  // how many positions count
  int64_t row_stride;
  int32_t rows, heads, head_dim, positions, kind, reserved;

  HD int items() const { return rows * heads; }
  HD int counted(int row) const {
    const int64_t count = steps ? steps[row] + 1 : length[row];
    return int(count < 0 ? 0 : count < positions ? count : positions);
  }

  HD void step(int s, int item, int thread, Cell* shared) const {
    const int row = item / heads, head = item % heads, count = counted(row);
    const size_t base = size_t(index ? index[row] : 0) * row_stride + size_t(head) * positions * head_dim;
    const size_t at = (size_t(row) * heads + head) * head_dim;
    if (s == 0) {
      switch (kind) {
        case kFloat16: return score<Half>(q + at, base, count, thread, shared);
        case kBfloat16: return score<Bfloat>(q + at, base, count, thread, shared);
        default: return score<float>(q + at, base, count, thread, shared);
      }
    } else if (s == 1) {
      float top = -INFINITY;
      const float scale = 1.0f / sqrtf(float(head_dim));
      for (int t = thread; t < count; t += kThreads) {
        float sum = 0.0f;
        for (int part = 0; part < kParts; ++part) sum += shared[t * kParts + part].f;
        shared[kScores + t].f = sum * scale;
        top = sum * scale > top ? sum * scale : top;
      }
      shared[kFirst + thread].f = top;
    } else if (s == 2) {
      if (thread >= kWarp) return;
      float top = -INFINITY;
      for (int j = thread; j < kThreads; j += kWarp) top = shared[kFirst + j].f > top ? shared[kFirst + j].f : top;
      shared[kTop + thread].f = top;
    } else if (s == 3) {
      float top = -INFINITY, sum = 0.0f;
      for (int j = 0; j < kWarp; ++j) top = shared[kTop + j].f > top ? shared[kTop + j].f : top;
      for (int t = thread; t < count; t += kThreads) {
        const float weight = expf(shared[kScores + t].f - top);
        shared[kScores + t].f = weight;
        sum += weight;
      }
      shared[kFirst + thread].f = sum;
    } else if (s == 4) {
      if (thread < kWarp) shared[kSum + thread].f = fold(shared + kFirst, thread);
    } else if (s == 5) {
      switch (kind) {
        case kFloat16: return mix<Half>(base, count, thread, shared);
        case kBfloat16: return mix<Bfloat>(base, count, thread, shared);
        default: return mix<float>(base, count, thread, shared);
      }
    } else {
      const int groups = kThreads / (head_dim / kVector) < 1 ? 1 : kThreads / (head_dim / kVector);
      const float sum = total(shared + kSum);
      for (int i = thread; i < head_dim; i += kThreads) {
        float mixed = 0.0f;
        for (int g = 0; g < groups; ++g) mixed += shared[g * head_dim + i].f;
        out[at + i] = count ? mixed / sum : 0.0f;
      }
    }
  }

  template <class T>
  HD void score(const float* query, size_t base, int count, int thread, Cell* shared) const {
    const T* rows_ = static_cast<const T*>(keys) + base;
    const int part = thread % kParts;
    for (int t = thread / kParts; t < count; t += kThreads / kParts) {
      float sum = 0.0f;
      for (int i = part * kVector; i < head_dim; i += kParts * kVector) {
        float a[kVector], b[kVector];
        load_vector(query + i, a);
        load_vector(rows_ + size_t(t) * head_dim + i, b);
        for (int j = 0; j < kVector; ++j) sum += a[j] * b[j];
      }
      shared[t * kParts + part].f = sum;
    }
  }

  // Each group of threads takes every groups-th position, each thread kVector columns.
  template <class T>
  HD void mix(size_t base, int count, int thread, Cell* shared) const {
    const T* rows_ = static_cast<const T*>(values) + base;
    const int columns = head_dim / kVector, groups = kThreads / columns, group = thread / columns;
    if (group >= groups) return;
    const int i = thread % columns * kVector;
    float acc[kVector] = {};
    for (int t = group; t < count; t += groups) {
      float v[kVector];
      load_vector(rows_ + size_t(t) * head_dim + i, v);
      const float weight = shared[kScores + t].f;
      for (int j = 0; j < kVector; ++j) acc[j] += weight * v[j];
    }
    for (int j = 0; j < kVector; ++j) shared[group * head_dim + i + j].f = acc[j];
  }
};

enum Rope : int32_t { kNoRope = 0, kPairs = 1, kHalves = 2 };  // what is turned: neighbours, or the two halves

// Queries aside, keys (turned) and values into the ring of the row's slot. Two columns at a time, those that turn together.
struct RingWrite {
  static constexpr int kColumns = 2;
  float* q;                  // [rows, dim]
  void *keys, *values;       // [slots, heads, context, head_dim]
  const int64_t* slots;      // [rows]
  const int64_t* steps;      // [rows]
  const uint8_t* commit;     // null, or [rows]: 0 leaves the ring as it is
  const float* frequencies;  // [head_dim / 2]
  int32_t dim, heads, context, kind, rope, reserved;

  HD int outputs() const { return 3 * dim / 2; }
  HD int column(int output, int c) const {
    const int width = dim / heads, half = width / 2, head = output / half, i = output % half;
    return head * width + (rope == kHalves ? i + c * half : 2 * i + c);
  }
  HD void finish(int row, int output, const float* sum) const {
    const int part = output / (dim / 2), width = dim / heads;
    float a = sum[0], b = sum[1];
    if (part < 2 && rope != kNoRope) {
      const float angle = float(steps[row]) * frequencies[output % (width / 2)];
      const float cosine = cosf(angle), sine = sinf(angle);
      a = sum[0] * cosine - sum[1] * sine;
      b = sum[0] * sine + sum[1] * cosine;
    }
    const int first = column(output, 0) - part * dim, second = column(output, 1) - part * dim;
    if (part == 0) {
      q[size_t(row) * dim + first] = a;
      q[size_t(row) * dim + second] = b;
    } else if (!commit || commit[row]) {
      void* ring = part == 1 ? keys : values;
      const size_t base = (size_t(slots[row]) * heads + first / width) * context + size_t(steps[row] % context);
      put(ring, kind, base * width + first % width, a);
      put(ring, kind, base * width + second % width, b);
    }
  }
};

}  // namespace phases
}  // namespace antiphon
