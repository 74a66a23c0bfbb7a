#include "numerics/tensor_core/compute_capability.hpp"

namespace fp16lab {

std::string_view tensor_core_of(int capability_major, int capability_minor) {
  switch (capability_major) {
    case 7:
      return capability_minor >= 5 ? "turing" : "volta";
    case 8:
      return capability_minor == 9 ? "ada" : "ampere";
    case 9:
      return "hopper";
    case 10:
    case 11:
    case 12:
      return "blackwell";
    default:
      return "";
  }
}

}  // namespace fp16lab
