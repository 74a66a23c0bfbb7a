#include "engine/parallel/shards.hpp"

#include <fmt/format.h>

#include <bit>
#include <stdexcept>

namespace fp16lab::engine::parallel {

void check_shard_count(std::int64_t total) {
  if (total < 1 || total > most_shards || !std::has_single_bit(static_cast<std::uint64_t>(total)))
    throw std::invalid_argument(
        fmt::format("{} shards; expected a power of two from 1 to {}", total, most_shards));
}

Shards placed_shards(std::int64_t total, int ranks, int rank) {
  check_shard_count(total);
  if (ranks < 1 || ranks > total)
    throw std::invalid_argument(
        fmt::format("{} ranks for {} shards; expected at most as many ranks as shards", ranks, total));
  if (rank < 0 || rank >= ranks)
    throw std::invalid_argument(fmt::format("rank {} of {} ranks; expected 0 to {}", rank, ranks, ranks - 1));
  const std::int64_t first = total * rank / ranks;
  return {.total = total, .first = first, .local = total * (rank + 1) / ranks - first};
}

std::vector<Subtree> aligned_subtrees(std::int64_t first, std::int64_t count) {
  if (first < 0 || count < 1)
    throw std::invalid_argument(
        fmt::format("a run of {} shards from {}; expected one or more from 0", count, first));
  std::vector<Subtree> subtrees;
  for (std::int64_t begin = first; begin < first + count;) {
    int level = 0;  // the largest subtree that begins here and ends inside the run
    while ((begin >> level) % 2 == 0 && begin + (std::int64_t{2} << level) <= first + count) ++level;
    subtrees.push_back({level, begin >> level});
    begin += std::int64_t{1} << level;
  }
  return subtrees;
}

}  // namespace fp16lab::engine::parallel
