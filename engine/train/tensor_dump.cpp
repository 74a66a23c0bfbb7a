#include "engine/train/tensor_dump.hpp"

#include <fmt/core.h>

#include <span>
#include <utility>

namespace fp16lab::engine {

SafetensorsSource tensor_source(Backend& backend, std::string name, const Tensor& tensor) {
  SafetensorsSource source;
  source.name = std::move(name);
  source.type = safetensors_type(tensor.dtype());
  for (const std::int64_t extent : tensor.shape().extents())
    source.shape.push_back(static_cast<std::uint64_t>(extent));
  source.fetch = [&backend, tensor](std::span<std::byte> out) { backend.download(tensor, out); };
  return source;
}

void dump_weights(const std::filesystem::path& path, Backend& backend, const nn::Module& model) {
  std::vector<SafetensorsSource> sources;
  for (const Parameter* parameter : model.parameters())
    sources.push_back(tensor_source(backend, parameter->name, parameter->value));
  for (const nn::Buffer* buffer : model.buffers())
    sources.push_back(tensor_source(backend, buffer->name, buffer->value));
  write_safetensors(path, std::move(sources));
}

void GradientDump::add_batch(Backend& backend, const data::Batch& batch) {
  const auto keep = [&](std::string_view what, const Tensor& tensor) {
    SafetensorsSource source = tensor_source(backend, fmt::format("batch.{}.{}", batch_count_, what), tensor);
    std::vector<std::byte> bytes(tensor.byte_count());
    backend.download(tensor, bytes);  // now: the source may use the memory again for its next batch
    batches_.push_back(
        safetensors_source(std::move(source.name), source.type, std::move(source.shape), bytes));
  };
  keep("inputs", batch.inputs);
  keep("targets", batch.targets);
  ++batch_count_;
}

void GradientDump::write(Backend& backend, const nn::Module& model, double loss, double loss_scale,
                         bool found_inf) {
  std::vector<SafetensorsSource> sources = std::move(batches_);
  for (const Parameter* parameter : model.parameters()) {
    sources.push_back(tensor_source(backend, "parameter." + parameter->name, parameter->value));
    if (parameter->has_gradient)
      sources.push_back(tensor_source(backend, parameter->name, parameter->gradient));
  }
  write_safetensors(path_, std::move(sources),
                    {{"step", fmt::format("{}", step_)},
                     {"loss", fmt::format("{}", loss)},
                     {"loss_scale", fmt::format("{}", loss_scale)},
                     {"found_inf", found_inf ? "1" : "0"}});
}

}  // namespace fp16lab::engine
