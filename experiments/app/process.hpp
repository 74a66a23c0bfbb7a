// How a program lives with its process: signals that end it, and how its threads wait.
#pragma once

#include <string_view>

namespace fp16lab::experiments {

/// From now on the first SIGINT or SIGTERM only sets a flag; the second one kills the process as usual.
void catch_interrupts();
bool interrupted();
/// What the first signal writes to stderr at once: the terminal may be in a state that a second one would
/// leave behind. The text must live on; empty: nothing.
void write_on_interrupt(std::string_view text);

/// Call first in main(). libgomp's idle threads spin for milliseconds before they sleep; on a machine that is
/// busy with anything else they hold the cores that the working threads need (seen: 20 x slower). Sleeping at
/// once costs a wake-up at every parallel loop (seen: 0.76 x the speed on an idle machine). This makes them
/// spin for microseconds. libgomp reads its environment when it is loaded, so the program replaces itself
/// once, with GOMP_SPINCOUNT set; it does nothing if the user chose OMP_WAIT_POLICY or GOMP_SPINCOUNT.
/// Results never depend on it.
void limit_openmp_spinning(char** argv);

}  // namespace fp16lab::experiments
