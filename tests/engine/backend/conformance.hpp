// The conformance suite of back ends: every case runs on every back end of `backend_factories()` and is
// compared, bit for bit, with a plain-loop twin written from the comments of engine/backend/backend.hpp and
// design rules, not from an implementation. A back end joins by one entry in backend_factories.cpp.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <functional>
#include <memory>
#include <ostream>
#include <span>
#include <string>
#include <vector>

#include "engine/backend/backend.hpp"
#include "numerics/convert/convert.hpp"
#include "numerics/formats/bits.hpp"
#include "numerics/tensor_core/tensor_core_model.hpp"
#include "tests/engine/backend/cases/case_context.hpp"

namespace fp16lab::engine::test {

struct BackendFactory {
  std::string name;  ///< letters, digits, underscores: part of the test's name
  std::function<std::unique_ptr<Backend>()> make;
  /// A pool in the back end's memory space, for tensors with a guard after them.
  std::function<std::unique_ptr<StoragePool>()> make_pool;
  /// Why it cannot run here; empty if it can. Its tests then say SKIPPED.
  std::string unavailable;
};
inline std::ostream& operator<<(std::ostream& out, const BackendFactory& factory) {
  return out << factory.name;
}

std::vector<BackendFactory> backend_factories();

/// A probe that has not been settled before, its counts complete.
inline const CastProbe& settled(Backend& backend, CastProbe& probe) {
  const std::uint64_t counted = probe.counted;
  CastProbe* const probes[] = {&probe};
  backend.settle(probes);
  EXPECT_EQ(probe.before.total(), counted) << "how many are counted is known at once";
  EXPECT_EQ(probe.after.total(), counted);
  EXPECT_FALSE(probe.pending.defined());
  return probe;
}

/// The message of the call's std::invalid_argument.
template <class Call>
std::string refusal(const Call& call) {
  try {
    call();
  } catch (const std::invalid_argument& error) {
    return error.what();
  }
  return "accepted";
}
/// The call, which may have commas, is refused with these words.
#define EXPECT_REFUSED(words, ...) EXPECT_EQ(refusal([&] { __VA_ARGS__; }), words)

class BackendConformance : public testing::TestWithParam<BackendFactory> {
 protected:
  void SetUp() override {
    if (!GetParam().unavailable.empty()) GTEST_SKIP() << GetParam().unavailable;
    backend_ = GetParam().make();
    pool_ = GetParam().make_pool();
  }
  void TearDown() override { expect_guards_untouched(); }
  /// Expects that no verb wrote past the end of any output so far, and forgets these outputs.
  void expect_guards_untouched() {
    for (const Tensor& whole : guarded_) {
      std::vector<std::byte> bytes(whole.byte_count());
      backend_->download(whole, bytes);
      for (std::size_t i = bytes.size() - guard_bytes; i < bytes.size(); ++i)
        ASSERT_EQ(bytes[i], sentinel)
            << "byte " << i << " of " << whole.describe() << " is past the output end";
    }
    guarded_.clear();
  }

  Backend& backend() { return *backend_; }
  const CastProbe& settled(CastProbe& probe) { return test::settled(backend(), probe); }
  /// Its counts are complete from here on.
  void settle(CastProbe& probe) {
    CastProbe* const one = &probe;
    backend_->settle({&one, 1});
  }

  /// A tensor full of sentinels, with 64 more after it: they show what a verb leaves unwritten or writes too
  /// much.
  Tensor output(const Shape& shape, DType dtype) {
    const std::size_t bytes = static_cast<std::size_t>(shape.element_count()) * size_of(dtype);
    const Storage storage = pool_->allocate(bytes + guard_bytes);
    guarded_.emplace_back(storage, Shape{static_cast<std::int64_t>(bytes + guard_bytes)}, DType::u8);
    backend_->upload(std::vector<std::byte>(bytes + guard_bytes, sentinel), guarded_.back());
    return {storage, shape, dtype};
  }
  template <class T>
  Tensor tensor(const Shape& shape, const std::vector<T>& values) {
    Tensor result = output(shape, DTypeOf<T>::value);
    backend_->upload(std::as_bytes(std::span(values)), result);
    return result;
  }
  template <class T>
  Tensor tensor(const std::vector<T>& values) {
    return tensor(Shape{static_cast<std::int64_t>(values.size())}, values);
  }
  template <class T>
  std::vector<T> values_of(const Tensor& x) {
    std::vector<T> values(static_cast<std::size_t>(x.element_count()), T{});
    backend_->download(x, std::as_writable_bytes(std::span(values)));
    return values;
  }

 private:
  static constexpr std::size_t guard_bytes = 64;
  static constexpr std::byte sentinel{0xa5};

  std::unique_ptr<Backend> backend_;
  std::unique_ptr<StoragePool> pool_;
  std::vector<Tensor> guarded_;
};

// ---- data ----

using Kind = cases::Data;

template <class T>
std::vector<T> random_of(std::int64_t count, Kind kind, std::uint64_t seed) {
  cases::RandomNumbers numbers({.seed = seed, .stream = stream_id("conformance")});
  std::vector<T> values;
  values.reserve(static_cast<std::size_t>(count));
  for (std::int64_t i = 0; i < count; ++i) {
    const std::uint64_t bits = numbers.bits(DTypeOf<T>::value, kind);
    if constexpr (std::is_same_v<T, float>)
      values.push_back(float_from_bits(static_cast<std::uint32_t>(bits)));
    else
      values.push_back(T::from_bits(static_cast<std::uint16_t>(bits)));
  }
  return values;
}
inline std::vector<float> random_floats(std::int64_t count, Kind kind, std::uint64_t seed) {
  return random_of<float>(count, kind, seed);
}
inline std::vector<Float16> random_halves(std::int64_t count, Kind kind, std::uint64_t seed) {
  return random_of<Float16>(count, kind, seed);
}
inline std::vector<BFloat16> random_brains(std::int64_t count, Kind kind, std::uint64_t seed) {
  return random_of<BFloat16>(count, kind, seed);
}

/// body(a value of the type) for the 16-bit element types; for all that verbs call f.
template <class Body>
void for_each_half_type(const Body& body) {
  body(Float16{});
  body(BFloat16{});
}
template <class Body>
void for_each_float_type(const Body& body) {
  body(0.0f);
  for_each_half_type(body);
}

using cases::state_in_training;

// ---- the twins' scalar steps ----

/// NaN becomes 7fffffff.
inline float canonical(float x) { return x != x ? float_from_bits(0x7fffffffu) : x; }
/// One rounding of an exact or faithful-enough FP64 value to a 16-bit type.
template <class Half>
Half low_of(double x) {
  return convert<typename Half::Format>(SmallFloat<Binary64>::from_bits(bits_of(x)));
}
template <class Half>
Half low_of(float x) {
  return narrow<typename Half::Format>(x);
}
inline Float16 half_of(double x) { return low_of<Float16>(x); }
inline Float16 half_of(float x) { return low_of<Float16>(x); }
template <class F>
float float_of(SmallFloat<F> x) {
  return widen(x);
}
/// x as an element of the type of the second argument.
inline float stored_as(float x, float) { return x; }
template <class F>
SmallFloat<F> stored_as(float x, SmallFloat<F>) {
  return narrow<F>(x);
}
inline float wide(float x) { return x; }
template <class F>
float wide(SmallFloat<F> x) {
  return widen(x);
}

/// One accumulator of a product: the tensor core's definition for 16-bit operands, a chain of fma for floats.
float accumulate(const TensorCoreModel& model, const std::vector<Float16>& a, const std::vector<Float16>& b);
float accumulate(const TensorCoreModel& model, const std::vector<BFloat16>& a,
                 const std::vector<BFloat16>& b);
float accumulate(const TensorCoreModel& model, const std::vector<float>& a, const std::vector<float>& b);
/// The tensor core's definition for FP32 operands that are rounded to TF32, to nearest with ties away from
/// zero, by the scalar conversion.
float accumulate_tf32(const TensorCoreModel& model, const std::vector<float>& a, const std::vector<float>& b);

/// TREE from the text of its definition: chunks of 1024, lanes i mod 32, folds 16 8 4 2 1, missing elements
/// skipped, chunk results again by the same rule. `values` must not be empty.
template <class T>
T naive_tree(std::vector<T> values, const std::function<T(T, T)>& op) {
  do {
    std::vector<T> results;
    for (std::size_t first = 0; first < values.size(); first += 1024) {
      std::vector<T> lanes[32];  // each empty or one value
      for (std::size_t i = first; i < values.size() && i < first + 1024; ++i) {
        std::vector<T>& lane = lanes[(i - first) % 32];
        lane = {lane.empty() ? values[i] : op(lane[0], values[i])};
      }
      for (std::size_t distance = 16; distance > 0; distance /= 2)
        for (std::size_t lane = 0; lane < distance; ++lane)
          if (!lanes[lane + distance].empty()) lanes[lane] = {op(lanes[lane][0], lanes[lane + distance][0])};
      results.push_back(lanes[0][0]);
    }
    values = std::move(results);
  } while (values.size() > 1);
  return values[0];
}

/// A reduction by TREE, NaN canonical: an empty sum is +0; the first of equal zeros is the maximum.
float tree_of(ReduceOp op, const std::vector<float>& values);

/// The exponent histogram from its definition: (2^e, 2^(e+1)], by comparison with powers of two.
ExponentHistogram naive_histogram(const std::vector<float>& values);
ExponentHistogram naive_histogram(const std::vector<Float16>& values);
ExponentHistogram naive_histogram(const std::vector<BFloat16>& values);

/// function(x) for every x.
template <class T, class Function>
auto mapped(const std::vector<T>& values, const Function& function) {
  std::vector<decltype(function(values[0]))> results;
  results.reserve(values.size());
  for (const T& value : values) results.push_back(function(value));
  return results;
}

/// The bytes of one value, for comparisons that see NaN payloads and the sign of zero.
template <class T>
std::span<const std::byte> bytes_of(const T& value) {
  return std::as_bytes(std::span<const T, 1>(&value, 1));
}
template <class T>
bool same_bytes(const T& a, const T& b) {
  return std::ranges::equal(bytes_of(a), bytes_of(b));
}

/// Every bit the same, NaNs included.
template <class T>
void expect_same_bits(const std::vector<T>& actual, const std::vector<T>& expected, const std::string& what) {
  ASSERT_EQ(actual.size(), expected.size()) << what;
  for (std::size_t i = 0; i < actual.size(); ++i) {
    if (same_bytes(actual[i], expected[i])) continue;
    const auto bits = [](const T& x) {
      std::uint64_t word = 0;
      std::memcpy(&word, &x, sizeof(T));
      return word;
    };
    FAIL() << what << ": element " << i << " has bits " << std::hex << bits(actual[i]) << ", expected "
           << bits(expected[i]);
  }
}

/// All 2^16 words, in order.
template <class Half>
std::vector<Half> all_words() {
  std::vector<Half> words;
  for (std::uint32_t bits = 0; bits < 0x10000; ++bits)
    words.push_back(Half::from_bits(static_cast<std::uint16_t>(bits)));
  return words;
}

}  // namespace fp16lab::engine::test
