#include "tests/reports/synthetic_runs.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <numbers>
#include <random>

#include "numerics/files/run/run_folder.hpp"
#include "numerics/formats/bits.hpp"
#include "numerics/formats/format_range.hpp"
#include "numerics/random/philox.hpp"

namespace fp16lab::reports {
namespace {

constexpr int samples = 1000;

struct TensorShape {
  std::string name, kind;
  double offset;         ///< added to the typical log2 magnitude
  double zero_fraction;  ///< exact zeros, as after a ReLU
};

std::vector<TensorShape> tensors_of(const std::string& model) {
  std::vector<TensorShape> tensors;
  const int layers = model == "classifier" ? 4 : 3;
  for (int layer = 1; layer <= layers; ++layer) {
    const double depth = layers - layer;
    tensors.push_back({fmt::format("fc{}.weight", layer), "weight", 5.0 - depth, 0.08});
    tensors.push_back({fmt::format("fc{}.bias", layer), "weight", 7.0 - depth, 0.02});
    if (layer > 1) tensors.push_back({fmt::format("fc{}.input", layer), "activation", -1.5 - depth, 0.53});
  }
  tensors.push_back({"loss.prediction", "activation", 0.0, 0.0});
  return tensors;
}

HistogramRow histogram_row(const TensorShape& tensor, double log2_center, double scale, std::uint64_t step,
                           std::mt19937_64& random, bool low_precision) {
  HistogramRow row{.step = step,
                   .tensor = tensor.name,
                   .kind = tensor.kind,
                   .dtype = low_precision ? DType::f16 : DType::f32,
                   .loss_scale = scale};
  std::normal_distribution<double> magnitude(log2_center + tensor.offset, 2.6);
  std::uniform_real_distribution<double> uniform(0, 1);
  for (int i = 0; i < samples; ++i) {
    const bool zero = uniform(random) < tensor.zero_fraction;
    double value = zero ? 0.0 : scale * std::exp2(magnitude(random));
    if (low_precision)
      value = std::min(value, fp16_range.largest());  // where values overflow, steps are skipped
    row.before.count(bits_of(static_cast<float>(value)));
    const double stored = !low_precision ? value : value <= 0x1p-25 ? 0.0 : value >= 65520 ? INFINITY : value;
    row.after.count(bits_of(static_cast<float>(stored)));
  }
  return row;
}

}  // namespace

std::filesystem::path write_synthetic_run(const std::filesystem::path& root, const SyntheticRun& run) {
  const bool low_precision = run.level != "O0";
  const std::string scale_part = run.policy == "fixed" ? fmt::format("-s{}", run.initial_scale) : "";
  std::filesystem::path folder =
      root / fmt::format("{}-{}-{}{}{}-seed{}", run.model, run.level, run.policy, scale_part,
                         run.perturb_ulps == 0 ? "" : "-twin", run.seed);
  if (!run.workload.empty()) folder = root / fmt::format("{}-{}-seed{}", run.workload, run.variant, run.seed);

  Manifest manifest;
  manifest.name = run.variant;
  manifest.argv = {"fp16lab", "sweep", "-c", "demo.toml"};
  manifest.config = fmt::format(
      "[model]\nname = \"{}\"\n\n[data]\nname = \"fashion-mnist\"\npath = \"/data\"\n\n"
      "[train]\nsteps = {}\nseed = {}\nperturb_ulps = {}\n\n[amp]\nlevel = \"{}\"\ndtype = \"f16\"\n\n"
      "[scaler]\npolicy = \"{}\"\ninitial_scale = {:.1f}\ngrowth_interval = 200\n\n"
      "[backend]\ndevice = \"emulated\"\ntensor_core = \"hopper\"\n{}",
      run.model, run.steps, run.seed, run.perturb_ulps, run.level, run.policy, run.initial_scale,
      run.extra_config);
  manifest.git_hash = "0123456789abcdef0123456789abcdef01234567";
  manifest.seeds = {{"train", run.seed}};
  manifest.cpu = "Synthetic CPU";
  manifest.threads = 2;
  manifest.compiler = "GNU 12.2.0";
  manifest.flags = "-O3 -ffp-contract=off";
  manifest.gemm_target = "AVX3";
  manifest.data = {{"/data/train-images-idx3-ubyte.gz", std::string(64, 'a')}};
  manifest.model =
      R"j({"name":"m","batch_size":128,"parameters":1010,"multiply_adds":1.28e6,"layers":[)j"
      R"j({"layer":"block.fc","type":"linear","inputs":["input"],"output":"(N, 10)","parameters":1010,)j"
      R"j("frozen":true,"to_float":"f32",)j"
      R"j("multiply_adds":1.28e6,"products":[{"times":2,"batch":1,"m":128,"n":10,"k":100,"fills_tensor_cores":false}]},)j"
      R"j({"layer":"block.relu1","type":"relu","inputs":["block.fc"],"output":"(N, 10)","parameters":0,)j"
      R"j("frozen":false,"to_float":"",)j"
      R"j("multiply_adds":0,"products":[]},{"layer":"block.sum","type":"add",)j"
      R"j("inputs":["block.relu1","input"],"output":"(N, 10)","parameters":0,"frozen":false,)j"
      R"j("to_float":"","multiply_adds":0,"products":[]}]})j";
  const std::uint64_t mega = 1 << 20;
  manifest.memory = RunMemory{.parameters = low_precision ? mega : 2 * mega,
                              .masters = low_precision ? 2 * mega : 0,
                              .gradients = low_precision ? mega : 2 * mega,
                              .optimizer = 4 * mega,
                              .activations = low_precision ? 5 * mega : 10 * mega,
                              .peak = low_precision ? 12 * mega : 17 * mega};
  RunWriter writer(folder, manifest);

  const std::uint64_t state = stream_id(run.bits.empty() ? fmt::format("{} {} {} {}", run.level, run.policy,
                                                                       run.initial_scale, run.perturb_ulps)
                                                         : run.bits);
  std::mt19937_64 random(run.seed * 7919 + static_cast<std::uint64_t>(std::abs(run.gradient_log2) * 100));
  std::normal_distribution<double> noise(0, 0.02);
  double scale = run.policy == "none" ? 1.0 : run.initial_scale;
  int good = 0;
  const double start = run.final_accuracy ? 2.3 : 0.17;
  for (std::uint64_t step = 1; step <= run.steps; ++step) {
    const double progress = static_cast<double>(step) / static_cast<double>(run.steps);
    StepRow row{.step = step, .loss_scale = scale, .lr = 0.001, .seconds = low_precision ? 0.11 : 0.03};
    row.found_inf = row.skipped = std::find(run.skips.begin(), run.skips.end(), step) != run.skips.end();
    row.loss = (run.final_loss + (start - run.final_loss) * std::exp(-6 * progress)) * (1 + noise(random));
    if (run.state == "diverged" && progress > 0.6) row.loss = NAN;
    row.grad_norm = row.found_inf ? INFINITY : 0.5 * std::exp(-2 * progress);
    row.state_hash = random() ^ state;
    if (run.histograms_every != 0 && (step == 1 || step % run.histograms_every == 0)) {
      ExponentHistogram all;
      for (const TensorShape& tensor : tensors_of(run.model)) {
        const double center = run.gradient_log2 - 3.0 * progress;
        const HistogramRow histogram = histogram_row(tensor, center, scale, step, random, low_precision);
        all += histogram.before;
        writer.append(histogram);
      }
      if (low_precision) {
        std::uint64_t lost = 0;
        for (int e = ExponentHistogram::min_exponent; e < -25; ++e) lost += all.at(e);
        row.underflow_rate = static_cast<double>(lost) / static_cast<double>(all.finite_nonzero());
      }
    }
    writer.append(row);
    if (row.found_inf)
      writer.append(OverflowRow{.step = step,
                                .loss_scale = scale,
                                .optimizers = {"model"},
                                .parameters = {"fc1.weight", "fc1.bias", "fc2.weight", "fc2.bias"}});
    if (step % run.evaluate_every == 0 || step == run.steps) {
      const double loss = step == run.steps ? run.final_loss : 1.02 * row.loss;
      std::optional<double> accuracy = run.final_accuracy;
      if (accuracy && step != run.steps) *accuracy *= 1 - 0.5 * std::exp(-6 * progress);
      std::optional<double> bits;
      if (run.bits_per_character) bits = loss / std::numbers::ln2;
      writer.append(EvaluationRow{
          .step = step, .split = "test", .loss = loss, .accuracy = accuracy, .bits_per_character = bits});
    }
    if (run.policy == "dynamic") {  // torch's rule
      if (row.found_inf) {
        scale /= 2;
        good = 0;
      } else if (++good == 200) {
        scale *= 2;
        good = 0;
      }
    }
  }
  if (run.state == "finished") writer.finish(ExitState::finished);
  if (run.state == "diverged") writer.finish(ExitState::diverged, "loss non-finite on 50 consecutive steps");
  return folder;
}

std::vector<std::filesystem::path> write_synthetic_grid(const std::filesystem::path& root) {
  std::vector<std::filesystem::path> folders;
  for (const std::string model : {"autoencoder", "classifier"})
    for (const std::uint64_t seed : {1, 2, 3}) {
      const bool classifier = model == "classifier";
      const double shift = static_cast<double>(seed) - 2;
      SyntheticRun run{
          .model = model, .seed = seed, .gradient_log2 = classifier ? -15.0 : -23.0, .steps = 600};
      const auto add = [&](const std::string& level, const std::string& policy, double scale, double loss,
                           double accuracy) {
        run.level = level;
        run.policy = policy;
        run.initial_scale = scale;
        run.final_loss = loss + 0.0003 * shift * (classifier ? 20 : 1);
        if (classifier) run.final_accuracy = accuracy + 0.004 * shift;
        run.skips.clear();
        if (policy == "dynamic")
          run.skips = classifier ? std::vector<std::uint64_t>{1, 2, 3, 410} : std::vector<std::uint64_t>{1};
        folders.push_back(write_synthetic_run(root, run));
      };
      const double base = classifier ? 0.42 : 0.0583;
      add("O0", "none", 65536, base, 0.853);
      run.perturb_ulps = 1;
      run.histograms_every = 0;
      add("O0", "none", 65536, base * (1 + 0.0005 * shift * shift), 0.853 - 0.001 * shift * shift);
      run.perturb_ulps = 0;
      run.histograms_every = 20;
      add("O1", "none", 65536, classifier ? 0.422 : 0.0681, 0.852);
      add("O1", "fixed", 8, base * 1.003, 0.853);
      add("O1", "fixed", 128, base * 1.001, 0.854);
      add("O1", "fixed", 2048, base * 0.999, 0.852);
      add("O1", "fixed", 32768, base * 1.002, 0.853);
      add("O1", "dynamic", 65536, base, 0.8535);
    }
  return folders;
}

}  // namespace fp16lab::reports
