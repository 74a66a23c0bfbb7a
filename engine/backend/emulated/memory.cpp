// Allocation, byte copies, fills, and the small services that other files share.
#include <cstring>

#include "engine/backend/checks.hpp"
#include "engine/backend/emulated/backend_impl.hpp"
#include "engine/backend/emulated/element_types.hpp"
#include "numerics/convert/convert.hpp"

namespace fp16lab::engine {

namespace {

template <class Bits>
void fill_words(const Workers& workers, Tensor& out, std::uint64_t pattern) {
  auto* const words = reinterpret_cast<Bits*>(out.data());
  const auto value = static_cast<Bits>(pattern);
  workers.for_each_element_chunk(out.element_count(), [=](std::int64_t begin, std::int64_t end) {
    std::fill(words + begin, words + end, value);
  });
}

}  // namespace

EmulatedBackend::EmulatedBackend(const TensorCoreModel& model, int threads, const LibraryOrder& library)
    : model_(model),
      library_(library_plan(library.plan)),
      library_threads_(library.threads),
      workers_(threads),
      pool_(make_host_memory()) {}

Tensor EmulatedBackend::empty(const Shape& shape, DType dtype) {
  const auto elements = static_cast<std::size_t>(shape.element_count());
  return {pool_.allocate(elements * size_of(dtype)), shape, dtype};
}

void EmulatedBackend::do_upload(std::string_view, std::span<const std::byte> host, Tensor& out) {
  if (!host.empty()) std::memcpy(out.data(), host.data(), host.size());
}

void EmulatedBackend::do_download(std::string_view, const Tensor& x, std::span<std::byte> host) {
  if (!host.empty()) std::memcpy(host.data(), x.data(), host.size());
}

void EmulatedBackend::do_copy(const Tensor& x, Tensor& out) {
  const std::byte* const from = x.data();
  std::byte* const to = out.data();
  if (from == to) return;
  workers_.for_each_chunk(static_cast<std::int64_t>(x.byte_count()), elementwise_chunk * 4,
                          [=](std::int64_t begin, std::int64_t end) {
                            std::memcpy(to + begin, from + begin, static_cast<std::size_t>(end - begin));
                          });
}

void EmulatedBackend::do_fill(Tensor& out, double, std::uint64_t pattern) {
  switch (size_of(out.dtype())) {
    case 1:
      return fill_words<std::uint8_t>(workers_, out, pattern);
    case 2:
      return fill_words<std::uint16_t>(workers_, out, pattern);
    case 4:
      return fill_words<std::uint32_t>(workers_, out, pattern);
    default:
      return fill_words<std::uint64_t>(workers_, out, pattern);
  }
}

Tensor EmulatedBackend::widened(const Tensor& x) {
  if (x.dtype() == DType::f32) return x;
  Tensor wide = empty(x.shape(), DType::f32);
  with_half_type(x.dtype(),
                 [&](auto tag) { widen(x.host<decltype(tag)>(), wide.host<float>(), workers_.threads()); });
  return wide;
}

void EmulatedBackend::store(const Tensor& wide, Tensor& out, CastProbe* probe) {
  if (probe != nullptr) probe->counted += static_cast<std::uint64_t>(wide.element_count());
  if (out.dtype() != DType::f32) {
    with_half_type(out.dtype(), [&](auto tag) {
      const auto to = out.host<decltype(tag)>();
      if (probe != nullptr)
        narrow_and_count(wide.host<float>(), to, probe->before, probe->after, workers_.threads());
      else
        narrow(wide.host<float>(), to, Rounding::nearest_even, workers_.threads());
    });
    return;
  }
  if (probe != nullptr) count(wide, probe->before);
  if (wide.data() != out.data()) copy(wide, out);
  if (probe != nullptr) count(out, probe->after);
}

}  // namespace fp16lab::engine
