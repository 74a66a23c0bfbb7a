#include "numerics/gemm/library_plan.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <stdexcept>
#include <vector>

#include "numerics/gemm/onednn_plan.hpp"
#include "numerics/text/nearest_name.hpp"

namespace fp16lab {
namespace {

[[noreturn]] void refuse(std::string_view plan, const std::string& what) {
  throw std::invalid_argument(fmt::format("plan '{}': {}", plan, what));
}

PlannedProduct instruction(const TensorCoreModel& row, const ProductCall&) { return {.row = &row}; }

/// cuBLASLt 12.8.3.14 with FP8 on Ada and Hopper, as mmaemu 0.1.0 recorded it.
PlannedProduct cublaslt(const TensorCoreModel& row, const ProductCall& call) {
  const bool ada = row.name == "ada", hopper = row.name == "hopper-wgmma";
  if (!is_fp8(call.a) || !is_fp8(call.b))
    refuse("cublaslt-12.8",
           fmt::format("its products of {} are not known, only those of e4m3 and e5m2", name_of(call.a)));
  if (!ada && !hopper)
    refuse("cublaslt-12.8",
           fmt::format("its FP8 is known with the rows ada and hopper-wgmma, not {}", row.name));
  if (call.parts < 1)
    refuse("cublaslt-12.8", fmt::format("K in {} parts; 1 or more are possible", call.parts));
  if (call.join != Join::serial && (hopper || call.join != Join::pairwise))
    refuse("cublaslt-12.8", fmt::format("parts were seen joined serially, on Ada also pairwise, not by {}{}",
                                        name_of(call.join), hopper ? " on Hopper" : ""));
  ProductOrder order{.restart = call.fast_accumulation ? 0 : 128, .parts = call.parts, .join = call.join};
  if (call.parts > 1) {
    order.tile = ada ? 64 : 128;
    order.interleaved = ada;
  }
  return {.row = &row, .ranges = {order}};
}

/// A split that is known from elsewhere.
PlannedProduct split_k(const TensorCoreModel& row, const ProductCall& call) {
  const std::int64_t step = row.products();
  if (call.parts < 1) refuse("split-k", fmt::format("K in {} parts; 1 or more are possible", call.parts));
  if (call.parts == 1) return {.row = &row};
  if (call.shape.k % (call.parts * step) != 0)
    refuse("split-k",
           fmt::format("where {} parts of K = {} end is not known; a multiple of {} has equal parts "
                       "of whole instructions of {}",
                       call.parts, call.shape.k, call.parts * step, row.name));
  return {.row = &row,
          .ranges = {{.parts = call.parts,
                      .tile = std::max(step, call.shape.k / call.parts),
                      .join = call.join,
                      .partials = call.partials}}};
}

constexpr std::array plans{
    LibraryPlan{"instruction", "none", "every row", "one chain over ascending k", Evidence::model, "nothing",
                "numerics/tensor_core/tensor_core_model.hpp", &instruction},
    LibraryPlan{
        "onednn",
        "oneDNN 3.13 and ATen's loops under PyTorch 2.15: eager mm, addmm, linear, bmm, mv and dot of BF16 "
        "and "
        "FP16, conv2d of BF16",
        "avx512_bf16, and single fmas",
        "above 4096 multiplications pairs in chains of 512 where K is at most 1024 or A is transposed, else "
        "of 1024, added in order (two threads may halve K); for a vector 16 lanes of pairs or one chain; "
        "below, and of FP16, by layout, four chains, a tree of 64 and 8 lanes, or one chain; of a "
        "convolution "
        "pairs of channels tap by tap in one chain, of its weight's gradient a chain for each row of y",
        Evidence::hardware_test,
        "more than two threads with A transposed; convolutions of FP16, of one or three dimensions, "
        "transposed or "
        "dilated, with wide padding, and of two threads for weights but for a list; other instruction sets",
        "orders revealed on a Zen 5 processor (fp16lab reveal)", &onednn_product,
        "call, m, n, transposed, batch, library-threads", &onednn_convolution, &aten_loops},
    LibraryPlan{
        "cublaslt-12.8", "cuBLASLt 12.8.3.14, FP8", "ada, hopper-wgmma",
        "a chain begins again every 128 elements of K, or never with fast accumulation; split-K as given: on "
        "Hopper in neighbouring tiles of 128, on Ada in interleaved tiles of 64",
        Evidence::hardware_test,
        "which split-K the library's heuristics choose; other versions; FP16 and BF16",
        "mmaemu 0.1.0: 1,423 calls and 2,744 sweep jobs on an H100 PCIe, and an RTX 4060", &cublaslt,
        "fast-accumulation, parts, join"},
    LibraryPlan{
        "split-k", "whichever, with the split that you know", "every row with FP32 sums",
        "K in as many equal, neighbouring parts as given, each one chain, added in order or as given; before "
        "that each is rounded to f16 or bf16 where partial sums have reduced precision",
        Evidence::model, "parts that are not equal, or no whole instructions",
        "torch.backends.cuda.matmul.allow_fp16_reduced_precision_reduction and allow_splitk (PyTorch's CUDA "
        "semantics); which split cuBLAS takes, a profiler shows",
        &split_k, "parts, join, partials"},
};

}  // namespace

std::string order_text(const PlannedProduct& product) {
  constexpr std::array joins{"in order", "in pairs", "by halving them",
                             "by halving them to four, then in pairs"};
  std::string text = fmt::format("{}:", product.row->name);
  for (const ProductOrder& order : product.ranges) {
    text += &order == product.ranges.data() ? " " : "; then ";
    const std::string chains =
        order.restart > 0 ? fmt::format("chains of {}, added in order", order.restart) : "one chain";
    if (order.parts == 1)
      text += chains;
    else
      text += fmt::format(
          "{} {} parts of {}, each {}{}, added {}", order.parts,
          order.interleaved ? "interleaved" : "neighbouring",
          order.tile == 1 ? "single elements" : fmt::format("tiles of {}", order.tile), chains,
          order.partials == DType::f32 ? "" : fmt::format(", rounded to {}", name_of(order.partials)),
          joins[static_cast<std::size_t>(order.join)]);
    if (order.end > 0) text += fmt::format(", up to {}", order.end);
  }
  return text + (product.terms_follow ? "; then term by term" : "");
}

bool LibraryPlan::asks(std::string_view parameter) const {
  for (std::string_view rest = parameters; !rest.empty();) {
    const std::size_t end = std::min(rest.find(", "), rest.size());
    if (rest.substr(0, end) == parameter) return true;
    rest.remove_prefix(std::min(rest.size(), end + 2));
  }
  return false;
}

std::span<const LibraryPlan> library_plans() { return plans; }

const LibraryPlan& library_plan(std::string_view name) {
  std::vector<std::string_view> known;
  for (const LibraryPlan& plan : plans) {
    if (plan.name == name) return plan;
    known.push_back(plan.name);
  }
  throw std::invalid_argument(fmt::format("unknown plan '{}': {}", name, known_are(name, known)));
}

const TensorCoreModel& planned_row(const LibraryPlan& plan, std::string_view name, DType a, DType b,
                                   DType accumulator) {
  const bool all_fp16 = a == DType::f16 && b == DType::f16 && accumulator == DType::f32;
  const std::span<const std::string_view> generations = generations_of(name);
  if (plan.fp16_row != nullptr && all_fp16 && !generations.empty() && generations.front() == "avx512_bf16")
    return *plan.fp16_row;
  return tensor_core_model(name, a, b, accumulator);
}

}  // namespace fp16lab
