// Cases of histograms, digests and recordings.
#include <fmt/format.h>

#include <array>
#include <cmath>
#include <functional>
#include <memory>

#include "numerics/histogram/exponent_histogram.hpp"
#include "tests/engine/backend/cases/verb_cases.hpp"

namespace fp16lab::engine::cases {
namespace {

using engine::CastProbe;
using engine::Tensor;

/// A step's worth of verbs on memory that stays.
struct SmallStep {
  Tensor a, b, product, sum;
  explicit SmallStep(CaseContext& c)
      : a(c.random({c.extent(65, 17), c.extent(130, 18)}, DType::f16, Data::training)),
        b(c.random({c.extent(130, 18), c.extent(70, 10)}, DType::f16, Data::training)),
        product(c.output({a.shape()[0], b.shape()[1]}, DType::f32)),
        sum(c.output({b.shape()[1]}, DType::f32)) {}
  void run(engine::Backend& backend) {
    backend.gemm({.a = a, .b = b, .out = product});
    backend.unary(engine::UnaryOp::relu, product, product);
    backend.reduce(engine::ReduceOp::sum, product, 0, sum);
    backend.binary(engine::BinaryOp::add, a, a, a);  // so that every replay gives other bits
  }
};

/// Recorded and replayed, where the back end records.
void three_times(engine::Backend& backend, const std::function<void()>& work) {
  const std::unique_ptr<engine::Recording> recording = backend.records() ? backend.record(work) : nullptr;
  for (int i = 0; i < 3; ++i) {
    if (recording)
      recording->replay();
    else
      work();
  }
}

/// Sorts and counts in memory of its own, which a recording must get, too.
void scattered_and_counted(CaseContext& c, std::int64_t symbols) {
  Tensor x = c.random({c.extent(5003, 403), 33}, DType::f16, Data::training);
  const Tensor index = c.indices({x.shape()[0]}, symbols);
  Tensor out = c.output({symbols, 33}, DType::f16);
  CastProbe scattered, counted;
  three_times(c.backend(), [&] {
    scattered = counted = {};
    c.backend().scatter_rows(x, index, out, &scattered);
    c.backend().histogram(out, counted);
    c.backend().binary(engine::BinaryOp::add, x, x, x);  // so that every replay gives other bits
  });
  c.keep(fmt::format("{} symbols", symbols), out);
  c.keep("counts of the scattered", scattered);
  c.keep("counts of the stored", counted);
}

}  // namespace

void add_histogram_cases(std::vector<VerbCase>& cases) {
  cases.push_back({"histogram", "all types", [](CaseContext& c) {
                     for (const DType dtype : floats)
                       for (const Data data : all_data) {
                         ExponentHistogram histogram;
                         histogram.zero = 3;  // it adds
                         c.backend().histogram(c.random({c.extent(200003, 2003)}, dtype, data), histogram);
                         c.backend().histogram(c.random({1}, dtype, data), histogram);
                         c.keep(fmt::format("{} {}", name_of(dtype), name_of(data)), histogram);
                         CastProbe probe;
                         c.backend().histogram(c.random({c.extent(30001, 301)}, dtype, data), probe);
                         c.keep("probe", probe);
                       }
                     if (!c.odd()) return;
                     for (const DType dtype : floats)
                       for (const double value : {1.0, HUGE_VAL, std::nan(""), 0.0})  // blocks begin at none
                         for (const std::int64_t size : {0, 1000, 5000}) {
                           Tensor x = c.output({size}, dtype);
                           c.backend().fill(x, value);
                           ExponentHistogram histogram;
                           CastProbe probe;
                           c.backend().histogram(x, histogram);
                           c.backend().histogram(x, probe);
                           c.keep("one value", histogram);
                           c.keep("one value's probe", probe);
                         }
                     ExponentHistogram large;
                     c.backend().histogram(c.random({1100000}, DType::f32, Data::special), large);
                     c.keep("many blocks", large);
                   }});
  cases.push_back({"settle", "several verbs into one probe, several probes at once", [](CaseContext& c) {
                     std::array<CastProbe, 3> probes;
                     for (const std::size_t i : {0U, 1U, 2U, 0U, 1U}) {
                       const Tensor x = c.random({c.extent(50001, 501)}, DType::f32, Data::special);
                       Tensor out = c.output(x.shape(), DType::f16);
                       c.backend().cast(x, out, &probes[i]);
                       c.backend().histogram(out, probes[i]);
                     }
                     std::array<CastProbe*, 3> all{&probes[0], &probes[1], &probes[2]};
                     c.backend().settle(all);
                     c.backend().settle(all);  // again: nothing is left to add
                     for (const CastProbe& probe : probes) c.keep("probe", probe);
                   }});
  cases.push_back({"digest", "one and many", [](CaseContext& c) {
                     std::vector<engine::DigestItem> items;
                     std::uint64_t key = 17;
                     for (const DType dtype : floats)
                       for (const std::int64_t size :
                            {std::int64_t{0}, std::int64_t{1}, std::int64_t{7}, c.extent(300007, 3007)}) {
                         const Tensor x = c.random({size}, dtype, Data::special);
                         c.keep("one", c.backend().digest(x, ++key));
                         items.push_back({x, key});
                       }
                     items.push_back({c.indices({1003}, 99), 5});
                     if (c.odd()) {
                       for (const std::int64_t size : {8, 9, 1025, 600001})
                         c.keep("bytes", c.backend().digest(c.random({size}, DType::u8, Data::wide), 12345));
                       // All sizes around words and their pairs, and two blocks; the same twice counts twice.
                       for (std::int64_t i = 0; i < 300; ++i)
                         items.push_back({c.random({i == 100 ? 32771 : i % 41}, DType::u8, Data::wide),
                                          0x123456789abcdef0U * static_cast<std::uint64_t>(i)});
                       items.push_back(items.back());
                     }
                     c.keep("many", c.backend().digest(items));
                     c.keep("none", c.backend().digest(std::span<const engine::DigestItem>{}));
                   }});
  cases.push_back({"record", "three replays", [](CaseContext& c) {
                     SmallStep step(c);
                     three_times(c.backend(), [&] { step.run(c.backend()); });
                     for (const Tensor& tensor : {step.a, step.product, step.sum}) c.keep("memory", tensor);
                   }});
  cases.push_back({"record", "scatter_rows and a probed histogram", [](CaseContext& c) {
                     for (const std::int64_t symbols : {3, 83}) scattered_and_counted(c, symbols);
                   }});
}

}  // namespace fp16lab::engine::cases
