// Networks made of rows: names and shapes, the same bits as the layers' own classes, and every mistake in one
// sentence.
#include "engine/nn/network/network.hpp"

#include <gmock/gmock.h>

#include <map>

#include "engine/nn/models/mlp.hpp"
#include "tests/engine/nn/support.hpp"
#include "tests/support/char_model.hpp"
#include "tests/support/lenet5.hpp"
#include "tests/support/message_of.hpp"

namespace fp16lab::engine::test {
namespace {

using nn::LayerBlock;
using nn::LayerRow;
using nn::LayerValue;
using nn::Network;
using nn::NetworkLayer;
using nn::NetworkOptions;
using nn::NetworkRows;
using nn::Signal;
using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsSupersetOf;
using testing_support::message_of;
using Strings = std::vector<std::string>;

LayerValue whole(std::int64_t value) { return value; }
LayerValue integers(std::vector<std::int64_t> values) { return values; }

LayerRow linear(std::string name, std::int64_t outputs) {
  return {.type = "linear", .name = std::move(name), .arguments = {{"out_features", whole(outputs)}}};
}
LayerRow convolution(std::string name, std::int64_t outputs, std::int64_t kernel, std::int64_t padding = 0) {
  return {.type = "conv2d",
          .name = std::move(name),
          .arguments = {
              {"out_channels", whole(outputs)}, {"kernel_size", whole(kernel)}, {"padding", whole(padding)}}};
}
LayerRow pool() { return {.type = "max_pool2d", .arguments = {{"kernel_size", whole(2)}}}; }

/// The output of `model` for normal numbers, or for symbols 0, 1, 2, ... modulo `symbols`.
std::vector<float> output_of(Backend& backend, nn::Module& model, const Shape& shape,
                             std::int64_t symbols = 0) {
  Tape tape(backend);
  tape.set_context(training_context(backend, 1, 1));
  Tensor x = backend.empty(shape, symbols > 0 ? DType::i32 : DType::f32);
  if (symbols > 0) {
    std::vector<std::int32_t> values(static_cast<std::size_t>(shape.element_count()));
    for (std::size_t i = 0; i < values.size(); ++i)
      values[i] = static_cast<std::int32_t>(7 * i % static_cast<std::size_t>(symbols));
    backend.upload(std::as_bytes(std::span(values)), x);
  } else {
    backend.fill_normal(x, {.seed = 3, .stream = stream_id("x")}, 0.0f, 1.0f);
  }
  return values_of(backend, model.forward(tape, tape.constant(x)).tensor());
}

TEST(Network, LeNetFromRowsIsLeNet) {
  const auto backend = hopper_backend();
  const NetworkRows rows{{.rows = {convolution("conv1", 6, 5),
                                   {.type = "relu"},
                                   pool(),
                                   convolution("conv2", 16, 5),
                                   {.type = "relu"},
                                   pool(),
                                   {.type = "flatten"},
                                   linear("fc1", 120),
                                   {.type = "relu"},
                                   linear("fc2", 84),
                                   {.type = "relu"},
                                   linear("fc3", 10)}}};
  for (const Layout layout : {Layout::nchw, Layout::nhwc}) {
    const bool first = layout == Layout::nchw;
    const Shape images = first ? Shape{3, 1, 32, 32} : Shape{3, 32, 32, 1};
    const Signal input{.extents = first ? std::vector<std::int64_t>{1, 32, 32}
                                        : std::vector<std::int64_t>{32, 32, 1}};
    Network network(*backend, rows, {.input = input, .layout = layout, .seed = 5});
    LeNet5 model(*backend, {.layout = layout, .seed = 5});
    EXPECT_EQ(described_parameters(network), described_parameters(model));
    EXPECT_EQ(output_of(*backend, network, images), output_of(*backend, model, images));
    EXPECT_EQ(network.output(), (Signal{.extents = {10}}));
  }
}

TEST(Network, AnLstmFromRowsIsTheLstm) {
  const auto backend = hopper_backend();
  constexpr std::int64_t symbols = 11;
  const LayerValue rate = 0.5;
  const NetworkRows rows{
      {.rows = {{.type = "embedding", .name = "embedding", .arguments = {{"embedding_dim", whole(6)}}},
                {.type = "dropout", .name = "dropout_in", .arguments = {{"p", rate}}},
                {.type = "lstm",
                 .name = "lstm",
                 .arguments = {{"hidden_size", whole(5)}, {"num_layers", whole(2)}, {"dropout", rate}}},
                {.type = "dropout", .name = "dropout_out", .arguments = {{"p", rate}}},
                {.type = "flatten", .arguments = {{"start_dim", whole(0)}, {"end_dim", whole(1)}}},
                {.type = "linear", .name = "head"}}}};
  Network network(*backend, rows,
                  {.input = {.extents = {7}, .vocabulary = symbols}, .outputs = symbols, .seed = 4});
  CharLstm model(*backend,
                 {.symbols = symbols, .embedding = 6, .hidden = 5, .layers = 2, .dropout = 0.5f, .seed = 4});
  EXPECT_EQ(described_parameters(network), described_parameters(model));
  EXPECT_EQ(output_of(*backend, network, {3, 7}, symbols), output_of(*backend, model, {3, 7}, symbols));
}

TEST(Network, ATransformerOfBlocksIsTheTransformer) {
  const auto backend = hopper_backend();
  constexpr std::int64_t symbols = 11;
  const LayerValue small = 0.02, residual = 0.01;
  const LayerBlock block{
      .name = "h{}",
      .repeat = 2,
      .rows = {
          {.type = "identity", .name = "residual"},
          {.type = "layer_norm", .name = "ln1"},
          {.type = "multihead_attention",
           .name = "attn",
           .arguments = {{"num_heads", whole(2)}, {"causal", true}, {"init", small}, {"out_init", residual}}},
          {.type = "add", .name = "join", .inputs = {"residual", "attn"}},
          {.type = "layer_norm", .name = "ln2"},
          {.type = "linear", .name = "mlp.fc", .arguments = {{"out_features", whole(32)}, {"init", small}}},
          {.type = "gelu", .arguments = {{"approximate", std::string("tanh")}}},
          {.type = "linear",
           .name = "mlp.proj",
           .arguments = {{"out_features", whole(8)}, {"init", residual}}},
          {.type = "add", .inputs = {"join", "mlp.proj"}}}};
  const NetworkRows rows{
      {.rows = {{.type = "embedding",
                 .name = "tokens",
                 .arguments = {{"embedding_dim", whole(8)}, {"init", small}}},
                {.type = "position_embedding",
                 .name = "positions",
                 .inputs = {"input"},
                 .arguments = {{"embedding_dim", whole(8)}, {"init", small}}},
                {.type = "add", .inputs = {"tokens", "positions"}}}},
      block,
      {.rows = {{.type = "layer_norm", .name = "ln_f"},
                {.type = "flatten", .arguments = {{"start_dim", whole(0)}, {"end_dim", whole(1)}}},
                {.type = "linear", .name = "head", .arguments = {{"bias", false}, {"init", small}}}}}};
  Network network(*backend, rows,
                  {.input = {.extents = {6}, .vocabulary = symbols}, .outputs = symbols, .seed = 4});
  CharTransformer model(
      *backend, {.symbols = symbols, .context = 6, .embedding = 8, .heads = 2, .layers = 2, .seed = 4});
  EXPECT_EQ(described_parameters(network), described_parameters(model));
  EXPECT_EQ(output_of(*backend, network, {3, 6}, symbols), output_of(*backend, model, {3, 6}, symbols));
  EXPECT_EQ(network.output(), (Signal{.extents = {symbols}, .rows = 6}));
}

TEST(Network, AnMlpWithoutANameBelongsToItsBlock) {
  const auto backend = hopper_backend();
  const LayerRow mlp{.type = "mlp", .arguments = {{"widths", integers({16, 3})}}};
  const auto names = [&](const NetworkRows& rows) {
    return described_parameters(Network(*backend, rows, {.input = {.extents = {2, 4}}, .seed = 1}));
  };
  const LayerRow flatten{.type = "flatten"};
  EXPECT_EQ(names({{.rows = {flatten, mlp}}}).front(), "fc1.weight (16, 8)");
  EXPECT_EQ(names({{.name = "model0", .rows = {flatten, mlp}}}).front(), "model0.fc1.weight (16, 8)");
  LayerRow named = mlp;
  named.name = "head";
  EXPECT_EQ(names({{.rows = {flatten, named}}}).front(), "head.fc1.weight (16, 8)");
}

TEST(Network, BlocksAreNumbered) {
  const auto paths = [](const LayerBlock& block) {
    const NetworkRows rows{block};
    Strings all;
    for (const nn::PlacedRow& row : nn::placed(rows)) all.push_back(row.path);
    return all;
  };
  const std::vector<LayerRow> rows{{.type = "relu"}, {.type = "tanh", .name = "a.b"}};
  EXPECT_EQ(paths({.name = "s", .repeat = 2, .rows = rows}),
            (Strings{"s.0.relu1", "s.0.a.b", "s.1.relu1", "s.1.a.b"}));
  EXPECT_EQ(paths({.name = "s{}.x", .repeat = 2, .first = 3, .rows = {rows[0]}}),
            (Strings{"s3.x.relu1", "s4.x.relu1"}));
  EXPECT_EQ(paths({.name = "s", .rows = {rows[0]}}), (Strings{"s.relu1"}));
}

/// A residual block: y = relu(x + conv2(relu(bn1(conv1(x))))), and a projection beside it.
TEST(Network, TwoBranchesMeet) {
  const auto backend = hopper_backend();
  const NetworkRows rows{
      {.rows = {convolution("stem", 4, 3, 1)}},
      {.name = "res.{}",
       .repeat = 2,
       .rows = {convolution("conv1", 4, 3, 1),
                {.type = "batch_norm2d", .name = "bn1"},
                {.type = "relu"},
                convolution("conv2", 4, 3, 1),
                {.type = "add", .inputs = {"conv2", "input"}},
                {.type = "relu"}}},
      {.rows = {convolution("left", 3, 1),
                {.type = "max_pool2d",
                 .name = "right",
                 .inputs = {"res.1.relu2"},
                 .arguments = {{"kernel_size", whole(3)}, {"stride", whole(1)}, {"padding", whole(1)}}},
                {.type = "concat", .inputs = {"left", "right"}},
                {.type = "adaptive_avg_pool2d", .arguments = {{"output_size", whole(1)}}},
                {.type = "flatten"},
                linear("fc", 2)}}};
  Network network(*backend, rows, {.input = {.extents = {1, 6, 6}}, .seed = 2});
  EXPECT_EQ(network.layers()[13].output, (Signal{.extents = {3, 6, 6}}));
  EXPECT_EQ(network.layers()[15].output, (Signal{.extents = {7, 6, 6}})) << "3 and 4 channels";
  const std::vector<float> y = output_of(*backend, network, {5, 1, 6, 6});
  ASSERT_EQ(y.size(), 10u);

  // The same by hand, from the network's own parameters.
  Tape tape(*backend);
  tape.set_context({.training = true});
  Tensor images = backend->empty({5, 1, 6, 6}, DType::f32);
  backend->fill_normal(images, {.seed = 3, .stream = stream_id("x")}, 0.0f, 1.0f);
  const auto parameter = [&](const std::string& name) {
    for (Parameter* one : network.parameters())
      if (one->name == name) return tape.parameter(*one);
    throw std::logic_error(name);
  };
  const auto convolve = [&](const std::string& name, const Variable& x, std::int64_t padding) {
    return ops::conv2d(x, parameter(name + ".weight"), parameter(name + ".bias"),
                       {.padding = {padding, padding}});
  };
  Variable x = convolve("stem", tape.constant(images), 1);
  for (const std::string block : {"res.0.", "res.1."}) {
    Variable inner = convolve(block + "conv1", x, 1);
    inner = ops::batch_norm(inner, parameter(block + "bn1.weight"), parameter(block + "bn1.bias"), 1e-5f).y;
    x = ops::relu(ops::add(convolve(block + "conv2", ops::relu(inner), 1), x));
  }
  const Variable left = convolve("left", x, 0);
  const Variable right = ops::max_pool2d(x, {.kernel = {3, 3}, .stride = {1, 1}, .padding = {1, 1}});
  const std::array<Variable, 2> parts{left, right};
  const Variable mean = ops::average_pool2d(ops::concat(parts, 1), {.kernel = {6, 6}, .stride = {6, 6}});
  const Variable expected =
      ops::linear(ops::reshape(mean, {5, 7}), parameter("fc.weight"), parameter("fc.bias"));
  EXPECT_EQ(y, values_of(*backend, expected.tensor()));
}

TEST(Network, BlocksBranchAndEndInTheirLastRow) {
  const NetworkRows rows{
      {.name = "left{}", .repeat = 2, .rows = {linear("fc", 4), {.type = "relu"}}},
      {.name = "right", .input = "input", .rows = {linear("fc", 3), {.type = "tanh"}}},
      {.name = "again", .input = "left0", .rows = {linear("fc", 3)}},
      {.rows = {{.type = "concat", .name = "both", .inputs = {"left1", "right", "again"}}}}};
  const auto backend = hopper_backend();
  Network network(*backend, rows, {.input = {.extents = {5}}, .seed = 2});
  std::map<std::string, std::vector<std::string>> inputs;
  for (const NetworkLayer& layer : network.layers()) inputs[layer.path] = layer.inputs;
  EXPECT_THAT(inputs.at("right.fc"), ElementsAre("input"));
  EXPECT_THAT(inputs.at("again.fc"), ElementsAre("left0.relu1"));
  EXPECT_THAT(inputs.at("left1.fc"), ElementsAre("left0.relu1"));
  EXPECT_THAT(inputs.at("both"), ElementsAre("left1.relu1", "right.tanh1", "again.fc"));
  EXPECT_EQ(network.output(), (Signal{.extents = {10}}));

  NetworkRows wrong = rows;
  wrong[2].input = "leff0";
  EXPECT_THAT(message_of([&] { placed(wrong); }),
              AllOf(HasSubstr("input 'leff0': expected \"input\", or the name of an earlier row or block"),
                    HasSubstr("did you mean 'left0'?")));
}

TEST(Network, RowsWithoutANameAreWatchedUnderTheirNumber) {
  const auto backend = hopper_backend();
  Network network(*backend, {{.rows = {linear("a", 4), {.type = "relu"}, linear("b", 4), {.type = "relu"}}}},
                  {.input = {.extents = {5}}, .seed = 2});
  EXPECT_THAT(network.scopes(), IsSupersetOf({"a", "relu1", "b", "relu2"}));
}

/// Depthwise and strided on the way down, transposed on the way up: what the layers' classes say of themselves.
TEST(Network, ImagesGoDownAndUp) {
  const auto backend = hopper_backend();
  LayerRow depthwise = convolution("depthwise", 4, 3, 1);
  depthwise.arguments.emplace_back("groups", whole(4));
  depthwise.arguments.emplace_back("stride", integers({2, 2}));
  const LayerRow up{.type = "conv_transpose2d",
                    .name = "up",
                    .arguments = {{"out_channels", whole(2)},
                                  {"kernel_size", whole(3)},
                                  {"stride", whole(2)},
                                  {"padding", whole(1)},
                                  {"output_padding", whole(1)}}};
  const NetworkRows rows{
      {.rows = {convolution("c1", 4, 1),
                depthwise,
                {.type = "group_norm", .name = "gn", .arguments = {{"num_groups", whole(2)}}},
                up,
                {.type = "rms_norm", .name = "rms"}}}};
  for (const Layout layout : {Layout::nchw, Layout::nhwc}) {
    const bool first = layout == Layout::nchw;
    const Signal input{.extents =
                           first ? std::vector<std::int64_t>{3, 8, 8} : std::vector<std::int64_t>{8, 8, 3}};
    Network network(*backend, rows, {.input = input, .layout = layout, .seed = 1});
    EXPECT_EQ(described_parameters(network),
              (Strings{"c1.weight (4, 3, 1, 1)", "c1.bias (4)", "depthwise.weight (4, 1, 3, 3)",
                       "depthwise.bias (4)", "gn.weight (4)", "gn.bias (4)", "up.weight (4, 2, 3, 3)",
                       "up.bias (2)", first ? "rms.weight (8)" : "rms.weight (2)"}));
    EXPECT_EQ(network.layers()[1].output.extents,
              (first ? std::vector<std::int64_t>{4, 4, 4} : std::vector<std::int64_t>{4, 4, 4}));
    EXPECT_EQ(network.output().extents,
              (first ? std::vector<std::int64_t>{2, 8, 8} : std::vector<std::int64_t>{8, 8, 2}));
    const Shape images = first ? Shape{2, 3, 8, 8} : Shape{2, 8, 8, 3};
    EXPECT_EQ(output_of(*backend, network, images).size(), 2u * 2 * 8 * 8)
        << "what it computes has the shape that it says";
  }
}

TEST(Network, FrozenRowsGetNoGradient) {
  const auto backend = hopper_backend();
  LayerRow first = linear("fc1", 4);
  first.frozen = true;
  Network network(*backend, {{.rows = {first, linear("fc2", 2)}}}, {.input = {.extents = {3}}, .seed = 1});
  Tape tape(*backend);
  Tensor x = backend->empty({2, 3}, DType::f32);
  backend->fill(x, 1.0);
  tape.backward(ops::sum(network.forward(tape, tape.constant(x))));
  for (const Parameter* parameter : network.parameters())
    EXPECT_EQ(parameter->has_gradient, parameter->name.starts_with("fc2")) << parameter->name;
}

TEST(Network, MistakesNameTheLayerAndBothShapes) {
  const auto backend = hopper_backend();
  const auto error = [&](std::vector<LayerRow> rows, Signal input = {.extents = {1, 8, 8}}) {
    return message_of([&] { Network(*backend, {{.rows = std::move(rows)}}, {.input = input}); });
  };
  EXPECT_EQ(
      error({convolution("c1", 3, 9)}),
      "layer 'c1' (conv2d): a window of 9 does not fit into 8 with a padding of 0; the network's input gives "
      "(N, 1, 8, 8)");
  EXPECT_THAT(error({convolution("c1", 3, 3),
                     convolution("c2", 4, 3, 1),
                     {.type = "add", .name = "r1", .inputs = {"c1", "c2"}}}),
              AllOf(HasSubstr("layer 'r1' (add): expected equal shapes"),
                    HasSubstr("'c1' gives (N, 3, 6, 6)"), HasSubstr("'c2' gives (N, 4, 6, 6)")));
  EXPECT_THAT(error({{.type = "linaer"}}), HasSubstr("did you mean 'linear'?"));
  EXPECT_THAT(error({{.type = "linear", .arguments = {{"outfeatures", whole(3)}}}}),
              HasSubstr("did you mean 'out_features'?"));
  EXPECT_THAT(error({{.type = "linear", .arguments = {{"requires_grad", false}}}}),
              HasSubstr("every row may have name, input, to_float and frozen"));
  EXPECT_THAT(error({{.type = "conv2d", .arguments = {{"out_channels", whole(3)}}}}),
              HasSubstr("conv2d needs kernel_size: an integer or a pair of them"));
  EXPECT_THAT(error({linear("a", 0)}),
              HasSubstr("out_features = 0: expected an integer from 1 to 2147483647"));
  EXPECT_THAT(error({{.type = "linear"}}), HasSubstr("needs out_features"));
  EXPECT_THAT(error({{.type = "embedding", .arguments = {{"embedding_dim", whole(3)}}}}),
              HasSubstr("takes symbols, not numbers"));
  EXPECT_THAT(error({{.type = "relu"}}, {.extents = {4}, .vocabulary = 9}),
              HasSubstr("begin with an embedding"));
  EXPECT_THAT(error({{.type = "relu", .inputs = {"relu7"}}}), HasSubstr("input 'relu7': expected"));
  EXPECT_THAT(error({linear("a", 2), linear("a", 2)}), HasSubstr("layer 'a' is there twice"));
  EXPECT_THAT(error({linear("a", 2), {.type = "relu", .inputs = {"input"}}}),
              HasSubstr("layer 'a': nothing uses its output"));
  EXPECT_THAT(error({{.type = "add"}}), HasSubstr("1 inputs; expected two or more"));
  EXPECT_THAT(error({}), HasSubstr("no rows"));
  LayerRow frozen{.type = "relu"};
  frozen.frozen = true;
  EXPECT_THAT(error({frozen}), HasSubstr("it has no parameters"));
}

TEST(Network, EveryTypeIsDocumented) {
  for (const nn::LayerType& type : nn::layer_types()) {
    EXPECT_FALSE(type.help.empty()) << type.name;
    for (const nn::LayerArgument& argument : type.arguments)
      EXPECT_FALSE(argument.help.empty()) << type.name << "." << argument.name;
  }
}

}  // namespace
}  // namespace fp16lab::engine::test
