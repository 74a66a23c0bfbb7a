// What the tensor core of this GPU computes, as a text file that fp16lab judges on any machine.
//
//   nvcc -arch=native capture.cu -o capture && ./capture > capture.txt
//
// Needs nvcc (CUDA 11.8 or later) and a GPU of compute capability 7.0 or more, nothing else; takes seconds
// and writes 2 to 11 MB. README.md beside this file says how to run it in a notebook, and what the file
// holds.
//
// The instructions are mma.sync and wmma in every shape and format that the GPU has; wgmma and tcgen05 are
// left out. Of each: the vectors of exp_tensor_core_probe's questions, and 100,000 outputs of random
// operands. Operands of random outputs are not written: Philox4x32-10 makes them, from the seed, the
// instruction's name and the kind of operands alone, and the judge makes them again. Digests show on both
// sides that they are the same words.
#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>
#ifndef FP16LAB_CAPTURE_REHEARSAL
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_runtime.h>
#include <mma.h>
#endif

namespace capture {

using Word = std::uint32_t;
using Words = std::vector<Word>;

// ---- Formats and instructions ---------------------------------------------------------------------------

struct Format {
  const char* name;
  int exponent_bits, fraction_bits;
  int low_bits;  // of the word, below the fraction: those that TF32 ignores
  int bytes;     // of a word in a register

  int bias() const { return (1 << (exponent_bits - 1)) - 1; }
  int emin() const { return 1 - bias(); }
  int emax() const { return bias(); }  // with which every significand is a finite number
  int width() const { return 1 + exponent_bits + fraction_bits; }
  Word mask() const { return 0xffffffffU >> (32 - 8 * bytes); }
  Word word(bool sign, int exponent, Word fraction) const {
    const Word field = static_cast<Word>(exponent + bias());
    return (Word{sign} << (width() - 1) | field << fraction_bits | (fraction & ((1U << fraction_bits) - 1)))
           << low_bits;
  }
  Word minus_zero() const { return 1U << (width() - 1 + low_bits); }
};

const Format f16{"f16", 5, 10, 0, 2}, bf16{"bf16", 8, 7, 0, 2}, tf32{"tf32", 8, 10, 13, 4},
    e4m3{"e4m3", 4, 3, 0, 1}, e5m2{"e5m2", 5, 2, 0, 1}, f32{"f32", 8, 23, 0, 4};

// D (m x n) = C (+) A (m x k) * B (k x n).
struct Instruction {
  const char* name;
  int m, n, k;
  const Format& in;
  const Format& acc;
  int first, last;  // architectures that execute it in their tensor cores: 70 to 72, 75 and later
};

const int newest = 9999;
const Instruction instructions[] = {
    {"mma.m8n8k4.f32.f16", 8, 8, 4, f16, f32, 70, 72},
    {"mma.m8n8k4.f16.f16", 8, 8, 4, f16, f16, 70, 72},
    {"mma.m16n8k8.f32.f16", 16, 8, 8, f16, f32, 75, newest},
    {"mma.m16n8k8.f16.f16", 16, 8, 8, f16, f16, 75, newest},
    {"mma.m16n8k16.f32.f16", 16, 8, 16, f16, f32, 80, newest},
    {"mma.m16n8k16.f16.f16", 16, 8, 16, f16, f16, 80, newest},
    {"mma.m16n8k8.f32.bf16", 16, 8, 8, bf16, f32, 80, newest},
    {"mma.m16n8k16.f32.bf16", 16, 8, 16, bf16, f32, 80, newest},
    {"mma.m16n8k4.f32.tf32", 16, 8, 4, tf32, f32, 80, newest},
    {"mma.m16n8k8.f32.tf32", 16, 8, 8, tf32, f32, 80, newest},
    {"mma.m16n8k32.f32.e4m3", 16, 8, 32, e4m3, f32, 89, newest},
    {"mma.m16n8k32.f32.e5m2", 16, 8, 32, e5m2, f32, 89, newest},
    {"mma.m16n8k32.f16.e4m3", 16, 8, 32, e4m3, f16, 89, newest},
    {"mma.m16n8k32.f16.e5m2", 16, 8, 32, e5m2, f16, 89, newest},
    {"wmma.m16n16k16.f32.f16", 16, 16, 16, f16, f32, 70, newest},
    {"wmma.m16n16k16.f32.bf16", 16, 16, 16, bf16, f32, 80, newest},
    {"wmma.m16n16k8.f32.tf32", 16, 16, 8, tf32, f32, 80, newest},
};

// Operands of `count` executions: A count x m x k, B count x n x k (its columns in a row), C count x m x n.
struct Tiles {
  std::size_t count;
  Words a, b, c;
};

Tiles make_tiles(const Instruction& in, std::size_t count) {
  return {count, Words(count * in.m * in.k), Words(count * in.n * in.k), Words(count * in.m * in.n)};
}

struct DeviceInfo {
  std::string name, capability, driver, runtime, compiler;
  int architecture = 0;  // that the kernels below were compiled for: 75, 80, ...
};

// ---- What stands for the GPU: the kernels at the end of this file, or a test's model --------------------

DeviceInfo device_info();
bool has(const Instruction& in, const DeviceInfo& info);
// D, count x m x n.
Words run(std::size_t instruction, const Tiles& tiles);
// add, mul, fma, cvt.rn.f16.f32 and cvt.f32.f16, in this order, of one call each; packed: two halves in a
// word.
Words run_half(int operation, bool packed, const Words& x, const Words& y, const Words& z);

// ---- Random operands ------------------------------------------------------------------------------------

// Philox4x32-10 (Salmon et al., SC 2011). The key mixes seed and stream, the counter is block and iteration.
struct Random {
  std::uint64_t seed, stream;
  Word iteration;

  void block(std::uint64_t index, Word out[4]) const {
    const std::uint64_t mixed = seed ^ (stream * 0x9E3779B97F4A7C15u) ^ (stream >> 29);
    Word key[2] = {static_cast<Word>(mixed), static_cast<Word>(mixed >> 32)};
    Word c[4] = {static_cast<Word>(index), static_cast<Word>(index >> 32), iteration, 0};
    for (int round = 0; round < 10; ++round) {
      const std::uint64_t p0 = std::uint64_t{0xD2511F53u} * c[0], p1 = std::uint64_t{0xCD9E8D57u} * c[2];
      const Word next[4] = {static_cast<Word>(p1 >> 32) ^ c[1] ^ key[0], static_cast<Word>(p1),
                            static_cast<Word>(p0 >> 32) ^ c[3] ^ key[1], static_cast<Word>(p0)};
      std::copy(next, next + 4, c);
      key[0] += 0x9E3779B9u;
      key[1] += 0xBB67AE85u;
    }
    std::copy(c, c + 4, out);
  }
  Word word(std::uint64_t index) const {
    Word four[4];
    block(index / 4, four);
    return four[index % 4];
  }
};

// FNV-1a of 64 bits: streams from names, and digests.
struct Digest {
  std::uint64_t value = 0xcbf29ce484222325u;
  void add_byte(unsigned byte) { value = (value ^ byte) * 0x100000001b3u; }
  void add(const Words& words, Word mask) {
    for (const Word word : words)
      for (int shift = 0; shift < 32; shift += 8) add_byte((word & mask) >> shift & 0xff);
  }
};

std::uint64_t stream_of(const std::string& name) {
  Digest digest;
  for (const char c : name) digest.add_byte(static_cast<unsigned char>(c));
  return digest.value;
}

// Bits of one random word of 64, from its low end.
struct Bits {
  std::uint64_t bits;
  Word take(int count) {
    const Word value = static_cast<Word>(bits & ((std::uint64_t{1} << count) - 1));
    bits >>= count;
    return value;
  }
  bool flip() { return take(1) != 0; }
  int between(int low, int high) {
    return low + static_cast<int>(take(16) * static_cast<Word>(high - low + 1) >> 16);
  }
};

// (-1)^sign * 1.fraction * 2^exponent, at most the largest exponent; a subnormal below the normal range.
Word value(const Format& format, bool sign, int exponent, Word fraction) {
  if (exponent >= format.emin()) return format.word(sign, std::min(exponent, format.emax()), fraction);
  const int leading = std::max(format.fraction_bits - (format.emin() - exponent), 0);
  return format.word(sign, -format.bias(), 1U << leading | (fraction & ((1U << leading) - 1)));
}

// An exponent from low to high; every other significand has at most two bits.
Word number(const Format& format, Bits& bits, int low, int high) {
  const int exponent = bits.between(low, high);
  const bool sign = bits.flip();
  const bool simple = bits.flip();
  return value(format, sign, exponent,
               simple ? bits.take(1) << (format.fraction_bits - 1) : bits.take(format.fraction_bits));
}

// Few terms around 2^last_place, and some far below.
Word near_floor(const Format& format, Bits& bits, int last_place) {
  const bool sign = bits.flip();
  if (bits.take(3) < 5) return format.word(sign, -format.bias(), 0);
  const bool larger = bits.flip();
  const int half = last_place / 2;
  const int exponent = larger ? bits.between(half - 1, half + 1) : bits.between(half - 12, half - 8);
  const Word fraction = bits.take(format.fraction_bits);
  return value(format, sign, exponent, bits.take(2) == 0 ? fraction : 0);
}

Word zero(const Format& format, Bits& bits) { return format.word(bits.flip(), -format.bias(), 0); }

// Zero, NaN or infinity.
Word special(const Format& format, Bits& bits) {
  const Word kind = bits.take(2);
  if (kind == 0) return zero(format, bits);
  const bool sign = bits.flip();
  if (kind != 1) return format.word(sign, format.bias() + 1, 0);
  const Word fraction = bits.take(format.fraction_bits) | 1;
  return format.word(sign, format.bias() + 1, fraction) |
         (format.fraction_bits == e4m3.fraction_bits ? 0x7fU : 0U);
}

Word any_word(Bits& bits) {
  const Word low = bits.take(16);
  return low | bits.take(16) << 16;
}

const char* const kinds[] = {"ordinary",   "wide",          "raw-bits", "subnormal", "zeros",
                             "cancelling", "near-overflow", "floor",    "special"};
enum Kind {
  ordinary,
  wide,
  raw_bits,
  subnormal,
  zeros,
  cancelling,
  near_overflow,
  floor_,
  special_,
  kind_count
};

Word operand(const Instruction& in, int kind, Bits bits) {
  const Format& format = in.in;
  Word word = 0;
  switch (kind) {
    case ordinary:
    case cancelling:
      word = number(format, bits, -4, 2);
      break;
    case wide:
      word = number(format, bits, format.emin(), format.emax());
      break;
    case raw_bits:
      return any_word(bits);
    case subnormal:
      word = bits.flip() ? number(format, bits, format.emin() - format.fraction_bits, format.emin() - 1)
                         : number(format, bits, format.emin(), format.emax());
      break;
    case zeros:
      word = bits.take(2) != 0 ? zero(format, bits) : number(format, bits, -4, 2);
      break;
    case near_overflow:
      word = number(format, bits, in.acc.emax() / 2 - 1, in.acc.emax() / 2 + 1);
      break;
    case floor_:
      word = near_floor(format, bits, in.acc.emin() - in.acc.fraction_bits);
      break;
    case special_:
      word = bits.take(4) == 0 ? special(format, bits) : number(format, bits, -4, 2);
      break;
  }
  return word | (bits.take(16) & ((1U << format.low_bits) - 1));
}

Word accumulator(const Instruction& in, int kind, Bits bits) {
  const Format& format = in.acc;
  const Word choice = bits.take(3);
  if (kind == raw_bits) return any_word(bits);
  if (choice == 0) return zero(format, bits);
  switch (kind) {
    case wide:
      return number(format, bits, format.emin() - 3, format.emax());
    case subnormal:
      return number(format, bits, format.emin() - format.fraction_bits, format.emin());
    case near_overflow:
      return number(format, bits, format.emax() - 1, format.emax());
    case floor_:
      return choice < 5 ? zero(format, bits)
                        : number(format, bits, format.emin() - format.fraction_bits, format.emin());
    case cancelling:
      return number(format, bits, -24, 0);
    case special_:
      return choice == 1 ? special(format, bits) : number(format, bits, -6, 4);
    default:
      return number(format, bits, -6, 4);
  }
}

Tiles random_tiles(const Instruction& in, int kind, std::uint64_t seed, std::size_t count) {
  Tiles tiles = make_tiles(in, count);
  const Random operands{seed, stream_of(in.name), static_cast<Word>(kind)};
  const Random accumulators{seed, stream_of(in.name) + 1, static_cast<Word>(kind)};
  const auto bits = [](const Random& random, std::uint64_t index) {
    Word four[4];
    random.block(index, four);
    return Bits{std::uint64_t{four[0]} << 32 | four[1]};
  };
  const std::size_t a_size = in.m * in.k, b_size = in.n * in.k, c_size = in.m * in.n, k = in.k;
  const auto fill = [&](Word* words, std::size_t size, std::uint64_t first, bool negate) {
    for (std::size_t i = 0; i < size; ++i) words[i] = operand(in, kind, bits(operands, first + i));
    if (kind != cancelling) return;
    // The second half of every line is the first one's negative, in reverse; one in eight of A an ulp beside
    // it.
    for (std::size_t line = 0; line < size; line += k)
      for (std::size_t i = 0; i < k / 2; ++i) {
        const bool nudge = negate && operands.word(first + line + i) % 8 == 0;
        words[line + k - 1 - i] =
            words[line + i] ^ (negate ? in.in.minus_zero() : 0) ^ (nudge ? 1U << in.in.low_bits : 0);
      }
  };
  for (std::size_t tile = 0; tile < count; ++tile) {
    const std::uint64_t base = tile * (a_size + b_size);
    fill(&tiles.a[tile * a_size], a_size, base, true);
    fill(&tiles.b[tile * b_size], b_size, base + a_size, false);
    for (std::size_t i = 0; i < c_size; ++i)
      tiles.c[tile * c_size + i] = accumulator(in, kind, bits(accumulators, tile * c_size + i));
  }
  return tiles;
}

// ---- The questions of exp_tensor_core_probe -------------------------------------------------------------

struct Vector {
  std::string id;
  Words a, b;
  Word c;
};

// +-2^exponent, or 1.5 times that. E4M3 has numbers with the exponent that others keep for infinity.
Word power(const Format& format, int exponent, bool negative = false, bool and_half = false) {
  const Word fraction = and_half ? 1U << (format.fraction_bits - 1) : 0;
  if (&format == &e4m3 && exponent > format.emax()) return format.word(negative, exponent, fraction);
  return value(format, negative, exponent, fraction);
}

// The vectors of one instruction; a and b are continued with +0.
struct Questions {
  const Instruction& in;
  std::vector<Vector> list;

  Vector& add(const std::string& id, Word c = 0) {
    list.push_back({id, Words(in.k), Words(in.k), c});
    return list.back();
  }
  void put(Vector& vector, int place, Word a, Word b) {
    vector.a[place] = a;
    vector.b[place] = b;
  }
  // +-2^exponent as the product at a place.
  void put_power(Vector& vector, int place, int exponent, bool negative = false) {
    put(vector, place, power(in.in, exponent / 2), power(in.in, exponent - exponent / 2, negative));
  }
  void add_powers(const std::string& id, std::initializer_list<std::pair<int, int>> places, Word c = 0) {
    Vector& vector = add(id, c);
    for (const auto& place : places) put_power(vector, place.first, place.second);
  }

  // P1: how small a term breaks a tie of FP16. P2: the exponent of a subnormal c.
  void half_accumulator() {
    for (int m = 40; m <= 48; ++m) {
      Vector& vector = add("P1-2^-" + std::to_string(m));
      put(vector, 0, power(in.in, -12), power(in.in, -13));
      put_power(vector, 1, -m);
    }
    for (const Word c : {0x0001U, 0x8001U, 0x0003U}) {
      const bool negative = c > 0x8000U;
      Vector& vector = add(c == 3 ? "P2-3" : negative ? "P2-minus" : "P2", c);
      put(vector, 0, power(in.in, -12), power(in.in, -13, negative));
      put(vector, 1, power(in.in, -20), power(in.in, -21, !negative));
    }
  }
  // P3: a negative sum below the least number, in the first block or the last.
  void underflow(int place) {
    const bool half = &in.acc == &f16;
    put(add("P3"), place, power(in.in, half ? -13 : -75), power(in.in, half ? -13 : -75, true));
    if (half) {
      put(add("P3-tie"), place, power(in.in, -12), power(in.in, -13, true));
      return;
    }
    put(add("P3-3/4"), place, power(in.in, -75, false, true), power(in.in, -75, true));
    put(add("P3-dropped"), place, power(in.in, -85), power(in.in, -85, true));
  }
  // P4: signs of zero sums.
  void zero_signs() {
    const Word one = power(in.in, 0), minus_zero = in.in.minus_zero(), c_minus_zero = in.acc.minus_zero();
    for (const int form : {0, 1, 2}) {
      Vector& vector = add(form == 0   ? "V29"
                           : form == 1 ? "V29-one+0"
                                       : "V29-c+0",
                           form == 2 ? 0 : c_minus_zero);
      for (int k = 0; k < in.k; ++k) put(vector, k, form == 1 && k == in.k - 1 ? 0 : minus_zero, one);
    }
    add("P4-c-0", c_minus_zero);
    put(add("V30", power(in.acc, 0, true)), 0, one, one);
    Vector& products = add("P4-products");
    put(products, 0, one, one);
    put(products, 1, power(in.in, 0, true), one);
  }
  // P5: which places share a fused block.
  void pairs() {
    for (int i = 0; i < in.k; ++i)
      for (int j = i + 1; j < in.k; ++j) {
        Vector& vector = add("P5-k" + std::to_string(i) + "-k" + std::to_string(j), power(in.acc, 0));
        for (const int place : {i, j}) put(vector, place, power(in.in, -12), power(in.in, -12));
      }
  }
  // P6: what the least number of FP32 loses to a tiny term.
  void single_floor() {
    for (int m = 154; m <= 160; ++m) {
      Vector& vector = add("P6-2^-" + std::to_string(m));
      put(vector, 0, power(in.in, -75), power(in.in, -74));
      put_power(vector, 1, -m, true);
    }
  }
  // P7: the order in which FP8 products are added, and where c joins.
  void fp8_order() {
    const bool half = &in.acc == &f16;
    const int big = half ? 11 : 16, tiny = half ? 0 : -8;
    const Word c_big = power(in.acc, big);
    const auto name = [](const char* start, int j) { return start + std::to_string(j); };
    for (int j = 2; j < in.k; ++j) add_powers(name("P7-k0-k1-k", j), {{0, big}, {1, tiny}, {j, tiny}});
    for (const int j : {1, 2, 16, 31}) add_powers(name("P7-k3-k0-k", j), {{3, big}, {0, tiny}, {j, tiny}});
    for (const int j : {1, 2, 16, 30}) add_powers(name("P7-k31-k0-k", j), {{31, big}, {0, tiny}, {j, tiny}});
    for (const int j : {1, 2, 16}) add_powers(name("P7-c-k0-k", j), {{0, tiny}, {j, tiny}}, c_big);
    add_powers("P7-c-nearest", {{0, tiny}, {1, tiny - 1}}, c_big);
    add_powers("P7-narrow", {{0, 0}, {1, 0}, {2, -13}, {16, -13}});
    add_powers("P7-narrow-lost", {{0, 0}, {1, -14}, {2, -14}});
    if (!half) return;
    add_powers("V53", {{0, -11}, {1, -13}}, power(in.acc, 0));
    add_powers("V53b", {{0, -11}, {1, -14}}, power(in.acc, 0));
  }
  // P12: places that share a block, and how many bits below the largest term are kept.
  void tail_of_eight() {
    const bool half = &in.acc == &f16;
    if (!half) pairs();
    for (int m = 21; m <= 27; ++m) {
      Vector& vector = add("P12-2^-" + std::to_string(m), power(in.acc, 0));
      if (half) put_power(vector, 0, -11);
      put_power(vector, 1, -m, !half);
    }
    if (half)
      for (int j = 1; j < in.k; ++j)
        add_powers("P12-k0-k" + std::to_string(j), {{0, -11}, {j, -11}}, power(in.acc, 0));
  }
};

std::vector<Vector> questions_of(const Instruction& in) {
  Questions questions{in, {}};
  const bool half_operands = &in.in == &f16, fp8 = in.in.bytes == 1, half = &in.acc == &f16;
  if (!fp8) {
    if (half) questions.half_accumulator();
    if (half || !half_operands) questions.underflow(0);
    if (half || !half_operands) questions.underflow(in.k - 1);
    questions.zero_signs();
  }
  if (&in.in == &tf32) questions.pairs();
  if (&in.in == &bf16 || &in.in == &tf32) questions.single_floor();
  if (fp8) questions.fp8_order();
  if (in.in.bytes == 2 && in.k == 8) questions.tail_of_eight();
  return questions.list;
}

// P8: quiet, signalling and negative NaNs in every place, and invalid operations. Operands x, y, z of many
// calls.
struct Calls {
  Words x, y, z;
  void add(Word a, Word b = 0, Word c = 0) {
    x.push_back(a);
    y.push_back(b);
    z.push_back(c);
  }
};

const char* const half_operations[] = {"add", "mul", "fma", "narrow", "widen"};
enum HalfOperation { add_, mul_, fma_, narrow_, widen_ };

Calls nan_calls(int operation) {
  Calls calls;
  const Word one = 0x3c00, infinity = 0x7c00, sign = 0x8000;
  if (operation == narrow_) {
    for (const Word nan : {0x7fc00000U, 0x7fc02000U, 0x7f800001U, 0x7f802000U, 0x7fffffffU, 0xffc00000U,
                           0xff800001U, 0xffffffffU})
      calls.add(nan);
    return calls;
  }
  for (const Word nan : {0x7e00U, 0x7e01U, 0x7c01U, 0x7dffU, 0x7fffU, 0xfe00U, 0xfc01U, 0xffffU}) {
    calls.add(nan, operation == widen_ ? 0 : one, operation == fma_ ? one : 0);
    if (operation == widen_) continue;
    calls.add(one, nan, operation == fma_ ? one : 0);
    if (operation == fma_)
      calls.add(one, one, nan);
    else
      calls.add(nan, 0xfe55);
  }
  if (operation == add_) calls.add(infinity, infinity | sign);
  if (operation == mul_) calls.add(infinity, sign);
  if (operation == fma_) {
    calls.add(infinity, 0, one);
    calls.add(infinity, one, infinity | sign);
  }
  return calls;
}

// ---- The file -------------------------------------------------------------------------------------------

const std::uint64_t random_seed = 1;
const std::size_t random_outputs = 100000;  // of each instruction, shared by the kinds of operands

struct Output {
  std::FILE* file;
  long lines = 0;
  void line(const std::string& text) {
    std::fprintf(file, "%s\n", text.c_str());
    ++lines;
  }
};

std::string hex(Word word, int bytes) {
  char text[16];
  std::snprintf(text, sizeof text, "%0*x", 2 * bytes, static_cast<unsigned>(word));
  return text;
}
std::string hex(const Words& words, int bytes, Word mask) {
  std::string text;
  for (const Word word : words) text += (text.empty() ? "" : " ") + hex(word & mask, bytes);
  return text;
}
std::string hex(const Digest& digest) {
  return hex(static_cast<Word>(digest.value >> 32), 4) + hex(static_cast<Word>(digest.value), 4);
}

// question NAME <tab> id <tab> a <tab> b <tab> c <tab> d. The vector stands in every row and column; where
// outputs differ by their place, all of them are given.
void write_questions(Output& out, std::size_t index) {
  const Instruction& in = instructions[index];
  const std::vector<Vector> vectors = questions_of(in);
  if (vectors.empty()) return;
  Tiles tiles = make_tiles(in, vectors.size());
  const std::size_t outputs = in.m * in.n;
  for (std::size_t i = 0; i < vectors.size(); ++i) {
    for (int row = 0; row < in.m; ++row)
      std::copy(vectors[i].a.begin(), vectors[i].a.end(), tiles.a.begin() + (i * in.m + row) * in.k);
    for (int column = 0; column < in.n; ++column)
      std::copy(vectors[i].b.begin(), vectors[i].b.end(), tiles.b.begin() + (i * in.n + column) * in.k);
    std::fill_n(tiles.c.begin() + i * outputs, outputs, vectors[i].c);
  }
  const Words d = run(index, tiles);
  for (std::size_t i = 0; i < vectors.size(); ++i) {
    const Words mine(d.begin() + i * outputs, d.begin() + (i + 1) * outputs);
    const bool uniform = std::count(mine.begin(), mine.end(), mine[0]) == static_cast<long>(outputs);
    out.line("question " + std::string(in.name) + '\t' + vectors[i].id + '\t' +
             hex(vectors[i].a, in.in.bytes, in.in.mask()) + '\t' +
             hex(vectors[i].b, in.in.bytes, in.in.mask()) + '\t' + hex(vectors[i].c, in.acc.bytes) + '\t' +
             hex(uniform ? Words{mine[0]} : mine, in.acc.bytes, in.acc.mask()));
  }
}

// random NAME kind tiles N operands DIGEST results DIGEST, and all words of D, 16 in a line.
void write_random(Output& out, std::size_t index) {
  const Instruction& in = instructions[index];
  const std::size_t outputs = in.m * in.n, share = random_outputs / kind_count + 1;
  for (int kind = 0; kind < kind_count; ++kind) {
    const Tiles tiles = random_tiles(in, kind, random_seed, (share + outputs - 1) / outputs);
    const Words d = run(index, tiles);
    Digest operands, results;
    operands.add(tiles.a, in.in.mask());
    operands.add(tiles.b, in.in.mask());
    operands.add(tiles.c, in.acc.mask());
    results.add(d, in.acc.mask());
    out.line("random " + std::string(in.name) + ' ' + kinds[kind] + " tiles " + std::to_string(tiles.count) +
             " operands " + hex(operands) + " results " + hex(results));
    std::string line;
    for (std::size_t i = 0; i < d.size(); ++i) {
      line += hex(d[i] & in.acc.mask(), in.acc.bytes);
      if (i % 16 != 15 && i + 1 != d.size()) continue;
      out.line(line);
      line.clear();
    }
  }
}

// half OPERATION f16 or f16x2 <tab> operands <tab> result, a line for each call.
void write_half(Output& out) {
  for (int operation = add_; operation <= widen_; ++operation)
    for (const bool packed : {false, true}) {
      if (packed && operation > fma_) continue;
      Calls calls = nan_calls(operation);
      for (Words* words : {&calls.x, &calls.y, &calls.z})
        for (Word& word : *words) word |= packed ? word << 16 : 0;
      const Words result = run_half(operation, packed, calls.x, calls.y, calls.z);
      const int arity = operation == fma_ ? 3 : operation > fma_ ? 1 : 2;
      for (std::size_t i = 0; i < result.size(); ++i)
        out.line("half " + std::string(half_operations[operation]) + (packed ? " f16x2" : " f16") + '\t' +
                 hex(calls.x[i], 4) + (arity > 1 ? ' ' + hex(calls.y[i], 4) : "") +
                 (arity > 2 ? ' ' + hex(calls.z[i], 4) : "") + '\t' + hex(result[i], 4));
    }
}

void write_capture(std::FILE* file) {
  const DeviceInfo info = device_info();
  Output out{file};
  out.line("fp16lab capture 1");
  out.line("device: " + info.name);
  out.line("capability: " + info.capability);
  out.line("kernels: sm_" + std::to_string(info.architecture));
  out.line("driver: " + info.driver);
  out.line("runtime: " + info.runtime);
  out.line("compiler: " + info.compiler);
  out.line("operands: philox4x32-10, seed " + std::to_string(random_seed) + ", outputs " +
           std::to_string(random_outputs));
  const std::size_t count = sizeof instructions / sizeof instructions[0];
  for (std::size_t i = 0; i < count; ++i)
    if (has(instructions[i], info)) write_questions(out, i);
  write_half(out);
  for (std::size_t i = 0; i < count; ++i)
    if (has(instructions[i], info)) write_random(out, i);
  out.line("end after " + std::to_string(out.lines) + " lines");
}

#ifndef FP16LAB_CAPTURE_REHEARSAL

// ---- The GPU --------------------------------------------------------------------------------------------

// FP8 came with PTX 8.4 (CUDA 12.4), with FP16 sums with PTX 8.7 (CUDA 12.8).
#define CAPTURE_HAS_BYTES_TO_HALF \
  (__CUDACC_VER_MAJOR__ > 12 || (__CUDACC_VER_MAJOR__ == 12 && __CUDACC_VER_MINOR__ >= 8))
#define CAPTURE_HAS_BYTES \
  (__CUDACC_VER_MAJOR__ > 12 || (__CUDACC_VER_MAJOR__ == 12 && __CUDACC_VER_MINOR__ >= 4))

void check(cudaError_t error, const char* what) {
  if (error == cudaSuccess) return;
  std::fprintf(stderr, "capture: %s: %s\n", what, cudaGetErrorString(error));
  std::exit(1);
}

// Registers of the mma.m16n8k* instructions: A has 2 where k spans 16 bytes and 4 where it spans 32, B half
// as many, the accumulator 4 (FP32) or 2 (FP16).
#define CAPTURE_MMA_4(PTX, D, A, B)                                                    \
  asm volatile("mma.sync.aligned." PTX " {%0,%1,%2,%3}, {%4,%5}, {%6}, {%0,%1,%2,%3};" \
               : "+r"(D[0]), "+r"(D[1]), "+r"(D[2]), "+r"(D[3])                        \
               : "r"(A[0]), "r"(A[1]), "r"(B[0]))
#define CAPTURE_MMA_2(PTX, D, A, B)                                        \
  asm volatile("mma.sync.aligned." PTX " {%0,%1}, {%2,%3}, {%4}, {%0,%1};" \
               : "+r"(D[0]), "+r"(D[1])                                    \
               : "r"(A[0]), "r"(A[1]), "r"(B[0]))
#define CAPTURE_MMA_WIDE_4(PTX, D, A, B)                                                        \
  asm volatile("mma.sync.aligned." PTX " {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};" \
               : "+r"(D[0]), "+r"(D[1]), "+r"(D[2]), "+r"(D[3])                                 \
               : "r"(A[0]), "r"(A[1]), "r"(A[2]), "r"(A[3]), "r"(B[0]), "r"(B[1]))
#define CAPTURE_MMA_WIDE_2(PTX, D, A, B)                                            \
  asm volatile("mma.sync.aligned." PTX " {%0,%1}, {%2,%3,%4,%5}, {%6,%7}, {%0,%1};" \
               : "+r"(D[0]), "+r"(D[1])                                             \
               : "r"(A[0]), "r"(A[1]), "r"(A[2]), "r"(A[3]), "r"(B[0]), "r"(B[1]))

// The instruction of this number in `instructions`. One that the architecture lacks is not compiled, and
// never asked.
template <int index>
__device__ void execute(Word* d, const Word* a, const Word* b) {
  (void)d, (void)a, (void)b;
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 750
  if constexpr (index == 2) CAPTURE_MMA_4("m16n8k8.row.col.f32.f16.f16.f32", d, a, b);
  if constexpr (index == 3) CAPTURE_MMA_2("m16n8k8.row.col.f16.f16.f16.f16", d, a, b);
#endif
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
  if constexpr (index == 4) CAPTURE_MMA_WIDE_4("m16n8k16.row.col.f32.f16.f16.f32", d, a, b);
  if constexpr (index == 5) CAPTURE_MMA_WIDE_2("m16n8k16.row.col.f16.f16.f16.f16", d, a, b);
  if constexpr (index == 6) CAPTURE_MMA_4("m16n8k8.row.col.f32.bf16.bf16.f32", d, a, b);
  if constexpr (index == 7) CAPTURE_MMA_WIDE_4("m16n8k16.row.col.f32.bf16.bf16.f32", d, a, b);
  if constexpr (index == 8) CAPTURE_MMA_4("m16n8k4.row.col.f32.tf32.tf32.f32", d, a, b);
  if constexpr (index == 9) CAPTURE_MMA_WIDE_4("m16n8k8.row.col.f32.tf32.tf32.f32", d, a, b);
#endif
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 890 && CAPTURE_HAS_BYTES
  if constexpr (index == 10) CAPTURE_MMA_WIDE_4("m16n8k32.row.col.f32.e4m3.e4m3.f32", d, a, b);
  if constexpr (index == 11) CAPTURE_MMA_WIDE_4("m16n8k32.row.col.f32.e5m2.e5m2.f32", d, a, b);
#if CAPTURE_HAS_BYTES_TO_HALF
  if constexpr (index == 12) CAPTURE_MMA_WIDE_2("m16n8k32.row.col.f16.e4m3.e4m3.f16", d, a, b);
  if constexpr (index == 13) CAPTURE_MMA_WIDE_2("m16n8k32.row.col.f16.e5m2.e5m2.f16", d, a, b);
#endif
#endif
}

// A register of `bytes`-wide elements from so many words, the first in its low bits.
__device__ Word packed(const Word* words, int bytes) {
  Word result = 0;
  for (int i = 0; i < 4 / bytes; ++i)
    result |= (words[i] & 0xffffffffU >> (32 - 8 * bytes)) << (8 * bytes * i % 32);
  return result;
}

// One warp a tile. Counted in bytes along k, all formats have one layout (PTX ISA, "Matrix Fragments for
// mma.m16n8k*").
template <int index>
__global__ void mma_kernel(int k, int bytes, bool half, const Word* a, const Word* b, const Word* c,
                           Word* d) {
  const int lane = threadIdx.x, group = lane / 4, column = 4 * (lane % 4);
  a += std::size_t(blockIdx.x) * 16 * k;
  b += std::size_t(blockIdx.x) * 8 * k;
  c += std::size_t(blockIdx.x) * 128;
  d += std::size_t(blockIdx.x) * 128;
  const int halves = k * bytes / 16;  // of 16 bytes along k
  Word a_registers[4] = {}, b_registers[2] = {}, sum[4];
  for (int part = 0; part < halves; ++part) {
    const int first = (column + 16 * part) / bytes;
    for (int lower = 0; lower < 2; ++lower)
      a_registers[2 * part + lower] = packed(a + (group + 8 * lower) * k + first, bytes);
    b_registers[part] = packed(b + group * k + first, bytes);
  }
  const auto place = [&](int i) { return (group + 8 * (i / 2)) * 8 + 2 * (lane % 4) + i % 2; };
  for (int i = 0; i < 4; ++i) sum[i] = c[place(i)];
  if (half) {
    Word pairs[4] = {(sum[0] & 0xffff) | sum[1] << 16, (sum[2] & 0xffff) | sum[3] << 16};
    execute<index>(pairs, a_registers, b_registers);
    for (int i = 0; i < 4; ++i) sum[i] = pairs[i / 2] >> (16 * (i % 2)) & 0xffff;
  } else {
    execute<index>(sum, a_registers, b_registers);
  }
  for (int i = 0; i < 4; ++i) d[place(i)] = sum[i];
}

// Volta's: four groups of eight lanes have a tile of 8 x 8 each, here all the same one (PTX ISA,
// "mma.m8n8k4").
template <bool half>
__global__ void volta_kernel(const Word* a, const Word* b, const Word* c, Word* d) {
  const int lane = threadIdx.x, line = lane % 4 + (lane < 16 ? 0 : 4);
  a += std::size_t(blockIdx.x) * 32;
  b += std::size_t(blockIdx.x) * 32;
  c += std::size_t(blockIdx.x) * 64;
  d += std::size_t(blockIdx.x) * 64;
  const Word x[2] = {packed(a + line * 4, 2), packed(a + line * 4 + 2, 2)};
  const Word y[2] = {packed(b + line * 4, 2), packed(b + line * 4 + 2, 2)};
  const auto place = [&](int i) {
    const int row = half ? lane % 4 : (lane & 1) + (i & 2);
    const int column = half ? i : (i & 4) + (lane & 2) + (i & 1);
    return (row + (lane < 16 ? 0 : 4)) * 8 + column;
  };
  Word sum[8];
  for (int i = 0; i < 8; ++i) sum[i] = c[place(i)];
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ < 750
  if constexpr (half) {
    Word s[4];
    for (int i = 0; i < 4; ++i) s[i] = (sum[2 * i] & 0xffff) | sum[2 * i + 1] << 16;
    asm volatile(
        "mma.sync.aligned.m8n8k4.row.col.f16.f16.f16.f16 {%0,%1,%2,%3}, {%4,%5}, {%6,%7}, {%0,%1,%2,%3};"
        : "+r"(s[0]), "+r"(s[1]), "+r"(s[2]), "+r"(s[3])
        : "r"(x[0]), "r"(x[1]), "r"(y[0]), "r"(y[1]));
    for (int i = 0; i < 8; ++i) sum[i] = s[i / 2] >> (16 * (i % 2)) & 0xffff;
  } else {
    asm volatile(
        "mma.sync.aligned.m8n8k4.row.col.f32.f16.f16.f32 {%0,%1,%2,%3,%4,%5,%6,%7}, {%8,%9}, {%10,%11}, "
        "{%0,%1,%2,%3,%4,%5,%6,%7};"
        : "+r"(sum[0]), "+r"(sum[1]), "+r"(sum[2]), "+r"(sum[3]), "+r"(sum[4]), "+r"(sum[5]), "+r"(sum[6]),
          "+r"(sum[7])
        : "r"(x[0]), "r"(x[1]), "r"(y[0]), "r"(y[1]));
  }
#else
  (void)x, (void)y;
#endif
  if (lane % 16 < 4)
    for (int i = 0; i < 8; ++i) d[place(i)] = sum[i];
}

// wmma through its C++ interface, one warp a tile; operands are packed into shared memory first.
template <class Element, class Precision, int k>
__device__ void wmma_tile(const Word* a, const Word* b, const Word* c, Word* d) {
  using namespace nvcuda;
  constexpr int bytes = sizeof(Element), per_word = 4 / bytes, words = 16 * k / per_word;
  __shared__ __align__(32) Word x[words], y[words];
  for (int i = threadIdx.x; i < words; i += 32) {
    x[i] = packed(a + std::size_t(blockIdx.x) * 16 * k + i * per_word, bytes);
    y[i] = packed(b + std::size_t(blockIdx.x) * 16 * k + i * per_word, bytes);
  }
  __syncwarp();
  wmma::fragment<wmma::matrix_a, 16, 16, k, Precision, wmma::row_major> left;
  wmma::fragment<wmma::matrix_b, 16, 16, k, Precision, wmma::col_major> right;
  wmma::fragment<wmma::accumulator, 16, 16, k, float> sum;
  wmma::load_matrix_sync(left, reinterpret_cast<const Element*>(x), k);
  wmma::load_matrix_sync(right, reinterpret_cast<const Element*>(y), k);
  const std::size_t place = std::size_t(blockIdx.x) * 256;
  wmma::load_matrix_sync(sum, reinterpret_cast<const float*>(c + place), 16, wmma::mem_row_major);
  wmma::mma_sync(sum, left, right, sum);
  wmma::store_matrix_sync(reinterpret_cast<float*>(d + place), sum, 16, wmma::mem_row_major);
}

template <int index>
__global__ void wmma_kernel(const Word* a, const Word* b, const Word* c, Word* d) {
  if constexpr (index == 14) wmma_tile<__half, __half, 16>(a, b, c, d);
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
  if constexpr (index == 15) wmma_tile<__nv_bfloat16, __nv_bfloat16, 16>(a, b, c, d);
  if constexpr (index == 16) wmma_tile<float, nvcuda::wmma::precision::tf32, 8>(a, b, c, d);
#endif
}

struct Buffer {
  Word* words = nullptr;
  explicit Buffer(std::size_t count) {
    check(cudaMalloc(&words, std::max<std::size_t>(count, 1) * 4), "cudaMalloc");
  }
  explicit Buffer(const Words& from) : Buffer(from.size()) {
    check(cudaMemcpy(words, from.data(), from.size() * 4, cudaMemcpyHostToDevice), "copying to the device");
  }
  Buffer(const Buffer&) = delete;
  ~Buffer() { cudaFree(words); }
  Words read(std::size_t count) const {
    Words result(count);
    check(cudaMemcpy(result.data(), words, count * 4, cudaMemcpyDeviceToHost),
          "a kernel, or copying from the device");
    return result;
  }
};

template <int index>
void launch(int count, const Word* a, const Word* b, const Word* c, Word* d) {
  const Instruction& in = instructions[index];
  if constexpr (index < 2)
    volta_kernel<index == 1><<<count, 32>>>(a, b, c, d);
  else if constexpr (index < 14)
    mma_kernel<index><<<count, 32>>>(in.k, in.in.bytes, &in.acc == &f16, a, b, c, d);
  else
    wmma_kernel<index><<<count, 32>>>(a, b, c, d);
}

Words run(std::size_t instruction, const Tiles& tiles) {
  const Buffer a(tiles.a), b(tiles.b), c(tiles.c);
  const Buffer d(Words(tiles.c.size(), 0xdeadbeefU));  // what no kernel wrote shows
  using Launch = void (*)(int, const Word*, const Word*, const Word*, Word*);
  static const Launch launches[] = {launch<0>,  launch<1>,  launch<2>,  launch<3>,  launch<4>,  launch<5>,
                                    launch<6>,  launch<7>,  launch<8>,  launch<9>,  launch<10>, launch<11>,
                                    launch<12>, launch<13>, launch<14>, launch<15>, launch<16>};
  static_assert(sizeof launches / sizeof launches[0] == sizeof instructions / sizeof instructions[0], "");
  launches[instruction](static_cast<int>(tiles.count), a.words, b.words, c.words, d.words);
  check(cudaGetLastError(), instructions[instruction].name);
  return d.read(tiles.c.size());
}

__device__ Word half_result(int operation, bool packed, Word x, Word y, Word z) {
  Word wide = 0;
  unsigned short narrow = 0;
  const auto low = [](Word word) { return static_cast<unsigned short>(word); };
  float single = 0;
  switch (operation) {
    case add_:
      if (packed) asm volatile("add.rn.f16x2 %0, %1, %2;" : "=r"(wide) : "r"(x), "r"(y));
      if (!packed) asm volatile("add.rn.f16 %0, %1, %2;" : "=h"(narrow) : "h"(low(x)), "h"(low(y)));
      break;
    case mul_:
      if (packed) asm volatile("mul.rn.f16x2 %0, %1, %2;" : "=r"(wide) : "r"(x), "r"(y));
      if (!packed) asm volatile("mul.rn.f16 %0, %1, %2;" : "=h"(narrow) : "h"(low(x)), "h"(low(y)));
      break;
    case fma_:
      if (packed) asm volatile("fma.rn.f16x2 %0, %1, %2, %3;" : "=r"(wide) : "r"(x), "r"(y), "r"(z));
      if (!packed)
        asm volatile("fma.rn.f16 %0, %1, %2, %3;" : "=h"(narrow) : "h"(low(x)), "h"(low(y)), "h"(low(z)));
      break;
    case narrow_:
      asm volatile("cvt.rn.f16.f32 %0, %1;" : "=h"(narrow) : "f"(__uint_as_float(x)));
      break;
    default:
      asm volatile("cvt.f32.f16 %0, %1;" : "=f"(single) : "h"(low(x)));
      return __float_as_uint(single);
  }
  return packed ? wide : narrow;
}

__global__ void half_kernel(int operation, bool packed, int count, const Word* x, const Word* y,
                            const Word* z, Word* d) {
  const int i = threadIdx.x;
  if (i < count) d[i] = half_result(operation, packed, x[i], y[i], z[i]);
}

Words run_half(int operation, bool packed, const Words& x, const Words& y, const Words& z) {
  const Buffer a(x), b(y), c(z), d(x.size());
  half_kernel<<<1, 128>>>(operation, packed, static_cast<int>(x.size()), a.words, b.words, c.words, d.words);
  check(cudaGetLastError(), "a plain FP16 instruction");
  return d.read(x.size());
}

DeviceInfo device_info() {
  int count = 0, driver = 0, runtime = 0;
  check(cudaGetDeviceCount(&count), "looking for a GPU");
  check(count > 0 ? cudaSuccess : cudaErrorNoDevice, "looking for a GPU");
  cudaDeviceProp properties;
  check(cudaGetDeviceProperties(&properties, 0), "asking the GPU");
  check(cudaDriverGetVersion(&driver), "asking the driver");
  check(cudaRuntimeGetVersion(&runtime), "asking the runtime");
  cudaFuncAttributes attributes;
  check(cudaFuncGetAttributes(&attributes, half_kernel), "asking for a kernel, compiled for another GPU?");
  const auto version = [](int v) { return std::to_string(v / 1000) + '.' + std::to_string(v % 1000 / 10); };
  DeviceInfo info;
  info.name = properties.name;
  info.capability = std::to_string(properties.major) + '.' + std::to_string(properties.minor);
  info.architecture = attributes.ptxVersion;
  // The driver's own version is no part of the CUDA API; Linux tells it here.
  if (std::FILE* file = std::fopen("/sys/module/nvidia/version", "r")) {
    char text[64] = "";
    if (std::fscanf(file, "%63s", text) == 1) info.driver = std::string(text) + ' ';
    std::fclose(file);
  }
  info.driver += "CUDA " + version(driver);
  info.runtime = "CUDA " + version(runtime);
  info.compiler = "nvcc " + std::to_string(__CUDACC_VER_MAJOR__) + '.' +
                  std::to_string(__CUDACC_VER_MINOR__) + '.' + std::to_string(__CUDACC_VER_BUILD__);
  return info;
}

bool has(const Instruction& in, const DeviceInfo& info) {
  if (in.in.bytes == 1 && !(&in.acc == &f16 ? CAPTURE_HAS_BYTES_TO_HALF : CAPTURE_HAS_BYTES)) return false;
  return info.architecture >= in.first && info.architecture <= in.last;
}

#endif  // FP16LAB_CAPTURE_REHEARSAL

}  // namespace capture

#ifndef FP16LAB_CAPTURE_REHEARSAL
int main() {
  capture::write_capture(stdout);
  return 0;
}
#endif
