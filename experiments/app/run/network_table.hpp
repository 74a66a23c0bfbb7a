// A network as a table: what `fp16lab model` prints, manifests keep and pages show.
#pragma once

#include <nlohmann/json_fwd.hpp>

#include "experiments/app/config/run_plan.hpp"
#include "experiments/app/run/run_data.hpp"

namespace fp16lab::experiments {

/// {"name", "data", "batch_size", "parameters", "multiply_adds", "layers"}: a row a layer, {"layer", "type",
/// "inputs" (paths; "input": the network's own, of two networks "NAME.input"), "output" (its shape),
/// "parameters", "frozen", "to_float", "multiply_adds", "products" ({"times", "verb", "batch", "m", "n", "k",
/// "fills_tensor_cores"}; equal ones in a row are listed once)}. Multiply-adds and products are those of a
/// forward pass over one batch, counted on a back end that computes nothing. CommandError(usage) for rows
/// that make no network.
nlohmann::ordered_json network_table(const RunConfig& config, const RunData& data);

}  // namespace fp16lab::experiments
