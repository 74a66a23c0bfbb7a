// How a program lives with its process: signals that end it.
#pragma once

#include <string_view>

namespace fp16lab::experiments {

/// From now on the first SIGINT and the first SIGTERM only set a flag; the second one kills the process as
/// usual. SIGTERM again within two seconds is still the first: schedulers send it to a job's script, which
/// passes it on, and to all of its processes.
void catch_interrupts();
bool interrupted();
/// What the first signal writes to stderr at once: the terminal may be in a state that a second one would
/// leave behind. The text must live on; empty: nothing.
void write_on_interrupt(std::string_view text);

}  // namespace fp16lab::experiments
