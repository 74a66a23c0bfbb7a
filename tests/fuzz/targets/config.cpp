// The configuration of a run (experiments/app/config/config.hpp): what is accepted must come back from its
// own text.
#include "experiments/app/config/config.hpp"

#include "experiments/app/exit_code.hpp"
#include "experiments/app/registry.hpp"
#include "tests/fuzz/targets/fuzz.hpp"

using namespace fp16lab;

/// Most modules of the engine are not linked: names in their stead. (resolve_run, which asks them for more,
/// works on the structure, not on the file.)
namespace fp16lab::engine::optim {
const OptimizerRow& row_of(Algorithm) {
  static constexpr OptimizerRow row{UpdateRule::sgd, Algorithm::sgd, 1, false, 1e-8, "L2 for", ~0U, nullptr};
  return row;
}
}  // namespace fp16lab::engine::optim

namespace fp16lab::experiments {
std::vector<std::string> dataset_names() { return {"fashion-mnist", "text"}; }
std::vector<std::string> policy_names() { return {"none", "fixed", "torch"}; }
std::vector<std::string> tensor_core_names() { return {"hopper", "ampere"}; }
std::vector<std::string> library_names() { return {"instruction", "onednn"}; }
}  // namespace fp16lab::experiments

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  fuzz::expect_clean<experiments::CommandError>("run.toml:", [&] {
    const experiments::RunConfig config = experiments::parse_config(fuzz::text_of({data, size}), "run.toml");
    const std::string text = experiments::to_toml(config);
    if (experiments::to_toml(experiments::parse_config(text, "resolved.toml")) != text)
      fuzz::refuse("the text of what was read reads otherwise", text);
  });
  return 0;
}
