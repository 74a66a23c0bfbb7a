#include "reports/figures/figure_json.hpp"

#include <cmath>

#include "analysis/observed_output.hpp"
#include "reports/data/run_config.hpp"

namespace fp16lab::reports {

OrderedJson number_or_null(double value) {
  return std::isfinite(value) ? OrderedJson(value) : OrderedJson(nullptr);
}

OrderedJson drawn_number(double value) {
  const double magnitude = value == 0 ? 1 : std::pow(10, 5 - std::floor(std::log10(std::abs(value))));
  return number_or_null(std::isfinite(magnitude) ? std::round(value * magnitude) / magnitude : value);
}

OrderedJson drawn_numbers(const std::vector<double>& values) {
  OrderedJson array = OrderedJson::array();
  for (const double value : values) array.push_back(drawn_number(value));
  return array;
}

OrderedJson histogram_json(const ExponentHistogram& histogram) {
  int first = ExponentHistogram::min_exponent, last = ExponentHistogram::max_exponent;
  while (first <= last && histogram.at(first) == 0) ++first;
  while (last >= first && histogram.at(last) == 0) --last;
  OrderedJson counts = OrderedJson::array();
  for (int e = first; e <= last; ++e) counts.push_back(histogram.at(e));
  return OrderedJson::array({histogram.zero, histogram.infinite, histogram.nan, counts.empty() ? 0 : first,
                             std::move(counts), histogram.smallest, histogram.greatest});
}

OrderedJson range_json(std::string_view name, const FormatRange& range) {
  return {{"name", name},
          {"tie", range.tie_to_zero},
          {"normal", range.smallest_normal},
          {"overflow", range.overflow_threshold()},
          {"reached", range.threshold_overflows},
          {"rounds", true}};
}

OrderedJson format_json(DType format, Observed observed) {
  const auto [exponent_bits, precision] = visit_dtype<has_range>(format, [](auto row) {
    using F = typename decltype(row)::Format;
    return std::pair(F::exponent_bits, F::precision);
  });
  OrderedJson json = range_json(title_of(format), analysis::judged_range(observed, format));
  json["rounds"] = format != DType::f32;
  json["bits"] = {1, exponent_bits, precision - 1};
  return json;
}

}  // namespace fp16lab::reports
