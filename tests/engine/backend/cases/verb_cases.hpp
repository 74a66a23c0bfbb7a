// Every verb of the back end as cases that run on any back end and give bytes: what the device is compared
// by.
//
// Two judges: the acceptance compares a device with the emulated back end, and the conformance suite compares
// every back end with plain loops (tests/engine/backend/twin_backend.hpp). The cases are those a GPU may get
// wrong: odd extents, broadcasts, many blocks, special values, every operation, type and transposition.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "engine/backend/cuda/cuda_backend.hpp"
#include "tests/engine/backend/cases/case_context.hpp"

namespace fp16lab::experiments::acceptance {

struct VerbCase {
  std::string verb;  ///< as backend.hpp names it: "conv2d_weight_gradient"
  std::string name;  ///< "f16 nhwc stride 2"
  std::function<void(CaseContext&)> run;
  /// Operands of products: left out where the row multiplies no such (BF16, TF32: volta, turing).
  DType multiplies = DType::f32;
  /// How the device computes its products.
  engine::GemmRoute route = engine::GemmRoute::mma;
};
/// Unique in a list: "gemm/f16 NT".
inline std::string key_of(const VerbCase& one) { return one.verb + '/' + one.name; }

/// All of them, in the order of backend.hpp.
std::vector<VerbCase> all_verb_cases();

/// The rooms' parts of it.
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
bool runs_on(const VerbCase& one, const engine::Backend& backend);

/// What the case gives on this back end. `make_tensor`, `operands`: as of CaseContext.
std::vector<Kept> run_case(const VerbCase& one, engine::Backend& backend, CaseSize size, std::uint64_t seed,
                           const CaseContext::MakeTensor& make_tensor = {}, Operands* operands = nullptr);

/// A verb's cases on both back ends.
struct VerbRow {
  std::string verb;
  std::uint64_t cases = 0, elements = 0, differing_elements = 0, differing_bits = 0;
  std::vector<std::string> notes;  ///< of the first cases that differ or throw
  bool failed = false;             ///< a case threw on one back end
  /// What the back end said of products that the library's route left to our own kernel.
  std::vector<std::string> refusals = {};
  std::vector<std::string> bundles = {};  ///< folders from which its failures can be had again
  bool same() const { return !failed && differing_elements == 0; }
};
/// Adds what differs between two runs of the case.
void compare_kept(const VerbCase& one, const std::vector<Kept>& expected, const std::vector<Kept>& actual,
                  VerbRow& row);
/// Adds a row to that of its verb, or behind all others.
void add_row(std::vector<VerbRow>& rows, const VerbRow& row);

/// One case on both back ends.
struct ComparedCase {
  VerbRow row;               ///< of this case alone
  std::vector<Kept> actual;  ///< what the second one gave; empty where it threw
};
ComparedCase compare_case(const VerbCase& one, engine::Backend& expected, engine::Backend& actual,
                          CaseSize size, std::uint64_t seed);

/// Runs the cases on both and compares what they kept. One row for each verb.
std::vector<VerbRow> compare_cases(const std::vector<VerbCase>& cases, engine::Backend& expected,
                                   engine::Backend& actual, CaseSize size, std::uint64_t seed,
                                   const std::function<void(const std::string&)>& progress = {});
/// The same of all_verb_cases().
std::vector<VerbRow> compare_verbs(engine::Backend& expected, engine::Backend& actual, CaseSize size,
                                   std::uint64_t seed,
                                   const std::function<void(const std::string&)>& progress = {});

}  // namespace fp16lab::experiments::acceptance
