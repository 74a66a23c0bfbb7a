// Exponent counts and digests: the numbers that a run reports about itself.
//
// Histograms go through CUB's DeviceHistogram, whose counters fit shared memory only up to 256 of them; ExponentHistogram
// has 255 bins and three more. So CUB counts the bins and zero, values that are not finite fall out of its range, and
// where the sum shows that there were any, one more pass tells infinities from NaN.
#include <algorithm>
#include <cstring>
#include <vector>

#include "engine/backend/cuda/backend_impl.hpp"
#include "engine/backend/cuda/device_errors.hpp"
#include "engine/backend/cuda/element_types.hpp"
#include "engine/backend/cuda/launch.hpp"
#include "engine/backend/cuda/packs.hpp"
#include "engine/backend/cuda/probe_counting.hpp"
#include "engine/backend/digest_functions.hpp"
#if !defined(FP16LAB_ON_HOST)
#include <thrust/iterator/transform_iterator.h>
#include <cub/device/device_histogram.cuh>
#endif

namespace fp16lab::engine::FP16LAB_MACHINE {

namespace {

constexpr std::uint32_t block_threads = 256;

// ---- histograms ----

constexpr int finite_slots = ExponentHistogram::bin_count + 1;
static_assert(finite_slots == 256 && DeviceHistogram::zero == 255, "what CUB counts in shared memory");
/// Elements that 32-bit counters are asked to count at once.
constexpr std::int64_t histogram_part = std::int64_t{1} << 30;

struct SlotOf {
  template <class T>
  __device__ std::uint16_t operator()(T x) const {
    return static_cast<std::uint16_t>(probe_slot(loaded(x)));
  }
};

/// counts[slot] = how many of x[0 .. count) are in slot < 256. Ordered on the stream.
template <class T>
void count_finite(Runtime& runtime, CudaBackend& backend, const T* x, std::int64_t count,
                  std::uint32_t* counts) {
#if defined(FP16LAB_ON_HOST)
  (void)backend;
  runtime.perform_on_host([=] {
    std::fill(counts, counts + finite_slots, 0u);
    for (std::int64_t i = 0; i < count; ++i)
      if (const int slot = SlotOf{}(x[i]); slot < finite_slots) ++counts[slot];
  });
#else
  const auto slots = thrust::make_transform_iterator(x, SlotOf{});
  const auto stream = static_cast<cudaStream_t>(runtime.stream());
  // Levels in FP32: the slot is (sample - 0) * 1, exact, where integers would divide.
  const auto histogram = [&](void* temporary, std::size_t& bytes) {
    const cudaError_t error = cub::DeviceHistogram::HistogramEven(
        temporary, bytes, slots, counts, finite_slots + 1, 0.0f, static_cast<float>(finite_slots),
        static_cast<int>(count), stream);
    if (error != cudaSuccess) throw DeviceFailure(std::string("histogram: ") + cudaGetErrorString(error));
  };
  std::size_t bytes = 0;
  histogram(nullptr, bytes);
  const Tensor temporary = backend.empty({static_cast<std::int64_t>(bytes)}, DType::u8);
  histogram(temporary.data(), bytes);
#endif
}

/// Adds finite[0 .. 256), the counts of x[0 .. count), to `counts` (and `also`), and what is missing from their sum after
/// a look at x. Blocks of 256 threads.
template <class T>
__global__ void add_counts(const T* x, std::int64_t count, const std::uint32_t* finite, std::uint64_t* counts,
                           std::uint64_t* also) {
  __shared__ std::uint32_t warp_sums[block_threads / 32];
  const std::uint32_t mine = finite[threadIdx.x];
  std::uint32_t sum = mine;
  for (unsigned distance = 16; distance > 0; distance /= 2)
    sum += __shfl_xor_sync(0xffffffffu, sum, distance);
  if (threadIdx.x % 32 == 0) warp_sums[threadIdx.x / 32] = sum;
  __syncthreads();
  std::int64_t missing = count;
  for (const std::uint32_t warp_sum : warp_sums) missing -= warp_sum;
  if (blockIdx.x == 0 && mine != 0) {
    add_to_count(&counts[threadIdx.x], mine);
    if (also != nullptr) add_to_count(&also[threadIdx.x], mine);
  }
  if (missing == 0) return;
  std::uint64_t infinite = 0, nan = 0;
  const std::int64_t stride = std::int64_t{gridDim.x} * blockDim.x;
  for (std::int64_t i = std::int64_t{blockIdx.x} * blockDim.x + threadIdx.x; i < count; i += stride) {
    const int slot = probe_slot(loaded(x[i]));
    infinite += slot == DeviceHistogram::infinite;
    nan += slot == DeviceHistogram::nan;
  }
  for (int kind = 0; kind < 2; ++kind) {
    const std::uint64_t found = kind == 0 ? infinite : nan;
    const int slot = kind == 0 ? DeviceHistogram::infinite : DeviceHistogram::nan;
    if (found == 0) continue;
    add_to_count(&counts[slot], found);
    if (also != nullptr) add_to_count(&also[slot], found);
  }
}

void add(const std::uint64_t (&counts)[DeviceHistogram::slots], ExponentHistogram& histogram) {
  for (std::size_t bin = 0; bin < histogram.bins.size(); ++bin) histogram.bins[bin] += counts[bin];
  histogram.zero += counts[DeviceHistogram::zero];
  histogram.infinite += counts[DeviceHistogram::infinite];
  histogram.nan += counts[DeviceHistogram::nan];
}

// ---- counts of many probes at once ----

constexpr int gather_batch = 480;
struct GatherTable {
  const ProbeCounts* from[gather_batch];
};

/// to[i] = *table.from[i], a block for each.
__global__ void gather_counts(GatherTable table, ProbeCounts* to) {
  const std::uint64_t* const from = table.from[blockIdx.x]->before;
  std::uint64_t* const out = to[blockIdx.x].before;
  for (std::uint32_t i = threadIdx.x; i < DeviceHistogram::slots; i += blockDim.x) {
    out[i] = from[i];
    to[blockIdx.x].after[i] = table.from[blockIdx.x]->after[i];
  }
}

// ---- digests ----

constexpr int digest_batch = 128;
constexpr std::uint64_t words_per_block = block_threads * 16;
struct DigestTable {
  const std::byte* bytes[digest_batch];
  std::uint64_t byte_count[digest_batch];
  std::uint64_t key[digest_batch];
  std::uint32_t first_block[digest_batch + 1];  ///< the last one used is the number of blocks
  int items;
};
static_assert(sizeof(DigestTable) + sizeof(void*) <= 4096, "kernel parameters");

/// The word at `position`, one of the last two, byte by byte; missing bytes are zero.
__device__ __forceinline__ std::uint64_t tail_word(const std::byte* bytes, std::uint64_t byte_count,
                                                   std::uint64_t position) {
  const std::uint64_t begin = position * sizeof(std::uint64_t);
  std::uint64_t word = 0;
  for (std::uint64_t i = begin; i < byte_count && i < begin + sizeof(std::uint64_t); ++i)
    word |= static_cast<std::uint64_t>(bytes[i]) << (8 * (i - begin));
  return word;
}

/// *sum += the digests of the table's items. Blocks of 256 threads. Tensors begin at multiples of 64 bytes.
__global__ void add_digests(DigestTable table, std::uint64_t* sum) {
  __shared__ std::uint64_t warp_sums[block_threads / 32];
  int item = 0, end = table.items;
  while (end - item > 1) {  // the last item whose first block is not after this one
    const int middle = (item + end) / 2;
    (table.first_block[middle] <= blockIdx.x ? item : end) = middle;
  }
  const std::uint64_t byte_count = table.byte_count[item], words = (byte_count + 7) / 8;
  const std::uint64_t first = (blockIdx.x - table.first_block[item]) * words_per_block;
  const std::uint64_t last = first + words_per_block < words ? first + words_per_block : words;
  const std::byte* const bytes = table.bytes[item];
  const std::uint64_t key = table.key[item];
  std::uint64_t mine = 0;
  for (std::uint64_t position = first + 2 * threadIdx.x; position < last; position += 2 * blockDim.x) {
    if ((position + 2) * sizeof(std::uint64_t) <= byte_count) {
      const auto pair = load_pack<2>(reinterpret_cast<const std::uint64_t*>(bytes) + position);
      mine += functions::digest_word(pair.values[0], position, key);
      mine += functions::digest_word(pair.values[1], position + 1, key);
    } else {
      for (std::uint64_t tail = position; tail < words; ++tail)
        mine += functions::digest_word(tail_word(bytes, byte_count, tail), tail, key);
    }
  }
  for (unsigned distance = 16; distance > 0; distance /= 2)
    mine += __shfl_xor_sync(0xffffffffu, mine, distance);
  if (threadIdx.x % 32 == 0) warp_sums[threadIdx.x / 32] = mine;
  __syncthreads();
  if (threadIdx.x != 0) return;
  std::uint64_t block_sum = 0;
  for (const std::uint64_t warp_sum : warp_sums) block_sum += warp_sum;
  add_to_count(sum, block_sum);
}

}  // namespace

void CudaBackend::count(const Tensor& x, std::uint64_t* counts, std::uint64_t* also) {
  Tensor holder;
  auto* const finite = scratch<std::uint32_t>(finite_slots, holder);
  with_element_type(x.dtype(), [&](auto tag) {
    using T = decltype(tag);
    for (std::int64_t begin = 0; begin < x.element_count(); begin += histogram_part) {
      const std::int64_t part = std::min(histogram_part, x.element_count() - begin);
      const T* const from = elements<const T>(x) + begin;
      count_finite(runtime_, *this, from, part, finite);
      launch(runtime_, "histogram, counts", &add_counts<T>,
             {.x = blocks_for(part, block_threads * 16, 512), .threads = block_threads}, from, part, finite,
             counts, also);
    }
  });
}

ProbeCounts* CudaBackend::counts_of(CastProbe* probe, std::int64_t elements) {
  if (probe == nullptr) return nullptr;
  probe->counted += static_cast<std::uint64_t>(elements);
  if (!probe->pending.defined()) {
    scratch<ProbeCounts>(1, probe->pending);
    runtime_.set_bytes(probe->pending.data(), 0, sizeof(ProbeCounts));
  }
  return reinterpret_cast<ProbeCounts*>(probe->pending.data());
}

void CudaBackend::histogram(const Tensor& x, ExponentHistogram& out) {
  checks::histogram(x);
  require_not_recording("histogram");
  Tensor holder;
  auto* const counts = scratch<std::uint64_t>(DeviceHistogram::slots, holder);
  runtime_.set_bytes(holder.data(), 0, holder.byte_count());
  count(x, counts, nullptr);
  std::uint64_t on_host[DeviceHistogram::slots];
  runtime_.copy_to_host(reinterpret_cast<std::byte*>(on_host), holder.data(), sizeof(on_host));
  add(on_host, out);
  raise_noted_fault();
}

void CudaBackend::histogram(const Tensor& x, CastProbe& probe) {
  checks::histogram(x);
  ProbeCounts* const counts = counts_of(&probe, x.element_count());
  count(x, counts->before, counts->after);
}

void CudaBackend::settle(std::span<CastProbe* const> probes) {
  require_not_recording("settle");
  // Every pending tensor once, in the order of their addresses.
  std::vector<const ProbeCounts*> pending;
  const auto counts_at = [](const CastProbe* probe) {
    return reinterpret_cast<const ProbeCounts*>(probe->pending.data());
  };
  for (const CastProbe* probe : probes)
    if (probe->pending.defined()) pending.push_back(counts_at(probe));
  if (pending.empty()) return;
  std::sort(pending.begin(), pending.end(), std::less<>());
  pending.erase(std::unique(pending.begin(), pending.end()), pending.end());

  Tensor holder;
  auto* const gathered = scratch<ProbeCounts>(static_cast<std::int64_t>(pending.size()), holder);
  for (std::size_t begin = 0; begin < pending.size(); begin += gather_batch) {
    const std::size_t batch = std::min<std::size_t>(gather_batch, pending.size() - begin);
    GatherTable table{};
    std::copy_n(pending.begin() + static_cast<std::ptrdiff_t>(begin), batch, table.from);
    launch(runtime_, "settle", &gather_counts, {.x = static_cast<std::uint32_t>(batch), .threads = 288},
           table, gathered + begin);
  }
  std::vector<ProbeCounts> counts(pending.size());
  runtime_.copy_to_host(reinterpret_cast<std::byte*>(counts.data()), holder.data(),
                        counts.size() * sizeof(ProbeCounts));
  for (CastProbe* const probe : probes) {
    if (!probe->pending.defined()) continue;
    const auto found = std::lower_bound(pending.begin(), pending.end(), counts_at(probe), std::less<>());
    const ProbeCounts& its = counts[static_cast<std::size_t>(found - pending.begin())];
    add(its.before, probe->before);
    add(its.after, probe->after);
    probe->pending = {};
  }
  raise_noted_fault();
}

std::uint64_t CudaBackend::digest(const Tensor& x, std::uint64_t key) {
  const DigestItem item{x, key};
  return digest(std::span(&item, 1));
}

std::uint64_t CudaBackend::digest(std::span<const DigestItem> items) {
  for (const DigestItem& item : items) checks::digest(item.tensor);
  require_not_recording("digest");
  Tensor holder;
  auto* const sum = scratch<std::uint64_t>(1, holder);
  runtime_.set_bytes(holder.data(), 0, holder.byte_count());
  DigestTable table{};
  const auto flush = [&] {
    if (table.items > 0)
      launch(runtime_, "digest", &add_digests,
             {.x = table.first_block[table.items], .threads = block_threads}, table, sum);
    table.items = 0;
  };
  for (const DigestItem& item : items) {
    const std::uint64_t bytes = item.tensor.byte_count();
    if (bytes == 0) continue;
    table.bytes[table.items] = item.tensor.data();
    table.byte_count[table.items] = bytes;
    table.key[table.items] = item.key;
    const std::uint64_t words = (bytes + 7) / 8, blocks = (words + words_per_block - 1) / words_per_block;
    table.first_block[table.items + 1] = table.first_block[table.items] + static_cast<std::uint32_t>(blocks);
    if (++table.items == digest_batch) flush();
  }
  flush();
  std::uint64_t result = 0;
  runtime_.copy_to_host(reinterpret_cast<std::byte*>(&result), holder.data(), sizeof(result));
  raise_noted_fault();
  return result;
}

}  // namespace fp16lab::engine::FP16LAB_MACHINE
