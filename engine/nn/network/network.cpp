#include "engine/nn/network/network.hpp"

#include <fmt/format.h>

#include <stdexcept>
#include <utility>

#include "engine/autograd/ops.hpp"

namespace fp16lab::engine::nn {
namespace {

std::string shapes_text(const PlacedRow& row, std::span<const PlacedRow> rows,
                        std::span<const Signal> signals) {
  std::string text;
  for (std::size_t i = 0; i < row.inputs.size(); ++i) {
    const int input = row.inputs[i];
    const std::string name = input == network_input ? "the network's input"
                                                    : "'" + rows[static_cast<std::size_t>(input)].path + "'";
    text += fmt::format("{}{} gives {}", i == 0 ? "" : ", ", name, signals[i].to_string());
  }
  return text;
}

void require_input(const NetworkOptions& options) {
  try {
    options.input.shape(options.batch);
  } catch (const std::invalid_argument& error) {
    throw std::invalid_argument(
        fmt::format("the network's input {}: {}", options.input.to_string(), error.what()));
  }
}

std::int64_t element_count(const Module& module) {
  std::int64_t count = 0;
  for (const Parameter* parameter : module.parameters()) count += parameter->value.element_count();
  return count;
}

}  // namespace

Network::Network(Backend& backend, const NetworkRows& rows, const NetworkOptions& options)
    : input_(options.input) {
  require_input(options);
  const std::vector<PlacedRow> all = placed(rows);
  for (const PlacedRow& row : all) {
    std::vector<Signal> inputs;
    std::vector<std::string> names;
    for (const int input : row.inputs) {
      const NetworkLayer* from = input == network_input ? nullptr : &layers_[static_cast<std::size_t>(input)];
      inputs.push_back(from == nullptr ? options.input : from->output);
      names.push_back(from == nullptr ? "input" : from->path);
    }
    try {
      const LayerType& type = layer_type(row.row->type);
      const LayerArguments arguments(type.name, type.arguments, *row.row);
      if (type.many_inputs ? inputs.size() < 2 : inputs.size() != 1)
        throw std::invalid_argument(
            fmt::format("{} inputs; expected {}", inputs.size(),
                        type.many_inputs ? "two or more, such as input = [\"a\", \"b\"]" : "one"));
      const bool named = !row.row->name.empty();
      BuiltLayer built = type.build({backend, row.path, row.prefix, named, arguments, inputs, options});
      built.output.shape(options.batch);
      layers_.push_back({.path = row.path,
                         .type = type.name,
                         .inputs = std::move(names),
                         .output = std::move(built.output),
                         .parameters = built.module == nullptr ? 0 : element_count(*built.module),
                         .frozen = row.row->frozen,
                         .to_float = row.row->to_float});
      if (row.row->frozen) {
        if (built.module == nullptr || built.module->parameters().empty())
          throw std::invalid_argument("frozen = true, but it has no parameters");
        for (Parameter* const parameter : built.module->parameters()) parameter->frozen = true;
      }
      Step step{.function = std::move(built.forward), .scope = {}, .inputs = row.inputs};
      if (built.module != nullptr)
        step.module = &add_child(std::move(built.module));
      else if (built.computes)
        step.scope = add_scope(row.path);
      else if (named)
        step.scope = row.path;
      steps_.push_back(std::move(step));
    } catch (const std::invalid_argument& error) {
      throw std::invalid_argument(fmt::format("{}{}layer '{}' ({}): {}; {}", row.row->where,
                                              row.row->where.empty() ? "" : ": ", row.path, row.row->type,
                                              error.what(), shapes_text(row, all, inputs)));
    }
  }
}

Variable Network::forward(Tape& tape, const Variable& x) {
  values_.clear();
  for (const Step& step : steps_) {
    inputs_.clear();
    for (const int input : step.inputs)
      inputs_.push_back(input == network_input ? x : values_[static_cast<std::size_t>(input)]);
    if (step.module != nullptr) {
      values_.push_back(step.module->forward(tape, inputs_.front()));
    } else if (step.scope.empty()) {
      values_.push_back(step.function(tape, inputs_));
    } else {
      const ScopeGuard scope(tape, step.scope);
      values_.push_back(step.function(tape, inputs_));
    }
    if (seen_) seen_(values_.size() - 1);
  }
  return values_.back();
}

}  // namespace fp16lab::engine::nn
