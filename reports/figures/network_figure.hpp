// A network's layers as a graph, drawn by graphviz.
#pragma once

#include <filesystem>
#include <string>
#include <string_view>

namespace fp16lab::reports {

/// `model`, Manifest::model or what `fp16lab model --json` prints, in the DOT language: a node a layer with
/// its output's shape, boxes around blocks, darker where there are products. Layers without parameters or
/// products are below the layer that they follow, if nothing else is. std::runtime_error for other JSON.
std::string network_dot(std::string_view model);

/// Draws `source`, a .dot file, as `file` in the same folder, in the format of its ending. Returns "", or one
/// line with the reason of a failure ("graphviz is not installed ...").
std::string run_graphviz(const std::filesystem::path& source, const std::filesystem::path& file,
                         const std::string& program = "dot");

/// Writes `file` (its ending names the format: .dot, or one that graphviz draws, such as .svg, .png, .pdf).
/// Returns what run_graphviz does.
std::string draw_network(std::string_view model, const std::filesystem::path& file);

}  // namespace fp16lab::reports
