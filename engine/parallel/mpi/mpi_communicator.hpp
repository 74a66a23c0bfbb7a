// A communicator whose bytes an MPI moves. Used by join.cpp only.
#pragma once

#include <memory>

#include "engine/parallel/communicator.hpp"
#include "engine/parallel/mpi/plugin.h"

namespace fp16lab::engine::parallel {

/// Starts `plugin`, which has not been started; `launch` is what the launcher said.
/// CommunicatorUnavailable if MPI does not start, or knows of another number of ranks.
std::unique_ptr<Communicator> make_mpi_communicator(const fp16lab_mpi_plugin& plugin, const Launch& launch,
                                                    const JoinOptions& options);

}  // namespace fp16lab::engine::parallel
