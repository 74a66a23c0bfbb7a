#include "reports/page/answers.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <optional>
#include <set>
#include <vector>

#include "analysis/suggested_scale.hpp"
#include "numerics/text/text.hpp"
#include "reports/data/rate_text.hpp"
#include "reports/data/run_config.hpp"
#include "reports/page/marked.hpp"
#include "reports/page/shown_names.hpp"

namespace fp16lab::reports {
namespace {

using analysis::Trouble;
using analysis::Word;

std::string bold(std::string_view text) { return strong(plain(text)); }

std::string name_of(const WorkloadMaterial& material, std::size_t index) {
  return shown_mark(material.workload->configurations[index], material.summary.rows[index]);
}

/// Papers call the gradient that the loss hands down first "dL/dy".
std::string spoken(const std::string& tensor) {
  return tensor == "loss.prediction" ? tensor + " (dL/dy)" : tensor;
}

/// Values that are not finite, and steps that were skipped for them, come before all that underflows.
const analysis::Finding* stopping(const SummaryRow& row) {
  const analysis::Finding* worst = row.account ? row.account->worst() : nullptr;
  return worst != nullptr && worst->trouble <= Trouble::overflow ? worst : nullptr;
}

std::optional<std::size_t> told_about(const WorkloadMaterial& material) {
  std::optional<std::size_t> chosen;
  double most = -1;
  for (std::size_t i = 0; i < material.summary.rows.size(); ++i) {
    const SummaryRow& row = material.summary.rows[i];
    const bool fp32 = material.workload->configurations[i].id.fp32;
    const bool recorded = !material.gradients[i].snapshots.empty();
    if (row.is_twin || (row.final_values.empty() && !recorded)) continue;
    double harm = row.casts ? row.casts->underflow_rate() : 0;
    if (row.against_reference && row.against_reference->word == Word::worse) harm += 2;
    if (fp32) harm = -0.5;
    if (const analysis::Finding* stop = stopping(row)) harm += stop->trouble == Trouble::non_finite ? 16 : 8;
    if (harm <= most) continue;
    most = harm;
    chosen = i;
  }
  return chosen;
}

struct Loss {
  double rate = 0;
  std::uint64_t values = 0;
};

/// The recorded loss, or, where nothing was cast, that of scale 1.
Loss loss_of(const RunGradients& gradients, std::size_t tensor) {
  CastCounts casts;
  bool cast = false;
  for (const GradientSnapshot& snapshot : gradients.snapshots)
    if (snapshot.casts[tensor]) {
      casts += *snapshot.casts[tensor];
      cast = true;
    }
  if (cast) return {casts.underflow_rate(), casts.values};
  if (gradients.formats[tensor] == DType::f32) return {};
  const RangeCounts counts = gradients.at_scale(tensor, 1.0);
  return {analysis::rates_of(counts).lost.middle(), counts.total - counts.zero};
}

/// The tensor that the account names if it stopped the training; else the one that loses most.
std::optional<std::size_t> worst_tensor(const RunGradients& gradients,
                                        const std::optional<analysis::Account>& account) {
  if (account && account->worst() != nullptr && account->worst()->trouble <= analysis::Trouble::overflow) {
    const auto named = std::ranges::find(gradients.tensors, account->worst()->tensor);
    if (named != gradients.tensors.end()) return static_cast<std::size_t>(named - gradients.tensors.begin());
  }
  std::optional<std::size_t> worst;
  Loss most;
  for (std::size_t tensor = 0; tensor < gradients.tensors.size(); ++tensor) {
    const Loss loss = loss_of(gradients, tensor);
    if (loss.rate < most.rate || (loss.rate == most.rate && loss.values <= most.values)) continue;
    most = loss;
    worst = tensor;
  }
  return worst;
}

std::string trouble_sentence(const WorkloadMaterial& material, std::size_t index,
                             std::optional<std::size_t> tensor) {
  const SummaryRow& row = material.summary.rows[index];
  const RunGradients& gradients = material.gradients[index];
  if (const analysis::Finding* stop = stopping(row))
    return fmt::format("{}{}: {}", name_of(material, index),
                       row.runs > 1 ? fmt::format(" (seed {})", row.account_seed) : "",
                       bold(pretty(stop->text)));
  if (gradients.snapshots.empty())
    return fmt::format(
        "{} recorded no gradient histograms (observe.histograms_every), so underflow is not known.",
        name_of(material, index));
  // Two shares of two things: each names its whole and its runs.
  const std::vector<ExploredRun>& explored = material.explored[index];
  std::string worst;
  if (tensor)
    worst = fmt::format("{} loses most: {} of its own{}", bold(spoken(gradients.tensors[*tensor])),
                        bold(rate_text(loss_of(gradients, *tensor).rate)),
                        explored.empty() ? ""
                                         : fmt::format(" (seed {}, {})", explored.front().run->seed,
                                                       counted(gradients.observed_steps, "recorded step")));
  if (!row.casts) {
    const analysis::ZoneRates rates = analysis::rates_of(gradients.at_scale(1.0));
    const bool unseen =
        row.account && !row.account->counts_casts && !material.workload->configurations[index].id.fp32;
    return fmt::format(
        "{} {}. At a loss scale of 1, {} would make {} zero; {}.", name_of(material, index),
        unseen ? "was trained by PyTorch, which rounds where casts cannot be observed" : "rounds no gradient",
        gradients.format_names(), bold(rate_text(rates.lost) + " of all its non-zero gradients"), worst);
  }
  if (row.casts->underflow == 0)
    return fmt::format("{}: the casts of {} make none of the recorded gradients zero.",
                       bold("Nothing underflows"), name_of(material, index));
  return fmt::format("In {} the casts make {} zero ({}); {}.", name_of(material, index),
                     bold(underflow_text(row) + " of all non-zero gradients"),
                     row.runs == 1 ? "one seed" : fmt::format("{} seeds", row.runs), worst);
}

std::string noise_clause(const WorkloadSummary& summary) {
  if (summary.twin_band)
    return fmt::format("FP32’s own noise is {} {}", analysis::interval_text(summary.twin_band),
                       summary.metric.unit());
  const auto twin = std::ranges::find_if(summary.rows, &SummaryRow::is_twin);
  if (twin == summary.rows.end()) return "no FP32 twin (sweep --twin) shows FP32’s own noise";
  if (twin->against_reference && twin->against_reference->mean == 0 &&
      twin->against_reference->deviation == 0)
    return "FP32’s twin ends as FP32 does";
  return "too few FP32 twins have ended to show FP32’s own noise";
}

std::string cost_sentence(const WorkloadSummary& summary, const SummaryRow& row) {
  if (row.is_reference) return "Only FP32 has been trained, so the cost is not known.";
  if (!row.against_reference) return "There is no finished FP32 run, so the cost is not known.";
  const analysis::Judgement& judgement = *row.against_reference;
  const std::string measured = measured_text(summary.metric, judgement);
  const std::string metric = plain(summary.metric.name);
  switch (judgement.word) {
    case Word::worse: {
      const std::optional<bool> noise = row.worse_than_noise();
      std::string words =
          judgement.diverged > 0
              ? fmt::format("{} of {} runs diverge where FP32 does not", judgement.diverged,
                            judgement.diverged + judgement.pairs)
              : fmt::format("The {} ends {} than FP32’s: {}", metric, bold("worse"), bold(measured));
      return words + fmt::format("; {}{}.", noise_clause(summary),
                                 !noise   ? ""
                                 : *noise ? ", and against its twin it is worse too"
                                          : ", and against its twin it is not worse");
    }
    case Word::better:
      return fmt::format("Nothing: the {} ends {} than FP32’s, {}; {}.", metric, bold("better"),
                         bold(measured), noise_clause(summary));
    case Word::equal:
      return fmt::format("Nothing that shows: the {} is {} to FP32’s within {}, {}; {}.", metric,
                         bold("equal"), analysis::with_unit(summary.metric.margin, summary.metric.unit()),
                         bold(measured), noise_clause(summary));
    case Word::cannot_tell:
      break;
  }
  if (judgement.pairs == 0) return fmt::format("No two runs of one seed show it; {}.", noise_clause(summary));
  if (judgement.pairs < analysis::fewest_pairs)
    return fmt::format("{} in {}; {}; {}.", bold(measured), metric,
                       analysis::words_of(judgement, summary.metric.unit()), noise_clause(summary));
  return fmt::format("These runs {} what it costs: the {} differs by {}; {}.", bold("cannot tell"), metric,
                     bold(measured), noise_clause(summary));
}

/// The format to which a run rounds gradients, and its tensors; none where two formats need two scales.
struct Rounded {
  DType format = DType::f16;
  std::set<std::string, std::less<>> tensors;
};
std::optional<Rounded> rounded_by(const RunGradients& gradients) {
  std::optional<Rounded> rounded;
  for (std::size_t tensor = 0; tensor < gradients.tensors.size(); ++tensor) {
    const DType format = gradients.formats[tensor];
    if (format == DType::f32) continue;
    if (!rounded) rounded = Rounded{.format = format, .tensors = {}};
    if (rounded->format != format) return std::nullopt;
    rounded->tensors.insert(gradients.tensors[tensor]);
  }
  return rounded;
}

/// The configuration whose histograms show which scale would do: FP32, where nothing became zero before it
/// was counted; without FP32 the run's own.
std::size_t best_witness(const WorkloadMaterial& material, std::size_t index) {
  for (std::size_t i = 0; i < material.summary.rows.size(); ++i)
    if (material.summary.rows[i].is_reference && !material.gradients[i].snapshots.empty()) return i;
  return index;
}

/// "By FP32's histograms (seed 1, 2 steps), each tensor ... at any scale from 2⁶ (fc1.weight) to 2²².": by
/// the criterion of fp16lab hist, for each tensor on its own.
std::string scales_clause(const WorkloadMaterial& material, std::size_t index) {
  const std::optional<Rounded> rounded = rounded_by(material.gradients[index]);
  if (!rounded) return "";
  const std::size_t witness = best_witness(material, index);
  const RunGradients& gradients = material.gradients[witness];
  analysis::RangeReport report;
  for (std::size_t tensor = 0; tensor < gradients.tensors.size(); ++tensor)
    if (rounded->tensors.contains(gradients.tensors[tensor]))
      for (const auto& [scale, histogram] : gradients.by_scale[tensor])
        report.add(gradients.tensors[tensor], histogram, scale);
  if (report.merged().empty()) return "";

  const analysis::SuggestedScale scale = analysis::suggest_scale(report, rounded->format);
  const auto power = [](int k) { return bold(pretty(fmt::format("2^{}", k))); };
  const std::vector<ExploredRun>& explored = material.explored[witness];
  const std::string said_by = fmt::format(
      "By {} histograms ({}{}), ",
      witness == index ? "its own" : name_mark(plain(pretty(material.summary.rows[witness].label))) + "’s",
      explored.empty() ? "" : fmt::format("seed {}, ", explored.front().run->seed),
      counted(gradients.observed_steps, "step"));
  const auto tensor = [](const std::string& name) { return name.empty() ? "it" : plain(name); };
  const auto named = [](const std::string& name) {
    return name.empty() ? "" : fmt::format(" ({})", plain(name));
  };
  if (!scale.unknown.empty())
    return said_by +
           fmt::format("no scale can be given: {} holds no finite values but zeros.", plain(scale.unknown));
  if (!scale.greatest) return said_by + tensor(scale.overflows_first) + " overflows at any loss scale.";
  if (!scale.least) return said_by + "no loss scale fits: " + tensor(scale.asks_most) + " fits at none.";
  if (!scale.fits())
    return said_by + fmt::format("no single scale fits: {} fits only from {} on, and {} overflows beyond {}.",
                                 tensor(scale.asks_most), power(*scale.least), tensor(scale.overflows_first),
                                 power(*scale.greatest));
  const std::string fits = fmt::format(
      "nothing overflows, and rounding costs no tensor more than {:g} times what the precision of {} costs "
      "by itself",
      analysis::fit_limit, title_of(rounded->format));
  const bool at_least = *scale.least == analysis::least_log2_scale,
             at_greatest = *scale.greatest == analysis::greatest_log2_scale;
  const std::string up_to =
      at_greatest ? "" : fmt::format(" to {}{}", power(*scale.greatest), named(scale.overflows_first));
  if (*scale.least <= 0 && *scale.greatest >= 0) {
    const SummaryRow& row = material.summary.rows[index];
    const bool well = !row.account || row.account->worst() == nullptr;
    return said_by +
           fmt::format("{}at 1, as at any scale{}{}, {}.", well ? "no scaling is needed: " : "",
                       at_least ? "" : fmt::format(" from {}{}", power(*scale.least), named(scale.asks_most)),
                       at_least && !at_greatest ? " up" + up_to : up_to, fits);
  }
  return said_by + fmt::format("{} at any scale from {}{}{}.", fits, power(*scale.least),
                               named(scale.asks_most), at_greatest ? " on" : up_to);
}

/// As good as FP32, or not judged against FP32.
bool equal_where_judged(const SummaryRow& row) {
  return row.is_reference || !row.against_reference || row.against_reference->word == Word::equal;
}

std::string fix_sentence(const WorkloadMaterial& material, std::size_t index) {
  const SummaryRow& row = material.summary.rows[index];
  const bool harmed = row.against_reference && row.against_reference->word == Word::worse;
  const double lost = row.casts ? row.casts->underflow_rate() : 1;
  std::vector<std::size_t> cures;
  for (std::size_t i = 0; i < material.summary.rows.size(); ++i) {
    const SummaryRow& other = material.summary.rows[i];
    if (i == index || !other.against_reference || !other.casts || other.is_twin) continue;
    const Word word = other.against_reference->word;
    const bool well = word == Word::equal || word == Word::better;
    if (other.casts->underflow_rate() < lost && (well || !harmed) && word != Word::worse) cures.push_back(i);
  }
  const std::vector<SummaryRow>& rows = material.summary.rows;
  std::stable_sort(cures.begin(), cures.end(), [&rows](std::size_t a, std::size_t b) {
    const auto open = [&rows](std::size_t i) { return rows[i].against_reference->word == Word::cannot_tell; };
    if (open(a) != open(b)) return open(b);
    return rows[a].casts->underflow_rate() < rows[b].casts->underflow_rate();
  });
  constexpr std::size_t most_named = 2;
  std::string names;
  for (std::size_t i = 0; i < std::min(cures.size(), most_named); ++i)
    names +=
        fmt::format("{}{} ({} of values lost, {})", i == 0 ? "" : " and ",
                    strong(name_of(material, cures[i])), rate_text(rows[cures[i]].casts->underflow_rate()),
                    analysis::short_words_of(*rows[cures[i]].against_reference));
  const bool many = cures.size() > 1;
  std::string words;
  if (harmed)
    words = names.empty() ? "No configuration here that loses less is equal to FP32. "
                          : fmt::format("{} {} it. ", names, many ? "fix" : "fixes");
  else if (stopping(row) != nullptr)
    words = fmt::format("Next: {}. ", plain(row.account->next));
  else if (row.casts && row.account && row.account->nothing_to_fix() && equal_where_judged(row))
    words = "There is nothing to fix. ";
  else if (row.casts && row.casts->underflow == 0)
    words = row.account && row.account->worst() != nullptr ? plain(pretty(row.account->worst()->text)) + " "
                                                           : "Nothing underflows. ";
  else if (!names.empty())
    words = fmt::format("{} {} less. ", names, many ? "lose" : "loses");
  else if (row.casts)
    words = "No configuration here loses less. ";
  return words + (material.gradients[index].snapshots.empty() ? "" : scales_clause(material, index));
}

}  // namespace

Answers answers_of(const WorkloadMaterial& material) {
  Answers answers{.wrong = "No run of this workload has ended or recorded gradients yet.",
                  .costs = "The cost is not known yet.",
                  .fixes = "Nor is a fix.",
                  .configuration = told_about(material)};
  if (!answers.configuration) return answers;
  const std::size_t index = *answers.configuration;
  const RunGradients& gradients = material.gradients[index];
  if (!gradients.snapshots.empty())
    answers.tensor = worst_tensor(gradients, material.summary.rows[index].account);
  answers.wrong = trouble_sentence(material, index, answers.tensor);
  answers.costs = cost_sentence(material.summary, material.summary.rows[index]);
  answers.fixes = fix_sentence(material, index);
  if (answers.fixes.empty()) answers.fixes = "Without histograms no scale can be given.";
  return answers;
}

}  // namespace fp16lab::reports
