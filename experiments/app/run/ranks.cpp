#include "experiments/app/run/ranks.hpp"

#include <errno.h>
#include <fmt/format.h>

#include <charconv>
#include <cstdio>
#include <vector>

#include "numerics/text/message.hpp"

namespace fp16lab::experiments {

namespace parallel = engine::parallel;

namespace {
bool have_joined = false;
}

bool Ranks::are_launched() {
  try {
    return !have_joined && parallel::launch_of_environment().ranks > 1;
  } catch (const parallel::CommunicatorUnavailable& error) {
    throw CommandError(ExitCode::unavailable, error.what());
  }
}

Ranks::Ranks() {
  if (!are_launched()) return;
  have_joined = true;
  try {
    communicator_ = parallel::join_mpi();
  } catch (const parallel::CommunicatorUnavailable& error) {
    throw CommandError(ExitCode::unavailable, error.what());
  }
}

void Ranks::agree() {
  if (communicator_ == nullptr) return;
  agreed_ = true;
  exchange(ExitCode::ok, "");
}

std::vector<std::uint64_t> Ranks::sent_bytes() {
  if (communicator_ == nullptr) return {};
  std::vector<std::uint64_t> bytes(communicator_->hosts().size());
  bytes[static_cast<std::size_t>(communicator_->rank())] = communicator_->sent_bytes();
  communicator_->set_place("the end");
  communicator_->sum(bytes);
  return bytes;
}

ExitCode Ranks::fail(ExitCode code, const std::string& what) {
  if (agreed_) {
    if (!what.empty())
      say("{}: error: rank {} on {}, {}: {}", program_invocation_short_name, communicator_->rank(),
          communicator_->hosts()[static_cast<std::size_t>(communicator_->rank())], communicator_->place(),
          what);
    communicator_->abort(static_cast<int>(code));
  }
  agreed_ = true;
  try {
    exchange(code, what);
  } catch (const Ended&) {
    return ExitCode::ok;
  }
  return code;
}

/// All ranks' errors, the lowest rank's first.
void Ranks::exchange(ExitCode code, const std::string& what) {
  communicator_->set_place("before the first step");
  const std::vector<std::string> all = communicator_->all_gather(
      code == ExitCode::ok ? std::string() : fmt::format("{} {}", static_cast<int>(code), what));
  communicator_->set_place("training");
  for (std::size_t rank = 0; rank < all.size(); ++rank) {
    if (all[rank].empty()) continue;
    int number = 0;
    const char* const end = all[rank].data() + all[rank].size();
    const char* const text = std::from_chars(all[rank].data(), end, number).ptr;
    std::string message(text < end ? text + 1 : text, end);
    if (rank > 0) message = fmt::format("rank {} on {}: {}", rank, communicator_->hosts()[rank], message);
    end_together(static_cast<ExitCode>(number), message);
    throw Ended{};
  }
}

ExitCode Ranks::end_together(ExitCode code, const std::string& what) {
  const bool tells = first();
  communicator_ = nullptr;  // all ranks say goodbye; an exception would leave without
  if (tells) throw CommandError(code, what);
  return ExitCode::ok;
}

}  // namespace fp16lab::experiments
