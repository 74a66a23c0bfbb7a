// Section "probes": P1 to P8, P10 and P11 by tensor_core_probe, then random operands through every
// instruction. P9 asked cuBLASLt, whose order is outside of the contract now.
#include <fmt/format.h>

#include <algorithm>
#include <stdexcept>

#include "experiments/device_acceptance/section.hpp"
#include "experiments/study/study.hpp"
#include "experiments/tensor_core_probe/emulated_device.hpp"
#include "experiments/tensor_core_probe/record.hpp"

namespace fp16lab::experiments::acceptance {
namespace {

/// What FP16 and BF16 training with FP32 accumulation leans on: the goal. The other claims are open points of
/// the table, and an answer either way is what was asked for.
bool training_needs(const Claim& claim) {
  return claim.topic == "R" && claim.claim.find("mma") != std::string::npos &&
         (claim.claim.find("f32.f16") != std::string::npos ||
          claim.claim.find("f32.bf16") != std::string::npos);
}

}  // namespace

std::unique_ptr<probe::Device> probed_device(const Settings& settings) {
  if (settings.rehearsal()) return std::make_unique<probe::EmulatedDevice>(probe::Capability{9, 0});
  std::string reason;
  std::unique_ptr<probe::Device> device = probe::open_cuda_device(reason);
  if (!device) throw std::runtime_error("no GPU to probe: " + reason);
  return device;
}

Goals probe_goals(const Settings&) {
  return {no_difference("FP16 and BF16 instructions with FP32 accumulation, random operands")};
}

SectionResult probe_tensor_cores(const Settings& settings, const Goals& goals) {
  const std::unique_ptr<probe::Device> device = probed_device(settings);

  probe::Settings asked;
  asked.threads = settings.threads;
  asked.seed = settings.seed;
  asked.random_outputs = settings.sized<std::uint64_t>(4'000'000, 400'000, 500);
  asked.conversion_stride = settings.sized<std::uint64_t>(17, 101, 10'000'019);
  std::vector<probe::Finding> findings = probe::ask_everything(*device, asked, [&](const char* what) {
    if (settings.progress) settings.progress(what);
  });
  if (settings.rehearsal())
    for (probe::Finding& finding : findings)
      if (finding.claim.verdict == Verdict::holds) finding.claim.verdict = Verdict::rehearsed;
  probe::write_records(settings.out / "probe", device->info(), findings);
  CommonOptions beside;
  beside.out = settings.out / "probe";
  write_claims(beside, probe::overall_question, probe::claims_of(findings));

  SectionResult result;
  Table table{.caption = "Claims of the table of tensor cores",
              .columns = {"probe", "claim", "measured", "verdict"},
              .rows = {}};
  std::uint64_t needed = 0, failed = 0;
  for (const probe::Finding& finding : findings) {
    const Claim& claim = finding.claim;
    table.rows.push_back({claim.topic, claim.claim, claim.measured, verdict_text(claim)});
    if (claim.verdict == Verdict::fails)
      for (const std::string& line : claim.notes)
        result.notes.push_back(fmt::format("{} {}: {}", claim.topic, claim.claim, line));
    if (!training_needs(claim) || claim.verdict == Verdict::not_run) continue;
    ++needed;
    failed += claim.verdict == Verdict::fails ? 1 : 0;
  }
  result.tables.push_back(std::move(table));
  result.notes.push_back(
      "golden vectors for tests/golden: probe/probe.tsv and probe/probe_fp16.tsv beside this report");
  result.claims = {none_differ_on_gpu(settings, goals[0], failed, needed, "instructions")};
  return result;
}

}  // namespace fp16lab::experiments::acceptance
