#include "engine/nn/lstm.hpp"

#include <array>
#include <memory>
#include <stdexcept>
#include <utility>

#include "engine/autograd/by_shard.hpp"
#include "engine/nn/initialization.hpp"

namespace fp16lab::engine::nn {

namespace {
constexpr std::int64_t gate_count = 4;  // i, f, g, o
}

Lstm::Lstm(Backend& backend, std::string path, const LstmOptions& options)
    : path_(std::move(path)), options_(options) {
  if (options.inputs < 1 || options.hidden < 1 || options.layers < 1) {
    throw std::invalid_argument("Lstm " + path_ + ": " + std::to_string(options.inputs) + " inputs, hidden " +
                                std::to_string(options.hidden) + ", " + std::to_string(options.layers) +
                                " layers; all must be >= 1");
  }
  const std::int64_t rows = (Extent(gate_count) * options.hidden).value();
  const float bound = torch_bound(options.hidden);
  const auto uniform = [&](const std::string& name, const Shape& shape) {
    return &add_parameter(name, uniform_parameter(backend, shape, options.seed, name, bound));
  };
  for (std::int64_t index = 0; index < options.layers; ++index) {
    const std::string suffix = "_l" + std::to_string(index);
    const std::int64_t inputs = index == 0 ? options.inputs : options.hidden;
    Layer layer{};
    layer.weight_input = uniform(path_ + ".weight_ih" + suffix, {rows, inputs});
    layer.weight_hidden = uniform(path_ + ".weight_hh" + suffix, {rows, options.hidden});
    layer.bias_input = uniform(path_ + ".bias_ih" + suffix, {rows});
    layer.bias_hidden = uniform(path_ + ".bias_hh" + suffix, {rows});
    layer.input_scope = add_scope(path_ + ".ih" + suffix);
    layer.hidden_scope = add_scope(path_ + ".hh" + suffix);
    layer.gates_scope = path_ + ".gates" + suffix;
    layer.cell_scope = path_ + ".cell" + suffix;
    if (index + 1 < options.layers)
      layer.dropout = &add_child(std::make_unique<Dropout>(path_ + ".dropout" + suffix, options.dropout));
    layers_.push_back(std::move(layer));
  }
}

Variable Lstm::forward(Tape& tape, const Variable& x) {
  const Shape shape = x.shape();
  if (shape.rank() != 3 || shape[1] < 1 || shape[2] != options_.inputs) {
    throw std::invalid_argument("Lstm " + path_ + ": x is " + shape.to_string() + "; (B, T >= 1, " +
                                std::to_string(options_.inputs) + ") is needed");
  }
  const std::int64_t batch = shape[0], steps = shape[1];
  const std::array<int, 3> swap_batch_and_time{1, 0, 2};
  Variable sequence = ops::permute(x, swap_batch_and_time);
  {
    // Time-major, so that each step's rows are contiguous.
    const RowStepsGuard time_major(tape, steps);
    sequence = ops::reshape(sequence, {steps * batch, options_.inputs});
    for (const Layer& layer : layers_) {
      sequence = run_layer(tape, layer, sequence, steps);
      if (layer.dropout != nullptr) sequence = layer.dropout->forward(tape, sequence);
    }
  }
  return ops::permute(ops::reshape(sequence, {steps, batch, options_.hidden}), swap_batch_and_time);
}

Variable Lstm::run_layer(Tape& tape, const Layer& layer, const Variable& sequence, std::int64_t steps) {
  Variable products;
  {
    const ScopeGuard scope(tape, layer.input_scope);
    products = ops::linear(sequence, tape.parameter(*layer.weight_input), tape.parameter(*layer.bias_input));
  }
  return ops::lstm(products, tape.parameter(*layer.weight_hidden), tape.parameter(*layer.bias_hidden), steps,
                   {.hidden = layer.hidden_scope, .gates = layer.gates_scope, .cell = layer.cell_scope});
}

}  // namespace fp16lab::engine::nn
