// Runs works on a CUDA device: a program as one launch a work, or as one persistent kernel with a barrier after each.
// Nothing allocates or waits, so every launch may be captured into a graph. Returned: a cudaError_t.
#pragma once
#include <cuda_runtime.h>

#include "../phases/portable.h"

namespace antiphon {

template <class Work>
__device__ inline void run_items(const Work& work, phases::Cell* shared) {
  const int items = work.items();
  for (int item = blockIdx.x; item < items; item += gridDim.x) {
#pragma unroll
    for (int s = 0; s < Work::kSteps; ++s) {
      work.step(s, item, threadIdx.x, shared);
      __syncthreads();
    }
  }
}

template <class Work>
__global__ void __launch_bounds__(phases::kThreads) work_kernel(const __grid_constant__ Work work) {
  extern __shared__ phases::Cell shared[];
  run_items(work, shared);
}

// All blocks of a cooperative launch wait for each other. The counter's top bit turns over when the last one arrives (as
// in cooperative groups' grid.sync), so it needs no reset, whatever the number of blocks of the launches before.
__device__ inline void grid_barrier(uint32_t* counter) {
  __syncthreads();
  if (threadIdx.x == 0) {
    __threadfence();
    const uint32_t mine = blockIdx.x == 0 ? 0x80000000u - (gridDim.x - 1) : 1u;
    const uint32_t before = atomicAdd(counter, mine);
    while (((before ^ *static_cast<volatile uint32_t*>(counter)) & 0x80000000u) == 0) {
    }
    __threadfence();
  }
  __syncthreads();
}

struct GridRunner {
  phases::Cell* shared;
  uint32_t* counter;
  template <class Work>
  __device__ void operator()(const Work& work) {
    run_items(work, shared);
    grid_barrier(counter);
  }
};

template <class Program>
__global__ void __launch_bounds__(phases::kThreads)
    persistent_kernel(const __grid_constant__ Program program, uint32_t* counter) {
  extern __shared__ phases::Cell shared[];
  GridRunner run{shared, counter};
  program(run);
}

constexpr int kMostBlocks = 65535;

class LaunchRunner {
 public:
  explicit LaunchRunner(void* stream) : stream_(static_cast<cudaStream_t>(stream)) {}

  template <class Work>
  void operator()(const Work& work) {
    const int items = work.items();
    if (error_ != cudaSuccess || items == 0) return;
    static_assert(Work::kCells <= phases::kShared, "fits into a block's memory");
    const int blocks = items < kMostBlocks ? items : kMostBlocks;
    work_kernel<<<blocks, phases::kThreads, Work::kCells * sizeof(phases::Cell), stream_>>>(work);
    error_ = cudaGetLastError();
  }
  int32_t error() const { return int32_t(error_); }

 private:
  cudaStream_t stream_;
  cudaError_t error_ = cudaSuccess;
};

template <class Program>
int32_t run_program(const Program& program, void* stream) {
  LaunchRunner run(stream);
  program(run);
  return run.error();
}
template <class Work>
int32_t run_work(const Work& work, void* stream) {
  LaunchRunner run(stream);
  run(work);
  return run.error();
}

// A few blocks a multiprocessor, to hide the latency of memory; all are resident, which the barrier needs.
constexpr int kBlocksEach = 2;

template <class Program>
int32_t run_persistent(const Program& program, uint32_t* counter, void* stream) {
  constexpr size_t bytes = Program::kCells * sizeof(phases::Cell);
  int device = 0, multiprocessors = 0, each = 0;
  cudaError_t error = cudaGetDevice(&device);
  if (error == cudaSuccess) error = cudaDeviceGetAttribute(&multiprocessors, cudaDevAttrMultiProcessorCount, device);
  if (error == cudaSuccess)
    error = cudaOccupancyMaxActiveBlocksPerMultiprocessor(&each, persistent_kernel<Program>, phases::kThreads, bytes);
  if (error != cudaSuccess) return int32_t(error);
  cudaLaunchAttribute attribute[1];
  attribute[0].id = cudaLaunchAttributeCooperative;
  attribute[0].val.cooperative = 1;
  cudaLaunchConfig_t config = {};
  config.gridDim = dim3(multiprocessors * (each < kBlocksEach ? each : kBlocksEach));
  config.blockDim = dim3(phases::kThreads);
  config.dynamicSmemBytes = bytes;
  config.stream = static_cast<cudaStream_t>(stream);
  config.attrs = attribute;
  config.numAttrs = 1;
  error = cudaLaunchKernelEx(&config, persistent_kernel<Program>, program, counter);
  return int32_t(error);
}

}  // namespace antiphon
