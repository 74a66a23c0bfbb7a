// The rows of a network, as a file or a program lists them: plain data, without a back end.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <variant>
#include <vector>

namespace fp16lab::engine::nn {

/// The value of an argument: 3, [3, 3], 0.5, true or "same". Integers serve where a real number is meant.
using LayerValue = std::variant<bool, std::int64_t, double, std::string, std::vector<std::int64_t>>;

/// One layer. Types and their arguments: layer_types().
struct LayerRow {
  std::string type;       ///< "conv2d"
  std::string name = {};  ///< dots allowed; empty: its type and how many of that type came before, "relu1"
  /// Names of earlier rows or blocks; "input" is what the network, or the block, was given. Empty: the row
  /// before.
  std::vector<std::string> inputs = {};
  std::vector<std::pair<std::string, LayerValue>> arguments = {};
  std::string to_float = {};  ///< "f32", "f16" or "bf16": as "PATH=f32" in amp::AmpOptions::to_float
  bool frozen = false;        ///< its parameters do not train
  std::string where = {};     ///< "net.toml:12", for messages; may be empty

  /// Ignores the rows' positions and the order of the arguments.
  bool operator==(const LayerRow& other) const;
};

/// Rows under a common name, one after the other `repeat` times. A row's path is "NAME.ROW", where "{}" in
/// NAME becomes first, first + 1, ...; a name without it gets ".0", ".1", ... where the block is repeated, as
/// in torch.nn.Sequential. A block's path, "h0", names the output of its last row. Rows outside blocks are a
/// block without a name.
struct LayerBlock {
  std::string name = {};
  std::string input = {};  ///< its input, as a row's; empty: the output of the row before
  std::int64_t repeat = 1;
  std::int64_t first = 0;
  std::vector<LayerRow> rows = {};
  std::string where = {};

  bool operator==(const LayerBlock& other) const;  ///< ignores its position
};

using NetworkRows = std::vector<LayerBlock>;

/// The most rows that a network may have, each as often as its block says.
inline constexpr std::int64_t most_layers = 200000;

/// A row with its place in the network.
struct PlacedRow {
  std::string path;               ///< "h0.mlp.fc": for parameters, random streams and records
  std::string prefix;             ///< "h0." of its block; empty: none
  std::vector<int> inputs;        ///< positions of rows; network_input: what the network is given
  const LayerRow* row = nullptr;  ///< a row of the NetworkRows that were placed
};
inline constexpr int network_input = -1;

/// The names of all rows, in their order: a row's own name, or that of a row without one, its type and a
/// number: "relu2" for the second such row of its block, or of all rows outside blocks.
std::vector<std::string> names_of_rows(const NetworkRows& network);

/// Blocks unrolled, names made unique and inputs found. std::invalid_argument "WHERE: ..." for a name that is
/// taken or empty in parts, an input that is no earlier row, a row whose output nothing uses, and where there
/// are no rows or more than `most_layers`.
std::vector<PlacedRow> placed(const NetworkRows& network);

}  // namespace fp16lab::engine::nn
