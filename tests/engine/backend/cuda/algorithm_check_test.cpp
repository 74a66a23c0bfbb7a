// The library's route of Backend::gemm on the PTX machine, with a fake library in cuBLASLt's place: what is
// pinned, what is refused, and that nobody can see from the bits which route was taken.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <fstream>

#include "engine/backend/cuda/library/route.hpp"
#include "engine/backend/cuda/runtime/device_errors.hpp"
#include "engine/backend/emulated/emulated_backend.hpp"
#include "tests/engine/backend/conformance.hpp"
#include "tests/engine/backend/cuda/machine_with_library.hpp"
#include "tests/machines/ptx/cudart/ptx_executor.hpp"
#include "tests/support/message_of.hpp"
#include "tests/support/temporary_folder.hpp"

namespace fp16lab::engine::test {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

template <class T>
Tensor uploaded(Backend& backend, const Shape& shape, const std::vector<T>& values) {
  Tensor result = backend.empty(shape, DTypeOf<T>::value);
  backend.upload(std::as_bytes(std::span(values)), result);
  return result;
}

std::vector<std::byte> bytes_of(Backend& backend, const Tensor& x) {
  std::vector<std::byte> bytes(x.byte_count());
  backend.download(x, bytes);
  return bytes;
}

struct Product {
  std::int64_t m = 9, n = 24, k = 80;
  std::int64_t batch = 0;  ///< 0: matrices
  bool transpose_a = false, transpose_b = false;
  bool bias = false, addend = false, probe = false;
  DType out = DType::f16;  ///< f32 or 16 bits: then the type of the operands

  Shape shape(std::int64_t rows, std::int64_t columns, bool transposed) const {
    if (transposed) std::swap(rows, columns);
    return batch == 0 ? Shape{rows, columns} : Shape{batch, rows, columns};
  }
};

struct Result {
  std::vector<std::byte> bytes;
  CastProbe probe;
};

template <class Half>
Result compute(Backend& backend, const Product& p, Kind kind = Kind::wide) {
  const std::int64_t items = p.batch == 0 ? 1 : p.batch;
  const Tensor a =
      uploaded(backend, p.shape(p.m, p.k, p.transpose_a), random_of<Half>(items * p.m * p.k, kind, 1));
  const Tensor b =
      uploaded(backend, p.shape(p.k, p.n, p.transpose_b), random_of<Half>(items * p.k * p.n, kind, 2));
  const Tensor bias = uploaded(backend, {p.n}, random_of<Half>(p.n, kind, 3));
  const Tensor addend =
      uploaded(backend, p.shape(p.m, p.n, false), random_of<float>(items * p.m * p.n, kind, 4));
  Result result;
  Tensor out =
      backend.empty(p.shape(p.m, p.n, false), p.out == DType::f32 ? DType::f32 : DTypeOf<Half>::value);
  backend.gemm({.a = a,
                .b = b,
                .out = out,
                .transpose_a = p.transpose_a,
                .transpose_b = p.transpose_b,
                .bias = p.bias ? &bias : nullptr,
                .addend = p.addend ? &addend : nullptr,
                .probe = p.probe ? &result.probe : nullptr});
  if (p.probe) {
    CastProbe* const probes[] = {&result.probe};
    backend.settle(probes);
  }
  result.bytes = bytes_of(backend, out);
  return result;
}

TEST(CudaPinning, TheFirstUsePinsAndLaterUsesReplay) {
  MachineWithLibrary machine({right});
  const std::unique_ptr<Backend> emulated = make_emulated_backend(tensor_core_model("hopper"), 1);
  const std::vector<std::byte> expected = compute<Float16>(*emulated, {}).bytes;
  EXPECT_EQ(compute<Float16>(*machine.backend, {}).bytes, expected);
  EXPECT_EQ(machine.log->asked.size(), 1u);
  const std::size_t first = machine.log->ran.size();
  EXPECT_GT(first, 5u) << "every data set, and the product itself";
  EXPECT_EQ(compute<Float16>(*machine.backend, {}).bytes, expected);
  EXPECT_EQ(machine.log->ran.size(), first + 1);
  EXPECT_EQ(machine.log->asked.size(), 1u);
  EXPECT_THAT(machine.reports, IsEmpty());
}

TEST(CudaPinning, WhicheverEpilogueTheBitsAndCountsAreTheEmulators) {
  const std::unique_ptr<Backend> emulated = make_emulated_backend(tensor_core_model("hopper"), 1);
  MachineWithLibrary machine({right});
  const auto expect_equal = [&](const Product& p, Kind kind) {
    for_each_half_type([&](auto tag) {
      using Half = decltype(tag);
      const Result here = compute<Half>(*machine.backend, p, kind), there = compute<Half>(*emulated, p, kind);
      EXPECT_EQ(here.bytes, there.bytes) << p.m << " x " << p.n << " x " << p.k;
      EXPECT_EQ(here.probe.before, there.probe.before);
      EXPECT_EQ(here.probe.after, there.probe.after);
      EXPECT_EQ(here.probe.counted, there.probe.counted);
    });
  };
  for (const DType out : {DType::f16, DType::f32})
    for (const Kind kind : {Kind::wide, Kind::special}) {
      expect_equal({.out = out}, kind);
      expect_equal({.bias = true, .out = out}, kind);
      expect_equal({.n = 21, .transpose_b = true, .addend = true, .probe = true, .out = out}, kind);
      expect_equal({.batch = 3, .transpose_a = true, .bias = true, .addend = true, .probe = true, .out = out},
                   kind);
    }
  EXPECT_THAT(machine.reports, IsEmpty()) << "all were pinned";
  for (const ProductProblem& problem : machine.log->asked)
    EXPECT_TRUE(problem.out == DType::f32 || problem.out == problem.operands) << describe(problem);
}

class AlgorithmCheckOfWrong : public testing::TestWithParam<FakeAlgorithm> {};

TEST_P(AlgorithmCheckOfWrong, AlgorithmIsRefusedOnceAndOurOwnKernelTaken) {
  const std::unique_ptr<Backend> emulated = make_emulated_backend(tensor_core_model("hopper"), 1);
  MachineWithLibrary machine({GetParam()});
  const Product product{};
  const std::vector<std::byte> expected = compute<Float16>(*emulated, product).bytes;
  EXPECT_EQ(compute<Float16>(*machine.backend, product).bytes, expected);
  const std::size_t runs = machine.log->ran.size();
  EXPECT_GT(runs, 0u);
  EXPECT_EQ(compute<Float16>(*machine.backend, product).bytes, expected);
  EXPECT_EQ(machine.log->ran.size(), runs) << "a refused algorithm does not run again";
  ASSERT_EQ(machine.reports.size(), 1u);
  EXPECT_THAT(machine.reports[0],
              HasSubstr("9 x 24 x 80 (m x n x k), f16 -> f16, NN runs on our own kernel"));
  EXPECT_THAT(machine.reports[0], HasSubstr(name_of(GetParam())));
}

std::vector<FakeAlgorithm> wrong_algorithms() {
  std::vector<FakeAlgorithm> all;
  for (const Topology topology : wrong_topologies) all.push_back({.topology = topology});
  for (const Fault fault : {Fault::truncates, Fault::rounds_twice, Fault::other_nan, Fault::leaves_a_row,
                            Fault::other_rule, Fault::fp16_sums, Fault::throws})
    all.push_back({.fault = fault});
  return all;
}
INSTANTIATE_TEST_SUITE_P(All, AlgorithmCheckOfWrong, testing::ValuesIn(wrong_algorithms()),
                         [](const auto& algorithm) { return name_of(algorithm.param); });

TEST(CudaPinning, TheFirstAlgorithmWithoutADifferingBitIsTaken) {
  MachineWithLibrary machine(
      {{.topology = Topology::split_2}, {.fault = Fault::throws}, right, {.topology = Topology::pairwise}});
  compute<Float16>(*machine.backend, {});
  machine.log->ran.clear();
  compute<Float16>(*machine.backend, {});
  ASSERT_EQ(machine.log->ran.size(), 1u);
  EXPECT_EQ(machine.log->ran[0].topology, Topology::ascending);
  EXPECT_THAT(machine.reports, IsEmpty());
}

TEST(CudaPinning, ALibraryWithoutAlgorithmsIsSaidSo) {
  MachineWithLibrary machine({});
  compute<Float16>(*machine.backend, {});
  compute<Float16>(*machine.backend, {});
  EXPECT_THAT(machine.reports, ElementsAre(HasSubstr("offers no algorithm")));
}

// A device whose instructions do not follow the row: nothing that equals them may be pinned.
TEST(CudaPinning, NothingIsPinnedWhereOurOwnKernelIsNotTheEmulator) {
  using namespace ptx::cudart;
  Settings settings;
  settings.make_executor = [](Settings ampere, ptx::DeviceMemory& memory) {
    ampere.architecture = 80;
    return ptx_executor_maker(std::getenv("FP16LAB_PTX"))(ampere, memory);
  };
  Simulation::instance().reset(settings);
  MachineWithLibrary machine({right, right, right});
  compute<Float16>(*machine.backend, {});
  ASSERT_EQ(machine.reports.size(), 1u);
  EXPECT_THAT(machine.reports[0], HasSubstr("our own kernel gives"));
  EXPECT_THAT(machine.reports[0], HasSubstr("the emulator of hopper"));
  EXPECT_LT(machine.log->ran.size(), 3u)
      << "the first set that tells the generations apart ends it, for all algorithms";
  machine.backend.reset();
  Simulation::instance().set_up_from_environment();
}

TEST(CudaPinning, RecordingDoesNotPinAndAPinnedProductIsRecorded) {
  MachineWithLibrary machine({right});
  Backend& backend = *machine.backend;
  const Tensor a = uploaded(backend, {8, 32}, random_of<Float16>(8 * 32, Kind::wide, 1));
  const Tensor b = uploaded(backend, {32, 16}, random_of<Float16>(32 * 16, Kind::wide, 2));
  Tensor recorded = backend.empty({8, 16}, DType::f16), eager = backend.empty({8, 16}, DType::f16);
  const auto record = [&] {
    return backend.record([&] { backend.gemm({.a = a, .b = b, .out = recorded}); });
  };

  const std::unique_ptr<Recording> before = record();
  EXPECT_THAT(machine.log->asked, IsEmpty());
  backend.gemm({.a = a, .b = b, .out = eager});
  before->replay();
  EXPECT_EQ(bytes_of(backend, recorded), bytes_of(backend, eager));

  backend.fill(recorded, 0.0);
  machine.log->ran.clear();
  const std::unique_ptr<Recording> after = record();
  EXPECT_THAT(machine.log->ran, IsEmpty()) << "recorded, not done";
  after->replay();
  after->replay();
  EXPECT_EQ(bytes_of(backend, recorded), bytes_of(backend, eager));
  EXPECT_EQ(machine.log->ran.size(), 2u);
}

TEST(CudaPinning, MmaNeverAsksAndAutomaticLeavesSmallProductsAlone) {
  MachineWithLibrary mma({right}, {.gemm = GemmRoute::mma}),
      automatic({right}, {.gemm = GemmRoute::automatic});
  compute<Float16>(*mma.backend, {.m = 64, .n = 128, .k = 128});
  compute<Float16>(*automatic.backend, {.m = 64, .n = 128, .k = 127});
  EXPECT_THAT(mma.log->asked, IsEmpty());
  EXPECT_THAT(automatic.log->asked, IsEmpty());
  compute<Float16>(*automatic.backend, {.m = 64, .n = 128, .k = 128});  // 2^20 multiplications
  EXPECT_EQ(automatic.log->asked.size(), 1u);
}

TEST(CudaPinning, FloatsAndEmptyProductsStayWithOurOwnKernels) {
  MachineWithLibrary machine({right});
  compute<float>(*machine.backend, {.out = DType::f32});
  compute<Float16>(*machine.backend, {.k = 0});
  compute<Float16>(*machine.backend, {.m = 0});
  EXPECT_THAT(machine.log->asked, IsEmpty());
  EXPECT_THAT(machine.reports, IsEmpty());
}

TEST(CudaPinning, AnyOrderTakesTheFirstAlgorithmAsItIsFloatsToo) {
  testing_support::TemporaryFolder folder;
  const std::string file = (folder.path() / "pins.jsonl").string();
  MachineWithLibrary machine({{.topology = Topology::split_2}},
                             {.gemm = GemmRoute::cublas_any_order, .algorithm_cache_file = file});
  compute<Float16>(*machine.backend, {.bias = true});
  compute<float>(*machine.backend, {.out = DType::f32});
  EXPECT_THAT(machine.log->orders, ElementsAre(ProductOrder::any, ProductOrder::any));
  ASSERT_EQ(machine.log->ran.size(), 2u) << "nothing is compared";
  EXPECT_FALSE(std::filesystem::exists(file)) << "and nothing pinned";
  EXPECT_THAT(machine.reports, IsEmpty());
}

TEST(CudaPinning, Tf32IsForAnyOrderOnly) {
  for (const GemmRoute route : {GemmRoute::cublas, GemmRoute::cublas_any_order}) {
    MachineWithLibrary machine({right}, {.gemm = route, .tf32 = true});
    compute<Float16>(*machine.backend, {});
    compute<float>(*machine.backend, {.out = DType::f32});
    std::vector<bool> tf32;
    for (const ProductProblem& problem : machine.log->asked) tf32.push_back(problem.tf32);
    EXPECT_EQ(tf32, route == GemmRoute::cublas ? std::vector{false} : (std::vector{false, true}));
  }
}

TEST(CudaPinning, AnotherProcessTakesThePinsFromTheFile) {
  testing_support::TemporaryFolder folder;
  const CudaOptions options{.gemm = GemmRoute::cublas,
                            .algorithm_cache_file = (folder.path() / "pins.jsonl").string()};
  std::vector<std::byte> first;
  {
    MachineWithLibrary machine({right}, options);
    first = compute<Float16>(*machine.backend, {}).bytes;
  }
  {
    MachineWithLibrary machine({right}, options);
    EXPECT_EQ(compute<Float16>(*machine.backend, {}).bytes, first);
    EXPECT_THAT(machine.log->asked, IsEmpty());
    EXPECT_EQ(machine.log->ran.size(), 1u);
  }
  // What the library does not accept any more is found out again.
  MachineWithLibrary machine({right}, options, false);
  EXPECT_EQ(compute<Float16>(*machine.backend, {}).bytes, first);
  EXPECT_EQ(machine.log->asked.size(), 1u);
}

TEST(CudaPinning, RefusalsAreInTheFileTooAndSaidAgain) {
  testing_support::TemporaryFolder folder;
  const CudaOptions options{.gemm = GemmRoute::cublas,
                            .algorithm_cache_file = (folder.path() / "pins.jsonl").string()};
  MachineWithLibrary first({{.topology = Topology::reversed}}, options);
  compute<Float16>(*first.backend, {});
  MachineWithLibrary second({{.topology = Topology::reversed}}, options);
  compute<Float16>(*second.backend, {});
  EXPECT_THAT(second.log->ran, IsEmpty());
  EXPECT_EQ(second.reports, first.reports);
}

TEST(CudaPinning, AFailureIsNotKeptForAnotherProcess) {
  testing_support::TemporaryFolder folder;
  const CudaOptions options{.gemm = GemmRoute::cublas,
                            .algorithm_cache_file = (folder.path() / "pins.jsonl").string()};
  MachineWithLibrary first({{.fault = Fault::throws}}, options);
  compute<Float16>(*first.backend, {});
  compute<Float16>(*first.backend, {});
  EXPECT_EQ(first.log->asked.size(), 1u);
  ASSERT_EQ(first.reports.size(), 1u);
  EXPECT_THAT(first.reports[0], HasSubstr("the fake library does not run this"));
  MachineWithLibrary second({right}, options);
  compute<Float16>(*second.backend, {});
  EXPECT_EQ(second.log->asked.size(), 1u);
  EXPECT_THAT(second.reports, IsEmpty());
}

TEST(CudaPinning, WhereThereIsNoMemoryToCompareOurOwnKernelRuns) {
  const auto log = std::make_shared<FakeProductLibrary::Log>();
  log->offered = {right};
  std::vector<std::string> reports;
  CudaOptions options{.gemm = GemmRoute::cublas};
  options.report = [&](std::string_view line) { reports.emplace_back(line); };
  gpu::Runtime runtime(0);
  gpu::LibraryRoute route(runtime, options, tensor_core_model("hopper"), fake_library(log));
  const ProductProblem problem = contiguous_product(64, 64, 64, 1, DType::f16, DType::f16);
  EXPECT_EQ(route.find(problem), nullptr);
  const AlgorithmOutcome& outcome = route.decide(
      problem, []() -> std::unique_ptr<CheckBench> { throw DeviceFailure("out of device memory"); });
  EXPECT_FALSE(outcome.pinned);
  EXPECT_TRUE(outcome.failed);
  EXPECT_EQ(route.find(problem), &outcome);
  EXPECT_THAT(reports, ElementsAre(HasSubstr("no memory for the comparison (out of device memory)")));
}

TEST(CudaPinning, AnAlgorithmThatWasLeftOutIsToldWithItsRawValues) {
  const auto log = std::make_shared<FakeProductLibrary::Log>();
  log->left_out = "algorithm 21 (tile 20, split k 2, reduction 2)";
  std::vector<std::string> reports;
  CudaOptions options{.gemm = GemmRoute::cublas};
  options.report = [&](std::string_view line) { reports.emplace_back(line); };
  gpu::Runtime runtime(0);
  gpu::LibraryRoute route(runtime, options, tensor_core_model("hopper"), fake_library(log));
  const ProductProblem problem = contiguous_product(64, 64, 64, 1, DType::f16, DType::f16);
  EXPECT_FALSE(route.decide(problem, []() -> std::unique_ptr<CheckBench> { return nullptr; }).pinned);
  EXPECT_THAT(reports, ElementsAre(HasSubstr("left out is algorithm 21 (tile 20, split k 2, reduction 2)")));
}

TEST(CudaPinning, TheWidestAlignmentThatAnAddressHas) {
  alignas(32) static std::byte memory[32];
  for (const auto& [offset, alignment] :
       {std::pair{0, 16u}, {16, 16u}, {8, 8u}, {4, 4u}, {12, 4u}, {2, 2u}, {7, 1u}})
    EXPECT_EQ(gpu::LibraryRoute::alignment_of(memory + offset), alignment) << offset;
}

TEST(CudaPinning, AFileThatHoldsNoPinsStopsTheStartInOneLine) {
  testing_support::TemporaryFolder folder;
  const std::filesystem::path file = folder.path() / "notes.txt";
  std::ofstream(file) << "my notes\n";
  const std::string message = testing_support::message_of([&] {
    MachineWithLibrary machine({right}, {.gemm = GemmRoute::cublas, .algorithm_cache_file = file.string()});
  });
  EXPECT_THAT(message, HasSubstr(file.string() + ":1 is not a line of pinned products"));
  EXPECT_THAT(message, testing::Not(HasSubstr("\n")));
}

}  // namespace
}  // namespace fp16lab::engine::test
