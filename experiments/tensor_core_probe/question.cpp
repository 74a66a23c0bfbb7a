#include "experiments/tensor_core_probe/question.hpp"
#include "numerics/files/disk/atomic_file.hpp"
#include "numerics/files/disk/folder.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <set>
#include <stdexcept>
#include <utility>

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

/// Up to this many vectors are all shown; of more only those that differ from the claim (probe.tsv has them
/// all).
constexpr std::size_t evidence_in_full = 12;

/// The non-zero elements and where they are: " k0 0c00*0800 k1 0004*0002".
std::string products(const Vector& vector, const Format& format) {
  std::string text;
  for (std::size_t k = 0; k < vector.a.size(); ++k)
    if (vector.a[k] != 0 || vector.b[k] != 0)
      text += fmt::format(" k{} {}*{}", k, hex(vector.a[k], format), hex(vector.b[k], format));
  return text.empty() ? " no products" : text;
}

std::string criterion_of(const Question& question) {
  std::string text = fmt::format("all {} words, in every place of the tile, as '{}' predicts them",
                                 question.vectors.size(), question.hypotheses.front().name);
  if (question.random_outputs > 0)
    text += fmt::format(", and {} or more of random wide-range operands", question.random_outputs);
  return text;
}

/// The words that each hypothesis predicts for the vectors.
std::vector<Words> predictions(const Question& question) {
  std::vector<Words> predicted;
  for (const Hypothesis& hypothesis : question.hypotheses) {
    Words words;
    for (const Vector& vector : question.vectors)
      words.push_back(hypothesis.predict(vector.a, vector.b, vector.c));
    const auto same = std::ranges::find(predicted, words);
    if (same != predicted.end())
      throw std::logic_error(fmt::format(
          "{} ({}): '{}' and '{}' predict the same words", question.probe, question.claim, hypothesis.name,
          question.hypotheses[static_cast<std::size_t>(same - predicted.begin())].name));
    predicted.push_back(std::move(words));
  }
  return predicted;
}

void require(Device& device, const Instruction& in) {
  if (!device.has(in))
    throw NotAnswered(fmt::format("{} is not on this device, or not in this build", in.name));
}

void ask_words(Device& device, const Settings& settings, const Question& question,
               const std::vector<Words>& predicted, Finding& finding) {
  const Instruction& in = question.instruction;
  require(device, in);
  Claim& claim = finding.claim;
  const Words d = device.run(in, tiles_of(in, question.vectors), question.scale_d);
  std::string candidates;
  for (const Hypothesis& hypothesis : question.hypotheses)
    candidates += (candidates.empty() ? "candidates: " : " | ") + hypothesis.name;
  claim.notes.push_back(candidates);
  const auto row = row_for(in, device.info().capability, settings.generation);
  Words observed;
  std::size_t as_claimed_count = 0;
  bool uniform = true;
  for (std::size_t i = 0; i < question.vectors.size(); ++i) {
    const auto tile = std::span(d).subspan(i * in.outputs(), in.outputs());
    const std::uint32_t word = tile[0], claimed = predicted[0][i];
    observed.push_back(word);
    uniform = uniform && std::ranges::count(tile, word) == std::ssize(tile);
    as_claimed_count += word == claimed ? 1 : 0;
    const Vector& vector = question.vectors[i];
    if (word != claimed || question.vectors.size() <= evidence_in_full)
      claim.notes.push_back(fmt::format("{}:{} c {} -> {}, claimed {}", vector.id,
                                        products(vector, in.operands), hex(vector.c, in.accumulator),
                                        hex(word, in.accumulator), hex(claimed, in.accumulator)));
    finding.observations.push_back({row ? std::string(row->name) : settings.generation, &in, vector, word});
    if (!question.scale_d) finding.observations.back().vector.c = 0;
  }
  claim.measured = fmt::format("{} of {} words as claimed", as_claimed_count, question.vectors.size());

  // The golden files know no scale-d: a C that was not read is +0 there, and one that was read has no place
  // in them.
  if (!question.scale_d && observed != predicted[0]) finding.observations.clear();

  std::vector<bool> agrees;
  for (std::size_t h = 0; h < predicted.size(); ++h) {
    agrees.push_back(uniform && predicted[h] == observed);
    if (question.random_outputs == 0) continue;
    const Hypothesis& hypothesis = question.hypotheses[h];
    const Comparison random = compare_random(device, in, Distribution::wide, settings.seed,
                                             question.random_outputs, settings.threads, hypothesis.predict);
    claim.notes.push_back(fmt::format("random wide-range outputs: {} differs in {} of {}", hypothesis.name,
                                      random.differing, random.outputs));
    agrees[h] = agrees[h] && random.differing == 0;
  }

  if (!uniform)
    claim.measured += "; outputs of one instruction with equal operands differ by their position in the tile";
  conclude(claim, question.hypotheses, agrees);
}

/// Random operands of every distribution.
void ask_random(Device& device, const Settings& settings, const Instruction& in, const TensorCoreModel& row,
                std::uint64_t outputs_each, Claim& claim) {
  require(device, in);
  std::uint64_t differing = 0, outputs = 0;
  for (const Distribution distribution : every<Distribution>) {
    const Comparison comparison = compare_random(device, in, distribution, settings.seed, outputs_each,
                                                 settings.threads, dot_product_of(row, in.operands));
    claim.notes.push_back(fmt::format("{}: {} of {} outputs differ", name_of(distribution),
                                      comparison.differing, comparison.outputs));
    for (const Difference& difference : comparison.first)
      claim.notes.push_back(fmt::format("  a {} b {} c {} -> {}, emulated {}", hex(difference.a, in.operands),
                                        hex(difference.b, in.operands), hex(difference.c, in.accumulator),
                                        hex(difference.device, in.accumulator),
                                        hex(difference.expected, in.accumulator)));
    differing += comparison.differing;
    outputs += comparison.outputs;
  }
  claim.verdict = analysis::verdict_of(differing == 0);
  claim.measured = fmt::format("{} of {} outputs differ", differing, outputs);
  if (differing > 0)
    claim.measured += "; the row describes the hardware only once the differences above are explained";
}

}  // namespace

void measure(const Settings& settings, Claim& claim, const std::function<void()>& body) {
  if (settings.only_criteria) return;
  try {
    body();
  } catch (const NotAnswered& reason) {
    claim.measured = reason.what();
  }
}

void conclude(Claim& claim, std::span<const Hypothesis> hypotheses, const std::vector<bool>& agrees) {
  claim.verdict = analysis::verdict_of(agrees[0]);
  if (agrees[0]) return;
  const auto holds = std::ranges::find(agrees, true);
  if (holds == agrees.end()) {
    claim.measured += "; no hypothesis agrees with the observed words; the table needs a new one";
  } else {
    const Hypothesis& right = hypotheses[static_cast<std::size_t>(holds - agrees.begin())];
    claim.measured +=
        fmt::format("; observed agrees with '{}'; the table must change: {}", right.name, right.change);
  }
}

Finding ask(Device& device, const Settings& settings, const Question& question) {
  Finding finding{{.claim = question.claim, .criterion = criterion_of(question), .topic = question.probe}};
  const std::vector<Words> predicted = predictions(question);
  measure(settings, finding.claim, [&] { ask_words(device, settings, question, predicted, finding); });
  return finding;
}

std::vector<Finding> ask_tensor_core(Device& device, const Settings& settings) {
  std::vector<Finding> findings;
  for (const Question& question : tensor_core_questions(device.info().capability, settings))
    findings.push_back(ask(device, settings, question));
  return findings;
}

std::vector<Finding> compare_with_emulator(Device& device, const Settings& settings) {
  std::vector<Finding> findings;
  const std::uint64_t share = settings.random_outputs / every<Distribution>.size() + 1;
  for (const Instruction& in : instructions) {
    const std::optional<TensorCoreModel> row = row_for(in, device.info().capability, settings.generation);
    if (!row) continue;
    findings.push_back({{.claim = fmt::format("{}: every bit as '{}'", in.name, row->name),
                         .criterion = fmt::format("none of {} or more outputs differs for each of {} kinds "
                                                  "of random operands",
                                                  share, every<Distribution>.size()),
                         .topic = "R"}});
    Claim& claim = findings.back().claim;
    measure(settings, claim, [&] { ask_random(device, settings, in, *row, share, claim); });
  }
  return findings;
}

std::vector<Finding> ask_everything(Device& device, const Settings& settings,
                                    const std::function<void(const char*)>& begin) {
  std::vector<Finding> findings;
  for (const auto& [what, part] : {std::pair{"questions to the tensor core", &ask_tensor_core},
                                   {"plain FP16 instructions", &ask_half},
                                   {"random operands against the emulator", &compare_with_emulator}}) {
    if (begin) begin(what);
    std::ranges::move(part(device, settings), std::back_inserter(findings));
  }
  return findings;
}

std::vector<Claim> claims_of(std::span<const Finding> findings) {
  std::vector<Claim> claims;
  std::ranges::transform(findings, std::back_inserter(claims), &Finding::claim);
  return claims;
}

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
