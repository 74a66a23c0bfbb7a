#include "experiments/allreduce/verdicts.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <string>

namespace fp16lab::experiments::allreduce {
namespace {

class Verdicts {
 public:
  enum class Outcome { pass, fail, undecided };
  void claim(const std::string& words, const std::string& criterion, const std::string& measured,
             Outcome outcome) {
    fmt::print("claim {}: {}\n  criterion: {}\n  measured: {}\n  verdict: {}\n", ++count_, words, criterion,
               measured,
               outcome == Outcome::pass   ? "PASS"
               : outcome == Outcome::fail ? "FAIL"
                                          : "UNDECIDED");
    failed_ += outcome == Outcome::fail ? 1 : 0;
  }
  void claim(const std::string& words, const std::string& criterion, const std::string& measured,
             bool holds) {
    claim(words, criterion, measured, holds ? Outcome::pass : Outcome::fail);
  }
  bool failed() const { return failed_ > 0; }

 private:
  int count_ = 0, failed_ = 0;
};

const Row& row_of(const std::vector<Row>& rows, int ranks, const Variant& variant) {
  return *std::ranges::find_if(rows, [&](const Row& row) {
    return row.ranks == ranks && row.variant.wire == variant.wire &&
           row.variant.algorithm == variant.algorithm && row.variant.unscale == variant.unscale &&
           row.variant.division == variant.division;
  });
}

void claim_bounds(const std::vector<Row>& rows, Verdicts& verdicts) {
  std::size_t checked = 0, within = 0;
  double tightest = 0;
  for (const Row& row : rows) {
    if (row.born > 0) continue;
    ++checked;
    within += row.error_squares <= row.bound_squares ? 1 : 0;
    tightest = std::max(tightest, std::sqrt(row.error_squares / row.bound_squares));
  }
  verdicts.claim(
      "rounding explains every error: nothing else is lost on the way",
      "error <= its a-priori bound (experiments/allreduce/gradient_mean.hpp) where no Inf was born",
      fmt::format("{} of {} within; the largest is {:.3g} of its bound", within, checked, tightest),
      checked > 0 && within == checked);
}

void claim_wide_wire(const std::vector<Row>& rows, Verdicts& verdicts) {
  double widest = 0, narrowest = std::numeric_limits<double>::infinity();
  bool clean = true;
  for (const Row& row : rows) {
    const bool wide = row.variant.wire == DType::f32;
    if (wide) {
      widest = std::max(widest, row.error());
      clean = clean && row.born == 0 && row.lost == 0;
    } else if (row.born == 0) {
      narrowest = std::min(narrowest, row.error());
    }
  }
  verdicts.claim("an FP32 all-reduce loses no element and no range, whatever the order of scalings",
                 "FP32 on the wire: nothing lost, no Inf born, and every error below every FP16 one",
                 fmt::format("largest FP32 error {:.3e}, smallest FP16 error {:.3e}", widest, narrowest),
                 clean && widest < narrowest);
}

void claim_overflow(const std::vector<Row>& rows, bool largest, Verdicts& verdicts) {
  std::uint64_t post = 0, pre = 0;
  for (const Row& row : rows) {
    if (row.variant.wire != DType::f16 || row.variant.unscale != Unscale::after) continue;
    if (row.variant.division == Division::post) post += row.born;
    if (row.variant.division == Division::pre) pre += row.born;
  }
  using Outcome = Verdicts::Outcome;
  verdicts.claim(
      "a sum of scaled FP16 gradients overflows although no rank did; dividing by R first prevents it",
      "FP16, unscale after, at the largest S without overflow on any rank: Inf born with postdivide, none "
      "with "
      "predivide",
      fmt::format("{} elements with postdivide, {} with predivide", post, pre),
      pre > 0    ? Outcome::fail
      : post > 0 ? Outcome::pass
      : largest  ? Outcome::fail
                 : Outcome::undecided);
}

void claim_underflow(const std::vector<Row>& rows, double scale, const std::vector<int>& ranks,
                     Verdicts& verdicts) {
  bool holds = true;
  std::uint64_t before = 0, after = 0;
  for (const int count : ranks)
    for (const Algorithm algorithm : {Algorithm::ring, Algorithm::tree}) {
      const Row& early = row_of(rows, count, {DType::f16, algorithm, Unscale::before, Division::pre});
      const Row& late = row_of(rows, count, {DType::f16, algorithm, Unscale::after, Division::pre});
      before += early.lost;
      after += late.lost;
      holds = holds && late.lost < early.lost && late.error() < early.error();
    }
  verdicts.claim(
      "unscaling before an FP16 all-reduce throws away what the loss scale had saved",
      "FP16, predivide: fewer elements lost and a smaller error with unscale after, for every R and "
      "algorithm, at S > 1",
      fmt::format("{} elements lost with unscale before, {} with unscale after", before, after),
      scale <= 1 || before == 0 ? Verdicts::Outcome::undecided
      : holds                   ? Verdicts::Outcome::pass
                                : Verdicts::Outcome::fail);
}

void claim_bytes(const std::vector<Row>& rows, std::size_t elements, Verdicts& verdicts) {
  bool holds = true;
  for (const Row& row : rows) {
    const std::uint64_t width = row.variant.wire == DType::f16 ? 2 : 4;
    const auto ranks = static_cast<std::uint64_t>(row.ranks);
    holds = holds && row.sent_total == 2 * (ranks - 1) * elements * width;
    // The chunks of a ring differ by one element at most.
    if (row.variant.algorithm == Algorithm::ring)
      holds = holds && row.sent_largest <= 2 * (ranks - 1) * (elements / ranks + 1) * width;
  }
  verdicts.claim("FP16 halves the bytes; ring and tree send equally many, the ring's ranks evenly",
                 fmt::format("n = {} elements: 2 (R - 1) / R n elements a rank, exactly in total", elements),
                 fmt::format("{} bytes a rank for {} ranks in FP32",
                             rows.front().sent_total / static_cast<std::uint64_t>(rows.front().ranks),
                             rows.front().ranks),
                 holds);
}

void claim_agreement(const std::vector<Agreement>& all, Verdicts& verdicts) {
  bool holds = true;
  std::string measured;
  for (const Agreement& agreement : all) {
    const std::size_t states = distinct_states(agreement.outcomes);
    const bool unanimous = std::ranges::all_of(agreement.outcomes, [&](const RankOutcome& outcome) {
      return outcome.skipped == agreement.outcomes[0].skipped;
    });
    holds = holds && (states == 1) == unanimous && (unanimous || !agrees_by_construction(agreement.check));
    if (agreement.check == Check::local) holds = holds && states > 1;
    measured += fmt::format("{}{}: {}", measured.empty() ? "" : "; ", name_of(agreement.check), states);
  }
  verdicts.claim("ranks that do not reduce found_inf stop being replicas",
                 "distinct states after one iteration: one where found_inf is reduced or all look at the "
                 "same mean; more "
                 "where each looks at its own gradient, or at its own shard and not all shards overflowed",
                 measured, holds);
}

}  // namespace

bool print_verdicts(const Measured& measured) {
  Verdicts verdicts;
  claim_bounds(measured.rows, verdicts);
  claim_wide_wire(measured.rows, verdicts);
  claim_overflow(measured.rows, measured.scale_is_largest, verdicts);
  claim_underflow(measured.rows, measured.scale, measured.ranks, verdicts);
  claim_bytes(measured.rows, measured.elements, verdicts);
  claim_agreement(measured.agreement, verdicts);
  return !verdicts.failed();
}

}  // namespace fp16lab::experiments::allreduce
