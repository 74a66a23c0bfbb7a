// Where a run computes: the back end that `backend.*` asks for.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "engine/backend/backend.hpp"
#include "engine/backend/cuda/cuda_backend.hpp"
#include "experiments/app/config/config.hpp"
#include "numerics/files/run/run_schema.hpp"

namespace fp16lab::experiments {

/// A back end, and what a manifest says of it.
struct ChosenBackend {
  std::unique_ptr<engine::Backend> backend;
  BackendRecord record;
  std::optional<std::string> gpu;     ///< its name; absent on the emulated back end
  std::optional<std::string> driver;  ///< "CUDA 13.0": the newest that it runs
  /// How many products cuBLAS has computed; null where there is no device.
  std::shared_ptr<const std::uint64_t> library_products;
};

/// The back end that `config.backend` asks for. CommandError(unavailable), one line with reason and remedy,
/// where it is "cuda" and cannot run; "auto" takes the emulated one then, and record.note says why.
ChosenBackend choose_backend(const RunConfig& config, int threads);
/// Only the back end.
std::unique_ptr<engine::Backend> make_backend(const RunConfig& config, int threads);

/// The device of a rank, where `first` is backend.ordinal and `devices` its node has: ranks of one host take
/// them in turn, from `first` on. The first rank of a host has `first` itself, whatever there is.
std::int64_t device_of_rank(std::int64_t first, std::span<const std::string> hosts, int rank,
                            std::size_t devices);

/// What backend.device = "auto" took, and why: one line.
std::string choice_text(const BackendRecord& record);

/// The row of tensor cores that products follow, where the configuration alone says it: not where it is
/// "auto" and a device may decide.
std::optional<std::string_view> configured_tensor_core(const BackendConfig& config);

engine::GemmRoute gemm_route(Gemm gemm);
/// With the device and the row that were found.
BackendConfig settled(BackendConfig asked, const BackendRecord& found);

/// 13000 is "13.0".
std::string cuda_version_text(int version);

}  // namespace fp16lab::experiments
