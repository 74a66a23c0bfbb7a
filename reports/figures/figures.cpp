#include "reports/figures/figures.hpp"

#include <iterator>

#include "reports/figures/gnuplot.hpp"
#include "reports/figures/network_figure.hpp"

namespace fp16lab::reports {

std::vector<Figure> write_figures(const WorkloadFigures& input, const std::filesystem::path& folder) {
  std::vector<Figure> all;
  for (const auto write :
       {write_loss_figure, write_quality_figure, write_costs_figure, write_network_figure, write_scale_figure,
        write_histogram_figures, write_what_if_figure, write_heat_map_figure}) {
    std::vector<Figure> figures = write(input, folder);
    all.insert(all.end(), std::make_move_iterator(figures.begin()), std::make_move_iterator(figures.end()));
  }
  return all;
}

std::string draw_figures(std::span<Figure> figures, const std::filesystem::path& folder,
                         const std::string& gnuplot, const std::string& graphviz) {
  for (Figure& figure : figures) {
    if (figure.is_graph) {
      const std::filesystem::path source = folder / (figure.stem + ".dot");
      figure.drawn = run_graphviz(source, folder / (figure.stem + ".svg"), graphviz).empty() &&
                     run_graphviz(source, folder / (figure.stem + ".png"), graphviz).empty();
      continue;
    }
    std::string problem = run_gnuplot(gnuplot, folder / (figure.stem + ".gp"));
    if (!problem.empty()) return problem;
    figure.drawn = true;
  }
  return {};
}

}  // namespace fp16lab::reports
