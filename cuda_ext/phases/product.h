// y = x W^T for a few rows, with what stands before it (a norm) and after it (a residual, a gate, a cache) in one pass.
// Each output is a sum of kWarp partial sums over a fixed part of the inputs each, folded in a fixed order, so a row's
// result depends on that row alone. Oracle: engine/layers.py.
#pragma once
#include "portable.h"

namespace antiphon {
namespace phases {

struct Matrix {  // [outputs, inputs], contiguous; inputs are a multiple of kVector
  const void* data;
  const float* scale;  // null, or [outputs] of an int8 matrix
  int32_t kind, inputs, outputs, reserved;
};

enum class Norm { kNone, kRms, kLayer };

struct Rows {
  const float* x;     // [count], `stride` apart
  const float* norm;  // [width] of an RMS norm, [2, width] (weight, bias) of a layer norm
  int32_t count, stride;
  float eps;
  int32_t reserved;
};

constexpr int kRowTile = 4, kWarps = kThreads / kWarp;

// E, the end of a product: kColumns; outputs(); column(output, c), the row of the matrix behind a sum; finish(row,
// output, sums), by one thread.
template <class E, Norm N>
struct Product {
  static constexpr int kNormSteps = N == Norm::kNone ? 0 : N == Norm::kRms ? 2 : 4;
  static constexpr int kSteps = kNormSteps + 2;
  static constexpr int kColumns = E::kColumns;
  static constexpr int kMean = kRowTile * kThreads, kPower = kMean + kRowTile * kWarp, kSums = kPower + kRowTile * kWarp;
  static constexpr int kPitch = kWarp + 1;  // no two lanes of a fold in one bank
  static constexpr int kCells = kSums + kRowTile * kWarps * kColumns * kPitch;

  Matrix matrix;
  Rows in;
  E end;

  HD int items() const { return tiles(end.outputs(), kWarps) * tiles(in.count, kRowTile); }

  HD void step(int s, int item, int thread, Cell* shared) const {
    const int output_tiles = tiles(end.outputs(), kWarps);
    const int first = item / output_tiles * kRowTile, output = item % output_tiles * kWarps;
    const int rows = in.count - first < kRowTile ? in.count - first : kRowTile;
    if (s < kNormSteps) {
      const bool power = N == Norm::kRms || s >= 2;
      if (s % 2 == 0) spread(first, rows, thread, power, shared);
      else if (thread < rows * kWarp)
        shared[(power ? kPower : kMean) + thread].f = fold(shared + thread / kWarp * kThreads, thread % kWarp);
    } else if (s == kNormSteps) {
      switch (matrix.kind) {
        case kFloat16: return dot<Half>(first, rows, output, thread, shared);
        case kBfloat16: return dot<Bfloat>(first, rows, output, thread, shared);
        case kInt8: return dot<int8_t>(first, rows, output, thread, shared);
        default: return dot<float>(first, rows, output, thread, shared);
      }
    } else {
      finish(first, rows, output, thread, shared);
    }
  }

  HD const float* row_at(int row) const { return in.x + size_t(row) * in.stride; }
  HD float mean_of(int r, const Cell* shared) const {
    return N == Norm::kLayer ? total(shared + kMean + r * kWarp) / float(matrix.inputs) : 0.0f;
  }

  // Each thread's part of the sum (or of the squares about the mean) of each row.
  HD void spread(int first, int rows, int thread, bool power, Cell* shared) const {
    for (int r = 0; r < rows; ++r) {
      const float* x = row_at(first + r);
      const float mean = power ? mean_of(r, shared) : 0.0f;
      float sum = 0.0f;
      for (int i = thread; i < matrix.inputs; i += kThreads) sum += power ? (x[i] - mean) * (x[i] - mean) : x[i];
      shared[r * kThreads + thread].f = sum;
    }
  }

  HD void load_row(int row, int i, float mean, float scale, float* x) const {
    load_vector(row_at(row) + i, x);
    if (N == Norm::kNone) return;
    float weight[kVector], bias[kVector] = {};
    load_vector(in.norm + i, weight);
    if (N == Norm::kLayer) load_vector(in.norm + matrix.inputs + i, bias);
    for (int j = 0; j < kVector; ++j) x[j] = (x[j] - mean) * (weight[j] * scale) + bias[j];
  }

  template <class T>
  HD void dot(int first, int rows, int output, int thread, Cell* shared) const {
    const int warp = thread / kWarp, lane = thread % kWarp, inputs = matrix.inputs, last = end.outputs() - 1;
    const int mine = output + warp < last ? output + warp : last;
    float acc[kRowTile][kColumns] = {}, mean[kRowTile] = {}, scale[kRowTile] = {};
    if (N != Norm::kNone)
      for (int r = 0; r < kRowTile; ++r)
        if (r < rows) {
          mean[r] = mean_of(r, shared);
          scale[r] = 1.0f / sqrtf(in.eps + total(shared + kPower + r * kWarp) / float(inputs));
        }
    const T* weights[kColumns];
    for (int c = 0; c < kColumns; ++c) weights[c] = static_cast<const T*>(matrix.data) + size_t(end.column(mine, c)) * inputs;
    for (int i = lane * kVector; i < inputs; i += kWarp * kVector) {
      float w[kColumns][kVector];
      for (int c = 0; c < kColumns; ++c) load_vector(weights[c] + i, w[c]);
      for (int r = 0; r < kRowTile; ++r) {
        if (r >= rows) continue;
        float x[kVector];
        load_row(first + r, i, mean[r], scale[r], x);
        for (int c = 0; c < kColumns; ++c)
          for (int j = 0; j < kVector; ++j) acc[r][c] += x[j] * w[c][j];
      }
    }
    for (int r = 0; r < kRowTile; ++r)
      for (int c = 0; c < kColumns; ++c) sums(shared, r, warp, c)[lane].f = acc[r][c];
  }

  HD static Cell* sums(Cell* shared, int r, int warp, int c) {
    return shared + kSums + ((r * kWarps + warp) * kColumns + c) * kPitch;
  }

  HD void finish(int first, int rows, int output, int thread, Cell* shared) const {
    const int r = thread / kWarps, mine = output + thread % kWarps;
    if (r >= rows || mine >= end.outputs()) return;
    float sum[kColumns];
    for (int c = 0; c < kColumns; ++c) {
      sum[c] = total(sums(shared, r, thread % kWarps, c));
      if (matrix.scale) sum[c] *= matrix.scale[end.column(mine, c)];
    }
    end.finish(first + r, mine, sum);
  }
};

struct Store {  // y = sum + bias
  static constexpr int kColumns = 1;
  float* y;
  const float* bias;  // or null
  int64_t stride;
  int32_t count, reserved;
  HD int outputs() const { return count; }
  HD int column(int output, int) const { return output; }
  HD void finish(int row, int output, const float* sum) const {
    y[size_t(row) * stride + output] = sum[0] + (bias ? bias[output] : 0.0f);
  }
};

struct Residual {  // y += scale * sum
  static constexpr int kColumns = 1;
  float* y;
  const float* scale;  // or null
  int32_t stride, count;
  HD int outputs() const { return count; }
  HD int column(int output, int) const { return output; }
  HD void finish(int row, int output, const float* sum) const {
    float* at = y + size_t(row) * stride + output;
    *at += scale ? scale[output] * sum[0] : sum[0];
  }
};

struct Gate {  // y = silu(first half) * second half
  static constexpr int kColumns = 2;
  float* y;
  int32_t stride, hidden;
  HD int outputs() const { return hidden; }
  HD int column(int output, int c) const { return output + c * hidden; }
  HD void finish(int row, int output, const float* sum) const {
    y[size_t(row) * stride + output] = silu(sum[0]) * sum[1];
  }
};

// An RMS norm by itself, one block a row.
struct RmsNorm {
  static constexpr int kSteps = 3, kCells = kThreads + kWarp;
  const float* x;
  const float* weight;
  float* y;
  int32_t rows, width;
  float eps;
  int32_t reserved;
  HD int items() const { return rows; }
  HD void step(int s, int row, int thread, Cell* shared) const {
    const float* from = x + size_t(row) * width;
    if (s == 0) {
      float sum = 0.0f;
      for (int i = thread; i < width; i += kThreads) sum += from[i] * from[i];
      shared[thread].f = sum;
    } else if (s == 1) {
      if (thread < kWarp) shared[kThreads + thread].f = fold(shared, thread);
    } else {
      const float scale = 1.0f / sqrtf(eps + total(shared + kThreads) / float(width));
      for (int i = thread; i < width; i += kThreads) y[size_t(row) * width + i] = from[i] * (weight[i] * scale);
    }
  }
};

}  // namespace phases
}  // namespace antiphon
