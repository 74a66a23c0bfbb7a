// Which runs a CPU has emulated: their times are no GPU's.
#pragma once

#include <string>

#include "reports/data/run_set.hpp"

namespace fp16lab::reports {

/// "emulated", "cuda": from the manifest, or from the configuration of folders that are older than several
/// back ends.
std::string device_of(const Run& run);
std::string tensor_core_of(const Run& run);

/// Has any run of the workload been emulated?
bool is_emulated(const RunSet& set, const Workload& workload);

/// " on an emulated Hopper tensor core (CPU)", after a number of runs; "" where none was emulated.
std::string emulation_words(const RunSet& set);

/// A column's `name` (with marks), which says so where times are those of an emulation.
std::string time_title(const std::string& name, bool emulated);

}  // namespace fp16lab::reports
