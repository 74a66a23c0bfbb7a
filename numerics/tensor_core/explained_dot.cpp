#include "numerics/tensor_core/explained_dot.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <stdexcept>
#include <utility>

#include "numerics/formats/runtime_format.hpp"

namespace fp16lab {
namespace {

using boost::multiprecision::cpp_int;
using Kind = Exact::Kind;

Rational power_of_two(int exponent) {
  const cpp_int power = cpp_int(1) << (exponent < 0 ? -exponent : exponent);
  return exponent < 0 ? Rational(cpp_int(1), power) : Rational(power);
}

/// floor(log2(|x|)); x is not 0, and its denominator is a power of two.
int exponent_of(const Rational& x) {
  const cpp_int magnitude = abs(numerator(x));
  return static_cast<int>(msb(magnitude)) - static_cast<int>(msb(denominator(x)));
}

/// x in units of 2^exponent, cut towards zero.
cpp_int whole_units(const Rational& x, int exponent) {
  const Rational units = x / power_of_two(exponent);
  return numerator(units) / denominator(units);
}

RuntimeFormat format_of(DType format) {
  return visit_dtype<is_floating>(
      format, [](auto row) { return RuntimeFormat::of<typename decltype(row)::Format>(); });
}

/// Bits of an operand's register below the number itself.
int register_bits_below(DType format) {
  return visit_dtype<is_operand>(format,
                                 [](auto row) { return ignored_bits<typename decltype(row)::Format>; });
}

ExplainedNumber number_of(const RuntimeFormat& format, std::uint32_t word) {
  const Exact exact = format.decode(word);
  ExplainedNumber number{exact.kind, exact.sign, 0};
  if (exact.kind != Kind::finite) return number;
  number.value = Rational(exact.significand) * power_of_two(exact.exponent);
  if (exact.sign) number.value = -number.value;
  return number;
}

/// The format's code of a number cut to `precision` significant bits, or rounded to nearest even.
std::uint32_t word_of(const RuntimeFormat& format, const ExplainedNumber& number, int precision,
                      bool to_nearest) {
  const auto sign = static_cast<std::uint32_t>(number.negative ? format.sign_mask : 0);
  const auto infinity = static_cast<std::uint32_t>(format.infinity) | sign;
  if (number.kind == Kind::nan) return static_cast<std::uint32_t>(format.canonical_nan);
  if (number.kind == Kind::infinite) return infinity;
  if (number.kind == Kind::zero) return sign;

  const Rational magnitude = abs(number.value);
  const int last_place = std::max(exponent_of(magnitude), format.emin) - (precision - 1);
  cpp_int places = whole_units(magnitude, last_place);
  if (to_nearest) {
    const Rational rest = magnitude / power_of_two(last_place) - places;
    const Rational half(1, 2);
    if (rest > half || (rest == half && bit_test(places, 0))) ++places;
  }
  if (places == 0) return sign;
  const Rational rounded = places * power_of_two(last_place);
  const int exponent = std::max(exponent_of(rounded), format.emin);
  if (exponent > format.emax) return infinity;
  // The leading one of a normal number adds 1 to the field of the exponent.
  const auto fraction = static_cast<std::uint32_t>(whole_units(rounded, exponent - format.fraction_bits));
  const auto field = static_cast<std::uint32_t>(exponent - format.emin);
  return sign | ((field << format.fraction_bits) + fraction);
}

/// A sum under way: finite parts and special values.
class Total {
 public:
  /// Adds a number whose `kept` part counts, if it is finite.
  void add(const ExplainedNumber& number, const Rational& kept) {
    nan_ = nan_ || number.kind == Kind::nan;
    if (number.kind == Kind::infinite) (number.negative ? negative_infinity_ : positive_infinity_) = true;
    if (number.kind == Kind::finite) value_ += kept;
    only_negative_zeros_ = only_negative_zeros_ && number.kind == Kind::zero && number.negative;
  }

  ExplainedNumber total() const {
    if (nan_ || (positive_infinity_ && negative_infinity_)) return {Kind::nan, false, 0};
    if (positive_infinity_ || negative_infinity_) return {Kind::infinite, negative_infinity_, 0};
    if (value_ == 0) return {Kind::zero, only_negative_zeros_, 0};
    return {Kind::finite, value_ < 0, value_};
  }

 private:
  Rational value_ = 0;
  bool nan_ = false, positive_infinity_ = false, negative_infinity_ = false;
  bool only_negative_zeros_ = true;  // and nothing else so far
};

class Explainer {
 public:
  Explainer(const TensorCoreModel& model, DType a_format, DType b_format)
      : model_(model),
        a_(operands_of(a_format)),
        b_(operands_of(b_format)),
        accumulator_(format_of(model.accumulator())) {}

  ExplainedDot explain(std::span<const std::uint32_t> a, std::span<const std::uint32_t> b, std::uint32_t c,
                       const DotScales& scales) {
    dot_ = {};
    block_ = static_cast<std::size_t>(scales.kind.block);
    if (block_ > 0) scale_emin_ = format_of(scales.kind.format).emin;
    for (const std::uint32_t code : scales.a) dot_.a_scales.push_back(scale_of(scales.kind.format, code));
    for (const std::uint32_t code : scales.b) dot_.b_scales.push_back(scale_of(scales.kind.format, code));
    dot_.c = number_of(accumulator_, c);
    Total exact;
    exact.add(dot_.c, dot_.c.value);
    products_.clear();
    for (std::size_t k = 0; k < a.size(); ++k) {
      dot_.a.push_back(number_of(a_.format, a[k] >> a_.bits_below));
      dot_.b.push_back(number_of(b_.format, b[k] >> b_.bits_below));
      dot_.a_given.push_back(number_of(a_.given, a[k]));
      dot_.b_given.push_back(number_of(b_.given, b[k]));
      products_.push_back({});
      products_.back().k = k;
      products_.back().number = scaled(product_of(dot_.a[k], dot_.b[k]), k);
      products_.back().exponent = exponent_of_product(k);
      const ExplainedNumber given = scaled(product_of(dot_.a_given[k], dot_.b_given[k]), k);
      exact.add(given, given.value);
      dot_.operand_error += products_.back().number.value - given.value;
    }
    dot_.word = c;
    made_c_ = 0;
    const auto length = static_cast<std::size_t>(model_.products());
    for (std::size_t first = 0; first < a.size(); first += length) {
      dot_.word =
          instruction(dot_.word, std::span(products_).subspan(first, std::min(length, a.size() - first)));
      made_c_ = dot_.steps.size();
    }
    dot_.result = number_of(accumulator_, dot_.word);
    judge(exact.total());
    return std::move(dot_);
  }

 private:
  struct Operands {
    RuntimeFormat format, given;  ///< the number's, and the whole word's
    int bits_below;
    int emin;  ///< emin of the format that the multipliers see
  };

  Operands operands_of(DType name) const {
    const RuntimeFormat format = format_of(name);
    const bool becomes_fp16 = model_.as_fp16 && is_byte_format(name);
    const int bits_below = register_bits_below(name);
    return {format,
            bits_below == 0 ? format : RuntimeFormat(format.exponent_bits, format.precision + bits_below),
            bits_below, becomes_fp16 ? Binary16::emin : format.emin};
  }

  static ExplainedNumber product_of(const ExplainedNumber& x, const ExplainedNumber& y) {
    const bool negative = x.negative != y.negative;
    const auto either = [&](Kind kind) { return x.kind == kind || y.kind == kind; };
    if (either(Kind::nan) || (either(Kind::infinite) && either(Kind::zero))) return {Kind::nan, false, 0};
    if (either(Kind::infinite)) return {Kind::infinite, negative, 0};
    if (either(Kind::zero)) return {Kind::zero, negative, 0};
    return {Kind::finite, negative, x.value * y.value};
  }

  static ExplainedNumber scale_of(DType format, std::uint32_t code) {
    const RuntimeFormat of = format_of(format);
    return number_of(of, code & static_cast<std::uint32_t>(of.magnitude_mask));
  }

  ExplainedNumber scaled(const ExplainedNumber& product, std::size_t k) const {
    if (block_ == 0) return product;
    return product_of(product, product_of(dot_.a_scales[k / block_], dot_.b_scales[k / block_]));
  }

  int exponent_of_scales(std::size_t k) const {
    int sum = 0;
    for (const std::vector<ExplainedNumber>* of : {&dot_.a_scales, &dot_.b_scales})
      if (block_ > 0 && (*of)[k / block_].kind == Kind::finite)
        sum += std::max(exponent_of((*of)[k / block_].value), scale_emin_);
    return sum;
  }

  /// Products that are added exactly, as one term. It is zero if all products are.
  ExplainedTerm group_of(std::span<const ExplainedTerm> products) const {
    ExplainedTerm term;
    term.source = ExplainedTerm::Source::group;
    term.k = products.front().k;
    term.count = products.size();
    term.exponent = exponent_of_scales(term.k);
    for (const ExplainedTerm& product : products) {
      if (product.number.kind > term.number.kind) term.number.kind = product.number.kind;
      term.number.value += product.number.value;
    }
    term.number.negative = term.number.value < 0;
    return term;
  }

  /// Not normalised: the exponents of the factors; subnormals have their format's least one.
  int exponent_of_product(std::size_t k) const {
    const ExplainedNumber &x = dot_.a[k], &y = dot_.b[k];
    if (x.kind != Kind::finite || y.kind != Kind::finite) return 0;
    return std::max(exponent_of(x.value), a_.emin) + std::max(exponent_of(y.value), b_.emin) +
           exponent_of_scales(k);
  }

  /// `made`: the step that made it.
  ExplainedTerm accumulator_term(std::uint32_t word, std::size_t made) const {
    ExplainedTerm term;
    term.source = ExplainedTerm::Source::accumulator;
    term.k = made;
    term.number = number_of(accumulator_, word);
    if (term.number.kind != Kind::finite) return term;
    term.exponent = exponent_of(term.number.value);
    const bool own_exponent = model_.accumulator() == DType::f16 &&
                              model_.subnormal_accumulator == SubnormalAccumulator::own_exponent;
    if (!own_exponent) term.exponent = std::max(term.exponent, accumulator_.emin);
    if (model_.subnormal_accumulator == SubnormalAccumulator::fp16_emin)
      term.exponent = std::max(term.exponent, Binary16::emin);
    return term;
  }

  /// The stages' result for `c` and these products; an instruction may lack the last of them.
  std::uint32_t instruction(std::uint32_t c, std::span<const ExplainedTerm> products) {
    std::uint32_t word = 0;
    for (const Stage& stage : model_.stages) {
      std::vector<ExplainedTerm> taken;
      for (int k = 0; k < model_.products() && stage.products > 0; ++k) {
        if (!stage.share.contains(k)) continue;
        const auto i = static_cast<std::size_t>(k);
        if (i < products.size())
          taken.push_back(products[i]);
        else if (stage.sum == Sum::fma)
          taken.push_back(padding(products.front().k + i));
      }
      if (stage.sum == Sum::addition) {
        word = addition(stage, word, c);
        continue;
      }
      word = stage.entry == Entry::accumulator ? c : stage.entry == Entry::zero ? 0 : word;
      std::size_t made = stage.entry == Entry::accumulator ? made_c_
                         : stage.entry == Entry::zero      ? ExplainedTerm::zero
                                                           : dot_.steps.size();
      if (stage.sum == Sum::aligned && stage.exact_group > 1) {
        const auto size = static_cast<std::size_t>(stage.exact_group);
        std::vector<ExplainedTerm> groups;
        for (std::size_t k = 0; k < taken.size(); k += size)
          groups.push_back(group_of(std::span(taken).subspan(k, size)));
        word = block(stage, word, made, groups);
      } else if (stage.sum == Sum::aligned) {
        word = block(stage, word, made, taken);
      } else {
        for (const ExplainedTerm& term : taken) {
          word = fma(stage, word, made, term);
          made = dot_.steps.size();
        }
      }
    }
    return word;
  }

  /// +0 * +0 in the place of a product after the end of K.
  static ExplainedTerm padding(std::size_t k) {
    ExplainedTerm term;
    term.source = ExplainedTerm::Source::padding;
    term.k = k;
    return term;
  }

  /// The fused block of `c` and these products. Returns its result.
  std::uint32_t block(const Stage& stage, std::uint32_t c, std::size_t made,
                      std::span<const ExplainedTerm> products) {
    ExplainedStep step;
    step.c = c;
    step.terms.push_back(accumulator_term(c, made));
    step.terms.insert(step.terms.end(), products.begin(), products.end());

    step.max_exponent = stage.exponent_floor;
    for (const ExplainedTerm& term : step.terms)
      if (term.number.kind == Kind::finite) step.max_exponent = std::max(step.max_exponent, term.exponent);
    step.unit_exponent = step.max_exponent - stage.fraction_bits;
    Total sum;
    for (ExplainedTerm& term : step.terms) {
      term.kept = whole_units(term.number.value, step.unit_exponent) * power_of_two(step.unit_exponent);
      term.dropped = term.number.value - term.kept;
      sum.add(term.number, term.kept);
    }
    step.sum = sum.total();
    if (step.sum.kind == Kind::zero) step.sum.negative = false;
    step.word = output_of(stage, step.sum);
    return finished(std::move(step));
  }

  /// An exact sum of whole terms, rounded once.
  std::uint32_t addition(const Stage& stage, std::uint32_t blocks, std::uint32_t c) {
    ExplainedStep step;
    step.kind = Sum::addition;
    step.c = c;
    Total total;
    for (const std::uint32_t word : {blocks, c}) {
      ExplainedTerm term;
      term.source = step.terms.empty() ? ExplainedTerm::Source::blocks : ExplainedTerm::Source::accumulator;
      term.k = step.terms.empty() ? dot_.steps.size() : made_c_;
      term.number = number_of(accumulator_, word);
      term.kept = term.number.value;
      if (term.number.kind == Kind::finite) term.exponent = exponent_of(term.number.value);
      total.add(term.number, term.kept);
      step.terms.push_back(term);
    }
    step.sum = total.total();
    step.word = output_of(stage, step.sum);
    return finished(std::move(step));
  }

  /// One product and `c`.
  std::uint32_t fma(const Stage& stage, std::uint32_t c, std::size_t made, const ExplainedTerm& product) {
    const bool flushes = stage.output == BlockOutput::fp32_nearest_even_flushed;
    const auto read = [&](const ExplainedNumber& x) {
      const bool zero = flushes && x.kind == Kind::finite && exponent_of(x.value) < accumulator_.emin;
      return zero ? ExplainedNumber{Kind::zero, x.negative, 0} : x;
    };
    ExplainedStep step;
    step.kind = Sum::fma;
    step.c = c;
    Total total;
    const auto add = [&](ExplainedTerm term, const ExplainedNumber& counted) {
      term.kept = counted.value;
      term.dropped = term.number.value - term.kept;
      total.add(counted, counted.value);
      step.terms.push_back(std::move(term));
    };
    const ExplainedTerm accumulator = accumulator_term(c, made);
    add(accumulator, read(accumulator.number));
    const bool there = product.source == ExplainedTerm::Source::product;
    add(product, there ? product_of(read(dot_.a[product.k]), read(dot_.b[product.k])) : product.number);
    step.sum = total.total();
    step.word = output_of(stage, step.sum);
    return finished(std::move(step));
  }

  std::uint32_t finished(ExplainedStep step) {
    step.result = number_of(accumulator_, step.word);
    dot_.steps.push_back(std::move(step));
    return dot_.steps.back().word;
  }

  std::uint32_t output_of(const Stage& stage, const ExplainedNumber& sum) const {
    constexpr int short_precision = 14;  // E8M13 in an FP32 word
    switch (stage.output) {
      case BlockOutput::fp32_toward_zero:
        return without_sign_of_zero(sum,
                                    word_of(accumulator_, sum, accumulator_.precision, /*to_nearest=*/false));
      case BlockOutput::fp32_toward_zero_14_bits:
        return without_sign_of_zero(sum, word_of(accumulator_, sum, short_precision, /*to_nearest=*/false));
      case BlockOutput::fp16_nearest_even:
      case BlockOutput::fp32_nearest_even:
        return stage.sum == Sum::aligned ? without_sign_of_zero(sum, nearest_word(sum)) : nearest_word(sum);
      case BlockOutput::fp32_nearest_even_flushed:
        return flushed(sum);
      case BlockOutput::fp64_nearest_even:
        break;
    }
    throw std::logic_error("unknown rounding");
  }

  /// A result that stays below the least normal number, rounded as if exponents had no end, is a zero.
  std::uint32_t flushed(const ExplainedNumber& sum) const {
    const std::uint32_t word = nearest_word(sum);
    if (sum.kind != Kind::finite) return word;
    const Rational half_a_place = power_of_two(accumulator_.emin - 1 - accumulator_.precision);
    const bool tiny = abs(sum.value) < power_of_two(accumulator_.emin) - half_a_place;
    return tiny ? word & static_cast<std::uint32_t>(accumulator_.sign_mask) : word;
  }

  std::uint32_t without_sign_of_zero(const ExplainedNumber& sum, std::uint32_t word) const {
    const bool underflowed = sum.kind == Kind::finite && word == accumulator_.sign_mask;
    return underflowed && model_.underflow_zero == UnderflowZero::positive ? 0 : word;
  }

  std::uint32_t nearest_word(const ExplainedNumber& number) const {
    return word_of(accumulator_, number, accumulator_.precision, /*to_nearest=*/true);
  }

  void judge(const ExplainedNumber& exact) {
    dot_.exact = exact;
    dot_.nearest_word = nearest_word(exact);
    dot_.nearest = number_of(accumulator_, dot_.nearest_word);
    const int exponent = exact.kind == Kind::finite ? exponent_of(exact.value) : accumulator_.emin;
    dot_.ulp_exponent =
        std::clamp(exponent, accumulator_.emin, accumulator_.emax) - accumulator_.fraction_bits;
    if (exact.is_finite() && dot_.result.is_finite()) dot_.error = dot_.result.value - exact.value;
  }

  const TensorCoreModel& model_;
  Operands a_, b_;
  RuntimeFormat accumulator_;
  std::vector<ExplainedTerm> products_;
  std::size_t block_ = 0;  // elements that have one scale
  int scale_emin_ = 0;
  std::size_t made_c_ = 0;  // the step that made the accumulator of this instruction
  ExplainedDot dot_;
};

}  // namespace

ExplainedStep explained_addition(std::vector<ExplainedTerm> terms, DType format) {
  const RuntimeFormat f32 = format_of(DType::f32), to = format_of(format);
  ExplainedStep step;
  step.kind = Sum::addition;
  step.format = format;
  step.terms = std::move(terms);
  Total total;
  for (ExplainedTerm& term : step.terms) {
    term.kept = term.number.value;
    total.add(term.number, term.kept);
  }
  step.sum = total.total();
  step.result = number_of(to, word_of(to, step.sum, to.precision, /*to_nearest=*/true));
  step.word = word_of(f32, step.result, f32.precision, /*to_nearest=*/true);
  return step;
}

ExplainedDot explained_dot(const TensorCoreModel& model, DType a_format, std::span<const std::uint32_t> a,
                           DType b_format, std::span<const std::uint32_t> b, std::uint32_t c,
                           const DotScales& scales) {
  fused_dot_add(model, a_format, {}, b_format, {}, 0);  // judges the row and the formats
  if (model.accumulator() == DType::f64)
    throw std::invalid_argument(fmt::format(
        "this row of tensor-core model '{}' has FP64 operands, whose steps are not explained", model.name));
  if (a.size() != b.size())
    throw std::invalid_argument(
        fmt::format("a has {} elements and b has {}; they must agree", a.size(), b.size()));
  check_scales(model, scales.kind, a.size(), scales.a.size(), scales.b.size());
  return Explainer(model, a_format, b_format).explain(a, b, c, scales);
}

}  // namespace fp16lab
