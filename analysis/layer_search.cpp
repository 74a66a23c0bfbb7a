#include "analysis/layer_search.hpp"

#include <algorithm>
#include <numeric>
#include <stdexcept>
#include <tuple>

namespace fp16lab::analysis {
namespace {

/// Numbers of layers, ascending.
using Chosen = std::vector<std::size_t>;

class Search {
 public:
  Search(std::span<const std::string> layers, double margin,
         const std::function<double(const std::vector<std::string>&)>& error_with)
      : layers_(layers), margin_(margin), error_with_(error_with) {}

  std::size_t tried() const { return errors_.size(); }
  double error(Chosen chosen) {
    std::ranges::sort(chosen);
    const auto known = errors_.find(chosen);
    if (known != errors_.end()) return known->second;
    return errors_[chosen] = error_with_(names_of(chosen));
  }
  bool good(const Chosen& chosen) { return error(chosen) <= margin_; }
  std::vector<std::string> names_of(const Chosen& chosen) const {
    std::vector<std::string> names;
    for (const std::size_t layer : chosen) names.push_back(layers_[layer]);
    return names;
  }

 private:
  std::span<const std::string> layers_;
  double margin_;
  const std::function<double(const std::vector<std::string>&)>& error_with_;
  std::map<Chosen, double> errors_;
};

Chosen except(const Chosen& chosen, std::size_t layer) {
  Chosen rest = chosen;
  std::erase(rest, layer);
  return rest;
}

Chosen first(const Chosen& ranked, std::size_t count) {
  return {ranked.begin(), ranked.begin() + static_cast<std::ptrdiff_t>(count)};
}

/// Leaves out the least of `ranked` that can be; false: none can.
bool leave_out(Search& search, Chosen& ranked) {
  for (std::size_t i = ranked.size(); i-- > 0;)
    if (Chosen rest = except(ranked, ranked[i]); search.good(rest)) {
      ranked = std::move(rest);
      return true;
    }
  return false;
}

}  // namespace

LayerList shortest_list(std::span<const std::string> layers, double margin,
                        const std::function<double(const std::vector<std::string>&)>& error_with,
                        std::span<const double> harm) {
  if (!harm.empty() && harm.size() != layers.size())
    throw std::invalid_argument("the harm of " + std::to_string(harm.size()) + " layers is given; " +
                                std::to_string(layers.size()) + " are needed, or none");
  Search search(layers, margin, error_with);
  Chosen all(layers.size());
  std::iota(all.begin(), all.end(), std::size_t{0});
  LayerList list{.without = search.error({})};
  Chosen chosen;
  if (!search.good({})) {
    chosen = all;
    list.restored = search.good(all);
  }
  if (!chosen.empty() && list.restored) {
    for (const std::size_t layer : all) list.damage[layers[layer]] = search.error(except(all, layer));
    std::ranges::stable_sort(chosen, std::greater{}, [&](std::size_t layer) {
      const double damage = list.damage[layers[layer]], own = harm.empty() ? 0 : harm[layer];
      return std::tuple{damage > margin ? damage : 0, std::max(damage, own), own};
    });
    std::size_t few = 0, enough = chosen.size();
    while (enough - few > 1) {
      const std::size_t middle = (few + enough) / 2;
      (search.good(first(chosen, middle)) ? enough : few) = middle;
    }
    chosen = first(chosen, enough);
    while (leave_out(search, chosen)) {
    }
    std::ranges::sort(chosen);
  }
  list.within = search.error(chosen);
  list.layers = search.names_of(chosen);
  list.tried = search.tried();
  return list;
}

}  // namespace fp16lab::analysis
