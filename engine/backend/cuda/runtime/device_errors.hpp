// Errors of devices.
#pragma once

#include <stdexcept>

namespace fp16lab::engine {

/// There is no device that this run could use: no driver, no GPU, too old a GPU, the wrong tensor-core row.
/// One line that names reason and remedy.
class DeviceUnavailable : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

/// A device that was there failed: a kernel's error, memory that ran out.
class DeviceFailure : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

}  // namespace fp16lab::engine
