// Runs works on the host, thread after thread: forwards or backwards, which must not matter.
#pragma once
#include <vector>

#include "../phases/portable.h"

namespace antiphon {

class HostRunner {
 public:
  explicit HostRunner(bool backwards) : backwards_(backwards) {}

  template <class Work>
  void operator()(const Work& work) {
    static_assert(Work::kCells <= phases::kShared, "fits into a block's memory");
    std::vector<phases::Cell> shared(Work::kCells);
    const int items = work.items();
    for (int i = 0; i < items; ++i) {
      const int item = backwards_ ? items - 1 - i : i;
      for (phases::Cell& cell : shared) cell.u = 0x7fc0dead;  // not a number: nothing outlives an item
      for (int s = 0; s < Work::kSteps; ++s)
        for (int t = 0; t < phases::kThreads; ++t)
          work.step(s, item, backwards_ ? phases::kThreads - 1 - t : t, shared.data());
    }
  }

 private:
  bool backwards_;
};

// As the launchers of device.cuh. stream: null runs forwards, anything else backwards.
template <class Program>
int32_t run_program(const Program& program, void* stream) {
  HostRunner run(stream != nullptr);
  program(run);
  return 0;
}
template <class Work>
int32_t run_work(const Work& work, void* stream) {
  HostRunner run(stream != nullptr);
  run(work);
  return 0;
}
template <class Program>
int32_t run_persistent(const Program& program, uint32_t*, void* stream) {
  return run_program(program, stream);
}

}  // namespace antiphon
