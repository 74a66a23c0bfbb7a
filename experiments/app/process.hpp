// How a program lives with its process: descriptors, and signals that end it or do not.
//
//   signal            every program                  a run or a sweep, once catch_interrupts() was called
//   SIGPIPE           write gives EPIPE              the same: a message is lost, and nothing else; data on stdout
//                                                    end the command with exit 1, a run when it has ended,
//                                                    and one that is interrupted with 130 all the same
//   SIGXFSZ           write gives EFBIG              the same: one line and exit 1, and what was saved stays
//   SIGINT, SIGTERM   end it                         the first one: the step is finished, the state saved, exit
//                                                    130; the second one of the same kind ends it
//   SIGHUP, SIGXCPU   end it                         as the first of those, however often it comes
//   SIGTTOU           stop it, by data on stdout     messages and results stop nothing (write_text)
// A signal that was ignored when the program was started (nohup) stays ignored. A child begins with the signals
// that the program itself began with, but that SIGTERM ends it (child_process.hpp): a caught signal is no
// longer caught after exec, which is why none is ignored here.
#pragma once

#include <string_view>

namespace fp16lab::experiments {

/// The first thing that a program does: open_standard_descriptors(), SIGPIPE and SIGXFSZ.
void prepare_process();

/// From now on SIGINT, SIGTERM, SIGHUP and SIGXCPU only set a flag; a second SIGINT or SIGTERM kills the
/// process as usual. SIGTERM again within two seconds is still the first: schedulers send it to a job's script,
/// which passes it on, and to all of its processes. A terminal that goes away sends SIGHUP more than once, and
/// SIGXCPU comes again every second from the soft limit to the hard one, so these never kill. One that was
/// ignored stays ignored.
void catch_interrupts();
bool interrupted();
/// What the first signal writes to stderr at once: the terminal may be in a state that a second one would
/// keep. The text must live on; empty: nothing.
void write_on_interrupt(std::string_view text);

/// What a run or a sweep says on stdout once its results are saved: nothing if descriptor 1 was closed from the
/// start. Where it cannot be written, work goes on, and the program ends with exit 1 (guarded) by result_error.
void print_result(std::string_view text) noexcept;
/// The errno of the first print_result that failed; 0: none did.
int result_error() noexcept;

}  // namespace fp16lab::experiments
