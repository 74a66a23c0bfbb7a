#include <fmt/format.h>

#include <array>

#include "experiments/paper_miniature/miniature.hpp"

namespace fp16lab::experiments {
namespace {

using Asked = Question<Miniature>;

constexpr double too_small_percent = 1.0;  ///< of the updates: enough to be seen; the paper has about 5
constexpr double harmless_percent =
    10.0;  ///< of the non-zero gradients, lost without harm; the paper's bars say half

double percent(std::uint64_t part, std::uint64_t whole) {
  return whole == 0 ? 0 : 100 * static_cast<double>(part) / static_cast<double>(whole);
}

Asked updates_vanish() {
  return {
      .claim =
          "some updates of weights are too small for FP16, by themselves or beside their weight (figure 2b)",
      .criterion =
          fmt::format("at least {} % of the non-zero updates of one run round to zero in FP16 (a count)",
                      too_small_percent),
      .judge = [](const Miniature& miniature) -> Answer {
        const UpdateStudy& study = miniature.with_masters;
        if (study.moved() == 0) return {};
        const double small = percent(study.too_small, study.moved());
        return {
            verdict_of(small >= too_small_percent),
            fmt::format("{:.2f} % round to zero by themselves (the paper: about {} % below 2^-24), another "
                        "{:.2f} % are lost when FP16 adds them to their weight; over {} steps of one seed",
                        small, speech_updates_below_subnormal_percent, percent(study.absorbed, study.moved()),
                        study.steps)};
      }};
}

Asked masters_matter() {
  return {.claim = "FP16 training needs an FP32 master copy of the weights (figure 2a)",
          .criterion = fmt::format("without masters {}; with them {}", worse_criterion, as_good_criterion),
          .judge = [](const Miniature& miniature) -> Answer {
            const JudgedRow& with = miniature.row(small_updates, "masters");
            const JudgedRow& without = miniature.row(small_updates, "no-masters");
            const UpdateStudy &kept = miniature.with_masters, &lost = miniature.without_masters;
            return {
                all_of(std::array{is_worse(without), is_as_good(with)}),
                fmt::format(
                    "with masters {} | without {} | a step moves {:.1f} % of the FP32 masters and {:.1f} % "
                    "of the FP16 weights",
                    words_of(with), words_of(without), percent(kept.moved(), kept.elements),
                    percent(lost.moved(), lost.elements))};
          }};
}

Asked scaling_needed() {
  return {.claim = "some networks need loss scaling (table 2: SSD diverges without)",
          .criterion = fmt::format("{} at S = 1 {}", needs_scaling, worse_criterion),
          .judge = [](const Miniature& miniature) -> Answer {
            const JudgedRow& plain = miniature.row(needs_scaling, "s1");
            return {is_worse(plain),
                    fmt::format(
                        "S = 1 {} | {:.1f} % of its non-zero activation gradients round to zero (SSD's bars: "
                        "{:.1f} %)",
                        words_of(plain), miniature.lost_percent(needs_scaling, 0), ssd_lost_percent(0, -24))};
          }};
}

Asked eight_is_enough() {
  return {.claim = "a factor of 8 brings it back although many gradients still vanish (section 3.2)",
          .criterion = fmt::format(
              "{} at S = 8 {}, while at least {} % of the non-zero activation gradients round to zero",
              needs_scaling, as_good_criterion, harmless_percent),
          .judge = [](const Miniature& miniature) -> Answer {
            const JudgedRow& scaled = miniature.row(needs_scaling, "s8");
            const double lost = miniature.lost_percent(needs_scaling, 3);
            return {all_of(std::array{is_as_good(scaled), verdict_of(lost >= harmless_percent)}),
                    fmt::format("S = 8 {} | {:.1f} % lost (SSD's bars: {:.1f} %)", words_of(scaled), lost,
                                ssd_lost_percent(3, -24))};
          }};
}

Asked others_do_not() {
  return {.claim = "others train without (table 1: the ILSVRC networks)",
          .criterion = fmt::format("{} at S = 1 {}", no_scaling, as_good_criterion),
          .judge = [](const Miniature& miniature) -> Answer {
            const JudgedRow& plain = miniature.row(no_scaling, "s1");
            return {is_as_good(plain),
                    fmt::format("S = 1 {} | {:.1f} % of its non-zero activation gradients round to zero",
                                words_of(plain), miniature.lost_percent(no_scaling, 0))};
          }};
}

Asked large_factors_are_safe() {
  return {.claim = "a larger factor does no harm as long as nothing overflows (section 3.2)",
          .criterion = fmt::format("at 128, 1024 and 32K both networks {}", as_good_criterion),
          .judge = [](const Miniature& miniature) -> Answer {
            std::vector<Verdict> verdicts;
            std::string measured;
            for (const char* const workload : {needs_scaling, no_scaling})
              for (const char* const variant : {"s128", "s1024", "s32768"}) {
                const JudgedRow& scaled = miniature.row(workload, variant);
                verdicts.push_back(is_as_good(scaled));
                measured += fmt::format("{}{} {} {}", measured.empty() ? "" : " | ", workload, variant,
                                        words_of(scaled));
              }
            return {all_of(verdicts), std::move(measured)};
          }};
}

}  // namespace

std::vector<Asked> miniature_questions() {
  return {updates_vanish(),  masters_matter(), scaling_needed(),
          eight_is_enough(), others_do_not(),  large_factors_are_safe()};
}

}  // namespace fp16lab::experiments
