// The mean on real ranks: the same gradients, orders and wires as the model's, carried by MPI.
//
// `shards` gradients are on the ranks of a Communicator as fp16lab trains (ShardTree): what is a rank of the
// model is a shard here. Every rank makes all gradients, and all means by the model, itself, so that it can
// say of each of its results whether it has the model's bits.
#pragma once

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <string>
#include <vector>

#include "engine/parallel/communicator.hpp"
#include "experiments/questions/allreduce/gradient_mean.hpp"
#include "experiments/questions/allreduce/rank_gradients.hpp"
#include "experiments/study/study.hpp"

namespace fp16lab::experiments::allreduce {

/// One way of forming the mean of `shards` gradients, over all steps. Errors are the same on all ranks.
struct RealRow : MeanErrors {
  std::int64_t shards = 0;
  engine::parallel::WireOptions mean;

  double model_squares = 0;       ///< of the model's error; it has all orders but the library's
  std::uint64_t unlike_tree = 0;  ///< elements with other bits than the tree's, same wire and predivide

  /// Elements with other bits than the model's, summed over ranks and repetitions.
  std::uint64_t unlike_model = 0;
  /// Elements with other bits than those of rank 0, summed over ranks.
  std::uint64_t unlike_first = 0;
  std::vector<double> seconds;  ///< of each repetition: from a common start until the last rank has its mean
  std::vector<std::uint64_t> sent, formula;  ///< by rank: bytes of one mean; of the library nothing is known

  bool has_model() const { return mean.order != engine::parallel::SumOrder::library; }
};

struct RealMeasured {
  std::vector<RealRow> rows;
  int ranks = 1;
  std::string library;
  std::size_t elements = 0;
  double scale = 1;
};

/// Collective. Trains `steps` steps on `source`, as far as its gradients are finite. `shards`: powers of two,
/// none below the number of ranks, ascending. Every mean has one untimed and five timed repetitions.
RealMeasured measure_real(engine::parallel::Communicator& communicator, RankGradients& source,
                          const std::vector<std::int64_t>& shards, std::uint64_t steps, double scale);

std::vector<Question<RealMeasured>> real_questions();
/// Its table, and real_ranks.csv.
Described describe(const RealMeasured& measured);

/// Is the error of every row in which nothing overflowed within its bound? Rows are MeanErrors.
template <class Row>
Answer judge_bounds(const std::vector<Row>& rows) {
  std::size_t checked = 0, within = 0;
  double tightest = 0;
  for (const MeanErrors& row : rows) {
    if (row.born > 0) continue;
    ++checked;
    within += row.error_squares <= row.bound_squares ? 1 : 0;
    tightest = std::max(tightest, std::sqrt(row.error_squares / row.bound_squares));
  }
  return {verdict_of(checked > 0 && within == checked),
          fmt::format("{} of {} within; the largest is {:.3g} of its bound", within, checked, tightest)};
}

}  // namespace fp16lab::experiments::allreduce
