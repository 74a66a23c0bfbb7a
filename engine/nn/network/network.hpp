// Network: a module that consists of rows.
#pragma once

#include <functional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "engine/nn/module.hpp"
#include "engine/nn/network/layer_types.hpp"

namespace fp16lab::engine::nn {

/// A row as it was built.
struct NetworkLayer {
  std::string path;
  std::string_view type;
  std::vector<std::string> inputs;  ///< paths; "input": the network's own
  Signal output;
  std::int64_t parameters = 0;  ///< elements
  bool frozen = false;
  std::string to_float = {};  ///< as its row
};

/// Computes the rows in their order; its output is the last row's. Parameters are called "PATH.weight" and so
/// on, as the layers' own classes say, and have PyTorch's shapes.
class Network final : public Module {
 public:
  /// std::invalid_argument "WHERE: layer 'PATH' (TYPE): WHAT" for rows that do not fit together: placed(),
  /// and a layer that cannot take the shapes of its inputs, or gives one that is too large for a batch: the
  /// message has the inputs' names and shapes.
  Network(Backend& backend, const NetworkRows& rows, const NetworkOptions& options);

  Variable forward(Tape& tape, const Variable& x) override;

  std::span<const NetworkLayer> layers() const { return layers_; }
  const Signal& input() const { return input_; }
  /// Calls `seen` after each layer of a forward pass, with its position in layers().
  void watch(std::function<void(std::size_t)> seen) { seen_ = std::move(seen); }
  const Signal& output() const { return layers_.back().output; }

 private:
  struct Step {
    Module* module = nullptr;
    std::function<Variable(Tape&, std::span<const Variable>)> function;
    std::string scope;        ///< a function's; empty: one without a name that computes nothing
    std::vector<int> inputs;  ///< earlier steps; network_input
  };

  Signal input_;
  std::vector<NetworkLayer> layers_;
  std::vector<Step> steps_;
  std::function<void(std::size_t)> seen_;
  std::vector<Variable> values_, inputs_;  ///< those of a forward pass; kept for their capacity
};

}  // namespace fp16lab::engine::nn
