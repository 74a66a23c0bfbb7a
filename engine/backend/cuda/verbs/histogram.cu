// Exponent counts and digests: the numbers that a run reports about itself.
#include <algorithm>
#include <cstring>
#include <stdexcept>
#include <string>
#include <vector>

#include "engine/backend/cuda/runtime/device_errors.hpp"
#include "engine/backend/cuda/runtime/element_types.hpp"
#include "engine/backend/cuda/runtime/launch.hpp"
#include "engine/backend/cuda/runtime/packs.hpp"
#include "engine/backend/cuda/stream_histogram.hpp"
#include "engine/backend/cuda/verbs/backend_impl.hpp"
#include "engine/backend/cuda/verbs/probe_counting.hpp"
#include "engine/backend/cuda/verbs/thrust_histogram.hpp"
#include "engine/backend/digest_functions.hpp"

namespace fp16lab::engine::gpu {

namespace {

constexpr std::uint32_t block_threads = 256;

// ---- histograms ----

/// Elements that a block's 32-bit counters may see, whatever the grid.
constexpr std::int64_t histogram_part = std::int64_t{1} << 31;

/// Adds x[0 .. count) to `counts`, and to `also` where it is not null. x is 16-byte aligned.
template <class T>
__global__ void count_values(const T* x, std::int64_t count, std::uint64_t* counts, std::uint64_t* also) {
  constexpr int width = widest_pack<T>;
  __shared__ std::uint32_t shared[DeviceHistogram::slots];
  BlockHistogram histogram(shared);
  histogram.clear();
  __syncthreads();
  const std::int64_t first = std::int64_t{blockIdx.x} * blockDim.x + threadIdx.x;
  const std::int64_t stride = std::int64_t{gridDim.x} * blockDim.x;
  const std::int64_t packs = count / width;
  for (std::int64_t i = first; i < packs; i += stride) {
    const Pack<T, width> pack = load_pack<width>(x + i * width);
    for (int j = 0; j < width; ++j) histogram.count(loaded(pack.values[j]));
  }
  // Fewer elements than a pack are left: no thread has two.
  if (const std::int64_t i = packs * width + first; i < count) histogram.count(loaded(x[i]));
  histogram.gather();
  __syncthreads();
  histogram.add_to(counts);
  if (also != nullptr) histogram.add_to(also);
}

void add(const std::uint64_t (&counts)[DeviceHistogram::slots], ExponentHistogram& histogram) {
  ExponentHistogram part;
  for (std::size_t bin = 0; bin < part.bins.size(); ++bin) part.bins[bin] = counts[bin];
  part.zero = counts[DeviceHistogram::zero];
  part.infinite = counts[DeviceHistogram::infinite];
  part.nan = counts[DeviceHistogram::nan];
  if (counts[DeviceHistogram::greatest] != 0) {
    part.greatest = static_cast<std::uint32_t>(counts[DeviceHistogram::greatest]);
    part.smallest = Binary32::infinity - static_cast<std::uint32_t>(counts[DeviceHistogram::smallest]);
  }
  histogram += part;
}

// ---- counts of many probes at once ----

constexpr int gather_batch = 480;
struct GatherTable {
  const ProbeCounts* from[gather_batch];
};

constexpr std::uint32_t gather_threads = 288;  // whole warps, a thread for each of the 284 slots

/// to[i] = *table.from[i], a block for each.
__global__ void __launch_bounds__(gather_threads) gather_counts(GatherTable table, ProbeCounts* to) {
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
  // A block pays for its slots once: so many as are resident on the device at a time, and no more.
  const std::int64_t resident = std::int64_t{8} * runtime_.device().multiprocessors;
  with_element_type(x.dtype(), [&](auto tag) {
    using T = decltype(tag);
    for (std::int64_t begin = 0; begin < x.element_count(); begin += histogram_part) {
      const std::int64_t part = std::min(histogram_part, x.element_count() - begin);
      launch(runtime_, "histogram", &count_values<T>,
             {.x = blocks_for(part, block_threads * widest_pack<T>, resident), .threads = block_threads},
             elements<const T>(x) + begin, part, counts, also);
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

void CudaBackend::do_histogram(const Tensor& x, ExponentHistogram& out) {
  require_not_recording("histogram");
  count_by_thrust(*this, x, out);
  raise_noted_fault();
}

void CudaBackend::do_count(const Tensor& x, std::optional<DType> format, CastProbe& probe) {
  if (format) throw std::invalid_argument("histogram: FP8 roundings are emulated only");
  ProbeCounts* const counts = counts_of(&probe, x.element_count());
  count(x, counts->before, counts->after);
}

void CudaBackend::do_settle(std::span<CastProbe* const> probes) {
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
    launch(runtime_, "settle", &gather_counts,
           {.x = static_cast<std::uint32_t>(batch), .threads = gather_threads}, table, gathered + begin);
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

std::uint64_t CudaBackend::do_digest(std::span<const DigestItem> items) {
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

}  // namespace fp16lab::engine::gpu

namespace fp16lab::engine {

namespace {

void require_done(cudaError_t error, const char* what) {
  if (error != cudaSuccess)
    throw DeviceFailure(std::string("histogram on a stream, ") + what + ": " + cudaGetErrorString(error));
}

template <class T>
void count_part(const T* values, std::int64_t count, std::uint64_t* row, cudaStream_t stream) {
  int device = 0, multiprocessors = 1;
  require_done(cudaGetDevice(&device), "cudaGetDevice");
  require_done(cudaDeviceGetAttribute(&multiprocessors, cudaDevAttrMultiProcessorCount, device),
               "cudaDeviceGetAttribute");
  const std::uint32_t blocks =
      gpu::blocks_for(count, gpu::block_threads * gpu::widest_pack<T>, std::int64_t{8} * multiprocessors);
  gpu::count_values<T><<<blocks, gpu::block_threads, 0, stream>>>(values, count, row, nullptr);
  require_done(cudaGetLastError(), "launch");
}

}  // namespace

void count_exponents_on_stream(const void* values, std::size_t count, DType dtype, std::uint64_t* row,
                               void* stream) {
  static_assert(histogram_row_size == gpu::DeviceHistogram::slots);
  if (reinterpret_cast<std::uintptr_t>(values) % 16 != 0)
    throw std::invalid_argument("histogram on a stream: values begin at a multiple of 16 bytes");
  if (!is_tensor_float(dtype))
    throw std::invalid_argument("histogram on a stream: f32, f16 and bf16 are counted");
  with_element_type(dtype, [&](auto tag) {
    using T = decltype(tag);
    for (std::size_t begin = 0; begin < count; begin += std::size_t{gpu::histogram_part}) {
      const std::size_t part = std::min(std::size_t{gpu::histogram_part}, count - begin);
      count_part(static_cast<const T*>(values) + begin, static_cast<std::int64_t>(part), row,
                 static_cast<cudaStream_t>(stream));
    }
  });
}

}  // namespace fp16lab::engine
