// Section "training": whole runs on both back ends side by side, compared after every step.
#include <fmt/format.h>

#include <algorithm>
#include <iterator>

#include "engine/data/dataset.hpp"
#include "experiments/app/config/run_plan.hpp"
#include "experiments/app/config/shipped_configs.hpp"
#include "experiments/app/run/run_backend.hpp"
#include "experiments/device_acceptance/section.hpp"
#include "experiments/device_acceptance/synthetic_data.hpp"
#include "experiments/emulated_vs_device/lockstep.hpp"
#include "experiments/emulated_vs_device/record.hpp"
#include "numerics/files/disk/atomic_file.hpp"
#include "numerics/tensor_core/tensor_core_model.hpp"

namespace fp16lab::experiments::acceptance {
namespace {

struct Run {
  std::string name;
  std::string config;  ///< a shipped one
  std::uint64_t steps, quick_steps;
  std::vector<std::string> set;
};

/// The goal's networks, with the levels spread over them; every route of the products.
const std::vector<Run>& runs() {
  static const std::vector<std::string> o2{"amp.dialect=paddle", "amp.level=O2", "scaler.policy=dynamic"};
  static const std::vector<std::string> text{"data.name=text", "data.test_subset=0", "train.batch_size=32",
                                             "schedule.name=constant"};
  const auto with = [](std::vector<std::string> base, const std::vector<std::string>& more) {
    base.insert(base.end(), more.begin(), more.end());
    return base;
  };
  static const std::vector<Run> all{
      {"classifier, O2", "classifier", 200, 20, o2},
      {"classifier, O2, mma", "classifier", 200, 20, with(o2, {"backend.gemm=mma"})},
      {"classifier, O2, graph", "classifier", 200, 20, with(o2, {"train.graph=true"})},
      {"classifier, O1 in BF16", "classifier", 200, 20, {"amp.level=O1", "amp.dtype=bf16"}},
      {"classifier, O0", "classifier", 50, 5, {"amp.level=O0"}},
      {"lenet5, O2, NCHW", "lenet5", 50, 5, with(o2, {"data.normalise=standard"})},
      {"lenet5, O1, NHWC",
       "lenet5",
       50,
       5,
       {"data.normalise=standard", "amp.level=O1", "scaler.policy=dynamic", "model.layout=nhwc"}},
      {"LSTM, O1", "charlm_lstm", 20, 3, with(text, {"amp.level=O1", "scaler.policy=dynamic"})},
      {"transformer, O2", "charlm_transformer", 20, 3,
       with(text,
            with(o2, {"model.layer.dropout.p=0.1", "model.layer.h{}.attn.dropout=0.1",
                      "model.layer.h{}.attn.residual_dropout.p=0.1", "model.layer.h{}.mlp.dropout.p=0.1"}))},
  };
  return all;
}

/// A step that is recorded and replayed, by one route of the products.
Run graph_run(const std::string& route) {
  return {"classifier, O2, graph, " + route,
          "classifier",
          50,
          10,
          {"amp.dialect=paddle", "amp.level=O2", "scaler.policy=dynamic", "train.graph=true",
           "backend.gemm=" + route}};
}

/// Networks that the PTX machine executes in a moment.
std::vector<std::string> rehearsal_sizes(const Run& run) {
  if (run.config == "classifier") return {"train.batch_size=3", "model.layer.mlp1.widths=[8, 10]"};
  if (run.config == "lenet5") return {"train.batch_size=3"};
  if (run.config == "charlm_lstm")
    return {"train.batch_size=3", "model.context=4", "model.layer.embedding.embedding_dim=8",
            "model.layer.lstm.hidden_size=8"};
  return {"train.batch_size=3",
          "model.context=4",
          "model.block.h{}.repeat=1",
          "model.layer.tokens.embedding_dim=8",
          "model.layer.positions.embedding_dim=8",
          "model.layer.h{}.attn.num_heads=2",
          "model.layer.h{}.mlp.fc.out_features=32",
          "model.layer.h{}.mlp.proj.out_features=8"};
}

bool is_text(const Run& run) { return run.config.starts_with("charlm"); }

bool multiplies(const std::string& row, DType format) {
  return std::ranges::any_of(tensor_core_models(), [&](const TensorCoreModel& model) {
    return model.name == row && model.operands.contains(format);
  });
}

/// Fashion-MNIST where it is installed, else made-up images; text is always made up.
class Data {
 public:
  explicit Data(const Settings& settings) : folder_(settings.out / "data") {
    try {
      if (!settings.rehearsal()) {
        engine::data::find_dataset("fashion-mnist", {});
        found_ = true;
      }
    } catch (const std::exception&) {
      found_ = false;
    }
    if (!found_)
      write_synthetic_images(folder_, settings.rehearsal() ? 24 : 30000, settings.rehearsal() ? 10 : 1000);
    write_synthetic_text(folder_ / "text.txt", settings.rehearsal() ? 2000 : 400000);
  }
  std::string path_of(const Run& run) const {
    if (is_text(run)) return (folder_ / "text.txt").string();
    return found_ ? "" : folder_.string();
  }
  std::string images() const {
    return found_ ? "Fashion-MNIST" : "made up (Fashion-MNIST is not installed, or this is a rehearsal)";
  }

 private:
  std::filesystem::path folder_;
  bool found_ = false;
};

RunConfig config_of(const Run& run, const Settings& settings, const Data& data) {
  RunConfig config = load_config(shipped_config(run.config + ".toml"));
  std::vector<std::string> set = run.set;
  if (settings.rehearsal()) std::ranges::copy(rehearsal_sizes(run), std::back_inserter(set));
  apply_settings(config, set, "acceptance");
  config.data.path = data.path_of(run);
  config.backend.device = "cuda";  // what the configuration is checked for
  config.backend.tensor_core = settings.side.tensor_core;
  config.train.steps =
      static_cast<std::int64_t>(settings.sized<std::uint64_t>(run.steps, run.quick_steps, 2));
  leave_out_unread(config);
  resolve_run(config, "acceptance");
  return config;
}

std::string file_name(const std::string& run) {
  std::string name;
  for (const char c : run) {
    if (c == ',') continue;
    name += c == ' ' ? '-' : c;
  }
  return name;
}

SectionResult compare_runs(const Settings& settings, const Goal& goal, const std::vector<Run>& all) {
  SectionResult result;
  const Data data(settings);
  result.notes.push_back("images: " + data.images() + "; text: made up");
  Table table{.caption =
                  "Training on both back ends: loss, scale, found_inf, histograms, gradients and state after "
                  "every step",
              .columns = {"run", "steps", "same steps", "first difference", "emulated s", "device s"},
              .rows = {}};
  std::uint64_t steps = 0, same_steps = 0;
  for (const Run& run : all) {
    if (settings.progress) settings.progress(run.name);
    const RunConfig config = config_of(run, settings, data);
    if (config.amp.dtype == DType::bf16 && !multiplies(settings.side.tensor_core, DType::bf16)) continue;
    const auto asked = config.train.steps;
    try {
      const Lockstep lockstep = run_lockstep(config, settings.side.tensor_core, settings.threads,
                                             settings.side.make({.gemm = gemm_route(config.backend.gemm)}),
                                             {.histograms_every = 1});
      const std::uint64_t done = lockstep.steps.empty() ? 0 : lockstep.steps.size() - 1;
      const std::uint64_t same =
          lockstep.first ? (lockstep.first->step == 0 ? 0 : lockstep.first->step - 1) : done;
      table.rows.push_back({run.name, fmt::format("{}", asked), fmt::format("{}", same),
                            lockstep.first ? summary_of(lockstep) : "none",
                            fmt::format("{:.2f}", lockstep.emulated_seconds),
                            fmt::format("{:.2f}", lockstep.device_seconds)});
      write_file_atomically(settings.out / fmt::format("training-{}.json", file_name(run.name)),
                            json_of(lockstep, settings.side) + "\n");
      for (const std::string& line : differences_of(lockstep)) result.notes.push_back(run.name + ": " + line);
      steps += asked;
      same_steps += same;
    } catch (const std::exception& error) {
      table.rows.push_back(
          {run.name, fmt::format("{}", asked), "0", fmt::format("FAILED: {}", error.what()), "-", "-"});
      result.notes.push_back(fmt::format("{} failed to run: {}", run.name, error.what()));
      steps += asked;
    }
  }
  result.tables.push_back(std::move(table));
  result.claims = {none_differ(settings, goal, steps - same_steps, steps, "steps")};
  return result;
}

}  // namespace

Goals training_goals(const Settings&) { return {no_difference("training steps against the emulated run")}; }

SectionResult compare_training(const Settings& settings, const Goals& goals) {
  return compare_runs(settings, goals[0], runs());
}

SectionResult compare_graph_training(const Settings& settings, const Goal& goal, const std::string& route) {
  return compare_runs(settings, goal, {graph_run(route)});
}

}  // namespace fp16lab::experiments::acceptance
