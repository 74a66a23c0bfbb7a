// What must hold of the tutorials' systems, whatever the machine: fixed before anything is measured.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "experiments/study/study.hpp"
#include "experiments/tutorials/tutorial_table.hpp"

namespace fp16lab::experiments {

/// Largest relative difference of a final loss from FP32's that the tutorials' system may have in its one
/// run, and the share of the stored FP16 weights that SGD at 1e-4 must leave as they are for "does not move".
inline constexpr double as_fp32 = 1e-3;
inline constexpr double frozen_share = 0.95;
/// The ten losses that MindSpore's tutorial prints, of the last batch of each epoch, and how far from one
/// FP32 sums in another order may lie: MindSpore 2.10 on a CPU, given the same draws, is 2.9e-6 away.
inline constexpr double mindspore_losses[] = {2.3018966, 2.2965345, 2.3021417, 2.2995133, 2.3040886,
                                              2.3131478, 2.2919555, 2.311748,  2.304955,  2.2682834};
inline constexpr double as_printed = 1e-5;

/// Names of the runs that configuration files cannot hold.
inline constexpr const char* divides_in_the_step = "divides-in-the-step";
inline constexpr const char* overflow_in_window = "o1-accum10-overflow";
inline constexpr const char* after_dropped_window = "o1-accum10-after-drop";

/// Adds those runs, made from "as-written" of mindspore_custom_step and "o1-accumulate10" of paddle_linear9
/// (nothing where the table lacks them). `progress` is told the name of each.
void add_special_runs(TutorialTable& table, int threads,
                      const std::function<void(const std::string&)>& progress);

/// Facts of single runs: bits, and losses of one seed. None says how well something trains.
std::vector<Question<TutorialTable>> tutorial_questions();

}  // namespace fp16lab::experiments
