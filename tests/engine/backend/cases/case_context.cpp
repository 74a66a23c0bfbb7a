#include "tests/engine/backend/cases/case_context.hpp"

#include <fmt/format.h>

#include <cstring>
#include <span>
#include <stdexcept>
#include <utility>

#include "numerics/convert/convert.hpp"
#include "numerics/formats/bits.hpp"

namespace fp16lab::engine::cases {
namespace {

struct Fields {
  int exponent_bits, fraction_bits;
};

Fields fields_of(DType dtype) {
  switch (dtype) {
    case DType::f32:
      return {8, 23};
    case DType::f16:
      return {5, 10};
    case DType::bf16:
      return {8, 7};
    default:
      throw std::logic_error("RandomNumbers: no floating-point format of a network");
  }
}

}  // namespace

std::string name_of(Data data) {
  switch (data) {
    case Data::ordinary:
      return "ordinary";
    case Data::wide:
      return "wide";
    case Data::special:
      return "special";
    case Data::sprinkled:
      return "sprinkled";
    case Data::few:
      return "few";
    case Data::cancelling:
      return "cancelling";
    case Data::training:
      return "training";
  }
  return "?";
}

CaseContext::CaseContext(engine::Backend& backend, CaseSize size, const std::string& case_name,
                         std::uint64_t seed, MakeTensor make_tensor, std::vector<Operand>* operands)
    : backend_(&backend),
      size_(size),
      make_tensor_(std::move(make_tensor)),
      operands_(operands),
      numbers_({.seed = seed, .stream = stream_id(case_name)}) {}

std::uint32_t RandomNumbers::word() {
  if (next_word_ % block_.size() == 0) block_ = stream_.block(next_word_ / block_.size());
  return block_[next_word_++ % block_.size()];
}

std::uint64_t RandomNumbers::bits(DType dtype, Data data) {
  if (dtype == DType::u8 || dtype == DType::i32) return word() & (dtype == DType::u8 ? 0xffU : ~0U);
  if (dtype == DType::f64) {
    const std::uint64_t high = word();
    return high << 32 | word();
  }
  const Fields fields = fields_of(dtype);
  const std::uint32_t choice = word(), random = word();
  const std::uint64_t sign = std::uint64_t{choice >> 31} << (fields.exponent_bits + fields.fraction_bits);
  const std::uint64_t fraction = random & ((std::uint64_t{1} << fields.fraction_bits) - 1);
  const auto largest_field = (std::uint32_t{1} << fields.exponent_bits) - 1;
  const std::uint32_t bias = largest_field / 2;
  const auto number = [&](std::uint32_t exponent_field) {
    return sign | (std::uint64_t{exponent_field} << fields.fraction_bits) | fraction;
  };
  const std::uint32_t pick = choice & 0xffffffU;  // below the sign, so independent of it
  const std::uint32_t any_finite = pick % largest_field;
  switch (data) {
    case Data::ordinary:
      return number(bias - 8 + pick % 17);
    case Data::cancelling:
      return number(bias - 2 + pick % 2);
    case Data::wide:
      return number(any_finite);
    case Data::few:
      if (pick % 2 == 0) return sign;
      return (std::uint64_t{1} << fields.exponent_bits | largest_field) << fields.fraction_bits;
    case Data::sprinkled:
      return bits(dtype, pick % 41 == 0 ? Data::special : Data::ordinary);
    case Data::special: {
      const std::uint32_t kind = (choice >> 24) & 31U;
      const std::uint64_t infinity = std::uint64_t{largest_field} << fields.fraction_bits;
      if (kind == 0) return sign | infinity | (fraction == 0 ? 1 : fraction);
      if (kind == 1) return sign | infinity;
      if (kind == 2) return sign;
      if (kind == 3) return sign | (infinity - 1);
      if (kind == 4) return sign | 1;
      if (kind <= 7) return sign | fraction;
      return number(any_finite);
    }
    case Data::training: {
      if ((choice >> 24 & 7U) == 0) return 0;
      // Four uniform numbers: sum of variance 1/3; exact in FP32 up to the last product, a power of two times
      // 1.732.
      float sum = -2.0f;
      for (int i = 0; i < 4; ++i) sum += uniform01(word());
      const float value = sum * 0x1.bb67aep-4f;
      if (dtype == DType::f32) return bits_of(value);
      return dtype == DType::f16 ? narrow<Binary16>(value).bits() : narrow<BrainFloat16>(value).bits();
    }
  }
  return 0;
}

void CaseContext::supply(engine::Tensor& tensor, const std::function<void(std::vector<std::byte>&)>& draw) {
  std::vector<std::byte> host(tensor.byte_count());
  draw(host);
  backend_->upload(host, tensor);
  if (operands_ != nullptr) operands_->push_back({tensor.dtype(), tensor.shape(), std::move(host)});
}

engine::Tensor CaseContext::random(const engine::Shape& shape, DType dtype, Data data) {
  engine::Tensor tensor = make_tensor_ ? make_tensor_(shape, dtype) : backend_->empty(shape, dtype);
  supply(tensor, [&](std::vector<std::byte>& host) {
    const std::size_t size = size_of(dtype);
    for (std::size_t at = 0; at < host.size(); at += size) {
      const std::uint64_t value = numbers_.bits(dtype, data);
      std::memcpy(&host[at], &value, size);
    }
  });
  return tensor;
}

engine::Tensor CaseContext::indices(const engine::Shape& shape, std::int64_t limit) {
  engine::Tensor tensor = backend_->empty(shape, DType::i32);
  supply(tensor, [&](std::vector<std::byte>& host) {
    for (std::size_t at = 0; at < host.size(); at += sizeof(std::int32_t)) {
      const auto index = static_cast<std::int32_t>(
          (std::uint64_t{numbers_.word()} * static_cast<std::uint64_t>(limit)) >> 32);
      std::memcpy(&host[at], &index, sizeof(index));
    }
  });
  return tensor;
}

engine::Tensor CaseContext::output(const engine::Shape& shape, DType dtype) {
  if (make_tensor_) return make_tensor_(shape, dtype);
  engine::Tensor tensor = backend_->empty(shape, dtype);
  const std::vector<std::byte> host(tensor.byte_count(), std::byte{0xa5});
  backend_->upload(host, tensor);
  return tensor;
}

engine::StepState state_in_training() {
  engine::StepState state;
  state.set_scale(3072.0);
  state.grad_norm = 3.5;
  state.iteration = 7;
  for (std::size_t i = 0; i < state.taken_steps.size(); ++i) {
    state.taken_steps[i] = 5 + i;
    state.skipped_steps[i] = 2;
    state.beta1_power[i] = 0.59049 / static_cast<double>(1 + i);
    state.beta2_power[i] = 0.995 / static_cast<double>(1 + i);
    state.learning_rate[i] = 0.01f / static_cast<float>(1 + i);
  }
  return state;
}

void CaseContext::keep(const std::string& name, const engine::Tensor& tensor) {
  Kept kept{.name = name,
            .element_bytes = size_of(tensor.dtype()),
            .bytes = {},
            .dtype = tensor.dtype(),
            .shape = tensor.shape()};
  kept.bytes.resize(tensor.byte_count());
  backend_->download(tensor, kept.bytes);
  kept_.push_back(std::move(kept));
}

void CaseContext::keep(const std::string& name, const engine::StepState& state) {
  Kept kept{.name = name, .element_bytes = 4, .bytes = std::vector<std::byte>(sizeof(state))};
  std::memcpy(kept.bytes.data(), &state, sizeof(state));
  kept_.push_back(std::move(kept));
}

void CaseContext::keep_words(const std::string& name, const std::vector<std::uint64_t>& words) {
  Kept kept{.name = name, .element_bytes = sizeof(words[0]), .bytes = {}};
  const auto bytes = std::as_bytes(std::span(words));
  kept.bytes.assign(bytes.begin(), bytes.end());
  kept_.push_back(std::move(kept));
}

void CaseContext::keep(const std::string& name, std::uint64_t word) { keep_words(name, {word}); }

void CaseContext::keep(const std::string& name, const ExponentHistogram& histogram) {
  std::vector<std::uint64_t> words(histogram.bins.begin(), histogram.bins.end());
  words.insert(words.end(),
               {histogram.zero, histogram.infinite, histogram.nan, histogram.smallest, histogram.greatest});
  keep_words(name, words);
}

void CaseContext::keep(const std::string& name, const engine::CastProbe& probe) {
  engine::CastProbe settled = probe;
  engine::CastProbe* const one = &settled;
  backend_->settle({&one, 1});
  keep(name + " before", settled.before);
  keep(name + " after", settled.after);
  keep(name + " counted", settled.counted);
}

}  // namespace fp16lab::engine::cases
