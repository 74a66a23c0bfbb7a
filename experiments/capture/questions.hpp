// What a tensor core is asked, as rows of vectors, and the file of its answers.
#pragma once

#include <cmath>
#include <cstdlib>
#include <ostream>

#include "tensor_core.hpp"

namespace fp16lab::probe {

/// One dot product: k words of a and of b.
struct Vector {
  std::string id;  ///< as in the golden files: "V37", "P2"
  Words a, b;
  std::uint32_t c = 0;
};

/// Vectors as text. "{i}" in it means each of the numbers, "{j}" for each number above that up to 7.
struct VectorRow {
  std::string id;
  /// "0: 2^-25, last: -2^-41, all: -0*1": places along k and their products. A power of two has half of its
  /// exponent in a and the rest, with the sign, in b; a*b says both. Places that are not named hold +0.
  std::string products;
  std::string c = "0";
  std::vector<int> numbers = {0};
};

/// The vectors of one probe, and the instructions that are asked them. What the answers may be, and which one
/// the table of tensor cores gives, experiments/tensor_core_probe/questions.cpp says.
struct QuestionRow {
  const char* probe;  ///< "P1"
  std::vector<const char*> instructions;
  std::vector<VectorRow> vectors;
};

inline std::vector<int> from_to(int first, int last) {
  std::vector<int> list;
  for (int i = first; i <= last; ++i) list.push_back(i);
  return list;
}

/// P7's vectors: the big and the tiny power of two are so far apart that one tiny term is lost beside the big
/// one, and two are not, which add up if they meet before it, or with it in one block.
inline std::vector<VectorRow> fp8_orders(int big_exponent, int tiny_exponent) {
  const std::string big = "2^" + std::to_string(big_exponent), tiny = "2^" + std::to_string(tiny_exponent);
  const std::string c = "0x1p" + std::to_string(big_exponent);
  return {{"P7-k0-k1-k{i}", "0: " + big + ", 1: " + tiny + ", {i}: " + tiny, "0", from_to(2, 31)},
          {"P7-k3-k0-k{i}", "3: " + big + ", 0: " + tiny + ", {i}: " + tiny, "0", {1, 2, 16, 31}},
          {"P7-k31-k0-k{i}", "31: " + big + ", 0: " + tiny + ", {i}: " + tiny, "0", {1, 2, 16, 30}},
          {"P7-c-k0-k{i}", "0: " + tiny + ", {i}: " + tiny, c, {1, 2, 16}},
          {"P7-c-nearest", "0: " + tiny + ", 1: 2^" + std::to_string(tiny_exponent - 1), c},
          // Narrow alignment: 14 bits, in blocks of 16 or 32.
          {"P7-narrow", "0: 2^0, 1: 2^0, 2: 2^-13, 16: 2^-13"},
          {"P7-narrow-lost", "0: 2^0, 1: 2^-14, 2: 2^-14"}};
}

/// The open points of the published models. First what training on a device rests on and no published row
/// shows. Numbers of vectors (V37) and probes are those of tests/golden/tensor_core_*.tsv.
inline const std::vector<QuestionRow>& question_rows() {
  static const std::vector<const char*> half_sums = {"mma.m8n8k4.f16.f16", "mma.m16n8k8.f16.f16",
                                                     "mma.m16n8k16.f16.f16", "wgmma.m64n8k16.f16.f16"};
  static const std::vector<QuestionRow> rows{
      // m16n8k8 is what products end with whose K leaves 8 or fewer, also where the tensor core takes 16 at
      // once. Two terms that only together change c = 1 share a block. How small a term counts beside c: it
      // is taken from 1, or breaks the tie of 1 + 2^-11.
      {"P12",
       {"mma.m16n8k8.f32.f16", "mma.m16n8k8.f32.bf16"},
       {{"P5-k{i}-k{j}", "{i}: 2^-24, {j}: 2^-24", "1", from_to(0, 6)},
        {"P12-2^-{i}", "1: -2^-{i}", "1", from_to(21, 27)}}},
      {"P12",
       {"mma.m16n8k8.f16.f16"},
       {{"P12-k0-k{i}", "0: 2^-11, {i}: 2^-11", "1", from_to(1, 7)},
        {"P12-2^-{i}", "0: 2^-11, 1: 2^-{i}", "1", from_to(21, 27)}}},
      // Negative sums below the least number, in the instruction's first block and in its last: a later one
      // would make +0 of -0. What is dropped whole before the addition is no sum that could have a sign.
      {"P3",
       {"mma.m16n8k8.f32.bf16", "mma.m16n8k16.f32.bf16", "wgmma.m64n8k16.f32.bf16"},
       {{"P3b", "0: -2^-150"},
        {"P3b-last", "last: -2^-150"},
        {"P3-3/4", "last: 0x3p-76*-0x1p-75"},
        {"P3-dropped", "last: -2^-170"}}},
      // 2^-25 is half of FP16's least number, a tie that only a visible tiny term breaks.
      {"P1",
       half_sums,
       {{"P1-2^-{i}", "0: 2^-25, 1: 2^-{i}", "0", {40, 41, 42, 43, 44, 46, 48}},
        {"V37", "0: 2^-25, 1: 2^-45"},
        {"V38", "0: 2^-25, 1: 2^-47"}}},
      // A subnormal c with half of its last place, a tie, and a tiny term that only a fine alignment sees.
      {"P2",
       half_sums,
       {{"P2", "0: 2^-25, 1: -2^-41", "0x1p-24"},
        {"P2-minus", "0: -2^-25, 1: 2^-41", "-0x1p-24"},
        {"P2-3", "0: 2^-25, 1: -2^-41", "0x3p-24"}}},
      {"P3", half_sums, {{"P3", "0: -2^-26"}, {"P3-last", "last: -2^-26"}, {"P3-tie", "last: -2^-25"}}},
      {"P3",
       {"mma.m16n8k8.f32.tf32", "wgmma.m64n8k8.f32.tf32"},
       {{"P3c", "0: -2^-150"},
        {"P3c-last", "last: -2^-150"},
        {"P3-3/4", "last: 0x3p-76*-0x1p-75"},
        {"P3-dropped", "last: -2^-170"}}},
      {"P4",
       {"mma.m8n8k4.f32.f16", "mma.m8n8k4.f16.f16", "mma.m16n8k8.f32.f16", "mma.m16n8k8.f16.f16",
        "mma.m16n8k16.f32.f16", "mma.m16n8k16.f16.f16", "mma.m16n8k16.f32.bf16", "mma.m16n8k8.f32.tf32",
        "wgmma.m64n8k16.f32.f16", "wgmma.m64n8k16.f16.f16", "wgmma.m64n8k16.f32.bf16",
        "wgmma.m64n8k8.f32.tf32", "wgmma.m64n8k32.f32.e4m3"},
       {{"V29", "all: -0*1", "-0"},
        {"V29-one+0", "all: -0*1, last: 0*1", "-0"},
        {"V29-c+0", "all: -0*1"},
        {"P4-c-0", "", "-0"},
        {"V30", "0: 1*1", "-1"},
        {"P4-products", "0: 1*1, 1: -1*1"}}},
      // c = 1 and 2^-24 at two places: 1 + 2^-23 exactly if the two are in one block.
      {"P5",
       {"mma.m16n8k8.f32.tf32", "wmma.m16n16k8.f32.tf32", "wgmma.m64n8k8.f32.tf32"},
       {{"V35", "0: 2^-24, 4: 2^-24", "1"}, {"P5-k{i}-k{j}", "{i}: 2^-24, {j}: 2^-24", "1", from_to(0, 6)}}},
      // 2^-149 less a tiny term: the least number, or just below it and truncated to zero.
      {"P6",
       {"mma.m16n8k16.f32.bf16", "mma.m16n8k8.f32.tf32", "wgmma.m64n8k16.f32.bf16", "wgmma.m64n8k8.f32.tf32"},
       {{"V34", "0: 0x1p-75*0x1p-74, 1: -2^-156"},
        {"V34b", "0: 0x1p-75*0x1p-74, 1: -2^-157"},
        {"V34c", "0: 0x1p-75*0x1p-74, 1: -2^-159"},
        {"P6-2^-{i}", "0: 0x1p-75*0x1p-74, 1: -2^-{i}", "0", {154, 155, 158, 160}}}},
      {"P7", {"mma.m16n8k32.f32.e4m3", "mma.m16n8k32.f32.e5m2"}, fp8_orders(16, -8)},
      {"P7",
       {"mma.m16n8k32.f16.e4m3", "mma.m16n8k32.f16.e5m2"},
       [] {
         std::vector<VectorRow> vectors = fp8_orders(11, 0);
         vectors.push_back({"V53", "0: 2^-11, 1: 2^-13", "1"});
         vectors.push_back({"V53b", "0: 2^-11, 1: 2^-14", "1"});
         return vectors;
       }()},
      // What wgmma makes of the accumulator that it must not read.
      {"P10",
       {"wgmma.m64n8k16.f32.f16", "wgmma.m64n8k16.f16.f16", "wgmma.m64n8k32.f32.e4m3"},
       {{"P10-nan", "0: 1*1, 1: 1*1", "nan"},
        {"P10-inf", "0: 1*1, 1: 1*1", "inf"},
        {"P10-minus-inf", "0: 1*1, 1: 1*1", "-inf"},
        {"P10-one", "0: 1*1, 1: 1*1", "1"},
        {"P10-zeros", "0: -0*1", "-0"}}},
      // c among 13 fraction bits. Two products are each lost beside it, or both kept; it is lost beside a
      // product; 3 + 2^-11 has 14 bits, and 2 + 2^-13 has 15.
      {"P11",
       {"wgmma.m64n8k32.f32.e4m3", "wgmma.m64n8k32.f32.e5m2"},
       {{"V45", "", "0x1.000002p0"},
        {"V45b", "", "0x1.fffffep0"},
        {"V45c", "", "-0x1.fffffep0"},
        {"P11-kept", "", "0x1.0008p0"},
        {"P11-products", "0: 2^-14, 1: 2^-14", "1"},
        {"P11-c-small", "0: 2^0, 1: 2^-14", "0x1p-14"},
        {"P11-output", "0: 2^1, 1: 2^0", "0x1p-11"},
        {"P11-output-2", "0: 2^0, 1: 2^-13", "1"}}},
  };
  return rows;
}

/// One vector, of a row without "{i}".
inline Vector read_vector(const VectorRow& row, const Instruction& in) {
  const auto word = [](const Format& format, const std::string& text) {
    return encode(format, std::strtof(text.c_str(), nullptr));
  };
  Vector vector{row.id, Words(in.k), Words(in.k), word(in.accumulator, row.c)};
  for (std::size_t begin = 0; begin < row.products.size();) {
    const std::size_t end = std::min(row.products.find(", ", begin), row.products.size());
    const std::string term = row.products.substr(begin, end - begin);
    begin = end + 2;
    const std::string place = term.substr(0, term.find(':')), product = term.substr(term.find(' ') + 1);
    const std::size_t first = place == "all"    ? 0
                              : place == "last" ? in.k - 1
                                                : static_cast<std::size_t>(std::stoi(place));
    const std::size_t star = product.find('*'), power = product.find("2^");
    std::uint32_t a, b;
    if (star != std::string::npos) {
      a = word(in.operands, product.substr(0, star));
      b = word(in.operands, product.substr(star + 1));
    } else {
      const int exponent = std::stoi(product.substr(power + 2));
      a = encode(in.operands, std::ldexp(1.0f, exponent / 2));
      b = encode(in.operands, std::ldexp(power == 0 ? 1.0f : -1.0f, exponent - exponent / 2));
    }
    for (std::size_t k = first; k < (place == "all" ? in.k : first + 1); ++k) {
      vector.a.at(k) = a;
      vector.b.at(k) = b;
    }
  }
  return vector;
}

inline std::vector<Vector> vectors_of(const QuestionRow& question, const Instruction& in) {
  const auto with = [](VectorRow row, const std::string& name, int number) {
    for (std::string* text : {&row.id, &row.products})
      for (std::size_t at; (at = text->find(name)) != std::string::npos;)
        text->replace(at, name.size(), std::to_string(number));
    return row;
  };
  std::vector<Vector> vectors;
  for (const VectorRow& row : question.vectors)
    for (const int i : row.numbers) {
      const VectorRow one = with(row, "{i}", i);
      if (one.id.find("{j}") == std::string::npos)
        vectors.push_back(read_vector(one, in));
      else
        for (int j = i + 1; j <= 7; ++j) vectors.push_back(read_vector(with(one, "{j}", j), in));
    }
  return vectors;
}

/// One tile per vector, which is in every row and column: the same output m x n times.
inline Tiles tiles_of(const Instruction& in, const std::vector<Vector>& vectors) {
  Tiles tiles{vectors.size(), {}, {}, {}};
  for (const Vector& vector : vectors) {
    for (std::size_t row = 0; row < in.m; ++row)
      tiles.a.insert(tiles.a.end(), vector.a.begin(), vector.a.end());
    for (std::size_t column = 0; column < in.n; ++column)
      tiles.b.insert(tiles.b.end(), vector.b.begin(), vector.b.end());
    tiles.c.insert(tiles.c.end(), in.outputs(), vector.c);
  }
  return tiles;
}

/// Operands of many calls of a plain FP16 instruction; those that it does not read may be left out.
struct HalfCalls {
  Words x, y, z;
  void add(std::uint32_t a, std::uint32_t b = 0, std::uint32_t c = 0) {
    x.push_back(a);
    y.push_back(b);
    z.push_back(c);
  }
  /// Every operand in both halves of its word.
  HalfCalls doubled() const {
    HalfCalls calls = *this;
    for (Words* words : {&calls.x, &calls.y, &calls.z})
      for (std::uint32_t& word : *words) word |= word << 16;
    return calls;
  }
  /// The operands that the operation reads, of call i.
  Words of(HalfOperation operation, std::size_t i) const {
    Words operands{x[i]};
    if (arity_of(operation) > 1) operands.push_back(y[i]);
    if (arity_of(operation) > 2) operands.push_back(z[i]);
    return operands;
  }
};

/// P8: quiet, signalling and negative NaNs in every place, and the invalid operations.
inline HalfCalls nan_calls(HalfOperation operation) {
  HalfCalls calls;
  constexpr std::uint32_t one = 0x3c00, infinity = 0x7c00, sign = 0x8000;
  if (operation == HalfOperation::cvt_f16_f32) {
    for (const std::uint32_t nan : {0x7fc00000U, 0x7fc02000U, 0x7f800001U, 0x7f802000U, 0x7fffffffU,
                                    0xffc00000U, 0xff800001U, 0xffffffffU})
      calls.add(nan);
    return calls;
  }
  const bool fma = operation == HalfOperation::fma;
  for (const std::uint32_t nan : {0x7e00U, 0x7e01U, 0x7c01U, 0x7dffU, 0x7fffU, 0xfe00U, 0xfc01U, 0xffffU}) {
    calls.add(nan, one, one);
    if (arity_of(operation) == 1) continue;
    calls.add(one, nan, one);
    calls.add(fma ? one : nan, fma ? one : 0xfe55, nan);
  }
  if (operation == HalfOperation::add) calls.add(infinity, infinity | sign);
  if (operation == HalfOperation::mul) calls.add(infinity, sign);
  if (fma) {
    calls.add(infinity, 0, one);
    calls.add(infinity, one, infinity | sign);
  }
  return calls;
}

/// The first line of every capture.
inline constexpr std::string_view capture_heading = "fp16lab capture 1";

/// The lines of a capture.
class CaptureWriter {
 public:
  CaptureWriter(std::ostream& out, Device& device) : out_(out), device_(device) {}

  void line(const std::string& text) {
    out_ << text << '\n';
    ++lines_;
  }
  void end() { out_ << "end after " << lines_ << " lines\n"; }

  void header(std::uint64_t seed, std::size_t random_outputs) {
    const DeviceInfo& info = device_.info();
    line(std::string(capture_heading));
    line("device: " + info.name);
    line("capability: " + std::to_string(info.capability.major) + '.' +
         std::to_string(info.capability.minor));
    line("kernels: " + info.kernels);
    line("driver: " + info.driver + (info.driver.empty() ? "CUDA " : " CUDA ") +
         cuda_version(info.driver_version));
    line("runtime: CUDA " + cuda_version(info.runtime_version));
    line("compiler: " + info.compiler);
    line("operands: philox4x32-10, seed " + std::to_string(seed) + ", outputs " +
         std::to_string(random_outputs));
  }

  /// question NAME <tab> id <tab> a <tab> b <tab> c <tab> d; all words of d where they differ by their place.
  void questions(const Instruction& in, const QuestionRow& row) {
    const auto is_in = [&in](const char* name) { return std::string_view(name) == in.name; };
    if (std::none_of(row.instructions.begin(), row.instructions.end(), is_in)) return;
    const std::vector<Vector> vectors = vectors_of(row, in);
    const Words d = device_.run(in, tiles_of(in, vectors), true);
    for (std::size_t i = 0; i < vectors.size(); ++i) {
      Words mine = part(d, i * in.outputs(), in.outputs());
      if (std::count(mine.begin(), mine.end(), mine[0]) == static_cast<long>(mine.size())) mine.resize(1);
      line("question " + std::string(in.name) + '\t' + vectors[i].id + '\t' + hex(vectors[i].a, in.operands) +
           '\t' + hex(vectors[i].b, in.operands) + '\t' + hex(vectors[i].c, in.accumulator) + '\t' +
           hex(mine, in.accumulator));
    }
  }

  /// half OPERATION f16 or f16x2 <tab> operands <tab> result, a line for each call.
  void halves(HalfOperation operation, bool packed) {
    const HalfCalls calls = packed ? nan_calls(operation).doubled() : nan_calls(operation);
    const Words result = device_.run({operation, false, false, packed}, calls.x, calls.y, calls.z);
    const std::string name(names_of(operation)[static_cast<std::size_t>(operation)]);
    for (std::size_t i = 0; i < result.size(); ++i)
      line("half " + name + (packed ? " f16x2\t" : " f16\t") + hex(calls.of(operation, i), f32) + '\t' +
           hex(result[i], f32));
  }

  /// random NAME kind tiles N operands DIGEST results DIGEST, and all words of D, 16 in a line.
  void random(const Instruction& in, Distribution distribution, std::uint64_t seed, std::size_t outputs) {
    Tiles tiles = make_tiles(in, (outputs + in.outputs() - 1) / in.outputs());
    const RandomTiles random(in, distribution, seed);
    for (std::size_t tile = 0; tile < tiles.count; ++tile) random.make(tile, tiles, tile);
    const Words d = device_.run(in, tiles, true);
    Digest results;
    results.add(d, in.accumulator);
    const auto text = [](std::uint64_t digest) {
      return hex(static_cast<std::uint32_t>(digest >> 32), f32) +
             hex(static_cast<std::uint32_t>(digest), f32);
    };
    line("random " + std::string(in.name) + ' ' +
         std::string(names_of(distribution)[static_cast<std::size_t>(distribution)]) + " tiles " +
         std::to_string(tiles.count) + " operands " + text(digest_of(in, tiles)) + " results " +
         text(results.value()));
    for (std::size_t i = 0; i < d.size(); i += 16) {
      std::string words = hex(part(d, i, std::min<std::size_t>(16, d.size() - i)), in.accumulator);
      words.erase(std::remove(words.begin(), words.end(), ' '), words.end());
      line(words);
    }
  }

 private:
  static Words part(const Words& words, std::size_t first, std::size_t count) {
    const auto begin = words.begin() + static_cast<std::ptrdiff_t>(first);
    return Words(begin, begin + static_cast<std::ptrdiff_t>(count));
  }

  std::ostream& out_;
  Device& device_;
  long lines_ = 0;
};

/// Writes what the device computes: of every instruction of mma and wmma that it has the vectors of its
/// questions and `random_outputs` or more outputs of random operands, shared by the distributions; and NaNs
/// of the plain FP16 instructions. README.md says how. std::runtime_error if the device fails.
inline void write_capture(std::ostream& out, Device& device, std::uint64_t seed, std::size_t random_outputs) {
  CaptureWriter writer(out, device);
  writer.header(seed, random_outputs);
  std::vector<const Instruction*> asked;
  for (const Instruction& in : instructions)
    if (in.unit != Unit::wgmma && device.has(in)) asked.push_back(&in);
  for (const Instruction* in : asked)
    for (const QuestionRow& row : question_rows()) writer.questions(*in, row);
  for (std::size_t operation = 0; operation < names_of(HalfOperation{}).size(); ++operation)
    for (const bool packed : {false, true})
      if (!packed || arity_of(static_cast<HalfOperation>(operation)) > 1)
        writer.halves(static_cast<HalfOperation>(operation), packed);
  const std::size_t kinds = names_of(Distribution{}).size();
  for (const Instruction* in : asked)
    for (std::size_t kind = 0; kind < kinds; ++kind)
      writer.random(*in, static_cast<Distribution>(kind), seed, random_outputs / kinds + 1);
  writer.end();
}

}  // namespace fp16lab::probe
