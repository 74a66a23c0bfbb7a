// The data of pictures: the numbers, histograms and formats that figures/*.js draw. Numbers that JSON has not
// become null; run files spell them as strings, so that nothing is lost (numerics/text/text.hpp).
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string_view>
#include <vector>

#include "numerics/files/run/observed.hpp"
#include "numerics/formats/dtype.hpp"
#include "numerics/formats/format_range.hpp"
#include "numerics/histogram/exponent_histogram.hpp"

namespace fp16lab::reports {

using OrderedJson = nlohmann::ordered_json;

/// Null for infinities and NaN.
OrderedJson number_or_null(double value);
/// Six significant digits: enough to draw with, and half the page.
OrderedJson drawn_number(double value);
OrderedJson drawn_numbers(const std::vector<double>& values);

/// [zero, infinite, nan, first exponent, counts, smallest, greatest]: the last two as FP32 bits, 0 where not known. Exponents and
/// bins are ExponentHistogram's.
OrderedJson histogram_json(const ExponentHistogram& histogram);
/// What figures/zones.js computes with, and the bits of sign, exponent and significand.
OrderedJson format_json(DType format, Observed observed);
/// The same of a range without bits.
OrderedJson range_json(std::string_view name, const FormatRange& range);

}  // namespace fp16lab::reports
