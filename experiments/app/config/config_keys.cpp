// The one table of configuration keys: all sections in their order, and what the values of a key may be.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <iterator>
#include <stdexcept>

#include "experiments/app/config/config_key_rows.hpp"

namespace fp16lab::experiments {
namespace {

std::string bounds_text(const ConfigRange& range) {
  const auto number = [](double x) { return fmt::format("{}", x); };
  const bool unbounded = std::isinf(range.maximum) || range.maximum == keys::largest_integer;
  if (range.minimum == 0 && range.minimum_excluded && unbounded) return "above 0";
  if (unbounded) return number(range.minimum) + (range.minimum_excluded ? " excluded, and more" : " or more");
  return fmt::format("from {}{} to {}{}", number(range.minimum), range.minimum_excluded ? " (excluded)" : "",
                     number(range.maximum), range.maximum_excluded ? " (excluded)" : "");
}

std::string choices_text(const std::vector<std::string>& choices) {
  std::string text;
  for (const std::string& choice : choices) {
    if (!text.empty()) text += ", ";
    text += choice.empty() ? "\"\"" : choice;
  }
  return text;
}

}  // namespace

std::span<const ConfigKey> config_keys() {
  static const std::vector<ConfigKey> table = [] {
    std::vector<ConfigKey> all;
    for (const auto& section : {keys::of_model, keys::of_data, keys::of_train, keys::of_optimizer,
                                keys::of_schedule, keys::of_amp, keys::of_scaler, keys::of_backend,
                                keys::of_parallel, keys::of_observe, keys::of_checkpoint, keys::of_report})
      std::ranges::move(section(), std::back_inserter(all));
    return all;
  }();
  return table;
}

std::string expectation_of(const ConfigKey& key) {
  switch (key.type) {
    case ConfigType::text:
      return key.choices.empty() ? "text" : "one of " + choices_text(key.choices);
    case ConfigType::integer:
      return "an integer, " + bounds_text(key.range);
    case ConfigType::real:
      return "a number, " + bounds_text(key.range);
    case ConfigType::boolean:
      return "true or false";
    case ConfigType::integers:
      return "an integer or a list of them, each " + bounds_text(key.range);
    case ConfigType::texts:
      return key.choices.empty() ? "a list of texts, none of them empty"
                                 : "a list, each one of " + choices_text(key.choices);
    case ConfigType::parameter:
      return engine::amp::expectation_of(*key.parameter);
  }
  throw std::logic_error("unknown type of key");
}

}  // namespace fp16lab::experiments
