// Recipes: how the three products of a linear layer take their operands as codes with scales for blocks.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "engine/autograd/cast_policy.hpp"
#include "numerics/convert/quantizer.hpp"
#include "numerics/files/run/run_rows.hpp"

namespace fp16lab::engine::amp {

/// One row of the table. An operand has the same quantizer in both of its products, along the dimension over
/// which that product sums.
struct Recipe {
  std::string_view name;
  Quantizer x, weight, gradient;
  std::string_view source;
  bool delayed = false;  ///< scales of tensors come from the amaxes of earlier steps
  /// Three parts that may be left out: the gradient's codes are stochastic; both operands of dW go through a
  /// random Hadamard transform along the tokens; blocks of weights are squares, as `weight` has them, and not
  /// runs, as those of x.
  bool stochastic = false, hadamard = false, square_weights = false;
};
std::span<const Recipe> recipes();
/// The one of this name, or null.
const Recipe* find_recipe(std::string_view name);
/// std::invalid_argument with the known names if there is no such recipe.
const Recipe& recipe(std::string_view name);

/// What the recipe's products do without the parts that are false here. The row must outlive it.
ProductFormats formats_of(const Recipe& recipe, bool stochastic, bool hadamard, bool square_weights);

/// What a run keeps of the operands that its recipe rounds, by layer.
class RecipeRecords {
 public:
  /// Adds the layer's records to the formats of a recipe. Formats keep pointers to them.
  void attach(ProductFormats& formats, std::string_view layer);
  /// A new step: nothing is lost yet.
  void begin_step();
  /// Histories take the amaxes of the step, and so decide the scales of the next one.
  void end_step();
  /// What the step lost so far, by layer; products that did not happen have no row.
  std::vector<RecipeRow> rows(std::uint64_t step) const;

  /// The states of all histories, layer after layer (AmaxHistory::state).
  std::vector<float> histories() const;
  void restore(std::span<const float> histories);

 private:
  struct Layer {
    std::array<OperandRecord, 6> records;  ///< of forward, dx and dw: a and b
    std::vector<AmaxHistory> histories;    ///< of x, W and g; empty: scales are not delayed
  };
  std::map<std::string, Layer, std::less<>> layers_;
};

}  // namespace fp16lab::engine::amp
