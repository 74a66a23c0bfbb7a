// Which stack is in use, for AddressSanitizer: the host machine's fibers have stacks of their own.
#pragma once

#include <cstddef>

#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/common_interface_defs.h>
#endif

namespace fp16lab::engine::cpu_simt {

struct Stack {
  const void* bottom = nullptr;
  std::size_t bytes = 0;
};

/// AddressSanitizer must know which stack is in use: leave(), the switch, and on the other side arrive(),
/// which may tell the stack that was left. Without the sanitizer nothing at all.
class StackSwitch {
 public:
  void leave([[maybe_unused]] const Stack& target) {
#if defined(__SANITIZE_ADDRESS__)
    __sanitizer_start_switch_fiber(&own_, target.bottom, target.bytes);
#endif
  }
  void arrive([[maybe_unused]] Stack* left = nullptr) {
#if defined(__SANITIZE_ADDRESS__)
    Stack other;
    __sanitizer_finish_switch_fiber(own_, &other.bottom, &other.bytes);
    if (left != nullptr) *left = other;
#endif
  }

 private:
  [[maybe_unused]] void* own_ = nullptr;
};

/// As StackSwitch::leave, from a stack that is not used again.
inline void leave_for_good([[maybe_unused]] const Stack& target) {
#if defined(__SANITIZE_ADDRESS__)
  __sanitizer_start_switch_fiber(nullptr, target.bottom, target.bytes);
#endif
}

}  // namespace fp16lab::engine::cpu_simt
