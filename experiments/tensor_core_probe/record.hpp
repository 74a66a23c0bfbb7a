// What a run leaves behind: the report, and the deciding vectors in the layout of tests/golden.
#pragma once

#include <filesystem>
#include <span>
#include <string>

#include "experiments/tensor_core_probe/question.hpp"

namespace fp16lab::probe {

/// "NVIDIA H200, compute capability 9.0, driver 580.65.06 (CUDA 13.0), CUDA runtime 13.0"
std::string describe(const DeviceInfo& info);

/// tests/golden/tensor_core_*.tsv: id, model, in, acc, options, a, b, c, d, source. The device is in the
/// source.
std::string golden_vectors(const DeviceInfo& info, std::span<const Finding> findings);
/// tests/golden/plain_fp16.tsv: operation, operands, result.
std::string golden_half_vectors(const DeviceInfo& info, std::span<const Finding> findings);
/// A table of claims and verdicts, then all evidence.
std::string markdown(const DeviceInfo& info, std::span<const Finding> findings);

/// probe.tsv, probe_fp16.tsv and report.md in `folder`, each written atomically.
void write_records(const std::filesystem::path& folder, const DeviceInfo& info,
                   std::span<const Finding> findings);

}  // namespace fp16lab::probe
