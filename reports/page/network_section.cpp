// The network of a workload: its layers as a table, and the drawing.
#include <fmt/core.h>

#include <nlohmann/json.hpp>
#include <stdexcept>

#include "numerics/text/nesting.hpp"
#include "numerics/text/text.hpp"
#include "reports/page/html.hpp"
#include "reports/page/marked.hpp"
#include "reports/page/page_sections.hpp"
#include "reports/page/table.hpp"

namespace fp16lab::reports {
namespace {

std::string count_text(double count) {
  if (count < 1e5) return fmt::format("{:.0f}", count);
  return count < 1e8 ? fmt::format("{:.2f} M", count * 1e-6) : fmt::format("{:.2f} G", count * 1e-9);
}

/// "640 × 10 × 84"; with a star where 16 bits do not fill tensor cores.
std::string products_text(const OrderedJson& products, bool& any_unfilled) {
  std::string text;
  for (const OrderedJson& product : products) {
    const auto extent = [&](const char* name) { return product.at(name).get<std::int64_t>(); };
    const bool fills = product.at("fills_tensor_cores").get<bool>();
    any_unfilled |= !fills;
    text += fmt::format("{}{}{}{} × {} × {}{}", text.empty() ? "" : ", ",
                        extent("times") == 1 ? "" : fmt::format("{} times ", extent("times")),
                        extent("batch") == 1 ? "" : fmt::format("{} of ", extent("batch")), extent("m"),
                        extent("n"), extent("k"), fills ? "" : "*");
  }
  return text.empty() ? "–" : text;
}

/// ", frozen, f32"
std::string marks_of(const OrderedJson& layer) {
  const std::string to_float = layer.at("to_float");
  return std::string(layer.at("frozen").get<bool>() ? ", frozen" : "") +
         (to_float.empty() ? "" : ", " + to_float);
}

const std::string* model_of(const RunSet& set, const Workload& workload) {
  for (const Configuration& configuration : workload.configurations)
    for (const std::size_t run : configuration.runs)
      if (const std::string& model = set.runs[run].folder.manifest.model; !model.empty()) return &model;
  return nullptr;
}

OrderedJson layers_of(const OrderedJson& model, bool& any_unfilled) {
  const std::vector<TableColumn> columns{
      {"layer", "The layer’s name; names in a block begin with the block’s.", true},
      {"type", "PyTorch’s name; frozen: not trained; f32: computed in FP32 at every level.", true},
      {"input", "The layers whose outputs it takes.", true},
      {"output", "Shape; N is the batch.", true},
      {"parameters", "Number of trained values."},
      {"multiply-adds", "In a forward pass over one batch."},
      {"products m × n × k", "Rows, columns and summed terms of its matrix products.", true}};
  std::vector<TableRow> rows;
  for (const OrderedJson& layer : model.at("layers")) {
    std::string inputs;
    for (const OrderedJson& input : layer.at("inputs"))
      inputs += (inputs.empty() ? "" : ", ") + input.get<std::string>();
    const double parameters = layer.at("parameters"), multiply_adds = layer.at("multiply_adds");
    rows.push_back({{{plain(layer.at("layer").get<std::string>())},
                     {plain(layer.at("type").get<std::string>() + marks_of(layer))},
                     {plain(inputs)},
                     {plain(layer.at("output").get<std::string>())},
                     {fmt::format("{:.0f}", parameters), parameters},
                     {count_text(multiply_adds), multiply_adds},
                     {products_text(layer.at("products"), any_unfilled)}}});
  }
  return table_json("Layers of the network", columns, rows);
}

}  // namespace

OrderedJson network_json(const RunSet& set, const WorkloadMaterial& material, bool drawn) {
  const std::string* text = model_of(set, *material.workload);
  if (text == nullptr) return nullptr;
  const auto& [stem, svg] = material.network;
  try {
    const OrderedJson model = parse_json(*text);
    bool any_unfilled = false;
    OrderedJson layers = layers_of(model, any_unfilled);
    return {{"summary",
             fmt::format("The network: {} with {} parameters, {} multiply-adds for a batch of {}",
                         counted(model.at("layers").size(), "module"), count_text(model.at("parameters")),
                         count_text(model.at("multiply_adds")), model.at("batch_size").get<std::int64_t>())},
            {"layers", std::move(layers)},
            {"unfilled", any_unfilled},
            {"file", svg.empty() ? OrderedJson(nullptr) : OrderedJson(stem)},
            {"picture",
             svg.empty() || !drawn ? OrderedJson(nullptr) : OrderedJson(data_url("image/svg+xml", svg))}};
  } catch (const OrderedJson::exception& error) {
    throw std::runtime_error(
        fmt::format("the manifest's 'model' is not a network's table: {}", error.what()));
  }
}

}  // namespace fp16lab::reports
