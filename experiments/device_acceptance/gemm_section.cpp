// Section "gemm": TFLOP/s of every way to multiply, and what FP16 gains over TF32 and FP32.
#include <fmt/format.h>

#include "experiments/device_acceptance/section.hpp"
#include "experiments/device_acceptance/timing.hpp"

namespace fp16lab::experiments::acceptance {
namespace {

/// One way to multiply square matrices, weights transposed as in a linear layer.
struct Way {
  const char* name;
  engine::GemmRoute route;
  DType dtype;
  bool tf32 = false;
  std::int64_t largest = 1 << 30;  ///< above it nobody wants to wait
};
constexpr Way ways[] = {
    {"FP32, own fma chain", engine::GemmRoute::mma, DType::f32, false, 4096},
    {"FP32, cuBLAS (TF32 off)", engine::GemmRoute::cublas, DType::f32},
    {"TF32, cuBLAS", engine::GemmRoute::cublas, DType::f32, true},
    {"FP16, own mma.sync", engine::GemmRoute::mma, DType::f16},
    {"FP16, cuBLAS", engine::GemmRoute::cublas, DType::f16},
    {"BF16, own mma.sync", engine::GemmRoute::mma, DType::bf16},
};
enum WayIndex : std::size_t { fma_chain, cublas_f32, tf32, mma_f16, best_f16 };

/// Normal numbers: what a product draws of a GPU's power depends on its data.
engine::Tensor operand(engine::Backend& backend, std::int64_t n, DType dtype, std::string_view name) {
  engine::Tensor wide = backend.empty({n, n}, DType::f32);
  backend.fill_normal(wide, {.seed = 1, .stream = stream_id(name)}, 0.0f, 1.0f);
  if (dtype == DType::f32) return wide;
  engine::Tensor low = backend.empty({n, n}, dtype);
  backend.cast(wide, low);
  return low;
}

/// 10^12 operations a second.
using Speed = std::optional<double>;

double tera_per_second(engine::Backend& backend, std::int64_t n, DType dtype, const TimingPlan& plan) {
  const engine::Tensor a = operand(backend, n, dtype, "a"), b = operand(backend, n, dtype, "b");
  engine::Tensor out = backend.empty({n, n}, dtype);
  const Timing timing =
      time_of(backend, plan, [&] { backend.gemm({.a = a, .b = b, .out = out, .transpose_b = true}); });
  const auto extent = static_cast<double>(n);
  return 2 * extent * extent * extent / (timing.median * 1e-3) * 1e-12;
}

std::optional<double> ratio(const std::optional<double>& a, const std::optional<double>& b) {
  if (!a || !b) return std::nullopt;
  return *a / *b;
}
std::string text(const std::optional<double>& value) { return value ? fmt::format("{:.4g}", *value) : "-"; }

std::vector<std::int64_t> sizes_of(const Settings& settings) {
  return settings.sized<std::vector<std::int64_t>>({1024, 2048, 4096, 8192}, {1024, 8192}, {16});
}
/// Where the goals stand: at the largest size.
std::string at(const Settings& settings) { return fmt::format(" at {} cubed", sizes_of(settings).back()); }

}  // namespace

std::int64_t profiled_extent(const Settings& settings) { return sizes_of(settings).back(); }

double own_product_speed(const Settings& settings, const TimingPlan& plan) {
  const auto backend = settings.side.make({.gemm = engine::GemmRoute::mma});
  return tera_per_second(*backend, profiled_extent(settings), DType::f16, plan);
}

Goals gemm_goals(const Settings& settings) {
  return {at_least("own mma.sync GEMM against cuBLAS's best" + at(settings), 40, "%"),
          at_least("own wgmma GEMM against cuBLAS's best" + at(settings), 60, "%")};
}

SectionResult time_products(const Settings& settings, const Goals& goals) {
  const std::vector<std::int64_t> sizes = sizes_of(settings);
  const TimingPlan plan = settings.sized<TimingPlan>(
      {.warm_up = 3, .repetitions = 9, .least_milliseconds = 30},
      {.warm_up = 2, .repetitions = 5, .least_milliseconds = 15}, {.warm_up = 1, .repetitions = 1});
  SectionResult result;
  Table table{
      .caption = "TFLOP/s of square products (2 n^3 operations), B transposed; medians on the device's clock",
      .columns = {"n"},
      .rows = {}};
  for (const Way& way : ways) table.columns.emplace_back(way.name);
  for (const char* more : {"own mma.sync / best", "FP16 : TF32 : FP32"}) table.columns.emplace_back(more);
  std::vector<Speed> last;
  for (const std::int64_t n : sizes) {
    std::vector<Speed> speeds;
    for (const Way& way : ways) {
      if (settings.progress) settings.progress(fmt::format("{} at {}", way.name, n));
      Speed& speed = speeds.emplace_back();
      if (n > way.largest) continue;
      try {
        const auto backend = settings.side.make({.gemm = way.route, .tf32 = way.tf32});
        speed = tera_per_second(*backend, n, way.dtype, plan);
      } catch (const std::exception& error) {
        result.notes.push_back(fmt::format("{} at {}: {}", way.name, n, error.what()));
      }
    }
    std::vector<std::string> row{fmt::format("{}", n)};
    for (const Speed& speed : speeds) row.push_back(text(speed));
    row.push_back(text(ratio(speeds[mma_f16], speeds[best_f16])));
    row.push_back(fmt::format("{} : {} : 1", text(ratio(speeds[best_f16], speeds[cublas_f32])),
                              text(ratio(speeds[tf32], speeds[cublas_f32]))));
    table.rows.push_back(std::move(row));
    last = std::move(speeds);
  }
  result.tables.push_back(std::move(table));
  const auto share = ratio(last[mma_f16], last[best_f16]);
  result.claims = {judged(settings, goals[0], share ? std::optional(100 * *share) : std::nullopt),
                   goals[1].claim};
  result.claims[1].measured = "there is no wgmma GEMM in this version";
  const auto eight = ratio(last[best_f16], last[cublas_f32]), over_tf32 = ratio(last[best_f16], last[tf32]);
  result.notes.push_back(
      fmt::format("the tutorials claim that FP16 tensor cores are 8 x FP32: measured {} x cuBLAS's "
                  "FP32 and {} x TF32{}",
                  text(eight), text(over_tf32), at(settings)));
  return result;
}

}  // namespace fp16lab::experiments::acceptance
