#include "engine/amp/levels/recipe.hpp"

#include <algorithm>
#include <stdexcept>

#include "numerics/text/nearest_name.hpp"

namespace fp16lab::engine::amp {

namespace {

Quantizer with_rule(std::string_view name, ScaleRule rule) {
  Quantizer changed = quantizer(name);
  changed.rule = rule;
  return changed;
}

std::vector<Recipe> table() {
  const Quantizer mxfp8 = with_rule("mxfp8", ScaleRule::rceil);
  const Quantizer mxfp8_e5m2 = with_rule("mxfp8-e5m2", ScaleRule::rceil);
  const Quantizer e3m2 = quantizer("mxfp6-e3m2"), e2m3 = quantizer("mxfp6-e2m3"), e2m1 = quantizer("mxfp4");
  const Quantizer nvfp4 = quantizer("nvfp4"), of_128 = quantizer("fp8-1x128");
  const Quantizer tensor = quantizer("fp8-tensor"), tensor_e5m2 = quantizer("fp8-tensor-e5m2");
  const Quantizer te_of_128 = with_rule("fp8-1x128", ScaleRule::te_pow2);
  constexpr std::string_view mx = "OCP MX 1.0";
  return {
      {"mxfp8", mxfp8, mxfp8, mxfp8, "Transformer Engine, MXFP8BlockScaling"},
      {"mxfp8-hybrid", mxfp8, mxfp8, mxfp8_e5m2, "Transformer Engine, MXFP8BlockScaling(Format.HYBRID)"},
      {"mxfp6-e3m2", e3m2, e3m2, e3m2, mx},
      {"mxfp6-e2m3", e2m3, e2m3, e2m3, mx},
      {"mxfp4", e2m1, e2m1, e2m1, mx},
      {"nvfp4", nvfp4, quantizer("nvfp4-2d"), nvfp4,
       "Transformer Engine, NVFP4BlockScaling; arXiv 2509.25149", false, true, true, true},
      {"deepseek-fp8", of_128, quantizer("fp8-128x128"), of_128, "DeepSeek-V3, arXiv 2412.19437"},
      {"te-delayed", tensor, tensor, tensor_e5m2, "Transformer Engine, DelayedScaling", true},
      {"te-current", tensor, tensor, tensor_e5m2, "Transformer Engine, Float8CurrentScaling"},
      {"te-block", te_of_128, with_rule("fp8-128x128", ScaleRule::te_pow2), te_of_128,
       "Transformer Engine, Float8BlockScaling"},
  };
}

constexpr std::size_t x = 0, weight = 1, gradient = 2;
/// What the operands of the records are: of forward, dx and dw.
constexpr std::array<std::size_t, 6> operand_of{x, weight, gradient, weight, gradient, x};
constexpr std::array<std::string_view, 3> products{"forward", "dx", "dw"};
constexpr std::array<std::string_view, 3> tensors{".input", ".weight", ".output"};

}  // namespace

std::span<const Recipe> recipes() {
  static const std::vector<Recipe> rows = table();
  return rows;
}

const Recipe* find_recipe(std::string_view name) {
  const auto found = std::ranges::find(recipes(), name, &Recipe::name);
  return found == recipes().end() ? nullptr : &*found;
}

const Recipe& recipe(std::string_view name) {
  if (const Recipe* const known = find_recipe(name)) return *known;
  std::vector<std::string_view> names;
  for (const Recipe& row : recipes()) names.push_back(row.name);
  throw std::invalid_argument("unknown recipe '" + std::string(name) + "': " + known_are(name, names));
}

ProductFormats formats_of(const Recipe& recipe, bool stochastic, bool hadamard, bool square_weights) {
  const bool squares = square_weights || !recipe.square_weights;
  const OperandRounding of_x{.delayed = recipe.delayed, .quantizer = &recipe.x},
      of_weight{.delayed = recipe.delayed, .quantizer = squares ? &recipe.weight : &recipe.x},
      of_gradient{.stochastic = stochastic && recipe.stochastic,
                  .delayed = recipe.delayed,
                  .quantizer = &recipe.gradient};
  ProductFormats formats{
      .forward = {of_x, of_weight}, .dx = {of_gradient, of_weight}, .dw = {of_gradient, of_x}};
  formats.dw.a.hadamard = formats.dw.b.hadamard = hadamard && recipe.hadamard;
  return formats;
}

void RecipeRecords::attach(ProductFormats& formats, std::string_view layer) {
  const auto [place, is_new] = layers_.try_emplace(std::string(layer));
  auto& [records, histories] = place->second;
  if (is_new && formats.forward.a.delayed) {
    for (const OperandRounding* rounding : {&formats.forward.a, &formats.forward.b, &formats.dx.a})
      histories.emplace_back(rounding->quantizer->element);
    for (std::size_t i = 0; i < records.size(); ++i) records[i].history = &histories[operand_of[i]];
  }
  OperandRecord* record = records.data();
  for (ProductOperands* const product : {&formats.forward, &formats.dx, &formats.dw}) {
    product->a_record = record++;
    product->b_record = record++;
  }
}

void RecipeRecords::begin_step() {
  for (auto& [name, layer] : layers_)
    for (OperandRecord& record : layer.records) record.loss = {};
}

void RecipeRecords::end_step() {
  for (auto& [name, layer] : layers_)
    for (std::size_t operand = 0; operand < layer.histories.size(); ++operand) {
      QuantizerLoss seen;
      for (std::size_t i = 0; i < layer.records.size(); ++i)
        if (operand_of[i] == operand) seen += layer.records[i].loss;
      if (seen.values > 0) layer.histories[operand].see(seen.amax);
    }
}

std::vector<RecipeRow> RecipeRecords::rows(std::uint64_t step) const {
  std::vector<RecipeRow> rows;
  for (const auto& [name, layer] : layers_)
    for (std::size_t i = 0; i < layer.records.size(); ++i) {
      const QuantizerLoss& loss = layer.records[i].loss;
      if (loss.values == 0) continue;
      RecipeRow& row = rows.emplace_back(RecipeRow{.step = step,
                                                   .tensor = name + std::string(tensors[operand_of[i]]),
                                                   .product = std::string(products[i / 2]),
                                                   .values = loss.values,
                                                   .made_zero = loss.made_zero,
                                                   .saturated = loss.saturated,
                                                   .blocks = loss.blocks,
                                                   .saturated_blocks = loss.saturated_blocks});
      if (loss.blocks == 0) continue;
      row.least_headroom = loss.least_headroom;
      row.mean_headroom = loss.headroom_sum / static_cast<double>(loss.blocks);
    }
  return rows;
}

std::vector<float> RecipeRecords::histories() const {
  std::vector<float> all;
  for (const auto& [name, layer] : layers_)
    for (const AmaxHistory& history : layer.histories) {
      const std::vector<float> state = history.state();
      all.insert(all.end(), state.begin(), state.end());
    }
  return all;
}

void RecipeRecords::restore(std::span<const float> histories) {
  for (auto& [name, layer] : layers_)
    for (AmaxHistory& history : layer.histories) {
      const std::size_t size = std::min(histories.size(), history.state().size());
      history.restore(histories.first(size));
      histories = histories.subspan(size);
    }
  if (!histories.empty()) throw std::invalid_argument("amax histories of more layers than the network has");
}

}  // namespace fp16lab::engine::amp
