// A row of the tensor-core table that a user writes: fp16lab mma --row FILE.toml.
#pragma once

#include <filesystem>
#include <memory>
#include <string>
#include <string_view>

#include "numerics/tensor_core/tensor_core_model.hpp"

namespace fp16lab::experiments {

struct OwnRow {
  std::shared_ptr<const std::string> name;  ///< what row.name views
  TensorCoreModel row;
  DType operands;  ///< those asked for, or the first that the file names, or f16
};

/// What --help says of the keys: lines, one a key.
std::string tensor_core_row_keys();

/// The row that `toml` describes; errors name `source` and the line. `operands` and `accumulator` are names
/// of formats, or empty where the user has asked for none. Keys, each at most once and none but these:
///   name                   text; default: `source` without folder and extension
///   base                   a generation, whose row for these formats gives what the file does not say
///   operands               names of formats, such as ["f16", "bf16"]
///   block_size             L, 1 to 64
///   fraction_bits          F, 1 to 48
///   exponent_floor         E0, -1000 to 1000
///   output, subnormal_accumulator, underflow_zero    names of enumerators of TensorCoreModel
///   stage                  instead of block_size, fraction_bits, exponent_floor and output: an array of
///                          tables, the fields of Stage (those of its share beside the others)
///   as_fp16                true or false
/// Without base, operands, block_size, fraction_bits, exponent_floor and output, or operands and stages, must
/// be there; the others have TensorCoreModel's defaults. CommandError (usage) for text that
/// is no TOML, an unknown or missing key, a value of another type or range, and keys that contradict each
/// other, the formats asked for or the dataflow; std::invalid_argument for `operands` or `accumulator` that
/// is no format.
OwnRow parse_tensor_core_row(std::string_view toml, std::string_view source, const std::string& operands = {},
                             const std::string& accumulator = {});

/// The same from a file. CommandError (usage) also where it cannot be read.
OwnRow load_tensor_core_row(const std::filesystem::path& path, const std::string& operands,
                            const std::string& accumulator);

}  // namespace fp16lab::experiments
