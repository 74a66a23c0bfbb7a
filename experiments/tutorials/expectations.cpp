#include "experiments/tutorials/expectations.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <iterator>
#include <memory>
#include <utility>

#include "engine/data/batch_source.hpp"
#include "engine/train/iteration.hpp"
#include "engine/train/method.hpp"
#include "numerics/text/scale_text.hpp"

namespace fp16lab::experiments {
namespace {

/// MindSpore's custom train-one-step cell: scale the loss, differentiate, multiply the gradients by 1/S in
/// the step itself, hand them to the optimizer. For scaler.drop_overflow_update = false and
/// optimizer.loss_scale = 1. Gradients must be FP32.
class CustomStep final : public engine::TrainingMethod {
 public:
  explicit CustomStep(double scale) : scale_(scale) {}
  void run(engine::Iteration& iteration) override;
  Evaluation evaluate(engine::Iteration& iteration, const engine::data::Batch& batch) override;

 private:
  double scale_;
  engine::Tensor inverse_;  ///< f32, one element: 1/S
};

/// The batches of another source, but one of them has targets so far away that the scaled gradient of its
/// loss has no FP16 value, while the loss itself is a finite FP32 number.
class OverflowingSource final : public engine::data::BatchSource {
 public:
  /// `target`: every target of micro-batch `index`, counted over the whole run.
  OverflowingSource(std::unique_ptr<engine::data::BatchSource> source, std::uint64_t index, float target)
      : source_(std::move(source)), index_(index), target_(target) {}

  std::uint64_t batches_per_epoch() const override { return source_->batches_per_epoch(); }
  std::int64_t rows_per_batch() const override { return source_->rows_per_batch(); }
  std::string_view split() const override { return source_->split(); }
  engine::data::Batch batch(engine::Backend& backend, std::uint64_t index) override {
    engine::data::Batch batch = source_->batch(backend, index);
    if (index == index_) backend.fill(batch.targets, static_cast<double>(target_));
    return batch;
  }

 private:
  std::unique_ptr<engine::data::BatchSource> source_;
  std::uint64_t index_;
  float target_;
};

using engine::Variable;

void CustomStep::run(engine::Iteration& iteration) {
  engine::Backend& backend = iteration.backend();
  engine::optim::Optimizer& optimizer = iteration.optimizer(0);
  {
    const engine::amp::AutocastGuard autocast(iteration.tape(), iteration.autocast());
    for (std::int64_t i = 0; i < iteration.micro_batches(); ++i) {
      const engine::data::Batch batch = iteration.begin_micro_batch(i);
      const Variable input = iteration.network_input(batch.inputs);
      const Variable output = iteration.network_output(iteration.model().forward(iteration.tape(), input));
      const Variable loss = iteration.loss_of(output, batch.targets);
      iteration.record_loss(loss);
      iteration.backward(iteration.accumulated(loss));
      iteration.tape().reset();
    }
  }
  if (!inverse_.defined()) {
    inverse_ = backend.empty(engine::Shape{1}, DType::f32);
    backend.fill(inverse_, 1.0 / scale_);
  }
  for (engine::Parameter* parameter : optimizer.parameters())
    if (parameter->has_gradient)
      backend.binary(engine::BinaryOp::multiply, parameter->gradient, inverse_, parameter->gradient);
  iteration.step(optimizer);
}

engine::TrainingMethod::Evaluation CustomStep::evaluate(engine::Iteration& iteration,
                                                        const engine::data::Batch& batch) {
  return engine::Supervised().evaluate(iteration, batch);
}

constexpr std::string_view linear9 = "paddle_linear9";
constexpr std::string_view custom_step = "mindspore_custom_step";
constexpr std::string_view random_images = "mindspore_random_images";

/// A target whose squared error is a finite FP32 sum at any of the sizes, and whose scaled gradient has no
/// FP16 value: 2 * 1e10 / (2048 * 8192) * 1024 is 1.2e6.
constexpr float far_away = 1e10f;
/// Where it stands in the first window of ten.
constexpr std::uint64_t overflowing_micro_batch = 3;

using Asked = Question<TutorialTable>;

Asked near_fp32(std::string_view what, std::string_view variant) {
  return {
      .claim = fmt::format("{} ends at FP32's loss, but for a thousandth, in its one run", what),
      .criterion = fmt::format(
          "|loss({}) - loss(fp32)| < {} loss(fp32); one seed, so a fact of these two runs", variant, as_fp32),
      .judge = [variant](const TutorialTable& table) -> Answer {
        const TutorialRun* const run = table.find(linear9, variant);
        if (run == nullptr || table.reference_of(*run) == nullptr) return {};
        const std::optional<double> ratio = table.ratio_of(*run);
        if (!ratio) return {Verdict::fails, "a run diverged"};
        return {verdict_of(std::abs(*ratio - 1) < as_fp32),
                fmt::format("{:.7f} against {:.7f}, off by {:.2e}", *run->loss,
                            *table.reference_of(*run)->loss, std::abs(*ratio - 1))};
      }};
}

Asked frozen_weights() {
  return {.claim =
              "without master weights, O2 does not move: SGD at 1e-4 is below half a spacing of most FP16 "
              "weights",
          .criterion = fmt::format(
              "more than {:.0f} % of the stored FP16 weights keep their 16 bits through every step",
              100 * frozen_share),
          .judge = [](const TutorialTable& table) -> Answer {
            const TutorialRun* const run = table.find(linear9, "o2-no-masters");
            if (run == nullptr) return {};
            const std::optional<double> progress = table.progress_of(*run);
            return {verdict_of(run->weights.still() > frozen_share),
                    fmt::format("{:.2f} % of {} weights ({:.2f} % of {} biases, which begin at 0); the loss "
                                "makes {} of FP32's way",
                                100 * run->weights.still(), run->weights.elements, 100 * run->biases.still(),
                                run->biases.elements,
                                progress ? fmt::format("{:.2f} %", 100 * *progress) : "an unknown part")};
          }};
}

std::string loss_text(const TutorialRun& run) {
  return run.loss ? fmt::format("loss {:.7f}", *run.loss) : fmt::format("diverged after {} steps", run.steps);
}

Asked ten_losses() {
  return {.claim = "LeNet-5 on the tutorial's own draws: the tutorial's ten numbers, here",
          .criterion = fmt::format("the last batch of each of ten epochs has the printed loss, but for {}",
                                   as_printed),
          .judge = [](const TutorialTable& table) -> Answer {
            const TutorialRun* const run = table.find(random_images, "as-written");
            if (run == nullptr || run->epoch_losses.empty()) return {};
            if (run->epoch_losses.size() != std::size(mindspore_losses))
              return {Verdict::fails, fmt::format("{} losses", run->epoch_losses.size())};
            double farthest = 0;
            for (std::size_t epoch = 0; epoch < run->epoch_losses.size(); ++epoch)
              farthest = std::max(farthest, std::abs(run->epoch_losses[epoch] - mindspore_losses[epoch]));
            return {verdict_of(farthest <= as_printed),
                    fmt::format("from {:.7f} to {:.7f}; the farthest is {:.1e} from its number",
                                run->epoch_losses.front(), run->epoch_losses.back(), farthest)};
          }};
}

Asked nothing_learnt() {
  return {.claim = "nothing is learnt in 320 steps but how often each label occurs",
          .criterion =
              "after them the loss over all images is not below the entropy of their labels, the least "
              "loss of one answer for all",
          .judge = [](const TutorialTable& table) -> Answer {
            const TutorialRun* const run = table.find(random_images, "as-written");
            if (run == nullptr) return {};
            return {verdict_of(run->loss && run->label_entropy && *run->loss >= *run->label_entropy),
                    fmt::format("{} after {} steps, {:.7f} before them; entropy {:.7f}", loss_text(*run),
                                run->steps, run->loss_before, run->label_entropy.value_or(0))};
          }};
}

Asked same_division() {
  return {.claim = "it does not matter who divides by the loss scale: the step, the optimizer or the scaler",
          .criterion = "equal bits in every weight after the last step",
          .judge = [](const TutorialTable& table) -> Answer {
            const TutorialRun* const optimizer = table.find(custom_step, "as-written");
            const TutorialRun* const scaler = table.find(custom_step, "scaler-divides");
            const TutorialRun* const step = table.find(custom_step, divides_in_the_step);
            if (optimizer == nullptr || scaler == nullptr || step == nullptr) return {};
            return {verdict_of(step->weights_digest == optimizer->weights_digest &&
                               scaler->weights_digest == optimizer->weights_digest),
                    fmt::format("digests {:016x} (step), {:016x} (optimizer), {:016x} (scaler); {}",
                                step->weights_digest, optimizer->weights_digest, scaler->weights_digest,
                                loss_text(*optimizer))};
          }};
}

Asked other_result(std::string claim, std::string_view right, std::string_view wrong) {
  return {.claim = std::move(claim),
          .criterion = "other bits than with one division",
          .judge = [right, wrong](const TutorialTable& table) -> Answer {
            const TutorialRun* const right_run = table.find(custom_step, right);
            const TutorialRun* const wrong_run = table.find(custom_step, wrong);
            if (right_run == nullptr || wrong_run == nullptr) return {};
            return {verdict_of(right_run->weights_digest != wrong_run->weights_digest),
                    fmt::format("{}; divided once: {}", loss_text(*wrong_run), loss_text(*right_run))};
          }};
}

Asked dropped_window() {
  return {.claim = "one micro-batch that overflows drops its whole window, and the scale backs off once",
          .criterion =
              "1 of 2 steps skipped, no weight moved by it, and then the bits of a run that began with half "
              "the scale",
          .judge = [](const TutorialTable& table) -> Answer {
            const TutorialRun* const run = table.find(linear9, overflow_in_window);
            const TutorialRun* const clean = table.find(linear9, after_dropped_window);
            if (run == nullptr || clean == nullptr) return {};
            const bool untouched = run->digest_after_first_step == run->digest_before;
            const bool equal = run->weights_digest == clean->weights_digest;
            return {
                verdict_of(run->skipped == 1 && untouched && equal && run->final_scale == clean->final_scale),
                fmt::format(
                    "{} of {} steps skipped, weights {} after the first, scale {} at the end, then {} bits",
                    run->skipped, run->steps, untouched ? "untouched" : "moved", scale_text(run->final_scale),
                    equal ? "equal" : "other")};
          }};
}

}  // namespace

void add_special_runs(TutorialTable& table, int threads,
                      const std::function<void(const std::string&)>& progress) {
  if (const TutorialRun* const written = table.find(custom_step, "as-written")) {
    RunConfig config = written->config;
    config.optimizer.loss_scale = 1;
    progress(divides_in_the_step);
    table.add(
        run_tutorial(std::string(custom_step), divides_in_the_step, config, threads, [](PreparedRun& run) {
          run.workload.method =
              std::make_unique<CustomStep>(run.plan.config.scaler.parameter("initial_scale").value());
        }));
  }
  if (const TutorialRun* const accumulated = table.find(linear9, "o1-accumulate10")) {
    RunConfig config = accumulated->config;
    config.train.steps = 2;
    progress(overflow_in_window);
    table.add(run_tutorial(std::string(linear9), overflow_in_window, config, threads, [](PreparedRun& run) {
      run.batches.training = std::make_unique<OverflowingSource>(std::move(run.batches.training),
                                                                 overflowing_micro_batch, far_away);
      run.workload.training = run.batches.training.get();
    }));
    // Ten batches an epoch: the second window has the batches of the first, so this is what it should come
    // to.
    config.train.steps = 1;
    engine::ScalerOptions& scaler = config.scaler;
    scaler.parameters["initial_scale"] =
        scaler.parameter("initial_scale").value() * scaler.parameter("backoff_factor").value();
    progress(after_dropped_window);
    table.add(run_tutorial(std::string(linear9), after_dropped_window, config, threads));
  }
}

std::vector<Question<TutorialTable>> tutorial_questions() {
  return {
      near_fp32("O1", "o1"),
      near_fp32("O2 with master weights", "o2-masters"),
      frozen_weights(),
      same_division(),
      other_result(
          "a forgotten division changes the bits even under AdamW, whose steps know the size of a gradient "
          "by epsilon only",
          "as-written", "division-forgotten"),
      other_result("so does a doubled one", "as-written", "division-doubled"),
      other_result("under SGD a forgotten division changes the bits: it multiplies the learning rate by the "
                   "loss scale",
                   "sgd-optimizer-divides", "sgd-division-forgotten"),
      other_result("and a doubled one divides it", "sgd-optimizer-divides", "sgd-division-doubled"),
      dropped_window(),
      ten_losses(),
      nothing_learnt()};
}

}  // namespace fp16lab::experiments
