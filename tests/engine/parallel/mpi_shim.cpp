// A network that misbehaves, preloaded before MPI (its profiling interface): FP16LAB_SHIM is
//   late            every send begins some time later, and requests look unfinished for some looks
//   truncate R N    the N-th send (from 1) of at least 1000 bytes of rank R loses its last byte
//   drop R N        that send never arrives
//   flip R N        that send arrives with one other bit
#include <mpi.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>

namespace {

struct Settings {
  char does[16] = "";
  int rank = -1, number = 0;
  Settings() {
    const char* const text = std::getenv("FP16LAB_SHIM");
    if (text != nullptr) std::sscanf(text, "%15s %d %d", does, &rank, &number);
  }
};
const Settings& settings() {
  static const Settings once;
  return once;
}
bool does(const char* what) { return std::strcmp(settings().does, what) == 0; }

unsigned next_random() {
  static unsigned state = static_cast<unsigned>(getpid());
  state = state * 1664525U + 1013904223U;
  return state >> 16;
}

}  // namespace

extern "C" int MPI_Isend(const void* bytes, int count, MPI_Datatype type, int to, int tag, MPI_Comm comm,
                         MPI_Request* request) {
  if (does("late")) usleep(next_random() % 1500);
  int rank = 0;
  MPI_Comm_rank(comm, &rank);
  static int sends = 0;
  if (rank == settings().rank && count >= 1000 && ++sends == settings().number) {
    if (does("truncate")) --count;
    if (does("drop")) to = MPI_PROC_NULL;
    if (does("flip")) {
      static std::unique_ptr<char[]> other;
      other = std::make_unique<char[]>(static_cast<std::size_t>(count));
      std::memcpy(other.get(), bytes, static_cast<std::size_t>(count));
      other[0] ^= 1;
      return PMPI_Isend(other.get(), count, type, to, tag, comm, request);
    }
  }
  return PMPI_Isend(bytes, count, type, to, tag, comm, request);
}

extern "C" int MPI_Test(MPI_Request* request, int* flag, MPI_Status* status) {
  if (does("late") && next_random() % 4 != 0) {
    *flag = 0;
    return MPI_SUCCESS;
  }
  return PMPI_Test(request, flag, status);
}
