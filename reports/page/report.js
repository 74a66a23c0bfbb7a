'use strict';
// The page's charts and the gradient explorer. Everything is computed from the JSON in #data.
(() => {
const data = JSON.parse(document.getElementById('data').textContent);
const at = id => document.getElementById(id);
const css = name => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
const hasCharts = typeof Chart !== 'undefined';
const digits = {'-': '⁻', 0: '⁰', 1: '¹', 2: '²', 3: '³', 4: '⁴', 5: '⁵', 6: '⁶', 7: '⁷', 8: '⁸', 9: '⁹'};
const power = k => Number.isInteger(k) ? '2' + String(k).replace(/./g, c => digits[c]) : (2 ** k).toPrecision(4);
// Rates as rate_text() of the library writes them: 0 and 100 are exact.
const percent = x => {
  const p = 100 * x;
  return p <= 0 ? '0' : p >= 100 ? '100' : p < .01 ? '< 0.01' : p > 99.9 ? '> 99.9' : p < .995 ? p.toFixed(2) : p < 9.95 || p >= 99 ? p.toFixed(1) : p.toFixed(0);
};
const interval = ([low, high], of) => {
  if (of === 0) return '–';
  const a = percent(low / of), b = percent(high / of);
  if (a === b || (b[0] === '<' && a === '0')) return b + ' %';
  if (a[0] === '>' && b === '100') return a + ' %';
  return (a[0] === '<' ? '0' : a) + '–' + (b[0] === '>' ? '100' : b) + ' %';
};
const plainPercent = x => Number((100 * x).toPrecision(4)) + ' %';  // of axes: round numbers as they are
const exact = n => n.toLocaleString('en');
// Counts as narrow as a table needs: 24,153,952 to 24,263,585 is 24.15–24.26 M.
const short = ([a, b]) => {
  if (b < 1e5) return a === b ? exact(a) : exact(a) + '–' + exact(b);
  const [unit, name] = b < 999500 ? [1e3, ' k'] : [1e6, ' M'];
  const digits = unit === 1e3 || b >= 1e9 ? 0 : b >= 1e8 ? 1 : 2, from = (a / unit).toFixed(digits), to = (b / unit).toFixed(digits);
  return (from === to ? to : (a === 0 ? '0' : from) + '–' + to) + name;
};
const spelled = ([a, b]) => a === b ? exact(a) : exact(a) + ' to ' + exact(b);

// ---- zones of FP16 --------------------------------------------------------------------------------------------------
// A histogram is [zero, infinite, nan, first exponent, counts]; counts[i] is the bin (2^e, 2^(e+1)], e = first + i.
// `shift` is log2 of (wanted scale / recorded scale): the bin becomes (2^(e+shift), 2^(e+1+shift)].
const lostEdge = -25, normalEdge = -14, overflowEdge = Math.log2(65520);
function zonesOf([zero, infinite, nan, first, counts], shift) {
  const z = {zero, infinite, nan, total: zero + infinite + nan, finite: 0,
             lost: [0, 0], subnormal: [0, 0], normal: [0, 0], overflow: [0, 0]};
  counts.forEach((n, i) => {
    const a = first + i + shift, b = a + 1;
    z.finite += n;
    const add = (zone, inside, touches) => { if (inside) zone[0] += n; if (touches) zone[1] += n; };
    add(z.lost, b <= lostEdge, a < lostEdge);
    add(z.subnormal, a >= lostEdge && b < normalEdge, b > lostEdge && a < normalEdge);
    add(z.normal, a >= normalEdge && b < overflowEdge, b >= normalEdge && a < overflowEdge);
    add(z.overflow, a >= overflowEdge, b >= overflowEdge);
  });
  z.total += z.finite;
  return z;
}
function merge(histograms) {
  const sum = [0, 0, 0, 0, []];
  const filled = histograms.filter(h => h[4].length > 0);
  if (filled.length > 0) {
    const first = Math.min(...filled.map(h => h[3])), end = Math.max(...filled.map(h => h[3] + h[4].length));
    sum[3] = first;
    sum[4] = new Array(end - first).fill(0);
  }
  for (const h of histograms) {
    for (let i = 0; i < 3; ++i) sum[i] += h[i];
    h[4].forEach((n, i) => { sum[4][h[3] - sum[3] + i] += n; });
  }
  return sum;
}

// ---- charts ---------------------------------------------------------------------------------------------------------
const charts = [];
const narrow = matchMedia('(max-width: 44rem)');  // no room beside a chart
function frame(xTitle, yTitle, yAxis) {
  const text = css('--soft'), line = css('--line');
  const axis = extra => Object.assign({grid: {color: line}, ticks: {color: text}}, extra);
  return {
    animation: false, responsive: true, maintainAspectRatio: false, normalized: true,
    interaction: {mode: 'nearest', axis: 'x', intersect: false},
    plugins: {legend: {position: narrow.matches ? 'bottom' : 'right', labels: {color: css('--ink'), usePointStyle: true, pointStyleWidth: 48, boxHeight: 7,
              filter: item => !item.text.startsWith('band '), sort: (a, b) => a.datasetIndex - b.datasetIndex,
              generateLabels: chart => Chart.defaults.plugins.legend.labels.generateLabels(chart).map(
                label => Object.assign(label, {pointStyle: chart.data.datasets[label.datasetIndex].showLine === false ? label.pointStyle : 'line', lineDash: chart.data.datasets[label.datasetIndex].borderDash || []}))}},
              tooltip: {filter: item => !item.dataset.label.startsWith('band ')}},
    scales: {x: axis({type: 'linear', title: {display: true, text: xTitle, color: text}}),
             y: axis(Object.assign({title: {display: true, text: yTitle, color: text}}, yAxis))}
  };
}
// The styles are made for white paper; on a dark page each colour is mixed with a third of white.
const dark = matchMedia('(prefers-color-scheme: dark)').matches;
const tone = color => !dark ? color : '#' + [1, 3, 5].map(i => Math.round(parseInt(color.slice(i, i + 2), 16) * .65 + 255 * .35).toString(16).padStart(2, '0')).join('');
const line = (label, points, {color, width, dash}, extra) => Object.assign({label, data: points, borderColor: tone(color), backgroundColor: tone(color),
  borderWidth: width, borderDash: dash, borderCapStyle: 'butt', pointRadius: 0, pointHitRadius: 6, pointStyle: 'line', tension: 0}, extra);
const points = (curve, key) => curve.step.map((x, i) => ({x, y: curve[key][i]}));
function draw(place, config) {
  const box = document.createElement('div'), canvas = document.createElement('canvas');
  box.className = 'chart';
  box.appendChild(canvas);
  place.replaceChildren(box);
  const chart = new Chart(canvas, config);
  charts.push(chart);
  return chart;
}

// Round values between low and high: the more decades, the fewer in each.
function logarithmicTicks(low, high) {
  const digits = high / low > 1000 ? [1] : high / low > 30 ? [1, 2, 5] : [1, 1.5, 2, 3, 4, 5, 7];
  const ticks = [];
  for (let decade = Math.floor(Math.log10(low)); decade <= Math.log10(high); ++decade)
    for (const digit of digits) {
      const value = Number(digit + 'e' + decade);
      if (value >= low && value <= high) ticks.push(value);
    }
  return ticks;
}

// `part`: show only the steps from this fraction of the run on.
// `key`: the configurations' curve; `label`: of the vertical axis.
function lossChart(place, workload, key, label, part = 0) {
  const sets = [];
  let low = Infinity, high = 0;
  const last = Math.max(0, ...workload.configurations.map(c => c.curve.step.at(-1) ?? 0));
  const cut = curve => {
    const kept = curve.step.map((x, i) => i).filter(i => curve.step[i] >= part * last);
    return Object.fromEntries(Object.entries(curve).map(([key, values]) => [key, kept.map(i => values[i])]));
  };
  workload.configurations.forEach((c, i) => {
    const whole = c[key], curve = whole && cut(whole);
    if (!curve || curve.step.length === 0) return;
    low = Math.min(low, ...curve.low);
    high = Math.max(high, ...curve.high);
    const dots = key !== 'curve' && sets.length === 0 ? {pointRadius: c.style.width * .65, pointStyle: 'circle'} : {};
    sets.push(line(c.label, points(curve, 'mean'), c.style, Object.assign({order: -i}, dots)));  // later ones on top
    sets.push(line('band low', points(curve, 'low'), c.style, {borderWidth: 0, order: 2}));
    sets.push(line('band high', points(curve, 'high'), c.style, {borderWidth: 0, fill: '-1', backgroundColor: tone(c.style.color) + '33', order: 2}));
  });
  const options = frame('step', label, low > 0 && high / low > 5 ? {type: 'logarithmic', min: low * .9, max: high * 1.1} : {});
  if (part > 0) {
    options.scales.x.min = Math.floor(part * last);
    options.scales.x.ticks.includeBounds = false;  // a label there would touch the first round one
  }
  options.plugins.legend.position = 'bottom';
  if (options.scales.y.type === 'logarithmic') {
    options.scales.y.afterBuildTicks = axis => { axis.ticks = logarithmicTicks(axis.min, axis.max).map(value => ({value})); };
    Object.assign(options.scales.y.ticks, {autoSkip: false, callback: v => Number(v.toPrecision(3))});
  }
  draw(place, {type: 'line', data: {datasets: sets}, options});
}

function scaleChart(place, workload) {
  const sets = [], skips = [];
  for (const c of workload.configurations) {
    if (!c.trace || c.fp32) continue;
    const style = c.trace.changes.length > 2 ? {color: c.style.color, width: 2.4, dash: []} : c.style;  // a path that moves is easier to follow unbroken
    sets.push(line(c.label, c.trace.changes.map(([x, s]) => ({x, y: Math.log2(s)})), style, {stepped: true}));
    for (const [x, s] of c.trace.skipped) skips.push({x, y: Math.log2(s)});
  }
  if (skips.length > 0)
    sets.push({label: 'skipped step', data: skips, showLine: false, pointStyle: 'crossRot', pointRadius: 6, borderWidth: 2,
               borderColor: css('--lost'), backgroundColor: css('--lost'), order: -1});
  const options = frame('step', 'loss scale', {ticks: {color: css('--soft'), stepSize: 2, callback: v => Number.isInteger(v) ? power(v) : ''}});
  options.plugins.tooltip.callbacks = {label: item => item.dataset.label + ': ' + power(item.parsed.y)};
  draw(place, {type: 'line', data: {datasets: sets}, options});
}

window.addEventListener('beforeprint', () => charts.forEach(chart => chart.resize()));
if (hasCharts) {
  for (const place of document.querySelectorAll('[data-chart]')) {
    const workload = data.workloads[Number(place.dataset.workload)];
    if (place.dataset.chart === 'loss') lossChart(place, workload, 'curve', 'training loss');
    if (place.dataset.chart === 'loss-end') lossChart(place, workload, 'curve', 'training loss', 2 / 3);
    if (place.dataset.chart === 'evaluation') lossChart(place, workload, 'evaluation', place.dataset.split + ' loss');
    if (place.dataset.chart === 'quality') lossChart(place, workload, 'quality', place.dataset.split);
    if (place.dataset.chart === 'scale') scaleChart(place, workload);
  }
}

// ---- explorer -------------------------------------------------------------------------------------------------------
if (!at('histogram')) return;
const allTensors = -1;
const state = {run: 0, tensor: null, step: 0, scale: 0, heatFollows: false};
const run = () => data.runs[state.run];
const recorded = (step = state.step) => Math.log2(run().scales[step]);
const tensorHistogram = (tensor, step) =>
  tensor === allTensors ? merge(run().histograms[step]) : run().histograms[step][tensor];

const NS = 'http://www.w3.org/2000/svg';
function svg(name, attributes, children = []) {
  const node = document.createElementNS(NS, name);
  for (const [key, value] of Object.entries(attributes)) node.setAttribute(key, value);
  for (const child of [].concat(children)) node.append(child);
  return node;
}
const zoneNames = {lost: 'rounds to zero', subnormal: 'subnormal', normal: 'normal', overflow: 'overflow'};

function patterns() {
  const hatch = (id, color, path) => svg('pattern', {id, width: 6, height: 6, patternUnits: 'userSpaceOnUse'}, [
    svg('rect', {width: 6, height: 6, fill: color, 'fill-opacity': .28}),
    svg('path', {d: path, stroke: color, 'stroke-width': 1.6})]);
  return svg('defs', {}, [
    hatch('p-lost', css('--lost'), 'M-1,1 L1,-1 M0,6 L6,0 M5,7 L7,5'),
    hatch('p-subnormal', css('--subnormal'), 'M0,1 L6,1 M0,4 L6,4'),
    hatch('p-edge', css('--overflow'), 'M0,0 L6,6 M-1,5 L1,7 M5,-1 L7,1'),
    hatch('p-overflow', css('--overflow'), 'M0,0 L6,6 M0,6 L6,0')]);
}

function drawHistogram() {
  const histogram = tensorHistogram(state.tensor, state.step), shift = state.scale - recorded();
  const zones = zonesOf(histogram, shift);
  const width = Math.max(420, Math.min(760, at('histogram').clientWidth)), height = 360, left = 52, right = 8, top = 34, bottom = 46, low = -50, high = 22;
  const x = e => left + (e - low) / (high - low) * (width - left - right);
  const tallest = Math.max(1e-9, ...histogram[4]) / Math.max(1, zones.finite);
  const peak = [.02, .05, .1, .15, .2, .3, .4, .5, .75, 1].find(p => p >= tallest * 1.04) ?? 1;
  const y = share => height - bottom - share / peak * (height - top - bottom);
  const picture = svg('svg', {viewBox: `0 0 ${width} ${height}`, role: 'img', 'aria-label': 'Exponent histogram of gradients with the zones of FP16'}, patterns());
  const zone = (name, from, to) => {
    picture.append(svg('rect', {x: x(from), y: top, width: x(to) - x(from), height: height - top - bottom, fill: css('--' + name), 'fill-opacity': .09}));
    // The last zone is too narrow to be centred over.
    const place = to === high ? {x: width - right, 'text-anchor': 'end'} : {x: (x(from) + x(to)) / 2, 'text-anchor': 'middle'};
    const label = svg('text', {...place, y: top - 18, class: 'zone-name', style: `fill:var(--${name})`}, zoneNames[name]);
    const rate = svg('text', {...place, y: top - 4, style: `fill:var(--${name})`}, interval(zones[name], zones.finite));
    picture.append(label, rate);
  };
  zone('lost', low, lostEdge);
  zone('subnormal', lostEdge, normalEdge);
  zone('normal', normalEdge, overflowEdge);
  zone('overflow', overflowEdge, high);
  for (let i = 0; i <= 4; ++i) {
    const share = peak * i / 4;
    picture.append(svg('line', {x1: left, x2: width - right, y1: y(share), y2: y(share), class: 'grid'}),
                   svg('text', {x: left - 7, y: y(share) + 4, 'text-anchor': 'end', class: 'soft'}, plainPercent(share)));
  }
  let outside = 0;
  histogram[4].forEach((n, i) => {
    if (n === 0) return;
    const a = histogram[3] + i + shift, b = a + 1, share = n / zones.finite;
    if (b <= low || a >= high) { outside += n; return; }
    const fill = b <= lostEdge ? 'url(#p-lost)' : b <= normalEdge ? 'url(#p-subnormal)' : b < overflowEdge ? 'var(--normal)'
               : a >= overflowEdge ? 'url(#p-overflow)' : 'url(#p-edge)';
    const stroke = b <= lostEdge ? '--lost' : b <= normalEdge ? '--subnormal' : b < overflowEdge ? '--normal' : '--overflow';
    const from = Math.max(x(a), left), bar = svg('rect', {x: from + .6, y: y(share), width: Math.max(0, Math.min(x(b), x(high)) - from - 1.2), height: height - bottom - y(share),
      fill, stroke: css(stroke), 'stroke-width': 1});
    bar.append(svg('title', {}, `(${power(a)}, ${power(b)}]: ${exact(n)} values, ${percent(share)} %`));
    picture.append(bar);
  });
  for (const edge of [lostEdge, normalEdge, overflowEdge])
    picture.append(svg('line', {x1: x(edge), x2: x(edge), y1: top, y2: height - bottom, class: 'axis', 'stroke-dasharray': '3 3'}));
  picture.append(svg('line', {x1: left, x2: width - right, y1: height - bottom, y2: height - bottom, class: 'axis'}));
  for (const e of width < 600 ? [-48, -40, -32, -25, -14, -8, 0, 8, 16] : [-48, -40, -32, -25, -20, -14, -8, 0, 8, 16])
    picture.append(svg('text', {x: x(e), y: height - bottom + 17, 'text-anchor': 'middle', class: 'soft'}, power(e)));
  picture.append(svg('text', {x: (left + width - right) / 2, y: height - 8, 'text-anchor': 'middle', class: 'soft'},
    `${width < 480 ? '' : 'magnitude of '}gradient × ${power(state.scale)}; height: share of the non-zero values` +
    (outside > 0 ? ` (${percent(outside / zones.finite)} % lie outside the picture)` : '')));
  at('histogram').replaceChildren(picture);

  const row = (key, name, value, count) => `<tr><td>${key ? `<span class="key" style="background:var(--${key})"></span>` : ''}${name}</td><td>${value}</td>` +
    `<td title="${spelled(count)}">${short(count)}</td></tr>`;
  const whole = n => zones.total ? percent(n / zones.total) + ' % of all' : '–';
  at('rates').innerHTML = `<thead><tr><th>at ${power(state.scale)}</th><th>share</th><th>values</th></tr></thead><tbody>` +
    ['lost', 'subnormal', 'normal', 'overflow'].map(z => row(z, zoneNames[z], interval(zones[z], zones.finite), zones[z])).join('') +
    [['finite, not zero', zones.finite], ['exact zeros (not underflow)', zones.zero], ...[['Inf when recorded', zones.infinite], ['NaN when recorded', zones.nan]].filter(([, n]) => n > 0)]
      .map(([name, n]) => row('', name, whole(n), [n, n])).join('') + '</tbody>';
}

function drawHeat() {
  // As wide as there is room for, also after the window changes; on a narrow one it scrolls.
  const tensors = run().tensors, steps = run().steps, left = 130, top = 4, tall = 22, legend = 80;
  const cell = Math.max(10, (at('heat').clientWidth - left - legend) / steps.length);
  const width = left + cell * steps.length + legend, height = top + tall * tensors.length + 34;
  const picture = svg('svg', {viewBox: `0 0 ${width} ${height}`, width, role: 'img', 'aria-label': 'Underflow rate by tensor and step'});
  // Lightness falls evenly, so the map also reads in grey.
  const stops = [[0, 255, 255, 255], [.01, 252, 227, 197], [.1, 242, 166, 90], [.4, 179, 38, 30], [1, 74, 13, 10]];
  const color = rate => {
    if (rate === null) return 'none';
    if (rate === 0) return 'var(--paper)';
    const i = Math.max(1, stops.findIndex(s => rate <= s[0])), [a, b] = [stops[i - 1], stops[i]], t = (rate - a[0]) / (b[0] - a[0]);
    return `rgb(${[1, 2, 3].map(c => Math.round(a[c] + t * (b[c] - a[c]))).join(',')})`;
  };
  tensors.forEach((name, r) => {
    picture.append(svg('text', {x: left - 8, y: top + tall * r + 15, 'text-anchor': 'end'}, name));
    steps.forEach((step, c) => {
      const z = zonesOf(run().histograms[c][r], state.heatFollows ? state.scale - recorded(c) : 0);
      const rate = z.finite ? (z.lost[0] + z.lost[1]) / 2 / z.finite : null;
      const box = svg('rect', {x: left + cell * c, y: top + tall * r, width: cell, height: tall, fill: color(rate), stroke: 'var(--line)', 'stroke-width': .5});
      box.append(svg('title', {}, `${name}, step ${step}: ${rate === null ? 'no non-zero values' : percent(rate) + ' % round to zero'}`));
      picture.append(box);
    });
  });
  picture.append(svg('rect', {x: left + cell * state.step, y: top - 1, width: cell, height: tall * tensors.length + 2, fill: 'none', stroke: 'var(--ink)', 'stroke-width': 1.6}));
  const every = Math.ceil(46 / cell);
  steps.forEach((step, c) => { if (c % every === 0) picture.append(svg('text', {x: left + cell * (c + .5), y: height - 16, 'text-anchor': 'middle', class: 'soft'}, step)); });
  picture.append(svg('text', {x: left, y: height - 2, class: 'soft'}, 'step'));
  [0, .01, .1, .4, 1].forEach((rate, i) => {
    const x0 = left + cell * steps.length + 14, y0 = top + i * 18;
    picture.append(svg('rect', {x: x0, y: y0, width: 14, height: 14, fill: color(rate), stroke: 'var(--line)'}), svg('text', {x: x0 + 20, y: y0 + 12, class: 'soft'}, plainPercent(rate)));
  });
  at('heat').replaceChildren(picture);
  at('heat-title').textContent = 'Share of non-zero gradients that round to zero, by tensor and step, ' +
    (state.heatFollows ? 'at a loss scale of ' + power(state.scale) : 'at the loss scale of each step');
}

let whatIf = null;
const palette = ['#0072B2', '#D55E00', '#009E73', '#CC79A7', '#56B4E9', '#E69F00', '#888888'];
const marker = {id: 'marker', afterDatasetsDraw(chart) {
  const {ctx, chartArea, scales} = chart, x = scales.x.getPixelForValue(state.scale);
  ctx.save();
  ctx.strokeStyle = css('--ink');
  ctx.setLineDash([4, 3]);
  ctx.beginPath();
  ctx.moveTo(x, chartArea.top);
  ctx.lineTo(x, chartArea.bottom);
  ctx.stroke();
  ctx.restore();
}};
function drawWhatIf() {
  if (!hasCharts) {
    at('what-if-place').innerHTML = '<p class="soft">Drawn as a still figure in each workload\'s section above.</p>';
    return;
  }
  const layers = [], parts = [], place = (list, item) => list.includes(item) ? list.indexOf(item) : list.push(item) - 1;
  const curve = rates => rates.map((y, i) => ({x: data.scales[0] + i, y: 100 * y}));
  const sets = run().tensors.map((name, i) => {
    const dot = name.lastIndexOf('.');
    const color = palette[place(layers, name.slice(0, dot)) % palette.length], dash = [[], [7, 4], [2, 3], [8, 3, 2, 3]][place(parts, name.slice(dot)) % 4];
    return line(name, curve(run().what_if.lost[i]), {color, width: 2, dash});
  });
  sets.push(line('all tensors', curve(run().what_if.merged_lost), {color: '#444444', width: 4, dash: []}));
  sets.push(line('overflow, all', curve(run().what_if.merged_overflow), {color: '#7B3FA0', width: 2.5, dash: [9, 3, 2, 3]}));
  const options = frame('loss scale', 'non-zero gradients that round to zero (%)', {min: 0});
  Object.assign(options.scales.x, {min: data.scales[0], max: data.scales[1]});
  Object.assign(options.scales.x.ticks, {stepSize: 2, callback: v => power(v)});
  options.plugins.tooltip.callbacks = {title: items => 'loss scale ' + power(items[0].parsed.x)};
  if (whatIf) {
    charts.splice(charts.indexOf(whatIf), 1);
    whatIf.destroy();
  }
  whatIf = draw(at('what-if-place'), {type: 'line', data: {datasets: sets}, options, plugins: [marker]});
}

// The page's own arithmetic against the counts that the C++ library put beside the data.
function selfCheck() {
  let compared = 0, wrong = 0;
  for (const r of data.runs)
    for (const [step, log2scale, ...expected] of r.check) {
      const z = zonesOf(merge(r.histograms[step]), log2scale - Math.log2(r.scales[step]));
      const own = [...z.lost, ...z.subnormal, ...z.normal, ...z.overflow];
      own.forEach((n, i) => { ++compared; if (n !== expected[i]) ++wrong; });
    }
  at('self-check').textContent = wrong === 0
    ? `Self-check passed: ${compared.toLocaleString('en')} zone counts computed by this page equal those of the analysis library.`
    : `Self-check FAILED: ${wrong} of ${compared} zone counts differ from those of the analysis library. Do not trust the explorer.`;
  if (wrong > 0) at('self-check').className = 'alarm';
}

function fill(select, entries) {
  select.replaceChildren(...entries.map(([value, text]) => new Option(text, value)));
}
function fillRuns() {
  at('run').replaceChildren(...data.workloads.map(w => {
    const group = document.createElement('optgroup');
    group.label = w.name;
    data.runs.forEach((r, i) => { if (r.workload === w.name) group.append(new Option(`${r.label}, seed ${r.seed}`, i)); });
    return group;
  }));
}
// Begin where the story is: the run that underflow hurts most, and the tensor that loses most in it. A verdict against
// a run counts for more than its rate, since some models live well with much underflow.
function worstRun() {
  const harm = r => {
    if (r.fp32) return -1;
    const c = data.workloads.find(w => w.name === r.workload).configurations.find(c => c.label === r.label);
    return (/^(behind|diverged)/.test(c.verdict ?? '') ? 2 : 0) + (c.underflow_rate ?? 0);
  };
  return data.runs.reduce((worst, r, i) => harm(r) > harm(data.runs[worst]) ? i : worst, 0);
}
function worstTensor() {
  const rates = run().histograms[state.step].map(h => { const z = zonesOf(h, 0); return z.finite ? (z.lost[0] + z.lost[1]) / 2 / z.finite : 0; });
  return Math.max(...rates) > 0 ? rates.indexOf(Math.max(...rates)) : allTensors;
}
function chooseRun(index) {
  const oldTensor = state.tensor !== null && state.tensor !== allTensors ? run().tensors[state.tensor] : null;
  state.run = index;
  fill(at('tensor'), [[allTensors, 'all tensors'], ...run().tensors.map((t, i) => [i, `${t} (${run().kinds[i]})`])]);
  state.step = run().steps.length - 1;
  if (state.tensor === null) state.tensor = worstTensor();
  else state.tensor = oldTensor === null ? allTensors : Math.max(allTensors, run().tensors.indexOf(oldTensor));
  at('step').max = state.step;
  state.scale = Math.round(recorded());
  drawWhatIf();
}
function show() {
  at('run').value = state.run;
  at('tensor').value = state.tensor;
  at('step').value = state.step;
  at('step-value').textContent = run().steps[state.step];
  at('scale').value = state.scale;
  const difference = state.scale - recorded();
  at('scale-value').textContent = power(state.scale) + (difference === 0 ? ' (as recorded)' : ` (recorded with ${power(recorded())})`);
  drawHistogram();
  drawHeat();
  if (whatIf) whatIf.update('none');
}
function readHash() {
  const wanted = new URLSearchParams(location.hash.slice(1));
  const number = (key, low, high) => wanted.has(key) && Number.isFinite(Number(wanted.get(key))) ? Math.min(high, Math.max(low, Math.round(Number(wanted.get(key))))) : null;
  const index = number('run', 0, data.runs.length - 1);
  if (index !== null) chooseRun(index);
  if (wanted.has('tensor')) state.tensor = run().tensors.indexOf(wanted.get('tensor'));
  const step = number('step', 0, Infinity);
  if (step !== null) run().steps.forEach((s, i) => { if (s <= step) state.step = i; });
  state.scale = number('scale', data.scales[0], data.scales[1]) ?? state.scale;
}
function remember() {
  const tensor = '&tensor=' + (state.tensor === allTensors ? '' : encodeURIComponent(run().tensors[state.tensor]));
  history.replaceState(null, '', `#run=${state.run}${tensor}&step=${run().steps[state.step]}&scale=${state.scale}`);
}
const on = (id, event, action) => at(id).addEventListener(event, () => { action(at(id)); show(); remember(); });

fillRuns();
at('scale-ticks').replaceChildren(...Array.from({length: 18}, (_, i) => 2 * i - 10).map(k => Object.assign(document.createElement('span'), {textContent: power(k)})));
chooseRun(worstRun());
readHash();
on('run', 'change', e => chooseRun(Number(e.value)));
on('tensor', 'change', e => { state.tensor = Number(e.value); });
on('step', 'input', e => { state.step = Number(e.value); });
on('scale', 'input', e => { state.scale = Number(e.value); });
on('recorded', 'click', () => { state.scale = Math.round(recorded()); });
at('heat-follows').addEventListener('change', e => { state.heatFollows = e.target.checked; show(); });
window.addEventListener('hashchange', () => { readHash(); show(); });
for (const [id, redraw] of [['histogram', drawHistogram], ['heat', drawHeat]]) {
  let width = 0;
  new ResizeObserver(() => {
    if (at(id).clientWidth === width) return;  // a new height is our own doing
    width = at(id).clientWidth;
    redraw();
  }).observe(at(id));
}
matchMedia('(prefers-color-scheme: dark)').addEventListener('change', () => location.reload());
selfCheck();
show();
})();
