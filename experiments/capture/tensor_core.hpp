// Tensor-core instructions, who executes them, and random operands for them. capture.cu beside this header
// asks a GPU on any machine; experiments/tensor_core_probe asks and judges. Needs the standard library alone
// (C++17), because the files of this folder are copied to machines that have nothing else of the project.
#pragma once

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

#ifdef __CUDACC__
#define CAPTURE_HD __host__ __device__
#else
#define CAPTURE_HD
#endif

namespace fp16lab::probe {

using Words = std::vector<std::uint32_t>;

// ---- Formats and instructions ---------------------------------------------------------------------------

struct Format {
  const char* name;
  int exponent_bits, fraction_bits;
  int low_bits;  ///< of the word, below the fraction: those that TF32 ignores
  int bytes;     ///< of a word in a register

  constexpr int bias() const { return (1 << (exponent_bits - 1)) - 1; }
  constexpr int emin() const { return 1 - bias(); }
  constexpr int emax() const { return bias(); }  ///< with which every significand is a finite number
  constexpr std::uint32_t mask() const { return 0xffffffffU >> (32 - 8 * bytes); }
  constexpr std::uint32_t word(bool sign, int exponent, std::uint32_t fraction) const {
    const auto field = static_cast<std::uint32_t>(exponent + bias());
    return (std::uint32_t{sign} << (exponent_bits + fraction_bits) | field << fraction_bits |
            (fraction & ((1U << fraction_bits) - 1)))
           << low_bits;
  }
  constexpr std::uint32_t minus_zero() const { return word(true, -bias(), 0); }
  constexpr std::uint32_t infinity() const { return word(false, bias() + 1, 0); }
  friend constexpr bool operator==(const Format& a, const Format& b) { return &a == &b; }
};

inline constexpr Format f16{"f16", 5, 10, 0, 2}, bf16{"bf16", 8, 7, 0, 2}, tf32{"tf32", 8, 10, 13, 4},
    e4m3{"e4m3", 4, 3, 0, 1}, e5m2{"e5m2", 5, 2, 0, 1}, f32{"f32", 8, 23, 0, 4};

/// (-1)^sign * 1.fraction * 2^exponent, at most the largest exponent; below the normal range a subnormal with
/// its leading one there, of whose fraction the low bits count.
constexpr std::uint32_t value_of(const Format& format, bool sign, int exponent, std::uint32_t fraction) {
  if (exponent >= format.emin()) return format.word(sign, std::min(exponent, format.emax()), fraction);
  const int leading = std::max(format.fraction_bits - (format.emin() - exponent), 0);
  return format.word(sign, -format.bias(), 1U << leading | (fraction & ((1U << leading) - 1)));
}

/// The word of a number that the format has, an infinity or a NaN.
inline std::uint32_t encode(const Format& format, float number) {
  std::uint32_t bits;
  std::memcpy(&bits, &number, sizeof bits);
  const bool sign = bits >> 31 != 0;
  const int exponent = static_cast<int>(bits >> 23 & 0xff) - 127;
  const std::uint32_t fraction = (bits & 0x7fffff) >> (23 - format.fraction_bits);
  if (number == 0) return format.word(sign, -format.bias(), 0);
  if (!std::isfinite(number)) return format.word(sign, format.bias() + 1, fraction);
  // E4M3 has numbers with the exponent that others keep for infinity.
  if (exponent > format.emax()) return format.word(sign, exponent, fraction);
  return value_of(format, sign, exponent,
                  exponent < format.emin() ? fraction >> (format.emin() - exponent) : fraction);
}

/// The words in the width of their format: "0c00 0800".
inline std::string hex(const Words& words, const Format& format) {
  std::string text;
  for (const std::uint32_t word : words) {
    char digits[16];
    std::snprintf(digits, sizeof digits, "%0*x", 2 * format.bytes,
                  static_cast<unsigned>(word & format.mask()));
    text += text.empty() ? digits : std::string(" ") + digits;
  }
  return text;
}
inline std::string hex(std::uint32_t word, const Format& format) { return hex(Words{word}, format); }

/// The way into the tensor core. PTX promises the same results for none of them.
enum class Unit : std::uint8_t { mma, wmma, wgmma };

/// D (m x n) = C (+) A (m x k) * B (k x n), all in one instruction.
struct Instruction {
  const char* name;  ///< "mma.m16n8k16.f32.f16": unit, shape, accumulator, operands
  Unit unit;
  std::size_t m, n, k;
  const Format& operands;  ///< of A and of B
  const Format& accumulator;
  int first, last;  ///< architectures whose tensor cores execute it: 70 to 72, 75 and newer

  constexpr std::size_t outputs() const { return m * n; }
};

inline constexpr int newest = 9999;
inline constexpr Instruction instructions[] = {
    {"mma.m8n8k4.f32.f16", Unit::mma, 8, 8, 4, f16, f32, 70, 72},
    {"mma.m8n8k4.f16.f16", Unit::mma, 8, 8, 4, f16, f16, 70, 72},
    {"mma.m16n8k8.f32.f16", Unit::mma, 16, 8, 8, f16, f32, 75, newest},
    {"mma.m16n8k8.f16.f16", Unit::mma, 16, 8, 8, f16, f16, 75, newest},
    {"mma.m16n8k16.f32.f16", Unit::mma, 16, 8, 16, f16, f32, 80, newest},
    {"mma.m16n8k16.f16.f16", Unit::mma, 16, 8, 16, f16, f16, 80, newest},
    {"mma.m16n8k8.f32.bf16", Unit::mma, 16, 8, 8, bf16, f32, 80, newest},
    {"mma.m16n8k16.f32.bf16", Unit::mma, 16, 8, 16, bf16, f32, 80, newest},
    {"mma.m16n8k4.f32.tf32", Unit::mma, 16, 8, 4, tf32, f32, 80, newest},
    {"mma.m16n8k8.f32.tf32", Unit::mma, 16, 8, 8, tf32, f32, 80, newest},
    {"mma.m16n8k32.f32.e4m3", Unit::mma, 16, 8, 32, e4m3, f32, 89, newest},
    {"mma.m16n8k32.f32.e5m2", Unit::mma, 16, 8, 32, e5m2, f32, 89, newest},
    {"mma.m16n8k32.f16.e4m3", Unit::mma, 16, 8, 32, e4m3, f16, 89, newest},
    {"mma.m16n8k32.f16.e5m2", Unit::mma, 16, 8, 32, e5m2, f16, 89, newest},
    {"wmma.m16n16k16.f32.f16", Unit::wmma, 16, 16, 16, f16, f32, 70, newest},
    {"wmma.m16n16k16.f32.bf16", Unit::wmma, 16, 16, 16, bf16, f32, 80, newest},
    {"wmma.m16n16k8.f32.tf32", Unit::wmma, 16, 16, 8, tf32, f32, 80, newest},
    {"wgmma.m64n8k16.f32.f16", Unit::wgmma, 64, 8, 16, f16, f32, 90, 90},
    {"wgmma.m64n8k16.f16.f16", Unit::wgmma, 64, 8, 16, f16, f16, 90, 90},
    {"wgmma.m64n8k16.f32.bf16", Unit::wgmma, 64, 8, 16, bf16, f32, 90, 90},
    {"wgmma.m64n8k8.f32.tf32", Unit::wgmma, 64, 8, 8, tf32, f32, 90, 90},
    {"wgmma.m64n8k32.f32.e4m3", Unit::wgmma, 64, 8, 32, e4m3, f32, 90, 90},
    {"wgmma.m64n8k32.f32.e5m2", Unit::wgmma, 64, 8, 32, e5m2, f32, 90, 90},
    {"wgmma.m64n8k32.f16.e4m3", Unit::wgmma, 64, 8, 32, e4m3, f16, 90, 90},
    {"wgmma.m64n8k32.f16.e5m2", Unit::wgmma, 64, 8, 32, e5m2, f16, 90, 90},
};

/// The instruction of this name; null if there is none.
inline const Instruction* find_instruction(std::string_view name) {
  for (const Instruction& in : instructions)
    if (in.name == name) return &in;
  return nullptr;
}
/// std::invalid_argument if there is none.
inline const Instruction& instruction(std::string_view name) {
  const Instruction* const in = find_instruction(name);
  if (in == nullptr) throw std::invalid_argument("unknown instruction '" + std::string(name) + '\'');
  return *in;
}

/// A scalar instruction outside the tensor core. The names are those of capture files.
enum class HalfOperation : std::uint8_t {
  add,          ///< add.rn.f16
  mul,          ///< mul.rn.f16
  fma,          ///< fma.rn.f16
  cvt_f16_f32,  ///< cvt.{rn,rz,rm,rp}.f16.f32
  cvt_f32_f16,  ///< cvt.f32.f16
};
constexpr std::array<std::string_view, 5> names_of(HalfOperation) {
  return {"add", "mul", "fma", "narrow", "widen"};
}
/// How many operands it has.
constexpr std::size_t arity_of(HalfOperation operation) {
  return operation == HalfOperation::fma ? 3 : operation > HalfOperation::fma ? 1 : 2;
}
enum class HalfRounding : std::uint8_t { rn, rz, rm, rp };
constexpr std::array<std::string_view, 4> names_of(HalfRounding) { return {"rn", "rz", "rm", "rp"}; }

struct HalfInstruction {
  HalfOperation operation;
  bool ftz = false, sat = false;
  bool packed = false;  ///< .f16x2: the operand words hold two halves each
  HalfRounding rounding = HalfRounding::rn;
};

// Which element sits in which register of which lane (PTX ISA, "Matrix Fragments for mma.m16n8k*" and
// "Register Fragments for wgmma.mma_async.m64nNk*"). Counted in bytes along k, every format has the same
// layout: a register holds 4 consecutive bytes of a row of A or of a column of B. A warpgroup is four warps
// with 16 rows each.

/// A register's first byte within a row of A or a column of B; or the place of an element of C and D.
struct FragmentPlace {
  int line, offset;
};
/// Register r of A: 2 registers where k spans 16 bytes, 4 where it spans 32.
CAPTURE_HD constexpr FragmentPlace a_register(int lane, int r) {
  return {lane / 4 + 8 * (r % 2), 4 * (lane % 4) + 16 * (r / 2)};
}
/// Register r of B: 1 register where k spans 16 bytes, 2 where it spans 32.
CAPTURE_HD constexpr FragmentPlace b_register(int lane, int r) { return {lane / 4, 4 * (lane % 4) + 16 * r}; }
/// Element i < 4 of C and D (16 x 8). In FP16 elements 2r and 2r + 1 share register r, the even one in its
/// low half.
CAPTURE_HD constexpr FragmentPlace accumulator_element(int lane, int i) {
  return {lane / 4 + 8 * (i / 2), 2 * (lane % 4) + i % 2};
}
/// A register of elements of so many bytes, the first in its low bits.
CAPTURE_HD inline std::uint32_t packed_register(const std::uint32_t* elements, int bytes) {
  std::uint32_t result = 0;
  for (int i = 0; i < 4 / bytes; ++i)
    result |= (elements[i] & 0xffffffffU >> (32 - 8 * bytes)) << (8 * bytes * i % 32);
  return result;
}

// ---- Who answers ----------------------------------------------------------------------------------------

/// Operands for `count` executions of one instruction; a word holds one element's bits (TF32: a register).
struct Tiles {
  std::size_t count = 0;
  Words a;  ///< count x m x k
  Words b;  ///< count x n x k: B transposed, so that a column is contiguous like a row of A
  Words c;  ///< count x m x n
};

/// Zeros for `count` executions.
inline Tiles make_tiles(const Instruction& in, std::size_t count) {
  return {count, Words(count * in.m * in.k), Words(count * in.n * in.k), Words(count * in.outputs())};
}

/// The same in device memory, and d, count x m x n.
struct DeviceTiles {
  const std::uint32_t *a, *b, *c;
  std::uint32_t* d;
};

/// Compute capability of a device: 9.0 is {9, 0}.
struct Capability {
  int major = 0, minor = 0;
  constexpr int architecture() const { return 10 * major + minor; }
};

struct DeviceInfo {
  std::string name;  ///< "NVIDIA H200"
  Capability capability;
  int driver_version = 0;   ///< the highest CUDA version the driver supports, as CUDA counts: 13000 for 13.0
  int runtime_version = 0;  ///< of the CUDA runtime, alike
  std::string driver;       ///< the driver's own version, "580.65.06"; empty where the system does not tell
  std::string kernels;      ///< what the kernels were compiled for: "sm_90"
  std::string compiler;     ///< "nvcc 13.0.88"
};

/// 13000 is "13.0".
inline std::string cuda_version(int version) {
  return std::to_string(version / 1000) + '.' + std::to_string(version % 1000 / 10);
}

/// What executes the instructions: a GPU, the capture of one, or the emulator in tests.
class Device {
 public:
  Device() = default;
  Device(const Device&) = delete;
  Device& operator=(const Device&) = delete;
  virtual ~Device() = default;

  virtual const DeviceInfo& info() const = 0;
  /// Whether the device and this build have the instruction.
  virtual bool has(const Instruction& in) const = 0;
  /// D, count x m x n words. `scale_d` is wgmma's operand: false tells it to ignore C. std::runtime_error if
  /// the device fails.
  virtual Words run(const Instruction& in, const Tiles& tiles, bool scale_d) = 0;
  /// Element by element; y and z may be empty where the operation does not read them.
  virtual Words run(const HalfInstruction& in, const Words& x, const Words& y, const Words& z) = 0;
};

// ---- Random operands ------------------------------------------------------------------------------------

/// Ordinary data, and everything that could tell two tensor cores apart. The names are those of capture
/// files.
enum class Distribution : std::uint8_t {
  ordinary,       ///< numbers within a few binades of 1
  wide,           ///< any normal exponent
  raw_bits,       ///< any code: NaN, infinity, subnormals, TF32's ignored bits
  subnormal,      ///< half of the operands subnormal, c too
  zeros,          ///< mostly zeros of both signs
  cancelling,     ///< products in pairs of opposite sign, some an ulp apart
  near_overflow,  ///< sums around the accumulator's largest number
  floor,          ///< sums around its smallest, products far below
  special,        ///< ordinary, sprinkled with NaN, infinity and zero
};
constexpr std::array<std::string_view, 9> names_of(Distribution) {
  return {"ordinary",   "wide",          "raw-bits", "subnormal", "zeros",
          "cancelling", "near-overflow", "floor",    "special"};
}

/// FNV-1a of 64 bits: streams of random words from names, and digests of words, each in its format's width.
class Digest {
 public:
  void add_byte(unsigned byte) { value_ = (value_ ^ byte) * 0x100000001b3u; }
  void add(const Words& words, const Format& format) {
    for (const std::uint32_t word : words)
      for (int shift = 0; shift < 32; shift += 8) add_byte((word & format.mask()) >> shift & 0xff);
  }
  std::uint64_t value() const { return value_; }

 private:
  std::uint64_t value_ = 0xcbf29ce484222325u;
};

inline std::uint64_t digest_of(std::string_view text) {
  Digest digest;
  for (const char c : text) digest.add_byte(static_cast<unsigned char>(c));
  return digest.value();
}
inline std::uint64_t digest_of(const Instruction& in, const Tiles& tiles) {
  Digest digest;
  digest.add(tiles.a, in.operands);
  digest.add(tiles.b, in.operands);
  digest.add(tiles.c, in.accumulator);
  return digest.value();
}

/// An endless sequence of tiles, fixed by instruction's name, distribution and seed through Philox4x32-10
/// (Salmon et al., SC 2011). Captures have only digests of these operands: what one version makes, every
/// later one must.
class RandomTiles {
 public:
  RandomTiles(const Instruction& in, Distribution distribution, std::uint64_t seed)
      : in_(in),
        distribution_(distribution),
        operands_(stream_of(seed, digest_of(in.name), distribution)),
        accumulators_(stream_of(seed, digest_of(in.name) + 1, distribution)) {}

  /// Tile `number` of the sequence as tile `at` of `tiles`.
  void make(std::uint64_t number, Tiles& tiles, std::size_t at) const {
    const std::size_t a_size = in_.m * in_.k, b_size = in_.n * in_.k;
    const std::uint64_t base = number * (a_size + b_size);
    fill(&tiles.a[at * a_size], a_size, base, true);
    fill(&tiles.b[at * b_size], b_size, base + a_size, false);
    for (std::size_t i = 0; i < in_.outputs(); ++i)
      tiles.c[at * in_.outputs() + i] = accumulator(accumulators_.bits(number * in_.outputs() + i));
  }

 private:
  /// Bits of one random word of 64, from its low end. C++ orders neither operands nor arguments: each call
  /// has a statement of its own.
  struct Bits {
    std::uint64_t bits;
    std::uint32_t take(int count) {
      const auto value = static_cast<std::uint32_t>(bits & ((std::uint64_t{1} << count) - 1));
      bits >>= count;
      return value;
    }
    bool flip() { return take(1) != 0; }
    int between(int low, int high) {  ///< uniform enough
      return low + static_cast<int>(take(16) * static_cast<std::uint32_t>(high - low + 1) >> 16);
    }
  };
  struct Stream {
    std::uint64_t key;
    std::uint32_t iteration;

    std::array<std::uint32_t, 4> block(std::uint64_t index) const {
      const auto low = [](std::uint64_t word) { return static_cast<std::uint32_t>(word); };
      std::array<std::uint32_t, 4> c{low(index), low(index >> 32), iteration, 0};
      std::uint32_t k0 = low(key), k1 = low(key >> 32);
      for (int round = 0; round < 10; ++round, k0 += 0x9E3779B9u, k1 += 0xBB67AE85u) {
        const std::uint64_t p0 = std::uint64_t{0xD2511F53u} * c[0], p1 = std::uint64_t{0xCD9E8D57u} * c[2];
        c = {low(p1 >> 32) ^ c[1] ^ k0, low(p1), low(p0 >> 32) ^ c[3] ^ k1, low(p0)};
      }
      return c;
    }
    Bits bits(std::uint64_t index) const {
      const std::array<std::uint32_t, 4> words = block(index);
      return {std::uint64_t{words[0]} << 32 | words[1]};
    }
    std::uint32_t word(std::uint64_t index) const { return block(index / 4)[index % 4]; }
  };

  static Stream stream_of(std::uint64_t seed, std::uint64_t number, Distribution distribution) {
    return {seed ^ (number * 0x9E3779B97F4A7C15u) ^ (number >> 29), static_cast<std::uint32_t>(distribution)};
  }

  /// An exponent from low to high; every other significand has at most two bits, so that sums tie and stay
  /// short.
  static std::uint32_t number(const Format& format, Bits& bits, int low, int high) {
    const int exponent = bits.between(low, high);
    const bool sign = bits.flip();
    const bool simple = bits.flip();
    return value_of(format, sign, exponent,
                    simple ? bits.take(1) << (format.fraction_bits - 1) : bits.take(format.fraction_bits));
  }
  /// For sums around 2^last_place: mostly zeros, so that few terms meet, and mostly powers of two, so that
  /// they tie. Two of the larger kind make about 2^last_place; one or two of the smaller kind something far
  /// below, which decides.
  static std::uint32_t near_floor(const Format& format, Bits& bits, int last_place) {
    const bool sign = bits.flip();
    if (bits.take(3) < 5) return format.word(sign, -format.bias(), 0);
    const bool larger = bits.flip();
    const int half = last_place / 2;
    const int exponent = larger ? bits.between(half - 1, half + 1) : bits.between(half - 12, half - 8);
    const std::uint32_t fraction = bits.take(format.fraction_bits);
    return value_of(format, sign, exponent, bits.take(2) == 0 ? fraction : 0);
  }
  static std::uint32_t zero(const Format& format, Bits& bits) {
    return format.word(bits.flip(), -format.bias(), 0);
  }
  static std::uint32_t zero_nan_or_infinity(const Format& format, Bits& bits) {
    const std::uint32_t kind = bits.take(2);
    if (kind == 0) return zero(format, bits);
    const bool sign = bits.flip();
    if (kind != 1) return format.word(sign, format.bias() + 1, 0);       // an infinity, or E4M3's 256
    const std::uint32_t fraction = bits.take(format.fraction_bits) | 1;  // a NaN; E4M3 has one, 7f
    return format.word(sign, format.bias() + 1, fraction) | (format == e4m3 ? 0x7fU : 0U);
  }
  static std::uint32_t any_word(const Format& format, Bits& bits) {
    const std::uint32_t low = bits.take(16);
    return (low | bits.take(16) << 16) & format.mask();
  }

  std::uint32_t operand(Bits bits) const {
    const std::uint32_t word = significant_bits(in_.operands, in_.accumulator, bits);
    if (distribution_ == Distribution::raw_bits) return word;
    return word | (bits.take(16) & ((1U << in_.operands.low_bits) - 1));
  }
  std::uint32_t significant_bits(const Format& format, const Format& sums, Bits& bits) const {
    using D = Distribution;
    const int least = format.emin(), most = format.emax();
    const D kind = distribution_;
    if (kind == D::raw_bits) return any_word(format, bits);
    if (kind == D::wide) return number(format, bits, least, most);
    if (kind == D::near_overflow) return number(format, bits, sums.emax() / 2 - 1, sums.emax() / 2 + 1);
    if (kind == D::floor) return near_floor(format, bits, sums.emin() - sums.fraction_bits);
    if (kind == D::subnormal && bits.flip())
      return number(format, bits, least - format.fraction_bits, least - 1);
    if (kind == D::subnormal) return number(format, bits, least, most);
    if (kind == D::zeros && bits.take(2) != 0) return zero(format, bits);
    if (kind == D::special && bits.take(4) == 0) return zero_nan_or_infinity(format, bits);
    return number(format, bits, -4, 2);
  }
  std::uint32_t accumulator(Bits bits) const {
    using D = Distribution;
    const Format& format = in_.accumulator;
    const int least = format.emin(), most = format.emax();
    const std::uint32_t choice = bits.take(3);
    const D kind = distribution_;
    if (kind == D::raw_bits) return any_word(format, bits);
    if (choice == 0 || (kind == D::floor && choice < 5)) return zero(format, bits);
    if (kind == D::wide) return number(format, bits, least - 3, most);
    if (kind == D::near_overflow) return number(format, bits, most - 1, most);
    if (kind == D::subnormal || kind == D::floor)
      return number(format, bits, least - format.fraction_bits, least);
    if (kind == D::cancelling) return number(format, bits, -24, 0);
    if (kind == D::special && choice == 1) return zero_nan_or_infinity(format, bits);
    return number(format, bits, -6, 4);
  }

  void fill(std::uint32_t* words, std::size_t size, std::uint64_t first, bool is_a) const {
    for (std::size_t i = 0; i < size; ++i) words[i] = operand(operands_.bits(first + i));
    if (distribution_ != Distribution::cancelling) return;
    // The second half of every line is the first one's negative, in reverse, so that any row cancels with any
    // column; one element in eight of A is an ulp beside it.
    for (std::size_t line = 0; line < size; line += in_.k)
      for (std::size_t i = 0; i < in_.k / 2; ++i) {
        const bool nudge = is_a && operands_.word(first + line + i) % 8 == 0;
        words[line + in_.k - 1 - i] = words[line + i] ^ (is_a ? in_.operands.minus_zero() : 0) ^
                                      (nudge ? 1U << in_.operands.low_bits : 0);
      }
  }

  const Instruction& in_;
  Distribution distribution_;
  Stream operands_, accumulators_;
};

}  // namespace fp16lab::probe
