// Which MPI started this process, and its plugin.
#include <dlfcn.h>
#include <fmt/format.h>

#include <charconv>
#include <cstdlib>
#include <filesystem>
#include <optional>
#include <stdexcept>
#include <string>

#include "engine/parallel/communicator.hpp"
#include "engine/parallel/mpi/mpi_communicator.hpp"
#include "numerics/platform/own_place.hpp"

namespace fp16lab::engine::parallel {

namespace {

/// A plugin at another place, for tests and packagers.
constexpr char override_variable[] = "FP16LAB_MPI_PLUGIN";

struct Kind {
  const char* title;
  const char* file;
  const char* package;
};
Kind kind_of(Launch::Library library) {
  return library == Launch::Library::open_mpi
             ? Kind{"Open MPI", "libfp16lab_mpi_openmpi.so", "libopenmpi-dev"}
             : Kind{"MPICH", "libfp16lab_mpi_mpich.so", "libmpich-dev"};
}

std::optional<int> number_in(const char* variable, int least, const char* what) {
  const char* const text = std::getenv(variable);
  if (text == nullptr) return std::nullopt;
  const std::string_view digits = text;
  int number = 0;
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), number);
  if (error != std::errc{} || end != digits.data() + digits.size() || number < least)
    throw CommunicatorUnavailable(fmt::format("the launcher's {}={} is no {}", variable, text, what));
  return number;
}
std::optional<int> count_in(const char* variable) { return number_in(variable, 1, "number of ranks"); }
std::optional<int> rank_in(const char* variable) { return number_in(variable, 0, "rank"); }

std::filesystem::path plugin_path(const Kind& kind) {
  if (const char* const elsewhere = std::getenv(override_variable)) return elsewhere;
  return plugin_beside_us(kind.file);
}

const fp16lab_mpi_plugin& load(const Kind& kind) {
  const std::filesystem::path path = plugin_path(kind);
  if (path.empty())
    throw CommunicatorUnavailable(fmt::format(
        "{0} started this program, but there is no {1} beside it; install {2} (Debian), configure "
        "with -DFP16LAB_MPI=ON and build again",
        kind.title, kind.file, kind.package));
  // Global: components of Open MPI look for its symbols in the process. It stays for as long as the process.
  void* const library = dlopen(path.c_str(), RTLD_NOW | RTLD_GLOBAL);
  if (library == nullptr)
    throw CommunicatorUnavailable(fmt::format("{} cannot be loaded: {}", path.string(), dlerror()));
  using Entry = const fp16lab_mpi_plugin* (*)();
  const auto entry = reinterpret_cast<Entry>(dlsym(library, "fp16lab_mpi"));
  if (entry == nullptr)
    throw CommunicatorUnavailable(
        fmt::format("{} is no MPI plugin of fp16lab: it has no fp16lab_mpi", path.string()));
  if (std::string_view(entry()->seam) != FP16LAB_MPI_SEAM)
    throw CommunicatorUnavailable(
        fmt::format("{} is of another build than this program; build both again", path.string()));
  return *entry();
}

}  // namespace

Launch launch_of_environment() {
  if (const auto ranks = count_in("OMPI_COMM_WORLD_SIZE"))
    return {Launch::Library::open_mpi, *ranks, rank_in("OMPI_COMM_WORLD_RANK").value_or(0)};
  const auto ranks = count_in("PMI_SIZE"), rank = rank_in("PMI_RANK");
  if (ranks && rank) return {Launch::Library::mpich, *ranks, *rank};
  // srun --mpi=pmix, Open MPI's way in.
  if (const auto own = rank_in("PMIX_RANK"))
    if (const auto all = count_in("SLURM_STEP_NUM_TASKS")) return {Launch::Library::open_mpi, *all, *own};
  return {};
}

std::unique_ptr<Communicator> join_mpi(const JoinOptions& options) {
  if (!(options.time_limit > 0))
    throw std::invalid_argument(
        fmt::format("a time limit of {} s for messages; expected more than 0", options.time_limit));
  if (options.piece_bytes < 1 || options.piece_bytes > std::size_t{1} << 30)
    throw std::invalid_argument(
        fmt::format("messages in pieces of {} bytes; expected 1 to 2^30", options.piece_bytes));
  const Launch launch = launch_of_environment();
  if (launch.ranks == 1) return make_single_process();
  return make_mpi_communicator(load(kind_of(launch.library)), launch, options);
}

}  // namespace fp16lab::engine::parallel
