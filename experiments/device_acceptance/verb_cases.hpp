// Every verb of the back end as cases that run on any back end and give bytes: what the device is compared by.
//
// The oracle is the emulated back end, which the conformance suite (tests/engine/backend/*_test.cpp) judges by plain
// loops. The cases are those a GPU may get wrong: odd extents, broadcasts, many blocks, special values, every operation,
// type and transposition.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "experiments/device_acceptance/case_context.hpp"

namespace fp16lab::experiments::acceptance {

struct VerbCase {
  std::string verb;  ///< as backend.hpp names it: "conv2d_weight_gradient"
  std::string name;  ///< "f16 nhwc stride 2"
  std::function<void(CaseContext&)> run;
  bool needs_bf16_products = false;  ///< left out where the row has none (volta, turing)
};

/// All of them, in the order of backend.hpp.
std::vector<VerbCase> all_verb_cases();

/// The rooms' parts of it.
void add_memory_cases(std::vector<VerbCase>& cases);
void add_elementwise_cases(std::vector<VerbCase>& cases);
void add_reduction_cases(std::vector<VerbCase>& cases);
void add_product_cases(std::vector<VerbCase>& cases);
void add_pooling_cases(std::vector<VerbCase>& cases);
void add_step_cases(std::vector<VerbCase>& cases);
void add_looking_cases(std::vector<VerbCase>& cases);

struct DifferingWords {
  std::uint64_t words = 0, bits = 0;
  std::uint64_t first = 0;                 ///< index of the first word that differs
  std::uint64_t expected = 0, actual = 0;  ///< that word on both sides
};
/// Of two blocks of equal length, word by word of `word_bytes`.
DifferingWords differing_words(std::span<const std::byte> expected, std::span<const std::byte> actual,
                               std::size_t word_bytes);

/// A verb's cases on both back ends.
struct VerbRow {
  std::string verb;
  std::uint64_t cases = 0, elements = 0, differing_elements = 0, differing_bits = 0;
  std::vector<std::string> notes;  ///< of the first cases that differ or throw
  bool failed = false;             ///< a case threw on one back end
  bool same() const { return !failed && differing_elements == 0; }
};

/// Runs the cases on both and compares what they kept. One row for each verb.
std::vector<VerbRow> compare_cases(const std::vector<VerbCase>& cases, engine::Backend& expected,
                                   engine::Backend& actual, CaseSize size, std::uint64_t seed,
                                   const std::function<void(const std::string&)>& progress = {});
/// The same of all_verb_cases().
std::vector<VerbRow> compare_verbs(engine::Backend& expected, engine::Backend& actual, CaseSize size,
                                   std::uint64_t seed,
                                   const std::function<void(const std::string&)>& progress = {});

}  // namespace fp16lab::experiments::acceptance
