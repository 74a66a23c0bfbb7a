// IDX files made by tests.
#pragma once

#include <zlib.h>

#include <cstdint>
#include <filesystem>
#include <fstream>
#include <stdexcept>
#include <string>
#include <vector>

namespace fp16lab::testing_support {

/// The bytes of an IDX file of unsigned bytes, by the format's description.
inline std::string idx_bytes(const std::vector<std::uint32_t>& extents, const std::string& elements) {
  std::string bytes{'\0', '\0', '\x08', static_cast<char>(extents.size())};
  for (const std::uint32_t extent : extents)
    for (const unsigned shift : {24u, 16u, 8u, 0u}) bytes += static_cast<char>(extent >> shift & 0xff);
  return bytes + elements;
}

inline void write_bytes(const std::filesystem::path& path, const std::string& bytes) {
  std::ofstream file(path, std::ios::binary);
  file.write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
  if (!file) throw std::runtime_error("cannot write " + path.string());
}

/// `bytes` as a gzip file in memory.
inline std::string gzipped(const std::string& bytes) {
  z_stream stream{};
  if (deflateInit2(&stream, 6, Z_DEFLATED, 16 + MAX_WBITS, 8, Z_DEFAULT_STRATEGY) != Z_OK)
    throw std::runtime_error("deflateInit2");
  std::string input = bytes;
  std::string output(deflateBound(&stream, static_cast<uLong>(bytes.size())), '\0');
  stream.next_in = reinterpret_cast<Bytef*>(input.data());
  stream.avail_in = static_cast<uInt>(input.size());
  stream.next_out = reinterpret_cast<Bytef*>(output.data());
  stream.avail_out = static_cast<uInt>(output.size());
  if (deflate(&stream, Z_FINISH) != Z_STREAM_END) throw std::runtime_error("deflate");
  output.resize(stream.total_out);
  deflateEnd(&stream);
  return output;
}

/// A Fashion-MNIST lookalike: `train` + `test` images of 28 x 28 with a class-dependent bright band and
/// hashed noise, labels cycling through the ten classes. Small enough for tests, structured enough to be
/// learnt.
inline void write_small_fashion(const std::filesystem::path& folder, std::uint32_t train,
                                std::uint32_t test) {
  std::filesystem::create_directories(folder);
  const auto write_split = [&folder](const std::string& prefix, std::uint32_t count, std::uint32_t salt) {
    std::string pixels, labels;
    for (std::uint32_t i = 0; i < count; ++i) {
      const std::uint32_t label = (i * 7 + salt) % 10;
      labels += static_cast<char>(label);
      for (std::uint32_t p = 0; p < 784; ++p) {
        std::uint32_t noise = (i + salt * 100003u) * 784u + p;
        noise = (noise ^ (noise >> 15)) * 0x2c1b3c6du;
        noise = (noise ^ (noise >> 12)) * 0x297a2d39u;
        const bool band = p / 28 / 3 == label % 9 && (label < 9 || p % 2 == 0);
        pixels += static_cast<char>((band ? 180u : 0u) + ((noise >> 20) & 63u));
      }
    }
    write_bytes(folder / (prefix + "-images-idx3-ubyte.gz"), gzipped(idx_bytes({count, 28, 28}, pixels)));
    write_bytes(folder / (prefix + "-labels-idx1-ubyte"), idx_bytes({count}, labels));
  };
  write_split("train", train, 1);
  write_split("t10k", test, 2);
}

}  // namespace fp16lab::testing_support
