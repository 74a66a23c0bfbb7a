// fp16lab hist of run folders.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <iostream>
#include <map>
#include <set>
#include <span>
#include <sstream>
#include <string_view>

#include "analysis/account.hpp"
#include "analysis/observed_output.hpp"
#include "experiments/app/commands/hist_show.hpp"
#include "experiments/app/exit_code.hpp"
#include "experiments/app/replay/fixed_scale.hpp"
#include "numerics/files/run/run_folder.hpp"
#include "numerics/histogram/cast_counts.hpp"
#include "numerics/text/message.hpp"
#include "numerics/text/nesting.hpp"
#include "numerics/text/own_command.hpp"
#include "numerics/text/scale_text.hpp"
#include "numerics/text/text.hpp"
#include "reports/data/run_config.hpp"

namespace fp16lab::experiments {
namespace {

using Json = HistJson;

/// (watched runs only) Values that were counted as PyTorch stored them, after casts that were not seen.
struct StoredCounts {
  std::uint64_t values = 0, zero = 0, infinite = 0, nan = 0;
  std::set<std::uint64_t> bad_steps;  ///< with an Inf or NaN
  std::vector<std::string> bad;       ///< the tensors of the first of them that hold one

  void add(const HistogramRow& row) {
    values += row.after.total();
    zero += row.after.zero;
    infinite += row.after.infinite;
    nan += row.after.nan;
    if (row.after.infinite + row.after.nan == 0) return;
    bad_steps.insert(row.step);
    if (row.step == *bad_steps.begin()) bad.push_back(row.tensor);
  }
};

/// What is reported for all steps of a run, beside the one that is shown.
struct AllSteps {
  bool watched = false;               ///< lab.watch wrote the folder
  StoredCounts stored;                ///< of the tensors that are taken, where it did
  std::vector<std::uint64_t> steps;   ///< in file order, that have histograms of what is asked for
  ObservedSet recorded;               ///< what there are histograms of
  analysis::UpdateCounts updates;     ///< of the tensors that are taken, where they are asked for
  std::map<DType, CastCounts> casts;  ///< of the tensors that are taken
  bool rounded = false;               ///< a tensor is not FP32
  std::vector<std::string> damage;    ///< what the folder lacks of what its run wrote
  bool rows_missing = false;          ///< some of these histograms
  std::string not_counted;            ///< observe.not_counted of a watched run: what it says it left out
};

AllSteps survey(const std::filesystem::path& run, Observed observed, NameSelection& selection) {
  AllSteps all;
  try {
    const Manifest manifest = read_manifest(run);
    all.watched = is_watched(manifest);
    const RunFolder folder = read_run_folder(run);
    all.damage = folder.damage;
    all.rows_missing = folder.damaged(run_file::histograms);
    if (all.watched)
      all.not_counted = reports::flatten_toml(manifest.config, run.string())["observe.not_counted"];
  } catch (const std::runtime_error& error) {
    all.damage.push_back(error.what());
  }
  const auto note = [&](const HistogramRow& row) {
    all.recorded.insert(row.observed);
    if (row.observed != observed) return;
    if (all.steps.empty() || all.steps.back() != row.step) all.steps.push_back(row.step);
    all.rounded = all.rounded || row.dtype != DType::f32;
    if (!selection.takes(row.tensor)) return;
    if (observed == Observed::updates)
      all.updates.add(row);
    else if (const auto counts = cast_counts(row.dtype, row.before, row.after, all.watched))
      all.casts[row.dtype] += *counts;
    else if (all.watched)
      all.stored.add(row);
  };
  ObservedSet everything;
  for (const Observed each : every<Observed>) everything.insert(each);
  const std::size_t torn = for_each_histogram(run, note, everything);
  if (torn > 0 && !all.rows_missing)
    all.damage.push_back(
        fmt::format("{}: the last line is cut off ({} bytes) and was left out", run_file::histograms, torn));
  return all;
}

/// What the casts did in the whole run, a line each format; nothing without casts.
std::string pooled_sentence(const AllSteps& all, bool selected) {
  std::string text;
  for (const auto& [dtype, counts] : all.casts)
    text += fmt::format(
        "Recorded {}{}: the casts to {} rounded {} of {} finite non-zero values to zero ({:.2g} %), {} "
        "became Inf or NaN.\n",
        over_steps(all.steps.size(), all.rows_missing), selected ? ", of the tensors shown" : "",
        title_of(dtype), counts.underflow, counts.values, 100 * counts.underflow_rate(), counts.overflow);
  return text;
}

/// What is known of a watched run where no cast was seen; nothing of other runs, and of one in FP32 alone in
/// which all is finite.
std::string stored_sentence(const AllSteps& all, bool selected) {
  const StoredCounts& stored = all.stored;
  if (stored.values == 0 || (!all.rounded && stored.bad_steps.empty())) return {};
  std::string text =
      fmt::format("Recorded {}{}, as PyTorch stored them: of {} values {} are Inf, {} NaN and {} zero",
                  over_steps(all.steps.size(), all.rows_missing), selected ? ", of the tensors shown" : "",
                  stored.values, stored.infinite, stored.nan, stored.zero);
  if (!stored.bad_steps.empty()) {
    constexpr std::size_t named = 4;
    const std::span<const std::string> first(stored.bad.data(), std::min(stored.bad.size(), named));
    text +=
        fmt::format("; Inf or NaN in {}, first in step {} ({}{})", counted(stored.bad_steps.size(), "step"),
                    *stored.bad_steps.begin(), fmt::join(first, ", "),
                    stored.bad.size() > named ? fmt::format(" and {} more", stored.bad.size() - named) : "");
  }
  return text +
         ". PyTorch rounds inside its operations, where casts cannot be observed: values that became zero "
         "there are counted as zeros, overflows as Inf.\n";
}

Json pooled_json(const AllSteps& all) {
  Json casts = Json::array();
  for (const auto& [dtype, counts] : all.casts)
    casts.push_back({{"dtype", name_of(dtype)},
                     {"values", counts.values},
                     {"underflow", counts.underflow},
                     {"overflow", counts.overflow}});
  Json json = {{"steps", all.steps.size()}, {"casts", std::move(casts)}};
  if (all.watched) {
    const StoredCounts& stored = all.stored;
    json["as_stored"] = {{"values", stored.values},
                         {"zero", stored.zero},
                         {"infinite", stored.infinite},
                         {"nan", stored.nan},
                         {"steps_not_finite", stored.bad_steps}};
  }
  return json;
}

/// In which most of the tensors were stored; FP16 if none was stored in 16 bits.
DType stored_format(std::span<const HistogramRow> rows) {
  const auto stored_as = [&rows](DType dtype) {
    return std::count_if(rows.begin(), rows.end(),
                         [dtype](const HistogramRow& row) { return row.dtype == dtype; });
  };
  return stored_as(DType::bf16) > stored_as(DType::f16) ? DType::bf16 : DType::f16;
}

std::string titles_of(const std::vector<DType>& formats) {
  std::vector<std::string> titles;
  for (const DType format : formats) titles.push_back(title_of(format));
  return fmt::format("{}", fmt::join(titles, ", "));
}

/// The suggestion, which was made of one step, tried on every step that the run recorded, each tensor in the
/// format that held it; nothing where there is none.
std::optional<FixedScaleReplay> replayed(const std::filesystem::path& run,
                                         const analysis::SuggestedScale& suggestion) {
  if (!suggestion.suggested) return std::nullopt;
  try {
    return replay_fixed_scale(RecordedRun(run), *suggestion.suggested);
  } catch (const std::runtime_error& error) {
    say("note: the suggested scale was not replayed: {}", error.what());
    return std::nullopt;
  }
}

Json replay_json(const FixedScaleReplay& replay) {
  return {
      {"log2_scale", replay.log2_scale},
      {"steps", replay.steps},
      {"overflows", replay.overflows},
      {"unknown", replay.unknown},
      {"first", replay.first == 0 ? Json(nullptr) : Json(replay.first)},
      {"first_certain", replay.first_certain == 0 ? Json(nullptr) : Json(replay.first_certain)},
      {"first_unknown", replay.first_unknown == 0 ? Json(nullptr) : Json(replay.first_unknown)},
      {"highest", replay.highest ? Json(*replay.highest) : Json(nullptr)},
      {"highest_not_certain", replay.highest_not_certain ? Json(*replay.highest_not_certain) : Json(nullptr)},
      {"for_run", replay.for_run() ? Json(*replay.for_run()) : Json(nullptr)}};
}

}  // namespace

namespace {

/// Rows of one step that are no gradients.
void show_others(const HistCommand& command, const std::filesystem::path& run, const AllSteps& all,
                 std::span<const HistogramRow> rows, const std::string& subject) {
  const std::vector<DType> formats = parse_formats("--format", dtypes<is_judged>, command.formats)
                                         .value_or(std::vector<DType>{stored_format(rows)});
  if (!command.common.quiet) {
    say("{}: {} of step {}, for {}", run.string(), name_of(command.observed), rows.front().step,
        titles_of(formats));
    for (const std::string& damage : all.damage) say("note: {}", damage);
  }
  if (command.json) {
    std::ostringstream text;
    analysis::write_observed_json(text, command.observed, rows, formats, all.watched);
    Json json = parse_json(text.str());
    json["all_steps"] = pooled_json(all);
    if (command.observed == Observed::updates)
      json["all_steps"].update({{"updates", all.updates.values}, {"unmoved", all.updates.unmoved}});
    json["damage"] = all.damage;
    std::cout << json.dump(2, ' ', false, Json::error_handler_t::replace) << '\n';
  } else {
    analysis::print_observed(std::cout, command.observed, rows, formats);
  }
  Tensors tensors;
  for (const HistogramRow& row : rows) {
    tensors.report.add(row, all.watched);
    tensors.drawn.push_back({row.tensor, row.before, row.loss_scale});
  }
  if (command.draws()) draw(command, tensors, subject, {.formats = formats, .scale = 1.0});
  if (command.json) return;
  const bool selected = !command.include.empty() || !command.exclude.empty();
  if (command.observed == Observed::updates) {
    fmt::print("Recorded {}{}: {}.\n", over_steps(all.steps.size(), all.rows_missing),
               selected ? ", of the tensors shown" : "", analysis::words_of(all.updates));
    return;
  }
  analysis::print_casts(std::cout, tensors.report);
  std::cout << pooled_sentence(all, selected) << stored_sentence(all, selected);
}

/// "gradients, weights".
std::string names_of(ObservedSet set) {
  std::string names;
  for (const Observed observed : every<Observed>)
    if (set.contains(observed)) names += fmt::format("{}{}", names.empty() ? "" : ", ", name_of(observed));
  return names;
}

}  // namespace

namespace {

/// The account of a folder, with a next command that is not this one. Nothing where the folder is damaged so
/// that only its histograms can be read, which survey() has noted.
std::optional<analysis::Account> account_told(const std::filesystem::path& run) {
  try {
    analysis::Account account = analysis::account_of(read_run_folder(run));
    if (account.next.starts_with(own_command({"hist", run.string()})))
      account.next = own_command({"replay", run.string()}) + " (what other policies would have done)";
    return account;
  } catch (const std::runtime_error&) {
    return std::nullopt;
  }
}

}  // namespace

void show_run(const HistCommand& command, const std::filesystem::path& run, NameSelection& selection) {
  const AllSteps all = survey(run, command.observed, selection);
  const std::vector<std::uint64_t>& steps = all.steps;
  if (steps.empty() && !all.recorded.empty())
    throw CommandError(ExitCode::run_failed,
                       fmt::format("{}: no {} recorded: observe.tensors had others, and --tensors shows {}",
                                   run.string(), name_of(command.observed), names_of(all.recorded)));
  if (steps.empty() && all.rows_missing)
    throw CommandError(ExitCode::run_failed, fmt::format("{}: no histograms are left: {}", run.string(),
                                                         fmt::join(all.damage, "; ")));
  if (steps.empty() && !all.not_counted.empty())
    throw CommandError(
        ExitCode::run_failed,
        fmt::format("{}: no histograms recorded (observe.not_counted = {})", run.string(), all.not_counted));
  if (steps.empty())
    throw CommandError(ExitCode::run_failed,
                       fmt::format("{}: no histograms recorded (observe.histograms_every was 0, or "
                                   "the run ended before its first step)",
                                   run.string()));
  const std::uint64_t step = command.step.value_or(steps.back());
  if (std::find(steps.begin(), steps.end(), step) == steps.end())
    throw CommandError(ExitCode::usage, fmt::format("--step {}: {} has histograms of the steps {}", step,
                                                    run.string(), fmt::join(steps, ", ")));
  Tensors tensors;
  std::vector<HistogramRow> rows;
  const auto keep = [&](const HistogramRow& row) {
    if (row.step == step && selection.takes(row.tensor)) rows.push_back(row);
  };
  for_each_histogram(run, keep, {command.observed});
  selection.check();
  const std::string name = std::filesystem::absolute(run).lexically_normal().filename().string();
  const std::string subject = fmt::format(
      "{}, step {}", name.empty() ? std::filesystem::absolute(run).parent_path().filename().string() : name,
      step);
  if (command.observed != Observed::gradients && !rows.empty())
    return show_others(command, run, all, rows, subject);
  for (const HistogramRow& row : rows) {
    tensors.report.add(row, all.watched);
    if (is_byte_format(row.dtype)) continue;
    tensors.saw_scale(row.loss_scale);
    if (command.draws()) tensors.drawn.push_back({row.tensor, row.before, row.loss_scale});
  }
  if (tensors.empty())
    throw CommandError(ExitCode::usage, "nothing is left to show after --include and --exclude");
  const HistQuestion question{
      .formats = parse_formats("--format", dtypes<is_judged>, command.formats)
                     .value_or(std::vector<DType>{stored_format(rows)}),
      .scale = command.scale.empty() ? tensors.common_scale() : parse_scale("--scale", command.scale)};
  if (!command.common.quiet) {
    const std::string recorded =
        tensors.common_scale()
            ? "loss scale " + scale_text(*tensors.common_scale())
            : fmt::format("loss scales from {} to {}, which differ by tensor",
                          scale_text(tensors.least_scale), scale_text(tensors.greatest_scale));
    say("{}: step {}, recorded at {}, shown in {} at {}", run.string(), step, recorded,
        titles_of(question.formats), question.scale ? scale_text(*question.scale) : "each tensor's own");
    for (const std::string& damage : all.damage) say("note: {}", damage);
    if (all.rounded) say("note: {}", after_rounding_note);
  }
  const std::vector<analysis::SuggestedScale> suggestions = suggestions_of(tensors.report, question.formats);
  const auto stored = std::find(question.formats.begin(), question.formats.end(), stored_format(rows));
  std::optional<FixedScaleReplay> replay;
  if (stored != question.formats.end())
    replay = replayed(run, suggestions[static_cast<std::size_t>(stored - question.formats.begin())]);
  Json additions = {{"all_steps", pooled_json(all)}, {"damage", all.damage}};
  if (replay) additions["suggestion_replay"] = replay_json(*replay);
  const bool selected = !command.include.empty() || !command.exclude.empty();
  HistAnswer answer;
  if (std::optional<analysis::Account> account = account_told(run)) {
    if (selected) answer.before = "For the whole run and all tensors:\n";
    answer.accounts.push_back(std::move(*account));
    answer.next = answer.accounts.front().next;
  } else {  // of the step that is shown
    answer.accounts.push_back(analysis::account_of(tensors.report, question.formats.front(), question.scale));
    answer.next = own_command({"hist", run.string(), "--all"}) + " (every tensor of the step)";
  }
  if (replay) answer.after = sentence(*replay) + (selected ? " This covers all tensors.\n" : "\n");
  show(command, tensors, subject, question, suggestions, answer, additions);
}

}  // namespace fp16lab::experiments
