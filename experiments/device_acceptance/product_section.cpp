// Section "products": our own kernel, cuBLASLt (P9) and wgmma against the emulator, on data that tells tensor
// cores apart.
#include <fmt/format.h>

#include <set>

#include "engine/backend/emulated/emulated_backend.hpp"
#include "experiments/device_acceptance/cases/case_context.hpp"
#include "experiments/device_acceptance/cases/verb_cases.hpp"
#include "experiments/device_acceptance/section.hpp"
#include "experiments/tensor_core_probe/emulated_device.hpp"
#include "experiments/tensor_core_probe/question.hpp"
#include "numerics/tensor_core/tensor_core_model.hpp"

namespace fp16lab::experiments::acceptance {
namespace {

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

struct Count {
  std::uint64_t outputs = 0, words = 0, bits = 0;
};

/// Differing outputs of one route at one shape, over FP16 and FP32 results.
Count differences(engine::Backend& emulated, engine::Backend& device, const Product& product, DType dtype,
                  Data data, std::uint64_t seed) {
  Count count;
  for (const DType out_type : {dtype, DType::f32}) {
    const auto run_on = [&](engine::Backend& backend) {
      CaseContext c(backend, CaseSize::full, "product", seed);
      const engine::Tensor a = c.random(
          product.transpose_a ? engine::Shape{product.k, product.m} : engine::Shape{product.m, product.k},
          dtype, data);
      const engine::Tensor b = c.random(
          product.transpose_b ? engine::Shape{product.n, product.k} : engine::Shape{product.k, product.n},
          dtype, data);
      engine::Tensor out = c.output({product.m, product.n}, out_type);
      backend.gemm({.a = a,
                    .b = b,
                    .out = out,
                    .transpose_a = product.transpose_a,
                    .transpose_b = product.transpose_b});
      std::vector<std::byte> bytes(out.byte_count());
      backend.download(out, bytes);
      return bytes;
    };
    const DifferingWords words = differing_words(run_on(emulated), run_on(device), size_of(out_type));
    count.outputs += static_cast<std::uint64_t>(product.m * product.n);
    count.words += words.words;
    count.bits += words.bits;
  }
  return count;
}

void compare_route(const Settings& settings, const char* route_name, engine::GemmRoute route,
                   const Goal& goal, SectionResult& result, Table& table) {
  std::set<std::string> refused;  // shapes that the library's route left to our own kernel
  engine::CudaOptions options{.gemm = route};
  if (route != engine::GemmRoute::mma) {
    options.algorithm_cache_file = (settings.out / "pins.jsonl").string();
    options.report = [&refused](std::string_view text) { refused.emplace(text); };
  }
  const auto emulated =
      engine::make_emulated_backend(tensor_core_model(settings.side.tensor_core), settings.threads);
  const auto device = settings.side.make(options);
  Count total;
  for (const Product& product : products(settings))
    for (const DType dtype : {DType::f16, DType::bf16})
      for (const Data data : {Data::wide, Data::special, Data::cancelling, Data::training}) {
        if (settings.progress)
          settings.progress(fmt::format("{} {}x{}x{}", route_name, product.m, product.n, product.k));
        const Count count = differences(*emulated, *device, product, dtype, data, settings.seed);
        table.rows.push_back({route_name,
                              fmt::format("{}x{}x{} {}{}", product.m, product.n, product.k,
                                          product.transpose_a ? 'T' : 'N', product.transpose_b ? 'T' : 'N'),
                              std::string(fp16lab::name_of(dtype)), name_of(data),
                              fmt::format("{}", count.outputs), fmt::format("{}", count.words),
                              fmt::format("{}", count.bits)});
        total.outputs += count.outputs;
        total.words += count.words;
      }
  result.claims.push_back(none_differ(settings, goal, total.words, total.outputs, "outputs"));
  for (const std::string& text : refused) result.notes.push_back(fmt::format("P9, not pinned: {}", text));
  if (route != engine::GemmRoute::mma && refused.empty())
    result.notes.emplace_back(
        "P9: cuBLASLt (reduction scheme NONE, no split of k) was refused for no shape above; pins.jsonl has "
        "the "
        "algorithms");
}

/// The same question to single instructions.
void compare_wgmma(const Settings& settings, const Goal& goal, SectionResult& result, Table& table) {
  const std::unique_ptr<probe::Device> device = probed_device(settings);
  std::uint64_t differing = 0, outputs = 0;
  for (const probe::Opcode opcode :
       {probe::Opcode::wgmma_m64n8k16_f16_f32, probe::Opcode::wgmma_m64n8k16_bf16_f32}) {
    const probe::Instruction& in = probe::instruction(opcode);
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
      table.rows.push_back({"wgmma", std::string(in.name), std::string(fp16lab::name_of(in.operands)),
                            std::string(probe::name_of(distribution)), fmt::format("{}", comparison.outputs),
                            fmt::format("{}", comparison.differing), "-"});
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

SectionResult compare_products(const Settings& settings, const Goals& goals) {
  SectionResult result;
  Table table{
      .caption = "Outputs that differ from the emulator's",
      .columns = {"by", "shape", "operands", "data", "outputs", "differing outputs", "differing bits"},
      .rows = {}};
  compare_route(settings, "mma.sync", engine::GemmRoute::mma, goals[0], result, table);
  if (settings.rehearsal())
    result.claims.push_back(goals[1].claim);  // there is no library
  else
    compare_route(settings, "cuBLASLt", engine::GemmRoute::cublas, goals[1], result, table);
  compare_wgmma(settings, goals[2], result, table);
  result.tables.push_back(std::move(table));
  return result;
}

}  // namespace fp16lab::experiments::acceptance
