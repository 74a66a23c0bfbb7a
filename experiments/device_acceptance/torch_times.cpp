#include "experiments/device_acceptance/torch_times.hpp"

#include <fmt/format.h>

#include <nlohmann/json.hpp>
#include <stdexcept>

#include "numerics/files/disk/read_file.hpp"
#include "numerics/text/nesting.hpp"
#include "numerics/text/text.hpp"

namespace fp16lab::experiments::acceptance {

std::optional<double> TorchTimes::find(std::string_view system, std::string_view precision,
                                       std::string_view mode) const {
  for (const TorchTime& row : rows)
    if (row.system == system && row.precision == precision && row.mode == mode) return row.milliseconds;
  return std::nullopt;
}

TorchTimes read_torch_times(const std::filesystem::path& file) {
  try {
    const nlohmann::ordered_json json = parse_json(read_file(file));
    if (json.at("format") != "fp16lab-torch-amp") throw std::runtime_error("its format is another one");
    if (json.at("scale_down") != 1)
      throw std::runtime_error("it was measured with --scale-down: the sizes are not the tutorials'");
    TorchTimes times{.version = printable(json.at("torch").get<std::string>()),
                     .device = printable(json.at("device").get<std::string>()),
                     .rows = {}};
    for (const auto& row : json.at("results"))
      if (row.contains("milliseconds") && row.at("milliseconds").is_number())
        times.rows.push_back(
            {row.at("system"), row.at("precision"), row.at("mode"), row.at("milliseconds").get<double>()});
    return times;
  } catch (const std::exception& error) {
    throw std::runtime_error(
        fmt::format("--torch {}: {}; expected what experiments/bench/torch_amp.py prints", file.string(),
                    printable(error.what())));
  }
}

}  // namespace fp16lab::experiments::acceptance
