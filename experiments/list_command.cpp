// fp16lab list and fp16lab devices: what there is to choose from.
#include <fmt/format.h>

#include <algorithm>
#include <iostream>
#include <nlohmann/json.hpp>

#include "engine/amp/policy.hpp"
#include "engine/backend/cuda/devices.hpp"
#include "engine/data/dataset.hpp"
#include "experiments/build_info.hpp"
#include "experiments/commands.hpp"
#include "experiments/workloads.hpp"
#include "numerics/decimal.hpp"
#include "numerics/format.hpp"
#include "numerics/gemm.hpp"
#include "numerics/tensor_core_model.hpp"

namespace fp16lab::experiments {
namespace {

using Json = nlohmann::ordered_json;

template <class F>
Json format_json(const char* name, const char* use) {
  const auto exact = [](typename F::Bits bits) {
    return Decimal(decode(SmallFloat<F>::from_bits(bits))).to_string();
  };
  return {{"name", name},
          {"width", F::width},
          {"exponent_bits", F::exponent_bits},
          {"precision", F::precision},
          {"max_finite", exact(F::max_finite)},
          {"min_normal", exact(F::min_normal)},
          {"min_subnormal", exact(F::min_subnormal)},
          {"use", use}};
}

const char* name_of_evidence(Evidence evidence) {
  switch (evidence) {
    case Evidence::hardware:
      return "equals hardware captures";
    case Evidence::hardware_test:
      return "asserted on hardware by a public test suite";
    case Evidence::model:
      return "published model";
  }
  return "?";
}

Json everything() {
  Json json;
  for (const WorkloadInfo& info : known_workloads())
    json["workloads"].push_back({{"name", info.name}, {"description", info.description}});
  for (const engine::data::DatasetInfo& info : engine::data::known_datasets())
    json["datasets"].push_back(
        {{"name", info.name}, {"description", info.description}, {"package", info.package}});
  for (const engine::amp::PolicyDescription& policy : engine::amp::scale_policies())
    json["policies"].push_back(
        {{"name", policy.name}, {"parameters", policy.parameters}, {"rule", policy.rule}});
  json["formats"] = {format_json<Binary16>("FP16", "values of inspect, autocast"),
                     format_json<BrainFloat16>("BF16", "values of inspect"),
                     format_json<TensorFloat32>("TF32", "values of inspect"),
                     format_json<Binary32>("FP32", "values of inspect, master weights"),
                     format_json<Fp8E5M2>("E5M2", "values of inspect")};
  for (const TensorCoreModel& model : tensor_core_models())
    json["tensor_cores"].push_back({{"name", model.name},
                                    {"hardware", model.hardware},
                                    {"products_per_block", model.block_size},
                                    {"fraction_bits", model.fraction_bits},
                                    {"exponent_floor", model.exponent_floor},
                                    {"evidence", name_of_evidence(model.evidence)},
                                    {"source", model.source}});
  const RunConfig defaults;
  for (const ConfigKey& key : config_keys())
    json["config_keys"].push_back({{"name", key.name},
                                   {"default", value_text(defaults, key)},
                                   {"expected", expectation_of(key)},
                                   {"doc", key.doc}});
  return json;
}

std::string text_of(const Json& value) { return value.is_string() ? value.get<std::string>() : value.dump(); }

/// One aligned table a section; the last column is not padded.
void print_tables(const Json& json) {
  bool first = true;
  for (const auto& [section, rows] : json.items()) {
    fmt::print("{}{}\n", first ? "" : "\n", section);
    first = false;
    std::vector<std::vector<std::string>> table(1);
    for (const auto& [column, value] : rows.front().items()) table.front().push_back(column);
    for (const Json& row : rows) {
      table.emplace_back();
      for (const auto& [column, value] : row.items()) table.back().push_back(text_of(value));
    }
    std::vector<std::size_t> widths(table.front().size());
    for (const auto& row : table)
      for (std::size_t i = 0; i < row.size(); ++i) widths[i] = std::max(widths[i], row[i].size());
    for (const auto& row : table) {
      std::string line = " ";
      for (std::size_t i = 0; i < row.size(); ++i)
        line += i + 1 < row.size() ? fmt::format(" {:<{}} ", row[i], widths[i]) : " " + row[i];
      fmt::print("{}\n", line);
    }
  }
}

}  // namespace

ExitCode run_list(const ListCommand& command) {
  const Json json = everything();
  if (command.json)
    fmt::print("{}\n", json.dump(2));
  else
    print_tables(json);
  return ExitCode::ok;
}

ExitCode run_devices(const ListCommand& command) {
  Json json = {{"devices", Json::array({{{"name", "emulated"},
                                         {"hardware", cpu_name()},
                                         {"threads", default_threads()},
                                         {"vector_target", gemm_target_name()}}})}};
  const engine::CudaStatus cuda = engine::cuda_status();
  Json gpus = Json::array();
  for (const engine::CudaDevice& gpu : cuda.devices)
    gpus.push_back({{"ordinal", gpu.ordinal},
                    {"name", gpu.name},
                    {"compute_capability", fmt::format("{}.{}", gpu.capability_major, gpu.capability_minor)},
                    {"multiprocessors", gpu.multiprocessors},
                    {"memory_bytes", gpu.memory_bytes}});
  if (command.json) {
    json["gpus"] = std::move(gpus);
    json["gpus_missing_because"] = cuda.reason;
    fmt::print("{}\n", json.dump(2));
    return ExitCode::ok;
  }
  if (!gpus.empty()) json["gpus"] = std::move(gpus);
  print_tables(json);
  if (cuda.devices.empty()) fmt::print("\ngpus\n  none: {}\n", cuda.reason);
  return ExitCode::ok;
}

}  // namespace fp16lab::experiments
