// What convolutions add to the tiles of product.hpp: sources that gather patches, and where outputs are.
//
// A patch operand is a matrix of positions x depth indices (convolution_map.hpp). Neighbours in memory go
// along positions where channels are planes (NCHW), and along depth indices where they are innermost (NHWC):
// a run of the first kind is 8 places of a row that one tap reads, one of the second 8 channels of a place.
// Either index may be the product's k; the other one is the operand's outer index, and the cursor computes
// once a tile what finds elements. Groups of channels are the products of a batch.
#pragma once

#include <cstdint>
#include <type_traits>

#include "engine/backend/cuda/product/convolution_map.hpp"
#include "engine/backend/cuda/product/tile_source.hpp"
#include "engine/backend/cuda/runtime/fast_division.hpp"

namespace fp16lab::engine::gpu {

/// A run of what `at(i)` says: elements of data, or -1 for +0. All loads may be under way at a time.
template <class T, class Elements>
__device__ __forceinline__ void gather_run(const T* data, const Elements& at, void* shared) {
  Run<T> run;
#pragma unroll
  for (int i = 0; i < Run<T>::size; ++i) {
    const std::int64_t element = at(i);
    run.elements[i] = element < 0 ? T{} : data[element];
  }
  store_run(shared, run);
}

/// A position or depth index, moved to the elements of a group.
template <class Index>
__device__ __forceinline__ Index of_group(const functions::PatchMap& map, std::int64_t group, Index index) {
  index.offset += group * map.group_step();
  return index;
}

/// Runs along positions; depth indices are k.
template <class T>
struct PositionRuns {
  using Element = T;
  static constexpr tile::Runs runs = tile::Runs::along_outer;
  static constexpr int size = Run<T>::size;

  const T* data;
  functions::PatchMap map;
  bool near;  ///< taps have bits, and elements of a run are within 2^30 of each other

  PositionRuns(const T* elements, const functions::PatchMap& patches)
      : data(elements),
        map(patches),
        near(patches.has_tap_bits() && patches.image_step() < (std::int64_t{1} << 30) / (size + 1)) {}

  struct Cursor {
    const T* first;             ///< what the first position's offset points to; not near: the group's data
    std::int32_t offset[size];  ///< offsets of the others from there
    std::uint32_t taps[size];   ///< that read an element
    std::uint32_t together;     ///< that read elements of all positions, neighbours in memory
    std::int32_t number;        ///< number of the first position
  };

  __device__ __forceinline__ Cursor cursor(std::int64_t batch, int outer) const {
    Cursor cursor{};
    cursor.number = outer;
    cursor.first = data + batch * map.group_step();
    if (!near) return cursor;
    std::int64_t first = 0;
    cursor.together = 0x7fffffffu;
#pragma unroll
    for (int i = 0; i < size; ++i) {
      const functions::PatchPosition at = map.position(outer + i);
      if (i == 0) first = at.offset;
      cursor.offset[i] = static_cast<std::int32_t>(at.offset - first);
      cursor.taps[i] = map.taps_read(at);
      if (cursor.offset[i] != i) cursor.together = 0;
      cursor.together &= cursor.taps[i];
    }
    cursor.first += first;
    return cursor;
  }

  __device__ __forceinline__ void copy_run(const Cursor& cursor, int k, void* shared) const {
    const functions::PatchDepth depth = map.depth_index(k);
    if (!near) return copy_far(cursor, depth, shared);
    const T* const from = cursor.first + depth.offset;
    if ((cursor.together & depth.taps) == depth.taps &&
        reinterpret_cast<std::uintptr_t>(from) % tile::run_bytes == 0)
      return copy_16_bytes_async(shared, from);
    Run<T> run;
#pragma unroll
    for (int i = 0; i < size; ++i)
      run.elements[i] = (cursor.taps[i] & depth.taps) == depth.taps ? from[cursor.offset[i]] : T{};
    store_run(shared, run);
  }

 private:
  /// Kernels of more than 31 rows and columns, images of more than 2^26 elements.
  __device__ __forceinline__ void copy_far(const Cursor& cursor, const functions::PatchDepth& depth,
                                           void* shared) const {
    T* const run = static_cast<T*>(shared);
#pragma unroll 1
    for (int i = 0; i < size; ++i) {
      const std::int64_t element = map.element(map.position(cursor.number + i), depth);
      run[i] = element < 0 ? T{} : cursor.first[element];
    }
  }
};

/// Runs along positions, which are k; depth indices are the outer index. Only of x.
template <class T>
struct PositionChains {
  using Element = T;
  static constexpr tile::Runs runs = tile::Runs::along_k;
  using Cursor = functions::PatchDepth;

  const T* data;
  functions::PatchMap map;

  __device__ __forceinline__ Cursor cursor(std::int64_t batch, int outer) const {
    return of_group(map, batch, map.depth_index(outer));
  }

  __device__ __forceinline__ void copy_run(const Cursor& depth, int k, void* shared) const {
    functions::PositionWalk walk(map, k, map.position(k), depth);
    gather_run(
        data,
        [&](int) {
          const std::int64_t element = walk.element(map);
          walk.next(map);
          return element;
        },
        shared);
  }
};

/// Runs along the positions of planes, which are k; channels are the outer index: dY in NCHW, for the weight
/// gradient.
template <class T>
struct PlaneChains {
  using Element = T;
  static constexpr tile::Runs runs = tile::Runs::along_k;
  static constexpr int size = Run<T>::size;

  const T* data;
  std::int64_t plane;       ///< elements of a channel of an image
  std::int64_t image_step;  ///< elements of an image
  functions::Divisor by_plane;
  std::int32_t channels, positions;  ///< channels of a group

  struct Cursor {
    std::int64_t channel;  ///< its first element; -1 after the last channel
  };
  __device__ __forceinline__ Cursor cursor(std::int64_t batch, int outer) const {
    return {outer < channels ? (batch * channels + outer) * plane : -1};
  }

  __device__ __forceinline__ void copy_run(const Cursor& cursor, int k, void* shared) const {
    std::int64_t image = k;
    const std::int64_t place = by_plane.take(image);
    std::int64_t offset = image * image_step + place;
    std::int64_t left = plane - place;
    if (cursor.channel < 0 || k >= positions) return store_run(shared, Run<T>{});
    const T* const from = data + cursor.channel;
    if (left >= size && reinterpret_cast<std::uintptr_t>(from + offset) % tile::run_bytes == 0)
      return copy_16_bytes_async(shared, from + offset);
    gather_run(
        from,
        [&](int i) {
          const std::int64_t element = k + i < positions ? offset : -1;
          ++offset;
          if (--left == 0) left = plane, offset += image_step - plane;
          return element;
        },
        shared);
  }
};

/// Which of a patch operand's indices is the product's k.
enum class PatchRole : std::uint8_t { depth_is_k, position_is_k };

/// Runs along depth indices, channels innermost.
template <class T, PatchRole role>
struct ChannelRuns {
  using Element = T;
  static constexpr tile::Runs runs =
      role == PatchRole::depth_is_k ? tile::Runs::along_k : tile::Runs::along_outer;
  static constexpr int size = Run<T>::size;

  const T* data;
  functions::PatchMap map;
  bool aligned;  ///< data is at a multiple of 16 bytes, and a run's channels are of one place

  /// A position; or the first depth index of a run, and its number.
  struct AtDepth {
    functions::PatchDepth depth;
    int number;
  };
  using Cursor = std::conditional_t<role == PatchRole::depth_is_k, functions::PatchPosition, AtDepth>;

  __device__ __forceinline__ Cursor cursor(std::int64_t batch, int outer) const {
    if constexpr (role == PatchRole::depth_is_k) {
      return of_group(map, batch, map.position(outer));
    } else {
      return {of_group(map, batch, map.depth_index(outer)), outer};
    }
  }
  __device__ __forceinline__ void copy_run(const Cursor& cursor, int k, void* shared) const {
    if constexpr (role == PatchRole::depth_is_k) {
      copy(cursor, {map.depth_index(k), k}, shared);
    } else {
      copy(map.position(k), cursor, shared);
    }
  }

 private:
  __device__ __forceinline__ void copy(const functions::PatchPosition& position, const AtDepth& first,
                                       void* shared) const {
    if (aligned) {
      const std::int64_t element = map.element(position, first.depth);
      return copy_16_bytes_async(shared, data + (element < 0 ? 0 : element),
                                 element < 0 ? 0 : tile::run_bytes);
    }
    functions::DepthWalk walk(map, position, first.number, first.depth);
    gather_run(
        data,
        [&](int) {
          const std::int64_t element = walk.element(map);
          walk.next(map);
          return element;
        },
        shared);
  }
};

// ---- outputs ----

/// Output (m, n) is channel m of a group at position n: in planes (NCHW), or with channels innermost.
struct ActivationPlacement {
  std::int64_t channel_step, place_step, image_step, group_step;
  functions::Divisor by_plane;
  bool aligned;  ///< in planes, out at a multiple of 16 bytes and the plane's size one of 8 places

  __device__ __forceinline__ std::int64_t offset(std::int64_t batch, int m, int n) const {
    std::int64_t image = n;
    const std::int64_t place = by_plane.take(image);
    return batch * group_step + image * image_step + m * channel_step + place * place_step;
  }
  /// Planes end at multiples of 8 positions, and so do all of them.
  __device__ __forceinline__ bool together(std::int64_t /*batch*/, int /*m*/, int /*n*/) const {
    return aligned;
  }
};

/// Output (m, n) is the weight (m, c, r, s) of a group with n = (r, s, c), in memory (K, C, R, S).
struct WeightPlacement {
  std::int64_t channels, taps, group_step;
  functions::Divisor by_channel;
  bool aligned;  ///< a single tap, out at a multiple of 16 bytes and channels a multiple of 8

  __device__ __forceinline__ std::int64_t offset(std::int64_t batch, int m, int n) const {
    std::int64_t tap = n;
    const std::int64_t channel = by_channel.take(tap);
    return batch * group_step + (m * channels + channel) * taps + tap;
  }
  __device__ __forceinline__ bool together(std::int64_t /*batch*/, int /*m*/, int /*n*/) const {
    return aligned;
  }
};

}  // namespace fp16lab::engine::gpu
