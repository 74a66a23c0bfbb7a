#include "numerics/gemm/library_plan.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <stdexcept>
#include <vector>

#include "numerics/text/nearest_name.hpp"

namespace fp16lab {
namespace {

[[noreturn]] void refuse(std::string_view plan, const std::string& what) {
  throw std::invalid_argument(fmt::format("plan '{}': {}", plan, what));
}

std::string text_of(const GemmShape& shape) { return fmt::format("{} x {} x {}", shape.m, shape.n, shape.k); }

PlannedProduct instruction(const TensorCoreModel& row, const ProductCall&) { return {.row = &row}; }

/// What ATen's own loops do: one correctly rounded fma after the other. (Products of BF16 and of FP16 are exact in
/// FP32, so that a multiplication and an addition give the same.)
constexpr TensorCoreModel aten_loops{
    "aten",
    "loops of ATen",
    OperandFormats{DType::f16, DType::bf16},
    {{.sum = Sum::fma, .products = 1, .output = BlockOutput::fp32_nearest_even}},
    Evidence::hardware_test,
    "orders revealed on a Zen 5 processor (fp16lab reveal)"};

PlannedProduct ascending() { return {.row = &aten_loops}; }
/// Four sums of every fourth product; what is left goes on in the first.
PlannedProduct four_chains() {
  return {.row = &aten_loops,
          .ranges = {{.parts = 4, .tile = 1, .interleaved = true, .rest_in_first = true}}};
}
/// A dot product of vectors of eight lanes: eight vectors at a time, then two, then single elements.
PlannedProduct eight_lanes(std::int64_t k) {
  const std::int64_t by_64 = k / 64 * 64, by_16 = k / 16 * 16;
  PlannedProduct product{.row = &aten_loops, .ranges = {}, .terms_follow = true};
  const auto lanes = [&](int count, std::int64_t end) {
    product.ranges.push_back(
        {.parts = count, .tile = 1, .interleaved = true, .join = Join::halves, .end = end});
  };
  if (by_64 > 0) lanes(64, by_64);
  if (by_16 > by_64) lanes(8, by_16);
  return product;
}

/// oneDNN 3.13 and ATen's loops as PyTorch 2.15 chooses between them, for eager products of BF16 on processors with
/// AVX512_BF16.
PlannedProduct onednn(const TensorCoreModel& row, const ProductCall& call) {
  const auto [m, n, k] = call.shape;
  if (row.name != "avx512_bf16")
    refuse("onednn", fmt::format("it takes the row avx512_bf16, not {}", row.name));
  const bool vector = m == 1 || n == 1;
  if (call.batched && m * n * k < 400 && m * n * k * call.batch <= 4096) return ascending();
  if (m * n * k * call.batch <= 4096) {  // ATen's gate
    if (m == 1 && n == 1) return four_chains();
    if (vector && call.a_transposed && call.b_transposed)
      refuse("onednn", fmt::format("a small product of {} with both operands transposed was not looked at",
                                   text_of(call.shape)));
    if (n == 1) return call.a_transposed ? ascending() : four_chains();
    if (m == 1) return call.b_transposed ? eight_lanes(k) : four_chains();
    if (call.a_transposed == call.b_transposed) return four_chains();
    return call.a_transposed ? ascending() : eight_lanes(k);
  }
  if (vector) {
    if ((m == 1 && n > 1 && !call.b_transposed) || (n == 1 && m > 1 && call.a_transposed)) return ascending();
    return {.row = &row,  // 16 lanes of pairs
            .ranges = {{.parts = 16, .tile = 2, .interleaved = true, .join = Join::halves_to_four}}};
  }
  const ProductOrder chains{.restart = k <= 1024 || call.a_transposed ? 512 : 1024};
  if (call.threads == 1 || call.batch > 1 || !call.a_transposed) return {.row = &row, .ranges = {chains}};
  if (call.threads > 2)
    refuse("onednn", fmt::format("whether K of {} is split in {} threads is not known, only in one and two",
                                 text_of(call.shape), call.threads));
  if (k > 8192 && n <= 64)
    refuse("onednn",
           fmt::format("whether K of {} is split in two threads was not looked at", text_of(call.shape)));
  if (n <= 64 && (k == 2048 || k == 4096 || k == 8192))
    return {.row = &row, .ranges = {{.restart = 512, .parts = 2, .tile = k / 2}}};
  return {.row = &row, .ranges = {chains}};
}

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
                "numerics/tensor_core/tensor_core_model.hpp", &instruction, ""},
    LibraryPlan{
        "onednn", "oneDNN 3.13 and ATen's loops under PyTorch 2.15: eager BF16 mm, addmm, linear, bmm",
        "avx512_bf16, and single fmas",
        "above 4096 multiplications pairs in chains of 512 where K is at most 1024 or A is transposed, else "
        "of 1024, added in order (two threads may halve K); for a vector 16 lanes of pairs or one chain; "
        "below, by layout, four chains, a tree of 64 and 8 lanes, or one chain",
        Evidence::hardware_test,
        "mv and dot, convolutions, more than two threads with A transposed, FP16, other instruction sets",
        "orders revealed on a Zen 5 processor (fp16lab reveal)", &onednn,
        "m, n, transposed, batch, library-threads"},
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

}  // namespace fp16lab
