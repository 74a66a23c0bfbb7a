// The picture of one histogram in a format's zones: {kind: "histogram", title, aside, histogram, ratio, formats, what, updates,
// zones}. A histogram and a format are what zones.js computes with; `zones` are counts, where more is known than the histogram says.
const shortZoneNames = {lost: 'to zero', subnormal: 'subn.', normal: 'normal', overflow: 'over'};
// What an update does to a weight that has no master copy (HistogramRow of the library).
const updateZoneNames = {lost: 'lost', subnormal: 'depends', normal: 'moves', overflow: 'over'};

const rangeWords = 'A range means that a zone’s edge cuts a bin, whose values may lie on either side.';

// `ratio`: required scale / the scale that the histogram's values carry; `what`: the quantity on the axis. Where the values
// have several formats there are no common edges: then the zones are only named.
function drawHistogramPanel({title, aside, histogram: stored, ratio, formats, what, updates, zones, low, high}, width, height) {
  const histogram = [...stored.slice(0, 5), ...stored.slice(5).map(floatOfBits)], head = title ? 34 : 0;
  const chart = drawHistogram(width, height - head, histogram, ratio, zones ?? zonesOf(histogram, ratio, formats[0]), what, formats, updates ? updateZoneNames : zoneNames, [low, high]);
  if (!title) return chart;
  const whole = picture(width, height, chart.getAttribute('aria-label'));
  chart.setAttribute('y', head);
  whole.append(words(0, 13, shortened(title, width - 4, boldSize), {class: 'zone-name'}), words(0, 28, aside ?? '', {class: 'soft'}), chart);
  return whole;
}

// The same ends for all panels: what is rounded and what is there, and beside each panel's name what no bar shows.
function fitted(panels) {
  const reach = panels.flatMap(({histogram: [, , , first, counts], ratio}) => counts.length === 0 ? [] : [first + Math.log2(ratio), first + counts.length + Math.log2(ratio)]);
  const ties = panels.map(p => p.formats[0].tie), tops = panels.map(p => Math.ceil(Math.log2(p.formats[0].overflow)));
  const low = Math.max(Math.min(...ties) - 26, Math.min(Math.min(...ties) - 12, Math.floor(Math.min(...reach, 0)))), high = Math.min(Math.max(...tops) + 26, Math.max(Math.max(...tops) + 4, Math.ceil(Math.max(...reach, 0))));
  return panels.map(panel => {
    const [zero, infinite, nan, , counts] = panel.histogram, whole = zero + infinite + nan + counts.reduce((a, b) => a + b, 0);
    return {...panel, what: panels.length === 1 ? panel.what : '', low, high, aside: `${infinite > 0 ? `${exact(infinite)} Inf, ` : ''}${nan > 0 ? `${exact(nan)} NaN, ` : ''}exact zeros ${whole > 0 ? percent(zero / whole) : 0} %`};
  });
}

function drawHistogram(width, height, histogram, ratio, zones, what, formats, names = zoneNames, ends = []) {
  const shift = Math.log2(ratio), range = formats.length === 1 ? formats[0] : null, slim = width < 460;
  width = Math.max(190, width);
  const left = width < 240 ? 38 : 52, right = width < 240 ? 2 : 8, top = what ? 54 : 40, bottom = what ? 40 : 24;
  // FP16's numbers are in the middle; formats and values that reach further down move the left end.
  const lowest = range && range.rounds ? Math.min(-50, Math.max(-150, range.tie - 8)) : -50, high = ends[1] ?? 22;
  const low = ends[0] ?? (range && range.tie < -60 ? lowest : -50);
  const inside = e => Math.max(low, Math.min(high, e)), edges = range ? [range.tie, range.normal, Math.log2(range.overflow)].map(inside) : [-25, -14, 16];
  const x = e => left + (e - low) / (high - low) * (width - left - right);
  const tallest = Math.max(1e-9, ...histogram[4]) / Math.max(1, zones.finite);
  const peak = [.02, .05, .1, .15, .2, .3, .4, .5, .8, 1].find(p => p >= tallest * 1.04) ?? 1;
  const y = share => height - bottom - share / peak * (height - top - bottom);
  const spoken = zoneKeys.map(key => `${interval(zones[key], zones.finite)} ${names[key]}`).join(', ');
  const chart = picture(width, height, `Exponent histogram, ${what}: ${spoken}`);
  const shares = [];  // a text for each zone, moved apart where a zone is narrow
  zoneKeys.forEach((key, i) => {
    const from = [low, ...edges][i], to = [...edges, high][i];
    if (range && to - from > .5)
      chart.append(svg('rect', {x: x(from), y: top, width: x(to) - x(from), height: height - top - bottom, fill: `var(--${key})`, 'fill-opacity': .1}),
                   svg('rect', {x: x(from) + 1, y: top - 5, width: x(to) - x(from) - 2, height: 4, fill: `var(--${key})`}));
    if (to - from <= 2) return;  // out of sight; the table has it
    const room = x(to) - x(from), name = room < 7.6 * names[key].length && names === zoneNames ? shortZoneNames[key] : names[key], told = interval(zones[key], zones.finite);
    if (room < 20) return;
    const tall = 4 + Math.max(textWidth(told), textWidth(name, boldSize)), middle = to === high ? width - right - tall / 2 : (x(from) + x(to)) / 2;
    shares.push({told, name, want: middle - tall / 2, tall});
  });
  // Where there is no room for all names: numbers alone.
  if (shares.reduce((sum, share) => sum + share.tall, 0) > width) {
    chart.append(words(width, top - 25, 'shares in %', {'text-anchor': 'end', class: 'soft'}));
    for (const share of shares) {
      const told = share.told.replace(' %', ''), tall = textWidth(told) + 8;
      Object.assign(share, {told, name: '', want: share.want + (share.tall - tall) / 2, tall});
    }
  }
  spread(shares, 0, width);
  for (const {told, name, at, tall} of shares)
    chart.append(words(at + tall / 2, top - 25, name, {'text-anchor': 'middle', class: 'zone-name'}), svg('text', {x: at + tall / 2, y: top - 10, 'text-anchor': 'middle'}, told.includes('–') && zones.finite > 0 ? [told, svg('title', {}, rangeWords)] : told));
  if (what) chart.append(words(0, 13, 'share of the non-zero values', {class: 'soft'}));
  for (const share of roundTicks(0, peak, height - top - bottom < 80 ? 2 : 4))
    chart.append(svg('line', {x1: left, x2: width - right, y1: y(share), y2: y(share), class: 'grid'}), words(left - 7, y(share) + 4, plainPercent(share), {'text-anchor': 'end', class: 'soft'}));
  let outside = 0;
  histogram[4].forEach((n, i) => {
    if (n === 0) return;
    const a = histogram[3] + i + shift, b = a + 1, share = n / zones.finite;
    if (b <= low || a >= high) { outside += n; return; }
    const [first, last] = range ? zonesOfBin(histogram, histogram[3] + i, ratio, range) : [2, 2], key = zoneKeys[last];
    const from = Math.max(a, low), to = Math.min(b, high), group = svg('g', {});
    // A bin that an edge cuts has a colour on either side of it, but one colour where only its very end is beyond.
    const parts = key === 'overflow' && first !== last ? [[key, from, to]] : zoneKeys.slice(first, last + 1).map((zone, k, all) =>
      [zone, k === 0 ? from : Math.max(from, edges[first + k - 1]), k === all.length - 1 ? to : Math.min(to, edges[first + k])]);
    for (const [zone, start, end] of parts) {
      const left = x(start) + (start === from ? .6 : 0), right = x(end) - (end < to ? 0 : slim ? .2 : .6);
      if (parts.length > 1 && right <= left) continue;
      group.append(svg('rect', {x: left, y: y(share), width: Math.max(0, right - left), height: height - bottom - y(share),
        fill: zone === 'normal' ? 'var(--normal)' : parts.length === 1 && first !== last ? 'url(#p-edge)' : `url(#p-${zone})`, stroke: `var(--${zone})`, 'stroke-width': 1}));
    }
    const name = e => Number.isInteger(e) ? power(e) : (2 ** e).toPrecision(4), ends = range && last > first && edges[last - 1] === b;
    group.append(svg('title', {}, `(${name(a)}, ${name(b)}]: ${exact(n)} values, ${percent(share)} %${ends ? `; of these only ${name(b)} itself is ${names[key]}` : first !== last ? '; an edge cuts this bin' : ''}`));
    chart.append(group);
  });
  for (const edge of range ? edges.filter(edge => edge > low && edge < high) : [])
    chart.append(svg('line', {x1: x(edge), x2: x(edge), y1: top, y2: height - bottom, class: 'axis', 'stroke-dasharray': '3 3'}));
  chart.append(svg('line', {x1: left, x2: width - right, y1: height - bottom, y2: height - bottom, class: 'axis'}));
  // Edges that are powers of two have their place on the axis, round numbers where they leave room.
  const room = 34 * (high - low) / (width - left - right), every = [4, 8, 10, 20, 40, 80].find(n => n >= room) ?? 80;
  const marks = range ? edges.filter(edge => Number.isInteger(edge) && edge > low && edge < high).filter((edge, i, all) => i === 0 || edge - all[i - 1] >= room) : [];
  const round = Array.from({length: 60}, (_, i) => (i - 40) * every).filter(e => e >= low + room / 2 && e <= high - room / 2);
  for (const e of [...marks, ...round.filter(e => marks.every(edge => Math.abs(edge - e) >= room))])
    chart.append(words(x(e), height - bottom + 16, power(e), {'text-anchor': 'middle', class: 'soft'}));
  if (what) chart.append(words((left + width - right) / 2, height - 6, what + (outside > 0 ? ` (${percent(outside / zones.finite)} % outside)` : ''), {'text-anchor': 'middle', class: 'soft'}));
  return chart;
}

