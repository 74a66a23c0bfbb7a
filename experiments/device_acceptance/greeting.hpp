// What a device is, said within seconds and before anything long.
#pragma once

#include "experiments/device_acceptance/section.hpp"

namespace fp16lab::experiments::acceptance {

/// Opens the device (in a rehearsal: the machine in its place) and prints each fact on stdout as soon as it
/// is known: name, compute capability, multiprocessors, memory, driver and runtime, the row of tensor cores
/// that it will be judged by, routes of products, tools. CommandError(unavailable), before anything is
/// printed, in one sentence where there is no device that could be used.
DeviceSide greet(const Settings& settings);

}  // namespace fp16lab::experiments::acceptance
