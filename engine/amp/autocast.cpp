#include "engine/amp/autocast.hpp"

#include <functional>
#include <stdexcept>
#include <string>

#include "engine/autograd/ops.hpp"

namespace fp16lab::engine::amp {

std::string_view name_of(Level level) { return level == Level::O0 ? "O0" : "O1"; }

Level level_from_name(std::string_view name) {
  if (name == "O0") return Level::O0;
  if (name == "O1") return Level::O1;
  throw std::invalid_argument("amp.level = \"" + std::string(name) + "\": known are O0, O1");
}

Autocast::Autocast(const AmpOptions& options) : options_(options) {
  if (options.dtype != DType::f16) {
    throw std::invalid_argument("amp.dtype = " + std::string(fp16lab::name_of(options.dtype)) +
                                ": must be f16");
  }
}

DType Autocast::compute_dtype(Op op, std::span<const DType> inputs) const {
  switch (list_of(options_.dialect, op)) {
    case OpList::white:
      return options_.dtype;
    case OpList::black:
      return DType::f32;
    case OpList::follows:
      break;
  }
  for (const DType dtype : inputs) {
    if (dtype == DType::f32) return DType::f32;
  }
  return inputs.front();
}

std::size_t Autocast::KeyHash::operator()(const Key& key) const {
  const std::size_t flags = static_cast<std::size_t>(key.dtype) * 2 + (key.grad_mode ? 1 : 0);
  return std::hash<const Parameter*>()(key.parameter) ^ (key.version * 0x9E3779B97F4A7C15u) ^ (flags << 1);
}

Variable Autocast::cast(const Variable& input, DType dtype) {
  Tape& tape = input.tape();
  Parameter* parameter = tape.parameter_of(input);
  if (parameter == nullptr) return ops::cast(input, dtype);
  Entry& entry = cache_[Key{parameter, parameter->version, dtype, tape.grad_mode()}];
  if (entry.value.defined()) {
    ++cache_hits_;
    // usable() compares tape, generation and id, so a Variable of a tape that was reset is never handed out.
    if (!tape.usable(entry.variable)) entry.variable = ops::cast_as(input, entry.value);
    return entry.variable;
  }
  entry.variable = ops::cast(input, dtype);
  entry.value = entry.variable.tensor();
  return entry.variable;
}

}  // namespace fp16lab::engine::amp
