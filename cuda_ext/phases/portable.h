// What every phase is made of: plain C++17 that g++ compiles for the host and nvcc for both sides.
//
// A kernel is a `Work`: some independent items, each done by one block of kThreads threads in a few steps.
//
//   static constexpr int kSteps;                                     // the block's threads wait for each other in between
//   HD int items() const;
//   static constexpr int kCells;                                     // of memory that the block shares, for one item
//   HD void step(int s, int item, int thread, Cell* shared) const;
//
// A program is a sequence of works, `run(work)` one after another; all of one is done before the next begins. No phase
// waits for anything itself: who runs it does (cuda/device.cuh with barriers, cuda/host.h in loops), so the functions and
// their order are the same on both sides. Within a step no thread may read what another one writes.
#pragma once
#include <cmath>
#include <cstdint>
#include <cstring>

#if defined(__CUDACC__)
#define HD __host__ __device__ inline
#else
#define HD inline
#endif

namespace antiphon {
namespace phases {

constexpr int kThreads = 256;  // of a block
constexpr int kWarp = 32;      // lanes that share one sum
constexpr int kVector = 8;     // elements that a lane loads at once
constexpr int kShared = 12288;  // most cells of a block: 48 KiB, what every device grants

union Cell {
  float f;
  int32_t i;
  uint32_t u;
};

enum Kind : int32_t { kFloat32 = 0, kFloat16 = 1, kBfloat16 = 2, kInt8 = 3 };

struct Half { uint16_t bits; };
struct Bfloat { uint16_t bits; };

HD uint32_t bits_of(float x) {
  uint32_t bits;
  memcpy(&bits, &x, 4);
  return bits;
}
HD float float_of(uint32_t bits) {
  float x;
  memcpy(&x, &bits, 4);
  return x;
}

HD float widen(float x) { return x; }
HD float widen(int8_t x) { return float(x); }
HD float widen(Bfloat x) { return float_of(uint32_t(x.bits) << 16); }
HD float widen(Half x) {  // IEEE 754 binary16, exact
#if defined(__CUDA_ARCH__)
  float out;
  asm("cvt.f32.f16 %0, %1;" : "=f"(out) : "h"(x.bits));
  return out;
#else
  const uint32_t sign = uint32_t(x.bits & 0x8000u) << 16, exponent = (x.bits >> 10) & 31u, fraction = x.bits & 1023u;
  if (exponent == 0) return float_of(bits_of(float(fraction) * 5.9604644775390625e-8f) | sign);
  return float_of(sign | ((exponent == 31u ? 255u : exponent + 112u) << 23) | (fraction << 13));
#endif
}

HD void narrow(float x, float* out) { *out = x; }
HD void narrow(float x, Bfloat* out) {  // to the nearest, ties to even; NaN stays NaN
  const uint32_t bits = bits_of(x);
  out->bits = x != x ? 0x7fc0u : uint16_t((bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16);
}
HD void narrow(float x, Half* out) {  // to the nearest, ties to even
#if defined(__CUDA_ARCH__)
  asm("cvt.rn.f16.f32 %0, %1;" : "=h"(out->bits) : "f"(x));
#else
  const uint32_t bits = bits_of(x), sign = (bits >> 16) & 0x8000u, size = bits & 0x7fffffffu;
  if (size > 0x7f800000u) out->bits = 0x7e00u;
  else if (size >= 0x477ff000u) out->bits = uint16_t(sign | 0x7c00u);  // rounds past the largest finite number
  else if (size < 0x38800000u)  // subnormal: adding 0.5 leaves the rounded fraction in the lowest bits
    out->bits = uint16_t(sign | (bits_of(float_of(size) + 0.5f) - bits_of(0.5f)));
  else out->bits = uint16_t(sign | ((size - 0x38000000u + 0xfffu + ((size >> 13) & 1u)) >> 13));
#endif
}

// kVector elements from p, which is aligned to as many.
template <class T>
HD void load_vector(const T* p, float* out) {
  struct alignas(sizeof(T) * kVector > 16 ? 16 : sizeof(T) * kVector) Pack { T at[kVector]; };
#if defined(__CUDA_ARCH__)
  const Pack pack = *reinterpret_cast<const Pack*>(p);
#else
  Pack pack;
  memcpy(&pack, p, sizeof pack);
#endif
  for (int j = 0; j < kVector; ++j) out[j] = widen(pack.at[j]);
}

// One element of an array of any kind.
HD float element(const void* base, int32_t kind, size_t index) {
  switch (kind) {
    case kFloat16: return widen(static_cast<const Half*>(base)[index]);
    case kBfloat16: return widen(static_cast<const Bfloat*>(base)[index]);
    case kInt8: return widen(static_cast<const int8_t*>(base)[index]);
    default: return static_cast<const float*>(base)[index];
  }
}
HD void put(void* base, int32_t kind, size_t index, float x) {
  switch (kind) {
    case kFloat16: return narrow(x, static_cast<Half*>(base) + index);
    case kBfloat16: return narrow(x, static_cast<Bfloat*>(base) + index);
    default: static_cast<float*>(base)[index] = x;
  }
}
HD size_t element_bytes(int32_t kind) { return kind == kFloat32 ? 4 : kind == kInt8 ? 1 : 2; }
HD const void* element_at(const void* base, int32_t kind, size_t index) {
  return static_cast<const char*>(base) + index * element_bytes(kind);
}
HD void* element_at(void* base, int32_t kind, size_t index) {
  return static_cast<char*>(base) + index * element_bytes(kind);
}

HD void count_up(int32_t* at) {
#if defined(__CUDA_ARCH__)
  atomicAdd(at, 1);
#else
  ++*at;
#endif
}

HD int tiles(int count, int size) { return (count + size - 1) / size; }
HD float silu(float x) { return x / (1.0f + expf(-x)); }

// The sum over a block, first half: partial[kThreads] -> lanes[kWarp]; the thread's lane of kWarp.
HD float fold(const Cell* partial, int lane) {
  float sum = 0.0f;
  for (int j = lane; j < kThreads; j += kWarp) sum += partial[j].f;
  return sum;
}
// Second half, by whoever needs it.
HD float total(const Cell* lanes) {
  float sum = 0.0f;
  for (int j = 0; j < kWarp; ++j) sum += lanes[j].f;
  return sum;
}

}  // namespace phases
}  // namespace antiphon
