#include "experiments/emulated_vs_device/tensor_difference.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "numerics/random/philox.hpp"

namespace fp16lab::experiments {
namespace {

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

}  // namespace

std::vector<RunTensor> gradients_of(engine::Trainer& trainer) {
  std::vector<RunTensor> tensors;
  for (const engine::Parameter* parameter : trainer.parameters())
    if (parameter->has_gradient)
      tensors.push_back({TensorKind::gradient, parameter->name, parameter->gradient});
  std::ranges::reverse(tensors);  // a backward pass begins with the last layer
  return tensors;
}

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

std::uint64_t digest_of(engine::Backend& backend, const std::vector<RunTensor>& tensors) {
  std::vector<engine::DigestItem> items;
  items.reserve(tensors.size());
  for (const RunTensor& tensor : tensors) items.push_back({tensor.tensor, stream_id(tensor.name)});
  return items.empty() ? 0 : backend.digest(items);
}

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

}  // namespace fp16lab::experiments
