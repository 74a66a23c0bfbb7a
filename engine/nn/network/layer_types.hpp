// The types of layers that rows can have: one table, in lower_snake of PyTorch's class names.
#pragma once

#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "engine/autograd/tape.hpp"
#include "engine/nn/module.hpp"
#include "engine/nn/network/layer_arguments.hpp"

namespace fp16lab::engine::nn {

/// The shape of a value for any batch: (rows N, extents...) with N examples.
struct Signal {
  std::vector<std::int64_t> extents = {};
  std::int64_t rows = 1;        ///< of an example: flatten merges time into the batch
  std::int64_t vocabulary = 0;  ///< of symbols (i32): values lie in [0, vocabulary); 0: of numbers

  std::int64_t elements() const;  ///< of a row
  /// Of a batch's value. std::invalid_argument where no shape is so large, or has so many axes.
  Shape shape(std::int64_t batch) const;
  /// "(N, 16, 28, 28)"
  std::string to_string() const;
  bool operator==(const Signal&) const = default;
};

/// What all rows of a network share.
struct NetworkOptions {
  Signal input = {};
  std::int64_t outputs = 0;  ///< of a linear row that does not say how many: classes, symbols, targets
  std::int64_t batch = 1;    ///< examples that it will be given at once, if not more: their shapes must be
  Layout layout = Layout::nchw;
  Initialization initialization = Initialization::torch_linear;  ///< of rows without init
  std::int64_t scale_down = 1;  ///< out_features of linear rows are divided by it
  std::uint64_t seed = 0;
};

/// What a layer is made from.
struct LayerPlace {
  Backend& backend;
  const std::string& path;
  const std::string& prefix;  ///< "h0." of the row's block
  bool named;                 ///< does the row say its name?
  const LayerArguments& arguments;
  std::span<const Signal> inputs;
  const NetworkOptions& network;
};

struct BuiltLayer {
  Signal output;
  std::unique_ptr<Module> module;  ///< null: the layer has no parameters and no state
  bool computes = true;  ///< false: it moves nothing but shapes and names, and no op is counted there
  /// Of a layer without module. It must not allocate.
  std::function<Variable(Tape& tape, std::span<const Variable> inputs)> forward = {};
};

struct LayerType {
  std::string_view name;  ///< "conv2d"
  std::string_view help;
  std::vector<LayerArgument> arguments;
  bool many_inputs = false;  ///< two or more; else exactly one
  /// std::invalid_argument for inputs that do not fit.
  BuiltLayer (*build)(const LayerPlace& place) = nullptr;
};

std::span<const LayerType> layer_types();
/// std::invalid_argument for an unknown name, with the nearest one.
const LayerType& layer_type(std::string_view name);

}  // namespace fp16lab::engine::nn
