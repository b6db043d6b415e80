// Random numbers, and arrays of exactly the size that a kernel may touch.
#pragma once
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <list>
#include <memory>
#include <random>
#include <string>
#include <vector>

#define CHECK(condition)                                                        \
  do {                                                                          \
    if (!(condition)) {                                                         \
      std::fprintf(stderr, "%s:%d: %s\n", __FILE__, __LINE__, #condition);      \
      std::exit(1);                                                             \
    }                                                                           \
  } while (false)

class Dice {
 public:
  explicit Dice(uint32_t seed) : engine_(seed) {}
  int whole(int low, int high) { return std::uniform_int_distribution<int>(low, high)(engine_); }  // both may come
  bool coin() { return whole(0, 1); }
  float normal() { return std::normal_distribution<float>()(engine_); }
  template <class T, size_t N>
  T one_of(const T (&items)[N]) { return items[whole(0, int(N) - 1)]; }
  std::vector<float> normals(size_t count, float scale = 1.0f) {
    std::vector<float> out(count);
    for (float& x : out) x = normal() * scale;
    return out;
  }
  template <class T>
  std::vector<T> wholes(size_t count, int low, int high) {
    std::vector<T> out(count);
    for (T& x : out) x = T(whole(low, high));
    return out;
  }
  template <class T>
  std::vector<T> distinct(int count, int below) {
    std::vector<T> all(below);
    for (int i = 0; i < below; ++i) all[i] = T(i);
    std::shuffle(all.begin(), all.end(), engine_);
    all.resize(count);
    all.shrink_to_fit();
    return all;
  }

 private:
  std::mt19937 engine_;
};

// Keeps arrays that structures point at.
class Keeper {
 public:
  template <class T>
  T* keep(std::vector<T> values) {
    values.shrink_to_fit();
    auto held = std::make_shared<std::vector<T>>(std::move(values));
    held_.push_back(held);
    return held->data();
  }

 private:
  std::list<std::shared_ptr<void>> held_;
};

template <class T>
bool same(const std::vector<T>& a, const std::vector<T>& b) {
  return a.size() == b.size() && (a.empty() || std::memcmp(a.data(), b.data(), a.size() * sizeof(T)) == 0);
}
inline bool all_finite(const std::vector<float>& values) {
  for (float x : values)
    if (!std::isfinite(x)) return false;
  return true;
}
