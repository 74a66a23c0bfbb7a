// Communicator: what moves bytes between the ranks (processes) of a run. It computes nothing but sums and
// maxima of integers, which have no order.
//
// Every verb is collective: all ranks call the same verbs with fitting sizes in the same order, from one
// thread. Messages go point to point, so that a receiver knows the length and the sender of each: a message
// of another length is an error that names both ranks, and a wait that reaches the time limit names the ranks
// that sent nothing. After either the run cannot go on. An MPI communicator then prints one line (this rank,
// its host, the place that set_place named last) on stderr and calls MPI_Abort, which ends all ranks; that of
// one process waits for no other.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

#include "numerics/formats/dtype.hpp"

namespace fp16lab::engine::parallel {

/// There is no communicator of the wanted kind: no plugin, or it does not fit. `what()` is one line.
class CommunicatorUnavailable : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

/// A message that did not come as it has to: its length, its sender. `what()` is one line.
class CommunicationError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

/// Messages under way.
class Exchange {
 public:
  virtual ~Exchange() = default;
  /// Have all of them arrived, and been sent? Never waits; moves on what has come so far.
  virtual bool done() = 0;
};

class Communicator {
 public:
  /// Bytes to, or room for the bytes from, another rank. They stay where they are until the exchange is done.
  struct Outgoing {
    int to = 0;
    std::span<const std::byte> bytes;
  };
  struct Incoming {
    int from = 0;
    std::span<std::byte> bytes;
  };

  virtual ~Communicator() = default;
  Communicator(const Communicator&) = delete;
  Communicator& operator=(const Communicator&) = delete;

  int rank() const { return rank_; }
  int size() const { return static_cast<int>(hosts_.size()); }
  /// The name of every rank's host, by rank.
  std::span<const std::string> hosts() const { return hosts_; }
  /// What moves the bytes: "one process", "Open MPI v4.1.4", "MPICH 4.0.2".
  const std::string& library() const { return library_; }

  /// Where the run is, for messages: "step 12, gradients".
  void set_place(std::string_view place) { place_ = place; }
  const std::string& place() const { return place_; }

  /// Seconds (> 0) that a verb waits for other ranks from now on; no effect without other ranks.
  virtual void set_time_limit(double) {}

  /// Bytes that this rank has sent to others so far.
  std::uint64_t sent_bytes() const { return sent_bytes_; }

  // ---- verbs that return when they are done

  /// send[r] goes to rank r, receive[r] comes from it: one for every rank, this one too (it is copied). Sizes
  /// may differ from pair to pair; receive[r] of rank s is as long as send[s] of rank r. Empty ones are not
  /// sent. Any length: above 2^30 bytes a message travels in pieces. send and receive do not overlap.
  void all_to_all(std::span<const std::span<const std::byte>> send,
                  std::span<const std::span<std::byte>> receive);

  /// `bytes` is cut at ends[0], ends[1], ..., ends[size() - 1] = bytes.size(), ascending: piece r is what
  /// rank r has before, and what every rank has after.
  void all_gather(std::span<std::byte> bytes, std::span<const std::size_t> ends);
  /// A text of every rank, by rank: any lengths, known only to the rank that has it.
  std::vector<std::string> all_gather(std::string_view own);

  /// values[i] becomes the sum over ranks, modulo 2^64: exact, the same on all of them.
  void sum(std::span<std::uint64_t> values);
  /// values[i] becomes the largest of the ranks'.
  void max(std::span<std::uint64_t> values);
  /// Is it true of any rank?
  bool any(bool mine);

  /// Every rank gets what `from` has in `bytes`; the length is the same everywhere.
  void broadcast(std::span<std::byte> bytes, int from);

  /// MPI_Allreduce itself, which no promise covers: adds `values` (codes of f32, f16 or bf16) over the ranks
  /// in an order that is the library's. std::invalid_argument for another dtype.
  virtual void library_sum(std::span<std::byte> values, DType dtype) = 0;

  // ---- verbs under way

  /// A number for the exchange that begins now, the same on every rank that counts the same verbs: exchanges
  /// with different numbers never mix, in whichever order they start.
  std::uint64_t next_ticket() { return tickets_++; }

  /// Starts `phase` (0 to 3) of `ticket`. At most one message to and one from each rank; none to or from this
  /// one; empty ones are left out on both sides. The exchange must be done before it is destroyed.
  std::unique_ptr<Exchange> start(std::uint64_t ticket, int phase, std::span<const Outgoing> outgoing,
                                  std::span<const Incoming> incoming);
  /// Waits until it is done, or the time limit is reached.
  virtual void wait(Exchange& exchange) = 0;

  /// Ends all ranks at once with `exit_code`, without waiting for any of them: for an error that only this
  /// rank has. The caller has printed why.
  [[noreturn]] virtual void abort(int exit_code) = 0;

 protected:
  Communicator(int rank, std::vector<std::string> hosts, std::string library);
  /// What `start` does, after its checks.
  virtual std::unique_ptr<Exchange> begin(std::uint64_t ticket, int phase, std::span<const Outgoing> outgoing,
                                          std::span<const Incoming> incoming) = 0;
  void set_hosts(std::vector<std::string> hosts) { hosts_ = std::move(hosts); }

 private:
  template <class Combine>
  void reduce(std::span<std::uint64_t> values, const Combine& combine);

  int rank_ = 0;
  std::vector<std::string> hosts_;
  std::string library_, place_ = "the start";
  std::uint64_t tickets_ = 0, sent_bytes_ = 0;
};

/// One rank. It sends nothing, and its `abort` ends the process.
std::unique_ptr<Communicator> make_single_process();

struct JoinOptions {
  /// Seconds that a verb waits for other ranks before the run ends (> 0), until set_time_limit.
  double time_limit = 600;
  /// Bytes above which a message travels in pieces, in [1, 2^30].
  std::size_t piece_bytes = std::size_t{1} << 30;
};

/// How this process was started: by which MPI's launcher, among how many ranks, and as which of them.
struct Launch {
  enum class Library { none, open_mpi, mpich } library = Library::none;
  int ranks = 1;
  int rank = 0;
};
/// What the launcher wrote into the environment: OMPI_COMM_WORLD_SIZE and _RANK (mpirun of Open MPI) or
/// PMI_SIZE and PMI_RANK (Hydra's mpiexec, srun --mpi=pmi2). CommunicatorUnavailable if a number is none.
Launch launch_of_environment();

/// The ranks that the launcher started, through the plugin of its MPI: libfp16lab_mpi_openmpi.so or
/// libfp16lab_mpi_mpich.so beside this program, or FP16LAB_MPI_PLUGIN. One process without a launcher. Once a
/// process: MPI cannot be joined again. The destructor of the communicator calls MPI_Finalize, unless that is
/// for an exception: then this process just ends, and the launcher ends the others. CommunicatorUnavailable
/// where there is no plugin, or it is of another build, with the package and the CMake option;
/// std::invalid_argument for options out of their ranges.
std::unique_ptr<Communicator> join_mpi(const JoinOptions& options = {});

}  // namespace fp16lab::engine::parallel
