// y = x W^T + b in fixed point: whole numbers all the way, so a row's bits depend on that row alone whatever the batch,
// the instruction set or the order of the sum.
//
// A row of activations is scaled by its largest magnitude to 16-bit integers, q = 256 high + low; a column of weights
// likewise to 16 bits (kFixed16) or to 8 (kFixed8, high alone). The products of the 8-bit parts are summed exactly in
// 32 bits (|sum| < 2^14 k); low x low, below 2^-16 of the largest product, is left out. By the CPU's matrix tiles
// (Intel AMX, TDPBSSD), by dot products of bytes (AVX-512 VNNI), or in plain loops.
// Weights: [panel][k / 64][high, low][16 groups of inputs][16 columns][4 inputs] int8 (kFixed8: high alone).
#pragma once
#include <cstddef>
#include <limits>
#include <vector>

#include "matrix.h"
#include "tile.h"

namespace antiphon {

constexpr int kFixedInputs = 64, kFixedTile = kFixedInputs * kLanes, kFixedRows = 16;
constexpr int kFixedChunk = 256;      // rows whose activations stay in the cache while the weights pass
constexpr int kFixedLargest = 32639;  // 127 * 256 + 127

typedef int8_t v16b __attribute__((vector_size(16)));

// The lanes of x from i on that lie below n, zero elsewhere.
inline v16 load_up_to(const float* x, int i, int n) {
  if (i + kLanes <= n) return load(x + i);
  v16 v{};
  std::memcpy(&v, x + i, sizeof(float) * size_t(n - i));
  return v;
}

// The largest magnitude of x[0..n) as float bits: above 0x7f7fffff if any is not finite.
inline int32_t largest_bits(const float* x, int n) {
  v16i top{};
  for (int i = 0; i < n; i += kLanes) {
    const v16i bits = (v16i)load_up_to(x, i, n) & 0x7fffffff;
    top = (v16i)select(bits > top, (v16)bits, (v16)top);
  }
  int32_t best = 0;
  for (int i = 0; i < kLanes; ++i) best = top[i] > best ? top[i] : best;
  return best;
}

// One row to its parts, zero up to width; returns its scale (NaN if a value is not finite, so that the result shows it).
inline float to_fixed(const float* x, int n, int width, int8_t* high, int8_t* low) {
  const int32_t bits = largest_bits(x, n);
  float top;
  std::memcpy(&top, &bits, 4);
  const bool finite = bits < 0x7f800000;
  const float inverse = finite && top > 1e-30f ? float(kFixedLargest) / top : 0.0f;
  int i = 0;
  for (; i < n; i += kLanes) {
    const v16i q = nearest(load_up_to(x, i, n) * inverse);
    const v16i h = (q + 128) >> 8;
    const v16b hb = __builtin_convertvector(h, v16b), lb = __builtin_convertvector(q - (h << 8), v16b);
    std::memcpy(high + i, &hb, sizeof hb);
    std::memcpy(low + i, &lb, sizeof lb);
  }
  for (; i < width; i += kLanes) {
    std::memset(high + i, 0, kLanes);
    std::memset(low + i, 0, kLanes);
  }
  return finite ? top / float(kFixedLargest) : std::numeric_limits<float>::quiet_NaN();
}

struct FixedScratch {
  std::vector<int8_t> memory;
  float scales[kFixedChunk];
  int8_t* reserve(size_t bytes) {  // grows at the first calls, then stays
    if (memory.size() < bytes + 64) memory.resize(bytes + 64);
    return reinterpret_cast<int8_t*>((reinterpret_cast<uintptr_t>(memory.data()) + 63) & ~uintptr_t(63));
  }
};

// sums: [2][16 rows][16 columns]: of high x high, and of the mixed products.
template <bool Wide>
inline void fixed_store(const Linear& l, int panel, const int32_t* sums, const float* scales, int rows, float* y, int ldy) {
  const v16 bias = l.bias ? load(l.bias + panel * kLanes) : v16{}, column = load(l.scales + panel * kLanes);
  for (int r = 0; r < rows; ++r) {
    v16i a, b;
    std::memcpy(&a, sums + r * kLanes, sizeof a);
    std::memcpy(&b, sums + (kFixedRows + r) * kLanes, sizeof b);
    const v16 total = __builtin_convertvector(a, v16) * 256.0f + __builtin_convertvector(b, v16);
    store(y + size_t(r) * ldy + panel * kLanes, total * (column * (scales[r] * (Wide ? 256.0f : 1.0f))) + bias);
  }
}

// Plain loops: what the tiles compute, number for number.
template <bool Wide>
inline void fixed_block_plain(const Linear& l, int panel, int blocks, const int8_t* high, const int8_t* low, int width,
                              const float* scales, int rows, float* y, int ldy) {
  const size_t each = size_t(blocks) * (Wide ? 2 : 1) * kFixedTile;
  const int8_t* weights = static_cast<const int8_t*>(l.weight) + panel * each;
  alignas(64) int32_t sums[2 * kFixedRows * kLanes] = {};
  for (int b = 0; b < blocks; ++b) {
    const int8_t* wh = weights + size_t(b) * (Wide ? 2 : 1) * kFixedTile;
    for (int r = 0; r < rows; ++r) {
      const int8_t *h = high + size_t(r) * width + b * kFixedInputs, *o = low + size_t(r) * width + b * kFixedInputs;
      int32_t *hh = sums + r * kLanes, *mixed = sums + (kFixedRows + r) * kLanes;
      for (int k = 0; k < kFixedInputs; ++k)
        for (int c = 0; c < kLanes; ++c) {
          const int at = (k / 4 * kLanes + c) * 4 + k % 4;
          hh[c] += int32_t(h[k]) * wh[at];
          mixed[c] += int32_t(o[k]) * wh[at];
          if constexpr (Wide) mixed[c] += int32_t(h[k]) * wh[kFixedTile + at];
        }
    }
  }
  fixed_store<Wide>(l, panel, sums, scales, rows, y, ldy);
}

#if defined(__AVX512VNNI__) && defined(__AVX512BW__)
#define ANTIPHON_DOTS 1
// Up to R rows by dot products of four bytes (VPDPBUSD). One side must be unsigned: activations are taken 128 too large,
// and what that adds is taken off again; whole numbers stay exact.
template <bool Wide, int R>
inline void fixed_dots(const Linear& l, int panel, int blocks, const int8_t* high, const int8_t* low, int width,
                       const float* scales, float* y, int ldy) {
  const size_t each = size_t(blocks) * (Wide ? 2 : 1) * kFixedTile;
  const int8_t* w = static_cast<const int8_t*>(l.weight) + panel * each;
  const __m512i shift = _mm512_set1_epi8(int8_t(-128));
  __m512i hh[R], mixed[R], over_high = _mm512_setzero_si512(), over_low = over_high;
  for (int r = 0; r < R; ++r) hh[r] = mixed[r] = _mm512_setzero_si512();
  const auto four = [&](const int8_t* at) {
    int32_t bytes;
    std::memcpy(&bytes, at, 4);
    return _mm512_xor_si512(_mm512_set1_epi32(bytes), shift);
  };
  for (int b = 0; b < blocks; ++b, w += (Wide ? 2 : 1) * kFixedTile)
    for (int g = 0; g < kFixedInputs / 4; ++g) {
      const __m512i wh = _mm512_loadu_si512(w + g * 64), wl = _mm512_loadu_si512(w + (Wide ? kFixedTile : 0) + g * 64);
      over_high = _mm512_dpbusd_epi32(over_high, shift, wh);
      if constexpr (Wide) over_low = _mm512_dpbusd_epi32(over_low, shift, wl);
      for (int r = 0; r < R; ++r) {
        const size_t at = size_t(r) * width + b * kFixedInputs + g * 4;
        const __m512i h = four(high + at);
        hh[r] = _mm512_dpbusd_epi32(hh[r], h, wh);
        mixed[r] = _mm512_dpbusd_epi32(mixed[r], four(low + at), wh);
        if constexpr (Wide) mixed[r] = _mm512_dpbusd_epi32(mixed[r], h, wl);
      }
    }
  alignas(64) int32_t sums[2 * kFixedRows * kLanes];
  for (int r = 0; r < R; ++r) {
    _mm512_store_si512(sums + r * kLanes, _mm512_sub_epi32(hh[r], over_high));
    _mm512_store_si512(sums + (kFixedRows + r) * kLanes,
                       _mm512_sub_epi32(mixed[r], _mm512_add_epi32(over_high, over_low)));
  }
  fixed_store<Wide>(l, panel, sums, scales, R, y, ldy);
}

template <bool Wide>
inline void fixed_block_dots(const Linear& l, int panel, int blocks, const int8_t* high, const int8_t* low, int width,
                             const float* scales, int rows, float* y, int ldy) {
  int r = 0;
  for (; r + 6 <= rows; r += 6)
    fixed_dots<Wide, 6>(l, panel, blocks, high + size_t(r) * width, low + size_t(r) * width, width, scales + r,
                        y + size_t(r) * ldy, ldy);
  for (; r + 2 <= rows; r += 2)
    fixed_dots<Wide, 2>(l, panel, blocks, high + size_t(r) * width, low + size_t(r) * width, width, scales + r,
                        y + size_t(r) * ldy, ldy);
  if (r < rows)
    fixed_dots<Wide, 1>(l, panel, blocks, high + size_t(r) * width, low + size_t(r) * width, width, scales + r,
                        y + size_t(r) * ldy, ldy);
}
#endif

#ifdef ANTIPHON_TILES
// P panels times 16 rows. Tiles: 2p sums of high x high, 2p + 1 mixed sums; 4, 5 activations; 6, 7 weights.
// ahead: weights that are needed next; `lines` cache lines of them are fetched on the way for each 64 inputs.
template <int P, bool Wide>
inline void fixed_block(const Linear& l, int panel, int blocks, const int8_t* high, const int8_t* low, int width,
                        const float* scales, int rows, float* y, int ldy, const int8_t* ahead, int lines) {
  static_assert(P <= 2, "eight tile registers");
  constexpr int step = (Wide ? 2 : 1) * kFixedTile;
  const size_t each = size_t(blocks) * step;
  const int8_t* w = static_cast<const int8_t*>(l.weight) + panel * each;
  _tile_zero(0);
  _tile_zero(1);
  if constexpr (P > 1) {
    _tile_zero(2);
    _tile_zero(3);
  }
  for (int b = 0; b < blocks; ++b, w += step) {
    for (int i = 0; i < lines; ++i, ahead += 64) _mm_prefetch(ahead, _MM_HINT_T0);
    _tile_loadd(4, high + b * kFixedInputs, width);
    _tile_loadd(5, low + b * kFixedInputs, width);
    _tile_loadd(6, w, 64);
    _tile_dpbssd(0, 4, 6);
    _tile_dpbssd(1, 5, 6);
    if constexpr (P > 1) {
      _tile_loadd(7, w + each, 64);
      _tile_dpbssd(2, 4, 7);
      _tile_dpbssd(3, 5, 7);
    }
    if constexpr (Wide) {
      _tile_loadd(6, w + kFixedTile, 64);
      _tile_dpbssd(1, 4, 6);
      if constexpr (P > 1) {
        _tile_loadd(7, w + each + kFixedTile, 64);
        _tile_dpbssd(3, 4, 7);
      }
    }
  }
  alignas(64) int32_t sums[2][2 * kFixedRows * kLanes];
  _tile_stored(0, sums[0], 64);
  _tile_stored(1, sums[0] + kFixedRows * kLanes, 64);
  if constexpr (P > 1) {
    _tile_stored(2, sums[1], 64);
    _tile_stored(3, sums[1] + kFixedRows * kLanes, 64);
  }
  for (int p = 0; p < P; ++p) fixed_store<Wide>(l, panel + p, sums[p], scales, rows, y, ldy);
}
#endif

template <int P, bool Wide>
inline void fixed_rows(const Linear& l, int panel, int blocks, const int8_t* high, const int8_t* low, int width,
                       const float* scales, int rows, float* y, int ldy) {
#ifdef ANTIPHON_TILES
  // The panels that follow are as large as these, and their fetch is spread over all row blocks.
  constexpr int step = (Wide ? 2 : 1) * kFixedTile, of_a_step = P * step / 64;
  const int turns = (rows + kFixedRows - 1) / kFixedRows, lines = (of_a_step + turns - 1) / turns;
  const int8_t* ahead = static_cast<const int8_t*>(l.weight) + size_t(panel + P) * blocks * step;
#endif
  for (int r = 0; r < rows; r += kFixedRows) {
    const int left = rows - r < kFixedRows ? rows - r : kFixedRows;
    const int8_t *h = high + size_t(r) * width, *o = low + size_t(r) * width;
    float* out = y + size_t(r) * ldy;
#ifdef ANTIPHON_TILES
    if (whole_products == kByTiles) {
      fixed_block<P, Wide>(l, panel, blocks, h, o, width, scales + r, left, out, ldy, ahead, lines);
      ahead += size_t(lines) * blocks * 64;
      continue;
    }
#endif
#ifdef ANTIPHON_DOTS
    if (whole_products >= kByDots) {
      for (int p = 0; p < P; ++p) fixed_block_dots<Wide>(l, panel + p, blocks, h, o, width, scales + r, left, out, ldy);
      continue;
    }
#endif
    for (int p = 0; p < P; ++p) fixed_block_plain<Wide>(l, panel + p, blocks, h, o, width, scales + r, left, out, ldy);
  }
}

template <bool Wide>
inline void fixed_linear(const Linear& l, int rows, const float* x, int ldx, float* y, int ldy) {
  static thread_local FixedScratch scratch;
  const int blocks = (l.inputs + kFixedInputs - 1) / kFixedInputs, width = blocks * kFixedInputs;
  begin_tiles();
  for (int first = 0; first < rows; first += kFixedChunk) {
    const int count = rows - first < kFixedChunk ? rows - first : kFixedChunk;
    const int padded = (count + kFixedRows - 1) / kFixedRows * kFixedRows;
    int8_t* high = scratch.reserve(size_t(2) * padded * width);
    int8_t* low = high + size_t(padded) * width;
    float* scales = scratch.scales;
    for (int r = 0; r < count; ++r)
      scales[r] = to_fixed(x + size_t(first + r) * ldx, l.inputs, width, high + size_t(r) * width, low + size_t(r) * width);
    float* out = y + size_t(first) * ldy;
    int panel = 0;
    for (; panel + 2 <= l.panels; panel += 2)
      fixed_rows<2, Wide>(l, panel, blocks, high, low, width, scales, count, out, ldy);
    if (panel < l.panels) fixed_rows<1, Wide>(l, panel, blocks, high, low, width, scales, count, out, ldy);
  }
  end_tiles();
}

}  // namespace antiphon
