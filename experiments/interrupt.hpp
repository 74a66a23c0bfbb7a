// Ctrl-C and SIGTERM as a question that loops ask between steps.
#pragma once

namespace fp16lab::experiments {

/// From now on the first SIGINT or SIGTERM only sets a flag; the second one kills the process as usual.
void catch_interrupts();
bool interrupted();

}  // namespace fp16lab::experiments
