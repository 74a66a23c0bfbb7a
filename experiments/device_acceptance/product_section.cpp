// Section "products": our own kernel, cuBLASLt (P9) and wgmma against the emulator, on data that tells tensor
// cores apart.
#include <fmt/format.h>

#include <set>

#include "experiments/device_acceptance/case_section.hpp"
#include "experiments/device_acceptance/section.hpp"
#include "experiments/tensor_core_probe/emulated_device.hpp"
#include "experiments/tensor_core_probe/question.hpp"

namespace fp16lab::experiments::acceptance {
namespace {

constexpr const char* own = "mma.sync";
constexpr const char* library = "cuBLASLt";

struct Product {
  std::int64_t m, n, k;
  bool transpose_a, transpose_b;
};

std::vector<Product> products(const Settings& settings) {
  if (settings.rehearsal()) return {{16, 16, 64, false, true}, {17, 9, 33, true, false}};
  std::vector<Product> all{{512, 512, 64, false, true},
                           {512, 512, 64, false, false},
                           {256, 256, 4096, false, true},
                           {256, 256, 4096, true, false}};
  if (!settings.quick) {
    all.push_back({1024, 1024, 1024, false, true});
    all.push_back({1024, 1024, 1024, true, false});
    all.push_back({128, 10, 128, false, true});
    all.push_back({129, 67, 515, false, false});
  }
  return all;
}

/// All four kinds of data, rounded and as FP32, by one route.
VerbCase case_of(const Product& product, DType dtype, engine::GemmRoute route) {
  const auto run = [=](CaseContext& c) {
    const auto matrix = [](bool transposed, std::int64_t rows, std::int64_t columns) {
      return transposed ? engine::Shape{columns, rows} : engine::Shape{rows, columns};
    };
    for (const Data data : {Data::wide, Data::special, Data::cancelling, Data::training})
      for (const DType out_type : {dtype, DType::f32}) {
        const engine::Tensor a = c.random(matrix(product.transpose_a, product.m, product.k), dtype, data);
        const engine::Tensor b = c.random(matrix(product.transpose_b, product.k, product.n), dtype, data);
        engine::Tensor out = c.output({product.m, product.n}, out_type);
        c.backend().gemm({.a = a,
                          .b = b,
                          .out = out,
                          .transpose_a = product.transpose_a,
                          .transpose_b = product.transpose_b});
        c.keep(fmt::format("{} -> {}", name_of(data), fp16lab::name_of(out_type)), out);
      }
  };
  return {fmt::format("{} {}x{}x{} {}{}", route == engine::GemmRoute::mma ? own : library, product.m,
                      product.n, product.k, product.transpose_a ? 'T' : 'N', product.transpose_b ? 'T' : 'N'),
          std::string(fp16lab::name_of(dtype)), run, dtype, route};
}

/// The same question to single instructions.
void compare_wgmma(const Settings& settings, const Goal& goal, SectionResult& result, Table& table) {
  const std::unique_ptr<probe::Device> device = probed_device(settings);
  std::uint64_t differing = 0, outputs = 0;
  for (const char* name : {"wgmma.m64n8k16.f32.f16", "wgmma.m64n8k16.f32.bf16"}) {
    const probe::Instruction& in = probe::instruction(name);
    const auto row = probe::row_for(in, device->info().capability);
    if (!row || !device->has(in)) {
      result.notes.push_back(fmt::format("{} is not on this device, or not in this build", in.name));
      continue;
    }
    for (const probe::Distribution distribution :
         {probe::Distribution::wide, probe::Distribution::special, probe::Distribution::cancelling,
          probe::Distribution::ordinary}) {
      const probe::Comparison comparison = probe::compare_random(
          *device, in, distribution, settings.seed, settings.sized<std::uint64_t>(2'000'000, 200'000, 500),
          settings.threads, probe::dot_product_of(*row, in.operands));
      table.rows.push_back(
          {"wgmma", std::string(in.name), in.operands.name, std::string(fp16lab::name_of(distribution)),
           fmt::format("{}", comparison.outputs), fmt::format("{}", comparison.differing), "-"});
      differing += comparison.differing;
      outputs += comparison.outputs;
    }
  }
  result.claims.push_back(outputs > 0 ? none_differ_on_gpu(settings, goal, differing, outputs, "outputs")
                                      : goal.claim);
}

}  // namespace

Goals product_goals(const Settings&) {
  return {no_difference("products by mma.sync against the emulator"),
          no_difference("products by cuBLASLt against the emulator"),
          no_difference("single wgmma instructions against the emulator")};
}

CaseList product_cases(const Settings& settings) {
  CaseList list;
  for (const engine::GemmRoute route : {engine::GemmRoute::mma, engine::GemmRoute::cublas}) {
    if (settings.rehearsal() && route != engine::GemmRoute::mma) continue;  // there is no library
    for (const Product& product : products(settings))
      for (const DType dtype : {DType::f16, DType::bf16})
        list.cases.push_back(case_of(product, dtype, route));
  }
  return list;
}

SectionResult compare_products(const Settings& settings, const Goals& goals) {
  const std::vector<VerbRow> rows = compare_on_device(settings, product_cases(settings));
  SectionResult result = result_of(rows, "product");
  std::set<std::string> refused;  // shapes that the library's route left to our own kernel
  for (const VerbRow& row : rows) refused.insert(row.refusals.begin(), row.refusals.end());
  for (std::size_t route = 0; const char* name : {own, library}) {
    const RowSums sums = sums_of(rows, name);
    const Goal& goal = goals[route++];
    result.claims.push_back(
        sums.rows == 0 ? goal.claim
        : sums.failed > 0
            ? must_hold(settings, goal,
                        fmt::format("{} of {} products failed to run", sums.failed, sums.rows), false)
            : none_differ(settings, goal, sums.differing, sums.elements, "outputs"));
  }
  for (const std::string& text : refused) result.notes.push_back(fmt::format("P9, not pinned: {}", text));
  if (!settings.rehearsal() && refused.empty())
    result.notes.emplace_back(
        "P9: cuBLASLt (reduction scheme NONE, no split of k) was refused for no shape above; pins.jsonl has "
        "the algorithms");
  Table wgmma{
      .caption = "Outputs that differ from the emulator's",
      .columns = {"by", "shape", "operands", "data", "outputs", "differing outputs", "differing bits"},
      .rows = {}};
  compare_wgmma(settings, goals[2], result, wgmma);
  result.tables.push_back(std::move(wgmma));
  return result;
}

}  // namespace fp16lab::experiments::acceptance
