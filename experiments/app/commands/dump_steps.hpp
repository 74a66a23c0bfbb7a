// What several dumps are: steps of one run, or parts of one whole.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "experiments/app/commands/array_dumps.hpp"

namespace fp16lab::experiments {

/// Of one counted array: its tensor, and the step.
struct ArrayStep {
  std::string tensor;
  std::uint64_t step = 0;
};

struct DumpSteps {
  std::vector<ArrayStep> arrays;  ///< one for each of CountedDumps::arrays; empty: the files are no steps
  std::string told;               ///< what was assumed, a sentence; "" of a single file
};

/// Files with the same tensors are steps, in the order of the number in their names ("step-500.npz"): the
/// first number in which all of them differ. Without such a number they are steps 1, 2, ... as given. Of .npy
/// files, which hold one array each, those of a folder are one step, and the number is the folder's. Other
/// files are parts of one whole.
DumpSteps steps_of(const CountedDumps& dumps);

}  // namespace fp16lab::experiments
