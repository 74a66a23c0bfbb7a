// What a comparison leaves behind: a JSON summary, and a CSV row for every step.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "experiments/emulated_vs_device/device_side.hpp"
#include "experiments/emulated_vs_device/lockstep.hpp"

namespace fp16lab::experiments {

/// One line: "200 steps, no difference", or "step 3: loss differs: ...; first tensor: ...".
std::string summary_of(const Lockstep& lockstep);
/// All tensors that differ, a line each.
std::vector<std::string> differences_of(const Lockstep& lockstep);
/// A JSON object, without a final newline.
std::string json_of(const Lockstep& lockstep, const DeviceSide& side, int indent = 2);
std::string csv_of(const Lockstep& lockstep, const DeviceSide& side);

/// exp_emulated_vs_device.json and .csv in `folder`, each written atomically.
void write_records(const std::filesystem::path& folder, const Lockstep& lockstep, const DeviceSide& side);

}  // namespace fp16lab::experiments
