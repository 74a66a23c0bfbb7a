// What threads can share of a training step: its parallel regions, as one thread does them.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "experiments/bench/training_case.hpp"

namespace fp16lab::bench {

/// Registers "regions/<name>" with Google Benchmark: steps of one thread in which every region with several
/// tasks is timed. Counters: milliseconds of a step, regions a step, the median region's microseconds, the
/// share of the step outside of regions, and `model_2` and `model_16`: how many times faster 2 and 16 cores
/// of one speed would be by a model, in which a region takes its work divided by the cores, but at least its
/// mean task, and two microseconds for sharing. Memory, caches and shared cores are not in it.
void register_regions(const std::string& name, std::function<std::shared_ptr<TrainingCase>()> make);

/// One line a case: what ran so far.
std::string regions_summary();

}  // namespace fp16lab::bench
