// Shards of a batch: the same bits on any number of ranks. A rank with one shard computes as a process
// without shards does on a smaller batch, so that as many ranks as shards are the oracle for fewer.
#include <gtest/gtest.h>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <cmath>
#include <filesystem>
#include <string>
#include <vector>

#include "experiments/app/config/shipped_configs.hpp"
#include "experiments/app/exit_code.hpp"
#include "experiments/app/run/prepared_run.hpp"
#include "tests/engine/parallel/thread_ranks.hpp"
#include "tests/experiments/app/config/every_layer.hpp"
#include "tests/support/idx_files.hpp"
#include "tests/support/message_of.hpp"
#include "tests/support/temporary_folder.hpp"

namespace fp16lab::experiments {
namespace {

using Settings = std::vector<std::string>;

/// What a run tells: every number that a run folder would have.
struct Record final : engine::Tap {
  std::vector<std::string> lines;

  bool wants(const engine::Site& site) override {
    return site.what <= engine::What::optimizer_state || site.what == engine::What::overflows;
  }
  void see(const engine::Event& event) override {
    if (const auto* row = event.as<HistogramRow>()) add(*row);
    if (const auto* row = event.as<StepRow>()) add(*row);
    if (const auto* row = event.as<OverflowRow>())
      lines.push_back(fmt::format("overflow {} of {}", row->step, fmt::join(row->parameters, ", ")));
    if (const auto* row = event.as<EvaluationRow>())
      lines.push_back(fmt::format("evaluation {:a} {:a}", row->loss, row->accuracy.value_or(0)));
  }
  void add(const HistogramRow& row) {
    std::string line = row.tensor + " " + std::string(name_of(row.dtype));
    for (const ExponentHistogram* const counts : {&row.before, &row.after}) {
      line += fmt::format(" | {} {} {} {:x} {:x}", counts->zero, counts->infinite, counts->nan,
                          counts->smallest, counts->greatest);
      for (int e = ExponentHistogram::min_exponent; e <= ExponentHistogram::max_exponent; ++e)
        if (counts->at(e) > 0) line += fmt::format(" 2^{}: {}", e, counts->at(e));
    }
    lines.push_back(line);
  }
  void add(const StepRow& row) {
    lines.push_back(fmt::format("step {} loss {:a} scale {:a} found {} skipped {} norm {:a} hash {:016x}",
                                row.step, row.loss, row.loss_scale, row.found_inf, row.skipped, row.grad_norm,
                                row.state_hash));
    skipped += row.skipped ? 1 : 0;
  }
  int skipped = 0;
};

class Shards : public testing::Test {
 protected:
  /// What the first rank of `ranks` recorded.
  static Record trained(RunConfig config, int ranks) {
    leave_out_unread(config);
    std::vector<Record> records(static_cast<std::size_t>(ranks));
    engine::parallel::on_thread_ranks(ranks, [&](engine::parallel::Communicator& communicator) {
      const auto run = prepare_run(resolve_run(config, "shards"), 1);
      Record& record = records[static_cast<std::size_t>(communicator.rank())];
      engine::Trainer trainer(*run->backend, run->workload, run->plan, record, &communicator);
      trainer.run();
    });
    for (const Record& record : records) EXPECT_EQ(record.lines, records.front().lines);
    return records.front();
  }

  static RunConfig with(RunConfig config, const Settings& settings) {
    for (const std::string& setting : settings) apply_setting(config, setting, "shards");
    return config;
  }

  /// The same numbers on 1, 2, 3 and 4 ranks; gives them.
  static Record expect_same(const RunConfig& config, const Settings& settings) {
    const RunConfig cut = with(with(config, settings), {"parallel.shards=4"});
    SCOPED_TRACE(testing::PrintToString(settings));
    const Record alone = trained(cut, 4);
    EXPECT_FALSE(alone.lines.empty());
    for (const int ranks : {1, 2, 3}) {
      const Record record = trained(cut, ranks);
      EXPECT_EQ(record.lines.size(), alone.lines.size()) << ranks << " ranks";
      for (std::size_t i = 0; i < std::min(record.lines.size(), alone.lines.size()); ++i)
        if (record.lines[i] != alone.lines[i]) {
          ADD_FAILURE() << ranks << " ranks, line " << i << ":\n"
                        << record.lines[i] << "\nfour ranks:\n"
                        << alone.lines[i];
          break;
        }
    }
    return alone;
  }

  static RunConfig small(const std::string& toml) {
    return with(parse_config(toml, "shards"), {"train.batch_size=8", "train.steps=3", "amp.dialect=paddle",
                                               "data.batches=3", "train.evaluate_every=2"});
  }
  std::string text_file() {
    const std::filesystem::path file = temporary_.path() / "words.txt";
    testing_support::write_bytes(file, every_layer::text());
    return "data.path=" + file.string();
  }
  static RunConfig shipped(const std::string& name) {
    return with(load_config(shipped_config(name)),
                {"train.batch_size=8", "train.steps=4", "train.epochs=0", "train.evaluate_every=0"});
  }
  /// The same on a few images that are drawn.
  static RunConfig on_drawn_images(const std::string& name) {
    return with(shipped(name),
                {"data.name=random-images", "data.batches=2", "data.subset=0", "data.test_subset=0"});
  }

  testing_support::TemporaryFolder temporary_;
};

const std::vector<std::string> levels{"amp.level=O0", "amp.level=O1", "amp.level=O2"};

TEST_F(Shards, EveryLayerOfImages) {
  for (const std::string& level : levels)
    for (const std::string layout : {"nchw", "nhwc"})
      expect_same(small(every_layer::images), {level, "model.layout=" + layout});
}

TEST_F(Shards, EveryLayerOfWords) {
  for (const std::string& level : levels) expect_same(small(every_layer::words), {level, text_file()});
}

TEST_F(Shards, EveryLayerOfNumbers) {
  for (const std::string& level : levels) expect_same(small(every_layer::numbers), {level});
}

TEST_F(Shards, BatchNormOverAllShards) {
  for (const std::string& level : levels)
    for (const std::string layout : {"nchw", "nhwc"})
      expect_same(small(every_layer::images),
                  {level, "model.layout=" + layout, "parallel.sync_batch_norm=true"});
  const Settings settings{"parallel.sync_batch_norm=true"};
  EXPECT_NE(expect_same(small(every_layer::numbers), settings).lines,
            expect_same(small(every_layer::numbers), {}).lines);
}

TEST_F(Shards, EveryLoss) {
  for (const engine::LossKind loss : every<engine::LossKind>) {
    const std::string setting = "model.loss=" + std::string(name_of(loss));
    if (loss == engine::LossKind::cross_entropy)
      for (const std::string more : {"model.label_smoothing=0.1", "model.one_hot=true"})
        expect_same(small(every_layer::images), {setting, more});
    else
      expect_same(small(every_layer::numbers), {setting});
  }
}

TEST_F(Shards, Text) {
  const Settings few{"data.subset=5000", "data.test_subset=1000", "observe.histograms_every=0"};
  for (const std::string name : {"charlm_lstm.toml", "charlm_transformer.toml"})
    expect_same(with(shipped(name), few), {"amp.dialect=apex", "amp.level=O2", "schedule.warmup_steps=1"});
}

TEST_F(Shards, Methods) {
  expect_same(on_drawn_images("recipe_accumulation.toml"), {});
  expect_same(on_drawn_images("recipe_clipping.toml"), {"amp.dialect=apex", "amp.level=O2"});
  expect_same(on_drawn_images("recipe_two_models.toml"), {});
  expect_same(on_drawn_images("recipe_two_models.toml"), {"scaler.per_loss=true"});
  expect_same(shipped("recipe_gan.toml"), {"data.subset=100", "data.test_subset=100"});
  expect_same(on_drawn_images("recipe_gradient_penalty.toml"), {});
  expect_same(on_drawn_images("recipe_gradient_penalty.toml"), {"amp.level=O0"});
}

TEST_F(Shards, WhatHasNoSecondDerivative) {
  const std::string penalty = "train.method=gradient_penalty", shards = "parallel.shards=4";
  const auto refusal = [&](const RunConfig& config, const Settings& settings, int ranks) {
    return testing_support::message_of([&] { trained(with(config, settings), ranks); });
  };
  for (const int ranks : {1, 4})
    EXPECT_EQ(refusal(small(every_layer::images), {penalty, shards}, ranks),
              "gradients that are made shard by shard (of weights of convolutions and embeddings) have no "
              "second derivative; expected parallel.shards = 1");
  std::string without = every_layer::numbers;
  const std::size_t norm = without.find("  { type = \"batch_norm1d\" },\n");
  ASSERT_NE(norm, std::string::npos);
  without.erase(norm, without.find('\n', norm) + 1 - norm);
  expect_same(small(without), {penalty, "amp.level=O1"});
  for (const std::string sync : {"true", "false"})
    EXPECT_EQ(refusal(small(every_layer::numbers), {penalty, shards, "parallel.sync_batch_norm=" + sync}, 1),
              "batch_norm: in a batch of several shards it has no second derivative; expected "
              "parallel.shards = 1");
  EXPECT_EQ(
      refusal(small(every_layer::words),
              {text_file(), penalty, shards, "amp.level=O1", "amp.rounding=stochastic_gradients"}, 1),
      "lstm: a backward pass that is itself differentiated, with several shards and stochastic rounding "
      "of gradients, has no rule for its random numbers; one of the three must go");
}

TEST_F(Shards, OverflowsAreDecidedOnceForAll) {
  const RunConfig network = with(on_drawn_images("recipe_accumulation.toml"), {"train.accumulate=1"});
  for (const std::string policy : {"torch", "megatron", "fairseq"})
    EXPECT_GT(expect_same(network, {"amp.dialect=apex", "amp.level=O2", "scaler.policy=" + policy,
                                    "scaler.initial_scale=2^32"})
                  .skipped,
              0)
        << policy;
  for (const std::string policy : {"lost-mass", "openseq2seq-logmax", "popart"})
    for (const std::string& level : levels)
      expect_same(network, {"amp.dialect=apex", level, "scaler.policy=" + policy});
  expect_same(network,
              {"amp.level=O1", "scaler.policy=torch", "scaler.initial_scale=2^30", "scaler.rescue=20"});
}

TEST_F(Shards, GradientsRoundedStochastically) {
  const std::string rounding = "amp.rounding=stochastic_gradients";
  for (const std::string level : {"amp.level=O1", "amp.level=O2"}) {
    const std::string layout = level == "amp.level=O1" ? "model.layout=nchw" : "model.layout=nhwc";
    const RunConfig images = with(small(every_layer::images), {level, layout});
    EXPECT_NE(expect_same(images, {rounding}).lines, trained(with(images, {"parallel.shards=4"}), 1).lines);
    expect_same(small(every_layer::words), {level, rounding, text_file()});
  }
  expect_same(small(every_layer::numbers), {"amp.level=O2", rounding});
  expect_same(on_drawn_images("recipe_accumulation.toml"), {rounding});
  expect_same(on_drawn_images("recipe_gradient_penalty.toml"), {rounding});
}

TEST_F(Shards, OneShardIsTrainingWithoutShards) {
  const RunConfig config = small(every_layer::images);
  EXPECT_EQ(trained(config, 1).lines, trained(with(config, {"parallel.shards=1"}), 1).lines);
  EXPECT_NE(trained(config, 1).lines, trained(with(config, {"parallel.shards=2"}), 1).lines);
}

/// A loss is the mean over a shard, so what a backward pass carries between layers is as many times larger as
/// there are shards: where that is a power of two, the bits of one shard at so many times the loss scale.
TEST_F(Shards, ScaleOfGradientsBetweenLayersMovesByTheNumberOfShards) {
  struct Gradients final : engine::Tap {
    std::vector<HistogramRow> rows;
    bool wants(const engine::Site& site) override { return site.what == engine::What::gradients; }
    void see(const engine::Event& event) override {
      const auto* const row = event.as<HistogramRow>();
      if (row == nullptr || row->kind != "activation") return;
      rows.push_back(*row);
      rows.back().loss_scale = 1;
    }
  };
  const auto rows = [](const std::string& shards, const std::string& scale) {
    RunConfig config = with(on_drawn_images("classifier.toml"),
                            {"amp.level=O1", "train.steps=1", "scaler.policy=fixed",
                             "scaler.initial_scale=" + scale, "parallel.shards=" + shards});
    leave_out_unread(config);
    const auto run = prepare_run(resolve_run(config, "shards"), 1);
    Gradients gradients;
    engine::Trainer(*run->backend, run->workload, run->plan, gradients, nullptr).run();
    return gradients.rows;
  };
  const std::vector<HistogramRow> four = rows("4", "1");
  EXPECT_FALSE(four.empty());
  EXPECT_EQ(four, rows("1", "4"));
  EXPECT_NE(four, rows("1", "1"));
}

TEST_F(Shards, WiresAndOrdersOfFrameworks) {
  const RunConfig config = small(every_layer::numbers);
  const std::vector<std::string> usual = expect_same(config, {"amp.level=O2"}).lines;
  for (const std::string order : {"tree", "nccl-ring", "nccl-tree"})
    for (const std::string wire : {"f32", "f16", "bf16"})
      for (const std::string predivide : {"1", "sqrt", "n"}) {
        const Record record =
            expect_same(config, {"amp.level=O2", "parallel.order=" + order, "parallel.wire=" + wire,
                                 "parallel.predivide=\"" + predivide + "\""});
        EXPECT_TRUE(wire == "f32" || record.lines != usual) << order << " " << wire;
      }
}

TEST_F(Shards, RankWithOtherBitsIsNamed) {
  std::vector<std::string> messages(3);
  engine::parallel::on_thread_ranks(3, [&](engine::parallel::Communicator& communicator) {
    const auto run =
        prepare_run(resolve_run(with(small(every_layer::numbers), {"parallel.shards=4"}), "run"), 1);
    engine::Sharding sharding(*run->backend, run->plan.parallel, &communicator);
    const auto parts = [&]() -> std::vector<engine::NamedDigest> {
      const bool differs = communicator.rank() == 1;
      return {{"fc1.weight", 1}, {"fc1.bias", differs ? 2U : 3U}, {"fc2.weight", differs ? 5U : 4U}};
    };
    sharding.compare(5, 11, parts);
    messages[static_cast<std::size_t>(communicator.rank())] =
        testing_support::message_of([&] { sharding.compare(communicator.rank() == 1 ? 7 : 5, 12, parts); });
  });
  for (const std::string& message : messages)
    EXPECT_EQ(
        message,
        "step 12: 2 of 3 ranks have the same state, but not rank 1 on thread in fc1.bias, fc2.weight. Some "
        "machine or build computes other bits, or memory or network is faulty");
}

TEST_F(Shards, WhatShardsCannotBeHadWith) {
  const RunConfig config = with(small(every_layer::numbers), {"parallel.shards=4", "amp.level=O1"});
  const auto refusal = [&](const Settings& settings) {
    return testing_support::message_of([&] { resolve_run(with(config, settings), "run.toml"); });
  };
  EXPECT_EQ(
      refusal({"train.batch_size=6"}),
      "run.toml: parallel.shards = 4: shards are equal parts of a batch, and train.batch_size = 6 has no 4 "
      "equal parts");
  EXPECT_EQ(refusal({"parallel.shards=3"}), "run.toml: 3 shards; expected a power of two from 1 to 1024");
  EXPECT_EQ(
      refusal({"scaler.policy=ada-loss"}),
      "run.toml: parallel.shards = 4 with scaler.policy = \"ada-loss\": scales of layers are decided inside "
      "a backward pass, by what one shard has; expected one of the two (parallel.shards = 1 cuts nothing)");
  EXPECT_EQ(
      refusal({"train.graph=true", "backend.device=cuda"}),
      "run.toml: parallel.shards = 4 with train.graph = true: shards are added by the host, which a recorded "
      "step does not wait for; expected one of the two (parallel.shards = 1 cuts nothing)");
  EXPECT_EQ(
      refusal({"optimizer.set_to_zero=true"}),
      "run.toml: parallel.shards = 4 with optimizer.set_to_zero = true: gradients of a shard are added to "
      "none; expected one of the two (parallel.shards = 1 cuts nothing)");
  EXPECT_EQ(
      refusal({"observe.explain_overflow=true"}),
      "run.toml: parallel.shards = 4 with observe.explain_overflow = true: values are followed in one shard "
      "only; expected parallel.shards = 1 for it");
}

}  // namespace
}  // namespace fp16lab::experiments
