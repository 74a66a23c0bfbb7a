// The suites: cases of verbs on the emulated back end and on the device, bit for bit.
#include <fmt/format.h>

#include <algorithm>

#include "engine/backend/emulated/emulated_backend.hpp"
#include "numerics/tensor_core/tensor_core_model.hpp"
#include "tests/device/settings.hpp"
#include "tests/engine/backend/cases/tile_cases.hpp"

namespace fp16lab::device {
namespace {

using engine::cases::CaseContext;
using engine::cases::CaseSize;
using engine::cases::ConvolutionPass;
using engine::cases::Data;
using engine::cases::TiledProduct;
using engine::cases::VerbCase;

/// Does the device still do the least that there is to do?
bool is_usable(engine::Backend& backend) {
  try {
    engine::Tensor tensor = backend.empty({1}, DType::f32);
    backend.fill(tensor, 1);
    std::vector<std::byte> bytes(tensor.byte_count());
    backend.download(tensor, bytes);
    return true;
  } catch (const std::exception&) {
    return false;
  }
}

class CaseTest final : public testing::Test {
 public:
  CaseTest(VerbCase one, CaseSize size, std::uint64_t seed, BackEnds& sides, BundleListener& bundles)
      : one_(std::move(one)), size_(size), seed_(seed), sides_(&sides), bundles_(&bundles) {}

  void TestBody() override {
    if (!sides_->lost_in.empty()) GTEST_SKIP() << "the device was lost in " << sides_->lost_in;
    std::vector<Operand> operands;
    const std::vector<Kept> expected = run_case(one_, *sides_->emulated, size_, seed_, {}, &operands);
    std::vector<Kept> got;
    try {
      got = run_case(one_, *sides_->device, size_, seed_);
    } catch (const std::exception& error) {
      bundles_->keep(operands, expected, {});
      const bool lost = !is_usable(*sides_->device);
      if (lost) sides_->lost_in = key_of(one_);
      FAIL() << "the device: " << error.what() << (lost ? "; it gives nothing but errors from now on" : "");
    }
    const engine::cases::Comparison compared = compare(expected, got);
    EXPECT_GT(compared.elements, 0U) << "nothing was compared";
    if (!compared.notes.empty()) bundles_->keep(operands, expected, got);
    for (const std::string& note : compared.notes) ADD_FAILURE() << note;
  }

 private:
  VerbCase one_;
  CaseSize size_;
  std::uint64_t seed_;
  BackEnds* sides_;
  BundleListener* bundles_;
};

/// Prints the device that all other results come from.
class DeviceTest final : public testing::Test {
 public:
  explicit DeviceTest(const Settings& settings) : settings_(&settings) {}
  void TestBody() override {
    for (const auto& [name, value] : facts(*settings_)) fmt::print("{:<20} {}\n", name, value);
    std::fflush(stdout);
  }

 private:
  const Settings* settings_;
};

engine::tile::Gpu gpu_of(const Settings& settings) {
  const experiments::DeviceSide& side = settings.side;
  return {side.multiprocessors, side.shared_per_block, side.shared_per_multiprocessor};
}

/// Products and a convolution of many large tiles.
std::vector<VerbCase> large_cases(const Settings& settings) {
  const engine::tile::Gpu gpu = gpu_of(settings);
  const std::int64_t images = settings.sized(1000, 1000, 3), edge = settings.sized(32, 32, 9);
  std::vector<VerbCase> cases{engine::cases::convolution_case("conv2d",
                                                              {.dtype = DType::f16,
                                                               .pass = ConvolutionPass::forward,
                                                               .layout = engine::Layout::nhwc,
                                                               .kernel = 5,
                                                               .images = images,
                                                               .channels = 1,
                                                               .height = edge,
                                                               .width = edge,
                                                               .filters = 6},
                                                              gpu)};
  const auto add = [&](const char* what, const TiledProduct& one, std::int64_t k) {
    for (const bool transpose_a : {false, true})
      for (const bool transpose_b : {false, true})
        cases.push_back(product_case(what, one, k, transpose_a, transpose_b, gpu));
  };
  const std::vector<std::int64_t> rows =
      settings.sized<std::vector<std::int64_t>>({1024, 2048}, {1024, 2048}, {24, 48});
  for (const DType dtype : {DType::f16, DType::bf16}) {
    for (const std::int64_t m : rows)
      for (const std::int64_t k : settings.sized<std::vector<std::int64_t>>({64, 131, 1001}, {131}, {19}))
        add("gemm", {.dtype = dtype, .m = m, .n = rows.back()}, k);
    add("odd gemm", {.dtype = dtype, .m = rows.back() + 1, .n = rows.back() - 1},
        settings.sized(1001, 131, 19));
  }
  return cases;
}

std::vector<VerbCase> of_verbs(const std::vector<std::string>& verbs) {
  std::vector<VerbCase> cases;
  for (const VerbCase& one : engine::cases::all_verb_cases())
    if (std::ranges::find(verbs, one.verb) != verbs.end()) cases.push_back(one);
  return cases;
}

std::vector<VerbCase> capture_cases(const Settings&) { return of_verbs({"record"}); }

/// CUB's counts and ours. Ordinary data have neither Inf nor NaN, special data have both.
std::vector<VerbCase> count_cases(const Settings&) {
  std::vector<VerbCase> cases = of_verbs({"histogram", "scatter_rows"});
  for (const Data data : {Data::ordinary, Data::special})
    cases.push_back({"histogram", "many " + name_of(data), [data](CaseContext& c) {
                       for (const DType dtype : {DType::f32, DType::f16, DType::bf16})
                         for (const std::int64_t size : {std::int64_t{1}, c.extent(200003, 2003)}) {
                           ExponentHistogram counts;
                           c.backend().histogram(c.random({size}, dtype, data), counts);
                           c.keep(fmt::format("{} of {}", size, fp16lab::name_of(dtype)), counts);
                         }
                     }});
  return cases;
}

struct Product {
  std::int64_t m, n, k;
  bool transpose_a, transpose_b;
};

/// Data that distinguish tensor cores, rounded and as FP32.
VerbCase revealing_case(const Product& product, DType dtype) {
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
  return {fmt::format("{}x{}x{} {}{}", product.m, product.n, product.k, product.transpose_a ? 'T' : 'N',
                      product.transpose_b ? 'T' : 'N'),
          std::string(fp16lab::name_of(dtype)), run, dtype};
}

std::vector<VerbCase> product_cases(const Settings& settings) {
  const std::vector<Product> quick{{512, 512, 64, false, true},
                                   {512, 512, 64, false, false},
                                   {256, 256, 4096, false, true},
                                   {256, 256, 4096, true, false}};
  std::vector<Product> full = quick;
  full.insert(full.end(), {{1024, 1024, 1024, false, true},
                           {1024, 1024, 1024, true, false},
                           {128, 10, 128, false, true},
                           {129, 67, 515, false, false}});
  std::vector<VerbCase> cases;
  for (const Product& product :
       settings.sized(full, quick, {{16, 16, 64, false, true}, {17, 9, 33, true, false}}))
    for (const DType dtype : {DType::f16, DType::bf16}) cases.push_back(revealing_case(product, dtype));
  return cases;
}

std::vector<VerbCase> verb_cases(const Settings&) { return engine::cases::all_verb_cases(); }

/// Every tile that the planner can choose here: whole slices of k, and one that ends within an instruction
/// and so has rows that are moved to be aligned.
std::vector<VerbCase> tile_cases(const Settings& settings) {
  return engine::cases::tile_cases(gpu_of(settings),
                                   settings.sized<std::vector<std::int64_t>>({64, 131}, {72}, {24}));
}

struct Suite {
  const char* name;
  std::vector<VerbCase> (*cases)(const Settings&);
};
constexpr Suite suites[] = {{"large", &large_cases},  {"capture", &capture_cases},
                            {"counts", &count_cases}, {"products", &product_cases},
                            {"verbs", &verb_cases},   {"tiles", &tile_cases}};

}  // namespace

void register_suites(const Settings& settings, BackEnds& back_ends, BundleListener& bundles) {
  testing::RegisterTest("device", "opens", nullptr, nullptr, __FILE__, __LINE__,
                        [&settings]() -> testing::Test* { return new DeviceTest(settings); });
  back_ends.emulated =
      engine::make_emulated_backend(tensor_core_model(settings.side.tensor_core), settings.threads);
  back_ends.device = settings.side.make({.gemm = engine::GemmRoute::mma});
  const CaseSize size = settings.sized(CaseSize::full, CaseSize::small, CaseSize::small);
  for (const Suite& suite : suites)
    for (const VerbCase& one : suite.cases(settings))
      if (runs_on(one, *back_ends.emulated))
        testing::RegisterTest(suite.name, key_of(one).c_str(), nullptr, nullptr, __FILE__, __LINE__,
                              [=, &back_ends, &bundles, seed = settings.seed]() -> testing::Test* {
                                return new CaseTest(one, size, seed, back_ends, bundles);
                              });
}

}  // namespace fp16lab::device
