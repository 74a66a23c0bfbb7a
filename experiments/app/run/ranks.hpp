// Ranks: the processes that mpirun has started to train one model together.
//
// Every rank reads configuration, data and checkpoint; the first one alone claims the folder, writes and
// speaks. Before the first step all ranks agree that they are ready, so that what only one of them lacks is
// one line of the first rank's and no hang.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <type_traits>
#include <vector>

#include "engine/autograd/tap.hpp"
#include "engine/parallel/communicator.hpp"
#include "engine/train/sharding.hpp"
#include "experiments/app/exit_code.hpp"

namespace fp16lab::experiments {

class Ranks {
 public:
  /// Joins the ranks that a launcher has started, if one has. CommandError(unavailable) without what that
  /// needs.
  Ranks();

  /// Has a launcher started several ranks that this process has not joined yet? It can join them once.
  static bool are_launched();

  /// Null: one process.
  engine::parallel::Communicator* communicator() { return communicator_.get(); }
  bool first() const { return communicator_ == nullptr || communicator_->rank() == 0; }

  /// What `body` gives on the first rank, and ok on the others: when any rank ends with another code, a
  /// launcher kills what still runs, and the first rank may not have printed its line yet. An error before
  /// `agree` ends all ranks: the first one throws that of the lowest rank that has one (CommandError). An
  /// error after `agree` ends all ranks at once, with this rank's line, but for RanksDiffer, which all ranks
  /// throw.
  template <class Body>
  ExitCode run(const Body& body) {
    if (communicator_ == nullptr) return body();
    try {
      const ExitCode code = body();
      return first() ? code : ExitCode::ok;
    } catch (const Ended&) {
      return ExitCode::ok;
    } catch (const engine::RanksDiffer& error) {
      return end_together(ExitCode::run_failed, error.what());
    } catch (const CommandError& error) {
      if (communicator_ == nullptr) throw;  // all know it
      return fail(error.code, error.what());
    } catch (const std::exception& error) {
      return fail(ExitCode::run_failed, reason_of(error));
    }
  }

  /// Waits until every rank is here, or has failed.
  void agree();

  /// The bytes that each rank has sent to others, by rank: collective. Empty for one process.
  std::vector<std::uint64_t> sent_bytes();

 private:
  struct Ended {};  ///< a rank has failed, and the first one tells
  ExitCode fail(ExitCode code, const std::string& what);
  /// For what all ranks know: the first one throws CommandError.
  ExitCode end_together(ExitCode code, const std::string& what);
  void exchange(ExitCode code, const std::string& what);

  std::unique_ptr<engine::parallel::Communicator> communicator_;
  bool agreed_ = false;
};

/// Asks of the trainer what `recorder` asks, so that all ranks do the same, and records nothing.
class SilentRank final : public engine::Tap {
 public:
  explicit SilentRank(engine::Tap& recorder) : recorder_(&recorder) {}
  bool wants(const engine::Site& site) override {
    return site.what != engine::What::checkpoint && recorder_->wants(site);
  }

 private:
  engine::Tap* recorder_;
};

}  // namespace fp16lab::experiments
