#include "experiments/tensor_core_probe/question.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <stdexcept>
#include <utility>

namespace fp16lab::probe {
namespace {

/// Up to this many vectors are all shown; of more only those that differ from the claim (probe.tsv has them
/// all).
constexpr std::size_t evidence_in_full = 12;

/// One tile a vector, the vector in every row and column: the same output 16 x 8 times.
Tiles tiles_of(const Question& question) {
  const Instruction& in = question.instruction;
  Tiles tiles = make_tiles(in, question.vectors.size());
  const auto m = static_cast<std::size_t>(in.m), n = static_cast<std::size_t>(in.n),
             k = static_cast<std::size_t>(in.k);
  for (std::size_t tile = 0; tile < question.vectors.size(); ++tile) {
    const Vector& vector = question.vectors[tile];
    if (vector.a.size() > k || vector.b.size() > k)
      throw std::logic_error(fmt::format("{} {}: longer than {}", question.probe, vector.id, in.name));
    for (std::size_t i = 0; i < m; ++i)
      std::ranges::copy(vector.a, tiles.a.begin() + static_cast<std::ptrdiff_t>((tile * m + i) * k));
    for (std::size_t i = 0; i < n; ++i)
      std::ranges::copy(vector.b, tiles.b.begin() + static_cast<std::ptrdiff_t>((tile * n + i) * k));
    std::fill_n(tiles.c.begin() + static_cast<std::ptrdiff_t>(tile * m * n), m * n, vector.c);
  }
  return tiles;
}

std::vector<std::uint32_t> padded(std::vector<std::uint32_t> words, int k) {
  words.resize(static_cast<std::size_t>(k));
  return words;
}

std::vector<std::uint32_t> predictions(const Question& question, const Hypothesis& hypothesis) {
  std::vector<std::uint32_t> words;
  for (const Vector& vector : question.vectors)
    words.push_back(hypothesis.predict(padded(vector.a, question.instruction.k),
                                       padded(vector.b, question.instruction.k), vector.c));
  return words;
}

/// The non-zero elements and where they are: "k0 0c00*0800 k1 0004*0002".
std::string products(const Vector& vector, DType format) {
  std::string text;
  for (std::size_t i = 0; i < std::min(vector.a.size(), vector.b.size()); ++i)
    if (vector.a[i] != 0 || vector.b[i] != 0)
      text += fmt::format(" k{} {}*{}", i, hex({vector.a[i]}, format), hex({vector.b[i]}, format));
  return text.empty() ? " no products" : text;
}

std::string criterion_of(const Question& question) {
  std::string text = fmt::format("all {} words, in every place of the tile, as '{}' predicts them",
                                 question.vectors.size(), question.hypotheses.front().name);
  if (question.random_outputs > 0)
    text += fmt::format(", and {} or more of random wide-range operands", question.random_outputs);
  return text;
}

std::string not_here(const Instruction& in) {
  return fmt::format("{} is not on this device, or not in this build", in.name);
}

/// The name of the row that the question is about; the generation asked for where the table has none.
std::string model_name(const Question& question, const Device& device, const Settings& settings) {
  const auto row = row_for(question.instruction, device.info().capability, settings.generation);
  return row ? std::string(row->name) : settings.generation;
}

}  // namespace

std::string hex(const std::vector<std::uint32_t>& words, DType format) {
  std::string text;
  const int digits = 2 * static_cast<int>(size_of(format));
  for (const std::uint32_t word : words)
    text +=
        fmt::format("{}{:0{}x}", text.empty() ? "" : " ", word & 0xffffffffU >> (32 - 4 * digits), digits);
  return text;
}

std::string hex(std::uint32_t word, DType format) {
  return fmt::format("{:0{}x}", word, format == DType::f16 ? 4 : 8);
}

DotProduct dot_product_of(const TensorCoreModel& row, DType format) {
  return [row, format](std::span<const std::uint32_t> a, std::span<const std::uint32_t> b, std::uint32_t c) {
    return fused_dot_add(row, format, a, format, b, c);
  };
}

Finding ask(Device& device, const Settings& settings, const Question& question) {
  const Instruction& in = question.instruction;
  Finding finding{{.claim = question.claim, .criterion = criterion_of(question), .topic = question.probe}};
  Claim& claim = finding.claim;
  std::vector<std::vector<std::uint32_t>> predicted;
  for (const Hypothesis& hypothesis : question.hypotheses) {
    predicted.push_back(predictions(question, hypothesis));
    const auto same = std::ranges::find(predicted, predicted.back());
    if (same != predicted.end() - 1)
      throw std::logic_error(fmt::format(
          "{} ({}): '{}' and '{}' predict the same words", question.probe, question.claim, hypothesis.name,
          question.hypotheses[static_cast<std::size_t>(same - predicted.begin())].name));
  }
  if (settings.only_criteria || !device.has(in)) {
    if (!settings.only_criteria) claim.measured = not_here(in);
    return finding;
  }

  std::vector<std::uint32_t> d;
  try {
    d = device.run(in, tiles_of(question), question.scale_d);
  } catch (const NotRecorded& missing) {
    claim.measured = missing.what();
    return finding;
  }
  const std::size_t outputs = d.size() / question.vectors.size();
  std::vector<std::uint32_t> observed;
  std::string candidates;
  for (const Hypothesis& hypothesis : question.hypotheses)
    candidates += (candidates.empty() ? "candidates: " : " | ") + hypothesis.name;
  claim.notes.push_back(candidates);
  std::size_t as_claimed_count = 0;
  bool uniform = true;
  for (std::size_t i = 0; i < question.vectors.size(); ++i) {
    const auto tile = std::span(d).subspan(i * outputs, outputs);
    observed.push_back(tile[0]);
    uniform = uniform && std::ranges::all_of(tile, [&](std::uint32_t word) { return word == tile[0]; });

    const Vector& vector = question.vectors[i];
    const bool as_claimed = tile[0] == predicted[0][i];
    as_claimed_count += as_claimed ? 1 : 0;
    if (!as_claimed || question.vectors.size() <= evidence_in_full)
      claim.notes.push_back(fmt::format("{}:{} c {} -> {}, claimed {}", vector.id,
                                        products(vector, in.operands), hex(vector.c, in.accumulator),
                                        hex(tile[0], in.accumulator), hex(predicted[0][i], in.accumulator)));
    finding.observations.push_back({vector.id, model_name(question, device, settings), in.operands,
                                    in.accumulator, padded(vector.a, in.k), padded(vector.b, in.k),
                                    question.scale_d ? vector.c : 0, tile[0], std::string(in.name)});
  }

  claim.measured = fmt::format("{} of {} words as claimed", as_claimed_count, question.vectors.size());

  // The golden files know no scale-d: a C that was not read is +0 there, and one that was read has no place
  // in them.
  if (!question.scale_d && observed != predicted[0]) finding.observations.clear();

  std::vector<bool> agrees;
  agrees.reserve(predicted.size());
  for (const std::vector<std::uint32_t>& words : predicted) agrees.push_back(uniform && words == observed);
  if (question.random_outputs > 0) {
    for (std::size_t h = 0; h < predicted.size(); ++h) {
      const Comparison random =
          compare_random(device, in, Distribution::wide, settings.seed, question.random_outputs,
                         settings.threads, question.hypotheses[h].predict);
      claim.notes.push_back(fmt::format("random wide-range outputs: {} differs in {} of {}",
                                        question.hypotheses[h].name, random.differing, random.outputs));
      agrees[h] = agrees[h] && random.differing == 0;
    }
  }

  claim.verdict = analysis::verdict_of(agrees[0]);
  if (agrees[0]) return finding;
  const auto holds = std::ranges::find(agrees, true);
  if (!uniform) {
    claim.measured += "; outputs of one instruction with equal operands differ by their position in the tile";
  } else if (holds == agrees.end()) {
    claim.measured += "; no hypothesis agrees with the observed words; the row needs a new one";
  } else {
    const Hypothesis& right = question.hypotheses[static_cast<std::size_t>(holds - agrees.begin())];
    claim.measured +=
        fmt::format("; observed agrees with '{}'; the table must change: {}", right.name, right.change);
  }
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
  for (const Instruction& in : instructions()) {
    const std::optional<TensorCoreModel> row = row_for(in, device.info().capability, settings.generation);
    if (!row) continue;
    Claim& claim =
        findings
            .emplace_back(
                Finding{{.claim = fmt::format("{}: every bit as '{}'", in.name, row->name),
                         .criterion = fmt::format("none of {} or more outputs differs for each of {} kinds "
                                                  "of random operands",
                                                  share, every<Distribution>.size()),
                         .topic = "R"}})
            .claim;
    if (settings.only_criteria) continue;
    if (!device.has(in)) {
      claim.measured = not_here(in);
      continue;
    }
    std::uint64_t differing = 0;
    std::uint64_t outputs = 0;
    try {
      for (const Distribution distribution : every<Distribution>) {
        const Comparison comparison = compare_random(device, in, distribution, settings.seed, share,
                                                     settings.threads, dot_product_of(*row, in.operands));
        claim.notes.push_back(fmt::format("{}: {} of {} outputs differ", name_of(distribution),
                                          comparison.differing, comparison.outputs));
        for (const Difference& difference : comparison.first)
          claim.notes.push_back(
              fmt::format("  a {} b {} c {} -> {}, emulated {}", hex(difference.a, in.operands),
                          hex(difference.b, in.operands), hex(difference.c, in.accumulator),
                          hex(difference.device, in.accumulator), hex(difference.expected, in.accumulator)));
        differing += comparison.differing;
        outputs += comparison.outputs;
      }
    } catch (const NotRecorded& missing) {
      claim.measured = missing.what();
      continue;
    }
    claim.verdict = analysis::verdict_of(differing == 0);
    claim.measured = fmt::format("{} of {} outputs differ", differing, outputs);
    if (differing > 0)
      claim.measured += "; the row describes the hardware only once the differences above are explained";
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

}  // namespace fp16lab::probe
