// fp16lab train with observe.tensors and with train.initial: what is seen changes no bit and survives kills,
// and a run begins with the weights that another one has written.
#include <gmock/gmock.h>

#include <set>
#include <sstream>

#include "numerics/files/arrays/safetensors.hpp"
#include "numerics/files/disk/sha256.hpp"
#include "numerics/files/run/run_folder.hpp"
#include "tests/experiments/app/run/resume_runs.hpp"

namespace fp16lab::experiments {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

constexpr const char* everything = "observe.tensors=gradients,activations,weights,updates,optimizer_state";

class ObservedRuns : public Resume {
 protected:
  testing_support::Finished run(const std::string& name, std::vector<std::string> settings,
                                const std::vector<std::string>& more = {}) {
    std::vector<std::string> arguments{"--quiet", "--force"};
    for (const std::string& setting : settings) arguments.insert(arguments.end(), {"--set", setting});
    arguments.insert(arguments.end(), more.begin(), more.end());
    return train(name, arguments);
  }
  std::vector<std::string> lines(const std::string& name) const {
    std::istringstream text(read(name + "/histograms.jsonl"));
    std::vector<std::string> all;
    for (std::string line; std::getline(text, line);) all.push_back(line);
    return all;
  }
};

TEST_F(ObservedRuns, LookingAtEverythingChangesNeitherBitsNorGradients) {
  const std::vector<std::vector<std::string>> levels{
      {"amp.level=O0"},
      {"amp.level=O1"},
      {"amp.level=O2", "amp.dialect=paddle"},
      {"amp.level=O2", "amp.dialect=paddle", "amp.master_weights=false", "optimizer.name=adam"}};
  for (std::vector<std::string> settings : levels) {
    settings.insert(settings.end(), {"train.steps=12", "train.evaluate_every=4", "optimizer.lr=0.001"});
    const auto with = [&](const std::string& every, const char* tensors) {
      std::vector<std::string> all = settings;
      all.insert(all.end(), {"observe.histograms_every=" + every, tensors});
      return all;
    };
    ASSERT_EQ(run("blind", with("0", "checkpoint.every=0")).exit_code, 0);
    ASSERT_EQ(run("gradients", with("4", "observe.tensors=gradients")).exit_code, 0);
    ASSERT_EQ(run("all", with("4", everything), {"--threads", "2"}).exit_code, 0);
    ASSERT_EQ(run("each", with("1", everything)).exit_code, 0);
    for (const char* watched : {"gradients", "all", "each"})
      EXPECT_EQ(column(std::string(watched) + "/steps.csv", "state_hash"),
                column("blind/steps.csv", "state_hash"));
    EXPECT_EQ(column("all/steps.csv", "underflow_rate"), column("gradients/steps.csv", "underflow_rate"));
    std::vector<std::string> gradients;
    std::set<std::string> kinds;
    for (const std::string& line : lines("all")) {
      const json row = json::parse(line);
      if (row.contains("observed"))
        kinds.insert(row["observed"].get<std::string>());
      else
        gradients.push_back(line);
    }
    EXPECT_EQ(gradients, lines("gradients")) << "to the byte";
    EXPECT_THAT(kinds, ElementsAre("activations", "optimizer_state", "updates", "weights"));
  }
}

TEST_F(ObservedRuns, RowsSurviveKills) {
  for (const int signal : {SIGTERM, SIGKILL}) {
    const std::string name = signal == SIGTERM ? "stopped" : "killed";
    begin_and_interrupt(name, {everything, "observe.histograms_every=1"}, signal);
    const std::string last = std::to_string(newest_step(name) + 7);
    ASSERT_EQ(
        begin("whole-" + name, {everything, "observe.histograms_every=1", "train.steps=" + last}).exit_code,
        0);
    const auto result = resume(name, {"--set", "train.steps=" + last});
    ASSERT_EQ(result.exit_code, 0) << result.err;
    expect_same_files("whole-" + name, name);
  }
}

TEST_F(ObservedRuns, NamesChooseTensors) {
  const auto result = run("run",
                          {everything, "observe.names=[\"fc1.*\", \"*.output\", \"conv\"]", "train.steps=2",
                           "observe.histograms_every=1"},
                          {});
  ASSERT_EQ(result.exit_code, 0) << result.err;
  std::set<std::string> names;
  for (const std::string& line : lines("run")) names.insert(json::parse(line)["tensor"].get<std::string>());
  EXPECT_THAT(names, ElementsAre("fc1.bias", "fc1.bias.velocity", "fc1.input", "fc1.output", "fc1.weight",
                                 "fc1.weight.velocity", "fc2.output"));
  const auto told = train("told", {"--set", everything, "--set", "observe.names=conv", "--set",
                                   "train.steps=2", "--set", "observe.histograms_every=1"});
  EXPECT_THAT(told.err, HasSubstr("note: observe.names = \"conv\": no counted tensor has such a name"));
  // A policy decides by all gradients: what was left out cannot be replayed.
  expect_one_line_error(fp16lab({"replay", path("run")}), 1, "observe.names");
  ASSERT_EQ(
      run("weights", {"observe.tensors=weights,updates", "train.steps=2"}, {"--tensorboard", path("tb")})
          .exit_code,
      0);
  std::string events;
  for (const auto& entry : std::filesystem::directory_iterator(folder_ / "tb"))
    events += testing_support::slurp(entry.path());
  for (const char* tag : {"weights/fc1.weight", "updates/fc1.weight", "unmoved/fc1.weight"})
    EXPECT_NE(events.find(tag), std::string::npos) << tag;
  EXPECT_EQ(events.find("exponents/"), std::string::npos);
  expect_one_line_error(fp16lab({"replay", path("weights")}), 1, "observe.tensors");
}

TEST_F(ObservedRuns, HistShowsEachKind) {
  ASSERT_EQ(run("run", {everything, "train.steps=3", "observe.histograms_every=2", "amp.level=O2",
                        "amp.dialect=paddle", "amp.master_weights=false", "optimizer.lr=0.0001"})
                .exit_code,
            0);
  const ObservedSet updates{Observed::updates};
  std::uint64_t values = 0, unmoved = 0;
  for (const HistogramRow& row : read_histograms(folder_ / "run", updates)) {
    values += row.before.total();
    unmoved += row.unmoved.value();
  }
  ASSERT_GT(unmoved, 0u);
  const auto table = fp16lab({"hist", path("run"), "--tensors", "updates", "--quiet"});
  EXPECT_EQ(table.exit_code, 0);
  EXPECT_THAT(table.out, HasSubstr("of " + std::to_string(values) + " updates of a weight " +
                                   std::to_string(unmoved) + " ("));
  const json all =
      json::parse(fp16lab({"hist", path("run"), "--tensors", "updates", "--json", "--quiet"}).out);
  EXPECT_EQ(all["all_steps"]["unmoved"], unmoved);
  EXPECT_EQ(all["step"], 3);
  EXPECT_EQ(all["tensors"].size(), 4u);
  for (const char* kind : {"activations", "weights", "optimizer_state"}) {
    const auto result = fp16lab({"hist", path("run"), "--tensors", kind, "--format", "f16,bf16", "--json",
                                 "--include", "fc1", "--quiet"});
    ASSERT_EQ(result.exit_code, 0) << result.err;
    const json shown = json::parse(result.out);
    EXPECT_EQ(shown["observed"], kind);
    for (const json& tensor : shown["tensors"]) {
      EXPECT_TRUE(tensor["tensor"].get<std::string>().starts_with("fc1."));
      for (const char* format : {"f16", "bf16"}) {
        const json& zones = tensor["zones"][format];
        const std::uint64_t shares =
            zones["lost"][0].get<std::uint64_t>() + zones["overflow"][0].get<std::uint64_t>() +
            zones["subnormal"][1].get<std::uint64_t>() + zones["normal"][0].get<std::uint64_t>();
        EXPECT_EQ(shares, tensor["total"].get<std::uint64_t>() - tensor["zero"].get<std::uint64_t>());
      }
    }
  }
  ASSERT_EQ(fp16lab({"report", path("run"), "-o", path("page"), "--quiet"}).exit_code, 0);
  const std::string page = read("page/report.html");
  for (const char* part : {"\"observed\":[{\"summary\":", ": Updates against weights of step 3\"",
                           ": Optimizer state of step 3\"", "fc1.weight.velocity"})
    EXPECT_THAT(page, HasSubstr(part));
  ASSERT_EQ(run("gradients", {"train.steps=2"}).exit_code, 0);
  ASSERT_EQ(fp16lab({"report", path("gradients"), "-o", path("plain"), "--quiet"}).exit_code, 0);
  EXPECT_THAT(read("plain/report.html"), HasSubstr("\"observed\":[],"));
  expect_one_line_error(fp16lab({"hist", path("gradients"), "--tensors", "weights"}), 1,
                        "no weights recorded: observe.tensors had others, and --tensors shows gradients");
  expect_one_line_error(fp16lab({"hist", path("run"), "--tensors", "weight"}), 2, "--tensors");
}

// ---- train.initial

TEST_F(ObservedRuns, ARunBeginsWithTheWeightsThatAnotherHasWritten) {
  const std::vector<std::vector<std::string>> levels{
      {"amp.level=O0"}, {"amp.level=O1"}, {"amp.level=O2", "amp.dialect=paddle", "amp.master_weights=false"}};
  for (std::vector<std::string> settings : levels) {
    settings.emplace_back("train.steps=5");
    ASSERT_EQ(run("drawn", settings, {"--dump-initial", path("w")}).exit_code, 0);
    ASSERT_EQ(run("loaded", settings, {"--load-initial", path("w")}).exit_code, 0);
    EXPECT_EQ(column("loaded/steps.csv", "state_hash"), column("drawn/steps.csv", "state_hash"));
    // Other weights would have been drawn with another seed; other batches still come.
    ASSERT_EQ(
        run("other", settings, {"--load-initial", path("w"), "--seed", "7", "--dump-initial", path("v")})
            .exit_code,
        0);
    EXPECT_EQ(read("v"), read("w"));
    EXPECT_NE(column("other/steps.csv", "state_hash").back(), column("drawn/steps.csv", "state_hash").back());
    const json last = manifest("loaded")["data"].back();
    EXPECT_EQ(last["path"], path("w"));
    EXPECT_EQ(last["sha256"], sha256_of_file(folder_ / "w"));
  }
}

TEST_F(ObservedRuns, BuffersAndTwoNetworksComeAlong) {
  model_ = R"(layer = [{ type = "flatten" }, { name = "fc1", type = "linear", out_features = 16 },
              { name = "bn", type = "batch_norm1d" }, { type = "relu" }, { name = "fc2", type = "linear" }])";
  model_ = std::regex_replace(model_, std::regex("batch_norm1d"), "batch_norm2d");
  ASSERT_EQ(run("drawn", {"train.steps=4", "amp.save_dtype=f32"}).exit_code, 0);
  // What training leaves has running statistics of its own.
  ASSERT_EQ(run("next", {"train.steps=1"},
                {"--load-initial", path("drawn/weights.safetensors"), "--dump-initial", path("v")})
                .exit_code,
            0);
  const SafetensorsReader trained(folder_ / "drawn/weights.safetensors"), loaded(folder_ / "v");
  ASSERT_NE(loaded.find("bn.running_mean"), nullptr);
  ASSERT_EQ(loaded.entries().size(), trained.entries().size());
  for (const SafetensorsEntry& entry : loaded.entries())
    EXPECT_EQ(loaded.read(entry), trained.read(*trained.find(entry.name))) << entry.name;
  // PyTorch's state_dict counts batches besides.
  std::vector<SafetensorsSource> sources;
  for (const SafetensorsEntry& entry : loaded.entries())
    sources.push_back(safetensors_source(entry.name, *entry.type, entry.shape, loaded.read(entry)));
  const std::vector<std::byte> counter(8);
  sources.push_back(safetensors_source("bn.num_batches_tracked", DType::i64, {}, counter));
  write_safetensors(folder_ / "state_dict", std::move(sources));
  const auto torch = run("torch", {"train.steps=1"}, {"--load-initial", path("state_dict")});
  EXPECT_EQ(torch.exit_code, 0) << torch.err;
  EXPECT_EQ(column("torch/steps.csv", "state_hash"), column("next/steps.csv", "state_hash"));

  const std::vector<std::string> gan{"train", "-c", "recipe_gan", "--set", "train.steps=2", "--quiet", "-o"};
  const auto two = [&](const std::string& name, const std::vector<std::string>& more) {
    std::vector<std::string> all = gan;
    all.push_back(path(name));
    all.insert(all.end(), more.begin(), more.end());
    const auto result = fp16lab(all);
    EXPECT_EQ(result.exit_code, 0) << result.err;
  };
  two("gan", {"--dump-initial", path("g")});
  two("gan2", {"--load-initial", path("g")});
  EXPECT_EQ(column("gan2/steps.csv", "state_hash"), column("gan/steps.csv", "state_hash"));
}

TEST_F(ObservedRuns, SixteenBitsAreWidenedAndMisfitsListed) {
  ASSERT_EQ(run("drawn", {"train.steps=3", "amp.save_dtype=f16"}, {"--dump-initial", path("w")}).exit_code,
            0);
  ASSERT_EQ(run("half", {"train.steps=1"},
                {"--load-initial", path("drawn/weights.safetensors"), "--dump-initial", path("v")})
                .exit_code,
            0);
  const SafetensorsReader half(folder_ / "drawn/weights.safetensors"), wide(folder_ / "v"),
      drawn(folder_ / "w");
  for (const SafetensorsEntry& entry : half.entries()) {
    const std::vector<std::byte> low = half.read(entry), high = wide.read(*wide.find(entry.name));
    ASSERT_EQ(high.size(), 2 * low.size());
    for (std::size_t i = 0; i < low.size() / 2; ++i) {
      _Float16 narrow;
      float value = 0;
      std::memcpy(&narrow, low.data() + 2 * i, sizeof(narrow));
      std::memcpy(&value, high.data() + 4 * i, sizeof(value));
      ASSERT_EQ(value, static_cast<float>(narrow)) << entry.name;
    }
  }
  std::vector<SafetensorsSource> sources;
  for (const SafetensorsEntry& entry : drawn.entries()) {
    if (entry.name == "fc1.bias") continue;
    std::vector<std::uint64_t> shape = entry.shape;
    if (entry.name == "fc1.weight") std::swap(shape[0], shape[1]);
    const DType type = entry.name == "fc2.bias" ? DType::i32 : *entry.type;
    sources.push_back(safetensors_source(entry.name == "fc2.weight" ? "fc2.wieght" : entry.name, type, shape,
                                         drawn.read(entry)));
  }
  write_safetensors(folder_ / "bad", std::move(sources));
  const auto bad = run("bad-run", {"train.steps=1"}, {"--load-initial", path("bad")});
  expect_one_line_error(
      bad, 2,
      "train.initial: " + path("bad") +
          ": fc1.weight is F32 (784, 16), expected F32 (16, 784); fc1.bias is missing, expected F32 "
          "(16); fc2.weight is missing, expected F32 (10, 16); fc2.bias is I32 (10), expected F32 "
          "(10); fc2.wieght (F32 (10, 16)) belongs to nothing in this network");
  EXPECT_FALSE(std::filesystem::exists(folder_ / "bad-run"));
  testing_support::write_bytes(folder_ / "no", "no safetensors");
  expect_one_line_error(run("bad-run", {}, {"--load-initial", path("no")}), 1, path("no"));
  expect_one_line_error(run("bad-run", {}, {"--load-initial", path("none")}), 1, path("none"));
}

TEST_F(ObservedRuns, ResumingAndSweepsKnowTheInitialWeights) {
  ASSERT_EQ(run("drawn", {"train.steps=1"}, {"--dump-initial", path("w"), "--seed", "9"}).exit_code, 0);
  const std::string initial = "train.initial=" + path("w");
  begin_and_interrupt("run", {initial});
  const std::string last = std::to_string(newest_step("run") + 5);
  ASSERT_EQ(begin("whole", {initial, "train.steps=" + last}).exit_code, 0);
  const auto result = resume("run", {"--set", "train.steps=" + last});
  ASSERT_EQ(result.exit_code, 0) << result.err;
  expect_same_files("whole", "run");
  // Another file under its name is another run.
  ASSERT_EQ(run("drawn", {"train.steps=1"}, {"--dump-initial", path("w"), "--seed", "10"}).exit_code, 0);
  expect_one_line_error(
      resume("run", {"--quiet", "--set", "train.steps=" + std::to_string(std::stoi(last) + 1)}), 2,
      "the data have changed: " + path("w"));
  write_config("2");
  testing_support::write_bytes(folder_ / "sweep.toml",
                               "[[workload]]\nname = \"small\"\nconfig = \"small.toml\"\nseeds = [1, 2]\n"
                               "[[variant]]\nname = \"given\"\nset = [\"" +
                                   initial + "\"]\n");
  const auto sweep = fp16lab({"sweep", "-c", path("sweep.toml"), "-o", path("sweep"), "--quiet"});
  EXPECT_EQ(sweep.exit_code, 0) << sweep.err;
  EXPECT_EQ(manifest("sweep/small-given-seed2")["data"].back()["path"], path("w"));
}

}  // namespace
}  // namespace fp16lab::experiments
