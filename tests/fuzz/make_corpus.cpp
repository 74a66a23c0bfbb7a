// make_corpus FOLDER: writes the seeds of the fuzz targets, FOLDER/READER/NAME, every byte of them made here.
// make_corpus --check FOLDER: prints which seeds of the tree differ from those; exit 1 if one does.
//
// Inputs that once broke a reader are kept beside the seeds under names that begin with "found-".
#include <fstream>
#include <iostream>
#include <map>

#include "tests/fuzz/small_run.hpp"
#include "tests/support/array_files.hpp"
#include "tests/support/idx_files.hpp"
#include "tests/support/spawn.hpp"

namespace {

using namespace fp16lab::testing_support;
using Seeds = std::map<std::string, std::string>;  // READER/NAME -> bytes

const std::string six_numbers = from_hex("0000803f 000000c0 0000003f 00e07f47 00000080 59d98033");

void add_arrays(Seeds& seeds) {
  const std::string array = npy("<f4", "(2, 3)", six_numbers);
  seeds["npy/f4"] = array;
  seeds["npy/f4-version-2"] = npy("<f4", "(2, 3)", six_numbers, false, 2);
  seeds["npy/f2-fortran-big-endian"] =
      npy(">f2", "(3, 2)", from_hex("3c00 4400 4000 4500 4200 4600"), true, 3);
  seeds["npy/f8-scalar"] = npy("<f8", "()", from_hex("000000000000f03f"));
  seeds["npy/empty"] = npy("<f4", "(0, 5)", "");
  seeds["npy/structured"] =
      npy_header("{'descr': [('a', '<f4'), ('b', '<i4', (2,))], 'fortran_order': False, 'shape': (1,), }") +
      "123456789012";
  ZipEntry descriptor = deflated("d.npy", array);
  descriptor.flags = 8;
  ZipEntry wide = stored("wide.npy", array);
  wide.zip64 = true;
  seeds["npz/stored"] = zip({stored("w.npy", array)});
  seeds["npz/deflated"] =
      zip({deflated("w.npy", array), deflated("b.npy", npy("<f2", "(1,)", from_hex("003c")))});
  seeds["npz/descriptor"] = zip({descriptor});
  seeds["npz/zip64"] = zip({wide}, true);
  seeds["npz/comment"] = zip({stored("readme.txt", "text")}, false, "a comment");
  seeds["npz/empty"] = zip({});
  seeds["safetensors/types"] = safetensors(
      R"({"__metadata__":{"format":"pt"},"d":{"dtype":"F64","shape":[1],"data_offsets":[0,8]},)"
      R"("s":{"dtype":"F32","shape":[],"data_offsets":[8,12]},"h":{"dtype":"F16","shape":[1],"data_offsets":[12,14]},)"
      R"("b":{"dtype":"BF16","shape":[1],"data_offsets":[14,16]},"e":{"dtype":"F8_E4M3","shape":[2],"data_offsets":[16,18]},)"
      R"("f":{"dtype":"F8_E5M2","shape":[1,2],"data_offsets":[18,20]},"i":{"dtype":"I64","shape":[1],"data_offsets":[20,28]}})",
      std::string(28, '\x3c'));
  seeds["safetensors/empty"] = safetensors("{}", "");
  seeds["checkpoint/small"] = safetensors(
      R"({"__metadata__":{"format":"fp16lab-checkpoint","version":"2","iteration":"10","policy":"torch","optimizer":"sgd",)"
      R"("state_hash":"0123456789abcdef","digest.step.scale":"0000000000000000"},)"
      R"("step.scale":{"dtype":"F64","shape":[],"data_offsets":[0,8]}})",
      std::string(8, '\0'));
}

void add_data(Seeds& seeds) {
  seeds["idx/labels"] = idx_bytes({4}, std::string("\0\1\2\3", 4));
  seeds["idx/images"] = idx_bytes({2, 2, 2}, "12345678");
  const std::string labels = seeds["idx/labels"];
  seeds["idx/gzip"] = from_hex("1f8b0800000000000003") + deflated_in_stored_blocks(labels) +
                      little_endian(crc32_of(labels), 4) + little_endian(labels.size(), 4);
  const std::string x = npy("|u1", "(4, 2, 2)", "0123456789abcdef"),
                    y = npy("<i4", "(4,)", from_hex("00000000 01000000 02000000 01000000"));
  seeds["arrays/images"] = zip({stored("x.npy", x), deflated("y.npy", y)});
  seeds["arrays/tokens"] =
      zip({deflated("x.npy", npy(">i2", "(4, 2)", from_hex("0001 0002 0003 0004 0005 0006 0007 0008"))),
           stored("y.npy", y)});
  seeds["arrays/tensors"] = safetensors(
      R"({"x":{"dtype":"F16","shape":[3,2],"data_offsets":[0,12]},"y":{"dtype":"U8","shape":[3,1],"data_offsets":[12,15]}})",
      from_hex("003c 0040 0000 0080 007c 007e 00 02 01"));
  seeds["arrays/one"] = npy("<f8", "(2, 1)", from_hex("000000000000f03f 0000000000000040"));
  seeds["arrays/idx"] = seeds["idx/images"];
  seeds["arrays/idx_scalar"] = idx_bytes({}, "1");
  seeds["capture/volta"] =
      "fp16lab capture 1\n"
      "device: V100\n"
      "capability: 7.0\n"
      "kernels: sm_70\n"
      "driver: 535.1 CUDA 12.2\n"
      "runtime: CUDA 12.2\n"
      "compiler: nvcc 12.2.140\n"
      "operands: philox4x32-10, seed 1, outputs 500\n"
      "question mma.m8n8k4.f32.f16\tP4-c-0\t0000 0000 0000 0000\t0000 0000 0000 0000\t80000000\t00000000\n"
      "half add f16\t00007e00 00003c00\t00007fff\n"
      "random mma.m8n8k4.f16.f16 zeros tiles 1 operands 0123456789abcdef results d80ac658736bb725\n"
      "0000000000000000000000000000000000000000000000000000000000000000\n"
      "0000000000000000000000000000000000000000000000000000000000000000\n"
      "0000000000000000000000000000000000000000000000000000000000000000\n"
      "0000000000000000000000000000000000000000000000000000000000000000\n"
      "end after 15 lines\n";
  seeds["cifar/record"] = std::string(1, '\7') + std::string(3072, 'p');
  seeds["text/line"] = "In the beginning God created the heaven and the earth.\n";
  seeds["text/bytes"] = std::string("\0\xff\n", 3);
}

void add_runs(Seeds& seeds) {
  for (std::size_t i = 0; i < fp16lab::fuzz::small_run.size(); ++i) {
    const auto& [name, content] = fp16lab::fuzz::small_run[i];
    seeds["run_folder/" + std::string(name)] = std::string(1, static_cast<char>(i)) + std::string(content);
  }
  seeds["replay/small"] =
      R"({"schema":"fp16lab-replay","schema_version":1,"run":"r","workload":"classifier","total_steps":2,"observed_steps":1,)"
      R"("exact":false,"notes":["one"],"band":{"steps":[1],"log2_highest":[10],"log2_one_percent":[2],"log2_lossless":[5]},)"
      R"("policies":[{"name":"torch","label":"torch","parameters":{"growth_factor":2},"source":"","per_layer":false,"note":"",)"
      R"("replayed":true,"exact":true,"steps":[1,2],"log2_scale_lower":[16,15],"log2_scale_upper":[16,16],)"
      R"("skipped_lower":[],"skipped_upper":[1],"skips":[0,1],"wasted_steps":[0,1],"lost_count":[0,0.5],"lost_l1":[0,"Infinity"],)"
      R"("lost_l2":[0,0],"cosine":[0.5,1],"seconds":0.25}]})"
      "\n";
  const std::string config =
      "[model]\nname = \"classifier\"\nlayer = [{ type = \"flatten\" }, { type = \"mlp\", widths = [16, 10] "
      "}]\n[train]\nsteps = 40\nseed = "
      "1\n[optimizer]\nname = \"sgd\"\n"
      "lr = 1e-1\n[amp]\nlevel = \"O1\"\nwhite = [\"add\"]\n[scaler]\npolicy = \"torch\"\ninitial_scale = "
      "65536.0\n";
  seeds["flat_config/run"] = config;
  seeds["flat_config/toml"] =
      "a = {b = 0x1F, c = [1, 2.5e3, true]}\n'k' = \"\"\"\nx\"\"\"\nt = 1979-05-27T07:32:00Z\n";
  seeds["config/run"] = config;
  seeds["config/observe"] =
      "[observe]\nhistograms_every = 20\n[backend]\ndevice = \"emulated\"\n[data]\npath = \"x\"\n";
  seeds["tensor_core_row/scales"] =
      "operands = [\"e2m1\"]\n"
      "scales = [\"ue4m3/16\", \"e8m0/32\"]\n"
      "[[stage]]\n"
      "products = 64\n"
      "exact_group = 16\n"
      "fraction_bits = 35\n"
      "exponent_floor = -139\n"
      "output = \"fp32_toward_zero\"\n";
  seeds["tensor_core_row/whole"] =
      "name = \"mine\"\n"
      "operands = [\"e4m3\", \"e5m2\"]\n"
      "subnormal_accumulator = \"own_exponent\"\n"
      "underflow_zero = \"positive\"\n"
      "as_fp16 = true\n"
      "[[stage]]\n"
      "products = 16\n"
      "run = 2\n"
      "groups = 2\n"
      "entry = \"zero\"\n"
      "fraction_bits = 0x19\n"
      "exponent_floor = -22\n"
      "output = \"fp16_nearest_even\"\n"
      "[[stage]]\n"
      "products = 16\n"
      "run = 2\n"
      "groups = 2\n"
      "group = 1\n"
      "entry = \"previous\"\n"
      "fraction_bits = 25\n"
      "exponent_floor = -22\n"
      "output = \"fp16_nearest_even\"\n"
      "[[stage]]\n"
      "sum = \"addition\"\n"
      "output = \"fp16_nearest_even\"\n";
  seeds["tensor_core_row/base"] = "base = 'hopper'\nfraction_bits = 24\n";
  seeds["claim/one"] = R"({"host":"node7","process":4711,"since":"2026-11-23T09:00:00Z"})"
                       "\n";
  seeds["tasks/two"] = "task,run,workload,variant\n1,a-fp32-seed1,a,fp32\n2,a-none-seed1,a,none\n";
}

std::string times(std::size_t count, std::string_view text) {
  std::string all;
  for (std::size_t i = 0; i < count; ++i) all += text;
  return all;
}

/// What small inputs cannot say: levels that a reader calls itself for, and lines beyond a block of reading.
void add_deep_and_long(Seeds& seeds) {
  const std::string arrays = times(100'000, "["), objects = times(20'000, R"({"a":[)");
  for (std::size_t i = 0; i < fp16lab::fuzz::small_run.size(); ++i) {
    const std::string chosen(1, static_cast<char>(i)), name(fp16lab::fuzz::small_run[i].first);
    if (name.ends_with(".csv"))
      seeds["run_folder/long-" + name] =
          chosen + std::string(fp16lab::fuzz::small_run[i].second) + "4," + times(270'000, "1") + "\n";
    else
      seeds["run_folder/deep-" + name] = chosen + R"({"step":1,"a":)" + arrays + "\n";
  }
  seeds["run_folder/closed-manifest.json"] =
      std::string(1, '\0') + R"({"schema":)" + arrays + times(100'000, "]") + "}\n";
  seeds["replay/deep"] = R"({"schema":"fp16lab-replay","notes":)" + arrays;
  seeds["replay/deep-objects"] = objects;
  seeds["claim/deep"] = objects;
  seeds["safetensors/deep"] = safetensors(R"({"x":)" + arrays, "");
  seeds["npy/deep"] = npy_header("{'descr': " + times(60'000, "[(") + ", }", 2);
  const std::string dotted = "a" + times(30'000, ".a");
  for (const char* const reader : {"config", "flat_config", "tensor_core_row"}) {
    seeds[reader + std::string("/deep-key")] = dotted + " = 1\n";
    seeds[reader + std::string("/deep-table")] = "[" + dotted + "]\n";
    seeds[reader + std::string("/deep-value")] = "a = " + times(10'000, "{a.b = [");
  }
  seeds["flat_config/long"] = "a = [" + times(50'000, "1.5, ") + "]\n";
  seeds["tasks/long"] = "task,run,workload,variant\n1," + times(280'000, "a") + ",a,fp32\n";
}

Seeds make_seeds() {
  Seeds seeds;
  add_arrays(seeds);
  add_data(seeds);
  add_runs(seeds);
  add_deep_and_long(seeds);
  return seeds;
}

}  // namespace

int main(int argc, char** argv) {
  const bool check = argc == 3 && std::string(argv[1]) == "--check";
  if ((argc != 2 && !check) || argv[argc - 1][0] == '-') {
    std::cerr << "usage: make_corpus [--check] FOLDER\n";
    return 2;
  }
  const std::filesystem::path folder = argv[argc - 1];
  const Seeds seeds = make_seeds();
  int differing = 0;
  for (const auto& [name, bytes] : seeds) {
    if (!check) {
      std::filesystem::create_directories((folder / name).parent_path());
      std::ofstream(folder / name, std::ios::binary) << bytes;
    } else if (!std::filesystem::exists(folder / name) || slurp(folder / name) != bytes) {
      std::cerr << (folder / name).string() << " is not what make_corpus writes\n";
      ++differing;
    }
  }
  if (!check) return 0;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(folder)) {
    if (!entry.is_regular_file() || entry.path().filename().string().starts_with("found-")) continue;
    if (seeds.contains(entry.path().lexically_relative(folder).string())) continue;
    std::cerr << entry.path().string() << " is neither a seed nor called found-*\n";
    ++differing;
  }
  return differing == 0 ? 0 : 1;
}
