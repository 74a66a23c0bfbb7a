// What charts and pictures share: the page's colours, SVG, the frame of a Chart.js chart.
const at = id => document.getElementById(id);
const css = name => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
const hasCharts = typeof Chart !== 'undefined';
const narrow = matchMedia('(max-width: 44rem)');  // no room beside a chart
const darkMode = matchMedia('(prefers-color-scheme: dark)');
let printing = false;  // paper is white
// The styles of lines are made for white paper; on a dark page each colour is mixed with a third of white.
const tone = color => !darkMode.matches ? color : '#' + [1, 3, 5].map(i => Math.round(parseInt(color.slice(i, i + 2), 16) * .65 + 255 * .35).toString(16).padStart(2, '0')).join('');
const palette = ['#0072B2', '#D55E00', '#009E73', '#CC79A7', '#56B4E9', '#E69F00', '#888888'];  // Okabe and Ito 2008

const NS = 'http://www.w3.org/2000/svg';
function svg(name, attributes, children = []) {
  const node = document.createElementNS(NS, name);
  for (const [key, value] of Object.entries(attributes)) node.setAttribute(key, value);
  for (const child of [].concat(children)) node.append(child);
  return node;
}

// Draws again when the place's width changes (a new height is our own doing).
function redrawOnResize(place, redraw) {
  let width = place.clientWidth;
  new ResizeObserver(() => {
    if (place.clientWidth === width) return;
    width = place.clientWidth;
    redraw();
  }).observe(place);
}

// Which of the curves are drawn over one another: lists of labels. `same` takes two curves.
function coinciding(curves, same) {
  const groups = [];
  for (const curve of curves) {
    const group = groups.find(([first]) => same(first, curve));
    if (group) group.push(curve);
    else groups.push([curve]);
  }
  return groups.filter(group => group.length > 1).map(group => group.map(curve => curve.label));
}
// Nearer to one another than half a percent of `span`, everywhere: one line, as drawn. `axis` is what the axis does to a value.
const drawnAsOne = (span, axis = y => y) => (a, b) => a.points.length === b.points.length &&
  a.points.every(({x, y}, i) => x === b.points[i].x && Math.abs(axis(y) - axis(b.points[i].y)) <= .005 * span);
function sayCoinciding(place, groups) {
  if (groups.length === 0) return;
  const note = document.createElement('p');
  note.className = 'soft coincide';
  note.textContent = 'Coincide: ' + groups.map(labels => labels.join(' = ')).join('; ') + '.';
  place.append(note);
}

const charts = [];
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
const line = (label, points, {color, width, dash}, extra) => Object.assign({label, data: points, borderColor: tone(color), backgroundColor: tone(color),
  borderWidth: width, borderDash: dash, borderCapStyle: 'butt', pointRadius: 0, pointHitRadius: 6, pointStyle: 'line', tension: 0}, extra);
function draw(place, config, label) {
  const old = charts.findIndex(chart => place.contains(chart.canvas));
  if (old >= 0) charts.splice(old, 1)[0].destroy();
  const box = document.createElement('div'), canvas = document.createElement('canvas');
  box.className = 'chart';
  canvas.setAttribute('role', 'img');
  canvas.setAttribute('aria-label', label);
  box.append(canvas);
  place.replaceChildren(box);
  charts.push(new Chart(canvas, config));
  return charts.at(-1);
}
window.addEventListener('beforeprint', () => {
  printing = true;
  charts.forEach(chart => chart.resize());
});
window.addEventListener('afterprint', () => { printing = false; });
darkMode.addEventListener('change', () => location.reload());
