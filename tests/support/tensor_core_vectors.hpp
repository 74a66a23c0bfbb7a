// The vectors of tests/golden/tensor_core_*.tsv.
#pragma once

#include <cstdint>
#include <fstream>
#include <sstream>
#include <stdexcept>
#include <string>
#include <vector>

#include "numerics/tensor_core/tensor_core_model.hpp"

namespace fp16lab::testing_support {

struct TensorCoreVector {
  std::string id, model, in, acc;
  std::vector<std::string> options;  ///< as `fp16lab mma` takes them: "--exponent-floor=-20"
  std::string a, b, c, d, source;

  std::string in_a() const { return in.substr(0, in.find(',')); }
  std::string in_b() const { return in.substr(in.find(',') + 1); }  ///< in_a() where there is no comma
  std::string line() const { return a + '\t' + b + '\t' + c; }      ///< as `fp16lab mma` reads it
};

inline std::vector<std::string> split(const std::string& text, char separator) {
  std::vector<std::string> parts;
  std::istringstream in(text);
  for (std::string part; std::getline(in, part, separator);) parts.push_back(part);
  return parts;
}

inline std::vector<std::uint32_t> hex_words(const std::string& text) {
  std::vector<std::uint32_t> words;
  for (const std::string& word : split(text, ' '))
    words.push_back(static_cast<std::uint32_t>(std::stoul(word, nullptr, 16)));
  return words;
}

inline const std::vector<std::string>& tensor_core_vector_files() {
  static const std::vector<std::string> files{"fp16_fp32", "bf16_tf32",   "fp16_fp16", "fp8",
                                              "captured",  "avx512_bf16", "options"};
  return files;
}

/// Every vector of one file, in its order.
inline std::vector<TensorCoreVector> tensor_core_vectors(const std::string& file) {
  const std::string path = std::string(FP16LAB_SOURCE_DIR) + "/tests/golden/tensor_core_" + file + ".tsv";
  std::ifstream in(path);
  if (!in) throw std::runtime_error("cannot read " + path);
  std::vector<TensorCoreVector> vectors;
  for (std::string line; std::getline(in, line);) {
    if (line.starts_with('#')) continue;
    const std::vector<std::string> fields = split(line, '\t');
    if (fields.size() != 10) throw std::runtime_error("expected 10 fields in a line of " + path);
    TensorCoreVector v{fields[0], fields[1], fields[2], fields[3], {},
                       fields[5], fields[6], fields[7], fields[8], fields[9]};
    if (fields[4] != "-") v.options = split(fields[4], ' ');
    vectors.push_back(std::move(v));
  }
  return vectors;
}

inline std::vector<TensorCoreVector> all_tensor_core_vectors() {
  std::vector<TensorCoreVector> all;
  for (const std::string& file : tensor_core_vector_files())
    for (TensorCoreVector& v : tensor_core_vectors(file)) all.push_back(std::move(v));
  return all;
}

/// The row that the vector is about, its options applied.
inline TensorCoreModel row_of(const TensorCoreVector& v) {
  TensorCoreModel row = tensor_core_model(v.model, operand_format(v.in_a()), accumulator_format(v.acc));
  for (const std::string& option : v.options) {
    const std::string name = option.substr(0, option.find('='));
    const std::string value = option.substr(option.find('=') + 1);
    if (name == "--block-size")
      row.set(&Stage::products, std::stoi(value));
    else if (name == "--fraction-bits")
      row.set(&Stage::fraction_bits, std::stoi(value));
    else if (name == "--exponent-floor")
      row.set(&Stage::exponent_floor, std::stoi(value));
    else if (option == "--subnormal-accumulator=own_exponent")
      row.subnormal_accumulator = SubnormalAccumulator::own_exponent;
    else if (option == "--underflow-zero=keeps_sign")
      row.underflow_zero = UnderflowZero::keeps_sign;
    else if (option == "--fp8-order=halves")
      row.stages =
          two_blocks_then_c(16, row.block().fraction_bits, row.block().output, row.block().exponent_floor);
    else
      throw std::runtime_error(v.id + ": unknown option " + option);
  }
  return row;
}

}  // namespace fp16lab::testing_support
