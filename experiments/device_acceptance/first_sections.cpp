// Sections "large", "capture" and "counts": checks that a device meets first, because a fault there would
// show in everything behind them.
#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <string_view>

#include "experiments/device_acceptance/case_section.hpp"
#include "experiments/device_acceptance/cases/tile_cases.hpp"

namespace fp16lab::experiments::acceptance {
namespace {

constexpr const char *convolution = "conv2d", *product = "gemm", *odd_product = "odd gemm";

void add_products(std::vector<VerbCase>& cases, const char* what, const TiledProduct& one, std::int64_t k,
                  const engine::tile::Gpu& gpu) {
  for (const bool transpose_a : {false, true})
    for (const bool transpose_b : {false, true})
      cases.push_back(product_case(what, one, k, transpose_a, transpose_b, gpu));
}

/// Of the verbs' cases, those of one verb.
void add_verb(std::vector<VerbCase>& cases, std::string_view verb) {
  std::ranges::copy_if(all_verb_cases(), std::back_inserter(cases),
                       [&](const VerbCase& one) { return one.verb == verb; });
}

/// Thrust's counts against the emulated back end's.
VerbCase counting_case(Data data) {
  return {"histogram", name_of(data), [=](CaseContext& c) {
            for (const DType dtype : {DType::f32, DType::f16, DType::bf16})
              for (const std::int64_t size : {std::int64_t{1}, c.extent(200003, 2003)}) {
                ExponentHistogram counts;
                c.backend().histogram(c.random({size}, dtype, data), counts);
                c.keep(fmt::format("{} of {}", size, fp16lab::name_of(dtype)), counts);
              }
          }};
}

CaseSize size_of_cases(const Settings& settings) {
  return settings.rehearsal() || settings.quick ? CaseSize::small : CaseSize::full;
}

/// "nothing differs" of the rows whose verb begins with `prefix`, and which all ran.
Claim claim_of(const Settings& settings, const Goal& goal, const std::vector<VerbRow>& rows,
               std::string_view prefix) {
  const RowSums sums = sums_of(rows, prefix);
  if (sums.failed == 0) return none_differ(settings, goal, sums.differing, sums.elements, "elements");
  return must_hold(settings, goal, "a case failed to run", false);
}

}  // namespace

Goals large_goals(const Settings& settings) {
  const char* const sizes = settings.rehearsal() ? " (tiny)" : "";
  return {no_difference(fmt::format("FP16 NHWC convolution 1000x32x32x1, 6 filters of 5x5{}", sizes)),
          no_difference(fmt::format("own products of 1024x2048 and 2048x2048, every transposition{}", sizes)),
          no_difference(fmt::format("own products of 2049x2047x1001{}", sizes))};
}

CaseList large_cases(const Settings& settings) {
  const engine::tile::Gpu gpu = tile_gpu(settings);
  const std::int64_t images = settings.sized(1000, 1000, 3), edge = settings.sized(32, 32, 9);
  CaseList list;
  list.cases.push_back(convolution_case(convolution,
                                        {.dtype = DType::f16,
                                         .pass = ConvolutionPass::forward,
                                         .layout = engine::Layout::nhwc,
                                         .kernel = 5,
                                         .images = images,
                                         .channels = 1,
                                         .height = edge,
                                         .width = edge,
                                         .filters = 6},
                                        gpu));
  const std::vector<std::int64_t> rows =
      settings.sized<std::vector<std::int64_t>>({1024, 2048}, {1024, 2048}, {24, 48});
  for (const DType dtype : {DType::f16, DType::bf16})
    for (const std::int64_t m : rows)
      for (const std::int64_t k : settings.sized<std::vector<std::int64_t>>({64, 131, 1001}, {131}, {19}))
        add_products(list.cases, product, {.dtype = dtype, .m = m, .n = rows.back()}, k, gpu);
  for (const DType dtype : {DType::f16, DType::bf16})
    add_products(list.cases, odd_product, {.dtype = dtype, .m = rows.back() + 1, .n = rows.back() - 1},
                 settings.sized(1001, 131, 19), gpu);
  return list;
}

SectionResult compare_large(const Settings& settings, const Goals& goals) {
  const std::vector<VerbRow> rows = compare_on_device(settings, large_cases(settings));
  SectionResult result = result_of(rows, "product");
  for (std::size_t i = 0; const char* prefix : {convolution, product, odd_product})
    result.claims.push_back(claim_of(settings, goals[i++], rows, prefix));
  return result;
}

Goals capture_goals(const Settings&) {
  return {no_difference("recorded and replayed verbs, scatter_rows and counting among them"),
          no_difference("training steps by a graph, products by mma")};
}

CaseList capture_cases(const Settings& settings) {
  CaseList list{{}, size_of_cases(settings)};
  add_verb(list.cases, "record");
  return list;
}

SectionResult compare_captures(const Settings& settings, const Goals& goals) {
  const std::vector<VerbRow> rows = compare_on_device(settings, capture_cases(settings));
  SectionResult result = result_of(rows, "verb");
  result.claims = {claim_of(settings, goals[0], rows, {})};
  SectionResult training = compare_graph_training(settings, goals[1], "mma");
  result.claims.push_back(training.claims[0]);
  std::ranges::move(training.tables, std::back_inserter(result.tables));
  std::ranges::move(training.notes, std::back_inserter(result.notes));
  return result;
}

Goals count_goals(const Settings&) { return case_goals("counts and scattered rows"); }

CaseList count_cases(const Settings& settings) {
  CaseList list{{}, size_of_cases(settings)};
  // Ordinary data has neither Inf nor NaN, special data has both.
  for (const Data data : {Data::ordinary, Data::special}) list.cases.push_back(counting_case(data));
  for (const char* verb : {"histogram", "scatter_rows"}) add_verb(list.cases, verb);
  return list;
}

SectionResult compare_counts(const Settings& settings, const Goals& goals) {
  const std::vector<VerbRow> rows = compare_on_device(settings, count_cases(settings));
  SectionResult result = result_of(rows, "verb");
  result.claims = case_claims(settings, goals, rows);
  return result;
}

}  // namespace fp16lab::experiments::acceptance
