#include "engine/train/checkpoint.hpp"
#include "engine/amp/policy.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <charconv>
#include <cstring>
#include <stdexcept>
#include <utility>

#include "engine/backend/digest_functions.hpp"
#include "engine/train/tensor_dump.hpp"
#include "numerics/random/philox.hpp"
#include "numerics/text/text.hpp"

namespace fp16lab::engine {

namespace {

/// A scalar or small array of host memory that a checkpoint holds as a tensor.
struct Field {
  std::string_view name;
  DType type;
  std::vector<std::uint64_t> shape;
  std::span<std::byte> bytes;
};

template <class T>
std::span<std::byte> bytes_of(T& value) {
  return std::as_writable_bytes(std::span(&value, 1));
}

std::vector<Field> fields_of(StepState& step, RunCounters& counters) {
  using enum DType;
  const auto per_optimizer = [](std::string_view name, DType type, auto& values) {
    return Field{name, type, {values.size()}, bytes_of(values)};
  };
  return {{"step.scale", f64, {}, bytes_of(step.scale)},
          {"step.grad_norm", f64, {}, bytes_of(step.grad_norm)},
          {"step.iteration", u64, {}, bytes_of(step.iteration)},
          {"step.inverse_scale", f32, {}, bytes_of(step.inverse_scale)},
          {"step.loss_overflow", f32, {}, bytes_of(step.loss_overflow)},
          per_optimizer("step.beta1_power", f64, step.beta1_power),
          per_optimizer("step.beta2_power", f64, step.beta2_power),
          per_optimizer("step.taken_steps", u64, step.taken_steps),
          per_optimizer("step.skipped_steps", u64, step.skipped_steps),
          per_optimizer("step.learning_rate", f32, step.learning_rate),
          per_optimizer("step.found_inf", f32, step.found_inf),
          {"step.policy", u8, {step.policy.size()}, bytes_of(step.policy)},
          {"run.nonfinite_losses", u64, {}, bytes_of(counters.nonfinite_losses)},
          {"run.skips_in_a_row", u64, {}, bytes_of(counters.skips_in_a_row)},
          {"run.last_loss", f64, {}, bytes_of(counters.last_loss)}};
}

/// Backend::digest for bytes in host memory, under the key of the tensor's name.
std::uint64_t digest_of(std::span<const std::byte> bytes, std::string_view name) {
  const std::uint64_t key = stream_id(name);
  std::uint64_t digest = 0;
  for (std::uint64_t position = 0; position * 8 < bytes.size(); ++position) {
    const auto rest = bytes.subspan(position * 8);
    std::uint64_t word = 0;
    std::memcpy(&word, rest.data(), std::min<std::size_t>(rest.size(), sizeof(word)));
    digest += functions::digest_word(word, position, key);
  }
  return digest;
}

std::string hex(std::uint64_t digest) { return fmt::format("{:016x}", digest); }
std::string digest_key(std::string_view name) { return "digest." + std::string(name); }

std::vector<std::uint64_t> extents_of(const Tensor& tensor) {
  const auto extents = tensor.shape().extents();
  return {extents.begin(), extents.end()};
}

std::string describe(DType type, const std::vector<std::uint64_t>& shape) {
  return SafetensorsEntry{.name = {}, .type = type, .shape = shape}.describe();
}

}  // namespace

void save_checkpoint(const std::filesystem::path& path, const TrainingState& state,
                     const SafetensorsMetadata& extra) {
  StepState step = state.backend->read_step_state(state.step);
  RunCounters counters = state.counters;
  SafetensorsMetadata metadata{{"format", std::string(checkpoint_format)},
                               {"version", fmt::format("{}", checkpoint_version)},
                               {"iteration", fmt::format("{}", step.iteration)},
                               {"policy", state.policy},
                               {"optimizer", state.optimizer},
                               {"state_hash", hex(state.state_hash)},
                               {"state_hash_version", fmt::format("{}", state_hash_version)}};
  std::vector<SafetensorsSource> sources;
  for (const Field& field : fields_of(step, counters)) {
    sources.push_back(safetensors_source(std::string(field.name), field.type, field.shape, field.bytes));
    metadata[digest_key(field.name)] = hex(digest_of(field.bytes, field.name));
  }
  for (const auto& [name, tensor] : state.tensors) {
    sources.push_back(tensor_source(*state.backend, name, tensor));
    metadata[digest_key(name)] = hex(state.backend->digest(tensor, stream_id(name)));
  }
  for (const auto& [key, value] : extra) {
    if (!metadata.emplace(key, value).second)
      throw std::invalid_argument(
          fmt::format("save_checkpoint: the metadata key '{}' is the format's own", key));
  }
  write_safetensors(path, std::move(sources), metadata);
}

CheckpointFile::CheckpointFile(const std::filesystem::path& path) : reader_(path) {
  const auto format = reader_.metadata().find("format");
  if (format == reader_.metadata().end() || format->second != checkpoint_format)
    fail(fmt::format(
        "a safetensors file, but no checkpoint: its metadata have {}, expected format = '{}'",
        format == reader_.metadata().end() ? "no format" : fmt::format("format = '{}'", format->second),
        checkpoint_format));
  const auto number = [this](const std::string& key, int base) {
    const std::string& text = metadata(key);
    std::uint64_t value = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value, base);
    if (error != std::errc{} || end != text.data() + text.size())
      fail(fmt::format("metadata: {} = '{}', expected {}", key, text,
                       base == 16 ? "16 hex digits" : "a whole number"));
    return value;
  };
  if (const std::uint64_t version = number("version", 10); version != checkpoint_version)
    fail(fmt::format("checkpoint version {}, but this build reads version {}{}", version, checkpoint_version,
                     version > checkpoint_version ? "; it was written by a newer one" : ""));
  iteration_ = number("iteration", 10);
  state_hash_ = number("state_hash", 16);
  if (find_metadata("state_hash_version") != nullptr) state_hash_version_ = number("state_hash_version", 10);
}

void CheckpointFile::fail(const std::string& what) const {
  throw std::runtime_error(fmt::format("{}: {}", path().string(), printable(what)));
}

const std::string* CheckpointFile::find_metadata(const std::string& key) const {
  const auto found = reader_.metadata().find(key);
  return found == reader_.metadata().end() ? nullptr : &found->second;
}

const std::string& CheckpointFile::metadata(const std::string& key) const {
  const std::string* found = find_metadata(key);
  if (found == nullptr) fail(fmt::format("metadata: no {}", key));
  return *found;
}

void CheckpointFile::require_same(const std::string& key, const std::string& here,
                                  const std::string& config_key) const {
  if (metadata(key) != here)
    fail(fmt::format("written with {} = \"{}\", but this run has \"{}\"", config_key, metadata(key), here));
}

std::vector<std::byte> CheckpointFile::read_checked(const std::string& name, DType type,
                                                    const std::vector<std::uint64_t>& shape) const {
  const SafetensorsEntry* entry = reader_.find(name);
  if (entry == nullptr) fail(fmt::format("tensor '{}' is missing, expected {}", name, describe(type, shape)));
  if (entry->type != type || entry->shape != shape)
    fail(fmt::format("tensor '{}' is {}, expected {}", name, entry->describe(), describe(type, shape)));
  std::vector<std::byte> bytes = reader_.read(*entry);
  const std::string digest = hex(digest_of(bytes, name));
  if (digest != metadata(digest_key(name)))
    fail(fmt::format("tensor '{}' is damaged: its data have the digest {}, expected {}", name, digest,
                     metadata(digest_key(name))));
  return bytes;
}

void CheckpointFile::load(TrainingState& state) const {
  // Checkpoints may have been written under a name that is an alias today.
  if (amp::canonical_policy_name(metadata("policy")) != amp::canonical_policy_name(state.policy))
    require_same("policy", state.policy, "scaler.policy");
  require_same("optimizer", state.optimizer, "optimizer.name");

  StepState step{};
  const std::vector<Field> fields = fields_of(step, state.counters);
  std::vector<std::string> known;
  known.reserve(fields.size() + state.tensors.size());
  for (const Field& field : fields) known.emplace_back(field.name);
  for (const auto& [name, tensor] : state.tensors) known.push_back(name);
  for (const SafetensorsEntry& entry : reader_.entries()) {
    if (std::find(known.begin(), known.end(), entry.name) == known.end())
      fail(fmt::format("tensor '{}' ({}) belongs to nothing in this run", entry.name, entry.describe()));
  }

  for (const Field& field : fields) {
    const std::vector<std::byte> bytes = read_checked(std::string(field.name), field.type, field.shape);
    std::copy(bytes.begin(), bytes.end(), field.bytes.begin());
  }
  if (step.iteration != iteration_)
    fail(fmt::format("tensor 'step.iteration' is {}, but the metadata has iteration = {}", step.iteration,
                     iteration_));
  for (auto& [name, tensor] : state.tensors) {
    const std::vector<std::byte> bytes = read_checked(name, tensor.dtype(), extents_of(tensor));
    state.backend->upload(bytes, tensor);
  }
  state.backend->write_step_state(step, state.step);
}

}  // namespace fp16lab::engine
