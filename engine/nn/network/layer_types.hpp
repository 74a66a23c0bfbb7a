// The types of layers that rows can have: one table, in lower_snake of PyTorch's class names.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "engine/autograd/tape.hpp"
#include "engine/nn/initialization.hpp"
#include "engine/nn/module.hpp"
#include "engine/nn/network/layer_row.hpp"

namespace fp16lab::engine::nn {

enum class ArgumentKind {
  count,   ///< an integer, 1 to `most`
  axis,    ///< an axis of a value, from the front or, negative, from the end
  counts,  ///< one or two integers, 1 to `most`: (vertical, horizontal)
  sizes,   ///< the same, 0 to `most`
  list,    ///< integers, 1 to `most` each
  real,    ///< a number that FP32 has
  boolean,
  text,
  /// An Initialization by its name, or the deviation of a normal distribution around 0 (biases are 0 then)
  initialization,
};

/// An argument that rows of a type may have.
struct LayerArgument {
  std::string name;  ///< as PyTorch's class calls it, where it has it
  ArgumentKind kind = ArgumentKind::count;
  std::optional<LayerValue> standard =
      {};  ///< nothing: the row has to give it, or the help names its other source
  std::string help = {};
  std::vector<std::string> choices = {};  ///< for texts
  bool optional = false;                  ///< without `standard`: it may be missing
  std::int64_t most = largest_size;       ///< for integers that are no axes
};

/// Weights' distribution as a row gives it.
struct RowInitialization {
  Initialization rule = Initialization::torch_linear;
  float deviation = 0;  ///< > 0: normal(0, deviation), biases 0, whatever `rule` says
};

/// A row's arguments for its layer, read by name. Constructing it checks all arguments: std::invalid_argument
/// naming the argument, what it is and what it may be.
class LayerArguments {
 public:
  LayerArguments(std::string_view type, std::span<const LayerArgument> known, const LayerRow& row);

  bool has(std::string_view name) const { return given(name) != nullptr; }
  std::int64_t integer(std::string_view name) const;
  std::array<std::int64_t, 2> pair(std::string_view name) const;
  std::vector<std::int64_t> list(std::string_view name) const;
  float real(std::string_view name) const;
  bool boolean(std::string_view name) const;
  std::string text(std::string_view name) const;
  /// `otherwise` where the row says nothing.
  RowInitialization initialization(std::string_view name, RowInitialization otherwise) const;

 private:
  const LayerValue* given(std::string_view name) const;
  const LayerValue& value(std::string_view name) const;

  std::string_view type_;
  std::span<const LayerArgument> known_;
  const LayerRow* row_;
};

/// "an integer from 1 to 2147483647": for messages and documentation.
std::string expectation_of(const LayerArgument& argument);
/// As TOML writes it: 3, [3, 3], 1e-05, true, "same".
std::string text_of(const LayerValue& value);

/// The shape of a value for any batch: (rows N, extents...) with N examples.
struct Signal {
  std::vector<std::int64_t> extents = {};
  std::int64_t rows = 1;        ///< an example's: flatten merges time into the batch
  std::int64_t vocabulary = 0;  ///< for symbols (i32): values are in [0, vocabulary); 0: for numbers

  std::int64_t elements() const;  ///< those of a row
  /// The shape of a batch's value. std::invalid_argument where no shape is so large, or has so many axes.
  Shape shape(std::int64_t batch) const;
  /// "(N, 16, 28, 28)"
  std::string to_string() const;
  bool operator==(const Signal&) const = default;
};

/// What all rows of a network share.
struct NetworkOptions {
  Signal input = {};
  std::int64_t outputs = 0;  ///< for a linear row that does not say how many: classes, symbols, targets
  std::int64_t batch = 1;    ///< examples that it will be given at once, if not more: their shapes must be
  Layout layout = Layout::nchw;
  Initialization initialization = Initialization::torch_linear;  ///< for rows without init
  std::int64_t scale_down = 1;  ///< out_features of linear rows are divided by it
  std::uint64_t seed = 0;
};

/// The inputs of a layer's construction.
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
  /// For a layer without module. It must not allocate.
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
