// The figure: how far trainings part that differ in one thing, step by step.
#pragma once

#include <filesystem>
#include <span>
#include <string>
#include <vector>

#include "experiments/generations/distance.hpp"

namespace fp16lab::experiments {

/// The pairs that are measured and drawn: one ulp of the weights in FP32 and on hopper, generations, FP16
/// itself, FP16 sums, FP8's sums of 14 bits (wgmma) and of 25 (mma).
std::span<const VariantPair> drawn_pairs();

/// Writes distances.dat, .gp, .svg and .png into `folder`: a panel a workload, geometric means over the
/// seeds, FP32's twin as a band over them. What went wrong, in one line; empty if nothing did.
std::string draw_distances(const std::vector<DistanceCurve>& curves, const std::filesystem::path& folder);

}  // namespace fp16lab::experiments
