#include "numerics/gemm/library_plan.hpp"

#include <fmt/format.h>

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

ProductOrder instruction(const TensorCoreModel&, const ProductCall&) { return {}; }

/// oneDNN 3.13 under ATen's gates, eager BF16 products on processors with AVX512_BF16.
ProductOrder onednn(const TensorCoreModel& row, const ProductCall& call) {
  const auto [m, n, k] = call.shape;
  if (row.name != "avx512_bf16")
    refuse("onednn", fmt::format("it takes the row avx512_bf16, not {}", row.name));
  if (m == 1 || n == 1)
    refuse("onednn", fmt::format("a product of {} is a matrix times a vector, whose order is another",
                                 text_of(call.shape)));
  if (m * n * k * call.batch <= 4096)
    refuse("onednn",
           fmt::format("a product of {}{} has no more than 4096 multiplications: ATen's own loops "
                       "compute it, not oneDNN",
                       text_of(call.shape), call.batch > 1 ? fmt::format(", {} of them,", call.batch) : ""));
  if (call.threads > 1 && call.a_transposed && k >= 2048)
    refuse("onednn",
           fmt::format("a product of {} with A transposed in {} threads: whether K is split depends on "
                       "the shape, by a rule that is not known",
                       text_of(call.shape), call.threads));
  return {.restart = k <= 1024 || call.a_transposed ? 512 : 1024};
}

/// cuBLASLt 12.8.3.14 with FP8 on Ada and Hopper, as mmaemu 0.1.0 recorded it.
ProductOrder cublaslt(const TensorCoreModel& row, const ProductCall& call) {
  const bool ada = row.name == "ada", hopper = row.name == "hopper-wgmma";
  if (!is_fp8(call.a) || !is_fp8(call.b))
    refuse("cublaslt-12.8",
           fmt::format("its products of {} are not known, only those of e4m3 and e5m2", name_of(call.a)));
  if (!ada && !hopper)
    refuse("cublaslt-12.8",
           fmt::format("its FP8 is known with the rows ada and hopper-wgmma, not {}", row.name));
  if (call.parts < 1)
    refuse("cublaslt-12.8", fmt::format("K in {} parts; 1 or more are possible", call.parts));
  if (hopper && call.join == Join::pairwise)
    refuse("cublaslt-12.8", "on Hopper parts were seen joined serially, not pairwise");
  ProductOrder order{.restart = call.fast_accumulation ? 0 : 128, .parts = call.parts, .join = call.join};
  if (call.parts > 1) {
    order.tile = ada ? 64 : 128;
    order.interleaved = ada;
  }
  return order;
}

constexpr std::array plans{
    LibraryPlan{"instruction", "none", "every row", "one chain over ascending k", Evidence::model, "nothing",
                "numerics/tensor_core/tensor_core_model.hpp", &instruction},
    LibraryPlan{
        "onednn", "oneDNN 3.13 under PyTorch 2.15, eager BF16 mm, addmm, linear and bmm", "avx512_bf16",
        "chains of 512 where K is at most 1024 or A is transposed, else of 1024; partial sums added in order",
        Evidence::hardware_test,
        "vectors; products of 4096 multiplications and fewer; A transposed in several threads from K = 2048 "
        "on; convolutions; other instruction sets",
        "orders revealed on a Zen 5 processor (fp16lab reveal)", &onednn},
    LibraryPlan{
        "cublaslt-12.8", "cuBLASLt 12.8.3.14, FP8", "ada, hopper-wgmma",
        "a chain begins again every 128 elements of K, or never with fast accumulation; split-K as given: on "
        "Hopper in neighbouring tiles of 128, on Ada in interleaved tiles of 64",
        Evidence::hardware_test,
        "which split-K the library's heuristics choose; other versions; FP16 and BF16",
        "mmaemu 0.1.0: 1,423 calls and 2,744 sweep jobs on an H100 PCIe, and an RTX 4060", &cublaslt},
};

}  // namespace

std::string order_text(const ProductOrder& order) {
  std::string text = order.restart > 0 ? fmt::format("chains of {}, added in order", order.restart)
                                       : "one chain over ascending k";
  if (order.parts > 1)
    text += fmt::format("; K in {} parts of tiles of {}, {}, {}", order.parts, order.tile,
                        order.interleaved ? "interleaved" : "neighbours", name_of(order.join));
  return text;
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
