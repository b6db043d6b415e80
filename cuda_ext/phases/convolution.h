// Mimi's causal convolution, ELU before it, with the inputs it keeps a slot; channels last. Oracle:
// engine/codec/mimi/convolution.py `convolve` (stride 1).
#pragma once
#include "product.h"

namespace antiphon {
namespace phases {

struct Convolve {  // one block a tile of time and of outputs of a row
  static constexpr int kSteps = 2, kCells = kRowTile * kWarps * (kWarp + 1);
  const float* x;       // [rows, time, inputs]
  float* pasts;         // the slots' last `length` inputs [length, inputs], before the ELU, `past_stride` apart
  const int64_t* slots;
  const uint8_t* commit;
  const float* weight;  // [outputs, kernel, inputs], the oldest tap first
  const float* bias;
  const float* residual;  // null, or [rows, time, outputs] that is added
  float* y;               // [rows, time, outputs]
  int64_t past_stride;
  int32_t rows, time, inputs, outputs, kernel, dilation, elu, reserved;

  HD int length() const { return (kernel - 1) * dilation; }
  HD int items() const { return rows * tiles(time, kRowTile) * tiles(outputs, kWarps); }

  HD float input(int row, int at, int i) const {  // at: time, the past included
    const int past = length();
    const float v = at < past ? pasts[size_t(slots[row]) * past_stride + size_t(at) * inputs + i]
                              : x[(size_t(row) * time + at - past) * inputs + i];
    return elu && v < 0.0f ? expm1f(v) : v;
  }

  HD void step(int s, int item, int thread, Cell* shared) const {
    const int outs = tiles(outputs, kWarps), times = tiles(time, kRowTile);
    const int row = item / (outs * times), t = item / outs % times * kRowTile, first = item % outs * kWarps;
    const int warp = thread / kWarp, lane = thread % kWarp;
    if (s == 0) {
      if (first + warp >= outputs) return;
      float acc[kRowTile] = {};
      for (int tap = 0; tap < kernel; ++tap)
        for (int i = lane; i < inputs; i += kWarp) {
          const float w = weight[(size_t(first + warp) * kernel + tap) * inputs + i];
          for (int r = 0; r < kRowTile; ++r)
            if (t + r < time) acc[r] += w * input(row, t + r + tap * dilation, i);
        }
      for (int r = 0; r < kRowTile; ++r) shared[(r * kWarps + warp) * (kWarp + 1) + lane].f = acc[r];
    } else {
      const int r = thread / kWarps, output = first + thread % kWarps;
      if (r >= kRowTile || t + r >= time || output >= outputs) return;
      const size_t at = (size_t(row) * time + t + r) * outputs + output;
      y[at] = total(shared + (r * kWarps + thread % kWarps) * (kWarp + 1)) + bias[output] + (residual ? residual[at] : 0.0f);
    }
  }
};

struct KeepPast {  // the last `length` inputs, one thread a channel: what it overwrites it has read
  static constexpr int kSteps = 1, kCells = 0;
  Convolve c;
  HD int items() const { return c.rows * tiles(c.inputs, kThreads); }
  HD void step(int, int item, int thread, Cell*) const {
    const int parts = tiles(c.inputs, kThreads), row = item / parts, i = item % parts * kThreads + thread;
    if (i >= c.inputs || (c.commit && !c.commit[row])) return;
    const int past = c.length();
    float* kept = c.pasts + size_t(c.slots[row]) * c.past_stride + i;
    for (int j = 0; j < past; ++j) {
      const int at = j + c.time;
      kept[size_t(j) * c.inputs] =
          at < past ? kept[size_t(at) * c.inputs] : c.x[(size_t(row) * c.time + at - past) * c.inputs + i];
    }
  }
};

struct ConvolveProgram {
  Convolve c;
#if defined(__CUDACC__)
#pragma nv_exec_check_disable
#endif
  template <class Runner>
  HD void operator()(Runner& run) const {
    run(c);
    if (c.length()) run(KeepPast{c});
  }
};

}  // namespace phases
}  // namespace antiphon
