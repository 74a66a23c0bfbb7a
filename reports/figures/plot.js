// A plot: curves, marks, segments and bars over two axes. What is drawn is a plain object, which is also what a figure's file
// beside the picture holds:
//   {kind: "plot", title, x: axis, y: axis, series: [...], zones: [...], lines: [...], marker, labels, height}
//   axis: {title, low, high, log, ticks, form, names, limit}: `form` is a key of `forms`; `names` are the names of 1, 2, ...;
//     `limit` is a value with a dashed line
//   styles: {LABEL: what series of that label have in common}
//   series: {label, color, width, dash, stepped, points: [[x, y], ...], low, high (edges of a band, one a point), mark (a name of
//     mark(); alone where `width` is 0), segments: [[x, y, x, y, width], ...], bars: [[from, to, y], ...], hatched}
//   zones: {from, to, color, name} shaded from bottom to top; lines: {x, name, solid} dashed, or not, from bottom to top; marker: an x with a line
//   labels: "none" where another panel of the figure has them

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

// How numbers of an axis are written. Ticks are round, and so all their digits are short; values have three.
const shortNumber = v => String(Number(v.toPrecision(3))), tickNumber = v => String(Number(v.toPrecision(12)));
const forms = {
  plain: shortNumber, tick: tickNumber, count: v => exact(v),
  power2: v => Number.isInteger(v) ? power(v) : scaleText(2 ** v),
  power10: v => Number.isInteger(Math.log10(v)) ? tenPower(Math.round(Math.log10(v))) : shortNumber(v)};
const formOf = (axis, plain = 'plain') => {
  if (axis.names) return v => axis.names[v - 1] ?? '';
  const name = axis.form ?? (axis.log && axis.high / axis.low > 1e4 ? 'power10' : 'plain'), form = forms[name === 'plain' ? plain : name];
  return axis.log && axis.floor !== undefined ? v => v > axis.floor ? form(v) : `≤ ${form(axis.floor)}` : form;
};

// Which of the curves are drawn over one another: lists of curves. `same` takes two of them.
function groupsOf(curves, same) {
  const groups = [];
  for (const curve of curves) {
    const group = groups.find(([first]) => same(first, curve));
    if (group) group.push(curve);
    else groups.push([curve]);
  }
  return groups;
}
const coinciding = (curves, same) => groupsOf(curves, same).filter(group => group.length > 1).map(group => group.map(curve => curve.label));
// Nearer to one another than half a percent of `span`, everywhere: one line, as drawn. `axis` is what the axis does to a value.
const drawnAsOne = (span, axis = y => y) => (a, b) => a.points.length === b.points.length &&
  a.points.every(([x, y], i) => x === b.points[i][0] && Math.abs(axis(y) - axis(b.points[i][1])) <= .005 * span);
const coincidence = groups => groups.length === 0 ? '' : ' These coincide: ' + groups.map(labels => labels.join(' = ')).join('; ') + '.';

// An axis with its ends: those that it states, else those of the values and some room.
function ended(axis, values, room) {
  const finite = values.filter(v => Number.isFinite(v) && (!axis.log || v > 0));
  let low = axis.low ?? Math.min(...finite), high = axis.high ?? Math.max(...finite);
  if (axis.names) [low, high] = [.5, axis.names.length + .5];
  else if (finite.length === 0 && (axis.low === undefined || axis.high === undefined)) [low, high] = axis.log ? [1, 10] : [0, 1];
  else if (!(high > low)) [low, high] = axis.log ? [low / 1.5, low * 1.5] : (room => [low - room, low + room])(axis.form === 'power2' ? 1 : Math.abs(low) * .05 || 1);
  else if (axis.log) [low, high] = [axis.low ?? low / (high / low) ** room, axis.high ?? high * (high / low) ** room];
  else [low, high] = [axis.low ?? low - room * (high - low), axis.high ?? high + room * (high - low)];
  return {...axis, low, high};
}

// What is at the end of each curve: its name, or those of all that coincide there, each in its colour.
const mostNames = 5, lineHeight = 14;
function endLabels(series, y) {
  const scale = y.log ? Math.log : v => v, curves = series.filter(s => s.label && s.width !== 0 && s.points?.length > 0);
  return groupsOf(curves, drawnAsOne(scale(y.high) - scale(y.low), scale)).map(group => {
    const named = group.length > mostNames ? group.slice(0, mostNames - 1) : group, lines = named.map((s, i) => ({text: (i > 0 ? '= ' : '') + s.label, color: s.color}));
    if (named.length < group.length) lines.push({text: `= ${group.length - named.length} others`, color: '#444444'});
    return {lines, color: group.at(-1).color, tall: lineHeight * lines.length, point: group[0].points.filter(p => Number.isFinite(p[1])).at(-1) ?? group[0].points.at(-1)};
  });
}
// Do curves end at different heights? Where many meet at the end, labels there would not help.
function apart(values, y) {
  const scale = y.log ? Math.log : v => v, all = values.filter(Number.isFinite).map(scale), span = scale(y.high) - scale(y.low);
  return all.every(v => all.filter(other => Math.abs(other - v) < .03 * span).length <= 4);
}
// Moves blocks apart: each is `tall` high and at `want` if there is room. Their beginnings become `at`, none beyond `top` and
// `floor`.
function spread(blocks, top, floor) {
  blocks.sort((a, b) => a.want + a.tall / 2 - b.want - b.tall / 2);
  for (const [i, block] of blocks.entries()) block.at = Math.max(block.want, i > 0 ? blocks[i - 1].at + blocks[i - 1].tall : top);
  for (let i = blocks.length - 1; i >= 0; --i) blocks[i].at = Math.min(blocks[i].at, (i + 1 < blocks.length ? blocks[i + 1].at : floor) - blocks[i].tall);
}

// What series look like, at places of keyPlaces() below `top`.
function drawKeys(chart, places, top) {
  for (const {entry: s, x: from, row} of places) {
    const at = top + 18 * row + 9;
    if (s.bars) chart.append(svg('rect', {x: from + 8, y: at - 6, width: 14, height: 12, ...s.hatched ? {...stroked(s.color), fill: 'url(#p-lost)'} : filled(s.color)}));
    else if (s.width !== 0 || s.segments) chart.append(svg('line', {x1: from, x2: from + 30, y1: at, y2: at, ...stroked(s.color), 'stroke-width': s.width || s.thick || 2, 'stroke-dasharray': s.dash?.length ? s.dash.join(' ') : undefined}));
    if (s.mark) chart.append(mark(s.mark, from + 15, at, s.color));
    chart.append(words(from + 36, at + 4, s.label));
  }
}

// `unkeyed` of what it returns: series of `panel.styles` that have a name neither at their ends nor, where panel.keyed is false, below.
function drawPlot(panel, width, height) {
  width = Math.max(panel.y.names ? 70 : 250, width);
  const series = panel.series.map(s => ({color: palette[0], ...panel.styles?.[s.label], ...s})), all = key => series.flatMap(s => s[key] ?? []);
  const segments = all('segments'), bars = all('bars');
  const x = ended({...panel.x}, [...all('points').map(p => p[0]), ...segments.flatMap(s => [s[0], s[2]]), ...bars.flatMap(b => [b[0], b[1]])], panel.x.room ?? 0);
  const y = ended({...panel.y}, [...all('points').map(p => p[1]), ...all('low'), ...all('high'), ...segments.flatMap(s => [s[1], s[3]]), ...bars.map(b => b[2])], .04);
  const xText = formOf(x, 'tick'), yText = formOf(y, 'tick'), curves = series.filter(s => s.width !== 0 && s.points?.length > 0);

  const named = panel.labels === 'none' ? [] : endLabels(series, y), label = panel.label ?? panel.title ?? y.title ?? '';
  const beside = named.length > 0 ? 12 + Math.max(...named.flatMap(l => l.lines.map(line => textWidth(line.text)))) : Infinity;
  const direct = beside <= .42 * width && named.reduce((sum, l) => sum + l.tall, 0) <= height - 80 && curves.every(s => s.points.at(-1)[0] >= x.low + .6 * (x.high - x.low)) && apart(named.map(l => l.point[1]), y);
  const nameless = panel.labels === 'none' ? [] : series.filter(s => s.label && (!direct || !curves.includes(s))), unkeyed = panel.keyed === false ? nameless.filter(s => panel.styles?.[s.label]) : [];
  const keys = nameless.filter(s => !unkeyed.includes(s));
  const xWords = x.title ? wrapped(x.title, width - 4) : [], yWords = y.title && !y.names ? wrapped(y.title, width - 4) : [];
  const belowWords = [...panel.zones ?? [], ...panel.lines ?? []].some(z => z.name) ? yWords.length > 0 ? 14 : 12 : 0;  // names over the panel
  const top = (panel.title ? 18 : 0) + 10 + 14 * yWords.length + belowWords, left = y.names === undefined ? 0 : y.hidden ? 12 : y.room ?? Math.min(.5 * width, 12 + Math.max(...y.names.map(n => textWidth(n))));
  const placed = keyPlaces(keys, width - 8), rows = keys.length === 0 ? 0 : 1 + placed.at(-1).row, bottom = 24 + (xWords.length > 0 ? 2 + 14 * xWords.length : 0) + 18 * rows, floor = height - bottom;
  const scaled = axis => axis.log ? v => Math.log(v) - Math.log(axis.low) : v => v - axis.low;
  const across = (axis, from, to) => (scale => v => from + scale(v) / scale(axis.high) * (to - from))(scaled(axis));
  const lift = y.names ? v => top + (v - y.low) / (y.high - y.low) * (floor - top) : across(y, floor, top);
  const yAll = y.names ? y.names.map((n, i) => i + 1) : y.ticks ?? (y.log ? logarithmicTicks(y.low, y.high) : roundTicks(y.low, y.high, Math.max(2, Math.min(6, Math.floor((floor - top) / 30)))));
  const yWhole = y.form === 'power2' && y.high - y.low >= 2 ? yAll.filter(Number.isInteger) : yAll, yEvery = y.names ? 1 : Math.ceil(yWhole.length / Math.max(2, Math.floor((floor - top) / 18))), yTicks = yWhole.filter((v, i) => v >= y.low && v <= y.high && i % yEvery === 0);
  const start = y.names ? left : y.hidden ? 20 : 14 + Math.max(12, ...yTicks.map(v => textWidth(yText(v)))), right = direct ? beside : 14;
  const place = across(x, start, width - right);

  const chart = picture(width, height, label, {class: 'chart', tabindex: panel.interactive ? 0 : undefined});
  if (panel.title) chart.append(words(0, 13, shortened(panel.title, width, boldSize), {class: 'zone-name'}));
  for (const zone of panel.zones ?? []) {
    const [from, to] = [zone.from ?? x.low, zone.to ?? x.high].map(v => Math.max(x.low, Math.min(x.high, v)));
    if (to <= from) continue;
    chart.append(svg('rect', {x: place(from), y: top, width: place(to) - place(from), height: floor - top, fill: zone.color, 'fill-opacity': zone.opacity ?? .1}));
    if (zone.name && textWidth(zone.name) < place(to) - place(from) + 16) chart.append(words((place(from) + place(to)) / 2, top - 6, zone.name, {'text-anchor': 'middle', class: 'soft'}));
  }
  yWords.forEach((line, i) => chart.append(words(0, top - 11 - belowWords - 14 * (yWords.length - 1 - i), line, {class: 'soft'})));
  for (const v of yTicks) {
    chart.append(svg('line', {x1: start, x2: width - right, y1: lift(v), y2: lift(v), class: 'grid'}));
    if (!y.hidden) chart.append(words(start - 6, lift(v) + 4, y.names ? shortened(yText(v), start - 10) : yText(v), {'text-anchor': 'end', class: y.names ? '' : 'soft'}));
  }
  const widest = v => textWidth(xText(v)), xAll = x.ticks ?? (x.log ? logarithmicTicks(x.low, x.high) : roundTicks(x.low, x.high, Math.max(3, Math.min(8, Math.floor((width - start - right) / 64)))));
  const xKept = xAll.filter(v => v >= x.low && v <= x.high && (x.form !== 'count' || Number.isInteger(v))), room = 12 + Math.max(0, ...xKept.map(widest));
  const xMost = Math.floor((width - start - right) / room), xEvery = xMost > 2 ? Math.ceil(xKept.length / xMost) : Math.max(1, xKept.length - 1);
  for (const v of xKept.filter((v, i) => i % xEvery === 0)) {
    chart.append(svg('line', {x1: place(v), x2: place(v), y1: y.names ? top : floor, y2: y.names ? floor : floor + 4, class: y.names ? 'grid' : 'axis'}));
    chart.append(centred(place(v), floor + 17, xText(v), width));
  }
  chart.append(svg('line', {x1: start, x2: width - right, y1: floor, y2: floor, class: 'axis'}));
  xWords.forEach((line, i) => chart.append(centred((start + width - right) / 2, floor + 33 + 14 * i, line, width)));

  const lines = (panel.lines ?? []).filter(line => line.x >= x.low && line.x <= x.high);
  for (const {x: v, solid} of lines) chart.append(svg('line', {x1: place(v), x2: place(v), y1: top, y2: floor, class: solid ? 'axis' : 'marker'}));
  const tops = lines.filter(line => line.name).map(({x: v, name, solid}) => ({name, want: place(v) - 4 - (solid ? textWidth(name) / 2 : 0), tall: textWidth(name) + 8}));
  spread(tops, 0, width);
  for (const {name, at, tall} of tops) chart.append(words(at + tall / 2, top - 5, name, {'text-anchor': 'middle', class: 'soft'}));
  // Bands of curves that coincide would only darken one another.
  const scale = y.log ? Math.log : v => v, same = drawnAsOne(scale(y.high) - scale(y.low), scale);
  for (const [s] of groupsOf(series.filter(s => s.low), same)) {
    const edge = which => s.points.map((p, i) => [p[0], which[i]]).filter(p => p.every(Number.isFinite) && !(y.log && p[1] <= 0)).map(([a, b]) => [place(a), lift(b)]);
    chart.append(svg('path', {d: path([...edge(s.low), ...edge(s.high).reverse()]) + 'Z', ...filled(s.color), 'fill-opacity': s.bandOpacity ?? .18}));
  }
  for (const s of series) {
    for (const [from, to, v] of s.bars ?? [])
      chart.append(svg('rect', {x: place(from) + .5, y: lift(v), width: Math.max(.5, place(to) - place(from) - 1), height: Math.max(0, lift(y.low) - lift(v)), ...s.hatched ? {...stroked(s.color), fill: 'url(#p-lost)'} : {...filled(s.color), 'fill-opacity': .75}}));
    for (const [a, b, c, d, thick = s.thick] of s.segments ?? [])
      chart.append(svg('line', {x1: place(a), y1: lift(b), x2: place(c), y2: lift(d), ...stroked(s.color), 'stroke-width': thick ?? 1.6}));
    const points = (s.points ?? []).filter(p => Number.isFinite(p[1]) && !(y.log && p[1] <= 0));
    const corners = points.flatMap(([a, b], i) => s.stepped && i > 0 ? [[place(a), lift(points[i - 1][1])], [place(a), lift(b)]] : [[place(a), lift(b)]]);
    if (s.width !== 0 && points.length > 1) chart.append(svg('path', {d: path(corners), fill: 'none', ...stroked(s.color), 'stroke-width': s.width ?? 2, 'stroke-dasharray': s.dash?.length ? s.dash.join(' ') : undefined, 'stroke-linejoin': 'round'}));
    if (s.mark || points.length === 1) for (const [a, b] of points) chart.append(mark(s.mark ?? 'dot', place(a), lift(b), s.color));
  }
  for (const v of [y.limit].filter(v => v !== undefined)) chart.append(svg('line', {x1: start, x2: width - right, y1: lift(v), y2: lift(v), class: 'marker'}));
  if (panel.marker !== undefined && panel.marker >= x.low && panel.marker <= x.high) chart.append(svg('line', {x1: place(panel.marker), x2: place(panel.marker), y1: top, y2: floor, class: 'marker'}));

  if (direct) {
    const ends = named.map(l => ({...l, y: lift(l.point[1]), want: lift(l.point[1]) - l.tall / 2}));
    spread(ends, Math.min(top - 4, floor - ends.reduce((sum, l) => sum + l.tall, 0)), floor + 6);
    for (const l of ends) {
      const end = place(l.point[0]), middle = l.at + l.tall / 2;
      if (Math.abs(middle - l.y) > 5 || width - right - end > 6) chart.append(svg('path', {d: path([[end + 1, l.y], [width - right + 4, middle]]), fill: 'none', ...stroked(l.color), 'stroke-width': .8}));
      l.lines.forEach(({text, color}, i) => chart.append(words(width - right + 7, l.at + 11 + lineHeight * i, text, lettered(color))));
    }
  }
  drawKeys(chart, placed, height - 18 * rows);
  chart.unkeyed = unkeyed;
  if (panel.interactive) panel.interactive(chart, series.filter(s => s.points?.length > 0), {place, left: start, top, floor, width, xText: v => `${x.title} ${formOf(x)(v)}`, yText: formOf(y)});
  return chart;
}
