// Event files that TensorBoard opens: TFRecords of Event messages, in protocol-buffer wire format.
//
// A record is: length (8 bytes, little-endian), masked CRC-32C of these 8 bytes, the message, masked CRC-32C
// of the message. Each is written with one write(2), so that a file that is read while it grows, or whose
// writer was killed, has a torn record at most at its end, which TensorBoard takes for the end of the file.
//
// Every writer begins a file of its own. Its first events give the format that follows ("brain.Event:2"), and
// the first step that it writes (a SessionLog START): readers drop what earlier files of the folder have from
// that step on, so that a resumed run shows no step twice.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <string_view>

#include "numerics/histogram/exponent_histogram.hpp"

namespace fp16lab {

struct EventScalar {
  std::string_view tag;  ///< "loss"; '/' groups tags
  double value = 0;      ///< rounded to FP32; NaN and infinities are allowed
};

class TensorboardWriter {
 public:
  /// Begins events.out.tfevents.SECONDS.HOST.PROCESS.NUMBER in `folder`, which is made if it is missing.
  /// Steps from `first_step` on of other files there are declared void. std::runtime_error with the path and
  /// the system's reason.
  TensorboardWriter(const std::filesystem::path& folder, std::uint64_t first_step);
  ~TensorboardWriter();
  TensorboardWriter(const TensorboardWriter&) = delete;
  TensorboardWriter& operator=(const TensorboardWriter&) = delete;

  /// All scalars of a step in one event. `wall_time`: seconds since 1970.
  void scalars(std::uint64_t step, double wall_time, std::span<const EventScalar> scalars);
  /// The distribution of log2|x|: the bin (2^e, 2^(e+1)] becomes the bucket (e, e + 1], so that the axis is
  /// the exponent. Zeros, infinities and NaNs have no exponent and are left out; nothing is written where
  /// there is nothing else. TensorBoard shows none of the message's sums; they are those of the buckets'
  /// middles.
  void exponents(std::uint64_t step, double wall_time, std::string_view tag,
                 const ExponentHistogram& histogram);
  /// Waits until the disk has everything.
  void sync();
  const std::filesystem::path& path() const { return path_; }

 private:
  void write_record(std::string_view message);

  std::filesystem::path path_;
  int descriptor_ = -1;
  std::string record_;  ///< kept for its memory
};

}  // namespace fp16lab
