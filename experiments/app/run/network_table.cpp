#include "experiments/app/run/network_table.hpp"

#include <memory>
#include <nlohmann/json.hpp>
#include <stdexcept>
#include <utility>
#include <vector>

#include "engine/amp/levels/op_statistics.hpp"
#include "engine/autograd/tape.hpp"
#include "engine/backend/counting/counting_backend.hpp"
#include "experiments/app/exit_code.hpp"

namespace fp16lab::experiments {
namespace {

using engine::CountedProduct;
using engine::CountingBackend;
using engine::nn::Network;
using engine::nn::NetworkLayer;
using Json = nlohmann::ordered_json;

struct LayerCosts {
  const NetworkLayer* layer;
  std::vector<CountedProduct> products;  ///< of a forward pass over one batch
};

/// A forward pass that computes nothing, layer by layer.
std::vector<LayerCosts> forward_costs(CountingBackend& backend, Network& network, std::int64_t batch) {
  std::vector<LayerCosts> all;
  backend.clear_products();
  network.watch([&](std::size_t position) {
    all.push_back({&network.layers()[position], backend.products()});
    backend.clear_products();
  });
  const engine::nn::Signal& input = network.input();
  engine::Tape tape(backend);
  tape.set_context({.training = true, .step = backend.make_step_state({})});
  const DType dtype = input.vocabulary > 0 ? DType::i32 : DType::f32;
  network.forward(tape, tape.constant(backend.empty(input.shape(batch), dtype)));
  return all;
}

/// Does the shape fill tensor cores with 16-bit operands?
bool fills(const CountedProduct& product) {
  return product.n % engine::amp::channel_multiple == 0 && product.k % engine::amp::channel_multiple == 0 &&
         product.m % engine::amp::channel_multiple == 0;
}

Json product_json(const CountedProduct& product) {
  return {{"times", 1},
          {"verb", product.verb},
          {"batch", product.batch},
          {"m", product.m},
          {"n", product.n},
          {"k", product.k},
          {"fills_tensor_cores", fills(product)}};
}

/// Equal ones that follow each other are one row, as the steps of an LSTM.
void add_product(Json& products, const CountedProduct& product) {
  Json row = product_json(product);
  if (!products.empty()) {
    row["times"] = products.back().at("times");
    if (row == products.back()) {
      products.back()["times"] = row.at("times").get<std::int64_t>() + 1;
      return;
    }
    row["times"] = 1;
  }
  products.push_back(std::move(row));
}

Json layer_json(const LayerCosts& costs) {
  double multiply_adds = 0;
  Json products = Json::array();
  for (const CountedProduct& product : costs.products) {
    multiply_adds += product.multiply_adds();
    add_product(products, product);
  }
  return {{"layer", costs.layer->path},
          {"type", costs.layer->type},
          {"inputs", costs.layer->inputs},
          {"output", costs.layer->output.to_string()},
          {"parameters", costs.layer->parameters},
          {"frozen", costs.layer->frozen},
          {"to_float", costs.layer->to_float},
          {"multiply_adds", multiply_adds},
          {"products", std::move(products)}};
}

/// Two networks have two inputs: "generator.input".
void name_its_input(Json& layer) {
  const auto& path = layer.at("layer").get_ref<const std::string&>();
  for (Json& input : layer.at("inputs"))
    if (input == "input") input = path.substr(0, path.find('.')) + ".input";
}

}  // namespace

Json network_table(const RunConfig& config, const RunData& data) {
  const std::int64_t batch = batch_size_of(config);
  Json table{{"name", config.model.name}, {"data", config.data.name}, {"batch_size", batch}};
  CountingBackend backend;
  Json layers = Json::array();
  std::int64_t parameters = 0;
  double multiply_adds = 0;
  try {
    const std::vector<std::unique_ptr<Network>> networks = make_networks(backend, config, data.shape());
    for (const std::unique_ptr<Network>& network : networks)
      for (const LayerCosts& costs : forward_costs(backend, *network, batch)) {
        layers.push_back(layer_json(costs));
        if (networks.size() > 1) name_its_input(layers.back());
        parameters += costs.layer->parameters;
        multiply_adds += layers.back().at("multiply_adds").get<double>();
      }
  } catch (const std::invalid_argument& error) {
    throw CommandError(ExitCode::usage, error.what());
  }
  table["parameters"] = parameters;
  table["multiply_adds"] = multiply_adds;
  table["layers"] = std::move(layers);
  return table;
}

}  // namespace fp16lab::experiments
