#include "numerics/files/disk/sha256.hpp"

#ifdef __x86_64__
#include <cpuid.h>
#include <immintrin.h>
#endif

#include <algorithm>
#include <bit>
#include <stdexcept>
#include <vector>

#include "numerics/files/disk/input_file.hpp"

namespace fp16lab {
namespace {

// FIPS 180-4, 4.2.2: the first 32 bits of the fractional parts of the cube roots of the first 64 primes.
constexpr std::array<std::uint32_t, 64> round_constants{
    0x428a2f98, 0x71374491, 0xb5c0fbcf, 0xe9b5dba5, 0x3956c25b, 0x59f111f1, 0x923f82a4, 0xab1c5ed5,
    0xd807aa98, 0x12835b01, 0x243185be, 0x550c7dc3, 0x72be5d74, 0x80deb1fe, 0x9bdc06a7, 0xc19bf174,
    0xe49b69c1, 0xefbe4786, 0x0fc19dc6, 0x240ca1cc, 0x2de92c6f, 0x4a7484aa, 0x5cb0a9dc, 0x76f988da,
    0x983e5152, 0xa831c66d, 0xb00327c8, 0xbf597fc7, 0xc6e00bf3, 0xd5a79147, 0x06ca6351, 0x14292967,
    0x27b70a85, 0x2e1b2138, 0x4d2c6dfc, 0x53380d13, 0x650a7354, 0x766a0abb, 0x81c2c92e, 0x92722c85,
    0xa2bfe8a1, 0xa81a664b, 0xc24b8b70, 0xc76c51a3, 0xd192e819, 0xd6990624, 0xf40e3585, 0x106aa070,
    0x19a4c116, 0x1e376c08, 0x2748774c, 0x34b0bcb5, 0x391c0cb3, 0x4ed8aa4a, 0x5b9cca4f, 0x682e6ff3,
    0x748f82ee, 0x78a5636f, 0x84c87814, 0x8cc70208, 0x90befffa, 0xa4506ceb, 0xbef9a3f7, 0xc67178f2};

using State = std::array<std::uint32_t, 8>;

void compress_block(State& state, const std::byte* block) {  // 6.2.2
  std::array<std::uint32_t, 64> w{};
  for (std::size_t t = 0; t < 16; ++t)
    for (std::size_t i = 0; i < 4; ++i) w[t] = (w[t] << 8) | std::to_integer<std::uint32_t>(block[4 * t + i]);
  for (std::size_t t = 16; t < 64; ++t) {
    const std::uint32_t x = w[t - 15], y = w[t - 2];
    const std::uint32_t sigma0 = std::rotr(x, 7) ^ std::rotr(x, 18) ^ (x >> 3);
    const std::uint32_t sigma1 = std::rotr(y, 17) ^ std::rotr(y, 19) ^ (y >> 10);
    w[t] = sigma1 + w[t - 7] + sigma0 + w[t - 16];
  }
  auto [a, b, c, d, e, f, g, h] = state;
  for (std::size_t t = 0; t < 64; ++t) {
    const std::uint32_t sum1 = std::rotr(e, 6) ^ std::rotr(e, 11) ^ std::rotr(e, 25);
    const std::uint32_t choice = (e & f) ^ (~e & g);
    const std::uint32_t t1 = h + sum1 + choice + round_constants[t] + w[t];
    const std::uint32_t sum0 = std::rotr(a, 2) ^ std::rotr(a, 13) ^ std::rotr(a, 22);
    const std::uint32_t majority = (a & b) ^ (a & c) ^ (b & c);
    const std::uint32_t t2 = sum0 + majority;
    h = g;
    g = f;
    f = e;
    e = d + t1;
    d = c;
    c = b;
    b = a;
    a = t1 + t2;
  }
  const std::array<std::uint32_t, 8> working{a, b, c, d, e, f, g, h};
  for (std::size_t i = 0; i < 8; ++i) state[i] += working[i];
}

#ifdef __x86_64__
bool has_sha_instructions() {
  unsigned eax = 0, ebx = 0, ecx = 0, edx = 0;
  constexpr unsigned ssse3 = 1u << 9, sse41 = 1u << 19, sha = 1u << 29;
  if (__get_cpuid(1, &eax, &ebx, &ecx, &edx) == 0 || (ecx & ssse3) == 0 || (ecx & sse41) == 0) return false;
  return __get_cpuid_count(7, 0, &eax, &ebx, &ecx, &edx) != 0 && (ebx & sha) != 0;
}

/// The same with the instructions of "Intel SHA Extensions" (2013): SHA256RNDS2 makes two rounds of a state
/// in the order (A, B, E, F) and (C, D, G, H), highest element first; SHA256MSG1 and SHA256MSG2 make four
/// words of the schedule from the sixteen before.
__attribute__((target("sha,sse4.1,ssse3"))) void compress_with_instructions(State& state,
                                                                            const std::byte* blocks,
                                                                            std::size_t count) {
  const auto load = [](const void* from) __attribute__((target("sse2"))) {
    return _mm_loadu_si128(static_cast<const __m128i*>(from));
  };
  const __m128i big_endian = _mm_set_epi64x(0x0c0d0e0f08090a0b, 0x0405060700010203);
  const __m128i dcba = load(&state[0]), hgfe = load(&state[4]);
  const __m128i badc = _mm_shuffle_epi32(dcba, 0xb1), efgh = _mm_shuffle_epi32(hgfe, 0x1b);
  __m128i abef = _mm_alignr_epi8(badc, efgh, 8), cdgh = _mm_blend_epi16(efgh, badc, 0xf0);
  for (; count > 0; --count, blocks += 64) {
    const __m128i abef_before = abef, cdgh_before = cdgh;
    __m128i w[4];
    for (std::size_t i = 0; i < 4; ++i) w[i] = _mm_shuffle_epi8(load(blocks + 16 * i), big_endian);
    for (std::size_t i = 0; i < 16; ++i) {  // four rounds each
      const __m128i words = _mm_add_epi32(w[i % 4], load(&round_constants[4 * i]));
      cdgh = _mm_sha256rnds2_epu32(cdgh, abef, words);
      abef = _mm_sha256rnds2_epu32(abef, cdgh, _mm_shuffle_epi32(words, 0x0e));
      const __m128i seven_before = _mm_alignr_epi8(w[(i + 3) % 4], w[(i + 2) % 4], 4);
      w[i % 4] = _mm_sha256msg2_epu32(
          _mm_add_epi32(_mm_sha256msg1_epu32(w[i % 4], w[(i + 1) % 4]), seven_before), w[(i + 3) % 4]);
    }
    abef = _mm_add_epi32(abef, abef_before);
    cdgh = _mm_add_epi32(cdgh, cdgh_before);
  }
  const __m128i feba = _mm_shuffle_epi32(abef, 0x1b), dchg = _mm_shuffle_epi32(cdgh, 0xb1);
  _mm_storeu_si128(reinterpret_cast<__m128i*>(&state[0]), _mm_blend_epi16(feba, dchg, 0xf0));
  _mm_storeu_si128(reinterpret_cast<__m128i*>(&state[4]), _mm_alignr_epi8(dchg, feba, 8));
}
#endif

}  // namespace

#ifdef __x86_64__
Sha256::Sha256(bool own_instructions) : own_instructions_(own_instructions && has_sha_instructions()) {}
#else
Sha256::Sha256(bool /*own_instructions*/) : own_instructions_(false) {}
#endif

void Sha256::compress(const std::byte* blocks, std::size_t count) {
#ifdef __x86_64__
  if (own_instructions_) return compress_with_instructions(state_, blocks, count);
#endif
  for (std::size_t i = 0; i < count; ++i) compress_block(state_, blocks + 64 * i);
}

void Sha256::update(std::span<const std::byte> data) {
  if (finished_) throw std::logic_error("Sha256::update after hex_digest");
  std::size_t filled = static_cast<std::size_t>(length_ % 64);
  length_ += data.size();
  if (filled > 0) {
    const std::size_t take = std::min(data.size(), 64 - filled);
    std::copy_n(data.begin(), take, pending_.begin() + static_cast<std::ptrdiff_t>(filled));
    data = data.subspan(take);
    filled += take;
    if (filled < 64) return;
    compress(pending_.data(), 1);
  }
  compress(data.data(), data.size() / 64);
  data = data.subspan(data.size() / 64 * 64);
  std::copy(data.begin(), data.end(), pending_.begin());
}

void Sha256::update(std::string_view data) { update(std::as_bytes(std::span(data.data(), data.size()))); }

std::string Sha256::hex_digest() {
  if (!finished_) {  // 5.1.1: a one bit, zeros, and the length in bits as a 64-bit big-endian number
    const std::uint64_t bits = length_ * 8;
    std::vector<std::byte> padding{std::byte{0x80}};
    while ((length_ + padding.size()) % 64 != 56) padding.push_back(std::byte{0});
    for (int shift = 56; shift >= 0; shift -= 8) padding.push_back(static_cast<std::byte>(bits >> shift));
    update(padding);
    finished_ = true;
  }
  std::string hex;
  for (const std::uint32_t word : state_)
    for (int shift = 28; shift >= 0; shift -= 4) hex += "0123456789abcdef"[(word >> shift) & 15u];
  return hex;
}

std::string sha256_of(std::string_view data) {
  Sha256 hash;
  hash.update(data);
  return hash.hex_digest();
}

std::string sha256_of_file(const std::filesystem::path& path) {
  const InputFile file(path);
  Sha256 hash;
  std::vector<std::byte> block(std::size_t{1} << 20);
  for (std::uint64_t done = 0; done < file.size(); done += block.size()) {
    block.resize(static_cast<std::size_t>(std::min<std::uint64_t>(block.size(), file.size() - done)));
    file.read(done, block);
    hash.update(block);
  }
  return hash.hex_digest();
}

}  // namespace fp16lab
