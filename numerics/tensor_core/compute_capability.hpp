// Which row of the tensor-core table a GPU follows.
#pragma once

#include <string_view>

namespace fp16lab {

/// The generation whose rows describe mma.sync and wmma of a compute capability: "volta" for 7.0, "turing" for 7.5,
/// "ampere" for 8.0 to 8.7, "ada" for 8.9, "hopper" for 9.0, "blackwell" for 10.0 to 12.1. Empty where the table has none.
std::string_view tensor_core_of(int capability_major, int capability_minor);

}  // namespace fp16lab
