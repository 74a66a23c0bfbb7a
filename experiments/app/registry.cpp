#include "experiments/app/registry.hpp"

#include <algorithm>
#include <iterator>

#include "engine/amp/policy.hpp"
#include "engine/data/dataset.hpp"
#include "numerics/gemm/library_plan.hpp"
#include "numerics/tensor_core/tensor_core_model.hpp"

namespace fp16lab::experiments {
namespace {

template <class Range, class Name>
std::vector<std::string> names_of(const Range& range, Name name) {
  std::vector<std::string> names;
  names.reserve(std::size(range));
  for (const auto& item : range) names.emplace_back(name(item));
  return names;
}

}  // namespace

std::vector<std::string> dataset_names() {
  return names_of(engine::data::known_datasets(),
                  [](const engine::data::DatasetInfo& info) { return info.name; });
}

std::vector<std::string> policy_names() {
  std::vector<std::string> names =
      names_of(engine::amp::scale_policies(), [](const engine::amp::PolicyDescription& p) { return p.name; });
  names.emplace_back(engine::amp::policy_alias);
  return names;
}

std::vector<std::string> library_names() {
  std::vector<std::string> names;
  for (const LibraryPlan& plan : library_plans())
    if (!plan.asks("partials")) names.emplace_back(plan.name);
  return names;
}

std::vector<std::string> tensor_core_names() {
  const auto same = [](std::string_view name) { return name; };
  std::vector<std::string> names = names_of(fp16lab::tensor_core_names(), same);
  std::ranges::move(names_of(tensor_core_chips(), same), std::back_inserter(names));
  return names;
}

}  // namespace fp16lab::experiments
