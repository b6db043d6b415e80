// y = x W^T + b on the CPU's matrix tiles (Intel AMX): bfloat16 products, float32 sums, near float32 precision.
//
// Each float is the sum of two bfloat16 numbers (Henry, Tang, Heinecke: "Leveraging the bfloat16 artificial intelligence
// datatype for higher-precision computations", 2019): exactly so for float16 weights, to 2^-17 for activations. Three of
// the four partial products are taken, x_high w_high + x_low w_high + x_high w_low, for each block of 32 inputs in this
// order. The unit sums in an order of its own that depends on neither the number of rows nor a row's place, and rows are
// always padded to 16, so a row's result depends on that row alone.
#pragma once
#if defined(__AMX_BF16__) && defined(__AVX512BF16__) && defined(__linux__)
#define ANTIPHON_TILES 1
#include <sys/syscall.h>
#include <unistd.h>

#include <vector>

#include "vector.h"

namespace antiphon {

constexpr int kTileInputs = 32, kTileRows = 16, kTileHalves = kTileInputs * kLanes;
constexpr int kRowChunk = 256;  // rows whose activations stay in the cache while the weights pass

inline bool request_tiles() {  // Linux grants the tile registers on demand, to the whole process
  constexpr int kRequest = 0x1023, kTileData = 18;
  return syscall(SYS_arch_prctl, kRequest, kTileData) == 0;
}

struct alignas(64) TileShape {
  uint8_t palette = 1, start_row = 0, reserved[14] = {};
  uint16_t row_bytes[16] = {};
  uint8_t rows[16] = {};
  TileShape() {
    for (int t = 0; t < 8; ++t) {
      row_bytes[t] = 64;
      rows[t] = kTileRows;
    }
  }
};

// Two vectors of floats -> 32 bfloat16 in their order, and what they leave out.
inline void split(__m512 first, __m512 second, uint16_t* high, uint16_t* low) {
  const __m512i h = (__m512i)_mm512_cvtne2ps_pbh(second, first);
  const __m512 h0 = (__m512)_mm512_slli_epi32(_mm512_cvtepu16_epi32(_mm512_castsi512_si256(h)), 16);
  const __m512 h1 = (__m512)_mm512_slli_epi32(_mm512_cvtepu16_epi32(_mm512_extracti64x4_epi64(h, 1)), 16);
  _mm512_store_si512(high, h);
  _mm512_store_si512(low, (__m512i)_mm512_cvtne2ps_pbh(_mm512_sub_ps(second, h1), _mm512_sub_ps(first, h0)));
}

struct TileScratch {
  std::vector<uint16_t> memory;
  // Grows at the first calls, then stays.
  uint16_t* reserve(size_t halves) {
    if (memory.size() < halves + 32) memory.resize(halves + 32);
    return reinterpret_cast<uint16_t*>((reinterpret_cast<uintptr_t>(memory.data()) + 63) & ~uintptr_t(63));
  }
};

inline void add_bias_and_store(const Linear& l, const float* tile, int panel, int rows, float* y, int ldy) {
  const v16 bias = l.bias ? load(l.bias + panel * kLanes) : v16{};
  for (int r = 0; r < rows; ++r) store(y + size_t(r) * ldy + panel * kLanes, load(tile + r * kLanes) + bias);
}

// P panels times R blocks of 16 rows. high, low: [rows][k]; weights: [panel][k / 32][high, low][512].
// ahead: packed weights that are needed next, fetched into the cache on the way.
template <int R, int P>
inline void tile_block(const Linear& l, int panel, int blocks, const uint16_t* high, const uint16_t* low, int width,
                       const uint16_t* weights, const uint16_t* ahead, int rows, float* y, int ldy) {
  static_assert(R * P <= 4 && (R == 1 || P <= 2), "eight tile registers: 0-3 sums, 4-5 activations, 6-7 weights");
  const size_t below = size_t(kTileRows) * width, each = size_t(blocks) * 2 * kTileHalves;
  const int stride = width * 2;
  _tile_zero(0);
  if constexpr (R * P > 1) _tile_zero(1);
  if constexpr (R * P > 2) { _tile_zero(2); _tile_zero(3); }
  for (int b = 0; b < blocks; ++b) {
    const uint16_t *h = high + size_t(b) * kTileInputs, *o = low + size_t(b) * kTileInputs;
    const uint16_t* w = weights + size_t(b) * 2 * kTileHalves;
    for (int i = 0; i < P * kTileHalves; i += 2 * kLanes) _mm_prefetch(ahead + size_t(b) * P * kTileHalves + i, _MM_HINT_T1);
    if constexpr (R == 1) {
      _tile_loadd(4, h, stride);
      _tile_loadd(5, o, stride);
#define ANTIPHON_PANEL(p)                                                                            \
  if constexpr (P > p) {                                                                             \
    _tile_loadd(6, w + p * each, 64);                                                                \
    _tile_dpbf16ps(p, 4, 6);                                                                         \
    _tile_dpbf16ps(p, 5, 6);                                                                         \
    _tile_loadd(7, w + p * each + kTileHalves, 64);                                                  \
    _tile_dpbf16ps(p, 4, 7);                                                                         \
  }
      ANTIPHON_PANEL(0) ANTIPHON_PANEL(1) ANTIPHON_PANEL(2) ANTIPHON_PANEL(3)
#undef ANTIPHON_PANEL
    } else {  // sums: panel * 2 + row block
      _tile_loadd(4, h, stride);
      _tile_loadd(5, h + below, stride);
      _tile_loadd(6, w, 64);
      _tile_dpbf16ps(0, 4, 6);
      _tile_dpbf16ps(1, 5, 6);
      if constexpr (P > 1) {
        _tile_loadd(7, w + each, 64);
        _tile_dpbf16ps(2, 4, 7);
        _tile_dpbf16ps(3, 5, 7);
      }
      _tile_loadd(4, o, stride);
      _tile_loadd(5, o + below, stride);
      _tile_dpbf16ps(0, 4, 6);
      _tile_dpbf16ps(1, 5, 6);
      if constexpr (P > 1) {
        _tile_dpbf16ps(2, 4, 7);
        _tile_dpbf16ps(3, 5, 7);
      }
      _tile_loadd(4, h, stride);
      _tile_loadd(5, h + below, stride);
      _tile_loadd(6, w + kTileHalves, 64);
      _tile_dpbf16ps(0, 4, 6);
      _tile_dpbf16ps(1, 5, 6);
      if constexpr (P > 1) {
        _tile_loadd(7, w + each + kTileHalves, 64);
        _tile_dpbf16ps(2, 4, 7);
        _tile_dpbf16ps(3, 5, 7);
      }
    }
  }
  alignas(64) float sums[4][kTileRows * kLanes];
  _tile_stored(0, sums[0], 64);
  if constexpr (R * P > 1) _tile_stored(1, sums[1], 64);
  if constexpr (R * P > 2) { _tile_stored(2, sums[2], 64); _tile_stored(3, sums[3], 64); }
  for (int p = 0; p < P; ++p)
    for (int r = 0; r < R; ++r) {
      const int left = rows - r * kTileRows;
      add_bias_and_store(l, sums[R == 1 ? p : p * 2 + r], panel + p, left < kTileRows ? left : kTileRows,
                         y + size_t(r) * kTileRows * ldy, ldy);
    }
}

template <int P>
inline void tile_panels(const Linear& l, int panel, int blocks, const uint16_t* high, const uint16_t* low, int width,
                        uint16_t* weights, int rows, float* y, int ldy) {
  const uint16_t* packed = static_cast<const uint16_t*>(l.weight) + size_t(panel) * blocks * kTileHalves;
  for (int i = 0; i < P * blocks; ++i)
    for (int j = 0; j < kTileHalves; j += 2 * kLanes)
      split((__m512)load_half(packed + size_t(i) * kTileHalves + j),
            (__m512)load_half(packed + size_t(i) * kTileHalves + j + kLanes),
            weights + size_t(2 * i) * kTileHalves + j, weights + size_t(2 * i + 1) * kTileHalves + j);
  const uint16_t* ahead = packed + size_t(P) * blocks * kTileHalves;
  int r = 0;
  if constexpr (P <= 2)
    for (; rows - r > kTileRows; r += 2 * kTileRows)
      tile_block<2, P>(l, panel, blocks, high + size_t(r) * width, low + size_t(r) * width, width, weights, ahead, rows - r,
                       y + size_t(r) * ldy, ldy);
  for (; r < rows; r += kTileRows)
    tile_block<1, P>(l, panel, blocks, high + size_t(r) * width, low + size_t(r) * width, width, weights, ahead, rows - r,
                     y + size_t(r) * ldy, ldy);
}

inline void tile_linear(const Linear& l, int rows, const float* x, int ldx, float* y, int ldy) {
  static thread_local TileScratch activations, converted;
  static const TileShape shape;
  const int blocks = (l.inputs + kTileInputs - 1) / kTileInputs, width = blocks * kTileInputs;
  _tile_loadconfig(&shape);
  uint16_t* weights = converted.reserve(size_t(4) * blocks * 2 * kTileHalves);
  for (int first = 0; first < rows; first += kRowChunk) {
    const int count = rows - first < kRowChunk ? rows - first : kRowChunk;
    const int padded = (count + 2 * kTileRows - 1) / (2 * kTileRows) * 2 * kTileRows;
    uint16_t* high = activations.reserve(size_t(2) * padded * width);
    uint16_t* low = high + size_t(padded) * width;
    for (int r = 0; r < padded; ++r) {
      const float* row = x + size_t(first + r) * ldx;
      for (int i = 0; i < width; i += kTileInputs) {
        const int left = r < count ? l.inputs - i : 0;
        const auto mask = [left](int from) {
          return __mmask16(left >= from + kLanes ? 0xffff : left > from ? (1u << (left - from)) - 1 : 0);
        };
        split(_mm512_maskz_loadu_ps(mask(0), row + i), _mm512_maskz_loadu_ps(mask(kLanes), row + i + kLanes),
              high + size_t(r) * width + i, low + size_t(r) * width + i);
      }
    }
    float* out = y + size_t(first) * ldy;
    int panel = 0;
    if (count <= kTileRows)
      for (; panel + 4 <= l.panels; panel += 4) tile_panels<4>(l, panel, blocks, high, low, width, weights, count, out, ldy);
    for (; panel + 2 <= l.panels; panel += 2) tile_panels<2>(l, panel, blocks, high, low, width, weights, count, out, ldy);
    if (panel < l.panels) tile_panels<1>(l, panel, blocks, high, low, width, weights, count, out, ldy);
  }
  _tile_release();
}

}  // namespace antiphon
#endif
