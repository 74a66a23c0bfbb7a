// Programs as ranks of MPI: mpirun and mpiexec, where they are installed and the build has their plugin.
// fp16lab_launches_ranks (scripts/mpi.cmake) gives a test the launchers.
#pragma once

#include <gtest/gtest.h>

#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "tests/support/spawn.hpp"

namespace fp16lab::testing_support {

enum class Mpi { open_mpi, mpich };

/// The launcher's path; empty: not here.
inline std::string launcher_of(Mpi mpi) {
  return mpi == Mpi::open_mpi ? FP16LAB_LAUNCHER_OPENMPI : FP16LAB_LAUNCHER_MPICH;
}

/// `ranks` ranks, more than this machine has cores if need be, each with `environment`; ended after 300 s.
/// The exit code is the launcher's.
inline Spawned start_ranks(Mpi mpi, int ranks, const std::string& program,
                           const std::vector<std::string>& arguments, const std::filesystem::path& folder,
                           const std::map<std::string, std::string>& environment = {}) {
  std::vector<std::string> line{"300", launcher_of(mpi)};
  if (mpi == Mpi::open_mpi) {
    for (const char* const option :
         {"--oversubscribe", "--bind-to", "none", "--mca", "pml", "ob1", "--mca", "btl", "vader,self"})
      line.emplace_back(option);
    for (const auto& [name, value] : environment) line.insert(line.end(), {"-x", name + "=" + value});
  } else {
    for (const auto& [name, value] : environment) line.insert(line.end(), {"-genv", name, value});
  }
  line.insert(line.end(), {"-np", std::to_string(ranks), program});
  line.insert(line.end(), arguments.begin(), arguments.end());
  return {"/usr/bin/timeout",
          line,
          folder,
          {{"OMPI_ALLOW_RUN_AS_ROOT", "1"}, {"OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1"}}};
}
inline Finished run_ranks(Mpi mpi, int ranks, const std::string& program,
                          const std::vector<std::string>& arguments, const std::filesystem::path& folder,
                          const std::map<std::string, std::string>& environment = {}) {
  return start_ranks(mpi, ranks, program, arguments, folder, environment).wait();
}

/// The environment of ranks whose network misbehaves (tests/engine/parallel/mpi_shim.cpp).
inline std::map<std::string, std::string> misbehaving(Mpi mpi, const std::string& does) {
  return {{"LD_PRELOAD", mpi == Mpi::open_mpi ? FP16LAB_SHIM_OPENMPI : FP16LAB_SHIM_MPICH},
          {"FP16LAB_SHIM", does}};
}

}  // namespace fp16lab::testing_support

/// Ends the test as skipped where there is no such MPI.
#define FP16LAB_NEEDS_RANKS(mpi)                                                              \
  if (::fp16lab::testing_support::launcher_of(mpi).empty())                                   \
  GTEST_SKIP() << "built without this MPI, or its launcher is not here (Debian: openmpi-bin " \
                  "libopenmpi-dev, mpich libmpich-dev; -DFP16LAB_MPI=ON)"
