// Conformance: the verb cases by which the acceptance judges a device, every back end against plain loops.
#include "tests/engine/backend/cases/verb_cases.hpp"

#include <cstdlib>
#include <map>
#include <set>

#include "engine/backend/elementwise_functions.hpp"
#include "engine/backend/emulated/emulated_backend.hpp"
#include "tests/engine/backend/conformance.hpp"
#include "tests/engine/backend/twin_backend.hpp"

namespace fp16lab::engine::test {
namespace {

using namespace cases;

constexpr std::uint64_t seed = 1;

/// What the case must give, computed once; for each tensor core where the case multiplies.
const std::vector<Kept>& expected_of(const VerbCase& one, std::string_view tensor_core) {
  static std::map<std::string, std::vector<Kept>> known;
  const bool multiplies = one.verb == "gemm" || one.verb.starts_with("conv2d") || one.verb == "record";
  const auto [entry, is_new] =
      known.try_emplace((multiplies ? std::string(tensor_core) + '/' : std::string()) + key_of(one));
  if (is_new)
    entry->second = run_case(one, *make_twin_backend(tensor_core_model(tensor_core)), CaseSize::odd, seed);
  return entry->second;
}

/// Is the verb among those of the environment's FP16LAB_VERBS ("gemm,reduce")? Without it all are asked for.
bool asked_for(std::string_view verb) {
  const char* const verbs = std::getenv("FP16LAB_VERBS");
  return verbs == nullptr ||
         (',' + std::string(verbs) + ',').find(',' + std::string(verb) + ',') != std::string::npos;
}

TEST_P(BackendConformance, VerbCasesGiveTheBitsOfPlainLoops) {
  int cases = 0;
  for (const VerbCase& one : all_verb_cases()) {
    if (!asked_for(one.verb) || !runs_on(one, backend())) continue;
    ++cases;
    const Comparison compared =
        compare(expected_of(one, backend().tensor_core()),
                run_case(one, backend(), CaseSize::odd, seed,
                         [this](const Shape& shape, DType dtype) { return output(shape, dtype); }));
    expect_guards_untouched();
    EXPECT_TRUE(compared.same()) << key_of(one) << ": " << testing::PrintToString(compared.notes);
  }
  EXPECT_GT(cases, 0) << "FP16LAB_VERBS names no verb that this back end runs";
}

/// Products of FP16 by a row that sums in FP16; what is added to them is added in FP32. Convolutions are
/// asked in one layout of a row.
TEST(VerbCases, ProductsSummedInF16FollowTheRow) {
  for (const auto& [name, convolutions] : {std::pair{"volta", "f16 nchw"},
                                           {"ampere", "none"},
                                           {"hopper", "f16 nhwc"},
                                           {"blackwell-tcgen05", "none"}}) {
    const TensorCoreModel& row = tensor_core_model(name, DType::f16, DType::f16);
    const auto twin = make_twin_backend(row);
    for (const VerbCase& one : all_verb_cases()) {
      if (one.multiplies != DType::f16 || (one.verb != "gemm" && one.name != convolutions)) continue;
      const std::vector<Kept> expected = run_case(one, *twin, CaseSize::odd, seed);
      for (const int threads : {1, 2}) {
        const auto backend = make_emulated_backend(row, threads);
        const Comparison compared = compare(expected, run_case(one, *backend, CaseSize::odd, seed));
        EXPECT_TRUE(compared.same()) << name << ", " << key_of(one) << ": "
                                     << testing::PrintToString(compared.notes);
      }
    }
  }
}

}  // namespace
}  // namespace fp16lab::engine::test
