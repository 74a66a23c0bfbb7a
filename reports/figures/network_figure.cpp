#include "reports/figures/network_figure.hpp"

#include <fmt/format.h>

#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <stdexcept>
#include <vector>

#include "numerics/files/disk/atomic_file.hpp"
#include "numerics/files/disk/read_file.hpp"
#include "numerics/text/nesting.hpp"
#include "numerics/text/text.hpp"
#include "reports/figures/drawing_program.hpp"

namespace fp16lab::reports {
namespace {

using OrderedJson = nlohmann::ordered_json;

/// What is drawn as one box: a layer, and those that only pass its output on.
struct Node {
  std::string path;
  std::vector<std::string> lines;  ///< below the path
  bool has_products = false;
};

/// A text as a quoted string of DOT: in labels a backslash begins an escape ("\N" is the node's name), and an
/// ampersand an entity, which may be no character of XML.
std::string dot_string(std::string_view text) {
  std::string out = "\"";
  for (const char c : printable(text)) {
    if (c == '"' || c == '\\') out += '\\';
    out += c;
    if (c == '&') out += "amp;";
  }
  return out + "\"";
}

/// Lines of a label, one below the other.
std::string dot_lines(const std::vector<std::string>& lines) {
  std::string out;
  for (const std::string& line : lines) {
    const std::string quoted = dot_string(line);
    out += (out.empty() ? "" : "\\n") + quoted.substr(1, quoted.size() - 2);
  }
  return '"' + out + '"';
}

/// The blocks of "layer1.0.conv1" are "layer1" and "layer1.0".
std::vector<std::string> blocks_of(const std::string& path) {
  std::vector<std::string> blocks;
  for (std::size_t dot = path.find('.'); dot != std::string::npos; dot = path.find('.', dot + 1))
    blocks.push_back(path.substr(0, dot));
  return blocks;
}

/// The boxes of a network, and the arrows between them by the paths of their first layers.
class Graph {
 public:
  explicit Graph(const OrderedJson& layers) {
    std::map<std::string, int> readers;
    for (const OrderedJson& layer : layers)
      for (const OrderedJson& input : layer.at("inputs")) ++readers[input.get<std::string>()];
    for (const OrderedJson& layer : layers) add(layer, readers);
  }

  std::string text() const {
    std::map<std::string, int> sizes;
    for (const Node& node : nodes_)
      for (const std::string& block : blocks_of(node.path)) ++sizes[block];
    std::string text;
    for (const std::string& input : inputs_)
      text += fmt::format("  {} [shape=plaintext, style=\"\"];\n", dot_string(input));
    for (const Node& node : nodes_) {
      std::string boxes, ends;
      std::size_t drawn = 0;  // bytes of the path that the boxes around it say
      for (const std::string& block : blocks_of(node.path)) {
        if (sizes[block] < 2) continue;
        boxes += fmt::format("subgraph {} {{ label={}; ", dot_string("cluster_" + block),
                             dot_string(block.substr(drawn)));
        ends += " }";
        drawn = block.size() + 1;
      }
      std::vector<std::string> lines{node.path.substr(drawn)};
      lines.insert(lines.end(), node.lines.begin(), node.lines.end());
      text += fmt::format("  {}{} [label={}, fillcolor=\"{}\"];{}\n", boxes, dot_string(node.path),
                          dot_lines(lines), node.has_products ? "#CFE2F3" : "#FFFFFF", ends);
    }
    for (const auto& [from, to] : arrows_)
      text += fmt::format("  {} -> {};\n", dot_string(from), dot_string(to));
    return text;
  }

 private:
  void add(const OrderedJson& layer, const std::map<std::string, int>& readers) {
    const std::string path = layer.at("layer"), type = layer.at("type"), output = layer.at("output");
    const OrderedJson& from = layer.at("inputs");
    const bool plain = layer.at("parameters") == 0 && layer.at("products").empty();
    if (plain && from.size() == 1) {
      const std::string source = from.at(0);
      const auto box = box_of_.find(source);
      if (box != box_of_.end() && readers.at(source) == 1 && blocks_of(source) == blocks_of(path)) {
        Node& node = nodes_[box->second];
        if (node.lines.back() == output) node.lines.pop_back();
        node.lines.insert(node.lines.end(), {type, output});
        box_of_.emplace(path, box->second);
        return;
      }
    }
    for (const OrderedJson& input : from) {
      const std::string source = input;
      const auto box = box_of_.find(source);
      if (box == box_of_.end()) inputs_.insert(source);
      arrows_.emplace_back(box == box_of_.end() ? source : nodes_[box->second].path, path);
    }
    box_of_.emplace(path, nodes_.size());
    std::string label = type;
    if (layer.at("frozen").get<bool>()) label += ", frozen";
    if (const std::string to_float = layer.at("to_float"); !to_float.empty()) label += ", " + to_float;
    nodes_.push_back({path, {label, output}, !layer.at("products").empty()});
  }

  std::vector<Node> nodes_;
  std::map<std::string, std::size_t> box_of_;  ///< by path
  std::vector<std::pair<std::string, std::string>> arrows_;
  std::set<std::string> inputs_;
};

}  // namespace

std::string network_dot(std::string_view model) {
  try {
    const OrderedJson json = parse_json(model);
    return fmt::format(
        "digraph {} {{\n  graph [fontname=\"DejaVu Sans\", fontsize=11, ranksep=0.25, nodesep=0.3, "
        "style=rounded, color=\"#999999\", fontcolor=\"#555555\"];\n"
        "  node [shape=box, style=\"rounded,filled\", fillcolor=white, fontname=\"DejaVu Sans\", "
        "fontsize=10, margin=\"0.12,0.05\", height=0.3];\n  edge [arrowsize=0.6, color=\"#555555\"];\n{}}}\n",
        dot_string(json.at("name").get<std::string>()), Graph(json.at("layers")).text());
  } catch (const nlohmann::json::exception& error) {
    throw std::runtime_error(fmt::format("this is not a network's table: {}", error.what()));
  }
}

namespace {

/// What draws SOURCE.dot as NAME.
std::vector<std::string> graphviz_command(const std::string& program, const std::filesystem::path& source,
                                          const std::string& name) {
  const std::string ending = std::filesystem::path(name).extension().string();
  return {program, "-T" + ending.substr(1), "-o", "./" + name, "./" + source.filename().string()};
}

constexpr std::string_view no_graphviz =
    "graphviz is not installed (Debian: graphviz), which draws networks; a .dot file needs none";

}  // namespace

std::string run_graphviz(const std::filesystem::path& source, const std::filesystem::path& file,
                         const std::string& program) {
  const std::string log = file.stem().string() + ".log";
  switch (
      draw(graphviz_command(program, source, file.filename().string()), {source}, file.parent_path(), log)) {
    case Drawing::not_installed:
      return std::string(no_graphviz);
    case Drawing::failed:
      return fmt::format("graphviz cannot draw {}; its messages are in {}", file.string(),
                         (file.parent_path() / log).string());
    case Drawing::done:
      break;
  }
  return {};
}

std::string draw_network(std::string_view model, const std::filesystem::path& file) {
  const std::string ending = file.extension().string();
  if (ending.size() < 2)
    return fmt::format("{}: expected an ending such as .svg, .png or .dot", file.string());
  const std::string dot = network_dot(model);
  if (ending == ".dot") {
    write_file_atomically(file, dot, NamedBy::user);
    return {};
  }
  const PassingFolder passing;
  const std::filesystem::path source = passing.path() / "network.dot";
  const std::string drawing = "network" + ending;
  write_file_atomically(source, dot);
  switch (draw(graphviz_command("dot", source, drawing), {source}, passing.path(), "log")) {
    case Drawing::not_installed:
      return std::string(no_graphviz);
    case Drawing::failed: {
      const std::string words = read_file(passing.path() / "log");
      return fmt::format("graphviz cannot draw {}: {}", file.string(),
                         shown(words.substr(0, words.find('\n'))));
    }
    case Drawing::done:
      break;
  }
  write_file_atomically(file, read_file(passing.path() / drawing, longest::table), NamedBy::user);
  return {};
}

}  // namespace fp16lab::reports
