// The map of layers and steps: the share of non-zero gradients that round to zero.

// ColorBrewer's Blues (Brewer 2003) at nine places, so that little is pale: even in lightness, for all eyes and in grey.
const blues = [[8, 48, 107], [8, 81, 156], [33, 113, 181], [66, 146, 198], [107, 174, 214], [158, 202, 225], [198, 219, 239], [222, 235, 247], [247, 251, 255]];
// Most colours mark small rates, which are what readers look for.
const heatStops = [0, .001, .01, .1, .4, 1];
const heatKeys = [[0, '0 %'], [.0005, '< 0.1 %'], ...heatStops.slice(1).map(share => [share, plainPercent(share)])];
// What has no rate: a tensor that held zeros alone, and one that nothing rounded. Their keys are there where they are in the map.
const noRateKeys = [['zeros', 'only zeros'], [null, 'not rounded']];
const noRatesIn = shares => noRateKeys.filter(([share]) => shares.includes(share));
function heatColor(rate, dark) {
  if (rate === null) return 'url(#p-blank)';
  if (rate === 'zeros') return 'url(#p-zeros)';
  if (rate === 0) return 'var(--paper)';
  const i = Math.max(1, heatStops.findIndex(stop => rate <= stop)), [a, b] = [heatStops[i - 1], heatStops[i]];
  const amount = (i - 1 + (rate - a) / (b - a)) / (heatStops.length - 1);
  const at = (dark ? amount : 1 - amount) * (blues.length - 1), k = Math.min(blues.length - 2, Math.floor(at));  // the more, the further from the paper
  return `rgb(${[0, 1, 2].map(c => Math.round(blues[k][c] + (at - k) * (blues[k + 1][c] - blues[k][c]))).join(',')})`;
}

const kindTitles = {weight: 'weight gradients', activation: 'activation gradients'};

// All maps of a figure: a row of keys, then as many maps side by side as have room, with the names of tensors, which
// all have in common, once in a row. A panel is {kind: "heat", title, tensors, kinds, steps, rates, crosses}: rates[step][tensor] in [0, 1],
// "zeros" where the tensor held zeros alone, or null where nothing was rounded; crosses[step][tensor]: whether there was an Inf or NaN.
function drawHeatMaps(panels, width) {
  const gap = 14, tall = 14, left = Math.min(.35 * width, 12 + Math.max(...panels.flatMap(panel => panel.tensors).map(name => textWidth(name))));
  const columns = Math.max(1, Math.min(4, panels.length, Math.floor((width - left + gap) / (gap + (width < 420 ? 85 : 200))))), one = (width - left - gap * (columns - 1)) / columns;
  const without = noRatesIn(panels.flatMap(panel => panel.rates.flat())), box = Math.min(70, width / heatKeys.length), keys = picture(width, without.length > 0 ? 46 : 28, 'Share that became zero');
  heatKeys.forEach(([share, name], i) => keys.append(svg('rect', {x: box * i, y: 0, width: box, height: 10, fill: heatColor(share, isDark()), stroke: 'var(--line)'}), words(box * (i + .5), 23, name, {'text-anchor': 'middle', class: 'soft'})));
  without.forEach(([share, name], i) => keys.append(svg('rect', {x: 110 * i, y: 33, width: 26, height: 10, fill: heatColor(share, isDark()), stroke: 'var(--line)'}), words(110 * i + 32, 42, name, {class: 'soft'})));
  const titles = panels.map(panel => wrapped(panel.title, one, boldSize)), head = 4 + 14 * Math.max(...titles.map(lines => lines.length));
  const maps = panels.map((panel, i) => {
    const own = i % columns === 0 ? left : 0, map = drawHeatMap(own + one, panel, (tensor, step) => panel.rates[step][tensor], panel.title, {crossed: (tensor, step) => panel.crosses[step][tensor], least: 0, left: own, tall, keyed: false});
    const whole = picture(own + one, head + Number(map.getAttribute('height')), panel.title);
    map.setAttribute('y', head);
    whole.append(...titles[i].map((line, k) => words(own, 13 + 14 * k, line, {class: 'zone-name'})), map);
    return whole;
  });
  const rows = Array.from({length: Math.ceil(maps.length / columns)}, (_, r) => stacked(maps.slice(r * columns, (r + 1) * columns), columns, width, gap, 'A row of maps'));
  maps.forEach((map, i) => map.setAttribute('x', i % columns === 0 ? 0 : left + (i % columns) * (one + gap)));
  return stacked([keys, ...rows], 1, width, 10, 'Maps of tensors and steps');
}

// One map. rate(tensor, step) and crossed(tensor, step); `chosen` is {tensor, step}; choose(tensor, step) is called for a click on a
// cell; `left` is the room for names of tensors, 0 for none; `keyed`: whether the keys stand beside it.
function drawHeatMap(room, {tensors, kinds, steps}, rate, caption, {chosen = null, choose = null, crossed = () => false, least = 10, keyed = true, ...given} = {}) {
  const groups = [...new Set(kinds)].sort((a, b) => (b === 'weight') - (a === 'weight')), rows = groups.flatMap(kind => [{kind}, ...tensors.map((name, tensor) => ({name, tensor})).filter(r => kinds[r.tensor] === kind)]);
  const longest = Math.max(...tensors.map(name => textWidth(name))), dark = isDark(), legend = keyed ? 90 : 0;
  const left = given.left ?? Math.min(230, .4 * room, Math.max(110, 14 + longest)), top = 4, tall = given.tall ?? (tensors.length > 40 ? 13 : tensors.length > 20 ? 17 : 22);
  // As wide as there is room for; on a narrow window it scrolls, where cells are no narrower than `least`.
  const cell = Math.max(least, (room - left - legend - 2) / steps.length), right = Math.max(left + cell * steps.length, keyed ? left + 112 : 0);
  const legends = [...heatKeys, ...noRatesIn(tensors.flatMap((name, tensor) => steps.map((step, c) => rate(tensor, c))))];
  const floor = top + tall * rows.length, height = Math.max(floor + 36, keyed ? top + 18 * legends.length + 22 : 0), width = right + legend;
  const map = picture(width, height, caption);
  rows.forEach((row, r) => {
    const y = top + tall * r;
    if (row.kind) {
      // Before the names, where maps are narrow.
      if (left > 0) map.append(words(keyed ? left : 0, y + tall - (keyed ? 5 : 3), kindTitles[row.kind] ?? row.kind, {class: 'zone-name'}));
      return;
    }
    const label = svg('text', {x: left - 8, y: y + tall / 2 + 4, 'text-anchor': 'end', class: row.tensor === chosen?.tensor ? 'zone-name' : '', style: tall < 15 ? 'font-size:11px' : ''}, shortened(row.name, left - 12));
    label.append(svg('title', {}, row.name));
    if (left > 0) map.append(label);
    steps.forEach((step, c) => {
      const share = rate(row.tensor, c);
      const box = svg('rect', {x: left + cell * c, y, width: cell, height: tall, fill: heatColor(share, dark), stroke: 'var(--line)', 'stroke-width': .5, class: choose ? 'cell' : undefined});
      box.append(svg('title', {}, `${row.name}, step ${step}: ${share === null ? 'nothing was rounded' : share === 'zeros' ? 'all values are zero' : percent(share) + ' % round to zero'}`));
      if (choose) box.addEventListener('click', () => choose(row.tensor, c));
      map.append(box);
      if (crossed(row.tensor, c)) map.append(svg('path', {d: `M${(left + cell * (c + .5) - 3).toFixed(1)},${(y + tall / 2 - 3).toFixed(1)}l6,6m0,-6l-6,6`, class: 'skip', 'pointer-events': 'none'}));
    });
  });
  // A frame for each group: one for all would cross the groups' titles.
  if (chosen) groups.forEach(kind => {
    const own = rows.map((row, r) => row.tensor !== undefined && kinds[row.tensor] === kind ? r : -1).filter(r => r >= 0), from = top + tall * own[0];
    map.append(svg('rect', {x: left + cell * chosen.step, y: from, width: cell, height: tall * own.length, fill: 'none', stroke: 'var(--ink)', 'stroke-width': 1.8, 'pointer-events': 'none'}));
  });
  const every = Math.ceil(46 / cell);
  steps.forEach((step, c) => { if (c % every === 0) map.append(svg('text', {x: left + cell * (c + .5), y: floor + 17, 'text-anchor': 'middle', class: 'soft'}, step)); });
  map.append(svg('text', {x: (left + right) / 2, y: floor + 32, 'text-anchor': 'middle', class: 'soft'}, 'step'));
  if (keyed) legends.forEach(([share, name], i) => {
    const x = right + 14, y = top + 18 * i;
    map.append(svg('rect', {x, y, width: 14, height: 14, fill: heatColor(share, dark), stroke: 'var(--line)'}), svg('text', {x: x + 20, y: y + 12, class: 'soft'}, name));
  });
  return map;
}
