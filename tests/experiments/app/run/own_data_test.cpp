// Data of users through the real binary, by a configuration alone: arrays, CIFAR-10, drawn images; what is
// learnt from them, how much memory that takes, and that runs go on with the same bits.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <bit>
#include <functional>
#include <nlohmann/json.hpp>
#include <tuple>

#include "tests/experiments/app/run/resume_runs.hpp"
#include "tests/support/array_files.hpp"

namespace fp16lab::experiments {
namespace {

using testing::HasSubstr;
using namespace testing_support;

/// A number that looks random, the same everywhere.
std::uint32_t hashed(std::uint32_t x) {
  x = (x ^ (x >> 16)) * 0x7feb352du;
  x = (x ^ (x >> 15)) * 0x846ca68bu;
  return x ^ (x >> 16);
}

std::string bytes_of(std::size_t count, int size, const std::function<std::uint64_t(std::size_t)>& value) {
  std::string bytes;
  for (std::size_t i = 0; i < count; ++i) bytes += little_endian(value(i), size);
  return bytes;
}
std::string float_bytes(std::size_t count, const std::function<float(std::size_t)>& value) {
  return bytes_of(count, 4, [&](std::size_t i) { return std::bit_cast<std::uint32_t>(value(i)); });
}

std::size_t class_of(std::size_t image) { return hashed(static_cast<std::uint32_t>(image)) % 6; }

/// Pixel (y, x) in channel c of an image of side x side pixels, whose class says which channel is bright in
/// which half. A mirrored image has the same class.
std::uint64_t pixel_of(std::size_t image, std::size_t c, std::size_t y, std::size_t x, std::size_t side) {
  const std::size_t label = class_of(image);
  const auto noise =
      hashed(static_cast<std::uint32_t>(((image * 3 + c) * side + y) * side + x) + 12345u) % 90;
  return noise + (c == label % 3 && (y < side / 2) == (label < 3) ? 160 : 0);
}

class OwnData : public Resume {
 protected:
  static constexpr std::size_t side = 8;

  /// NHWC images and their classes in one archive, 300 to train with and 96 to test with.
  void write_images() const {
    std::vector<ZipEntry> members;
    for (const auto& [name, first, count] :
         {std::tuple<std::string, std::size_t, std::size_t>{"train", 0, 300}, {"test", 1000, 96}}) {
      const std::string n = std::to_string(count);
      members.push_back(
          stored("x_" + name + ".npy",
                 npy("|u1", "(" + n + ", 8, 8, 3)", bytes_of(count * side * side * 3, 1, [&](std::size_t i) {
                       const std::size_t pixel = i / 3;
                       return pixel_of(first + pixel / (side * side), i % 3, pixel / side % side,
                                       pixel % side, side);
                     }))));
      members.push_back(deflated(
          "y_" + name + ".npy", npy("<i8", "(" + n + ", 1)",
                                    bytes_of(count, 8, [&](std::size_t i) { return class_of(first + i); }))));
    }
    write_bytes(folder_ / "images.npz", zip(members));
  }
  std::string record_of(std::size_t image) const {
    return std::string(1, static_cast<char>(class_of(image))) + bytes_of(3072, 1, [&](std::size_t i) {
             return pixel_of(image, i / 1024, i / 32 % 32, i % 32, 32);
           });
  }

  Finished train_on(const std::string& out, const std::string& toml, std::vector<std::string> more = {}) {
    write_bytes(folder_ / "own.toml", toml);
    more.insert(more.begin(), {"train", "-c", path("own.toml"), "-o", path(out), "--quiet"});
    return fp16lab(more);
  }
  json trained(const std::string& out, const std::string& toml, const std::vector<std::string>& more = {}) {
    const Finished result = train_on(out, toml, more);
    EXPECT_EQ(result.exit_code, 0) << result.err;
    return result.exit_code == 0 ? json::parse(result.out) : json::object();
  }
  std::string convolution(const std::string& data) const {
    return R"([model]
layer = [
  { name = "c1", type = "conv2d", out_channels = 8, kernel_size = 3, padding = 1 },
  { type = "batch_norm2d" },
  { type = "relu" },
  { type = "adaptive_avg_pool2d", output_size = 4 },
  { type = "flatten" },
  { name = "fc", type = "linear" },
]
[train]
epochs = 5
batch_size = 20
[optimizer]
lr = 0.1
[observe]
histograms_every = 0
[data]
)" + data;
  }
};

TEST_F(OwnData, AConvolutionalNetLearnsImagesOfAnArchive) {
  write_images();
  const std::string data = "name = \"arrays\"\npath = \"" + path("images.npz") +
                           "\"\nnormalise = \"standard\"\nflip = true\ncrop_padding = 1\n";
  const json one = trained("one", convolution(data), {"--threads", "1"});
  EXPECT_GT(one.at("evaluation_accuracy"), 0.95);
  EXPECT_EQ(one.at("steps"), 75);
  const json two = trained("two", convolution(data), {"--threads", "2", "--set", "model.layout=nchw"});
  EXPECT_EQ(one.at("state_hash"), two.at("state_hash")) << "the same bits on any number of threads";
  EXPECT_GT(trained("nhwc", convolution(data), {"--set", "model.layout=nhwc"}).at("evaluation_accuracy"),
            0.95);
  EXPECT_GT(trained("o1", convolution(data), {"--set", "amp.level=O1"}).at("evaluation_accuracy"), 0.95);
  for (const char* const setting : {"data.flip=false", "data.crop_padding=0", "data.normalise=unit"})
    EXPECT_NE(
        trained(std::string("without-") + setting, convolution(data), {"--set", setting}).at("state_hash"),
        one.at("state_hash"))
        << setting;
  ASSERT_EQ(manifest("one").at("data").size(), 1u) << "one file";
  EXPECT_THAT(manifest("one").at("data").at(0).at("path").get<std::string>(), HasSubstr("images.npz"));
  const Finished model = fp16lab({"model", path("own.toml"), "--json"});
  EXPECT_EQ(json::parse(model.out).at("layers").at(0).at("parameters"), 8 * 3 * 9 + 8);
  EXPECT_EQ(json::parse(model.out).at("layers").back().at("output"), "(N, 6)")
      << "as many as there are classes";
}

TEST_F(OwnData, AndThoseOfCifar10) {
  const std::filesystem::path folder = folder_ / "cifar10" / "cifar-10-batches-bin";
  std::filesystem::create_directories(folder);
  std::size_t image = 0;
  for (const char* const name :
       {"data_batch_1", "data_batch_2", "data_batch_3", "data_batch_4", "data_batch_5", "test_batch"}) {
    std::string bytes;
    for (int i = 0; i < 40; ++i) bytes += record_of(image++);
    write_bytes(folder / (std::string(name) + ".bin"), bytes);
  }
  const json run = trained("cifar", convolution("name = \"cifar10\"\npath = \"" + path("cifar10") + "\"\n"));
  EXPECT_GT(run.at("evaluation_accuracy"), 0.9);
  EXPECT_EQ(manifest("cifar").at("data").size(), 6u);
  write_bytes(folder / "test_batch.bin", record_of(7) + "x");
  expect_one_line_error(
      train_on("bad", convolution("name = \"cifar10\"\npath = \"" + path("cifar10") + "\"\n")), 1,
      "test_batch.bin: byte 3073: expected records of 3073 bytes");
}

TEST_F(OwnData, TokensForAnEmbeddingPerTokenAndPerSequence) {
  // Each sequence counts in threes modulo 11; the next token follows from the last, the class from the first.
  const auto token = [](std::size_t sequence, std::size_t t) {
    return (hashed(static_cast<std::uint32_t>(sequence)) + 3 * t) % 11;
  };
  const auto tokens = [&](std::size_t shift) {
    return npy("<i4", "(200, 6)",
               bytes_of(1200, 4, [&](std::size_t i) { return token(i / 6, i % 6 + shift); }));
  };
  write_bytes(folder_ / "x.npy", tokens(0));
  write_bytes(folder_ / "next.npy", tokens(1));
  write_bytes(folder_ / "first.npy",
              npy("|u1", "(200,)", bytes_of(200, 1, [&](std::size_t i) { return token(i, 0) % 2; })));
  const auto toml = [&](const std::string& targets, const std::string& flatten) {
    return "[model]\nlayer = [{ name = \"e\", type = \"embedding\", embedding_dim = 12 }, { type = "
           "\"flatten\", " +
           flatten +
           " }, { name = \"fc\", type = \"linear\" }]\n[train]\nepochs = 25\nbatch_size = "
           "10\n[optimizer]\nlr = "
           "0.5\n[observe]\nhistograms_every = 0\n[data]\nname = \"arrays\"\npath = \"" +
           folder_.string() + "\"\ntrain = [\"x\", \"" + targets + "\"]\ntest_size = 0.2\n";
  };
  const json each = trained("each", toml("next", "start_dim = 0, end_dim = 1"));
  EXPECT_GT(each.at("evaluation_accuracy"), 0.99);
  const json whole = trained("whole", toml("first", "start_dim = 1, end_dim = 2"));
  EXPECT_GT(whole.at("evaluation_accuracy"), 0.95);
  expect_one_line_error(train_on("bad", toml("next", "start_dim = 1, end_dim = 2")), 2,
                        "the network ends with (N, 11), 'fc' (linear); expected (6 N, 11)");
}

TEST_F(OwnData, NumbersAsTargetsAndInputsAsTheirOwn) {
  write_bytes(folder_ / "x.npy",
              npy("<f4", "(400, 3)", float_bytes(1200, [](std::size_t i) {
                    return static_cast<float>(hashed(static_cast<std::uint32_t>(i)) % 1000) + 500.0f;
                  })));
  const auto x = [](std::size_t i, std::size_t f) {
    return static_cast<float>(hashed(static_cast<std::uint32_t>(3 * i + f)) % 1000) + 500.0f;
  };
  write_bytes(folder_ / "y.npy",
              npy("<f8", "(400,)", bytes_of(400, 8, [&](std::size_t i) {
                    return std::bit_cast<std::uint64_t>(
                        (static_cast<double>(x(i, 0)) - 2.0 * static_cast<double>(x(i, 2))) / 100 + 1);
                  })));
  const std::string toml =
      "[model]\nloss = \"mse\"\nlayer = [{ name = \"fc\", type = \"linear\" }]\n[train]\nepochs = "
      "20\nbatch_size = 20\n[data]\nname = \"arrays\"\npath = \"" +
      folder_.string() + "\"\ntrain = [\"x\", \"y\"]\ntest_size = 40\nnormalise = \"standard\"\n";
  const json regression = trained("regression", toml);
  EXPECT_LT(regression.at("evaluation_loss"), 1e-6) << "a linear function of standardised features";
  EXPECT_FALSE(regression.contains("evaluation_accuracy"));
  EXPECT_LT(trained("autoencoder", toml, {"--set", "data.targets=inputs"}).at("evaluation_loss"), 1e-6);
  expect_one_line_error(train_on("bad", toml, {"--set", "model.loss=cross_entropy"}), 1,
                        "y.npy: array 'y': f64 (400,): cross_entropy expects integers");
  expect_one_line_error(train_on("bad", toml, {"--set", "data.flip=true"}), 2, "are of images; ");
  expect_one_line_error(train_on("bad", toml, {"--set", "data.path="}), 2, "needs data.path");
  expect_one_line_error(train_on("bad", toml, {"--set", "data.train=x,z"}), 1,
                        "there is no file 'z' or 'z.npy'");
  EXPECT_FALSE(std::filesystem::exists(folder_ / "bad"));
}

TEST_F(OwnData, SoftLabelsAreLearntAsTheFrameworksDo) {
  const auto label = [](std::size_t i) { return hashed(static_cast<std::uint32_t>(i)) % 3; };
  write_bytes(folder_ / "x.npy", npy("<f4", "(120, 3)", float_bytes(360, [&](std::size_t i) {
                                       return (i % 3 == label(i / 3) ? 1.0f : 0.0f) +
                                              static_cast<float>(hashed(static_cast<std::uint32_t>(i)) % 64) /
                                                  128;
                                     })));
  write_bytes(folder_ / "hard.npy", npy("|u1", "(120,)", bytes_of(120, 1, label)));
  write_bytes(folder_ / "soft.npy", npy("<f4", "(120, 3)", float_bytes(360, [&](std::size_t i) {
                                          return i % 3 == label(i / 3) ? 1.0f : 0.0f;
                                        })));
  write_bytes(folder_ / "zeros.npy", npy("<f4", "(120, 3)", std::string(1440, '\0')));
  const auto on = [&](const std::string& out, const std::string& targets,
                      std::vector<std::string> more = {}) {
    return trained(
        out,
        "[model]\nlayer = [{ name = \"fc\", type = \"linear\" }]\n[train]\nepochs = 4\nbatch_size = "
        "10\n[data]\nname = \"arrays\"\npath = \"" +
            folder_.string() + "\"\ntrain = [\"x\", \"" + targets + "\"]\ntest_size = 20\n",
        set(more));
  };
  // One-hot targets of floating point are those that model.one_hot makes of classes, smoothing included.
  for (const std::string smoothing : {"0", "0.25"}) {
    const json hard = on("hard" + smoothing, "hard",
                         {"model.one_hot=true", "model.label_smoothing=" + smoothing}),
               soft = on("soft" + smoothing, "soft", {"model.label_smoothing=" + smoothing});
    EXPECT_EQ(soft.at("state_hash"), hard.at("state_hash")) << smoothing;
    EXPECT_EQ(soft.at("evaluation_loss"), hard.at("evaluation_loss")) << smoothing;
    EXPECT_EQ(soft.at("evaluation_accuracy"), hard.at("evaluation_accuracy")) << smoothing;
  }
  // Rows of zeros have no loss. The formula then has no gradient; the kernels of two frameworks return
  // softmax.
  for (const auto& [dialect, moves] :
       {std::pair{"torch", false}, {"apex", false}, {"paddle", true}, {"mindspore", true}}) {
    const std::string out = std::string("zeros-") + dialect;
    on(out, "zeros", {std::string("amp.dialect=") + dialect});
    for (const std::string& loss : column(out + "/steps.csv", "loss"))
      EXPECT_EQ(std::stod(loss), 0.0) << dialect;
    EXPECT_EQ(std::stod(column(out + "/steps.csv", "grad_norm").front()) > 0, moves) << dialect;
  }
}

TEST_F(OwnData, RowsInTheirOrder) {
  // 30 rows and 20 to test with; the second ten repeat the first, so that one epoch over them is two over
  // ten.
  const auto x = [](std::size_t i) {
    return static_cast<float>(hashed(static_cast<std::uint32_t>(i % 30)) % 1000) / 1000;
  };
  write_bytes(folder_ / "x.npy", npy("<f4", "(40, 3)", float_bytes(120, x)));
  write_bytes(folder_ / "y.npy",
              npy("<f4", "(40, 1)", float_bytes(40, [&](std::size_t i) { return x(3 * i); })));
  const auto on = [&](const std::string& out, const std::vector<std::string>& more) {
    return trained(out,
                   "[model]\nloss = \"mse\"\nlayer = [{ name = \"fc\", type = \"linear\" "
                   "}]\n[train]\nbatch_size = 5\n[data]\nname = \"arrays\"\npath = \"" +
                       folder_.string() + "\"\ntrain = [\"x\", \"y\"]\ntest_size = 20\ntest_seed = 0\n",
                   set(more))
        .at("state_hash");
  };
  const json two = on("two", {"data.shuffle=false", "data.subset=10", "train.epochs=2"});
  EXPECT_EQ(two, on("one", {"data.shuffle=false", "train.epochs=1"}));
  EXPECT_NE(two, on("shuffled", {"data.subset=10", "train.epochs=2"}));
  EXPECT_EQ(on("asked", {"data.shuffle=true", "data.subset=10", "train.epochs=2"}),
            on("default", {"data.subset=10", "train.epochs=2"}));
  EXPECT_THAT(read("two/config.toml"), HasSubstr("shuffle = false"));
}

TEST_F(OwnData, DrawnImagesOfAnyShape) {
  const std::string data = "name = \"normal\"\ninputs = [3, 12, 8]\nclasses = 7\nbatches = 4\n";
  const json run = trained("drawn", convolution(data));
  EXPECT_EQ(run.at("steps"), 20);
  const auto losses = column("drawn/steps.csv", "loss");
  EXPECT_LT(std::stod(losses.back()), std::stod(losses.front())) << "the same batches again";
  EXPECT_EQ(manifest("drawn").at("seeds").at("data"), 1);
}

TEST_F(OwnData, ChangedImagesGoOnWithTheSameBitsAfterAKill) {
  const std::vector<std::string> change{"data.flip=true", "data.crop_padding=3"};
  begin_and_interrupt("run", change, SIGKILL);
  const std::string last = std::to_string(newest_step("run") + 9);  // into another epoch of 6 2/3 steps
  std::vector<std::string> whole = change;
  whole.push_back("train.steps=" + last);
  ASSERT_EQ(begin("whole", whole).exit_code, 0);
  const auto result = resume("run", {"--set", "train.steps=" + last});
  ASSERT_EQ(result.exit_code, 0) << result.err;
  expect_same_files("whole", "run");
  ASSERT_EQ(begin("plain", {"train.steps=1"}).exit_code, 0);
  EXPECT_NE(column("plain/steps.csv", "loss").front(), column("whole/steps.csv", "loss").front());
  for (const char* const setting : {"data.flip=false", "data.crop_padding=2"})
    expect_one_line_error(resume("run", {"--set", setting, "--quiet"}), 2, "but the run in");
}

TEST_F(OwnData, ARunOfArraysIsNotContinuedOnOthers) {
  write_images();
  const std::string toml = convolution("name = \"arrays\"\npath = \"" + path("images.npz") + "\"\n");
  trained("run", toml, {"--set", "train.steps=4", "--set", "checkpoint.every=2"});
  std::filesystem::rename(folder_ / "images.npz", folder_ / "moved.npz");
  const auto moved = resume("run", {"--set", "train.steps=6", "--set", "data.path=" + path("moved.npz")});
  EXPECT_EQ(moved.exit_code, 0) << moved.err;
  std::string bytes = read("moved.npz");
  bytes[200] = static_cast<char>(bytes[200] ^ 1);
  write_bytes(folder_ / "moved.npz", bytes);
  expect_one_line_error(resume("run", {"--set", "train.steps=8", "--quiet"}), 1, "moved.npz: byte ");
  write_bytes(folder_ / "moved.npz",
              zip({stored("x_train.npy", npy("|u1", "(20, 8, 8, 3)", std::string(3840, 'x'))),
                   stored("y_train.npy", npy("|u1", "(20,)", std::string(20, '\5'))),
                   stored("x_test.npy", npy("|u1", "(20, 8, 8, 3)", std::string(3840, 'x'))),
                   stored("y_test.npy", npy("|u1", "(20,)", std::string(20, '\5')))}));
  expect_one_line_error(resume("run", {"--set", "train.steps=8", "--quiet"}), 2, "the data have changed: ");
}

TEST_F(OwnData, APathIsRelativeToItsFileAndKeptAbsolute) {
  write_images();
  std::filesystem::create_directory(folder_ / "deep");
  write_bytes(folder_ / "deep" / "own.toml", convolution("name = \"arrays\"\npath = \"../images.npz\"\n"));
  const auto began = fp16lab({"train", "-c", path("deep/own.toml"), "-o", path("deep/run"), "--set",
                              "train.steps=4", "--set", "checkpoint.every=2"});
  ASSERT_EQ(began.exit_code, 0) << began.err;
  EXPECT_NE(read("deep/run/config.toml").find("path = \"" + path("images.npz") + "\""), std::string::npos);
  const auto from_here =
      run_inside("fp16lab", {"train", "-c", "deep/own.toml", "-o", "run", "--set", "train.steps=4", "--set",
                             "checkpoint.every=2", "--set", "data.path=images.npz"});
  ASSERT_EQ(from_here.exit_code, 0) << from_here.err;
  EXPECT_EQ(steps("run"), steps("deep/run"));
  EXPECT_EQ(manifest("run").at("identity"), manifest("deep/run").at("identity"));
  const auto goes_on = fp16lab({"train", "--resume", "-o", path("run"), "--set", "train.steps=6"});
  EXPECT_EQ(goes_on.exit_code, 0) << "from another working folder: " << goes_on.err;
}

TEST_F(OwnData, ASweepTakesThem) {
  write_images();
  write_bytes(folder_ / "own.toml",
              convolution("name = \"arrays\"\npath = \"" + path("images.npz") + "\"\n"));
  write_bytes(
      folder_ / "sweep.toml",
      "[[workload]]\nname = \"own\"\nconfig = \"own.toml\"\nseeds = [1, 2]\n[[variant]]\nname = \"fp32\"\n"
      "[[variant]]\nname = \"fp16\"\nset = [\"amp.level=O1\", \"train.epochs=1\"]\n");
  const Finished result = fp16lab({"sweep", "-c", path("sweep.toml"), "-o", path("swept"), "--quiet"});
  ASSERT_EQ(result.exit_code, 0) << result.err;
  EXPECT_THAT(column("swept/summary.csv", "runs"), testing::ElementsAre("2", "2"));
}

TEST_F(OwnData, FourGibibytesAreStreamed) {
  constexpr std::uint64_t rows = std::uint64_t{1} << 20, bytes = std::uint64_t{1} << 32;
  const std::string x = npy("<f4", "(1048576, 1024)", ""), y = npy("|u1", "(1048576,)", "\1");
  write_bytes(folder_ / "x.npy", x);
  std::filesystem::resize_file(folder_ / "x.npy", x.size() + bytes);
  write_bytes(folder_ / "y.npy", y);
  std::filesystem::resize_file(folder_ / "y.npy", y.size() - 1 + rows);
  const Finished result =
      train_on("big",
               "[model]\nlayer = [{ name = \"fc\", type = \"linear\" }]\n[train]\nsteps = 5\n[data]\n"
               "name = \"arrays\"\npath = \"" +
                   folder_.string() + "\"\ntrain = [\"x\", \"y\"]\ntest_size = 1000\n");
  ASSERT_EQ(result.exit_code, 0) << result.err;
  EXPECT_EQ(json::parse(result.out).at("steps"), 5);
  EXPECT_LT(result.peak_kb, 1 << 20) << "1 GiB";
}

}  // namespace
}  // namespace fp16lab::experiments
