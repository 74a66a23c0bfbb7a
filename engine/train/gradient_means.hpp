// GradientMeans: gradients by shard become their means over all shards, bucket by bucket.
//
// A bucket is what travels together, and one call for orders that cut a call into chunks (SumOrder). Which
// parameters are in one follows from the list of parameters alone, as torch's DistributedDataParallel has it:
// in reverse order of registration, a bucket ends with the gradient that fills it. A bucket starts when all
// gradients in it are final and those before it have started; a backward pass reaches parameters in about
// that order, so that the first ones travel while it goes on. When they start changes no bit.
#pragma once

#include <cstdint>
#include <span>
#include <unordered_map>
#include <vector>

#include "engine/autograd/final_gradients.hpp"
#include "engine/autograd/parameter.hpp"
#include "engine/backend/backend.hpp"
#include "engine/parallel/shard_tree.hpp"

namespace fp16lab::engine {

class GradientMeans final : public FinalGradients {
 public:
  /// Bytes, in FP32, that fill a bucket.
  static constexpr std::size_t bucket_bytes = std::size_t{1} << 20;

  /// Both must outlive it.
  GradientMeans(Backend& backend, parallel::ShardTree& tree) : backend_(&backend), tree_(&tree) {}

  /// The parameters of one optimizer, numbered from 0 in the order of these calls.
  void add_group(std::span<Parameter* const> parameters);

  void on_final(Parameter& parameter) override;
  void on_node() override { tree_->poll(); }

  /// The gradients of a group are their means, in their dtype, rounded once; waits for other ranks. `counts`,
  /// if there is one, gets the values before this rounding.
  void finish(std::size_t group, ExponentHistogram* counts);

 private:
  struct Member {
    Parameter* parameter = nullptr;
    Tensor mean;                ///< defined: under way
    std::vector<float> staged;  ///< the mean, where tensors are not in the host's memory
  };
  struct Bucket {
    std::vector<Member> members;
    std::size_t waiting_for = 0;  ///< members that are not final yet
  };
  struct Group {
    std::vector<Bucket> buckets;
    std::size_t started = 0;
  };
  struct Place {
    std::size_t group = 0, bucket = 0;
  };
  void start(Bucket& bucket);
  void store(Member& member, ExponentHistogram* counts);

  Backend* backend_;
  parallel::ShardTree* tree_;
  std::vector<Group> groups_;
  std::unordered_map<const Parameter*, Place> places_;
  // Scratch of `start`.
  std::vector<parallel::ShardTree::Stack> stacks_;
  std::vector<Tensor> taken_;
  std::vector<std::vector<float>> downloaded_;
};

}  // namespace fp16lab::engine
