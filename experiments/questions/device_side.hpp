// The CUDA side of a comparison: the back end on a GPU, or, to rehearse, on the PTX machine.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "engine/backend/backend.hpp"
#include "engine/backend/cuda/cuda_backend.hpp"

namespace fp16lab::experiments {

struct DeviceSide {
  bool rehearsal = false;   ///< no GPU takes part
  std::string description;  ///< "NVIDIA H200, compute capability 9.0, driver CUDA 13.0, runtime CUDA 13.0"
  std::string tensor_core;  ///< the row that its products follow: the emulated side takes the same

  int ordinal = 0;
  int multiprocessors = 0;  ///< by which products are cut into tiles, as by these
  std::size_t shared_per_block = std::size_t{227} * 1024;
  std::size_t shared_per_multiprocessor = std::size_t{228} * 1024;

  /// A back end with a pool and a stream of its own; device and tensor cores are this side's.
  std::unique_ptr<engine::Backend> make(engine::CudaOptions options = {}) const;
};

/// A GPU. CommandError(unavailable) with the reason where there is none that could be used.
DeviceSide open_gpu(int ordinal = 0);
/// The PTX machine (tests/machines/ptx), which must be there in a GPU's place: CommandError(unavailable) with
/// what to do where it is not. Slow, and no evidence about any GPU.
DeviceSide open_rehearsal();

/// What every line of output begins with: nothing, or that no GPU took part.
std::string line_mark(const DeviceSide& side);

// Times on the device's own clock: medians of several repetitions, after warm-up.

struct TimingPlan {
  int warm_up = 2;                ///< calls before anything is timed: pools and tables are made in them
  int repetitions = 7;            ///< of which the median counts
  double least_milliseconds = 0;  ///< of a repetition: it calls `work` as often as that takes
};

struct Timing {
  double median = 0;  ///< milliseconds of one call
  double fastest = 0, slowest = 0;
  int calls = 1;  ///< in one repetition
};

Timing time_of(engine::Backend& backend, const TimingPlan& plan, const std::function<void()>& work);

}  // namespace fp16lab::experiments
