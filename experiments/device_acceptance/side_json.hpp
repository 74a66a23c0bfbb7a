// DeviceSide as JSON: bundles and child processes are told of the device by it.
#pragma once

#include <nlohmann/json.hpp>

#include "experiments/emulated_vs_device/device_side.hpp"
#include "numerics/text/text.hpp"

namespace fp16lab::experiments::acceptance {

inline nlohmann::ordered_json json_of(const DeviceSide& side) {
  return {{"rehearsal", side.rehearsal},
          {"description", side.description},
          {"tensor_core", side.tensor_core},
          {"ordinal", side.ordinal},
          {"multiprocessors", side.multiprocessors},
          {"shared_per_block", side.shared_per_block},
          {"shared_per_multiprocessor", side.shared_per_multiprocessor}};
}

/// Texts are made printable. nlohmann::json::exception where something is missing or of another kind.
inline DeviceSide side_of(const nlohmann::ordered_json& json) {
  return {.rehearsal = json.at("rehearsal"),
          .description = printable(json.at("description").get<std::string>()),
          .tensor_core = printable(json.at("tensor_core").get<std::string>()),
          .ordinal = json.at("ordinal"),
          .multiprocessors = json.at("multiprocessors"),
          .shared_per_block = json.at("shared_per_block"),
          .shared_per_multiprocessor = json.at("shared_per_multiprocessor")};
}

}  // namespace fp16lab::experiments::acceptance
