// What a run leaves behind: the report, and the deciding vectors in the layout of tests/golden.
#pragma once

#include <filesystem>
#include <span>
#include <string>

#include "experiments/tensor_core_probe/question.hpp"

namespace fp16lab::probe {

/// "NVIDIA H200, compute capability 9.0, driver 580.65.06 (CUDA 13.0), CUDA runtime 13.0"
std::string describe(const DeviceInfo& info);

/// In `folder`, each written atomically: probe.tsv (tests/golden/tensor_core_*.tsv: id, model, in, acc,
/// options, a, b, c, d, source, in which the device is), probe_fp16.tsv (tests/golden/plain_fp16.tsv:
/// operation, operands, result) and report.md, a table of claims and verdicts, then all evidence.
void write_records(const std::filesystem::path& folder, const DeviceInfo& info,
                   std::span<const Finding> findings);

}  // namespace fp16lab::probe
