#include "analysis/run_comparison_output.hpp"

#include <fmt/core.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <ostream>

#include "analysis/percent_text.hpp"
#include "numerics/files/run/row_numbers.hpp"
#include "numerics/text/nesting.hpp"
#include "numerics/text/text.hpp"

namespace fp16lab::analysis {
namespace {

using Json = nlohmann::ordered_json;

template <class T>
Json optional(const std::optional<T>& value) {
  if (!value) return nullptr;
  if constexpr (std::is_floating_point_v<T>)
    return json_number(*value);
  else
    return *value;
}

// ---- text -------------------------------------------------------------------------------------------------

std::string step_text(const std::optional<std::uint64_t>& step) {
  return step ? fmt::format("{}", *step) : "-";
}

std::string differences(const RunComparison& comparison) {
  const StepsComparison& steps = comparison.steps;
  if (steps.common.empty()) return "The runs have no step in common: nothing to compare.";
  const std::string apart = steps.states_of_two_versions == 0
                                ? ""
                                : fmt::format(
                                      " The state_hash of {} steps is of version 1 in one run and 2 in the "
                                      "other, so it is not compared.",
                                      steps.states_of_two_versions);
  if (comparison.equal() && !apart.empty())
    return fmt::format("Everything recorded in {} steps is the same, as far as can be compared.{}",
                       steps.common.size(), apart);
  if (comparison.equal())
    return fmt::format(
        "The runs are the same, bit for bit: the states of all {} steps, and everything recorded.",
        steps.common.size());
  std::string text;
  if (steps.first_state_difference)
    text = fmt::format(
        "The runs differ: their states diverge at step {} ({} of {} common steps have different states).",
        *steps.first_state_difference, steps.state_differences, steps.common.size());
  else if (!apart.empty())
    text = "Records differ, but no comparable state does." + apart;
  else if (steps.only_a + steps.only_b > 0)
    text =
        fmt::format("The states of the {} common steps are the same; one run has steps that the other lacks.",
                    steps.common.size());
  else
    text = fmt::format("The states of all {} steps are the same; other records differ.", steps.common.size());
  if (steps.only_a + steps.only_b > 0)
    text += fmt::format(" Only in A: {} steps; only in B: {}.", steps.only_a, steps.only_b);
  std::string records;
  const auto differ = [&](bool equal, std::string_view name) {
    if (!equal) records += (records.empty() ? "" : ", ") + std::string(name);
  };
  differ(comparison.evaluations.equal, "evaluations");
  differ(comparison.histograms.equal(), "histograms");
  differ(comparison.overflows.equal(), "overflows");
  differ(comparison.culprits.equal(), "culprits");
  differ(comparison.operands.equal(), "operands of the recipe");
  if (!records.empty()) text += fmt::format(" Differing records: {}.", records);
  if (!comparison.missing.empty()) text += " Records are damaged.";
  return text;
}

void print_settings(std::ostream& out, const RunComparison& comparison) {
  if (comparison.settings.empty()) {
    out << "\nConfiguration: the same\n";
    return;
  }
  std::size_t key = 3, a = 1;
  for (const SettingDifference& one : comparison.settings) {
    key = std::max(key, one.key.size());
    a = std::max(a, one.a.value_or("(none)").size());
  }
  out << fmt::format("\nConfiguration: {} different\n{:<{}}  {:<{}}  B\n",
                     counted(comparison.settings.size(), "key"), "key", key, "A", a);
  for (const SettingDifference& one : comparison.settings)
    out << fmt::format("{:<{}}  {:<{}}  {}\n", one.key, key, one.a.value_or("(none)"), a,
                       one.b.value_or("(none)"));
}

void print_columns(std::ostream& out, const RunComparison& comparison) {
  const StepsComparison& steps = comparison.steps;
  out << fmt::format("\nSteps: {} in both\n{:<14} {:>9} {:>9} {:>20} {:>9} {:>14} {:>9}\n",
                     steps.common.size(), "column", "differing", "from step", "largest (relative)", "at step",
                     fmt::format("above {:g}", comparison.threshold), "from step");
  for (const ColumnDifference& column : steps.columns) {
    const bool in_one = column.differing > 0 && column.differing == column.in_one;
    out << fmt::format("{:<14} {:>9} {:>9} {:>20} {:>9} {:>14} {:>9}\n", column.name, column.differing,
                       step_text(column.first),
                       in_one ? "in one run only" : fmt::format("{:.4g}", column.largest),
                       column.largest_step == 0 ? "-" : fmt::format("{}", column.largest_step), column.above,
                       step_text(column.first_above));
  }
  out << fmt::format("skipped steps: A {}, B {}; overflow or skip in one run only: {}\n", steps.skips_a,
                     steps.skips_b, steps.skip_differences);
  if (!steps.growth) {
    if (steps.column("loss").differing > 0)
      out << fmt::format("Error growth: fewer than {} steps with a small loss difference, no line fitted\n",
                         fewest_points);
    return;
  }
  const ErrorGrowth& growth = *steps.growth;
  const std::optional<double> doubling = growth.doubling_steps();
  out << fmt::format(
      "Error growth: steps {} to {}, {}; the line explains {:.0f} % of the variance of log10 |loss "
      "difference|\n",
      growth.first_step, growth.last_step,
      doubling ? fmt::format("|loss difference| doubles every {:.3g} steps", *doubling)
               : std::string("|loss difference| does not grow"),
      100 * growth.r_squared);
}

void print_evaluations(std::ostream& out, const EvaluationsComparison& evaluations) {
  if (evaluations.last.empty()) return;
  out << fmt::format("\nLast common evaluation\n{:<6} {:<18} {:>8} {:>14} {:>14} {:>14}\n", "split", "column",
                     "step", "A", "B", "B - A");
  for (const EvaluationPair& pair : evaluations.last)
    for_each_number<EvaluationRow>([&](const auto& field) {
      const std::optional<double> a = pair.a.*field.member, b = pair.b.*field.member;
      if (a && b)
        out << fmt::format("{:<6} {:<18} {:>8} {:>14.6g} {:>14.6g} {:>14.3g}\n", pair.a.split, field.name,
                           pair.a.step, *a, *b, *b - *a);
    });
  if (evaluations.only_a + evaluations.only_b > 0)
    out << fmt::format("Only in A: {} evaluations; only in B: {}\n", evaluations.only_a, evaluations.only_b);
}

void print_tensors(std::ostream& out, const HistogramsComparison& histograms, std::size_t most) {
  if (histograms.tensors.empty()) return;
  std::vector<const TensorComparison*> order;
  std::size_t differing = 0;
  for (const TensorComparison& one : histograms.tensors) {
    order.push_back(&one);
    differing += one.equal ? 0 : 1;
  }
  out << fmt::format("\nGradients: {} of {} tensors have different histograms\n", differing, order.size());
  if (differing == 0) return;
  std::stable_sort(order.begin(), order.end(), [](const TensorComparison* x, const TensorComparison* y) {
    return x->mean_distance > y->mean_distance;
  });
  std::size_t width = 6;
  for (const TensorComparison* one : order) width = std::max(width, one->tensor.size());
  out << fmt::format("{:<{}}  {:<10} {:>5} {:>9} {:>9} {:>8}  {:>23}  {:>23}\n", "tensor", width, "kind",
                     "steps", "mean dist", "largest", "at step", "zeros before cast A/B",
                     "rounded to zero A/B");
  for (std::size_t i = 0; i < order.size() && i < most; ++i) {
    const TensorComparison& one = *order[i];
    const auto lost = [](const TensorComparison::Zeros& zeros) {
      return zeros.after > zeros.before ? zeros.after - zeros.before : 0;
    };
    out << fmt::format("{:<{}}  {:<10} {:>5} {:>9.3g} {:>9.3g} {:>8}  {:>23}  {:>23}\n", one.tensor, width,
                       one.kind, one.steps, one.mean_distance, one.largest_distance, one.largest_step,
                       fmt::format("{} / {}", one.zeros_a.before, one.zeros_b.before),
                       fmt::format("{} / {}", lost(one.zeros_a), lost(one.zeros_b)));
  }
  if (order.size() > most) out << fmt::format("and {} more\n", order.size() - most);
  out << "(distance: how many binades values must move on average to turn one run's distribution into the "
         "other's)\n";
}

// ---- JSON -------------------------------------------------------------------------------------------------

Json column_json(const ColumnDifference& column) {
  return {{"differing", column.differing},
          {"first", optional(column.first)},
          {"in_one", column.in_one},
          {"largest", json_number(column.largest)},
          {"largest_step", column.largest_step},
          {"above", column.above},
          {"first_above", optional(column.first_above)}};
}

Json growth_json(const std::optional<ErrorGrowth>& growth) {
  if (!growth) return nullptr;
  return {{"first_step", growth->first_step},
          {"last_step", growth->last_step},
          {"points", growth->points},
          {"log10_per_step", json_number(growth->log10_per_step)},
          {"log10_at_first", json_number(growth->log10_at_first)},
          {"doubling_steps", optional(growth->doubling_steps())},
          {"r_squared", json_number(growth->r_squared)}};
}

Json evaluations_json(const EvaluationsComparison& evaluations) {
  Json last = Json::array();
  for (const EvaluationPair& pair : evaluations.last) {
    Json& json = last.emplace_back(Json{{"step", pair.a.step}, {"split", pair.a.split}});
    for_each_number<EvaluationRow>([&](const auto& field) {
      json[std::string(field.name) + "_a"] = optional(std::optional<double>(pair.a.*field.member));
      json[std::string(field.name) + "_b"] = optional(std::optional<double>(pair.b.*field.member));
    });
  }
  return {{"common", evaluations.common},
          {"only_a", evaluations.only_a},
          {"only_b", evaluations.only_b},
          {"first_difference", optional(evaluations.first_difference)},
          {"last", std::move(last)}};
}

Json histograms_json(const HistogramsComparison& histograms) {
  Json tensors = Json::array();
  const auto zeros = [](const TensorComparison::Zeros& of) {
    return Json{{"before", of.before}, {"after", of.after}};
  };
  for (const TensorComparison& one : histograms.tensors) {
    const auto distance = [&](double value) {
      return one.with_distance > 0 ? json_number(value) : Json(nullptr);
    };
    tensors.push_back({{"tensor", one.tensor},
                       {"kind", one.kind},
                       {"steps", one.steps},
                       {"equal", one.equal},
                       {"first_difference", optional(one.first_difference)},
                       {"mean_distance", distance(one.mean_distance)},
                       {"largest_distance", distance(one.largest_distance)},
                       {"largest_step", one.largest_step},
                       {"zeros_a", zeros(one.zeros_a)},
                       {"zeros_b", zeros(one.zeros_b)}});
  }
  return {{"rows_a", histograms.rows_a},
          {"rows_b", histograms.rows_b},
          {"unmatched_rows", histograms.unmatched_rows},
          {"only_a", histograms.only_a},
          {"only_b", histograms.only_b},
          {"tensors", std::move(tensors)}};
}

Json events_json(const EventsComparison& events) {
  return {{"rows_a", events.rows_a},
          {"rows_b", events.rows_b},
          {"first_difference", optional(events.first_difference)}};
}

Json operands_json(const OperandsComparison& operands) {
  Json json = events_json(operands), most;
  if (const auto& apart = operands.most)
    most = {{"tensor", apart->tensor},
            {"product", apart->product},
            {"zeroed_a", apart->a},
            {"zeroed_b", apart->b}};
  json["zeroed_differ_most"] = std::move(most);
  return json;
}

}  // namespace

Claim claim_of(const RunComparison& comparison) {
  const bool nothing = comparison.equal() && comparison.steps.common.empty();
  const bool unknown = comparison.equal() && comparison.steps.states_of_two_versions > 0;
  return {
      .claim = "A and B have the same bits",
      .criterion =
          "every step is in both with the same state, everything else recorded is the same, and no record "
          "is missing",
      .measured = differences(comparison),
      .verdict = nothing   ? Verdict::not_run
                 : unknown ? Verdict::cannot_tell
                           : verdict_of(comparison.equal())};
}

void print_comparison(std::ostream& out, const RunComparison& comparison, std::size_t most_tensors) {
  out << fmt::format("A: {}\nB: {}\n{}\n", comparison.name_a, comparison.name_b, differences(comparison));
  print_settings(out, comparison);
  if (!comparison.steps.common.empty()) print_columns(out, comparison);
  print_evaluations(out, comparison.evaluations);
  print_tensors(out, comparison.histograms, most_tensors);
  if (const auto& most = comparison.operands.most)
    out << fmt::format(
        "\nOperands of the recipe: the shares of values made zero differ most for {} in the product {}: A {} "
        "%, B {} %\n",
        most->tensor, most->product, percent(most->a), percent(most->b));
  if (comparison.notes.size() + comparison.missing.size() > 0) out << '\n';
  for (const std::string& missing : comparison.missing) out << "Damaged: " << missing << '\n';
  for (const std::string& note : comparison.notes) out << "Note: " << note << '\n';
}

void write_comparison_json(std::ostream& out, const RunComparison& comparison) {
  const StepsComparison& steps = comparison.steps;
  const Claim claims[] = {claim_of(comparison)};
  Json settings = Json::array();
  for (const SettingDifference& one : comparison.settings)
    settings.push_back({{"key", one.key}, {"a", optional(one.a)}, {"b", optional(one.b)}});
  Json of_steps{{"common", steps.common.size()},
                {"only_a", steps.only_a},
                {"only_b", steps.only_b},
                {"first_state_difference", optional(steps.first_state_difference)},
                {"state_differences", steps.state_differences},
                {"states_of_two_versions", steps.states_of_two_versions},
                {"skips_a", steps.skips_a},
                {"skips_b", steps.skips_b},
                {"skip_differences", steps.skip_differences}};
  for (const ColumnDifference& column : steps.columns)
    of_steps[std::string(column.name)] = column_json(column);
  const Json json = {{"a", comparison.name_a},
                     {"b", comparison.name_b},
                     {"equal", comparison.equal()},
                     {"claims", parse_json(claims_json("", claims))["claims"]},
                     {"threshold", comparison.threshold},
                     {"settings", std::move(settings)},
                     {"steps", std::move(of_steps)},
                     {"growth", growth_json(steps.growth)},
                     {"evaluations", evaluations_json(comparison.evaluations)},
                     {"histograms", histograms_json(comparison.histograms)},
                     {"overflows", events_json(comparison.overflows)},
                     {"culprits", events_json(comparison.culprits)},
                     {"operands", operands_json(comparison.operands)},
                     {"missing", comparison.missing},
                     {"notes", comparison.notes}};
  out << json.dump(2, ' ', false, Json::error_handler_t::replace) << '\n';
}

void write_comparison_csv(std::ostream& out, const RunComparison& comparison) {
  out << "step,loss_a,loss_b,loss_difference,grad_norm_a,grad_norm_b,loss_scale_a,loss_scale_b,skipped_a,"
         "skipped_b,same_state\n";
  for (const auto& [a, b] : comparison.steps.common)
    out << fmt::format("{},{},{},{},{},{},{},{},{:d},{:d},{:d}\n", a.step, csv_number(a.loss),
                       csv_number(b.loss), csv_number(b.loss - a.loss), csv_number(a.grad_norm),
                       csv_number(b.grad_norm), csv_number(a.loss_scale), csv_number(b.loss_scale), a.skipped,
                       b.skipped, a.state_hash == b.state_hash);
}

}  // namespace fp16lab::analysis
