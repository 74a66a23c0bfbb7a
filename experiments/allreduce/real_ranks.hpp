// The mean on real ranks: the same gradients, orders and wires as the model's, carried by MPI.
//
// `shards` gradients lie on the ranks of a Communicator as fp16lab trains (ShardTree): what is a rank of the
// model is a shard here. Every rank makes all gradients, and all means by the model, itself, so that it can
// say of each of its results whether it has the model's bits.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "engine/parallel/communicator.hpp"
#include "experiments/allreduce/gradient_mean.hpp"
#include "experiments/allreduce/rank_gradients.hpp"
#include "experiments/study/study.hpp"

namespace fp16lab::experiments::allreduce {

/// One way of forming the mean of `shards` gradients, over all steps.
struct RealRow {
  std::int64_t shards = 0;
  engine::parallel::WireOptions mean;

  // The same on all ranks. Errors as in Row; the model's where there is one, of all orders but the library's.
  double error_squares = 0, model_squares = 0, norm_squares = 0, bound_squares = 0;
  std::uint64_t born = 0;
  std::uint64_t unlike_tree = 0;  ///< elements with other bits than the tree's, same wire and predivide

  /// Elements with other bits than the model's, summed over ranks and repetitions.
  std::uint64_t unlike_model = 0;
  /// Elements with other bits than those of rank 0, summed over ranks.
  std::uint64_t unlike_first = 0;
  std::vector<double> seconds;  ///< of each repetition: from a common start until the last rank has its mean
  std::vector<std::uint64_t> sent, formula;  ///< by rank: bytes of one mean; of the library nothing is known

  bool has_model() const { return mean.order != engine::parallel::SumOrder::library; }
  double relative(double squares) const;
};

struct RealMeasured {
  std::vector<RealRow> rows;
  int ranks = 1;
  std::string library;
  std::size_t elements = 0;
  double scale = 1;
};

/// Collective. Trains `steps` steps on `source`, as far as its gradients are finite. `shards`: powers of two,
/// none below the number of ranks, ascending. Of every mean one untimed and five timed repetitions.
RealMeasured measure_real(engine::parallel::Communicator& communicator, RankGradients& source,
                          const std::vector<std::int64_t>& shards, std::uint64_t steps, double scale);

std::vector<Question<RealMeasured>> real_questions();
std::string table_of(const RealMeasured& measured);
std::string csv_of(const RealMeasured& measured);

}  // namespace fp16lab::experiments::allreduce
