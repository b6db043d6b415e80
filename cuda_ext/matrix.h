// A packed matrix with its bias, in one of several kinds of arithmetic.
#pragma once
#include <cstdint>

namespace antiphon {

enum Kind : int32_t {
  kFloat = 0,    // float32 panels
  kHalf = 1,     // float16 panels
  kFixed16 = 2,  // 16-bit fixed point (fixed.h)
  kFixed8 = 3,   // 8-bit fixed point (fixed.h)
};

struct Linear {
  const void* weight;   // packed panels
  const float* bias;    // [panels * 16] or null
  int32_t inputs;       // k
  int32_t panels;       // ceil(n / 16)
  int32_t kind;         // Kind
  int32_t outputs;      // n
  const float* scales;  // [panels * 16] of fixed-point columns, else null
};

}  // namespace antiphon
