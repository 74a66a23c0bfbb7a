// Sharding: data-parallel training. The batch is cut into shards, every rank computes some of them, and what
// is a sum over the batch is made by shard and added by one tree (bit rule 16).
//
// All ranks have the same weights, optimizer state and loss scale, and decide the same: the inputs of a
// decision (gradients, losses, counts) are the same on all of them before it reads them.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <stdexcept>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "engine/autograd/parameter.hpp"
#include "engine/autograd/tap.hpp"
#include "engine/autograd/tape.hpp"
#include "engine/autograd/tape_events.hpp"
#include "engine/backend/backend.hpp"
#include "engine/parallel/communicator.hpp"
#include "engine/parallel/shard_tree.hpp"

namespace fp16lab::engine {

struct ParallelOptions {
  std::int64_t shards = 1;       ///< V, part of what a run computes
  bool sync_batch_norm = false;  ///< BatchNorm's statistics are those of all shards, not of each
  parallel::WireOptions wire;    ///< how gradients become their mean
  double time_limit = 600;       ///< seconds (> 0) that a rank waits for others; no bit depends on it
};

/// Ranks have different states, which nothing can mend: all of them throw it, with the same text.
class RanksDiffer : public std::runtime_error {
 public:
  /// `ranks`: those that differ, and the first of the others, ascending.
  RanksDiffer(const std::string& what, std::vector<int> ranks)
      : std::runtime_error(what), ranks_(std::move(ranks)) {}
  const std::vector<int>& ranks() const { return ranks_; }

 private:
  std::vector<int> ranks_;
};
struct NamedDigest {
  std::string name;
  std::uint64_t digest = 0;
};

/// std::invalid_argument "parallel.KEY = VALUE: ..." for a number of shards that parallel::check_shard_count
/// refuses, or that does not divide `batch_size`.
void check(const ParallelOptions& options, std::int64_t batch_size);

/// Gradients by shard become their means over all shards, bucket by bucket.
///
/// A bucket is what travels together, and one call for orders that cut a call into chunks (SumOrder). Which
/// parameters are in one follows from the list of parameters alone, as torch's DistributedDataParallel has
/// it: in reverse order of registration, a bucket ends with the gradient that fills it. A bucket starts when
/// all gradients in it are final and those before it have started; a backward pass reaches parameters in
/// about that order, so that the first ones travel while it goes on. When they start changes no bit.
class GradientMeans final : public Tap {
 public:
  /// Bytes, in FP32, that fill a bucket.
  static constexpr std::size_t bucket_bytes = std::size_t{1} << 20;

  /// Both must outlive it.
  GradientMeans(Backend& backend, parallel::ShardTree& tree) : backend_(&backend), tree_(&tree) {}

  /// The parameters of one optimizer, numbered from 0 in the order of these calls.
  void add_group(std::span<Parameter* const> parameters);

  void see(const Event& event) override;

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
  void note_final(const Parameter& parameter);
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

class Sharding {
 public:
  /// `communicator` null: one process. std::invalid_argument for more ranks than shards.
  Sharding(Backend& backend, const ParallelOptions& options, parallel::Communicator* communicator);

  /// For the context of a training step, 1-based: messages show it.
  void enter(StepContext& context, std::uint64_t step);
  const parallel::Shards& shards() const { return tree_.shards(); }
  bool cut() const { return shards().total > 1; }
  bool has_other_ranks() const { return communicator_->size() > 1; }

  /// The parameters of one optimizer, numbered from 0 in the order of these calls.
  void add_group(std::span<Parameter* const> parameters) { means_.add_group(parameters); }
  /// The gradients by shard of a group become their means over all shards (GradientMeans::finish).
  void reduce(std::size_t group, ExponentHistogram* counts);

  /// The mean over all shards of what `values`, f32 (local shards), or a scalar, has of the local ones.
  float mean(const Tensor& values);

  /// The sum over ranks of what each rank counted in these histograms: as many on all of them.
  void add_counts(std::span<ExponentHistogram* const> counts);

  /// Is evaluation batch `batch` this rank's? Batch b is rank b mod R's.
  bool evaluates(std::uint64_t batch) const {
    return batch % static_cast<std::uint64_t>(communicator_->size()) ==
           static_cast<std::uint64_t>(communicator_->rank());
  }
  /// The sum of all batches' losses, where each rank has its own in their places: with several shards by a
  /// binary tree over batches, FP64, else one after the other. `correct` becomes the sum over ranks.
  double sum_of_batches(std::span<double> losses, std::uint64_t& correct);

  /// Is it true of any rank?
  bool any(bool mine) { return has_other_ranks() ? communicator_->any(mine) : mine; }

  /// RanksDiffer naming the ranks whose digest is not that of most, and which of `parts` differ there.
  /// `parts` have the same names in the same order on all ranks; they are called only then.
  void compare(std::uint64_t digest, std::uint64_t step,
               const std::function<std::vector<NamedDigest>()>& parts);

 private:
  void set_place(std::string_view what);

  Backend* backend_;
  std::unique_ptr<parallel::Communicator> own_;  ///< where none was given
  parallel::Communicator* communicator_;
  parallel::ShardTree tree_;
  GradientMeans means_;
  bool sync_batch_norm_;
  std::uint64_t step_ = 0;
  std::vector<float> losses_;  ///< scratch
};

}  // namespace fp16lab::engine
