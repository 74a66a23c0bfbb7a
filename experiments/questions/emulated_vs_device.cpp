#include "experiments/questions/emulated_vs_device.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <chrono>
#include <cmath>
#include <cstring>
#include <memory>
#include <nlohmann/json.hpp>
#include <stdexcept>
#include <utility>

#include "engine/backend/digest_functions.hpp"
#include "engine/backend/emulated/emulated_backend.hpp"
#include "engine/train/trainer.hpp"
#include "experiments/app/build_info.hpp"
#include "experiments/app/process.hpp"
#include "experiments/app/progress.hpp"
#include "experiments/app/run/prepared_run.hpp"
#include "experiments/app/run/run_backend.hpp"
#include "experiments/questions/questions.hpp"
#include "experiments/study/study.hpp"
#include "numerics/random/philox.hpp"
#include "numerics/tensor_core/tensor_core_model.hpp"

namespace fp16lab::experiments {
namespace {

std::string bits(std::uint64_t word, int digits = 16) { return fmt::format("{:0{}x}", word, digits); }

nlohmann::ordered_json json_of(const TensorDifference& tensor) {
  nlohmann::ordered_json json{{"kind", name_of(tensor.kind)}, {"name", tensor.name}};
  if (tensor.emulated == tensor.device)
    json["tensor"] = tensor.emulated;
  else
    json.update({{"emulated", tensor.emulated}, {"device", tensor.device}});
  json["emulated_digest"] = bits(tensor.emulated_digest);
  json["device_digest"] = bits(tensor.device_digest);
  json["elements"] = tensor.elements;
  json["differing"] = tensor.differing;
  if (tensor.differing > 0) {
    json["first_element"] = tensor.first;
    json["emulated_bits"] = bits(tensor.emulated_bits, tensor.digits);
    json["device_bits"] = bits(tensor.device_bits, tensor.digits);
  }
  return json;
}

std::vector<std::byte> bytes_of(engine::Backend& backend, const engine::Tensor& tensor) {
  std::vector<std::byte> bytes(tensor.byte_count());
  backend.download(tensor, bytes);
  return bytes;
}

/// The little-endian word of element `index`.
std::uint64_t element(const std::vector<std::byte>& bytes, std::size_t index, std::size_t size) {
  std::uint64_t word = 0;
  std::memcpy(&word, &bytes[index * size], size);
  return word;
}

TensorDifference compared(engine::Backend& emulated_backend, const RunTensor& emulated,
                          engine::Backend& device_backend, const RunTensor& device) {
  TensorDifference difference{.kind = emulated.kind,
                              .name = emulated.name,
                              .emulated = emulated.tensor.describe(),
                              .device = device.tensor.describe()};
  difference.elements = static_cast<std::uint64_t>(emulated.tensor.element_count());
  if (emulated.tensor.shape() != device.tensor.shape() || emulated.tensor.dtype() != device.tensor.dtype())
    return difference;
  const std::vector<std::byte> ours = bytes_of(emulated_backend, emulated.tensor);
  const std::vector<std::byte> theirs = bytes_of(device_backend, device.tensor);
  const std::size_t size = size_of(emulated.tensor.dtype());
  difference.digits = static_cast<int>(2 * size);
  for (std::size_t i = 0; i < difference.elements; ++i) {
    const std::uint64_t mine = element(ours, i, size), other = element(theirs, i, size);
    if (mine == other) continue;
    if (difference.differing++ == 0) {
      difference.first = i;
      difference.emulated_bits = mine;
      difference.device_bits = other;
    }
  }
  return difference;
}

std::vector<RunTensor> gradients_of(engine::Trainer& trainer) {
  std::vector<RunTensor> tensors;
  for (const engine::Parameter* parameter : trainer.parameters())
    if (parameter->has_gradient)
      tensors.push_back({TensorKind::gradient, parameter->name, parameter->gradient});
  std::ranges::reverse(tensors);  // a backward pass begins with the last layer
  return tensors;
}

/// What a training step computed and left, in the order of the computation: gradients from the last layer to
/// the first, then parameters, buffers, optimizer state and the scalars of the step. Shares the trainer's
/// memory.
std::vector<RunTensor> tensors_of(engine::Trainer& trainer) {
  std::vector<RunTensor> tensors = gradients_of(trainer);
  std::vector<std::string> parameters;
  for (const engine::Parameter* parameter : trainer.parameters()) parameters.push_back(parameter->name);
  engine::TrainingState state = trainer.training_state();
  for (engine::optim::NamedTensor& named : state.tensors) {
    const bool is_parameter = std::ranges::find(parameters, named.name) != parameters.end();
    const bool is_state = named.name.starts_with("optimizer.") || named.name.starts_with("scaler.");
    tensors.push_back({is_parameter ? TensorKind::parameter
                       : is_state   ? TensorKind::optimizer_state
                                    : TensorKind::buffer,
                       std::move(named.name), std::move(named.tensor)});
  }
  tensors.push_back({TensorKind::step_state, "step_state", std::move(state.step)});
  return tensors;
}

/// One word for all of them, from the back end's digests.
std::uint64_t digest_of(engine::Backend& backend, const std::vector<RunTensor>& tensors) {
  std::vector<engine::DigestItem> items;
  items.reserve(tensors.size());
  for (const RunTensor& tensor : tensors) items.push_back({tensor.tensor, stream_id(tensor.name)});
  return items.empty() ? 0 : backend.digest(items);
}

/// Keeps the histograms of one step.
struct Watcher final : engine::Tap {
  explicit Watcher(std::uint64_t steps) : every(steps) {}
  bool wants(const engine::Site& site) override {
    return site.what == engine::What::gradients && every > 0 && (site.step - 1) % every == 0;
  }
  void see(const engine::Event& event) override {
    if (const auto* const row = event.as<HistogramRow>()) seen.push_back(*row);
  }
  std::uint64_t every;
  std::vector<HistogramRow> seen;
};

std::uint64_t hash_of(const std::vector<HistogramRow>& all) {
  std::uint64_t hash = 0, position = 0;
  const auto add = [&](std::uint64_t word) { hash += engine::functions::digest_word(word, position++, 0); };
  for (const HistogramRow& seen : all) {
    add(stream_id(seen.tensor));
    for (const ExponentHistogram* histogram : {&seen.before, &seen.after}) {
      for (const std::uint64_t bin : histogram->bins) add(bin);
      for (const std::uint64_t count : {histogram->zero, histogram->infinite, histogram->nan}) add(count);
    }
  }
  return hash;
}

/// The emulated side is done verb by verb, also where the device replays its steps (train.graph).
std::unique_ptr<PreparedRun> prepared(RunConfig config, std::unique_ptr<engine::Backend> backend) {
  config.train.graph = config.train.graph && backend->name() == "cuda";
  return prepare_run(resolve_run(std::move(config)), std::move(backend));
}

/// One back end with its run.
class Side {
 public:
  Side(const RunConfig& config, std::unique_ptr<engine::Backend> backend, const LockstepOptions& options)
      : run_(prepared(config, std::move(backend))), watcher_(options.histograms_every) {
    if (options.steps > 0) run_->plan.train.steps = options.steps;
    trainer_ = std::make_unique<engine::Trainer>(*run_->backend, run_->workload, run_->plan, watcher_);
  }

  engine::Backend& backend() { return *run_->backend; }
  engine::Trainer& trainer() { return *trainer_; }
  std::uint64_t steps() const { return run_->plan.train.steps; }
  double seconds() const { return seconds_; }
  const std::vector<HistogramRow>& histograms() const { return watcher_.seen; }

  StepWords before_first_step() {
    StepWords words;
    words.row.state_hash = trainer_->state_hash();
    return words;
  }
  StepWords step() {
    const auto start = std::chrono::steady_clock::now();
    watcher_.seen.clear();
    StepWords words{.row = trainer_->train_step()};
    seconds_ += std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
    words.loss_overflow = trainer_->step_state().loss_overflow != 0.0f;
    words.gradient_hash = digest_of(backend(), gradients_of(*trainer_));
    words.histogram_hash = watcher_.seen.empty() ? 0 : hash_of(watcher_.seen);
    return words;
  }

 private:
  std::unique_ptr<PreparedRun> run_;
  Watcher watcher_;
  std::unique_ptr<engine::Trainer> trainer_;
  double seconds_ = 0;
};

std::string text(double value) {
  return fmt::format("{} ({:016x})", value, std::bit_cast<std::uint64_t>(value));
}
std::string text(bool value) { return value ? "true" : "false"; }
std::string text(std::uint64_t value) { return fmt::format("{:016x}", value); }
std::string text(const std::optional<double>& value) { return value ? text(*value) : "none"; }

bool same(double a, double b) { return std::bit_cast<std::uint64_t>(a) == std::bit_cast<std::uint64_t>(b); }
bool same(bool a, bool b) { return a == b; }
bool same(std::uint64_t a, std::uint64_t b) { return a == b; }
bool same(const std::optional<double>& a, const std::optional<double>& b) {
  return a.has_value() == b.has_value() && (!a || same(*a, *b));
}

/// The first tensor, in the order of the backward pass, of whose values the two counted different numbers.
FirstDifference histogram_difference(const std::vector<HistogramRow>& emulated,
                                     const std::vector<HistogramRow>& device) {
  FirstDifference difference{.quantity = "histograms",
                             .emulated = fmt::format("{} tensors", emulated.size()),
                             .device = fmt::format("{} tensors", device.size())};
  for (std::size_t i = 0; i < emulated.size() && i < device.size(); ++i) {
    const HistogramRow &ours = emulated[i], &theirs = device[i];
    if (ours == theirs) continue;
    difference.quantity = fmt::format("histogram of {}", ours.tensor);
    difference.emulated = fmt::format("{} values", ours.before.total());
    difference.device = fmt::format("{} values of {}", theirs.before.total(), theirs.tensor);
    const auto look = [&](const char* when, const ExponentHistogram& mine, const ExponentHistogram& other) {
      const auto compare = [&](const std::string& bin, std::uint64_t a, std::uint64_t b) {
        if (a == b) return;
        difference.emulated += fmt::format(", {} {}: {}", when, bin, a);
        difference.device += fmt::format(", {} {}: {}", when, bin, b);
      };
      for (int e = ExponentHistogram::min_exponent; e <= ExponentHistogram::max_exponent; ++e)
        compare(fmt::format("2^{}", e), mine.at(e), other.at(e));
      compare("zero", mine.zero, other.zero);
      compare("infinite", mine.infinite, other.infinite);
      compare("nan", mine.nan, other.nan);
      compare("bits of the smallest", mine.smallest, other.smallest);
      compare("bits of the greatest", mine.greatest, other.greatest);
    };
    look("before", ours.before, theirs.before);
    look("after", ours.after, theirs.after);
    break;
  }
  return difference;
}

/// In the order in which a step computes them, so that the first one is nearest to the cause.
std::optional<FirstDifference> compare(const StepWords& emulated, const StepWords& device,
                                       const std::vector<HistogramRow>& emulated_histograms,
                                       const std::vector<HistogramRow>& device_histograms) {
  const StepRow &a = emulated.row, &b = device.row;
  std::optional<FirstDifference> difference;
  const auto look = [&](std::string_view quantity, auto ours, auto theirs) {
    if (!difference && !same(ours, theirs))
      difference =
          FirstDifference{.quantity = std::string(quantity), .emulated = text(ours), .device = text(theirs)};
  };
  look("lr", a.lr, b.lr);
  look("loss_scale", a.loss_scale, b.loss_scale);
  look("loss", a.loss, b.loss);
  look("loss_overflow", emulated.loss_overflow, device.loss_overflow);
  if (!difference && emulated_histograms != device_histograms)
    difference = histogram_difference(emulated_histograms, device_histograms);
  look("found_inf", a.found_inf, b.found_inf);
  look("gradient_hash", emulated.gradient_hash, device.gradient_hash);
  for_each_field<StepRow>([&](const auto& field) {
    if (field.name != "seconds") look(field.name, a.*field.member, b.*field.member);
  });
  return difference;
}

}  // namespace

std::string text_of(const TensorDifference& difference) {
  std::string text = fmt::format("{} {}, {}", name_of(difference.kind), difference.name, difference.emulated);
  if (difference.emulated != difference.device)
    return text + fmt::format(" on the emulated back end, {} on the device", difference.device);
  if (difference.differing == 0)
    return text + fmt::format(": digests {:016x} and {:016x} of equal bytes: one back end's digest is wrong",
                              difference.emulated_digest, difference.device_digest);
  return text + fmt::format(": {} of {} elements differ; element {}: emulated {:0{}x}, device {:0{}x}",
                            difference.differing, difference.elements, difference.first,
                            difference.emulated_bits, difference.digits, difference.device_bits,
                            difference.digits);
}

std::vector<TensorDifference> differing_tensors(engine::Backend& emulated_backend,
                                                const std::vector<RunTensor>& emulated,
                                                engine::Backend& device_backend,
                                                const std::vector<RunTensor>& device) {
  const auto same_tensor = [](const RunTensor& a) {
    return [&a](const RunTensor& b) { return a.kind == b.kind && a.name == b.name; };
  };
  std::vector<TensorDifference> differences;
  for (const RunTensor& ours : emulated) {
    const auto theirs = std::ranges::find_if(device, same_tensor(ours));
    if (theirs == device.end()) {
      differences.push_back(
          {.kind = ours.kind, .name = ours.name, .emulated = ours.tensor.describe(), .device = "nothing"});
      continue;
    }
    const std::uint64_t key = stream_id(ours.name);
    const std::uint64_t mine = emulated_backend.digest(ours.tensor, key);
    const std::uint64_t other = device_backend.digest(theirs->tensor, key);
    if (mine == other) continue;
    TensorDifference difference = compared(emulated_backend, ours, device_backend, *theirs);
    difference.emulated_digest = mine;
    difference.device_digest = other;
    differences.push_back(std::move(difference));
  }
  for (const RunTensor& theirs : device)
    if (std::ranges::find_if(emulated, same_tensor(theirs)) == emulated.end())
      differences.push_back({.kind = theirs.kind,
                             .name = theirs.name,
                             .emulated = "nothing",
                             .device = theirs.tensor.describe()});
  return differences;
}

Lockstep run_lockstep(const RunConfig& config, const std::string& row, int threads,
                      std::unique_ptr<engine::Backend> device, const LockstepOptions& options) {
  std::unique_ptr<engine::Backend> emulated = engine::make_emulated_backend(tensor_core_model(row), threads);
  if (emulated->tensor_core() != device->tensor_core())
    throw std::invalid_argument(fmt::format("run_lockstep: the emulated tensor cores are {}, the device's {}",
                                            emulated->tensor_core(), device->tensor_core()));
  Lockstep result;
  result.tensor_core = device->tensor_core();
  Side ours(config, std::move(emulated), options), theirs(config, std::move(device), options);
  result.steps_asked = ours.steps();
  for (std::uint64_t step = 0; step <= result.steps_asked && !result.first; ++step) {
    if (interrupted()) {
      result.interrupted = true;
      break;
    }
    const StepPair pair = step == 0 ? StepPair{ours.before_first_step(), theirs.before_first_step()}
                                    : StepPair{ours.step(), theirs.step()};
    result.steps.push_back(pair);
    result.skipped_steps += pair.emulated.row.skipped ? 1 : 0;
    result.first = compare(pair.emulated, pair.device, ours.histograms(), theirs.histograms());
    if (result.first) {
      result.first->step = step;
      result.first->tensors = differing_tensors(ours.backend(), tensors_of(ours.trainer()), theirs.backend(),
                                                tensors_of(theirs.trainer()));
    } else if (options.progress) {
      options.progress(step, result.steps_asked);
    }
  }
  result.emulated_seconds = ours.seconds();
  result.device_seconds = theirs.seconds();
  return result;
}

std::string summary_of(const Lockstep& lockstep) {
  if (lockstep.first) {
    const FirstDifference& first = *lockstep.first;
    std::string text = fmt::format("first difference at step {}: {}: emulated {}, device {}", first.step,
                                   first.quantity, first.emulated, first.device);
    if (!first.tensors.empty()) text += "; first tensor: " + text_of(first.tensors.front());
    return text;
  }
  const std::uint64_t done = lockstep.steps.empty() ? 0 : lockstep.steps.size() - 1;
  return fmt::format("{} of {} steps ({} skipped by both), no difference", done, lockstep.steps_asked,
                     lockstep.skipped_steps);
}

std::vector<std::string> differences_of(const Lockstep& lockstep) {
  std::vector<std::string> lines;
  if (lockstep.first)
    for (const TensorDifference& tensor : lockstep.first->tensors) lines.push_back(text_of(tensor));
  return lines;
}

std::string json_of(const Lockstep& lockstep, const DeviceSide& side, int indent) {
  nlohmann::ordered_json json{{"rehearsal", side.rehearsal},
                              {"device", side.description},
                              {"tensor_core", lockstep.tensor_core},
                              {"git_hash", git_hash()},
                              {"steps_asked", lockstep.steps_asked},
                              {"steps_done", lockstep.steps.empty() ? 0 : lockstep.steps.size() - 1},
                              {"skipped_steps", lockstep.skipped_steps},
                              {"interrupted", lockstep.interrupted},
                              {"equal", !lockstep.first && !lockstep.interrupted},
                              {"emulated_seconds", lockstep.emulated_seconds},
                              {"device_seconds", lockstep.device_seconds}};
  if (!lockstep.steps.empty())
    json["last_state_hash"] = {{"emulated", bits(lockstep.steps.back().emulated.row.state_hash)},
                               {"device", bits(lockstep.steps.back().device.row.state_hash)}};
  if (lockstep.first) {
    nlohmann::ordered_json tensors = nlohmann::ordered_json::array();
    for (const TensorDifference& tensor : lockstep.first->tensors) tensors.push_back(json_of(tensor));
    json["first_difference"] = {{"step", lockstep.first->step},
                                {"quantity", lockstep.first->quantity},
                                {"emulated", lockstep.first->emulated},
                                {"device", lockstep.first->device},
                                {"tensors", std::move(tensors)}};
  }
  return json.dump(indent);
}

namespace {

/// A row for every step.
std::string csv_of(const Lockstep& lockstep, const DeviceSide& side) {
  std::string text =
      "machine,step,equal,emulated_loss,device_loss,emulated_loss_scale,device_loss_scale,emulated_found_inf,"
      "device_found_inf,emulated_grad_norm,device_grad_norm,emulated_gradient_hash,device_gradient_hash,"
      "emulated_histogram_hash,device_histogram_hash,emulated_state_hash,device_state_hash\n";
  for (std::size_t step = 0; step < lockstep.steps.size(); ++step) {
    const auto& [ours, theirs] = lockstep.steps[step];
    const StepRow &a = ours.row, &b = theirs.row;
    text += fmt::format("{},{},{},{},{},{},{},{},{},{},{},{},{},{},{},{},{}\n",
                        side.rehearsal ? "rehearsal" : "gpu", step,
                        lockstep.first && lockstep.first->step == step ? 0 : 1, a.loss, b.loss, a.loss_scale,
                        b.loss_scale, a.found_inf ? 1 : 0, b.found_inf ? 1 : 0, a.grad_norm, b.grad_norm,
                        bits(ours.gradient_hash), bits(theirs.gradient_hash), bits(ours.histogram_hash),
                        bits(theirs.histogram_hash), bits(a.state_hash), bits(b.state_hash));
  }
  return text;
}

}  // namespace

Command::Run ask_emulated_vs_device(Options& options) {
  struct Given {
    bool rehearse = false;
    int histograms_every = 1;
  };
  auto given = std::make_shared<Given>();
  options
      .add("--histograms-every", given->histograms_every,
           "Compare the gradients' histograms of every N-th step (default: 1; 0: never)")
      .type("N")
      .at_least(0, 999'999'999);
  options.flag("--rehearse", given->rehearse,
               "Use the PTX machine instead of a GPU (build/tests/on_ptx; slow; tests this command)");
  return [given](const CommonOptions& common) {
    LockstepOptions lockstep{.histograms_every = static_cast<std::uint64_t>(given->histograms_every)};
    CommonOptions of_both = common;
    of_both.set.emplace_back("backend.device=auto");  // what only a device reads is read here
    RunConfig config = resolve_run(of_both).config;
    const engine::CudaOptions device{.gemm = gemm_route(config.backend.gemm)};
    if (device.gemm == engine::GemmRoute::cublas)
      throw CommandError(
          ExitCode::usage,
          fmt::format("backend.gemm = \"{}\" promises no bits: cuBLAS adds in an order of its own; "
                      "expected auto or mma",
                      name_of(config.backend.gemm)));
    const DeviceSide side =
        given->rehearse ? open_rehearsal() : open_gpu(static_cast<int>(config.backend.ordinal));
    announce_output(common);
    config.backend.tensor_core = side.tensor_core;
    resolve_run(config, "with the device's tensor cores");
    catch_interrupts();

    Progress progress(common.quiet);
    lockstep.progress = [&](std::uint64_t step, std::uint64_t of) {
      if (progress.due()) progress.show(fmt::format("{}step {}/{}: equal", line_mark(side), step, of));
    };
    const Question<Lockstep> same_bits{
        .claim = "the emulated run has the bits of the device run",
        .criterion =
            "loss, scale, found_inf, gradients, histograms and state have no other bit after any step",
        .judge = [&](const Lockstep& run) -> Answer {
          return {run.first           ? Verdict::fails
                  : run.interrupted   ? Verdict::cannot_tell
                  : run.steps.empty() ? Verdict::not_run
                  : side.rehearsal    ? Verdict::rehearsed
                                      : Verdict::holds,
                  summary_of(run), differences_of(run)};
        }};
    bool stopped = false;
    const ExitCode code = run_study<Lockstep>(
        common, {.questions = {same_bits},
                 .measure =
                     [&] {
                       return run_lockstep(config, side.tensor_core, common.threads, side.make(device),
                                           lockstep);
                     },
                 .describe = [&](const Lockstep& run) -> Described {
                   stopped = run.interrupted;
                   return {fmt::format("device: {}\ntensor cores: {}", side.description, run.tensor_core),
                           {{"exp_emulated_vs_device.json", json_of(run, side) + "\n"},
                            {"exp_emulated_vs_device.csv", csv_of(run, side)}}};
                 },
                 .mark = line_mark(side)});
    return code == ExitCode::ok && stopped ? ExitCode::interrupted : code;
  };
}

}  // namespace fp16lab::experiments
