// What MindSpore r1.7's mixed-precision tutorial draws after mindspore.set_seed(0): its images, its labels,
// the order of its batches and its initial weights, from the three generators that it uses. With them a run
// prints the tutorial's ten losses.
//
//   images, labels  numpy.random.RandomState(0), whose stream NumPy keeps (NEP 19): MT19937; randn by
//                   Marsaglia's polar method (SIAM Review 6, 1964), the second number of a pair first;
//                   randint(0, 10) by the low four bits of a word, words above 9 rejected
//   order           std::shuffle of libstdc++ before GCC 11, which made MindSpore: two places a draw, a draw
//                   below n by division; MT19937 seeded with 0, 1, ... for each epoch, whose order is that
//                   of the epoch before, shuffled
//   weights         MindSpore's Philox4x32 (mindspore/ccsrc/pybind_api/random_normal of r1.7): its second key
//                   never enters, sixteen parts have counters of their own, which overlap, and Box and
//                   Muller's pi is 3.14. Global seed 0 means 87654321; the op seed grows with each array
//
// Checked against MindSpore 2.10 and NumPy 1.26, whose losses, images and orders are in the tests.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string_view>
#include <vector>

#include "engine/data/dataset.hpp"
#include "experiments/questions/tutorials/tutorial_run.hpp"

namespace fp16lab::experiments {

/// 1024 images (1, 32, 32) of standard normal numbers, f32, with labels from 0 to 9 that know nothing of
/// them. `rows` is empty.
engine::data::Dataset mindspore_images();

/// The orders in which epochs 0 to `epochs` - 1 visit `count` examples, one after the other.
std::vector<std::uint32_t> mindspore_order(std::uint32_t count, std::uint32_t epochs);

/// The elements of initial array `index` (0: the first that was drawn), of that standard deviation. The last
/// bit of an element depends on this machine's sine and logarithm.
std::vector<float> mindspore_normal(std::uint64_t index, std::size_t count, float deviation);

/// Writes its initial weights as safetensors, by PyTorch's names, for train.initial and for other frameworks.
/// Errors as write_safetensors.
void write_mindspore_weights(const std::filesystem::path& path);

/// Gives a run of `system` what the tutorial drew: mindspore_random_images those images, batches and weights,
/// all others what they have.
TutorialChange draws_of(std::string_view system);

}  // namespace fp16lab::experiments
