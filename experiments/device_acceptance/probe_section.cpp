// Section "probes": P1 to P8, P10 and P11 by tensor_core_probe, then random operands through every instruction. P9 is
// cuBLASLt's and belongs to "products".
#include <fmt/format.h>

#include <algorithm>
#include <stdexcept>

#include "experiments/device_acceptance/section.hpp"
#include "experiments/tensor_core_probe/emulated_device.hpp"
#include "experiments/tensor_core_probe/record.hpp"

namespace fp16lab::experiments::acceptance {
namespace {

/// What FP16 and BF16 training with FP32 accumulation leans on: a refuted claim is a missed goal. The others are open
/// points of the table, and an answer either way is what was asked for.
bool training_needs(const probe::Finding& finding) {
  return finding.probe == "R" && finding.claim.find("mma") != std::string::npos &&
         (finding.claim.find("f32.f16") != std::string::npos ||
          finding.claim.find("f32.bf16") != std::string::npos);
}

}  // namespace

std::unique_ptr<probe::Device> probed_device(const Settings& settings) {
  if (settings.rehearsal()) return std::make_unique<probe::EmulatedDevice>(probe::Capability{9, 0});
  std::string reason;
  std::unique_ptr<probe::Device> device = probe::open_cuda_device(reason);
  if (!device) throw std::runtime_error("no GPU to probe: " + reason);
  return device;
}

SectionResult probe_tensor_cores(const Settings& settings) {
  const std::unique_ptr<probe::Device> device = probed_device(settings);

  probe::Settings asked;
  asked.threads = settings.threads;
  asked.seed = settings.seed;
  asked.random_outputs = settings.sized<std::uint64_t>(4'000'000, 400'000, 500);
  asked.conversion_stride = settings.sized<std::uint64_t>(17, 101, 10'000'019);
  std::vector<probe::Finding> findings;
  const auto add = [&](const char* what, std::vector<probe::Finding> more) {
    if (settings.progress) settings.progress(what);
    std::ranges::move(more, std::back_inserter(findings));
  };
  add("questions to the tensor core", probe::ask_tensor_core(*device, asked));
  add("plain FP16 instructions", probe::ask_half(*device, asked));
  add("random operands", probe::compare_with_emulator(*device, asked));
  if (settings.rehearsal())
    for (probe::Finding& finding : findings)
      if (finding.verdict == probe::Verdict::confirmed) finding.verdict = probe::Verdict::rehearsed;
  probe::write_records(settings.out / "probe", device->info(), findings);

  SectionResult result;
  Table table{.caption = "Claims of the table of tensor cores",
              .columns = {"probe", "claim", "verdict", "decision"},
              .rows = {}};
  std::uint64_t needed = 0, refuted = 0;
  for (const probe::Finding& finding : findings) {
    table.rows.push_back({finding.probe, finding.claim, probe::name_of(finding.verdict),
                          finding.conclusion.empty() ? "the table stands" : finding.conclusion});
    if (finding.verdict == probe::Verdict::refuted)
      for (const std::string& line : finding.evidence)
        result.notes.push_back(fmt::format("{} {}: {}", finding.probe, finding.claim, line));
    if (!training_needs(finding) || finding.verdict == probe::Verdict::not_here) continue;
    ++needed;
    refuted += finding.verdict == probe::Verdict::refuted ? 1 : 0;
  }
  result.tables.push_back(std::move(table));
  result.notes.push_back(
      "golden vectors for tests/golden: probe/probe.tsv and probe/probe_fp16.tsv beside this report");
  result.goals.push_back(
      none_differ_on_gpu(settings, "FP16 and BF16 instructions with FP32 accumulation, random operands",
                         refuted, needed, "instructions"));
  return result;
}

}  // namespace fp16lab::experiments::acceptance
