// What a row says of its layer: read by name, checked against the list of the layer's type.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "engine/nn/initialization.hpp"
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
      {};  ///< nothing: the row has to say it, or the help says who else does
  std::string help = {};
  std::vector<std::string> choices = {};  ///< of texts
  bool optional = false;                  ///< without `standard`: it may be missing
  std::int64_t most = largest_size;       ///< of integers that are no axes
};

/// Weights' distribution as a row gives it.
struct RowInitialization {
  Initialization rule = Initialization::torch_linear;
  float deviation = 0;  ///< > 0: normal(0, deviation), biases 0, whatever `rule` says
};

/// The arguments of one row. Constructing it checks all of them: std::invalid_argument naming the argument,
/// what it is and what it may be.
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

}  // namespace fp16lab::engine::nn
