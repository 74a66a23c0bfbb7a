#include "engine/train/tensor_dump.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstring>
#include <span>
#include <stdexcept>
#include <utility>

#include "numerics/text/text.hpp"

namespace fp16lab::engine {

SafetensorsSource tensor_source(Backend& backend, std::string name, const Tensor& tensor) {
  SafetensorsSource source;
  source.name = std::move(name);
  source.type = tensor.dtype();
  for (const std::int64_t extent : tensor.shape().extents())
    source.shape.push_back(static_cast<std::uint64_t>(extent));
  source.fetch = [&backend, tensor](std::span<std::byte> out) { backend.download(tensor, out); };
  return source;
}

namespace {

/// Calls `visit(name, tensor)` for every parameter and buffer.
template <class Visit>
void for_each_weight(const nn::Module& model, Visit visit) {
  for (const Parameter* parameter : model.parameters()) visit(parameter->name, parameter->value);
  for (const nn::Buffer* buffer : model.buffers()) visit(buffer->name, buffer->value);
}

/// f16 to bf16 and back goes through f32, which is exact, so that one rounding remains.
Tensor cast_once(Backend& backend, const Tensor& tensor, DType dtype) {
  Tensor result = tensor;
  for (const DType step : {DType::f32, dtype}) {
    if (result.dtype() == step) continue;
    Tensor next = backend.empty(result.shape(), step);
    backend.cast(result, next);
    result = std::move(next);
  }
  return result;
}

/// Doubles, which no back end computes with.
void fetch_doubles(Backend& backend, const Tensor& tensor, std::span<std::byte> out) {
  const Tensor wide = cast_once(backend, tensor, DType::f32);
  std::vector<float> values(static_cast<std::size_t>(wide.element_count()));
  backend.download(wide, std::as_writable_bytes(std::span(values)));
  for (std::size_t i = 0; i < values.size(); ++i) {
    const auto value = static_cast<double>(values[i]);
    std::memcpy(out.data() + i * sizeof(value), &value, sizeof(value));
  }
}

}  // namespace

void save_weights(const std::filesystem::path& path, Backend& backend, const nn::Module& model, DType dtype,
                  SafetensorsMetadata metadata) {
  if (!is_tensor_float(dtype) && dtype != DType::f64)
    throw std::invalid_argument(
        fmt::format("save_weights: {}: must be f16, bf16, f32 or f64", name_of(dtype)));
  std::vector<SafetensorsSource> sources;
  for_each_weight(model, [&](const std::string& name, const Tensor& tensor) {
    SafetensorsSource source = tensor_source(backend, name, tensor);
    if (is_tensor_float(tensor.dtype()) && tensor.dtype() != dtype) {
      source.type = dtype;
      source.fetch = [&backend, tensor, dtype](std::span<std::byte> out) {
        if (dtype == DType::f64)
          fetch_doubles(backend, tensor, out);
        else
          backend.download(cast_once(backend, tensor, dtype), out);
      };
    }
    sources.push_back(std::move(source));
  });
  metadata["dtype"] = name_of(dtype);
  write_safetensors(path, std::move(sources), metadata);
}

void dump_weights(const std::filesystem::path& path, Backend& backend, const nn::Module& model) {
  std::vector<SafetensorsSource> sources;
  for_each_weight(model, [&](const std::string& name, const Tensor& tensor) {
    sources.push_back(tensor_source(backend, name, tensor));
  });
  write_safetensors(path, std::move(sources), {}, NamedBy::user);
}

namespace {

constexpr std::string_view batches_tracked = ".num_batches_tracked";

bool holds(const SafetensorsEntry& entry, const SafetensorsEntry& wanted) {
  return entry.shape == wanted.shape &&
         (entry.type == wanted.type ||
          (wanted.type == DType::f32 && entry.type && is_tensor_float(*entry.type)));
}

}  // namespace

void load_weights(const std::filesystem::path& path, Backend& backend, nn::Module& model) {
  const SafetensorsReader file(path);
  std::vector<std::pair<std::string, Tensor>> targets;
  for_each_weight(model,
                  [&](const std::string& name, const Tensor& tensor) { targets.emplace_back(name, tensor); });
  std::vector<std::string> problems;
  for (const auto& [name, tensor] : targets) {
    const SafetensorsSource source = tensor_source(backend, name, tensor);
    const SafetensorsEntry wanted{.name = name, .type = source.type, .shape = source.shape};
    const SafetensorsEntry* const entry = file.find(name);
    if (entry == nullptr)
      problems.push_back(fmt::format("{} is missing, expected {}", name, wanted.describe()));
    else if (!holds(*entry, wanted))
      problems.push_back(fmt::format("{} is {}, expected {}", name, entry->describe(), wanted.describe()));
  }
  for (const SafetensorsEntry& entry : file.entries()) {
    const auto same = [&entry](const auto& target) { return target.first == entry.name; };
    if (entry.name.ends_with(batches_tracked) || std::ranges::any_of(targets, same)) continue;
    problems.push_back(
        fmt::format("{} ({}) belongs to nothing in this network", printable(entry.name), entry.describe()));
  }
  if (!problems.empty())
    throw std::invalid_argument(fmt::format("{}: {}", path.string(), fmt::join(problems, "; ")));
  for (auto& [name, tensor] : targets) {
    const SafetensorsEntry& entry = *file.find(name);
    if (entry.type == tensor.dtype()) {
      backend.upload(file.read(entry), tensor);
      continue;
    }
    Tensor narrow = backend.empty(tensor.shape(), *entry.type);
    backend.upload(file.read(entry), narrow);
    backend.cast(narrow, tensor);
  }
  for (Parameter* const parameter : model.parameters()) ++parameter->version;
}

/// Copied now: the memory may serve something else before the file is written.
void GradientDump::keep(Backend& backend, std::string name, const Tensor& tensor) {
  SafetensorsSource source = tensor_source(backend, std::move(name), tensor);
  std::vector<std::byte> bytes(tensor.byte_count());
  backend.download(tensor, bytes);
  sources_.push_back(safetensors_source(std::move(source.name), source.type, std::move(source.shape), bytes));
}

void GradientDump::add_batch(Backend& backend, const data::Batch& batch) {
  keep(backend, fmt::format("batch.{}.inputs", batch_count_), batch.inputs);
  keep(backend, fmt::format("batch.{}.targets", batch_count_), batch.targets);
  ++batch_count_;
}

void GradientDump::add_gradients(Backend& backend, std::span<Parameter* const> parameters) {
  for (const Parameter* parameter : parameters) {
    keep(backend, "parameter." + parameter->name, parameter->value);
    if (parameter->has_gradient) keep(backend, parameter->name, parameter->gradient);
  }
}

void GradientDump::write(double loss, const StepState& state, bool scaled) {
  const bool found_inf =
      std::any_of(state.found_inf.begin(), state.found_inf.end(), [](float flag) { return flag != 0.0f; });
  write_safetensors(path_, std::move(sources_),
                    {{"step", fmt::format("{}", step_)},
                     {"loss", fmt::format("{}", loss)},
                     {"loss_scale", fmt::format("{}", state.scale)},
                     {"found_inf", found_inf ? "1" : "0"},
                     {"scaled", scaled ? "1" : "0"},
                     {"no_gradients", std::string(no_gradients)}},
                    NamedBy::user);
}

std::string_view GradientDump::no_gradients_of(const SafetensorsMetadata& metadata) {
  if (const auto patterns = metadata.find("no_gradients"); patterns != metadata.end())
    return patterns->second;
  for (const char* const key : {"step", "loss", "loss_scale", "found_inf", "scaled"})
    if (!metadata.contains(key)) return {};
  return no_gradients;
}

double GradientDump::carried_scale(const SafetensorsMetadata& metadata) {
  const auto scaled = metadata.find("scaled"), scale = metadata.find("loss_scale");
  if (no_gradients_of(metadata).empty() || scaled == metadata.end() || scale == metadata.end()) return 1;
  if (scaled->second != "1") return 1;
  double value = 0;
  const auto [end, error] =
      std::from_chars(scale->second.data(), scale->second.data() + scale->second.size(), value);
  const bool usable = error == std::errc() && end == scale->second.data() + scale->second.size() &&
                      value > 0 && std::isfinite(value);
  return usable ? value : 1;
}

}  // namespace fp16lab::engine
