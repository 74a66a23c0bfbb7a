// What experiments/bench/torch_amp.py measured on the same card.
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace fp16lab::experiments::acceptance {

struct TorchTime {
  std::string system;     ///< "paddle_linear9"
  std::string precision;  ///< "fp32", "tf32", "amp"
  std::string mode;       ///< "eager", "compile"
  double milliseconds = 0;
};

struct TorchTimes {
  std::string version, device;
  std::vector<TorchTime> rows;
  std::optional<double> find(std::string_view system, std::string_view precision,
                             std::string_view mode) const;
};

/// std::runtime_error naming the file for one that the script has not written, or that was written at another
/// size.
TorchTimes read_torch_times(const std::filesystem::path& file);

}  // namespace fp16lab::experiments::acceptance
