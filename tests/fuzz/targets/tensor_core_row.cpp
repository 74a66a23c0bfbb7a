// A user's own row of the tensor-core table (experiments/app/commands/tensor_core_row.hpp): what is accepted
// must be a row that fused_dot_add takes.
#include "experiments/app/commands/tensor_core_row.hpp"

#include "experiments/app/exit_code.hpp"
#include "tests/fuzz/targets/fuzz.hpp"

using namespace fp16lab;

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  fuzz::expect_clean<experiments::CommandError>("row.toml:", [&] {
    const experiments::OwnRow own =
        experiments::parse_tensor_core_row(fuzz::text_of({data, size}), "row.toml");
    try {
      fused_dot_add(own.row, own.operands, {}, own.operands, {}, 0);
    } catch (const std::invalid_argument& error) {
      fuzz::refuse("an accepted row is none", error.what());
    }
  });
  return 0;
}
