#include "numerics/convert/quantizer.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstddef>
#include <limits>
#include <stdexcept>
#include <type_traits>

#include "numerics/convert/convert.hpp"
#include "numerics/elementary/exponential.hpp"
#include "numerics/platform/for_each_chunk.hpp"
#include "numerics/platform/vector_clones.hpp"
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

  float of(float x) const { return divides ? x / factor : x * factor; }
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

  /// The scales of blocks from the bits of their amax.
  void scales_of(std::span<const std::uint32_t> amax, std::span<Scale> to) const {
    if (quantizer_.scale == ue4m3) return rounded_scales_of(amax, to);
    for (std::size_t i = 0; i < to.size(); ++i)
      to[i] = quantizer_.scale == e8m0 ? power_of_two(float_from_bits(amax[i]))
                                       : of_float(float_from_bits(amax[i]));
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

  /// Those that are UE4M3 numbers, the nearest ones; many at a time, because one conversion takes longer than a block.
  void rounded_scales_of(std::span<const std::uint32_t> amax, std::span<Scale> to) const {
    std::array<float, 256> wanted, values;
    std::array<SmallFloat<ScaleUE4M3>, wanted.size()> codes;
    for (std::size_t done = 0; done < to.size(); done += wanted.size()) {
      const std::size_t count = std::min(to.size() - done, wanted.size());
      for (std::size_t i = 0; i < count; ++i) wanted[i] = wanted_scale(float_from_bits(amax[done + i]));
      narrow<ScaleUE4M3>(std::span<const float>(wanted).first(count), std::span(codes).first(count));
      widen(std::span<const SmallFloat<ScaleUE4M3>>(codes).first(count), std::span(values).first(count));
      for (std::size_t i = 0; i < count; ++i) to[done + i] = {values[i], factor_of(values[i])};
    }
  }
  float wanted_scale(float amax) const {
    if (quantizer_.rule == te) {
      if (std::isnan(amax) || std::isnan(encode_)) return NAN;
      return std::min(amax * (encode_ * (1 / top_)), greatest_scale_of_ue4m3);
    }
    float wanted = amax / top_;
    if (two_levels_) wanted /= tensor_scale_;
    return std::isnan(wanted) ? NAN : std::clamp(wanted, least_normal_of_ue4m3, greatest_scale_of_ue4m3);
  }
  float factor_of(float value) const {
    if (quantizer_.rule != te) return encode_ / value;
    const float factor = 1 / (value * tensor_scale_);
    return std::isnan(factor) ? factor : std::min(factor, largest_float);
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

/// Runs `body` with a count that the compiler knows, where it is that of a usual block. (Before a loop up to `count`
/// itself GCC ignores FP16LAB_LOOP_OF_VECTORS: `body` keeps its value in a variable.)
template <class Body>
auto with_known(std::size_t count, const Body& body) {
  if (count == 16) return body(std::integral_constant<std::size_t, 16>());
  if (count == 32) return body(std::integral_constant<std::size_t, 32>());
  return body(count);
}

/// Runs of `width` values as multiples of their scale.
FP16LAB_VECTOR_CLONES
void scale_runs(const float* from, float* to, std::size_t runs, std::size_t width, const Scale* scales) {
  for (std::size_t run = 0; run < runs; ++run, from += width, to += width) {
    const float factor = scales[run].factor;
    if (scales[run].divides) {
      for (std::size_t i = 0; i < width; ++i) to[i] = from[i] / factor;
    } else {
      for (std::size_t i = 0; i < width; ++i) to[i] = from[i] * factor;
    }
  }
}

/// The bits of the greatest magnitude of each of `blocks` neighbouring runs, or of `greatest` if they are greater.
/// Magnitudes are ordered as their bits are, NaN last, so that a vector maximum of integers finds a NaN too.
FP16LAB_VECTOR_CLONES
void find_amax(const float* values, std::size_t blocks, std::size_t width, std::uint32_t* greatest) {
  with_known(width, [&](auto count) {
    const std::size_t length = count;
    for (std::size_t block = 0; block < blocks; ++block, values += count) {
      std::uint32_t most = greatest[block];
      FP16LAB_LOOP_OF_VECTORS
      for (std::size_t i = 0; i < length; ++i)
        most = std::max(most, bits_of(values[i]) & Binary32::magnitude_mask);
      greatest[block] = most;
    }
  });
}
float amax_of(std::span<const float> values) {
  std::uint32_t greatest = 0;
  find_amax(values.data(), 1, values.size(), &greatest);
  return float_from_bits(greatest);
}

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
  /// body(its first block, where it begins) for each row of these rows.
  template <class Body>
  void each_row(std::int64_t first_row, std::int64_t last_row, const Body& body) const {
    for (std::int64_t row = first_row; row < last_row; ++row)
      body(index(block_of(row, 0)), index(row * columns_));
  }
  std::size_t across() const { return index(across_); }

 private:
  std::int64_t columns_, down_, across_, together_;
  BlockShape shape_;
};

/// What a row adds to the losses of its blocks; `greatest` are the bits of the greatest multiple of their scales.
template <class F>
FP16LAB_VECTOR_CLONES void add_losses(const float* values, const std::uint8_t* codes, std::size_t blocks,
                                      std::size_t width, const Scale* scales, std::uint32_t beyond,
                                      BlockLoss* losses, std::uint32_t* greatest) {
  with_known(width, [&](auto count) {
    const std::size_t length = count;
    for (std::size_t block = 0; block < blocks; ++block, values += count, codes += count) {
      const Scale scale = scales[block];
      std::uint32_t most = greatest[block], made_zero = 0, saturated = 0;
      FP16LAB_LOOP_OF_VECTORS
      for (std::size_t i = 0; i < length; ++i) {
        const std::uint32_t value = bits_of(values[i]) & Binary32::magnitude_mask,
                            multiple = bits_of(scale.of(values[i])) & Binary32::magnitude_mask;
        made_zero += (value != 0 ? 1U : 0U) & ((codes[i] & F::magnitude_mask) == 0 ? 1U : 0U);
        saturated += (value < Binary32::infinity ? 1U : 0U) & (multiple >= beyond ? 1U : 0U) &
                     (multiple <= Binary32::infinity ? 1U : 0U);
        most = std::max(most, multiple);
      }
      greatest[block] = most;
      losses[block].made_zero += made_zero;
      losses[block].saturated += saturated;
    }
  });
}

/// `greatest` as in add_losses. The logarithm is ours: those of C libraries differ in bits. A loop without branches.
FP16LAB_VECTOR_CLONES void put_headrooms(const std::uint32_t* greatest, float top, std::size_t blocks,
                                         BlockLoss* losses) {
  FP16LAB_INDEPENDENT_ITERATIONS
  for (std::size_t i = 0; i < blocks; ++i) {
    const std::uint32_t headroom = bits_of(log2_f32(top / float_from_bits(greatest[i])));
    losses[i].headroom = float_from_bits(elementary_detail::select(
        greatest[i] - 1 < Binary32::infinity - 1, headroom, std::uint32_t{Binary32::canonical_nan}));
  }
}

/// Runs of `width` values, times their scale and that of the tensor.
FP16LAB_VECTOR_CLONES
void multiply_runs(float* values, std::size_t runs, std::size_t width, const float* scales,
                   float tensor_scale) {
  for (std::size_t run = 0; run < runs; ++run, values += width) {
    const float scale = scales[run] * tensor_scale;
    for (std::size_t i = 0; i < width; ++i) values[i] *= scale;
  }
}

/// random_hadamard of `blocks` blocks of n values.
template <std::size_t n>
FP16LAB_VECTOR_CLONES void transform(float* values, std::size_t blocks, std::uint32_t signs) {
  constexpr auto matrix = [] {
    std::array<std::array<float, n>, n> h{};
    for (unsigned i = 0; i < n; ++i)
      for (unsigned j = 0; j < n; ++j) h[i][j] = (std::popcount(i & j) & 1) != 0 ? -1.0F : 1.0F;
    return h;
  }();
  const auto root = static_cast<float>(1 / std::sqrt(static_cast<double>(n)));
  for (std::size_t block = 0; block < blocks; ++block, values += n) {
    float sums[n];
    for (std::size_t i = 0; i < n; ++i) {
      const float x = (signs >> i & 1) != 0 ? -values[i] : values[i];
      FP16LAB_LOOP_OF_VECTORS
      for (std::size_t j = 0; j < n; ++j)
        sums[j] = i == 0 ? x : sums[j] + matrix[i][j] * x;  // exact products
    }
    FP16LAB_LOOP_OF_VECTORS
    for (std::size_t j = 0; j < n; ++j) values[j] = sums[j] * root;
  }
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
  const float tensor_amax = !two_levels ? 0 : options.tensor_amax ? *options.tensor_amax : amax_of(values);
  const Rule rule(quantizer, tensor_amax, two_levels);
  // Scales first; then elements, a line of a buffer at a time, whatever rows blocks have.
  std::vector<Scale> factors(scales.size());
  const auto across = blocks.across();
  const auto width = index(blocks.shape().columns);
  std::vector<std::uint32_t> greatest(scales.size());
  // work(first block, past the last one), after `each` had all rows that belong to them.
  const auto share = [&](const auto& each, const auto& work) {
    blocks.share_rows(options.threads, [&](std::int64_t first_row, std::int64_t last_row) {
      blocks.each_row(first_row, last_row, each);
      work(index(blocks.block_of(first_row, 0)), index(blocks.block_of(last_row - 1, 0)) + across);
    });
  };
  share(
      [&](std::size_t block, std::size_t at) {
        if (!options.scale) find_amax(values.data() + at, across, width, greatest.data() + block);
      },
      [&](std::size_t block, std::size_t end) {
        const std::span own = std::span(factors).subspan(block, end - block);
        if (options.scale)
          std::ranges::fill(own, Scale{*options.scale, 1 / *options.scale});
        else
          rule.scales_of(std::span(greatest).subspan(block, own.size()), own);
        for (; block < end; ++block) scales[block] = factors[block].value;
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
      std::int64_t row = static_cast<std::int64_t>(begin) / size.columns,
                   column = static_cast<std::int64_t>(begin) % size.columns;
      for (std::size_t at = begin; at < begin + count;) {
        // The rest of a row, or of a block of it.
        const std::size_t room =
            std::min({index(size.columns - column), begin + count - at, multiples.size() - held});
        const std::size_t in_block = width - index(column) % width;
        const std::size_t run = std::min(in_block, room), runs = run == width ? room / width : 1,
                          some = runs * run;
        scale_runs(values.data() + at, multiples.data() + held, runs, run,
                   factors.data() + blocks.block_of(row, column));
        held += some;
        at += some;
        column += static_cast<std::int64_t>(some);
        if (column == size.columns) {
          column = 0;
          ++row;
        }
        if (held < multiples.size() && at < begin + count) continue;
        round(std::span(multiples).first(held), at - held);
        held = 0;
      }
    });
    if (losses.empty()) return;
    std::ranges::fill(greatest, 0U);
    std::ranges::fill(losses, BlockLoss{});
    share(
        [&](std::size_t block, std::size_t at) {
          add_losses<F>(values.data() + at, codes.data() + at, across, width, factors.data() + block,
                        bits_of(rule.first_beyond()), losses.data() + block, greatest.data() + block);
        },
        [&](std::size_t block, std::size_t end) {
          put_headrooms(greatest.data() + block, rule.top(), end - block, losses.data() + block);
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
      blocks.each_row(first_row, last_row, [&](std::size_t block, std::size_t at) {
        multiply_runs(values.data() + at, blocks.across(), index(blocks.shape().columns),
                      scales.data() + block, tensor_scale);
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
  const std::size_t blocks = values.size() / index(length);
  switch (length) {
    case 1:
      return transform<1>(values.data(), blocks, signs);
    case 2:
      return transform<2>(values.data(), blocks, signs);
    case 4:
      return transform<4>(values.data(), blocks, signs);
    case 8:
      return transform<8>(values.data(), blocks, signs);
    case 16:
      return transform<16>(values.data(), blocks, signs);
    default:
      return transform<32>(values.data(), blocks, signs);
  }
}

}  // namespace fp16lab
