// Top-k + Gumbel sampling, one block a row; ties at the k-th value are all kept, equal values go to the lowest token.
// Oracle: engine/sampling.py `sample`.
#pragma once
#include "noise.h"

namespace antiphon {
namespace phases {

struct Guided {  // classifier-free guidance: the logits of `count` more rows, the null of some rows of the batch
  const int64_t* rows;    // which rows they belong to
  const float* strength;  // null + (logits - null) * strength
  const float* logits;    // [count] rows, as far apart as the batch's
  int32_t count;
  int32_t reserved;
};

struct Sample {
  static constexpr int kSteps = 12;
  float* logits;           // [rows], `row_stride` apart, of `card` numbers; guided rows are overwritten with the mix
  int64_t* tokens;         // [rows], `token_stride` apart
  const int64_t* forced;   // null, or as tokens: the token to take where it is >= 0
  Draws draws;
  Guided guided;
  int64_t row_stride;
  int32_t rows, card, codebook, token_stride;

  // shared: two histograms; the prefix and the rank left after each digit; the best of each thread.
  static constexpr int kPrefix = 2 * 256, kRank = kPrefix + 5, kValue = kRank + 5, kToken = kValue + kThreads,
                       kFoldValue = kToken + kThreads, kFoldToken = kFoldValue + kWarp, kCells = kFoldToken + kWarp;

  HD int items() const { return rows; }

  HD static uint32_t ordered(float x) {  // an integer with the order of the float; -0 equals 0
    const uint32_t bits = bits_of(x + 0.0f);
    return bits ^ ((bits >> 31) ? 0xffffffffu : 0x80000000u);
  }

  HD void step(int s, int row, int thread, Cell* shared) const {
    float* x = logits + size_t(row) * row_stride;
    if (s == 0) {
      mix(row, thread, x);
      shared[thread].i = 0;
      if (thread == 0) {
        const int64_t k = draws.top_k[size_t(row) * draws.top_k_stride];
        shared[kPrefix].u = 0;
        shared[kRank].i = k <= 0 || k > card ? card : int32_t(k);
      }
    } else if (s <= 8) {
      const int digit = (s - 1) / 2;
      if (s % 2) count_digits(digit, thread, x, shared);
      else choose_digit(digit, thread, shared);
    } else if (s == 9) {
      best_of_thread(row, thread, x, shared);
    } else if (s == 10) {
      if (thread < kWarp) better_of(shared + kValue, shared + kToken, kThreads, thread, shared + kFoldValue + thread,
                                    shared + kFoldToken + thread);
    } else if (thread == 0) {
      Cell value, token;
      better_of(shared + kFoldValue, shared + kFoldToken, kWarp, 0, &value, &token);
      const size_t at = size_t(row) * token_stride;
      const int64_t given = forced ? forced[at] : -1;
      tokens[at] = given >= 0 ? given : token.i < 0 ? 0 : token.i;
    }
  }

  HD void mix(int row, int thread, float* x) const {
    for (int g = 0; g < guided.count; ++g) {
      if (guided.rows[g] != row) continue;
      const float* null = guided.logits + size_t(g) * row_stride;
      for (int i = thread; i < card; i += kThreads) x[i] = null[i] + (x[i] - null[i]) * guided.strength[g];
    }
  }

  // Radix selection of the k-th largest, eight bits at a time from the top.
  HD void count_digits(int digit, int thread, const float* x, Cell* shared) const {
    Cell* bins = shared + (digit % 2) * 256;
    const uint32_t prefix = shared[kPrefix + digit].u;
    for (int i = thread; i < card; i += kThreads) {
      const uint32_t key = ordered(x[i]);
      if (digit == 0 || (key >> (32 - 8 * digit)) == prefix) count_up(&bins[(key >> (24 - 8 * digit)) & 255u].i);
    }
  }
  HD void choose_digit(int digit, int thread, Cell* shared) const {
    const Cell* bins = shared + (digit % 2) * 256;
    const int rank = shared[kRank + digit].i;
    int above = 0;
    for (int j = thread + 1; j < 256; ++j) above += bins[j].i;
    shared[((digit + 1) % 2) * 256 + thread].i = 0;
    if (above < rank && rank <= above + bins[thread].i) {  // true for one thread
      shared[kPrefix + digit + 1].u = (shared[kPrefix + digit].u << 8) | uint32_t(thread);
      shared[kRank + digit + 1].i = rank - above;
    }
  }

  HD void best_of_thread(int row, int thread, const float* x, Cell* shared) const {
    const uint32_t bound = shared[kPrefix + 4].u;
    const float heat = draws.temperature[size_t(row) * draws.temperature_stride];
    const uint64_t seed = uint64_t(draws.seed[size_t(row) * draws.seed_stride]);
    const uint32_t generation = uint32_t(draws.generation[size_t(row) * draws.generation_stride]);
    const uint32_t at = uint32_t(draws.step[size_t(row) * draws.step_stride]);
    float best = 0.0f;
    int32_t token = -1;
    for (int i = thread; i < card; i += kThreads) {
      if (ordered(x[i]) < bound) continue;
      const float value = heat > 0.0f ? x[i] / heat + gumbel(seed, generation, at, uint32_t(codebook), uint32_t(i)) : x[i];
      if (token < 0 ? value == value : value > best) {
        best = value;
        token = i;
      }
    }
    shared[kValue + thread].f = best;
    shared[kToken + thread].i = token;
  }

  // The best of every kWarp-th pair from `from` on; token -1: none.
  HD static void better_of(const Cell* values, const Cell* tokens_, int count, int from, Cell* value, Cell* token) {
    const int stride = count == kWarp ? 1 : kWarp;
    float best = 0.0f;
    int32_t chosen = -1;
    for (int j = from; j < count; j += stride) {
      const float v = values[j].f;
      const int32_t t = tokens_[j].i;
      if (t >= 0 && (chosen < 0 || v > best || (v == best && t < chosen))) {
        best = v;
        chosen = t;
      }
    }
    value->f = best;
    token->i = chosen;
  }
};

}  // namespace phases
}  // namespace antiphon
