#include "experiments/app/commands/plan_options.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <stdexcept>

#include "numerics/text/nearest_name.hpp"
#include "numerics/text/text.hpp"

namespace fp16lab::experiments {
namespace {

constexpr int default_extent = 1024;  // of m and n: above the gates of small products
constexpr int most_extent = 65536, most_batch = 1024;
constexpr std::size_t most_k = 1U << 20;  // the product of all four fits 64 bits

[[noreturn]] void refuse(const std::string& what) { throw std::invalid_argument(what); }

const LibraryPlan& plan_called(const PlanOptions& options) {
  return options.plan.empty() ? library_plans().front() : library_plan(options.plan);
}

Join join_called(const std::string& name) {
  if (const auto join = enumerator_called<Join>(name)) return *join;
  refuse(fmt::format("--join '{}': {}", shown(name), known_are(name, names_of(Join{}))));
}

/// Options that are given and that the plan's rule never asks would change nothing.
void require_asked(const LibraryPlan& plan, const PlanOptions& options) {
  const struct {
    const char* name;
    bool given;
  } parameters[] = {{"call", !options.call.empty()},
                    {"m", options.m.has_value()},
                    {"n", options.n.has_value()},
                    {"transposed", !options.transposed.empty()},
                    {"batch", options.batch.has_value()},
                    {"library-threads", options.library_threads.has_value()},
                    {"fast-accumulation", options.fast_accumulation},
                    {"parts", options.parts.has_value()},
                    {"join", !options.join.empty()},
                    {"partials", !options.partials.empty()}};
  for (const auto& [name, given] : parameters)
    if (given && !plan.asks(name))
      refuse(fmt::format("--{}: plan '{}' does not depend on it{}", name, plan.name,
                         plan.parameters.empty() ? "; --plan names another one"
                                                 : fmt::format(", but on {}", plan.parameters)));
}

}  // namespace

void declare_plan(Options& options, PlanOptions& values, const std::string& plan_help) {
  std::vector<std::string_view> plans;
  for (const LibraryPlan& plan : library_plans()) plans.push_back(plan.name);
  options
      .add("--plan", values.plan,
           fmt::format("The order in which a library's call sums over K: {} (fp16lab list plans). {}",
                       fmt::join(plans, ", "), plan_help))
      .type("NAME")
      .offers(offer_names(plans));
  const std::string call = "The call to order by --plan, where the order depends on it";
  options
      .add("--call", values.call,
           "The function of torch (default: mm, which addmm and linear use; with --batch, bmm)")
      .one_of({"mm", "bmm", "mv", "dot"})
      .type("KIND")
      .group(call);
  const auto integer = [&](const char* name, std::optional<int>& value, const std::string& help, int most) {
    options.add(name, value, help).type("N").at_least(1, most).group(call);
  };
  integer("--m", values.m, fmt::format("Rows of A and of the result (default: {})", default_extent),
          most_extent);
  integer("--n", values.n, fmt::format("Columns of B and of the result (default: {})", default_extent),
          most_extent);
  options
      .add("--transposed", values.transposed,
           "a, b or a,b: operands stored transposed: b in y = x W^T (torch's linear), a in the gradient of W "
           "(default: none)")
      .type("OPERANDS")
      .separated(',')
      .group(call)
      .offers(offer_words({"a", "b"}));
  integer("--batch", values.batch, "Products of a bmm (default: 1)", most_batch);
  integer("--library-threads", values.library_threads, "The library's threads (default: 1)", 65536);
  options.flag("--fast-accumulation", values.fast_accumulation, "As torch._scaled_mm's use_fast_accum=True")
      .group(call);
  integer("--parts", values.parts, "Parts of a split K (default: 1)", 65536);
  options.add("--join", values.join, "How parts are added: " + known_names<Join>() + " (default: serial)")
      .type("NAME")
      .group(call)
      .offers(offer_names(names_of(Join{})));
  options
      .add("--partials", values.partials,
           "Type to which parts are rounded before they are added: f16, bf16, or f32, not at all (default)")
      .one_of({"f32", "f16", "bf16"})
      .type("FMT")
      .group(call);
}

const TensorCoreModel& row_called(const PlanOptions& options, std::string_view name, DType operands,
                                  DType accumulator) {
  return planned_row(plan_called(options), name, operands, operands, accumulator);
}

CalledPlan::CalledPlan(const PlanOptions& options, const TensorCoreModel& row, DType a, DType b) {
  const LibraryPlan& one_chain = library_plans().front();
  const LibraryPlan& plan = plan_called(options);
  require_asked(plan, options);
  if (&plan == &one_chain) return;
  if (row.accumulator() != DType::f32)
    refuse(fmt::format("plan '{}': partial sums are FP32, but {} accumulates in {}", plan.name, row.name,
                       name_of(row.accumulator())));
  plan_ = &plan;
  call_ = {
      .shape = {.m = options.m.value_or(default_extent), .n = options.n.value_or(default_extent), .k = 0},
      .batch = options.batch.value_or(1),
      .kind = options.batch ? ProductKind::bmm : ProductKind::mm,
      .a = a,
      .b = b,
      .threads = options.library_threads.value_or(1),
      .fast_accumulation = options.fast_accumulation,
      .parts = options.parts.value_or(1)};
  for (const std::string& operand : options.transposed) {
    if (operand != "a" && operand != "b")
      refuse(fmt::format("--transposed '{}': expected a, b or a,b", shown(operand)));
    (operand == "a" ? call_.a_transposed : call_.b_transposed) = true;
  }
  if (!options.call.empty()) call_.kind = *enumerator_called<ProductKind>(options.call);
  if (options.batch && call_.kind != ProductKind::bmm)
    refuse(fmt::format("--batch with --call {}: only a bmm has several products", options.call));
  const auto only_one = [&](const char* name, std::optional<int> given, std::int64_t& extent) {
    if (given.value_or(1) != 1)
      refuse(fmt::format("--{} {} with --call {}: expected 1, or no --{}", name, *given, options.call, name));
    extent = 1;
  };
  if (call_.kind == ProductKind::mv || call_.kind == ProductKind::dot)
    only_one("n", options.n, call_.shape.n);
  if (call_.kind == ProductKind::dot) only_one("m", options.m, call_.shape.m);
  if (!options.join.empty()) call_.join = join_called(options.join);
  if (!options.partials.empty()) call_.partials = *dtype_called<is_floating>(options.partials);
}

std::string CalledPlan::call_text() const {
  if (!plan_->asks("m")) return "";
  return fmt::format(", an output of {} of {} x {}", name_of(call_.kind), call_.shape.m, call_.shape.n);
}

PlannedProduct CalledPlan::product(const TensorCoreModel& row, std::size_t k) const {
  if (k > most_k) refuse(fmt::format("plan '{}': K is {}; expected at most {}", name(), k, most_k));
  ProductCall call = call_;
  call.shape.k = static_cast<std::int64_t>(k);
  return plan_->product(row, call);
}

}  // namespace fp16lab::experiments
