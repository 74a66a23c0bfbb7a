#include "tests/engine/backend/cases/verb_cases.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cstring>

#include "numerics/tensor_core/tensor_core_model.hpp"

namespace fp16lab::engine::cases {
bool runs_on(const VerbCase& one, const Backend& backend) {
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

std::vector<Kept> run_case(const VerbCase& one, Backend& backend, CaseSize size, std::uint64_t seed,
                           const CaseContext::MakeTensor& make_tensor, std::vector<Operand>* operands) {
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

Comparison compare(const std::vector<Kept>& expected, const std::vector<Kept>& actual) {
  Comparison result;
  if (expected.size() != actual.size())
    result.notes.push_back(fmt::format("kept {} and {} results", expected.size(), actual.size()));
  for (std::size_t i = 0; i < std::min(expected.size(), actual.size()); ++i) {
    const Kept &ours = expected[i], &theirs = actual[i];
    const std::size_t count = ours.bytes.size() / ours.element_bytes;
    result.elements += count;
    if (ours.bytes == theirs.bytes) continue;
    if (ours.bytes.size() != theirs.bytes.size()) {
      result.notes.push_back(
          fmt::format("{} has {} and {} bytes", ours.name, ours.bytes.size(), theirs.bytes.size()));
      continue;
    }
    const DifferingWords words = differing_words(ours.bytes, theirs.bytes, ours.element_bytes);
    const int digits = static_cast<int>(2 * ours.element_bytes);
    result.notes.push_back(
        fmt::format("{}: {} of {} elements differ, the first at {}: expected {:0{}x}, got {:0{}x}", ours.name,
                    words.words, count, words.first, words.expected, digits, words.actual, digits));
    result.differing_elements += words.words;
    result.differing_bits += words.bits;
  }
  return result;
}

}  // namespace fp16lab::engine::cases
