// Sections in processes of their own.
//
// An error of a kernel can leave a device context that answers every later call with that error (CUDA calls
// it sticky), and only another process gets rid of it. So the command itself never opens the device: it
// starts itself once for each section (option --child FILE, which is not in the help), and again where a
// section that compares cases lost its process; the journal says with which case to go on.
#pragma once

#include <functional>
#include <string>

#include "experiments/device_acceptance/report.hpp"

namespace fp16lab::experiments::acceptance {

/// Lines that a child says to be shown at once as progress begin with it.
inline constexpr std::string_view progress_mark = "progress: ";

/// How a child's lines are passed on: those of its progress, and others.
struct Relay {
  std::function<void(const std::string&)> progress, line;
};

/// Opens the device in a child, which says what it finds through relay.line. CommandError(unavailable) in one
/// sentence where there is none, CommandError(run_failed) where the child ends otherwise.
DeviceSide open_device(const Settings& settings, const Relay& relay);

/// run_section in a child. A process that is killed, falls silent for settings.silence seconds or loses the
/// device is a failed case, and the section goes on behind it in another process; the third such case of a
/// verb takes the verb's other cases with it. Without cases it is a failed section with the process's last
/// words. Every failure leaves a bundle.
SectionReport run_in_child(const Section& section, const Settings& settings, const Relay& relay);

/// The failure in a bundle once more, in a child. mismatch where it is still there, ok where it is not,
/// run_failed where the process ends otherwise.
ExitCode reproduce_in_child(const Settings& settings, const std::filesystem::path& folder,
                            const Relay& relay);

/// What a child does: reads its task from the file, and writes the answer there.
ExitCode answer_child(const std::filesystem::path& file, const Settings& settings);

/// The arguments by which another program (a sanitizer, a profiler) starts this one so that it runs a section
/// in that very process: `file` gets the task.
std::vector<std::string> direct_arguments(const Settings& settings, const std::string& section,
                                          const std::filesystem::path& file);

}  // namespace fp16lab::experiments::acceptance
