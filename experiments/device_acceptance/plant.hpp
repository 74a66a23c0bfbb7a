// Failures on purpose, in rehearsals: they show that the acceptance sees each kind, goes on behind it, and
// leaves a bundle.
#pragma once

#include <string>

namespace fp16lab::experiments::acceptance {

/// From now on a launch of a kernel of matrix products ("gemm") is, in this process:
///   bits    left out, so that what it should have written stays as it was
///   crash   a SIGSEGV
///   hang    the last thing that happens
///   poison  an error, and so is every launch of any kernel behind it
///   ""      as it is
/// std::invalid_argument for another kind.
void plant(const std::string& kind);

}  // namespace fp16lab::experiments::acceptance
