// What a step takes at each level: bytes by class of tensor, and time.
const memoryParts = ['weights and masters', 'their gradients', 'optimizer', 'activations'];

// torch's O3 and the like have no FP32 copies to mix with.
const levelName = ({level, fp32, format}) => (fp32 ? 'FP32' : level === 'O3' ? format : `${format} mixed`) + (level ? ` (${level})` : '');

// One row a level: policies of one level take the same memory. Times are the median of its configurations.
function levelsOf({configurations}) {
  const levels = new Map();
  for (const c of configurations) {
    if (c.twin || !(c.seconds > 0)) continue;
    const name = levelName(c), key = name + JSON.stringify(c.memory ?? null);
    if (!levels.has(key)) levels.set(key, {name, memory: c.memory, seconds: [], labels: []});
    levels.get(key).seconds.push(c.seconds);
    levels.get(key).labels.push(c.label);
  }
  const rows = [...levels.values()], twice = name => rows.filter(r => r.name === name).length > 1;
  return rows.map(({name, memory, seconds, labels}) => ({name: twice(name) ? `${name}: ${labels[0]}${labels.length > 1 ? ' …' : ''}` : name, memory, seconds: seconds.sort((a, b) => a - b)[seconds.length >> 1]}));
}

// rows: [{name, parts: [numbers], text, cross}]
function barChart(width, label, rows, unit, keys) {
  const left = Math.min(.42 * width, 16 + letter * Math.max(...rows.map(r => r.name.length))), right = 100, tall = 30;
  const legend = keyPlaces(keys.map(k => ({label: k})), width - 8), top = keys.length ? 22 + 18 * legend.at(-1).row : 6, height = top + tall * rows.length + 40;
  const most = Math.max(...rows.map(r => Math.max(r.cross ?? 0, r.parts.reduce((a, b) => a + b, 0)))), x = v => left + v / most * (width - left - right);
  const chart = picture(width, height, label);
  legend.forEach(({x: from, row}, i) => {
    const cross = i === memoryParts.length;
    chart.append(cross ? svg('path', {d: `M${from + 4},${5 + 18 * row}l8,8m0,-8l-8,8`, class: 'cross'}) : svg('rect', {x: from + 2, y: 4 + 18 * row, width: 12, height: 12, ...filled(palette[i])}), words(from + 20, 14 + 18 * row, keys[i]));
  });
  for (const v of roundTicks(0, most, 4)) chart.append(svg('line', {x1: x(v), x2: x(v), y1: top, y2: height - 34, class: 'grid'}), words(x(v), height - 20, String(v), {'text-anchor': 'middle', class: 'soft'}));
  rows.forEach((row, r) => {
    const y = top + tall * r + 5;
    let from = 0;
    const name = words(left - 8, y + 15, row.name.length * letter > left - 8 ? row.name.slice(0, Math.floor((left - 14) / letter)) + '…' : row.name, {'text-anchor': 'end'});
    name.append(svg('title', {}, row.name));
    chart.append(name);
    row.parts.forEach((part, i) => {
      chart.append(svg('rect', {x: x(from), y, width: Math.max(0, x(from + part) - x(from)), height: tall - 10, ...filled(keys.length ? palette[i] : '#777777')}, svg('title', {}, `${keys[i] ?? row.name}: ${Number(part.toPrecision(3))} ${unit}`)));
      from += part;
    });
    if (row.cross) chart.append(svg('path', {d: `M${x(row.cross) - 4},${y + 6}l8,8m0,-8l-8,8`, class: 'cross'}));
    chart.append(words(x(Math.max(from, row.cross ?? 0)) + 9, y + 15, row.text, {class: 'soft'}));
  });
  chart.append(words((left + width - right) / 2, height - 4, unit, {'text-anchor': 'middle', class: 'soft'}));
  return chart;
}

function startBars() {
  for (const place of document.querySelectorAll('[data-costs]')) {
    const workload = data.workloads[Number(place.dataset.costs)], levels = levelsOf(workload), sized = levels.filter(l => l.memory), short = v => String(Number(v.toPrecision(3)));
    if (levels.length === 0) continue;
    const memory = element('figure'), time = element('figure');
    place.append(...sized.length > 0 ? [memory, time] : [time]);
    if (sized.length > 0) figureIn(memory, `memory by level ${workload.name}`, width => ({
      picture: barChart(width, `Memory of a step by level, ${workload.name}`, sized.map(l => ({name: l.name, parts: l.memory.slice(0, 4).map(b => b / 2 ** 20), cross: l.memory[4] / 2 ** 20, text: short(l.memory[4] / 2 ** 20)})), 'MiB', [...memoryParts, 'peak']),
      caption: 'Bars are bytes by shapes and dtypes at each level; the cross is the most that was alive at once in the first two steps, scratch included.'}));
    figureIn(time, `time by level ${workload.name}`, width => ({
      picture: barChart(width, `Time of a step by level, ${workload.name}`, levels.map(l => ({name: l.name, parts: [1e3 * l.seconds], text: short(1e3 * l.seconds)})), 'ms a step' + (workload.emulated ? ' (emulated: not a GPU’s speed)' : ''), []),
      caption: 'A step takes this long at each level, as the median, on the machine that trained, with whatever else it did: equal work may differ by half.'}));
  }
}
