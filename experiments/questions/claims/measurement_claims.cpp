// Ratios and sums of the numbers that the tutorials print.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "experiments/questions/claims/claim.hpp"
#include "experiments/questions/paper_miniature.hpp"
#include "numerics/convert/convert.hpp"
#include "numerics/elementary/elementary.hpp"
#include "numerics/formats/decimal.hpp"

namespace fp16lab::experiments::claims {
namespace {

double number(const char* text) { return parse_number(text).value.to_double(); }

const char* const nine = "Paddle AMP tutorial, nine Linear 8192";
const char* const three = "Paddle AMP tutorial, three Linear 4096";

struct Speedup {
  const char *source, *level, *claimed, *wide_seconds, *low_seconds, *config;
  Verdict recorded;
};

void ratios(std::vector<Said>& all) {
  const char* const mlp = "experiments/configs/paddle_mlp3.toml";
  const char* const linear = "experiments/configs/paddle_linear9.toml";
  for (const Speedup& row :
       {Speedup{three, "O1", "2.1", "2.926", "1.294", mlp, Verdict::fails},
        Speedup{three, "O2", "3.0", "2.926", "0.890", mlp, Verdict::fails},
        Speedup{nine, "O1", "4.5", "0.529", "0.118", linear, Verdict::holds},
        Speedup{nine, "O2", "5.2", "0.529", "0.102", linear, Verdict::holds},
        Speedup{nine, "O1, static graph,", "4.5", "0.531", "0.117", linear, Verdict::holds},
        Speedup{nine, "O2, static graph,", "5.4", "0.531", "0.098", linear, Verdict::holds}}) {
    const double ratio = number(row.wide_seconds) / number(row.low_seconds);
    all.push_back({"Times", row.source, fmt::format("{} is {} times as fast as FP32", row.level, row.claimed),
                   row.claimed, fmt::format("{:.3f}", ratio), row.recorded, judge_number(row.claimed, ratio),
                   fmt::format("fp16lab train -c {} --set model.scale_down=16 --set amp.level={}", row.config,
                               std::string_view(row.level).substr(0, 2)),
                   fmt::format("its own times are {} s and {} s", row.wide_seconds, row.low_seconds)});
  }
}

/// Multiply-adds times two of `layers` square products, forward and backward; the first layer has no input
/// gradient.
double flops(double layers, double batch, double width) {
  return (3 * layers - 1) * 2 * batch * width * width;
}

/// Peaks of NVIDIA's data sheets, FP32 and FP16 on tensor cores (dense). V100S: the fastest of capability
/// 7.0.
struct Peaks {
  const char* gpu;
  double wide, low;
};
constexpr Peaks v100_sxm2{"V100 SXM2", 15.7e12, 125e12};
constexpr Peaks v100s{"GPU of capability 7.0", 16.4e12, 130e12};
constexpr Peaks a100{"A100", 19.5e12, 312e12};

void eight_times(std::vector<Said>& all) {
  const double volta = v100_sxm2.low / v100_sxm2.wide, ampere = a100.low / a100.wide;
  const char* const here = "exp_claims";
  all.push_back({"Times", "Paddle AMP guide", "FP16 products are up to 8 times as fast as FP32 on a V100",
                 "8", fmt::format("{:.3f}", volta), Verdict::holds, judge_number("8", volta), here,
                 "the ratio of the data sheet's peaks, 125 and 15.7 TFLOPS"});
  all.push_back({"Times", "Paddle AMP guide",
                 "on Volta, Turing and Ampere tensor cores give 8 times FP32's throughput", "8",
                 fmt::format("{:.3f} on a V100, {:.3f} on an A100", volta, ampere), Verdict::fails,
                 judge_statement(judge_number("8", ampere).verdict == Verdict::holds,
                                 judge_number("8", volta).verdict == Verdict::holds),
                 here, "right of Volta; an A100's data sheet has 312 and 19.5 TFLOPS"});
}

/// Could the GPU have done the work in the time that they print?
void peaks(std::vector<Said>& all) {
  struct Row {
    const char *words, *seconds;
    bool low;
  };
  const auto add = [&all](const char* source, const char* config, double work, const char* unit,
                          const Peaks& gpu, const char* remark, const Row& row) {
    const double rate = work / number(row.seconds), peak = row.low ? gpu.low : gpu.wide;
    all.push_back({"Times", source,
                   fmt::format("{}: {} s for {} on a {}", row.words, row.seconds, unit, gpu.gpu), row.seconds,
                   fmt::format("{:.1f} TFLOPS of {:.1f}", rate / 1e12, peak / 1e12), Verdict::holds,
                   judge_statement(rate < peak && rate > 0.1 * peak),
                   fmt::format("fp16lab train -c {} --set model.scale_down=16", config), remark});
  };
  for (const Row& row :
       {Row{"FP32", "0.529", false}, Row{"FP32, static graph", "0.531", false}, Row{"O1", "0.118", true},
        Row{"O1, static graph", "0.117", true}, Row{"O2", "0.102", true},
        Row{"O2, static graph", "0.098", true}, Row{"accumulation of 10", "0.113", true}})
    add(nine, "experiments/configs/paddle_linear9.toml", flops(9, 2048, 8192), "a batch of 2048", v100_sxm2,
        "true as far as arithmetic tells: between a tenth of the data sheet's peak and all of it", row);
  for (const Row& row : {Row{"FP32", "2.926", false}, Row{"O1", "1.294", true}, Row{"O2", "0.890", true},
                         Row{"accumulation", "1.026", true}})
    add(three, "experiments/configs/paddle_mlp3.toml", 5 * 50 * flops(3, 512, 4096), "5 x 50 batches of 512",
        v100s,
        "as far as arithmetic tells; the GPU is not named, and the peak is that of the fastest of its "
        "capability",
        row);

  // The first layer is FP32. It has no input gradient: 2 of the 26 products of a step.
  const double guarded = (2 * number("0.531") + 24 * number("0.098")) / 26;
  all.push_back(
      {"Times", nine, "O2 with fp16_guard on 8 of 9 layers takes 0.140 s", "0.140",
       fmt::format("{:.3f}", guarded), Verdict::holds,
       judge_statement(std::fabs(guarded / number("0.140") - 1) < 0.1),
       "fp16lab train -c experiments/configs/paddle_linear9.toml --set model.scale_down=16 --set "
       "amp.level=O2 --set amp.use_guard=true --set amp.guard=fc2,fc3,fc4,fc5,fc6,fc7,fc8,fc9",
       "within a tenth of what its other times predict: 2 of 26 products at FP32's speed, the rest at O2's"});
}

/// The share of all values. Bars that span an edge are shared out evenly over their exponents.
double percent_between(int low, int high) {
  double sum = 0;
  for (const PaperBar& bar : ssd_activation_gradients()) {
    const int overlap = std::min(high, bar.to) - std::max(low, bar.from);
    if (overlap > 0) sum += bar.percent * overlap / (bar.to - bar.from);
  }
  return sum;
}

void shares(std::vector<Said>& all) {
  const char* const topic = "Gradients of Multibox SSD";
  const char* const guide = "NVIDIA guide";
  const char* const mindspore = "MindSpore r1.7 mixed-precision tutorial";
  const char* const here = "exp_claims";
  const Decimal total =
      parse_number("66.8").value - parse_number("31").value.negated() - parse_number("5.3").value.negated();
  all.push_back({topic, guide, "66.8 % are zero, FP16 makes 31 % zero, 5.3 % stay: together all of them",
                 "100", total.to_string(), Verdict::fails, judge_statement(total.to_double() == 100), here,
                 "the three cannot all hold"});
  const double zeros = 100 - percent_between(-60, -10);
  all.push_back(
      {topic, mindspore, "68 % of them are zero", "68", fmt::format("{:.3g}", zeros), Verdict::fails,
       judge_number("68", zeros), here,
       "all that Figure 3 of the paper does not show as bars; the guide that it quotes says 66.8 %"});
  const double narrow_band = percent_between(-32, -30), wide_band = percent_between(-32, -20);
  all.push_back({topic, guide, "4 % lie in (2^-32, 2^-30)", "4", fmt::format("{:.3g}", narrow_band),
                 Verdict::holds, judge_number("4", narrow_band), here,
                 "Figure 3 of the paper, read off its bars"});
  all.push_back({topic, mindspore, "4 % lie in (2^-32, 2^-20)", "4", fmt::format("{:.3g}", wide_band),
                 Verdict::fails, judge_number("4", wide_band), here,
                 "the interval was copied wrongly: it is (2^-32, 2^-30)"});
  // Lost at S: |g| S <= 2^-25.
  const double lost = percent_between(-60, -25), lost_32k = percent_between(-60, -25 - 15);
  all.push_back({topic, guide, "31 % become zero in FP16", "31", fmt::format("{:.3g}", lost), Verdict::fails,
                 judge_number("31", lost), here,
                 "the figure's bars at or below 2^-25; 27 if everything below 2^-24 were lost"});
  all.push_back({topic, guide, "a scale of 32K saves all but 0.1 %", "0.1", fmt::format("{:.2g}", lost_32k),
                 Verdict::holds, judge_number("0.1", lost_32k), here, "the figure's bars at or below 2^-40"});
}

void losses(std::vector<Said>& all) {
  const float start = log_f32(10.0f);
  all.push_back({"Losses", "MindSpore r1.7 mixed-precision tutorial",
                 "training LeNet-5 on ten classes starts at a loss of 2.30", "2.30",
                 fmt::format("{:.7g}", start), Verdict::holds,
                 judge_number("2.30", static_cast<double>(start)),
                 "fp16lab train -c experiments/configs/mindspore_random_images.toml --set train.steps=1",
                 "ln 10, the cross-entropy of ten equal probabilities"});
  const float printed = widen(narrow<Binary16>(0.6743f));
  all.push_back({"Losses", nine, "O2 prints a loss of 0.6743 because it is an FP16 number", "0.6743",
                 fmt::format("{}", printed), Verdict::holds,
                 judge_number("0.6743", static_cast<double>(printed)), "fp16lab inspect 0.6743 --format FP16",
                 "the nearest FP16 number has these four digits"});
}

}  // namespace

std::vector<Said> measurement_claims() {
  std::vector<Said> all;
  ratios(all);
  eight_times(all);
  peaks(all);
  shares(all);
  losses(all);
  return all;
}

}  // namespace fp16lab::experiments::claims
