// exp_allreduce: what does it cost a gradient to be averaged over R ranks in FP16 instead of FP32?
//
// Without a launcher the ranks are emulated: the same network and weights, a micro-batch each, real gradients
// of the engine at level O1. Every message of the all-reduce, and every rounding on the way, is carried out
// (engine/parallel/nccl_order.hpp). Six claims, each with its criterion fixed before anything is measured; the
// yardstick is the mean in FP64. On the ranks of mpirun the same gradients travel, and time and bytes are
// measured beside errors (experiments/questions/allreduce/real_ranks.hpp).
#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "engine/amp/unmet_expectation.hpp"
#include "experiments/app/run/ranks.hpp"
#include "experiments/questions/allreduce/agreement.hpp"
#include "experiments/questions/allreduce/gradient_mean.hpp"
#include "experiments/questions/allreduce/rank_gradients.hpp"
#include "experiments/questions/allreduce/real_ranks.hpp"
#include "experiments/questions/questions.hpp"
#include "numerics/formats/decimal.hpp"
#include "numerics/formats/fp32_range.hpp"

namespace fp16lab::experiments::allreduce {
namespace {

constexpr double largest_scale = 0x1p24;  // where the search for the largest scale without overflow begins
constexpr int most_ranks = 64;
constexpr float widest_outlier = 0x1p24f;

struct Settings {
  std::vector<int> ranks;       ///< ascending; on real ranks: of shards
  std::optional<double> scale;  ///< absent: the largest power of two at which no rank overflows
  std::uint64_t steps = 0;
};

[[noreturn]] void usage(const std::string& message) { throw CommandError(ExitCode::usage, message); }

std::vector<int> ranks_of(const std::string& text, int least, int most) {
  std::vector<int> ranks;
  for (std::size_t begin = 0; begin <= text.size();) {
    const std::size_t comma = std::min(text.find(',', begin), text.size());
    const std::string part = text.substr(begin, comma - begin);
    const bool digits = !part.empty() && part.size() < 10 &&
                        std::ranges::all_of(part, [](char c) { return c >= '0' && c <= '9'; });
    if (!digits || std::stoi(part) < least || std::stoi(part) > most)
      usage(fmt::format("--ranks: '{}': expected {} from {} to {}", text,
                        part == text ? "an integer" : "integers separated by commas,", least, most));
    ranks.push_back(std::stoi(part));
    begin = comma + 1;
  }
  std::ranges::sort(ranks);
  ranks.erase(std::unique(ranks.begin(), ranks.end()), ranks.end());
  return ranks;
}

/// Those of shards on `real` ranks.
std::vector<int> shards_of(const std::string& text, int real) {
  const std::vector<int> shards = ranks_of(text, real, engine::parallel::most_shards);
  for (const int count : shards)
    if (!std::has_single_bit(static_cast<unsigned>(count)))
      usage(fmt::format("--ranks: '{}': {} gradients on {} real ranks: expected powers of two", text, count,
                        real));
  return shards;
}

std::optional<double> scale_of(const std::string& text) {
  if (text == "largest") return std::nullopt;
  double scale = 0;
  try {
    scale = parse_number(text).value.to_double();
  } catch (const std::invalid_argument&) {
    scale = 0;
  }
  if (!(scale > 0) || !fp32_holds(scale))
    usage(fmt::format("--scale: '{}': expected an FP32 number above 0, such as 2^15, or largest", text));
  if (static_cast<double>(static_cast<float>(scale)) != scale)
    usage(fmt::format("--scale: '{}': expected {}", text, engine::amp::nearest_fp32(scale)));
  return scale;
}

/// One variant at one number of ranks, over all steps.
struct Row : MeanErrors {
  int ranks = 0;
  Variant variant;
  std::uint64_t sent_largest = 0, sent_total = 0;  ///< bytes of one all-reduce

  double error() const { return relative(error_squares); }
};

/// What all ranks did after an overflow on one of them.
struct Agreement {
  Check check;
  std::vector<RankOutcome> outcomes;
};

struct Measured {
  std::vector<Row> rows;
  std::vector<Agreement> agreement;
  std::vector<int> ranks;
  std::size_t elements = 0;
  double scale = 1;
  bool scale_is_largest = false;  ///< the largest power of two at which no rank overflows
  float outlier = 1;              ///< what the inputs of rank 1 were multiplied by, for `agreement`
};

/// The policy of every dynamic scaler: halve until no rank overflows.
double largest_finite_scale(RankGradients& source, int ranks) {
  double scale = largest_scale;
  while (scale >= 1 && !all_finite(source.scaled(0, ranks, scale))) scale /= 2;
  if (scale >= 1) return scale;
  usage("--scale largest: some rank overflows at every scale down to 1");
}

std::vector<Row> measure(RankGradients& source, const Settings& settings, double scale) {
  std::vector<Row> rows;
  for (const int ranks : settings.ranks)
    for (const Variant& variant : all_variants()) rows.push_back({{}, ranks, variant});
  for (std::uint64_t iteration = 0; iteration < settings.steps; ++iteration) {
    const std::vector<std::vector<float>> all = source.scaled(iteration, settings.ranks.back(), scale);
    std::map<int, ExactMean> exact;
    for (const int ranks : settings.ranks)
      exact.emplace(ranks, exact_mean(Gradients(all).first(static_cast<std::size_t>(ranks)), scale));
    for (Row& row : rows) {
      const Mean mean =
          reduce_mean(row.variant, Gradients(all).first(static_cast<std::size_t>(row.ranks)), scale);
      row.sent_largest = mean.traffic.largest();
      row.sent_total = mean.traffic.total();
      row.add(row.variant, mean, exact.at(row.ranks), row.ranks, scale);
    }
    if (all_finite(all)) source.step(rounded(exact.at(settings.ranks.back()).values));
  }
  return rows;
}

/// An overflow on one rank only: rank 1's batch is made of outliers, the first power of two that overflows.
struct OneOverflow {
  std::vector<std::vector<float>> gradients;
  float factor = 1;
};
OneOverflow overflow_on_rank_1(RankGradients& source, int ranks, double scale) {
  OneOverflow overflow{.gradients = source.scaled(0, ranks, scale)};
  for (overflow.factor = 2; overflow.factor <= widest_outlier; overflow.factor *= 2) {
    overflow.gradients[1] = source.scaled_outlier(1, scale, overflow.factor);
    if (!all_finite({overflow.gradients[1]})) return overflow;
  }
  usage("no overflow on rank 1, however large its inputs: a larger --scale would give one");
}

/// Trains the steps of settings.steps on `source`.
Measured measured_of(RankGradients& source, const RunConfig& config, const Settings& settings) {
  const int most = settings.ranks.back();
  const double scale = settings.scale ? *settings.scale : largest_finite_scale(source, most);
  // At the initial weights, before the steps below change them.
  const OneOverflow overflow = overflow_on_rank_1(source, std::min(most, 4), scale);
  const std::vector<float> weights = source.weights();
  const Iteration iteration{.weights = &weights,
                            .gradients = overflow.gradients,
                            .learning_rate = static_cast<float>(config.optimizer.learning_rate),
                            .scaler = {.policy = "dynamic", .initial_scale = scale}};
  std::vector<Agreement> agreement;
  for (const Check check : all_checks)
    agreement.push_back({check, run_ranks(source.backend(), iteration, check)});
  return {.rows = measure(source, settings, scale),
          .agreement = std::move(agreement),
          .ranks = settings.ranks,
          .elements = source.elements(),
          .scale = scale,
          .scale_is_largest = !settings.scale,
          .outlier = overflow.factor};
}

std::string table_of(const std::vector<Row>& rows) {
  std::string text;
  int ranks = 0;
  for (const Row& row : rows) {
    if (row.ranks != ranks) {
      ranks = row.ranks;
      text += fmt::format("\n{} ranks{:<37}{:>14} {:>14} {:>12} {:>12} {:>9} {:>9}\n", ranks, "",
                          "bytes/rank", "most bytes", "error", "bound", "lost", "Inf born");
    }
    text += fmt::format("  {:<42} {:>14} {:>14} {:>12.3e} {:>12.3e} {:>9} {:>9}\n", describe(row.variant),
                        row.sent_total / static_cast<std::uint64_t>(row.ranks), row.sent_largest, row.error(),
                        row.relative(row.bound_squares), row.lost, row.born);
  }
  return text +
         "  error, bound: L2 relative to the mean in FP64, where finite; lost: zero although the mean is "
         "not;\n"
         "  Inf born: not finite although every rank was\n";
}

std::string csv_of(const std::vector<Row>& rows) {
  std::string text =
      "ranks,wire,algorithm,unscale,division,mean_bytes_per_rank,most_bytes_per_rank,relative_l2_error,bound,"
      "lost,inf_born\n";
  for (const Row& row : rows) {
    text += fmt::format("{},{},{},{},{},{},{},{},{},{},{}\n", row.ranks, name_of(row.variant.mean.wire),
                        title_of(row.variant.mean.order),
                        row.variant.unscale == Unscale::before ? "before" : "after",
                        title_of(row.variant.mean.predivide), static_cast<double>(row.sent_total) / row.ranks,
                        row.sent_largest, row.error(), row.relative(row.bound_squares), row.lost, row.born);
  }
  return text;
}

std::string table_of(const std::vector<Agreement>& all, float factor) {
  std::string text = fmt::format(
      "\nfound_inf after an overflow on rank 1 only (its inputs times {}); {} ranks, dynamic scale\n"
      "  {:<12} {:>7} {:>24} {:>23} {:>16}\n",
      factor, all.front().outcomes.size(), "checked", "skip", "next S", "non-finite weights",
      "distinct states");
  for (const Agreement& agreement : all) {
    std::uint64_t skipped = 0, nonfinite = 0;
    double least = agreement.outcomes.front().scale, most = least;
    for (const RankOutcome& outcome : agreement.outcomes) {
      skipped += outcome.skipped ? 1 : 0;
      nonfinite += outcome.nonfinite_weights;
      least = std::min(least, outcome.scale);
      most = std::max(most, outcome.scale);
    }
    text += fmt::format("  {:<12} {:>7} {:>24} {:>23} {:>16}\n", name_of(agreement.check),
                        fmt::format("{}/{}", skipped, agreement.outcomes.size()),
                        least == most ? fmt::format("{}", least) : fmt::format("{} or {}", least, most),
                        nonfinite, distinct_states(agreement.outcomes));
  }
  return text;
}

std::string csv_of(const std::vector<Agreement>& all) {
  std::string text = "check,rank,skipped,next_scale,nonfinite_weights,state_hash\n";
  for (const Agreement& agreement : all)
    for (std::size_t rank = 0; rank < agreement.outcomes.size(); ++rank) {
      const RankOutcome& outcome = agreement.outcomes[rank];
      text += fmt::format("{},{},{},{},{},{:016x}\n", name_of(agreement.check), rank, outcome.skipped ? 1 : 0,
                          outcome.scale, outcome.nonfinite_weights, outcome.state_hash);
    }
  return text;
}

const Row& row_of(const std::vector<Row>& rows, int ranks, const Variant& variant) {
  return *std::ranges::find_if(rows,
                               [&](const Row& row) { return row.ranks == ranks && row.variant == variant; });
}

Answer judge_wide_wire(const Measured& measured) {
  double widest = 0, narrowest = std::numeric_limits<double>::infinity();
  bool clean = true;
  for (const Row& row : measured.rows) {
    const bool wide = row.variant.mean.wire == DType::f32;
    if (wide) {
      widest = std::max(widest, row.error());
      clean = clean && row.born == 0 && row.lost == 0;
    } else if (row.born == 0) {
      narrowest = std::min(narrowest, row.error());
    }
  }
  return {verdict_of(clean && widest < narrowest),
          fmt::format("largest FP32 error {:.3e}, smallest FP16 error {:.3e}", widest, narrowest)};
}

Answer judge_overflow(const Measured& measured) {
  std::uint64_t post = 0, pre = 0;
  for (const Row& row : measured.rows) {
    if (row.variant.mean.wire != DType::f16 || row.variant.unscale != Unscale::after) continue;
    if (row.variant.mean.predivide == Predivide::one) post += row.born;
    if (row.variant.mean.predivide == Predivide::all) pre += row.born;
  }
  const bool undecided = pre == 0 && post == 0 && !measured.scale_is_largest;
  return {undecided ? Verdict::cannot_tell : verdict_of(pre == 0 && post > 0),
          fmt::format("{} elements with postdivide, {} with predivide", post, pre)};
}

Answer judge_underflow(const Measured& measured) {
  bool holds = true;
  std::uint64_t before = 0, after = 0;
  for (const int count : measured.ranks)
    for (const SumOrder order : {SumOrder::nccl_ring, SumOrder::nccl_tree}) {
      const Row& early = row_of(measured.rows, count, {{DType::f16, Predivide::all, order}, Unscale::before});
      const Row& late = row_of(measured.rows, count, {{DType::f16, Predivide::all, order}, Unscale::after});
      before += early.lost;
      after += late.lost;
      holds = holds && late.lost < early.lost && late.error() < early.error();
    }
  return {measured.scale <= 1 || before == 0 ? Verdict::cannot_tell : verdict_of(holds),
          fmt::format("{} elements lost with unscale before, {} with unscale after", before, after)};
}

Answer judge_bytes(const Measured& measured) {
  bool holds = true;
  for (const Row& row : measured.rows) {
    const std::uint64_t width = row.variant.mean.wire == DType::f16 ? 2 : 4;
    const auto ranks = static_cast<std::uint64_t>(row.ranks);
    holds = holds && row.sent_total == 2 * (ranks - 1) * measured.elements * width;
    // The chunks of a ring differ by one element at most.
    if (row.variant.mean.order == SumOrder::nccl_ring)
      holds = holds && row.sent_largest <= 2 * (ranks - 1) * (measured.elements / ranks + 1) * width;
  }
  const Row& first = measured.rows.front();
  return {verdict_of(holds), fmt::format("{} bytes a rank for {} ranks and {} elements in FP32",
                                         first.sent_total / static_cast<std::uint64_t>(first.ranks),
                                         first.ranks, measured.elements)};
}

Answer judge_agreement(const Measured& measured) {
  bool holds = true;
  std::string text;
  for (const Agreement& agreement : measured.agreement) {
    const std::size_t states = distinct_states(agreement.outcomes);
    const bool unanimous = std::ranges::all_of(agreement.outcomes, [&](const RankOutcome& outcome) {
      return outcome.skipped == agreement.outcomes[0].skipped;
    });
    holds = holds && (states == 1) == unanimous && (unanimous || !agrees_by_construction(agreement.check));
    if (agreement.check == Check::local) holds = holds && states > 1;
    text += fmt::format("{}{}: {}", text.empty() ? "" : "; ", name_of(agreement.check), states);
  }
  return {verdict_of(holds), text};
}

std::vector<Question<Measured>> questions() {
  return {
      {"rounding explains every error: nothing else is lost on the way",
       "error <= its a-priori bound (experiments/questions/allreduce/gradient_mean.hpp) where no Inf was "
       "born",
       [](const Measured& measured) { return judge_bounds(measured.rows); }},
      {"an FP32 all-reduce loses no element and no range, whatever the order of scalings",
       "FP32 on the wire: nothing lost, no Inf born, and every error below every FP16 one", judge_wide_wire},
      {"a sum of scaled FP16 gradients overflows although no rank did; dividing by R first prevents it",
       "FP16, unscale after, at the largest S without overflow on any rank: Inf born with postdivide, none "
       "with predivide",
       judge_overflow},
      {"unscaling before an FP16 all-reduce throws away what the loss scale had saved",
       "FP16, predivide: fewer elements lost and a smaller error with unscale after, for every R and "
       "algorithm, at S > 1",
       judge_underflow},
      {"FP16 halves the bytes; ring and tree send equally many, the ring's ranks evenly",
       "n elements: 2 (R - 1) / R n elements a rank, exactly in total", judge_bytes},
      {"ranks that do not reduce found_inf stop being replicas",
       "distinct states after one iteration: one where found_inf is reduced or all look at the same mean; "
       "more where each looks at its own gradient, or at its own shard and not all shards overflowed",
       judge_agreement},
  };
}

Described describe(const Measured& measured, const std::string& heading) {
  const std::string largest =
      measured.scale_is_largest
          ? fmt::format(": the largest at which none of {} ranks overflows", measured.ranks.back())
          : "";
  return {fmt::format("{}{}\n{}{}", heading, largest, table_of(measured.rows),
                      table_of(measured.agreement, measured.outlier)),
          {{"exp_allreduce.csv", csv_of(measured.rows)}, {"found_inf.csv", csv_of(measured.agreement)}}};
}

/// On emulated ranks, or on those of a launcher: then all measure, the first one writes and speaks.
ExitCode run(const CommonOptions& given, const Settings& settings, Ranks& ranks) {
  RunConfig base;
  base.amp.level = engine::Level::O1;
  base.train.batch_size = 32;
  RunPlan plan = resolve_run(given, base);
  const RunConfig config = plan.config;
  const std::unique_ptr<PreparedRun> run = prepare_run(std::move(plan), given.threads);
  RankGradients source(*run, settings.steps);
  const auto heading = [&](const char* each, double scale) {
    return fmt::format("{}, {} gradients, level {}, batch {} a {}, {} steps, S = {}", config.model.name,
                       source.elements(), name_of(config.amp.level), config.train.batch_size, each,
                       settings.steps, scale);
  };
  if (ranks.communicator() == nullptr)
    return run_study<Measured>(
        given, {.questions = questions(),
                .measure = [&] { return measured_of(source, config, settings); },
                .describe = [&](const Measured& m) { return describe(m, heading("rank", m.scale)); }});
  const double scale = settings.scale ? *settings.scale : largest_finite_scale(source, settings.ranks.back());
  const auto measure = [&] {
    ranks.agree();
    return measure_real(*ranks.communicator(), source, {settings.ranks.begin(), settings.ranks.end()},
                        settings.steps, scale);
  };
  if (!ranks.first()) {
    measure();
    return ExitCode::ok;
  }
  return run_study<RealMeasured>(
      given, {.questions = real_questions(),
              .measure = measure,
              .describe =
                  [&](const RealMeasured& m) {
                    Described described = describe(m);
                    described.text =
                        fmt::format("{}, {}\n{}", heading("shard", m.scale), m.library, described.text);
                    return described;
                  },
              .question = "what do means of gradients cost on real ranks, and have they the model's bits?"});
}

}  // namespace
}  // namespace fp16lab::experiments::allreduce

namespace fp16lab::experiments {

Command::Run ask_allreduce(Options& options) {
  struct Given {
    std::string ranks, scale = "largest";
    int steps = 3;
  };
  auto given = std::make_shared<Given>();
  options
      .add("--ranks", given->ranks,
           "Numbers of ranks whose gradients are averaged, 2 to 64 (default: 2,4,8,16). Under mpirun -np R: "
           "powers of two from R to 1024, of shards that R real ranks hold (default: the first one)")
      .type("N,N,...");
  options
      .add("--scale", given->scale,
           "Loss scale, or largest: the largest without overflow on any rank (default)")
      .type("S");
  options.add("--steps", given->steps, "Training steps to measure (default: 3)")
      .type("N")
      .at_least(1, 100000);
  return [given](const CommonOptions& common) {
    Ranks ranks;
    return ranks.run([&] {
      allreduce::Settings settings{.ranks = {},
                                   .scale = allreduce::scale_of(given->scale),
                                   .steps = static_cast<std::uint64_t>(given->steps)};
      if (ranks.communicator() == nullptr) {
        settings.ranks =
            allreduce::ranks_of(given->ranks.empty() ? "2,4,8,16" : given->ranks, 2, allreduce::most_ranks);
      } else {
        const int real = ranks.communicator()->size();
        settings.ranks = given->ranks.empty()
                             ? std::vector{static_cast<int>(std::bit_ceil(static_cast<unsigned>(real)))}
                             : allreduce::shards_of(given->ranks, real);
      }
      return allreduce::run(common, settings, ranks);
    });
  };
}

}  // namespace fp16lab::experiments
