// A communicator whose bytes an MPI moves: which MPI started this process, and its plugin.
#include <dlfcn.h>
#include <errno.h>
#include <fmt/format.h>
#include <sched.h>
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <chrono>
#include <condition_variable>
#include <cstdlib>
#include <exception>
#include <filesystem>
#include <fstream>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "engine/parallel/communicator.hpp"
#include "engine/parallel/mpi/plugin.h"
#include "numerics/arithmetic/array_arithmetic.hpp"
#include "numerics/platform/own_place.hpp"
#include "numerics/text/message.hpp"

namespace fp16lab::engine::parallel {

namespace {

using Clock = std::chrono::steady_clock;

constexpr int exit_failed = 1;
/// How long this process looks for messages without rest; then it sleeps between looks.
constexpr std::chrono::milliseconds busy{50};
constexpr std::chrono::microseconds nap{100};
/// How often it asks whether the ranks that it waits for are alive.
constexpr std::chrono::milliseconds between_visits{100};
/// Time between a line and MPI_Abort: others print theirs (the rank that one waits for may itself wait for a
/// third one), and Hydra drops what it has not read yet.
constexpr std::chrono::milliseconds last_words{300};
/// How long MPI_Abort may take to end this process.
constexpr double abort_seconds = 5;

/// A deadline for calls that wait without us (MPI_Init, MPI_Finalize, MPI_Abort): calls `expired` on a thread
/// of its own if it lives for `seconds`.
class Deadline {
 public:
  Deadline(double seconds, std::function<void()> expired)
      : thread_([this, seconds, expired = std::move(expired)] {
          std::unique_lock lock(mutex_);
          if (!over_.wait_for(lock, std::chrono::duration<double>(seconds), [this] { return done_; }))
            expired();
        }) {}
  ~Deadline() {
    {
      const std::scoped_lock lock(mutex_);
      done_ = true;
    }
    over_.notify_all();
    thread_.join();
  }
  Deadline(const Deadline&) = delete;
  Deadline& operator=(const Deadline&) = delete;

 private:
  std::mutex mutex_;
  std::condition_variable over_;
  bool done_ = false;
  std::thread thread_;
};

void say_error(const std::string& line) { say("{}: error: {}", program_invocation_short_name, line); }

/// "Open MPI v4.1.4" of "Open MPI v4.1.4, package: ...", "MPICH 4.0.2" of "MPICH Version:      4.0.2\n...".
std::string short_name(const std::string& description) {
  constexpr std::string_view mpich = "MPICH Version:";
  if (description.starts_with(mpich)) {
    const std::size_t begin = description.find_first_not_of(" \t", mpich.size());
    return "MPICH " + description.substr(begin, description.find_first_of("\r\n\t ", begin) - begin);
  }
  return description.substr(0, description.find_first_of(",\n"));
}

template <class F>
void add_codes(const void* from, void* into, std::size_t count) {
  const std::span sums(static_cast<SmallFloat<F>*>(into), count);
  add<F>(std::span<const SmallFloat<F>>(sums), {static_cast<const SmallFloat<F>*>(from), count}, sums);
}
extern "C" void add_for_mpi(int type, const void* from, void* into, std::size_t count) {
  if (type == fp16lab_mpi_f16)
    add_codes<Binary16>(from, into, count);
  else
    add_codes<BrainFloat16>(from, into, count);
}

/// The place of a process: its number has a meaning only on the same host and in the same name space.
struct Seat {
  std::string space;
  pid_t process = 0;
};
std::string own_space(const std::string& host) {
  char name[128] = "";
  const ssize_t length = readlink("/proc/self/ns/pid", name, sizeof name - 1);
  return length > 0 ? host + " " + name : "";
}
/// A process that has ended stays for a while as a zombie, until its parent has waited for it.
bool has_ended(pid_t process) {
  if (kill(process, 0) != 0) return errno == ESRCH;
  std::ifstream file(fmt::format("/proc/{}/stat", process));
  std::string text;
  std::getline(file, text);
  const std::size_t name_end = text.rfind(')');
  return name_end != std::string::npos && name_end + 2 < text.size() && text[name_end + 2] == 'Z';
}

class MpiCommunicator final : public Communicator {
 public:
  MpiCommunicator(const fp16lab_mpi_plugin& plugin, int rank, int ranks, const JoinOptions& options)
      : Communicator(rank, std::vector<std::string>(static_cast<std::size_t>(ranks), plugin.host()),
                     short_name(plugin.library())),
        plugin_(&plugin),
        options_(options),
        seats_(static_cast<std::size_t>(ranks)),
        exceptions_(std::uncaught_exceptions()) {
    const std::string host = plugin.host();
    set_hosts(all_gather(host));
    std::vector<std::uint64_t> processes(seats_.size());
    processes[static_cast<std::size_t>(rank)] = static_cast<std::uint64_t>(getpid());
    max(processes);
    const std::vector<std::string> spaces = all_gather(own_space(host));
    for (std::size_t i = 0; i < seats_.size(); ++i) seats_[i] = {spaces[i], static_cast<pid_t>(processes[i])};
  }

  ~MpiCommunicator() override {
    if (std::uncaught_exceptions() > exceptions_) return;  // others may be anywhere: no goodbye
    set_place("the end");
    any(false);  // names the missing ranks; MPI_Finalize would wait forever
    const Deadline deadline(options_.time_limit, [this] { fail("MPI_Finalize did not return"); });
    plugin_->finish();
  }

  void set_time_limit(double seconds) override { options_.time_limit = seconds; }
  void library_sum(std::span<std::byte> values, DType dtype) override;
  void wait(Exchange& exchange) override;
  [[noreturn]] void abort(int exit_code) override;

  /// Ends all ranks with one line.
  [[noreturn]] void fail(const std::string& what) {
    say_error(fmt::format("rank {} of {} ({}), at {}: {}", rank(), size(), host_of(rank()), place(), what));
    std::this_thread::sleep_for(last_words);
    abort(exit_failed);
  }

 protected:
  std::unique_ptr<Exchange> begin(std::uint64_t ticket, int phase, std::span<const Outgoing> outgoing,
                                  std::span<const Incoming> incoming) override;

 private:
  class Messages;
  class Reduction;

  const std::string& host_of(int rank) const { return hosts()[static_cast<std::size_t>(rank)]; }
  /// "ranks 2 (host a) and 3 (host b)"
  std::string names_of(const std::vector<int>& ranks) const;
  /// The first of `ranks` whose process has ended; -1: none that is known of.
  int ended_among(const std::vector<int>& ranks) const;

  const fp16lab_mpi_plugin* plugin_;
  JoinOptions options_;
  std::vector<Seat> seats_;
  int exceptions_;
};

/// Messages from and to other ranks, in pieces.
class MpiCommunicator::Messages final : public Exchange {
 public:
  explicit Messages(MpiCommunicator& owner) : owner_(&owner) {}

  void receive(const Incoming& message, int tag) {
    for (std::size_t at = 0; at < message.bytes.size(); at += owner_->options_.piece_bytes) {
      const std::size_t size = std::min(owner_->options_.piece_bytes, message.bytes.size() - at);
      Piece& piece = pieces_.emplace_back(Piece{.peer = message.from, .receives = true, .size = size});
      check(owner_->plugin_->receive(message.bytes.data() + at, size, message.from, tag, &piece.request),
            message.from);
    }
  }
  void send(const Outgoing& message, int tag) {
    for (std::size_t at = 0; at < message.bytes.size(); at += owner_->options_.piece_bytes) {
      const std::size_t size = std::min(owner_->options_.piece_bytes, message.bytes.size() - at);
      Piece& piece = pieces_.emplace_back(Piece{.peer = message.to, .receives = false, .size = size});
      check(owner_->plugin_->send(message.bytes.data() + at, size, message.to, tag, &piece.request),
            message.to);
    }
  }

  bool done() override {
    // One after the other: a look at any request moves all of them on.
    while (!pieces_.empty() && is_done(pieces_.back())) pieces_.pop_back();
    return pieces_.empty();
  }

  /// The ranks from which something is missing, or that have not taken what was sent; ascending.
  std::vector<int> missing(bool receives) {
    std::erase_if(pieces_, [&](Piece& piece) { return is_done(piece); });
    std::vector<int> ranks;
    for (const Piece& piece : pieces_)
      if (piece.receives == receives) ranks.push_back(piece.peer);
    std::ranges::sort(ranks);
    ranks.erase(std::unique(ranks.begin(), ranks.end()), ranks.end());
    return ranks;
  }

 private:
  struct Piece {
    int peer = 0;
    bool receives = false;
    std::size_t size = 0;
    fp16lab_mpi_request* request = nullptr;
  };

  void check(const char* error, int peer) {
    if (error != nullptr)
      owner_->fail(fmt::format("a message between it and {} failed: {}", owner_->names_of({peer}), error));
  }
  bool is_done(Piece& piece) {
    int done = 0;
    std::size_t size = 0;
    check(owner_->plugin_->test(piece.request, &done, &size), piece.peer);
    if (done == 0) return false;
    if (piece.receives && size == SIZE_MAX)
      owner_->fail(fmt::format("{} sent more than the {} bytes that were expected",
                               owner_->names_of({piece.peer}), piece.size));
    if (piece.receives && size != piece.size)
      owner_->fail(fmt::format("{} sent {} bytes where {} were expected", owner_->names_of({piece.peer}),
                               size, piece.size));
    return true;
  }

  MpiCommunicator* owner_;
  std::vector<Piece> pieces_;
};

/// MPI_Iallreduce.
class MpiCommunicator::Reduction final : public Exchange {
 public:
  Reduction(MpiCommunicator& owner, std::span<std::byte> values, std::size_t count, int type)
      : owner_(&owner) {
    check(owner.plugin_->all_reduce(values.data(), count, type, &request_));
  }
  bool done() override {
    if (request_ == nullptr) return true;
    int done = 0;
    std::size_t size = 0;
    check(owner_->plugin_->test(request_, &done, &size));
    if (done != 0) request_ = nullptr;
    return request_ == nullptr;
  }

 private:
  void check(const char* error) {
    if (error != nullptr) owner_->fail(fmt::format("MPI_Allreduce failed: {}", error));
  }
  MpiCommunicator* owner_;
  fp16lab_mpi_request* request_ = nullptr;
};

std::unique_ptr<Exchange> MpiCommunicator::begin(std::uint64_t ticket, int phase,
                                                 std::span<const Outgoing> outgoing,
                                                 std::span<const Incoming> incoming) {
  // 2^15 tags are the least that MPI has; far fewer tickets are under way.
  const int tag = static_cast<int>(ticket % 8192 * 4) + phase;
  auto messages = std::make_unique<Messages>(*this);
  for (const Incoming& message : incoming) messages->receive(message, tag);
  for (const Outgoing& message : outgoing) messages->send(message, tag);
  return messages;
}

void MpiCommunicator::library_sum(std::span<std::byte> values, DType dtype) {
  const int type = dtype == DType::f32    ? fp16lab_mpi_f32
                   : dtype == DType::f16  ? fp16lab_mpi_f16
                   : dtype == DType::bf16 ? fp16lab_mpi_bf16
                                          : -1;
  if (type < 0)
    throw std::invalid_argument(
        fmt::format("MPI_Allreduce over values of {}; expected f32, f16 or bf16", name_of(dtype)));
  const std::size_t width = dtype == DType::f32 ? 4 : 2;
  const std::size_t step = std::max(options_.piece_bytes / width, std::size_t{1}) * width;
  for (std::size_t at = 0; at < values.size(); at += step) {
    const std::span<std::byte> piece = values.subspan(at, std::min(step, values.size() - at));
    Reduction reduction(*this, piece, piece.size() / width, type);
    wait(reduction);
  }
}

void MpiCommunicator::wait(Exchange& exchange) {
  const Clock::time_point begin = Clock::now();
  const auto limit = std::chrono::duration<double>(options_.time_limit);
  Clock::time_point visited = begin;
  for (int looks = 0; !exchange.done(); ++looks) {
    if (looks < 100) continue;
    const Clock::time_point now = Clock::now();
    auto* const messages = dynamic_cast<Messages*>(&exchange);
    if (now - visited > between_visits) {
      visited = now;
      const int ended = messages == nullptr ? -1 : ended_among(messages->missing(true));
      // Its last words may have come in between.
      if (ended >= 0 && !exchange.done() && std::ranges::count(messages->missing(true), ended) > 0)
        fail(fmt::format("{} has ended", names_of({ended})));
    }
    if (now - begin > limit) {
      if (messages == nullptr)
        fail(
            fmt::format("MPI_Allreduce did not return within {} s, and does not report which rank is missing",
                        options_.time_limit));
      const std::vector<int> silent = messages->missing(true);
      if (!silent.empty())
        fail(fmt::format("no message from {} within {} s", names_of(silent), options_.time_limit));
      if (exchange.done()) return;
      fail(fmt::format("{} took no message within {} s", names_of(messages->missing(false)),
                       options_.time_limit));
    }
    if (now - begin < busy)
      sched_yield();  // to a rank on the same core
    else
      std::this_thread::sleep_for(nap);
  }
}

void MpiCommunicator::abort(int exit_code) {
  std::fflush(nullptr);
  const Deadline deadline(abort_seconds, [exit_code] { std::_Exit(exit_code); });
  plugin_->abort(exit_code);
  std::_Exit(exit_code);
}

std::string MpiCommunicator::names_of(const std::vector<int>& ranks) const {
  constexpr std::size_t most = 8;
  std::string text = ranks.size() == 1 ? "rank " : "ranks ";
  for (std::size_t i = 0; i < std::min(ranks.size(), most); ++i)
    text += fmt::format("{}{} ({})", i == 0 ? "" : ", ", ranks[i], host_of(ranks[i]));
  return ranks.size() > most ? text + fmt::format(" and {} others", ranks.size() - most) : text;
}

int MpiCommunicator::ended_among(const std::vector<int>& ranks) const {
  const Seat& own = seats_[static_cast<std::size_t>(rank())];
  for (const int other : ranks) {
    const Seat& seat = seats_[static_cast<std::size_t>(other)];
    if (seat.process > 0 && !seat.space.empty() && seat.space == own.space && has_ended(seat.process))
      return other;
  }
  return -1;
}

/// Starts `plugin`, which has not been started; `launch` describes the launcher. CommunicatorUnavailable if
/// MPI does not start, or knows of another number of ranks.
std::unique_ptr<Communicator> make_mpi_communicator(const fp16lab_mpi_plugin& plugin, const Launch& launch,
                                                    const JoinOptions& options) {
  int rank = 0, ranks = 0;
  {
    const Deadline deadline(options.time_limit, [&] {
      say_error(fmt::format("rank {} of {}: MPI_Init waited {} s for the other ranks", launch.rank,
                            launch.ranks, options.time_limit));
      std::_Exit(exit_failed);
    });
    if (const char* const error = plugin.start(&add_for_mpi, &rank, &ranks))
      throw CommunicatorUnavailable(fmt::format("MPI does not start: {}", error));
  }
  if (ranks != launch.ranks)
    throw CommunicatorUnavailable(
        fmt::format("{} ranks were started, but {} sees {}: the launcher is another one's", launch.ranks,
                    short_name(plugin.library()), ranks));
  return std::make_unique<MpiCommunicator>(plugin, rank, ranks, options);
}

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
    throw CommunicatorUnavailable(
        fmt::format("{0} started this program, but there is no {1} next to it; install {2} (Debian), "
                    "configure with -DFP16LAB_MPI=ON and build again",
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
