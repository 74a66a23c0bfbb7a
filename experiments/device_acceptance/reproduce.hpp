// A failed case once more, from its bundle.
#pragma once

#include "experiments/app/exit_code.hpp"
#include "experiments/device_acceptance/bundle.hpp"

namespace fp16lab::experiments::acceptance {

/// The same settings with the bundle's seed and size.
Settings settings_of_bundle(const Settings& settings, const Bundle& bundle);

/// Runs the bundle's case on the emulated back end and on the device that is here (in a rehearsal: the
/// PTX machine), launches one after the other, so that an error names its kernel. Prints of every output that
/// differs here or differed there: what the emulator gives against what the bundle expects, and what the
/// device gives against both. mismatch: the device differs from the emulator here, or fails; ok: it does not.
ExitCode reproduce(const Settings& settings, const std::filesystem::path& folder);

}  // namespace fp16lab::experiments::acceptance
