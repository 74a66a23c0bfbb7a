// What train --live asks for.
#pragma once

namespace fp16lab::experiments {

enum class LiveMode {
  off,
  automatic,  ///< a panel where stderr is a terminal, else the progress line
  always,     ///< a panel wherever stderr goes
};

/// Is there to be a panel?
bool wants_panel(LiveMode mode);

}  // namespace fp16lab::experiments
