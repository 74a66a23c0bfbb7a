#include "experiments/emulated_vs_device/record.hpp"

#include <fmt/format.h>

#include <cmath>
#include <nlohmann/json.hpp>

#include "experiments/app/build_info.hpp"
#include "numerics/files/disk/atomic_file.hpp"
#include "numerics/files/disk/folder.hpp"

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

}  // namespace

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

void write_records(const std::filesystem::path& folder, const Lockstep& lockstep, const DeviceSide& side) {
  make_folders(folder);
  write_file_atomically(folder / "exp_emulated_vs_device.json", json_of(lockstep, side) + "\n");
  write_file_atomically(folder / "exp_emulated_vs_device.csv", csv_of(lockstep, side));
}

}  // namespace fp16lab::experiments
