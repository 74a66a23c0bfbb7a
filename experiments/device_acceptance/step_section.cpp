// Sections "steps" and "histograms": times of the tutorials' training steps.
#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "experiments/device_acceptance/section.hpp"
#include "experiments/device_acceptance/timing.hpp"
#include "experiments/device_acceptance/torch_times.hpp"
#include "experiments/device_acceptance/trained_case.hpp"

namespace fp16lab::experiments::acceptance {
namespace {

const std::vector<std::string> o0{"amp.level=O0", "scaler.policy=none"};
const std::vector<std::string> o1{"amp.level=O1"};
const std::vector<std::string> o2{"amp.level=O2"};
const std::vector<std::string> o2_no_masters{"amp.level=O2", "amp.master_weights=false"};
const std::vector<std::string> o2_guard{"amp.level=O2", "amp.master_weights=false", "amp.use_guard=true",
                                        "amp.guard=fc1,fc2,fc3,fc4,fc5,fc6,fc7,fc8"};

struct Variant {
  const char* name;
  const std::vector<std::string>* set;
  engine::GemmRoute route;
  bool tf32 = false;
  bool graph = false;
  bool slow = false;               ///< fewer repetitions
  const char* v100_linear9 = "-";  ///< what Paddle's tutorial quotes on a V100, times faster than its FP32
  const char* v100_mlp3 = "-";
};
constexpr const char* baseline = "FP32, cuBLAS (TF32 off)";
const Variant variants[] = {
    {.name = baseline, .set = &o0, .route = engine::GemmRoute::cublas},
    {.name = "FP32, own fma chain", .set = &o0, .route = engine::GemmRoute::mma, .slow = true},
    {.name = "TF32, cuBLAS", .set = &o0, .route = engine::GemmRoute::cublas, .tf32 = true},
    {.name = "O1, mma",
     .set = &o1,
     .route = engine::GemmRoute::mma,
     .v100_linear9 = "4.5",
     .v100_mlp3 = "2.1 (2.26)"},
    {.name = "O1, cublas",
     .set = &o1,
     .route = engine::GemmRoute::cublas,
     .v100_linear9 = "4.5",
     .v100_mlp3 = "2.1 (2.26)"},
    {.name = "O2, mma",
     .set = &o2,
     .route = engine::GemmRoute::mma,
     .v100_linear9 = "5.2",
     .v100_mlp3 = "3.0 (3.29)"},
    {.name = "O2, cublas",
     .set = &o2,
     .route = engine::GemmRoute::cublas,
     .v100_linear9 = "5.2",
     .v100_mlp3 = "3.0 (3.29)"},
    {.name = "O2 without masters, cublas", .set = &o2_no_masters, .route = engine::GemmRoute::cublas},
    {.name = "O2, guard 8 of 9, cublas",
     .set = &o2_guard,
     .route = engine::GemmRoute::cublas,
     .v100_linear9 = "3.8"},
    {.name = "O1, cublas, graph",
     .set = &o1,
     .route = engine::GemmRoute::cublas,
     .graph = true,
     .v100_linear9 = "4.5 (static)"},
    {.name = "O2, mma, graph",
     .set = &o2,
     .route = engine::GemmRoute::mma,
     .graph = true,
     .v100_linear9 = "5.4 (static)"},
    {.name = "O2, cublas, graph",
     .set = &o2,
     .route = engine::GemmRoute::cublas,
     .graph = true,
     .v100_linear9 = "5.4 (static)"},
};

TimingPlan plan_of(const Settings& settings, bool slow) {
  return settings.sized<TimingPlan>({.warm_up = slow ? 1 : 4, .repetitions = slow ? 3 : 15},
                                    {.warm_up = slow ? 1 : 3, .repetitions = slow ? 1 : 5},
                                    {.warm_up = 2, .repetitions = 1});
}

Timing time_step(const Settings& settings, const std::string& system, const Variant& variant,
                 bool histograms) {
  std::vector<std::string> set = *variant.set;
  if (variant.graph) set.emplace_back("train.graph=true");
  TrainedCase one(tutorial_config(settings, system, set),
                  settings.side.make({.gemm = variant.route, .tf32 = variant.tf32}), histograms);
  return time_of(one.backend(), plan_of(settings, variant.slow), [&] { one.step(); });
}

std::optional<double> find(const std::map<std::string, double>& times, const std::string& name) {
  const auto found = times.find(name);
  return found == times.end() ? std::nullopt : std::optional(found->second);
}
std::optional<double> ratio(const std::optional<double>& a, const std::optional<double>& b) {
  return a && b ? std::optional(*a / *b) : std::nullopt;
}
std::string text(const std::optional<double>& value, const char* unit = "") {
  return value ? fmt::format("{:.4g}{}", *value, unit) : "-";
}

/// Milliseconds of every variant of one system.
std::map<std::string, double> time_system(const Settings& settings, const std::string& system,
                                          SectionResult& result) {
  std::map<std::string, double> times;
  Table table{
      .caption = fmt::format("{}: milliseconds of a training step, medians on the device's clock", system),
      .columns = {"variant", "ms", "fastest", "slowest", "x cuBLAS FP32", "quoted on a V100"},
      .rows = {}};
  for (const Variant& variant : variants) {
    if (system == "paddle_mlp3" && variant.set == &o2_guard) continue;  // three layers have no fc8
    if (settings.progress) settings.progress(fmt::format("{}: {}", system, variant.name));
    const char* quoted = system == "paddle_linear9" ? variant.v100_linear9 : variant.v100_mlp3;
    try {
      const Timing timing = time_step(settings, system, variant, false);
      times[variant.name] = timing.median;
      table.rows.push_back({variant.name, text(timing.median), text(timing.fastest), text(timing.slowest),
                            text(ratio(find(times, baseline), timing.median), " x"), quoted});
    } catch (const std::exception& error) {
      table.rows.push_back({variant.name, "FAILED", "-", "-", "-", quoted});
      result.notes.push_back(fmt::format("{}, {}: {}", system, variant.name, error.what()));
    }
  }
  result.tables.push_back(std::move(table));
  return times;
}

void add_torch(const std::string& system, const std::map<std::string, double>& ours, const TorchTimes& torch,
               SectionResult& result) {
  if (torch.rows.empty()) return;
  Table table{.caption = fmt::format("{} beside PyTorch {} on {}", system, torch.version, torch.device),
              .columns = {"PyTorch", "ms", "ours", "ms", "ours / PyTorch"},
              .rows = {}};
  const std::pair<const char*, const char*> same[] = {
      {"fp32", baseline}, {"tf32", "TF32, cuBLAS"}, {"amp", "O2, cublas"}};
  for (const TorchTime& row : torch.rows) {
    if (row.system != system) continue;
    for (const auto& [theirs, mine] : same)
      if (row.precision == theirs)
        table.rows.push_back({row.precision + ", " + row.mode, text(row.milliseconds), mine,
                              text(find(ours, mine)), text(ratio(find(ours, mine), row.milliseconds), " x")});
  }
  // A table has one column of each name; the second pair is ours.
  table.columns = {"PyTorch", "PyTorch ms", "ours", "our ms", "ours / PyTorch"};
  result.tables.push_back(std::move(table));
}

/// Variants whose histograms are timed.
bool is_looked_at(const Variant& variant) {
  return (variant.set == &o1 || variant.set == &o2) && !variant.graph;
}

}  // namespace

Goals step_goals(const Settings&) {
  return {at_least("paddle_linear9 O2, route cublas, against cuBLAS FP32 (TF32 off)", 10, "x"),
          at_least("paddle_linear9 O2, route mma, against cuBLAS FP32 (TF32 off)", 7, "x"),
          at_most("paddle_linear9 O2 against torch.amp eager", 1.0, "x its time"),
          at_most("paddle_linear9 O2 against torch.amp with torch.compile", 1.1, "x its time")};
}

SectionResult time_steps(const Settings& settings, const Goals& goals) {
  SectionResult result;
  const TorchTimes torch = settings.torch.empty() ? TorchTimes{} : read_torch_times(settings.torch);
  std::map<std::string, double> linear9;
  for (const char* system : {"paddle_linear9", "paddle_mlp3"}) {
    const std::map<std::string, double> times = time_system(settings, system, result);
    add_torch(system, times, torch, result);
    if (std::string_view(system) == "paddle_linear9") linear9 = times;
  }
  const auto fp32 = find(linear9, baseline), own = find(linear9, "O2, mma"),
             library = find(linear9, "O2, cublas");
  const auto amp = [&](const std::string& mode) { return torch.find("paddle_linear9", "amp", mode); };
  result.claims = {judged(settings, goals[0], ratio(fp32, library)),
                   judged(settings, goals[1], ratio(fp32, own)),
                   judged(settings, goals[2], ratio(library, amp("eager"))),
                   judged(settings, goals[3], ratio(library, amp("compile")))};
  if (settings.torch.empty())
    result.notes.emplace_back(
        "PyTorch: not measured; run experiments/bench/torch_amp.py on this card and give its output with "
        "--torch");
  return result;
}

Goals histogram_goals(const Settings&) {
  Goals goals;
  for (const Variant& variant : variants)
    if (is_looked_at(variant))
      goals.push_back(at_most(fmt::format("histogram of every gradient, {}", variant.name),
                              variant.route == engine::GemmRoute::mma ? 5 : 12, "% of a step"));
  return goals;
}

SectionResult time_histograms(const Settings& settings, const Goals& goals) {
  SectionResult result;
  Table table{
      .caption =
          "paddle_linear9: a step with and without histograms of every gradient, before and after its cast",
      .columns = {"variant", "without ms", "with ms", "cost"},
      .rows = {}};
  for (const Variant& variant : variants) {
    if (!is_looked_at(variant)) continue;
    if (settings.progress) settings.progress(variant.name);
    const double without = time_step(settings, "paddle_linear9", variant, false).median;
    const double with = time_step(settings, "paddle_linear9", variant, true).median;
    const double percent = 100 * (with / without - 1);
    table.rows.push_back({variant.name, text(without), text(with), fmt::format("{:.1f} %", percent)});
    result.claims.push_back(judged(settings, goals[result.claims.size()], percent));
  }
  result.tables.push_back(std::move(table));
  return result;
}

}  // namespace fp16lab::experiments::acceptance
