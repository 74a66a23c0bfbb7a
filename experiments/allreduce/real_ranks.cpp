#include "experiments/allreduce/real_ranks.hpp"

#include <algorithm>
#include <bit>
#include <chrono>
#include <cmath>
#include <cstdint>
#include <span>
#include <utility>

#include "engine/parallel/shard_tree.hpp"

namespace fp16lab::experiments::allreduce {
namespace {

using engine::parallel::Communicator;
using engine::parallel::ShardTree;

constexpr int repetitions = 5;

/// Elements whose bits are not the same.
std::uint64_t unlike(std::span<const float> a, std::span<const float> b) {
  std::uint64_t count = 0;
  for (std::size_t i = 0; i < a.size(); ++i)
    count += std::bit_cast<std::uint32_t>(a[i]) != std::bit_cast<std::uint32_t>(b[i]) ? 1 : 0;
  return count;
}

std::vector<RealRow> all_rows(const std::vector<std::int64_t>& shards, int ranks, std::size_t elements) {
  std::vector<RealRow> rows;
  for (const std::int64_t count : shards)
    for (const DType wire : engine::parallel::wire_formats)
      for (const Predivide predivide : every<engine::parallel::Predivide>)
        for (const SumOrder order : every<engine::parallel::SumOrder>) {
          RealRow& row = rows.emplace_back();
          row.shards = count;
          row.mean = {wire, predivide, order};
          for (int rank = 0; row.has_model() && rank < ranks; ++rank)
            row.formula.push_back(formula_bytes(row.mean, elements, count, ranks, rank));
        }
  return rows;
}

/// One step's gradients of the shards of a row, and what lies here of them.
class Step {
 public:
  Step(Communicator& communicator, Gradients gradients, double scale)
      : communicator_(&communicator),
        gradients_(gradients),
        scale_(scale),
        exact_(exact_mean(gradients, scale)),
        shards_(engine::parallel::placed_shards(static_cast<std::int64_t>(gradients.size()),
                                                communicator.size(), communicator.rank())) {
    for (const std::vector<float>& gradient :
         gradients.subspan(static_cast<std::size_t>(shards_.first), static_cast<std::size_t>(shards_.local)))
      stack_.insert(stack_.end(), gradient.begin(), gradient.end());
  }

  const ExactMean& exact() const { return exact_; }

  void add_to(RealRow& row) {
    const Variant variant{row.mean, Unscale::after};
    const Mean model = row.has_model() ? reduce_mean(variant, gradients_, scale_) : Mean{};
    ShardTree tree(*communicator_, shards_, row.mean);
    std::vector<float> sum(exact_.values.size());
    std::vector<std::uint64_t> nanoseconds, sent(static_cast<std::size_t>(communicator_->size()));
    std::uint64_t others[2] = {};  // elements with other bits than the model's, than rank 0's
    for (int repetition = 0; repetition <= repetitions; ++repetition) {
      communicator_->any(false);  // all begin together
      const std::uint64_t sent_before = communicator_->sent_bytes();
      const auto begin = std::chrono::steady_clock::now();
      tree.mean(stack_, sum);
      const auto taken = std::chrono::steady_clock::now() - begin;
      const std::uint64_t sent_now = communicator_->sent_bytes() - sent_before;
      const Mean mean = unscaled_mean(sum, gradients_, scale_);
      if (row.has_model()) others[0] += unlike(mean.values, model.values);
      if (repetition > 0) {  // in the first one buffers grow
        nanoseconds.push_back(static_cast<std::uint64_t>(std::chrono::nanoseconds(taken).count()));
        continue;
      }
      sent[static_cast<std::size_t>(communicator_->rank())] = sent_now;
      std::vector<float> first = mean.values;
      communicator_->broadcast(std::as_writable_bytes(std::span(first)), 0);
      others[1] += unlike(mean.values, first);
      if (row.mean.order == SumOrder::tree) tree_mean_ = mean.values;
      row.unlike_tree += unlike(mean.values, tree_mean_);
      add_errors(row, mean, model);
    }
    communicator_->max(nanoseconds);
    communicator_->sum(sent);
    communicator_->sum(others);
    for (const std::uint64_t count : nanoseconds) row.seconds.push_back(static_cast<double>(count) * 1e-9);
    if (row.has_model()) row.sent = std::move(sent);
    row.unlike_model += others[0];
    row.unlike_first += others[1];
  }

 private:
  void add_errors(RealRow& row, const Mean& mean, const Mean& model) const {
    const Variant variant{row.mean, Unscale::after};
    const auto squared = [](double x) { return x * x; };
    row.error_squares += squared(compare(mean, exact_).absolute);
    if (row.has_model()) row.model_squares += squared(compare(model, exact_).absolute);
    row.norm_squares += squared(exact_.norm);
    row.bound_squares += squared(error_bound(variant, exact_, static_cast<int>(gradients_.size()), scale_));
    row.born += mean.born;
  }

  Communicator* communicator_;
  Gradients gradients_;
  double scale_;
  ExactMean exact_;
  engine::parallel::Shards shards_;
  std::vector<float> stack_, tree_mean_;
};

}  // namespace

double RealRow::relative(double squares) const { return std::sqrt(squares / norm_squares); }

RealMeasured measure_real(Communicator& communicator, RankGradients& source,
                          const std::vector<std::int64_t>& shards, std::uint64_t steps, double scale) {
  RealMeasured measured{.rows = all_rows(shards, communicator.size(), source.elements()),
                        .ranks = communicator.size(),
                        .library = communicator.library(),
                        .elements = source.elements(),
                        .scale = scale};
  for (std::uint64_t iteration = 0; iteration < steps; ++iteration) {
    const std::vector<std::vector<float>> all =
        source.scaled(iteration, static_cast<int>(shards.back()), scale);
    std::vector<float> next;
    for (const std::int64_t count : shards) {
      Step step(communicator, Gradients(all).first(static_cast<std::size_t>(count)), scale);
      for (RealRow& row : measured.rows)
        if (row.shards == count) step.add_to(row);
      next = rounded(step.exact().values);
    }
    if (all_finite(all)) source.step(next);
  }
  return measured;
}

}  // namespace fp16lab::experiments::allreduce
