#include "tests/engine/backend/cases/verb_cases.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cstring>
#include <stdexcept>

#include "numerics/tensor_core/tensor_core_model.hpp"

namespace fp16lab::experiments::acceptance {
namespace {

constexpr std::size_t most_notes = 5;

void note(VerbRow& row, std::string text) {
  if (row.notes.size() < most_notes) row.notes.push_back(std::move(text));
}

}  // namespace

void compare_kept(const VerbCase& one, const std::vector<Kept>& expected, const std::vector<Kept>& actual,
                  VerbRow& row) {
  if (expected.size() != actual.size()) {
    row.failed = true;
    note(row, fmt::format("{}: kept {} and {} results", one.name, expected.size(), actual.size()));
    return;
  }
  for (std::size_t i = 0; i < expected.size(); ++i) {
    const Kept &ours = expected[i], &theirs = actual[i];
    const std::size_t count = ours.bytes.size() / ours.element_bytes;
    row.elements += count;
    if (ours.bytes == theirs.bytes) continue;
    if (ours.bytes.size() != theirs.bytes.size()) {
      row.failed = true;
      note(row, fmt::format("{}: {} has {} and {} bytes", one.name, ours.name, ours.bytes.size(),
                            theirs.bytes.size()));
      continue;
    }
    const DifferingWords words = differing_words(ours.bytes, theirs.bytes, ours.element_bytes);
    const int digits = static_cast<int>(2 * ours.element_bytes);
    note(row, fmt::format("{}: {} element {} of {}: expected {:0{}x}, got {:0{}x}", one.name, ours.name,
                          words.first, count, words.expected, digits, words.actual, digits));
    row.differing_elements += words.words;
    row.differing_bits += words.bits;
  }
}

bool runs_on(const VerbCase& one, const engine::Backend& backend) {
  if (one.multiplies == DType::f32) return true;
  return std::ranges::any_of(tensor_core_models(), [&](const TensorCoreModel& model) {
    return model.name == backend.tensor_core() && model.operands.contains(one.multiplies);
  });
}

DifferingWords differing_words(std::span<const std::byte> expected, std::span<const std::byte> actual,
                               std::size_t word_bytes) {
  DifferingWords result;
  const auto word_at = [word_bytes](std::span<const std::byte> bytes, std::size_t index) {
    std::uint64_t word = 0;
    std::memcpy(&word, &bytes[index * word_bytes], word_bytes);
    return word;
  };
  for (std::size_t i = 0; i < expected.size() / word_bytes; ++i) {
    const std::uint64_t ours = word_at(expected, i), theirs = word_at(actual, i);
    if (ours == theirs) continue;
    if (result.words++ == 0) {
      result.first = i;
      result.expected = ours;
      result.actual = theirs;
    }
    result.bits += static_cast<std::uint64_t>(std::popcount(ours ^ theirs));
  }
  return result;
}

std::vector<Kept> run_case(const VerbCase& one, engine::Backend& backend, CaseSize size, std::uint64_t seed,
                           const CaseContext::MakeTensor& make_tensor, Operands* operands) {
  CaseContext context(backend, size, key_of(one), seed, make_tensor, operands);
  one.run(context);
  return context.take();
}

std::vector<VerbCase> all_verb_cases() {
  std::vector<VerbCase> cases;
  add_memory_cases(cases);
  add_elementwise_cases(cases);
  add_reduction_cases(cases);
  add_product_cases(cases);
  add_lstm_cases(cases);
  add_pooling_cases(cases);
  add_step_cases(cases);
  add_optimizer_cases(cases);
  add_histogram_cases(cases);
  return cases;
}

std::vector<VerbRow> compare_verbs(engine::Backend& expected, engine::Backend& actual, CaseSize size,
                                   std::uint64_t seed,
                                   const std::function<void(const std::string&)>& progress) {
  return compare_cases(all_verb_cases(), expected, actual, size, seed, progress);
}

void add_row(std::vector<VerbRow>& rows, const VerbRow& row) {
  const auto found = std::ranges::find(rows, row.verb, &VerbRow::verb);
  if (found == rows.end()) {
    rows.push_back(row);
    return;
  }
  found->cases += row.cases;
  found->elements += row.elements;
  found->differing_elements += row.differing_elements;
  found->differing_bits += row.differing_bits;
  found->failed = found->failed || row.failed;
  for (const std::string& text : row.notes) note(*found, text);
  found->refusals.insert(found->refusals.end(), row.refusals.begin(), row.refusals.end());
  found->bundles.insert(found->bundles.end(), row.bundles.begin(), row.bundles.end());
}

ComparedCase compare_case(const VerbCase& one, engine::Backend& expected, engine::Backend& actual,
                          CaseSize size, std::uint64_t seed) {
  ComparedCase compared{.row = {.verb = one.verb, .cases = 1, .notes = {}}, .actual = {}};
  const auto run_on = [&](engine::Backend& backend, const char* side) -> std::vector<Kept> {
    try {
      return run_case(one, backend, size, seed);
    } catch (const std::exception& error) {
      compared.row.failed = true;
      note(compared.row, fmt::format("{}: {} back end: {}", one.name, side, error.what()));
      return {};
    }
  };
  const std::vector<Kept> ours = run_on(expected, "emulated");
  compared.actual = run_on(actual, "device");
  if (!compared.row.failed) compare_kept(one, ours, compared.actual, compared.row);
  return compared;
}

std::vector<VerbRow> compare_cases(const std::vector<VerbCase>& cases, engine::Backend& expected,
                                   engine::Backend& actual, CaseSize size, std::uint64_t seed,
                                   const std::function<void(const std::string&)>& progress) {
  if (expected.tensor_core() != actual.tensor_core())
    throw std::invalid_argument(
        fmt::format("compare_verbs: tensor cores {} and {}", expected.tensor_core(), actual.tensor_core()));
  std::vector<VerbRow> rows;
  for (const VerbCase& one : cases) {
    if (!runs_on(one, actual)) continue;
    if (progress && std::ranges::find(rows, one.verb, &VerbRow::verb) == rows.end()) progress(one.verb);
    add_row(rows, compare_case(one, expected, actual, size, seed).row);
  }
  return rows;
}

}  // namespace fp16lab::experiments::acceptance
