// y = x W^T + b for a few rows. Weights lie in panels of 16 output columns, [n / 16][k][16], in float16 or float32.
// Each output is one chain of multiply-adds over k = 0, 1, ..., so a row's result depends on that row alone: neither on
// how many rows there are nor on its place among them.
#pragma once
#include "fixed.h"

namespace antiphon {

template <bool Half>
inline v16 load_weight(const void* base, size_t index) {
  if constexpr (Half) return load_half(static_cast<const uint16_t*>(base) + index);
  else return load(static_cast<const float*>(base) + index);
}

template <int R, int C, bool Half>
inline void linear_tile(const Linear& l, int panel, const float* x, int ldx, float* y, int ldy) {
  const int k_count = l.inputs;
  const size_t stride = size_t(k_count) * kLanes;
  v16 acc[R][C];
  for (int c = 0; c < C; ++c) {
    const v16 start = l.bias ? load(l.bias + (panel + c) * kLanes) : v16{};
    for (int r = 0; r < R; ++r) acc[r][c] = start;
  }
  const size_t base = size_t(panel) * stride;
  for (int k = 0; k < k_count; ++k) {
    v16 w[C];
    for (int c = 0; c < C; ++c) w[c] = load_weight<Half>(l.weight, base + c * stride + size_t(k) * kLanes);
    for (int r = 0; r < R; ++r) {
      const v16 xv = splat(x[size_t(r) * ldx + k]);
      for (int c = 0; c < C; ++c) acc[r][c] = xv * w[c] + acc[r][c];
    }
  }
  for (int r = 0; r < R; ++r)
    for (int c = 0; c < C; ++c) store(y + size_t(r) * ldy + (panel + c) * kLanes, acc[r][c]);
}

template <int C, bool Half>
inline void linear_rows(const Linear& l, int panel, int rows, const float* x, int ldx, float* y, int ldy) {
  int r = 0;
  if constexpr (C <= 3)
    for (; r + 8 <= rows; r += 8) linear_tile<8, C, Half>(l, panel, x + size_t(r) * ldx, ldx, y + size_t(r) * ldy, ldy);
  for (; r + 4 <= rows; r += 4) linear_tile<4, C, Half>(l, panel, x + size_t(r) * ldx, ldx, y + size_t(r) * ldy, ldy);
  for (; r + 2 <= rows; r += 2) linear_tile<2, C, Half>(l, panel, x + size_t(r) * ldx, ldx, y + size_t(r) * ldy, ldy);
  if (r < rows) linear_tile<1, C, Half>(l, panel, x + size_t(r) * ldx, ldx, y + size_t(r) * ldy, ldy);
}

template <bool Half>
inline void linear_panels(const Linear& l, int rows, const float* x, int ldx, float* y, int ldy) {
  int panel = 0;
  if (rows < 8)  // few rows: more columns at once hide the latency of the chains
    for (; panel + 6 <= l.panels; panel += 6) linear_rows<6, Half>(l, panel, rows, x, ldx, y, ldy);
  for (; panel + 3 <= l.panels; panel += 3) linear_rows<3, Half>(l, panel, rows, x, ldx, y, ldy);
  for (; panel < l.panels; ++panel) linear_rows<1, Half>(l, panel, rows, x, ldx, y, ldy);
}

// x: [rows, >= inputs] with row stride ldx; y: [rows, panels * 16] with row stride ldy, written to full panels.
inline void linear(const Linear& l, int rows, const float* x, int ldx, float* y, int ldy) {
  if (l.kind == kFixed16) return fixed_linear<true>(l, rows, x, ldx, y, ldy);
  if (l.kind == kFixed8) return fixed_linear<false>(l, rows, x, ldx, y, ldy);
  if (l.kind == kHalf) linear_panels<true>(l, rows, x, ldx, y, ldy);
  else linear_panels<false>(l, rows, x, ldx, y, ldy);
}

}  // namespace antiphon
