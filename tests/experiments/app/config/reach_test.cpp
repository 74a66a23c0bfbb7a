// Every layer, loss, optimizer and schedule is reached from TOML, and trains at O0, O1 and O2.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <set>
#include <string>

#include "engine/nn/network/layer_types.hpp"
#include "engine/optim/schedule.hpp"
#include "experiments/app/run/prepared_run.hpp"
#include "tests/experiments/app/config/every_layer.hpp"
#include "tests/support/idx_files.hpp"
#include "tests/support/temporary_folder.hpp"

namespace fp16lab::experiments {
namespace {

using every_layer::images, every_layer::numbers, every_layer::words;

class Reach : public testing::Test {
 protected:
  /// Two steps of `toml` with these settings at every level: the loss is a number, and the state has moved.
  void expect_trains(const std::string& toml, const std::vector<std::string>& settings,
                     const std::vector<std::string>& levels = {"O0", "O1", "O2"}) {
    for (const std::string& level : levels) {
      RunConfig config = parse_config(toml, "reach");
      for (const std::string setting :
           {"train.batch_size=8", "train.steps=2", "amp.dialect=paddle", "data.batches=2"})
        apply_setting(config, setting, "reach");
      apply_setting(config, "amp.level=" + level, "reach");
      for (const std::string& setting : settings) apply_setting(config, setting, "reach");
      leave_out_unread(config);
      const auto run = prepare_run(resolve_run(config, "reach"), 1);
      engine::Tap nobody;
      engine::Trainer trainer(*run->backend, run->workload, run->plan, nobody);
      const std::uint64_t before = trainer.state_hash();
      const engine::RunResult result = trainer.run();
      const std::string what = level + " " + testing::PrintToString(settings);
      EXPECT_EQ(result.end, engine::RunResult::End::finished) << what;
      EXPECT_TRUE(std::isfinite(result.final_train_loss)) << what;
      EXPECT_EQ(result.skipped_steps, 0u) << what;
      EXPECT_NE(result.state_hash, before) << what;
    }
  }

  std::string text_file() {
    const std::filesystem::path file = temporary_.path() / "words.txt";
    testing_support::write_bytes(file, every_layer::text());
    return "data.path=" + file.string();
  }

 private:
  testing_support::TemporaryFolder temporary_;
};

TEST_F(Reach, EveryLayer) {
  std::set<std::string> used, known;
  for (const std::string& toml : {images, words, numbers})
    for (const engine::nn::LayerBlock& block : parse_config(toml, "reach").model.rows)
      for (const engine::nn::LayerRow& row : block.rows) used.insert(row.type);
  for (const engine::nn::LayerType& type : engine::nn::layer_types()) known.emplace(type.name);
  EXPECT_EQ(used, known) << "a layer type that no network here has";
  expect_trains(images, {});
  expect_trains(images, {"model.layout=nhwc"});
  expect_trains(words, {text_file()});
  expect_trains(numbers, {});
}

TEST_F(Reach, EveryLoss) {
  for (const engine::LossKind loss : every<engine::LossKind>) {
    const std::string setting = "model.loss=" + std::string(name_of(loss));
    if (loss == engine::LossKind::cross_entropy)
      for (const std::string more : {"model.label_smoothing=0.1", "model.one_hot=true"})
        expect_trains(images, {setting, more});
    else
      expect_trains(numbers, {setting});
  }
}

TEST_F(Reach, EveryOptimizer) {
  for (const std::string_view name : names_of(engine::optim::Algorithm{})) {
    const std::string setting = "optimizer.name=" + std::string(name);
    expect_trains(numbers, {setting});
    expect_trains(numbers, {setting, "amp.master_weights=false", "optimizer.kahan=true"}, {"O2"});
    expect_trains(numbers, {setting, "amp.master_weights=false", "amp.rounding=stochastic"}, {"O2"});
  }
  expect_trains(numbers, {"optimizer.nesterov=true", "optimizer.momentum=0.9"});
  expect_trains(numbers, {"optimizer.dampening=0.5", "optimizer.momentum=0.9"});
  expect_trains(numbers, {"optimizer.name=rmsprop", "optimizer.centered=true", "optimizer.momentum=0.5"});
}

TEST_F(Reach, EverySchedule) {
  for (const std::string_view name : names_of(engine::optim::Schedule{}))
    expect_trains(numbers, {"schedule.name=" + std::string(name), "schedule.step_interval=1"});
}

}  // namespace
}  // namespace fp16lab::experiments
