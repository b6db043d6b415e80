// Counter noise: the draw of a token is a function of (seed, generation, step, codebook, token) and of nothing else.
// Philox4x32-10: Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", SC 2011. Oracle: engine/sampling.py.
#pragma once
#include "portable.h"

namespace antiphon {
namespace phases {

HD uint32_t philox(uint64_t key, uint32_t c0, uint32_t c1, uint32_t c2, uint32_t c3) {
  uint32_t k0 = uint32_t(key), k1 = uint32_t(key >> 32);
  for (int round = 0; round < 10; ++round) {
    const uint64_t a = uint64_t(0xD2511F53u) * c0, b = uint64_t(0xCD9E8D57u) * c2;
    c0 = uint32_t(b >> 32) ^ c1 ^ k0;
    c1 = uint32_t(b);
    c2 = uint32_t(a >> 32) ^ c3 ^ k1;
    c3 = uint32_t(a);
    k0 += 0x9E3779B9u;
    k1 += 0xBB67AE85u;
  }
  return c0;
}

HD float gumbel(uint64_t seed, uint32_t generation, uint32_t step, uint32_t codebook, uint32_t token) {
  const uint32_t word = philox(seed, token, codebook, step, generation);
  const float uniform = (float(word >> 9) + 0.5f) * 1.1920928955078125e-7f;
  return -logf(-logf(uniform));
}

struct Draws {  // one row each, `*_stride` elements apart
  const int64_t* seed;
  const int64_t* generation;
  const int64_t* step;
  const int64_t* top_k;      // 0: all
  const float* temperature;  // 0: arg-max
  int32_t seed_stride, generation_stride, step_stride, top_k_stride, temperature_stride;
  int32_t reserved;
};

}  // namespace phases
}  // namespace antiphon
