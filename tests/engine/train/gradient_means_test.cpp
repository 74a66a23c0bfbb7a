// Means over shards that travel while a backward pass goes on: they start early, and no bit depends on when.

#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "engine/autograd/by_shard.hpp"
#include "engine/autograd/counting.hpp"
#include "engine/nn/losses.hpp"
#include "engine/nn/models/mlp.hpp"
#include "engine/train/sharding.hpp"
#include "tests/engine/autograd/support.hpp"
#include "tests/engine/parallel/thread_ranks.hpp"
#include "tests/support/message_of.hpp"

namespace fp16lab::engine {
namespace {

using parallel::Communicator;
using parallel::ShardTree;

constexpr std::int64_t batch = 8, inputs = 32, width = 512, classes = 10;
static_assert(width * width * sizeof(float) == GradientMeans::bucket_bytes, "a layer fills a bucket");

/// Bytes that the rank had sent when the gradient of each slot had just been computed.
struct SentBytes final : Tap {
  explicit SentBytes(const Communicator& sender) : communicator(&sender) {}
  void see(const Event& event) override {
    if (const auto* counted = event.as<CountedTensor>(); counted != nullptr && !counted->intermediate)
      at[std::string(counted->name)] = communicator->sent_bytes();
  }
  const Communicator* communicator;
  std::map<std::string, std::uint64_t> at;
};

float value_at(std::int64_t i, int salt) {
  return static_cast<float>(std::sin(static_cast<double>(i * 7 + salt)) * (1 + static_cast<double>(i % 5)));
}

/// What one rank has: a network of four layers, fc2 and fc3 as large as a bucket, and its rows of the batch.
class Rank {
 public:
  Rank(Communicator& communicator, const ParallelOptions& options)
      : backend_(test::hopper_backend()),
        tape_(*backend_),
        model_(*backend_, {.widths = {inputs, width, width, width, classes}}),
        sharding_(*backend_, options, &communicator),
        sent_(communicator) {
    sharding_.add_group(model_.parameters());
    StepContext context{.training = true};
    sharding_.enter(context, 1);
    tape_.set_context(context);
    tape_.set_taps({&counting_});
  }

  /// Forward and backward pass of the rank's rows of a batch.
  void pass(int number, bool last) {
    const parallel::Shards shards = sharding_.shards();
    const std::int64_t of_shard = batch / shards.total, rows = of_shard * shards.local;
    std::vector<float> values;
    std::vector<std::int32_t> labels;
    for (std::int64_t row = shards.first * of_shard; row < shards.first * of_shard + rows; ++row) {
      labels.push_back(static_cast<std::int32_t>(row % classes));
      for (std::int64_t i = 0; i < inputs; ++i) values.push_back(value_at(row * inputs + i, number));
    }
    const Variable x = tape_.constant(test::tensor_of(*backend_, {rows, inputs}, values));
    const Variable loss =
        nn::loss_of(nn::LossOptions{}, model_.forward(tape_, x), test::index_of(*backend_, labels));
    Tensor seed = backend_->empty(loss.shape(), DType::f32);
    backend_->fill(seed, 1.0);
    tape_.backward(loss, seed, {.last = last});
    tape_.reset();
  }
  void reduce() { sharding_.reduce(0, nullptr); }

  std::map<std::string, std::vector<float>> gradients() {
    std::map<std::string, std::vector<float>> all;
    for (const Parameter* parameter : model_.parameters())
      all[parameter->name] = test::values_of(*backend_, parameter->gradient);
    return all;
  }
  nn::Mlp& model() { return model_; }
  Tape& tape() { return tape_; }
  Backend& backend() { return *backend_; }
  Sharding& sharding() { return sharding_; }
  const std::map<std::string, std::uint64_t>& sent() const { return sent_.at; }

 private:
  std::unique_ptr<Backend> backend_;
  Tape tape_;
  nn::Mlp model_;
  Sharding sharding_;
  SentBytes sent_;
  Counting counting_{tape_, sent_};
};

using Gradients = std::map<std::string, std::vector<float>>;

/// Gradients of the first rank; on all ranks `use` ends with means.
Gradients on_ranks(int ranks, const ParallelOptions& options, const std::function<void(Rank&)>& use) {
  std::vector<Gradients> all(static_cast<std::size_t>(ranks));
  parallel::on_thread_ranks(
      ranks,
      [&](Communicator& communicator) {
        Rank rank(communicator, options);
        use(rank);
        all[static_cast<std::size_t>(communicator.rank())] = rank.gradients();
      },
      3);
  for (const Gradients& gradients : all) EXPECT_EQ(gradients, all.front());
  return all.front();
}

TEST(GradientMeans, TravelBeforeTheBackwardPassEnds) {
  for (const bool last : {true, false})
    on_ranks(2, {.shards = 4, .wire = {}}, [&](Rank& rank) {
      rank.pass(0, last);
      EXPECT_EQ(rank.sent().at("fc4.weight"), 0U);
      EXPECT_EQ(rank.sent().at("fc3.weight"), 0U);
      if (last) {  // fc4 and fc3 are the first bucket: half of it goes to the other rank
        constexpr std::uint64_t half = (width * width + width + classes * width + classes) / 2;
        EXPECT_GE(rank.sent().at("fc2.weight"), half * sizeof(float));
        EXPECT_GT(rank.sent().at("fc1.weight"), half * sizeof(float));
      } else {
        EXPECT_EQ(rank.sent().at("fc1.weight"), 0U);
      }
      rank.reduce();
    });
}

TEST(GradientMeans, BitsTellNeitherRanksNorWhenTheyStarted) {
  for (const parallel::SumOrder order : {parallel::SumOrder::tree, parallel::SumOrder::nccl_ring}) {
    const ParallelOptions options{.shards = 4, .wire = {.order = order}};
    const auto trained = [&](int ranks, bool early) {
      return on_ranks(ranks, options, [&](Rank& rank) {
        rank.pass(0, false);
        rank.pass(1, early);
        rank.reduce();
      });
    };
    const Gradients expected = trained(1, false);
    for (const int ranks : {1, 2, 3, 4}) {
      EXPECT_EQ(trained(ranks, true), expected) << ranks;
      EXPECT_EQ(trained(ranks, false), expected) << ranks;
    }
  }
}

TEST(GradientMeans, WaitForEveryUseOfAParameter) {
  const auto trained = [&](int ranks, bool early) {
    return on_ranks(ranks, {.shards = 4, .wire = {}}, [&](Rank& rank) {
      rank.pass(0, false);
      rank.reduce();
      // fc2 serves twice, before and after fc3: its gradient is there after its first use.
      const std::vector<Parameter*> parameters = rank.model().parameters();
      for (Parameter* parameter : parameters) parameter->clear_gradient();
      Tape& tape = rank.tape();
      const std::int64_t rows = batch / 4 * rank.sharding().shards().local;
      Tensor ones = rank.backend().empty({rows, width}, DType::f32);
      rank.backend().fill(ones, 1.0);
      const auto layer = [&](const Variable& x, std::size_t at) {
        return ops::linear(x, tape.parameter(*parameters[at]), tape.parameter(*parameters[at + 1]));
      };
      const Variable y = layer(ops::relu(layer(ops::relu(layer(tape.constant(ones), 2)), 4)), 2);
      const Variable loss = sum_of_elements(by_shard(y));
      Tensor seed = rank.backend().empty(loss.shape(), DType::f32);
      rank.backend().fill(seed, 1.0);
      tape.backward(loss, seed, {.last = early});
      rank.reduce();
      for (Parameter* parameter : parameters)  // the others were not reached
        if (!parameter->has_gradient) {
          parameter->gradient = rank.backend().empty(parameter->value.shape(), DType::f32);
          rank.backend().fill(parameter->gradient, 0.0);
        }
    });
  };
  const Gradients expected = trained(1, false);
  EXPECT_NE(expected.at("fc2.weight"), std::vector<float>(width * width));
  for (const int ranks : {1, 2, 4}) EXPECT_EQ(trained(ranks, true), expected) << ranks;
}

TEST(GradientMeans, APassAfterTheLastIsRefused) {
  parallel::on_thread_ranks(1, [&](Communicator& communicator) {
    Rank rank(communicator, {.shards = 4, .wire = {}});
    rank.pass(0, true);
    EXPECT_EQ(
        testing_support::message_of([&] { rank.pass(1, true); }),
        "Tape::backward: the gradient of fc4.weight travels already: a pass before this one was the last");
  });
}

/// What orders of NCCL cut is a bucket: the rule of sharding.hpp, spelled out.
TEST(GradientMeans, BucketIsOneCall) {
  const std::vector<std::vector<std::string>> buckets{{"fc4.bias", "fc4.weight", "fc3.bias", "fc3.weight"},
                                                      {"fc2.bias", "fc2.weight"},
                                                      {"fc1.bias", "fc1.weight"}};
  const parallel::WireOptions wire{.order = parallel::SumOrder::nccl_ring};
  Gradients stacks;
  const Gradients means = on_ranks(1, {.shards = 4, .wire = wire}, [&](Rank& rank) {
    rank.pass(0, false);
    stacks = rank.gradients();
    rank.reduce();
  });
  const auto communicator = parallel::make_single_process();
  ShardTree tree(*communicator, {4, 0, 4}, wire);
  bool apart_differs = false;
  for (const std::vector<std::string>& names : buckets) {
    std::vector<float> rows, expected;
    for (std::size_t shard = 0; shard < 4; ++shard)
      for (const std::string& name : names) {
        const std::vector<float>& stack = stacks.at(name);
        const auto count = static_cast<std::ptrdiff_t>(stack.size() / 4);
        const auto row = stack.begin() + static_cast<std::ptrdiff_t>(shard) * count;
        rows.insert(rows.end(), row, row + count);
      }
    for (const std::string& name : names)
      expected.insert(expected.end(), means.at(name).begin(), means.at(name).end());
    std::vector<float> mean(expected.size());
    tree.mean(rows, mean);
    EXPECT_EQ(mean, expected) << names.front();
    for (const std::string& name : names) {
      std::vector<float> alone(means.at(name).size());
      tree.mean(stacks.at(name), alone);
      apart_differs = apart_differs || alone != means.at(name);
    }
  }
  EXPECT_TRUE(apart_differs);
}

}  // namespace
}  // namespace fp16lab::engine
