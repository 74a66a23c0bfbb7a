#include "numerics/convert/quantizer.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstddef>
#include <limits>
#include <stdexcept>

#include "numerics/convert/convert.hpp"
#include "numerics/platform/for_each_chunk.hpp"
#include "numerics/text/nearest_name.hpp"

namespace fp16lab {
namespace {

using enum DType;
using enum ScaleRule;

constexpr BlockShape of_32{1, 32}, of_16{1, 16}, square_of_16{16, 16}, of_128{1, 128},
    square_of_128{128, 128}, one_row{1, 0}, whole{0, 0};
constexpr std::array table{
    Quantizer{"mxfp8", e4m3, e8m0, of_32, floor, "OCP MX 1.0, MXFP8 (E4M3)"},
    Quantizer{"mxfp8-e5m2", e5m2, e8m0, of_32, floor, "OCP MX 1.0, MXFP8 (E5M2)"},
    Quantizer{"mxfp6-e3m2", e3m2, e8m0, of_32, floor, "OCP MX 1.0, MXFP6 (E3M2)"},
    Quantizer{"mxfp6-e2m3", e2m3, e8m0, of_32, floor, "OCP MX 1.0, MXFP6 (E2M3)"},
    Quantizer{"mxfp4", e2m1, e8m0, of_32, floor, "OCP MX 1.0, MXFP4 (E2M1)"},
    Quantizer{"nvfp4", e2m1, ue4m3, of_16, te, "Transformer Engine, NVFP4BlockScaling; arXiv 2509.25149"},
    Quantizer{"nvfp4-2d", e2m1, ue4m3, square_of_16, te,
              "Transformer Engine, NVFP4BlockScaling, weights; arXiv 2509.25149"},
    Quantizer{"fp8-1x128", e4m3, f32, of_128, deepgemm, "DeepSeek-V3, arXiv 2412.19437, activations"},
    Quantizer{"fp8-128x128", e4m3, f32, square_of_128, deepgemm, "DeepSeek-V3, arXiv 2412.19437, weights"},
    Quantizer{"fp8-row", e4m3, f32, one_row, torchao, "torchao float8, AXISWISE"},
    Quantizer{"fp8-tensor", e4m3, f32, whole, te, "Transformer Engine, Float8CurrentScaling"},
    Quantizer{"fp8-tensor-e5m2", e5m2, f32, whole, te, "Transformer Engine, Float8CurrentScaling, gradients"},
};
constexpr auto names = [] {
  std::array<std::string_view, table.size()> list;
  for (std::size_t i = 0; i < list.size(); ++i) list[i] = table[i].name;
  return list;
}();

constexpr std::array e8m0_rules{floor, ceil, even, rceil};
constexpr std::array ue4m3_rules{te, torchao};
constexpr std::array f32_rules{te, te_pow2, torchao, deepseek, deepgemm, deepgemm_pow2};

constexpr bool is_element(DType dtype) { return is_operand(dtype) && is_byte_format(dtype); }

[[noreturn]] void refuse(const Quantizer& quantizer, const std::string& what) {
  throw std::invalid_argument(fmt::format("quantizer '{}' {}", quantizer.name, what));
}

constexpr float infinity = std::numeric_limits<float>::infinity();
constexpr float largest_float = std::numeric_limits<float>::max();
constexpr float greatest_scale_of_ue4m3 = 448, least_normal_of_ue4m3 = 0x1p-6F;
constexpr std::uint32_t fraction_of_float = 0x7fffff;

int field_of(float magnitude) { return static_cast<int>(bits_of(magnitude) >> Binary32::fraction_bits); }
float power_of_field(int field) {
  return float_from_bits(static_cast<std::uint32_t>(field) << Binary32::fraction_bits);
}

/// The scale of a block, and what makes elements multiples of it.
struct Scale {
  float value = 0;
  float factor = 0;
  bool divides = false;

  void apply(const float* from, float* to, std::size_t count) const {
    if (divides)
      for (std::size_t i = 0; i < count; ++i) to[i] = from[i] / factor;
    else
      for (std::size_t i = 0; i < count; ++i) to[i] = from[i] * factor;
  }
};

/// The number of an E8M0 code.
float number_of_e8m0(int code) { return code == 0 ? 0x1p-127F : code == 255 ? NAN : power_of_field(code); }

/// What no block changes.
class Rule {
 public:
  Rule(const Quantizer& quantizer, float tensor_amax, bool has_tensor_scale) : quantizer_(quantizer) {
    visit_dtype<is_element>(quantizer.element, [&](auto dtype) {
      using F = typename decltype(dtype)::Format;
      top_ = widen(SmallFloat<F>::from_bits(F::max_finite));
      emax_ = F::emax;
      fraction_bits_ = F::fraction_bits;
      const float tie = top_ + std::ldexp(0.5F, F::emax - F::fraction_bits);
      first_beyond_ = F::max_finite % 2 == 1 ? tie : std::nextafter(tie, infinity);
    });
    if (quantizer.scale != ue4m3 || !has_tensor_scale) return;
    if (quantizer.rule == te) {
      encode_ = std::min(greatest_scale_of_ue4m3 * top_ / tensor_amax, largest_float);
      if (std::isnan(tensor_amax)) encode_ = tensor_amax;
      if (encode_ == 0) encode_ = 1;  // an infinity is the greatest
      tensor_scale_ = 1 / encode_;
    } else {
      tensor_scale_ = tensor_amax / (greatest_scale_of_ue4m3 * top_);
      encode_ = 1 / tensor_scale_;
    }
    two_levels_ = true;
  }

  float top() const { return top_; }
  /// The least magnitude that rounds beyond the top.
  float first_beyond() const { return first_beyond_; }
  float tensor_scale() const { return tensor_scale_; }

  Scale operator()(float amax) const {
    switch (quantizer_.scale) {
      case e8m0:
        return power_of_two(amax);
      case ue4m3:
        return quantizer_.rule == te ? as_transformer_engine(amax) : as_torchao(amax);
      default:
        return of_float(amax);
    }
  }

 private:
  Scale power_of_two(float amax) const {
    if (quantizer_.rule == rceil) {
      // PTX ISA, cvt.rp.satfinite.ue8m0x2.f32
      const float least = amax / top_;
      int code = 255;
      if (!std::isnan(least)) {
        code = least <= 0x1p-127F ? 0 : field_of(least) + ((bits_of(least) & fraction_of_float) != 0 ? 1 : 0);
        code = std::min(code, 254);
      }
      // Both libraries leave the elements of the least scale as they are.
      const float factor = code == 255   ? least
                           : code == 0   ? 1
                           : code == 254 ? 0x1p-127F
                                         : power_of_field(254 - code);
      return {number_of_e8m0(code), factor};
    }
    if (std::isnan(amax)) return {NAN, infinity, true};
    if (quantizer_.rule == even)
      amax = float_from_bits(bits_of(amax) +
                             (std::uint32_t{1} << (Binary32::fraction_bits - fraction_bits_ - 1)));
    int exponent = field_of(amax) - Binary32::bias - emax_;
    if (quantizer_.rule == ceil && (bits_of(amax) & fraction_of_float) != 0) ++exponent;
    const int code = std::clamp(exponent + Binary32::bias, 0, 255);
    return {number_of_e8m0(code), std::max(power_of_field(code), 0x1p-126F), true};
  }

  Scale as_transformer_engine(float amax) const {
    const float least = std::min(amax * (encode_ * (1 / top_)), largest_float);
    const float value = rounded(std::isnan(amax) || std::isnan(encode_) ? NAN : least);
    const float factor = 1 / (value * tensor_scale_);
    return {value, std::isnan(factor) ? factor : std::min(factor, largest_float)};
  }

  Scale as_torchao(float amax) const {
    float least = amax / top_;
    if (two_levels_) least /= tensor_scale_;
    const float value = rounded(std::isnan(least) ? NAN : std::max(least, least_normal_of_ue4m3));
    return {value, encode_ / value};
  }

  /// To the nearest UE4M3 number.
  static float rounded(float scale) {
    if (scale > greatest_scale_of_ue4m3) scale = greatest_scale_of_ue4m3;
    return widen(narrow<ScaleUE4M3>(scale));
  }

  Scale of_float(float amax) const {
    switch (quantizer_.rule) {
      case te:
      case te_pow2: {
        float encode = 1;
        if (amax != 0 && std::isfinite(amax)) {
          encode = std::min(top_ / amax, largest_float);
          if (quantizer_.rule == te_pow2) encode = float_from_bits(bits_of(encode) & ~fraction_of_float);
        }
        return {1 / encode, encode};
      }
      case torchao: {
        const double amax64 = std::isnan(amax) ? double{NAN} : std::max(double{amax}, 1e-12);
        const auto encode = static_cast<float>(double{top_} / amax64);
        return {1 / encode, encode};
      }
      case deepseek:
        return {amax / top_, amax / top_, true};
      default: {
        float value = (std::isnan(amax) ? amax : std::max(amax, 1e-4F)) / top_;
        if (quantizer_.rule == deepgemm_pow2 && std::isfinite(value))
          value = power_of_field(
              std::clamp(field_of(value) + ((bits_of(value) & fraction_of_float) != 0 ? 1 : 0), 1, 254));
        return {value, 1 / value};
      }
    }
  }

  const Quantizer& quantizer_;
  float top_ = 0, first_beyond_ = 0;
  int emax_ = 0, fraction_bits_ = 0;
  float encode_ = 1, tensor_scale_ = 1;
  bool two_levels_ = false;
};

/// The greatest magnitude; NaN if there is one.
float amax_of(const float* values, std::size_t count) {
  // Magnitudes are ordered as their bits are, NaN last, so that a vector maximum of integers does both.
  std::uint32_t greatest = 0;
  for (std::size_t i = 0; i < count; ++i)
    greatest = std::max(greatest, bits_of(values[i]) & Binary32::magnitude_mask);
  return float_from_bits(greatest);
}

/// The greater magnitude, or NaN.
float greater(float a, float b) { return std::isnan(a) || a > b ? a : b; }

std::size_t index(std::int64_t n) { return static_cast<std::size_t>(n); }

void check_size(const Quantizer& quantizer, const char* what, std::size_t has, std::int64_t needs) {
  if (has != index(needs))
    refuse(quantizer, fmt::format("is given {} {}; the matrix has {}", has, what, needs));
}

/// The blocks of a matrix, and the pieces of work: whole rows of blocks, enough of them to be worth a thread.
class Blocks {
 public:
  Blocks(const Quantizer& quantizer, MatrixSize size) : columns_(size.columns) {
    quantizer.check();
    if (size.rows < 0 || size.columns < 0 ||
        (size.columns > 0 && size.rows > std::numeric_limits<std::int64_t>::max() / 4 / size.columns))
      refuse(quantizer, fmt::format("is given a matrix of {} x {}", size.rows, size.columns));
    const MatrixSize scales = quantizer.scales_of(size);
    down_ = scales.rows;
    across_ = scales.columns;
    shape_ = {quantizer.block.rows == 0 ? size.rows : quantizer.block.rows,
              quantizer.block.columns == 0 ? size.columns : quantizer.block.columns};
    constexpr std::int64_t enough = 1 << 14;
    together_ = std::max<std::int64_t>(1, enough / std::max<std::int64_t>(1, shape_.rows * columns_));
  }

  std::int64_t count() const { return down_ * across_; }
  std::int64_t elements() const { return down_ * shape_.rows * columns_; }
  const BlockShape& shape() const { return shape_; }
  /// The scale of an element.
  std::int64_t block_of(std::int64_t row, std::int64_t column) const {
    return row / shape_.rows * across_ + column / shape_.columns;
  }

  /// body(first row, past the last row), all elements of which belong to it.
  template <class Body>
  void share_rows(int threads, const Body& body) const {
    share_tasks(index((down_ + together_ - 1) / together_), threads, [&](std::size_t task) {
      const FloatingPointScope scope;
      const std::int64_t first = static_cast<std::int64_t>(task) * together_;
      body(first * shape_.rows, std::min(first + together_, down_) * shape_.rows);
    });
  }
  /// body(block, where its first element is) for the blocks of these rows.
  template <class Body>
  void each(std::int64_t first_row, std::int64_t last_row, const Body& body) const {
    for (std::int64_t row = first_row; row < last_row; row += shape_.rows)
      for (std::int64_t column = 0; column < columns_; column += shape_.columns)
        body(block_of(row, column), row * columns_ + column);
  }

 private:
  std::int64_t columns_, down_, across_, together_;
  BlockShape shape_;
};

/// What the elements of a block lost at its scale.
template <class F>
BlockLoss loss_of(const float* values, const std::uint8_t* codes, std::int64_t stride, BlockShape shape,
                  const Scale& scale, const Rule& rule) {
  BlockLoss loss;
  const std::uint32_t beyond = bits_of(rule.first_beyond());
  std::uint32_t greatest = 0;  // magnitudes are ordered as their bits are, NaN last
  std::array<float, 64> multiples;
  for (std::int64_t r = 0; r < shape.rows; ++r)
    for (std::int64_t c = 0; c < shape.columns; c += std::ssize(multiples)) {
      const std::size_t count = std::min(index(shape.columns - c), multiples.size());
      const float* const x = values + r * stride + c;
      const std::uint8_t* const code = codes + r * stride + c;
      scale.apply(x, multiples.data(), count);
      for (std::size_t i = 0; i < count; ++i) {
        const std::uint32_t value = bits_of(x[i]) & Binary32::magnitude_mask,
                            multiple = bits_of(multiples[i]) & Binary32::magnitude_mask;
        loss.made_zero += (value != 0 ? 1U : 0U) & ((code[i] & F::magnitude_mask) == 0 ? 1U : 0U);
        loss.saturated += (value < Binary32::infinity ? 1U : 0U) & (multiple >= beyond ? 1U : 0U) &
                          (multiple <= Binary32::infinity ? 1U : 0U);
        greatest = std::max(greatest, multiple);
      }
    }
  const float most = float_from_bits(greatest);
  loss.headroom = most > 0 && std::isfinite(most) ? std::log2(rule.top() / most) : NAN;
  return loss;
}

void check(const Quantizer& quantizer, const QuantizeOptions& options) {
  if (options.scale && quantizer.scale != f32)
    refuse(quantizer,
           fmt::format("takes no scale from outside: its scales are {}, which blocks make themselves",
                       name_of(quantizer.scale)));
  if (options.scale && !(*options.scale > 0 && std::isfinite(*options.scale)))
    refuse(quantizer, fmt::format("is given scale {}; a finite one above 0 is needed", *options.scale));
  if (!options.tensor_amax) return;
  if (quantizer.scale != ue4m3 || !options.tensor_scale)
    refuse(quantizer, "has no scale of the tensor, for which an amax of the tensor is");
  if (!(*options.tensor_amax >= 0 && std::isfinite(*options.tensor_amax)))
    refuse(quantizer, fmt::format("is given amax {} of the tensor; a finite one, 0 or above, is needed",
                                  *options.tensor_amax));
}

}  // namespace

std::span<const Quantizer> quantizers() { return table; }

const Quantizer& quantizer(std::string_view name) {
  for (const Quantizer& known : table)
    if (known.name == name) return known;
  throw std::invalid_argument(fmt::format("unknown quantizer '{}': {}", name, known_are(name, names)));
}

std::span<const ScaleRule> rules_of(DType scale) {
  switch (scale) {
    case e8m0:
      return e8m0_rules;
    case ue4m3:
      return ue4m3_rules;
    case f32:
      return f32_rules;
    default:
      return {};
  }
}

void Quantizer::check() const {
  if (!is_element(element))
    refuse(*this,
           fmt::format("has elements of {}; e4m3, e5m2, e3m2, e2m3 and e2m1 are possible", name_of(element)));
  const std::span<const ScaleRule> rules = rules_of(scale);
  if (rules.empty())
    refuse(*this, fmt::format("has scales of {}; e8m0, ue4m3 and f32 are possible", name_of(scale)));
  if (std::ranges::find(rules, rule) == rules.end()) {
    std::string known;
    for (const ScaleRule one : rules) known.append(known.empty() ? "" : ", ").append(name_of(one));
    refuse(*this, fmt::format("has scales of {}, which rule '{}' does not make; {} are possible",
                              name_of(scale), name_of(rule), known));
  }
  if (block.rows < 0 || block.columns < 0)
    refuse(*this, fmt::format("has blocks of {} x {}; a positive number, or 0 for all, is needed", block.rows,
                              block.columns));
}

MatrixSize Quantizer::scales_of(MatrixSize size) const {
  const auto blocks = [&](const char* what, std::int64_t all, std::int64_t each) {
    if (each == 0) return std::int64_t{all > 0 ? 1 : 0};
    if (all % each != 0)
      refuse(*this,
             fmt::format("has blocks of {} {}, but the matrix has {}: a multiple is needed (zeros at its end "
                         "change no other block)",
                         each, what, all));
    return all / each;
  };
  return {blocks("rows", size.rows, block.rows), blocks("columns", size.columns, block.columns)};
}

float quantize(const Quantizer& quantizer, MatrixSize size, std::span<const float> values,
               std::span<std::uint8_t> codes, std::span<float> scales, const QuantizeOptions& options,
               std::span<BlockLoss> losses) {
  const Blocks blocks(quantizer, size);
  check_size(quantizer, "values", values.size(), blocks.elements());
  check_size(quantizer, "codes", codes.size(), blocks.elements());
  check_size(quantizer, "scales", scales.size(), blocks.count());
  if (!losses.empty()) check_size(quantizer, "losses", losses.size(), blocks.count());
  check_arrays("quantize", options.threads, {});
  check(quantizer, options);

  const FloatingPointScope scope;
  const bool two_levels = quantizer.scale == ue4m3 && options.tensor_scale;
  const float tensor_amax = !two_levels           ? 0
                            : options.tensor_amax ? *options.tensor_amax
                                                  : amax_of(values.data(), values.size());
  const Rule rule(quantizer, tensor_amax, two_levels);
  // Scales first; then elements, a line of a buffer at a time, whatever rows blocks have.
  std::vector<Scale> factors(scales.size());
  blocks.share_rows(options.threads, [&](std::int64_t first_row, std::int64_t last_row) {
    blocks.each(first_row, last_row, [&](std::int64_t block, std::int64_t at) {
      float amax = 0;
      for (std::int64_t r = 0; r < blocks.shape().rows && !options.scale; ++r)
        amax = greater(amax, amax_of(values.data() + at + r * size.columns, index(blocks.shape().columns)));
      factors[index(block)] = options.scale ? Scale{*options.scale, 1 / *options.scale} : rule(amax);
      scales[index(block)] = factors[index(block)].value;
    });
  });
  visit_dtype<is_element>(quantizer.element, [&](auto dtype) {
    using F = typename decltype(dtype)::Format;
    ArithmeticOptions rounding;
    rounding.saturate = true;
    const auto round = [&](std::span<const float> multiples, std::size_t first) {
      const std::span to(reinterpret_cast<SmallFloat<F>*>(codes.data()) + first, multiples.size());
      if (options.random != nullptr)
        narrow_stochastic<F>(multiples, to, *options.random, first, rounding);
      else
        narrow<F>(multiples, to, rounding);
    };
    for_each_chunk(values.size(), options.threads, [&](std::size_t begin, std::size_t count) {
      std::array<float, 4096> multiples;
      std::size_t held = 0;
      for (std::size_t at = begin; at < begin + count;) {
        const auto column = static_cast<std::int64_t>(at) % size.columns;
        const std::int64_t in_block = blocks.shape().columns - column % blocks.shape().columns;
        const std::size_t some = std::min({index(in_block), begin + count - at, multiples.size() - held});
        factors[index(blocks.block_of(static_cast<std::int64_t>(at) / size.columns, column))].apply(
            values.data() + at, multiples.data() + held, some);
        held += some;
        at += some;
        if (held < multiples.size() && at < begin + count) continue;
        round(std::span(multiples).first(held), at - held);
        held = 0;
      }
    });
    if (losses.empty()) return;
    blocks.share_rows(options.threads, [&](std::int64_t first_row, std::int64_t last_row) {
      blocks.each(first_row, last_row, [&](std::int64_t block, std::int64_t at) {
        losses[index(block)] = loss_of<F>(values.data() + at, codes.data() + at, size.columns, blocks.shape(),
                                          factors[index(block)], rule);
      });
    });
  });
  return rule.tensor_scale();
}

void dequantize(const Quantizer& quantizer, MatrixSize size, std::span<const std::uint8_t> codes,
                std::span<const float> scales, float tensor_scale, std::span<float> values, int threads) {
  const Blocks blocks(quantizer, size);
  check_size(quantizer, "values", values.size(), blocks.elements());
  check_size(quantizer, "codes", codes.size(), blocks.elements());
  check_size(quantizer, "scales", scales.size(), blocks.count());
  check_arrays("dequantize", threads, {});
  visit_dtype<is_element>(quantizer.element, [&](auto dtype) {
    using F = typename decltype(dtype)::Format;
    blocks.share_rows(threads, [&](std::int64_t first_row, std::int64_t last_row) {
      const std::size_t first = index(first_row * size.columns),
                        count = index((last_row - first_row) * size.columns);
      widen(std::span(reinterpret_cast<const SmallFloat<F>*>(codes.data()) + first, count),
            values.subspan(first, count));
      blocks.each(first_row, last_row, [&](std::int64_t block, std::int64_t at) {
        const float scale = scales[index(block)] * tensor_scale;
        for (std::int64_t r = 0; r < blocks.shape().rows; ++r)
          for (float& value : values.subspan(index(at + r * size.columns), index(blocks.shape().columns)))
            value *= scale;
      });
    });
  });
}

AmaxHistory::AmaxHistory(DType element, int length, Choice choice, int margin)
    : top_(0), choice_(choice), margin_(margin) {
  if (length < 1)
    throw std::invalid_argument(fmt::format("an amax history of length {}; 1 and more are possible", length));
  if (margin < -64 || margin > 64)
    throw std::invalid_argument(
        fmt::format("an amax history with margin {}; -64 to 64 are possible", margin));
  visit_dtype<is_low_precision>(element, [&](auto dtype) {
    using F = typename decltype(dtype)::Format;
    top_ = widen(SmallFloat<F>::from_bits(F::max_finite));
  });
  history_.assign(index(length), 0);
}

void AmaxHistory::see(float amax) {
  const FloatingPointScope scope;
  if (std::isnan(amax)) amax = 0;
  history_[next_] = amax;
  next_ = (next_ + 1) % history_.size();
  const float greatest = choice_ == Choice::max ? std::ranges::max(history_) : amax;
  if (!(greatest > 0) || !std::isfinite(greatest)) return;
  encode_ = std::min(top_ * std::ldexp(1.0F, -margin_) / greatest, largest_float);
}

std::vector<float> AmaxHistory::state() const {
  std::vector<float> state{encode_, static_cast<float>(next_)};
  state.insert(state.end(), history_.begin(), history_.end());
  return state;
}

void AmaxHistory::restore(std::span<const float> state) {
  const auto length = static_cast<float>(history_.size());
  if (state.size() != history_.size() + 2 || !(state[0] > 0) || !(state[1] >= 0) || !(state[1] < length) ||
      state[1] != std::floor(state[1]))
    throw std::invalid_argument(fmt::format(
        "{} numbers are no state of an amax history of length {}: a factor above 0, a place in the history "
        "and its amaxes are needed",
        state.size(), history_.size()));
  encode_ = state[0];
  next_ = static_cast<std::size_t>(state[1]);
  std::ranges::copy(state.subspan(2), history_.begin());
}

void QuantizerLoss::add(const BlockLoss& loss) {
  made_zero += loss.made_zero;
  saturated += loss.saturated;
  saturated_blocks += loss.saturated > 0 ? 1 : 0;
  if (std::isnan(loss.headroom)) return;
  ++blocks;
  least_headroom = std::min(least_headroom, static_cast<double>(loss.headroom));
  headroom_sum += static_cast<double>(loss.headroom);
}

QuantizerLoss& QuantizerLoss::operator+=(const QuantizerLoss& other) {
  values += other.values;
  made_zero += other.made_zero;
  saturated += other.saturated;
  blocks += other.blocks;
  saturated_blocks += other.saturated_blocks;
  least_headroom = std::min(least_headroom, other.least_headroom);
  headroom_sum += other.headroom_sum;
  amax = std::max(amax, other.amax);
  return *this;
}

void random_hadamard(std::span<float> values, int length, std::uint32_t signs) {
  if (length < 1 || length > 32 || !std::has_single_bit(static_cast<unsigned>(length)) ||
      values.size() % index(length) != 0)
    throw std::invalid_argument(fmt::format(
        "a Hadamard transform of {} of {} values: a power of two of at most 32 that divides the number of "
        "values is needed",
        length, values.size()));
  const FloatingPointScope scope;
  const auto root = static_cast<float>(1 / std::sqrt(static_cast<double>(length)));
  const auto n = static_cast<std::size_t>(length);
  float matrix[32][32], sums[32];
  for (unsigned i = 0; i < n; ++i)
    for (unsigned j = 0; j < n; ++j) matrix[i][j] = (std::popcount(i & j) & 1) != 0 ? -1.0F : 1.0F;
  for (std::size_t at = 0; at < values.size(); at += n) {
    for (std::size_t i = 0; i < n; ++i) {
      const float x = (signs >> i & 1) != 0 ? -values[at + i] : values[at + i];
      if (i == 0)
        std::fill_n(sums, n, x);
      else
        for (std::size_t j = 0; j < n; ++j) sums[j] += matrix[i][j] * x;  // the product is exact
    }
    for (std::size_t j = 0; j < n; ++j) values[at + j] = sums[j] * root;
  }
}

}  // namespace fp16lab
