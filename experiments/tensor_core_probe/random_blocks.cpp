#include "experiments/tensor_core_probe/random_blocks.hpp"

#include <algorithm>
#include <array>

#include "numerics/formats/format.hpp"
#include "numerics/platform/worker_pool.hpp"
#include "numerics/random/philox.hpp"

namespace fp16lab::probe {
namespace {

// experiments/capture/capture.cu makes the same operands from the same words: whoever changes one changes
// both. Words are taken in statements of their own, because C++ orders neither operands nor arguments.

constexpr std::size_t tiles_in_a_batch = 4096;
constexpr std::size_t differences_kept = 3;

/// The fields of a format, at run time.
struct Fields {
  int exponent_bits, fraction_bits;
  int low_bits = 0;  ///< of the word, below the fraction: TF32's ignored ones

  int bias() const { return (1 << (exponent_bits - 1)) - 1; }
  int emin() const { return 1 - bias(); }
  int emax() const { return bias(); }  ///< with which every significand is a finite number
  std::uint32_t random_low_bits(std::uint32_t random) const { return random & ((1U << low_bits) - 1); }
  std::uint32_t word(bool sign, int exponent, std::uint32_t fraction) const {
    const auto field = static_cast<std::uint32_t>(exponent + bias());
    return (std::uint32_t{sign} << (exponent_bits + fraction_bits) | field << fraction_bits |
            (fraction & ((1U << fraction_bits) - 1)))
           << low_bits;
  }
};

constexpr Fields fields_of(DType format) {
  return visit_dtype<is_floating>(format, [](auto dtype) {
    using F = typename decltype(dtype)::Format;
    return Fields{F::exponent_bits, F::fraction_bits, ignored_bits<F>};
  });
}

/// Independent bits of one random word, taken from its low end.
class Bits {
 public:
  Bits(std::uint32_t high, std::uint32_t low) : bits_(std::uint64_t{high} << 32 | low) {}
  std::uint32_t take(int count) {
    const auto value = static_cast<std::uint32_t>(bits_ & ((std::uint64_t{1} << count) - 1));
    bits_ >>= count;
    return value;
  }
  /// Uniform enough in [low, high].
  int between(int low, int high) {
    return low + static_cast<int>(take(16) * static_cast<std::uint32_t>(high - low + 1) >> 16);
  }

 private:
  std::uint64_t bits_;
};

/// (-1)^sign * 1.fraction * 2^exponent, clamped to the format's largest exponent; below its normal range a
/// subnormal with its leading one there.
std::uint32_t value(const Fields& format, bool sign, int exponent, std::uint32_t fraction) {
  if (exponent >= format.emin()) return format.word(sign, std::min(exponent, format.emax()), fraction);
  const int leading = std::max(format.fraction_bits - (format.emin() - exponent), 0);
  return format.word(sign, -format.bias(), 1U << leading | (fraction & ((1U << leading) - 1)));
}

/// A number with an exponent in [low, high].
std::uint32_t number(const Fields& format, Bits& bits, int low, int high) {
  const int exponent = bits.between(low, high);
  const bool sign = bits.take(1) != 0;
  // Every other significand has at most two bits, so that sums tie and stay short.
  const bool simple = bits.take(1) != 0;
  return value(format, sign, exponent,
               simple ? bits.take(1) << (format.fraction_bits - 1) : bits.take(format.fraction_bits));
}

/// For sums around 2^last_place: mostly zeros, so that few terms meet, and mostly powers of two, so that they
/// tie. Two of the larger kind make about 2^last_place; one or two of the smaller kind something far below,
/// which decides.
std::uint32_t near_floor(const Fields& format, Bits& bits, int last_place) {
  const bool sign = bits.take(1) != 0;
  if (bits.take(3) < 5) return format.word(sign, -format.bias(), 0);
  const bool larger = bits.take(1) != 0;
  const int half = last_place / 2;
  const int exponent = larger ? bits.between(half - 1, half + 1) : bits.between(half - 12, half - 8);
  const std::uint32_t fraction = bits.take(format.fraction_bits);
  return value(format, sign, exponent, bits.take(2) == 0 ? fraction : 0);
}

std::uint32_t zero(const Fields& format, Bits& bits) {
  return format.word(bits.take(1) != 0, -format.bias(), 0);
}

std::uint32_t special(const Fields& format, Bits& bits) {
  const std::uint32_t kind = bits.take(2);
  if (kind == 0) return zero(format, bits);
  const bool sign = bits.take(1) != 0;
  if (kind != 1) return format.word(sign, format.bias() + 1, 0);       // an infinity, or E4M3's 256
  const std::uint32_t fraction = bits.take(format.fraction_bits) | 1;  // a NaN; E4M3 has one
  return format.word(sign, format.bias() + 1, fraction) |
         (format.fraction_bits == Fp8E4M3::fraction_bits ? Fp8E4M3::canonical_nan : 0);
}

std::uint32_t any_word(Bits& bits) {
  const std::uint32_t low = bits.take(16);
  return low | bits.take(16) << 16;
}

std::uint32_t element(const Instruction& in, Distribution distribution, const Fields& format, Bits bits) {
  const Fields accumulator = fields_of(in.accumulator);
  std::uint32_t word = 0;
  switch (distribution) {
    case Distribution::ordinary:
    case Distribution::cancelling:
      word = number(format, bits, -4, 2);
      break;
    case Distribution::wide:
      word = number(format, bits, format.emin(), format.emax());
      break;
    case Distribution::raw_bits:
      return any_word(bits);
    case Distribution::subnormal:
      word = bits.take(1) != 0 ? number(format, bits, format.emin() - format.fraction_bits, format.emin() - 1)
                               : number(format, bits, format.emin(), format.emax());
      break;
    case Distribution::zeros:
      word = bits.take(2) != 0 ? zero(format, bits) : number(format, bits, -4, 2);
      break;
    case Distribution::near_overflow:
      word = number(format, bits, accumulator.emax() / 2 - 1, accumulator.emax() / 2 + 1);
      break;
    case Distribution::floor:
      word = near_floor(format, bits, accumulator.emin() - accumulator.fraction_bits);
      break;
    case Distribution::special:
      word = bits.take(4) == 0 ? special(format, bits) : number(format, bits, -4, 2);
      break;
  }
  return word | format.random_low_bits(bits.take(16));
}

std::uint32_t accumulator(const Instruction& in, Distribution distribution, Bits bits) {
  const Fields format = fields_of(in.accumulator);
  const std::uint32_t kind = bits.take(3);
  if (distribution == Distribution::raw_bits) return any_word(bits);
  if (kind == 0) return zero(format, bits);
  switch (distribution) {
    case Distribution::wide:
      return number(format, bits, format.emin() - 3, format.emax());
    case Distribution::subnormal:
      return number(format, bits, format.emin() - format.fraction_bits, format.emin());
    case Distribution::near_overflow:
      return number(format, bits, format.emax() - 1, format.emax());
    case Distribution::floor:
      return kind < 5 ? zero(format, bits)
                      : number(format, bits, format.emin() - format.fraction_bits, format.emin());
    case Distribution::cancelling:
      return number(format, bits, -24, 0);
    case Distribution::special:
      return kind == 1 ? special(format, bits) : number(format, bits, -6, 4);
    default:
      return number(format, bits, -6, 4);
  }
}

/// Makes the second half of every dot product the first half's negative, in reverse; one element in eight of
/// A keeps a last place of its own. Cancels for any row with any column.
void cancel(const Instruction& in, std::span<std::uint32_t> line, bool negate, const PhiloxStream& stream,
            std::uint64_t index) {
  const Fields format = fields_of(in.operands);
  const std::size_t k = line.size();
  for (std::size_t i = 0; i < k / 2; ++i) {
    const std::uint32_t sign = 1U << (format.exponent_bits + format.fraction_bits + format.low_bits);
    const bool nudge = negate && stream.word(index + i) % 8 == 0;
    line[k - 1 - i] = (line[i] ^ (negate ? sign : 0)) ^ (nudge ? 1U << format.low_bits : 0);
  }
}

}  // namespace

Tiles random_tiles(const Instruction& instruction, Distribution distribution, std::uint64_t seed,
                   std::uint64_t first_tile, std::size_t count, int threads) {
  Tiles tiles = make_tiles(instruction, count);
  const Fields operands = fields_of(instruction.operands);
  const auto k = static_cast<std::size_t>(instruction.k);
  const PhiloxStream operand_bits{.seed = seed,
                                  .stream = stream_id(instruction.name),
                                  .iteration = static_cast<std::uint32_t>(distribution)};
  const PhiloxStream accumulator_bits{.seed = seed,
                                      .stream = stream_id(instruction.name) + 1,
                                      .iteration = static_cast<std::uint32_t>(distribution)};
  const std::size_t a_size = tiles.a.size() / count, b_size = tiles.b.size() / count,
                    c_size = tiles.c.size() / count;
  const auto fill_tile = [&](std::size_t tile) {
    const std::uint64_t base = (first_tile + tile) * (a_size + b_size);
    const auto fill = [&](std::vector<std::uint32_t>& words, std::size_t size, std::uint64_t first,
                          bool negate) {
      const std::span<std::uint32_t> mine = std::span(words).subspan(tile * size, size);
      for (std::size_t i = 0; i < size; ++i) {
        const PhiloxCounter random = operand_bits.block(first + i);
        mine[i] = element(instruction, distribution, operands, {random[0], random[1]});
      }
      if (distribution == Distribution::cancelling)
        for (std::size_t i = 0; i < size; i += k)
          cancel(instruction, mine.subspan(i, k), negate, operand_bits, first + i);
    };
    fill(tiles.a, a_size, base, true);
    fill(tiles.b, b_size, base + a_size, false);
    for (std::size_t i = 0; i < c_size; ++i) {
      const PhiloxCounter random = accumulator_bits.block((first_tile + tile) * c_size + i);
      tiles.c[tile * c_size + i] = accumulator(instruction, distribution, {random[0], random[1]});
    }
  };
  share_tasks(count, threads, fill_tile);
  return tiles;
}

void compare_tiles(const Instruction& instruction, const Tiles& tiles, std::span<const std::uint32_t> d,
                   int threads, const DotProduct& expected, Comparison& comparison) {
  const auto m = static_cast<std::size_t>(instruction.m), n = static_cast<std::size_t>(instruction.n),
             k = static_cast<std::size_t>(instruction.k);
  const std::uint32_t mask = instruction.accumulator == DType::f16 ? 0xffffU : 0xffffffffU;
  std::vector<std::vector<std::size_t>> differing(tiles.count);  // output numbers, by tile
  share_tasks(tiles.count, threads, [&](std::size_t tile) {
    for (std::size_t i = 0; i < m * n; ++i) {
      const auto a = std::span(tiles.a).subspan((tile * m + i / n) * k, k);
      const auto b = std::span(tiles.b).subspan((tile * n + i % n) * k, k);
      const std::size_t output = tile * m * n + i;
      if (expected(a, b, tiles.c[output] & mask) != d[output]) differing[tile].push_back(output);
    }
  });
  comparison.outputs += tiles.count * m * n;
  for (std::size_t tile = 0; tile < tiles.count; ++tile) {
    comparison.differing += differing[tile].size();
    for (const std::size_t output : differing[tile]) {
      if (comparison.first.size() >= differences_kept) break;
      const auto a = std::span(tiles.a).subspan(output / n * k, k);
      const auto b = std::span(tiles.b).subspan((tile * n + output % n) * k, k);
      const std::uint32_t c = tiles.c[output] & mask;
      comparison.first.push_back(
          {{a.begin(), a.end()}, {b.begin(), b.end()}, c, d[output], expected(a, b, c)});
    }
  }
}

Comparison compare_random(Device& device, const Instruction& instruction, Distribution distribution,
                          std::uint64_t seed, std::uint64_t outputs, int threads,
                          const DotProduct& expected) {
  const auto outputs_of_tile =
      static_cast<std::uint64_t>(instruction.m) * static_cast<std::uint64_t>(instruction.n);
  const std::uint64_t count = (outputs + outputs_of_tile - 1) / outputs_of_tile;
  Comparison comparison;
  for (std::uint64_t first = 0; first < count; first += tiles_in_a_batch) {
    const Tiles tiles = random_tiles(instruction, distribution, seed, first,
                                     std::min<std::uint64_t>(tiles_in_a_batch, count - first), threads);
    compare_tiles(instruction, tiles, device.run(instruction, tiles, true), threads, expected, comparison);
  }
  return comparison;
}

}  // namespace fp16lab::probe
