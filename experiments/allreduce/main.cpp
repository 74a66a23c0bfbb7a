// exp_allreduce: what does it cost a gradient to be averaged over R ranks in FP16 instead of FP32?
//
// Without a launcher the ranks are emulated: the same network and weights, a micro-batch each, real gradients
// of the engine at level O1. Every message of the all-reduce, and every rounding on the way, is carried out
// (engine/parallel/nccl_order.hpp). Six claims, each with its criterion fixed in allreduce_claims.cpp, before
// anything is measured; the yardstick is the mean in FP64. On the ranks of mpirun the same gradients travel,
// and time and bytes are measured beside errors (experiments/allreduce/real_ranks.hpp).
#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "engine/amp/unmet_expectation.hpp"
#include "experiments/allreduce/allreduce_claims.hpp"
#include "experiments/allreduce/rank_gradients.hpp"
#include "experiments/allreduce/real_ranks.hpp"
#include "experiments/app/command_line.hpp"
#include "experiments/app/run/ranks.hpp"
#include "numerics/files/disk/atomic_file.hpp"
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

/// `part` of the text that the option was given.
std::int64_t integer_of(const std::string& option, const std::string& text, const std::string& part,
                        std::int64_t least, std::int64_t most) {
  const bool digits = !part.empty() && part.size() < 10 &&
                      std::ranges::all_of(part, [](char c) { return c >= '0' && c <= '9'; });
  if (!digits || std::stoll(part) < least || std::stoll(part) > most)
    usage(fmt::format("{}: '{}': expected {} from {} to {}", option, text,
                      part == text ? "an integer" : "integers separated by commas,", least, most));
  return std::stoll(part);
}

std::vector<int> ranks_of(const std::string& text, int least, int most) {
  std::vector<int> ranks;
  for (std::size_t begin = 0; begin <= text.size();) {
    const std::size_t comma = std::min(text.find(',', begin), text.size());
    ranks.push_back(
        static_cast<int>(integer_of("--ranks", text, text.substr(begin, comma - begin), least, most)));
    begin = comma + 1;
  }
  std::ranges::sort(ranks);
  ranks.erase(std::unique(ranks.begin(), ranks.end()), ranks.end());
  return ranks;
}

/// Those of shards that lie on `real` ranks.
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

void add(Row& row, Gradients gradients, const ExactMean& exact, double scale) {
  const Mean mean = reduce_mean(row.variant, gradients, scale);
  const MeanError error = compare(mean, exact);
  const double bound = error_bound(row.variant, exact, row.ranks, scale);
  row.sent_largest = mean.traffic.largest();
  row.sent_total = mean.traffic.total();
  row.error_squares += error.absolute * error.absolute;
  row.norm_squares += exact.norm * exact.norm;
  row.bound_squares += bound * bound;
  row.lost += error.lost;
  row.born += mean.born;
}

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
    for (const Variant& variant : all_variants()) rows.push_back({.ranks = ranks, .variant = variant});
  for (std::uint64_t iteration = 0; iteration < settings.steps; ++iteration) {
    const std::vector<std::vector<float>> all = source.scaled(iteration, settings.ranks.back(), scale);
    std::map<int, ExactMean> exact;
    for (const int ranks : settings.ranks)
      exact.emplace(ranks, exact_mean(Gradients(all).first(static_cast<std::size_t>(ranks)), scale));
    for (Row& row : rows)
      add(row, Gradients(all).first(static_cast<std::size_t>(row.ranks)), exact.at(row.ranks), scale);
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

/// Writes exp_allreduce.csv and found_inf.csv.
std::string describe(const Measured& measured, const RunConfig& config, const Settings& settings,
                     const std::filesystem::path& out) {
  write_file_atomically(out / "exp_allreduce.csv", csv_of(measured.rows));
  write_file_atomically(out / "found_inf.csv", csv_of(measured.agreement));
  return fmt::format(
      "{}, {} gradients, level {}, batch {} a rank, {} steps, S = {}{}\n{}{}", config.model.name,
      measured.elements, name_of(config.amp.level), config.train.batch_size, settings.steps, measured.scale,
      measured.scale_is_largest
          ? fmt::format(": the largest at which none of {} ranks overflows", measured.ranks.back())
          : "",
      table_of(measured.rows), table_of(measured.agreement, measured.outlier));
}

/// What both kinds of ranks measure on.
struct Prepared {
  RunConfig config;
  std::unique_ptr<PreparedRun> run;
};
Prepared prepared(const CommonOptions& given) {
  RunConfig base;
  base.amp.level = engine::Level::O1;
  base.train.batch_size = 32;
  RunPlan plan = resolve_run(given, base);
  RunConfig config = plan.config;
  return {std::move(config), prepare_run(std::move(plan), given.threads)};
}

ExitCode run_on_emulated_ranks(const CommonOptions& given, const Settings& settings) {
  const Prepared prepared = allreduce::prepared(given);
  RankGradients source(*prepared.run, settings.steps);
  return run_study<Measured>(
      given, {.question = "what does it cost a gradient to be averaged over R ranks in FP16 instead of FP32?",
              .questions = questions(),
              .measure = [&] { return measured_of(source, prepared.config, settings); },
              .describe =
                  [&](const Measured& measured) {
                    return describe(measured, prepared.config, settings, given.out);
                  }});
}

/// Writes real_ranks.csv.
std::string describe(const RealMeasured& measured, const RunConfig& config, const Settings& settings,
                     const std::filesystem::path& out) {
  write_file_atomically(out / "real_ranks.csv", csv_of(measured));
  return fmt::format("{}, {} gradients, level {}, batch {} a shard, {} steps, S = {}, {}\n{}",
                     config.model.name, measured.elements, name_of(config.amp.level), config.train.batch_size,
                     settings.steps, measured.scale, measured.library, table_of(measured));
}

/// All ranks measure, the first one writes and speaks.
ExitCode run_on_real_ranks(const CommonOptions& given, const Settings& settings, Ranks& ranks) {
  const Prepared prepared = allreduce::prepared(given);
  RankGradients source(*prepared.run, settings.steps);
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
      given, {.question = "what do means of gradients cost on real ranks, and have they the model's bits?",
              .questions = real_questions(),
              .measure = measure,
              .describe = [&](const RealMeasured& measured) {
                return describe(measured, prepared.config, settings, given.out);
              }});
}

}  // namespace

ExitCode run(const CommonOptions& given, const std::string& ranks_text, const std::string& scale,
             const std::string& steps) {
  Ranks ranks;
  return ranks.run([&] {
    Settings settings{.ranks = {},
                      .scale = scale_of(scale),
                      .steps = static_cast<std::uint64_t>(integer_of("--steps", steps, steps, 1, 100000))};
    if (ranks.communicator() == nullptr) {
      settings.ranks = ranks_of(ranks_text.empty() ? "2,4,8,16" : ranks_text, 2, most_ranks);
      return run_on_emulated_ranks(given, settings);
    }
    const int real = ranks.communicator()->size();
    settings.ranks = ranks_text.empty()
                         ? std::vector{static_cast<int>(std::bit_ceil(static_cast<unsigned>(real)))}
                         : shards_of(ranks_text, real);
    return run_on_real_ranks(given, settings, ranks);
  });
}

}  // namespace fp16lab::experiments::allreduce

int main(int argc, char** argv) {
  using namespace fp16lab::experiments;
  struct {
    std::string ranks, scale = "largest", steps = "3";
  } given;
  return experiment_main(
      argc, argv,
      {.name = "exp_allreduce",
       .description = "What does it cost a gradient to be averaged over R ranks in FP16 instead of FP32?\n"
                      "Ranks are emulated; those that mpirun has started are real, and are measured.",
       .examples =
           "  exp_allreduce\n"
           "  exp_allreduce --ranks 2,8 --scale 2^15 --steps 2 --set data.subset=2000 -o results/allreduce\n"
           "  mpirun -np 2 exp_allreduce --ranks 2,8 -o results/real_ranks",
       .declare =
           [&](Options& options) {
             options
                 .add("--ranks", given.ranks,
                      "Numbers of ranks whose gradients are averaged, 2 to 64 (default: 2,4,8,16). Under "
                      "mpirun -np R: powers of two from R to 1024, of shards that R real ranks hold "
                      "(default: the first one)")
                 .type("N,N,...");
             options
                 .add("--scale", given.scale,
                      "Loss scale, or largest: without overflow on any rank (default)")
                 .type("S");
             options.add("--steps", given.steps, "Training steps to measure (default: 3)").type("N");
             return [&](const CommonOptions& common) {
               return allreduce::run(common, given.ranks, given.scale, given.steps);
             };
           }},
      {.out = "results/exp_allreduce", .settings = true});
}
