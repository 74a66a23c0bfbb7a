// What this program computes on this machine, as digests: the same on every machine, by the bit rules.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace fp16lab::experiments {

/// The first 16 hex digits of the SHA-256 of all result bits.
struct CheckedDigest {
  std::string name;  ///< "conversions f16", "products hopper e4m3 f32", "training f16"
  std::string digest;
};

/// Conversions of every format narrower than FP32 (each rounding, from FP32 and FP64, and back), a product of
/// every row and operand format, and the state_hash of three training steps in FP32 and at O1 in FP16 and BF16.
/// Less than a second; `threads` changes no digest.
std::vector<CheckedDigest> computed_digests(int threads);

/// What the build that shipped computed, by name. Empty: it did not compute that.
std::string_view shipped_digest(std::string_view name);

/// A line for each digest that is not the shipped one, then a line for each kind: how many are.
struct SelfCheck {
  std::string text;
  int differing = 0;
};
SelfCheck compare_with_shipped(const std::vector<CheckedDigest>& computed);

}  // namespace fp16lab::experiments
