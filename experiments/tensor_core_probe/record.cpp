#include "experiments/tensor_core_probe/record.hpp"

#include <fmt/format.h>

#include <set>

#include "numerics/files/disk/atomic_file.hpp"
#include "numerics/files/disk/folder.hpp"

namespace fp16lab::probe {
namespace {

std::string golden_vectors(const DeviceInfo& info, std::span<const Finding> findings) {
  std::string text = fmt::format(
      "# Tensor-core vectors that decide open points, captured by exp_tensor_core_probe on {}. All words are "
      "hexadecimal bit patterns.\n# Columns in, acc and options are what `fp16lab mma` takes.\n"
      "# id\tmodel\tin\tacc\toptions\ta\tb\tc\td\tsource\n",
      describe(info));
  std::set<std::string> written;  // several instructions are one row: mma and wmma
  for (const Finding& finding : findings)
    for (const Observation& seen : finding.observations) {
      const Format &operands = seen.instruction->operands, &accumulator = seen.instruction->accumulator;
      const std::string row =
          fmt::format("{}\t{}\t{}\t{}\t-\t{}\t{}\t{}\t{}", seen.vector.id, seen.model, operands.name,
                      accumulator.name, hex(seen.vector.a, operands), hex(seen.vector.b, operands),
                      hex(seen.vector.c, accumulator), hex(seen.d, accumulator));
      if (written.insert(row).second)
        text += fmt::format("{}\tcaptured on {}: {}\n", row, describe(info), seen.instruction->name);
    }
  return text;
}

std::string golden_half_vectors(const DeviceInfo& info, std::span<const Finding> findings) {
  std::string text = fmt::format(
      "# Plain FP16 instructions, captured by exp_tensor_core_probe on {}. All words are hexadecimal bit\n# "
      "patterns. Columns: instruction, operands, result.\n",
      describe(info));
  for (const Finding& finding : findings)
    for (const std::string& seen : finding.half_observations) text += seen + '\n';
  return text;
}

std::string markdown(const DeviceInfo& info, std::span<const Finding> findings) {
  std::string text = fmt::format(
      "# Tensor-core probe\n\nDevice: {}\n\n| probe | claim | verdict |\n|---|---|---|\n", describe(info));
  for (const Finding& finding : findings)
    text += fmt::format("| {} | {} | {} |\n", finding.claim.topic, finding.claim.claim,
                        verdict_text(finding.claim));
  return text + "\n## Evidence\n\n```\n" + analysis::claims_text(claims_of(findings)) + "```\n";
}

}  // namespace

std::string describe(const DeviceInfo& info) {
  return fmt::format("{}, compute capability {}.{}, driver {}(CUDA {}), CUDA runtime {}", info.name,
                     info.capability.major, info.capability.minor,
                     info.driver.empty() ? "" : info.driver + ' ', cuda_version(info.driver_version),
                     cuda_version(info.runtime_version));
}

void write_records(const std::filesystem::path& folder, const DeviceInfo& info,
                   std::span<const Finding> findings) {
  make_folders(folder);
  write_file_atomically(folder / "probe.tsv", golden_vectors(info, findings));
  write_file_atomically(folder / "probe_fp16.tsv", golden_half_vectors(info, findings));
  write_file_atomically(folder / "report.md", markdown(info, findings));
}

}  // namespace fp16lab::probe
