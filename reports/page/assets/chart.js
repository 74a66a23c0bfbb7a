// Lines over one horizontal axis, with a legend below and a reading at the pointer or under the arrow keys.

// Round values between low and high, about `count` of them.
function roundTicks(low, high, count) {
  const rough = (high - low) / count || 1, unit = 10 ** Math.floor(Math.log10(rough));
  const step = [1, 2, 5, 10].map(m => m * unit).find(s => s >= rough * .75), ticks = [];
  for (let i = Math.ceil(low / step - 1e-9); i * step <= high + 1e-9 * step; ++i) ticks.push(Number((i * step).toPrecision(12)));
  return ticks;
}
// The same on a logarithmic axis: the more decades, the fewer in each.
function logarithmicTicks(low, high) {
  const leading = high / low > 1000 ? [1] : high / low > 30 ? [1, 2, 5] : [1, 1.5, 2, 3, 4, 5, 7], ticks = [];
  for (let decade = Math.floor(Math.log10(low)); decade <= Math.log10(high); ++decade)
    for (const digit of leading) {
      const value = Number(digit + 'e' + decade);
      if (value >= low && value <= high) ticks.push(value);
    }
  return ticks;
}

const letter = 6.7;  // pixels, on the average
// Keys in rows of at most `width` pixels: [{entry, x, row}].
function keyPlaces(entries, width) {
  let x = 0, row = 0;
  return entries.map(entry => {
    const own = 52 + letter * entry.label.length;
    if (x > 0 && x + own > width) [x, row] = [0, row + 1];
    const place = {entry, x, row};
    x += own;
    return place;
  });
}

// series: [{label, points: [{x, y}], low, high, color, width, dash, stepped, marks}], low and high: edges of a band; `marks` alone: crosses.
// x, y: {title, low, high, log, ticks, text}; y.limit: a height with a dashed line. `marker`: an x with one. Returns the picture.
function lineChart(width, height, label, series, x, y, marker = null) {
  width = Math.max(300, width);
  const ys = series.flatMap(s => [...s.points.map(p => p.y), ...s.low ?? [], ...s.high ?? []]).filter(Number.isFinite), xs = series.flatMap(s => s.points.map(p => p.x));
  let low = y.low ?? Math.min(...ys), high = y.high ?? Math.max(...ys);
  if (!(high > low)) [low, high] = ys.length === 0 ? [0, 1] : [low - Math.abs(low) * .05 - 1e-9, high + Math.abs(high) * .05 + 1e-9];
  else if (y.log) [low, high] = [low / (high / low) ** .03, high * (high / low) ** .03];
  else [low, high] = [y.low ?? low - .04 * (high - low), y.high ?? high + .04 * (high - low)];
  const first = x.low ?? Math.min(...xs), last = x.high ?? Math.max(...xs, first + 1);
  const yTicks = (y.ticks ?? (y.log ? logarithmicTicks : (a, b) => roundTicks(a, b, 5)))(low, high), yText = y.text ?? (v => String(Number(v.toPrecision(3))));
  const left = 14 + letter * Math.max(2, ...yTicks.map(v => yText(v).length)), right = 14, top = 24;
  const keys = keyPlaces(series, width - left), rows = 1 + Math.max(0, ...keys.map(k => k.row)), bottom = 40 + 18 * rows;
  const place = v => left + (v - first) / (last - first) * (width - left - right), scale = y.log ? Math.log : v => v;
  const lift = v => height - bottom - (scale(v) - scale(low)) / (scale(high) - scale(low)) * (height - bottom - top);
  const chart = picture(width, height, label, {class: 'chart', tabindex: 0});
  chart.append(words(0, 13, y.title, {class: 'soft'}));
  for (const v of yTicks) chart.append(svg('line', {x1: left, x2: width - right, y1: lift(v), y2: lift(v), class: 'grid'}), words(left - 6, lift(v) + 4, yText(v), {'text-anchor': 'end', class: 'soft'}));
  const xText = x.text ?? exact, most = Math.max(2, Math.floor((width - left) / 74));
  for (const v of (x.ticks ?? ((a, b) => roundTicks(a, b, Math.min(8, most))))(first, last).filter((v, i, all) => i % Math.ceil(all.length / most) === 0))
    chart.append(svg('line', {x1: place(v), x2: place(v), y1: height - bottom, y2: height - bottom + 4, class: 'axis'}), words(place(v), height - bottom + 17, xText(v), {'text-anchor': 'middle', class: 'soft'}));
  chart.append(svg('line', {x1: left, x2: width - right, y1: height - bottom, y2: height - bottom, class: 'axis'}), words((left + width - right) / 2, height - bottom + 33, x.title, {'text-anchor': 'middle', class: 'soft'}));
  const corners = ({points, stepped}) => points.filter(p => Number.isFinite(p.y)).flatMap((p, i, all) => stepped && i > 0 ? [[place(p.x), lift(all[i - 1].y)], [place(p.x), lift(p.y)]] : [[place(p.x), lift(p.y)]]);
  for (const s of series.filter(s => s.low)) {
    const edge = which => s.points.map((p, i) => [place(p.x), lift(which[i])]).filter(p => p.every(Number.isFinite));
    chart.append(svg('path', {d: path([...edge(s.low), ...edge(s.high).reverse()]) + 'Z', ...filled(s.color), 'fill-opacity': .18}));
  }
  for (const s of series) {
    if (s.marks) for (const p of s.points) chart.append(svg('path', {d: `M${(place(p.x) - 4).toFixed(1)},${(lift(p.y) - 4).toFixed(1)}l8,8m0,-8l-8,8`, class: 'skip'}));
    else chart.append(svg('path', {d: path(corners(s)), fill: 'none', ...stroked(s.color), 'stroke-width': s.width, 'stroke-dasharray': (s.dash ?? []).join(' '), 'stroke-linejoin': 'round'}));
    if (s.points.length === 1 && !s.marks) chart.append(svg('circle', {cx: place(s.points[0].x), cy: lift(s.points[0].y), r: 3, ...filled(s.color)}));
  }
  for (const {entry: s, x: from, row} of keys) {
    const at = height - 18 * rows + 18 * row + 9;
    chart.append(s.marks ? svg('path', {d: `M${left + from + 11},${at - 4}l8,8m0,-8l-8,8`, class: 'skip'})
      : svg('line', {x1: left + from, x2: left + from + 30, y1: at, y2: at, ...stroked(s.color), 'stroke-width': s.width, 'stroke-dasharray': (s.dash ?? []).join(' ')}));
    chart.append(words(left + from + 36, at + 4, s.label));
  }
  if (marker !== null && marker >= first && marker <= last) chart.append(svg('line', {x1: place(marker), x2: place(marker), y1: top, y2: height - bottom, class: 'marker'}));
  if (y.limit !== undefined) chart.append(svg('line', {x1: left, x2: width - right, y1: lift(y.limit), y2: lift(y.limit), class: 'marker'}));
  reading(chart, series.filter(s => s.points.length > 0), {place, left, right, top, floor: height - bottom, width, xText: v => `${x.title} ${xText(v)}`, yText});
  return chart;
}

// A line that follows the pointer, or the arrow keys, and says what every curve has there.
function reading(chart, series, {place, left, top, floor, width, xText, yText}) {
  const stops = [...new Set(series.flatMap(s => s.points.map(p => p.x)))].sort((a, b) => a - b);
  if (stops.length === 0) return;
  const line = svg('line', {y1: top, y2: floor, class: 'axis', visibility: 'hidden'});
  chart.append(line);
  let index = stops.length - 1;
  const value = (s, stop) => {
    const before = s.points.filter(p => p.x <= stop).at(-1);
    return s.stepped ? before?.y : s.points.find(p => p.x === stop)?.y;
  };
  const show = () => {
    const stop = stops[index], box = chart.getBoundingClientRect();
    for (const key of ['x1', 'x2']) line.setAttribute(key, place(stop));
    line.setAttribute('visibility', 'visible');
    const told = series.map(s => [s.label, value(s, stop)]).filter(([, v]) => v !== undefined && v !== null);
    showTip([xText(stop), ...told.map(([label, v]) => `${label}: ${yText(v)}`)].join('\n'), box.left + place(stop) / width * box.width + 12, box.top + top);
  };
  const hide = () => {
    line.setAttribute('visibility', 'hidden');
    hideTip();
  };
  const nearest = wanted => stops.reduce((best, stop, i) => Math.abs(place(stop) - wanted) < Math.abs(place(stops[best]) - wanted) ? i : best, 0);
  chart.addEventListener('pointermove', event => {
    const box = chart.getBoundingClientRect(), x = (event.clientX - box.left) / box.width * width;
    if (x < left - 8) return hide();
    index = nearest(x);
    show();
  });
  chart.addEventListener('pointerleave', hide);
  chart.addEventListener('blur', hide);
  chart.addEventListener('keydown', event => {
    const by = {ArrowLeft: -1, ArrowRight: 1, Home: -stops.length, End: stops.length}[event.key];
    if (by === undefined) return;
    event.preventDefault();
    index = Math.max(0, Math.min(stops.length - 1, index + by));
    show();
  });
}
