// Loss-scale policies (engine/amp/policy.hpp): one policy with its state, updated on the host.
#include <nanobind/stl/map.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/string_view.h>

#include <cmath>
#include <cstring>

#include "bindings.hpp"
#include "engine/amp/policy.hpp"
#include "numerics/formats/dtype.hpp"
#include "numerics/platform/floating_point_scope.hpp"

namespace fp16lab::python {

namespace nb = nanobind;
namespace amp = engine::amp;

namespace {

amp::ScalerOptions options_of(std::string policy, amp::PolicySettings settings) {
  const amp::PolicyDescription& known = amp::scale_policy(policy);
  for (const auto& [name, value] : settings) amp::require_parameter(&known, name);
  amp::ScalerOptions options;
  options.policy = std::move(policy);
  options.parameters = std::move(settings);
  return options;
}

amp::ScalePolicy made(const amp::ScalerOptions& options) {
  const FloatingPointScope scope;
  return amp::make_scale_policy(options);
}

class Policy {
 public:
  Policy(std::string name, amp::PolicySettings settings)
      : policy_(made(options_of(std::move(name), std::move(settings)))), step_(policy_.initial) {}

  const std::string& name() const { return policy_.name; }
  double scale() const { return step_.scale; }
  bool wants_statistics() const { return policy_.wants_statistics; }
  const amp::PolicySettings& settings() const { return policy_.values.all(); }
  std::optional<std::string> stop() const {
    return policy_.stop == nullptr ? std::nullopt : policy_.stop(step_, policy_.values);
  }

  void update(bool found_inf, const ExponentHistogram* weights, const ExponentHistogram* activations,
              std::string_view format) {
    const FloatingPointScope scope;
    amp::GradientStatistics statistics;
    if (weights != nullptr) statistics.weight = *weights;
    if (activations != nullptr) statistics.activation = *activations;
    statistics.range = range_of(format_of(format));
    const bool counted = weights != nullptr || activations != nullptr;
    amp::advance(policy_, step_,
                 {.found_inf = found_inf,
                  .statistics = counted && policy_.wants_statistics ? &statistics : nullptr,
                  .scale = step_.scale});
  }

  /// The scale and the policy's own counters, as a checkpoint has them.
  nb::bytes state() const {
    std::array<std::byte, sizeof(double) + sizeof(step_.policy)> bytes;
    std::memcpy(bytes.data(), &step_.scale, sizeof(double));
    std::memcpy(bytes.data() + sizeof(double), step_.policy.data(), sizeof(step_.policy));
    return nb::bytes(bytes.data(), bytes.size());
  }
  void set_state(const nb::bytes& bytes) {
    if (bytes.size() != sizeof(double) + sizeof(step_.policy))
      throw std::invalid_argument("this is no state of a loss-scale policy");
    double scale = 0;
    std::memcpy(&scale, bytes.c_str(), sizeof(double));
    std::memcpy(step_.policy.data(), bytes.c_str() + sizeof(double), sizeof(step_.policy));
    step_.set_scale(scale);
  }

  /// A scale that a caller decides: the rule goes on from it. Counters stay.
  void set_scale(double scale) {
    if (!(scale > 0) || std::isinf(scale))
      throw std::invalid_argument("a loss scale must be finite and above 0, not " + std::to_string(scale));
    if (keeps_fp32()) {
      const auto rounded = static_cast<float>(scale);
      std::memcpy(step_.policy.data(), &rounded, sizeof(rounded));
    } else {
      std::memcpy(step_.policy.data(), &scale, sizeof(scale));
    }
    step_.set_scale(scale);
  }

 private:
  /// The first member of every policy's state is its scale, in FP32 or FP64 (engine/amp/policy.hpp). Its
  /// first four bytes show which: the low half of an FP64 scale is no FP32 number of the same value.
  bool keeps_fp32() const {
    float first = 0;
    std::memcpy(&first, policy_.initial.policy.data(), sizeof(first));
    return static_cast<double>(first) == policy_.initial.scale;
  }

  amp::ScalePolicy policy_;
  engine::StepState step_;
};

/// The Python type of its values in a configuration file: "float", "int" or "bool".
const char* kind_of(const amp::PolicyParameter& parameter) {
  using Kind = amp::PolicyParameter::Kind;
  return parameter.kind == Kind::integer ? "int" : parameter.kind == Kind::real ? "float" : "bool";
}

nb::dict described(const amp::PolicyDescription& policy) {
  nb::dict parameters;
  for (const amp::PolicyParameter& parameter : policy.parameters) {
    nb::dict row;
    row["default"] = parameter.fallback;
    row["help"] = nb::str(parameter.help.data(), parameter.help.size());
    row["kind"] = kind_of(parameter);
    parameters[nb::str(parameter.name.data(), parameter.name.size())] = row;
  }
  nb::dict result;
  result["family"] = nb::str(policy.family.name.data(), policy.family.name.size());
  result["rule"] = nb::str(policy.rule.data(), policy.rule.size());
  result["source"] = nb::str(policy.source.data(), policy.source.size());
  result["parameters"] = parameters;
  result["wants_statistics"] = policy.wants_statistics;
  result["constant"] = policy.constant;
  result["per_layer"] = policy.per_layer;
  return result;
}

nb::dict policies() {
  nb::dict result;
  for (const amp::PolicyDescription& policy : amp::scale_policies())
    result[nb::str(policy.name.data(), policy.name.size())] = described(policy);
  return result;
}

}  // namespace

void bind_policies(nb::module_& module) {
  nb::class_<Policy>(module, "Policy")
      .def(nb::init<std::string, amp::PolicySettings>(), nb::arg("name"), nb::arg("settings"))
      .def_prop_ro("name", &Policy::name)
      .def_prop_ro("scale", &Policy::scale)
      .def_prop_ro("wants_statistics", &Policy::wants_statistics)
      .def_prop_ro("settings", &Policy::settings)
      .def_prop_ro("stop", &Policy::stop)
      .def("update", &Policy::update, nb::arg("found_inf"), nb::arg("weights").none() = nb::none(),
           nb::arg("activations").none() = nb::none(), nb::arg("format") = "f16")
      .def("_set_scale", &Policy::set_scale, nb::arg("scale"))
      .def("_state", &Policy::state)
      .def("_set_state", &Policy::set_state, nb::arg("state"));
  module.def("policies", &policies, nb::sig("def policies() -> dict[str, dict[str, typing.Any]]"));
}

}  // namespace fp16lab::python
