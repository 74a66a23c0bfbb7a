// [[model.layer]] and [[model.block]] of a configuration as the rows of a network, and back.
#pragma once

#include <toml++/toml.h>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "engine/nn/network/layer_row.hpp"

namespace fp16lab::experiments {

/// Reads `model.layer` and `model.block` of a [model] table: rows and blocks in the order of the file.
/// CommandError(usage) "SOURCE:LINE: ..." for what is no row, an unknown type and an argument that the type
/// does not have, with the nearest name, and for a value that it cannot be.
engine::nn::NetworkRows read_network_rows(const toml::table& model, std::string_view source);

/// Sets an argument of the row that is called so in the file: "model.layer.h{}.fc.out_features=64", where
/// "h{}" is the block's name, or repeat of a block, "model.block.h{}.repeat=4". CommandError(usage) that
/// begins with `where`.
void set_network_value(engine::nn::NetworkRows& rows, std::string_view key, std::string_view value,
                       std::string_view where);

/// As TOML, one row a line where it fits: read_network_rows gives back the same rows.
std::string network_toml(const engine::nn::NetworkRows& rows);

/// What the rows say, by the names that set_network_value takes, as TOML text: "model.layer.fc1.type" is
/// "\"linear\"". A name of nothing that could be set says where the row is.
std::map<std::string, std::string> network_values(const engine::nn::NetworkRows& rows);

/// "conv1=f32" for each row, in every repetition, that says to_float.
std::vector<std::string> to_float_of(const engine::nn::NetworkRows& rows);

}  // namespace fp16lab::experiments
