// What a verb case works with: one back end, data that every back end gets alike, and what is kept to be
// compared.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "engine/backend/backend.hpp"

namespace fp16lab::engine::cases {

/// What random operands look like, in every floating-point type.
enum class Data : std::uint8_t {
  ordinary,  ///< both signs, exponents -8 to 8
  wide,      ///< every exponent of finite numbers
  /// wide; one in four NaN (payloads and signs too), infinite, zero of a sign, subnormal or the largest
  special,
  sprinkled,   ///< ordinary; one in 41 special, so that most chains of products stay finite
  few,         ///< zeros of either sign and -infinity: ties
  cancelling,  ///< both signs, magnitudes in [1/4, 1): sums that cancel
  /// roughly normal, deviation 2^-4, one in eight exactly zero: what activations and gradients look like
  training,
};
inline constexpr Data all_data[] = {Data::ordinary, Data::wide, Data::special, Data::cancelling,
                                    Data::training};
std::string name_of(Data data);

/// What most verbs take.
inline constexpr DType floats[] = {DType::f32, DType::f16, DType::bf16};

#define FP16LAB_RULE(name, functor) UpdateRule::name,
inline constexpr UpdateRule all_update_rules[] = {FP16LAB_UPDATE_RULES(FP16LAB_RULE)};
#undef FP16LAB_RULE

/// Random numbers, a pure function of the stream.
class RandomNumbers {
 public:
  explicit RandomNumbers(const PhiloxStream& stream) : stream_(stream) {}
  std::uint32_t word();
  /// The bits of an f32, f16 or bf16; any bits of a type that verbs only move (u8, i32, f64).
  std::uint64_t bits(DType dtype, Data data);

 private:
  PhiloxStream stream_;
  std::uint64_t next_word_ = 0;
  PhiloxCounter block_{};  ///< the one that next_word_ is in
};

/// A StepState in the middle of a run: a scale that is no power of two, counters, powers and rates.
engine::StepState state_in_training();

/// How large tensors are, and how many.
enum class CaseSize : std::uint8_t {
  full,  ///< what a GPU does in milliseconds
  /// small, but with all the odd extents that full has: what the conformance suite judges by plain loops
  odd,
  small,  ///< what the PTX machine executes in milliseconds
};

/// What a case gave back: elements of `element_bytes` bytes each.
struct Kept {
  std::string name;
  std::size_t element_bytes = 1;
  std::vector<std::byte> bytes;
  /// A tensor's dtype; anything else is a row of words without one.
  std::optional<DType> dtype = {};
  engine::Shape shape = {};
};

/// What a case drew, as host bytes.
struct Operand {
  DType dtype = DType::f32;
  engine::Shape shape;
  std::vector<std::byte> bytes;
};
class CaseContext {
 public:
  /// Makes a tensor full of bytes 0xa5 on the context's back end.
  using MakeTensor = std::function<engine::Tensor(const engine::Shape& shape, DType dtype)>;

  /// The same `case_name` and `seed` give the same data on every back end. `make_tensor` makes operands and
  /// outputs, for who looks at the bytes after them; empty: the back end does. `operands` gets what is drawn;
  /// nullptr: it is forgotten.
  CaseContext(engine::Backend& backend, CaseSize size, const std::string& case_name, std::uint64_t seed,
              MakeTensor make_tensor = {}, std::vector<Operand>* operands = nullptr);

  engine::Backend& backend() { return *backend_; }
  bool small() const { return size_ != CaseSize::full; }
  /// Does the case run on the odd extents, too?
  bool odd() const { return size_ != CaseSize::small; }
  /// `full`, or `small` where tensors are small.
  std::int64_t extent(std::int64_t full, std::int64_t small_extent) const {
    return small() ? small_extent : full;
  }

  /// In back-end memory.
  engine::Tensor random(const engine::Shape& shape, DType dtype, Data data);
  /// i32, uniform in [0, limit).
  engine::Tensor indices(const engine::Shape& shape, std::int64_t limit);
  /// Every byte 0xa5, so that what a verb forgets to write is seen.
  engine::Tensor output(const engine::Shape& shape, DType dtype);

  void keep(const std::string& name, const engine::Tensor& tensor);
  void keep(const std::string& name, const engine::StepState& state);
  void keep(const std::string& name, std::uint64_t word);
  void keep(const std::string& name, const ExponentHistogram& histogram);
  void keep(const std::string& name, const engine::CastProbe& probe);
  std::vector<Kept> take() { return std::move(kept_); }

 private:
  void keep_words(const std::string& name, const std::vector<std::uint64_t>& words);
  /// Uploads an operand that `draw` fills.
  void supply(engine::Tensor& tensor, const std::function<void(std::vector<std::byte>&)>& draw);

  engine::Backend* backend_;
  CaseSize size_;
  MakeTensor make_tensor_;
  std::vector<Operand>* operands_;
  RandomNumbers numbers_;
  std::vector<Kept> kept_;
};

}  // namespace fp16lab::engine::cases
