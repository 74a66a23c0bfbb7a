// The one table of loss-scale policies, for engine/amp/policy.cpp.
#pragma once

#include <span>

#include "engine/amp/policy.hpp"

namespace fp16lab::engine::amp {

struct PolicyEntry {
  PolicyDescription description;
  /// Builds the policy from checked values; `description.parameters` are all there.
  ScalePolicy (*build)(const PolicyEntry& entry, const PolicyValues& values, const Guards& guards);
};

std::span<const PolicyEntry> policy_table();

}  // namespace fp16lab::engine::amp
