// fp16lab self-check: does this machine compute what the build that shipped computed?
#include <fmt/format.h>

#include <memory>

#include "experiments/app/commands.hpp"
#include "experiments/app/self_check.hpp"

namespace fp16lab::experiments {
namespace {

ExitCode run_self_check(const CommonOptions& common, bool digests) {
  const std::vector<CheckedDigest> computed = computed_digests(common.threads);
  if (digests) {
    for (const CheckedDigest& each : computed) fmt::print("{}\t{}\n", each.name, each.digest);
    return ExitCode::ok;
  }
  const SelfCheck check = compare_with_shipped(computed);
  fmt::print("{}", check.text);
  return check.differing == 0 ? ExitCode::ok : ExitCode::mismatch;
}

}  // namespace

Command self_check_command() {
  return {.name = "self-check",
          .description =
              "Compare this machine's bits with the released build: conversions of every format, a product "
              "of every row, three training steps",
          .examples = "fp16lab self-check\nfp16lab self-check --digests",
          .declare = [](Options& options) -> Command::Run {
            auto digests = std::make_shared<bool>(false);
            options.flag("--digests", *digests, "Print the digests, one a line, without comparing them");
            return [digests](const CommonOptions& common) { return run_self_check(common, *digests); };
          }};
}

}  // namespace fp16lab::experiments
