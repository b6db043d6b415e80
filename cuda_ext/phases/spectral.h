// The end of the built-in voice's codec: head outputs -> spectrum -> inverse FFT -> windowed overlap-add with a line a
// slot. Oracle: engine/codec/spectral.py `decode`, from the head on.
#pragma once
#include "portable.h"

namespace antiphon {
namespace phases {

constexpr int kMostPoints = 2048;  // of the transform

struct InverseFft {  // one block a sub-frame; n = radix1 * radix2 points in two dense stages
  static constexpr int kSteps = 3;
  static constexpr int kImag = kMostPoints / 2 + 1, kFirst = 2 * kImag, kFirstImag = kFirst + kMostPoints;
  static constexpr int kCells = kFirstImag + kMostPoints;
  const float* heads;   // [count, 2 * (n / 2 + 1)]: log magnitudes, phases
  const float* circle;  // [n, 2]: cosine and sine of a full turn in n parts
  const float* window;  // [n], the gain and 1 / n included
  float* waves;         // [count, n]
  int32_t count, radix1, radix2;
  float log_magnitude_max;

  HD int items() const { return count; }
  // k = k1 + radix1 * k2, t = radix2 * t1 + t2
  HD void step(int s, int item, int thread, Cell* shared) const {
    const int n = radix1 * radix2, bins = n / 2 + 1;
    if (s == 0) {
      const float* head = heads + size_t(item) * 2 * bins;
      for (int i = thread; i < bins; i += kThreads) {
        const float log = head[i] < log_magnitude_max ? head[i] : log_magnitude_max, magnitude = expf(log);
        shared[i].f = magnitude * cosf(head[bins + i]);
        shared[kImag + i].f = i == 0 || i == n / 2 ? 0.0f : magnitude * sinf(head[bins + i]);
      }
    } else if (s == 1) {
      for (int at = thread; at < n; at += kThreads) {
        const int k1 = at / radix2, t2 = at % radix2;
        float real = 0.0f, imag = 0.0f;
        for (int k2 = 0; k2 < radix2; ++k2) {
          const int k = k1 + radix1 * k2, turn = k2 * t2 % radix2 * radix1;
          const bool upper = k > n / 2;
          const float xr = shared[upper ? n - k : k].f;
          const float xi = upper ? -shared[kImag + n - k].f : shared[kImag + k].f;
          real += xr * circle[2 * turn] - xi * circle[2 * turn + 1];
          imag += xr * circle[2 * turn + 1] + xi * circle[2 * turn];
        }
        const float c = circle[2 * k1 * t2], d = circle[2 * k1 * t2 + 1];
        shared[kFirst + at].f = real * c - imag * d;
        shared[kFirstImag + at].f = real * d + imag * c;
      }
    } else {
      for (int at = thread; at < n; at += kThreads) {
        const int t1 = at / radix2, t2 = at % radix2;
        float sum = 0.0f;
        for (int k1 = 0; k1 < radix1; ++k1) {
          const int turn = k1 * t1 % radix1 * radix2;
          sum += shared[kFirst + k1 * radix2 + t2].f * circle[2 * turn] -
                 shared[kFirstImag + k1 * radix2 + t2].f * circle[2 * turn + 1];
        }
        waves[size_t(item) * n + at] = sum * window[at];
      }
    }
  }
};

struct OverlapAdd {  // one block a row; n <= subframes * hop
  static constexpr int kSteps = 2, kCells = 0;
  const float* waves;     // [rows, subframes, n]
  float* lines;           // the slots' lines [n], `line_stride` apart
  float* samples;         // [rows, subframes * hop]
  const int64_t* slots;
  const uint8_t* commit;  // null, or 0: the line stays
  int64_t line_stride;
  int32_t rows, subframes, n, hop;

  HD int items() const { return rows; }
  HD float summed(int row, int at) const {
    float sum = 0.0f;
    const int first = at < n ? 0 : (at - n) / hop + 1;
    for (int j = first; j < subframes && j * hop <= at; ++j)
      sum += waves[(size_t(row) * subframes + j) * n + at - j * hop];
    return sum;
  }
  HD void step(int s, int row, int thread, Cell*) const {
    const int size = subframes * hop;
    float* line = lines + size_t(slots[row]) * line_stride;
    if (s == 0) {
      for (int i = thread; i < size; i += kThreads)
        samples[size_t(row) * size + i] = (i < n ? line[i] : 0.0f) + summed(row, i);
    } else if (!commit || commit[row]) {
      for (int i = thread; i < n; i += kThreads) line[i] = summed(row, size + i);
    }
  }
};

struct SpectralProgram {
  InverseFft transform;
  OverlapAdd overlap;
#if defined(__CUDACC__)
#pragma nv_exec_check_disable
#endif
  template <class Runner>
  HD void operator()(Runner& run) const {
    run(transform);
    run(overlap);
  }
};

}  // namespace phases
}  // namespace antiphon
