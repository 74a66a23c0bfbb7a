#include <fmt/core.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>
#include <ostream>
#include <utility>

#include "analysis/dump_comparison.hpp"
#include "numerics/formats/decimal.hpp"
#include "numerics/text/nesting.hpp"
#include "numerics/text/scale_text.hpp"
#include "numerics/text/text.hpp"

namespace fp16lab::analysis {
namespace {

using Json = nlohmann::ordered_json;

/// "[3, 17]" of an element.
std::string place_of(std::uint64_t index, const std::vector<std::uint64_t>& shape) {
  std::vector<std::uint64_t> place(shape.size());
  for (std::size_t i = shape.size(); i-- > 0; index /= shape[i]) place[i] = index % shape[i];
  return fmt::format("[{}]", fmt::join(place, ", "));
}

std::string bits_text(std::uint64_t bits, DType type) {
  return fmt::format("{:0{}x}", bits, 2 * size_of(type));
}

/// "ffn.weight: 3 of 7840 elements by more than a cast, first [3, 17], A 3e00 = 1.5, B 3e01 = 1.50098; ..."
std::string differing_text(const ComparedTensor& tensor, bool beyond_cast) {
  if (tensor.a.empty() || tensor.b.empty())
    return fmt::format("{}, which only {} has", tensor.name, tensor.b.empty() ? "A" : "B");
  if (!tensor.compared())
    return fmt::format("{}: {} in A, {} in B, {}", tensor.name, tensor.a, tensor.b, tensor.trouble);
  const ValueDifference& found = tensor.difference;
  const DifferentElement& first = beyond_cast ? *found.first_beyond_cast : *found.first;
  std::string text =
      fmt::format("{}: {} of {}{}, first {}, A {} = {:.9g}, B {} = {:.9g}", tensor.name,
                  beyond_cast ? found.beyond_cast : found.differing, counted(found.elements, "element"),
                  beyond_cast && found.beyond_cast < found.differing ? " by more than a cast" : "",
                  place_of(first.index, tensor.shape), bits_text(first.a_bits, tensor.side_a.type), first.a,
                  bits_text(first.b_bits, tensor.side_b.type), first.b);
  if (!is_floating(tensor.side_a.type)) return text;
  if (found.other_nonfinite > 0)
    text += fmt::format("; {} an Inf or NaN on one side", found.other_nonfinite == 1
                                                              ? std::string("one is")
                                                              : fmt::format("{} are", found.other_nonfinite));
  if (beyond_cast && found.other_signs > 0)
    text +=
        fmt::format("; {} another sign", found.other_signs == 1 ? std::string("one has")
                                                                : fmt::format("{} have", found.other_signs));
  if (beyond_cast)
    text += fmt::format("; at most {} of {}", counted(found.ulps, "ulp"),
                        title_of(grid_of(tensor.side_a.type, tensor.side_b.type)));
  return text + fmt::format(", relative L2 {:.3g}", found.relative_l2);
}

struct Counts {
  std::size_t compared = 0, differing = 0, beyond_cast = 0, other_types = 0, far = 0;
  std::size_t only_a = 0, only_b = 0, not_compared = 0;
  const ComparedTensor *first = nullptr, *first_beyond = nullptr, *first_far = nullptr,
                       *first_nonfinite = nullptr, *first_not_compared = nullptr;
  bool one_cast = true;  ///< all that differ in type are of one pair of types
  std::optional<std::pair<DType, DType>> types{};
};

Counts counts_of(const DumpComparison& comparison) {
  Counts counts;
  for (const ComparedTensor& tensor : comparison.tensors) {
    counts.only_a += tensor.b.empty() ? 1 : 0;
    counts.only_b += tensor.a.empty() ? 1 : 0;
    if (!tensor.compared()) {
      if (!tensor.a.empty() && !tensor.b.empty() && counts.not_compared++ == 0)
        counts.first_not_compared = &tensor;
      continue;
    }
    ++counts.compared;
    if (tensor.side_a.type != tensor.side_b.type) {
      ++counts.other_types;
      const std::pair types{tensor.side_a.type, tensor.side_b.type};
      counts.one_cast = counts.one_cast && counts.types.value_or(types) == types;
      counts.types = types;
    }
    if (tensor.same()) continue;
    ++counts.differing;
    if (counts.first == nullptr) counts.first = &tensor;
    if (tensor.beyond_cast() && counts.beyond_cast++ == 0) counts.first_beyond = &tensor;
    if (tensor.difference.relative_l2 > comparison.threshold && counts.far++ == 0) counts.first_far = &tensor;
    if (tensor.difference.other_nonfinite > 0 && counts.first_nonfinite == nullptr)
      counts.first_nonfinite = &tensor;
  }
  return counts;
}

/// "rounding A to FP16 gives B"
std::string cast_text(const Counts& counts) {
  if (!counts.types || !counts.one_cast)
    return "rounding the wider one to the format of the narrower one gives the same";
  const auto [a, b] = *counts.types;
  const bool a_is_grid = grid_of(a, b) == a;
  return fmt::format("rounding {} to {} gives {}", a_is_grid ? "B" : "A", title_of(a_is_grid ? a : b),
                     a_is_grid ? "A" : "B");
}

std::string one_sided(const Counts& counts) {
  std::string text;
  if (counts.only_a + counts.only_b > 0)
    text += fmt::format(" Only in A: {}; only in B: {}.", counted(counts.only_a, "tensor"),
                        counted(counts.only_b, "tensor"));
  if (counts.not_compared > 0)
    text += fmt::format(" Not compared, because shapes or types do not match: {}.", counts.not_compared);
  return text;
}

/// If B is exactly 2^k times A: the scale that takes it out.
std::string scale_hint(const DumpComparison& comparison) {
  std::optional<int> scale;
  for (const ComparedTensor& tensor : comparison.tensors) {
    const ValueDifference& found = tensor.difference;
    if (!tensor.compared() || !is_floating(tensor.side_a.type) || !found.cosine) continue;
    const double ratio = std::log2(found.norm_b / found.norm_a);
    if (!std::isfinite(ratio) || *found.cosine < 0.99 || std::fabs(ratio - std::round(ratio)) > 0.05)
      return {};
    const int exponent = static_cast<int>(std::lround(ratio));
    if (exponent == 0 || (scale && *scale != exponent)) return {};
    scale = exponent;
  }
  if (!scale) return {};
  return fmt::format(
      "every tensor of {} is about 2^{} times the other one: a loss scale? --scale-{} 2^{} takes it out",
      *scale > 0 ? "B" : "A", std::abs(*scale), *scale > 0 ? "b" : "a", std::abs(*scale));
}

Json element_json(const std::optional<DifferentElement>& element, const ComparedTensor& tensor) {
  if (!element) return nullptr;
  return {{"index", element->index},
          {"a", json_number(element->a)},
          {"b", json_number(element->b)},
          {"a_bits", bits_text(element->a_bits, tensor.side_a.type)},
          {"b_bits", bits_text(element->b_bits, tensor.side_b.type)}};
}

/// A row's fields, as JSON and CSV have them; a tensor that was not compared has only its description.
template <class Visit>
void visit_fields(const ComparedTensor& tensor, const Visit& visit) {
  const ValueDifference& found = tensor.difference;
  const bool compared = tensor.compared(), numbers = compared && is_floating(tensor.side_a.type);
  const auto position = [&](std::uint64_t at, bool any) {
    return compared && any ? static_cast<std::int64_t>(at) : std::int64_t{-1};
  };
  visit("tensor", tensor.name);
  visit("type_a", tensor.a);
  visit("type_b", tensor.b);
  visit("scale_a", tensor.side_a.scale);
  visit("scale_b", tensor.side_b.scale);
  visit("elements", found.elements);
  visit("differing", found.differing);
  visit("beyond_cast", found.beyond_cast);
  visit("other_nonfinite", found.other_nonfinite);
  visit("nonfinite_a", found.nonfinite_a);
  visit("nonfinite_b", found.nonfinite_b);
  visit("largest", found.largest);
  visit("largest_at", position(found.largest_at, found.largest > 0));
  visit("ulps", found.ulps);
  visit("ulps_at", position(found.ulps_at, found.ulps > 0));
  visit("ulps_of",
        numbers ? std::string(name_of(grid_of(tensor.side_a.type, tensor.side_b.type))) : std::string());
  visit("relative_l2", found.relative_l2);
  visit("norm_a", found.norm_a);
  visit("norm_b", found.norm_b);
  visit("cosine", found.cosine);
  visit("trouble", tensor.trouble);
}

}  // namespace

std::string headline_of(const DumpComparison& comparison) {
  const Counts counts = counts_of(comparison);
  if (counts.compared == 0 && counts.first_not_compared != nullptr)
    return fmt::format("Nothing can be compared. Both have {}.",
                       differing_text(*counts.first_not_compared, false)) +
           one_sided(counts);
  if (counts.compared == 0)
    return "The two have no tensor in common: nothing to compare." + one_sided(counts);
  const std::string all =
      counts.compared == 1 ? "The one tensor" : fmt::format("All {} tensors", counts.compared);
  const char* are = counts.compared == 1 ? "is" : "are";
  if (counts.differing == 0) {
    if (counts.other_types > 0)
      return fmt::format(
          "{} that both have {} the same numbers; {} stored in another format.{}", all, are,
          counts.other_types == 1 ? std::string("one is") : fmt::format("{} are", counts.other_types),
          one_sided(counts));
    return fmt::format("{} that both have {} the same, bit for bit.{}", all, are, one_sided(counts));
  }
  std::string text = counts.compared == 1
                         ? "The one tensor that both have differs."
                         : fmt::format("{} of {} tensors differ.", counts.differing, counts.compared);
  if (counts.beyond_cast == 0)
    text += fmt::format(" A cast alone explains all of it: {}.", cast_text(counts));
  else if (counts.beyond_cast < counts.differing)
    text += fmt::format(" A cast alone explains {} of them: {}.", counts.differing - counts.beyond_cast,
                        cast_text(counts));
  if (counts.first_beyond != nullptr)
    text += fmt::format(" The first {} {} is {}.", comparison.order,
                        counts.beyond_cast < counts.differing ? "that it does not explain" : "that differs",
                        differing_text(*counts.first_beyond, true));
  else
    text += fmt::format(" The first {} that differs is {}.", comparison.order,
                        differing_text(*counts.first, false));
  if (counts.first_nonfinite != nullptr && counts.first_nonfinite != counts.first_beyond)
    text +=
        fmt::format(" The first with an Inf or NaN on one side only is {}.", counts.first_nonfinite->name);
  text += counts.far == 0
              ? fmt::format(" No relative L2 is above {:g}.", comparison.threshold)
              : fmt::format(" The relative L2 of {} above {:g}, first that of {}.",
                            counts.far == 1 ? std::string("one is") : fmt::format("{} is", counts.far),
                            comparison.threshold, counts.first_far->name);
  return text + one_sided(counts);
}

Claim claim_of(const DumpComparison& comparison) {
  const bool nothing = comparison.tensors.empty();
  return {.claim = "A and B have the same bits",
          .criterion = "both have the same tensors, of the same types and numbers",
          .measured = headline_of(comparison),
          .verdict = nothing ? Verdict::not_run : verdict_of(comparison.equal())};
}

void print_comparison(std::ostream& out, const DumpComparison& comparison, std::size_t most) {
  out << fmt::format("A: {}\nB: {}\n{}\n", comparison.name_a, comparison.name_b, headline_of(comparison));
  std::vector<const ComparedTensor*> rows;
  const Counts counts = counts_of(comparison);
  const bool lists_casts = most == std::numeric_limits<std::size_t>::max() || counts.beyond_cast == 0;
  std::size_t width = 6, same = 0, casts = 0, type_width = 4;
  const auto type_of = [](const ComparedTensor& tensor) {
    const std::string a = type_text(tensor.side_a.type), b = type_text(tensor.side_b.type);
    return a == b ? a : a + " " + b;
  };
  for (const ComparedTensor& tensor : comparison.tensors) {
    same += tensor.same() ? 1 : 0;
    const bool cast = !tensor.same() && !tensor.beyond_cast() && !lists_casts;
    casts += cast ? 1 : 0;
    if (tensor.same() || cast || rows.size() == most) continue;
    rows.push_back(&tensor);
    width = std::max(width, tensor.name.size());
    if (tensor.compared()) type_width = std::max(type_width, type_of(tensor).size());
  }
  if (!rows.empty())
    out << fmt::format("\n{:<{}}  {:<{}} {:>10} {:>10} {:>11} {:>10} {:>10} {:>9} {:>9}\n", "tensor", width,
                       "type", type_width, "elements", "differing", "beyond cast", "largest", "ulps",
                       "rel. L2", "1 - cosine");
  for (const ComparedTensor* tensor : rows) {
    if (tensor->a.empty() || tensor->b.empty()) {
      out << fmt::format("{:<{}}  only in {}: {}\n", tensor->name, width, tensor->b.empty() ? "A" : "B",
                         tensor->b.empty() ? tensor->a : tensor->b);
    } else if (!tensor->compared()) {
      out << fmt::format("{:<{}}  {} in A, {} in B: {}\n", tensor->name, width, tensor->a, tensor->b,
                         tensor->trouble);
    } else {
      const ValueDifference& found = tensor->difference;
      out << fmt::format("{:<{}}  {:<{}} {:>10} {:>10} {:>11} {:>10.3g} {:>10} {:>9.3g} {:>10}\n",
                         tensor->name, width, type_of(*tensor), type_width, found.elements, found.differing,
                         found.beyond_cast, found.largest, found.ulps, found.relative_l2,
                         found.cosine ? fmt::format("{:.3g}", 1 - *found.cosine) : "-");
    }
  }
  const std::size_t left = comparison.tensors.size() - same - casts - rows.size();
  if (left > 0) out << fmt::format("and {} more\n", left);
  if (casts > 0) out << fmt::format("what a cast alone explains: {}\n", counted(casts, "tensor"));
  if (!rows.empty() && same > 0) out << fmt::format("the same: {}\n", counted(same, "tensor"));
  std::vector<std::string> notes = comparison.notes;
  if (const std::string hint = scale_hint(comparison); !hint.empty()) notes.push_back(hint);
  const auto add_scale = [&](char which, double ValueSide::*scale, ValueSide ComparedTensor::*side) {
    for (const ComparedTensor& tensor : comparison.tensors)
      if (tensor.compared() && tensor.*side.*scale != 1) {
        notes.push_back(
            fmt::format("{}: a loss scale of {} is taken out", which, scale_text(tensor.*side.*scale)));
        return;
      }
  };
  add_scale('A', &ValueSide::scale, &ComparedTensor::side_a);
  add_scale('B', &ValueSide::scale, &ComparedTensor::side_b);
  if (!notes.empty()) out << '\n';
  for (const std::string& note : notes) out << "Note: " << note << '\n';
}

void write_comparison_json(std::ostream& out, const DumpComparison& comparison) {
  const Claim claims[] = {claim_of(comparison)};
  Json tensors = Json::array();
  for (const ComparedTensor& tensor : comparison.tensors) {
    Json& row = tensors.emplace_back(Json::object());
    visit_fields(tensor, [&]<class T>(const char* name, const T& value) {
      if constexpr (std::is_same_v<T, std::optional<double>>)
        row[name] = value ? json_number(*value) : Json(nullptr);
      else if constexpr (std::is_floating_point_v<T>)
        row[name] = json_number(value);
      else
        row[name] = value;
    });
    row["shape"] = tensor.shape;
    row["first"] = element_json(tensor.difference.first, tensor);
    row["first_beyond_cast"] = element_json(tensor.difference.first_beyond_cast, tensor);
  }
  const Json json = {{"a", comparison.name_a},
                     {"b", comparison.name_b},
                     {"equal", comparison.equal()},
                     {"claims", parse_json(claims_json("", claims))["claims"]},
                     {"threshold", comparison.threshold},
                     {"order", comparison.order},
                     {"tensors", std::move(tensors)},
                     {"notes", comparison.notes}};
  out << json.dump(2, ' ', false, Json::error_handler_t::replace) << '\n';
}

void write_comparison_csv(std::ostream& out, const DumpComparison& comparison) {
  bool first = true;
  const auto header = [&](const char* name, const auto&) {
    out << (std::exchange(first, false) ? "" : ",") << name;
  };
  visit_fields(ComparedTensor{}, header);
  out << '\n';
  for (const ComparedTensor& tensor : comparison.tensors) {
    first = true;
    visit_fields(tensor, [&]<class T>(const char*, const T& value) {
      out << (std::exchange(first, false) ? "" : ",");
      if constexpr (std::is_same_v<T, std::optional<double>>)
        out << (value ? csv_number(*value) : "");
      else if constexpr (std::is_floating_point_v<T>)
        out << csv_number(value);
      else if constexpr (std::is_same_v<T, std::string>)
        out << csv_text(value);
      else
        out << value;
    });
    out << '\n';
  }
}

}  // namespace fp16lab::analysis
