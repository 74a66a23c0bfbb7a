// Every verb of the back end as cases that run on any back end and give bytes.
//
// Two judges: the conformance suite compares every back end with plain loops
// (tests/engine/backend/twin_backend.hpp), and tests/device compares a GPU with the emulated back end, on
// larger extents. The cases are those that a GPU may get wrong: odd extents, broadcasts, many blocks, special
// values, every operation, type and transposition.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "engine/backend/backend.hpp"
#include "tests/engine/backend/cases/case_context.hpp"

namespace fp16lab::engine::cases {

struct VerbCase {
  std::string verb;  ///< as backend.hpp names it: "conv2d_weight_gradient"
  std::string name;  ///< "f16 nhwc stride 2"
  std::function<void(CaseContext&)> run;
  /// Operands of products: left out where the row multiplies no such (BF16, TF32: volta, turing).
  DType multiplies = DType::f32;
};
/// Unique in a list: "gemm/f16 NT".
inline std::string key_of(const VerbCase& one) { return one.verb + '/' + one.name; }

/// All of them, in the order of backend.hpp.
std::vector<VerbCase> all_verb_cases();

/// Parts of it.
void add_memory_cases(std::vector<VerbCase>& cases);
void add_elementwise_cases(std::vector<VerbCase>& cases);
void add_reduction_cases(std::vector<VerbCase>& cases);
void add_product_cases(std::vector<VerbCase>& cases);
void add_lstm_cases(std::vector<VerbCase>& cases);
void add_pooling_cases(std::vector<VerbCase>& cases);
void add_step_cases(std::vector<VerbCase>& cases);
void add_optimizer_cases(std::vector<VerbCase>& cases);
void add_histogram_cases(std::vector<VerbCase>& cases);

struct DifferingWords {
  std::uint64_t words = 0, bits = 0;
  std::uint64_t first = 0;                 ///< index of the first word that differs
  std::uint64_t expected = 0, actual = 0;  ///< that word on both sides
};
/// Compares two blocks of equal length, word by word of `word_bytes`.
DifferingWords differing_words(std::span<const std::byte> expected, std::span<const std::byte> actual,
                               std::size_t word_bytes);

/// Does the back end's tensor core multiply what the case needs?
bool runs_on(const VerbCase& one, const Backend& backend);

/// What the case gives on this back end. `make_tensor`, `operands`: as of CaseContext.
std::vector<Kept> run_case(const VerbCase& one, Backend& backend, CaseSize size, std::uint64_t seed,
                           const CaseContext::MakeTensor& make_tensor = {},
                           std::vector<Operand>* operands = nullptr);

/// What differs between two runs of a case.
struct Comparison {
  std::uint64_t elements = 0, differing_elements = 0, differing_bits = 0;
  std::vector<std::string> notes;  ///< one for each result that differs, with its first element that does
  bool same() const { return notes.empty() && elements > 0; }
};
Comparison compare(const std::vector<Kept>& expected, const std::vector<Kept>& actual);

}  // namespace fp16lab::engine::cases
