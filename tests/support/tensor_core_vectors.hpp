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
  std::string scale = {}, a_scales = {}, b_scales = {};  ///< of a row with block scales; else empty

  std::string in_a() const { return in.substr(0, in.find(',')); }
  std::string in_b() const { return in.substr(in.find(',') + 1); }  ///< in_a() where there is no comma
  /// As `fp16lab mma` reads it.
  std::string line() const {
    return a + '\t' + b + '\t' + (scale.empty() ? "" : a_scales + '\t' + b_scales + '\t') + c;
  }
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
  static const std::vector<std::string> files{"fp16_fp32", "bf16_tf32", "fp16_fp16",
                                              "fp8",       "captured",  "avx512_bf16",
                                              "options",   "f8f6f4",    "block_scales"};
  return files;
}

/// The fields of every line of one file, `count` of them, but for comments.
inline std::vector<std::vector<std::string>> golden_lines(const std::string& file, std::size_t count) {
  const std::string path = std::string(FP16LAB_SOURCE_DIR) + "/tests/golden/tensor_core_" + file + ".tsv";
  std::ifstream in(path);
  if (!in) throw std::runtime_error("cannot read " + path);
  std::vector<std::vector<std::string>> lines;
  for (std::string line; std::getline(in, line);) {
    if (line.starts_with('#')) continue;
    lines.push_back(split(line, '\t'));
    if (lines.back().size() != count) throw std::runtime_error("wrong number of fields in a line of " + path);
  }
  return lines;
}

/// Every vector of one file, in its order.
inline std::vector<TensorCoreVector> tensor_core_vectors(const std::string& file) {
  std::vector<TensorCoreVector> vectors;
  if (file == "block_scales") {
    for (const std::vector<std::string>& f : golden_lines(file, 11))
      vectors.push_back({f[0], f[1], f[2], "f32", {}, f[4], f[5], f[8], f[9], f[10], f[3], f[6], f[7]});
    return vectors;
  }
  for (const std::vector<std::string>& f : golden_lines(file, 10)) {
    vectors.push_back({f[0], f[1], f[2], f[3], {}, f[5], f[6], f[7], f[8], f[9]});
    if (f[4] != "-") vectors.back().options = split(f[4], ' ');
  }
  return vectors;
}

/// The scales of a vector, whose words they share.
struct VectorScales {
  explicit VectorScales(const TensorCoreVector& v) {
    if (v.scale.empty()) return;
    a = hex_words(v.a_scales);
    b = hex_words(v.b_scales);
    kind = {v.scale == "e8m0" ? DType::e8m0 : DType::ue4m3,
            static_cast<int>(hex_words(v.a).size() / a.size())};
  }
  operator DotScales() const { return {kind, a, b}; }

  ScaleKind kind;
  std::vector<std::uint32_t> a, b;
};

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
    else if (option == "--subnormal-accumulator=fp16_emin")
      row.subnormal_accumulator = SubnormalAccumulator::fp16_emin;
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
