#include "engine/amp/autocast.hpp"

#include <algorithm>
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
  const OpListRow row = row_of(options_.dialect, op);
  switch (row.list) {
    case OpList::white:
      return options_.dtype;
    case OpList::black:
      return DType::f32;
    case OpList::banned:
      throw AutogradError(AutogradError::Kind::unsafe_under_autocast,
                          std::string(name_of(op)) + ": unsafe under autocast: " + std::string(row.reason) +
                              "; use " + std::string(name_of(row.remedy)) +
                              ", or switch autocast off around it");
    case OpList::follows:
      break;
  }
  const bool wide =
      std::any_of(inputs.begin(), inputs.end(), [](DType dtype) { return dtype == DType::f32; });
  return wide ? DType::f32 : inputs.front();
}

Variable Autocast::cast(const Variable& input, DType dtype) {
  Tape& tape = input.tape();
  Parameter* const parameter = tape.parameter_of(input);
  if (parameter == nullptr) return ops::cast(input, dtype);
  const auto entry = std::find_if(cache_.begin(), cache_.end(), [&](const Entry& known) {
    return known.parameter == parameter && known.version == parameter->version && known.dtype == dtype &&
           known.grad_mode == tape.grad_mode();
  });
  if (entry != cache_.end()) {
    ++cache_hits_;
    // usable() compares tape, generation and id, so a Variable of a tape that was reset is never handed out.
    if (!tape.usable(entry->variable)) entry->variable = ops::cast_as(input, entry->value);
    return entry->variable;
  }
  const Variable variable = ops::cast(input, dtype);
  cache_.push_back({parameter, parameter->version, dtype, tape.grad_mode(), variable.tensor(), variable});
  return variable;
}

}  // namespace fp16lab::engine::amp
